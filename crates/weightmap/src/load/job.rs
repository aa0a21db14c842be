//! One load: first touch, plan, read, verify, account.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use rayon::ThreadPool;
use rayon::prelude::*;

use super::LoadOptions;
use crate::buffer::Buffer;
use crate::descriptors::most_openers;
use crate::error::Result;
use crate::extent::{Region, merge, pages, union};
use crate::gate::Gate;
use crate::meter::Meter;
use crate::mode::ReadMode;
use crate::pool::Pool;
use crate::read::{Density, Reading, Task, Way};
use crate::report::{Account, LoadReport, ShardRow, Stages, total};
use crate::select::Selection;
use crate::shard::Shard;
use crate::sys;
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;
use crate::threads::{default_workers, no_thread, with_threads};

/// One load. Whoever shares it can take what it delivers, and cancel it.
pub(crate) struct Job {
    pool: Arc<Pool>,
    wanted: Vec<u32>,
    mode: ReadMode,
    /// Threads, at most.
    workers: usize,
    pub(crate) meter: Meter,
    pub(crate) gate: Gate,
}

/// What a load does with one shard.
struct Part {
    shard: Arc<Shard>,
    /// The tensors that are wanted of it, with their places in the selection.
    tensors: Vec<(usize, Arc<TensorInfo>)>,
    row: ShardRow,
    /// The pages that will be read, disjoint and in order.
    spans: Vec<Range<u64>>,
    /// Bytes of the file that this load reads, the header among them if it reads that.
    covered_bytes: u64,
    tasks: Vec<Task>,
}

/// How long workers were busy in each half of the first stage.
#[derive(Default)]
struct Prepared {
    touch_nanos: AtomicU64,
    plan_nanos: AtomicU64,
}

impl Job {
    /// `ahead` bounds the bytes that are loaded and not yet taken.
    pub(crate) fn new(selection: &Selection, options: &LoadOptions, ahead: u64) -> Result<Self> {
        /// No storage rewards more.
        const MOST_WORKERS: usize = 1024;
        selection.check_not_empty()?;
        let asked = options.workers.unwrap_or_else(default_workers);
        let workers = asked.min(MOST_WORKERS).min(most_openers());
        Ok(Self {
            pool: Arc::clone(&selection.pool),
            wanted: selection.tensors.clone(),
            mode: options.mode,
            workers,
            meter: Meter::new(workers, options.progress.clone()),
            gate: Gate::new(ahead),
        })
    }

    /// Runs all stages; hands over each tensor as it is done, with its place in the selection.
    pub(crate) fn run(&self, deliver: impl Fn(usize, Tensor) + Sync) -> Result<LoadReport> {
        if rayon::current_thread_index().is_none() {
            return self.run_here(&deliver);
        }
        // A thread of a pool of the caller's would, while it waits for ours, run other jobs of that pool,
        // which may be waiting for what the caller holds.
        thread::scope(|scope| {
            let running = thread::Builder::new().spawn_scoped(scope, || self.run_here(&deliver));
            let running = running.map_err(no_thread)?;
            running.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn run_here(&self, deliver: &(impl Fn(usize, Tensor) + Sync)) -> Result<LoadReport> {
        let span = tracing::debug_span!("load", tensors = self.wanted.len(), mode = %self.mode);
        let _entered = span.enter();
        let start = Instant::now();
        let (opened_before, device_before) = (self.pool.opened(), sys::device_bytes());
        let mut stages = Stages { open_seconds: self.pool.open_seconds, ..Stages::default() };

        let by_shard: Vec<_> = self.by_shard().into_iter().collect();
        let times = Prepared::default();
        let mut parts = with_threads(self.workers.min(by_shard.len()), |threads| {
            let prepare = |(shard, items)| span.in_scope(|| self.prepare(shard, items, &times));
            threads.install(|| by_shard.into_par_iter().map(prepare).collect::<Result<Vec<Part>>>())
        })??;
        (stages.touch_seconds, stages.plan_seconds) = times.shares_of(start.elapsed().as_secs_f64());

        let infos = in_order(&parts);
        self.meter.expect(total(infos.iter().map(|info| info.len_bytes())));
        let tasks: Vec<_> = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.tasks)).collect();
        let requests = tasks.iter().fold(0, |sum: usize, task| sum.saturating_add(task.requests()));
        let reading = Reading { pool: &self.pool, infos: &infos, meter: &self.meter };
        let prepared = start.elapsed();
        let covered_bytes = total(parts.iter().map(|part| part.covered_bytes));
        let (workers, shards, file_bytes) = with_threads(self.workers.min(requests), |threads| {
            let faults_before = threads.broadcast(|_| sys::thread_faults());
            self.deliver_empty(&infos, deliver);
            self.read(threads, tasks, &reading, deliver)?;
            let faults_after = threads.broadcast(|_| sys::thread_faults());
            stages.read_seconds = (start.elapsed() - prepared).as_secs_f64();
            let verify = || parts.into_par_iter().map(|part| self.verify(part)).collect::<Result<Vec<_>>>();
            let (rows, file_bytes) = threads.install(|| rayon::join(verify, || self.pool.file_bytes()));
            Result::Ok((self.meter.rows(&faults_before, &faults_after), rows?, file_bytes))
        })??;
        stages.total_seconds = start.elapsed().as_secs_f64();
        stages.verify_seconds = stages.total_seconds - prepared.as_secs_f64() - stages.read_seconds;

        Ok(LoadReport::new(Account {
            mode_asked: self.mode,
            stages,
            shards,
            workers,
            disk_bytes: sys::device_bytes()
                .zip(device_before)
                .map(|(after, before)| after.saturating_sub(before)),
            spared_bytes: file_bytes.map(|all| all.saturating_sub(covered_bytes)),
            shards_opened: self.pool.opened().saturating_sub(opened_before),
            copied_bytes: self.meter.copied_bytes(),
            mapped_bytes: self.meter.mapped_bytes(),
            peak_buffer_bytes: self.meter.peak_bytes(),
        }))
    }

    /// Gives up: what is being read is finished, nothing more is begun.
    pub(crate) fn cancel(&self) {
        self.meter.cancel();
        self.gate.close();
    }

    /// The places of the wanted tensors, by the shard that the index gives.
    fn by_shard(&self) -> BTreeMap<u32, Vec<usize>> {
        let mut shards = BTreeMap::<u32, Vec<usize>>::new();
        for (item, &tensor) in self.wanted.iter().enumerate() {
            if let Some(shard) = self.pool.index.shard_of(tensor) {
                shards.entry(shard).or_default().push(item);
            }
        }
        shards
    }

    /// Touches a shard and plans its reads, while its descriptor is at hand.
    fn prepare(&self, number: u32, items: Vec<usize>, times: &Prepared) -> Result<Part> {
        self.meter.check_not_cancelled()?;
        let start = Instant::now();
        let (shard, is_first_touch) = self.pool.touch(number)?;
        let file = self.pool.file(&shard)?;
        let touched = Instant::now();
        let info = |item: usize| Ok((item, Arc::new(self.pool.info_in(&shard, self.wanted[item])?)));
        let tensors = items.into_iter().map(info).collect::<Result<Vec<_>>>()?;
        let part = self.plan(shard, &file, is_first_touch, tensors);
        times.touch_nanos.fetch_add(nanos(touched - start), Relaxed);
        times.plan_nanos.fetch_add(nanos(touched.elapsed()), Relaxed);
        Ok(part)
    }

    fn plan(
        &self,
        shard: Arc<Shard>,
        file: &File,
        is_first_touch: bool,
        tensors: Vec<(usize, Arc<TensorInfo>)>,
    ) -> Part {
        let (way, reason) = Way::choose(self.mode, &shard, file);
        let filled = tensors.iter().filter(|(_, info)| info.len_bytes() > 0);
        let regions = filled.map(|(item, info)| Region { item: *item, range: info.range.clone() }).collect();
        let extents = merge(regions, &way.merge());
        let (file_bytes, page) = (shard.checked.identity.bytes, sys::page_bytes());
        let spans = union(extents.iter().map(|extent| pages(extent.range.clone(), page, file_bytes)));
        let reads: Vec<_> = extents.iter().map(|extent| way.read_range(extent, file_bytes)).collect();
        let read_bytes = total(reads.iter().map(length));
        let header_bytes = shard.header().data_start();
        let header = is_first_touch.then_some(0..header_bytes);
        let extent_pages = total(spans.iter().map(|span| length(span).div_ceil(page)));
        let resident_before = resident(&shard, file, &spans);
        let density = Density { read_bytes, file_bytes, is_resident: resident_before == Some(extent_pages) };
        let row = ShardRow {
            shard: shard.name.clone(),
            tensors: tensors.len() as u64,
            requested_bytes: total(tensors.iter().map(|(_, info)| info.len_bytes())),
            read_bytes,
            is_first_touch,
            header_bytes,
            extents: extents.len() as u64,
            extent_pages,
            resident_before,
            resident_after: None,
            mode: way.mode(),
            reason,
        };
        let covered_bytes = total(union(reads.into_iter().chain(header)).iter().map(length));
        let task = |extent| Task { shard: Arc::clone(&shard), way, density, extent };
        let tasks = extents.into_iter().map(task).collect();
        Part { shard, tensors, row, spans, covered_bytes, tasks }
    }

    /// Tensors without elements have no bytes to read.
    fn deliver_empty(&self, infos: &[Arc<TensorInfo>], deliver: &(impl Fn(usize, Tensor) + Sync)) {
        for (item, info) in infos.iter().enumerate().filter(|(_, info)| info.len_bytes() == 0) {
            self.meter.done(0);
            deliver(item, Tensor::owned(Arc::clone(info), Buffer::default()));
        }
    }

    fn read(
        &self,
        threads: &ThreadPool,
        tasks: Vec<Task>,
        reading: &Reading<'_>,
        deliver: &(impl Fn(usize, Tensor) + Sync),
    ) -> Result<()> {
        let failure = OnceLock::new();
        let load = |task: &Task| -> Result<()> {
            let tensors = task.run(reading)?;
            reading.verify(&task.shard)?;
            for (item, tensor) in tensors {
                self.meter.done(tensor.info().len_bytes());
                deliver(item, tensor);
            }
            Ok(())
        };
        let run = |task: Task| match catch_unwind(AssertUnwindSafe(|| load(&task))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // The first failure is the one to tell of; those that its cancellation causes come after it.
                let _ = failure.set(error);
                self.cancel();
            }
            Err(panic) => {
                // The caller's progress function: nobody must be left to wait for what this task will not
                // deliver.
                self.cancel();
                resume_unwind(panic)
            }
        };
        let run = &run;
        threads.in_place_scope(|scope| {
            for task in tasks {
                if !self.gate.enter(task.tensor_bytes()) {
                    break;
                }
                scope.spawn(move |_| run(task));
            }
        });
        match failure.into_inner() {
            Some(error) => Err(error),
            None => self.meter.check_not_cancelled(),
        }
    }

    /// Shows that a shard is still the file that was checked, now that all of its reads are done, and counts
    /// its pages again.
    fn verify(&self, part: Part) -> Result<ShardRow> {
        self.meter.check_not_cancelled()?;
        let Part { shard, mut row, spans, .. } = part;
        let file = self.pool.verified_file(&shard)?;
        row.resident_after = resident(&shard, &file, &spans);
        Ok(row)
    }
}

impl Prepared {
    /// The seconds that the stage took, shared out to its halves.
    #[expect(clippy::cast_precision_loss, reason = "times are shown with a few digits")]
    fn shares_of(&self, seconds: f64) -> (f64, f64) {
        let (touch, plan) = (self.touch_nanos.load(Relaxed) as f64, self.plan_nanos.load(Relaxed) as f64);
        let share = if touch > 0.0 { touch / (touch + plan) } else { 1.0 };
        (seconds * share, seconds * (1.0 - share))
    }
}

/// What is known of each wanted tensor, by its place in the selection.
fn in_order(parts: &[Part]) -> Vec<Arc<TensorInfo>> {
    let mut infos: Vec<_> = parts.iter().flat_map(|part| &part.tensors).collect();
    infos.sort_unstable_by_key(|(item, _)| *item);
    infos.into_iter().map(|(_, info)| Arc::clone(info)).collect()
}

/// How many pages of the spans are in the page cache.
fn resident(shard: &Shard, file: &File, spans: &[Range<u64>]) -> Option<u64> {
    let map = shard.map().ok();
    let mapped = |span: &Range<u64>| map.and_then(|map| map.get(span.clone()));
    spans.iter().map(|span| sys::cached_pages(file, span.clone(), mapped(span))).sum()
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
