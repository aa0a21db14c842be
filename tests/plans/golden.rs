//! A model of transformers, where the checkout has it beside it: the bytes that each rank had there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use weightmap::{Parallel, Plan, Rank, ShardedModel};

use crate::support::open;

/// The folder of the model; `None`, with a line that says so, if it is not there.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/hf_tiny_llama");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} is not there", folder.display());
    None
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Shape and digest of each tensor, by rank and name.
type Digests = BTreeMap<(u64, String), (Vec<u64>, String)>;

fn digest(record: &Value) -> (Vec<u64>, String) {
    let shape = record["local_shape"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap()).collect();
    (shape, record["sha256"].as_str().unwrap().to_owned())
}

/// What a plan gives to each rank, without padding.
fn loaded(model: &ShardedModel, plan: &Plan) -> Digests {
    let of_rank = |rank: usize| {
        let rank_of = Rank::new(rank, plan.world()).unwrap();
        let loaded = model.select().plan(plan, rank_of).unwrap().load().unwrap();
        let tensors = loaded.into_tensors().into_iter().map(move |tensor| {
            assert!(tensor.info().pad.is_empty());
            let hash = Sha256::digest(tensor.bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            ((rank as u64, tensor.name().to_owned()), (tensor.shape().to_vec(), hash))
        });
        tensors.collect::<Vec<_>>()
    };
    (0..plan.world()).flat_map(of_rank).collect()
}

#[test]
fn each_rank_loads_the_bytes_that_it_had_in_transformers() {
    let Some(folder) = folder() else { return };
    let model = open(&folder);
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    for ranks in [2, 4] {
        let written = std::fs::read_to_string(folder.join(format!("plan_tp{ranks}.json"))).unwrap();
        let ready = Plan::for_model(&config, &Parallel::default().tp(ranks)).unwrap();
        let params = json(folder.join(format!("local_params_tp{ranks}.json")));
        let expected: Digests = params["params"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(name, of)| of["ranks"].as_array().unwrap().iter().map(move |record| (name, record)))
            .map(|(name, record)| ((record["rank"].as_u64().unwrap(), name.clone()), digest(record)))
            .collect();
        assert_eq!(expected.len() as u64, model.len() as u64 * ranks);
        for plan in [Plan::from_json(&written).unwrap(), ready] {
            assert_eq!(loaded(&model, &plan), expected);
        }
    }
}

#[test]
fn each_slice_that_was_found_in_transformers_is_loaded() {
    let Some(folder) = folder() else { return };
    let model = open(&folder);
    let cases = json(folder.join("intervals.json"));
    let cases = cases["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let (id, name) = (case["id"].as_str().unwrap(), case["tensor"]["name"].as_str().unwrap());
        // The plan is of this tensor alone; the others may be whole.
        let mut plan = case["plan"].clone();
        plan["default"] = "replicate".into();
        let found = loaded(&model, &Plan::from_json(&plan.to_string()).unwrap());
        for record in case["ranks"].as_array().unwrap() {
            let rank = record["rank"].as_u64().unwrap();
            assert_eq!(found[&(rank, name.to_owned())], digest(record), "{id}, rank {rank}");
        }
    }
}
