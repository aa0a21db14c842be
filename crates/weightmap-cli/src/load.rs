//! `weightmap load`: a subset of a checkpoint, loaded, and what it cost.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::Serialize;
use weightmap::{LoadOptions, LoadReport, ReadMode, Selection, ShardedModel, Tensor};

use crate::digest::Digests;
use crate::open::OpenArgs;
use crate::part::PartArgs;
use crate::progress::with_progress;
use crate::render;
use crate::size;

/// Load tensors in parallel and report what it cost
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// What is loaded, and how.
    #[command(flatten)]
    pub options: Options,
}

/// What is loaded, how, how often, and how it is told.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Which tensors, or whose part.
    #[command(flatten)]
    pub part: PartArgs,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// How bytes are read
    #[arg(long, default_value = ReadMode::default().name(), value_parser = modes())]
    pub mode: ReadMode,
    /// Threads that read, at most [default: one for each core, of disks 16 at most; 16 where requests take long, as
    /// over a network; at least 4 where reads wait for a device]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// The most memory that the load may hold at once, in bytes or with a unit: 8G and 8GiB are the same, 8GB is
    /// a little less; pages of mapped files are not in it [default: what the control groups of the process allow]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub memory_limit: Option<u64>,
    /// Take each tensor as it is done and let go of it, instead of holding all of them until the last: for what is
    /// more than the memory
    #[arg(long)]
    pub stream: bool,
    /// Give pages of the files back to the system behind the reads, so that they take no memory from others;
    /// with --stream those of mapped tensors go as well, as each is let go of
    #[arg(long)]
    pub drop_behind: bool,
    /// Before every run, drop all shards from the page cache, and fail if any of it stays
    #[arg(long)]
    pub cold: bool,
    /// Load so many times, opening the checkpoint anew each time [default: 1]
    #[arg(long, value_name = "N")]
    pub repeat: Option<NonZeroUsize>,
    /// Tell the SHA-256 of each loaded tensor's bytes, computed after the first run and outside its time, or with
    /// --stream as each comes and within it; no later change of the files can reach the bytes that are hashed with
    /// --mode buffered or direct
    #[arg(long)]
    pub digest: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Whether the first run is to be cold where that can be had, and is made without where it cannot, and those
    /// after it are to find all in the page cache.
    #[arg(skip)]
    pub cold_then_warm: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    path: String,
    runs: Vec<LoadReport>,
    digests: Digests,
}

fn modes() -> impl clap::builder::TypedValueParser<Value = ReadMode> {
    let names = ReadMode::ALL.iter().map(|mode| mode.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ReadMode>())
}

/// Loads the selected tensors as often as asked for, and shows what each run cost. With `progress` a bar
/// tells on stderr how far a run is, if that is a terminal.
///
/// # Errors
/// When the checkpoint cannot be opened, the selection is not in it, it cannot be loaded, or a run that must
/// be cold cannot be.
pub fn run(path: &Path, options: &Options, progress: bool) -> Result<()> {
    let wanted = options.part.read(!options.json)?;
    let runs = options.repeat.map_or(1, NonZeroUsize::get);
    let path_text = path.to_string_lossy().into_owned();
    let mut document = Document { path: path_text, runs: Vec::new(), digests: Digests::default() };
    for number in 1..=runs {
        let cold = options.make_cold(path, number)?;
        if options.cold_then_warm && !options.cold && number > 1 {
            // A cold run may have passed the page cache by.
            wanted.of(&options.open.open(path)?)?.prefetch()?;
        }
        let model = options.open.open(path)?;
        let selection = wanted.of(&model)?;
        let digests = (options.digest && number == 1).then_some(&mut document.digests);
        let report = options.load(&model, &selection, progress, digests)?;
        if !options.json {
            show_run(&format!("run {number} of {runs}"), cold, &report, number > 1)?;
        }
        document.runs.push(report);
    }
    if options.json { render::json(&document) } else { show_digests(&document.digests) }
}

impl Options {
    /// Drops the shards from the page cache if this run is to be cold, and tells what came of it.
    fn make_cold(&self, path: &Path, number: usize) -> Result<Option<&'static str>> {
        let is_wanted = self.cold || (self.cold_then_warm && number == 1);
        if !is_wanted {
            return Ok(None);
        }
        // Not the model that is loaded: a cold start begins with opening.
        let evicted = self.open.open(path)?.evict();
        match evicted.context("the files cannot be dropped from the page cache, so the run would not be cold")
        {
            Ok(()) => Ok(Some("cold")),
            Err(error) if self.cold => Err(error),
            Err(error) => {
                render::note(&error);
                Ok(Some("not verified cold"))
            }
        }
    }

    /// Loads once; with `digests`, those of all tensors are computed.
    fn load(
        &self,
        model: &ShardedModel,
        selection: &Selection,
        progress: bool,
        mut digests: Option<&mut Digests>,
    ) -> Result<LoadReport> {
        let mut take = |tensor: &Tensor| {
            if let Some(digests) = &mut digests {
                digests.add(tensor);
            }
        };
        let report = if self.stream {
            with_progress(progress, self.options(), |options| stream(selection, options, take))?
        } else {
            let loaded =
                with_progress(progress, self.options(), |options| Ok(selection.load_with(options)?))?;
            loaded.tensors().iter().for_each(&mut take);
            loaded.report().clone()
        };
        if digests.is_some() {
            show_unchanged(model, selection)?;
        }
        Ok(report)
    }

    fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default().mode(self.mode).drop_behind(self.drop_behind);
        if let Some(workers) = self.workers {
            options = options.workers(workers.get());
        }
        if let Some(bytes) = self.memory_limit {
            options = options.memory_limit(bytes);
        }
        options
    }
}

/// Takes the tensors as they are done, and drops each before the next.
fn stream(selection: &Selection, options: &LoadOptions, mut take: impl FnMut(&Tensor)) -> Result<LoadReport> {
    let mut tensors = selection.stream_with(options)?;
    for tensor in tensors.by_ref() {
        take(&tensor?);
    }
    tensors.report().cloned().context("the stream ended without a report")
}

/// Fails if a shard is not the file any more that tensors were loaded from: what lies in its mapping can have
/// changed since. A load shows that, and it need not be of all of them.
fn show_unchanged(model: &ShardedModel, selection: &Selection) -> Result<()> {
    let mut shortest = BTreeMap::new();
    for info in selection.infos()? {
        // What is put together has a name that the checkpoint may not know.
        let parts: Vec<_> = match info.parts.is_empty() {
            true => vec![(info.shard.to_string(), (info.len_bytes(), info.name))],
            false => info
                .parts
                .into_iter()
                .map(|part| (part.shard.to_string(), (part.bytes, part.tensor)))
                .collect(),
        };
        for (shard, tensor) in parts {
            let kept = shortest.entry(shard).or_insert_with(|| tensor.clone());
            *kept = std::mem::take(kept).min(tensor);
        }
    }
    let names = shortest.into_values().map(|(_, name)| name);
    model.select().allow_empty().names(names)?.load()?;
    Ok(())
}

fn show_run(heading: &str, cold: Option<&str>, report: &LoadReport, gap: bool) -> Result<()> {
    let warm = report.extent_pages > 0 && report.resident_before == Some(report.extent_pages);
    let state = cold.or(warm.then_some("warm")).map_or_else(String::new, |state| format!(", {state}"));
    render::text(|page| {
        let gap = if gap { "\n" } else { "" };
        page.prose(&format!("{gap}{heading}{state}"), 0)?;
        page.report(report)
    })
}

fn show_digests(digests: &Digests) -> Result<()> {
    if digests.is_empty() {
        return Ok(());
    }
    render::text(|page| {
        page.line("")?;
        digests.lines().try_for_each(|line| page.line(&line))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use weightmap_testkit::{Checkpoint, ShardBuilder};

    use super::*;

    #[test]
    fn a_file_that_was_written_to_after_the_load_is_told_of_by_whichever_shard() {
        let shard = |name| ShardBuilder::new().pattern(name, "U8", &[10]);
        let [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        let files =
            Checkpoint::new().shard(first, shard("a").zeros("empty", "F32", &[0])).shard(second, shard("b"));
        let files = files.temp();
        let model = ShardedModel::open(files.path()).unwrap();
        let all = model.select().all();
        all.load().unwrap();
        show_unchanged(&model, &all).unwrap();
        std::fs::File::options().append(true).open(files.file(first)).unwrap().write_all(b"x").unwrap();
        let error = show_unchanged(&model, &all).unwrap_err();
        assert!(error.to_string().contains("changed since it was checked"), "{error}");
    }
}
