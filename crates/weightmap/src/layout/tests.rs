//! Tests of `layout`, in a file of their own for their length.

mod ranks;

use tempfile::TempDir;

use super::*;

const INDEX: &str = "model.safetensors.index.json";
const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// A directory with empty files: nothing but names counts.
fn directory(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        write(&dir, file, "");
    }
    dir
}

fn write(dir: &TempDir, file: &str, content: &str) {
    let path = dir.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Writes an index that puts two tensors into each shard.
fn write_index(dir: &TempDir, file: &str, shards: &[&str]) {
    let tensors = shards.iter().flat_map(|shard| {
        ["a", "b"].map(|tensor| format!("{shard}.{tensor}")).map(|tensor| (tensor, *shard))
    });
    let map: std::collections::BTreeMap<_, _> = tensors.collect();
    write(dir, file, &serde_json::json!({"metadata": {}, "weight_map": map}).to_string());
}

fn options() -> OpenOptions {
    OpenOptions::default()
}

fn resolve(dir: &TempDir) -> Result<Layout> {
    Layout::resolve(dir.path(), &options())
}

/// The index that was chosen, or the files whose headers are to be read.
fn chosen(layout: &Layout) -> Vec<String> {
    match &layout.origin {
        Origin::Indexed { path, .. } => vec![path.file_name().unwrap().to_str().unwrap().to_owned()],
        Origin::Headers(shards) | Origin::Pieces { shards, .. } => {
            shards.iter().map(ShardName::to_string).collect()
        }
    }
}

fn kinds(layout: &Layout) -> Vec<&'static str> {
    layout.warnings.iter().map(|warning| warning.kind).collect()
}

fn message(result: Result<Layout>) -> String {
    result.unwrap_err().to_string()
}

#[track_caller]
fn contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn the_index_is_the_model() {
    let dir = directory(&SHARDS);
    write_index(&dir, INDEX, &SHARDS);
    let layout = resolve(&dir).unwrap();
    assert_eq!((layout.dir.as_path(), kinds(&layout)), (dir.path(), vec![]));
    let Origin::Indexed { path, index, missing } = layout.origin else { panic!() };
    assert_eq!((path, index.len()), (dir.path().join(INDEX), 4));
    assert!(!missing.has(0) && !missing.has(1));
}

#[test]
fn several_other_indexes_are_ambiguous() {
    let dir = directory(&["x.safetensors", "model.safetensors"]);
    for index in ["a.safetensors.index.json", "b.safetensors.index.json"] {
        write_index(&dir, index, &["x.safetensors"]);
    }
    let error = resolve(&dir).unwrap_err();
    assert!(matches!(error, Error::Ambiguous { .. }));
    contains(&error.to_string(), &["index files", "a.safetensors.index.json", "b.safetensors.index.json"]);
}

#[test]
fn a_single_file_that_is_the_shard_of_the_index_is_not_passed_over() {
    let dir = directory(&["model.safetensors"]);
    write_index(&dir, INDEX, &["model.safetensors"]);
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (vec![INDEX.to_owned()], vec![]));
}

#[test]
fn a_stale_index_gives_way_to_a_single_file() {
    let dir = directory(&["model.safetensors"]);
    write_index(&dir, INDEX, &SHARDS);
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (vec!["model.safetensors".to_owned()], vec!["StaleIndex"]));
    assert_eq!(layout.warnings[0].file, Some(dir.path().join(INDEX)));
    contains(&layout.warnings[0].message, &[SHARDS[0], SHARDS[1], "\"model.safetensors\" is read instead"]);
}

#[test]
fn a_stale_index_gives_way_to_the_next_index() {
    let dir = directory(&["consolidated-1-of-1.safetensors"]);
    write_index(&dir, INDEX, &SHARDS);
    write_index(&dir, "consolidated.safetensors.index.json", &["consolidated-1-of-1.safetensors"]);
    let layout = resolve(&dir).unwrap();
    assert_eq!(chosen(&layout), ["consolidated.safetensors.index.json"]);
    assert_eq!(kinds(&layout), ["StaleIndex"]);
}

#[test]
fn a_stale_index_does_not_give_way_to_what_may_be_no_model() {
    for file in ["adapter_model.safetensors", "optimizer.safetensors", "model-00001-of-00001.safetensors"] {
        let dir = directory(&[file]);
        write_index(&dir, INDEX, &SHARDS);
        assert!(matches!(resolve(&dir), Err(Error::MissingShards { .. })), "{file}");
    }
}

#[test]
fn an_index_without_tensors_gives_way_to_a_single_file_only() {
    let dir = directory(&[]);
    write_index(&dir, INDEX, &[]);
    contains(&message(resolve(&dir)), &[INDEX, "`weight_map` is empty"]);
    write(&dir, "model.safetensors", "");
    assert_eq!(kinds(&resolve(&dir).unwrap()), ["StaleIndex"]);
}

#[test]
fn a_broken_index_does_not_give_way_to_a_single_file() {
    let dir = directory(&[INDEX, "model.safetensors"]);
    let error = resolve(&dir).unwrap_err();
    assert_eq!(error.path(), Some(dir.path().join(INDEX).as_path()));
    assert!(matches!(error, Error::Index { .. }));
}

#[test]
fn missing_shards_come_in_one_error_with_their_tensors() {
    let dir = directory(&["1.safetensors"]);
    write_index(&dir, INDEX, &["1.safetensors", "2.safetensors", "s/3.safetensors"]);
    let error = resolve(&dir).unwrap_err();
    assert!(matches!(&error, Error::MissingShards { missing, shards: 3, .. } if missing.len() == 2));
    contains(
        &error.to_string(),
        &[
            INDEX,
            "2 of 3 shards",
            "\"2.safetensors\" (2 tensors)",
            "\"s/3.safetensors\" (2 tensors)",
            "download",
        ],
    );
}

#[test]
fn many_missing_shards_are_counted() {
    let names: Vec<_> = (10..40).map(|number| format!("{number}.safetensors")).collect();
    let dir = directory(&[]);
    write_index(&dir, INDEX, &names.iter().map(String::as_str).collect::<Vec<_>>());
    contains(&message(resolve(&dir)), &["30 of 30 shards", "\"19.safetensors\" (2 tensors) and 20 more"]);
}

#[test]
fn pickles_and_unfinished_downloads_in_place_of_shards_are_named() {
    let dir = directory(&["pytorch_model-00001-of-00002.bin", "0a1b.incomplete"]);
    write_index(&dir, INDEX, &SHARDS);
    contains(&message(resolve(&dir)), &["pytorch_model-00001-of-00002.bin", "convert", "0a1b.incomplete"]);
}

#[test]
fn a_missing_shard_is_compared_with_names_that_differ_by_case_or_unicode_form() {
    for (named, here, shown) in [
        ("Model.safetensors", "model-x.safetensors", None),
        ("Model-x.safetensors", "model-x.safetensors", Some("`model-x.safetensors` is here")),
        ("mod\u{e9}l.safetensors", "mode\u{301}l.safetensors", Some(r"`mode\u{301}l.safetensors` is here")),
    ] {
        let dir = directory(&[here]);
        write_index(&dir, INDEX, &[named]);
        let message = message(resolve(&dir));
        assert_eq!(message.contains(" is here"), shown.is_some(), "{message}");
        contains(&message, &[shown.unwrap_or_default()]);
    }
}

#[test]
fn missing_shards_can_be_allowed_as_long_as_one_is_there() {
    let allowing = options().allow_missing(true);
    let dir = directory(&SHARDS[1..]);
    write_index(&dir, INDEX, &SHARDS);
    let layout = Layout::resolve(dir.path(), &allowing).unwrap();
    assert_eq!(kinds(&layout), ["MissingShards"]);
    contains(&layout.warnings[0].message, &[SHARDS[0]]);
    assert!(matches!(layout.origin, Origin::Indexed { missing, .. } if missing.has(0) && !missing.has(1)));
    fs::remove_file(dir.path().join(SHARDS[1])).unwrap();
    assert!(matches!(Layout::resolve(dir.path(), &allowing), Err(Error::MissingShards { .. })));
}

#[test]
fn shards_in_folders_are_told_apart_by_the_whole_path() {
    let dir = directory(&["p/1.safetensors", "q/2.safetensors", "q/r/1.safetensors"]);
    write_index(&dir, INDEX, &["p/1.safetensors", "q/2.safetensors", "q/r/1.safetensors"]);
    assert!(resolve(&dir).is_ok());
    write_index(&dir, INDEX, &["p/1.safetensors", "q/1.safetensors"]);
    contains(&message(resolve(&dir)), &["one of 2", "\"q/1.safetensors\""]);
}

#[test]
fn a_folder_that_cannot_be_makes_its_shards_missing() {
    let dir = directory(&["1.safetensors", "file"]);
    let long = format!("{}/x.safetensors", "x".repeat(300));
    write_index(&dir, INDEX, &["1.safetensors", "none/x.safetensors", "file/x.safetensors", &long]);
    contains(&message(resolve(&dir)), &["3 of 4 shards"]);
}

#[test]
fn warnings_of_the_index_name_the_file() {
    let dir = directory(&["x.safetensors"]);
    write(&dir, INDEX, r#"{"metadata": {"total_size": "29"}, "weight_map": {"a": "x.safetensors"}}"#);
    let layout = resolve(&dir).unwrap();
    assert_eq!(kinds(&layout), ["OddTotalSize"]);
    assert_eq!(layout.warnings[0].file, Some(dir.path().join(INDEX)));
}

#[test]
fn an_index_beyond_the_limit_is_refused_with_both_figures() {
    let dir = directory(&["x.safetensors"]);
    write_index(&dir, INDEX, &["x.safetensors"]);
    let bytes = fs::metadata(dir.path().join(INDEX)).unwrap().len();
    assert!(Layout::resolve(dir.path(), &options().max_index_bytes(bytes)).is_ok());
    let message = message(Layout::resolve(dir.path(), &options().max_index_bytes(bytes - 1)));
    contains(&message, &[INDEX, &format!("has {bytes} bytes"), &format!("limit is {}", bytes - 1)]);
}

#[test]
fn a_directory_in_place_of_the_index_is_named() {
    let dir = directory(&["model.safetensors.index.json/x"]);
    assert!(matches!(resolve(&dir), Err(Error::NotRegularFile { path, .. }) if path.ends_with(INDEX)));
}

#[test]
fn the_only_safetensors_file_is_the_model() {
    let dir = directory(&["voices.safetensors", "._voices.safetensors", "config.json", "training_args.bin"]);
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (vec!["voices.safetensors".to_owned()], vec![]));
}

#[test]
fn several_unknown_files_are_ambiguous() {
    let dir = directory(&["a.safetensors", "b.safetensors"]);
    let error = resolve(&dir).unwrap_err();
    assert!(matches!(&error, Error::Ambiguous { candidates, .. } if candidates.len() == 2), "{error}");
}

#[test]
fn a_file_beside_parts_that_look_like_variants_is_not_opened_alone() {
    let dir = directory(&["lm_head.safetensors", "model.embed_tokens.safetensors", "model.norm.safetensors"]);
    contains(&message(resolve(&dir)), &["several safetensors files", "lm_head", "embed_tokens", "norm"]);
}

#[test]
fn complete_shards_without_an_index_are_the_model() {
    for files in [
        &["m_00001-of-00002.safetensors", "m_00002-of-00002.safetensors"][..],
        &["m-00000-of-00002.safetensors", "m-00001-of-00002.safetensors"],
        &["m-00000-of-00002.safetensors", "m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"],
        &["m-00001-of-00001.safetensors"],
        &["m-00001-of-00002.safetensors", "m-2-of-2.safetensors"],
    ] {
        let dir = directory(files);
        write(&dir, "zzz.safetensors", "");
        let layout = resolve(&dir).unwrap();
        assert_eq!(
            (chosen(&layout).as_slice(), kinds(&layout)),
            (&files.iter().map(ToString::to_string).collect::<Vec<_>>()[..], vec!["PassedOver"])
        );
    }
}

#[test]
fn numbers_of_shards_are_compared_as_numbers() {
    let files: Vec<_> = (1..=11).map(|number| format!("m-{number}-of-000011.safetensors")).collect();
    let layout = resolve(&directory(&files.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    assert_eq!(chosen(&layout), files);
}

#[test]
fn incomplete_shards_are_an_error_that_lists_the_missing_numbers() {
    for (files, missing) in [
        (
            &["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"][..],
            "missing numbers: 2;",
        ),
        (&["model-00002-of-00003.safetensors"], "missing numbers: 1, 3;"),
        (&["model-00000-of-00003.safetensors"], "missing numbers: 1, 2;"),
        (&["model-1-of-1.safetensors", "model-7-of-1.safetensors"], "numbers out of range: 7;"),
        (&["model-5-of-0.safetensors"], "missing numbers: 1; numbers out of range: 5;"),
        (&["model-1-of-3.safetensors", "voices.safetensors"], "missing numbers: 2, 3;"),
    ] {
        let error = resolve(&directory(files)).unwrap_err();
        assert!(matches!(error, Error::IncompleteFamily { .. }), "{error}");
        contains(&error.to_string(), &[missing, files[0]]);
    }
}

#[test]
fn a_name_that_claims_very_many_shards_costs_nothing() {
    for first in [0, 1] {
        let file = format!("m-{first}-of-{}.safetensors", u64::MAX);
        contains(&message(resolve(&directory(&[&file]))), &["missing numbers: ", " more;"]);
    }
}

#[test]
fn two_shards_of_one_number_are_ambiguous() {
    let files = ["m-1-of-2.safetensors", "m-2-of-2.safetensors", "m-01-of-2.safetensors"];
    contains(&message(resolve(&directory(&files))), &["shards of one number", files[0], files[2]]);
}

#[test]
fn two_complete_sets_of_shards_are_ambiguous() {
    let dir = directory(&SHARDS);
    write(&dir, "vision-1-of-1.safetensors", "");
    contains(&message(resolve(&dir)), &["several sets of shards", SHARDS[0], "vision-1-of-1.safetensors"]);
}

#[test]
fn a_complete_set_of_shards_wins_over_an_incomplete_one() {
    let dir = directory(&SHARDS);
    write(&dir, "vision-1-of-2.safetensors", "");
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (SHARDS.map(str::to_owned).to_vec(), vec!["PassedOver"]));
}

#[test]
fn a_variant_is_found_under_current_and_older_names() {
    let weights = ["model.fp16-1-of-1.safetensors", "model-1-of-1.fp16.safetensors", "sd.fp16.safetensors"];
    for files in [
        &["model.safetensors.index.fp16.json", "model.safetensors.fp16.index.json"][..],
        &["model.safetensors.fp16.index.json", "diffusion_pytorch_model.safetensors.index.fp16.json"],
        &["diffusion_pytorch_model.safetensors.index.fp16.json"],
        &["diffusion_pytorch_model.safetensors.fp16.index.json"],
        &["model.fp16.safetensors.index.json"],
        &["sd.safetensors.index.fp16.json"],
        &["model.fp16.safetensors", "model.fp16-1-of-1.safetensors"],
        &["diffusion_pytorch_model.fp16.safetensors"],
        &["sd.fp16.safetensors"],
        &["model.fp16-1-of-1.safetensors"],
        &["model-1-of-1.fp16.safetensors"],
    ] {
        let dir = directory(&["model.safetensors", "model.bf16.safetensors", "other.safetensors"]);
        write_index(&dir, INDEX, &["model.safetensors"]);
        for file in files {
            if file.ends_with(".json") {
                write_index(&dir, file, &weights[..1]);
            } else {
                write(&dir, file, "");
            }
        }
        if files[0].ends_with(".json") {
            write(&dir, weights[0], "");
        }
        let layout = Layout::resolve(dir.path(), &options().variant("fp16")).unwrap();
        assert_eq!(chosen(&layout), files[..1]);
        assert_eq!(chosen(&resolve(&dir).unwrap()), [INDEX]);
    }
}

#[test]
fn a_variant_that_nobody_asked_for_is_not_opened() {
    for file in ["model.fp16.safetensors", "model.fp16-1-of-1.safetensors", "model-1-of-1.fp16.safetensors"] {
        let error = resolve(&directory(&[file])).unwrap_err();
        assert!(matches!(error, Error::NoSuchVariant { asked: None, .. }), "{error}");
        contains(&error.to_string(), &[file, ".variant(\"fp16\")"]);
    }
}

#[test]
fn a_variant_that_is_not_there_is_an_error_that_lists_what_is() {
    let dir = directory(&["model.safetensors"]);
    contains(
        &message(Layout::resolve(dir.path(), &options().variant("int8"))),
        &["no model of variant \"int8\"", "\"model.safetensors\"", "without asking for a variant"],
    );
    write(&dir, "model.fp16.safetensors", "");
    contains(&message(Layout::resolve(dir.path(), &options().variant("int8"))), &[".variant(\"fp16\")"]);
}

#[test]
fn a_variant_must_be_one_part_of_a_name() {
    for variant in ["", "..", "a/b", r"a\b", "c:", "x\0"] {
        let result = Layout::resolve(directory(&[]).path(), &options().variant(variant));
        assert!(matches!(result, Err(Error::BadVariant { .. })), "{variant:?}");
    }
}

#[test]
fn an_adapter_is_said_to_be_one() {
    let dir = directory(&["adapter_model.safetensors"]);
    contains(&resolve(&dir).unwrap().warnings[0].message, &["adapter of another model"]);
    write(&dir, "adapter_config.json", r#"{"base_model_name_or_path": "o/m", "r": 8}"#);
    let layout = resolve(&dir).unwrap();
    assert_eq!(kinds(&layout), ["Adapter"]);
    contains(&layout.warnings[0].message, &["adapter of \"o/m\""]);
}

#[test]
fn where_there_is_no_model_the_error_says_what_is_there() {
    for (files, shown) in [
        (&[][..], "the directory is empty"),
        (&["pytorch_model.bin", "config.json"], "PyTorch pickle files (\"pytorch_model.bin\")"),
        (
            &[".metadata", "__0_0.distcp"],
            "distributed checkpoints (DCP) (\".metadata\", \"__0_0.distcp\"), another format: save",
        ),
        (&["x.metadata"], "other files only"),
        (&["m-00001-of-00002.gguf"], "GGUF files (\"m-00001-of-00002.gguf\")"),
        (&["ab12.incomplete"], "unfinished downloads (\"ab12.incomplete\")"),
        (
            &["unet/model.safetensors", "vae/x.safetensors", "docs/x.md"],
            "folders with models (\"unet\", \"vae\")",
        ),
        (&["models--org--name/snapshots/r/x"], "folders with models (\"models--org--name\")"),
        (&["config.json"], "other files only (\"config.json\")"),
    ] {
        let dir = directory(files);
        let error = resolve(&dir).unwrap_err();
        assert!(matches!(error, Error::NoModel { .. }), "{error}");
        contains(&error.to_string(), &[shown, dir.path().to_str().unwrap()]);
    }
}

#[test]
fn subfolders_are_not_searched() {
    let dir = directory(&["model.safetensors", "original/model.safetensors"]);
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (vec!["model.safetensors".to_owned()], vec![]));
}

#[test]
fn a_path_that_is_not_there_is_an_error_that_names_it() {
    let dir = directory(&[]);
    let path = dir.path().join("none");
    let error = Layout::resolve(&path, &options()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert_eq!(error.path(), Some(path.as_path()));
}

#[test]
fn a_file_is_a_model_by_itself_whatever_its_name() {
    let dir = directory(&["0a1b2c", "model-00001-of-00002.safetensors"]);
    for file in ["0a1b2c", "model-00001-of-00002.safetensors"] {
        let layout = Layout::resolve(&dir.path().join(file), &options()).unwrap();
        assert_eq!((chosen(&layout), layout.dir.as_path()), (vec![file.to_owned()], dir.path()));
    }
}

#[test]
fn an_index_file_can_be_named() {
    let dir = directory(&["x.safetensors", "model.safetensors"]);
    write_index(&dir, "mine.json", &["x.safetensors"]);
    let layout = Layout::resolve(&dir.path().join("mine.json"), &options()).unwrap();
    assert_eq!((chosen(&layout), layout.dir.as_path()), (vec!["mine.json".to_owned()], dir.path()));
}

#[test]
fn an_index_file_that_was_named_does_not_give_way() {
    let dir = directory(&["model.safetensors"]);
    write_index(&dir, INDEX, &SHARDS);
    let result = Layout::resolve(&dir.path().join(INDEX), &options());
    assert!(matches!(result, Err(Error::MissingShards { .. })));
}

#[test]
fn another_json_file_is_no_index() {
    let dir = directory(&[]);
    write(&dir, "config.json", r#"{"model_type": "llama"}"#);
    let result = Layout::resolve(&dir.path().join("config.json"), &options());
    contains(&message(result), &["config.json", "no `weight_map`", "\"model_type\""]);
}

mod hub;

#[cfg(unix)]
mod unix {
    #[cfg(target_os = "linux")]
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn shards_are_neither_opened_nor_looked_up() {
        let dir = directory(&[]);
        fifo(&dir.path().join(SHARDS[0]));
        symlink("nowhere", dir.path().join(SHARDS[1])).unwrap();
        assert_eq!(chosen(&resolve(&dir).unwrap()), SHARDS);
        write_index(&dir, INDEX, &SHARDS);
        assert_eq!(chosen(&resolve(&dir).unwrap()), [INDEX]);
    }

    #[test]
    fn a_fifo_in_place_of_an_index_does_not_block() {
        let dir = directory(&[]);
        fifo(&dir.path().join(INDEX));
        for path in [dir.path().to_owned(), dir.path().join(INDEX)] {
            let error = Layout::resolve(&path, &options()).unwrap_err();
            assert!(matches!(error, Error::NotRegularFile { found: "a FIFO", .. }), "{error}");
        }
    }

    #[test]
    fn an_endless_device_in_place_of_an_index_is_not_read() {
        let dir = directory(&[]);
        symlink("/dev/zero", dir.path().join(INDEX)).unwrap();
        assert!(matches!(resolve(&dir), Err(Error::NotRegularFile { found: "a device", .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_are_not_utf8_are_left_out() {
        let dir = directory(&["model.safetensors"]);
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.safetensors")), "").unwrap();
        assert_eq!(kinds(&resolve(&dir).unwrap()), Vec::<&str>::new());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_path_that_is_not_utf8_is_an_error() {
        let dir = directory(&[]);
        let path = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff.safetensors"));
        fs::write(&path, "").unwrap();
        contains(&message(Layout::resolve(&path, &options())), &["not UTF-8"]);
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_an_error_that_names_it() {
        let dir = directory(&["x.safetensors"]);
        symlink("loop", dir.path().join("loop")).unwrap();
        write_index(&dir, INDEX, &["x.safetensors", "loop/x.safetensors"]);
        let error = resolve(&dir).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if *path == dir.path().join("loop")), "{error}");
        contains(&error.to_string(), &["cannot list the directory"]);
    }
}
