//! What the bytes of a whole checkpoint are: its digests, computed and compared.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::digests::{Digests, Parts, Value, chunk_count, value};
use crate::error::{Error, Kept, Result};
use crate::extent::length;
use crate::inspect::{Chunk, Inspect, chunk_in, differs, known, verify_header};
use crate::load::LoadOptions;
use crate::model::ShardedModel;
use crate::select::Selection;
use crate::shard::Shard;

/// What is added to the name of an index, or of a single file, for that of its digests.
const SUFFIX: &str = ".digests";

impl ShardedModel {
    /// Where the digests of this model are looked for, and written to by the program: beside its index or its only file,
    /// under the name of that with `.digests` added; `model.digests` for several files that have no index.
    pub fn digests_path(&self) -> PathBuf {
        let of = match (self.index_path(), self.shards()) {
            (Some(index), _) => index.to_owned(),
            (None, [only]) => only.path_in(self.directory()),
            (None, _) => self.directory().join("model"),
        };
        let mut path = of.into_os_string();
        path.push(SUFFIX);
        path.into()
    }

    /// The digests beside this model; `None` if there are none.
    ///
    /// # Errors
    /// Those of [`Digests::read`].
    pub fn digests(&self) -> Result<Option<Digests>> {
        match Digests::read(self.digests_path()) {
            Err(Error::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            digests => digests.map(Some),
        }
    }

    /// Reads all tensors and computes their digests, in parallel and within bounded memory.
    ///
    /// # Errors
    /// Those of [`Selection::stream`](crate::Selection::stream) and its items.
    pub fn digest(&self, options: &LoadOptions) -> Result<Digests> {
        let values = Arc::new(Values::default());
        let mut inspection = options.inspection.clone();
        inspection.add(values.clone());
        let options = LoadOptions { inspection, ..options.clone() };
        read_all(&self.select().all().allow_empty(), &options)?;
        let parts = values.take();
        Digests::of_parts(&parts).map_err(|fault| Error::Digests { path: None, fault: Box::new(fault) })
    }
}

/// Reads all that is selected, for those who look at it, and keeps nothing; where memory is too short for a tensor, only into
/// the page cache, of which they read what they look at.
pub(crate) fn read_all(selection: &Selection, options: &LoadOptions) -> Result<()> {
    match selection.stream_with(options)?.try_for_each(|tensor| tensor.map(drop)) {
        Err(Error::MemoryLimit { .. }) => selection.prefetch_with(options).map(drop),
        read => read,
    }
}

/// The values of all chunks that were loaded.
#[derive(Default)]
pub(crate) struct Values(Mutex<BTreeMap<String, OfShard>>);

/// Those of one shard.
struct OfShard {
    header: Value,
    /// By tensor, its length in bytes, and what is known of its chunks.
    tensors: BTreeMap<String, (u64, Vec<Value>)>,
}

impl Values {
    fn take(&self) -> Parts {
        let shards = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut parts = Parts::default();
        for (shard, OfShard { header, tensors }) in shards {
            parts.headers.push((shard.clone(), header));
            let tensors =
                tensors.into_iter().map(|(tensor, (len, values))| (shard.clone(), tensor, len, values));
            parts.tensors.extend(tensors);
        }
        parts
    }

    /// Compares those of a shard with digests: how many tensors these are of, and an error for each that differs, and for
    /// each that they do not know.
    pub(crate) fn compare(&self, shard: &Shard, digests: &Digests) -> (usize, Kept<Error>) {
        let shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut faults = Kept::default();
        if let Err(fault) = verify_header(digests, shard) {
            let is_unknown = matches!(fault, Error::NotDigested { .. });
            faults.push(fault);
            if is_unknown {
                // Nor do they know any of its tensors.
                return (0, faults);
            }
        }
        let mut compared = 0;
        for (tensor, (len, values)) in shards.get(shard.name.as_str()).iter().flat_map(|shard| &shard.tensors)
        {
            let expected = match known(digests, shard, tensor, *len) {
                Ok(known) => known,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let differs = |(number, found): (u64, &Value)| {
                let expected = expected.chunk(number).filter(|expected| *expected != found)?;
                let range = chunk_in(shard, tensor, number);
                Some(differs(shard, Some(tensor), range, expected, found))
            };
            (0..).zip(values).find_map(differs).into_iter().for_each(|fault| faults.push(fault));
            compared += 1;
        }
        (compared, faults)
    }
}

impl Inspect for Values {
    fn begin(&self, shard: &Shard, tensors: &[&str]) -> Result<()> {
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_shard = shards
            .entry(shard.name.as_str().to_owned())
            .or_insert_with(|| OfShard { header: shard.checked.header_digest, tensors: BTreeMap::new() });
        for tensor in tensors {
            let len = shard.whole(tensor).map_or(0, |entry| length(&entry.range));
            let count = usize::try_from(chunk_count(len)).unwrap_or(usize::MAX);
            // What has no byte is never looked at; the value of all others takes the place of this one.
            let mut values = Vec::new();
            values.try_reserve_exact(count).map_err(|error| {
                let action = format!("allocate memory for the digests of {count} chunks");
                Error::io(&shard.path, action, error.into()).about(tensor)
            })?;
            values.resize(count, value(&[], 0, 0));
            of_shard.tensors.insert((*tensor).to_owned(), (len, values));
        }
        Ok(())
    }

    fn chunk(&self, chunk: &Chunk<'_>, bytes: &[u8]) -> Result<()> {
        let value = value(bytes, chunk.number, chunk.tensor_bytes());
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tensor = shards
            .get_mut(chunk.shard.name.as_str())
            .and_then(|shard| shard.tensors.get_mut(chunk.tensor.name));
        let number = usize::try_from(chunk.number).unwrap_or(usize::MAX);
        if let Some(place) = of_tensor.and_then(|(_, values)| values.get_mut(number)) {
            *place = value;
        }
        Ok(())
    }
}
