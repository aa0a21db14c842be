//! A huge mixture-of-experts model of which only the headers take space.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::{Checkpoint, ShardBuilder, Written};

/// A model of DeepSeek-V3's names, types and shapes, cut off after any number of tensors, all zeros.
///
/// The shards are sparse: at full size they claim 635 GiB and take about 21 MiB. On a file system without
/// holes (NTFS among them, unless asked) they take what they claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moe {
    /// How many tensors.
    pub tensors: usize,
    /// How many shards they are spread over, evenly and in the order of the model.
    pub shards: usize,
}

/// A tensor's name after its layer's, its type and its shape.
type Part = (String, &'static str, Vec<u64>);

const HIDDEN: u64 = 7168;
const VOCAB: u64 = 129_280;
const HEADS: u64 = 128;
/// Of a head's queries and keys, what is turned by the position and what is not.
const ROPE: u64 = 64;
const NOPE: u64 = 128;
/// Of a head's values.
const VALUE: u64 = 128;
const Q_RANK: u64 = 1536;
const KV_RANK: u64 = 512;
const EXPERTS: u64 = 256;
const EXPERT_WIDTH: u64 = 2048;
/// One scale for each block of so many rows and columns.
const SCALE_BLOCK: u64 = 128;

impl Moe {
    /// The size of DeepSeek-V3: 92,000 tensors in 163 shards.
    pub fn full() -> Self {
        Self { tensors: 92_000, shards: 163 }
    }

    /// The model as a checkpoint, with its `config.json`.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut tensors = tensors().take(self.tensors);
        let checkpoint = Checkpoint::new().file("config.json", format!("{:#}\n", self.config()));
        (0..self.shards).fold(checkpoint, |checkpoint, number| {
            let share = self.tensors * (number + 1) / self.shards - self.tensors * number / self.shards;
            let empty = ShardBuilder::new().metadata("format", "pt");
            let shard = tensors
                .by_ref()
                .take(share)
                .fold(empty, |shard, (name, dtype, shape)| shard.zeros(&name, dtype, &shape));
            let name = format!("model-{:05}-of-{:06}.safetensors", number + 1, self.shards);
            checkpoint.shard(&name, shard)
        })
    }

    /// Writes the model into `dir`, which is made if need be.
    ///
    /// # Errors
    /// When a directory or file cannot be created or written.
    pub fn write(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        self.checkpoint().write(dir)
    }

    fn config(&self) -> serde_json::Value {
        json!({
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "torch_dtype": "bfloat16",
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "moe_intermediate_size": EXPERT_WIDTH,
            // Those of which there is something.
            "num_hidden_layers": self.tensors.saturating_sub(1).div_ceil(layer().len()),
            "num_nextn_predict_layers": 0,
            "first_k_dense_replace": 0,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "q_lora_rank": Q_RANK,
            "kv_lora_rank": KV_RANK,
            "qk_nope_head_dim": NOPE,
            "qk_rope_head_dim": ROPE,
            "v_head_dim": VALUE,
            "n_routed_experts": EXPERTS,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "vocab_size": VOCAB,
            "tie_word_embeddings": false,
            "quantization_config": {
                "quant_method": "fp8",
                "fmt": "e4m3",
                "activation_scheme": "dynamic",
                "weight_block_size": [SCALE_BLOCK, SCALE_BLOCK],
            },
        })
    }
}

/// The tensors of a model that has no last layer.
fn tensors() -> impl Iterator<Item = Part> {
    let layer = layer();
    let embedding = ("model.embed_tokens.weight".to_owned(), "BF16", vec![VOCAB, HIDDEN]);
    std::iter::once(embedding).chain((0_u64..).flat_map(move |number| {
        let named =
            |(part, dtype, shape): &Part| (format!("model.layers.{number}.{part}"), *dtype, shape.clone());
        layer.iter().map(named).collect::<Vec<_>>()
    }))
}

fn layer() -> Vec<Part> {
    let mut parts = vec![norm("input_layernorm", HIDDEN), norm("post_attention_layernorm", HIDDEN)];
    parts.extend(linear("self_attn.q_a_proj", Q_RANK, HIDDEN));
    parts.push(norm("self_attn.q_a_layernorm", Q_RANK));
    parts.extend(linear("self_attn.q_b_proj", HEADS * (NOPE + ROPE), Q_RANK));
    parts.extend(linear("self_attn.kv_a_proj_with_mqa", KV_RANK + ROPE, HIDDEN));
    parts.push(norm("self_attn.kv_a_layernorm", KV_RANK));
    parts.extend(linear("self_attn.kv_b_proj", HEADS * (NOPE + VALUE), KV_RANK));
    parts.extend(linear("self_attn.o_proj", HIDDEN, HEADS * VALUE));
    parts.push(("mlp.gate.weight".to_owned(), "BF16", vec![EXPERTS, HIDDEN]));
    parts.push(("mlp.gate.e_score_correction_bias".to_owned(), "F32", vec![EXPERTS]));
    parts.extend(expert("mlp.shared_experts"));
    parts.extend((0..EXPERTS).flat_map(|number| expert(&format!("mlp.experts.{number}"))));
    parts
}

fn expert(name: &str) -> Vec<Part> {
    let projections = [
        ("gate_proj", EXPERT_WIDTH, HIDDEN),
        ("up_proj", EXPERT_WIDTH, HIDDEN),
        ("down_proj", HIDDEN, EXPERT_WIDTH),
    ];
    projections
        .iter()
        .flat_map(|(part, rows, columns)| linear(&format!("{name}.{part}"), *rows, *columns))
        .collect()
}

/// An 8-bit matrix and its scales.
fn linear(name: &str, rows: u64, columns: u64) -> [Part; 2] {
    let scales = vec![rows.div_ceil(SCALE_BLOCK), columns.div_ceil(SCALE_BLOCK)];
    [
        (format!("{name}.weight"), "F8_E4M3", vec![rows, columns]),
        (format!("{name}.weight_scale_inv"), "F32", scales),
    ]
}

fn norm(name: &str, width: u64) -> Part {
    (format!("{name}.weight"), "BF16", vec![width])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Oracle, TempModel};

    #[test]
    fn the_tensors_are_spread_over_all_shards() {
        let moe = Moe { tensors: 3_205, shards: 7 };
        let dir = TempModel::empty();
        let written = moe.write(&dir).unwrap();
        assert_eq!(written.shards.len(), 7);
        let oracle = Oracle::open(&dir);
        assert_eq!(oracle.names().len(), 3_205);
        let scales = oracle.tensor("model.layers.1.mlp.experts.255.down_proj.weight_scale_inv");
        assert_eq!((scales.dtype.as_str(), scales.shape), ("F32", vec![56, 16]));
        assert_eq!(scales.bytes, vec![0; 56 * 16 * 4]);
    }

    #[test]
    fn at_full_size_it_is_as_large_as_the_real_one() {
        let checkpoint = Moe::full().checkpoint();
        let shards: Vec<_> = checkpoint.shards().collect();
        assert_eq!(shards.len(), 163);
        assert_eq!(shards[0].0, "model-00001-of-000163.safetensors");
        assert_eq!(shards.iter().map(|(_, shard)| shard.tensors().count()).sum::<usize>(), 92_000);
    }

    #[test]
    fn the_config_counts_the_layers_that_there_are() {
        let layers = |tensors| Moe { tensors, shards: 1 }.config()["num_hidden_layers"].clone();
        let layer = layer().len();
        assert_eq!([layers(1), layers(2), layers(1 + layer), layers(2 + layer)], [0, 1, 1, 2]);
        assert_eq!(layers(92_000), 60);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn its_shards_are_sparse() {
        use std::os::unix::fs::MetadataExt;
        let dir = TempModel::empty();
        let written = Moe { tensors: 300, shards: 2 }.write(&dir).unwrap();
        let shard = std::fs::metadata(&written.shards[1]).unwrap();
        assert!(
            shard.blocks() * 512 < shard.len() / 100,
            "{} blocks of {} bytes",
            shard.blocks(),
            shard.len()
        );
    }
}
