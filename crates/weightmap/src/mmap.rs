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
    /// Not at all: the system has no such call, and touching them is a signal where a fault fails.
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

    /// Gives up the pages that lie as a whole within a range, so that
    /// [`drop_cached`](crate::sys::drop_cached) can drop them. It is a request.
    ///
    /// Their bytes can still be read: that fetches them anew, and ends in a signal where the file was cut
    /// meanwhile.
    pub(crate) fn let_go(&self, range: Range<u64>) {
        #[cfg(unix)]
        if let Some((start, length)) = self.whole_pages(range) {
            // SAFETY: the pages are of a file, and nobody has written to them through this mapping, shared or
            // private, since it is read-only and has been all its life: so there are no bytes in them that
            // are not the file's, and who touches one of them afterwards, through whatever reference, has the
            // same page of the file mapped again. Nothing is unmapped: the range lies within the mapping.
            let _ =
                unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, length) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// The pages that lie as a whole within a range of the file: where they start, and how many bytes they
    /// have. The file's last page is whole, however few bytes are in it.
    #[cfg(unix)]
    fn whole_pages(&self, range: Range<u64>) -> Option<(usize, usize)> {
        let page = crate::sys::page_bytes();
        let bytes = u64::try_from(self.0.len()).ok()?;
        let start = range.start.checked_next_multiple_of(page)?;
        let end = if range.end == bytes { bytes } else { range.end - range.end % page };
        let whole = self.get(start..end)?;
        (!whole.is_empty()).then_some((usize::try_from(start).ok()?, whole.len()))
    }

    /// Has the system map it by huge pages, where it can. It is a request.
    pub(crate) fn advise_huge(&self) {
        #[cfg(target_os = "linux")]
        let _ = self.0.advise(memmap2::Advice::HugePage);
    }

    /// Has faults fetch the huge page around them and nothing beyond it; tells whether the system took that up.
    pub(crate) fn advise_huge_faults(&self) -> bool {
        #[cfg(target_os = "linux")]
        // In this order: read at random and by small pages it would take a fault for each page.
        return [memmap2::Advice::HugePage, memmap2::Advice::Random]
            .into_iter()
            .all(|advice| self.0.advise(advice).is_ok());
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Has faults read ahead as they do by default.
    pub(crate) fn advise_usual_faults(&self) {
        #[cfg(unix)]
        let _ = self.0.advise(memmap2::Advice::Normal);
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
                // An older kernel; and one that lets the process make no such call.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::InvalidInput
                            | io::ErrorKind::PermissionDenied
                            | io::ErrorKind::Unsupported
                    ) =>
                {
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
    use crate::sys;

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

    #[cfg(unix)]
    #[test]
    fn only_whole_pages_are_let_go() {
        let page = sys::page_bytes();
        let bytes = 3 * page + 10;
        let map = FileMap::new(&file_of(&vec![1; usize::try_from(bytes).unwrap()]), bytes).unwrap();
        let whole = |range: Range<u64>| map.whole_pages(range).map(|(start, len)| (start as u64, len as u64));
        assert_eq!(whole(0..bytes), Some((0, bytes)));
        assert_eq!(whole(1..bytes), Some((page, 2 * page + 10)));
        assert_eq!(whole(0..bytes - 1), Some((0, 3 * page)));
        assert_eq!(whole(page - 1..2 * page + 1), Some((page, page)));
        for nothing in [0..0, 1..page, 1..2 * page - 1, bytes..bytes, 0..bytes + page, u64::MAX..u64::MAX] {
            assert_eq!(whole(nothing.clone()), None, "{nothing:?}");
        }
        assert_eq!(whole(Range { start: 2 * page, end: page }), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_let_go_can_be_dropped_from_the_cache_and_is_read_again() {
        const BYTES: usize = 16 << 20;
        /// What no folio reaches into that lies across an end of the range.
        const INNER: Range<u64> = 4 << 20..12 << 20;
        let bytes: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        let map = FileMap::new(&file, BYTES as u64).unwrap();
        map.advise_huge();
        let all = map.get(0..BYTES as u64).unwrap();
        assert_eq!(all, bytes);
        let cached = || sys::cached_pages(&file, INNER, map.get(INNER));
        let is_memory = matches!(sys::file_system_number(&file), Some(sys::TMPFS | sys::RAMFS));
        if is_memory || cached() != Some((INNER.end - INNER.start) / sys::page_bytes()) {
            eprintln!("skipped: no pages are dropped here, or it cannot be seen");
            return;
        }
        let range = 1..BYTES as u64 - 1;
        sys::drop_cached(&file, range.clone());
        assert_ne!(cached(), Some(0), "pages that are mapped stay");
        map.let_go(range.clone());
        sys::drop_cached(&file, range);
        assert_eq!(cached(), Some(0));
        assert_eq!(all, bytes);
        assert_ne!(cached(), Some(0), "they were read again");
    }
}
