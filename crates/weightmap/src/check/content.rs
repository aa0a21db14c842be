//! The bytes of a checkpoint, compared with what is known of them.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs};

use super::Check;
use crate::blob::Blob;
use crate::content::{Values, read_all};
use crate::digests::{Digests, key};
use crate::dtype::Dtype;
use crate::error::{DigestsError, Error, Kept, Result, count, shown};
use crate::inspect::{Chunk, Inspect, Inspection};
use crate::load::LoadOptions;
use crate::meter::Progress;
use crate::model::ShardedModel;
use crate::pool::Pool;
use crate::recipe::Source;
use crate::report::total;
use crate::scan::Scan;
use crate::select::Selection;
use crate::shard::Shard;
use crate::threads::available_cores;
use crate::warning::Warning;

/// What [`check_content`](super::check_content) compares with the bytes of a checkpoint.
#[derive(Clone, Default)]
#[must_use]
pub struct Content {
    digests: Option<Arc<Digests>>,
    scans: bool,
    progress: Option<Progress>,
}

impl Content {
    /// Compares with these digests, and not with those beside the model.
    pub fn digests(mut self, digests: impl Into<Arc<Digests>>) -> Self {
        self.digests = Some(digests.into());
        self
    }

    /// Looks at the values too, and warns of tensors that are nothing but zeros, or have elements that are infinite or
    /// no numbers.
    pub fn scan(mut self, scans: bool) -> Self {
        self.scans = scans;
        self
    }

    /// Called by the workers with the bytes that were looked at, and those that will be in all. Calls of several workers
    /// can overlap, and then come in any order.
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digests, scans, progress: _ } = self;
        f.debug_struct("Content").field("digests", digests).field("scans", scans).finish_non_exhaustive()
    }
}

impl Content {
    pub(super) fn check(&self, model: &ShardedModel, found: &mut Check) -> Result<()> {
        let digests = match &self.digests {
            Some(digests) => Some(Arc::clone(digests)),
            None => model.digests()?.map(Arc::new),
        };
        let by_shard = if digests.is_some() || self.scans { sound(model)? } else { BTreeMap::new() };
        let blobs = blobs(model)?;
        let blob_bytes = total(blobs.iter().filter_map(|blob| Some(fs::metadata(blob.path()).ok()?.len())));
        let all_bytes = blob_bytes.saturating_add(total(by_shard.values().map(|(_, bytes)| *bytes)));
        let tell = |done| self.progress.iter().for_each(|progress| progress(done, all_bytes));
        let mut faults = Blob::verify_all(&blobs, available_cores(), |done, _| tell(done));
        if let Some(place) = faults.iter().position(Error::is_of_the_process) {
            return Err(faults.swap_remove(place));
        }
        let unread = faults.iter().filter(|fault| !matches!(fault, Error::BlobDiffers { .. })).count();
        found.compared_files += blobs.len() - unread;
        found.add(faults.into(), Kept::default());
        self.look(model, by_shard, (blob_bytes, all_bytes), digests.as_deref(), found)?;
        // Digests of another checkpoint are told by its shards already.
        if let Some(digests) = digests.as_deref().filter(|_| found.compared_tensors > 0) {
            found.add(not_there(model, digests), Kept::default());
        }
        if digests.is_none() && blobs.is_empty() {
            found.add(Kept::default(), vec![nothing_known(model)].into());
        } else if digests.is_none() {
            found.add(Kept::default(), unnamed(model, &blobs));
        }
        Ok(())
    }

    /// Reads all that can be had, one shard after the other.
    fn look(
        &self,
        model: &ShardedModel,
        by_shard: BTreeMap<u32, (Vec<Source>, u64)>,
        (mut done_bytes, all_bytes): (u64, u64),
        digests: Option<&Digests>,
        found: &mut Check,
    ) -> Result<()> {
        for (number, (sources, bytes)) in by_shard {
            let progress = self.progress.clone();
            let progress = move |done: u64, _: u64| {
                progress.iter().for_each(|tell| tell(done_bytes.saturating_add(done), all_bytes));
            };
            match self.look_at(model.pool(), number, sources, digests, progress) {
                Ok((compared, faults, warnings)) => {
                    found.compared_tensors += compared;
                    found.add(faults, warnings);
                }
                Err(error) if error.is_of_the_process() => return Err(error),
                Err(error) => found.add(vec![error].into(), Kept::default()),
            }
            done_bytes = done_bytes.saturating_add(bytes);
            model.pool().release(number);
        }
        Ok(())
    }

    /// Reads what is wanted of a shard: how many tensors were compared, what differs, and what is odd.
    fn look_at(
        &self,
        pool: &Arc<Pool>,
        number: u32,
        sources: Vec<Source>,
        digests: Option<&Digests>,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> Result<(usize, Kept<Error>, Kept<Warning>)> {
        let (values, scans) = (Arc::new(Values::default()), Arc::new(Scans::default()));
        let mut inspection = Inspection::default();
        if digests.is_some() {
            inspection.add(values.clone());
        }
        if self.scans {
            inspection.add(scans.clone());
        }
        let options = LoadOptions { inspection, ..LoadOptions::default() }.progress(progress);
        let selection = Selection::new(Arc::clone(pool)).allow_empty().sources(sources);
        read_all(&selection, &options)?;
        let shard = pool.shard(number)?;
        let (compared, faults) =
            digests.map_or((0, Kept::default()), |digests| values.compare(&shard, digests));
        Ok((compared, faults, scans.warnings(&shard)))
    }
}

/// A fault for each tensor that the digests are of, and that the index does not list where it was.
fn not_there(model: &ShardedModel, digests: &Digests) -> Kept<Error> {
    let pool = model.pool();
    let mut there = HashSet::new();
    for (tensor, name) in (0..).zip(model.names()) {
        let shards: Vec<_> = match pool.pieces(tensor) {
            Some(pieces) => pieces.pieces.iter().map(|piece| piece.shard).collect(),
            None => model.index().shard_of(tensor).into_iter().collect(),
        };
        let shards = shards.into_iter().filter_map(|number| model.shards().get(number as usize));
        there.extend(shards.map(|shard| key(shard.as_str(), name)));
    }
    let mut faults = Kept::default();
    for key in digests.keys().filter(|key| !there.contains(*key)) {
        faults.push_with(|| Error::Digests {
            path: digests.path().map(ToOwned::to_owned),
            fault: Box::new(DigestsError::NotThere { key: key.to_owned() }),
        });
    }
    faults
}

/// The index, and the shards that can be opened; of the others the faults are told.
fn files(model: &ShardedModel) -> impl Iterator<Item = PathBuf> {
    let shards = (0..).zip(model.shards()).filter(|(number, _)| model.pool().shard(*number).is_ok());
    let shards = shards.map(|(_, shard)| shard.path_in(model.directory()));
    model.index_path().map(ToOwned::to_owned).into_iter().chain(shards)
}

/// The files of a model that are blobs of the hub's cache, each once.
fn blobs(model: &ShardedModel) -> Result<Vec<Blob>> {
    let mut seen = HashSet::new();
    let blobs = files(model).filter_map(|path| Blob::of(path).transpose());
    blobs.filter(|blob| blob.as_ref().map_or(true, |blob| seen.insert(blob.file().to_owned()))).collect()
}

/// What can be had of each shard, and its bytes. What cannot be had is a fault of the structure, which has been told.
///
/// # Errors
/// What the process lacks, for which nothing can be said of the checkpoint.
fn sound(model: &ShardedModel) -> Result<BTreeMap<u32, (Vec<Source>, u64)>> {
    let pool = model.pool();
    let mut by_shard = BTreeMap::<u32, (Vec<Source>, u64)>::new();
    for source in model.select().all().recipes().filter_map(Result::ok).flat_map(|recipe| recipe.sources) {
        let info = pool.shard(source.shard).and_then(|shard| source.info_in(pool, &shard));
        match info {
            Ok(info) => {
                let (sources, bytes) = by_shard.entry(source.shard).or_default();
                *bytes = bytes.saturating_add(info.len_bytes());
                sources.push(source);
            }
            Err(error) if error.is_of_the_process() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(by_shard)
}

fn nothing_known(model: &ShardedModel) -> Warning {
    let message = format!(
        "nothing says what its bytes should be: there are no digests at {}, and its files are no blobs of the hub's cache",
        shown(&model.digests_path())
    );
    Warning::new("NothingKnown", message).file(model.directory())
}

/// A warning for each file that is no blob, where others are.
fn unnamed(model: &ShardedModel, blobs: &[Blob]) -> Kept<Warning> {
    let named: HashSet<_> = blobs.iter().map(Blob::path).collect();
    let mut warnings = Kept::default();
    for path in files(model)
        .filter(|path| !named.contains(path.as_path()) && Blob::of(path).is_ok_and(|blob| blob.is_none()))
    {
        let message =
            "nothing says what its bytes should be: it is no blob of the hub's cache, as other files are";
        warnings.push(Warning::new("NothingKnown", message).file(&path));
    }
    warnings
}

/// What is odd about the values of tensors, all of one shard.
#[derive(Default)]
struct Scans(Mutex<BTreeMap<String, OfTensor>>);

#[derive(Default)]
struct OfTensor {
    scan: Scan,
    /// By number, the chunks that have been looked at: one can come twice.
    seen: Vec<bool>,
}

impl Inspect for Scans {
    fn begin(&self, _: &Shard, _: &[&str]) -> Result<()> {
        Ok(())
    }

    fn chunk(&self, chunk: &Chunk<'_>, bytes: &[u8]) -> Result<()> {
        let scan = Scan::of(chunk.tensor.dtype, bytes);
        let mut tensors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tensor = tensors.entry(chunk.tensor.name.to_owned()).or_default();
        let number = usize::try_from(chunk.number).unwrap_or(usize::MAX);
        if of_tensor.seen.len() <= number {
            of_tensor.seen.resize(number.saturating_add(1), false);
        }
        if of_tensor.seen.get_mut(number).is_some_and(|seen| !std::mem::replace(seen, true)) {
            of_tensor.scan += scan;
        }
        Ok(())
    }
}

impl Scans {
    fn warnings(&self, shard: &Shard) -> Kept<Warning> {
        let tensors = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let warn = |(name, OfTensor { scan, .. }): (String, OfTensor)| {
            let dtype = shard.whole(&name).map_or(&Dtype::U8, |entry| entry.dtype);
            Some(odd(&scan, dtype)?.file(&shard.path).tensor(&name))
        };
        let mut warnings = Kept::default();
        tensors.into_iter().filter_map(warn).for_each(|warning| warnings.push(warning));
        warnings
    }
}

/// What is odd about the values of a tensor, if anything is.
fn odd(scan: &Scan, dtype: &Dtype) -> Option<Warning> {
    if scan.is_zero() {
        let message =
            format!("all of its elements, {}, are zero; was it never written?", count(scan.bytes, "byte"));
        return Some(Warning::new("AllZero", message));
    }
    (scan.nan > 0 || scan.infinite > 0).then(|| {
        let (numbers, nan, infinite) = (count(scan.numbers, "number"), scan.nan, scan.infinite);
        let message = format!("of its {numbers} of type {dtype} {nan} are NaN and {infinite} are infinite");
        Warning::new("NotFinite", message)
    })
}
