//! Where tensors' bytes come from: the ways of reading, and the choice between them.

mod auto;
mod direct;
mod fill;
pub(crate) mod huge;
mod mapped;
mod past_cache;
mod positioned;
pub(crate) mod source;
mod worker;

use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use auto::{Facts, Purpose, choose};
pub(crate) use direct::Direct;
pub(crate) use fill::{Fill, overlap};
pub(crate) use worker::Worker;

use crate::error::Result;
use crate::extent::{Cost, Portion};
use crate::mode::ReadMode;
use crate::pool::Pool;
use crate::shard::Shard;
use crate::storage::Storage;
use crate::sys;
use crate::tensor_info::TensorInfo;
use mapped::Mapped;
use past_cache::PastCache;
use positioned::Positioned;

/// A shard's bytes, read in one of the ways. All ways give the same bytes.
pub(crate) trait Reader {
    /// Has the system begin to fetch what will be read soon: what is wanted of these portions, which lie in the range.
    /// It is a request.
    fn announce(&self, range: &Range<u64>, portions: &[(&TensorInfo, &Portion)]) {
        let _ = (range, portions);
    }

    /// Reads a range: to the memory of the fills, which lie within it in file order and do not overlap; or,
    /// where tensors lie in the mapping and there are no fills, into the page cache and the page table.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); [`Error::Cancelled`](crate::Error::Cancelled) between two requests to
    /// the kernel. What the fills hold is then anything.
    fn read(&self, range: &Range<u64>, fills: &mut [Fill<'_>], worker: &mut Worker<'_>) -> Result<()>;

    /// The descriptor that it holds, if it holds one. Whoever needs one beside it takes this: threads that each held one and
    /// waited for another could wait for each other.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }
}

/// How requests of one shard are read, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// Never [`ReadMode::Auto`].
    pub(crate) mode: ReadMode,
    /// The rule by which it was chosen, or that it was asked for.
    pub(crate) reason: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) ahead: Ahead,
    /// The widest gap that is cheaper to read than to leave out.
    pub(crate) gap_bytes: u64,
    /// As in [`Cost`].
    pub(crate) gap_share: u64,
    /// Whether pages are dropped from the page cache once they have been copied.
    pub(crate) drops_behind: bool,
}

/// Who sees to it that bytes are on their way into the page cache before they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// The system, by its read-ahead.
    System,
    /// We announce what will be read: read-ahead would fetch much that nobody asked for, or too little at a time for a
    /// storage that takes long to answer.
    Announced,
    /// As `Announced`; but of what is mapped, whole huge pages are fetched by a fault each.
    HugeFaults,
}

/// How many bytes a request has that could have any number.
///
/// Larger ones win nothing on any storage measured (`docs/performance.md`), and smaller ones are handed out, and
/// told of when they fail, sooner.
pub(crate) const REQUEST_BYTES: u64 = 8 << 20;

/// How few bytes it has where memory is short.
const LEAST_REQUEST_BYTES: u64 = 64 << 10;

impl Way {
    /// What the planner has to know, where so many bytes of memory may be held at once.
    pub(crate) fn cost(self, allowed_bytes: u64) -> Cost {
        // Without memory to gather them in, rows are not read apart.
        let row_gap_bytes = if self.needs_no_memory() { self.gap_bytes } else { REQUEST_BYTES };
        let request_bytes = if self.needs_no_memory() || self.purpose == Purpose::Lent {
            REQUEST_BYTES
        } else {
            // What a request brings has to fit beside the memory of a worker.
            let left = allowed_bytes.saturating_sub(self.worker_bytes());
            (left / 2).clamp(LEAST_REQUEST_BYTES, REQUEST_BYTES)
        };
        Cost {
            gap_bytes: self.gap_bytes,
            gap_share: self.gap_share,
            row_gap_bytes,
            request_bytes,
            chunk_bytes: 0,
        }
    }

    /// Whether what it reads needs no memory: it lies in the mapping, or is in the page cache and that is all.
    pub(crate) fn needs_no_memory(self) -> bool {
        self.mode == ReadMode::Mapped || self.purpose == Purpose::Cache
    }

    /// How many workers the storage rewards, on so many cores.
    pub(crate) fn workers(self, storage: Storage, cores: usize) -> usize {
        /// Those who wait for a device that nobody reads ahead from need no core meanwhile.
        const WAITING_WORKERS: usize = 4;
        let waits = self.mode == ReadMode::Direct || self.ahead != Ahead::System;
        storage.workers(cores).max(if waits { WAITING_WORKERS } else { 1 })
    }

    /// The memory that a worker needs for itself.
    pub(crate) fn worker_bytes(self) -> u64 {
        match self.mode {
            ReadMode::Mapped => 0,
            ReadMode::Direct => worker::BOUNCE_BYTES,
            ReadMode::Auto | ReadMode::Buffered => worker::SCRATCH_BYTES as u64,
        }
    }

    /// Makes ready to read a shard, of which all wanted pages lie in `spans`, disjoint and in order.
    pub(crate) fn open<'a>(
        self,
        shard: &Arc<Shard>,
        spans: &Arc<[Range<u64>]>,
        pool: &'a Pool,
    ) -> Result<Box<dyn Reader + 'a>> {
        let path = || Arc::from(shard.path.as_path());
        match self.mode {
            ReadMode::Mapped => {
                if self.ahead == Ahead::System
                    && let Ok(map) = shard.map()
                {
                    map.advise_huge();
                }
                let (shard, spans) = (Arc::clone(shard), Arc::clone(spans));
                Ok(Box::new(Mapped { shard, spans, pool, ahead: self.ahead, faults_huge: OnceCell::new() }))
            }
            ReadMode::Direct => {
                let direct = Direct::of(shard, pool)?;
                Ok(Box::new(PastCache { direct, path: path(), gap_bytes: self.gap_bytes }))
            }
            ReadMode::Auto | ReadMode::Buffered => {
                let file = pool.file(shard)?;
                sys::set_read_ahead(&file, self.ahead == Ahead::System);
                Ok(Box::new(Positioned {
                    source: file,
                    path: path(),
                    gap_bytes: self.gap_bytes,
                    is_announced: self.ahead != Ahead::System,
                }))
            }
        }
    }
}
