//! What the ranks of a node want, brought into their page cache without a word between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Node;
use crate::error::{Error, Result};
use crate::load::LoadOptions;
use crate::memory::memory_len;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::rank::Rank;
use crate::select::Selection;
use crate::threads::{available_cores, crew, most_workers};

/// What one rank has brought into the page cache of its node, and what all of them will have.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct NodeShare {
    /// The sum of the bytes that each rank of the node wants of files.
    pub wanted_bytes: u64,
    /// The bytes of files that the ranks want, those that several want counted once.
    pub needed_bytes: u64,
    /// The bytes that this rank has asked the kernel for, with gaps that were read through.
    pub read_bytes: u64,
    /// The bytes that fall to each rank, in the order of the ranks.
    pub rank_bytes: Vec<u64>,
}

/// Brings the share of one rank into the page cache.
pub(crate) fn prefetch_together(
    pool: &Arc<Pool>,
    plan: &Plan,
    ranks: &[usize],
    rank: usize,
    options: &LoadOptions,
) -> Result<NodeShare> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    let partition = pool.divide(plan)?;
    for &rank in &ranks {
        Rank::new(rank, partition.world())?;
    }
    let member = ranks.binary_search(&rank).map_err(|_| Error::BadRank {
        by: "prefetch_together",
        variable: "rank",
        found: Some(rank.to_string()),
        expected: format!("one of the ranks of the node, {ranks:?}"),
        help: "give the ranks that run on this node, the own one among them",
    })?;
    Node::new(pool, &partition, &ranks, options)?.prefetch(member, options)
}

impl Node {
    fn prefetch(&self, member: usize, options: &LoadOptions) -> Result<NodeShare> {
        let own = self.own(member).map(|(_, source)| source.clone());
        let own = Selection::new(Arc::clone(&self.pool)).allow_empty().sources(own).prefetch_with(options)?;
        let windows: Vec<_> = self.schedule.windows.iter().filter(|window| window.reader == member).collect();
        self.begin(windows.iter().copied())?;
        let next = AtomicUsize::new(0);
        let read = crew(most_workers(available_cores()).min(windows.len()), |_| {
            let mut page = Vec::new();
            let mut read_bytes = 0_u64;
            loop {
                let place = next.fetch_add(1, Relaxed);
                let Some(window) = windows.get(place) else { return Ok(read_bytes) };
                page.resize(memory_len(window.bytes()), 0);
                let after = windows.get(place + 1).copied();
                match self.read_window(window, after, &mut page) {
                    Ok(bytes) => read_bytes = read_bytes.saturating_add(bytes),
                    Err(error) => {
                        next.store(windows.len(), Relaxed);
                        return Err(error);
                    }
                }
            }
        });
        let shared = read.into_iter().sum::<Result<u64>>()?;
        Ok(NodeShare {
            wanted_bytes: self.schedule.wanted_bytes,
            needed_bytes: self.schedule.needed_bytes,
            read_bytes: own.read_bytes.saturating_add(shared),
            rank_bytes: self.schedule.read_bytes.clone(),
        })
    }
}
