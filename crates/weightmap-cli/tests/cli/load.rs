//! `weightmap load`.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use weightmap_testkit::{Checkpoint, Llama, Oracle, ShardBuilder};

use crate::{args, weightmap};

/// The SHA-256 of some bytes in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn digests_are_those_of_an_independent_reader_in_every_mode() {
    let model = Llama::tiny().checkpoint().temp();
    let oracle = Oracle::open(model.path());
    let wanted =
        oracle.names().into_iter().map(|name| (name.to_owned(), digest(&oracle.tensor(name).bytes).into()));
    let wanted: Map<String, Value> = wanted.collect();
    for mode in ["auto", "mapped", "buffered", "direct"] {
        let json = weightmap(args!["load", model.path(), "--mode", mode, "--digest", "--json"]).json();
        assert_eq!(json["digests"], Value::Object(wanted.clone()), "{mode}");
        assert_eq!(json["runs"][0]["mode_asked"], mode);
    }
}

#[test]
fn digests_as_text_are_sorted_by_name() {
    let model =
        Checkpoint::single(ShardBuilder::new().pattern("b", "U8", &[3]).zeros("a", "F32", &[0])).temp();
    let text = weightmap(args!["load", model.path(), "--digest", "--repeat", "2"]).ok();
    let oracle = Oracle::open(model.path());
    let line = |name: &str| format!("{}  {name}\n", digest(&oracle.tensor(name).bytes));
    assert!(text.ends_with(&format!("\n\n{}{}", line("a"), line("b"))), "{text}");
}

#[test]
fn a_document_has_a_report_for_each_run_and_an_empty_object_without_digests() {
    let model = Llama::tiny().checkpoint().temp();
    let arguments =
        args!["load", model.path(), "--select", "*norm*", "--repeat", "3", "--workers", "1", "--json"];
    let json = weightmap(arguments).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["digests", "path", "runs"]);
    assert_eq!(json["path"], model.path().to_str().unwrap());
    assert_eq!(json["digests"], Value::Object(Map::new()));
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!((&run["tensors"], &run["requested_bytes"]), (&5.into(), &(5 * 64 * 2).into()));
        assert_eq!(run["workers"].as_array().unwrap().len(), 1);
        // Each run opens the model anew.
        assert_eq!(run["shards_checked"], run["shards_touched"]);
    }
}

#[test]
fn every_run_has_a_heading() {
    let model = Llama::tiny().checkpoint().temp();
    let text = weightmap(args!["load", model.path(), "--repeat", "2"]).ok();
    let headings: Vec<_> = text.lines().filter(|line| line.starts_with("run ")).collect();
    assert_eq!(headings.len(), 2, "{text}");
    assert!(headings[0].starts_with("run 1 of 2") && headings[1].starts_with("run 2 of 2"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("loaded  21 tensors")).count(), 2, "{text}");
}

#[test]
fn a_cold_run_is_verified_or_fails_before_it_loads() {
    let model = Llama::tiny().checkpoint().temp();
    let run = weightmap(args!["load", model.path(), "--cold", "--repeat", "2"]);
    if run.status == 0 {
        for heading in ["run 1 of 2, cold\n", "run 2 of 2, cold\n"] {
            assert!(run.stdout.contains(heading), "{}", run.stdout);
        }
    } else {
        // The directory for temporary files is on a file system that cannot drop pages.
        let stderr = run.failure(1);
        assert!(stderr.contains("cannot be dropped from the page cache"), "{stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_dropped_from_the_page_cache_is_not_called_cold() {
    let directory = std::path::PathBuf::from(format!("/dev/shm/weightmap-cli-{}", std::process::id()));
    if Llama::tiny().ensure(&directory).is_err() {
        // No file system in memory here.
        return;
    }
    let run = weightmap(args!["load", &directory, "--cold", "--json"]);
    std::fs::remove_dir_all(&directory).unwrap();
    let stderr = run.failure(1);
    assert!(
        stderr.contains("cannot be dropped from the page cache") && stderr.contains("/dev/shm/"),
        "{stderr}"
    );
}

#[test]
fn a_checkpoint_without_tensors_loads_none() {
    let model = Checkpoint::single(ShardBuilder::new()).temp();
    assert!(weightmap(args!["load", model.path()]).ok().contains("loaded  0 tensors"));
}

#[test]
fn arguments_that_make_no_sense_have_status_2() {
    let model = Llama::tiny().checkpoint().temp();
    for (option, value) in [
        ("--repeat", "0"),
        ("--workers", "0"),
        ("--mode", "fast"),
        ("--memory-limit", "much"),
        ("--slice", "a"),
    ] {
        weightmap(args!["load", model.path(), option, value]).failure(2);
    }
}
