//! The checkpoints that are measured, below the directory that cargo gives to benches.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use weightmap_testkit::{Checkpoint, Llama, Moe, ShardBuilder, Written, pattern};

/// Room that is left on the disk.
const SPARE_BYTES: u64 = 2 << 30;

/// The llama of which all fits in any page cache: 296 MiB in 7 shards.
pub fn llama_dir(target: &str) -> PathBuf {
    Path::new(target).join("llama")
}

/// Where [`write_moe`] puts its checkpoint.
pub fn moe_dir(target: &str) -> PathBuf {
    Path::new(target).join("moe")
}

/// The llama that is large enough for a disk: 2.0 GB in 6 shards, or a quarter of it.
pub fn large_dir(target: &str) -> PathBuf {
    Path::new(target).join("large")
}

/// Where [`write_small`] puts its checkpoints: one of many tensors, one of a single tensor.
pub fn small_dirs(target: &str) -> [PathBuf; 2] {
    ["small", "single"].map(|name| Path::new(target).join(name))
}

/// Writes the demo llama, unless it is there.
///
/// # Errors
/// When a file cannot be written or read.
pub fn write_llama(target: &str) -> Result<()> {
    on_disk(&Llama::demo().ensure(llama_dir(target))?)
}

/// Writes the index and the headers of 92,000 tensors in 163 shards; the tensors' bytes are holes.
///
/// # Errors
/// When a file cannot be written.
pub fn write_moe(target: &str) -> Result<()> {
    Moe::full().write(moe_dir(target))?;
    Ok(())
}

/// Writes the large llama, unless it is there; a smaller one where the disk has no room for it.
///
/// # Errors
/// When a file cannot be written.
pub fn write_large(target: &str) -> Result<()> {
    let llama = Llama {
        layers: 8,
        hidden: 3072,
        intermediate: 8192,
        vocab: 32_768,
        heads: 24,
        kv_heads: 8,
        max_shard_bytes: 340 << 20,
    };
    let dir = large_dir(target);
    let fits = written_bytes(&dir) + free_bytes(target)? > llama.total_bytes() + SPARE_BYTES;
    let smaller = Llama { hidden: 1536, intermediate: 4096, max_shard_bytes: 85 << 20, ..llama.clone() };
    if !fits {
        println!(
            "no room for the large checkpoint: one of {} MB is measured",
            smaller.total_bytes() / 1_000_000
        );
    }
    on_disk(&if fits { llama } else { smaller }.ensure(dir)?)
}

/// Writes 20,000 tensors of 48 KiB in 8 shards, and one tensor of the same bytes, unless they are there.
///
/// # Errors
/// When a file cannot be written, and when there is no room for them.
pub fn write_small(target: &str) -> Result<()> {
    const SHAPE: [u64; 2] = [192, 128];
    const LAYERS: u64 = 20;
    const EXPERTS: u64 = 1000;
    const SHARDS: u64 = 8;
    let [many, single] = small_dirs(target);
    let tensors = LAYERS * EXPERTS;
    let bytes = 2 * tensors * SHAPE.iter().product::<u64>() * 2;
    let written = written_bytes(&many) + written_bytes(&single);
    ensure!(written + free_bytes(target)? > bytes + SPARE_BYTES, "no room for {bytes} bytes of checkpoints");

    let name =
        |number: u64| format!("model.layers.{}.mlp.experts.{}.weight", number / EXPERTS, number % EXPERTS);
    let shards = (0..SHARDS).fold(Checkpoint::new(), |checkpoint, shard| {
        let numbers = tensors * shard / SHARDS..tensors * (shard + 1) / SHARDS;
        let content = numbers.fold(empty(), |content, number| content.pattern(&name(number), "BF16", &SHAPE));
        checkpoint.shard(&format!("model-{:05}-of-{SHARDS:05}.safetensors", shard + 1), content)
    });
    on_disk(&shards.ensure(many)?)?;
    let [rows, columns] = SHAPE;
    let content = empty().pattern("model.experts.weight", "BF16", &[tensors * rows, columns]);
    on_disk(&Checkpoint::new().shard("model-00001-of-00001.safetensors", content).ensure(single)?)
}

fn empty() -> ShardBuilder {
    ShardBuilder::new().metadata("format", "pt").metadata("pattern", &pattern::stamp())
}

/// Pages that are still dirty would be written while something is measured.
fn on_disk(written: &Written) -> Result<()> {
    let files = written.shards.iter().chain(&written.index);
    Ok(files.map(std::fs::File::open).try_for_each(|file| file?.sync_all())?)
}

/// The bytes of the files in a directory, none if there is no such directory.
fn written_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

#[cfg(unix)]
fn free_bytes(target: &str) -> io::Result<u64> {
    let status = rustix::fs::statvfs(target)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Other systems are taken to have room.
#[cfg(not(unix))]
fn free_bytes(_: &str) -> io::Result<u64> {
    Ok(u64::MAX / 2)
}
