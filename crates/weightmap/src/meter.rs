//! What is counted while a load runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result};

/// Told of each tensor that is done: bytes of tensors loaded so far, and bytes asked for in all.
pub(crate) type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What was asked of the kernel to read one shard.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.requests.fetch_add(1, Relaxed);
    }

    /// The bytes, and in how many requests.
    pub(crate) fn told(&self) -> (u64, u64) {
        (self.bytes.load(Relaxed), self.requests.load(Relaxed))
    }
}

/// The counters of one load, shared by its workers.
pub(crate) struct Meter {
    copied_bytes: AtomicU64,
    mapped_bytes: AtomicU64,
    verified_bytes: AtomicU64,
    held_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    done_bytes: AtomicU64,
    requested_bytes: AtomicU64,
    progress: Option<Progress>,
    cancelled: AtomicBool,
}

impl Meter {
    pub(crate) fn new(progress: Option<Progress>) -> Self {
        Self {
            copied_bytes: AtomicU64::new(0),
            mapped_bytes: AtomicU64::new(0),
            verified_bytes: AtomicU64::new(0),
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

    /// Bytes were compared with their digests.
    pub(crate) fn verified(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn verified_bytes(&self) -> u64 {
        self.verified_bytes.load(Relaxed)
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
}
