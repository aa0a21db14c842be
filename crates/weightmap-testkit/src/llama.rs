//! A llama-like model: real names and shapes, deterministic content.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::{Checkpoint, ShardBuilder, Written, byte_len, pattern};

/// The description of a llama-like model in BF16, and of how it is cut into shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Llama {
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width between the projections of the MLP.
    pub intermediate: u64,
    /// Tokens.
    pub vocab: u64,
    /// Query heads; they divide `hidden`.
    pub heads: u64,
    /// Key and value heads; they divide `heads`.
    pub kv_heads: u64,
    /// The most tensor bytes in a shard, unless one tensor alone has more.
    pub max_shard_bytes: u64,
}

impl Llama {
    /// 296 MiB in 7 shards: large enough that reading it takes time.
    pub fn demo() -> Self {
        Self {
            layers: 8,
            hidden: 1024,
            intermediate: 4096,
            vocab: 16384,
            heads: 16,
            kv_heads: 4,
            max_shard_bytes: 48 << 20,
        }
    }

    /// 169 KiB in 4 shards: small enough for any test.
    pub fn tiny() -> Self {
        Self {
            layers: 2,
            hidden: 64,
            intermediate: 128,
            vocab: 96,
            heads: 4,
            kv_heads: 2,
            max_shard_bytes: 48 << 10,
        }
    }

    /// The names and shapes of all tensors, in the order of the model.
    pub fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let Self { hidden, intermediate, vocab, .. } = *self;
        let kv = hidden / self.heads * self.kv_heads;
        let layer = [
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![intermediate, hidden]),
            ("mlp.up_proj", vec![intermediate, hidden]),
            ("mlp.down_proj", vec![hidden, intermediate]),
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
        ];
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![vocab, hidden])];
        for number in 0..self.layers {
            let named = |(part, shape): &(&str, Vec<u64>)| {
                (format!("model.layers.{number}.{part}.weight"), shape.clone())
            };
            tensors.extend(layer.iter().map(named));
        }
        tensors.push(("model.norm.weight".to_owned(), vec![hidden]));
        tensors.push(("lm_head.weight".to_owned(), vec![vocab, hidden]));
        tensors
    }

    /// The bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.tensors().iter().map(|(_, shape)| byte_len("BF16", shape)).sum()
    }

    /// The model as a checkpoint: whole tensors in shards of at most `max_shard_bytes`, filled in the order
    /// of the model, an index even for a single shard, and `config.json`.
    pub fn checkpoint(&self) -> Checkpoint {
        let shards = self.split();
        let count = shards.len();
        let checkpoint = Checkpoint::new().file("config.json", format!("{:#}\n", self.config()));
        shards.into_iter().zip(1..).fold(checkpoint, |checkpoint, (mut tensors, number)| {
            // The reference writer sorts the tensors of a file by name.
            tensors.sort();
            let empty = ShardBuilder::new().metadata("format", "pt").metadata("pattern", &pattern::stamp());
            let shard = tensors.iter().fold(empty, |shard, (name, shape)| shard.pattern(name, "BF16", shape));
            checkpoint.shard(&format!("model-{number:05}-of-{count:05}.safetensors"), shard)
        })
    }

    /// Writes the model into `dir`, over what is there. Each file appears whole, the index last.
    ///
    /// # Errors
    /// When a directory or file cannot be created or written.
    pub fn write(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        self.checkpoint().replace(dir)
    }

    /// Writes of the model what is not in `dir` already, as [`Checkpoint::ensure`] does.
    ///
    /// # Errors
    /// When a directory or file cannot be created, read or written.
    pub fn ensure(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        self.checkpoint().ensure(dir)
    }

    fn split(&self) -> Vec<Vec<(String, Vec<u64>)>> {
        let mut shards: Vec<Vec<_>> = Vec::new();
        let mut room = 0;
        for tensor in self.tensors() {
            let bytes = byte_len("BF16", &tensor.1);
            match shards.last_mut() {
                Some(shard) if bytes <= room => shard.push(tensor),
                _ => {
                    room = self.max_shard_bytes;
                    shards.push(vec![tensor]);
                }
            }
            room = room.saturating_sub(bytes);
        }
        shards
    }

    fn config(&self) -> serde_json::Value {
        json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            // As older writers name it.
            "torch_dtype": "bfloat16",
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden / self.heads,
            "attention_bias": false,
            "mlp_bias": false,
            "vocab_size": self.vocab,
            "tie_word_embeddings": false,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::{Oracle, TempModel, damage};

    fn assert_whole(llama: &Llama, dir: &Path) {
        let oracle = Oracle::open(dir);
        assert_eq!(oracle.names().len(), llama.tensors().len());
        for (name, shape) in llama.tensors() {
            let tensor = oracle.tensor(&name);
            assert_eq!((tensor.dtype.as_str(), &tensor.shape), ("BF16", &shape));
            assert!(tensor.bytes == pattern::bytes(&name, tensor.bytes.len()), "{name}");
        }
    }

    fn times(written: &Written) -> Vec<SystemTime> {
        let files = written.shards.iter().chain(&written.index);
        files.map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect()
    }

    #[test]
    fn the_demo_has_about_300_mib_in_7_shards() {
        let demo = Llama::demo();
        assert_eq!(demo.total_bytes() >> 20, 296);
        assert_eq!(demo.checkpoint().shards().count(), 7);
    }

    #[test]
    fn no_shard_exceeds_its_limit_and_none_could_take_the_next_tensor() {
        for llama in [Llama::demo(), Llama::tiny()] {
            let shards = llama.split();
            let bytes = |(_, shape): &(String, Vec<u64>)| byte_len("BF16", shape);
            let sums: Vec<u64> = shards.iter().map(|shard| shard.iter().map(bytes).sum()).collect();
            for (number, sum) in sums.iter().enumerate() {
                assert!(*sum <= llama.max_shard_bytes);
                if let Some(next) = shards.get(number + 1) {
                    assert!(sum + bytes(&next[0]) > llama.max_shard_bytes);
                }
            }
            assert_eq!(sums.iter().sum::<u64>(), llama.total_bytes());
        }
    }

    #[test]
    fn a_tensor_above_the_limit_has_a_shard_of_its_own() {
        let llama = Llama { max_shard_bytes: 1, ..Llama::tiny() };
        assert_eq!(llama.checkpoint().shards().count(), llama.tensors().len());
    }

    #[test]
    fn what_is_written_is_whole() {
        let dir = TempModel::empty();
        let llama = Llama::tiny();
        let written = llama.write(&dir).unwrap();
        assert_eq!(written.shards.len(), 4);
        assert_whole(&llama, dir.path());
        let index: serde_json::Value =
            serde_json::from_slice(&fs::read(written.index.unwrap()).unwrap()).unwrap();
        assert_eq!(index["metadata"]["total_size"], llama.total_bytes());
    }

    #[test]
    fn ensuring_a_second_time_writes_nothing() {
        let dir = TempModel::empty();
        let written = Llama::tiny().ensure(&dir).unwrap();
        written.shards.iter().chain(&written.index).for_each(damage::touch);
        let before = times(&written);
        assert_eq!(Llama::tiny().ensure(&dir).unwrap(), written);
        assert_eq!(times(&written), before);
    }

    #[test]
    fn ensuring_repairs_what_is_gone_cut_or_of_another_model() {
        let dir = TempModel::empty();
        let llama = Llama::tiny();
        let written = llama.ensure(&dir).unwrap();
        let kept = times(&written)[3];
        fs::remove_file(&written.shards[0]).unwrap();
        damage::truncate(&written.shards[1], 500);
        damage::overwrite(&written.shards[2], 40, "x");
        fs::write(written.index.as_ref().unwrap(), "{}").unwrap();
        llama.ensure(&dir).unwrap();
        assert_whole(&llama, dir.path());
        assert_eq!(times(&written)[3], kept);

        let other = Llama { heads: 8, ..Llama::tiny() };
        other.ensure(&dir).unwrap();
        assert_whole(&other, dir.path());
    }

    #[test]
    fn ensuring_brings_a_config_of_an_older_version_up_to_date() {
        let dir = TempModel::empty();
        let llama = Llama::tiny();
        let written = llama.ensure(&dir).unwrap();
        written.shards.iter().chain(&written.index).for_each(damage::touch);
        let (config, before) = (dir.file("config.json"), times(&written));
        let right = fs::read(&config).unwrap();
        fs::write(&config, "{}").unwrap();
        llama.ensure(&dir).unwrap();
        assert_eq!(fs::read(&config).unwrap(), right);
        fs::remove_file(&config).unwrap();
        llama.ensure(&dir).unwrap();
        assert_eq!(fs::read(&config).unwrap(), right);
        assert_eq!(times(&written), before);
    }

    #[test]
    fn the_config_describes_the_tensors() {
        let llama = Llama::demo();
        let config = llama.config();
        let number = |name: &str| config[name].as_u64().unwrap();
        let shape = |name: &str| llama.tensors().into_iter().find(|(found, _)| found == name).unwrap().1;
        let hidden = number("hidden_size");
        let heads = |name| [number(name) * number("head_dim"), hidden];
        assert_eq!(shape("model.embed_tokens.weight"), [number("vocab_size"), hidden]);
        assert_eq!(shape("model.layers.0.self_attn.q_proj.weight"), heads("num_attention_heads"));
        assert_eq!(shape("model.layers.0.self_attn.k_proj.weight"), heads("num_key_value_heads"));
        assert_eq!(shape("model.layers.0.mlp.gate_proj.weight"), [number("intermediate_size"), hidden]);
        let norms =
            llama.tensors().iter().filter(|(name, _)| name.ends_with(".input_layernorm.weight")).count();
        assert_eq!(norms as u64, number("num_hidden_layers"));
    }

    #[test]
    fn many_may_ensure_at_once_and_leave_nothing_behind() {
        let dir = TempModel::empty();
        let llama = Llama::tiny();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    llama.ensure(&dir).unwrap();
                    assert_whole(&llama, dir.path());
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4 + 2);
    }
}
