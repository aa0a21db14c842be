//! What holds for all subcommands.

use std::process::{Command, Stdio};

use weightmap_testkit::{Checkpoint, Llama, ShardBuilder, TempModel};

use crate::{args, weightmap};

const COMMANDS: [&str; 7] = ["info", "ls", "check", "digest", "plan", "load", "prefetch"];

/// What a subcommand needs beside the path.
fn needed(command: &str) -> &'static [&'static str] {
    match command {
        "plan" => &["--balanced", "2"],
        // It is run more than once.
        "digest" => &["--force"],
        _ => &[],
    }
}

#[test]
fn an_error_is_told_on_stderr_and_stdout_stays_empty() {
    let empty = TempModel::empty();
    for command in ["info", "ls", "digest", "plan", "load", "prefetch"] {
        for json in [None, Some("--json")] {
            let arguments = args![command, empty.path()]
                .into_iter()
                .chain(needed(command).iter().copied().chain(json).map(std::ffi::OsStr::new));
            let stderr = weightmap(arguments).failure(1);
            assert!(
                stderr.starts_with("error: ") && stderr.contains("no safetensors model here"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn a_reader_that_is_gone_ends_the_program_quietly() {
    let model = Llama::tiny().checkpoint().temp();
    for command in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_weightmap"))
            .args(args![command, model.path()])
            .args(needed(command))
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
    }
}

/// A file that is opened gets the number of a standard stream that is not there; what is printed must not go to it.
#[cfg(unix)]
#[test]
fn a_program_that_was_started_without_standard_streams_does_its_work() {
    let model = Llama::tiny().checkpoint().temp();
    for command in COMMANDS {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {closed}"), env!("CARGO_BIN_EXE_weightmap")]);
            let output = shell.args(args![command, model.path()]).args(needed(command)).output().unwrap();
            assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]), "{command} {closed}");
            assert_eq!(output.stdout.is_empty(), closed.contains(" >&-") || closed.starts_with('>'));
        }
    }
    let check = Command::new(env!("CARGO_BIN_EXE_weightmap")).args(args!["check", model.path()]).output();
    assert_eq!(check.unwrap().status.code(), Some(0), "the files are as they were");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let model = Llama::tiny().checkpoint().temp();
    for command in COMMANDS {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_weightmap"));
        let output =
            child.args(args![command, model.path()]).args(needed(command)).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(if command == "check" { 2 } else { 1 }));
        assert!(stderr.starts_with("error: cannot write to the standard output: No space left"), "{stderr}");
    }
}

#[test]
fn names_and_metadata_from_files_cannot_drive_the_terminal() {
    let shard = ShardBuilder::new().metadata("k\u{1b}[2J", "v\u{7}\n");
    let shard = shard.tensor("a\u{1b}[31m\u{202e}", "D\u{9b}1", &[4], [0; 4]);
    let model = Checkpoint::single(shard).temp();
    for command in COMMANDS {
        for json in [None, Some("--json")] {
            let options = json
                .into_iter()
                .chain((command == "load").then_some("--digest"))
                .chain(needed(command).iter().copied());
            let text =
                weightmap(args![command, model.path()].into_iter().chain(options.map(std::ffi::OsStr::new)))
                    .ok();
            let foul = |character: char| {
                (character.is_control() && !matches!(character, '\n' | '\t')) || character == '\u{202e}'
            };
            assert!(!text.contains(foul), "{command}: {text:?}");
        }
    }
    assert!(weightmap(args!["ls", model.path()]).ok().starts_with("a\\u{1b}[31m\\u{202e}\tD\\u{9b}1\t[4]"));
    let stderr = weightmap(args!["ls", model.path(), "--select", "\u{1b}[2J"]).failure(1);
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
}

#[test]
fn verbosity_goes_to_stderr_and_leaves_stdout_alone() {
    let model = Llama::tiny().checkpoint().temp();
    let run = weightmap(args!["ls", model.path(), "--json", "-v"]);
    assert!(run.stderr.contains("first_touch"), "{}", run.stderr);
    assert_eq!(run.stdout, weightmap(args!["ls", model.path(), "--json"]).ok());
}
