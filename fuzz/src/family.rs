//! The `config.json` of a model, of which a plan is made.

use arbitrary::Arbitrary;
use weightmap::fuzzing::divide;
use weightmap::{Dtype, Parallel, Plan};

/// A config, and in how many ways the model is divided.
#[derive(Debug, Arbitrary)]
pub struct Case<'a> {
    ways: [u8; 4],
    large: Option<u64>,
    config: &'a str,
}

/// Tensors that some families have.
const TENSORS: [(&str, &[u64]); 8] = [
    ("model.embed_tokens.weight", &[64, 16]),
    ("model.layers.0.self_attn.q_proj.weight", &[16, 16]),
    ("model.layers.0.self_attn.k_proj.weight", &[8, 16]),
    ("model.layers.1.mlp.down_proj.weight", &[16, 32]),
    ("model.layers.1.mlp.experts.3.up_proj.weight", &[32, 16]),
    ("model.layers.0.block_sparse_moe.experts.0.w1.weight", &[32, 16]),
    ("model.norm.weight", &[16]),
    ("lm_head.weight", &[64, 16]),
];

/// Makes a plan, and divides some tensors by it.
pub fn run(case: &Case<'_>) {
    let [tp, pp, dp, ep] = case.ways.map(|ways| u64::from(ways % 9));
    let parallel = Parallel::default().tp(tp).pp(case.large.unwrap_or(pp)).dp(dp).ep(ep);
    let plan = match Plan::for_model(case.config, &parallel) {
        Ok(plan) => plan,
        Err(error) => return assert!(!error.faults.is_empty() && !error.to_string().is_empty()),
    };
    assert_eq!(parallel.world(), Some(plan.world() as u64));
    for tensor in TENSORS {
        let (name, shape) = tensor;
        let bytes = shape.iter().product::<u64>() * 2;
        let Ok(partition) = divide(&plan, &[(name, Dtype::Bf16, shape, bytes, 0)]) else { continue };
        let totals: u64 = partition.totals().map(|total| total.bytes).sum();
        assert!(totals + partition.dropped_bytes() >= bytes, "{name}: {totals} of {bytes}");
    }
}
