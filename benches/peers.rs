//! What a user would do without weightmap: the index by serde_json, the shards by safetensors over memmap2.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::path::Path;

use anyhow::Result;
use memmap2::Mmap;
use rayon::prelude::*;
use safetensors::SafeTensors;

/// The name that the index has in every checkpoint here.
pub const INDEX: &str = "model.safetensors.index.json";

/// What a program usually makes of an index file.
#[derive(Debug, serde::Deserialize)]
pub struct WeightMap {
    /// The shard of each tensor.
    pub weight_map: HashMap<String, String>,
}

/// Which tensors are wanted, by name.
pub type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// Copies the wanted tensors out of the mappings, one after another.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Vec<u8>>)> {
    let (vecs, _) =
        with_tensors(dir, wanted, |_, tensors| tensors.iter().map(|bytes| bytes.to_vec()).collect())?;
    Ok(counted(vecs))
}

/// As [`copied`], on rayon's global pool, a tensor at a time.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied_in_parallel(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Vec<u8>>)> {
    let (vecs, _) =
        with_tensors(dir, wanted, |_, tensors| tensors.par_iter().map(|bytes| bytes.to_vec()).collect())?;
    Ok(counted(vecs))
}

/// Finds the wanted tensors in the mappings, and gives their bytes and the mappings; nothing is touched but
/// the headers.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn found(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Mmap>)> {
    with_tensors(dir, wanted, |_, tensors| tensors.iter().map(|bytes| bytes.len() as u64).sum())
}

/// Touches every page of the wanted tensors, one after another, and gives their bytes and the mappings.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn touched(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Mmap>)> {
    with_tensors(dir, wanted, |_, tensors| tensors.iter().map(|bytes| touch(bytes)).sum())
}

/// As [`touched`], on rayon's global pool, a tensor at a time.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn touched_in_parallel(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Mmap>)> {
    with_tensors(dir, wanted, |_, tensors| tensors.par_iter().map(|bytes| touch(bytes)).sum())
}

/// Reads and parses the index as most programs do.
///
/// # Errors
/// When it cannot be read or parsed.
pub fn read_index(dir: &Path) -> Result<WeightMap> {
    Ok(serde_json::from_slice(&fs::read(dir.join(INDEX))?)?)
}

/// Reads the index, maps the shards concerned, and works on the mappings and the wanted tensors' bytes, in
/// the order of the files.
pub(crate) fn with_tensors<T>(
    dir: &Path,
    wanted: Wanted<'_>,
    work: impl FnOnce(&[Mmap], &[&[u8]]) -> T,
) -> Result<(T, Vec<Mmap>)> {
    let WeightMap { weight_map } = read_index(dir)?;
    let shards: BTreeSet<_> =
        weight_map.iter().filter(|(name, _)| wanted(name)).map(|(_, shard)| shard).collect();
    let maps = shards.into_iter().map(|shard| map(&dir.join(shard))).collect::<io::Result<Vec<_>>>()?;
    let files = maps.iter().map(|map| SafeTensors::deserialize(map)).collect::<Result<Vec<_>, _>>()?;
    let mut tensors: Vec<&[u8]> = Vec::new();
    for file in &files {
        let start = tensors.len();
        tensors.extend(file.iter().filter(|(name, _)| wanted(name)).map(|(_, tensor)| tensor.data()));
        // They come in the order of a hash, which would break read-ahead.
        tensors[start..].sort_unstable_by_key(|bytes| bytes.as_ptr());
    }
    let done = work(&maps, &tensors);
    Ok((done, maps))
}

/// Maps a file.
///
/// # Errors
/// When it cannot be opened or mapped.
#[expect(unsafe_code, reason = "the peers map files; no crate offers that as a safe call")]
pub fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the checkpoints of the benches are not changed while they are measured.
    unsafe { Mmap::map(&file) }
}

fn counted(vecs: Vec<Vec<u8>>) -> (u64, Vec<Vec<u8>>) {
    (vecs.iter().map(|bytes| bytes.len() as u64).sum(), vecs)
}

fn touch(bytes: &[u8]) -> u64 {
    const PAGE_BYTES: usize = 4096;
    for byte in bytes.iter().step_by(PAGE_BYTES).chain(bytes.last()) {
        black_box(*byte);
    }
    bytes.len() as u64
}
