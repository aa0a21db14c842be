//! The reading stage: workers that take runs off the queue, and hand over tensors as they are done.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::{Arc, OnceLock};

use super::gathering::Gatherings;
use super::long::Longs;
use super::outputs::Outputs;
use super::queue::{Queue, Run, Task};
use super::room::{Room, Whole};
use crate::error::{Error, Result};
use crate::extent::{Portion, Request};
use crate::gate::Gate;
use crate::inspect::{Hand, InCache, Inspection};
use crate::memory::{Memory, Piece, memory_len};
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
    inspection: &'a Inspection,
    /// By item.
    infos: &'a [Arc<TensorInfo>],
    outputs: &'a Outputs,
    queue: Queue<'a>,
    longs: Longs,
    gatherings: Gatherings<'a>,
    /// By vessel, the bytes that are still to be read.
    left: Vec<AtomicU64>,
    /// Takes each output, with its place.
    deliver: D,
    failure: OnceLock<Error>,
}

impl<'a, D: Fn(usize, Tensor) + Sync> Reading<'a, D> {
    pub(super) fn new(
        (pool, meter, gate, inspection): (&'a Arc<Pool>, &'a Meter, &'a Gate, &'a Inspection),
        infos: &'a [Arc<TensorInfo>],
        outputs: &'a Outputs,
        runs: Vec<Run<'a>>,
        gatherings: Gatherings<'a>,
        deliver: D,
    ) -> Self {
        let owned = runs.iter().filter(|run| !run.way.needs_no_memory()).flat_map(|run| &run.tasks);
        let owned = owned.filter(|task| task.lent.is_empty());
        let portions = owned.flat_map(|task| &task.request.portions);
        let longs = Longs::new(
            portions
                .map(|portion| (portion, outputs.place(portion.item), outputs.vessel(portion.item).bytes)),
        );
        let left = outputs.vessels().iter().map(|vessel| AtomicU64::new(vessel.read_bytes)).collect();
        let (queue, failure) = (Queue::new(runs), OnceLock::new());
        Self {
            pool,
            meter,
            gate,
            inspection,
            infos,
            outputs,
            queue,
            longs,
            gatherings,
            left,
            deliver,
            failure,
        }
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

    /// Outputs of which no byte is in a file: they have no element, or are all padding.
    pub(super) fn deliver_unread(&self, purpose: Purpose) -> Result<()> {
        for (vessel, there) in
            self.outputs.vessels().iter().enumerate().filter(|(_, vessel)| vessel.read_bytes == 0)
        {
            let is_copied = || self.outputs.owner(vessel).2.gathers().is_some();
            if purpose == Purpose::Tensors || purpose == Purpose::Lent && is_copied() {
                self.enter_for(vessel)?;
                self.complete(
                    vessel,
                    Arc::new(self.memory(there.bytes, vessel, || Memory::zeroed(there.bytes))?),
                    0,
                )?;
            }
        }
        Ok(())
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
        // Bytes that changed while they were read are not handed out as if nothing had happened, nor the zeros
        // that a mapping shows where its last page was cut; and a read that failed for it says so.
        let file = self.pool.verified(shard, reader.file());
        match (read, file) {
            (_, Err(changed @ Error::ShardChanged { .. })) => return Err(changed),
            (Err(error), _) | (Ok(()), Err(error)) => return Err(self.about(error, first)),
            (Ok(()), Ok(file)) => {
                worker.timed(|worker| self.inspect(&request, &mut fills, shard, worker))?;
                if way.drops_behind && !way.needs_no_memory() {
                    sys::drop_cached(&file, request.range.clone());
                }
            }
        }
        drop(fills);
        self.hand_over(&request, room, shard, way)
    }

    /// Has those who look at what is loaded look at the chunks of a request.
    fn inspect(
        &self,
        request: &Request,
        fills: &mut [Fill<'_>],
        shard: &Shard,
        worker: &mut Worker<'_>,
    ) -> Result<()> {
        if self.inspection.is_empty() {
            return Ok(());
        }
        // Not the one that is at hand, which may be for aligned reads only.
        let file = &*self.pool.file(shard)?;
        for (number, portion) in request.portions.iter().enumerate() {
            let of = (shard, file, &*self.infos[portion.item].name);
            let hand: &mut dyn Hand = match fills.get_mut(number) {
                Some(fill) => fill,
                None => &mut InCache,
            };
            let before = worker.inspected.len();
            let looked = self.inspection.look(of, &portion.source, &mut worker.inspected, hand);
            self.meter.hold((worker.inspected.len() - before) as u64);
            // Where the file was written to meanwhile, that is what is told.
            let looked = looked.or_else(|error| shard.verify_unchanged(file).and(Err(error)))?;
            self.meter.verified(looked.bytes);
            if looked.read_bytes > 0 {
                worker.count(looked.read_bytes)?;
            }
        }
        Ok(())
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
        let pieces = request.portions.iter().map_while(|portion| self.piece(portion));
        let pieces = pieces.collect::<Result<Vec<_>>>()?;
        match request.portions.first() {
            // All or none of them are: those that share vessels are planned apart, and a part of one is alone.
            Some(_) if pieces.len() == request.portions.len() => Ok(Room::Pieces(pieces)),
            Some(first) => {
                let place = self.outputs.place(first.item);
                if self.outputs.output(first.item).gathers().is_some() {
                    self.enter_for(place.vessel)?;
                } else {
                    self.enter(bytes_of(request))?;
                }
                self.memory(bytes_of(request), place.vessel, || Whole::new(&request.portions))
                    .map(Room::Whole)
            }
            None => Ok(Room::Mapped),
        }
    }

    /// The memory of a portion of a vessel that several requests fill.
    fn piece(&self, portion: &Portion) -> Option<Result<Piece>> {
        let place = self.outputs.place(portion.item);
        let bytes = self.outputs.vessel(portion.item).bytes;
        self.longs.piece(portion, place, || {
            self.enter_for(place.vessel)?;
            self.memory(bytes, place.vessel, || Memory::zeroed(bytes))
        })
    }

    /// Waits until there is memory for the output of a vessel that is begun.
    fn enter_for(&self, vessel: usize) -> Result<()> {
        let (_, number, output) = self.outputs.owner(vessel);
        match self.gatherings.of(number) {
            // What is copied needs its memory twice, and all of it before the end: the first asks for all.
            Some(gathering) => {
                let ask = || self.gate.enter(output.needed_bytes(self.infos));
                if gathering.enter(ask) { Ok(()) } else { Err(Error::Cancelled) }
            }
            None => self.enter(self.outputs.vessels()[vessel].bytes),
        }
    }

    fn enter(&self, bytes: u64) -> Result<()> {
        if self.gate.enter(bytes) { Ok(()) } else { Err(Error::Cancelled) }
    }

    /// Memory for a vessel.
    fn memory<T>(
        &self,
        bytes: u64,
        vessel: usize,
        allocate: impl FnOnce() -> std::io::Result<T>,
    ) -> Result<T> {
        let memory = allocate()
            .map_err(|error| self.pool.no_memory(&self.outputs.owner(vessel).2.info, bytes, error))?;
        self.meter.hold(bytes);
        Ok(memory)
    }

    /// Hands over the outputs that a request has completed.
    fn hand_over(&self, request: &Request, room: Room<'_>, shard: &Arc<Shard>, way: Way) -> Result<()> {
        // Counted as they are asked for: pieces have to be dropped before their vessel is said to be full.
        let completed = request.portions.iter().filter_map(|portion| self.completes(portion));
        match room {
            // The caller's memory, or the page cache: there is nothing to hand over.
            Room::Lent(_) => completed.for_each(|vessel| self.count(vessel)),
            Room::Mapped if way.purpose == Purpose::Cache => completed.for_each(|vessel| self.count(vessel)),
            Room::Mapped => {
                let behind = way.drops_behind.then_some(self.pool);
                for vessel in completed {
                    let (_, number, output) = self.outputs.owner(vessel);
                    self.meter.mapped(output.info.len_bytes());
                    self.done(number, vessel, Tensor::mapped(Arc::clone(&output.info), shard, behind)?);
                }
            }
            Room::Pieces(pieces) => {
                drop(pieces);
                for vessel in completed {
                    let memory = self.longs.join(vessel).ok_or(Error::Cancelled)?;
                    self.complete(vessel, Arc::new(memory), 0)?;
                }
            }
            Room::Whole(whole) => {
                for (vessel, (memory, place)) in completed.zip(whole.into_places()) {
                    self.complete(vessel, memory, place.start)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a portion as read; tells which vessel it was the last one of.
    fn completes(&self, portion: &Portion) -> Option<usize> {
        let bytes = portion.dest.end - portion.dest.start;
        let vessel = self.outputs.place(portion.item).vessel;
        let left = self.left.get(vessel)?;
        (left.fetch_sub(bytes, AcqRel) == bytes).then_some(vessel)
    }

    /// A vessel is full: its memory begins at `start`.
    fn complete(&self, vessel: usize, memory: Arc<Memory>, start: usize) -> Result<()> {
        let (item, number, output) = self.outputs.owner(vessel);
        let range = start..start.saturating_add(memory_len(self.outputs.vessels()[vessel].bytes));
        match self.gatherings.of(number) {
            None => self.done(number, vessel, Tensor::owned(Arc::clone(&output.info), memory, range)),
            Some(gathering) => {
                self.count(vessel);
                gathering.add(item, (memory, range));
                if gathering.is_last() {
                    self.gather(number)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the items of an output, which are all there, to their places, and hands it over.
    fn gather(&self, number: usize) -> Result<()> {
        let Some((gathering, output)) = self.gatherings.of(number).zip(self.outputs.get(number)) else {
            return Ok(());
        };
        let copy = |target: &mut [u8]| {
            for (gather, (memory, range)) in output.gathers().unwrap_or_default().iter().zip(gathering.take())
            {
                let local = memory.as_slice().get(range).unwrap_or_default();
                self.meter.copied(gather.copy(local, target));
            }
        };
        if let Some(lent) = gathering.take_lent() {
            lent.fill(0);
            copy(lent);
        } else {
            let bytes = output.info.len_bytes();
            let memory = Memory::zeroed(bytes);
            let mut memory = memory.map_err(|error| self.pool.no_memory(&output.info, bytes, error))?;
            self.meter.hold(bytes);
            copy(memory.as_mut_slice());
            let tensor = Tensor::owned(Arc::clone(&output.info), Arc::new(memory), 0..memory_len(bytes));
            (self.deliver)(number, tensor);
        }
        let copied = output.copied_bytes(self.infos);
        self.meter.let_go(copied);
        self.gate.leave(copied);
        Ok(())
    }

    fn done(&self, number: usize, vessel: usize, tensor: Tensor) {
        self.count(vessel);
        (self.deliver)(number, tensor);
    }

    /// Tells that a vessel is full.
    fn count(&self, vessel: usize) {
        self.meter.done(self.outputs.vessels()[vessel].read_bytes);
    }

    /// The error, said to be about the tensor of a portion.
    fn about(&self, error: Error, portion: Option<&Portion>) -> Error {
        match portion {
            Some(portion) => error.about(&self.infos[portion.item].name),
            None => error,
        }
    }
}

fn bytes_of(request: &Request) -> u64 {
    request.portions.iter().map(|portion| portion.dest.end - portion.dest.start).sum()
}
