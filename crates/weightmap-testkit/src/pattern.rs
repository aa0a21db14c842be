//! Content that follows from a tensor's name and a byte's offset alone.
//!
//! Nothing has to be kept to verify a slice: the expected bytes are computed anew. Read as little-endian
//! BF16, F16, F32 or F64, every element is finite and at most 2 in size; as BF16 it is at least 1/8. As BOOL
//! it is not valid.

/// The bits of each 16-bit word that vary: sign, the low two bits of a BF16's exponent, and its mantissa.
const VARIES: u64 = 0x81FF_81FF_81FF_81FF;
/// The bits that are always set: they put a BF16's exponent between 2^-3 and 2^0.
const ALWAYS: u64 = 0x3E00_3E00_3E00_3E00;

/// Fills `buf` with the bytes of tensor `name` that begin at byte `offset` of the tensor.
pub fn fill(name: &str, offset: u64, buf: &mut [u8]) {
    let seed = seed(name);
    let mut words = (offset / 8..).map(|index| word(seed, index));
    let skipped = (offset % 8) as usize;
    let head_len = if skipped == 0 { 0 } else { buf.len().min(8 - skipped) };
    let (head, aligned) = buf.split_at_mut(head_len);
    if let Some(part) = head_len.checked_sub(1).and_then(|_| words.next()) {
        head.copy_from_slice(&part[skipped..skipped + head_len]);
    }
    let mut chunks = aligned.chunks_exact_mut(8);
    for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
        chunk.copy_from_slice(&word);
    }
    let tail = chunks.into_remainder();
    if let Some(part) = words.next() {
        tail.copy_from_slice(&part[..tail.len()]);
    }
}

/// The first `len` bytes of tensor `name`.
pub fn bytes(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(name, 0, &mut bytes);
    bytes
}

/// A sample of the pattern: files whose content came from another version of it are told by this in their
/// header.
pub fn stamp() -> String {
    bytes("stamp", 8).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// FNV-1a: short, and well enough spread for the mixing that follows.
fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The 8 bytes at 8 × `index`: a counter put through the finaliser of `SplitMix64`.
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut mixed = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    (mixed & VARIES | ALWAYS).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_slice_equals_that_part_of_the_whole() {
        let whole = bytes("a", 64);
        for begin in 0..40_usize {
            for len in 0..=24 {
                let mut part = vec![0; len];
                fill("a", begin as u64, &mut part);
                assert_eq!(part, whole[begin..begin + len], "{len} bytes at {begin}");
            }
        }
    }

    #[test]
    fn names_and_places_differ() {
        assert_ne!(bytes("a", 32), bytes("b", 32));
        let words = bytes("a", 8 << 12);
        let distinct: std::collections::BTreeSet<_> = words.chunks(8).collect();
        assert_eq!(distinct.len(), 1 << 12);
    }

    #[test]
    fn every_element_is_finite_and_of_modest_size() {
        let content = bytes("a", 1 << 16);
        for element in content.chunks_exact(2) {
            let value = f32::from_le_bytes([0, 0, element[0], element[1]]).abs();
            assert!((0.125..2.0).contains(&value), "BF16 {value}");
        }
        for element in content.chunks_exact(4) {
            let value = f32::from_le_bytes([element[0], element[1], element[2], element[3]]).abs();
            assert!((0.125..2.0).contains(&value), "F32 {value}");
        }
    }
}
