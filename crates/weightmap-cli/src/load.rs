//! `weightmap load`: a subset of a checkpoint, loaded, and what it cost.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;
use weightmap::{LoadOptions, LoadReport, ReadMode, Selection, ShardedModel, Tensor};

use crate::open::OpenArgs;
use crate::part::PartArgs;
use crate::progress::with_progress;
use crate::read::ReadArgs;
use crate::render;
use crate::sums::Sums;
use crate::verify::VerifyArgs;

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
    /// How bytes are read.
    #[command(flatten)]
    pub read: ReadArgs,
    /// What they are compared with.
    #[command(flatten)]
    pub verify: VerifyArgs,
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
    /// --stream as each comes and within it; what lies in mapped files is read once more for it, by position
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
    digests: Sums,
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
    let mut document = Document { path: path_text, runs: Vec::new(), digests: Sums::default() };
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
        mut digests: Option<&mut Sums>,
    ) -> Result<LoadReport> {
        let mut all_are_there = true;
        let mut take = |tensor: &Tensor| {
            if let Some(digests) = &mut digests {
                all_are_there &= digests.add(tensor);
            }
        };
        let options = self.verify.apply(model, self.read.options().drop_behind(self.drop_behind))?;
        let report = if self.stream {
            with_progress(progress, options.clone(), |options| stream(selection, options, &mut take))?
        } else {
            let loaded =
                with_progress(progress, options.clone(), |options| Ok(selection.load_with(options)?))?;
            loaded.tensors().iter().for_each(&mut take);
            loaded.report().clone()
        };
        if let Some(digests) = digests
            && !all_are_there
        {
            // What lies in mappings is read once more, to memory of its own.
            let options = options.mode(ReadMode::Buffered);
            let add = |tensor: &Tensor| {
                digests.add(tensor);
            };
            stream(selection, &options, add)?;
        }
        Ok(report)
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

fn show_run(heading: &str, cold: Option<&str>, report: &LoadReport, gap: bool) -> Result<()> {
    let warm = report.extent_pages > 0 && report.resident_before == Some(report.extent_pages);
    let state = cold.or(warm.then_some("warm")).map_or_else(String::new, |state| format!(", {state}"));
    render::text(|page| {
        let gap = if gap { "\n" } else { "" };
        page.prose(&format!("{gap}{heading}{state}"), 0)?;
        page.report(report)
    })
}

fn show_digests(digests: &Sums) -> Result<()> {
    if digests.is_empty() {
        return Ok(());
    }
    render::text(|page| {
        page.line("")?;
        digests.lines().try_for_each(|line| page.line(&line))
    })
}
