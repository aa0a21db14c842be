//! `weightmap ls`: the tensors of a checkpoint.

use std::collections::HashSet;
use std::iter;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use weightmap::{Dtype, TensorInfo};

use crate::open::OpenArgs;
use crate::render::{self, Align, bytes};
use crate::select::SelectArgs;

/// List tensors: name, dtype, shape, shard, bytes
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
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a JSON document of this subcommand holds.
#[derive(Debug, Serialize)]
struct Document<'a> {
    path: String,
    tensors: Vec<Row<'a>>,
}

/// One tensor; `range` is where its bytes lie in the shard's file.
#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    dtype: &'a Dtype,
    shape: &'a [u64],
    shard: &'a str,
    /// All in which it lies: of a distributed checkpoint, several may have pieces of it.
    shards: Vec<&'a str>,
    bytes: u64,
    range: [u64; 2],
}

impl<'a> From<&'a TensorInfo> for Row<'a> {
    fn from(info: &'a TensorInfo) -> Self {
        Self {
            name: &info.name,
            dtype: &info.dtype,
            shape: &info.shape,
            shard: info.shard.as_str(),
            shards: shards(info),
            bytes: info.len_bytes(),
            range: [info.range.start, info.range.end],
        }
    }
}

/// The shards that hold something of a tensor, each once, in the order in which that lies in it.
fn shards(info: &TensorInfo) -> Vec<&str> {
    let mut seen = HashSet::new();
    let parts = info.parts.iter().map(|part| part.shard.as_str());
    iter::once(info.shard.as_str()).chain(parts).filter(|shard| seen.insert(*shard)).collect()
}

/// The first shard, and how many more there are.
fn shown(info: &TensorInfo) -> String {
    match shards(info).len() {
        0 | 1 => info.shard.to_string(),
        several => format!("{} (+{})", info.shard, several - 1),
    }
}

/// Lists the selected tensors: for people on a terminal, elsewhere as records with tabs and exact numbers. It
/// opens their shards and reads headers, no data.
///
/// # Errors
/// When the checkpoint cannot be opened, the selection is not in it, or a shard concerned is not sound.
pub fn run(args: &Args) -> Result<()> {
    let wanted = args.selection.read()?;
    let infos = wanted.of(&args.open.open(&args.path)?)?.infos()?;
    if args.json {
        let path = args.path.to_string_lossy().into_owned();
        return render::json(&Document { path, tensors: infos.iter().map(Row::from).collect() });
    }
    let row = |info: &TensorInfo, bytes: fn(u64) -> String| {
        let TensorInfo { name, dtype, shape, .. } = info;
        [name.clone(), dtype.to_string(), format!("{shape:?}"), shown(info), bytes(info.len_bytes())]
    };
    render::text(|page| {
        if !page.is_terminal() {
            return page.records(infos.iter().map(|info| row(info, |bytes| bytes.to_string())));
        }
        let align = [Align::Left, Align::Left, Align::Left, Align::Left, Align::Right];
        page.table(0, align, infos.iter().map(|info| row(info, bytes)))
    })
}
