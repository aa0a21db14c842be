//! `weightmap check`: whether a checkpoint is sound.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weightmap::Check;

use crate::finding::Finding;
use crate::open::FormatArgs;
use crate::render::{self, count};

/// The exit status when the checkpoint could not be looked at; 1 means that it has faults.
const NOT_RUN: u8 = 2;

/// Open every shard, compare index and headers, and list all faults and warnings
///
/// Headers are read and compared with the index and with the lengths of the files; data is not read, as the format
/// has no checksums to compare it with.
///
/// Exit status: 0 the checkpoint is sound, 1 it has faults, 2 it could not be checked.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// How it is opened.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    faults: Vec<Finding>,
    warnings: Vec<Finding>,
}

/// Checks a checkpoint, tells what was found, and gives the exit status.
pub fn run(args: &Args) -> ExitCode {
    let check = match weightmap::check(&args.path, &args.format.options()) {
        Ok(check) => check,
        Err(error) => {
            render::error(&error.into());
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

fn show(check: &Check, json: bool) -> Result<()> {
    let faults = check.faults.iter().map(Finding::from).collect();
    let warnings = check.warnings.iter().map(Finding::from).collect();
    let document = Document { faults, warnings };
    if json {
        return render::json(&document);
    }
    render::text(|page| {
        for fault in &document.faults {
            page.prose(&format!("fault {fault}"), 2)?;
        }
        for warning in &document.warnings {
            page.prose(&format!("warning {warning}"), 2)?;
        }
        let verdict = match check.faults.len() {
            0 => "sound".to_owned(),
            faults => count(faults as u64, "fault"),
        };
        let warnings = count(check.warnings.len() as u64, "warning");
        let tensors = count(check.tensors as u64, "tensor");
        let headers = count(check.shards as u64, "header");
        page.prose(&format!("{verdict}, {warnings}; {tensors} listed, {headers} read, no data compared"), 2)
    })
}
