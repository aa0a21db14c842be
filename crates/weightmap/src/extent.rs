//! Wanted byte ranges of one file → few, large reads.
//!
//! Ranges are of `u64` and half open; none of the functions can overflow, whatever the range. A range that
//! ends before it begins counts as empty.

mod plan;

use std::iter;
use std::ops::Range;

pub(crate) use plan::{Cost, Item, Portion, Request, affordable_gap, plan};

/// How many bytes a range has, which does not end before it begins.
pub(crate) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The range cut into pieces of at most `piece` bytes, in order.
///
/// Every cut is at a multiple of `align`, counted from the start of the file. A `piece` below `align` could
/// not be kept, and counts as `align`; an `align` of 0 counts as 1.
pub(crate) fn split(range: Range<u64>, piece: u64, align: u64) -> impl Iterator<Item = Range<u64>> {
    let align = align.max(1);
    let piece = piece.max(align);
    let Range { mut start, end } = range;
    iter::from_fn(move || {
        let cut = match start.checked_add(piece) {
            Some(limit) if limit < end => limit - limit % align,
            _ => end,
        };
        let next = start..cut;
        start = cut;
        (!next.is_empty()).then_some(next)
    })
}

/// The whole pages of `page` bytes that hold the range, the last one clipped to the file's `file_len` bytes.
///
/// An empty range holds no page and comes back as it is.
pub(crate) fn pages(range: Range<u64>, page: u64, file_len: u64) -> Range<u64> {
    if range.is_empty() {
        return range;
    }
    let page = page.max(1);
    let start = range.start - range.start % page;
    let end = range.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    start..end.min(file_len)
}

/// The same bytes as sorted and disjoint ranges, as few as can be: neighbours that touch become one.
pub(crate) fn union(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
    ranges
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what these functions give")]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const TOP: u64 = u64::MAX;

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "a range that ends before it begins is what is tested")]
    fn empty_regions_are_in_no_extent() {
        assert_eq!(union([9..3, 4..4]), []);
        assert_eq!(split(9..3, 1, 1).count(), 0);
        assert_eq!(pages(9..3, 4, 100), 9..3);
    }

    #[test]
    fn regions_at_the_top_of_the_range_do_not_overflow() {
        assert_eq!(union([1..TOP, 0..1]), [0..TOP]);
        assert_eq!(union([0..TOP, 5..TOP]), [0..TOP]);
    }

    #[test]
    fn pieces_are_cut_at_multiples_of_the_alignment() {
        let pieces = |range, piece, align| split(range, piece, align).collect::<Vec<_>>();
        assert_eq!(pieces(5..30, 8, 4), [5..12, 12..20, 20..28, 28..30]);
        assert_eq!(pieces(5..31, 10, 4), [5..12, 12..20, 20..28, 28..31]);
        assert_eq!(pieces(0..8, 8, 4), [0..8]);
        assert_eq!(pieces(3..5, 8, 4), [3..5]);
        assert_eq!(pieces(3..5, 1, 1), [3..4, 4..5]);
        assert_eq!(pieces(3..3, 8, 4), []);
        assert_eq!(pieces(TOP - 5..TOP, 4, 4), [TOP - 5..TOP - 3, TOP - 3..TOP]);
        assert_eq!(pieces(0..TOP, TOP, TOP), [0..TOP]);
    }

    #[test]
    fn a_piece_below_the_alignment_counts_as_one_alignment() {
        assert_eq!(split(0..10, 3, 4).collect::<Vec<_>>(), [0..4, 4..8, 8..10]);
        assert_eq!(split(0..2, 0, 0).collect::<Vec<_>>(), [0..1, 1..2]);
    }

    #[test]
    fn pages_are_whole_save_at_the_end_of_the_file() {
        assert_eq!(pages(5..6, 4096, 10_000), 0..4096);
        assert_eq!(pages(4096..8192, 4096, 10_000), 4096..8192);
        assert_eq!(pages(4095..8193, 4096, 10_000), 0..10_000);
        assert_eq!(pages(TOP - 1..TOP, 4096, TOP), TOP - 4095..TOP);
        assert_eq!(pages(5..5, 4096, 10_000), 5..5);
        assert_eq!(pages(5..6, 0, 10_000), 5..6);
    }

    #[test]
    fn a_union_counts_each_byte_once() {
        assert_eq!(union([10..20, 0..5, 5..8, 12..15, 18..25]), [0..8, 10..25]);
    }

    fn covers(ranges: &[Range<u64>], byte: u64) -> usize {
        ranges.iter().filter(|range| range.contains(&byte)).count()
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_exactly(
            start in 0u64..300, len in 0u64..300, top in any::<bool>(), piece in 0u64..50, align in 0u64..20,
        ) {
            let range = if top { TOP - start - len..TOP - start } else { start..start + len };
            let mut at = range.start;
            for next in split(range.clone(), piece, align) {
                prop_assert_eq!(next.start, at);
                prop_assert!(next.end > at && next.end - at <= piece.max(align).max(1));
                prop_assert!(next.end == range.end || next.end.is_multiple_of(align.max(1)));
                at = next.end;
            }
            prop_assert_eq!(at, range.end);
        }

        #[test]
        fn a_union_has_the_same_bytes(starts in vec((0u64..80, 0u64..12), 0..20)) {
            let ranges: Vec<_> = starts.iter().map(|&(start, len)| start..start + len).collect();
            let one = union(ranges.clone());
            prop_assert!(one.windows(2).all(|pair| pair[0].end < pair[1].start));
            for byte in 0..100 {
                prop_assert_eq!(covers(&one, byte), usize::from(covers(&ranges, byte) > 0));
            }
        }

        #[test]
        fn pages_are_the_smallest_whole_ones(
            start in 0u64..500, len in 1u64..500, page in 1u64..64, more in 0u64..99,
        ) {
            let file_len = start + len + more;
            let whole = pages(start..start + len, page, file_len);
            prop_assert!(whole.start <= start && start - whole.start < page);
            prop_assert!(whole.start.is_multiple_of(page));
            prop_assert!(whole.end >= start + len && whole.end - (start + len) < page);
            prop_assert!(whole.end == file_len || whole.end.is_multiple_of(page));
        }
    }
}
