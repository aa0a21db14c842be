//! What the kernel gives to someone who asks for the same bytes at once, by all cores: the goals, not the
//! peers.

use std::io;
use std::path::Path;

use anyhow::Result;
use memmap2::{Advice, Mmap, MmapMut};
use rayon::prelude::*;

use crate::peers::{Wanted, with_tensors};

/// What is populated, or populated and copied, at a time.
const WINDOW_BYTES: usize = 8 << 20;

/// Populates the pages of the wanted tensors in the mappings, and gives their bytes and the mappings.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn populated(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<Mmap>)> {
    let (done, maps) = with_tensors(dir, wanted, |maps, tensors| {
        let windows: Vec<_> = tensors.iter().flat_map(|bytes| bytes.chunks(WINDOW_BYTES)).collect();
        windows.par_iter().map(|window| populate(maps, window)).sum::<io::Result<u64>>()
    })?;
    Ok((done?, maps))
}

/// Populates, and copies into huge pages that were never used before.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied(dir: &Path, wanted: Wanted<'_>) -> Result<(u64, Vec<MmapMut>)> {
    let (done, _) = with_tensors(dir, wanted, |maps, tensors| {
        let mut targets = tensors.iter().map(|bytes| huge(bytes.len())).collect::<io::Result<Vec<_>>>()?;
        let pairs = targets.iter_mut().zip(tensors);
        let windows: Vec<_> = pairs
            .flat_map(|(target, bytes)| target.chunks_mut(WINDOW_BYTES).zip(bytes.chunks(WINDOW_BYTES)))
            .collect();
        let copy = |(target, window): (&mut [u8], &[u8])| {
            let bytes = populate(maps, window)?;
            target.copy_from_slice(window);
            Ok(bytes)
        };
        let bytes = windows.into_par_iter().map(copy).sum::<io::Result<u64>>()?;
        io::Result::Ok((bytes, targets))
    })?;
    Ok(done?)
}

fn populate(maps: &[Mmap], window: &[u8]) -> io::Result<u64> {
    let start = window.as_ptr();
    if let Some(map) = maps.iter().find(|map| map.as_ptr_range().contains(&start)) {
        map.advise_range(Advice::PopulateRead, start.addr() - map.as_ptr().addr(), window.len())?;
    }
    Ok(window.len() as u64)
}

fn huge(bytes: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)?;
    memory.advise(Advice::HugePage)?;
    Ok(memory)
}
