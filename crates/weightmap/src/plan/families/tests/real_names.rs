//! The tensors of real models, by their indexes, where the checkout has them beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

/// The names of an index; `None`, with a line that says so, if it is not there.
fn names(index: &str) -> Option<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/indexes").join(index);
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return None;
    };
    let index: Value = serde_json::from_str(&text).unwrap();
    Some(index["weight_map"].as_object().unwrap().keys().cloned().collect())
}

/// The names of an index that no rule matches, with `#` for numbers. All others have the fate that the page of
/// tensors tells.
fn unmatched(index: &str, family: &str, layers: u64, experts: u64) -> Option<BTreeSet<String>> {
    let changes = ["num_experts", "num_local_experts", "n_routed_experts"].map(|name| (name, json!(experts)));
    let mut config: Value = serde_json::from_str(&with(family, &changes)).unwrap();
    match config.get_mut("text_config") {
        Some(text) => text["num_hidden_layers"] = layers.into(),
        None => config["num_hidden_layers"] = layers.into(),
    }
    let spec = spec(&config.to_string(), &Parallel::default().tp(2).pp(2));
    let rules = compiled(&spec);
    let page = section(family);
    let number = Regex::new(r"\b\d+\b").unwrap();
    let mut unmatched = BTreeSet::new();
    for name in names(index)? {
        let general = number.replace_all(&name, "#").into_owned();
        match fate(&rules, &name) {
            None => drop(unmatched.insert(general)),
            Some(fate) => {
                if let Some(row) = page.iter().find(|row| row.name == general) {
                    assert_eq!(fate, row.fate, "{name}");
                } else {
                    assert_eq!(fate, "first: whole", "{name} is not of the page, nor of a tower");
                }
            }
        }
    }
    Some(unmatched)
}

#[test]
fn each_name_of_a_real_model_falls_to_the_rule_that_is_meant_for_it() {
    let models = [
        ("llama3.1-70b-162shards.json", "llama", 80, 1),
        ("llama2-70b-mergekit-emptymeta.json", "llama", 80, 1),
        ("llama2-7b-codellama-invfreq.json", "llama", 32, 1),
        ("devstral-small-2507-mistral.json", "llama", 40, 1),
        ("mlx-qwen3-single-shard.json", "qwen3", 28, 1),
        ("medgemma-27b-multimodal.json", "gemma3", 62, 1),
        ("dolphin-mixtral-8x7b.json", "mixtral", 32, 8),
        ("gpt-oss-20b-mxfp4.json", "gpt_oss", 24, 32),
    ];
    for (index, family, layers, experts) in models {
        let unmatched = unmatched(index, family, layers, experts).unwrap_or_default();
        assert_eq!(unmatched, BTreeSet::new(), "{index}");
    }
}

#[test]
fn what_a_real_model_adds_to_its_family_falls_to_no_rule() {
    let added = |index: &str, family: &str, layers, experts, expected: &[&str]| {
        if let Some(unmatched) = unmatched(index, family, layers, experts) {
            assert_eq!(unmatched.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{index}");
        }
    };
    let indexer =
        ["qk_index_proj", "v_transform"].map(|name| format!("model.layers.#.self_attn.indexer.{name}"));
    let indexer = indexer.each_ref().map(String::as_str);
    added("qwen3-30b-a3b-moe-transgqa.json", "qwen3_moe", 48, 128, &indexer);

    if let Some(unmatched) = unmatched("mlx-qwen3-14b-4bit.json", "qwen3", 40, 1) {
        assert_eq!(unmatched.len(), 18, "{unmatched:?}");
        assert!(
            unmatched.iter().all(|name| name.ends_with(".scales") || name.ends_with(".biases")),
            "{unmatched:?}"
        );
    }
}
