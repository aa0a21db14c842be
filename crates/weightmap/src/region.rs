//! The bytes of a tensor that are wanted.

mod packed;
mod pattern;
mod ranges;
mod runs;

use std::ops::Range;

use crate::dtype::Dtype;
use crate::error::SliceError;
use crate::intervals::Intervals;
use pattern::Pattern;
use ranges::Ranges;
use runs::Runs;

/// The bytes of a tensor that are wanted: all, or those of a slice.
///
/// Offsets count from the first byte of the tensor. The wanted bytes, in their order, are the *local* bytes.
/// A slice can consist of millions of rows, so it is kept as what repeats, and nothing here takes longer for
/// having more of them, save that an iterator gives them one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    shape: Vec<u64>,
    pattern: Pattern,
    /// What the pattern counts: bytes, or bits where elements are narrower than a byte.
    unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

impl Region {
    /// All bytes of a tensor.
    pub(crate) fn whole(shape: &[u64], len_bytes: u64) -> Self {
        Self { shape: shape.to_vec(), pattern: Pattern::run(0..len_bytes), unit: Unit::Byte }
    }

    /// The bytes of the elements whose index lies, in each dimension, in its intervals. Dimensions for which
    /// none are given are whole.
    ///
    /// Shape and length must be those of an accepted header: where no dimension is empty, `u64` holds their product in
    /// bytes, and is checked to hold it in bits where these are counted. Every offset, stride and count is of a
    /// part of that. What is empty is told before anything is multiplied, since then the other dimensions can be of
    /// any length.
    pub(crate) fn slice(
        dims: &[Intervals],
        dtype: &Dtype,
        shape: &[u64],
        len_bytes: u64,
    ) -> Result<Self, SliceError> {
        if dims.len() > shape.len() {
            return Err(SliceError::TooManyDims { given: dims.len(), shape: shape.to_vec() });
        }
        let all = Intervals::from(..);
        let dims = dims.iter().chain(std::iter::repeat(&all));
        let resolve = |((dim, &len), wanted): ((usize, &u64), &Intervals)| {
            Ok(Ranges::new(wanted.resolve(dim, len)?, 0))
        };
        let wanted = shape.iter().enumerate().zip(dims).map(resolve).collect::<Result<Vec<_>, _>>()?;
        if wanted.iter().zip(shape).all(|(indices, &len)| indices.len() == len) {
            return Ok(Self::whole(shape, len_bytes));
        }
        let bits = dtype.bits().ok_or_else(|| SliceError::UnknownWidth { dtype: dtype.clone() })?.into();
        let (unit, element) = if bits % 8 == 0 { (Unit::Byte, bits / 8) } else { (Unit::Bit, bits) };
        let local = wanted.iter().map(Ranges::len).collect();
        if wanted.iter().any(Ranges::is_empty) {
            return Ok(Self { shape: local, pattern: Pattern::run(0..0), unit: Unit::Byte });
        }
        if unit == Unit::Bit {
            if len_bytes.checked_mul(8).is_none() {
                return Err(SliceError::TooLong { dtype: dtype.clone(), len_bytes });
            }
            packed::check(dtype, bits, shape, &wanted)?;
        }
        let mut pattern = Pattern::run(0..element);
        let mut stride = element;
        for (indices, len) in wanted.into_iter().zip(shape).rev() {
            pattern = pattern.repeat(stride, indices, 0);
            stride = stride.saturating_mul(*len);
        }
        Ok(Self { shape: local, pattern, unit })
    }

    /// The length of each dimension of what is wanted.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many bytes are wanted.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.unit.bytes(self.pattern.len())
    }

    /// From the first wanted byte to the last.
    pub(crate) fn hull(&self) -> Range<u64> {
        let hull = self.pattern.hull();
        self.unit.bytes(hull.start)..self.unit.bytes(hull.end)
    }

    /// Whether all bytes of the hull are wanted.
    pub(crate) fn is_contiguous(&self) -> bool {
        let hull = self.hull();
        hull.end - hull.start == self.len_bytes()
    }

    /// How many wanted bytes there are before `offset`: where in the local bytes it is, or would be.
    pub(crate) fn rank(&self, offset: u64) -> u64 {
        self.unit.bytes(self.pattern.rank(self.unit.units(offset)))
    }

    /// The wanted bytes within a window, as the fewest ranges, in rising order.
    pub(crate) fn runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let unit = self.unit;
        let window = unit.units(within.start)..unit.units(within.end);
        Runs::new(&self.pattern, window, 0).map(move |run| unit.bytes(run.start)..unit.bytes(run.end))
    }

    /// The wanted bytes as ranges in rising order, with gaps of at most `max_gap` between them filled.
    ///
    /// Takes as long as there are such ranges, however many runs there are in them.
    pub(crate) fn spans(&self, max_gap: u64) -> impl Iterator<Item = Range<u64>> {
        let unit = self.unit;
        let max_gap = unit.units(max_gap);
        let filled = self.pattern.filled(max_gap);
        Runs::new(filled, 0..u64::MAX, max_gap).map(move |run| unit.bytes(run.start)..unit.bytes(run.end))
    }

    /// Copies the wanted ones of the bytes that begin at offset `at`, in order, to the start of `target`.
    ///
    /// Gives how many it copied. They fill a target that is as long as the ranks of both ends are apart; runs
    /// for which a shorter one has no place are left out.
    pub(crate) fn copy(&self, source: &[u8], at: u64, target: &mut [u8]) -> usize {
        let mut copied = 0;
        for run in self.runs(at..at.saturating_add(source.len() as u64)) {
            let (start, end) = (usize::try_from(run.start - at), usize::try_from(run.end - at));
            let (Ok(start), Ok(end)) = (start, end) else { break };
            let Some(bytes) = source.get(start..end) else { break };
            let Some(place) = target.get_mut(copied..copied + bytes.len()) else { break };
            place.copy_from_slice(bytes);
            copied += bytes.len();
        }
        copied
    }
}

impl Unit {
    fn units(self, bytes: u64) -> u64 {
        match self {
            Self::Byte => bytes,
            Self::Bit => bytes.saturating_mul(8),
        }
    }

    fn bytes(self, units: u64) -> u64 {
        match self {
            Self::Byte => units,
            Self::Bit => units / 8,
        }
    }
}

#[cfg(test)]
mod tests;
