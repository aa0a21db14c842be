//! How a checkpoint is opened.

use crate::header::HeaderRules;

/// Settings of [`ShardedModel::options`](crate::ShardedModel::options); the defaults are those of
/// [`ShardedModel::open`](crate::ShardedModel::open).
#[derive(Debug, Clone)]
pub struct OpenOptions {
    pub(crate) variant: Option<String>,
    pub(crate) allow_missing: bool,
    pub(crate) lenient: bool,
    pub(crate) max_header_bytes: u64,
    pub(crate) max_index_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            variant: None,
            allow_missing: false,
            lenient: false,
            max_header_bytes: 100_000_000,
            max_index_bytes: 256 << 20,
        }
    }
}

impl OpenOptions {
    /// Opens the variant of this name, `fp16` in `model.safetensors.index.fp16.json` or
    /// `model.fp16.safetensors`; files of other variants and of none are never mixed with it.
    #[must_use]
    pub fn variant(mut self, name: impl Into<String>) -> Self {
        self.variant = Some(name.into());
        self
    }

    /// Opens a checkpoint some of whose shards are absent; the tensors of those that are present can be
    /// loaded. Of a distributed checkpoint, ranks may be absent, as those are that had nothing to write; tensors of
    /// which they had pieces are an error still.
    #[must_use]
    pub fn allow_missing(mut self, yes: bool) -> Self {
        self.allow_missing = yes;
        self
    }

    /// Accepts of a shard's header, beyond what the format allows, exactly this:
    /// - bytes after the last tensor, with the warning `TrailingBytesIgnored`; they are never handed out;
    /// - values of `__metadata__` that are no strings, with the warning `MetadataValueAsText`; they are kept as their JSON
    ///   text.
    ///
    /// The warnings are those of the [`Header`](crate::Header), and come with the report of each load that touches the
    /// shard, with [`check`](crate::check()), and as events of `tracing`. All else that is an error stays one: a short file,
    /// holes, overlaps, duplicates.
    #[must_use]
    pub fn lenient(mut self, yes: bool) -> Self {
        self.lenient = yes;
        self
    }

    /// The longest header in bytes that is read; by default 100,000,000, the limit of the reference
    /// implementation.
    #[must_use]
    pub fn max_header_bytes(mut self, bytes: u64) -> Self {
        self.max_header_bytes = bytes;
        self
    }

    /// The longest index file in bytes that is read; by default 256 MiB.
    #[must_use]
    pub fn max_index_bytes(mut self, bytes: u64) -> Self {
        self.max_index_bytes = bytes;
        self
    }

    pub(crate) fn header_rules(&self) -> HeaderRules {
        HeaderRules { max_bytes: self.max_header_bytes, is_lenient: self.lenient }
    }
}
