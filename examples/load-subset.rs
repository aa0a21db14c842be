//! Loads a subset of a checkpoint in parallel and reports what it cost: the cold-start benchmark.
//!
//! ```text
//! cargo run --release --example load-subset
//! cargo run --release --example load-subset -- path/to/model --select 'model.layers.{0..15}.*' --cold --repeat 3
//! ```

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use weightmap_cli::{load, status};
use weightmap_testkit::Llama;

/// Load a subset of a checkpoint in parallel and report what it cost
#[derive(Debug, Parser)]
struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache; without it a demo
    /// checkpoint is made under target/, and one layer of it is loaded cold, then warm
    path: Option<PathBuf>,
    #[command(flatten)]
    options: load::Options,
}

fn main() -> ExitCode {
    let Args { path, options } = Args::parse();
    status(match path {
        Some(path) => load::run(&path, &options, false),
        None => demo(options),
    })
}

fn demo(mut options: load::Options) -> Result<()> {
    let directory = target_directory().join("demo-llama");
    let llama = Llama::demo();
    eprintln!(
        "demo checkpoint: {} tensors, {} MiB of bfloat16, in {}",
        llama.tensors().len(),
        llama.total_bytes() >> 20,
        directory.display()
    );
    llama.ensure(&directory).with_context(|| format!("cannot write {}", directory.display()))?;
    if !options.part.selection.is_given() && !options.part.plan.is_given() {
        options.part.selection.globs.push("model.layers.3.*".to_owned());
    }
    options.repeat = options.repeat.or(NonZeroUsize::new(2));
    options.cold_then_warm = true;
    load::run(&directory, &options, false)
}

/// Where cargo builds, which is where this program lies; if it was moved, the `target` of the workspace.
fn target_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let tagged = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    tagged.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), Path::to_owned)
}
