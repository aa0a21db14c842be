//! Distributed checkpoints: tensors in pieces, each rank's in a file of its own.
#![expect(clippy::single_range_in_vec_init, reason = "a place has a range for each dimension, mostly one")]

mod loading;

use std::path::{Path, PathBuf};

use serde_json::json;
use weightmap::{Check, Error, OpenOptions, ShardedModel, check};
use weightmap_testkit::{Distributed, Llama, Mesh, Oracle, TempModel, byte_len};

use crate::support::{assert_is, assert_says, open, open_error};

fn name(rank: u64) -> String {
    Distributed::file_name(rank, 1, 1)
}

fn checked(path: impl AsRef<Path>) -> Check {
    check(path, &OpenOptions::default()).unwrap()
}

/// The matrix `a` in two pieces, and `b` whole.
fn two_ranks() -> Distributed {
    Distributed::new(2).sharded("a", "F32", &[4, 6], &[(0, 2)]).whole(2, "b", "U8", &[3])
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/dcp").join(path)
}

#[test]
fn a_model_that_ranks_have_saved_opens_as_whole_tensors() {
    let llama = Llama::tiny();
    let meshes: [Mesh<'_>; 4] = [&[(0, 5)], &[(1, 4)], &[(0, 2), (1, 3)], &[(0, 1)]];
    for mesh in meshes {
        let files = Distributed::of_llama(&llama, mesh).checkpoint().temp();
        let model = open(&files);
        assert_eq!(model.shards().len() as u64, mesh.iter().map(|(_, parts)| parts).product::<u64>());
        assert_eq!(model.len(), llama.tensors().len());
        for (name, shape) in llama.tensors() {
            let info = model.tensor(&name).unwrap();
            assert_eq!(
                (info.shape.as_slice(), info.len_bytes()),
                (&*shape, byte_len("BF16", &shape)),
                "{name}"
            );
        }
        assert!(model.warnings().is_empty(), "{:?}", model.warnings());
        let check = checked(&files);
        assert!(check.is_sound() && check.warnings.is_empty(), "{check:?}");
        assert_eq!((check.tensors, check.shards), (model.len(), model.shards().len()));
    }
}

#[test]
fn what_pytorch_has_saved_opens_as_the_tensors_that_it_saved() {
    let oracle = Oracle::open(data("whole.safetensors"));
    for folder in ["one", "three"] {
        let model = open(data(folder));
        let mut names: Vec<_> = model.names().collect();
        names.sort_unstable();
        assert_eq!(names, oracle.names());
        for name in names {
            let (info, expected) = (model.tensor(name).unwrap(), oracle.tensor(name));
            assert_eq!((info.dtype.name(), &info.shape), (&*expected.dtype, &expected.shape), "{name}");
            assert_eq!(info.len_bytes(), expected.bytes.len() as u64, "{name}");
        }
        assert!(checked(data(folder)).is_sound());
        // These lie whole in one file, though `few` has an empty piece in another.
        let whole = ["int.buffer", "norm.weight", "plain.weight", "scalar", "empty.weight", "fp8.weight"];
        let loaded = model.select().names(whole).unwrap().load().unwrap();
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
    }
}

#[test]
fn a_tensor_is_found_in_the_shard_of_its_first_piece() {
    let place = |rank: u64| [0..4, 3 * (2 - rank)..3 * (3 - rank)];
    let files = Distributed::new(2)
        .piece(1, "a", "F32", &[4, 6], &place(1))
        .piece(2, "a", "F32", &[4, 6], &place(2))
        .checkpoint()
        .temp();
    let model = open(&files);
    assert_eq!(model.tensor("a").unwrap().shard.as_str(), name(2));
    assert_eq!(model.index().find("a").and_then(|tensor| model.index().shard_of(tensor)), Some(1));
    assert_eq!(model.shards().len(), 2);
}

#[test]
fn a_slice_is_one_of_the_whole() {
    let files = two_ranks().checkpoint().temp();
    let infos = open(&files).select().slice("a", [1..4]).unwrap().infos().unwrap();
    assert_eq!(infos[0].shape, [3, 6]);
    let error = open(&files).select().slice("a", [1..5]).unwrap().infos().unwrap_err();
    assert_eq!(error.kind(), "SliceOutOfRange");
}

#[test]
fn there_is_no_view_of_a_tensor_in_pieces() {
    let files = two_ranks().checkpoint().temp();
    let model = open(&files);
    let error = model.view("a").unwrap_err();
    assert_eq!(
        (error.kind(), error.tensor(), error.path()),
        ("TensorInPieces", Some("a"), Some(files.path()))
    );
    assert_says(&error, &["2 pieces", "load it"]);
    let oracle = Oracle::open(files.file(&name(2)));
    assert_eq!(model.view("b").unwrap().bytes(), oracle.tensor("b").bytes);
}

#[test]
fn files_of_a_rank_that_had_nothing_to_write_need_not_be_there() {
    let files = Distributed::new(3)
        .file(1, 2)
        .whole(1, "a", "U8", &[2])
        .whole(2, "b", "U8", &[2])
        .file(2, 2)
        .sharded("c", "U8", &[6], &[(0, 3)])
        .checkpoint()
        .temp();
    assert!(!files.file(&Distributed::file_name(3, 1, 2)).exists());
    assert_eq!(open(&files).len(), 3);
}

#[test]
fn ranks_that_are_missing_are_an_error_unless_they_may_be() {
    let places = Distributed::new(4).whole(1, "a", "U8", &[2]).whole(4, "b", "U8", &[2]);
    let files = places.checkpoint().temp();
    let error = open_error(&files);
    assert_eq!(error.kind(), "IncompleteFamily");
    assert_says(&error, &[&name(1), "missing ranks: 2, 3"]);
    let model = ShardedModel::options().allow_missing(true).open(&files).unwrap();
    assert_eq!((model.len(), model.warnings()[0].kind), (2, "MissingShards"));
    let check = checked(&files);
    assert_eq!(check.faults.iter().map(Error::kind).collect::<Vec<_>>(), ["IncompleteFamily"]);
    assert!(check.warnings.is_empty(), "{:?}", check.warnings);
}

#[test]
fn a_number_that_no_rank_has_written_is_an_error() {
    let files = Distributed::new(1).file(2, 3).whole(1, "a", "U8", &[2]).checkpoint().temp();
    assert_says(&open_error(&files), &["missing numbers: 1, 3"]);
}

#[test]
fn what_a_missing_rank_takes_from_a_tensor_is_a_hole() {
    let checkpoint = Distributed::new(3).sharded("a", "U8", &[6, 2], &[(0, 3)]).checkpoint();
    let files = checkpoint.omit_shard(&name(1)).temp();
    let error = ShardedModel::options().allow_missing(true).open(&files).unwrap_err();
    assert_eq!((error.kind(), error.tensor()), ("PieceHole", Some("a")));
    assert_says(&error, &["2 pieces have 8 of the 12 elements of its shape [6, 2]"]);
}

/// Asserts the one fault of a checkpoint, and that `check` lists it.
fn assert_fault(files: &TempModel, kind: &str, tensor: Option<&str>, says: &[&str]) {
    let error = open_error(files);
    assert_eq!((error.kind(), error.tensor(), error.path()), (kind, tensor, Some(files.path())), "{error}");
    assert_says(&error, &["(DCP)"]);
    assert_says(&error, says);
    let faults = checked(files).faults;
    assert_eq!(faults.iter().map(Error::to_string).collect::<Vec<_>>(), [error.to_string()]);
}

#[test]
fn an_info_that_is_no_json_object_is_an_error() {
    for text in ["", "{", "[]", r#"{"a"}"#] {
        let files = two_ranks().info(2, text).checkpoint().temp();
        assert_fault(&files, "ShardingInfo", None, &[&name(2), "DCP_SHARDING_INFO"]);
    }
}

#[test]
fn an_info_of_a_tensor_that_is_not_there_is_an_error() {
    let files = two_ranks().offsets(2, "c", json!([0])).checkpoint().temp();
    assert_fault(&files, "PieceNotInShard", Some("c"), &[&name(2), "does not list"]);
}

#[test]
fn offsets_that_are_no_whole_numbers_are_an_error() {
    let huge: serde_json::Value = serde_json::from_str("[99999999999999999999, 0]").unwrap();
    for offsets in [json!([-2, 0]), json!([2.5, 0]), huge, json!([[2], [0]]), json!("2, 0"), json!(null)] {
        let files = two_ranks().offsets(2, "a", offsets).checkpoint().temp();
        assert_fault(&files, "PieceOffsets", Some("a"), &[&name(2), "whole numbers"]);
    }
}

#[test]
fn offsets_of_more_or_fewer_dimensions_are_an_error() {
    let files = two_ranks().offsets(2, "a", json!([2, 0, 0])).checkpoint().temp();
    assert_fault(&files, "PieceOffsets", Some("a"), &[&name(2), "2 dimensions and 3 offsets"]);
}

#[test]
fn offsets_beyond_64_bits_are_an_error() {
    let files = two_ranks().offsets(2, "a", json!([u64::MAX, 0])).checkpoint().temp();
    assert_fault(&files, "PieceOverflow", Some("a"), &[&name(2), "64 bits"]);
}

#[test]
fn pieces_of_two_types_are_an_error() {
    let files = Distributed::new(2)
        .piece(1, "a", "F32", &[4], &[0..2])
        .piece(2, "a", "I32", &[4], &[2..4])
        .checkpoint()
        .temp();
    assert_fault(&files, "PieceDtype", Some("a"), &[&name(1), "F32", &name(2), "I32"]);
}

#[test]
fn pieces_of_different_dimensions_are_an_error() {
    let files = Distributed::new(2)
        .piece(1, "a", "F32", &[4], &[0..2])
        .piece(2, "a", "F32", &[4, 1], &[2..4, 0..1])
        .checkpoint()
        .temp();
    assert_fault(&files, "PieceDims", Some("a"), &[&name(1), "1 dimension ", &name(2), "2"]);
}

#[test]
fn pieces_that_overlap_are_an_error_be_they_the_same() {
    for second in [0..2, 1..3] {
        let files = Distributed::new(2)
            .piece(1, "a", "U8", &[3], &[0..2])
            .piece(2, "a", "U8", &[3], &[second])
            .checkpoint()
            .temp();
        assert_fault(&files, "PieceOverlap", Some("a"), &[&name(1), "[0:2]", &name(2)]);
    }
}

#[test]
fn pieces_that_leave_a_hole_are_an_error() {
    let files = two_ranks().offsets(2, "a", json!([3, 0])).checkpoint().temp();
    assert_fault(&files, "PieceHole", Some("a"), &["24 of the 30 elements of its shape [5, 6]"]);
}

#[test]
fn a_piece_without_offsets_is_an_error_and_a_whole_tensor_needs_none() {
    let files = two_ranks().without_info(2).checkpoint().temp();
    assert_fault(&files, "PieceWithoutOffsets", Some("a"), &["2 files", &name(2)]);
    let files = Distributed::new(2).whole(1, "a", "U8", &[4]).whole(2, "b", "U8", &[3]).without_info(2);
    assert_eq!(open(&files.checkpoint().temp()).tensor("b").unwrap().shape, [3]);
}

#[test]
fn all_faults_come_at_once_and_each_by_itself() {
    let files = Distributed::new(2)
        .piece(1, "a", "U8", &[4], &[0..1])
        .piece(2, "a", "U8", &[4], &[2..4])
        .piece(1, "b", "U8", &[4], &[1..4])
        .checkpoint()
        .temp();
    let error = open_error(&files);
    assert_says(&error, &["2 faults", "tensor \"a\"", "tensor \"b\""]);
    assert_eq!(error.tensor(), None);
    let each: Vec<_> =
        error.into_each().iter().filter_map(|error| error.tensor().map(str::to_owned)).collect();
    assert_eq!(each, ["a", "b"]);
}

#[test]
fn a_shard_that_is_damaged_is_named() {
    let files = two_ranks().checkpoint().temp();
    weightmap_testkit::damage::truncate(files.file(&name(2)), 100);
    let error = open_error(&files);
    assert_eq!((error.kind(), error.path()), ("HeaderTruncated", Some(&*files.file(&name(2)))));
}

#[test]
fn one_file_of_a_rank_opens_as_what_it_has_with_a_warning() {
    let files = two_ranks().checkpoint().temp();
    let model = open(files.file(&name(1)));
    assert_eq!((model.tensor("a").unwrap().shape, model.warnings()[0].kind), (vec![2, 6], "RankFile"));
}
