//! A file mapped for reading.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe: others may change it; the proof stands at the call"
)]

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::{Mmap, MmapOptions};

/// A read-only mapping of a whole shard.
///
/// What is promised to whoever holds bytes of it is told on [`ShardedModel`](crate::ShardedModel).
#[derive(Debug)]
pub(crate) struct FileMap(Mmap);

/// Makes [`FileMap::populate`] answer as on a system without that call.
#[cfg(test)]
pub(crate) static WITHOUT_POPULATE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// How [`FileMap::populate`] brought pages in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Populated {
    /// By `MADV_POPULATE_READ`: a fault that fails is an error.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no other system has it"))]
    Advised,
    /// The system has no such call: the caller has to touch the pages, where a fault that fails is a signal.
    Unsupported,
}

impl FileMap {
    /// Maps the first `bytes` of a file; `bytes` is the size that was checked on this very descriptor.
    ///
    /// The mapping is shared with the page cache, or private where the file system has no shared ones.
    pub(crate) fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{bytes} bytes do not fit this machine's address space"),
            )
        })?;
        let mut options = MmapOptions::new();
        options.len(length);
        // SAFETY: the mapping is read-only, and no reference into it outlives it. Its bytes are promised to
        // hold still only as far as nobody changes the file; `ShardedModel` states that condition to its
        // users, any byte pattern is a valid `[u8]`, and what was read from the header is never read again
        // from here.
        let map = unsafe { options.map(file) };
        let map = match map {
            Err(error) if error.kind() == io::ErrorKind::Unsupported || is_enodev(&error) => {
                // SAFETY: as above; a private mapping differs only in never being written back.
                unsafe { options.map_copy_read_only(file) }
            }
            map => map,
        };
        map.map(Self)
    }

    /// The bytes of a range of the file; `None` outside it.
    pub(crate) fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        self.0.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    /// Has the system begin to fetch exactly the pages of a range. It is a request: what comes of it is of no
    /// concern.
    pub(crate) fn fetch(&self, range: Range<u64>) {
        #[cfg(unix)]
        if let (Some(bytes), Ok(start)) = (self.get(range.clone()), usize::try_from(range.start)) {
            let _ = self.0.advise_range(memmap2::Advice::WillNeed, start, bytes.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Brings the pages of a range in without raising a signal, on Linux 5.14 and later.
    ///
    /// # Errors
    /// `EFAULT` when the file has become shorter or the device fails.
    #[cfg(target_os = "linux")]
    pub(crate) fn populate(&self, range: Range<u64>) -> io::Result<Populated> {
        let Some(bytes) = self.get(range.clone()) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let Ok(start) = usize::try_from(range.start) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        #[cfg(test)]
        if WITHOUT_POPULATE.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(Populated::Unsupported);
        }
        loop {
            match self.0.advise_range(memmap2::Advice::PopulateRead, start, bytes.len()) {
                Ok(()) => return Ok(Populated::Advised),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return Ok(Populated::Unsupported);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Other systems have no call that brings pages in and tells of failure.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn populate(&self, range: Range<u64>) -> io::Result<Populated> {
        match self.get(range) {
            Some(_) => Ok(Populated::Unsupported),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn is_enodev(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error() == Some(libc::ENODEV);
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_mapping_shows_the_bytes_of_the_file_and_nothing_beyond() {
        let map = FileMap::new(&file_of(b"0123456789"), 10).unwrap();
        assert_eq!(map.get(2..5), Some(b"234".as_slice()));
        assert_eq!(map.get(10..10), Some(b"".as_slice()));
        assert_eq!(map.get(5..11), None);
        assert_eq!(map.get(u64::MAX..u64::MAX), None);
    }

    #[test]
    fn populating_outside_the_mapping_is_an_error() {
        let map = FileMap::new(&file_of(b"0123456789"), 10).unwrap();
        assert!(map.populate(0..10).is_ok());
        assert_eq!(map.populate(5..11).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn populating_what_was_cut_off_is_an_error_and_no_signal() {
        let bytes = vec![1; 64 << 10];
        let file = file_of(&bytes);
        let map = FileMap::new(&file, 64 << 10).unwrap();
        file.set_len(4 << 10).unwrap();
        match map.populate(0..64 << 10) {
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EFAULT)),
            Ok(populated) => assert_eq!(populated, Populated::Unsupported, "an older kernel"),
        }
    }
}
