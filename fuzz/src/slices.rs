//! Slices of tensors, compared with all of their elements one by one.

use arbitrary::Arbitrary;
use weightmap::fuzzing::Region;
use weightmap::{Dtype, Intervals};

/// Tensors of more elements are not looked at one by one.
const MOST_ELEMENTS: u64 = 2000;

/// A tensor, what of it is wanted, and what of that is looked at.
#[derive(Debug, Arbitrary)]
pub struct Case {
    dtype: u8,
    shape: Vec<u8>,
    /// Multiplies a dimension.
    long: Option<(u8, u64)>,
    wanted: Vec<Wanted>,
    window: (u16, u16),
    max_gap: u16,
}

#[derive(Debug, Arbitrary)]
enum Wanted {
    /// As many as there are pairs: how far behind the last one each begins, and how long it is.
    Steps(Vec<(u8, u8)>),
    Ranges(Vec<(u64, u64)>),
    Text(String),
}

impl Wanted {
    fn intervals(&self) -> Option<Intervals> {
        match self {
            Self::Steps(steps) => {
                let mut end = 0;
                let range = |&(gap, len): &(u8, u8)| {
                    let start = end + u64::from(gap % 8);
                    end = start + u64::from(len % 8);
                    start..end
                };
                Some(steps.iter().take(5).map(range).collect::<Vec<_>>().into())
            }
            Self::Ranges(ranges) => {
                Some(ranges.iter().map(|&(start, end)| start..end).collect::<Vec<_>>().into())
            }
            Self::Text(text) => {
                let intervals: Intervals = text.parse().ok()?;
                assert_eq!(intervals.to_string().parse(), Ok(intervals.clone()));
                Some(intervals)
            }
        }
    }
}

/// Makes a slice, and looks at it in every way.
pub fn run(case: &Case) {
    let known: Vec<Dtype> = Dtype::known().chain([Dtype::from_name("Q8")]).collect();
    let dtype = &known[usize::from(case.dtype) % known.len()];
    let mut shape: Vec<u64> = case.shape.iter().take(4).map(|len| u64::from(len % 16)).collect();
    if let Some((dim, factor)) = case.long
        && let Some(len) = shape.get_mut(usize::from(dim % 4))
    {
        *len = len.saturating_mul(factor);
    }
    let Some(dims) = case.wanted.iter().take(5).map(Wanted::intervals).collect::<Option<Vec<_>>>() else {
        return;
    };
    let Some(len_bytes) = len_bytes(dtype, &shape) else { return };
    let slice = Region::slice(&dims, dtype, &shape, len_bytes);
    if let Err(error) = &slice {
        assert!(!error.to_string().is_empty());
    }
    let Ok(region) = slice else { return };
    check_ends(&region, len_bytes);
    let elements: u64 = shape.iter().fold(1, |elements: u64, len| elements.saturating_mul((*len).max(1)));
    if elements <= MOST_ELEMENTS {
        check_bytes(case, &region, dtype, &shape, &dims, len_bytes);
    }
}

/// The bytes of a tensor; `None` where there cannot be such a one.
fn len_bytes(dtype: &Dtype, shape: &[u64]) -> Option<u64> {
    let elements = shape.iter().try_fold(1_u128, |product, len| product.checked_mul(u128::from(*len)));
    let elements = if shape.contains(&0) { 0 } else { elements? };
    let bits = elements.checked_mul(dtype.bits().unwrap_or(8).into())?;
    bits.is_multiple_of(8).then(|| u64::try_from(bits / 8).ok())?
}

/// What holds of the ends of any slice, however long it is.
fn check_ends(region: &Region, len_bytes: u64) {
    let (hull, len) = (region.hull(), region.len_bytes());
    assert!(hull.start <= hull.end && hull.end <= len_bytes && len <= hull.end - hull.start);
    assert_eq!(region.is_contiguous(), len == hull.end - hull.start);
    assert_eq!((region.rank(hull.start), region.rank(hull.end), region.rank(u64::MAX)), (0, len, len));
    assert_eq!(region.spans(u64::MAX).eq([hull.clone()]), len > 0);
    if len == 0 {
        return assert_eq!(region.runs(0..u64::MAX).next(), None);
    }
    assert_eq!(region.rank(hull.end - 1), len - 1);
    let middle = hull.start + (hull.end - hull.start) / 2;
    let run = region.runs(middle..u64::MAX).next().unwrap_or(hull.end - 1..hull.end);
    assert!(run.start >= middle.min(hull.end - 1) && run.start < run.end && run.end <= hull.end);
    assert_eq!(region.rank(run.end) - region.rank(run.start), run.end - run.start);
}

/// What is wanted, byte by byte.
fn check_bytes(
    case: &Case,
    region: &Region,
    dtype: &Dtype,
    shape: &[u64],
    dims: &[Intervals],
    len_bytes: u64,
) {
    let indices: Vec<Vec<u64>> = shape
        .iter()
        .enumerate()
        .map(|(dim, &len)| dims.get(dim).map_or((0..len).collect(), |dim| indices(dim, len)))
        .collect();
    let local: Vec<u64> = indices.iter().map(|indices| indices.len() as u64).collect();
    assert_eq!(region.shape(), local);
    let mut elements = vec![0_u64];
    for (indices, len) in indices.iter().zip(shape) {
        elements =
            elements.iter().flat_map(|row| indices.iter().map(move |index| row * len + index)).collect();
    }
    let bits = u64::from(dtype.bits().unwrap_or(8));
    let mut wanted = vec![false; usize::try_from(len_bytes).unwrap()];
    for bit in elements.iter().flat_map(|element| element * bits..(element + 1) * bits) {
        wanted[usize::try_from(bit / 8).unwrap()] = true;
    }
    let bytes = |from: usize, to: usize| (from..to.min(wanted.len())).filter(|&byte| wanted[byte]);
    let (start, end) = (usize::from(case.window.0), usize::from(case.window.1));
    let (start, end) = (start.min(end).min(wanted.len()), start.max(end).min(wanted.len()));
    let runs = region.runs(start as u64..end as u64);
    assert!(runs.flatten().eq(bytes(start, end).map(|byte| byte as u64)));
    let all: Vec<_> = region.runs(0..u64::MAX).collect();
    assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{all:?}");
    assert!(all.into_iter().flatten().eq(bytes(0, wanted.len()).map(|byte| byte as u64)));
    assert_eq!(region.rank(start as u64), bytes(0, start).count() as u64);
    let spans: Vec<_> = region.spans(case.max_gap.into()).collect();
    assert!(spans.windows(2).all(|pair| pair[1].start - pair[0].end > u64::from(case.max_gap)), "{spans:?}");
    assert!(bytes(0, wanted.len()).all(|byte| spans.iter().any(|span| span.contains(&(byte as u64)))));
    let tensor: Vec<u8> = (0..wanted.len()).map(|byte| (byte * 7 % 251) as u8).collect();
    let mut target = vec![0; bytes(start, end).count()];
    assert_eq!(region.copy(&tensor[start..end], start as u64, &mut target), target.len());
    assert!(target.into_iter().eq(bytes(start, end).map(|byte| tensor[byte])));
}

/// The indices that are wanted of a dimension, by how they are shown.
fn indices(wanted: &Intervals, len: u64) -> Vec<u64> {
    let number = |digits: &str, none: u64| if digits.is_empty() { none } else { digits.parse().unwrap() };
    let interval = |text: &str| match text.split_once(':') {
        Some((start, end)) => number(start, 0)..number(end, len),
        None => number(text, 0)..number(text, 0) + 1,
    };
    wanted.to_string().split('+').map(interval).collect::<Vec<_>>().into_iter().flatten().collect()
}
