//! What a lenient reader accepts beyond the format, how it tells, and that it accepts nothing else.

use std::path::Path;

use weightmap::{OpenOptions, ReadMode, ShardedModel, Warning, check};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel, damage};

use crate::support::{
    FIRST, SECOND, assert_error, assert_is, assert_says, in_mode, load_all, open_error, shard_of, two_shards,
};

const DCP: &str = "shard-00001-model-00001-of-00001.safetensors";

fn leniently() -> OpenOptions {
    ShardedModel::options().lenient(true)
}

fn open(path: impl AsRef<Path>) -> ShardedModel {
    leniently().open(path).expect("the model opens")
}

/// Kind and file of each warning.
fn told(warnings: &[Warning]) -> Vec<(&str, &str)> {
    let file = |warning: &Warning| warning.file.as_ref().unwrap().file_name().unwrap().to_owned();
    let files: Vec<_> = warnings.iter().map(|warning| (warning.kind, file(warning))).collect();
    let known = |file: &std::ffi::OsStr| {
        [FIRST, SECOND, DCP, "model.safetensors"].into_iter().find(|name| *name == file)
    };
    files.iter().map(|(kind, file)| (*kind, known(file).unwrap())).collect()
}

/// A file whose metadata has these values, and the tensor `t`.
fn with_metadata(values: &str) -> ShardBuilder {
    let header =
        format!(r#"{{"__metadata__":{values},"t":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}}"#);
    ShardBuilder::new().raw_header(header).data([1, 2, 3, 4])
}

#[test]
fn bytes_after_the_last_tensor_are_passed_over_in_every_mode_with_a_warning() {
    for more in [&b"x"[..], b"PK\x05\x06 a directory of a zip", &[0; 100_000]] {
        let files = two_shards().temp();
        let oracle = Oracle::open(&files);
        damage::append(files.file(SECOND), more);
        let error = ShardedModel::open(&files).unwrap().view("c").unwrap_err();
        assert_error(&error, "TrailingBytes", SECOND);
        assert_says(&error, &["OpenOptions::lenient", "--lenient", &more.len().to_string()]);

        for &mode in ReadMode::ALL {
            let model = open(&files);
            let loaded = load_all(&model, mode).unwrap();
            assert_eq!(loaded.tensors().len(), 4);
            loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
            assert_eq!(told(&loaded.report().warnings), [("TrailingBytesIgnored", SECOND)], "{mode}");
            let header = model.header(SECOND).unwrap();
            assert_eq!(header.trailing_bytes(), more.len() as u64);
            assert_eq!(header.data_bytes(), 7 + 18);
        }
    }
}

#[test]
fn values_of_the_metadata_that_are_no_strings_are_kept_as_their_text() {
    let values = r#"{"a": "text \u00e9", "step": 1e400, "list": [1, {"a": null}], "no": null, "yes":true }"#;
    let files = Checkpoint::single(with_metadata(values)).temp();
    let error = open_error(&files);
    assert_error(&error, "InvalidMetadataValue", "model.safetensors");
    assert_says(&error, &["\"step\"", "OpenOptions::lenient", "--lenient"]);

    let model = open(&files);
    let header = model.header("model.safetensors").unwrap();
    let expected = [
        ("a", "text é"),
        ("step", "1e400"),
        ("list", r#"[1, {"a": null}]"#),
        ("no", "null"),
        ("yes", "true"),
    ];
    assert_eq!(header.metadata().collect::<Vec<_>>(), expected);
    let loaded = load_all(&model, ReadMode::Auto).unwrap();
    assert_eq!(loaded.get("t").unwrap().bytes(), [1, 2, 3, 4]);
    assert_eq!(told(&loaded.report().warnings), [("MetadataValueAsText", "model.safetensors")]);
    let message = &loaded.report().warnings[0].message;
    assert!(message.contains("\"step\"") && message.ends_with(": 4"), "{message}");
}

#[test]
fn a_check_finds_both_sound_and_warns_of_each() {
    let odd = with_metadata(r#"{"n": 1}"#).append("more");
    let files = two_shards()
        .shard("model.safetensors", odd)
        .map("t", "model.safetensors")
        .index_metadata("total_size", 99 + 4)
        .temp();
    damage::append(files.file(FIRST), [0; 9]);
    let strict = check(&files, &ShardedModel::options()).unwrap();
    assert_eq!(strict.faults.len(), 2, "{:?}", strict.faults);
    let lenient = check(&files, &leniently()).unwrap();
    assert!(lenient.is_sound(), "{:?}", lenient.faults);
    let expected = [
        ("MetadataValueAsText", "model.safetensors"),
        ("TrailingBytesIgnored", FIRST),
        ("TrailingBytesIgnored", "model.safetensors"),
    ];
    let mut found = told(&lenient.warnings);
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_load_tells_of_the_shards_that_it_touches_and_of_no_others() {
    let files = two_shards().temp();
    damage::append(files.file(SECOND), "x");
    let model = open(&files);
    let report = |names: &[&str]| model.select().names(names).unwrap().load().unwrap().report().clone();
    assert_eq!(report(&["a"]).warnings, []);
    // Not only that of the first touch.
    for _ in 0..2 {
        assert_eq!(told(&report(&["a", "d"]).warnings), [("TrailingBytesIgnored", SECOND)]);
    }
    let mut stream = model.select().all().stream().unwrap();
    assert!(stream.by_ref().all(|tensor| tensor.is_ok()));
    assert_eq!(told(&stream.report().unwrap().warnings), [("TrailingBytesIgnored", SECOND)]);
}

#[test]
fn a_report_has_its_warnings_as_text_and_as_json() {
    let files = two_shards().temp();
    damage::append(files.file(SECOND), "x");
    let report = load_all(&open(&files), ReadMode::Auto).unwrap().report().clone();
    let text = report.to_string();
    assert!(text.lines().last().unwrap().starts_with("warning [TrailingBytesIgnored] "), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    let warning = json["warnings"][0].as_object().unwrap();
    assert_eq!(warning.keys().collect::<Vec<_>>(), ["file", "kind", "message", "tensor"]);
    assert_eq!((&warning["kind"], &warning["tensor"]), (&"TrailingBytesIgnored".into(), &().into()));
    assert_eq!(warning["file"], files.file(SECOND).to_str().unwrap());
}

#[test]
fn what_is_odd_and_no_matter_of_leniency_is_told_by_a_strict_load_too() {
    let odd = ShardBuilder::new().raw_header(r#" {"q":{"dtype":"Q8","shape":[1],"data_offsets":[0,2]}}"#);
    let files = Checkpoint::single(odd.data([0; 2])).temp();
    let report = load_all(&crate::support::open(&files), ReadMode::Auto).unwrap().report().clone();
    let kinds: Vec<_> = report.warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, ["LeadingWhiteSpace", "UnknownDtype"]);
}

#[test]
fn all_else_stays_an_error() {
    let header = |text: &str, data: usize| ShardBuilder::new().raw_header(text).data(vec![0; data]);
    let two = |one: (u64, u64), other: (u64, u64), data: usize| {
        let add =
            |shard: ShardBuilder, name, (begin, end)| shard.declare(name, "U8", &[end - begin], begin, end);
        add(add(ShardBuilder::new(), "s", one), "t", other).data(vec![0; data])
    };
    let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    for (shard, kind) in [
        (shard_of("t").truncate(0), "TooShort"),
        (shard_of("t").truncate(30), "HeaderTruncated"),
        (two((0, 4), (4, 8), 7), "Truncated"),
        (two((0, 4), (8, 12), 12), "Hole"),
        (two((4, 8), (8, 12), 12), "Hole"),
        (two((0, 4), (2, 6), 6), "Overlap"),
        (two((0, 4), (0, 4), 4), "Overlap"),
        (header(&format!(r#"{{"t":{entry},"\u0074":{entry}}}"#), 4), "DuplicateTensor"),
        (header(&format!(r#"{{"__metadata__":{{"a":1,"a":2}},"t":{entry}}}"#), 4), "DuplicateMetadataKey"),
        (header(&format!(r#"{{"__metadata__":[1],"t":{entry}}}"#), 4), "InvalidMetadata"),
        (header(&format!(r#"{{"__metadata__":"pt","t":{entry}}}"#), 4), "InvalidMetadata"),
        (
            header(&format!(r#"{{"__metadata__":{{}},"__metadata__":{{}},"t":{entry}}}"#), 4),
            "DuplicateMetadata",
        ),
        (header(&format!(r#"{{"__metadata__":{{"a":"\ud800"}},"t":{entry}}}"#), 4), "Json"),
        (header(&format!(r#"{{"__metadata__":{{"a":01}},"t":{entry}}}"#), 4), "Json"),
        (header(&format!(r#"{{"__metadata__":{{"a":[1,]}},"t":{entry}}}"#), 4), "Json"),
        (header(r#"{"t":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}}"#, 4), "SizeMismatch"),
        (header(r#"{"t":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}}"#, 4), "InvalidEntry"),
        (header(r#"{"t":["U8",[4],[0,4]]}"#, 4), "InvalidEntry"),
        (header(&format!(r#"{{"t":{entry}}}x"#), 4), "Json"),
        (header(&format!("\u{feff}{{\"t\":{entry}}}"), 4), "ByteOrderMark"),
    ] {
        let files = Checkpoint::single(shard).temp();
        let error = leniently().open(&files).map(drop).unwrap_err();
        assert_error(&error, kind, "model.safetensors");
    }
    let files = two_shards().omit_shard(SECOND).temp();
    assert_error(
        &leniently().open(&files).map(drop).unwrap_err(),
        "MissingShards",
        "model.safetensors.index.json",
    );
    let files = two_shards().index_text(r#"{"weight_map": {"a": "../x.safetensors"}}"#).temp();
    assert_eq!(leniently().open(&files).map(drop).unwrap_err().kind(), "UnsafeShardName");
}

#[test]
fn shards_that_may_be_missing_are_a_matter_of_their_own() {
    let files = two_shards().omit_shard(FIRST).temp();
    damage::append(files.file(SECOND), "x");
    let both = leniently().allow_missing(true).open(&files).unwrap();
    assert_eq!(both.view("c").unwrap().bytes(), weightmap_testkit::pattern::bytes("c", 7));
    let missing = ShardedModel::options().allow_missing(true).open(&files).unwrap();
    assert_error(&missing.view("c").unwrap_err(), "TrailingBytes", SECOND);
}

#[test]
fn a_family_without_an_index_and_a_single_file_are_read_leniently_too() {
    let family = two_shards().without_index().temp();
    let oracle = Oracle::open(&family);
    damage::append(family.file(FIRST), "more");
    assert_error(&open_error(&family), "TrailingBytes", FIRST);
    let model = open(&family);
    let loaded = load_all(&model, ReadMode::Buffered).unwrap();
    loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
    assert_eq!(open(family.file(FIRST)).view("a").unwrap().bytes(), oracle.tensor("a").bytes);
}

#[test]
fn pieces_of_a_distributed_checkpoint_whose_offsets_are_no_text_are_put_together() {
    let info = r#"{"DCP_SHARDING_INFO": {"t": {"saved_offsets": [0]}}}"#;
    let files = TempModel::empty();
    with_metadata(info).append("more").write(files.file(DCP)).unwrap();
    assert_error(&open_error(&files), "InvalidMetadataValue", DCP);
    let model = open(&files);
    let loaded = load_all(&model, ReadMode::Auto).unwrap();
    assert_eq!(loaded.get("t").unwrap().bytes(), [1, 2, 3, 4]);
    let expected = [("TrailingBytesIgnored", DCP), ("MetadataValueAsText", DCP)];
    assert_eq!(told(&loaded.report().warnings), expected);
}

#[test]
fn a_file_with_more_bytes_that_changes_is_found_all_the_same() {
    for &mode in ReadMode::ALL {
        for change in [
            |path: &Path| damage::append(path, "y"),
            |path: &Path| damage::truncate(path, path.metadata().unwrap().len() - 1),
        ] {
            let files = two_shards().temp();
            damage::append(files.file(SECOND), "xx");
            let model = open(&files);
            model.tensor("c").unwrap();
            change(&files.file(SECOND));
            let error = model.select().names(["c"]).unwrap().load_with(&in_mode(mode)).unwrap_err();
            assert_error(&error, "ShardChanged", SECOND);
            model.release(SECOND).unwrap();
            assert_error(&model.tensor("c").unwrap_err(), "ShardChanged", SECOND);
        }
    }
}
