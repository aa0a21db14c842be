//! An independent reader, plain and slow.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The tensors of an honest checkpoint, found with nothing but file reads and a generic JSON parser.
///
/// Every method panics on what is not there or not right: the oracle judges models that are known to be good.
#[derive(Debug)]
pub struct Oracle {
    dir: PathBuf,
    tensors: BTreeMap<String, Place>,
}

#[derive(Debug)]
struct Place {
    dtype: String,
    shape: Vec<u64>,
    shard: String,
    range: Range<u64>,
}

/// One tensor, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleTensor {
    /// The name of the element type, such as `BF16`.
    pub dtype: String,
    /// The dims, outermost first.
    pub shape: Vec<u64>,
    /// The shard's name, as in the index.
    pub shard: String,
    /// Where the bytes lie in the shard's file.
    pub range: Range<u64>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Oracle {
    /// Opens a directory, an index (`*.json`) or a single file.
    ///
    /// In a directory the only `*.safetensors.index.json` counts, or else every `*.safetensors`.
    pub fn open(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        if path.is_dir() {
            let indexes = list(path, ".safetensors.index.json");
            assert!(indexes.len() < 2, "several indexes: {indexes:?}");
            return match indexes.first() {
                Some(index) => Self::from_index(path, index),
                None => Self::from_shards(path, &list(path, ".safetensors")),
            };
        }
        let dir = path.parent().expect("a file lies in a directory");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a file has a name").to_owned();
        if name.ends_with(".json") { Self::from_index(dir, &name) } else { Self::from_shards(dir, &[name]) }
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    /// A tensor, read from its file.
    pub fn tensor(&self, name: &str) -> OracleTensor {
        let Place { dtype, shape, shard, range } = self.place(name);
        OracleTensor {
            dtype: dtype.clone(),
            shape: shape.clone(),
            shard: shard.clone(),
            range: range.clone(),
            bytes: self.slice(name, 0..range.end - range.start),
        }
    }

    /// Some bytes of a tensor, counted from its beginning.
    pub fn slice(&self, name: &str, bytes: Range<u64>) -> Vec<u8> {
        let Place { shard, range, .. } = self.place(name);
        assert!(range.start + bytes.end <= range.end, "{name:?} has no bytes {bytes:?}");
        read_range(&self.dir.join(shard), range.start + bytes.start, bytes.end - bytes.start)
    }

    fn place(&self, name: &str) -> &Place {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name:?}"))
    }

    fn from_index(dir: &Path, index: &str) -> Self {
        let text = fs::read(dir.join(index)).expect("the index can be read");
        let index: Value = serde_json::from_slice(&text).expect("the index is JSON");
        let mut by_shard: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, shard) in index["weight_map"].as_object().expect("a weight_map") {
            by_shard.entry(shard.as_str().expect("a shard's name")).or_default().push(tensor);
        }
        let mut tensors = BTreeMap::new();
        for (shard, listed) in by_shard {
            let mut held = places(dir, shard);
            for name in listed {
                let place = held.remove(name).unwrap_or_else(|| panic!("{shard:?} lacks {name:?}"));
                tensors.insert(name.to_owned(), place);
            }
        }
        Self { dir: dir.to_owned(), tensors }
    }

    fn from_shards(dir: &Path, shards: &[String]) -> Self {
        let tensors = shards.iter().flat_map(|shard| places(dir, shard)).collect();
        Self { dir: dir.to_owned(), tensors }
    }
}

/// The files of a directory whose names end so, hidden ones aside.
fn list(dir: &Path, suffix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory can be read");
    let names = entries.filter_map(|entry| entry.expect("an entry").file_name().into_string().ok());
    names.filter(|name| name.ends_with(suffix) && !name.starts_with('.')).collect()
}

/// Every tensor of one shard, from its header.
fn places(dir: &Path, shard: &str) -> BTreeMap<String, Place> {
    let path = dir.join(shard);
    let prefix = read_range(&path, 0, 8).try_into().expect("8 bytes");
    let header_len = u64::from_le_bytes(prefix);
    let header: Value =
        serde_json::from_slice(&read_range(&path, 8, header_len)).expect("the header is JSON");
    let entries = header.as_object().expect("the header is an object").iter();
    let place = |entry: &Value| {
        let numbers = |key: &str| -> Vec<u64> {
            let values = entry[key].as_array().unwrap_or_else(|| panic!("{key} is an array"));
            values.iter().map(|value| value.as_u64().expect("a number")).collect()
        };
        let [begin, end] = numbers("data_offsets")[..] else { panic!("data_offsets are two") };
        Place {
            dtype: entry["dtype"].as_str().expect("a dtype").to_owned(),
            shape: numbers("shape"),
            shard: shard.to_owned(),
            range: 8 + header_len + begin..8 + header_len + end,
        }
    };
    entries
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, entry)| (name.clone(), place(entry)))
        .collect()
}

fn read_range(path: &Path, offset: u64, len: u64) -> Vec<u8> {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("open {path:?}: {error}"));
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset)).expect("a file can be sought");
    file.take(len).read_to_end(&mut bytes).expect("a file can be read");
    assert_eq!(bytes.len() as u64, len, "{path:?} ends before byte {}", offset + len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checkpoint, ShardBuilder, damage, pattern};

    fn overlaid() -> Checkpoint {
        let stale =
            ShardBuilder::new().metadata("format", "pt").pattern("a", "BF16", &[3, 2]).zeros("b", "U8", &[5]);
        Checkpoint::new()
            .shard("old.safetensors", stale)
            .shard("new.safetensors", ShardBuilder::new().header_padding(1).tensor("b", "U8", &[2], [8, 9]))
    }

    #[test]
    fn what_the_builder_writes_is_read_back() {
        let model = overlaid().temp();
        let oracle = Oracle::open(model.path());
        assert_eq!(oracle.names(), ["a", "b"]);
        let a = oracle.tensor("a");
        assert_eq!(
            (a.dtype.as_str(), a.shape.as_slice(), a.shard.as_str()),
            ("BF16", &[3, 2][..], "old.safetensors")
        );
        assert_eq!(a.bytes, pattern::bytes("a", 12));
        let file = fs::read(model.file("old.safetensors")).unwrap();
        assert_eq!(file[usize::try_from(a.range.start).unwrap()..][..12], a.bytes);
        assert_eq!(oracle.slice("a", 3..7), a.bytes[3..7]);
    }

    #[test]
    fn the_index_decides_between_shards_that_hold_one_name() {
        let bytes_of_b = |checkpoint: Checkpoint| {
            let model = checkpoint.temp();
            Oracle::open(&model).tensor("b").bytes
        };
        assert_eq!(bytes_of_b(overlaid()), [8, 9]);
        assert_eq!(bytes_of_b(overlaid().map("b", "old.safetensors")), [0; 5]);
    }

    #[test]
    fn an_index_a_file_and_a_directory_without_an_index_are_opened() {
        let model = overlaid().temp();
        assert_eq!(Oracle::open(model.file("model.safetensors.index.json")).names(), ["a", "b"]);
        assert_eq!(Oracle::open(model.file("new.safetensors")).names(), ["b"]);
        fs::remove_file(model.file("model.safetensors.index.json")).unwrap();
        fs::remove_file(model.file("old.safetensors")).unwrap();
        assert_eq!(Oracle::open(&model).names(), ["b"]);
    }

    #[test]
    #[should_panic(expected = "ends before byte")]
    fn a_short_file_is_noticed() {
        let model = overlaid().temp();
        let oracle = Oracle::open(&model);
        damage::truncate(model.file("old.safetensors"), oracle.tensor("a").range.end - 1);
        oracle.tensor("a");
    }
}
