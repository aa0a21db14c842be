//! The reading stage: workers that take runs off the queue, and hand over tensors as they are done.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::{Arc, OnceLock};

use super::long::Longs;
use super::queue::{Queue, Run, Task};
use super::room::{Room, Whole};
use crate::error::{Error, Result};
use crate::extent::{Portion, Request};
use crate::gate::Gate;
use crate::memory::Memory;
use crate::meter::Meter;
use crate::pool::Pool;
use crate::read::{Fill, Purpose, Reader, Way, Worker};
use crate::report::WorkerRow;
use crate::shard::Shard;
use crate::sys;
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;

/// What the workers of a load share.
pub(super) struct Reading<'a, D> {
    pub(super) pool: &'a Arc<Pool>,
    pub(super) meter: &'a Meter,
    pub(super) gate: &'a Gate,
    infos: &'a [Arc<TensorInfo>],
    queue: Queue<'a>,
    longs: Longs,
    /// By place in the selection, the bytes that are still to be read.
    left: Vec<AtomicU64>,
    /// Takes each tensor, with its place.
    deliver: D,
    failure: OnceLock<Error>,
}

impl<'a, D: Fn(usize, Tensor) + Sync> Reading<'a, D> {
    pub(super) fn new(
        (pool, meter, gate): (&'a Arc<Pool>, &'a Meter, &'a Gate),
        infos: &'a [Arc<TensorInfo>],
        runs: Vec<Run<'a>>,
        deliver: D,
    ) -> Self {
        let owned = runs.iter().filter(|run| !run.way.needs_no_memory()).flat_map(|run| &run.tasks);
        let owned = owned.filter(|task| task.lent.is_empty());
        let portions = owned.flat_map(|task| &task.request.portions);
        let longs = Longs::new(portions.map(|portion| (portion, infos[portion.item].len_bytes())));
        let left = infos.iter().map(|info| AtomicU64::new(info.len_bytes())).collect();
        let failure = OnceLock::new();
        Self { pool, meter, gate, infos, queue: Queue::new(runs), longs, left, deliver, failure }
    }

    /// What one worker does, until there is nothing left or somebody has failed.
    pub(super) fn work(&self, number: usize) -> WorkerRow {
        let mut worker = Worker::new(number, self.meter);
        let all = || {
            while let Some(run) = self.queue.next() {
                self.run(run, &mut worker)?;
            }
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(all)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // The first failure is the one to tell of; those that its cancellation causes come after it.
                let _ = self.failure.set(error);
                self.cancel();
            }
            Err(panic) => {
                // The caller's progress function: nobody must be left to wait for what this worker will not
                // deliver.
                self.cancel();
                resume_unwind(panic)
            }
        }
        worker.into_row()
    }

    /// What came of it, when all workers are done.
    pub(super) fn finish(self) -> Result<()> {
        match self.failure.into_inner() {
            Some(error) => Err(error),
            None => self.meter.check_not_cancelled(),
        }
    }

    /// Tensors without elements have no bytes to read.
    pub(super) fn deliver_empty(&self) {
        for (item, info) in self.infos.iter().enumerate().filter(|(_, info)| info.len_bytes() == 0) {
            self.done(item, Tensor::owned(Arc::clone(info), Arc::default(), 0..0));
        }
    }

    fn cancel(&self) {
        self.meter.cancel();
        self.gate.close();
    }

    fn run(&self, run: Run<'_>, worker: &mut Worker<'_>) -> Result<()> {
        let Run { shard, way, spans, tally, tasks } = run;
        worker.turn_to(&tally);
        let first = tasks.first().and_then(|task| task.request.portions.first());
        let reader = way.open(&shard, &spans, self.pool).map_err(|error| self.about(error, first))?;
        let mut tasks = tasks.into_iter().peekable();
        let announce = |task: &Task<'_>| {
            let portions = task.request.portions.iter().map(|portion| (&*self.infos[portion.item], portion));
            reader.announce(&task.request.range, &portions.collect::<Vec<_>>());
        };
        tasks.peek().inspect(|task| announce(task));
        while let Some(task) = tasks.next() {
            tasks.peek().inspect(|next| announce(next));
            self.task(task, &shard, way, &*reader, worker)?;
        }
        Ok(())
    }

    fn task(
        &self,
        task: Task<'_>,
        shard: &Arc<Shard>,
        way: Way,
        reader: &dyn Reader,
        worker: &mut Worker<'_>,
    ) -> Result<()> {
        let Task { request, lent } = task;
        let first = request.portions.first();
        let mut room = self.room(&request, lent, way).map_err(|error| self.about(error, first))?;
        let portions = request.portions.iter().zip(room.targets());
        let mut fills: Vec<_> = portions
            .map(|(portion, target)| Fill { info: &self.infos[portion.item], portion, target })
            .collect();
        let read = worker.timed(|worker| reader.read(&request.range, &mut fills, worker));
        drop(fills);
        // Bytes that changed while they were read are not handed out as if nothing had happened, nor the zeros
        // that a mapping shows where its last page was cut; and a read that failed for it says so.
        let file = self.pool.verified_file(shard);
        match (read, file) {
            (_, Err(changed @ Error::ShardChanged { .. })) => return Err(changed),
            (Err(error), _) => return Err(self.about(error, first)),
            (Ok(()), Err(error)) => return Err(error),
            (Ok(()), Ok(file)) if way.drops_behind && !way.needs_no_memory() => {
                sys::drop_cached(&file, request.range.clone());
            }
            (Ok(()), Ok(_)) => {}
        }
        self.hand_over(&request, room, shard, way)
    }

    /// Memory for a request, once it is free.
    fn room<'b>(&self, request: &Request, lent: Vec<&'b mut [u8]>, way: Way) -> Result<Room<'b>> {
        if !lent.is_empty() {
            return Ok(Room::Lent(lent));
        }
        if way.needs_no_memory() {
            let begun = request.portions.iter().filter(|portion| portion.dest.start == 0);
            self.enter(begun.map(|portion| self.infos[portion.item].len_bytes()).sum())?;
            return Ok(Room::Mapped);
        }
        if let [portion] = request.portions.as_slice() {
            let bytes = self.infos[portion.item].len_bytes();
            let provide = || {
                self.enter(bytes)?;
                self.memory(bytes, portion, || Memory::zeroed(bytes))
            };
            if let Some(piece) = self.longs.piece(portion, provide) {
                return piece.map(Room::Piece);
            }
        }
        let bytes = request.portions.iter().map(|portion| portion.dest.end - portion.dest.start).sum();
        self.enter(bytes)?;
        match request.portions.first() {
            Some(first) => self.memory(bytes, first, || Whole::new(&request.portions)).map(Room::Whole),
            None => Ok(Room::Mapped),
        }
    }

    fn enter(&self, bytes: u64) -> Result<()> {
        if self.gate.enter(bytes) { Ok(()) } else { Err(Error::Cancelled) }
    }

    fn memory<T>(
        &self,
        bytes: u64,
        portion: &Portion,
        allocate: impl FnOnce() -> std::io::Result<T>,
    ) -> Result<T> {
        let memory = allocate().map_err(|error| {
            let path = self.pool.directory.join(self.infos[portion.item].shard.as_str());
            Error::io(
                &path,
                format!("allocate {bytes} bytes for those at offset {}", portion.source.start),
                error,
            )
        })?;
        self.meter.hold(bytes);
        Ok(memory)
    }

    /// Hands over the tensors that a request has completed.
    fn hand_over(&self, request: &Request, room: Room<'_>, shard: &Arc<Shard>, way: Way) -> Result<()> {
        // Counted as they are asked for: a piece has to be dropped before its tensor is said to be done.
        let completed = request.portions.iter().filter(|portion| self.completes(portion));
        let completed = completed.map(|portion| portion.item);
        match room {
            // The caller's memory, or the page cache: there is nothing to hand over.
            _ if way.purpose != Purpose::Tensors => {
                completed.for_each(|item| self.meter.done(self.infos[item].len_bytes()));
            }
            Room::Mapped => {
                let behind = way.drops_behind.then_some(self.pool);
                for item in completed {
                    self.meter.mapped(self.infos[item].len_bytes());
                    self.done(item, Tensor::mapped(self.info(item), shard, behind)?);
                }
            }
            Room::Piece(piece) => {
                drop(piece);
                for item in completed {
                    let bytes = length(self.infos[item].len_bytes());
                    let memory = self.longs.join(item).ok_or(Error::Cancelled)?;
                    self.done(item, Tensor::owned(self.info(item), Arc::new(memory), 0..bytes));
                }
            }
            Room::Whole(whole) => {
                for (item, (memory, place)) in completed.zip(whole.into_places()) {
                    self.done(item, Tensor::owned(self.info(item), memory, place));
                }
            }
            Room::Lent(_) => {}
        }
        Ok(())
    }

    /// Counts a portion as read; tells whether it was the last of its tensor.
    fn completes(&self, portion: &Portion) -> bool {
        let bytes = portion.dest.end - portion.dest.start;
        self.left.get(portion.item).is_some_and(|left| left.fetch_sub(bytes, AcqRel) == bytes)
    }

    fn done(&self, item: usize, tensor: Tensor) {
        self.meter.done(tensor.info().len_bytes());
        (self.deliver)(item, tensor);
    }

    fn info(&self, item: usize) -> Arc<TensorInfo> {
        Arc::clone(&self.infos[item])
    }

    /// The error, said to be about the tensor of a portion.
    fn about(&self, error: Error, portion: Option<&Portion>) -> Error {
        match portion {
            Some(portion) => error.about(&self.infos[portion.item].name),
            None => error,
        }
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
