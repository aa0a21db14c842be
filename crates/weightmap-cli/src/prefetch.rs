//! `weightmap prefetch`: what tensors need, brought into the page cache for whoever reads them next.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use weightmap::{LoadOptions, NodeShare};

use crate::open::OpenArgs;
use crate::part::PartArgs;
use crate::progress::with_progress;
use crate::render;
use crate::verify::VerifyArgs;

/// Bring what tensors need into the page cache, and report what it cost
///
/// The program keeps none of it: processes that load or map the tensors afterwards find them in memory, as long
/// as the system does not need it for something else. The line `cached` of the report tells what came of it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// Which tensors, or whose part.
    #[command(flatten)]
    pub part: PartArgs,
    /// Share the work with other ranks of this machine, which run the same command: the ranks of the plan that run here,
    /// as 0,1,2,3, the own one among them. What several of them need is then read by one
    #[arg(
        long,
        value_name = "RANKS",
        value_delimiter = ',',
        requires = "a_plan",
        conflicts_with = "excluded"
    )]
    pub node: Vec<usize>,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Threads that read, at most [default: one for each core, of disks 16 at most; 16 where requests take long, as
    /// over a network; at least 4 where reads wait for a device]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// What it is compared with.
    #[command(flatten)]
    pub verify: VerifyArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document<'a, R> {
    path: String,
    report: &'a R,
}

/// Brings the selected tensors into the page cache and shows what it cost. With `progress` a bar tells on stderr
/// how far it is, if that is a terminal.
///
/// # Errors
/// When the checkpoint cannot be opened, the selection is not in it, or it cannot be read.
pub fn run(args: &Args, progress: bool) -> Result<()> {
    let wanted = args.part.read(!args.json)?;
    let model = args.open.open(&args.path)?;
    let mut options = LoadOptions::default();
    if let Some(workers) = args.workers {
        options = options.workers(workers.get());
    }
    let options = args.verify.apply(&model, options)?;
    if !args.node.is_empty()
        && let Some((plan, rank)) = wanted.by_plan(&model)?
    {
        let share = model.prefetch_together_with(&options, &plan, &args.node, rank.rank())?;
        return args.show(&share, |page| page.line(&told(&share, args.node.len())));
    }
    let selection = wanted.of(&model)?;
    let report = with_progress(progress, options, |options| Ok(selection.prefetch_with(options)?))?;
    args.show(&report, |page| page.report(&report))
}

impl Args {
    /// As one document, or as text.
    fn show(
        &self,
        report: &impl Serialize,
        text: impl FnOnce(&mut render::Page<'_>) -> io::Result<()>,
    ) -> Result<()> {
        if self.json {
            return render::json(&Document { path: self.path.to_string_lossy().into_owned(), report });
        }
        render::text(text)
    }
}

/// A share, in a line.
fn told(share: &NodeShare, ranks: usize) -> String {
    format!(
        "share   {} read of {} that {} of this machine need; by themselves they would read {}",
        render::bytes(share.read_bytes),
        render::bytes(share.needed_bytes),
        render::count(ranks as u64, "rank"),
        render::bytes(share.wanted_bytes)
    )
}
