//! The arguments that say how a checkpoint is opened.

use std::path::Path;

use weightmap::{OpenOptions, ShardedModel};

/// Which files of a checkpoint are meant, and how long their headers and index may be.
#[derive(Debug, Clone, clap::Args)]
pub struct FormatArgs {
    /// Open this variant, such as fp16
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The longest header that is read, in bytes [default: 100000000]
    #[arg(long, value_name = "BYTES")]
    pub max_header_bytes: Option<u64>,
    /// The longest index that is read, in bytes [default: 268435456]
    #[arg(long, value_name = "BYTES")]
    pub max_index_bytes: Option<u64>,
    /// Accept bytes after a shard's last tensor, which are passed over, and metadata values that are no strings, kept as
    /// text; each with a warning. All else that is wrong stays an error
    #[arg(long)]
    pub lenient: bool,
}

/// How a checkpoint is opened.
#[derive(Debug, Clone, clap::Args)]
pub struct OpenArgs {
    /// Which files, and their limits.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Go on without shards that are absent
    #[arg(long)]
    pub allow_missing: bool,
}

impl FormatArgs {
    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = ShardedModel::options().lenient(self.lenient);
        if let Some(variant) = &self.variant {
            options = options.variant(variant);
        }
        if let Some(bytes) = self.max_header_bytes {
            options = options.max_header_bytes(bytes);
        }
        if let Some(bytes) = self.max_index_bytes {
            options = options.max_index_bytes(bytes);
        }
        options
    }
}

impl OpenArgs {
    pub(crate) fn open(&self, path: &Path) -> weightmap::Result<ShardedModel> {
        self.format.options().allow_missing(self.allow_missing).open(path)
    }
}
