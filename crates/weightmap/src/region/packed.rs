//! Elements narrower than a byte: where they can be cut.

use super::ranges::Ranges;
use crate::dtype::Dtype;
use crate::error::SliceError;

/// Where the contiguous parts of a region begin and end, by the bit of the byte.
#[derive(Clone, Copy)]
struct Ends {
    /// Bit `n` is set where one begins or ends `n` bits into a byte; not counted are the next two.
    bits: u8,
    /// Whether one begins where the region's dimension begins.
    first: bool,
    /// Whether one ends where it ends.
    last: bool,
}

/// Fails where a contiguous part of the wanted elements, each of `bits` bits, begins or ends within a byte.
pub(super) fn check(dtype: &Dtype, bits: u64, shape: &[u64], wanted: &[Ranges]) -> Result<(), SliceError> {
    let mut ends = Ends { bits: 0, first: true, last: true };
    let mut stride = bits;
    for (indices, &len) in wanted.iter().zip(shape).rev() {
        ends = ends.repeated(stride, indices, len);
        stride = stride.saturating_mul(len);
    }
    match ends.bits & !1 {
        0 => Ok(()),
        _ => blame(dtype, bits, shape, wanted).map_or(Ok(()), Err),
    }
}

impl Ends {
    /// Those of the whole when the region lies at each of these indices of a dimension.
    fn repeated(self, stride: u64, indices: &Ranges, len: u64) -> Self {
        let Self { bits, first, last } = self;
        let bit = |index: u64| u32::try_from(index.wrapping_mul(stride) % 8).unwrap_or(0);
        let mut all = 0;
        for range in indices.iter() {
            // The same bits come again after 8 strides at the latest.
            for index in range.clone().take(8) {
                all |= bits.rotate_left(bit(index));
                // Neighbours that touch are one.
                if first && index > 0 && (index == range.start || !last) {
                    all |= 1 << bit(index);
                }
                if last && !first && index + 1 < len {
                    all |= 1 << bit(index + 1);
                }
            }
            if last && range.end < len {
                all |= 1 << bit(range.end);
            }
        }
        let hull = indices.hull();
        Self { bits: all, first: first && hull.start == 0, last: last && hull.end == len }
    }
}

/// The innermost cut that is not on a byte in every row, and where it could be.
fn blame(dtype: &Dtype, bits: u64, shape: &[u64], wanted: &[Ranges]) -> Option<SliceError> {
    let mut stride = bits;
    for (dim, (indices, &len)) in wanted.iter().zip(shape).enumerate().rev() {
        let row = stride.saturating_mul(len);
        let repeats = shape.iter().take(dim).any(|&outer| outer > 1);
        // Where rows do not fill their bytes, no index begins a byte in each of them.
        let step = if repeats && row % 8 != 0 { len } else { 8 >> stride.trailing_zeros().min(3) };
        let cuts = indices.iter().flat_map(|range| [range.start, range.end]);
        if let Some(index) = cuts.filter(|&cut| cut < len).find(|cut| cut % step != 0) {
            let below = index - index % step;
            let above = below.saturating_add(step).min(len);
            return Some(SliceError::NotOnByte { dtype: dtype.clone(), dim, index, below, above });
        }
        stride = row;
    }
    None
}
