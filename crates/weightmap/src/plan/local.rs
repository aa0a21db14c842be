//! The part of one tensor that a rank has.

use std::ops::Range;

use super::dim_cut::LocalDim;
use super::partition::{Class, Cut, Tables};
use crate::dtype::Dtype;

/// The part of one tensor that a rank has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local<'a> {
    tables: &'a Tables,
    class: u32,
    of: &'a Class,
    cut: &'a Cut,
    rank: u32,
}

impl Tables {
    /// The part of a tensor of this class; the rank is one that has it.
    pub(super) fn local(&self, class: u32, rank: u32) -> Option<Local<'_>> {
        let of = self.classes.get(class as usize)?;
        Some(Local { tables: self, class, of, cut: self.cuts.get(of.cut as usize)?, rank })
    }
}

impl<'a> Local<'a> {
    /// Tensors of one class have the same shape and type, and a rank has the same part of each.
    pub(crate) fn class(&self) -> u32 {
        self.class
    }

    pub(super) fn dtype_number(&self) -> u32 {
        self.of.dtype
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> &'a Dtype {
        const NONE: &Dtype = &Dtype::U8;
        self.tables.dtypes.get(self.of.dtype as usize).unwrap_or(NONE)
    }

    pub(crate) fn is_flat(&self) -> bool {
        matches!(self.cut, Cut::Flat { .. })
    }

    /// The shape in which the tensor is cut: its own, or its number of elements.
    pub(crate) fn global_shape(&self) -> Vec<u64> {
        match self.cut {
            Cut::Flat { elements, .. } => vec![*elements],
            Cut::Dims(_) => self.tables.shapes.get(self.of.shape as usize).cloned().unwrap_or_default(),
        }
    }

    /// How many dimensions that shape has.
    pub(super) fn dims(&self) -> usize {
        match self.cut {
            Cut::Flat { .. } => 1,
            Cut::Dims(dims) => dims.len(),
        }
    }

    /// One of its dimensions, of a tensor that is not cut flat.
    pub(super) fn dim(&self, dim: usize) -> Option<LocalDim<'a>> {
        let Cut::Dims(dims) = self.cut else { return None };
        self.tables.dims.get(*dims.get(dim)? as usize).map(|cut| cut.of(self.rank))
    }

    /// The length of each dimension, with padding.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match self.cut {
            Cut::Flat { chunk, pad: true, .. } => vec![*chunk],
            Cut::Flat { .. } => vec![self.flat().map_or(0, |range| range.end - range.start)],
            Cut::Dims(dims) => (0..dims.len()).filter_map(|dim| self.dim(dim)).map(|dim| dim.len).collect(),
        }
    }

    /// By dimension, the indices in the order in which they lie in the part, none of padding.
    pub(crate) fn intervals(&self) -> Vec<Vec<Range<u64>>> {
        self.ranges(false)
    }

    /// The same to be loaded. In a part without elements the indices mean nothing but their number: they are one range,
    /// since they can be millions in a small file.
    pub(crate) fn loaded(&self) -> Vec<Vec<Range<u64>>> {
        self.ranges(true)
    }

    fn ranges(&self, joins_empty: bool) -> Vec<Vec<Range<u64>>> {
        if let Some(range) = self.flat() {
            return vec![if range.is_empty() { Vec::new() } else { Vec::from([range]) }];
        }
        let dims = || (0..self.dims()).filter_map(|dim| self.dim(dim));
        let is_empty = joins_empty && dims().any(|dim| dim.runs.is_empty());
        let of_dim = |dim: LocalDim<'_>| {
            if is_empty && dim.runs.len() > 1 {
                return std::iter::once(0..dim.len.saturating_sub(dim.pad)).collect();
            }
            dim.runs.iter().map(|run| run.from..run.from.saturating_add(run.len)).collect()
        };
        dims().map(of_dim).collect()
    }

    /// The elements of a flat part.
    fn flat(&self) -> Option<Range<u64>> {
        let Cut::Flat { axis, elements, chunk, .. } = *self.cut else { return None };
        let at = u64::from(axis.coordinate(self.rank));
        let start = at.saturating_mul(chunk).min(elements);
        Some(start..start.saturating_add(chunk).min(elements))
    }

    /// The bytes of the whole tensor.
    pub(crate) fn tensor_bytes(&self) -> u64 {
        self.of.bytes
    }

    /// The bytes of it that are in the checkpoint.
    pub(crate) fn bytes(&self) -> u64 {
        let (mut own, mut all) = (1_u128, 1_u128);
        match self.cut {
            Cut::Flat { elements, .. } => {
                own = self.flat().map_or(0, |range| u128::from(range.end - range.start));
                all = u128::from(*elements);
            }
            Cut::Dims(dims) => {
                let shape = self.tables.shapes.get(self.of.shape as usize).map_or(&[][..], Vec::as_slice);
                for (dim, len) in (0..dims.len()).filter_map(|dim| self.dim(dim)).zip(shape) {
                    let real = dim.len.saturating_sub(dim.pad);
                    if real != *len {
                        own = own.saturating_mul(u128::from(real));
                        all = all.saturating_mul(u128::from(*len));
                    }
                }
            }
        }
        // A share of the bytes, so that a type whose width is not known has its share too.
        let share = u128::from(self.of.bytes).checked_mul(own).and_then(|bytes| bytes.checked_div(all));
        u64::try_from(share.unwrap_or(0)).unwrap_or(0)
    }
}
