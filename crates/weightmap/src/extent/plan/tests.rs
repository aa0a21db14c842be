use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::intervals::Intervals;

const TOP: u64 = u64::MAX;

/// Whole tensors, by their ranges of the file; each item as its source ranges, each request as its range.
fn planned(ranges: &[Range<u64>], gap_bytes: u64, request_bytes: u64) -> Vec<(Range<u64>, Vec<usize>)> {
    let regions: Vec<_> = ranges.iter().map(|range| whole(range.end - range.start)).collect();
    let items = regions.iter().zip(ranges).enumerate();
    let items = items.map(|(item, (region, range))| Item { item, start: range.start, region }).collect();
    let requests = plan(
        items,
        &Cost { gap_bytes, gap_share: 0, row_gap_bytes: gap_bytes, request_bytes, chunk_bytes: 0 },
    )
    .into_iter();
    requests
        .map(|request| (request.range, request.portions.iter().map(|portion| portion.item).collect()))
        .collect()
}

fn whole(len: u64) -> Region {
    Region::whole(&[len], len)
}

/// Of so many rows of bytes, some columns.
fn columns(rows: u64, row: u64, wanted: Range<u64>) -> Region {
    Region::slice(&[(..).into(), wanted.into()], &Dtype::U8, &[rows, row], rows * row).unwrap()
}

fn one(region: &Region, start: u64, gap_bytes: u64, request_bytes: u64) -> Vec<Portion> {
    let requests = plan(
        vec![Item { item: 0, start, region }],
        &Cost { gap_bytes, gap_share: 0, row_gap_bytes: gap_bytes, request_bytes, chunk_bytes: 0 },
    );
    assert!(requests.iter().all(|request| request.portions.len() == 1));
    requests.into_iter().flat_map(|request| request.portions).collect()
}

fn portion(source: Range<u64>, dest: Range<u64>, is_dense: bool) -> Portion {
    Portion { item: 0, source, dest, is_dense }
}

#[test]
fn neighbours_within_the_gap_are_read_together() {
    assert_eq!(planned(&[0..10, 14..20], 4, 100), [(0..20, vec![0, 1])]);
    assert_eq!(planned(&[0..10, 15..20], 4, 100), [(0..10, vec![0]), (15..20, vec![1])]);
    assert_eq!(planned(&[0..10, 10..20], 0, 100), [(0..20, vec![0, 1])]);
}

#[test]
fn a_request_stops_growing_at_its_size() {
    assert_eq!(planned(&[0..10, 10..20, 20..30], 0, 20), [(0..20, vec![0, 1]), (20..30, vec![2])]);
    assert_eq!(planned(&[0..10, 12..20], 9, 19), [(0..10, vec![0]), (12..20, vec![1])]);
}

#[test]
fn any_order_gives_file_order() {
    assert_eq!(
        planned(&[50..60, 0..10, 20..30], 0, 100),
        [(0..10, vec![1]), (20..30, vec![2]), (50..60, vec![0])]
    );
}

#[test]
fn what_is_up_to_twice_as_long_as_a_request_is_one_and_what_is_longer_has_several_of_its_own() {
    assert_eq!(
        planned(&[0..5, 5..45, 45..50], 9, 20),
        [(0..5, vec![0]), (5..45, vec![1]), (45..50, vec![2])]
    );
    assert_eq!(
        planned(&[0..5, 5..46, 46..47], 9, 20),
        [(0..5, vec![0]), (5..25, vec![1]), (25..46, vec![1]), (46..47, vec![2])]
    );
}

#[test]
fn an_item_in_several_requests_shares_none_with_its_neighbours() {
    let (before, rows, after) = (whole(10), columns(2, 100, 0..2), whole(10));
    let items = [(&before, 0), (&rows, 10), (&after, 112)].into_iter().enumerate();
    let items = items.map(|(item, (region, start))| Item { item, start, region }).collect();
    let requests = plan(
        items,
        &Cost { gap_bytes: 50, gap_share: 0, row_gap_bytes: 50, request_bytes: 1000, chunk_bytes: 0 },
    );
    let ranges: Vec<_> = requests.into_iter().map(|request| request.range).collect();
    assert_eq!(ranges, [0..10, 10..12, 110..112, 112..122]);
}

#[test]
fn long_spans_are_cut_evenly_and_at_pages() {
    let mib = 1 << 20;
    let cuts: Vec<_> =
        planned(&[100..100 + 35 * mib; 1], 0, 8 * mib).into_iter().map(|(range, _)| range).collect();
    assert_eq!(cuts.len(), 4);
    assert!(cuts[1..].iter().all(|cut| cut.start.is_multiple_of(2 * mib)));
    assert!(cuts.iter().all(|cut| (7 * mib..12 * mib).contains(&(cut.end - cut.start))), "{cuts:?}");
}

#[test]
fn whoever_looks_at_whole_chunks_of_an_item_gets_requests_that_are_cut_between_them() {
    let cuts = |chunk_bytes| {
        let item = Item { item: 0, start: 7, region: &whole(1000) };
        let cost = Cost { gap_bytes: 0, gap_share: 0, row_gap_bytes: 0, request_bytes: 80, chunk_bytes };
        plan(vec![item], &cost).iter().skip(1).map(|request| request.range.start).collect::<Vec<_>>()
    };
    assert!(cuts(20).len() > 5 && cuts(20).iter().all(|cut| (cut - 7) % 20 == 0), "{:?}", cuts(20));
    // Where requests are of few chunks, they would be uneven.
    assert_eq!(cuts(21), cuts(0));
}

#[test]
fn a_region_is_read_span_by_span_where_its_gaps_are_too_wide() {
    let region = columns(3, 10, 2..4);
    assert_eq!(
        one(&region, 100, 7, 1000),
        [portion(102..104, 0..2, true), portion(112..114, 2..4, true), portion(122..124, 4..6, true)]
    );
    assert_eq!(one(&region, 100, 8, 1000), [portion(102..124, 0..6, false)]);
}

#[test]
fn a_long_strided_span_is_cut_anywhere() {
    let region = columns(5, 10, 2..4);
    assert_eq!(
        one(&region, 0, 9, 9),
        [
            portion(2..12, 0..2, false),
            portion(12..22, 2..4, false),
            portion(22..33, 4..7, false),
            portion(33..44, 7..10, false)
        ]
    );
}

#[test]
fn items_that_overlap_are_read_for_each() {
    assert_eq!(planned(&[0..10, 0..10, 10..20], 9, 99), [(0..10, vec![0]), (0..20, vec![1, 2])]);
    assert_eq!(planned(&[0..50, 10..20], 9, 20), [(0..25, vec![0]), (25..50, vec![0]), (10..20, vec![1])]);
}

#[test]
fn empty_regions_are_in_no_request() {
    assert_eq!(planned(&[], 9, 9), []);
    assert_eq!(planned(&[0..1, 2..2, 4..5], 9, 9), [(0..5, vec![0, 2])]);
    assert_eq!(one(&columns(3, 10, 4..4), 0, 9, 9), []);
}

#[test]
fn an_empty_item_does_not_change_how_wide_a_gap_is() {
    let cost = Cost { gap_bytes: 99, gap_share: 49, row_gap_bytes: 0, request_bytes: 99, chunk_bytes: 0 };
    let regions = [whole(1), whole(0), whole(1)];
    let items = regions.iter().zip([2, 2, 55]).enumerate();
    let items = items.map(|(item, (region, start))| Item { item, start, region }).collect();
    let ranges: Vec<_> = plan(items, &cost).into_iter().map(|request| request.range).collect();
    assert_eq!(ranges, [2..3, 55..56]);
}

#[test]
fn nothing_overflows_at_the_top_of_the_range() {
    assert_eq!(planned(&[0..1, TOP - 1..TOP], TOP, TOP), [(0..TOP, vec![0, 1])]);
    assert_eq!(planned(&[0..TOP, TOP - 1..TOP], 0, TOP), [(0..TOP, vec![0]), (TOP - 1..TOP, vec![1])]);
    assert_eq!(planned(&[TOP - 3..TOP; 1], 0, 0).len(), 3);
    assert_eq!(planned(&[0..TOP; 1], TOP, TOP / 3).len(), 3);
    assert_eq!(one(&whole(TOP), 5, TOP, TOP)[0].source, 5..TOP);
}

/// Slices of byte matrices, each with the gap in the file that is before it.
fn slices() -> impl Strategy<Value = Vec<(u64, Region)>> {
    let dim = (1u64..8).prop_flat_map(|len| (Just(len), 0..=len, 0..=len));
    let slice = vec(dim, 1..4).prop_map(|dims| {
        let shape: Vec<_> = dims.iter().map(|(len, ..)| *len).collect();
        let wanted: Vec<_> = dims.iter().map(|&(_, a, b)| Intervals::from(a.min(b)..a.max(b))).collect();
        Region::slice(&wanted, &Dtype::I8, &shape, shape.iter().product()).unwrap()
    });
    vec((0u64..9, prop_oneof![slice, (0u64..60).prop_map(whole)]), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_wanted_byte_is_in_one_portion_and_the_rules_hold(
        slices in slices(), gap_bytes in 0u64..12, request_bytes in 1u64..50, chunk_bytes in 0u64..9,
        overlap in any::<bool>(),
    ) {
        let mut start = 0;
        let mut items = Vec::new();
        for (item, (gap, region)) in slices.iter().enumerate() {
            start += gap;
            items.push(Item { item, start, region });
            start += if overlap { 5 } else { region.hull().end };
        }
        let requests = plan(items.clone(), &Cost { gap_bytes, gap_share: 0, row_gap_bytes: gap_bytes, request_bytes, chunk_bytes });

        for request in &requests {
            let Request { range, portions } = request;
            prop_assert!(range.end - range.start <= 2 * request_bytes);
            prop_assert_eq!(range.start, portions[0].source.start);
            prop_assert_eq!(range.end, portions[portions.len() - 1].source.end);
            prop_assert!(portions.len() == 1 || range.end - range.start <= request_bytes);
            for pair in portions.windows(2) {
                prop_assert!(pair[0].source.end <= pair[1].source.start);
                prop_assert!(pair[1].source.start - pair[0].source.end <= gap_bytes);
            }
        }
        prop_assert!(overlap || requests.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));

        for Item { item, start, region } in items {
            let parts = || requests.iter().flat_map(|request| &request.portions).filter(|part| part.item == item);
            let mut next = 0;
            for part in parts() {
                prop_assert_eq!(part.dest.start, next);
                next = part.dest.end;
                let source = part.source.start - start..part.source.end - start;
                let runs: Vec<_> = region.runs(source.clone()).collect();
                prop_assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u64>(), part.dest.end - part.dest.start);
                prop_assert_eq!(part.is_dense, runs == [source; 1]);
            }
            prop_assert_eq!(next, region.len_bytes());
            // An item in several requests has them for itself.
            let shares = |request: &&Request| request.portions.iter().any(|part| part.item == item);
            let several = requests.iter().filter(shares).count() > 1;
            prop_assert!(!several || requests.iter().filter(shares).all(|request| request.portions.len() == 1));
        }
    }
}

#[test]
fn gaps_are_read_through_as_long_as_they_are_few_of_what_is_wanted() {
    let gap = |gaps: &[u64], wanted| affordable_gap(gaps.iter().copied(), wanted, 50, 20);
    assert_eq!(gap(&[10, 40, 20, 60, 0], 2000), 50, "the last but one is too wide in any case");
    assert_eq!(gap(&[10, 40, 20], 1000), 39);
    assert_eq!(gap(&[10, 10, 10], 400), 9, "all of one width or none");
    assert_eq!(gap(&[], 0), 50);
    assert_eq!(affordable_gap([40].into_iter(), 1, 50, 0), 50, "of any share");
}
