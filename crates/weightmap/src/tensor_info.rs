//! What is known of a tensor before its bytes are had.

use std::ops::Range;

use crate::dtype::Dtype;
use crate::shard_name::ShardName;

/// What a shard's header tells of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, as in the index and the header.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The length of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
    /// The shard that holds it.
    pub shard: ShardName,
    /// Where its bytes lie in the shard's file, counted from the file's start.
    pub range: Range<u64>,
}

impl TensorInfo {
    /// The length of the tensor's data in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// The number of elements: the product of the shape, 0 if one of its dimensions is 0, and 1 for a scalar.
    pub fn elements(&self) -> u64 {
        if self.shape.contains(&0) {
            return 0;
        }
        // The header was accepted, so the product fits; for a type that is not known nothing bounds it.
        self.shape.iter().fold(1, |product, &length| u64::saturating_mul(product, length))
    }
}
