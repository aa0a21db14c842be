//! What the bytes of a checkpoint are to be: a file of digests beside it.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod tree;
mod write;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::dtype::Dtype;
use crate::error::{DigestsError, Error, Result};
use crate::file::{open_regular, read_range, verify_unchanged};
use crate::header::{Header, HeaderEntry, LENGTH_BYTES};
pub(crate) use tree::{
    CHUNK_BYTES, Value, chunk, chunk_count, chunks_of, digest, digest_of, hex, join, value,
};

/// What the file says that it is.
const FORMAT: &str = "weightmap digests 1";

/// What is before the name of a shard in the key of its header's digest.
const HEADER_KEY: &str = "header of ";

/// The digests of a checkpoint: of each shard's header, of each tensor, and of each chunk of 1 MiB of a longer one.
///
/// They are BLAKE3, whose tree lets a chunk be verified by itself; that of a tensor is what `b3sum` says of its
/// bytes. The file has the layout of safetensors: an entry of U8 elements of shape `[rows, 32]` for each tensor, with
/// its digest, and behind it the values of its chunks if it has several. `docs/format.md` has all of it.
///
/// They tell of damage by themselves; and of forgery too, if they come from elsewhere than the checkpoint, or if
/// their own [`digest`](Self::digest) does.
#[derive(Clone)]
pub struct Digests {
    /// The file that they were read from.
    path: Option<PathBuf>,
    /// All bytes of the file.
    bytes: Box<[u8]>,
    header: Header,
}

/// The values that are known of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    digest: &'a Value,
    /// One for each chunk if there are several.
    chunks: &'a [Value],
}

/// What digests are made of.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// By shard, the digest of its header.
    pub(crate) headers: Vec<(String, Value)>,
    /// By shard and tensor, the length in bytes and the values of the chunks.
    pub(crate) tensors: Vec<(String, String, u64, Vec<Value>)>,
}

impl Digests {
    /// The longest file that [`read`](Self::read) reads: 256 MiB, enough for 8 TB of tensors.
    pub const MAX_BYTES: u64 = 256 << 20;

    /// Reads a file of digests.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotRegularFile`], and [`Error::Digests`] when it is none, or is longer than
    /// [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, identity) = open_regular(path)?;
        let wrong = |fault| Error::Digests { path: Some(path.to_owned()), fault: Box::new(fault) };
        if identity.bytes > Self::MAX_BYTES {
            return Err(wrong(DigestsError::TooLong { bytes: identity.bytes, limit: Self::MAX_BYTES }));
        }
        let bytes = read_range(&file, 0..identity.bytes).map_err(|error| Error::io(path, "read", error))?;
        verify_unchanged(path, &identity, &file)?;
        let digests = Self::of_bytes(bytes.into()).map_err(wrong)?;
        Ok(Self { path: Some(path.to_owned()), ..digests })
    }

    /// Reads the content of a file of digests.
    ///
    /// # Errors
    /// Any [`DigestsError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DigestsError> {
        Self::of_bytes(bytes.into())
    }

    fn of_bytes(bytes: Box<[u8]>) -> Result<Self, DigestsError> {
        let file_bytes = bytes.len() as u64;
        let no_header = |fault| DigestsError::Header(Box::new(fault));
        let first = bytes.first_chunk::<8>().map_or(&*bytes, |first| first);
        let header_bytes = Header::parse_len(first, file_bytes, file_bytes).map_err(no_header)?;
        let header = Header::parse(part(&bytes, &(LENGTH_BYTES..LENGTH_BYTES + header_bytes)), file_bytes)
            .map_err(no_header)?;
        let format = header.metadata_value("format");
        if format != Some(FORMAT) {
            return Err(DigestsError::Format { found: format.map(str::to_owned) });
        }
        for entry in header.iter() {
            // One row, or that of the digest and at least two of chunks.
            let is_known = *entry.dtype == Dtype::U8 && matches!(entry.shape, [1 | 3.., 32]);
            if !is_known {
                return Err(DigestsError::Rows { key: entry.name.to_owned(), expected: None });
            }
        }
        Ok(Self { path: None, bytes, header })
    }

    pub(crate) fn of_parts(parts: &Parts) -> Result<Self, DigestsError> {
        let bytes = write::bytes(parts);
        if bytes.len() as u64 > Self::MAX_BYTES {
            return Err(DigestsError::TooLong { bytes: bytes.len() as u64, limit: Self::MAX_BYTES });
        }
        Self::of_bytes(bytes.into())
    }

    /// How many tensors they are of.
    pub fn len(&self) -> usize {
        self.header.len()
    }

    /// Whether they are of no tensor.
    pub fn is_empty(&self) -> bool {
        self.header.is_empty()
    }

    /// The content of the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file that they were read from, if they were.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The BLAKE3 digest of the file's content, by which they can be known again: kept elsewhere, it vouches for the
    /// whole checkpoint.
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.bytes)
    }

    /// The BLAKE3 digest of a tensor's bytes; `None` for a tensor that was not in that shard when they were made.
    pub fn tensor(&self, shard: &str, tensor: &str) -> Option<[u8; 32]> {
        Some(*self.rows(shard, tensor)?.0)
    }

    /// Writes them to a file, which gets its name once all of it is on the disk. A link of that name is replaced, and not
    /// what it leads to.
    ///
    /// # Errors
    /// [`Error::Io`]; also, unless it `replaces` what is there, when there is a file of that name.
    pub fn write(&self, path: impl AsRef<Path>, replaces: bool) -> Result<()> {
        write::file(path.as_ref(), &self.bytes, replaces)
    }

    /// Fails where [`write`](Self::write) would, as far as that can be known before there is anything to write, so that no
    /// checkpoint is read in vain. It makes a file in the same directory, and removes it.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn check_writable(path: impl AsRef<Path>, replaces: bool) -> Result<()> {
        write::check(path.as_ref(), replaces)
    }

    /// What the tensors are called that they are of: shard and name.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.header.iter().map(|entry| entry.name)
    }

    /// The digest of a shard's header.
    pub(crate) fn header_of(&self, shard: &str) -> Option<Value> {
        let text = self.header.metadata_value(&format!("{HEADER_KEY}{shard}"))?;
        blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
    }

    /// What is known of a tensor of `len` bytes.
    ///
    /// # Errors
    /// [`DigestsError::Rows`] where it is of a tensor of another length, [`DigestsError::Inconsistent`] where the values
    /// of its chunks do not make its digest.
    pub(crate) fn known(
        &self,
        shard: &str,
        tensor: &str,
        len: u64,
    ) -> Result<Option<Known<'_>>, DigestsError> {
        let Some((digest, chunks)) = self.rows(shard, tensor) else { return Ok(None) };
        let expected = chunk_count(len);
        if chunks.len().max(1) as u64 != expected {
            return Err(DigestsError::Rows { key: key(shard, tensor), expected: Some(expected) });
        }
        // Nobody ever looks at the bytes of a tensor without any.
        let is_made = match chunks {
            [] => len > 0 || *digest == self::digest(&[]),
            chunks => join(chunks, len) == *digest,
        };
        if !is_made {
            return Err(DigestsError::Inconsistent { key: key(shard, tensor) });
        }
        Ok(Some(Known { digest, chunks }))
    }

    /// The value that a chunk of a tensor is to have.
    pub(crate) fn chunk(&self, shard: &str, tensor: &str, number: u64) -> Option<&Value> {
        let (digest, chunks) = self.rows(shard, tensor)?;
        Known { digest, chunks }.chunk(number)
    }

    fn rows(&self, shard: &str, tensor: &str) -> Option<(&Value, &[Value])> {
        let HeaderEntry { range, .. } = self.header.get(&key(shard, tensor))?;
        let (rows, _) = part(&self.bytes, &range).as_chunks::<32>();
        rows.split_first()
    }
}

impl<'a> Known<'a> {
    pub(crate) fn chunk(self, number: u64) -> Option<&'a Value> {
        match self.chunks {
            [] => Some(self.digest),
            chunks => chunks.get(usize::try_from(number).ok()?),
        }
    }
}

/// What a tensor of a shard is called in the file; a shard's name has no colon, save that of a single file.
pub(crate) fn key(shard: &str, tensor: &str) -> String {
    format!("{shard}:{tensor}")
}

fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    bytes.get(place(range.start)..place(range.end)).unwrap_or_default()
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digests")
            .field("path", &self.path)
            .field("tensors", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
