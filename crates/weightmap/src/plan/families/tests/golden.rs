//! What transformers gives each rank, where its rules are ours.

use std::fs;
use std::path::Path;

use super::*;
use crate::dtype::Dtype;
use crate::plan::partition::Tensor;

/// The cases of a file whose id begins so; none, with a line that says so, if the file is not there.
fn cases(file: &str, id: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden").join(file);
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return Vec::new();
    };
    let file: Value = serde_json::from_str(&text).unwrap();
    let all = file["cases"].as_array().unwrap().iter();
    let cases: Vec<_> = all.filter(|case| case["id"].as_str().unwrap().starts_with(id)).cloned().collect();
    assert!(!cases.is_empty(), "{id}");
    cases
}

/// What each rank has of a tensor; `None` for nothing, be it an empty part or no part.
type Parts = Vec<Option<(Vec<Vec<[u64; 2]>>, Vec<u64>)>>;

fn expected(case: &Value) -> Parts {
    let of_rank = |rank: &Value| {
        let intervals: Option<Vec<Vec<[u64; 2]>>> =
            serde_json::from_value(rank["intervals"].clone()).unwrap();
        let local_shape: Option<Vec<u64>> = serde_json::from_value(rank["local_shape"].clone()).unwrap();
        intervals.zip(local_shape).filter(|(_, shape)| !shape.contains(&0))
    };
    case["ranks"].as_array().unwrap().iter().map(of_rank).collect()
}

fn divided(plan: &Plan, tensor: &Value) -> Parts {
    let name = tensor["name"].as_str().unwrap();
    let shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).unwrap();
    let bytes = shape.iter().product::<u64>() * 4;
    let one = Tensor { name, dtype: &Dtype::F32, shape: &shape, bytes, shard: 0 };
    let partition = plan.divide(std::iter::once(one)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let of_rank = |rank| {
        let found = partition.rank(rank).find(|tensor| !tensor.local_shape.contains(&0))?;
        let spans = |dim: &Vec<std::ops::Range<u64>>| dim.iter().map(|span| [span.start, span.end]).collect();
        let intervals = found.parts[0].intervals.iter().map(spans).collect();
        Some((intervals, found.local_shape))
    };
    (0..partition.world()).map(of_rank).collect()
}

/// Compares the cases of tensors of whose name `pick` holds.
fn assert_golden(file: &str, id: &str, config: &str, parallel: Parallel, pick: impl Fn(&str) -> bool) {
    let plan = Plan::for_model(config, &parallel).unwrap();
    let cases = cases(file, id);
    let mut picked = cases.iter().filter(|case| pick(case["tensor"]["name"].as_str().unwrap())).peekable();
    assert!(cases.is_empty() || picked.peek().is_some(), "{id}");
    for case in picked {
        assert_eq!(
            divided(&plan, &case["tensor"]),
            expected(case),
            "{} {}",
            case["id"],
            case["tensor"]["name"]
        );
    }
}

/// Heads of 4 rows, so that each cut of the framework, which knows no heads, lies between two of them.
fn short_heads(family: &str, layers: u64, heads: u64, kv_heads: u64, experts: u64) -> Value {
    json!({
        "model_type": family, "num_hidden_layers": layers, "head_dim": 4, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "num_experts": experts, "num_local_experts": experts,
    })
}

#[test]
fn a_llama_is_divided_as_transformers_does_it() {
    let one = Parallel::default();
    let models = "transformers_models.json";
    let llama = short_heads("llama", 3, 12, 6, 0).to_string();
    assert_golden(models, "transformers-model/llama_a.tp2/", &llama, one.tp(2), |_| true);
    let mut tied = short_heads("llama", 5, 8, 4, 0);
    tied["tie_word_embeddings"] = json!(true);
    let tied = tied.to_string();
    assert_golden(models, "transformers-model/llama_b.tp4/", &tied, one.tp(4), |_| true);
    assert_golden(models, "transformers-model/llama_b.pp2/", &tied, one.pp(2), |_| true);
}

#[test]
fn the_checkpoint_that_transformers_loaded_is_divided_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/hf_tiny_llama");
    let Ok(config) = fs::read_to_string(folder.join("config.json")) else {
        println!("skipped: {} is not there", folder.display());
        return;
    };
    for tp in [2, 4] {
        let case = format!("hf_tiny_llama/tp{tp}");
        assert_golden("hf_tiny_llama/intervals.json", &case, &config, Parallel::default().tp(tp), |_| true);
    }
}

#[test]
fn experts_are_divided_as_transformers_does_it() {
    let one = Parallel::default();
    let models = "transformers_models.json";
    let is_expert = |name: &str| name.contains(".experts.");
    let mixtral = short_heads("mixtral", 2, 6, 6, 4).to_string();
    assert_golden(models, "transformers-model/mixtral_a.tp2/", &mixtral, one.tp(2), |_| true);
    assert_golden(
        models,
        "transformers-model/mixtral_a.fsdp2ep4/",
        &mixtral,
        one.dp(2).tp(2).ep(4),
        is_expert,
    );
    let qwen = short_heads("qwen3_moe", 2, 8, 4, 6).to_string();
    assert_golden(models, "transformers-model/qwen3moe_a.ep2/", &qwen, one.tp(2).ep(2), |_| true);
    assert_golden(models, "transformers-model/qwen3moe_a.ep3/", &qwen, one.dp(3).ep(3), is_expert);
}
