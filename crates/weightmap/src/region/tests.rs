use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// A slice of a small tensor, and which bits of the tensor it wants, found element by element.
#[derive(Debug, Clone)]
struct Case {
    dtype: Dtype,
    shape: Vec<u64>,
    dims: Vec<Intervals>,
    bits: Vec<bool>,
    local: Vec<u64>,
}

impl Case {
    fn new(dtype: Dtype, shape: Vec<u64>, wanted: &[Vec<Range<u64>>]) -> Self {
        let dims = wanted.iter().map(|ranges| Intervals::from(ranges.as_slice())).collect();
        let is_wanted = |dim: usize, index: u64| {
            wanted.get(dim).is_none_or(|ranges| ranges.iter().any(|range| range.contains(&index)))
        };
        let width = dtype.bits().unwrap() as usize;
        let elements: u64 = shape.iter().product();
        let mut bits = Vec::new();
        for element in 0..elements {
            let mut rest = element;
            let all = (0..shape.len()).rev().all(|dim| {
                let index = rest % shape[dim];
                rest /= shape[dim];
                is_wanted(dim, index)
            });
            bits.extend(std::iter::repeat_n(all, width));
        }
        let local =
            |(dim, &len): (usize, &u64)| (0..len).filter(|&index| is_wanted(dim, index)).count() as u64;
        let local = shape.iter().enumerate().map(local).collect();
        Self { dtype, shape, dims, bits, local }
    }

    fn len_bytes(&self) -> u64 {
        self.bits.len() as u64 / 8
    }

    fn slice(&self) -> Result<Region, SliceError> {
        Region::slice(&self.dims, &self.dtype, &self.shape, self.len_bytes())
    }

    /// Which bytes are wanted; `None` where a byte is wanted in part.
    fn bytes(&self) -> Option<Vec<bool>> {
        let byte = |bits: &[bool]| bits.iter().all(|&bit| bit == bits[0]).then_some(bits[0]);
        self.bits.chunks(8).map(byte).collect()
    }
}

fn ranges_of(bytes: &[bool], max_gap: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (at, _) in (0..).zip(bytes).filter(|(_, wanted)| **wanted) {
        match ranges.last_mut() {
            Some(last) if at - last.end <= max_gap => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

/// Intervals in rising order, some of which touch or are empty.
fn intervals(len: u64) -> impl Strategy<Value = Vec<Range<u64>>> {
    let some = prop_oneof![1 => Just(0usize), 30 => 1usize..4];
    let some = some.prop_flat_map(move |count| vec(0..=len, 2 * count)).prop_map(|mut ends| {
        ends.sort_unstable();
        ends.chunks(2).map(|pair| pair[0]..pair[1]).collect()
    });
    prop_oneof![3 => some, 2 => Just(vec![0..len; 1])]
}

fn cases() -> impl Strategy<Value = Case> {
    use Dtype::{Bf16, F4, F6E2M3, F32, I8, I64};
    let len = || prop_oneof![60 => 2u64..8, 6 => Just(1), 1 => Just(0)];
    let shape = prop_oneof![1 => vec(len(), 0..2), 9 => vec(len(), 2..5)];
    let wanted = shape.prop_flat_map(|shape| {
        let dims = shape.iter().map(|&len| intervals(len)).collect::<Vec<_>>();
        (Just(shape), dims)
    });
    (select(vec![F4, F6E2M3, I8, Bf16, F32, I64]), wanted, 0usize..20)
        .prop_map(|(dtype, (shape, wanted), given)| {
            Case::new(dtype, shape, &wanted[..wanted.len().min(given)])
        })
        .prop_filter("no such tensor: its last byte is not full", |case| case.bits.len() % 8 == 0)
}

/// A shape, without empty dimensions, of a tensor about as long as 64 bits can count: its bytes, or its bits where
/// elements are narrower than a byte; and of each dimension two intervals, of which the second is not empty.
fn hostile(dtype: Dtype) -> impl Strategy<Value = (Dtype, Vec<u64>, Vec<Vec<Range<u64>>>)> {
    let bits = u64::from(dtype.bits().unwrap());
    let most = u64::MAX / if bits % 8 == 0 { bits / 8 } else { bits };
    let seeds = vec((any::<u64>(), 0..64u32, [any::<u64>(), any::<u64>(), any::<u64>()]), 1..6);
    seeds.prop_map(move |seeds| {
        let mut rest = most;
        let last = seeds.len() - 1;
        let dims = seeds.into_iter().enumerate().map(|(dim, (seed, shift, cuts))| {
            // The last dimension takes what is left, so that the whole is about as long as can be.
            let len = if dim == last { rest } else { 1 + (seed >> shift) % rest };
            rest /= len;
            let mut cuts = cuts.map(|cut| cut % len);
            cuts.sort_unstable();
            let [low, mid, high] = cuts;
            (len, vec![low..mid, high..high + 1])
        });
        let (shape, wanted) = dims.unzip();
        (dtype.clone(), shape, wanted)
    })
}

/// A part of the bytes, which may be empty.
fn window(bytes: &[bool], ends: [Index; 2]) -> Range<usize> {
    let [one, other] = ends.map(|end| end.index(bytes.len() + 1));
    one.min(other)..one.max(other)
}

fn sliced(dims: &[&str], dtype: &Dtype, shape: &[u64]) -> Result<Region, SliceError> {
    let dims: Vec<Intervals> = dims.iter().map(|text| text.parse().unwrap()).collect();
    let bits = shape.iter().product::<u64>() * u64::from(dtype.bits().unwrap_or(8));
    Region::slice(&dims, dtype, shape, bits / 8)
}

fn runs(region: &Region) -> Vec<Range<u64>> {
    region.runs(region.hull()).collect()
}

#[test]
fn whole_rows_are_one_run_for_each_interval() {
    let region = sliced(&["0:2+4:6"], &Dtype::Bf16, &[8, 3, 5]).unwrap();
    assert_eq!(runs(&region), [0..60, 120..180]);
    assert_eq!((region.shape(), region.len_bytes(), region.hull()), (&[4, 3, 5][..], 120, 0..180));
    assert_eq!(runs(&sliced(&["2:4", ":", "0:5"], &Dtype::Bf16, &[8, 3, 5]).unwrap()), [60..120; 1]);
    assert!(sliced(&["3", "1", "2:4"], &Dtype::F32, &[8, 3, 5]).unwrap().is_contiguous());
}

#[test]
fn the_end_of_a_row_and_the_start_of_the_next_are_one_run() {
    assert_eq!(runs(&sliced(&[":", "0:1+3:4"], &Dtype::I8, &[3, 4]).unwrap()), [0..1, 3..5, 7..9, 11..12]);
}

#[test]
fn what_is_all_of_a_tensor_equals_it() {
    let whole = Region::whole(&[2, 4], 4);
    assert_eq!(sliced(&[], &Dtype::F4, &[2, 4]).unwrap(), whole);
    assert_eq!(sliced(&["0:2", "0:1+1:4"], &Dtype::F4, &[2, 4]).unwrap(), whole);
    let unknown = Dtype::from_name("Q4");
    assert_eq!(sliced(&[":"], &unknown, &[4]).unwrap(), Region::whole(&[4], 4));
    assert_eq!(sliced(&["0:1"], &unknown, &[4]), Err(SliceError::UnknownWidth { dtype: unknown }));
    assert_eq!(sliced(&[], &Dtype::F64, &[]).unwrap(), Region::whole(&[], 8));
}

#[test]
fn a_scalar_has_no_dimension_to_slice() {
    let error = sliced(&["0:1"], &Dtype::F64, &[]).unwrap_err();
    assert_eq!(error, SliceError::TooManyDims { given: 1, shape: vec![] });
}

#[test]
fn an_empty_slice_has_a_shape_and_no_bytes() {
    let region = sliced(&["2:2", "0:1"], &Dtype::F4, &[4, 3]).unwrap();
    assert_eq!((region.shape(), region.len_bytes(), region.hull()), (&[0, 1][..], 0, 0..0));
    assert!(region.is_contiguous() && runs(&region).is_empty() && region.spans(u64::MAX).next().is_none());
    assert_eq!(Region::whole(&[0, 3], 0).spans(9).next(), None);
}

#[test]
fn packed_elements_are_cut_on_bytes_only() {
    let cut = |dims: &[&str], dtype, shape: &[u64]| sliced(dims, &dtype, shape).map(|region| runs(&region));
    assert_eq!(cut(&["2:4"], Dtype::F4, &[6]).unwrap(), [1..2; 1]);
    assert_eq!(cut(&[":", "4:8"], Dtype::F6E2M3, &[2, 8]).unwrap(), [3..6, 9..12]);
    // Every second row of 12 bits begins on a byte.
    assert_eq!(cut(&["2:4"], Dtype::F4, &[4, 3]).unwrap(), [3..6; 1]);
    assert_eq!(cut(&["0+2", ":2"], Dtype::F4, &[4, 3]).unwrap(), [0..1, 3..4]);
    assert_eq!(cut(&["1", "1:"], Dtype::F4, &[4, 3]).unwrap(), [2..3; 1]);
    for (error, dim, index, below, above) in [
        (cut(&["1:3"], Dtype::F4, &[6]), 0, 1, 0, 2),
        (cut(&[":", "4:6"], Dtype::F6E3M2, &[2, 8]), 1, 6, 4, 8),
        (cut(&["1:3"], Dtype::F4, &[4, 3]), 0, 1, 0, 2),
        (cut(&[":", "0:2"], Dtype::F4, &[4, 3]), 1, 2, 0, 3),
    ] {
        let error = error.unwrap_err();
        assert!(
            matches!(&error, SliceError::NotOnByte { dim: d, index: i, below: b, above: a, .. }
                if (*d, *i, *b, *a) == (dim, index, below, above)),
            "{error:?}"
        );
    }
    assert_eq!(
        cut(&["1:3"], Dtype::F4, &[6]).unwrap_err().to_string(),
        "dimension 0 is cut at index 1, where no byte begins, since the elements are packed F4; \
         0 and 2 are the nearest indices at which it can be cut"
    );
}

#[test]
fn packed_elements_are_cut_as_long_as_their_bits_can_be_counted() {
    let longest = (1 << 61) - 1;
    let slice =
        |dims: &[Intervals], shape: &[u64], len_bytes| Region::slice(dims, &Dtype::F4, shape, len_bytes);
    let last_row = [Intervals::from(1..)];
    let region = slice(&last_row, &[2, longest], longest).unwrap_err();
    assert_eq!(region.kind(), "SliceNotOnByte", "rows of an odd number of half bytes");
    let region = slice(&last_row, &[2, longest - 1], longest - 1).unwrap();
    assert_eq!(runs(&region), [(longest - 1) / 2..longest - 1; 1]);
    let (shape, len_bytes) = ([2, 1 << 61], 1 << 61);
    let error = slice(&last_row, &shape, len_bytes).unwrap_err();
    assert_eq!(error, SliceError::TooLong { dtype: Dtype::F4, len_bytes });
    assert_eq!(
        error.to_string(),
        "the tensor has 2305843009213693952 bytes, and packed F4 elements can be cut only where there are fewer \
         than 2305843009213693952 of them; take the tensor whole"
    );
    assert_eq!(slice(&[], &shape, len_bytes).unwrap(), Region::whole(&shape, len_bytes));
    assert_eq!(slice(&[Intervals::from(1..1)], &shape, len_bytes).unwrap().shape(), [0, 1 << 61]);
}

#[test]
fn dimensions_of_an_empty_tensor_can_have_any_length() {
    for shape in [[0, u64::MAX, u64::MAX], [u64::MAX, 0, u64::MAX], [u64::MAX, u64::MAX, 0]] {
        for dtype in [Dtype::F4, Dtype::U8, Dtype::F64] {
            let dims: Vec<Intervals> =
                shape.iter().map(|&len| Intervals::from(len.saturating_sub(1)..)).collect();
            let region = Region::slice(&dims, &dtype, &shape, 0).unwrap();
            assert_eq!(region.shape(), shape.map(|len| len.min(1)));
            assert_eq!((region.len_bytes(), region.hull(), region.rank(u64::MAX)), (0, 0..0, 0));
        }
    }
}

#[test]
fn a_slice_costs_what_it_repeats_and_not_how_often() {
    let region = sliced(&["1:", "5:7", "0:2+6:8"], &Dtype::U8, &[1 << 30, 10, 1 << 20]).unwrap();
    assert_eq!(region.len_bytes(), ((1 << 30) - 1) * 8);
    assert_eq!(region.rank(u64::MAX), region.len_bytes());
    let row = 1 << 20;
    assert_eq!(region.runs(999_995 * row + 7..u64::MAX).next(), Some(999_995 * row + 7..999_995 * row + 8));
    assert_eq!(region.spans(1 << 20).next(), Some(15 * row..16 * row + 8));
    assert_eq!(region.spans(9 << 20).count(), 1);
}

#[test]
fn a_copy_stays_within_its_slices() {
    let region = sliced(&[":", "1:3"], &Dtype::U8, &[3, 4]).unwrap();
    let source: Vec<u8> = (0..12).collect();
    let mut target = [9; 7];
    assert_eq!((region.copy(&source, 0, &mut target), target), (6, [1, 2, 5, 6, 9, 10, 9]));
    assert_eq!((region.copy(&source, 0, &mut target[..3]), target), (2, [1, 2, 5, 6, 9, 10, 9]));
    assert_eq!((region.copy(&source[..2], 5, &mut target), target[..2].to_vec()), (2, vec![0, 1]));
    assert_eq!(region.copy(&source, u64::MAX, &mut target), 0);
    assert_eq!(region.copy(&[], 0, &mut target), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_slice_is_its_elements(case in cases()) {
        let Some(bytes) = case.bytes() else {
            let error = case.slice().unwrap_err();
            let SliceError::NotOnByte { dim, index, below, above, .. } = error else {
                return Err(TestCaseError::fail(error.to_string()));
            };
            prop_assert!(below < index && index < above);
            for cut in [below, above] {
                let mut dims = vec![Intervals::from(..); dim];
                dims.push(Intervals::from(..cut));
                prop_assert!(Region::slice(&dims, &case.dtype, &case.shape, case.len_bytes()).is_ok());
            }
            return Ok(());
        };
        let region = case.slice().unwrap();
        let wanted = bytes.iter().filter(|byte| **byte).count() as u64;
        prop_assert_eq!(region.shape(), &case.local);
        prop_assert_eq!(region.len_bytes(), wanted);
        let runs = ranges_of(&bytes, 0);
        let hull = runs.first().map_or(0, |run| run.start)..runs.last().map_or(0, |run| run.end);
        prop_assert_eq!(region.is_contiguous(), runs.len() < 2);
        prop_assert_eq!(region.hull(), hull);
        prop_assert_eq!(region.runs(0..u64::MAX).collect::<Vec<_>>(), runs);
        if bytes.iter().all(|byte| *byte) && case.local == case.shape {
            prop_assert_eq!(region, Region::whole(&case.shape, case.len_bytes()));
        }
    }

    #[test]
    fn nothing_overflows_however_long_the_tensor(
        (dtype, shape, wanted) in select(vec![Dtype::F4, Dtype::F6E2M3, Dtype::U8, Dtype::Bf16, Dtype::F64])
            .prop_flat_map(hostile),
        at in any::<u64>(),
    ) {
        let wide = |lens: &mut dyn Iterator<Item = u64>| {
            lens.map(u128::from).product::<u128>() * u128::from(dtype.bits().unwrap())
        };
        let bits = wide(&mut shape.iter().copied());
        prop_assume!(bits % 8 == 0);
        let len_bytes = u64::try_from(bits / 8).unwrap();
        let dims: Vec<_> = wanted.iter().map(|ranges| Intervals::from(ranges.as_slice())).collect();
        let region = match Region::slice(&dims, &dtype, &shape, len_bytes) {
            Err(SliceError::NotOnByte { index, below, above, .. }) => {
                prop_assert!(below < index && index < above);
                return Ok(());
            }
            other => other.unwrap(),
        };
        let local = wanted.iter().map(|ranges| ranges.iter().map(|range| range.end - range.start).sum());
        prop_assert_eq!(u128::from(region.len_bytes()), wide(&mut { local }) / 8);
        let Range { start, end } = region.hull();
        prop_assert!(start < end && end <= len_bytes);
        prop_assert_eq!((region.rank(start), region.rank(end)), (0, region.len_bytes()));
        prop_assert_eq!(region.rank(end - 1), region.len_bytes() - 1);
        prop_assert_eq!(region.spans(u64::MAX).collect::<Vec<_>>(), [start..end; 1]);
        prop_assert_eq!(region.runs(end - 1..u64::MAX).collect::<Vec<_>>(), [end - 1..end; 1]);
        if let Some(run) = region.runs(at..u64::MAX).next() {
            prop_assert!(run.start >= at && run.end <= end);
            prop_assert_eq!(region.rank(run.end) - region.rank(at), run.end - run.start);
        } else {
            prop_assert!(at >= end);
        }
    }

    #[test]
    fn runs_are_clipped_to_the_window(case in cases(), ends in any::<[Index; 2]>()) {
        let (Ok(region), Some(mut bytes)) = (case.slice(), case.bytes()) else { return Ok(()) };
        let Range { start, end } = window(&bytes, ends);
        bytes[..start].fill(false);
        bytes[end..].fill(false);
        prop_assert_eq!(region.runs(start as u64..end as u64).collect::<Vec<_>>(), ranges_of(&bytes, 0));
    }

    #[test]
    fn a_rank_counts_the_wanted_bytes_before(case in cases()) {
        let (Ok(region), Some(bytes)) = (case.slice(), case.bytes()) else { return Ok(()) };
        let mut rank = 0;
        for (at, &wanted) in (0..).zip(&bytes) {
            prop_assert_eq!(region.rank(at), rank, "at {}", at);
            rank += u64::from(wanted);
        }
        for beyond in [0, 1, 7, 1000] {
            prop_assert_eq!(region.rank(case.len_bytes() + beyond), rank);
        }
    }

    #[test]
    fn spans_fill_the_gaps_that_are_small_enough(case in cases(), max_gap in prop_oneof![0u64..64, any::<u64>()]) {
        let (Ok(region), Some(bytes)) = (case.slice(), case.bytes()) else { return Ok(()) };
        prop_assert_eq!(region.spans(max_gap).collect::<Vec<_>>(), ranges_of(&bytes, max_gap));
    }

    #[test]
    fn a_copy_gathers_the_wanted_bytes(case in cases(), ends in any::<[Index; 2]>()) {
        let (Ok(region), Some(bytes)) = (case.slice(), case.bytes()) else { return Ok(()) };
        let Range { start, end } = window(&bytes, ends);
        let tensor: Vec<u8> = (0..bytes.len()).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        let wanted: Vec<_> = (start..end).filter(|&at| bytes[at]).map(|at| tensor[at]).collect();
        let mut target = vec![0; wanted.len()];
        let copied = region.copy(&tensor[start..end], start as u64, &mut target);
        prop_assert_eq!(copied, target.len());
        prop_assert_eq!(target, wanted);
    }
}
