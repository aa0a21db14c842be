//! The state in which a run finds what it loads.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::cache;
use crate::mount::{Delayed, Mounted};
use crate::sample::Sample;

/// The state in which a run finds what it loads.
pub enum Storage<'a> {
    /// These checkpoints are in the page cache, and what else a run needs as well: nothing comes from a device.
    Warm(&'a [&'a Path]),
    /// Nothing of these checkpoints is in the page cache.
    Cold(&'a [&'a Path]),
    /// They lie in a file system that delays every read, which is mounted anew for each run.
    Delayed(&'a Delayed),
}

/// What stands between the start of a run and its end.
pub(crate) struct Scene(Option<Mounted>);

impl Storage<'_> {
    /// Makes ready what holds for all runs.
    pub(crate) fn prepare(&self) -> Result<()> {
        match self {
            Self::Warm(checkpoints) => checkpoints.iter().try_for_each(|checkpoint| {
                // Whether pages or large folios hold a file depends on how it came in. Where it cannot be put out, it is
                // warm all the same.
                cache::evict(checkpoint).ok();
                cache::fill(checkpoint)
            }),
            Self::Cold(_) | Self::Delayed(_) => Ok(()),
        }
    }

    /// Makes a run ready.
    pub(crate) fn enter(&self, drop_all: bool) -> Result<Scene> {
        self.settle()?;
        match self {
            Self::Cold(_) if drop_all => cache::drop_all().map(|()| Scene(None)),
            Self::Delayed(delayed) => delayed.mount().map(|mounted| Scene(Some(mounted))),
            Self::Warm(_) | Self::Cold(_) => Ok(Scene(None)),
        }
    }

    /// Restores what a competitor may have changed when it made itself ready.
    pub(crate) fn settle(&self) -> Result<()> {
        match self {
            Self::Cold(checkpoints) => checkpoints.iter().try_for_each(|checkpoint| cache::evict(checkpoint)),
            Self::Warm(_) | Self::Delayed(_) => Ok(()),
        }
    }

    /// Fails for a run that did not find what it should have found.
    pub(crate) fn check(&self, sample: &Sample) -> Result<()> {
        /// A run that finds all in the page cache reads nothing but, perhaps, a page of the program.
        const MOST_WARM_BYTES: u64 = 1 << 20;
        let Some(device_bytes) = sample.device_bytes else { return Ok(()) };
        let (is_right, state) = match self {
            Self::Warm(_) => (device_bytes <= MOST_WARM_BYTES, "warm"),
            // Somebody else may have read some of it meanwhile, but hardly much.
            Self::Cold(_) => (device_bytes >= sample.bytes / 100 * 98, "cold"),
            Self::Delayed(_) => (true, "delayed"),
        };
        ensure!(
            is_right,
            "the run was not {state}: {device_bytes} of {} bytes came from a device",
            sample.bytes
        );
        Ok(())
    }
}

impl Scene {
    /// Ends a run, and adds to its sample what the storage has counted.
    pub(crate) fn leave(self, sample: Sample) -> Result<Sample> {
        let Some(mounted) = self.0 else { return Ok(sample) };
        let served = mounted.unmount()?;
        Ok(Sample { device_bytes: Some(served.bytes), requests: Some(served.requests), ..sample })
    }
}
