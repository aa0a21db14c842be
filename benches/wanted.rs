//! What a competitor is to load: which tensors, and which part of each.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::num::NonZeroUsize;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use safetensors::slice::{TensorIndexer, slice_byte_ranges};
use safetensors::tensor::{Metadata, TensorInfo};

/// The name that the index has in every checkpoint here.
pub const INDEX: &str = "model.safetensors.index.json";

/// The bytes before a header's text, which give its length.
const LENGTH_BYTES: usize = 8;

/// Which tensors, and which part of each. As JSON it is an argument of the peers that are programs of their own.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Wanted {
    /// Which tensors.
    pub names: Names,
    /// Which part of each matrix; without it, all of it.
    pub cut: Option<Cut>,
}

/// Tensors by their names.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// Every tensor.
    All,
    /// Those of some decoder layers.
    Layers(Vec<u32>),
    /// Those whose names end so.
    Ending(String),
}

/// The part of a matrix that one of several ranks needs. Tensors of fewer than two dims, and those that cannot be cut
/// evenly, are taken whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cut {
    /// The dim that is cut.
    pub dim: usize,
    /// The rank.
    pub part: usize,
    /// How many ranks there are.
    pub of: usize,
}

/// What a program usually makes of an index file.
#[derive(Debug, serde::Deserialize)]
pub struct WeightMap {
    /// The shard of each tensor.
    pub weight_map: HashMap<String, String>,
}

/// Ranges of one file, in its order; neighbours are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRanges {
    /// The file.
    pub path: PathBuf,
    /// The ranges.
    pub ranges: Vec<Range<u64>>,
}

impl Wanted {
    /// A whole model.
    pub fn all() -> Self {
        Self { names: Names::All, cut: None }
    }

    /// Whole layers.
    pub fn layers(numbers: &[u32]) -> Self {
        Self { names: Names::Layers(numbers.to_vec()), cut: None }
    }

    /// What the first of four ranks needs of these tensors, cut along a dim.
    pub fn quarter(names: Names, dim: usize) -> Self {
        Self { names, cut: Some(Cut { dim, part: 0, of: 4 }) }
    }

    /// As the peers that are programs of their own take it.
    pub fn to_json(&self) -> String {
        // Numbers and texts: there is nothing in it that JSON could not express.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Where the wanted bytes lie. The headers are read by position and past read-ahead, so that nothing but they gets into
    /// the page cache.
    ///
    /// # Errors
    /// When the checkpoint cannot be read.
    pub fn ranges(&self, checkpoint: &Path) -> Result<Vec<FileRanges>> {
        let WeightMap { weight_map } = read_index(checkpoint)?;
        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, shard) in weight_map.iter().filter(|(name, _)| self.names.contains(name)) {
            shards.entry(shard).or_default().push(name);
        }
        shards.into_iter().map(|(shard, names)| self.ranges_of(checkpoint.join(shard), &names)).collect()
    }

    fn ranges_of(&self, path: PathBuf, names: &[&str]) -> Result<FileRanges> {
        let (start, metadata) = read_header(&path)?;
        let mut ranges = Vec::new();
        for &name in names {
            let info = metadata.info(name).with_context(|| format!("{name:?} is not in {path:?}"))?;
            ranges.extend(self.ranges_in(info)?.map(|range| start + range.start..start + range.end));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Ok(FileRanges { path, ranges: merged(ranges) })
    }

    /// The wanted ranges of a tensor, from the start of the data.
    fn ranges_in(&self, info: &TensorInfo) -> Result<impl Iterator<Item = Range<u64>>> {
        let (begin, end) = info.data_offsets;
        let ranges = match self.indexers(&info.shape) {
            Some(indexers) => slice_byte_ranges(info.dtype, &info.shape, &indexers)?.0,
            None => vec![(0, end - begin)],
        };
        Ok(ranges.into_iter().map(move |(start, stop)| (begin + start) as u64..(begin + stop) as u64))
    }

    /// The part of a tensor of this shape, as safetensors has it; `None` for all of it.
    pub fn indexers(&self, shape: &[usize]) -> Option<Vec<TensorIndexer>> {
        let range = self.cut?.range(shape)?;
        let all = TensorIndexer::Narrow(Bound::Unbounded, Bound::Unbounded, NonZeroUsize::MIN);
        let part = TensorIndexer::Narrow(
            Bound::Included(range.start),
            Bound::Excluded(range.end),
            NonZeroUsize::MIN,
        );
        let mut indexers = vec![all; shape.len()];
        *indexers.get_mut(self.cut?.dim)? = part;
        Some(indexers)
    }
}

impl Names {
    /// Whether a tensor is among them.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Layers(numbers) => numbers.iter().any(|number| {
                let rest = name
                    .strip_prefix("model.layers.")
                    .and_then(|rest| rest.strip_prefix(&number.to_string()));
                rest.is_some_and(|rest| rest.starts_with('.'))
            }),
            Self::Ending(end) => name.ends_with(end),
        }
    }

    /// A glob that matches the same.
    pub fn glob(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Layers(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
                format!("model.layers.{{{}}}.*", numbers.join(","))
            }
            Self::Ending(end) => format!("*{end}"),
        }
    }
}

impl Cut {
    /// The range of the dim; `None` where the tensor is taken whole.
    pub fn range(&self, shape: &[usize]) -> Option<Range<usize>> {
        let length = *shape.get(self.dim)?;
        let rows = length / self.of;
        (shape.len() >= 2 && length % self.of == 0).then(|| self.part * rows..(self.part + 1) * rows)
    }
}

/// The bytes of all ranges.
pub fn total_bytes(files: &[FileRanges]) -> u64 {
    files.iter().flat_map(|file| &file.ranges).map(|range| range.end - range.start).sum()
}

/// Reads and parses the index as most programs do.
///
/// # Errors
/// When it cannot be read or parsed.
pub fn read_index(checkpoint: &Path) -> Result<WeightMap> {
    Ok(serde_json::from_slice(&fs::read(checkpoint.join(INDEX))?)?)
}

/// Where the data of a shard starts, and its header.
fn read_header(path: &Path) -> Result<(u64, Metadata)> {
    let mut file = File::open(path)?;
    without_read_ahead(&file)?;
    let mut length = [0; LENGTH_BYTES];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    Ok((LENGTH_BYTES as u64 + length, serde_json::from_slice(&text)?))
}

#[cfg(target_os = "linux")]
fn without_read_ahead(file: &File) -> io::Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random).map_err(Into::into)
}

#[cfg(not(target_os = "linux"))]
fn without_read_ahead(_: &File) -> io::Result<()> {
    Ok(())
}

fn merged(sorted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
