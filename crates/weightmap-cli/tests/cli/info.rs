//! `weightmap info`.

use weightmap_testkit::{Checkpoint, Llama, Oracle, ShardBuilder};

use crate::{args, weightmap};

fn model() -> Checkpoint {
    let first =
        ShardBuilder::new().metadata("format", "pt").zeros("a", "F32", &[2, 3]).zeros("b", "BF16", &[5]);
    let second = ShardBuilder::new().metadata("format", "pt").metadata("step", "7").zeros("c", "BF16", &[1]);
    Checkpoint::new().shard("x.safetensors", first).shard("y.safetensors", second)
}

#[test]
fn json_has_exact_numbers() {
    let model = Llama::tiny().checkpoint().temp();
    let json = weightmap(args!["info", model.path(), "--json"]).json();
    let oracle = Oracle::open(model.path());
    assert_eq!(json["tensors"], oracle.names().len());
    assert_eq!(json["tensor_bytes"], Llama::tiny().total_bytes());
    assert_eq!(json["metadata"]["total_size"], Llama::tiny().total_bytes());
    let files = json["files"].as_array().unwrap();
    let on_disk = |name: &str| std::fs::metadata(model.file(name)).unwrap().len();
    let bytes: u64 = files.iter().map(|file| on_disk(file["name"].as_str().unwrap())).sum();
    assert_eq!((files.len(), &json["file_bytes"]), (4, &bytes.into()));
    assert_eq!(json["header_bytes"], bytes - Llama::tiny().total_bytes());
    assert_eq!(json["dtypes"][0]["dtype"], "BF16");
    assert_eq!(json["dtypes"][0]["tensors"], 21);
    assert_eq!(files[0]["metadata"]["format"], "pt");
}

#[test]
fn text_tells_files_dtypes_and_metadata() {
    let model = model().temp();
    let text = weightmap(args!["info", model.path()]).ok();
    for lines in [
        "tensors  3 in 2 files\n",
        "\ndtypes\n  BF16  12 B  2 tensors\n  F32   24 B   1 tensor\n",
        "\nmetadata\n  total_size  36  index\n  format      pt  2 files\n  step        7   y.safetensors\n",
    ] {
        assert!(text.contains(lines), "{text}");
    }
    assert!(!text.contains("warnings"), "{text}");
}

#[test]
fn what_was_passed_over_is_told() {
    let model = model().file("model.safetensors", ShardBuilder::new().build()).temp();
    let text = weightmap(args!["info", model.path()]).ok();
    assert!(text.contains("\nwarnings\n  [PassedOver] "), "{text}");
    let json = weightmap(args!["info", model.path(), "--json"]).json();
    assert_eq!(json["warnings"][0]["kind"], "PassedOver");
}

#[test]
fn an_absent_shard_is_an_error_unless_it_is_allowed() {
    let model = model().omit_shard("y.safetensors").temp();
    assert!(weightmap(args!["info", model.path()]).failure(1).contains("\"y.safetensors\""));
    let text = weightmap(args!["info", model.path(), "--allow-missing"]).ok();
    assert!(text.contains("  y.safetensors  absent   1 tensor\n"), "{text}");
    let json = weightmap(args!["info", model.path(), "--allow-missing", "--json"]).json();
    assert_eq!(json["files"][1]["bytes"], serde_json::Value::Null);
}

#[test]
fn metadata_of_the_index_is_shown_whatever_it_is() {
    for (metadata, shown) in [
        ("[1, 2]", "[1, 2]"),
        ("{\"total_size\": 1e400}", "1e400"),
        ("{\"a\": {\"b\": null}}", "{\"b\": null}"),
    ] {
        let index = format!("{{\"metadata\": {metadata}, \"weight_map\": {{\"c\": \"y.safetensors\"}}}}");
        let model = model().index_text(index).temp();
        let text = weightmap(args!["info", model.path()]).ok();
        assert!(text.contains(shown), "{text}");
        let json = weightmap(args!["info", model.path(), "--json"]).ok();
        assert!(json.contains(&format!("\"metadata\":{metadata}")), "{json}");
    }
}

#[test]
fn a_header_over_the_limit_is_an_error() {
    let model = model().temp();
    let stderr = weightmap(args!["info", model.path(), "--max-header-bytes", "20"]).failure(1);
    assert!(stderr.contains("the limit is 20"), "{stderr}");
}

#[test]
fn a_variant_is_opened_where_it_is_asked_for() {
    let fp16 = ShardBuilder::new().zeros("v", "F16", &[1]).build();
    let model = model().file("model.fp16.safetensors", fp16).temp();
    let json = weightmap(args!["info", model.path(), "--variant", "fp16", "--json"]).json();
    assert_eq!(json["files"][0]["name"], "model.fp16.safetensors");
    assert!(weightmap(args!["info", model.path(), "--variant", "int8"]).failure(1).contains("int8"));
}
