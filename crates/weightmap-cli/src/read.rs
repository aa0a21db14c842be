//! The arguments that say how bytes are read.

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use weightmap::{LoadOptions, ReadMode};

use crate::size;

/// By which mode, by how many workers, within how much memory.
#[derive(Debug, Clone, clap::Args)]
pub struct ReadArgs {
    /// How bytes are read
    #[arg(long, default_value = ReadMode::default().name(), value_parser = modes())]
    pub mode: ReadMode,
    /// Threads that read, at most [default: one for each core, of disks 16 at most; 16 where requests take long, as
    /// over a network; at least 4 where reads wait for a device]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// The most memory that may be held at once, in bytes or with a unit: 8G and 8GiB are the same, 8GB is
    /// a little less; pages of mapped files are not in it [default: what the control groups of the process allow]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub memory_limit: Option<u64>,
}

impl ReadArgs {
    pub(crate) fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default().mode(self.mode);
        if let Some(workers) = self.workers {
            options = options.workers(workers.get());
        }
        if let Some(bytes) = self.memory_limit {
            options = options.memory_limit(bytes);
        }
        options
    }
}

fn modes() -> impl TypedValueParser<Value = ReadMode> {
    let names = ReadMode::ALL.iter().map(|mode| mode.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ReadMode>())
}
