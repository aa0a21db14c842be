//! How a selection is loaded.

use std::fmt;
use std::sync::Arc;

use crate::digests::Digests;
use crate::inspect::Inspection;
use crate::meter::Progress;
use crate::mode::ReadMode;

/// How a selection is loaded. `LoadOptions::default()` is what [`Selection::load`](crate::Selection::load)
/// uses.
#[derive(Clone, Default)]
#[must_use]
pub struct LoadOptions {
    pub(crate) mode: ReadMode,
    pub(crate) workers: Option<usize>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) drop_behind: bool,
    pub(crate) inspection: Inspection,
    pub(crate) progress: Option<Progress>,
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, workers, memory_limit, drop_behind, inspection, progress: _ } = self;
        f.debug_struct("LoadOptions")
            .field("mode", mode)
            .field("workers", workers)
            .field("memory_limit", memory_limit)
            .field("drop_behind", drop_behind)
            .field("is_verified", &!inspection.is_empty())
            .finish_non_exhaustive()
    }
}

impl LoadOptions {
    /// How bytes are read; by default [`ReadMode::Auto`].
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// How many workers there are at most, at least 1.
    ///
    /// By default as many as the storage rewards: one for each core that the process may use, of disks 16 at most;
    /// 16, whatever the cores, where requests take long, as over a network; and at least 4 where workers wait for a
    /// device that the system does not read ahead from. There are never more than runs of requests to make, nor than
    /// an eighth of the descriptors that the process may have open, and 128; and fewer where memory is too short for
    /// what they read through.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// The most bytes of memory that the load may hold at once: tensors in memory of their own that have not
    /// been taken from it, those that are being read, and what they are read through. Pages of mapped files are
    /// not in it, as the system takes them back when it needs them, nor is memory of the caller's.
    ///
    /// By default it is what the process's control groups allow: their limit less what is used of it and
    /// cannot be given back. A [`load`](crate::Selection::load) holds all of its tensors; a
    /// [`stream`](crate::Selection::stream) holds those that have not been taken, and goes on as they are; it
    /// leaves half of what a group allows to whoever takes them. Short tensors of a stream share memory of up to
    /// 8 MiB, which counts only as long as one of them has not been taken.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Gives pages of the files back to the system behind the reads: those of a mapped tensor when it is
    /// dropped, those of a copied one at once. By default they stay in the page cache for whoever reads them
    /// next. It is for streams of more than the memory that the process is allowed.
    pub fn drop_behind(mut self, drop_behind: bool) -> Self {
        self.drop_behind = drop_behind;
        self
    }

    /// Compares with digests what is loaded, before it is handed out, and the headers of the shards that it is loaded from.
    ///
    /// It is done by the workers, in chunks of 1 MiB of each tensor. Of a slice that has only a part of a chunk the rest is read
    /// too, and is in [`LoadReport::read_bytes`](crate::LoadReport::read_bytes). What is mapped is compared by reads of its own, which find
    /// it in the page cache: a later change of the file is not noticed. Each worker has 1 MiB of memory more.
    ///
    /// The load fails with [`Error::ContentDiffers`](crate::Error::ContentDiffers) for what is not as the digests say, and
    /// with [`Error::NotDigested`](crate::Error::NotDigested) for what they do not know.
    pub fn verify(mut self, digests: impl Into<Arc<Digests>>) -> Self {
        self.inspection.verify(digests.into());
        self
    }

    /// Called by the workers whenever a tensor is loaded: with the bytes of tensors loaded so far, and asked
    /// for in all. Calls of several workers can overlap, and then come in any order.
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
}
