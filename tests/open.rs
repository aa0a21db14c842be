//! Opening: which files a path means, what is read for it, and what the errors say.

use std::fs;
use std::path::PathBuf;

use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel, damage};

use crate::support::{
    FIRST, SECOND, assert_error, assert_says, load_all, open, open_error, shard_of, two_shards,
    within_a_minute,
};

pub(crate) const INDEX: &str = "model.safetensors.index.json";

fn names(model: &ShardedModel) -> Vec<&str> {
    model.names().collect()
}

/// The text of an index of one shard for each tensor.
fn index_text(lines: &[(&str, &str)]) -> String {
    let lines: Vec<_> = lines.iter().map(|(tensor, shard)| format!("{tensor:?}: {shard:?}")).collect();
    format!(r#"{{"weight_map": {{{}}}}}"#, lines.join(", "))
}

/// A directory with an index of this text, and a file for `shard`.
fn with_index(text: impl Into<Vec<u8>>) -> TempModel {
    Checkpoint::new().shard("x.safetensors", shard_of("x")).index_text(text).temp()
}

#[cfg(unix)]
#[test]
fn opening_needs_no_shard_to_be_right_or_even_a_file() {
    let model = two_shards().temp();
    damage::replace_by_fifo(model.file(FIRST));
    damage::replace(model.file(SECOND), "garbage");
    within_a_minute(move || {
        let opened = open(&model);
        assert_eq!(names(&opened), ["a", "b", "c", "d"]);
        assert_eq!(opened.shards().iter().map(|shard| shard.as_str()).collect::<Vec<_>>(), [FIRST, SECOND]);
        assert!(opened.contains("c") && !opened.contains("e"));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn opening_reads_no_more_than_the_index() {
    crate::support::alone("", || {
        let long = ShardBuilder::new().metadata("note", &"n".repeat(8 << 20)).pattern("a", "U8", &[1]);
        let model = Checkpoint::new().shard(FIRST, long).temp();
        let before = crate::touch::read_chars();
        let opened = open(&model);
        assert!(crate::touch::read_chars() - before < 64 << 10, "more was read than the index");
        opened.tensor("a").unwrap();
        assert!(crate::touch::read_chars() - before > 8 << 20, "the header is read at the first touch");
    });
}

#[test]
fn a_directory_an_index_and_a_single_file_are_opened() {
    let model = two_shards().temp();
    for path in [model.path().to_owned(), model.path().join(""), model.file(INDEX)] {
        let opened = open(&path);
        assert_eq!(names(&opened), ["a", "b", "c", "d"], "{path:?}");
        assert_eq!(opened.index_path(), Some(&*model.file(INDEX)));
        load_all(&opened, ReadMode::Auto).unwrap();
    }
    let single = open(model.file(SECOND));
    assert_eq!((names(&single), single.index_path()), (vec!["c", "d"], None));
    load_all(&single, ReadMode::Auto).unwrap();
}

#[test]
fn a_single_file_may_have_any_name() {
    let model = Checkpoint::single(shard_of("x")).temp();
    let blob = model.file("5891b5b522d5df086d0ff0b110fbd9d2");
    fs::rename(model.file("model.safetensors"), &blob).unwrap();
    assert_eq!(names(&open(&blob)), ["x"]);
}

/// A repository in the cache of the hub, whose snapshot is links to blobs; gives the snapshot too.
#[cfg(unix)]
pub(crate) fn hub_cache(revisions: &[&str]) -> (TempModel, Vec<PathBuf>) {
    let cache = TempModel::empty();
    let snapshot = |revision: &&str| {
        let snapshot = cache.file("snapshots").join(revision);
        two_shards().write(&snapshot).unwrap();
        fs::create_dir_all(cache.file("blobs")).unwrap();
        for (number, name) in [FIRST, SECOND, INDEX].into_iter().enumerate() {
            let blob = format!("{revision}{number}");
            fs::rename(snapshot.join(name), cache.file("blobs").join(&blob)).unwrap();
            std::os::unix::fs::symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
        }
        snapshot
    };
    let snapshots = revisions.iter().map(snapshot).collect();
    (cache, snapshots)
}

#[cfg(unix)]
#[test]
fn a_snapshot_of_the_hub_is_opened_through_its_links() {
    let (_cache, snapshots) = hub_cache(&["abc"]);
    let model = open(&snapshots[0]);
    assert_eq!(model.directory(), snapshots[0]);
    assert_eq!(load_all(&model, ReadMode::Auto).unwrap().tensors().len(), 4);
}

#[cfg(unix)]
#[test]
fn a_repository_of_the_hub_means_its_only_snapshot_or_that_of_main() {
    let (cache, snapshots) = hub_cache(&["abc"]);
    assert_eq!(open(&cache).directory(), snapshots[0]);

    let (cache, snapshots) = hub_cache(&["abc", "def"]);
    assert_says(&open_error(&cache), &["abc", "def"]);
    fs::create_dir(cache.file("refs")).unwrap();
    fs::write(cache.file("refs/main"), "def").unwrap();
    assert_eq!(open(&cache).directory(), snapshots[1]);
}

/// What a directory can mean, the first of those that are there. Each file has one tensor, named as the file.
const PRECEDENCE: [&str; 8] = [
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
    "consolidated.safetensors.index.json",
    "other.safetensors.index.json",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "consolidated.safetensors",
    "adapter_model.safetensors",
];

fn write_candidates(candidates: &[&str]) -> TempModel {
    let model = TempModel::empty();
    for candidate in candidates {
        let shard = if candidate.ends_with(".json") { "weights.safetensors" } else { candidate };
        shard_of(shard).write(model.file(shard)).unwrap();
        if candidate.ends_with(".json") {
            fs::write(model.file(candidate), index_text(&[(shard, shard)])).unwrap();
        }
    }
    model
}

#[test]
fn of_several_candidates_the_first_wins_and_the_others_are_told_of() {
    for (number, winner) in PRECEDENCE.iter().enumerate() {
        let model = write_candidates(&PRECEDENCE[number..]);
        let opened = open(&model);
        match opened.index_path() {
            Some(index) => assert_eq!(index, model.file(winner)),
            None => assert_eq!(names(&opened), [*winner]),
        }
        for other in &PRECEDENCE[number + 1..] {
            let told = opened.warnings().iter().any(|warning| warning.message.contains(other));
            assert!(told, "beside {winner}, nothing tells of {other}: {:?}", opened.warnings());
        }
        assert!(opened.warnings().iter().all(|warning| !warning.kind.is_empty()));
    }
}

#[test]
fn a_model_by_itself_gives_no_warning() {
    for candidate in PRECEDENCE.into_iter().filter(|name| !name.starts_with("adapter")) {
        assert_eq!(open(&write_candidates(&[candidate])).warnings(), [], "{candidate}");
    }
}

#[test]
fn several_indexes_of_other_names_are_an_error_that_lists_them() {
    let model = write_candidates(&["one.safetensors.index.json", "two.safetensors.index.json"]);
    let error = open_error(&model);
    assert_eq!(error.kind(), "Ambiguous");
    assert_says(&error, &["one.safetensors.index.json", "two.safetensors.index.json"]);
}

#[test]
fn the_only_safetensors_file_is_the_model_and_of_several_none_is() {
    assert_eq!(names(&open(&write_candidates(&["weights.safetensors"]))), ["weights.safetensors"]);
    let error = open_error(&write_candidates(&["one.safetensors", "two.safetensors"]));
    assert_says(&error, &["one.safetensors", "two.safetensors"]);
}

#[test]
fn files_that_are_hidden_or_of_other_kinds_are_passed_over() {
    let model = two_shards()
        .file(&format!("._{FIRST}"), "\0\x05\x16\x07")
        .file("optimizer.bin", "x")
        .file(&format!("{FIRST}.lock"), "")
        .file("blob.incomplete", "x")
        .file("original/model.safetensors", "x")
        .without_index();
    let opened = model.temp();
    assert_eq!(names(&open(&opened)), ["a", "b", "c", "d"]);
}

#[test]
fn a_stale_index_beside_a_single_file_gives_way_with_a_warning() {
    let model = two_shards().omit_shard(FIRST).omit_shard(SECOND).temp();
    shard_of("new").write(model.file("model.safetensors")).unwrap();
    let opened = open(&model);
    assert_eq!((names(&opened), opened.index_path()), (vec!["new"], None));
    let [warning] = opened.warnings() else { panic!("{:?}", opened.warnings()) };
    assert_eq!((warning.kind, warning.file.as_deref()), ("StaleIndex", Some(&*model.file(INDEX))));
    assert!(warning.message.contains(FIRST) && warning.message.contains("model.safetensors"), "{warning:?}");
}

#[test]
fn an_index_one_of_whose_shards_is_there_does_not_give_way() {
    let model = two_shards().omit_shard(SECOND).temp();
    shard_of("new").write(model.file("model.safetensors")).unwrap();
    assert_says(&open_error(&model), &[SECOND]);
}

#[test]
fn all_missing_shards_come_in_one_error_with_their_tensors_counted() {
    let shards = ["1", "2", "3"].map(|number| format!("{number}.safetensors"));
    let checkpoint = Checkpoint::new()
        .shard(&shards[0], shard_of("x"))
        .shard(&shards[1], ShardBuilder::new().zeros("a", "U8", &[1]).zeros("b", "U8", &[1]))
        .shard(&shards[2], ShardBuilder::new().zeros("c", "U8", &[1]));
    let model = checkpoint.omit_shard(&shards[1]).omit_shard(&shards[2]).temp();
    let error = open_error(&model);
    assert_error(&error, "MissingShards", INDEX);
    assert_says(&error, &["2.safetensors", "(2 tensors", "3.safetensors", "(1 tensor", "2 of 3 shards"]);
    assert!(!error.to_string().contains("\"1.safetensors"), "{error}");
}

#[test]
fn with_missing_shards_allowed_the_present_ones_serve() {
    let model = two_shards().omit_shard(SECOND).temp();
    let opened = ShardedModel::options().allow_missing(true).open(&model).unwrap();
    assert_eq!(opened.len(), 4, "the index lists them still");
    assert!(opened.warnings().iter().any(|warning| warning.message.contains(SECOND)));
    let loaded = load_all(&opened, ReadMode::Auto).unwrap();
    assert_eq!(loaded.tensors().iter().map(|tensor| tensor.name()).collect::<Vec<_>>(), ["a", "b"]);
    let errors = [
        opened.tensor("c").unwrap_err(),
        opened.view("c").unwrap_err(),
        opened.select().names(["a", "c"]).unwrap_err(),
        opened.select().shard(SECOND).unwrap_err(),
        opened.header(SECOND).unwrap_err(),
        opened.select().glob("[cd]").unwrap_err(),
        opened.select().regex("^c$").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), "MissingShards", "{error}");
        assert_says(&error, &[SECOND]);
    }
}

#[test]
fn a_missing_shard_whose_name_differs_only_in_case_is_hinted_at() {
    let model = with_index(index_text(&[("x", "X.safetensors"), ("y", "x.safetensors")]));
    assert_says(&open_error(&model), &["`X.safetensors`", "`x.safetensors`"]);
}

#[test]
fn shards_without_an_index_are_opened_when_they_are_complete() {
    for numbers in [["1", "2"], ["00000", "00001"]] {
        let model = TempModel::empty();
        for number in numbers {
            shard_of(number).write(model.file(&format!("model-{number}-of-00002.safetensors"))).unwrap();
        }
        assert_eq!(names(&open(&model)), numbers);
    }
    let error =
        open_error(&write_candidates(&["m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"]));
    assert_says(&error, &["m-00001-of-00003.safetensors", "missing numbers: 2"]);
}

#[test]
fn without_an_index_one_name_in_two_shards_is_an_error_that_names_both() {
    let model = Checkpoint::new().shard(FIRST, shard_of("x")).shard(SECOND, shard_of("x")).without_index();
    assert_says(&open_error(&model.temp()), &["\"x\"", FIRST, SECOND]);
}

#[test]
fn a_variant_is_opened_when_it_is_asked_for_and_never_mixed() {
    let layouts = [
        ("model.safetensors.index.fp16.json", "model.fp16-00001-of-00001.safetensors"),
        ("model.safetensors.fp16.index.json", "model-00001-of-00001.fp16.safetensors"),
        ("model.fp16.safetensors.index.json", "model.fp16-00001-of-00001.safetensors"),
    ];
    for (index, shard) in layouts {
        let model = two_shards().temp();
        shard_of("half").write(model.file(shard)).unwrap();
        fs::write(model.file(index), index_text(&[("half", shard)])).unwrap();
        let opened = ShardedModel::options().variant("fp16").open(&model).unwrap();
        assert_eq!(names(&opened), ["half"], "{index}");
        assert_eq!(names(&open(&model)), ["a", "b", "c", "d"], "beside {index}");
    }
    let single = write_candidates(&["model.safetensors", "model.fp16.safetensors"]);
    let opened = ShardedModel::options().variant("fp16").open(&single).unwrap();
    assert_eq!(names(&opened), ["model.fp16.safetensors"]);
    assert_eq!(names(&open(&single)), ["model.safetensors"]);
}

#[test]
fn a_variant_that_is_not_there_or_not_asked_for_is_an_error_that_says_what_is_there() {
    let only_half = write_candidates(&["model.fp16.safetensors"]);
    assert_says(&open_error(&only_half), &["model.fp16.safetensors", "fp16"]);
    let error = ShardedModel::options().variant("bf16").open(&only_half).unwrap_err();
    assert_says(&error, &["bf16", "model.fp16.safetensors"]);
    let error = ShardedModel::options().variant("../x").open(&only_half).unwrap_err();
    assert_eq!(error.kind(), "BadVariant");
}

#[test]
fn an_index_may_spell_a_shard_in_two_ways() {
    let text = index_text(&[("x", "./x.safetensors"), ("y", "x.safetensors")]);
    let shard = ShardBuilder::new().pattern("x", "U8", &[1]).pattern("y", "U8", &[1]);
    let model = Checkpoint::new().shard("x.safetensors", shard).index_text(text).temp();
    let opened = open(&model);
    assert_eq!(opened.shards().len(), 1);
    assert_eq!(load_all(&opened, ReadMode::Auto).unwrap().report().shards_opened, 1);
}

#[test]
fn names_that_could_lead_out_of_the_directory_are_refused_whether_the_file_is_there_or_not() {
    let outside = TempModel::empty();
    shard_of("x").write(outside.file("x.safetensors")).unwrap();
    let absolute = outside.file("x.safetensors").to_str().unwrap().to_owned();
    let names = [
        "../x.safetensors",
        "sub/../../x.safetensors",
        "sub/../x.safetensors",
        &absolute,
        "C:\\x.safetensors",
        "C:x.safetensors",
        "..\\x.safetensors",
        "\\\\host\\share\\x.safetensors",
        "//host/share/x.safetensors",
        "x\0.safetensors",
        "..",
        "https://example.invalid/x.safetensors",
    ];
    for name in names {
        let text = format!("{{\"weight_map\": {{\"x\": {}}}}}", serde_json::Value::from(name));
        let error = open_error(&with_index(text));
        assert_error(&error, "UnsafeShardName", INDEX);
        assert_eq!(error.tensor(), Some("x"));
    }
}

#[test]
fn names_that_no_shard_can_have_are_refused() {
    for name in ["", ".", "x.safetensors/", "x.bin", INDEX] {
        let error = open_error(&with_index(index_text(&[("x", name)])));
        assert_error(&error, "BadShardName", INDEX);
        assert_eq!(error.tensor(), Some("x"));
    }
}

#[test]
fn all_faults_of_an_index_come_in_one_error() {
    let text = r#"{"weight_map": {"a": "../a.safetensors", "b": 7, "x": "x.safetensors", "\u0078": "x.safetensors"}}"#;
    let error = open_error(&with_index(text));
    assert_error(&error, "UnsafeShardName", INDEX);
    assert_says(&error, &["3 faults", "../a.safetensors", "\"b\"", "a number", "\"x\""]);
}

#[test]
fn an_index_that_is_no_index_is_an_error_that_says_what_it_is() {
    let cases: [(&[u8], &str, &str); 9] = [
        (b"", "Json", "JSON"),
        (b"{\"weight_map\": {\"a\": \"x.sa", "Json", "line 1"),
        (b"\xef\xbb\xbf{\"weight_map\": {\"x\": \"x.safetensors\"}}", "ByteOrderMark", "BOM"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "LfsPointer", "LFS"),
        (b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> x\n", "MergeConflict", "merge conflict"),
        (b"// note\n{\"weight_map\": {\"x\": \"x.safetensors\"}}", "Comment", "comment"),
        (b"{\"metadata\": {}}", "NoWeightMap", "weight_map"),
        (b"{\"weight_map\": {}}", "EmptyWeightMap", "empty"),
        (b"[]", "IndexShape", "expected"),
    ];
    for (text, kind, word) in cases {
        let error = open_error(&with_index(text));
        assert_error(&error, kind, INDEX);
        assert_says(&error, &[word]);
    }
}

#[test]
fn a_deeply_nested_index_is_an_error_and_no_overflow() {
    let text = format!("{{\"metadata\": {}", "[".repeat(200_000));
    assert_error(&open_error(&with_index(text)), "Json", INDEX);
}

#[test]
fn what_stands_where_a_model_was_expected_is_named() {
    let model = TempModel::empty();
    assert_error(&open_error(model.file("absent")), "Io", "absent");
    assert_says(&open_error(&model), &["empty"]);
    fs::write(model.file("pytorch_model.bin"), "x").unwrap();
    assert_says(&open_error(&model), &["pytorch_model.bin", "convert"]);
}

#[cfg(unix)]
#[test]
fn a_fifo_is_an_error_and_does_not_block() {
    let model = Checkpoint::single(shard_of("x")).temp();
    let (file, index) = (model.file("model.safetensors"), model.file(INDEX));
    damage::replace_by_fifo(&file);
    fs::write(&index, "").unwrap();
    damage::replace_by_fifo(&index);
    within_a_minute(move || {
        assert_error(&open_error(file), "NotRegularFile", "model.safetensors");
        assert_error(&open_error(index), "NotRegularFile", INDEX);
        assert_error(&open_error(&model), "NotRegularFile", INDEX);
    });
}

#[test]
fn limits_can_be_set_and_their_errors_state_size_and_limit() {
    let model = two_shards().temp();
    let bytes = fs::metadata(model.file(INDEX)).unwrap().len();
    let options = ShardedModel::options();
    assert!(options.clone().max_index_bytes(bytes).open(&model).is_ok());
    let error = options.clone().max_index_bytes(bytes - 1).open(&model).unwrap_err();
    assert_says(&error, &[&bytes.to_string(), &(bytes - 1).to_string(), "max_index_bytes"]);

    let header = open(&model).header(FIRST).unwrap().data_start() - 8;
    assert!(options.clone().max_header_bytes(header).open(&model).unwrap().tensor("a").is_ok());
    let error = options.max_header_bytes(header - 1).open(&model).unwrap().tensor("a").unwrap_err();
    assert_says(&error, &[FIRST, &header.to_string(), &(header - 1).to_string(), "max_header_bytes"]);
}

#[test]
fn a_total_size_that_is_wrong_does_not_hinder() {
    for value in ["0", "12345", "1e400", "-1", "\"7\"", "null", "{}"] {
        let text =
            format!(r#"{{"metadata": {{"total_size": {value}}}, "weight_map": {{"x": "x.safetensors"}}}}"#);
        assert_eq!(names(&open(&with_index(text))), ["x"], "{value}");
    }
}
