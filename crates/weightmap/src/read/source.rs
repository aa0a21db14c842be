//! Where bytes are read from by position.

#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::file::{self, MOST_BYTES};

/// The most parts that a system takes at once: `IOV_MAX` of Linux.
const PARTS: usize = 1024;

/// Bytes of one file by position.
pub(crate) trait Source: Send + Sync {
    /// Reads consecutive bytes from `offset` on into the parts, one after another, as `preadv` does: it may
    /// read fewer; 0 means the end of the file.
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;

    /// Reads bytes from `offset` on; it may read fewer; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    /// Has the system begin to fetch a range that will be read soon. It is a request.
    fn announce(&self, range: &Range<u64>) {
        let _ = range;
    }

    /// The file, where it is one.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }
}

/// A file that others have open too.
impl Source for Arc<File> {
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        File::read_vectored_at(self, parts, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file::read_at(self, buffer, offset)
    }

    fn announce(&self, range: &Range<u64>) {
        File::announce(self, range);
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(self)
    }
}

impl Source for File {
    fn announce(&self, range: &Range<u64>) {
        crate::sys::fetch(self, range.clone());
    }

    #[cfg(target_os = "linux")]
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        crate::sys::read_vectored_at(self, parts, offset)
    }

    /// Elsewhere one part is read at a time.
    #[cfg(not(target_os = "linux"))]
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let part = parts.iter_mut().find(|part| !part.is_empty());
        part.map_or(Ok(0), |part| file::read_at(self, part, offset))
    }
}

/// Fills `buffer` from `offset` on.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] when the source ends before the buffer is full.
pub(crate) fn read_exact_at(
    source: &(impl Source + ?Sized),
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    file::read_exact_by(buffer, offset, |rest, offset| source.read_at(rest, offset))
}

/// Fills all parts, one after another, from `offset` on. What the parts describe afterwards is unspecified.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] when the source ends before the parts are full.
pub(crate) fn read_exact_vectored_at(
    source: &(impl Source + ?Sized),
    mut parts: &mut [IoSliceMut<'_>],
    mut offset: u64,
) -> io::Result<()> {
    // Empty parts in front would make a read of nothing look like the end.
    IoSliceMut::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match read_some(source, parts, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                IoSliceMut::advance_slices(&mut parts, count);
                offset = offset.saturating_add(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads as much at once as every system takes.
fn read_some(
    source: &(impl Source + ?Sized),
    parts: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<usize> {
    let mut bytes = 0_usize;
    let fitting = parts.iter().take(PARTS).take_while(|part| {
        bytes = bytes.saturating_add(part.len());
        bytes <= MOST_BYTES
    });
    match (fitting.count(), parts) {
        (0, [first, ..]) => {
            let most = first.len().min(MOST_BYTES);
            source.read_vectored_at(&mut [IoSliceMut::new(&mut first[..most])], offset)
        }
        (count, parts) => source.read_vectored_at(&mut parts[..count], offset),
    }
}
