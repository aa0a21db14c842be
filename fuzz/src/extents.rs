//! The planner of requests, compared with a set of bytes.

use std::ops::Range;

use arbitrary::{Arbitrary, Unstructured};
use weightmap::fuzzing::{Costs, Region, Request, requests};
use weightmap::{Dtype, Intervals};

/// A file that is longer is not looked at byte by byte.
const MOST_BYTES: u64 = 1 << 9;

/// What is wanted of a file.
#[derive(Debug, Arbitrary)]
pub struct Case {
    items: Vec<Item>,
    costs: [Number; 5],
}

/// A tensor of bytes, and what of it is wanted.
#[derive(Debug, Arbitrary)]
struct Item {
    /// How far behind the start of the last one it begins.
    after: Number,
    /// Whether it begins where that one ends, and not at its start.
    apart: bool,
    shape: Vec<u8>,
    wanted: Vec<(u8, u8)>,
    /// One dimension of this length, all of which is wanted, in place of the shape.
    long: Option<Number>,
}

/// A small number most often, and now and then one of any size.
#[derive(Debug, Clone, Copy)]
struct Number(u64);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let of: u8 = bytes.arbitrary()?;
        Ok(Self(match of {
            0..200 => u64::from(of),
            200..230 => bytes.arbitrary::<u16>()?.into(),
            230..250 => bytes.arbitrary::<u32>()?.into(),
            _ => bytes.arbitrary()?,
        }))
    }
}

impl Item {
    fn region(&self) -> Region {
        if let Some(Number(len)) = self.long {
            return Region::whole(&[len], len);
        }
        let shape: Vec<u64> = self.shape.iter().take(3).map(|len| u64::from(len % 12)).collect();
        let dim = |(&len, &(one, other)): (&u64, &(u8, u8))| {
            let (one, other) = (u64::from(one).min(len), u64::from(other).min(len));
            Intervals::from(one.min(other)..one.max(other))
        };
        let dims: Vec<_> = shape.iter().zip(&self.wanted).map(dim).collect();
        Region::slice(&dims, &Dtype::U8, &shape, shape.iter().product()).unwrap()
    }
}

/// Plans requests, and looks whether they bring what is wanted.
pub fn run(case: &Case) {
    let regions: Vec<Region> = case.items.iter().take(12).map(Item::region).collect();
    let mut items = Vec::new();
    let (mut start, mut end) = (0_u64, 0_u64);
    for (item, region) in case.items.iter().zip(&regions) {
        start = if item.apart { end } else { start }.saturating_add(item.after.0);
        end = start.saturating_add(region.hull().end);
        if end == u64::MAX {
            break;
        }
        items.push((start, region));
    }
    let costs = case.costs.map(|Number(number)| number);
    // No pieces of a byte of what is long: there are as many of them as it justifies, and that is too many here.
    let wanted: u64 = items.iter().map(|(_, region)| region.len_bytes()).fold(0, u64::saturating_add);
    if wanted / costs[3].max(1) > MOST_BYTES {
        return;
    }
    let requests = requests(&items, costs);
    check_requests(&requests, costs);
    check_items(&requests, &items, costs);
    let end = items.iter().map(|(start, region)| start + region.hull().end).max().unwrap_or(0);
    if end <= MOST_BYTES {
        check_bytes(&requests, &items, end);
    }
}

/// That requests keep to what they may cost.
fn check_requests(requests: &[Request], [gap_bytes, gap_share, row_gap_bytes, request_bytes, _]: Costs) {
    let request_bytes = request_bytes.max(1);
    let most = request_bytes.saturating_mul(2);
    let len = |range: &Range<u64>| range.end.checked_sub(range.start).unwrap();
    let (mut read_through, mut wanted) = (0_u128, 0_u128);
    for (range, portions) in requests {
        assert!(!portions.is_empty() && len(range) > 0 && len(range) <= most, "{range:?}");
        assert_eq!(range.start, portions[0].1.start);
        assert_eq!(range.end, portions[portions.len() - 1].1.end);
        assert!(portions.len() == 1 || len(range) <= request_bytes);
        for pair in portions.windows(2) {
            let gap = pair[1].1.start.checked_sub(pair[0].1.end).unwrap();
            assert!(gap <= gap_bytes);
            read_through += u128::from(gap);
        }
        for (_, source, dest, is_dense) in portions {
            assert!(len(dest) > 0 && len(dest) <= len(source));
            assert_eq!(*is_dense, len(dest) == len(source));
            assert!(*is_dense || row_gap_bytes.max(gap_bytes) > 0);
            wanted += u128::from(len(dest));
        }
    }
    if gap_share > 0 {
        assert!(read_through <= wanted / u128::from(gap_share), "{read_through} of {wanted}");
    }
}

/// That each item is in few requests, in order, and in several only alone.
fn check_items(requests: &[Request], items: &[(u64, &Region)], [.., request_bytes, chunk_bytes]: Costs) {
    let at_chunks = chunk_bytes > 0 && request_bytes.max(1) >= chunk_bytes.saturating_mul(4);
    for (number, (start, region)) in items.iter().enumerate() {
        let own =
            || requests.iter().filter(|(_, portions)| portions.iter().any(|portion| portion.0 == number));
        assert!(own().count() < 2 || own().all(|(_, portions)| portions.len() == 1));
        let portions = own().flat_map(|(_, portions)| portions).filter(|portion| portion.0 == number);
        let mut next = 0;
        for (_, source, dest, _) in portions {
            assert_eq!(dest.start, next);
            next = dest.end;
            // A cut is where one of the item's chunks begins, unless a gap is left out there.
            let is_cut = |at: u64| portions_end(own(), at);
            assert!(
                !at_chunks || !is_cut(source.start) || (source.start - start).is_multiple_of(chunk_bytes)
            );
            assert_eq!(region.rank(source.start - start)..region.rank(source.end - start), *dest);
        }
        assert_eq!(next, region.len_bytes());
    }
}

/// Whether a portion of these requests ends at this place of the file.
fn portions_end<'a>(mut requests: impl Iterator<Item = &'a Request>, at: u64) -> bool {
    requests.any(|(_, portions)| portions.iter().any(|(_, source, ..)| source.end == at))
}

/// That each wanted byte of the file is read for each item that wants it, and once.
fn check_bytes(requests: &[Request], items: &[(u64, &Region)], end: u64) {
    for (number, (start, region)) in items.iter().enumerate() {
        let mut wanted = vec![false; usize::try_from(end).unwrap()];
        for byte in region.runs(0..u64::MAX).flatten() {
            wanted[usize::try_from(start + byte).unwrap()] = true;
        }
        let mut read = vec![0_u8; wanted.len()];
        for (_, source, ..) in
            requests.iter().flat_map(|(_, portions)| portions).filter(|portion| portion.0 == number)
        {
            for byte in source.clone() {
                read[usize::try_from(byte).unwrap()] += 1;
            }
        }
        assert!(wanted.iter().zip(&read).all(|(wanted, read)| *read <= 1 && (!wanted || *read == 1)));
    }
}
