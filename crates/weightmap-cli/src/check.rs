//! `weightmap check`: whether a checkpoint is sound.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weightmap::{Check, Content, Digests};

use crate::finding::Finding;
use crate::open::FormatArgs;
use crate::progress::with_bar;
use crate::render::{self, count};

/// The exit status when the checkpoint could not be looked at; 1 means that it has faults.
const NOT_RUN: u8 = 2;

/// Open every shard, compare index and headers, and list all faults and warnings
///
/// Headers are read and compared with the index and with the lengths of the files. The format has no checksums, so data
/// is read with --content only, and compared with what else is known of it: the digests beside the checkpoint, as
/// `weightmap digest` writes them, and in the hub's cache the names of its files.
///
/// Exit status: 0 the checkpoint is sound, 1 it has faults, 2 it could not be checked.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// How it is opened.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Read all data too, and compare it with what is known of it
    #[arg(long)]
    pub content: bool,
    /// Compare data with the digests in this file and not with those beside the checkpoint; means --content
    #[arg(long, value_name = "FILE")]
    pub digests: Option<PathBuf>,
    /// Warn of tensors that are nothing but zeros, or have elements that are NaN or infinite; means --content
    #[arg(long)]
    pub scan: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    faults: Vec<Finding>,
    /// How many more there are, which are not told.
    more_faults: usize,
    warnings: Vec<Finding>,
    more_warnings: usize,
    /// Of how many tensors, or pieces of them, the data was compared with digests.
    compared_tensors: usize,
    /// Of how many files it was compared with the digest that names them in the hub's cache.
    compared_files: usize,
}

/// Checks a checkpoint, tells what was found, and gives the exit status. With `progress` a bar tells on stderr how far
/// it has read the data, if that is a terminal.
pub fn run(args: &Args, progress: bool) -> ExitCode {
    let check = match args.check(progress) {
        Ok(check) => check,
        Err(error) => {
            render::error(&error);
            return ExitCode::from(NOT_RUN);
        }
    };
    match show(&check, args.json) {
        Err(error) if !render::is_closed_pipe(&error) => {
            render::error(&error);
            ExitCode::from(NOT_RUN)
        }
        _ if check.is_sound() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Args {
    fn check(&self, progress: bool) -> Result<Check> {
        let options = self.format.options();
        if !self.content && !self.scan && self.digests.is_none() {
            return Ok(weightmap::check(&self.path, &options)?);
        }
        let mut content = Content::default().scan(self.scan);
        if let Some(file) = &self.digests {
            content = content.digests(Digests::read(file)?);
        }
        with_bar(progress, |bar| {
            let content = content.progress(move |done, of| bar.tell(done, of));
            Ok(weightmap::check_content(&self.path, &options, &content)?)
        })
    }
}

fn show(check: &Check, json: bool) -> Result<()> {
    let faults = check.faults.iter().map(Finding::from).collect();
    let warnings = check.warnings.iter().map(Finding::from).collect();
    let Check { more_faults, more_warnings, compared_tensors, compared_files, .. } = *check;
    let document =
        Document { faults, more_faults, warnings, more_warnings, compared_tensors, compared_files };
    if json {
        return render::json(&document);
    }
    render::text(|page| {
        for fault in &document.faults {
            page.prose(&format!("fault {fault}"), 2)?;
        }
        if more_faults > 0 {
            page.prose(&format!("and {}", count(more_faults as u64, "more fault")), 2)?;
        }
        for warning in &document.warnings {
            page.prose(&format!("warning {warning}"), 2)?;
        }
        if more_warnings > 0 {
            page.prose(&format!("and {}", count(more_warnings as u64, "more warning")), 2)?;
        }
        let verdict = match check.faults.len() + more_faults {
            0 => "sound".to_owned(),
            faults => count(faults as u64, "fault"),
        };
        let warnings = count((check.warnings.len() + more_warnings) as u64, "warning");
        let tensors = count(check.tensors as u64, "tensor");
        let headers = count(check.shards as u64, "header");
        page.prose(
            &format!("{verdict}, {warnings}; {tensors} listed, {headers} read, {}", compared(check)),
            2,
        )
    })
}

/// Of what the data was compared, and with what.
fn compared(check: &Check) -> String {
    let all = [
        (check.compared_tensors, "tensor", "compared with digests"),
        (check.compared_files, "file", "compared with its name in the hub's cache"),
    ];
    let some = all.iter().filter(|(number, ..)| *number > 0);
    let told: Vec<_> =
        some.map(|(number, noun, how)| format!("{} {how}", count(*number as u64, noun))).collect();
    if told.is_empty() { "no data compared".to_owned() } else { told.join(", ") }
}
