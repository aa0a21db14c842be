//! Zero-copy reading: pages of the mapping are brought in, and tensors lie there.

use std::hint::black_box;
use std::io;
use std::ops::Range;

use rayon::prelude::*;

use super::{REQUEST_BYTES, Reading, Task};
use crate::error::Result;
use crate::extent::{pages, split};
use crate::mmap::Populated;
use crate::shard::Shard;
use crate::sys;
use crate::tensor::Tensor;

/// The longest run of merged neighbours: one worker's region, long enough for read-ahead to run in it.
pub(super) const EXTENT_BYTES: u64 = 64 << 20;

pub(super) fn read(task: &Task, reading: &Reading<'_>) -> Result<Vec<(usize, Tensor)>> {
    let shard = &task.shard;
    let whole = pages(task.extent.range.clone(), sys::page_bytes(), shard.checked.identity.bytes);
    let windows: Vec<_> = split(whole, REQUEST_BYTES as u64, REQUEST_BYTES as u64).collect();
    windows.into_par_iter().try_for_each(|window| {
        reading.meter.request(window.end - window.start, || {
            if task.density.is_thin() {
                // Populating finds the pages under way, and no reason to read ahead. Where most of the file
                // is wanted, read-ahead alone is quicker: it makes larger folios.
                shard.map()?.fetch(window.clone());
            }
            populate(shard, window.clone(), reading)
        })
    })?;
    let tensors = task.extent.regions.iter().map(|region| {
        let info = reading.info(region.item);
        reading.meter.mapped(info.len_bytes());
        Ok((region.item, Tensor::mapped(info, shard)?))
    });
    tensors.collect()
}

fn populate(shard: &Shard, window: Range<u64>, reading: &Reading<'_>) -> Result<()> {
    let map = shard.map()?;
    let failed = |source: io::Error| {
        let action = format!(
            "bring in bytes {}..{} of the mapping (the device failed, or the file was cut meanwhile)",
            window.start, window.end
        );
        reading.failure(shard, action, source)
    };
    match map.populate(window.clone()).map_err(failed)? {
        Populated::Advised => Ok(()),
        Populated::Unsupported => {
            // A page past the end of the file would raise a signal, so its size is looked at just before.
            reading.verify(shard)?;
            touch(map.get(window).unwrap_or_default());
            Ok(())
        }
    }
}

/// Brings pages in by a read of a byte in each.
fn touch(bytes: &[u8]) {
    let page = usize::try_from(sys::page_bytes()).unwrap_or(4096);
    // The first byte may lie anywhere in its page, and the last page must not be stepped over.
    for byte in bytes.iter().step_by(page).chain(bytes.last()) {
        black_box(*byte);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use weightmap_testkit::{Llama, Oracle};

    use crate::load::LoadOptions;
    use crate::mmap::WITHOUT_POPULATE;
    use crate::mode::ReadMode;
    use crate::model::ShardedModel;

    #[test]
    fn where_pages_cannot_be_populated_they_are_touched_and_the_bytes_are_the_same() {
        let files = Llama::tiny().checkpoint().temp();
        let oracle = Oracle::open(&files);
        let all = ShardedModel::open(files.path()).unwrap().select().all();
        WITHOUT_POPULATE.store(true, Relaxed);
        let loaded = all.load_with(&LoadOptions::default().mode(ReadMode::Mapped));
        WITHOUT_POPULATE.store(false, Relaxed);
        for tensor in loaded.unwrap().tensors() {
            assert!(tensor.is_mapped());
            assert_eq!(tensor.bytes(), oracle.tensor(tensor.name()).bytes);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn touching_brings_every_page_in() {
        let page = usize::try_from(crate::sys::page_bytes()).unwrap();
        let fresh = memmap2::MmapMut::map_anon(64 * page).unwrap();
        let before = crate::sys::thread_faults().unwrap().minor;
        super::touch(&fresh[page - 1..63 * page + 1]);
        assert!(crate::sys::thread_faults().unwrap().minor > before);
        super::touch(&[]);
    }
}
