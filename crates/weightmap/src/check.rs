//! A whole checkpoint compared with itself: index against headers, headers against files.

mod content;

use std::path::Path;

pub use content::Content;

use crate::error::{Error, Kept, Result, quote};
use crate::header::HeaderEntry;
use crate::model::ShardedModel;
use crate::options::OpenOptions;
use crate::shard::Shard;
use crate::threads::{available_cores, each, most_workers};
use crate::warning::Warning;

/// What [`check`] found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Check {
    /// What makes a load of the whole checkpoint fail, or give wrong weights: each fault by itself, the first thousand.
    pub faults: Vec<Error>,
    /// How many more faults there are.
    pub more_faults: usize,
    /// What is accepted, and somebody should know of; the first thousand.
    pub warnings: Vec<Warning>,
    /// How many more warnings there are.
    pub more_warnings: usize,
    /// How many shards were opened and found right.
    pub shards: usize,
    /// How many tensors the index lists.
    pub tensors: usize,
    /// How many tensors, or pieces of them, were compared with digests, of which those that differ are faults; 0 by [`check`].
    pub compared_tensors: usize,
    /// How many files were compared with the digest that names them in the hub's cache; 0 by [`check`].
    pub compared_files: usize,
}

impl Check {
    /// Whether there is no fault; there can be warnings.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Opens every shard, reads its header, and compares index, headers and files. It reads no tensor data.
///
/// # Errors
/// [`Error::Io`] when nothing is at `path`, or when the process lacks the permission, the memory or the
/// descriptors to open it: then what is to be checked cannot be seen. All that is wrong with a checkpoint is
/// a fault, and so is a shard among others that cannot be opened.
pub fn check(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Check> {
    Ok(check_structure(path.as_ref(), options)?.0)
}

/// As [`check`], and then reads all data: compares it with what is known of it, and looks at its values if that is
/// asked for.
///
/// What is known are [`Digests`](crate::Digests), given or beside the model, and for a file of the hub's cache the name of its
/// blob, which is its SHA-256 as a rule. What differs is a fault for each tensor, and for each file; where nothing is
/// known of a checkpoint at all, that is a warning.
///
/// # Errors
/// Those of [`check`], and [`Error::Digests`] where there are digests that cannot be read.
pub fn check_content(path: impl AsRef<Path>, options: &OpenOptions, content: &Content) -> Result<Check> {
    let (mut found, model) = check_structure(path.as_ref(), options)?;
    if let Some(model) = model {
        content.check(&model, &mut found)?;
    }
    Ok(found)
}

/// What was found without reading data, and the model, if it opens.
fn check_structure(path: &Path, options: &OpenOptions) -> Result<(Check, Option<ShardedModel>)> {
    std::fs::metadata(path).map_err(|error| Error::io(path, "open", error))?;
    match options.clone().allow_missing(true).open(path) {
        Ok(model) => Ok((model.check()?, Some(model))),
        Err(error) if error.is_of_the_process() => Err(error),
        Err(error) => {
            let count = error.count();
            let faults = error.into_each();
            let more_faults = count.saturating_sub(faults.len());
            Ok((Check { faults, more_faults, ..Check::default() }, None))
        }
    }
}

impl Check {
    /// Adds findings behind those that there are.
    fn add(&mut self, faults: Kept<Error>, warnings: Kept<Warning>) {
        let mut all = Kept { first: std::mem::take(&mut self.faults), more: self.more_faults };
        all.append(faults);
        (self.faults, self.more_faults) = (all.first, all.more);
        let mut all = Kept { first: std::mem::take(&mut self.warnings), more: self.more_warnings };
        all.append(warnings);
        (self.warnings, self.more_warnings) = (all.first, all.more);
    }
}

impl ShardedModel {
    fn check(&self) -> Result<Check> {
        /// Of so many shards at once, findings are kept until they are put together.
        const AT_ONCE: usize = 64;
        // Each missing shard is a fault below.
        let opening = self.warnings().iter().filter(|warning| warning.kind != "MissingShards");
        let mut whole = Part {
            warnings: opening.cloned().collect::<Vec<_>>().into(),
            listed_bytes: Some(0),
            ..Part::default()
        };
        self.pool().incomplete.iter().for_each(|error| whole.faults.push(error.clone()));
        let numbers: Vec<_> = (0..u32::try_from(self.shards().len()).unwrap_or(u32::MAX)).collect();
        let workers = most_workers(available_cores());
        for numbers in numbers.chunks(AT_ONCE) {
            let parts = each(numbers, workers, |&shard| Ok(self.check_shard(shard)))?;
            parts.into_iter().for_each(|part| whole.append(part));
        }
        let differs = whole.listed_bytes.and_then(|bytes| self.check_total_size(bytes));
        differs.into_iter().for_each(|warning| whole.warnings.push(warning));
        let Part { faults, warnings, sound, .. } = whole;
        Ok(Check {
            faults: faults.first,
            more_faults: faults.more,
            warnings: warnings.first,
            more_warnings: warnings.more,
            shards: sound,
            tensors: self.len(),
            ..Check::default()
        })
    }

    fn check_shard(&self, number: u32) -> Part {
        let pool = self.pool();
        let shard = match pool.check_present(number).and_then(|()| pool.shard(number)) {
            Ok(shard) => shard,
            Err(error) => return Part { faults: error.into_each().into(), ..Part::default() },
        };
        let header = shard.header();
        let mut part = Part { sound: 1, listed_bytes: Some(0), ..Part::default() };
        for tensor in pool.index.tensors_of(number) {
            match pool.bytes_in(&shard, tensor) {
                Some(bytes) => part.listed_bytes = part.listed_bytes.and_then(|sum| sum.checked_add(bytes)),
                None => {
                    part.faults.push_with(|| pool.not_in(&shard, tensor));
                    part.listed_bytes = None;
                }
            }
        }
        shard.warnings().for_each(|warning| part.warnings.push(warning));
        // What makes whole tensors of pieces has looked at each.
        if pool.pieces.is_empty() {
            header.iter().for_each(|entry| self.unlisted(&shard, &entry, &mut part.warnings));
        }
        // Headers of many shards are kept, mappings need not be.
        pool.release(number);
        part
    }

    /// Warns of a tensor of a shard that the index does not place in it.
    fn unlisted(&self, shard: &Shard, entry: &HeaderEntry<'_>, warnings: &mut Kept<Warning>) {
        let index = self.index();
        let listed = index.find(entry.name).and_then(|tensor| index.shard_of(tensor));
        if listed == Some(shard.number) {
            return;
        }
        warnings.push_with(|| {
            let message = match listed.and_then(|number| index.shards().get(number as usize)) {
                Some(other) => {
                    format!(
                        "the index places this tensor in {}; the copy here is never loaded",
                        quote(other.as_str())
                    )
                }
                None => "the index does not list this tensor; it is never loaded".to_owned(),
            };
            Warning::new("UnlistedTensor", message).file(&shard.path).tensor(entry.name)
        });
    }

    /// `total_size` is advisory: nothing is computed from it, but it tells of an index that is not of these
    /// shards.
    fn check_total_size(&self, listed_bytes: u64) -> Option<Warning> {
        let stated = self.index().total_size()?;
        let file = self.index_path()?;
        (stated != listed_bytes).then(|| {
            let message = format!(
                "metadata.total_size is {stated}, the listed tensors are {listed_bytes} bytes; is the index of other shards?"
            );
            Warning::new("TotalSizeDiffers", message).file(file)
        })
    }
}

/// What was found of shards.
#[derive(Default)]
struct Part {
    faults: Kept<Error>,
    warnings: Kept<Warning>,
    /// How many were opened and found right.
    sound: usize,
    /// Bytes of the tensors that the index places here; `None` if one of them is not known.
    listed_bytes: Option<u64>,
}

impl Part {
    fn append(&mut self, next: Self) {
        self.faults.append(next.faults);
        self.warnings.append(next.warnings);
        self.sound += next.sound;
        let bytes = self.listed_bytes.zip(next.listed_bytes);
        self.listed_bytes = bytes.and_then(|(sum, bytes)| u64::checked_add(sum, bytes));
    }
}
