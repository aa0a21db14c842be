//! Files of digests that are none.

use super::header::HeaderError;
use super::quote::quote;

/// Why a file of digests cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DigestsError {
    /// It has not the layout of a file of digests.
    #[error("this is no file of digests: {0}")]
    Header(Box<HeaderError>),
    /// It says that it is something else, or a later version.
    #[error("this is no file of digests that this version reads: its `format` is {}; make it anew", found.as_deref().map_or_else(|| "not given".to_owned(), quote))]
    Format {
        /// What it says.
        found: Option<String>,
    },
    /// It is longer than any that is read.
    #[error("this file of digests has {bytes} bytes, and the limit is {limit}")]
    TooLong {
        /// Its length in bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An entry has not as many rows as its tensor has chunks.
    #[error("{} has not {} of 32 bytes; are the digests of another checkpoint?", quote(key), expected.map_or_else(|| "rows".to_owned(), |chunks| format!("the rows of a tensor of {chunks} chunks")))]
    Rows {
        /// The shard and the tensor.
        key: String,
        /// How many chunks the tensor has, where that is known.
        expected: Option<u64>,
    },
    /// A tensor is not there any more.
    #[error(
        "{} was there when the digests were made, and the checkpoint has no such tensor there; is its index complete?",
        quote(key)
    )]
    NotThere {
        /// The shard and the tensor.
        key: String,
    },
    /// The values of a tensor's chunks do not make its digest.
    #[error(
        "the digests of {} contradict each other: the file of digests itself is damaged; fetch it again",
        quote(key)
    )]
    Inconsistent {
        /// The shard and the tensor.
        key: String,
    },
}

impl DigestsError {
    /// The kind of error for machines, explained in `docs/errors.md`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Header(_) | Self::Format { .. } => "NotDigests",
            Self::TooLong { .. } => "DigestsTooLong",
            Self::Rows { .. } => "DigestsOfOther",
            Self::NotThere { .. } => "DigestedNotThere",
            Self::Inconsistent { .. } => "DigestsDamaged",
        }
    }
}
