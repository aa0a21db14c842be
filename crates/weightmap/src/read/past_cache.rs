//! Reading past the page cache, into memory of the tensors' own.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Reader;
use super::direct::{Bounce, Direct};
use super::fill::{Fill, Join, Stretch, stretches, touched};
use super::worker::Worker;
use crate::error::{Error, Result};
use crate::extent::pages;
use crate::meter::Meter;

/// A shard that is read past the page cache.
pub(super) struct PastCache {
    pub(super) direct: Direct,
    pub(super) path: Arc<Path>,
    /// The widest gap that is read rather than left out.
    pub(super) gap_bytes: u64,
}

impl Reader for PastCache {
    fn file(&self) -> Option<&Arc<File>> {
        Some(self.direct.file())
    }

    fn read(&self, _: &Range<u64>, fills: &mut [Fill<'_>], worker: &mut Worker<'_>) -> Result<()> {
        let mut bounce = worker
            .take_bounce()
            .map_err(|error| Error::io(&self.path, "allocate memory to read through", error))?;
        let portions = fills.iter().map(|fill| (fill.info, fill.portion));
        let stretches: Vec<_> = stretches(portions, through_bounce(self.gap_bytes)).collect();
        for Stretch { range, .. } in stretches {
            let blocks = pages(range.clone(), self.direct.block_bytes(), self.direct.file_bytes());
            worker.count(blocks.end - blocks.start)?;
            self.read_range(&range, touched(fills, &range), &mut bounce, worker.meter).map_err(|error| {
                let action = format!("read {} bytes at offset {}", range.end - range.start, range.start);
                Error::io(&self.path, action, error)
            })?;
        }
        worker.give_back_bounce(bounce);
        Ok(())
    }
}

/// The bounce memory takes any number of bytes, one after another.
fn through_bounce(gap_bytes: u64) -> Join {
    Join { gap_bytes, most_bytes: u64::MAX, waste_bytes: u64::MAX }
}

impl PastCache {
    /// Reads straight to where the bytes belong what the device can put there, and the rest through the bounce
    /// memory.
    fn read_range(
        &self,
        range: &Range<u64>,
        fills: &mut [Fill<'_>],
        bounce: &mut Bounce,
        meter: &Meter,
    ) -> io::Result<()> {
        let done = match fills {
            [fill] if fill.wants_all_of(range) => {
                let place = self.direct.read_in_place(range.start, fill.target_of(range))?;
                range.start + place.start as u64..range.start + place.end as u64
            }
            _ => range.start..range.start,
        };
        let mut scatter = |offset: u64, bytes: &[u8]| {
            for fill in fills.iter_mut() {
                meter.copied(fill.scatter(offset, bytes));
            }
        };
        self.direct.read(range.start..done.start, bounce, &mut scatter)?;
        self.direct.read(done.end..range.end, bounce, &mut scatter)
    }
}
