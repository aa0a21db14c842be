//! One thread's share of a load.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::direct::Bounce;
use crate::error::Result;
use crate::memory::Memory;
use crate::meter::{Meter, Tally};
use crate::report::WorkerRow;
use crate::sys::uring::Ring;
use crate::sys::{self, Faults};

/// What a worker uses again and again, and what it has done so far.
pub(crate) struct Worker<'a> {
    pub(crate) meter: &'a Meter,
    row: WorkerRow,
    /// Of the shard that is being read.
    tally: Arc<Tally>,
    faults_before: Option<Faults>,
    /// Memory for those who look at what is loaded.
    pub(crate) inspected: Vec<u8>,
    scratch: Memory,
    /// Memory that reads past the page cache go through.
    bounce: Option<Bounce>,
}

/// The memory of a worker that reads past the page cache go through.
pub(super) const BOUNCE_BYTES: u64 = 4 << 20;

/// The most bytes that are read into scratch memory at once: so few that they stay in the cache of a core
/// until they are copied on.
pub(super) const SCRATCH_BYTES: usize = 512 << 10;

impl<'a> Worker<'a> {
    pub(crate) fn new(number: usize, meter: &'a Meter) -> Self {
        let row = WorkerRow { worker: number as u64, ..WorkerRow::default() };
        let (tally, faults_before) = (Arc::default(), sys::thread_faults());
        Self {
            meter,
            row,
            tally,
            faults_before,
            inspected: Vec::new(),
            scratch: Memory::default(),
            bounce: None,
        }
    }

    /// What follows is of another shard.
    pub(crate) fn turn_to(&mut self, tally: &Arc<Tally>) {
        self.tally = Arc::clone(tally);
    }

    /// Counts a request of `bytes` to the kernel that is about to be made.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) once nobody waits for the load.
    pub(crate) fn count(&mut self, bytes: u64) -> Result<()> {
        self.meter.check_not_cancelled()?;
        tracing::trace!(bytes, "request");
        self.row.read_bytes = self.row.read_bytes.saturating_add(bytes);
        self.row.requests += 1;
        self.tally.count(bytes);
        Ok(())
    }

    /// Does something that counts as busy.
    pub(crate) fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let start = Instant::now();
        let result = work(self);
        self.row.busy_seconds += start.elapsed().as_secs_f64();
        result
    }

    /// Takes the scratch memory; it is given back to be used again.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`].
    pub(super) fn take_scratch(&mut self) -> io::Result<Memory> {
        if self.scratch.as_slice().is_empty() {
            self.scratch = Memory::zeroed(SCRATCH_BYTES as u64)?;
            self.meter.hold(SCRATCH_BYTES as u64);
        }
        Ok(std::mem::take(&mut self.scratch))
    }

    pub(super) fn give_back(&mut self, scratch: Memory) {
        self.scratch = scratch;
    }

    /// Takes the memory that reads past the page cache go through; it is given back to be used again.
    pub(super) fn take_bounce(&mut self) -> io::Result<Bounce> {
        if let Some(bounce) = self.bounce.take() {
            return Ok(bounce);
        }
        let bounce = Bounce::new(usize::try_from(BOUNCE_BYTES).unwrap_or(usize::MAX), Ring::probe())?;
        self.meter.hold(BOUNCE_BYTES);
        Ok(bounce)
    }

    pub(super) fn give_back_bounce(&mut self, bounce: Bounce) {
        self.bounce = Some(bounce);
    }

    /// What came of it, told by the thread that did it.
    pub(crate) fn into_row(self) -> WorkerRow {
        let after = sys::thread_faults();
        let since =
            |figure: fn(Faults) -> u64| Some(figure(after?).saturating_sub(figure(self.faults_before?)));
        WorkerRow {
            minor_faults: since(|faults| faults.minor),
            major_faults: since(|faults| faults.major),
            ..self.row
        }
    }
}
