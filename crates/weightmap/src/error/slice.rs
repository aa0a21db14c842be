//! Slices that cannot be taken.

use super::quote::{dtype_name, quote};
use crate::dtype::Dtype;

/// Why a slice of a tensor cannot be taken, or a text is none. Dimensions and indices count from 0, the
/// outermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// There are intervals for more dimensions than the tensor has.
    #[error(
        "intervals for {given} dimensions, and the shape is {shape:?}; give one for each dimension, or fewer"
    )]
    TooManyDims {
        /// For how many dimensions there are intervals.
        given: usize,
        /// The shape of the tensor.
        shape: Vec<u64>,
    },
    /// An interval ends, or begins, beyond the dimension.
    #[error("dimension {dim} has length {len}, and {interval} is beyond it; end it at {len} or before")]
    OutOfRange {
        /// The dimension.
        dim: usize,
        /// The interval, as `4:8`, or `4:` where it has no end of its own.
        interval: String,
        /// The length of the dimension.
        len: u64,
    },
    /// An interval ends before it begins.
    #[error("dimension {dim}: {interval} ends before it begins; write the smaller index first")]
    Reversed {
        /// The dimension.
        dim: usize,
        /// The interval, as `8:4`.
        interval: String,
    },
    /// An interval begins before the end of the one that is before it.
    #[error(
        "dimension {dim}: {second} begins before {first} ends; give intervals in rising order that do not overlap"
    )]
    NotRising {
        /// The dimension.
        dim: usize,
        /// An interval, as `4:8`.
        first: String,
        /// The interval that follows it.
        second: String,
    },
    /// Elements that are narrower than a byte would be cut within one.
    #[error(
        "dimension {dim} is cut at index {index}, where no byte begins, since the elements are packed {dtype}; \
         {below} and {above} are the nearest indices at which it can be cut"
    )]
    NotOnByte {
        /// The type of the elements.
        dtype: Dtype,
        /// The dimension.
        dim: usize,
        /// Where it is cut.
        index: u64,
        /// The last index before it at which it can be cut; 0 is the start of the dimension.
        below: u64,
        /// The first index after it at which it can be cut; it may be the length of the dimension.
        above: u64,
    },
    /// Elements that are narrower than a byte would be put where no byte begins.
    #[error(
        "its packed {dtype} elements would be put together within a byte; cut them where bytes begin, at even indices of 4-bit elements"
    )]
    NotWholeBytes {
        /// The type of the elements.
        dtype: Dtype,
    },
    /// A range of the flattened tensor is wanted, and the tensor lies in pieces that cut its rows.
    #[error(
        "it lies in pieces of parts of rows, of which no range of the flattened tensor can be made; cut it by a dimension, not flat"
    )]
    FlatInPieces,
    /// The width of the elements is not known.
    #[error("the width of {} elements is not known; take the tensor whole", dtype_name(dtype))]
    UnknownWidth {
        /// The type of the elements.
        dtype: Dtype,
    },
    /// Elements that are narrower than a byte are cut by the bit, and no tensor of so many bits is.
    #[error(
        "the tensor has {len_bytes} bytes, and packed {dtype} elements can be cut only where there are fewer than \
         {} of them; take the tensor whole",
        1_u64 << 61
    )]
    TooLong {
        /// The type of the elements.
        dtype: Dtype,
        /// How long the tensor is.
        len_bytes: u64,
    },
    /// A text is no list of intervals.
    #[error(
        "{} is no interval: write `4:8`, `4:`, `:8`, `:` or one index, and join several with `+`; \
         negative indices and steps are not known",
        quote(text)
    )]
    Syntax {
        /// The part of the text that is none.
        text: String,
    },
}

impl SliceError {
    /// The kind of fault, a name listed in `docs/errors.md`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooManyDims { .. } => "SliceTooManyDims",
            Self::OutOfRange { .. } => "SliceOutOfRange",
            Self::Reversed { .. } => "SliceReversed",
            Self::NotRising { .. } => "SliceNotRising",
            Self::NotOnByte { .. } => "SliceNotOnByte",
            Self::NotWholeBytes { .. } => "SliceNotWholeBytes",
            Self::FlatInPieces => "SliceFlatInPieces",
            Self::UnknownWidth { .. } => "SliceUnknownWidth",
            Self::TooLong { .. } => "SliceTooLong",
            Self::Syntax { .. } => "SliceSyntax",
        }
    }
}
