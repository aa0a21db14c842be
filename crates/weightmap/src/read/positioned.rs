//! Reading by position, through the page cache, into memory of the tensors' own.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Reader;
use super::fill::{Fill, Join, Stretch, index, stretches};
use super::source::{Source, read_exact_at, read_exact_vectored_at};
use super::worker::{SCRATCH_BYTES, Worker};
use crate::error::{Error, Result};
use crate::extent::{Portion, split};
use crate::memory::Memory;
use crate::tensor_info::TensorInfo;

/// A source that is read by position.
pub(crate) struct Positioned<S> {
    pub(super) source: S,
    pub(super) path: Arc<Path>,
    /// The widest gap that is read rather than left out.
    pub(super) gap_bytes: u64,
    /// Whether the system reads ahead only what is announced.
    pub(super) is_announced: bool,
}

impl<S: Source> Reader for Positioned<S> {
    fn announce(&self, _: &Range<u64>, portions: &[(&TensorInfo, &Portion)]) {
        if self.is_announced {
            let wanted = stretches(portions.iter().copied(), gathered(self.gap_bytes));
            wanted.for_each(|stretch| self.source.announce(&stretch.range));
        }
    }

    fn file(&self) -> Option<&Arc<File>> {
        self.source.file()
    }

    fn read(&self, range: &Range<u64>, fills: &mut [Fill<'_>], worker: &mut Worker<'_>) -> Result<()> {
        if fills.is_empty() {
            return self.pass_over(range, worker);
        }
        for group in fills.chunk_by_mut(|one, next| one.portion.is_dense && next.portion.is_dense) {
            match group {
                [fill] if !fill.portion.is_dense => self.gather(fill, worker)?,
                fills => self.straight(fills, worker)?,
            }
        }
        Ok(())
    }
}

/// Whole runs go to their places, and all that lies between them to the scratch memory.
fn straight(gap_bytes: u64) -> Join {
    Join { gap_bytes, most_bytes: u64::MAX, waste_bytes: SCRATCH_BYTES as u64 }
}

/// Neighbours are read to the scratch memory.
fn gathered(gap_bytes: u64) -> Join {
    Join { gap_bytes, most_bytes: SCRATCH_BYTES as u64, waste_bytes: u64::MAX }
}

impl<S: Source> Positioned<S> {
    /// Reads each byte to its place at once, and what lies between the fills to where it is of no concern.
    fn straight(&self, fills: &mut [Fill<'_>], worker: &mut Worker<'_>) -> Result<()> {
        let mut scratch = self.scratch(worker)?;
        let portions = fills.iter().map(|fill| (fill.info, fill.portion));
        let stretches: Vec<_> = stretches(portions, straight(self.gap_bytes)).collect();
        let mut fills = fills.iter_mut().peekable();
        for Stretch { range, .. } in stretches {
            let mut waste = scratch.as_mut_slice();
            let (mut parts, mut at) = (Vec::new(), range.start);
            while let Some(fill) = fills.next_if(|fill| fill.portion.source.start < range.end) {
                let gap = index(fill.portion.source.start - at);
                if gap > 0 {
                    let (between, unused) = waste.split_at_mut_checked(gap).unwrap_or_default();
                    parts.push(IoSliceMut::new(between));
                    waste = unused;
                }
                at = fill.portion.source.end;
                parts.push(IoSliceMut::new(fill.target));
            }
            worker.count(range.end - range.start)?;
            read_exact_vectored_at(&self.source, &mut parts, range.start)
                .map_err(|error| self.failed(&range, error))?;
        }
        worker.give_back(scratch);
        Ok(())
    }

    /// Reads rows: those that lie far apart each to its place, and neighbours through memory that stays in the cache of
    /// a core until they are copied on.
    fn gather(&self, fill: &mut Fill<'_>, worker: &mut Worker<'_>) -> Result<()> {
        let mut scratch = self.scratch(worker)?;
        let Fill { info, portion, target } = fill;
        let mut rest = &mut **target;
        let all = std::iter::once((*info, *portion));
        for Stretch { range, wanted_bytes } in stretches(all, gathered(self.gap_bytes)) {
            let (here, later) = rest.split_at_mut_checked(index(wanted_bytes)).unwrap_or_default();
            rest = later;
            if wanted_bytes == range.end - range.start {
                self.request(here, &range, worker)?;
                continue;
            }
            let bytes = scratch.as_mut_slice().get_mut(..index(range.end - range.start)).unwrap_or_default();
            self.request(bytes, &range, worker)?;
            info.region.copy(bytes, range.start - info.start, here);
            worker.meter.copied(wanted_bytes);
        }
        worker.give_back(scratch);
        Ok(())
    }

    /// Reads all, and keeps nothing: it is in the page cache then.
    pub(super) fn pass_over(&self, range: &Range<u64>, worker: &mut Worker<'_>) -> Result<()> {
        let mut scratch = self.scratch(worker)?;
        for window in split(range.clone(), SCRATCH_BYTES as u64, SCRATCH_BYTES as u64) {
            let bytes =
                scratch.as_mut_slice().get_mut(..index(window.end - window.start)).unwrap_or_default();
            self.request(bytes, &window, worker)?;
        }
        worker.give_back(scratch);
        Ok(())
    }

    fn scratch(&self, worker: &mut Worker<'_>) -> Result<Memory> {
        worker.take_scratch().map_err(|error| Error::io(&self.path, "allocate memory to read through", error))
    }

    fn request(&self, bytes: &mut [u8], range: &Range<u64>, worker: &mut Worker<'_>) -> Result<()> {
        worker.count(range.end - range.start)?;
        read_exact_at(&self.source, bytes, range.start).map_err(|error| self.failed(range, error))
    }

    fn failed(&self, range: &Range<u64>, error: io::Error) -> Error {
        let action = format!("read {} bytes at offset {}", range.end - range.start, range.start);
        Error::io(&self.path, action, error)
    }
}

#[cfg(test)]
mod tests;
