//! A slice of a tensor, taken element by element.

use std::iter;
use std::ops::Range;

use crate::OracleTensor;
use crate::dtype::bits;

impl OracleTensor {
    /// The elements whose index lies, in each dimension, in one of its ranges, in the order in which they lie in
    /// the tensor. Dimensions for which no ranges are given are whole.
    ///
    /// The bits of packed elements are counted from the lowest of a byte on, and closed up: the oracle does not
    /// care whether an element begins with a byte. The range is that from the first byte to the last.
    ///
    /// # Panics
    /// For a type whose width is not known, and for indices that the tensor does not have.
    pub fn slice(&self, dims: &[Vec<Range<u64>>]) -> Self {
        let wanted: Vec<Vec<Range<u64>>> = self
            .shape
            .iter()
            .enumerate()
            .map(|(dim, &len)| dims.get(dim).cloned().unwrap_or_else(|| iter::once(0..len).collect()))
            .collect();
        let len_of = |ranges: &Vec<Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum();
        let shape: Vec<u64> = wanted.iter().map(len_of).collect();
        let elements = if shape.contains(&0) { Vec::new() } else { elements(&wanted, &self.shape) };
        let width = bits(&self.dtype);
        let hull = match (elements.first(), elements.last()) {
            (Some(first), Some(last)) => first * width / 8..((last + 1) * width).div_ceil(8),
            _ => 0..0,
        };
        Self {
            dtype: self.dtype.clone(),
            shape,
            shard: self.shard.clone(),
            range: self.range.start + hull.start..self.range.start + hull.end,
            bytes: gather(&self.bytes, &elements, width),
        }
    }
}

/// The numbers of the wanted elements, counted through the whole tensor.
fn elements(wanted: &[Vec<Range<u64>>], shape: &[u64]) -> Vec<u64> {
    wanted.iter().zip(shape).fold(vec![0], |outer, (ranges, len)| {
        let within = |number: &u64| {
            let first = number * len;
            ranges.iter().cloned().flatten().map(move |index| first + index)
        };
        outer.iter().flat_map(within).collect()
    })
}

fn gather(bytes: &[u8], elements: &[u64], width: u64) -> Vec<u8> {
    let place = |number: u64| usize::try_from(number).expect("a tensor that fits in memory");
    if width.is_multiple_of(8) {
        let bytes_of = |&number: &u64| &bytes[place(number * width / 8)..place((number + 1) * width / 8)];
        return elements.iter().flat_map(bytes_of).copied().collect();
    }
    let mut packed = vec![0; place((elements.len() as u64 * width).div_ceil(8))];
    let wanted = elements.iter().flat_map(|&number| number * width..(number + 1) * width);
    for (to, from) in (0..).zip(wanted) {
        let bit = bytes[place(from / 8)] >> (from % 8) & 1;
        packed[place(to / 8)] |= bit << (to % 8);
    }
    packed
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a dimension has ranges, mostly one")]
mod tests {
    use crate::OracleTensor;

    fn tensor(dtype: &str, shape: &[u64], bytes: &[u8]) -> OracleTensor {
        OracleTensor {
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            shard: "x".to_owned(),
            range: 100..100 + bytes.len() as u64,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn elements_are_taken_in_the_order_of_the_tensor() {
        let cube = tensor("U8", &[2, 3, 4], &(0..24).collect::<Vec<u8>>());
        let slice = cube.slice(&[vec![1..2], vec![0..1, 2..3], vec![1..3]]);
        assert_eq!((slice.shape, slice.bytes), (vec![1, 2, 2], vec![13, 14, 21, 22]));
        assert_eq!(slice.range, 113..123);
        assert_eq!(cube.slice(&[]), cube);
    }

    #[test]
    fn wide_elements_are_taken_whole() {
        let words = tensor("U16", &[3], &[0, 1, 2, 3, 4, 5]);
        assert_eq!(words.slice(&[vec![0..1, 2..3]]).bytes, [0, 1, 4, 5]);
    }

    #[test]
    fn narrow_elements_are_closed_up() {
        let nibbles = tensor("F4", &[6], &[0x10, 0x32, 0x54]);
        assert_eq!(nibbles.slice(&[vec![1..3, 4..5]]).bytes, [0x21, 0x04]);
        // Elements 1, 2, 3, 4 of six bits each, and the same again.
        let four = [0b1000_0001, 0b0011_0000, 0b0001_0000];
        let sixes = tensor("F6_E2M3", &[8], &[four, four].concat());
        assert_eq!(sixes.slice(&[vec![4..8]]).bytes, four);
        assert_eq!(sixes.slice(&[vec![2..3]]).bytes, [3]);
    }

    #[test]
    fn nothing_wanted_is_nothing() {
        let matrix = tensor("U8", &[2, 2], &[0, 1, 2, 3]);
        let none = matrix.slice(&[vec![], vec![0..1]]);
        assert_eq!((none.shape, none.bytes, none.range), (vec![0, 1], vec![], 100..100));
    }
}
