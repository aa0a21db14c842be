//! How a selection is loaded.

use std::fmt;
use std::sync::Arc;

use crate::meter::Progress;
use crate::mode::ReadMode;

/// How a selection is loaded. `LoadOptions::default()` is what [`Selection::load`](crate::Selection::load)
/// uses.
#[derive(Clone, Default)]
#[must_use]
pub struct LoadOptions {
    pub(super) mode: ReadMode,
    pub(super) workers: Option<usize>,
    pub(super) progress: Option<Progress>,
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, workers, progress: _ } = self;
        f.debug_struct("LoadOptions").field("mode", mode).field("workers", workers).finish_non_exhaustive()
    }
}

impl LoadOptions {
    /// How bytes are read; by default [`ReadMode::Auto`].
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// How many worker threads there are at most, at least 1; by default one for each core that the process
    /// may use, 16 at most. No more are started than there are shards to open, and requests to make, nor than
    /// an eighth of the process's limit of descriptors.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Called by the workers whenever a tensor is loaded: with the bytes of tensors loaded so far, and asked
    /// for in all. Calls of several workers can overlap, and then come in any order.
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
}
