//! `seeds FOLDER`: writes the inputs that fuzzing begins with, for each target to a folder of its name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use weightmap_testkit::{Checkpoint, Llama, ShardBuilder, TempModel};

/// Inputs that are longer make fuzzing slow and find no more.
const MOST_BYTES: u64 = 4096;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: seeds FOLDER"));
    let corpus = Corpus { folder };
    let headers: Vec<_> = headers().iter().map(ShardBuilder::build).collect();
    corpus.write("header", headers.iter().map(Vec::as_slice))?;
    corpus.write("index", INDEXES.iter().map(|text| text.as_bytes()))?;
    corpus.write("index", [llama().index().unwrap_or_default().as_slice()])?;
    corpus.write("plan", PLANS.iter().map(|text| text.as_bytes()))?;
    corpus.write("glob", GLOBS.iter().map(|text| text.as_bytes()))?;
    let configs: Vec<_> = configs().collect();
    corpus.write("family", configs.iter().map(Vec::as_slice))?;
    for target in ["division", "extents", "slices", "pieces"] {
        let noise: Vec<_> = (1..9).map(|number| noise(number, 64 * number as usize)).collect();
        corpus.write(target, noise.iter().map(Vec::as_slice))?;
    }
    corpus.write_cases()
}

struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// Writes inputs of a target, each by the name of its content.
    fn write<'a>(&self, target: &str, inputs: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        inputs
            .into_iter()
            .try_for_each(|input| fs::write(folder.join(format!("seed-{:016x}", digest(input))), input))
    }

    /// Writes the malformed files that a script makes, where it lies beside the checkout.
    fn write_cases(&self) -> io::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/make_malformed.py");
        let made = TempModel::empty();
        if !script.is_file()
            || !Command::new("python3").arg(script).arg(made.path()).output()?.status.success()
        {
            println!("no seeds of shared cases: their script is not there, or cannot be run");
            return Ok(());
        }
        let mut folders = vec![made.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                let metadata = fs::symlink_metadata(&path)?;
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() && metadata.len() <= MOST_BYTES {
                    let target = match path.extension().and_then(|extension| extension.to_str()) {
                        Some("safetensors") => "header",
                        Some("json") => "index",
                        _ => continue,
                    };
                    self.write(target, [fs::read(&path)?.as_slice()])?;
                }
            }
        }
        Ok(())
    }
}

/// FNV-1a, which is enough to tell inputs apart.
fn digest(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Bytes that look like any.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

fn llama() -> Checkpoint {
    Llama::tiny().checkpoint()
}

/// Honest files of all kinds, and some that are forged in one place.
fn headers() -> Vec<ShardBuilder> {
    let honest = ShardBuilder::new()
        .metadata("format", "pt")
        .tensor("a", "U8", &[2, 2], [1, 2, 3, 4])
        .zeros("b", "F32", &[])
        .zeros("z", "I64", &[0, 3])
        .zeros("q", "F4", &[2, 2]);
    let entry = r#""a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    let raw = |json: &str| ShardBuilder::new().raw_header(json).data([0; 4]);
    let other =
        r#"{"x":[1e400,"\ud800"],"data_offsets":[0,4],"dtype":"Q8","shape":[18446744073709551615,0]}"#;
    let mut all = vec![
        ShardBuilder::new(),
        honest.clone(),
        honest.clone().append([0; 3]),
        honest.clone().truncate(20),
        honest.clone().header_len(1 << 40),
        honest.clone().header_padding(5),
        raw(&format!("{{{entry},{entry}}}")),
        raw(&format!(r#" {{"__metadata__":null,{entry}}} "#)),
        raw(&format!(r#"{{"__metadata__":{{"k":"1","k":"2"}},{entry}}}"#)),
        raw(&format!(r#"{{"b":{other},"\u0061":{{"dtype":"F64","shape":[0],"data_offsets":[4,4]}}}}"#)),
        raw(r#"{"a":["U8",[4],[0,4]]}"#),
        raw(r#"{"a":{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}}"#),
        raw(
            r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#,
        ),
        raw(
            r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#,
        ),
        raw(
            r#"{"a":{"dtype":"F64","shape":[9223372036854775808,2],"data_offsets":[0,18446744073709551615]}}"#,
        ),
    ];
    all.extend(llama().shards().map(|(_, shard)| ShardBuilder::new().raw_header(&shard.head()[8..])));
    all
}

const INDEXES: [&str; 5] = [
    r#"{"metadata": {"total_size": 29}, "weight_map": {"a": "x-00001-of-00002.safetensors", "b": "x-00002-of-00002.safetensors"}}"#,
    r#"{"weight_map": {"a": "./s//x.safetensors", "b": "s/x.safetensors"}, "metadata": {"total_size": 2.9e1}, "note": [{}]}"#,
    r#"{"weight_map": {"a": "../x.safetensors", "b": 1, "c": null, "c": "C:\\x.safetensors", "d": "/x", "e": "con.safetensors"}}"#,
    "{\"metadata\": {},\n<<<<<<< HEAD\n\"weight_map\": {} // none\n}",
    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n",
];

const PLANS: [&str; 5] = [
    r#"{"meshes":{"m":[["pp",2],["tp",2]]},"default":"replicate","rules":[{"match":"emb","own":[{"axis":"pp","at":[0]}],"shard":[{"dim":0,"axis":"tp","pad_multiple":4}]},{"match":"l\\.(?P<l>\\d+)\\.w","own":[{"axis":"pp","var":"l","n":4,"split":"balanced"}],"shard":[{"dim":-1,"axis":"tp","unit":3}]},{"match":"l\\.(?P<l>\\d+)\\..*","own":[{"axis":"pp","var":"l","n":4}]}]}"#,
    r#"{"meshes":{"dense":[["dp",2],["tp",2]],"expert":[["ep",4]]},"default":"replicate","rules":[{"match":"(?P<w>l.*)_scale","scale_of":{"weight":"${w}","block":[2,2]}},{"match":"l\\..*","shard":[{"dim":0,"axis":"tp","blocks":2},{"dim":0,"axis":"dp","split":"chunk"}]},{"match":"e\\.(?P<e>\\d+)\\.u","own":[{"axis":"ep","var":"e","n":12,"split":"cyclic"}]},{"match":"norm","flat":{"axis":"expert.ep","pad":true}}]}"#,
    r#"{"meshes":{"m":[["a",4]]},"rules":[{"match":".*","min_dims":1,"shard":[{"dim":0,"axis":"a","split":"chunk"}]},{"match":".*"}],"outputs":[{"name":"out.{n}","from":["l.{n}.w","l.{n}.v"],"concat":0},{"name":"e","from":["e.{n}.u"],"stack":"n"},{"name":"x","from":["norm"]}]}"#,
    r#"{"meshes":{"m":[["a",2],["b",2]]},"default":"error","rules":[{"match":"q","drop":true},{"match":"l.*","shard":[{"dim":0,"interleave":[4,4],"groups":2},{"dim":0,"axis":"a","split":[3,5]},{"dim":1,"axis":"b","split":[[0,3,4],[1,2,5]]}]},{"match":".*","own":[{"axis":"b","by":"bytes"},{"axis":"a","by":"shard"}]}]}"#,
    r#"{"$schema":"x","meshes":{"m":[["a",2]]},"default":"replicate","rules":[{"match":"l\\.2\\.[wv]","shard":[{"dim":0,"axis":"a","blocks":[2,2],"replicas":[1,2]}]}],"outputs":[{"name":"y","from":["l.2.w","l.2.v"],"concat":1,"groups":2}]}"#,
];

const GLOBS: [&str; 8] = [
    "model.layers.{0..15}.*\nmodel.layers.7.weight",
    "{00..15,a,b*}[!a-z]?\n07Xy",
    "*.{q,k,{v,o}}_proj\na.v_proj",
    "\\*\\[[a\\]-]\n*[a",
    "a**b***c\naxbyc",
    "{,a}{}{1..010}\na005",
    "[é-ü]?\nöé",
    "{0..9999999999999999999}\n123",
];

/// Each after the bytes that say in how many ways the model is divided.
fn configs() -> impl Iterator<Item = Vec<u8>> {
    let common = |model_type: &str| {
        json!({
            "model_type": model_type, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
            "hidden_size": 64, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
            "tie_word_embeddings": true, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
            "num_nextn_predict_layers": 1, "quantization_config": {"weight_block_size": [128, 128]},
        })
    };
    let types = ["llama", "gemma3", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "phi", "phi3"];
    let nested = json!({"architectures": ["LlamaForCausalLM"], "text_config": common("llama")});
    let configs = types.into_iter().map(common).chain([nested]);
    configs.map(|config| [&[2, 2, 1, 1, 0][..], config.to_string().as_bytes()].concat())
}
