//! Mappings, and what is resident of them: the calls that no crate offers as safe ones.
#![expect(unsafe_code, reason = "mapping a file and asking for its residency have no safe binding")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// The size that pages of files are counted in.
pub const PAGE_BYTES: usize = 4096;

/// Maps a file.
///
/// # Errors
/// When it cannot be opened or mapped.
pub fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the checkpoints of the benches are not changed while they are measured.
    unsafe { Mmap::map(&file) }
}

/// How many pages of a mapped file are in the page cache, by `mincore`, which answers that for files of one's own.
///
/// # Errors
/// When the kernel does not tell.
#[cfg(unix)]
pub fn resident_pages(map: &Mmap) -> io::Result<usize> {
    // Where pages are larger than that, the kernel fills the beginning, and the rest stays zero.
    let mut pages = vec![0_u8; map.len().div_ceil(PAGE_BYTES)];
    // SAFETY: the range is a mapping that lives through the call, and there is a byte for each of its pages.
    let answer =
        unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr().cast()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count())
}

/// Other systems are not asked.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn resident_pages(_: &Mmap) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
