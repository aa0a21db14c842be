//! Pieces that do not make whole tensors.

use super::quote::{clauses, count, dtype_name, quote};
use crate::dtype::Dtype;

/// Why the files of a distributed checkpoint do not make whole tensors: all that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", all(faults, *count as u64))]
#[non_exhaustive]
pub struct PiecesError {
    /// The first thousand faults.
    pub faults: Vec<PieceFault>,
    /// How many there are.
    pub count: usize,
}

/// One thing that is wrong with the pieces of a distributed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PieceFault {
    /// What a header says of its pieces is no JSON object.
    #[error(
        "{}: `DCP_SHARDING_INFO` is no JSON object from tensors to offsets: {message}; save or fetch it again",
        quote(shard)
    )]
    Info {
        /// The shard.
        shard: String,
        /// What the parser says, and where in the text.
        message: String,
    },
    /// A header gives the offsets of a tensor that it does not list.
    #[error(
        "{}: `DCP_SHARDING_INFO` has tensor {}, which the header does not list; save or fetch the shard again",
        quote(shard),
        quote(tensor)
    )]
    NotInShard {
        /// The shard.
        shard: String,
        /// The tensor.
        tensor: String,
    },
    /// The offsets of a piece are no offsets, or not as many as it has dimensions.
    #[error("{}: tensor {}: {reason}; save or fetch the shard again", quote(shard), quote(tensor))]
    Offsets {
        /// The shard.
        shard: String,
        /// The tensor.
        tensor: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A tensor lies in several shards, and one of them does not say which piece it has.
    #[error(
        "tensor {} lies in {} files, and {} has no offsets for it, so that nothing says where its piece belongs",
        quote(tensor),
        shards,
        quote(shard)
    )]
    WithoutOffsets {
        /// The shard without offsets.
        shard: String,
        /// The tensor.
        tensor: String,
        /// How many shards have a piece of it.
        shards: usize,
    },
    /// Two pieces have elements of different types.
    #[error(
        "tensor {}: its piece in {} is {} and that in {} is {}; all pieces must have one dtype: are the files of one save?",
        quote(tensor),
        quote(first),
        dtype_name(expected),
        quote(second),
        dtype_name(found)
    )]
    Dtypes {
        /// The tensor.
        tensor: String,
        /// The shard of one piece.
        first: String,
        /// Its type.
        expected: Dtype,
        /// The shard of the other.
        second: String,
        /// Its type.
        found: Dtype,
    },
    /// Two pieces have different numbers of dimensions.
    #[error(
        "tensor {}: its piece in {} has {} and that in {} has {}: are the files of one save?",
        quote(tensor),
        quote(first),
        count(*expected as u64, "dimension"),
        quote(second),
        found
    )]
    Dims {
        /// The tensor.
        tensor: String,
        /// The shard of one piece.
        first: String,
        /// How many dimensions it has.
        expected: usize,
        /// The shard of the other.
        second: String,
        /// How many dimensions that has.
        found: usize,
    },
    /// The offsets or the shape of the whole are more than 64 bits can count.
    #[error(
        "tensor {}: with its piece in {} it would have more elements than 64 bits can count: the offsets are damaged",
        quote(tensor),
        quote(shard)
    )]
    Overflow {
        /// The tensor.
        tensor: String,
        /// The shard of the piece.
        shard: String,
    },
    /// Two pieces have elements in common.
    #[error(
        "tensor {}: its pieces {first_place} in {} and {second_place} in {} overlap, and nothing says which counts: are the files of one save?",
        quote(tensor),
        quote(first),
        quote(second)
    )]
    Overlap {
        /// The tensor.
        tensor: String,
        /// The shard of one piece.
        first: String,
        /// The indices that it has, as in `[0:4, 8:16]`.
        first_place: String,
        /// The shard of the other.
        second: String,
        /// The indices that it has.
        second_place: String,
    },
    /// No piece has some of the elements.
    #[error(
        "tensor {}: {} have {found} of the {expected} elements of its shape {shape:?}, the others are in none; are files missing?",
        quote(tensor),
        count(*pieces as u64, "piece")
    )]
    Hole {
        /// The tensor.
        tensor: String,
        /// The shape that its pieces reach.
        shape: Vec<u64>,
        /// How many pieces there are.
        pieces: usize,
        /// How many elements the shape has.
        expected: u64,
        /// How many of them a piece has.
        found: u64,
    },
}

fn all(faults: &[PieceFault], number: u64) -> String {
    match faults {
        [one] if number == 1 => one.to_string(),
        _ => format!("{}: {}", count(number, "fault"), clauses(faults, number)),
    }
}

impl PiecesError {
    /// The kind of its first fault.
    pub fn kind(&self) -> &'static str {
        self.faults.first().map_or("ShardingInfo", PieceFault::kind)
    }

    /// The tensor that it is about, if it is one fault and about one.
    pub fn tensor(&self) -> Option<&str> {
        match self.faults.as_slice() {
            [fault] => fault.tensor(),
            _ => None,
        }
    }

    pub(super) fn into_each(self) -> impl Iterator<Item = Self> {
        self.faults.into_iter().map(|fault| Self { faults: vec![fault], count: 1 })
    }
}

impl PieceFault {
    /// The kind of fault, a name listed in `docs/errors.md`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Info { .. } => "ShardingInfo",
            Self::NotInShard { .. } => "PieceNotInShard",
            Self::Offsets { .. } => "PieceOffsets",
            Self::WithoutOffsets { .. } => "PieceWithoutOffsets",
            Self::Dtypes { .. } => "PieceDtype",
            Self::Dims { .. } => "PieceDims",
            Self::Overflow { .. } => "PieceOverflow",
            Self::Overlap { .. } => "PieceOverlap",
            Self::Hole { .. } => "PieceHole",
        }
    }

    /// The tensor that the fault is about, where it is about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Info { .. } => None,
            Self::NotInShard { tensor, .. }
            | Self::Offsets { tensor, .. }
            | Self::WithoutOffsets { tensor, .. }
            | Self::Dtypes { tensor, .. }
            | Self::Dims { tensor, .. }
            | Self::Overflow { tensor, .. }
            | Self::Overlap { tensor, .. }
            | Self::Hole { tensor, .. } => Some(tensor),
        }
    }
}
