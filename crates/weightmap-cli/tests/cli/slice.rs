//! `--slice`, which `load`, `ls` and `prefetch` share.

use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

use crate::load::digest;
use crate::{args, weightmap};

/// A matrix of 4 rows of 6 bytes, one whose name has brackets, and a scalar.
fn matrices() -> TempModel {
    let shard = ShardBuilder::new().pattern("m", "U8", &[4, 6]).pattern("blocks[0].w", "U8", &[4]);
    Checkpoint::single(shard.pattern("scalar", "F32", &[])).temp()
}

#[test]
fn the_bytes_of_a_slice_are_those_of_its_rows_and_columns() {
    let model = matrices();
    let bytes = Oracle::open(model.path()).tensor("m").bytes.to_vec();
    let wanted: Vec<_> =
        [1, 2].iter().flat_map(|row| [0, 1, 4, 5].map(|column| bytes[row * 6 + column])).collect();
    for mode in ["auto", "mapped", "buffered", "direct"] {
        for stream in [None, Some("--stream")] {
            let arguments = args![
                "load",
                model.path(),
                "--slice",
                "m[1:3,0:2+4:6]",
                "--mode",
                mode,
                "--digest",
                "--json"
            ];
            let json = weightmap(arguments.into_iter().chain(stream.map(std::ffi::OsStr::new))).json();
            assert_eq!(json["digests"], serde_json::json!({"m": digest(&wanted)}), "{mode} {stream:?}");
            assert_eq!(json["runs"][0]["requested_bytes"], 8);
        }
    }
}

#[test]
fn a_slice_narrows_what_is_selected_and_is_added_to_it_otherwise() {
    let model = matrices();
    let listed = |options: &[&str]| {
        let arguments = args!["ls", model.path()].into_iter().chain(options.iter().map(std::ffi::OsStr::new));
        let text = weightmap(arguments).ok();
        let rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        rows.map(|cells| format!("{} {} {}", cells[0], cells[2], cells[4])).collect::<Vec<_>>()
    };
    assert_eq!(listed(&["--slice", "m[3]"]), ["m [1, 6] 6"]);
    assert_eq!(
        listed(&["--select", "*", "--slice", "m[:, 0:2]"]),
        ["m [4, 2] 8", "blocks[0].w [4] 4", "scalar [] 4"]
    );
    assert_eq!(
        listed(&["--select", "scalar", "--slice", "blocks[0].w[2:]"]),
        ["scalar [] 4", "blocks[0].w [2] 2"]
    );
}

#[test]
fn a_slice_that_cannot_be_taken_is_an_error_that_says_why() {
    let model = matrices();
    for (slice, message) in [
        ("m[0:5]", "tensor \"m\" of shape [4, 6]: dimension 0 has length 4, and 0:5 is beyond it"),
        ("scalar[:]", "intervals for 1 dimensions, and the shape is []"),
        ("blocks[1].w[0]", "no tensor \"blocks[1].w\"; nearest: \"blocks[0].w\""),
    ] {
        let stderr = weightmap(args!["load", model.path(), "--slice", slice]).failure(1);
        assert!(stderr.contains(message), "{stderr}");
    }
}

#[test]
fn a_pattern_in_place_of_the_name_has_a_hint() {
    let model = matrices();
    let stderr = weightmap(args!["ls", model.path(), "--slice", "*.weight[0]"]).failure(1);
    assert!(stderr.contains("hint: patterns are for `--select`"), "{stderr}");
}

#[test]
fn text_that_is_no_slice_has_status_2_and_says_how_to_write_one() {
    let model = matrices();
    for (slice, message) in
        [("m", "such as model.norm.weight[0:16]"), ("m[0:8:2]", "\"0:8:2\" is no interval")]
    {
        let stderr = weightmap(args!["load", model.path(), "--slice", slice]).failure(2);
        assert!(stderr.contains(message), "{stderr}");
    }
}
