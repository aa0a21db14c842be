//! `weightmap prefetch`: what tensors need, brought into the page cache for whoever reads them next.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use weightmap::{LoadOptions, LoadReport};

use crate::open::OpenArgs;
use crate::progress::with_progress;
use crate::render;
use crate::select::SelectArgs;

/// Bring what tensors need into the page cache, and report what it cost
///
/// The program keeps none of it: processes that load or map the tensors afterwards find them in memory, as long
/// as the system does not need it for something else. The line `cached` of the report tells what came of it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// Which tensors.
    #[command(flatten)]
    pub selection: SelectArgs,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Threads that read, at most [default: one for each core, of disks 16 at most; 16 where requests take long, as
    /// over a network; at least 4 where reads wait for a device]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    path: String,
    report: LoadReport,
}

/// Brings the selected tensors into the page cache and shows what it cost. With `progress` a bar tells on stderr
/// how far it is, if that is a terminal.
///
/// # Errors
/// When the checkpoint cannot be opened, the selection is not in it, or it cannot be read.
pub fn run(args: &Args, progress: bool) -> Result<()> {
    let wanted = args.selection.read()?;
    let selection = wanted.of(&args.open.open(&args.path)?)?;
    let mut options = LoadOptions::default();
    if let Some(workers) = args.workers {
        options = options.workers(workers.get());
    }
    let report = with_progress(progress, options, |options| Ok(selection.prefetch_with(options)?))?;
    if args.json {
        return render::json(&Document { path: args.path.to_string_lossy().into_owned(), report });
    }
    render::text(|page| page.report(&report))
}
