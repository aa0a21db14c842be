//! What is known of a tensor before its bytes are had.

use std::fmt;
use std::ops::Range;

use crate::assembly::Assembly;
use crate::dtype::Dtype;
use crate::error::SliceError;
use crate::intervals::Intervals;
use crate::region::Region;
use crate::shard_name::ShardName;

/// What shards' headers tell of a tensor, or of the part of it that is asked for, or of what is put together of several.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, as in the index and the header; or as a plan gives it.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The length of each dimension, outermost first; empty for a scalar. Of a slice, the slice's own.
    pub shape: Vec<u64>,
    /// The shard that holds it, or the first of its parts.
    pub shard: ShardName,
    /// Where its bytes lie in the shard's file, counted from the file's start. Of a slice, from its first
    /// byte to its last, with what lies between its rows; of several parts, that of the first.
    pub range: Range<u64>,
    /// Which part of the tensor it is; `None` for all of it, and for what is put together.
    pub slice: Option<TensorSlice>,
    /// What it is put together of, in the order in which that lies in it; empty for what lies in its file as it is.
    pub parts: Vec<TensorPart>,
    /// By dimension, how many elements at its end are in no file, and zero; empty for none.
    pub pad: Vec<u64>,
    /// Where the tensor itself begins in the file.
    pub(crate) start: u64,
    /// The bytes that are wanted, counted from `start`.
    pub(crate) region: Region,
}

/// A part of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorSlice {
    /// The indices of each dimension, outermost first; dimensions that are not told are whole.
    pub intervals: Vec<Intervals>,
    /// The shape of the whole tensor.
    pub tensor_shape: Vec<u64>,
}

/// What a tensor that is put together has of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorPart {
    /// The name of the other one.
    pub tensor: String,
    /// The shard that holds it.
    pub shard: ShardName,
    /// Where the bytes lie in the shard's file, from the first to the last.
    pub range: Range<u64>,
    /// How many bytes of that range are part of it.
    pub bytes: u64,
}

impl fmt::Debug for TensorInfo {
    /// What it is and where; which bytes of a slice are wanted follows from that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape, shard, range, slice, parts, pad, .. } = self;
        let mut text = f.debug_struct("TensorInfo");
        text.field("name", name).field("dtype", dtype).field("shape", shape);
        text.field("shard", &shard.as_str()).field("range", range);
        if let Some(TensorSlice { intervals, tensor_shape }) = slice {
            let intervals: Vec<_> = intervals.iter().map(Intervals::to_string).collect();
            text.field("slice", &intervals).field("tensor_shape", tensor_shape);
        }
        if !parts.is_empty() {
            text.field("parts", parts);
        }
        if !pad.is_empty() {
            text.field("pad", pad);
        }
        text.finish()
    }
}

impl TensorInfo {
    /// A whole tensor, as a header lists it.
    pub(crate) fn new(
        name: String,
        dtype: Dtype,
        shape: Vec<u64>,
        shard: ShardName,
        range: Range<u64>,
    ) -> Self {
        let region = Region::whole(&shape, range.end.saturating_sub(range.start));
        let (parts, pad) = (Vec::new(), Vec::new());
        Self { name, dtype, shape, shard, start: range.start, range, slice: None, parts, pad, region }
    }

    /// Something that is put together of these.
    pub(crate) fn assembled<'a>(
        assembly: &Assembly,
        parts: impl IntoIterator<Item = &'a Self>,
        shard: &ShardName,
    ) -> Self {
        let parts: Vec<_> = parts.into_iter().map(Self::as_part).collect();
        let (name, dtype, shape) = (assembly.name.clone(), assembly.dtype.clone(), assembly.shape.clone());
        let (shard, range) =
            parts.first().map_or((shard.clone(), 0..0), |part| (part.shard.clone(), part.range.clone()));
        // That the length can be had is seen when it is put together.
        let region = Region::whole(&shape, assembly.len_bytes().unwrap_or(u64::MAX));
        let pad = if assembly.pad.iter().all(|&pad| pad == 0) { Vec::new() } else { assembly.pad.clone() };
        Self { name, dtype, shape, shard, start: range.start, range, slice: None, parts, pad, region }
    }

    /// The same, told to be a part that it consists of, and not a slice of it.
    pub(crate) fn made_of(self, part: &Self) -> Self {
        Self { slice: None, parts: vec![part.as_part()], ..self }
    }

    fn as_part(&self) -> TensorPart {
        TensorPart {
            tensor: self.name.clone(),
            shard: self.shard.clone(),
            range: self.range.clone(),
            bytes: self.len_bytes(),
        }
    }

    /// The same bytes as a tensor of another shape; `None` if it has not as many elements.
    pub(crate) fn reshaped(self, shape: &[u64]) -> Option<Self> {
        if self.shape == shape {
            return Some(self);
        }
        let shaped =
            Self { region: Region::whole(shape, self.len_bytes()), shape: shape.to_vec(), ..self.clone() };
        (shaped.elements() == self.elements()).then_some(shaped)
    }

    /// The same under another name.
    pub(crate) fn named(self, name: &str) -> Self {
        if self.name == name { self } else { Self { name: name.to_owned(), ..self } }
    }

    /// The part of a whole tensor that these intervals mean.
    pub(crate) fn sliced(self, intervals: &[Intervals]) -> Result<Self, SliceError> {
        let region = Region::slice(intervals, &self.dtype, &self.shape, self.len_bytes())?;
        let hull = region.hull();
        Ok(Self {
            shape: region.shape().to_vec(),
            range: self.start.saturating_add(hull.start)..self.start.saturating_add(hull.end),
            slice: Some(TensorSlice { intervals: intervals.to_vec(), tensor_shape: self.shape }),
            region,
            ..self
        })
    }

    /// The length of the data in bytes; of a slice, without what lies between its rows.
    pub fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_debugging_it_says_what_it_is_and_where() {
        let shard = ShardName::parse("x.safetensors").unwrap();
        let info = TensorInfo::new("a".into(), Dtype::U8, vec![4, 2], shard, 96..104);
        let start = r#"TensorInfo { name: "a", dtype: U8, shape: "#;
        assert_eq!(
            format!("{info:?}"),
            format!(r#"{start}[4, 2], shard: "x.safetensors", range: 96..104 }}"#)
        );
        let slice = info.sliced(&[Intervals::from(1..2)]).unwrap();
        let end = r#"range: 98..100, slice: ["1:2"], tensor_shape: [4, 2] }"#;
        assert!(format!("{slice:?}").ends_with(end), "{slice:?}");
    }
}
