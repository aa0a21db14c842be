//! A huge mixture-of-experts model of which only the headers take space.

use std::io;
use std::path::Path;

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
const EXPERTS: u64 = 256;
const EXPERT_WIDTH: u64 = 2048;
/// One scale for each block of so many rows and columns.
const SCALE_BLOCK: u64 = 128;

impl Moe {
    /// The size of DeepSeek-V3: 92,000 tensors in 163 shards.
    pub fn full() -> Self {
        Self { tensors: 92_000, shards: 163 }
    }

    /// The model as a checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut tensors = tensors().take(self.tensors);
        (0..self.shards).fold(Checkpoint::new(), |checkpoint, number| {
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
}

/// The tensors of a model that has no last layer.
fn tensors() -> impl Iterator<Item = Part> {
    let layer = layer();
    let embedding = ("model.embed_tokens.weight".to_owned(), "BF16", vec![129_280, HIDDEN]);
    std::iter::once(embedding).chain((0_u64..).flat_map(move |number| {
        let named =
            |(part, dtype, shape): &Part| (format!("model.layers.{number}.{part}"), *dtype, shape.clone());
        layer.iter().map(named).collect::<Vec<_>>()
    }))
}

fn layer() -> Vec<Part> {
    let mut parts = vec![norm("input_layernorm", HIDDEN), norm("post_attention_layernorm", HIDDEN)];
    parts.extend(linear("self_attn.q_a_proj", 1536, HIDDEN));
    parts.push(norm("self_attn.q_a_layernorm", 1536));
    parts.extend(linear("self_attn.q_b_proj", 24_576, 1536));
    parts.extend(linear("self_attn.kv_a_proj_with_mqa", 576, HIDDEN));
    parts.push(norm("self_attn.kv_a_layernorm", 512));
    parts.extend(linear("self_attn.kv_b_proj", 32_768, 512));
    parts.extend(linear("self_attn.o_proj", HIDDEN, 16_384));
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
