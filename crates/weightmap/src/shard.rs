//! One file of a checkpoint: opened, checked and mapped through one descriptor.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::{open_direct, open_regular, read_range};
use crate::header::{Header, LENGTH_BYTES};
use crate::identity::FileIdentity;
use crate::mmap::FileMap;
use crate::shard_name::ShardName;
use crate::sys;

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
}

impl Shard {
    /// Opens a file for the first time: reads its header by position, since touching a mapping for it would
    /// make read-ahead fetch megabytes.
    pub(crate) fn open(
        number: u32,
        name: ShardName,
        path: PathBuf,
        max_header_bytes: u64,
    ) -> Result<(Self, File)> {
        let (file, identity) = open_regular(&path)?;
        // Read-ahead would fetch data with the header, and mark pages to fetch more when they are touched.
        sys::set_read_ahead(&file, false);
        let header = Arc::new(read_header(&path, &file, identity.bytes, max_header_bytes)?);
        Ok((Self::mapped(number, name, path, Checked { identity, header }, &file), file))
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

    pub(crate) fn header(&self) -> &Arc<Header> {
        &self.checked.header
    }

    /// Fails if the file behind a descriptor is not what was checked: shorter, longer or written to since.
    pub(crate) fn verify_unchanged(&self, file: &File) -> Result<()> {
        let metadata = file.metadata().map_err(|error| Error::io(&self.path, "stat", error))?;
        same_identity(&self.path, &self.checked.identity, &FileIdentity::of(&metadata))
    }
}

/// Opens a file that must be the one that was checked before.
pub(crate) fn open_same(path: &Path, expected: &FileIdentity) -> Result<File> {
    let (file, found) = open_regular(path)?;
    same_identity(path, expected, &found)?;
    Ok(file)
}

/// Opens a file that must be the one that was checked before for reads past the page cache.
pub(crate) fn open_same_direct(path: &Path, expected: &FileIdentity) -> Result<File> {
    let (file, found) = open_direct(path)?;
    same_identity(path, expected, &found)?;
    Ok(file)
}

fn same_identity(path: &Path, expected: &FileIdentity, found: &FileIdentity) -> Result<()> {
    let differences = expected.differences(found);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::ShardChanged { path: path.to_owned(), differences })
}

fn read_header(path: &Path, file: &File, file_bytes: u64, max_header_bytes: u64) -> Result<Header> {
    let wrong = |fault| Error::Header { path: path.to_owned(), fault: Box::new(fault) };
    let read = |range: Range<u64>| {
        let action = format!("read {} bytes at offset {}", range.end - range.start, range.start);
        read_range(file, range).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::ShardChanged {
                path: path.to_owned(),
                differences: vec!["it was cut while its header was read".to_owned()],
            },
            _ => Error::io(path, action, error),
        })
    };
    let first = read(0..file_bytes.min(LENGTH_BYTES))?;
    // Within the file and the limit, so that the input justifies the memory.
    let bytes = Header::parse_len(&first, file_bytes, max_header_bytes).map_err(wrong)?;
    let json = read(LENGTH_BYTES..LENGTH_BYTES + bytes)?;
    Header::parse(&json, file_bytes).map_err(wrong)
}
