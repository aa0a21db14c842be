//! `weightmap digest`, and what compares with its file: `check --content`, `load --verify`, `prefetch --verify`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weightmap::Digests;
use weightmap_testkit::{Checkpoint, Distributed, Llama, ShardBuilder, TempModel, damage};

use crate::{Run, args, weightmap};

/// Below the name of the index of [`Llama::tiny`].
const BESIDE: &str = "model.safetensors.index.json.digests";

/// A checkpoint with digests beside it.
fn digested() -> TempModel {
    let model = Llama::tiny().checkpoint().temp();
    weightmap(args!["digest", model.path()]).ok();
    model
}

/// Turns a bit of a file over.
fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).expect("the file can be read");
    bytes[usize::try_from(at).expect("a place in memory")] ^= 4;
    fs::write(path, bytes).expect("the file can be written");
}

/// Turns a bit of the last byte of a tensor over.
fn flip_in(model: &TempModel, tensor: &str) {
    let json = weightmap(args!["ls", model.path(), "--select", tensor, "--json"]).json();
    let row = &json["tensors"][0];
    let shard = row["shard"].as_str().expect("the shard");
    flip(&model.file(shard), row["range"][1].as_u64().expect("the end") - 1);
}

/// The last line of `check`.
fn verdict(run: &Run) -> &str {
    assert_eq!(run.stderr, "");
    run.stdout.lines().last().expect("a line")
}

/// Kind and tensor of each fault of `check --json`.
fn faults(run: &Run) -> Vec<(String, Option<String>)> {
    let json: Value = serde_json::from_str(&run.stdout).expect("one JSON document");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let fault = |fault: &Value| (text(&fault["kind"]).expect("a kind"), text(&fault["tensor"]));
    json["faults"].as_array().expect("faults").iter().map(fault).collect()
}

#[test]
fn what_was_digested_is_found_to_be_the_same() {
    let model = Llama::tiny().checkpoint().temp();
    let text = weightmap(args!["digest", model.path()]).ok();
    let file = model.file(BESIDE);
    let digest: String =
        Digests::read(&file).unwrap().digest().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, format!("{digest}  {}\n", file.display()));

    let checked = weightmap(args!["check", model.path(), "--content"]);
    assert_eq!(checked.status, 0);
    assert_eq!(
        verdict(&checked),
        "sound, 0 warnings; 21 tensors listed, 4 headers read, 21 tensors compared with digests"
    );
    for mode in ["auto", "mapped", "buffered", "direct"] {
        let json = weightmap(args!["load", model.path(), "--verify", "--mode", mode, "--json"]).json();
        assert_eq!(json["runs"][0]["verified_bytes"], Llama::tiny().total_bytes(), "{mode}");
    }
    let text = weightmap(args!["load", model.path(), "--verify", "--stream", "--digest"]).ok();
    assert!(text.contains("\ndigests ") && text.contains(" compared, all as they are to be\n"), "{text}");
    let json = weightmap(args!["prefetch", model.path(), "--verify", "--json"]).json();
    assert_eq!(json["report"]["verified_bytes"], Llama::tiny().total_bytes());
    // Nothing is compared unless that is asked for.
    let json = weightmap(args!["load", model.path(), "--json"]).json();
    assert_eq!(json["runs"][0]["verified_bytes"], 0);
    let checked = weightmap(args!["check", model.path()]);
    assert!(verdict(&checked).ends_with("no data compared"), "{}", checked.stdout);
}

#[test]
fn a_byte_that_changed_is_found_by_check_and_by_what_loads_it_and_names_the_tensor() {
    let model = digested();
    let tensor = "model.layers.1.mlp.up_proj.weight";
    flip_in(&model, tensor);
    assert_eq!(weightmap(args!["check", model.path()]).status, 0);

    let run = weightmap(args!["check", model.path(), "--content"]);
    assert_eq!(run.status, 1);
    assert!(
        run.stdout.starts_with("fault [ContentDiffers] ") && run.stdout.contains(tensor),
        "{}",
        run.stdout
    );
    assert!(
        verdict(&run).starts_with("1 fault, 0 warnings; ") && verdict(&run).contains(" 21 tensors compared")
    );
    let run = weightmap(args!["check", model.path(), "--content", "--json"]);
    assert_eq!(faults(&run), [("ContentDiffers".to_owned(), Some(tensor.to_owned())); 1]);

    for (command, option) in
        [("load", "--json"), ("load", "--stream"), ("load", "--mode=direct"), ("prefetch", "--json")]
    {
        let stderr = weightmap(args![command, model.path(), "--verify", option]).failure(1);
        assert!(stderr.contains(tensor) && stderr.contains("not what the digests say"), "{stderr}");
        assert!(stderr.contains("hint: `weightmap check --content` lists all that differs"), "{stderr}");
    }
    // What is not loaded is not looked at.
    weightmap(args!["load", model.path(), "--verify", "--exclude", tensor]).ok();
    weightmap(args!["load", model.path()]).ok();
}

#[test]
fn a_rank_compares_its_part_and_those_of_one_machine_their_shares() {
    let model = digested();
    flip_in(&model, "model.embed_tokens.weight");
    let part = |rank: &str| {
        let arguments = args!["load", model.path(), "--verify", "--fsdp", "2", "--rank", rank, "--json"];
        weightmap(arguments)
    };
    part("1").failure(1);
    let share = |rank: &str| {
        let arguments = args![
            "prefetch",
            model.path(),
            "--verify",
            "--tp",
            "2",
            "--node",
            "0,1",
            "--rank",
            rank,
            "--json"
        ];
        weightmap(arguments).status
    };
    assert!([share("0"), share("1")].contains(&1));
}

#[test]
fn digests_that_are_there_are_replaced_by_force_alone() {
    let model = digested();
    let before = fs::read(model.file(BESIDE)).unwrap();
    flip_in(&model, "model.norm.weight");
    // It is told before anything is read.
    let shard = model.file("model-00001-of-00004.safetensors");
    let kept = fs::read(&shard).unwrap();
    damage::truncate(&shard, 3);
    let stderr = weightmap(args!["digest", model.path()]).failure(1);
    assert!(stderr.contains("--force") && stderr.contains(BESIDE), "{stderr}");
    fs::write(&shard, kept).unwrap();
    assert_eq!(fs::read(model.file(BESIDE)).unwrap(), before);

    weightmap(args!["digest", model.path(), "--force"]).ok();
    assert_ne!(fs::read(model.file(BESIDE)).unwrap(), before);
    assert_eq!(weightmap(args!["check", model.path(), "--content"]).status, 0);
}

#[test]
fn a_checkpoint_that_cannot_be_read_gets_no_digests() {
    let model = Llama::tiny().checkpoint().temp();
    damage::truncate(model.file("model-00003-of-00004.safetensors"), 5000);
    let stderr = weightmap(args!["digest", model.path()]).failure(1);
    assert!(stderr.contains("model-00003-of-00004") && !model.file(BESIDE).exists(), "{stderr}");
    let names = fs::read_dir(model.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().ends_with(".tmp")));
}

#[test]
fn digests_can_be_elsewhere() {
    let (model, elsewhere) = (Llama::tiny().checkpoint().temp(), TempModel::empty());
    let file = elsewhere.file("kept");
    let text = weightmap(args!["digest", model.path(), "--output", &file]).ok();
    assert!(text.ends_with(&format!("  {}\n", file.display())) && !model.file(BESIDE).exists(), "{text}");
    let run = weightmap(args!["check", model.path(), "--digests", &file]);
    assert!(verdict(&run).ends_with("21 tensors compared with digests"), "{}", run.stdout);
    for command in ["load", "prefetch"] {
        let text = weightmap(args![command, model.path(), "--digests", &file]).ok();
        assert!(text.contains(" compared, all as they are to be"), "{text}");
    }
    // These count, and not those beside the checkpoint.
    flip_in(&model, "model.norm.weight");
    weightmap(args!["digest", model.path()]).ok();
    assert_eq!(weightmap(args!["check", model.path(), "--content"]).status, 0);
    assert_eq!(weightmap(args!["check", model.path(), "--digests", &file]).status, 1);
    weightmap(args!["load", model.path(), "--verify", "--digests", &file]).failure(1);
}

#[test]
fn where_digests_cannot_be_written_the_error_says_what_helps() {
    let model = Llama::tiny().checkpoint().temp();
    let stderr = weightmap(args!["digest", model.path(), "--output", "-"]).failure(2);
    assert!(stderr.contains("standard output"), "{stderr}");
    for place in [model.file("gone/x"), model.path().to_owned()] {
        let stderr = weightmap(args!["digest", model.path(), "--output", &place, "--force"]).failure(1);
        assert!(stderr.contains("--output FILE"), "{stderr}");
    }
}

#[cfg(unix)]
#[test]
fn a_checkpoint_in_a_directory_that_may_not_be_written_to_can_have_its_digests_elsewhere() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    let model = Llama::tiny().checkpoint().temp();
    let set_mode = |mode| fs::set_permissions(model.path(), fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o555);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightmap"));
    command.args(args!["digest", model.path()]);
    if model.path().metadata().unwrap().uid() == 0 {
        // Nothing is forbidden to root.
        command.uid(65534).gid(65534);
    }
    let output = command.output();
    set_mode(0o755);
    // Where this program lies may be closed to others.
    let Ok(output) = output else {
        return println!("skipped: the program cannot be started as another user");
    };
    let stderr = Run::of(output).failure(1);
    assert!(stderr.contains("--output FILE") && stderr.contains("ermission denied"), "{stderr}");
    assert!(!model.file(BESIDE).exists());
}

#[test]
fn documents_have_all_figures() {
    let model = Llama::tiny().checkpoint().temp();
    let json = weightmap(args!["digest", model.path(), "--json"]).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["digest", "file", "file_bytes", "path", "seconds", "tensor_bytes", "tensors"]);
    let file = model.file(BESIDE);
    assert_eq!(json["path"], model.path().to_str().unwrap());
    assert_eq!(json["file"], file.to_str().unwrap());
    assert_eq!(json["file_bytes"], file.metadata().unwrap().len());
    assert_eq!((&json["tensors"], &json["tensor_bytes"]), (&21.into(), &Llama::tiny().total_bytes().into()));
    assert!(
        json["seconds"].as_f64().unwrap() > 0.0 && json["digest"].as_str().unwrap().len() == 64,
        "{json}"
    );

    let json = weightmap(args!["check", model.path(), "--content", "--json"]).json();
    assert_eq!((&json["compared_tensors"], &json["compared_files"]), (&21.into(), &0.into()));
    let json = weightmap(args!["info", model.path(), "--json"]).json();
    assert_eq!(json["digests"], file.to_str().unwrap());
}

#[test]
fn info_tells_whether_there_are_digests() {
    let model = Llama::tiny().checkpoint().temp();
    assert!(weightmap(args!["info", model.path()]).ok().contains("\ndigests  none\n"));
    assert_eq!(weightmap(args!["info", model.path(), "--json"]).json()["digests"], Value::Null);
    weightmap(args!["digest", model.path()]).ok();
    let line = format!("\ndigests  {}\n", model.file(BESIDE).display());
    assert!(weightmap(args!["info", model.path()]).ok().contains(&line));
    fs::write(model.file(BESIDE), "damaged").unwrap();
    let text = weightmap(args!["info", model.path()]).ok();
    assert!(text.contains("\ndigests  none\n") && text.contains("\nwarnings\n  [NotDigests] "), "{text}");
}

#[test]
fn without_digests_a_load_that_is_to_be_verified_is_an_error_and_a_check_warns() {
    let model = Llama::tiny().checkpoint().temp();
    for command in ["load", "prefetch"] {
        let stderr = weightmap(args![command, model.path(), "--verify"]).failure(1);
        for word in [BESIDE, "`weightmap digest`", "--digests"] {
            assert!(stderr.contains(word), "{stderr}");
        }
    }
    let run = weightmap(args!["check", model.path(), "--content"]);
    assert_eq!(run.status, 0);
    assert!(
        run.stdout.starts_with("warning [NothingKnown] ") && run.stdout.contains(BESIDE),
        "{}",
        run.stdout
    );
    assert!(verdict(&run).starts_with("sound, 1 warning; ") && verdict(&run).ends_with("no data compared"));
    let nothing = model.file("gone");
    let stderr = weightmap(args!["check", model.path(), "--digests", &nothing]).failure(2);
    assert!(stderr.contains("gone"), "{stderr}");
}

#[test]
fn digests_of_another_checkpoint_and_damaged_ones_are_told() {
    let model = digested();
    let other = Checkpoint::single(ShardBuilder::new().pattern("a", "U8", &[9])).temp();
    let file = model.file(BESIDE);
    let stderr = weightmap(args!["load", other.path(), "--digests", &file]).failure(1);
    assert!(stderr.contains("the digests are of a checkpoint without it"), "{stderr}");
    let run = weightmap(args!["check", other.path(), "--digests", &file, "--json"]);
    assert_eq!((run.status, faults(&run)), (1, vec![("NotDigested".to_owned(), None)]));

    flip(&file, 3);
    assert!(weightmap(args!["load", model.path(), "--verify"]).failure(1).contains(BESIDE));
    assert!(weightmap(args!["check", model.path(), "--content"]).failure(2).contains(BESIDE));
}

#[test]
fn tensors_of_odd_values_are_warned_of_and_are_no_fault() {
    let shard = ShardBuilder::new()
        .tensor("nan", "F32", &[2], [f32::NAN.to_le_bytes(), 1_f32.to_le_bytes()].concat())
        .tensor("usual", "U8", &[2], [0, 1])
        .zeros("zero", "BF16", &[9]);
    let model = Checkpoint::single(shard).temp();
    let run = weightmap(args!["check", model.path(), "--scan"]);
    assert_eq!(run.status, 0);
    let kinds: Vec<_> = run.stdout.lines().filter_map(|line| line.split(['[', ']']).nth(1)).collect();
    assert_eq!(kinds, ["NotFinite", "AllZero", "NothingKnown"], "{}", run.stdout);
    weightmap(args!["digest", model.path()]).ok();
    let run = weightmap(args!["check", model.path(), "--scan"]);
    assert!(verdict(&run).starts_with("sound, 2 warnings; "), "{}", run.stdout);
    assert!(verdict(&run).ends_with("3 tensors compared with digests"), "{}", run.stdout);
}

/// Whether there are digests under a name, and a change of the last byte of each file is found, by those and no others.
fn assert_round_trip(model: &TempModel, options: &[&str], beside: &str, files: &[&str]) {
    let run = |command: &str, more: &[&str]| {
        let words = [command].into_iter().map(OsStr::new).chain([model.path().as_os_str()]);
        let check = command == "check";
        let options = options.iter().filter(|option| !check || **option != "--allow-missing");
        weightmap(words.chain(options.chain(more).map(OsStr::new)))
    };
    let text = run("digest", &[]).ok();
    assert!(text.ends_with(&format!("  {}\n", model.file(beside).display())), "{text}");
    let is_whole = !options.contains(&"--allow-missing");
    assert_eq!(run("check", &["--content"]).status, i32::from(!is_whole));
    run("load", &["--verify"]).ok();
    for file in files {
        let path = model.file(file);
        let kept = fs::read(&path).expect("the file can be read");
        flip(&path, kept.len() as u64 - 1);
        let found = run("check", &["--content", "--json"]);
        let differ = faults(&found).iter().filter(|(kind, _)| kind == "ContentDiffers").count();
        assert_eq!((found.status, differ), (1, 1), "{file}: {}", found.stdout);
        assert!(run("load", &["--verify"]).failure(1).contains(file), "{file}");
        fs::write(&path, kept).expect("the file can be written");
    }
}

#[test]
fn every_kind_of_checkpoint_can_have_digests() {
    let shard = |name: &str| ShardBuilder::new().pattern(name, "F32", &[70, 4096]).zeros("x", "U8", &[0]);
    let model = Checkpoint::single(shard("a")).temp();
    assert_round_trip(&model, &[], "model.safetensors.digests", &["model.safetensors"]);

    let shard = |name: &str| ShardBuilder::new().pattern(name, "F32", &[7, 40]);
    let family = ["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"];
    let model =
        Checkpoint::new().shard(family[0], shard("a")).shard(family[1], shard("b")).without_index().temp();
    assert_round_trip(&model, &[], "model.digests", &family);

    let index = "model.safetensors.index.fp16.json";
    let model = Checkpoint::new().shard("u.safetensors", shard("a")).index_name(index);
    let model = model.file("model.safetensors", shard("c").build()).temp();
    let beside = "model.safetensors.index.fp16.json.digests";
    assert_round_trip(&model, &["--variant", "fp16"], beside, &["u.safetensors"]);
    assert_round_trip(&model, &[], "model.safetensors.digests", &["model.safetensors"]);

    let model = Checkpoint::new()
        .shard("u.safetensors", shard("a"))
        .shard("v.safetensors", shard("b"))
        .omit_shard("v.safetensors")
        .temp();
    assert_round_trip(&model, &["--allow-missing"], BESIDE, &["u.safetensors"]);

    let model = Distributed::new(2).sharded("a", "F32", &[8, 8], &[(0, 2)]).checkpoint().temp();
    let files: Vec<_> =
        (1..3).map(|rank| format!("shard-{rank:05}-model-00001-of-00001.safetensors")).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    assert_round_trip(&model, &[], "model.digests", &files);
}

#[cfg(unix)]
#[test]
fn a_snapshot_of_the_hubs_cache_has_its_digests_beside_its_links() {
    let cache = TempModel::empty();
    let root = cache.file("models--some--model");
    let revision = "0123456789012345678901234567890123456789";
    let snapshot = root.join("snapshots").join(revision);
    for directory in [snapshot.clone(), root.join("blobs"), root.join("refs")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(root.join("refs/main"), revision).unwrap();
    let shard = ShardBuilder::new().pattern("a", "F32", &[300]).build();
    let blob = root.join("blobs/blob");
    fs::write(&blob, &shard).unwrap();
    let link = |target: PathBuf, name: &str| std::os::unix::fs::symlink(target, snapshot.join(name)).unwrap();
    link("../../blobs/blob".into(), "model.safetensors");

    let digests = snapshot.join("model.safetensors.digests");
    let text = weightmap(args!["digest", &root]).ok();
    assert!(text.ends_with(&format!("  {}\n", digests.display())), "{text}");
    for path in [&root, &snapshot, &snapshot.join("model.safetensors")] {
        let run = weightmap(args!["check", path, "--content"]);
        assert!(run.stdout.contains("1 tensor compared with digests"), "{}", run.stdout);
        weightmap(args!["load", path, "--verify"]).ok();
    }
    flip(&blob, shard.len() as u64 - 1);
    let run = weightmap(args!["check", &root, "--content", "--json"]);
    assert!(faults(&run).contains(&("ContentDiffers".to_owned(), Some("a".to_owned()))), "{}", run.stdout);
}
