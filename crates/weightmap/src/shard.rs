//! One file of a checkpoint: opened, checked and mapped through one descriptor.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::digests::{Value, digest_of};
use crate::error::{Error, Result};
use crate::file::{open_direct, open_regular, read_range, room_to_read, verify_same, verify_unchanged};
use crate::header::{Header, HeaderEntry, HeaderRules, LENGTH_BYTES};
use crate::identity::FileIdentity;
use crate::mmap::FileMap;
use crate::shard_name::ShardName;
use crate::signature::TELLING_BYTES;
use crate::sys;
use crate::warning::Warning;

/// A shard whose header has been read and found right.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Its place among the shards of the index.
    pub(crate) number: u32,
    pub(crate) name: ShardName,
    pub(crate) path: PathBuf,
    pub(crate) checked: Checked,
    /// The mapping, or why there is none; reads by position need none.
    map: Result<FileMap>,
}

/// What a first touch learns. It outlives the mapping, so that a shard that is opened again can be shown to
/// be the same.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    pub(crate) identity: FileIdentity,
    pub(crate) header: Arc<Header>,
    /// The digest of the header's bytes, with those that give its length.
    pub(crate) header_digest: Value,
}

impl Shard {
    /// Opens a file for the first time: reads its header by position, since touching a mapping for it would
    /// make read-ahead fetch megabytes.
    pub(crate) fn open(
        number: u32,
        name: ShardName,
        path: PathBuf,
        rules: HeaderRules,
    ) -> Result<(Self, File)> {
        let (file, identity) = open_regular(&path)?;
        // Read-ahead would fetch data with the header, and mark pages to fetch more when they are touched.
        sys::set_read_ahead(&file, false);
        let header = read_header(&path, &file, identity.bytes, rules);
        // Of a file that is written to meanwhile a header can be put together that never was in it.
        verify_unchanged(&path, &identity, &file)?;
        let (header, header_digest) = header?;
        let checked = Checked { identity, header: Arc::new(header), header_digest };
        Ok((Self::mapped(number, name, path, checked, &file), file))
    }

    /// Opens a file again that was checked before; its header is not read again.
    ///
    /// # Errors
    /// [`Error::ShardChanged`] when it is not the same file, or not as it was.
    pub(crate) fn reopen(
        number: u32,
        name: ShardName,
        path: PathBuf,
        checked: Checked,
    ) -> Result<(Self, File)> {
        let file = open_same(&path, &checked.identity)?;
        Ok((Self::mapped(number, name, path, checked, &file), file))
    }

    fn mapped(number: u32, name: ShardName, path: PathBuf, checked: Checked, file: &File) -> Self {
        let map = FileMap::new(file, checked.identity.bytes).map_err(|source| {
            Error::io(&path, "map (reads by position still work: ReadMode::Buffered)", source)
        });
        Self { number, name, path, checked, map }
    }

    /// The mapping.
    ///
    /// # Errors
    /// Why the file could not be mapped when it was opened.
    pub(crate) fn map(&self) -> Result<&FileMap> {
        self.map.as_ref().map_err(Clone::clone)
    }

    /// Where a tensor lies in the file, and its type.
    pub(crate) fn whole(&self, tensor: &str) -> Option<HeaderEntry<'_>> {
        self.checked.header.get(tensor)
    }

    pub(crate) fn header(&self) -> &Arc<Header> {
        &self.checked.header
    }

    /// What is odd about the header and was accepted.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.header().warnings().iter().map(|warning| warning.clone().file(&self.path))
    }

    /// Fails if the file behind a descriptor is not what was checked: shorter, longer or written to since.
    pub(crate) fn verify_unchanged(&self, file: &File) -> Result<()> {
        verify_unchanged(&self.path, &self.checked.identity, file)
    }
}

/// Opens a file that must be the one that was checked before.
pub(crate) fn open_same(path: &Path, expected: &FileIdentity) -> Result<File> {
    let (file, found) = open_regular(path)?;
    verify_same(path, expected, &found)?;
    Ok(file)
}

/// Opens a file that must be the one that was checked before for reads past the page cache.
pub(crate) fn open_same_direct(path: &Path, expected: &FileIdentity) -> Result<File> {
    let (file, found) = open_direct(path)?;
    verify_same(path, expected, &found)?;
    Ok(file)
}

/// The header, and the digest of its bytes.
fn read_header(path: &Path, file: &File, file_bytes: u64, rules: HeaderRules) -> Result<(Header, Value)> {
    let wrong = |fault| Error::Header { path: path.to_owned(), fault: Box::new(fault) };
    let read = |range: Range<u64>| {
        let action = format!("read {} bytes at offset {}", range.end - range.start, range.start);
        read_range(file, range).map_err(|error| Error::io(path, action, error))
    };
    let first = read(0..file_bytes.min(LENGTH_BYTES))?;
    // Within the file and the limit, so that the input justifies the memory.
    let bytes = match Header::parse_len(&first, file_bytes, rules.max_bytes) {
        Ok(bytes) => bytes,
        Err(_) => {
            let more = read(0..file_bytes.min(TELLING_BYTES as u64))?;
            Header::parse_len(&more, file_bytes, rules.max_bytes).map_err(wrong)?
        }
    };
    let json = read(LENGTH_BYTES..LENGTH_BYTES + bytes)?;
    room_to_read(json.len())
        .map_err(|error| Error::io(path, format!("have memory for a header of {bytes} bytes"), error))?;
    let header = Header::parse_as(&json, file_bytes, rules.is_lenient).map_err(wrong)?;
    Ok((header, digest_of([&first, &json])))
}
