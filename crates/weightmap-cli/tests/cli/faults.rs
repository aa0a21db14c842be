//! The program while files change, calls fail, and things lie in the place of files.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use weightmap_testkit::{Checkpoint, Llama, Oracle, ShardBuilder, TempModel, damage, faults, pattern};

use crate::load::digest;
use crate::{Run, args, weightmap};

const MIB: u64 = 1 << 20;

const SHARD: &str = "model.safetensors";

/// How often the program runs in each way while the shard changes; more find more, and take longer.
const ROUNDS: u64 = 4;

/// Three tensors of 2 MiB each.
fn model() -> TempModel {
    let add = |shard: ShardBuilder, name| shard.pattern(name, "U8", &[2 * MIB]);
    Checkpoint::single(["a", "b", "c"].into_iter().fold(ShardBuilder::new(), add)).temp()
}

/// A number below `end` that looks random: a step of the SplitMix64 generator.
fn mixed(seed: u64, end: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)) % end
}

/// Cuts the file, adds to it, takes it away or puts another there.
fn change(path: &Path, bytes: u64, seed: u64) {
    match mixed(seed, 6) {
        0 => damage::append(path, "more"),
        1 => fs::remove_file(path).expect("the file can be removed"),
        2 => damage::replace(path, "another file"),
        _ => damage::truncate(path, mixed(seed + 1, bytes)),
    }
}

#[test]
fn whatever_is_done_to_a_shard_meanwhile_digests_are_right_or_there_are_none_and_no_signal_ends_the_program()
{
    let model = model();
    let (path, oracle) = (model.file(SHARD), Oracle::open(model.path()));
    let whole = fs::read(&path).unwrap();
    let right: Vec<_> = oracle.names().iter().map(|name| digest(&oracle.tensor(name).bytes)).collect();
    let mut seed = 0;
    for _ in 0..ROUNDS {
        for mode in ["auto", "mapped", "buffered", "direct"] {
            for how in [["--json", "--workers=3"], ["--stream", "--json"], ["--stream", "--drop-behind"]] {
                let load =
                    || weightmap(args!["load", model.path(), "--digest", "--mode", mode, how[0], how[1]]);
                // The change comes at some moment of the time that this takes when there is none.
                let start = Instant::now();
                load().ok();
                seed += 1;
                let moment = start.elapsed().mul_f64(mixed(seed, 1000) as f64 / 1000.0);
                let start = Instant::now();
                let run = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while start.elapsed() < moment {
                            std::thread::yield_now();
                        }
                        change(&path, whole.len() as u64, seed);
                    });
                    load()
                });
                damage::replace(&path, &whole);
                if run.status == 0 {
                    assert!(right.iter().all(|digest| run.stdout.contains(digest)), "{mode}: {}", run.stdout);
                } else {
                    let stderr = run.failure(1);
                    assert!(stderr.contains(&model.path().display().to_string()), "{stderr}");
                }
            }
        }
    }
}

#[test]
fn a_program_that_is_killed_amid_a_load_leaves_nothing_behind() {
    let (model, temporary) = (model(), TempModel::empty());
    let files = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let before = files(model.path());
    let content = fs::read(model.file(SHARD)).unwrap();
    for (seed, mode) in (1..).zip(["auto", "mapped", "buffered", "direct"]) {
        let arguments = args!["load", model.path(), "--digest", "--mode", mode, "--repeat", "100000"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_weightmap"));
        command.args(arguments).env("TMPDIR", temporary.path()).current_dir(temporary.path());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // How many calls that read it has made; none are told of a process that has ended.
        let counters = format!("/proc/{}/io", child.id());
        let calls = || -> Option<u64> {
            let text = fs::read_to_string(&counters).ok()?;
            text.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
        };
        let moment = 20 + mixed(seed, 500);
        while calls().is_some_and(|calls| calls < moment) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(files(model.path()), before);
        assert_eq!(files(temporary.path()), Vec::<PathBuf>::new());
        assert!(fs::read(model.file(SHARD)).unwrap() == content);
    }
}

/// Runs the program with these faults; `None` where there is no compiler.
fn with_faults(rules: &str, arguments: &[&std::ffi::OsStr]) -> Option<Run> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightmap"));
    command.args(arguments).env(faults::PRELOAD, faults::library()?).env(faults::RULES, rules);
    Some(Run::of(command.output().expect("the program starts")))
}

#[test]
fn a_call_that_fails_ends_the_program_with_status_1_and_what_to_do() {
    let model = model();
    for (rule, words) in [
        (
            "pread .safetensors 3- errno:5",
            "for tensor \"a\": Input/output error (os error 5); the device failed",
        ),
        ("open .safetensors 1- errno:24", "raise its limit (`ulimit -n`)"),
        ("open .safetensors 1- errno:13", "look at the permissions"),
        ("pread .safetensors 1- errno:116", "open the model again"),
        ("pread .safetensors 3 cut:5000", "changed since it was checked: expected"),
    ] {
        for mode in ["buffered", "direct"] {
            let rules = format!("{rule}\nuring * 1- errno:1");
            let Some(run) = with_faults(&rules, &args!["load", model.path(), "--mode", mode, "--digest"])
            else {
                return;
            };
            // The model's file is put back for those that come after.
            let stderr = run.failure(1);
            assert!(stderr.contains(words) && stderr.contains(SHARD), "{rule} {mode}: {stderr}");
            let fresh = self::model();
            fs::copy(fresh.file(SHARD), model.file(SHARD)).unwrap();
        }
    }
}

#[test]
fn a_shard_that_cannot_be_mapped_is_loaded_all_the_same_and_the_report_says_how() {
    let model = model();
    let arguments = args!["load", model.path(), "--digest", "--json"];
    let Some(run) = with_faults("mmap .safetensors 1- errno:19", &arguments) else { return };
    let json = run.json();
    assert_eq!(json["runs"][0]["mapped_bytes"], 0);
    assert_eq!(json["digests"]["c"], digest(&pattern::bytes("c", 2 << 20)));
    let arguments = args!["load", model.path(), "--mode", "mapped"];
    let stderr = with_faults("mmap .safetensors 1- errno:19", &arguments).unwrap().failure(1);
    assert!(stderr.contains("cannot map") && stderr.contains("ReadMode::Buffered"), "{stderr}");
}

#[test]
fn what_lies_in_the_place_of_the_configuration_is_neither_waited_for_nor_read_without_end() {
    let model = Llama::tiny().checkpoint().file("config.json", "{}").temp();
    let config = model.file("config.json");
    let things: [fn(&Path); 5] = [
        |path| damage::replace_by_fifo(path),
        |path| damage::replace_by_socket(path),
        |path| damage::replace_by_link(path, "/dev/zero"),
        |path| damage::replace_by_link(path, path),
        |path| damage::replace_by_directory(path),
    ];
    for thing in things {
        thing(&config);
        for command in ["plan", "load", "prefetch"] {
            let rank: &[&str] = if command == "plan" { &[] } else { &["--rank", "0"] };
            let arguments = args![command, model.path(), "--tp", "2"];
            let stderr = weightmap(arguments.into_iter().chain(rank.iter().map(AsRef::as_ref))).failure(1);
            assert!(stderr.contains("config.json cannot be read"), "{stderr}");
        }
        if config.is_dir() { fs::remove_dir(&config) } else { fs::remove_file(&config) }.unwrap();
        fs::write(&config, "{}").unwrap();
    }
}

#[test]
fn a_plan_can_come_through_a_pipe_and_one_without_end_is_refused() {
    let model = Llama::tiny().checkpoint().temp();
    let files = TempModel::empty();
    let pipe = files.file("pipe");
    fs::write(&pipe, "").unwrap();
    damage::replace_by_fifo(&pipe);
    let written = r#"{"version": 1, "mesh": [["dp", 1]], "rules": [{"match": ".*"}]}"#;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fs::File::options().write(true).open(&pipe).unwrap().write_all(written.as_bytes()).unwrap();
        });
        let run = weightmap(args!["plan", model.path(), "--plan", &pipe]);
        // Whatever is wrong with it, it has been read.
        assert!(!run.stderr.contains("cannot read"), "{}", run.stderr);
    });
    for (option, value) in [("--plan", "/dev/zero"), ("--names", "/dev/zero")] {
        let stderr = weightmap(args!["load", model.path(), option, value]).failure(1);
        assert!(stderr.contains("longer than 256 MiB") && stderr.contains(value), "{stderr}");
    }
}

#[test]
fn the_program_opens_nothing_that_an_index_names_outside_of_its_directory() {
    let parent = TempModel::empty();
    ShardBuilder::new().pattern("a", "U8", &[4]).write(parent.file("outside.safetensors")).unwrap();
    let dir = parent.file("model");
    let absolute = parent.file("outside.safetensors").display().to_string();
    for name in
        ["../outside.safetensors", &absolute, r"..\outside.safetensors", "x/../../outside.safetensors"]
    {
        let shard = ShardBuilder::new().pattern("b", "U8", &[3]);
        Checkpoint::new().shard("in.safetensors", shard).map("a", name).write(&dir).unwrap();
        for command in ["info", "ls", "check", "load", "prefetch"] {
            let Some(library) = faults::library() else { return };
            let log = parent.file("log");
            let mut program = Command::new(env!("CARGO_BIN_EXE_weightmap"));
            program.args(args![command, &dir]).env(faults::PRELOAD, library).env(faults::OPENED, &log);
            let run = Run::of(program.output().unwrap());
            assert_ne!(run.status, 0, "{name} {command}");
            let opened = fs::read_to_string(&log).unwrap();
            assert!(opened.contains("index.json"), "{opened}");
            assert!(!opened.lines().any(|path| path.contains("outside")), "{name} {command}: {opened}");
            fs::remove_file(log).unwrap();
        }
    }
}
