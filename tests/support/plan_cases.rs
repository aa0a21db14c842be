//! A model that has some of everything, in several layouts, and a plan of every kind for it.

use weightmap::Plan;
use weightmap_testkit::{Checkpoint, Distributed, Oracle, ShardBuilder, TempModel};

use super::planned::{Whole, patterned, whole};

/// The tensors of the model, of two layers and four experts in each.
fn tensors() -> Vec<(String, &'static str, Vec<u64>)> {
    let layer: [(&str, &str, &[u64]); 8] = [
        ("q", "F32", &[8, 6]),
        ("k", "F32", &[4, 6]),
        ("v", "F32", &[4, 6]),
        ("gate", "BF16", &[12, 8]),
        ("up", "BF16", &[12, 8]),
        ("down", "BF16", &[8, 12]),
        ("down_scale", "F32", &[2, 3]),
        ("fused", "F32", &[16, 5]),
    ];
    let expert: [(&str, &str, &[u64]); 3] =
        [("w1", "U8", &[4, 6]), ("w2", "U8", &[6, 4]), ("w3", "U8", &[4, 6])];
    let mut tensors = vec![("embed".to_owned(), "BF16", vec![11, 6])];
    for number in 0..2 {
        let named = |&(part, dtype, shape): &(&str, &'static str, &[u64])| {
            (format!("l.{number}.{part}"), dtype, shape.to_vec())
        };
        tensors.extend(layer.iter().map(named));
        for expert_number in 0..4 {
            tensors.extend(expert.iter().map(|&(part, dtype, shape)| {
                (format!("l.{number}.e.{expert_number}.{part}"), dtype, shape.to_vec())
            }));
        }
    }
    let rest: [(&str, &str, &[u64]); 6] = [
        ("head", "BF16", &[11, 6]),
        ("norm", "F32", &[7]),
        ("cube", "U8", &[4, 3, 4]),
        ("nibbles", "F4", &[8, 12]),
        ("empty", "F32", &[0, 6]),
        ("scalar", "F64", &[]),
    ];
    tensors.extend(rest.into_iter().map(|(name, dtype, shape)| (name.to_owned(), dtype, shape.to_vec())));
    tensors
}

/// How the model lies in its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Whole tensors in three shards, those of a layer in all of them.
    Shards,
    /// Pieces of rows, as FSDP saves them: of four ranks, some of which have none of some tensors.
    Rows,
    /// Pieces of two dimensions.
    Grid,
}

impl Layout {
    pub(crate) const ALL: [Self; 3] = [Self::Shards, Self::Rows, Self::Grid];

    /// The model, and its tensors as they should be read.
    pub(crate) fn files(self) -> (TempModel, Whole) {
        let tensors = tensors();
        if self == Self::Shards {
            let mut shards: [ShardBuilder; 3] = Default::default();
            for (place, (name, dtype, shape)) in tensors.iter().enumerate() {
                let shard = &mut shards[place % 3];
                *shard = std::mem::take(shard).pattern(name, dtype, shape);
            }
            let add = |checkpoint: Checkpoint, (number, shard)| {
                checkpoint.shard(&format!("model-{number:05}-of-00003.safetensors"), shard)
            };
            let files = (1..).zip(shards).fold(Checkpoint::new(), add).temp();
            let whole = whole(&Oracle::open(&files));
            return (files, whole);
        }
        let add = |files: Distributed, (name, dtype, shape): &(String, &str, Vec<u64>)| match shape.len() {
            0 => files.whole(2, name, dtype, shape),
            2 if self == Self::Grid => files.sharded(name, dtype, shape, &[(1, 2), (0, 2)]),
            _ => files.sharded(name, dtype, shape, &[(0, 4)]),
        };
        let files = tensors.iter().fold(Distributed::new(4), add).checkpoint().temp();
        let whole =
            |(name, dtype, shape): &(String, &str, Vec<u64>)| (name.clone(), patterned(name, dtype, shape));
        (files, tensors.iter().map(whole).collect())
    }
}

/// A plan of each kind over four ranks, by name: what is not told of is whole on all of them.
pub(crate) fn plans() -> Vec<(&'static str, Plan)> {
    PLANS.iter().map(|&(name, rest)| (name, plan(rest))).collect()
}

/// The plans that cut tensors flat.
pub(crate) const FLAT: [&str; 2] = ["flat", "flat, padded"];

/// A plan of this kind.
pub(crate) fn plan_named(name: &str) -> Plan {
    plan(PLANS.iter().find(|(other, _)| *other == name).expect("a plan of this name").1)
}

/// A plan of the meshes that all of them have.
pub(crate) fn plan(rest: &str) -> Plan {
    let meshes = r#"{"dense": [["pp", 2], ["tp", 2]], "expert": [["ep", 4]]}"#;
    let text = format!(r#"{{"meshes": {meshes}, "default": "replicate", {rest}}}"#);
    Plan::from_json(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const PLANS: [(&str, &str); 15] = [
    ("replicated", r#""rules": []"#),
    (
        "rows",
        r#""rules": [{"match": ".*", "min_dims": 1, "shard": [{"dim": 0, "axis": "ep", "split": "chunk"}]}]"#,
    ),
    (
        "columns",
        r#""rules": [{"match": ".*", "min_dims": 2, "shard": [{"dim": -1, "axis": "tp", "split": "chunk"}]}]"#,
    ),
    (
        "rows of columns",
        r#""rules": [{"match": ".*", "min_dims": 2, "shard": [
            {"dim": 1, "axis": "tp", "split": "balanced"}, {"dim": 0, "axis": "pp", "split": "balanced"}]}]"#,
    ),
    (
        "blocks and replicas",
        r#""rules": [
            {"match": ".*\\.fused", "shard": [{"dim": 0, "axis": "ep", "blocks": [8, 4, 4], "replicas": [1, 2, 2]}]},
            {"match": ".*\\.(gate|up)", "shard": [{"dim": 0, "axis": "tp", "blocks": 3}, {"dim": 0, "axis": "pp", "split": "chunk"}]},
            {"match": ".*\\.down", "shard": [{"dim": 1, "axis": "tp", "blocks": 3}]},
            {"match": ".*\\.k", "shard": [{"dim": 0, "axis": "ep", "replicas": 2}]}]"#,
    ),
    (
        "padding",
        r#""rules": [
            {"match": "embed|head", "shard": [{"dim": 0, "axis": "ep", "pad_multiple": 8}]},
            {"match": ".*\\.down", "shard": [{"dim": 1, "axis": "ep", "pad_multiple": 16}]},
            {"match": "norm", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 8}]},
            {"match": ".*\\.fused", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 20}, {"dim": 1, "axis": "pp", "pad_multiple": 2}]},
            {"match": "nibbles", "shard": [{"dim": 0, "axis": "ep", "pad_multiple": 12}]}]"#,
    ),
    (
        "cyclic",
        r#""rules": [
            {"match": ".*\\.(gate|q)", "shard": [{"dim": 0, "axis": "ep", "split": "cyclic"}]},
            {"match": ".*\\.up", "shard": [{"dim": 0, "axis": "tp", "split": "cyclic", "unit": 3}]},
            {"match": ".*\\.down", "shard": [{"dim": 1, "axis": "ep", "split": "cyclic"}]},
            {"match": "nibbles", "shard": [{"dim": 1, "axis": "tp", "split": "cyclic", "unit": 2}]},
            {"match": "cube", "shard": [{"dim": 1, "axis": "tp", "split": "cyclic"}]}]"#,
    ),
    (
        "out of order",
        r#""rules": [
            {"match": ".*\\.fused", "shard": [{"dim": 0, "interleave": [8, 4, 4], "groups": 4}, {"dim": 0, "axis": "tp"}]},
            {"match": ".*\\.down", "shard": [{"dim": 1, "interleave": [6, 6], "groups": 3}, {"dim": 1, "axis": "tp"}]},
            {"match": ".*\\.up", "shard": [{"dim": 0, "axis": "tp", "unit": 3, "split": [[3, 0], [2, 1]]}]},
            {"match": "cube", "shard": [{"dim": 2, "interleave": [2, 2], "groups": 2}, {"dim": 0, "axis": "tp", "split": [[2, 1], [3, 0]]}]},
            {"match": "nibbles", "shard": [{"dim": 0, "axis": "tp", "split": [[7, 0, 3, 4], [1, 6, 5, 2]]}]},
            {"match": "norm", "shard": [{"dim": 0, "axis": "tp", "split": [[6, 0], [5, 4, 3, 2, 1]]}]}]"#,
    ),
    ("flat", r#""rules": [{"match": ".*", "flat": {"axis": "ep"}}]"#),
    (
        "flat, padded",
        r#""rules": [{"match": "(?:l\\.|head|norm|cube|scalar|empty).*", "flat": {"axis": "ep", "pad": true}}]"#,
    ),
    (
        "owners",
        r#""rules": [
            {"match": "scalar", "drop": true},
            {"match": "l\\.\\d+\\.e\\.(?P<e>\\d+)\\..*", "own": [{"axis": "ep", "var": "e", "n": 4}]},
            {"match": "l\\.(?P<l>\\d+)\\..*", "own": [{"axis": "pp", "var": "l", "n": 2}]},
            {"match": "head|norm", "own": [{"axis": "pp", "at": [-1]}], "shard": [{"dim": 0, "axis": "tp", "split": "chunk"}]},
            {"match": "embed", "own": [{"axis": "pp", "at": [0, -1]}]},
            {"match": ".*", "own": [{"axis": "tp", "by": "bytes"}]}]"#,
    ),
    ("owners of shards", r#""rules": [{"match": ".*", "own": [{"axis": "ep", "by": "shard"}]}]"#),
    (
        "scales",
        r#""rules": [
            {"match": "(?P<w>.*)_scale", "scale_of": {"weight": "${w}", "block": [4, 4]}},
            {"match": ".*\\.down", "shard": [{"dim": 1, "axis": "tp"}, {"dim": 0, "axis": "pp", "split": [3, 5]}]}]"#,
    ),
    (
        "outputs",
        r#""rules": [
            {"match": ".*\\.[qkv]", "shard": [{"dim": 0, "axis": "tp"}]},
            {"match": ".*\\.(gate|up)", "shard": [{"dim": 1, "axis": "tp"}]},
            {"match": ".*\\.e\\.(?P<e>\\d+)\\.w[13]", "own": [{"axis": "tp", "var": "e", "n": 4, "split": "cyclic"}]},
            {"match": ".*\\.w2", "shard": [{"dim": 1, "axis": "ep"}]},
            {"match": "embed|head", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 16}]},
            {"match": "norm", "flat": {"axis": "ep", "pad": true}}],
        "outputs": [
            {"name": "layer.{l}.qkv", "from": ["l.{l}.q", "l.{l}.k", "l.{l}.v"], "concat": 0, "groups": 4},
            {"name": "layer.{l}.both", "from": ["l.{l}.gate", "l.{l}.up"], "concat": 0},
            {"name": "layer.{l}.w13", "from": ["l.{l}.e.{e}.w1", "l.{l}.e.{e}.w3"], "concat": 0, "stack": "e"},
            {"name": "layer.{l}.w2", "from": ["l.{l}.e.{e}.w2"], "stack": "e"},
            {"name": "ends", "from": ["embed", "head"], "concat": 0},
            {"name": "output_norm", "from": ["norm"]},
            {"name": "layer.{l}.down", "from": ["l.{l}.down"]},
            {"name": "half_bytes", "from": ["nibbles"]}]"#,
    ),
    (
        "outputs side by side",
        r#""rules": [
            {"match": ".*\\.[qkv]", "shard": [{"dim": 1, "axis": "tp"}]},
            {"match": ".*\\.(gate|up)", "shard": [{"dim": 0, "axis": "tp", "split": "cyclic"}]},
            {"match": ".*\\.down", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 12}]},
            {"match": "embed|head", "shard": [{"dim": 0, "axis": "ep", "pad_multiple": 16}]},
            {"match": ".*\\.w[13]", "shard": [{"dim": 0, "axis": "tp", "split": [[3, 0], [1, 2]]}]}],
        "outputs": [
            {"name": "layer.{l}.qkv", "from": ["l.{l}.q", "l.{l}.k", "l.{l}.v"], "concat": 0},
            {"name": "layer.{l}.both", "from": ["l.{l}.gate", "l.{l}.up"], "concat": 1, "groups": 2},
            {"name": "layer.{l}.w13", "from": ["l.{l}.e.{e}.w1", "l.{l}.e.{e}.w3"], "concat": -1, "stack": "e"},
            {"name": "ends", "from": ["embed", "head"], "concat": 1},
            {"name": "down", "from": ["l.{l}.down"], "stack": "l"}]"#,
    ),
];
