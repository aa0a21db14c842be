//! `peers candle CHECKPOINT WANTED` loads a part of a checkpoint by candle's mapped safetensors, and prints what that cost as
//! JSON. `WANTED` is the JSON of `wanted.rs`.

#[path = "../../sample.rs"]
mod sample;
#[expect(dead_code, reason = "the harness uses the rest")]
#[path = "../../wanted.rs"]
mod wanted;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use candle_core::safetensors::MmapedSafetensors;
use candle_core::{Device, Tensor};

use crate::sample::Sample;
use crate::wanted::{Wanted, read_index};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, checkpoint, wanted] =
        args.try_into().ok().context("a peer, a checkpoint and what is wanted of it")?;
    let wanted: Wanted = serde_json::from_str(&wanted)?;
    ensure!(
        peer == "candle" && wanted.cut.is_none(),
        "of the peers here only candle loads, and only whole tensors"
    );
    let sample = Sample::measure(|| candle(Path::new(&checkpoint), &wanted))?;
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}

fn candle(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Tensor>)> {
    let index = read_index(checkpoint)?.weight_map;
    let is_wanted = |(name, _): &(&String, &String)| wanted.names.contains(name);
    let shards: BTreeSet<&String> = index.iter().filter(is_wanted).map(|(_, shard)| shard).collect();
    let mapped = map(&shards.into_iter().map(|shard| checkpoint.join(shard)).collect::<Vec<_>>())?;
    let mut tensors = mapped.tensors();
    tensors.retain(|(name, _)| wanted.names.contains(name));
    // They come in the order of a hash, which would break read-ahead.
    tensors.sort_unstable_by_key(|(name, view)| (index.get(name), view.data().as_ptr()));
    let tensors =
        tensors.iter().map(|(name, _)| mapped.load(name, &Device::Cpu)).collect::<Result<Vec<_>, _>>()?;
    let bytes =
        tensors.iter().map(|tensor| tensor.elem_count() * tensor.dtype().size_in_bytes()).sum::<usize>();
    Ok((bytes as u64, tensors))
}

#[expect(unsafe_code, reason = "candle maps files, and offers no safe call for that")]
fn map(shards: &[PathBuf]) -> Result<MmapedSafetensors> {
    // SAFETY: the checkpoints of the benches are not changed while they are measured.
    Ok(unsafe { MmapedSafetensors::multi(shards) }?)
}
