//! Slices: the same bytes as the elements taken one by one.
#![expect(clippy::single_range_in_vec_init, reason = "a dimension has ranges, mostly one")]

use weightmap::{Intervals, LoadOptions, ReadMode};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder};

use super::expected::{Dims, Expected, assert_all_ways, assert_load};
use super::{DTYPES, MIB, single};
use crate::support::{FIRST, SECOND, open};

/// Asserts that slices conform, each of the tensor of its name, all at once and by all ways.
fn assert_slices<'a>(
    checkpoint: &Checkpoint,
    wanted: impl IntoIterator<Item = (&'a str, Option<Dims>)>,
    workers: &[usize],
) {
    let files = checkpoint.temp();
    let expected = Expected::slices(&Oracle::open(&files), wanted);
    assert_all_ways(files.path(), &expected, workers);
}

#[test]
fn every_dtype_is_sliced_in_every_dimension() {
    let add = |shard: ShardBuilder, dtype: &&str| shard.pattern(dtype, dtype, &[5, 3, 16]);
    let checkpoint = single(DTYPES.iter().fold(ShardBuilder::new().header_padding(5), add));
    let slices: [Dims; 6] = [
        vec![vec![1..3]],
        vec![vec![0..1, 2..2, 3..5]],
        vec![vec![0..5], vec![1..2]],
        vec![vec![0..5], vec![0..3], vec![4..12]],
        vec![vec![4..5], vec![0..1, 2..3], vec![0..4, 8..16]],
        vec![vec![0..5], vec![0..0]],
    ];
    for dims in slices {
        assert_slices(&checkpoint, DTYPES.map(|dtype| (dtype, Some(dims.clone()))), &[2]);
    }
}

#[test]
fn tensors_of_every_rank_are_sliced() {
    let shard = ShardBuilder::new()
        .pattern("0", "F32", &[])
        .pattern("1", "F32", &[9])
        .pattern("2", "I16", &[4, 5])
        .pattern("3", "U8", &[3, 4, 5])
        .pattern("4", "F64", &[2, 3, 4, 5]);
    let wanted: [(&str, Dims); 5] = [
        ("0", vec![]),
        ("1", vec![vec![0..1, 3..4, 8..9]]),
        ("2", vec![vec![1..4], vec![0..2, 4..5]]),
        ("3", vec![vec![0..1, 2..3], vec![1..3], vec![1..2, 3..5]]),
        ("4", vec![vec![1..2], vec![0..2], vec![1..2, 3..4], vec![0..1, 2..5]]),
    ];
    assert_slices(&single(shard), wanted.map(|(name, dims)| (name, Some(dims))), &[1, 3]);
}

#[test]
fn slices_of_all_and_of_nothing_conform() {
    let shard = ShardBuilder::new()
        .pattern("all", "F32", &[4, 4])
        .zeros("empty", "F32", &[0, 4])
        .pattern("nothing", "F32", &[4, 4])
        .pattern("a", "U8", &[3])
        .zeros("huge", "F64", &[1 << 63, 1 << 63, 0]);
    let wanted: [(&str, Option<Dims>); 5] = [
        ("nothing", Some(vec![vec![2..2]])),
        ("all", Some(vec![vec![0..2, 2..4], vec![0..4]])),
        ("huge", Some(vec![vec![7..1 << 40], vec![0..1]])),
        ("a", None),
        ("empty", Some(vec![vec![], vec![1..2]])),
    ];
    assert_slices(&single(shard), wanted, &[1, 2]);
}

#[test]
fn slices_and_whole_tensors_of_several_shards_conform_together() {
    let shard = |from: u32| {
        (from..from + 40).fold(ShardBuilder::new().header_padding(3), |shard, number| {
            shard.pattern(&format!("t{number}"), "F16", &[7, u64::from(number % 9)])
        })
    };
    let names: Vec<_> = (0..80).rev().map(|number| format!("t{number}")).collect();
    let wanted = names.iter().enumerate().map(|(place, name)| {
        let dims = (place % 3 > 0).then(|| vec![vec![1..3, 5..7], vec![0..0; place % 2]]);
        (name.as_str(), dims.map(|dims: Dims| dims.into_iter().filter(|dim| dim != &[0..0]).collect()))
    });
    assert_slices(&Checkpoint::new().shard(FIRST, shard(0)).shard(SECOND, shard(40)), wanted, &[1, 4]);
}

/// A quarter of each row, as one of four ranks has it: too long for one request, and for one run.
#[test]
fn wide_rows_of_a_tensor_of_several_runs_conform() {
    let shard = ShardBuilder::new()
        .pattern("before", "U8", &[3])
        .pattern("large", "U64", &[5120, 2048])
        .pattern("after", "F32", &[1000, 100]);
    const { assert!(5120 * 2048 * 8 > 64 * MIB) };
    let wanted: [(&str, Option<Dims>); 3] = [
        ("after", Some(vec![vec![10..900], vec![25..50]])),
        ("large", Some(vec![vec![0..5120], vec![512..1024]])),
        ("before", None),
    ];
    assert_slices(&single(shard), wanted, &[1, 3]);
}

#[test]
fn slices_across_the_boundaries_of_requests_conform() {
    let shard = ShardBuilder::new().pattern("odd", "U8", &[5]).pattern("t", "U64", &[4000, 1000]);
    let slices: [Dims; 5] = [
        // Rows, of which the cuts of requests are not.
        vec![vec![1..3999]],
        // Rows with gaps wider than a request.
        vec![vec![0..3, 2500..2503, 3999..4000]],
        // Narrow columns, of which every row is read through.
        vec![vec![0..4000], vec![0..1, 999..1000]],
        // Half a row, then half the next.
        vec![vec![0..4000], vec![500..1000]],
        vec![vec![0..1, 1..2000, 2001..4000], vec![1..999]],
    ];
    let files = single(shard).temp();
    let oracle = Oracle::open(&files);
    for dims in slices {
        let expected = Expected::slices(&oracle, [("t", Some(dims)), ("odd", None)]);
        assert_all_ways(files.path(), &expected, &[2]);
    }
}

#[test]
fn every_second_of_many_small_tensors_conforms() {
    let shard = |from: u64| {
        (from..from + 1500).fold(ShardBuilder::new().header_padding(1), |shard, number| {
            shard.pattern(&format!("{number:05}"), "U8", &[number * 7 % 6000])
        })
    };
    let files = Checkpoint::new().shard(FIRST, shard(0)).shard(SECOND, shard(1500)).temp();
    let oracle = Oracle::open(&files);
    for first in [0, 1] {
        let names = oracle.names().into_iter().skip(first).step_by(2);
        assert_all_ways(files.path(), &Expected::new(&oracle, names), &[1, 2]);
    }
}

/// The slice is read by position where whole tensors lie in the mapping, unless it lies in one piece.
#[test]
fn of_a_mapped_model_slices_in_one_piece_lie_in_the_mapping_and_others_in_memory() {
    let shard = ShardBuilder::new().pattern("a", "F32", &[8, 8]).pattern("b", "F32", &[8, 8]);
    let files = single(shard).temp();
    let options = LoadOptions::default().mode(ReadMode::Mapped);
    let selection = open(&files)
        .select()
        .slice("a", [2..4])
        .unwrap()
        .slice("b", [Intervals::from(..), (..4).into()])
        .unwrap();
    let mapped = |loaded: weightmap::Loaded| {
        loaded.tensors().iter().map(weightmap::Tensor::is_mapped).collect::<Vec<_>>()
    };
    assert_eq!(mapped(selection.load_with(&options).unwrap()), [true, false]);
    let wanted: [(&str, Option<Dims>); 2] =
        [("a", Some(vec![vec![2..4]])), ("b", Some(vec![vec![0..8], vec![0..4]]))];
    assert_load(&open(&files), &Expected::slices(&Oracle::open(&files), wanted), &options);
}
