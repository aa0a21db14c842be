//! `weightmap info`: what a checkpoint consists of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use serde_json::value::RawValue;
use weightmap::{Dtype, Error, ShardedModel};

use crate::finding::Finding;
use crate::open::OpenArgs;
use crate::render::{self, Align, Page, bytes, count, percent};

/// Show files, tensors, dtypes, bytes and metadata
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// How it is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What is told of a checkpoint, and in JSON exactly this.
#[derive(Debug, Serialize)]
struct Info {
    path: String,
    /// The index file, if there is one.
    index: Option<String>,
    /// The file of digests beside it, if there is one.
    digests: Option<String>,
    tensors: u64,
    /// Bytes of the listed tensors.
    tensor_bytes: u64,
    /// Bytes of the files that are there.
    file_bytes: u64,
    /// Those of `file_bytes` that are headers, with the 8 bytes that give their lengths.
    header_bytes: u64,
    files: Vec<FileRow>,
    dtypes: Vec<DtypeRow>,
    /// The `metadata` of the index, as it stands there: it need be no object, nor its numbers such that fit a
    /// type.
    metadata: Option<Box<RawValue>>,
    /// What was passed over when the checkpoint was opened, or is odd.
    warnings: Vec<Finding>,
}

/// One shard; the sizes of one that is absent are not known.
#[derive(Debug, Serialize)]
struct FileRow {
    name: String,
    bytes: Option<u64>,
    header_bytes: Option<u64>,
    /// Tensors that the index lists for it; without one, those that it has, be it in pieces.
    tensors: u64,
    /// The `__metadata__` of its header.
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct DtypeRow {
    dtype: Dtype,
    tensors: u64,
    bytes: u64,
}

/// Shows what a checkpoint consists of. It opens every shard and reads headers, no data.
///
/// # Errors
/// When the checkpoint cannot be opened, or a shard is not sound.
pub fn run(args: &Args) -> Result<()> {
    let model = args.open.open(&args.path)?;
    let info = Info::of(&model, args)?;
    if args.json { render::json(&info) } else { render::text(|page| info.show(page)) }
}

impl Info {
    fn of(model: &ShardedModel, args: &Args) -> Result<Self> {
        let files = (0..).zip(model.shards()).map(|(number, shard)| {
            let tensors = model.index().tensors_of(number).len() as u64;
            FileRow::of(model, shard.as_str(), tensors, args.open.allow_missing)
        });
        let mut files = files.collect::<Result<Vec<_>, _>>()?;
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let dtypes = dtypes(model)?;
        let mut warnings: Vec<_> = model.warnings().iter().map(Finding::from).collect();
        let digests = model.digests().unwrap_or_else(|error| {
            warnings.push(Finding::from(&error));
            None
        });
        Ok(Self {
            path: args.path.to_string_lossy().into_owned(),
            index: model.index_path().map(|path| path.to_string_lossy().into_owned()),
            digests: digests.and_then(|digests| Some(digests.path()?.to_string_lossy().into_owned())),
            tensors: model.len() as u64,
            tensor_bytes: total(dtypes.iter().map(|row| row.bytes)),
            file_bytes: total(files.iter().filter_map(|row| row.bytes)),
            header_bytes: total(files.iter().filter_map(|row| row.header_bytes)),
            files,
            dtypes,
            metadata: model.index().metadata().map(serde_json::from_str).transpose()?,
            warnings,
        })
    }

    fn show(&self, page: &mut Page<'_>) -> std::io::Result<()> {
        let [index, digests] = [&self.index, &self.digests].map(|file| file.as_deref().unwrap_or("none"));
        let files = count(self.files.len() as u64, "file");
        let headers = bytes(self.header_bytes);
        page.prose(&format!("path     {}", self.path.escape_debug()), 9)?;
        page.prose(&format!("index    {}", index.escape_debug()), 9)?;
        page.prose(&format!("digests  {}", digests.escape_debug()), 9)?;
        page.prose(&format!("tensors  {} in {files}", self.tensors), 9)?;
        page.prose(
            &format!("bytes    {}, {} of tensors", bytes(self.file_bytes), bytes(self.tensor_bytes)),
            9,
        )?;
        page.prose(
            &format!("headers  {headers}, {} of the bytes", percent(self.header_bytes, self.file_bytes)),
            9,
        )?;

        page.prose("\nfiles", 0)?;
        page.table(2, [Align::Left, Align::Right, Align::Right], self.files.iter().map(FileRow::cells))?;
        page.prose("\ndtypes", 0)?;
        page.table(2, [Align::Left, Align::Right, Align::Right], self.dtypes.iter().map(DtypeRow::cells))?;
        let metadata = self.metadata_rows();
        if !metadata.is_empty() {
            page.prose("\nmetadata", 0)?;
            page.table(2, [Align::Left; 3], metadata.into_iter())?;
        }
        if !self.warnings.is_empty() {
            page.prose("\nwarnings", 0)?;
        }
        self.warnings.iter().try_for_each(|warning| page.prose(&format!("  {warning}"), 4))
    }

    /// Key, value, and where they are: most shards of a model say the same.
    fn metadata_rows(&self) -> Vec<[String; 3]> {
        let mut rows: Vec<_> = self.metadata.iter().flat_map(|metadata| entries(metadata)).collect();
        let mut shards = BTreeMap::<(&str, &str), Vec<&str>>::new();
        for file in &self.files {
            for (key, value) in &file.metadata {
                shards.entry((key, value)).or_default().push(&file.name);
            }
        }
        rows.extend(shards.into_iter().map(|((key, value), files)| {
            let place = match files[..] {
                [file] => file.to_owned(),
                _ => count(files.len() as u64, "file"),
            };
            [key.to_owned(), shortened(value), place]
        }));
        rows
    }
}

impl FileRow {
    fn of(model: &ShardedModel, shard: &str, tensors: u64, allow_missing: bool) -> weightmap::Result<Self> {
        let header = match model.header(shard) {
            Err(Error::MissingShards { .. }) if allow_missing => None,
            header => Some(header?),
        };
        let metadata = header.iter().flat_map(|header| header.metadata());
        let held = header.as_ref().filter(|_| model.index_path().is_none());
        Ok(Self {
            name: shard.to_owned(),
            bytes: header.as_ref().map(|header| header.file_bytes()),
            header_bytes: header.as_ref().map(|header| header.data_start()),
            tensors: held.map_or(tensors, |header| header.len() as u64),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }

    fn cells(&self) -> [String; 3] {
        let size = self.bytes.map_or_else(|| "absent".to_owned(), bytes);
        [self.name.clone(), size, count(self.tensors, "tensor")]
    }
}

impl DtypeRow {
    fn cells(&self) -> [String; 3] {
        [self.dtype.to_string(), bytes(self.bytes), count(self.tensors, "tensor")]
    }
}

/// The types of the tensors of all shards that are there.
fn dtypes(model: &ShardedModel) -> weightmap::Result<Vec<DtypeRow>> {
    let mut rows = BTreeMap::<Dtype, (u64, u64)>::new();
    for info in model.select().allow_empty().all().infos()? {
        let bytes = info.len_bytes();
        let (tensors, sum) = rows.entry(info.dtype).or_default();
        *tensors += 1;
        *sum = sum.saturating_add(bytes);
    }
    Ok(rows.into_iter().map(|(dtype, (tensors, bytes))| DtypeRow { dtype, tensors, bytes }).collect())
}

/// The entries of the index's metadata, or all of it in one row if it is no object.
fn entries(metadata: &RawValue) -> Vec<[String; 3]> {
    let row = |key: &str, value: &RawValue| {
        let text = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
        [key.to_owned(), text, "index".to_owned()]
    };
    match serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(metadata.get()) {
        Ok(entries) => entries.iter().map(|(key, value)| row(key, value)).collect(),
        Err(_) => vec![row("", metadata)],
    }
}

/// A value as it is shown to people: in a distributed checkpoint one has a line for each tensor.
fn shortened(value: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    match value.char_indices().nth(SHOWN_CHARS).and_then(|(end, _)| value.get(..end)) {
        Some(start) => format!("{start}… ({} bytes)", value.len()),
        None => value.to_owned(),
    }
}

/// Sparse files can be as long as a number goes; their sum ends there too.
fn total(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
