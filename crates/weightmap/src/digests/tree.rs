//! The hash of a tensor as a tree over its chunks.
//!
//! BLAKE3 is a tree of hashes over pieces of 1 KiB. A chunk of 1024 of these, at a multiple of its length, is a whole
//! subtree, whose value can be computed by itself and joined with others to the digest of all the bytes. So a
//! chunk can be verified by itself, and the digest of a tensor is what `b3sum` says of its bytes.

use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

/// The bytes of a chunk, but for the last one of a tensor: few, so that little more than a slice is read to verify
/// it, and enough for their values to be a thirty-thousandth of the data.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

/// What is known of a chunk or of a tensor.
pub(crate) type Value = [u8; 32];

/// How many chunks a tensor of `len` bytes has; an empty one has one, of no bytes.
pub(crate) fn chunk_count(len: u64) -> u64 {
    len.div_ceil(CHUNK_BYTES).max(1)
}

/// The bytes of a tensor of `len` bytes that are in the chunk with this number.
pub(crate) fn chunk(number: u64, len: u64) -> Range<u64> {
    let start = number.saturating_mul(CHUNK_BYTES).min(len);
    start..start.saturating_add(CHUNK_BYTES).min(len)
}

/// The numbers of the chunks that a range of a tensor shares bytes with.
pub(crate) fn chunks_of(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

/// The value of a chunk of a tensor of `len` bytes: the digest of the bytes where it is all of the tensor, and of the
/// subtree otherwise.
pub(crate) fn value(bytes: &[u8], number: u64, len: u64) -> Value {
    if len <= CHUNK_BYTES {
        return digest(bytes);
    }
    let mut hasher = Hasher::new();
    hasher.set_input_offset(number.saturating_mul(CHUNK_BYTES)).update(bytes).finalize_non_root()
}

/// The digest of some bytes by themselves.
pub(crate) fn digest(bytes: &[u8]) -> Value {
    *blake3::hash(bytes).as_bytes()
}

/// A value in hexadecimal digits.
pub(crate) fn hex(value: &Value) -> String {
    blake3::Hash::from_bytes(*value).to_hex().to_string()
}

/// The digest of bytes that follow each other.
pub(crate) fn digest_of<const N: usize>(parts: [&[u8]; N]) -> Value {
    let mut hasher = Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The digest of a tensor of `len` bytes, by the values of its chunks, of which there are as many as it has.
pub(crate) fn join(values: &[Value], len: u64) -> Value {
    match halves(values, len) {
        None => values.first().copied().unwrap_or_default(),
        Some([(left, left_len), (right, right_len)]) => {
            let (left, right) = (subtree(left, left_len), subtree(right, right_len));
            *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
        }
    }
}

/// The value of several neighbouring chunks.
fn subtree(values: &[Value], len: u64) -> Value {
    match halves(values, len) {
        None => values.first().copied().unwrap_or_default(),
        Some([(left, left_len), (right, right_len)]) => {
            merge_subtrees_non_root(&subtree(left, left_len), &subtree(right, right_len), Mode::Hash)
        }
    }
}

/// Both sides of a tree, with the bytes that each has; `None` for one chunk.
fn halves(values: &[Value], len: u64) -> Option<[(&[Value], u64); 2]> {
    if len <= CHUNK_BYTES {
        return None;
    }
    let left_len = left_subtree_len(len);
    let (left, right) = values.split_at_checked(usize::try_from(left_len / CHUNK_BYTES).ok()?)?;
    Some([(left, left_len), (right, len - left_len)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 1 << 20;

    fn values(bytes: &[u8]) -> Vec<Value> {
        let len = bytes.len() as u64;
        let value = |number| {
            let Range { start, end } = chunk(number, len);
            value(&bytes[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()], number, len)
        };
        (0..chunk_count(len)).map(value).collect()
    }

    #[test]
    fn the_digest_of_a_tensor_is_that_of_its_bytes_however_many_chunks_it_has() {
        let bytes = weightmap_testkit::pattern::bytes("tensor", 9 * CHUNK + 5);
        for len in
            [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK, 3 * CHUNK + 1, 8 * CHUNK, bytes.len()]
        {
            let bytes = &bytes[..len];
            let values = values(bytes);
            assert_eq!(values.len(), len.div_ceil(CHUNK).max(1));
            assert_eq!(join(&values, len as u64), *blake3::hash(bytes).as_bytes(), "{len}");
        }
    }

    #[test]
    fn each_chunk_counts_and_so_does_its_place() {
        let same = vec![7; 3 * CHUNK];
        let alike = values(&same);
        assert_ne!(alike[0], alike[1]);
        let digest = join(&alike, same.len() as u64);
        for number in 0..3 {
            let mut other = same.clone();
            other[number * CHUNK + 9] ^= 1;
            let others = values(&other);
            let differ: Vec<_> = (0..3).filter(|&at| others[at] != alike[at]).collect();
            assert_eq!(differ, [number]);
            assert_ne!(join(&others, same.len() as u64), digest);
        }
    }

    #[test]
    fn chunks_cover_a_tensor() {
        let len = 2 * CHUNK_BYTES + 3;
        assert_eq!(
            (0..3).map(|n| chunk(n, len)).collect::<Vec<_>>(),
            [0..CHUNK_BYTES, CHUNK_BYTES..2 * CHUNK_BYTES, 2 * CHUNK_BYTES..len]
        );
        assert_eq!(chunk(0, 0), 0..0);
        assert_eq!(chunks_of(&(CHUNK_BYTES - 1..CHUNK_BYTES + 1)), 0..2);
        assert_eq!(chunks_of(&(CHUNK_BYTES..2 * CHUNK_BYTES)), 1..2);
        assert_eq!(chunks_of(&(0..0)), 0..0);
    }
}
