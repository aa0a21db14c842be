//! Bytes that have to be what their digests are of.

use std::ops::Range;
use std::sync::Arc;

use super::{Chunk, Inspect};
use crate::digests::{Digests, Known, Value, hex, value};
use crate::error::{Error, Result};
use crate::extent::length;
use crate::shard::Shard;

/// Fails for what is not as the digests say, and for what they do not know.
pub(super) struct Verify(pub(super) Arc<Digests>);

impl Inspect for Verify {
    fn begin(&self, shard: &Shard, tensors: &[&str]) -> Result<()> {
        verify_header(&self.0, shard)?;
        let bytes = |tensor: &str| shard.whole(tensor).map_or(0, |entry| length(&entry.range));
        tensors.iter().try_for_each(|tensor| known(&self.0, shard, tensor, bytes(tensor)).map(drop))
    }

    fn chunk(&self, chunk: &Chunk<'_>, bytes: &[u8]) -> Result<()> {
        let Chunk { shard, tensor, number } = chunk;
        let found = value(bytes, *number, chunk.tensor_bytes());
        let expected = self.0.chunk(shard.name.as_str(), tensor.name, *number);
        match expected {
            Some(expected) if *expected == found => Ok(()),
            Some(expected) => Err(differs(shard, Some(tensor.name), chunk.range(), expected, &found)),
            None => Err(not_digested(shard, Some(tensor.name))),
        }
    }
}

/// Fails if the header of a shard is not as the digests say.
pub(crate) fn verify_header(digests: &Digests, shard: &Shard) -> Result<()> {
    let expected = digests.header_of(shard.name.as_str()).ok_or_else(|| not_digested(shard, None))?;
    match shard.checked.header_digest {
        found if found == expected => Ok(()),
        found => Err(differs(shard, None, 0..shard.header().data_start(), &expected, &found)),
    }
}

/// What the digests know of a tensor of so many bytes.
pub(crate) fn known<'a>(digests: &'a Digests, shard: &Shard, tensor: &str, bytes: u64) -> Result<Known<'a>> {
    let known = digests.known(shard.name.as_str(), tensor, bytes).map_err(|fault| Error::Digests {
        path: digests.path().map(ToOwned::to_owned),
        fault: Box::new(fault),
    })?;
    known.ok_or_else(|| not_digested(shard, Some(tensor)))
}

fn not_digested(shard: &Shard, tensor: Option<&str>) -> Error {
    Error::NotDigested { path: shard.path.clone(), tensor: tensor.map(str::to_owned) }
}

/// The error for bytes of a file that have another value.
pub(crate) fn differs(
    shard: &Shard,
    tensor: Option<&str>,
    range: Range<u64>,
    expected: &Value,
    found: &Value,
) -> Error {
    Error::ContentDiffers {
        path: shard.path.clone(),
        tensor: tensor.map(str::to_owned),
        range,
        expected: hex(expected),
        found: hex(found),
    }
}
