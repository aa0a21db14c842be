//! How a checkpoint is opened.

/// Settings of [`ShardedModel::options`](crate::ShardedModel::options); the defaults are those of
/// [`ShardedModel::open`](crate::ShardedModel::open).
#[derive(Debug, Clone)]
pub struct OpenOptions {
    pub(crate) variant: Option<String>,
    pub(crate) allow_missing: bool,
    pub(crate) max_header_bytes: u64,
    pub(crate) max_index_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            variant: None,
            allow_missing: false,
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
}
