//! Zero-copy reading: pages of the mapping are brought in, and tensors lie there.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::fill::{Fill, overlap};
use super::positioned::Positioned;
use super::worker::Worker;
use super::{Ahead, Reader, huge};
use crate::error::{Error, Result};
use crate::extent::{Portion, pages, split};
use crate::mmap::{FileMap, Populated};
use crate::pool::Pool;
use crate::shard::Shard;
use crate::sys;
use crate::tensor_info::TensorInfo;

/// What is populated at once: a failure is told after this much.
const WINDOW_BYTES: u64 = 8 << 20;

/// A shard whose tensors are to lie in its mapping.
pub(crate) struct Mapped<'a> {
    pub(super) shard: Arc<Shard>,
    pub(super) pool: &'a Pool,
    pub(super) ahead: Ahead,
    /// The pages that are wanted of the shard, disjoint and in order.
    pub(super) spans: Arc<[Range<u64>]>,
    /// Whether faults fetch huge pages, once there was one to fetch.
    pub(super) faults_huge: OnceCell<bool>,
}

impl Reader for Mapped<'_> {
    /// Populating finds pages under way, and no reason to read ahead.
    fn announce(&self, range: &Range<u64>, _: &[(&TensorInfo, &Portion)]) {
        let (Ok(file), Ok(map)) = (self.pool.file(&self.shard), self.shard.map()) else { return };
        let pages = self.pages(range);
        let inner = huge::inner(&self.with_neighbours(&pages));
        match self.ahead {
            Ahead::System => {}
            Ahead::HugeFaults
                if !inner.is_empty()
                    && *self.faults_huge.get_or_init(|| huge::advise(map, &file, &inner)) =>
            {
                sys::fetch(&file, pages.start..inner.start.max(pages.start));
                sys::fetch(&file, inner.end.min(pages.end)..pages.end);
            }
            Ahead::Announced | Ahead::HugeFaults => sys::fetch(&file, pages),
        }
    }

    fn read(&self, range: &Range<u64>, _: &mut [Fill<'_>], worker: &mut Worker<'_>) -> Result<()> {
        let map = self.shard.map()?;
        let pages = self.pages(range);
        for window in split(pages.clone(), WINDOW_BYTES, WINDOW_BYTES) {
            if self.populate(map, &window)? == Populated::Unsupported {
                return self.by_position()?.pass_over(&(window.start..pages.end), worker);
            }
            worker.count(window.end - window.start)?;
        }
        Ok(())
    }
}

impl Mapped<'_> {
    /// The whole pages of a range.
    pub(super) fn pages(&self, range: &Range<u64>) -> Range<u64> {
        pages(range.clone(), sys::page_bytes(), self.shard.checked.identity.bytes)
    }

    /// The pages, and those around them that are wanted too and lie in the same huge pages.
    fn with_neighbours(&self, pages: &Range<u64>) -> Range<u64> {
        let next = self.spans.partition_point(|span| span.end <= pages.start);
        let span = self.spans.get(next).filter(|span| span.start <= pages.start && pages.end <= span.end);
        span.map_or_else(|| pages.clone(), |span| overlap(&huge::around(pages), span))
    }

    fn populate(&self, map: &FileMap, window: &Range<u64>) -> Result<Populated> {
        map.populate(window.clone()).map_err(|error| {
            let action = format!("bring in bytes {}..{} of the mapping", window.start, window.end);
            Error::io(&self.shard.path, action, error)
        })
    }

    /// Brings pages into the page cache only, where the system has no call that brings them into the page table: to touch
    /// them would be a signal where the file was cut, and that risk is not ours to take.
    fn by_position(&self) -> Result<Positioned<Arc<File>>> {
        let (source, path) = (self.pool.file(&self.shard)?, Arc::from(self.shard.path.as_path()));
        Ok(Positioned { source, path, gap_bytes: 0, is_announced: false })
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
    fn where_pages_cannot_be_populated_they_are_read_by_position_and_the_bytes_are_the_same() {
        let files = Llama::tiny().checkpoint().temp();
        let oracle = Oracle::open(&files);
        let all = ShardedModel::open(files.path()).unwrap().select().all();
        WITHOUT_POPULATE.store(true, Relaxed);
        let loaded = all.load_with(&LoadOptions::default().mode(ReadMode::Mapped));
        WITHOUT_POPULATE.store(false, Relaxed);
        let loaded = loaded.unwrap();
        for tensor in loaded.tensors() {
            assert!(tensor.is_mapped());
            assert_eq!(tensor.bytes(), oracle.tensor(tensor.name()).bytes);
        }
        assert!(loaded.report().read_bytes >= loaded.report().requested_bytes);
    }
}
