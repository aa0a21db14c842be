//! One suite over all read paths: the same bytes, in the order asked for, each tensor once.

mod expected;
mod slices;

use proptest::prelude::*;
use weightmap::{LoadOptions, ReadMode};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, byte_len};

use expected::{
    Dims, Expected, assert_conforms_with, assert_load, assert_load_into, assert_stream, assert_views,
};

use crate::support::{FIRST, SECOND, open, two_shards};

const MIB: u64 = 1 << 20;

/// Every type of the format.
const DTYPES: [&str; 22] = [
    "F4",
    "F6_E2M3",
    "F6_E3M2",
    "BOOL",
    "U8",
    "I8",
    "F8_E5M2",
    "F8_E4M3",
    "F8_E8M0",
    "F8_E4M3FNUZ",
    "F8_E5M2FNUZ",
    "I16",
    "U16",
    "F16",
    "BF16",
    "I32",
    "U32",
    "F32",
    "C64",
    "F64",
    "I64",
    "U64",
];

/// Asserts that all ways of reading a whole checkpoint agree with the oracle.
fn assert_conforms(checkpoint: &Checkpoint) {
    assert_conforms_with(checkpoint, &[1, 2, 7]);
}

fn single(shard: ShardBuilder) -> Checkpoint {
    Checkpoint::single(shard)
}

#[test]
fn two_shards_conform() {
    assert_conforms(&two_shards());
}

#[test]
fn every_dtype_conforms() {
    let add = |shard: ShardBuilder, dtype: &&str| shard.pattern(dtype, dtype, &[3, 8]);
    assert_conforms(&single(DTYPES.iter().fold(ShardBuilder::new(), add)));
    assert_eq!(weightmap::Dtype::known().map(|dtype| dtype.name().to_owned()).collect::<Vec<_>>(), DTYPES);
}

#[test]
fn a_dtype_that_is_not_known_is_had_as_raw_bytes() {
    let shard = ShardBuilder::new().tensor("q", "Q8_0", &[7], *b"unknown bytes").pattern("a", "F32", &[2]);
    assert_conforms(&single(shard));
}

#[test]
fn scalars_conform() {
    assert_conforms(&single(ShardBuilder::new().pattern("a", "F32", &[]).pattern("b", "U8", &[]).pattern(
        "c",
        "I64",
        &[],
    )));
}

#[test]
fn tensors_without_elements_conform_wherever_they_stand() {
    let shard = ShardBuilder::new()
        .zeros("first", "F32", &[0])
        .pattern("a", "U8", &[3])
        .zeros("between", "F64", &[2, 0])
        .zeros("again", "F64", &[1 << 63, 1 << 63, 0])
        .pattern("b", "U8", &[5])
        .zeros("last", "I8", &[0, u64::MAX]);
    assert_conforms(&single(shard));
    assert_conforms(&single(ShardBuilder::new().zeros("only", "F32", &[0])));
}

#[test]
fn a_file_without_tensors_conforms() {
    assert_conforms(&single(ShardBuilder::new().metadata("format", "pt")));
}

#[test]
fn data_that_begins_at_any_offset_conforms() {
    for padding in 0..8 {
        let shard =
            ShardBuilder::new().header_padding(padding).pattern("a", "F64", &[5]).pattern("b", "F32", &[3]);
        assert_conforms(&single(shard));
    }
}

#[test]
fn tensors_at_odd_offsets_conform() {
    let shard = ShardBuilder::new()
        .pattern("a", "U8", &[3])
        .pattern("b", "F64", &[2])
        .pattern("c", "U8", &[1])
        .pattern("d", "C64", &[2]);
    assert_conforms(&single(shard));
}

#[test]
fn five_thousand_small_tensors_conform() {
    let shard = |from: u64| {
        (from..from + 2500).fold(ShardBuilder::new(), |shard, number| {
            shard.pattern(&format!("layer.{number}"), "U8", &[number % 61])
        })
    };
    assert_conforms(&Checkpoint::new().shard(FIRST, shard(0)).shard(SECOND, shard(2500)));
}

#[test]
fn tensors_about_the_size_of_a_request_conform() {
    let sizes = [8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 1, MIB - 1, MIB, MIB + 1, 16 * MIB + 1];
    let add = |shard: ShardBuilder, (number, size): (usize, &u64)| {
        shard.pattern(&format!("t{number}"), "U8", &[*size])
    };
    assert_conforms(&single(sizes.iter().enumerate().fold(ShardBuilder::new().header_padding(3), add)));
}

#[test]
fn tensors_about_the_size_of_an_extent_conform() {
    let sizes = [64 * MIB - 1, 64 * MIB, 64 * MIB + 1, 5];
    let add = |shard: ShardBuilder, (number, size): (usize, &u64)| {
        shard.pattern(&format!("t{number}"), "U8", &[*size])
    };
    let shard = sizes.iter().enumerate().fold(ShardBuilder::new().header_padding(1), add);
    assert_conforms_with(&single(shard), &[2]);
}

#[test]
fn neighbours_about_a_page_apart_conform_when_only_some_are_asked_for() {
    let sizes = [4095, 4096, 4097, 1, 8192, 100, 4096, 3, 12_289];
    let add = |shard: ShardBuilder, (number, size): (usize, &u64)| {
        shard.pattern(&format!("t{number}"), "U8", &[*size])
    };
    let model = single(sizes.iter().enumerate().fold(ShardBuilder::new(), add)).temp();
    let oracle = Oracle::open(&model);
    for chosen in 0..1_u32 << sizes.len() {
        let names = oracle.names().into_iter().enumerate().filter(|(place, _)| chosen >> place & 1 == 1);
        let expected = Expected::new(&oracle, names.map(|(_, name)| name));
        let mode = ReadMode::ALL[chosen as usize % ReadMode::ALL.len()];
        assert_load(&open(&model), &expected, &LoadOptions::default().mode(mode).workers(2));
    }
}

#[test]
fn overlaid_shards_conform_by_the_index() {
    let overlaid =
        two_shards().shard("overlay.safetensors", ShardBuilder::new().tensor("a", "U8", &[3], *b"new"));
    assert_conforms(&overlaid);
    assert_conforms(&overlaid.map("a", FIRST).map("b", FIRST));
}

#[test]
fn tensors_that_the_index_does_not_list_are_not_there() {
    let checkpoint = two_shards().unmap("b").unmap("c");
    assert_conforms(&checkpoint);
    let model = checkpoint.temp();
    assert_eq!(open(&model).names().collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!(open(&model).tensor("b").unwrap_err().kind(), "UnknownTensors");
}

#[test]
fn shards_in_folders_with_equal_file_names_conform() {
    let shard = |tensor: &str| ShardBuilder::new().pattern(tensor, "F32", &[9]);
    assert_conforms(
        &Checkpoint::new()
            .shard("text/model.safetensors", shard("t"))
            .shard("vision/model.safetensors", shard("v")),
    );
}

#[test]
fn names_of_any_characters_conform() {
    let names =
        ["", "é\u{301}", "\u{1b}[2J", "a\0b", "../../etc/passwd", "\"\\", "\u{10ffff}", "__metadata", "*"];
    let add = |shard: ShardBuilder, name: &&str| shard.pattern(name, "U8", &[2]);
    assert_conforms(&Checkpoint::new().shard(FIRST, names.iter().fold(ShardBuilder::new(), add)));
}

/// A tensor of a random checkpoint: type, outer dimensions, shard, and what is asked of it: nothing (0), all (1),
/// or a slice by the numbers for each dimension.
type Random = (&'static str, Vec<u64>, usize, u8, Vec<Vec<u64>>);

/// Ranges of a dimension, by numbers of any size: cuts at multiples of `step`.
fn ranges(len: u64, step: u64, numbers: &[u64]) -> Vec<std::ops::Range<u64>> {
    let mut cuts: Vec<_> = numbers.iter().map(|number| number % (len / step + 1) * step).collect();
    cuts.sort_unstable();
    cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
}

/// A checkpoint of up to four shards, and the tensors and slices to ask for, in any order.
fn checkpoints() -> impl Strategy<Value = (Checkpoint, Vec<(String, Option<Dims>)>)> {
    let numbers = prop::collection::vec(prop::collection::vec(any::<u64>(), 0..6), 0..=4);
    let tensor = (
        prop::sample::select(&DTYPES[..]),
        prop::collection::vec(0..5_u64, 0..=3),
        0..4_usize,
        0..4_u8,
        numbers,
    );
    let shards = (prop::collection::vec(tensor, 1..40), prop::collection::vec(0..9_usize, 4));
    let built = shards.prop_map(|(tensors, padding): (Vec<Random>, _)| {
        let mut shards: Vec<_> =
            padding.into_iter().map(|spaces| ShardBuilder::new().header_padding(spaces)).collect();
        let mut wanted = Vec::new();
        for (number, (dtype, mut shape, shard, asked, numbers)) in tensors.into_iter().enumerate() {
            // Eight elements fill whole bytes, and so do four, whatever the type.
            shape.push(8);
            let name = format!("{number}.{dtype}");
            shards[shard] = shards[shard].clone().pattern(&name, dtype, &shape);
            let dims = shape.iter().enumerate().zip(numbers).map(|((dim, &len), numbers)| {
                let step = if dim + 1 == shape.len() && byte_len(dtype, &[8]) < 8 { 4 } else { 1 };
                ranges(len, step, &numbers)
            });
            match asked {
                0 => {}
                1 => wanted.push((name, None)),
                _ => wanted.push((name, Some(dims.collect()))),
            }
        }
        let add = |checkpoint: Checkpoint, (number, shard): (usize, ShardBuilder)| {
            checkpoint.shard(&format!("{number}.safetensors"), shard)
        };
        (shards.into_iter().enumerate().fold(Checkpoint::new(), add), wanted)
    });
    built.prop_flat_map(|(checkpoint, wanted)| (Just(checkpoint), Just(wanted).prop_shuffle()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_selection_of_any_checkpoint_conforms(
        (checkpoint, wanted) in checkpoints(),
        mode in prop::sample::select(ReadMode::ALL),
        workers in 1..5_usize,
    ) {
        let model = checkpoint.temp();
        let wanted = wanted.iter().map(|(name, dims)| (name.as_str(), dims.clone()));
        let expected = Expected::slices(&Oracle::open(&model), wanted);
        let opened = open(&model);
        let options = LoadOptions::default().mode(mode).workers(workers);
        assert_stream(&opened, &expected, &options);
        assert_load(&opened, &expected, &options);
        assert_load_into(&opened, &expected, &options);
        assert_views(&opened, &expected);
        let infos = expected.selection(&opened).infos().unwrap();
        prop_assert_eq!(infos.iter().map(|info| byte_len(info.dtype.name(), &info.shape)).sum::<u64>(), expected.bytes());
    }
}
