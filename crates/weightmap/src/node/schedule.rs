//! What the ranks of a node want of a model together, and who reads what of it. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::extent::split;
use crate::tensor_info::TensorInfo;

/// A window that is read at once: long enough for a device, short enough that reading and sending overlap.
const WINDOW_BYTES: u64 = 4 << 20;

/// Where windows are cut.
const PAGE_BYTES: u64 = 4096;

/// Something that a rank wants.
#[derive(Debug, Clone)]
pub(super) struct Want {
    /// The rank's place in its group.
    pub(super) member: usize,
    /// The rank's number for it.
    pub(super) item: usize,
    pub(super) shard: u32,
    pub(super) info: Arc<TensorInfo>,
}

/// Who reads what, the same on all ranks of the node.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// By member, the items of which no other wants anything.
    pub(super) own: Vec<Vec<usize>>,
    /// What is left, in the order in which it is read and given away.
    pub(super) windows: Vec<Window>,
    /// By member, the bytes that it reads.
    pub(super) read_bytes: Vec<u64>,
    /// Bytes of files that some of the ranks want, each counted once.
    pub(super) needed_bytes: u64,
    /// The sum of what each rank wants.
    pub(super) wanted_bytes: u64,
}

/// A range of a file that one rank reads, for itself or for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) shard: u32,
    pub(super) range: Range<u64>,
    /// How many of its bytes are wanted by anybody.
    pub(super) wanted_bytes: u64,
    /// The member that reads it.
    pub(super) reader: usize,
    /// What is wanted of it, by member and item.
    pub(super) receipts: Vec<Receipt>,
}

/// What a rank gets of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) member: usize,
    pub(super) item: usize,
    /// Where it belongs among the item's bytes; never empty.
    pub(super) dest: Range<u64>,
}

impl Schedule {
    /// For what so many members want.
    pub(super) fn new(members: usize, wants: &[Want]) -> Self {
        let mut schedule =
            Self { own: vec![Vec::new(); members], read_bytes: vec![0; members], ..Self::default() };
        let mut tensors = BTreeMap::<(u32, u64), Vec<&Want>>::new();
        for want in wants.iter().filter(|want| want.info.len_bytes() > 0) {
            schedule.wanted_bytes = schedule.wanted_bytes.saturating_add(want.info.len_bytes());
            tensors.entry((want.shard, want.info.start)).or_default().push(want);
        }
        for wants in tensors.values_mut() {
            wants.sort_by_key(|want| (want.info.range.start, want.member, want.item));
            let mut rest = wants.as_slice();
            while let Some((cluster, later)) = cluster(rest) {
                schedule.add(cluster);
                rest = later;
            }
        }
        schedule.choose_readers(members);
        schedule
    }

    /// Adds wants that overlap one another, or at least could.
    fn add(&mut self, wants: &[&Want]) {
        let Some(first) = wants.first() else { return };
        if wants.iter().all(|want| want.member == first.member) {
            for want in wants {
                if let (Some(own), Some(bytes)) =
                    (self.own.get_mut(want.member), self.read_bytes.get_mut(want.member))
                {
                    own.push(want.item);
                    *bytes = bytes.saturating_add(want.info.len_bytes());
                    self.needed_bytes = self.needed_bytes.saturating_add(want.info.len_bytes());
                }
            }
            return;
        }
        let mut cuts: Vec<_> =
            wants.iter().flat_map(|want| [want.info.range.start, want.info.range.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2) {
            let &[start, end] = pair else { continue };
            for range in split(start..end, WINDOW_BYTES, PAGE_BYTES) {
                let receipts: Vec<_> = wants.iter().filter_map(|want| Receipt::of(want, &range)).collect();
                if !receipts.is_empty() {
                    let wanted_bytes = wanted_bytes(wants, &range);
                    self.needed_bytes = self.needed_bytes.saturating_add(wanted_bytes);
                    self.windows.push(Window {
                        shard: first.shard,
                        range,
                        wanted_bytes,
                        reader: 0,
                        receipts,
                    });
                }
            }
        }
    }

    /// What one rank alone wants it reads itself. What several want is read by the one that has the least to read, so
    /// that all have about the same.
    fn choose_readers(&mut self, members: usize) {
        for window in self.windows.iter_mut().filter(|window| window.is_solo()) {
            window.reader = window.receipts.first().map_or(0, |receipt| receipt.member);
            let bytes =
                window.receipts.iter().map(|receipt| receipt.dest.end - receipt.dest.start).sum::<u64>();
            if let Some(read) = self.read_bytes.get_mut(window.reader) {
                *read = read.saturating_add(bytes);
            }
        }
        // The longest first, so that the last ones, which decide how even it comes out, are short.
        let mut shared: Vec<_> = self.windows.iter_mut().filter(|window| !window.is_solo()).collect();
        shared.sort_by_key(|window| Reverse(window.wanted_bytes));
        for window in shared {
            let least = (0..members).min_by_key(|&member| (self.read_bytes.get(member).copied(), member));
            window.reader = least.unwrap_or(0);
            if let Some(read) = self.read_bytes.get_mut(window.reader) {
                *read = read.saturating_add(window.wanted_bytes);
            }
        }
    }
}

impl Window {
    /// Whether only one rank wants something of it.
    pub(super) fn is_solo(&self) -> bool {
        let member = |receipt: &Receipt| receipt.member;
        self.receipts.windows(2).all(|pair| pair.iter().map(member).min() == pair.iter().map(member).max())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether each of so many members wants all of it, in one piece.
    pub(super) fn is_for_all(&self, members: usize) -> bool {
        self.receipts.len() == members
            && self.receipts.iter().enumerate().all(|(member, receipt)| {
                receipt.member == member && receipt.dest.end - receipt.dest.start == self.bytes()
            })
    }
}

impl Receipt {
    /// What a rank wants of a range of the file, if anything.
    fn of(want: &Want, range: &Range<u64>) -> Option<Self> {
        let rank = |at: u64| want.info.region.rank(at.saturating_sub(want.info.start));
        let dest = rank(range.start)..rank(range.end);
        (!dest.is_empty()).then_some(Self { member: want.member, item: want.item, dest })
    }
}

/// The first of some wants, which come by their start, with those that overlap it or one another; and the rest.
fn cluster<'s, 'w>(wants: &'s [&'w Want]) -> Option<(&'s [&'w Want], &'s [&'w Want])> {
    let mut end = wants.first()?.info.range.end;
    let count = wants.iter().take_while(|want| {
        let overlaps = want.info.range.start < end || want.info.range.end <= end;
        end = end.max(want.info.range.end);
        overlaps
    });
    wants.split_at_checked(count.count())
}

/// The bytes of a range that some want, each counted once.
fn wanted_bytes(wants: &[&Want], range: &Range<u64>) -> u64 {
    let whole = |want: &&&Want| {
        Receipt::of(want, range)
            .is_some_and(|receipt| receipt.dest.end - receipt.dest.start == range.end - range.start)
    };
    if wants.iter().any(|want| whole(&want)) {
        return range.end - range.start;
    }
    runs(wants.iter().map(|want| &*want.info), range, 0).iter().map(|run| run.end - run.start).sum()
}

/// What tensors want of a range of the file together, as ranges of the file, with gaps of at most `max_gap` filled.
pub(super) fn runs<'a>(
    infos: impl Iterator<Item = &'a TensorInfo>,
    range: &Range<u64>,
    max_gap: u64,
) -> Vec<Range<u64>> {
    let runs = infos.flat_map(|info| {
        let inside = range.start.saturating_sub(info.start)..range.end.saturating_sub(info.start);
        info.region.runs(inside).map(|run| run.start + info.start..run.end + info.start)
    });
    let mut runs = crate::extent::union(runs);
    runs.dedup_by(|next, last| {
        let joins = next.start - last.end <= max_gap;
        if joins {
            last.end = next.end;
        }
        joins
    });
    runs
}

#[cfg(test)]
mod tests;
