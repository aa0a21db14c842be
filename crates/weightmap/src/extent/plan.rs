//! Wanted regions of one file → requests, by what a request costs.

use std::iter::once;
use std::ops::Range;

use crate::region::Region;

/// Where requests are cut unless at chunks: at pages of the file, so that none is read twice, and at huge ones, unless requests
/// are of few.
const PAGES: [u64; 2] = [2 << 20, 4096];

/// A tensor of which something is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    /// The caller's number for it.
    pub(crate) item: usize,
    /// Where the tensor begins in the file.
    pub(crate) start: u64,
    /// What of it is wanted.
    pub(crate) region: &'a Region,
}

/// What a request costs on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The bytes that could be read in the time that one more request takes: the widest gap worth reading.
    pub(crate) gap_bytes: u64,
    /// Of what is wanted, the part that gaps between items may have in all at most: one in so many bytes; 0 for any.
    pub(crate) gap_share: u64,
    /// The widest gap within an item that a request may hold. A reader can leave out those that are not worth
    /// reading.
    pub(crate) row_gap_bytes: u64,
    /// The size that is aimed at: neighbours are read together up to it, and what is longer than twice of it
    /// is cut into pieces of about it. No gap that is wider is worth reading.
    pub(crate) request_bytes: u64,
    /// Where items are cut: at multiples of this, counted from their start, as those want it who look at whole chunks; 0 for
    /// pages of the file.
    pub(crate) chunk_bytes: u64,
}

/// Bytes that are read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The range of the file, gaps included.
    pub(crate) range: Range<u64>,
    /// What the bytes are for: in the order of the file, disjoint, never empty.
    pub(crate) portions: Vec<Portion>,
}

/// The part of an item that a request holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Portion {
    /// The caller's number for the item.
    pub(crate) item: usize,
    /// The range of the file, within the request.
    pub(crate) source: Range<u64>,
    /// Where its wanted bytes belong among the item's local bytes; never empty.
    pub(crate) dest: Range<u64>,
    /// Whether all bytes of the source are wanted.
    pub(crate) is_dense: bool,
}

/// The requests that read all items of one file, in the order of the file.
///
/// An item is either in one request, alone or with whole neighbours, or has several of its own, one after the
/// other: a request that ends an item begun earlier begins none, so that no item waits for the memory of the
/// next.
///
/// Items may overlap. What both want is then read for each, all of the one before the other.
pub(crate) fn plan(mut items: Vec<Item<'_>>, cost: &Cost) -> Vec<Request> {
    // What is empty is read by no request, and must not part a gap in two.
    items.retain(|item| item.region.len_bytes() > 0);
    items.sort_by_key(|item| item.start.saturating_add(item.region.hull().start));
    let (request_bytes, chunk_bytes) = (cost.request_bytes.max(1), cost.chunk_bytes);
    let wanted_bytes = items.iter().map(|item| item.region.len_bytes()).fold(0, u64::saturating_add);
    let gap_bytes = cost.gap_bytes.min(request_bytes);
    let gap_bytes = affordable_gap(gaps(&items), wanted_bytes, gap_bytes, cost.gap_share);
    let row_gap_bytes = cost.row_gap_bytes.clamp(gap_bytes, request_bytes);
    let mut planner = Planner {
        gap_bytes,
        row_gap_bytes,
        request_bytes,
        chunk_bytes,
        requests: Vec::new(),
        is_open: false,
    };
    items.iter().for_each(|item| planner.add(item));
    planner.requests
}

/// The gaps between items, which come in the order of the file; 0 where they touch or overlap.
fn gaps(items: &[Item<'_>]) -> impl Iterator<Item = u64> {
    let hull = |item: &Item<'_>| {
        let Range { start, end } = item.region.hull();
        item.start.saturating_add(start)..item.start.saturating_add(end)
    };
    items.windows(2).map(move |pair| match pair {
        [one, next] => hull(next).start.saturating_sub(hull(one).end),
        _ => 0,
    })
}

/// The widest gap, of those up to `gap_bytes`, that may be read through wherever there is one, if gaps may have but one byte
/// in `gap_share` of what is wanted.
pub(crate) fn affordable_gap(
    gaps: impl Iterator<Item = u64>,
    wanted_bytes: u64,
    gap_bytes: u64,
    gap_share: u64,
) -> u64 {
    let Some(mut left) = wanted_bytes.checked_div(gap_share) else { return gap_bytes };
    let mut gaps: Vec<_> = gaps.filter(|gap| (1..=gap_bytes).contains(gap)).collect();
    gaps.sort_unstable();
    for same in gaps.chunk_by(|one, next| one == next) {
        let bytes = same.iter().copied().fold(0, u64::saturating_add);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return same.first().map_or(0, |gap| gap - 1),
        }
    }
    gap_bytes
}

struct Planner {
    gap_bytes: u64,
    row_gap_bytes: u64,
    request_bytes: u64,
    chunk_bytes: u64,
    requests: Vec<Request>,
    /// Whether the last request holds whole items, and may get more.
    is_open: bool,
}

impl Planner {
    fn add(&mut self, item: &Item<'_>) {
        let in_file =
            |span: Range<u64>| item.start.saturating_add(span.start)..item.start.saturating_add(span.end);
        let mut spans = item.region.spans(self.row_gap_bytes).map(in_file).peekable();
        let Some(first) = spans.next() else { return };
        let is_small = spans.peek().is_none() && first.end - first.start <= self.request_bytes;
        if is_small {
            self.share(item.portion(first));
        } else {
            once(first).chain(spans).for_each(|span| self.divide(item, span));
        }
        self.is_open = is_small;
    }

    /// Adds a whole item to the last request, where that pays, or begins the next with it.
    fn share(&mut self, portion: Portion) {
        let (gap_bytes, request_bytes) = (self.gap_bytes, self.request_bytes);
        let joins = |last: &&mut Request| {
            // None where the items overlap.
            let gap = portion.source.start.checked_sub(last.range.end);
            gap.is_some_and(|gap| gap <= gap_bytes) && portion.source.end - last.range.start <= request_bytes
        };
        match self.requests.last_mut().filter(|_| self.is_open).filter(joins) {
            Some(last) => {
                last.range.end = portion.source.end;
                last.portions.push(portion);
            }
            None => self.requests.push(Request::of(portion)),
        }
    }

    /// Adds requests for a span of an item that needs several.
    fn divide(&mut self, item: &Item<'_>, span: Range<u64>) {
        let is_worth = |bytes: &u64| self.request_bytes >= bytes.saturating_mul(4);
        let grid = match self.chunk_bytes {
            bytes if bytes > 0 && is_worth(&bytes) => (item.start, bytes),
            _ => (0, PAGES.into_iter().find(is_worth).unwrap_or(1)),
        };
        let portions = pieces(span, self.request_bytes, grid).map(|piece| item.portion(piece));
        // A piece can lie in a gap of the region.
        self.requests.extend(portions.filter(|portion| !portion.dest.is_empty()).map(Request::of));
    }
}

impl Item<'_> {
    /// What the item wants of a range of the file that lies within it.
    fn portion(&self, source: Range<u64>) -> Portion {
        let rank = |at: u64| self.region.rank(at.saturating_sub(self.start));
        let dest = rank(source.start)..rank(source.end);
        let is_dense = dest.end - dest.start == source.end - source.start;
        Portion { item: self.item, source, dest, is_dense }
    }
}

impl Request {
    fn of(portion: Portion) -> Self {
        Self { range: portion.source.clone(), portions: vec![portion] }
    }
}

/// The span, or, where it is longer than twice `request_bytes`, even pieces of it that are no shorter.
///
/// Cuts are at multiples of a length, counted from some place before the span; a piece may be shorter by less than that.
fn pieces(
    span: Range<u64>,
    request_bytes: u64,
    (origin, align): (u64, u64),
) -> impl Iterator<Item = Range<u64>> {
    let Range { mut start, end } = span;
    let fits = end - start <= request_bytes.saturating_mul(2);
    let count = if fits { 1 } else { (end - start) / request_bytes };
    (1..=count).rev().map(move |left| {
        let cut = start + (end - start) / left;
        let cut = if left == 1 { end } else { (cut - cut.saturating_sub(origin) % align).max(start) };
        let piece = start..cut;
        start = cut;
        piece
    })
}

#[cfg(test)]
mod tests;
