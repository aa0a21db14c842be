//! `weightmap load`: a subset of a checkpoint, loaded, and what it cost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use weightmap::{LoadOptions, LoadReport, Loaded, ReadMode, Selection};

use crate::open::OpenArgs;
use crate::render;
use crate::select::SelectArgs;

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
    /// Which tensors.
    #[command(flatten)]
    pub selection: SelectArgs,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// How bytes are read
    #[arg(long, default_value = ReadMode::default().name(), value_parser = modes())]
    pub mode: ReadMode,
    /// Threads that read [default: one for each core, 16 at most]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// Before every run, drop all shards from the page cache, and fail if any of it stays
    #[arg(long)]
    pub cold: bool,
    /// Load so many times, opening the checkpoint anew each time [default: 1]
    #[arg(long, value_name = "N")]
    pub repeat: Option<NonZeroUsize>,
    /// Tell the SHA-256 of each loaded tensor's bytes, computed after the first run and outside its time;
    /// with --mode buffered no later change of the files can reach these bytes
    #[arg(long)]
    pub digest: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Whether the first run is to be cold where that can be had, and is made without where it cannot.
    #[arg(skip)]
    pub first_cold: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    path: String,
    runs: Vec<LoadReport>,
    digests: Digests,
}

/// The SHA-256 of tensors' bytes in hexadecimal digits, by name.
type Digests = BTreeMap<String, String>;

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
    let wanted = options.selection.read()?;
    let runs = options.repeat.map_or(1, NonZeroUsize::get);
    let mut document =
        Document { path: path.to_string_lossy().into_owned(), runs: Vec::new(), digests: Digests::new() };
    for number in 1..=runs {
        let cold = options.make_cold(path, number)?;
        let selection = wanted.of(&options.open.open(path)?)?;
        let loaded = options.load(&selection, progress)?;
        if options.digest && number == 1 {
            document.digests = digests(&loaded);
            // What lies in a mapped file can have changed since it was loaded: another load shows that it has
            // not.
            options.load(&selection, false)?;
        }
        let report = loaded.report().clone();
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
        let first_cold = self.first_cold && number == 1;
        if !self.cold && !first_cold {
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

    fn load(&self, selection: &Selection, progress: bool) -> Result<Loaded> {
        let mut options = LoadOptions::default().mode(self.mode);
        if let Some(workers) = self.workers {
            options = options.workers(workers.get());
        }
        let bar = if progress { bar()? } else { ProgressBar::hidden() };
        let shown = bar.clone();
        let loaded = selection.load_with(&options.progress(move |done, of| {
            // To set the length draws the bar, for which no worker should wait but the first.
            if shown.length() != Some(of) {
                shown.set_length(of);
            }
            shown.set_position(done);
        }));
        bar.finish_and_clear();
        Ok(loaded?)
    }
}

/// A bar on stderr, hidden where that is no terminal. A thread of its own draws it, outside the time of the
/// workers.
fn bar() -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{wide_bar} {binary_bytes}/{binary_total_bytes}")?;
    let bar = ProgressBar::no_length().with_style(style);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    Ok(bar)
}

fn digests(loaded: &Loaded) -> Digests {
    let digest = |bytes| {
        Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    loaded.tensors().iter().map(|tensor| (tensor.name().to_owned(), digest(tensor.bytes()))).collect()
}

fn show_run(heading: &str, cold: Option<&str>, report: &LoadReport, gap: bool) -> Result<()> {
    let warm = report.extent_pages > 0 && report.resident_before == Some(report.extent_pages);
    let state = cold.or(warm.then_some("warm")).map_or_else(String::new, |state| format!(", {state}"));
    render::text(|page| {
        let gap = if gap { "\n" } else { "" };
        page.prose(&format!("{gap}{heading}{state}"), 0)?;
        page.prose(&report.to_string(), 8)
    })
}

/// In the form of `sha256sum`.
fn show_digests(digests: &Digests) -> Result<()> {
    if digests.is_empty() {
        return Ok(());
    }
    render::text(|page| {
        page.line("")?;
        digests.iter().try_for_each(|(name, hex)| page.line(&format!("{hex}  {name}")))
    })
}
