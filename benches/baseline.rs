//! What a user would do without weightmap: the index by serde_json, the shards by safetensors over memmap2.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io;
use std::path::Path;

use anyhow::Result;
use memmap2::Mmap;
use rayon::prelude::*;
use safetensors::SafeTensors;
use safetensors::slice::{InvalidSlice, TensorIndexer};
use safetensors::tensor::TensorView;

use crate::sys::{self, PAGE_BYTES};
use crate::wanted::{Wanted, WeightMap, read_index};

/// A wanted tensor in a mapping.
pub(crate) struct Part<'a> {
    tensor: TensorView<'a>,
    /// What of it is wanted; `None` for all.
    indexers: Option<Vec<TensorIndexer>>,
}

impl<'a> Part<'a> {
    /// The wanted bytes, in the order in which they lie in the file.
    pub(crate) fn pieces(&self) -> Result<Vec<&[u8]>, InvalidSlice> {
        Ok(match &self.indexers {
            Some(indexers) => self.tensor.sliced_data(indexers)?.collect(),
            None => vec![self.tensor.data()],
        })
    }

    fn to_vec(&self) -> Result<Vec<u8>, InvalidSlice> {
        let Some(indexers) = &self.indexers else { return Ok(self.tensor.data().to_vec()) };
        let pieces = self.tensor.sliced_data(indexers)?;
        let mut bytes = Vec::with_capacity(pieces.remaining_byte_len());
        pieces.for_each(|piece| bytes.extend_from_slice(piece));
        Ok(bytes)
    }

    fn touch(&self) -> Result<u64, InvalidSlice> {
        Ok(self.pieces()?.into_iter().map(touch).sum())
    }

    fn start(&self) -> *const u8 {
        self.tensor.data().as_ptr()
    }
}

/// Copies the wanted tensors out of the mappings, one after another.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Vec<u8>>)> {
    let copy = |_: &[Mmap], parts: &[Part<'_>]| parts.iter().map(Part::to_vec).collect::<Result<_, _>>();
    Ok(counted(with_parts(checkpoint, wanted, copy)?.0?))
}

/// As [`copied`], on rayon's global pool, a tensor at a time.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied_in_parallel(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Vec<u8>>)> {
    let copy = |_: &[Mmap], parts: &[Part<'_>]| parts.par_iter().map(Part::to_vec).collect::<Result<_, _>>();
    Ok(counted(with_parts(checkpoint, wanted, copy)?.0?))
}

/// Touches every page of the wanted tensors, one after another, and gives their bytes and the mappings.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn touched(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Mmap>)> {
    let touch = |_: &[Mmap], parts: &[Part<'_>]| parts.iter().map(Part::touch).sum::<Result<u64, _>>();
    let (bytes, maps) = with_parts(checkpoint, wanted, touch)?;
    Ok((bytes?, maps))
}

/// As [`touched`], on rayon's global pool, a tensor at a time.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn touched_in_parallel(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Mmap>)> {
    let touch = |_: &[Mmap], parts: &[Part<'_>]| parts.par_iter().map(Part::touch).sum::<Result<u64, _>>();
    let (bytes, maps) = with_parts(checkpoint, wanted, touch)?;
    Ok((bytes?, maps))
}

/// Reads the index, maps the shard of a tensor and parses its header; no data is touched.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn found(checkpoint: &Path, name: &str) -> Result<Option<Mmap>> {
    let WeightMap { weight_map } = read_index(checkpoint)?;
    let Some(shard) = weight_map.get(name) else { return Ok(None) };
    let map = sys::map(&checkpoint.join(shard))?;
    SafeTensors::deserialize(&map)?.tensor(name)?;
    Ok(Some(map))
}

/// Reads the index, maps the shards concerned, and works on the mappings and the wanted tensors, in the order of the
/// files.
pub(crate) fn with_parts<T>(
    checkpoint: &Path,
    wanted: &Wanted,
    work: impl FnOnce(&[Mmap], &[Part<'_>]) -> T,
) -> Result<(T, Vec<Mmap>)> {
    let WeightMap { weight_map } = read_index(checkpoint)?;
    let is_wanted = |name: &str| wanted.names.contains(name);
    let shards: BTreeSet<_> =
        weight_map.iter().filter(|(name, _)| is_wanted(name)).map(|(_, shard)| shard).collect();
    let maps =
        shards.into_iter().map(|shard| sys::map(&checkpoint.join(shard))).collect::<io::Result<Vec<_>>>()?;
    let files = maps.iter().map(|map| SafeTensors::deserialize(map)).collect::<Result<Vec<_>, _>>()?;
    let mut parts: Vec<Part<'_>> = Vec::new();
    for file in &files {
        let start = parts.len();
        parts.extend(file.iter().filter(|(name, _)| is_wanted(name)).map(|(_, tensor)| {
            let indexers = wanted.indexers(tensor.shape());
            Part { tensor, indexers }
        }));
        // They come in the order of a hash, which would break read-ahead.
        parts[start..].sort_unstable_by_key(Part::start);
    }
    let done = work(&maps, &parts);
    Ok((done, maps))
}

fn counted(vecs: Vec<Vec<u8>>) -> (u64, Vec<Vec<u8>>) {
    (vecs.iter().map(|bytes| bytes.len() as u64).sum(), vecs)
}

fn touch(bytes: &[u8]) -> u64 {
    for byte in bytes.iter().step_by(PAGE_BYTES).chain(bytes.last()) {
        black_box(*byte);
    }
    bytes.len() as u64
}
