//! A small model, of which plans are made.

use weightmap::Dtype;

/// A tensor: its name, type, shape, bytes, and the number of its shard.
pub type Tensor = (&'static str, Dtype, &'static [u64], u64, u32);

/// Names, types, shapes and shards.
const TENSORS: [(&str, Option<Dtype>, &[u64], u32); 17] = [
    ("emb", Some(Dtype::Bf16), &[10, 4], 0),
    ("l.0.w", Some(Dtype::Bf16), &[8, 6], 0),
    ("l.0.v", Some(Dtype::Bf16), &[4, 6], 0),
    ("l.0.w_scale", Some(Dtype::F32), &[4, 3], 0),
    ("l.1.w", Some(Dtype::Bf16), &[8, 6], 1),
    ("l.1.v", Some(Dtype::Bf16), &[4, 6], 1),
    ("l.1.w_scale", Some(Dtype::F32), &[4, 3], 1),
    ("l.2.w", Some(Dtype::Bf16), &[8, 6], 1),
    ("l.2.v", Some(Dtype::Bf16), &[4, 6], 1),
    ("e.0.u", Some(Dtype::U8), &[2, 3, 2], 1),
    ("e.1.u", Some(Dtype::U8), &[2, 3, 2], 2),
    ("e.10.u", Some(Dtype::U8), &[2, 3, 2], 2),
    ("norm", Some(Dtype::F32), &[7], 2),
    ("bias", Some(Dtype::F32), &[], 2),
    ("none", Some(Dtype::U8), &[0, 5], 2),
    ("q", Some(Dtype::F4), &[3, 4], 2),
    ("odd", None, &[5], 2),
];

/// The tensors in the order of the model. The type of one is not known; it has 11 bytes.
pub fn tensors() -> Vec<Tensor> {
    let tensor = |(name, dtype, shape, shard): (_, Option<Dtype>, &'static [u64], _)| {
        let dtype = dtype.unwrap_or_else(|| Dtype::from_name("Q8"));
        let bytes = dtype.bits().map_or(11, |bits| shape.iter().product::<u64>() * u64::from(bits) / 8);
        (name, dtype, shape, bytes, shard)
    };
    TENSORS.into_iter().map(tensor).collect()
}
