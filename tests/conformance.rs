//! One suite over all read paths: the same bytes, in the order asked for, each tensor once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weightmap::{LoadOptions, ReadMode, Selection, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, OracleTensor, ShardBuilder, byte_len};

use crate::support::{FIRST, SECOND, open, two_shards};

const WORKERS: [usize; 3] = [1, 2, 7];
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

/// The tensors that are asked for, by name, in the order in which they are.
struct Expected {
    tensors: Vec<(String, OracleTensor)>,
}

impl Expected {
    fn new<'a>(oracle: &Oracle, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self { tensors: names.into_iter().map(|name| (name.to_owned(), oracle.tensor(name))).collect() }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name.as_str())
    }

    fn bytes(&self) -> u64 {
        self.tensors.iter().map(|(_, tensor)| tensor.bytes.len() as u64).sum()
    }

    fn selection(&self, model: &ShardedModel) -> Selection {
        model.select().allow_empty().names(self.names()).unwrap()
    }
}

/// Asserts that name, type, shape, shard, range and bytes are those of the oracle.
macro_rules! assert_same {
    ($found:expr, $expected:expr) => {{
        let (found, (name, expected)) = ($found, $expected);
        let info = found.info();
        assert_eq!((found.name(), info.name.as_str()), (name.as_str(), name.as_str()));
        assert_eq!(
            (found.dtype().name(), found.shape()),
            (expected.dtype.as_str(), &*expected.shape),
            "{name:?}"
        );
        assert_eq!(
            (info.shard.as_str(), &info.range),
            (expected.shard.as_str(), &expected.range),
            "{name:?}"
        );
        assert!(found.bytes() == expected.bytes, "{name:?} has other bytes");
    }};
}

fn assert_views(model: &ShardedModel, expected: &Expected) {
    for tensor in &expected.tensors {
        assert_same!(&model.view(&tensor.0).unwrap(), tensor);
    }
}

fn assert_load(model: &ShardedModel, expected: &Expected, options: &LoadOptions) {
    let loaded = expected.selection(model).load_with(options).unwrap();
    assert_eq!(loaded.tensors().len(), expected.tensors.len());
    for (found, tensor) in loaded.tensors().iter().zip(&expected.tensors) {
        assert_same!(found, tensor);
        assert!(std::ptr::eq(loaded.get(&tensor.0).unwrap(), found));
    }
    assert_eq!(loaded.report().requested_bytes, expected.bytes());
    assert_eq!(loaded.report().tensors, expected.tensors.len() as u64);
}

fn assert_stream(model: &ShardedModel, expected: &Expected, options: &LoadOptions) {
    let mut left: BTreeMap<&str, _> =
        expected.tensors.iter().map(|tensor| (tensor.0.as_str(), tensor)).collect();
    let mut stream = expected.selection(model).stream_with(options).unwrap();
    for found in stream.by_ref() {
        let found = found.unwrap();
        assert_same!(&found, left.remove(found.name()).expect("asked for, and not given before"));
    }
    assert!(left.is_empty(), "not given: {:?}", left.keys());
    assert_eq!(stream.report().unwrap().requested_bytes, expected.bytes());
}

/// Asserts that all ways to read a checkpoint agree with the oracle.
fn assert_conforms(checkpoint: &Checkpoint) {
    let model = checkpoint.temp();
    let oracle = Oracle::open(&model);
    // Neither the order of the index nor that of the files.
    let (odd, even): (Vec<_>, Vec<_>) =
        oracle.names().into_iter().enumerate().partition(|(place, _)| place % 2 == 1);
    let expected =
        Expected::new(&oracle, odd.into_iter().chain(even.into_iter().rev()).map(|(_, name)| name));
    let shared = open(&model);
    assert_eq!(shared.len(), expected.tensors.len());
    assert_views(&shared, &expected);
    for &mode in ReadMode::ALL {
        for workers in WORKERS {
            let options = LoadOptions::default().mode(mode).workers(workers);
            assert_load(&shared, &expected, &options);
            assert_stream(&open(&model), &expected, &options);
        }
    }
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
    assert_conforms(&single(sizes.iter().enumerate().fold(ShardBuilder::new().header_padding(1), add)));
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
        let mode = ReadMode::ALL[chosen as usize % 3];
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

/// A checkpoint of up to four shards, and the tensors to ask for, in any order.
fn checkpoints() -> impl Strategy<Value = (Checkpoint, Vec<String>)> {
    let tensor = (prop::sample::select(&DTYPES[..]), prop::collection::vec(0..5_u64, 0..3), 0..4_usize);
    let shards = (prop::collection::vec(tensor, 1..40), prop::collection::vec(0..9_usize, 4));
    let built = shards.prop_map(|(tensors, padding)| {
        let mut shards: Vec<_> =
            padding.into_iter().map(|spaces| ShardBuilder::new().header_padding(spaces)).collect();
        let mut names = Vec::new();
        for (number, (dtype, mut shape, shard)) in tensors.into_iter().enumerate() {
            // Eight elements fill whole bytes, whatever the type.
            shape.push(8);
            let name = format!("{number}.{dtype}");
            shards[shard] = shards[shard].clone().pattern(&name, dtype, &shape);
            names.push(name);
        }
        let add = |checkpoint: Checkpoint, (number, shard): (usize, ShardBuilder)| {
            checkpoint.shard(&format!("{number}.safetensors"), shard)
        };
        (shards.into_iter().enumerate().fold(Checkpoint::new(), add), names)
    });
    built.prop_flat_map(|(checkpoint, names)| {
        let count = names.len();
        (Just(checkpoint), prop::sample::subsequence(names, 0..=count).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_selection_of_any_checkpoint_conforms(
        (checkpoint, names) in checkpoints(),
        mode in prop::sample::select(ReadMode::ALL),
        workers in 1..5_usize,
    ) {
        let model = checkpoint.temp();
        let expected = Expected::new(&Oracle::open(&model), names.iter().map(String::as_str));
        let opened = open(&model);
        let options = LoadOptions::default().mode(mode).workers(workers);
        assert_stream(&opened, &expected, &options);
        assert_load(&opened, &expected, &options);
        assert_views(&opened, &expected);
        let requested: u64 = names.iter().map(|name| opened.tensor(name).unwrap()).map(|info| byte_len(info.dtype.name(), &info.shape)).sum();
        prop_assert_eq!(requested, expected.bytes());
    }
}
