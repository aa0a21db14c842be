//! `weightmap check`.

use weightmap_testkit::{Checkpoint, Llama, ShardBuilder, TempModel, damage};

use crate::{args, weightmap};

#[test]
fn a_sound_checkpoint_has_status_0() {
    let model = Llama::tiny().checkpoint().temp();
    assert_eq!(
        weightmap(args!["check", model.path()]).ok(),
        "sound, 0 warnings; 21 tensors listed, 4 headers read, no data compared\n"
    );
    let json = weightmap(args!["check", model.path(), "--json"]).json();
    assert_eq!(
        json,
        serde_json::json!({
            "faults": [], "more_faults": 0, "warnings": [], "more_warnings": 0,
            "compared_tensors": 0, "compared_files": 0
        })
    );
}

#[test]
fn faults_are_listed_on_stdout_and_have_status_1() {
    let model = Llama::tiny().checkpoint().temp();
    damage::append(model.file("model-00002-of-00004.safetensors"), "x");
    damage::truncate(model.file("model-00003-of-00004.safetensors"), 9);
    let run = weightmap(args!["check", model.path()]);
    assert_eq!((run.status, run.stderr.as_str()), (1, ""));
    let mut lines: Vec<_> = run.stdout.lines().collect();
    lines[..2].sort_unstable();
    assert!(
        lines[0].starts_with("fault [HeaderTruncated] ") && lines[0].contains("model-00003-of-00004"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("fault [TrailingBytes] ") && lines[1].contains("model-00002-of-00004"),
        "{lines:?}"
    );
    assert_eq!(lines[2], "2 faults, 0 warnings; 21 tensors listed, 2 headers read, no data compared");
}

#[test]
fn a_fault_in_json_has_kind_file_tensor_and_message() {
    let shard = ShardBuilder::new().zeros("a", "F32", &[1]);
    let model = Checkpoint::new().shard("x.safetensors", shard).map("b", "x.safetensors").temp();
    let run = weightmap(args!["check", model.path(), "--json"]);
    assert_eq!(run.status, 1);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let fault = &json["faults"][0];
    assert_eq!(fault["kind"], "TensorNotInShard");
    assert_eq!(fault["file"], model.file("x.safetensors").to_str().unwrap());
    assert_eq!(fault["tensor"], "b");
    assert!(fault["message"].as_str().unwrap().contains("does not list it"), "{fault}");
    assert_eq!(fault.as_object().unwrap().len(), 4);
}

#[test]
fn warnings_leave_the_status_at_0() {
    let shard = ShardBuilder::new().zeros("a", "F32", &[1]).zeros("b", "F32", &[1]);
    let model = Checkpoint::new().shard("x.safetensors", shard).unmap("b").temp();
    let text = weightmap(args!["check", model.path()]).ok();
    assert!(text.starts_with("warning [UnlistedTensor] "), "{text}");
    assert!(text.ends_with("sound, 1 warning; 1 tensor listed, 1 header read, no data compared\n"), "{text}");
}

#[test]
fn a_path_where_nothing_is_has_status_2() {
    let nothing = TempModel::empty().file("gone");
    for json in [None, Some("--json")] {
        let arguments = args!["check", &nothing].into_iter().chain(json.map(std::ffi::OsStr::new));
        let stderr = weightmap(arguments).failure(2);
        assert!(stderr.starts_with("error: ") && stderr.contains("gone"), "{stderr}");
    }
}

#[test]
fn a_lenient_check_warns_of_what_it_accepts_and_has_status_0() {
    let model = Llama::tiny().checkpoint().temp();
    damage::append(model.file("model-00002-of-00004.safetensors"), "x");
    let strict = weightmap(args!["check", model.path()]);
    assert_eq!(strict.status, 1);
    assert!(strict.stdout.contains("--lenient"), "{}", strict.stdout);
    let run = weightmap(args!["check", model.path(), "--lenient"]);
    assert_eq!(run.status, 0);
    assert!(run.stdout.starts_with("warning [TrailingBytesIgnored] "), "{}", run.stdout);
    assert!(run.stdout.contains("sound, 1 warning; "), "{}", run.stdout);
    assert!(run.stderr.contains("WARN") && run.stderr.contains("TrailingBytesIgnored"), "{}", run.stderr);
}

#[test]
fn a_lenient_load_shows_its_warnings_as_text_and_as_json() {
    let model = Llama::tiny().checkpoint().temp();
    damage::append(model.file("model-00002-of-00004.safetensors"), "x");
    assert_eq!(weightmap(args!["load", model.path()]).status, 1);
    let run = weightmap(args!["load", model.path(), "--lenient"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("\nwarning [TrailingBytesIgnored] "), "{}", run.stdout);
    let run = weightmap(args!["load", model.path(), "--lenient", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["runs"][0]["warnings"][0]["kind"], "TrailingBytesIgnored");
    for command in ["ls", "info", "prefetch"] {
        assert_eq!(weightmap(args![command, model.path(), "--lenient"]).status, 0, "{command}");
    }
}
