//! What is counted while a load runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::report::WorkerRow;
use crate::sys::Faults;

/// Told of each tensor that is done: bytes of tensors loaded so far, and bytes asked for in all.
pub(crate) type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// The counters of one load, shared by its workers.
pub(crate) struct Meter {
    workers: Vec<Work>,
    copied_bytes: AtomicU64,
    mapped_bytes: AtomicU64,
    held_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    done_bytes: AtomicU64,
    requested_bytes: AtomicU64,
    progress: Option<Progress>,
    cancelled: AtomicBool,
}

/// What one worker has asked the kernel for.
#[derive(Debug, Default)]
struct Work {
    read_bytes: AtomicU64,
    requests: AtomicU64,
    busy_nanos: AtomicU64,
}

impl Meter {
    pub(crate) fn new(workers: usize, progress: Option<Progress>) -> Self {
        Self {
            workers: (0..workers).map(|_| Work::default()).collect(),
            copied_bytes: AtomicU64::new(0),
            mapped_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            requested_bytes: AtomicU64::new(0),
            progress,
            cancelled: AtomicBool::new(false),
        }
    }

    /// The bytes of tensors asked for, once they are known.
    pub(crate) fn expect(&self, requested_bytes: u64) {
        self.requested_bytes.store(requested_bytes, Relaxed);
    }

    /// Lets no further request be made.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// # Errors
    /// [`Error::Cancelled`] once nobody waits for the load.
    pub(crate) fn check_not_cancelled(&self) -> Result<()> {
        if self.cancelled.load(Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Makes a request of `bytes` to the kernel, counted and timed for the worker that makes it.
    ///
    /// # Errors
    /// [`Error::Cancelled`] before the request is made, once nobody waits for the load.
    pub(crate) fn request<T>(&self, bytes: u64, request: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check_not_cancelled()?;
        let start = Instant::now();
        let result = request();
        tracing::trace!(bytes, ok = result.is_ok(), "request");
        if let Some(work) = rayon::current_thread_index().and_then(|worker| self.workers.get(worker)) {
            work.read_bytes.fetch_add(bytes, Relaxed);
            work.requests.fetch_add(1, Relaxed);
            work.busy_nanos.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
        result
    }

    /// Memory for tensors or scratch was taken.
    pub(crate) fn hold(&self, bytes: u64) {
        let held = self.held_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        self.peak_bytes.fetch_max(held, Relaxed);
    }

    /// Memory was given back, or became the caller's.
    pub(crate) fn let_go(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Relaxed);
    }

    /// A tensor of `bytes` is loaded.
    pub(crate) fn done(&self, bytes: u64) {
        let done = self.done_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if let Some(progress) = &self.progress {
            progress(done, self.requested_bytes.load(Relaxed));
        }
    }

    /// Bytes were copied in user space.
    pub(crate) fn copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Relaxed);
    }

    /// Bytes were handed out where they lie in a mapping.
    pub(crate) fn mapped(&self, bytes: u64) {
        self.mapped_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.load(Relaxed)
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Relaxed)
    }

    /// A row for each worker that there was, given the faults of each before and after.
    pub(crate) fn rows(&self, before: &[Option<Faults>], after: &[Option<Faults>]) -> Vec<WorkerRow> {
        let workers = (0..).zip(&self.workers).zip(before.iter().zip(after));
        workers.map(|((worker, work), (before, after))| work.row(worker, *before, *after)).collect()
    }
}

impl Work {
    fn row(&self, worker: u64, before: Option<Faults>, after: Option<Faults>) -> WorkerRow {
        let since = |figure: fn(Faults) -> u64| Some(figure(after?).saturating_sub(figure(before?)));
        WorkerRow {
            worker,
            read_bytes: self.read_bytes.load(Relaxed),
            requests: self.requests.load(Relaxed),
            busy_seconds: Duration::from_nanos(self.busy_nanos.load(Relaxed)).as_secs_f64(),
            minor_faults: since(|faults| faults.minor),
            major_faults: since(|faults| faults.major),
        }
    }
}
