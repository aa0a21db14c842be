//! Loads by weightmap, as a program does them: from the path to the bytes.

use std::path::Path;

use anyhow::{Context as _, Result};
use weightmap::{Intervals, LoadOptions, Loaded, ReadMode, Selection, ShardedModel, TensorInfo};

use crate::competitor::Competitor;
use crate::memory;
use crate::wanted::Wanted;

/// Every way of reading.
pub const ALL_MODES: &[&str] = &["auto", "mapped", "buffered", "direct"];

/// A competitor for each of these ways of reading.
pub fn competitors<'a>(checkpoint: &'a Path, wanted: &'a Wanted, modes: &[&str]) -> Vec<Competitor<'a>> {
    let modes = modes.iter().filter_map(|name| name.parse::<ReadMode>().ok());
    let competitor = |mode: ReadMode| {
        let competitor =
            Competitor::new(format!("weightmap, {mode}"), move || load(checkpoint, wanted, mode));
        if mode == ReadMode::Direct { competitor.past_cache() } else { competitor }
    };
    modes.map(competitor).collect()
}

/// A competitor for each of these ways of reading, which compares what it loads with the digests beside the checkpoint. Reading
/// these is in its time.
pub fn verified<'a>(checkpoint: &'a Path, wanted: &'a Wanted, modes: &[&str]) -> Vec<Competitor<'a>> {
    let modes = modes.iter().filter_map(|name| name.parse::<ReadMode>().ok());
    let competitor = |mode: ReadMode| {
        let verified = move || {
            let model = ShardedModel::open(checkpoint)?;
            let digests = model.digests()?.context("there are no digests beside the checkpoint")?;
            load_of(&model, wanted, &LoadOptions::default().mode(mode).verify(digests))
        };
        let competitor = Competitor::new(format!("weightmap, {mode}, verified"), verified);
        if mode == ReadMode::Direct { competitor.past_cache() } else { competitor }
    };
    modes.map(competitor).collect()
}

/// A competitor that loads into memory of its own, of huge pages.
pub fn into_memory<'a>(checkpoint: &'a Path, wanted: &'a Wanted) -> Competitor<'a> {
    Competitor::new("weightmap, load_into", move || {
        let selection = select(&ShardedModel::open(checkpoint)?, wanted)?;
        let bytes = selection.infos()?.iter().map(TensorInfo::len_bytes).sum();
        let mut memory = memory::huge(usize::try_from(bytes)?)?;
        let mut rest = &mut memory[..];
        selection.load_into(|info| {
            let length = usize::try_from(info.len_bytes()).unwrap_or(usize::MAX);
            let (buffer, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            buffer
        })?;
        Ok((bytes, memory))
    })
}

fn load(checkpoint: &Path, wanted: &Wanted, mode: ReadMode) -> Result<(u64, Loaded)> {
    load_of(&ShardedModel::open(checkpoint)?, wanted, &LoadOptions::default().mode(mode))
}

fn load_of(model: &ShardedModel, wanted: &Wanted, options: &LoadOptions) -> Result<(u64, Loaded)> {
    let loaded = select(model, wanted)?.load_with(options)?;
    Ok((loaded.tensors().iter().map(|tensor| tensor.bytes().len() as u64).sum(), loaded))
}

fn select(model: &ShardedModel, wanted: &Wanted) -> Result<Selection> {
    let selection = model.select().glob(&wanted.names.glob())?;
    let Some(cut) = wanted.cut else { return Ok(selection) };
    selection.infos()?.iter().try_fold(selection, |selection, info| {
        let shape: Vec<usize> =
            info.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>()?;
        let Some(range) = cut.range(&shape) else { return Ok(selection) };
        let mut dims = vec![Intervals::from(..); cut.dim];
        dims.push((range.start as u64..range.end as u64).into());
        Ok(selection.slice(&info.name, dims)?)
    })
}
