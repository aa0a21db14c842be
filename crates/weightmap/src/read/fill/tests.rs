use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::extent::{Cost, Item, plan};
use crate::intervals::Intervals;
use crate::shard_name::ShardName;

/// Where the tensor begins in the file.
const START: u64 = 1000;

/// A matrix of bytes, or the columns of it.
fn info(rows: u64, columns: u64, wanted: Option<Range<u64>>) -> TensorInfo {
    let shard = ShardName::parse("x.safetensors").unwrap();
    let range = START..START + rows * columns;
    let info = TensorInfo::new("t".to_owned(), Dtype::U8, vec![rows, columns], shard, range);
    match wanted {
        Some(wanted) => info.sliced(&[Intervals::from(..), wanted.into()]).unwrap(),
        None => info,
    }
}

/// The portions that hold all that is wanted, by requests of about so many bytes.
fn portions(info: &TensorInfo, row_gap_bytes: u64, request_bytes: u64) -> Vec<Portion> {
    let item = Item { item: 0, start: info.start, region: &info.region };
    let requests =
        plan(vec![item], &Cost { gap_bytes: 0, gap_share: 0, row_gap_bytes, request_bytes, chunk_bytes: 0 });
    requests.into_iter().flat_map(|request| request.portions).collect()
}

/// A byte of the file.
fn byte(offset: u64) -> u8 {
    (offset * 7 % 251) as u8
}

/// The offsets in the file that are wanted.
fn wanted(rows: u64, columns: u64, wanted: &Range<u64>) -> Vec<u64> {
    let row = |row| wanted.clone().map(move |column| START + row * columns + column);
    (0..rows).flat_map(row).collect()
}

proptest! {
    #[test]
    fn what_is_wanted_of_any_pieces_comes_to_its_place(
        (rows, columns) in (1_u64..9, 1_u64..12),
        (one, other) in (0_u64..12, 0_u64..12),
        (row_gap, request) in (0_u64..20, 1_u64..40),
        cuts in vec(0_u64..130, 0..6),
    ) {
        let columns_wanted = (one % columns).min(other % columns)..(one % columns).max(other % columns) + 1;
        let info = info(rows, columns, Some(columns_wanted.clone()));
        let mut found = vec![0; usize::try_from(info.len_bytes()).unwrap()];
        for portion in portions(&info, row_gap, request) {
            let target = &mut found[index(portion.dest.start)..index(portion.dest.end)];
            let mut fill = Fill { info: &info, portion: &portion, target };
            // Pieces that reach beyond the portion at both ends, in no order.
            let mut cuts: Vec<_> = cuts.iter().map(|cut| START - 10 + cut).collect();
            cuts.extend([START - 10, START + 120]);
            cuts.sort_unstable();
            let mut scattered = 0;
            for pair in cuts.windows(2).rev() {
                let bytes: Vec<_> = (pair[0]..pair[1]).map(byte).collect();
                scattered += fill.scatter(pair[0], &bytes);
            }
            prop_assert_eq!(scattered, portion.dest.end - portion.dest.start);
        }
        let expected: Vec<_> = wanted(rows, columns, &columns_wanted).into_iter().map(byte).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn stretches_hold_all_that_is_wanted_and_join_as_far_as_they_may(
        (rows, columns) in (1_u64..9, 1_u64..12),
        (one, other) in (0_u64..12, 0_u64..12),
        (row_gap, request) in (0_u64..20, 1_u64..40),
        (gap_bytes, most_bytes, waste_bytes) in (0_u64..12, 0_u64..60, 0_u64..30),
    ) {
        let columns_wanted = (one % columns).min(other % columns)..(one % columns).max(other % columns) + 1;
        let info = info(rows, columns, Some(columns_wanted.clone()));
        let portions = portions(&info, row_gap, request);
        let portions = portions.iter().map(|portion| (&info, portion));
        let runs: Vec<_> = portions.clone().flat_map(|(info, portion)| runs(info, portion)).collect();
        let join = Join { gap_bytes, most_bytes, waste_bytes };
        let stretches: Vec<_> = stretches(portions, join).collect();
        let wanted = wanted(rows, columns, &columns_wanted);
        let mut counted = 0;
        for Stretch { range, wanted_bytes } in &stretches {
            let inside: Vec<_> = wanted.iter().filter(|offset| range.contains(offset)).collect();
            prop_assert_eq!(inside.len() as u64, *wanted_bytes);
            prop_assert!(inside.first() == Some(&&range.start) && inside.last() == Some(&&(range.end - 1)));
            let gaps: Vec<_> = inside.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
            prop_assert!(gaps.iter().all(|gap| *gap <= gap_bytes));
            prop_assert!(gaps.iter().sum::<u64>() <= waste_bytes);
            prop_assert!(range.end - range.start <= most_bytes || runs.contains(range));
            counted += wanted_bytes;
        }
        prop_assert_eq!(counted, wanted.len() as u64);
        // The next run would have been too much.
        for pair in stretches.windows(2) {
            let next = runs.iter().find(|run| run.start == pair[1].range.start).unwrap();
            let (gap, bytes) = (next.start - pair[0].range.end, next.end - pair[0].range.start);
            let wasted = pair[0].range.end - pair[0].range.start - pair[0].wanted_bytes + gap;
            prop_assert!(gap > gap_bytes || bytes > most_bytes || wasted > waste_bytes);
        }
    }
}

#[test]
fn a_range_is_wanted_whole_where_no_gap_is_in_it() {
    let info = info(3, 10, Some(2..5));
    let portion = &portions(&info, 100, 1000)[0];
    let mut target = [0; 9];
    let fill = Fill { info: &info, portion, target: &mut target };
    assert!(fill.wants_all_of(&(START + 12..START + 15)));
    assert!(fill.wants_all_of(&(START + 13..START + 14)));
    assert!(fill.wants_all_of(&(0..START + 3)), "what is outside the portion is of no concern");
    assert!(!fill.wants_all_of(&(START + 4..START + 13)));
    assert!(!fill.wants_all_of(&(START + 12..START + 16)));
}

#[test]
fn the_memory_for_a_range_is_where_its_wanted_bytes_belong() {
    let info = info(3, 10, Some(2..5));
    let portion = &portions(&info, 100, 1000)[0];
    let mut target: Vec<u8> = (0..9).collect();
    let mut fill = Fill { info: &info, portion, target: &mut target };
    assert_eq!(fill.target_of(&(START + 12..START + 15)), [3, 4, 5]);
    assert_eq!(fill.target_of(&(START + 13..START + 24)), [4, 5, 6, 7]);
    assert!(fill.target_of(&(START + 6..START + 8)).is_empty());
}

#[test]
fn bytes_that_are_of_no_concern_change_nothing() {
    let info = info(2, 10, None);
    let portion = &portions(&info, 0, 1000)[0];
    let mut target = [9; 20];
    let mut fill = Fill { info: &info, portion, target: &mut target };
    assert_eq!(fill.scatter(START - 5, &[1; 5]), 0);
    assert_eq!(fill.scatter(START + 20, &[1; 5]), 0);
    assert_eq!(fill.scatter(START + 5, &[]), 0);
    assert_eq!(target, [9; 20]);
}
