//! Which files a path means.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod candidate;
mod hub;
mod listing;
mod ranks;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use candidate::{Candidate, Family, Part};
use listing::Listing;
use ranks::Ranks;

use crate::error::{Error, IndexError, Result, list, quote, quote_all};
use crate::file::{open_regular, room_to_read, verify_unchanged};
use crate::index::Index;
use crate::missing::Missing;
use crate::options::OpenOptions;
use crate::shard_name::{ShardName, is_one_part};
use crate::warning::Warning;

/// The files of a model.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory that the shards are in.
    pub(crate) dir: PathBuf,
    pub(crate) origin: Origin,
    /// What was passed over, and what is odd.
    pub(crate) warnings: Vec<Warning>,
}

/// Where the names of the tensors come from.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a model has one, which is taken apart at once")]
pub(crate) enum Origin {
    /// From an index file.
    Indexed {
        path: PathBuf,
        index: Index,
        /// Those that are absent, which was allowed.
        missing: Missing,
    },
    /// From the headers of these shards, which are all there are.
    Headers(Vec<ShardName>),
    /// From the headers of these shards, in which tensors lie in pieces.
    Pieces {
        shards: Vec<ShardName>,
        /// The error for those that are absent by their names, which was allowed.
        incomplete: Option<Error>,
    },
}

impl Origin {
    fn shards(&self) -> &[ShardName] {
        match self {
            Self::Indexed { index, .. } => index.shards(),
            Self::Headers(shards) | Self::Pieces { shards, .. } => shards,
        }
    }
}

/// The names of whole models, of index files as of single ones, in the order of precedence.
const STEMS: [&str; 3] = ["model", "diffusion_pytorch_model", "consolidated"];
const ADAPTER: &str = "adapter_model";

impl Layout {
    /// Finds out what a path means: a directory with a model, an index file, one safetensors file under any
    /// name, or the folder of a repository in the cache of the hub.
    ///
    /// The directory is listed once, as are the folders that an index names; no shard is opened or looked up.
    /// Paths are taken as they are given: to resolve symlinks would lead into the blobs of the hub's cache. A
    /// variant is looked for in directories; the path of a file says enough.
    pub(crate) fn resolve(path: &Path, options: &OpenOptions) -> Result<Self> {
        if let Some(variant) = &options.variant
            && !is_one_part(variant)
        {
            return Err(Error::BadVariant { path: path.to_owned(), variant: variant.clone() });
        }
        if fs::metadata(path).map_err(|error| Error::io(path, "open", error))?.is_dir() {
            return Self::of_directory(path, options);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new(".")).to_owned();
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8");
            Error::io(path, "open", source)
        })?;
        if name.ends_with(".json") {
            return Self::indexed(&Listing::read(&dir)?, name, options);
        }
        let origin = Origin::Headers(vec![ShardName::of_file(name)]);
        let mut warnings = Vec::new();
        if let Some(rank) = Candidate::parse(name, None).and_then(|file| file.rank()) {
            let message = format!("this has only what rank {rank} wrote of each tensor; open the directory");
            warnings.push(Warning::new("RankFile", message).file(path));
        }
        Ok(Self { dir, origin, warnings })
    }

    fn of_directory(path: &Path, options: &OpenOptions) -> Result<Self> {
        let listing = Listing::read(path)?;
        match hub::snapshot(&listing)? {
            Some(snapshot) => Choice::new(&Listing::read(&snapshot)?, options).make(),
            None => Choice::new(&listing, options).make(),
        }
    }

    /// The model of an index file. Where none of its shards is there it is an error, be missing ones allowed
    /// or not.
    fn indexed(listing: &Listing, name: &str, options: &OpenOptions) -> Result<Self> {
        let path = listing.directory.join(name);
        let index = read_index(&path, options.max_index_bytes)?;
        let lacks = listing.lacks(index.shards())?;
        let mut warnings: Vec<_> =
            index.warnings().iter().map(|warning| warning.clone().file(&path)).collect();
        let mut missing = Missing::default();
        if lacks.contains(&true) {
            let error = listing.missing_shards(&path, &index, &lacks);
            if !options.allow_missing || !lacks.contains(&false) {
                return Err(error);
            }
            warnings.push(Warning::new("MissingShards", error.to_string()).file(&path));
            missing = Missing::new(lacks, error);
        }
        Ok(Self {
            dir: listing.directory.clone(),
            origin: Origin::Indexed { path, index, missing },
            warnings,
        })
    }
}

/// The choice among the files of a directory.
struct Choice<'a> {
    listing: &'a Listing,
    options: &'a OpenOptions,
    /// All that by its name could be a part of a model.
    all: Vec<Candidate<'a>>,
    /// Those of the variant that was asked for.
    candidates: Vec<Candidate<'a>>,
}

impl<'a> Choice<'a> {
    fn new(listing: &'a Listing, options: &'a OpenOptions) -> Self {
        let asked = options.variant.as_deref();
        let all: Vec<_> = listing.names().filter_map(|name| Candidate::parse(name, asked)).collect();
        let candidates = all.iter().copied().filter(|candidate| candidate.variant == asked).collect();
        Self { listing, options, all, candidates }
    }

    /// Takes the first of: an index some of whose shards are there, a single file, shards that are complete
    /// by their names.
    fn make(&self) -> Result<Layout> {
        let mut stale = Vec::new();
        for index in self.indexes() {
            let file = index?.file;
            match Layout::indexed(self.listing, file, self.options) {
                Err(error) if is_stale(&error) => stale.push((file, error)),
                chosen => return Ok(self.report(chosen?, file, &stale)),
            }
        }
        let single = match (self.single_file(&STEMS), stale.first()) {
            (Some(file), _) => Some(file),
            // What is no whole model must not stand in for one whose download failed.
            (None, Some((_, error))) => return Err(error.clone()),
            (None, None) => self.single_file(&[ADAPTER]).or_else(|| self.only_file()),
        };
        let origin = match single {
            Some(file) => Origin::Headers(vec![ShardName::of_file(file)]),
            None => self.complete_set()?,
        };
        let chosen = origin.shards().first().map_or_else(String::new, ShardName::to_string);
        let layout = Layout { dir: self.listing.directory.clone(), origin, warnings: Vec::new() };
        Ok(self.report(layout, &chosen, &stale))
    }

    /// The index files in the order of precedence: the known ones, and then, if it comes to that, the only
    /// other.
    fn indexes(&self) -> impl Iterator<Item = Result<Candidate<'a>>> {
        let mut known = Vec::new();
        let mut others = Vec::new();
        for &candidate in &self.candidates {
            if let Part::Index { legacy } = candidate.part {
                match STEMS.iter().position(|stem| *stem == candidate.stem) {
                    Some(rank) => known.push((rank, legacy, candidate)),
                    None => others.push(candidate),
                }
            }
        }
        known.sort_by_key(|&(rank, legacy, _)| (rank, legacy));
        let other = match others.as_slice() {
            [] => None,
            [only] => Some(Ok(*only)),
            _ => Some(Err(self.ambiguous("index files", others.iter().map(|index| index.file)))),
        };
        known.into_iter().map(|(_, _, index)| Ok(index)).chain(other)
    }

    /// The first file with one of these names, which is a model by itself.
    fn single_file(&self, stems: &[&str]) -> Option<&'a str> {
        let of_stem =
            |stem| self.candidates.iter().find(|file| file.part == Part::Whole && file.stem == stem);
        stems.iter().copied().find_map(of_stem).map(|file| file.file)
    }

    /// The only file with weights, if it is not one shard of many.
    fn only_file(&self) -> Option<&'a str> {
        match self.weights().as_slice() {
            [only] if only.part == Part::Whole && only.variant == self.options.variant.as_deref() => {
                Some(only.file)
            }
            _ => None,
        }
    }

    /// The files with weights. Where no variant was asked for that is those of all variants: a name such as
    /// `model.embed.safetensors` may mean a variant or a part of the model, and is no reason to open the rest
    /// alone.
    fn weights(&self) -> Vec<Candidate<'a>> {
        let files = if self.options.variant.is_some() { &self.candidates } else { &self.all };
        files.iter().copied().filter(|file| !matches!(file.part, Part::Index { .. })).collect()
    }

    /// The shards that are complete by their names, for a directory that has neither index nor single file.
    fn complete_set(&self) -> Result<Origin> {
        let directory = &self.listing.directory;
        let (ranks, others): (Vec<_>, Vec<_>) =
            self.candidates.iter().copied().partition(|candidate| candidate.rank().is_some());
        let families = Family::all(&others).into_iter();
        let families =
            families.map(|family| (Origin::Headers(names(family.files())), family.check(directory)));
        let distributed = Ranks::all(&ranks).into_iter().map(|ranks| {
            (Origin::Pieces { shards: names(ranks.files()), incomplete: None }, ranks.check(directory))
        });
        let (mut complete, faulty): (Vec<_>, Vec<_>) =
            families.chain(distributed).partition(|(_, checked)| checked.is_ok());
        match (complete.len(), faulty.into_iter().next()) {
            // A rank that had nothing to write left no file.
            (0, Some((Origin::Pieces { shards, .. }, Err(error @ Error::IncompleteFamily { .. }))))
                if self.options.allow_missing =>
            {
                Ok(Origin::Pieces { shards, incomplete: Some(error) })
            }
            (0, Some((_, Err(fault)))) => Err(fault),
            (0 | 1, _) => complete.pop().map(|(set, _)| set).ok_or_else(|| self.nothing()),
            _ => {
                let firsts = complete.iter().filter_map(|(set, _)| set.shards().first());
                Err(self.ambiguous("sets of shards", firsts.map(ShardName::as_str)))
            }
        }
    }

    /// The error for a directory in which nothing can be chosen.
    fn nothing(&self) -> Error {
        let path = self.listing.directory.clone();
        if !self.candidates.is_empty() {
            return self.ambiguous("safetensors files", self.weights().iter().map(|file| file.file));
        }
        if self.all.is_empty() {
            return Error::NoModel { path, found: self.listing.description() };
        }
        let owned = |file: &Candidate<'_>| (file.file.to_owned(), file.variant.map(str::to_owned));
        Error::NoSuchVariant {
            path,
            asked: self.options.variant.clone(),
            found: self.all.iter().map(owned).collect(),
        }
    }

    fn ambiguous<'b>(&self, what: &'static str, files: impl Iterator<Item = &'b str>) -> Error {
        Error::Ambiguous {
            path: self.listing.directory.clone(),
            what,
            candidates: files.map(str::to_owned).collect(),
        }
    }

    /// Adds what a user should know of the choice: stale indexes, what else could have been chosen, an
    /// adapter.
    fn report(&self, mut layout: Layout, chosen: &str, stale: &[(&str, Error)]) -> Layout {
        let directory = &self.listing.directory;
        for (file, error) in stale {
            let reason = match error {
                Error::MissingShards { missing, count, .. } => {
                    let names = missing.iter().map(|shard| quote(&shard.name));
                    format!("none of its shards is here ({})", list(names, *count as u64))
                }
                _ => "it lists no tensor".to_owned(),
            };
            let message = format!("the index is stale: {reason}; {} is read instead", quote(chosen));
            layout.warnings.push(Warning::new("StaleIndex", message).file(&directory.join(file)));
        }
        if let Origin::Pieces { incomplete: Some(error), .. } = &layout.origin {
            layout.warnings.push(Warning::new("MissingShards", error.to_string()).file(directory));
        }
        let shards = layout.origin.shards();
        let mut seen: HashSet<&str> = shards.iter().map(ShardName::as_str).chain([chosen]).collect();
        seen.extend(stale.iter().map(|(file, _)| *file));
        let files = self.candidates.iter().map(|candidate| candidate.file);
        let passed_over: Vec<_> = files.filter(|file| !seen.contains(file)).map(str::to_owned).collect();
        if !passed_over.is_empty() {
            let message = format!("{} was chosen; passed over: {}", quote(chosen), quote_all(&passed_over));
            layout.warnings.push(Warning::new("PassedOver", message).file(directory));
        }
        if self.candidates.iter().any(|candidate| candidate.file == chosen && candidate.stem == ADAPTER) {
            let message = format!("this is an adapter of {}, not a whole model", base_model(directory));
            layout.warnings.push(Warning::new("Adapter", message).file(&directory.join(chosen)));
        }
        layout
    }
}

fn names<'a>(files: impl Iterator<Item = &'a str>) -> Vec<ShardName> {
    files.map(ShardName::of_file).collect()
}

/// Whether an error says that nothing at all of what an index names is there.
fn is_stale(error: &Error) -> bool {
    match error {
        Error::MissingShards { count, shards, .. } => count == shards,
        Error::Index { fault, .. } => **fault == IndexError::EmptyWeightMap,
        _ => false,
    }
}

fn read_index(path: &Path, limit: u64) -> Result<Index> {
    let refused = |fault| Error::Index { path: path.to_owned(), fault: Box::new(fault) };
    let too_large = |bytes| refused(IndexError::TooLarge { bytes, limit });
    let (file, identity) = open_regular(path)?;
    if identity.bytes > limit {
        return Err(too_large(identity.bytes));
    }
    let json = read_up_to(path, &file, identity.bytes, limit.saturating_add(1))?;
    // A file can grow while it is read.
    if json.len() as u64 > limit {
        return Err(too_large(json.len() as u64));
    }
    // Of an index that is written to meanwhile one can be put together that never was.
    verify_unchanged(path, &identity, &file)?;
    room_to_read(json.len()).map_err(|error| {
        Error::io(path, format!("have memory for an index of {} bytes", json.len()), error)
    })?;
    Index::parse(&json).map_err(refused)
}

/// The first bytes of a file, `limit` at most.
fn read_start(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, identity) = open_regular(path)?;
    read_up_to(path, &file, identity.bytes.min(limit), limit)
}

/// Reads what there is, `limit` bytes at most; `expected` is how many there should be.
fn read_up_to(path: &Path, file: &File, expected: u64, limit: u64) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more than is expected, so that the end is found without another allocation.
    let length = usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1);
    let reserved = content.try_reserve_exact(length).map_err(io::Error::from);
    let read = reserved.and_then(|()| file.take(limit).read_to_end(&mut content));
    read.map_err(|error| Error::io(path, "read", error))?;
    Ok(content)
}

/// What an adapter is made for, by its configuration.
fn base_model(directory: &Path) -> String {
    #[derive(serde::Deserialize)]
    struct Config {
        base_model_name_or_path: String,
    }
    let content = read_start(&directory.join("adapter_config.json"), 1 << 20).unwrap_or_default();
    let config = serde_json::from_slice::<Config>(&content);
    config.map_or_else(|_| "another model".to_owned(), |config| quote(&config.base_model_name_or_path))
}

#[cfg(test)]
mod tests;
