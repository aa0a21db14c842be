//! A directory of shards and its index.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{ShardBuilder, TempModel};

/// A sharded checkpoint: shards, and an index made from them unless it is forged.
///
/// Names are used as they are given: one with a `/` lies in a subfolder, and `..` leads where it leads.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    shards: Vec<(String, ShardBuilder)>,
    omitted: BTreeSet<String>,
    files: Vec<(String, Vec<u8>)>,
    /// Lines of the index that differ from what the shards hold; without a shard, the line is left out.
    mapped: Vec<(String, Option<String>)>,
    index_metadata: Map<String, Value>,
    index_name: String,
    index: Index,
}

#[derive(Debug, Clone)]
enum Index {
    FromShards,
    Raw(Vec<u8>),
    Absent,
}

/// Where a checkpoint was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The directory.
    pub dir: PathBuf,
    /// The index, if there is one.
    pub index: Option<PathBuf>,
    /// The shards that are there, in the order of their adding.
    pub shards: Vec<PathBuf>,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            shards: Vec::new(),
            omitted: BTreeSet::new(),
            files: Vec::new(),
            mapped: Vec::new(),
            index_metadata: Map::new(),
            index_name: "model.safetensors.index.json".to_owned(),
            index: Index::FromShards,
        }
    }
}

impl Checkpoint {
    /// A checkpoint without shards, whose index is `model.safetensors.index.json`.
    pub fn new() -> Self {
        Self::default()
    }

    /// A model in one file, `model.safetensors`, without an index.
    pub fn single(shard: ShardBuilder) -> Self {
        Self::new().shard("model.safetensors", shard).without_index()
    }

    /// Adds a shard. Where two shards hold a tensor, the index names the later one.
    pub fn shard(mut self, name: &str, shard: ShardBuilder) -> Self {
        self.shards.push((name.to_owned(), shard));
        self
    }

    /// Leaves a shard out of the directory; the index still names it.
    pub fn omit_shard(mut self, name: &str) -> Self {
        self.omitted.insert(name.to_owned());
        self
    }

    /// Adds any other file.
    pub fn file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), content.into()));
        self
    }

    /// Makes the index say that `tensor` is in `shard`, whether either is there or not.
    pub fn map(mut self, tensor: &str, shard: &str) -> Self {
        self.mapped.push((tensor.to_owned(), Some(shard.to_owned())));
        self
    }

    /// Leaves a tensor out of the index.
    pub fn unmap(mut self, tensor: &str) -> Self {
        self.mapped.push((tensor.to_owned(), None));
        self
    }

    /// Sets a member of the index's `metadata`. Unless it is set, `total_size` is there and right: the bytes
    /// of the tensors that the index lists, in the shards that it names.
    pub fn index_metadata(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.index_metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Writes the index under another name.
    pub fn index_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.index_name);
        self
    }

    /// Writes this as the index.
    pub fn index_text(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.index = Index::Raw(text.into());
        self
    }

    /// Writes no index.
    pub fn without_index(mut self) -> Self {
        self.index = Index::Absent;
        self
    }

    /// The index as it is written; `None` without one.
    pub fn index(&self) -> Option<Vec<u8>> {
        match &self.index {
            Index::FromShards => Some(format!("{:#}\n", self.index_json()).into_bytes()),
            Index::Raw(text) => Some(text.clone()),
            Index::Absent => None,
        }
    }

    /// The shards that are written, each with its name.
    pub fn shards(&self) -> impl Iterator<Item = (&str, &ShardBuilder)> {
        let present = |(name, _): &&(String, ShardBuilder)| !self.omitted.contains(name);
        self.shards.iter().filter(present).map(|(name, shard)| (name.as_str(), shard))
    }

    /// The other files that are written, the index among them and last.
    pub fn files(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let index = self.index().map(|text| (self.index_name.as_str(), text));
        self.files.iter().map(|(name, content)| (name.as_str(), content.clone())).chain(index)
    }

    /// The paths that the checkpoint has in `dir`.
    pub fn paths(&self, dir: impl AsRef<Path>) -> Written {
        let dir = dir.as_ref();
        Written {
            dir: dir.to_owned(),
            index: (!matches!(self.index, Index::Absent)).then(|| dir.join(&self.index_name)),
            shards: self.shards().map(|(name, _)| dir.join(name)).collect(),
        }
    }

    /// Writes the checkpoint into `dir`, which is made if need be.
    ///
    /// # Errors
    /// When a directory or file cannot be created or written.
    pub fn write(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        let dir = dir.as_ref();
        for (name, shard) in self.shards() {
            shard.write(with_parent(dir, name)?)?;
        }
        for (name, content) in self.files() {
            std::fs::write(with_parent(dir, name)?, content)?;
        }
        Ok(self.paths(dir))
    }

    /// Writes the checkpoint into a directory of its own, which goes when the answer is dropped.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn temp(&self) -> TempModel {
        let model = TempModel::empty();
        self.write(model.path()).expect("a checkpoint can be written to the temporary directory");
        model
    }

    fn index_json(&self) -> Value {
        let mut weight_map = BTreeMap::new();
        let mut bytes_of = HashMap::new();
        for (shard_name, shard) in &self.shards {
            for (tensor, bytes) in shard.tensors() {
                weight_map.insert(tensor, shard_name);
                bytes_of.insert((tensor, shard_name), bytes);
            }
        }
        for (tensor, shard) in &self.mapped {
            match shard {
                Some(shard) => weight_map.insert(tensor, shard),
                None => weight_map.remove(tensor.as_str()),
            };
        }
        let total_size: u64 =
            weight_map.iter().filter_map(|(&tensor, &shard)| bytes_of.get(&(tensor, shard))).sum();
        let mut metadata = Map::from_iter([("total_size".to_owned(), json!(total_size))]);
        metadata.extend(self.index_metadata.clone());
        json!({ "metadata": metadata, "weight_map": weight_map })
    }
}

fn with_parent(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "model-00001-of-00002.safetensors";
    const SECOND: &str = "model-00002-of-00002.safetensors";

    fn two_shards() -> Checkpoint {
        Checkpoint::new()
            .shard(FIRST, ShardBuilder::new().pattern("a", "F32", &[2]).pattern("b", "F32", &[1]))
            .shard(SECOND, ShardBuilder::new().pattern("c", "F16", &[3]))
    }

    fn index_of(model: &TempModel) -> Value {
        serde_json::from_slice(&std::fs::read(model.file("model.safetensors.index.json")).unwrap()).unwrap()
    }

    #[test]
    fn the_index_follows_from_the_shards() {
        let expected = json!({ "metadata": { "total_size": 18 }, "weight_map": { "a": FIRST, "b": FIRST, "c": SECOND } });
        assert_eq!(index_of(&two_shards().temp()), expected);
    }

    #[test]
    fn lines_of_the_index_can_be_forged() {
        let model =
            two_shards().map("a", SECOND).map("x", "../x").unmap("b").index_metadata("total_size", "many");
        let expected = json!({
            "metadata": { "total_size": "many" },
            "weight_map": { "a": SECOND, "c": SECOND, "x": "../x" },
        });
        assert_eq!(index_of(&model.temp()), expected);
    }

    #[test]
    fn the_total_size_counts_a_tensor_once_in_the_shard_that_the_index_names() {
        let overlaid = two_shards().shard("new.safetensors", ShardBuilder::new().zeros("a", "F64", &[4]));
        assert_eq!(index_of(&overlaid.temp())["metadata"]["total_size"], 32 + 4 + 6);
        assert_eq!(index_of(&overlaid.clone().map("a", FIRST).temp())["metadata"]["total_size"], 18);
        assert_eq!(index_of(&overlaid.unmap("b").temp())["metadata"]["total_size"], 32 + 6);
    }

    #[test]
    fn the_whole_index_can_be_forged_renamed_and_left_out() {
        let model = two_shards().index_text("<<<<<<< HEAD").index_name("other.json").temp();
        assert_eq!(std::fs::read(model.file("other.json")).unwrap(), b"<<<<<<< HEAD");
        let written = two_shards().without_index().write(model.file("bare")).unwrap();
        assert_eq!(written.index, None);
        assert_eq!(std::fs::read_dir(&written.dir).unwrap().count(), 2);
    }

    #[test]
    fn an_omitted_shard_stays_in_the_index() {
        let checkpoint = two_shards().omit_shard(SECOND);
        let model = checkpoint.temp();
        assert!(!model.file(SECOND).exists());
        assert_eq!(index_of(&model)["weight_map"]["c"], SECOND);
        assert_eq!(checkpoint.paths(model.path()).shards, [model.file(FIRST)]);
    }

    #[test]
    fn shards_and_files_can_lie_in_subfolders() {
        let shard = ShardBuilder::new().zeros("a", "U8", &[1]);
        let model =
            Checkpoint::new().shard("text/model.safetensors", shard).file("x/config.json", "{}").temp();
        assert!(model.file("text/model.safetensors").is_file());
        assert_eq!(std::fs::read(model.file("x/config.json")).unwrap(), b"{}");
    }
}
