//! `weightmap load` of more than the memory that it may use.

use weightmap_testkit::{Checkpoint, Llama, ShardBuilder, TempModel};

use crate::{args, weightmap};

const MIB: u64 = 1 << 20;

/// Four tensors of 8 MiB each.
fn large() -> TempModel {
    let add = |shard: ShardBuilder, name| shard.pattern(name, "U8", &[8 * MIB]);
    Checkpoint::single(["a", "b", "c", "d"].into_iter().fold(ShardBuilder::new(), add)).temp()
}

#[test]
fn a_stream_has_the_digests_of_a_load() {
    let model = Llama::tiny().checkpoint().temp();
    let digests = |stream: Option<&str>| {
        let arguments = args!["load", model.path(), "--digest", "--json"];
        weightmap(arguments.into_iter().chain(stream.map(std::ffi::OsStr::new))).json()["digests"].clone()
    };
    assert_eq!(digests(Some("--stream")), digests(None));
}

#[test]
fn what_does_not_fit_the_memory_at_once_is_an_error_of_a_load_and_none_of_a_stream() {
    let model = large();
    for mode in ["buffered", "direct"] {
        let limited =
            args!["load", model.path(), "--mode", mode, "--memory-limit", "24MiB", "--workers", "1"];
        let stderr = weightmap(limited).failure(1);
        assert!(
            stderr.contains("25165824 (24.0 MiB) are allowed")
                && stderr.contains("hint: `--stream`, `--mode mapped`"),
            "{stderr}"
        );
        let streamed = ["--stream", "--drop-behind", "--json"].map(std::ffi::OsStr::new);
        let json = weightmap(limited.into_iter().chain(streamed)).json();
        let peak = json["runs"][0]["peak_buffer_bytes"].as_u64().unwrap();
        assert_eq!(json["runs"][0]["requested_bytes"], 32 * MIB);
        assert!((8 * MIB..=24 * MIB).contains(&peak), "{mode}: {peak}");
    }
}

#[test]
fn a_tensor_that_alone_is_more_than_the_memory_is_named() {
    let model = large();
    let arguments = args!["load", model.path(), "--mode", "buffered", "--memory-limit", "4M", "--stream"];
    let stderr = weightmap(arguments).failure(1);
    assert!(
        stderr.contains("tensor \"") && stderr.contains("hint: `--memory-limit` does that, and `--slice`"),
        "{stderr}"
    );
}
