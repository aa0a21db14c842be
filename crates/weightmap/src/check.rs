//! A whole checkpoint compared with itself: index against headers, headers against files.

use std::path::Path;

use crate::error::{Error, Result, quote};
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
    /// What makes a load of the whole checkpoint fail, or give wrong weights: each fault by itself.
    pub faults: Vec<Error>,
    /// What is accepted, and somebody should know of.
    pub warnings: Vec<Warning>,
    /// How many shards were opened and found right.
    pub shards: usize,
    /// How many tensors the index lists.
    pub tensors: usize,
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
    let path = path.as_ref();
    std::fs::metadata(path).map_err(|error| Error::io(path, "open", error))?;
    match options.clone().allow_missing(true).open(path) {
        Ok(model) => model.check(),
        Err(error) if error.is_of_the_process() => Err(error),
        Err(error) => Ok(Check { faults: error.into_each(), ..Check::default() }),
    }
}

impl ShardedModel {
    fn check(&self) -> Result<Check> {
        let numbers: Vec<_> = (0..u32::try_from(self.shards().len()).unwrap_or(u32::MAX)).collect();
        let workers = most_workers(available_cores());
        let parts = each(&numbers, workers, |&shard| Ok(self.check_shard(shard)))?;

        // Each missing shard is a fault below.
        let warnings =
            self.warnings().iter().filter(|warning| warning.kind != "MissingShards").cloned().collect();
        let mut whole = Check { warnings, tensors: self.len(), ..Check::default() };
        whole.faults.extend(self.pool().incomplete.clone());
        let mut listed_bytes = Some(0);
        for part in parts {
            whole.faults.extend(part.faults);
            whole.warnings.extend(part.warnings);
            whole.shards += usize::from(part.sound);
            listed_bytes =
                listed_bytes.zip(part.listed_bytes).and_then(|(sum, bytes)| u64::checked_add(sum, bytes));
        }
        whole.warnings.extend(listed_bytes.and_then(|bytes| self.check_total_size(bytes)));
        Ok(whole)
    }

    fn check_shard(&self, number: u32) -> Part {
        let pool = self.pool();
        let shard = match pool.check_present(number).and_then(|()| pool.shard(number)) {
            Ok(shard) => shard,
            Err(error) => return Part { faults: error.into_each(), ..Part::default() },
        };
        let header = shard.header();
        let mut part = Part { sound: true, listed_bytes: Some(0), ..Part::default() };
        for tensor in pool.index.tensors_of(number) {
            match pool.info_in(&shard, tensor) {
                Ok(info) => {
                    part.listed_bytes = part.listed_bytes.and_then(|sum| sum.checked_add(info.len_bytes()));
                }
                Err(error) => {
                    part.faults.push(error);
                    part.listed_bytes = None;
                }
            }
        }
        part.warnings.extend(header.warnings().iter().map(|warning| warning.clone().file(&shard.path)));
        // What makes whole tensors of pieces has looked at each.
        if pool.pieces.is_empty() {
            part.warnings.extend(self.unlisted(&shard));
        }
        // Headers of many shards are kept, mappings need not be.
        pool.release(number);
        part
    }

    /// Warns of the tensors of a shard that the index does not place in it.
    fn unlisted(&self, shard: &Shard) -> Vec<Warning> {
        let index = self.index();
        let warn = |entry: HeaderEntry<'_>| {
            let listed = index.find(entry.name).and_then(|tensor| index.shard_of(tensor));
            let elsewhere = match listed {
                Some(number) if number == shard.number => return None,
                Some(number) => index.shards().get(number as usize),
                None => None,
            };
            let message = match elsewhere {
                Some(other) => {
                    format!(
                        "the index places this tensor in {}; the copy here is never loaded",
                        quote(other.as_str())
                    )
                }
                None => "the index does not list this tensor; it is never loaded".to_owned(),
            };
            Some(Warning::new("UnlistedTensor", message).file(&shard.path).tensor(entry.name))
        };
        shard.header().iter().filter_map(warn).collect()
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

/// What was found of one shard.
#[derive(Default)]
struct Part {
    faults: Vec<Error>,
    warnings: Vec<Warning>,
    sound: bool,
    /// Bytes of the tensors that the index places here; `None` if one of them is not known.
    listed_bytes: Option<u64>,
}
