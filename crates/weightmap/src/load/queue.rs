//! What is to be read, in the order in which it is begun.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use super::budget::Keeps;
use super::outputs::Outputs;
use super::part::Part;
use crate::extent::{Request, length};
use crate::memory::memory_len;
use crate::meter::Tally;
use crate::read::{REQUEST_BYTES, Way};
use crate::shard::Shard;
use crate::tensor_info::TensorInfo;

/// A request, with the caller's memory for each of its portions if it is read into that.
pub(super) struct Task<'a> {
    pub(super) request: Request,
    pub(super) lent: Vec<&'a mut [u8]>,
}

/// Neighbouring requests of a shard that one worker reads one after another, so that read-ahead can run.
pub(super) struct Run<'a> {
    pub(super) shard: Arc<Shard>,
    pub(super) way: Way,
    /// All pages that are wanted of the shard, disjoint and in order.
    pub(super) spans: Arc<[Range<u64>]>,
    pub(super) tally: Arc<Tally>,
    pub(super) tasks: Vec<Task<'a>>,
}

/// The runs that no worker has begun.
pub(super) struct Queue<'a>(Mutex<vec::IntoIter<Run<'a>>>);

impl<'a> Queue<'a> {
    pub(super) fn new(runs: Vec<Run<'a>>) -> Self {
        Self(Mutex::new(runs.into_iter()))
    }

    pub(super) fn next(&self) -> Option<Run<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// The requests of all shards in runs of about `run_bytes`.
///
/// An output whose requests are in several runs has those runs for itself, one after the other. So whoever waits for
/// memory to begin an output holds back no other that has been begun, and the wait ends.
pub(super) fn runs<'a>(
    parts: &mut [Part],
    infos: &[Arc<TensorInfo>],
    outputs: &Outputs,
    keeps: Keeps,
    run_bytes: u64,
) -> Vec<Run<'a>> {
    let mut runs: Vec<(Option<usize>, Run<'a>)> = Vec::new();
    for part in parts {
        let mut bytes_so_far = None;
        for (way, request) in std::mem::take(&mut part.requests) {
            let owner = owner(&request, infos, outputs, keeps, run_bytes);
            let task = Task { request, lent: Vec::new() };
            let joins = |bytes: u64, (before, run): &(Option<usize>, Run<'_>)| {
                let is_same = run.way == way && *before == owner;
                is_same && (bytes < run_bytes || owner.is_none() && !task.begins())
            };
            let bytes = length(&task.request.range);
            match (bytes_so_far, runs.last_mut()) {
                (Some(so_far), Some(run)) if joins(so_far, run) => {
                    bytes_so_far = Some(so_far.saturating_add(bytes));
                    run.1.tasks.push(task);
                }
                _ => {
                    bytes_so_far = Some(bytes);
                    let (shard, spans) = (Arc::clone(&part.shard), Arc::clone(&part.spans));
                    let tally = Arc::clone(&part.tally);
                    runs.push((owner, Run { shard, way, spans, tally, tasks: vec![task] }));
                }
            }
        }
    }
    let mut first = HashMap::new();
    for (place, (owner, _)) in runs.iter().enumerate() {
        if let Some(owner) = owner {
            first.entry(*owner).or_insert(place);
        }
    }
    let mut placed: Vec<_> = runs.into_iter().enumerate().collect();
    placed.sort_by_key(|(place, (owner, _))| {
        owner.and_then(|owner| first.get(&owner).copied()).unwrap_or(*place)
    });
    placed.into_iter().map(|(_, (_, run))| run).collect()
}

/// How long a run is: long enough for read-ahead to run, short enough for all workers to have some.
pub(super) fn run_bytes(load_bytes: u64, workers: usize) -> u64 {
    const MOST_BYTES: u64 = 64 << 20;
    (load_bytes / (workers.max(1) as u64).saturating_mul(4)).clamp(REQUEST_BYTES, MOST_BYTES)
}

/// The output that a request is a part of, if that has runs for itself.
fn owner(
    request: &Request,
    infos: &[Arc<TensorInfo>],
    outputs: &Outputs,
    keeps: Keeps,
    run_bytes: u64,
) -> Option<usize> {
    let item = request.portions.first()?.item;
    let is_long =
        || infos.get(item).is_some_and(|info| length(&info.range) > run_bytes.max(2 * REQUEST_BYTES));
    (outputs.is_apart(item, keeps) || is_long()).then(|| outputs.vessel(item).output)
}

/// Hands each task the part of its items' memory that it fills.
pub(super) fn lend<'a>(runs: &mut [Run<'a>], mut buffers: Vec<Option<&'a mut [u8]>>) {
    for task in runs.iter_mut().flat_map(|run| &mut run.tasks) {
        for portion in &task.request.portions {
            let Some(buffer) = buffers.get_mut(portion.item).and_then(Option::as_mut) else { continue };
            let bytes = memory_len(length(&portion.dest)).min(buffer.len());
            // The portions of an item come in the order of its bytes.
            let (now, later) = std::mem::take(buffer).split_at_mut(bytes);
            *buffer = later;
            task.lent.push(now);
        }
    }
}

impl Task<'_> {
    /// Whether the first of its tensors begins with it.
    fn begins(&self) -> bool {
        self.request.portions.first().is_none_or(|portion| portion.dest.start == 0)
    }
}

#[cfg(test)]
mod tests;
