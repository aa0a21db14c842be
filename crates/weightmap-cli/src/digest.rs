//! `weightmap digest`: what the bytes of a checkpoint are, kept to compare it with later.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;
use weightmap::{Digests, Error};

use crate::open::OpenArgs;
use crate::progress::with_progress;
use crate::read::ReadArgs;
use crate::render::{self, Page, bytes, count, hex};

/// Read all data of a checkpoint that is known to be right, and write a file of its digests beside it
///
/// `weightmap check --content` and `weightmap load --verify` compare with it. Its own digest is told in the form of
/// `b3sum`: kept elsewhere, it shows later that nobody has replaced the file together with the checkpoint.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// The file that is written [default: beside the checkpoint, where it is looked for: the name of the index or of the
    /// only file with .digests added, or model.digests]
    #[arg(long, value_name = "FILE", value_parser = a_file())]
    pub output: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long)]
    pub force: bool,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// How bytes are read.
    #[command(flatten)]
    pub read: ReadArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document {
    path: String,
    /// The file of digests.
    file: String,
    /// Its length in bytes.
    file_bytes: u64,
    /// Its own BLAKE3 digest, in hexadecimal digits.
    digest: String,
    tensors: u64,
    /// Bytes of these tensors.
    tensor_bytes: u64,
    /// What reading and hashing took.
    seconds: f64,
}

/// Digests are a file that gets its name when it is whole, and no text for a pipe.
fn a_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|file| match file.as_os_str() == "-" {
        true => Err("digests are not written to the standard output; name a file"),
        false => Ok(file),
    })
}

/// Writes the digests of a checkpoint and tells about them. With `progress` a bar tells on stderr how far it is, if that
/// is a terminal.
///
/// # Errors
/// When the file is there already or cannot be written, and when the checkpoint cannot be opened or read.
pub fn run(args: &Args, progress: bool) -> Result<()> {
    let model = args.open.open(&args.path)?;
    let file = args.output.clone().unwrap_or_else(|| model.digests_path());
    // Before hours of reading.
    Digests::check_writable(&file, args.force).map_err(not_written)?;
    let started = Instant::now();
    let digests = with_progress(progress, args.read.options(), |options| Ok(model.digest(options)?))?;
    let seconds = started.elapsed().as_secs_f64();
    digests.write(&file, args.force).map_err(not_written)?;
    let infos = model.select().allow_empty().all().infos()?;
    let document = Document {
        path: args.path.to_string_lossy().into_owned(),
        file: file.to_string_lossy().into_owned(),
        file_bytes: digests.as_bytes().len() as u64,
        digest: hex(&digests.digest()),
        tensors: infos.len() as u64,
        tensor_bytes: infos.iter().map(|info| info.len_bytes()).fold(0, u64::saturating_add),
        seconds,
    };
    if args.json { render::json(&document) } else { render::text(|page| document.show(page)) }
}

/// An error with the option that helps.
fn not_written(error: Error) -> anyhow::Error {
    let is_there = matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::AlreadyExists);
    let help = if is_there {
        "there are digests already; --force replaces them"
    } else {
        "the digests cannot be written; --output FILE puts them elsewhere"
    };
    anyhow!(error).context(help)
}

impl Document {
    /// For people all of it, and in a pipe the line that `b3sum --check` reads.
    fn show(&self, page: &mut Page<'_>) -> io::Result<()> {
        if page.is_terminal() {
            let tensors = count(self.tensors, "tensor");
            page.prose(&format!("digests  {}, {}", self.file, bytes(self.file_bytes)), 9)?;
            page.prose(
                &format!("of       {tensors}, {}, read in {:.2} s", bytes(self.tensor_bytes), self.seconds),
                9,
            )?;
        }
        page.line(&format!("{}  {}", self.digest, self.file))
    }
}
