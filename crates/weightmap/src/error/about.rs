//! What an error is about.

use std::path::Path;

use super::{Error, PlanError};

impl Error {
    /// The file or directory that the error is about, where it is about one.
    ///
    /// Of errors about a tensor that is in hand ([`DtypeMismatch`](Self::DtypeMismatch),
    /// [`Misaligned`](Self::Misaligned), [`NotBool`](Self::NotBool), [`BigEndian`](Self::BigEndian),
    /// [`TargetLength`](Self::TargetLength)) it is the shard as the index names it, without the model's directory.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::NotRegularFile { path, .. }
            | Self::Header { path, .. }
            | Self::Index { path, .. }
            | Self::MissingShards { path, .. }
            | Self::Ambiguous { path, .. }
            | Self::NoSuchVariant { path, .. }
            | Self::BadVariant { path, .. }
            | Self::IncompleteFamily { path, .. }
            | Self::Pieces { path, .. }
            | Self::ContentDiffers { path, .. }
            | Self::NotDigested { path, .. }
            | Self::NoModel { path, .. }
            | Self::NoSuchRevision { path, .. }
            | Self::ShardChanged { path, .. }
            | Self::BlobDiffers { path, .. }
            | Self::TensorNotInShard { path, .. }
            | Self::TensorInPieces { path, .. }
            | Self::UnknownTensors { path, .. }
            | Self::UnknownShard { path, .. }
            | Self::NothingMatches { path, .. }
            | Self::EmptySelection { path }
            | Self::StillCached { path, .. }
            | Self::Slice { path, .. }
            | Self::MemoryLimit { path, .. }
            | Self::TargetLength { path, .. }
            | Self::DtypeMismatch { path, .. }
            | Self::Misaligned { path, .. }
            | Self::NotBool { path, .. }
            | Self::BigEndian { path, .. } => Some(path),
            Self::Plan { path, .. } | Self::Digests { path, .. } => path.as_deref(),
            Self::BadPattern { .. }
            | Self::BadRegex { .. }
            | Self::BadRank { .. }
            | Self::UnknownReadMode { .. }
            | Self::Threads { .. }
            | Self::Forked
            | Self::Collective { .. }
            | Self::Peer { .. }
            | Self::Cancelled => None,
        }
    }

    /// The tensor that the error is about, where it is about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Header { fault, .. } => fault.tensor(),
            Self::Index { fault, .. } => fault.tensor(),
            Self::Pieces { fault, .. } => fault.tensor(),
            Self::Io { tensor, .. }
            | Self::MemoryLimit { tensor, .. }
            | Self::ContentDiffers { tensor, .. }
            | Self::NotDigested { tensor, .. } => tensor.as_deref(),
            Self::TensorNotInShard { tensor, .. }
            | Self::TensorInPieces { tensor, .. }
            | Self::DtypeMismatch { tensor, .. }
            | Self::Misaligned { tensor, .. }
            | Self::NotBool { tensor, .. }
            | Self::BigEndian { tensor, .. }
            | Self::Slice { tensor, .. }
            | Self::TargetLength { tensor, .. } => Some(tensor),
            Self::UnknownTensors { unknown, .. } => match unknown.as_slice() {
                [one] => Some(&one.name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The kind of error for machines: a stable name in CamelCase, explained in `docs/errors.md`. For a fault
    /// of a header or an index it is the kind of that fault.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Io { .. } => "Io",
            Self::NotRegularFile { .. } => "NotRegularFile",
            Self::Header { fault, .. } => fault.kind(),
            Self::Index { fault, .. } => fault.kind(),
            Self::MissingShards { .. } => "MissingShards",
            Self::Ambiguous { .. } => "Ambiguous",
            Self::NoSuchVariant { .. } => "NoSuchVariant",
            Self::BadVariant { .. } => "BadVariant",
            Self::IncompleteFamily { .. } => "IncompleteFamily",
            Self::Pieces { fault, .. } => fault.kind(),
            Self::Digests { fault, .. } => fault.kind(),
            Self::ContentDiffers { .. } => "ContentDiffers",
            Self::NotDigested { .. } => "NotDigested",
            Self::NoModel { .. } => "NoModel",
            Self::NoSuchRevision { .. } => "NoSuchRevision",
            Self::ShardChanged { .. } => "ShardChanged",
            Self::BlobDiffers { .. } => "BlobDiffers",
            Self::TensorNotInShard { .. } => "TensorNotInShard",
            Self::TensorInPieces { .. } => "TensorInPieces",
            Self::UnknownTensors { .. } => "UnknownTensors",
            Self::UnknownShard { .. } => "UnknownShard",
            Self::DtypeMismatch { .. } => "DtypeMismatch",
            Self::Misaligned { .. } => "Misaligned",
            Self::NotBool { .. } => "NotBool",
            Self::BigEndian { .. } => "BigEndian",
            Self::BadPattern { .. } => "BadPattern",
            Self::BadRegex { .. } => "BadRegex",
            Self::NothingMatches { .. } => "NothingMatches",
            Self::EmptySelection { .. } => "EmptySelection",
            Self::Slice { fault, .. } => fault.kind(),
            Self::Plan { fault, .. } => fault.kind(),
            Self::BadRank { .. } => "BadRank",
            Self::MemoryLimit { .. } => "MemoryLimit",
            Self::TargetLength { .. } => "TargetLength",
            Self::StillCached { .. } => "StillCached",
            Self::UnknownReadMode { .. } => "UnknownReadMode",
            Self::Threads { .. } => "Threads",
            Self::Forked => "Forked",
            Self::Collective { .. } => "Collective",
            Self::Peer { .. } => "Peer",
            Self::Cancelled => "Cancelled",
        }
    }

    /// How many faults it tells of. An error keeps the first thousand of them.
    pub fn count(&self) -> usize {
        match self {
            Self::Index { fault, .. } => fault.count(),
            Self::Pieces { fault, .. } => fault.count,
            Self::MissingShards { count, .. } => *count,
            Self::Plan { fault, .. } => fault.faults.len(),
            _ => 1,
        }
    }

    /// The same faults, each by itself: those of an index and missing shards come many in one error. They are as many as are
    /// kept, which [`count`](Self::count) may exceed.
    #[must_use]
    pub fn into_each(self) -> Vec<Self> {
        match self {
            Self::Index { path, fault } => {
                let alone = |fault| Self::Index { path: path.clone(), fault: Box::new(fault) };
                fault.into_each().into_iter().map(alone).collect()
            }
            Self::Pieces { path, fault } => {
                let alone = |fault| Self::Pieces { path: path.clone(), fault: Box::new(fault) };
                fault.into_each().map(alone).collect()
            }
            Self::MissingShards { path, missing, shards, hint, .. } => {
                let alone = |missing| Self::MissingShards {
                    path: path.clone(),
                    missing: vec![missing],
                    count: 1,
                    shards,
                    // It can be long, and says the same of all.
                    hint: hint.clone(),
                };
                missing.into_iter().map(alone).collect()
            }
            Self::Plan { path, fault } => {
                let alone = |fault| Self::Plan {
                    path: path.clone(),
                    fault: Box::new(PlanError { faults: vec![fault] }),
                };
                fault.faults.into_iter().map(alone).collect()
            }
            error => vec![error],
        }
    }
}
