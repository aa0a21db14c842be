//! One safetensors file.

use std::fs::File;
use std::io::{self, BufWriter, Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use crate::{byte_len, pattern};

/// Bytes generated at a time: they stay in a core's cache between being made and being written.
const CHUNK: usize = 256 << 10;

/// Builds one safetensors file: `u64` header length, JSON header, data.
///
/// Left alone it is what the reference writer makes: tensors back to back in the order of their adding, the
/// header padded with spaces to a multiple of 8 bytes. Each part can be forged.
#[derive(Debug, Clone, Default)]
pub struct ShardBuilder {
    metadata: Vec<(String, String)>,
    /// The header's members after `__metadata__`, as JSON text.
    entries: Vec<String>,
    tensors: Vec<(String, u64)>,
    data: Vec<Content>,
    data_len: u64,
    padding: Option<usize>,
    raw_header: Option<Vec<u8>>,
    header_len: Option<u64>,
    appended: Vec<u8>,
    cut_at: Option<u64>,
}

#[derive(Debug, Clone)]
enum Content {
    Bytes(Vec<u8>),
    Zeros(u64),
    Pattern(String, u64),
}

impl ShardBuilder {
    /// A file without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry to `__metadata__`, which stands first in the header.
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds a tensor with these bytes, which need not be as many as its type and shape ask for, nor its name
    /// new.
    pub fn tensor(self, name: &str, dtype: &str, shape: &[u64], bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        self.declare_next(name, dtype, shape, bytes.len() as u64).content(Content::Bytes(bytes))
    }

    /// Adds a tensor of zeros; [`write`](Self::write) leaves a hole in the file for them.
    pub fn zeros(self, name: &str, dtype: &str, shape: &[u64]) -> Self {
        let len = byte_len(dtype, shape);
        self.declare_next(name, dtype, shape, len).content(Content::Zeros(len))
    }

    /// Adds a tensor whose content follows from its name: see [`pattern`].
    pub fn pattern(self, name: &str, dtype: &str, shape: &[u64]) -> Self {
        let len = byte_len(dtype, shape);
        self.declare_next(name, dtype, shape, len).content(Content::Pattern(name.to_owned(), len))
    }

    /// Adds a tensor to the header alone, at `begin..end` of the data area.
    pub fn declare(mut self, name: &str, dtype: &str, shape: &[u64], begin: u64, end: u64) -> Self {
        let (key, dtype) = (json(name), json(dtype));
        self.entries
            .push(format!(r#"{key}:{{"dtype":{dtype},"shape":{shape:?},"data_offsets":[{begin},{end}]}}"#));
        self.tensors.push((name.to_owned(), end.saturating_sub(begin)));
        self
    }

    /// Adds a member to the header as JSON text, `"name":value`.
    pub fn entry(mut self, json: &str) -> Self {
        self.entries.push(json.to_owned());
        self
    }

    /// Adds bytes to the data area that no tensor declares: a hole, or the data of a forged entry.
    pub fn data(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.content(Content::Bytes(bytes.into()))
    }

    /// Pads the header with exactly `spaces`, so that the data can begin at any offset.
    pub fn header_padding(mut self, spaces: usize) -> Self {
        self.padding = Some(spaces);
        self
    }

    /// Puts this in place of the JSON; it is not padded unless [`header_padding`](Self::header_padding) says
    /// so.
    pub fn raw_header(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.raw_header = Some(text.into());
        self
    }

    /// States a header length that need not be true; the header itself stays as it is.
    pub fn header_len(mut self, bytes: u64) -> Self {
        self.header_len = Some(bytes);
        self
    }

    /// Adds bytes after the data area.
    pub fn append(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.appended.extend(bytes.into());
        self
    }

    /// Cuts the file, with what was appended, to its first `bytes` bytes.
    pub fn truncate(mut self, bytes: u64) -> Self {
        self.cut_at = Some(bytes);
        self
    }

    /// The declared tensors with the bytes of each, in the order of their adding.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tensors.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// What stands before the data: the header's length and the header.
    pub fn head(&self) -> Vec<u8> {
        let header = self.header();
        let stated = self.header_len.unwrap_or(header.len() as u64);
        [&stated.to_le_bytes()[..], &header].concat()
    }

    /// The size of the file in bytes.
    pub fn file_len(&self) -> u64 {
        let whole = self.head().len() as u64 + self.data_len + self.appended.len() as u64;
        self.cut_at.map_or(whole, |cut| cut.min(whole))
    }

    /// The file, in memory.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        self.write_parts(&mut out).expect("memory takes every write");
        let mut bytes = out.into_inner();
        bytes.resize(usize::try_from(self.file_len()).expect("the file fits in memory"), 0);
        bytes
    }

    /// Writes the same file to `path` without holding it in memory. Zeros become holes where the system has
    /// such.
    ///
    /// # Errors
    /// When the file cannot be created or written.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.write_to(&File::create(path)?)
    }

    /// Writes into a file that is open, and empty.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(CHUNK, file);
        self.write_parts(&mut out)?;
        out.flush()?;
        file.set_len(self.file_len())
    }

    fn declare_next(self, name: &str, dtype: &str, shape: &[u64], len: u64) -> Self {
        let begin = self.data_len;
        self.declare(name, dtype, shape, begin, begin + len)
    }

    fn content(mut self, content: Content) -> Self {
        self.data_len += match &content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeros(len) | Content::Pattern(_, len) => *len,
        };
        self.data.push(content);
        self
    }

    fn header(&self) -> Vec<u8> {
        let mut header = self.raw_header.clone().unwrap_or_else(|| self.json().into_bytes());
        let to_multiple = header.len().next_multiple_of(8) - header.len();
        let default = if self.raw_header.is_some() { 0 } else { to_multiple };
        header.resize(header.len() + self.padding.unwrap_or(default), b' ');
        header
    }

    fn json(&self) -> String {
        let metadata = (!self.metadata.is_empty()).then(|| {
            let members: Vec<_> =
                self.metadata.iter().map(|(key, value)| format!("{}:{}", json(key), json(value))).collect();
            format!(r#""__metadata__":{{{}}}"#, members.join(","))
        });
        let members: Vec<_> = metadata.iter().chain(&self.entries).map(String::as_str).collect();
        format!("{{{}}}", members.join(","))
    }

    fn write_parts(&self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        out.write_all(&self.head())?;
        for content in &self.data {
            content.write(out)?;
        }
        out.write_all(&self.appended)
    }
}

impl Content {
    fn write(&self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::Zeros(len) => {
                let len = i64::try_from(*len).map_err(|_| io::ErrorKind::FileTooLarge)?;
                out.seek(SeekFrom::Current(len)).map(drop)
            }
            Self::Pattern(name, len) => write_pattern(out, name, *len),
        }
    }
}

fn write_pattern(out: &mut impl Write, name: &str, len: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK.min(usize::try_from(len).unwrap_or(CHUNK))];
    for offset in (0..len).step_by(CHUNK) {
        let left = usize::try_from(len - offset).unwrap_or(CHUNK);
        let part = &mut chunk[..CHUNK.min(left)];
        pattern::fill(name, offset, part);
        out.write_all(part)?;
    }
    Ok(())
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(file: &[u8]) -> &str {
        let len = u64::from_le_bytes(file[..8].try_into().unwrap());
        std::str::from_utf8(&file[8..][..usize::try_from(len).unwrap()]).unwrap()
    }

    #[test]
    fn an_honest_file_is_laid_out_as_the_reference_writer_does() {
        let file = ShardBuilder::new()
            .metadata("format", "pt")
            .tensor("a", "U8", &[2], [7, 8])
            .zeros("b", "F32", &[])
            .build();
        let header = header_of(&file);
        assert_eq!(
            header.trim_end(),
            r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[],"data_offsets":[2,6]}}"#
        );
        assert_eq!(header.len() % 8, 0);
        assert_eq!(file[8 + header.len()..], [7, 8, 0, 0, 0, 0]);
    }

    #[test]
    fn each_part_can_be_forged() {
        let shard = ShardBuilder::new().tensor("a", "U8", &[1], [7]);
        assert!(header_of(&shard.clone().header_padding(3).build()).ends_with("}   "));
        assert_eq!(shard.clone().header_len(5).build()[..8], 5_u64.to_le_bytes());
        assert_eq!(shard.clone().raw_header("{").build(), *b"\x01\0\0\0\0\0\0\0{\x07");
        assert!(shard.clone().append("xyz").build().ends_with(b"\x07xyz"));
        assert_eq!(shard.clone().append("xyz").truncate(9).build().len(), 9);
        let with_entry = shard.clone().entry(r#""b":null"#).build();
        assert!(header_of(&with_entry).trim_end().ends_with(r#"},"b":null}"#));
        let holed = shard.data([0, 0]).declare("b", "U8", &[4], 3, 7);
        assert!(header_of(&holed.build()).contains(r#""data_offsets":[3,7]"#));
    }

    #[test]
    fn names_are_escaped() {
        let file = ShardBuilder::new().zeros("a\"\n\u{e9}", "U8", &[0]).build();
        let header: serde_json::Value = serde_json::from_str(header_of(&file)).unwrap();
        assert!(header.get("a\"\n\u{e9}").is_some());
    }

    #[test]
    fn the_streamed_file_equals_the_one_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let rows = (2 * CHUNK + 5) as u64;
        let honest = ShardBuilder::new()
            .pattern("large", "U8", &[rows])
            .zeros("hole", "U8", &[rows])
            .tensor("bytes", "U8", &[3], [1, 2, 3])
            .zeros("last", "F64", &[9]);
        let len = honest.file_len();
        let forged = [
            honest.clone().append("trailing"),
            honest.clone().truncate(len - 3),
            honest.clone().truncate(4),
            honest.clone().header_padding(3),
            honest,
        ];
        for shard in forged {
            let path = dir.path().join("shard");
            shard.write(&path).unwrap();
            assert!(std::fs::read(&path).unwrap() == shard.build(), "{} bytes", shard.file_len());
            assert_eq!(shard.build().len() as u64, shard.file_len());
        }
    }
}
