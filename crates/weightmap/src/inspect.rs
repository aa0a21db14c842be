//! Bytes that are looked at while they are loaded: every chunk of a tensor of which something is wanted.

mod verify;

pub(crate) use verify::{differs, known, verify_header};

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::digests::{CHUNK_BYTES, Digests, Value, chunk, chunks_of};
use crate::error::{Error, Result};
use crate::extent::{Portion, length};
use crate::file::read_exact_at;
use crate::header::HeaderEntry;
use crate::memory::memory_len;
use crate::read::Fill;
use crate::shard::Shard;
use verify::Verify;

/// Something that looks at bytes before they are handed out, by several workers at once.
pub(crate) trait Inspect: Send + Sync {
    /// Something of these tensors of a shard is about to be read.
    fn begin(&self, shard: &Shard, tensors: &[&str]) -> Result<()>;

    /// A chunk, whole. It may come more than once.
    fn chunk(&self, chunk: &Chunk<'_>, bytes: &[u8]) -> Result<()>;
}

/// A chunk of a tensor.
pub(crate) struct Chunk<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) tensor: HeaderEntry<'a>,
    pub(crate) number: u64,
}

impl Chunk<'_> {
    /// Its bytes in the file.
    pub(crate) fn range(&self) -> Range<u64> {
        in_file(&self.tensor, self.number)
    }

    pub(crate) fn tensor_bytes(&self) -> u64 {
        length(&self.tensor.range)
    }
}

/// The bytes of a chunk of a tensor in the file of its shard.
pub(crate) fn chunk_in(shard: &Shard, tensor: &str, number: u64) -> Range<u64> {
    shard.whole(tensor).map_or(0..0, |tensor| in_file(&tensor, number))
}

fn in_file(tensor: &HeaderEntry<'_>, number: u64) -> Range<u64> {
    let Range { start, end } = chunk(number, length(&tensor.range));
    tensor.range.start + start..tensor.range.start + end
}

/// All that looks at the bytes of a load.
#[derive(Clone, Default)]
pub(crate) struct Inspection {
    all: Vec<Arc<dyn Inspect>>,
    /// What the digests are known by that bytes are compared with.
    verified: Vec<Value>,
}

/// Memory for chunks of which not all is wanted.
pub(crate) type Scratch = Vec<u8>;

impl Inspection {
    pub(crate) fn add(&mut self, inspect: Arc<dyn Inspect>) {
        self.all.push(inspect);
    }

    /// Compares bytes with their digests.
    pub(crate) fn verify(&mut self, digests: Arc<Digests>) {
        self.verified.push(digests.digest());
        self.add(Arc::new(Verify(digests)));
    }

    /// What the digests are known by that bytes are compared with.
    pub(crate) fn verified(&self) -> impl Iterator<Item = &Value> {
        self.verified.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Something of these tensors of a shard is about to be read.
    pub(crate) fn begin(&self, shard: &Shard, tensors: &[&str]) -> Result<()> {
        self.all.iter().try_for_each(|inspect| inspect.begin(shard, tensors))
    }

    /// Looks at the chunks that a range of a tensor shares bytes with; tells how many bytes they have, and how many of
    /// them were read for it. Of a chunk that is not all in the `hand`, the rest is read, and what is there laid over it:
    /// what is looked at is what is handed out.
    pub(crate) fn look<H>(
        &self,
        (shard, file, tensor): (&Shard, &File, &str),
        source: &Range<u64>,
        scratch: &mut Scratch,
        hand: &mut H,
    ) -> Result<Looked>
    where
        H: Hand + ?Sized,
    {
        let mut looked = Looked::default();
        let Some(entry) = shard.whole(tensor).filter(|_| !self.is_empty()) else { return Ok(looked) };
        let start = entry.range.start;
        let span =
            source.start.saturating_sub(start)..source.end.saturating_sub(start).min(length(&entry.range));
        for number in chunks_of(&span) {
            let chunk = Chunk { shard, tensor: entry.clone(), number };
            let range = chunk.range();
            looked.bytes += length(&range);
            let bytes = match hand.whole(&range) {
                Some(bytes) => bytes,
                None => {
                    looked.read_bytes += length(&range);
                    let bytes = read(shard, file, tensor, &range, scratch)?;
                    hand.lay_over(&range, bytes);
                    bytes
                }
            };
            self.all.iter().try_for_each(|inspect| inspect.chunk(&chunk, bytes))?;
        }
        Ok(looked)
    }
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    /// Bytes of the chunks.
    pub(crate) bytes: u64,
    /// Those that were read once more, as not all of a chunk was at hand.
    pub(crate) read_bytes: u64,
}

/// Bytes that were read and are about to be handed out.
pub(crate) trait Hand {
    /// Those of a range of the file, if all are there.
    fn whole(&mut self, range: &Range<u64>) -> Option<&[u8]>;

    /// Puts those that are there in the place of bytes that were read of a range of the file.
    fn lay_over(&mut self, range: &Range<u64>, bytes: &mut [u8]);
}

/// Nothing is at hand but what is in the page cache, where a read finds it.
pub(crate) struct InCache;

impl Hand for InCache {
    fn whole(&mut self, _: &Range<u64>) -> Option<&[u8]> {
        None
    }

    fn lay_over(&mut self, _: &Range<u64>, _: &mut [u8]) {}
}

impl Hand for Fill<'_> {
    fn whole(&mut self, range: &Range<u64>) -> Option<&[u8]> {
        let Portion { source, is_dense, .. } = self.portion;
        let is_inside = *is_dense && source.start <= range.start && range.end <= source.end;
        is_inside.then(|| &*self.target_of(range))
    }

    fn lay_over(&mut self, range: &Range<u64>, bytes: &mut [u8]) {
        self.gather(range.start, bytes);
    }
}

fn read<'s>(
    shard: &Shard,
    file: &File,
    tensor: &str,
    range: &Range<u64>,
    scratch: &'s mut Scratch,
) -> Result<&'s mut [u8]> {
    let failed = |error| {
        let action = format!("read bytes {}..{} to look at all of a chunk", range.start, range.end);
        Error::io(&shard.path, action, error).about(tensor)
    };
    let most = memory_len(CHUNK_BYTES);
    if scratch.len() < most {
        scratch.try_reserve_exact(most - scratch.len()).map_err(|error| failed(error.into()))?;
        scratch.resize(most, 0);
    }
    let bytes = scratch.get_mut(..memory_len(length(range))).unwrap_or_default();
    read_exact_at(file, bytes, range.start).map_err(failed)?;
    Ok(bytes)
}
