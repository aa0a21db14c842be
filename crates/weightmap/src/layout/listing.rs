//! The names in a directory, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::candidate::Candidate;
use crate::error::{Error, Kept, MissingShard, Result, quote_all};
use crate::index::Index;
use crate::shard_name::ShardName;

/// The file in which PyTorch's distributed checkpoints tell what is in their other files.
const DCP_METADATA: &str = ".metadata";

/// The names of all that is in a directory, sorted; those that are not UTF-8 are left out, as no index can
/// name them.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) directory: PathBuf,
    names: BTreeSet<String>,
}

impl Listing {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let refused = |error| Error::io(directory, "list the directory", error);
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(directory).map_err(refused)? {
            names.extend(entry.map_err(refused)?.file_name().into_string());
        }
        Ok(Self { directory: directory.to_owned(), names })
    }

    /// Reads a directory that need not be there; no directory is the same as an empty one.
    fn read_if_there(directory: &Path) -> Result<Self> {
        match Self::read(directory) {
            Err(Error::Io { error, .. })
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
                ) =>
            {
                Ok(Self { directory: directory.to_owned(), names: BTreeSet::new() })
            }
            other => other,
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Which shards are not there. The folders that they are in are listed too, each once.
    pub(super) fn lacks(&self, shards: &[ShardName]) -> Result<Vec<bool>> {
        let mut known = BTreeMap::new();
        let lacks = |shard: &ShardName| match shard.as_str().rsplit_once('/') {
            Some((folder, file)) => {
                Ok(!self.folder(folder, &mut known)?.is_some_and(|listing| listing.has(file)))
            }
            None => Ok(!self.has(shard.as_str())),
        };
        shards.iter().map(lacks).collect()
    }

    /// The listing of a folder, if it is there. It is looked for in that of the folder above it, so that very many that are
    /// not there cost no call of the system.
    fn folder(&self, path: &str, known: &mut BTreeMap<String, Rc<Self>>) -> Result<Option<Rc<Self>>> {
        let mut above: Option<Rc<Self>> = None;
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for path in ends.filter_map(|end| path.get(..end)) {
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            if !above.as_deref().unwrap_or(self).has(name) {
                return Ok(None);
            }
            let listing = match known.get(path) {
                Some(listing) => Rc::clone(listing),
                None => Rc::new(Self::read_if_there(&self.directory.join(path))?),
            };
            known.entry(path.to_owned()).or_insert_with(|| Rc::clone(&listing));
            above = Some(listing);
        }
        Ok(above)
    }

    /// The error for shards of an index that are not there.
    pub(super) fn missing_shards(&self, path: &Path, index: &Index, lacks: &[bool]) -> Error {
        let mut missing = Kept::default();
        for ((number, shard), _) in (0..).zip(index.shards()).zip(lacks).filter(|(_, lacks)| **lacks) {
            // No more than a message shows, since each takes a walk over all names.
            let similar = if missing.count() < 10 { self.similar(shard.as_str()) } else { None };
            missing.push_with(|| MissingShard {
                name: shard.as_str().to_owned(),
                tensors: index.tensors_of(number).len(),
                similar,
            });
        }
        Error::MissingShards {
            path: path.to_owned(),
            count: missing.count(),
            missing: missing.first,
            shards: index.shards().len(),
            hint: self.others().map_or_else(String::new, |others| format!(" Here are {others}")),
        }
    }

    /// The name that differs from this one only by case, accents or the Unicode form of them.
    fn similar(&self, name: &str) -> Option<String> {
        let folded = fold(name);
        self.names().find(|other| fold(other) == folded).map(str::to_owned)
    }

    /// What else is there, for a directory in which no model was found.
    pub(super) fn description(&self) -> String {
        if self.names.is_empty() {
            return "the directory is empty".to_owned();
        }
        let folders = self.folders_with_models();
        let folders = (!folders.is_empty()).then(|| format!("folders with models ({})", quote_all(&folders)));
        let found: Vec<_> = folders.into_iter().chain(self.others()).collect();
        if found.is_empty() {
            format!(
                "there are other files only ({})",
                quote_all(&self.names().map(str::to_owned).collect::<Vec<_>>())
            )
        } else {
            format!("there are {}", found.join(" and "))
        }
    }

    /// Weights in other formats, and what unfinished downloads left.
    fn others(&self) -> Option<String> {
        const FORMATS: [(&[&str], &str, &str); 4] = [
            (
                &[".bin", ".pt", ".pth", ".ckpt"],
                "PyTorch pickle files",
                ", which are never read since that runs the code in them: convert them to safetensors",
            ),
            (
                &[".distcp", DCP_METADATA],
                "files of PyTorch's distributed checkpoints (DCP)",
                ", another format: save it with HuggingFaceStorageWriter(save_distributed=True), or convert it to safetensors",
            ),
            (&[".gguf"], "GGUF files", ", another format"),
            (&[".incomplete", ".part", ".crdownload", ".aria2"], "unfinished downloads", ""),
        ];
        let found = FORMATS.iter().filter_map(|(suffixes, what, advice)| {
            // A longer name that ends in this one is of something else.
            let is_one = |name: &&str| {
                let suffixed = |suffix: &&str| *suffix != DCP_METADATA && name.ends_with(suffix);
                *name == DCP_METADATA && suffixes.contains(name) || suffixes.iter().any(suffixed)
            };
            let names: Vec<_> = self.names().filter(is_one).map(str::to_owned).collect();
            (!names.is_empty()).then(|| format!("{what} ({}){advice}", quote_all(&names)))
        });
        let found: Vec<_> = found.collect();
        (!found.is_empty()).then(|| found.join(" and "))
    }

    fn folders_with_models(&self) -> Vec<String> {
        let has_model = |name: &&str| {
            let listing = Self::read(&self.directory.join(name)).ok();
            listing.is_some_and(|listing| {
                listing.has("snapshots") || listing.names().any(|name| Candidate::parse(name, None).is_some())
            })
        };
        // Enough for any pipeline, and a bound for a directory of very many.
        let names = self.names().filter(|name| !name.starts_with('.')).take(1000);
        names.filter(has_model).map(str::to_owned).collect()
    }
}

/// A name without case and accents: of a letter with an accent, both Unicode forms, the one character and the
/// letter with a mark after it, are left out.
fn fold(name: &str) -> String {
    let is_mark = |c: char| ('\u{300}'..='\u{36f}').contains(&c);
    let next = name.chars().skip(1).map(Some).chain([None]);
    let plain = name.chars().zip(next).filter(|(c, next)| c.is_ascii() && !next.is_some_and(is_mark));
    plain.map(|(c, _)| c.to_ascii_lowercase()).collect()
}
