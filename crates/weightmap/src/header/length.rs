//! The first 8 bytes of a file: the header's length, or the sign of another kind of file.

use super::LENGTH_BYTES;
use crate::error::HeaderError;

pub(super) fn parse(first: &[u8], file_bytes: u64, limit: u64) -> Result<u64, HeaderError> {
    let Some(&first) = first.first_chunk() else {
        return Err(HeaderError::TooShort { file_bytes: first.len() as u64 });
    };
    let header_bytes = u64::from_le_bytes(first);
    let room = file_bytes.saturating_sub(LENGTH_BYTES);
    if header_bytes == 0 {
        return Err(HeaderError::EmptyHeader);
    }
    if header_bytes <= limit.min(room) {
        return Ok(header_bytes);
    }
    // A length that fits the file, or would if more of it were there, can begin with any bytes: two of them
    // are a signature only where no header could be as long as they say.
    let absurd = u32::try_from(header_bytes).is_err();
    if (absurd || header_bytes > room)
        && let Some((looks_like, advice)) = recognise(first, if absurd { 2 } else { 4 }, limit.min(room))
    {
        return Err(HeaderError::NotSafetensors { looks_like, advice });
    }
    Err(if header_bytes > limit {
        HeaderError::TooLong { header_bytes, limit }
    } else {
        HeaderError::HeaderTruncated { header_bytes, file_bytes }
    })
}

const FETCH: &str = "fetch the file again, and look at what the server answers";
const CONVERT: &str = "convert it, or point to the safetensors files beside it";

/// How files begin that have been found under the name of a shard, what they are, and what to do.
const SIGNATURES: [(&[u8], &str, &str); 12] = [
    (b"version ", "a Git LFS pointer", "fetch the content with `git lfs pull`, or download the file itself"),
    (b"PK\x03\x04", "a zip archive, as PyTorch writes", CONVERT),
    (b"\x80\x02", "a pickle, as old PyTorch writes", CONVERT),
    (b"\x80\x03", "a pickle", CONVERT),
    (b"\x80\x04", "a pickle", CONVERT),
    (b"\x80\x05", "a pickle", CONVERT),
    (b"GGUF", "a GGUF file", CONVERT),
    (b"\x89HDF", "an HDF5 file", CONVERT),
    (b"\x93NUMPY", "a NumPy array", CONVERT),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (
        b"\x00\x05\x16\x07",
        "an AppleDouble file, which macOS leaves beside the real one",
        "delete it; the real file has the same name without `._`",
    ),
    (b"\xef\xbb\xbf", "text", FETCH),
];

/// What a file is that begins with these bytes, and what to do.
///
/// Signatures of fewer than `least` bytes do not count; `most` is the longest header that could be.
fn recognise(first: [u8; 8], least: usize, most: u64) -> Option<(&'static str, &'static str)> {
    let here = |signature: &[u8]| signature.len() >= least && first.starts_with(signature);
    if let Some(&(_, looks_like, advice)) = SIGNATURES.iter().find(|(signature, ..)| here(signature)) {
        return Some((looks_like, advice));
    }
    if first.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')) {
        return Some(match first.trim_ascii_start().first() {
            Some(b'<') => ("HTML or XML, perhaps the page of an error", FETCH),
            Some(b'{' | b'[') => ("JSON, perhaps the message of an error", FETCH),
            _ => ("text, perhaps the message of an error", FETCH),
        });
    }
    (1..=most).contains(&u64::from_be_bytes(first)).then_some((
        "a file whose header length is in big-endian order",
        "write it again on a little-endian machine or with a writer that keeps to the format",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100_000_000;

    fn looks_like(first: &[u8], file_bytes: u64) -> &'static str {
        match parse(first, file_bytes, LIMIT) {
            Err(HeaderError::NotSafetensors { looks_like, .. }) => looks_like,
            other => panic!("expected NotSafetensors, found {other:?}"),
        }
    }

    #[test]
    fn fewer_than_8_bytes_are_too_short() {
        for file_bytes in 0..8 {
            let first = &[2; 8][..file_bytes];
            let expected = HeaderError::TooShort { file_bytes: file_bytes as u64 };
            assert_eq!(parse(first, file_bytes as u64, LIMIT), Err(expected));
        }
    }

    #[test]
    fn zeros_are_no_header() {
        assert_eq!(parse(&[0; 8], 4096, LIMIT), Err(HeaderError::EmptyHeader));
    }

    #[test]
    fn a_header_may_be_as_long_as_the_limit_and_no_longer() {
        assert_eq!(parse(&LIMIT.to_le_bytes(), u64::MAX, LIMIT), Ok(LIMIT));
        let above = LIMIT + 1;
        let error = parse(&above.to_le_bytes(), u64::MAX, LIMIT).unwrap_err();
        assert_eq!(error, HeaderError::TooLong { header_bytes: above, limit: LIMIT });
        let message = error.to_string();
        for part in ["100000001", "100000000", "OpenOptions::max_header_bytes"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(parse(&above.to_le_bytes(), u64::MAX, above), Ok(above));
    }

    #[test]
    fn a_header_may_fill_the_file_and_not_exceed_it() {
        assert_eq!(parse(&16u64.to_le_bytes(), 24, LIMIT), Ok(16));
        let cut = HeaderError::HeaderTruncated { header_bytes: 17, file_bytes: 24 };
        assert_eq!(parse(&17u64.to_le_bytes(), 24, LIMIT), Err(cut));
    }

    #[test]
    fn the_largest_length_is_an_error_without_overflow() {
        let error = parse(&[0xff; 8], u64::MAX, u64::MAX).unwrap_err();
        assert_eq!(error, HeaderError::HeaderTruncated { header_bytes: u64::MAX, file_bytes: u64::MAX });
        assert_eq!(parse(&[0xff; 8], 10, LIMIT).unwrap_err().kind(), "TooLong");
    }

    #[test]
    fn other_files_are_told_by_how_they_begin() {
        for (bytes, expected) in [
            (&b"version https://git-lfs.github.com/spec/v1"[..], "Git LFS"),
            (b"<!DOCTYPE html>", "HTML"),
            (b"\n\n<?xml version", "XML"),
            (b"{\"error\":\"Repository not found\"}", "JSON"),
            (b"Entry not found", "text"),
            (b"PK\x03\x04\0\0\0\0", "zip"),
            (b"\x80\x02}q\0X\x06\0", "pickle"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"\0\x05\x16\x07\0\x02\0\0", "AppleDouble"),
            (b"\0\0\0\0\0\0\0\x3c", "big-endian"),
        ] {
            let found = looks_like(&bytes[..8], 84);
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }

    #[test]
    fn a_large_file_of_another_kind_is_told_too() {
        // Read as a length, GGUF version 3 is 14 GB, which fits into a file of 40 GB.
        assert_eq!(looks_like(b"GGUF\x03\0\0\0", 40_000_000_000), "a GGUF file");
    }

    #[test]
    fn a_length_that_begins_like_a_signature_is_a_length() {
        for bytes in [*b"PK\x03\x04\0\0\0\0", *b"{\n\0\0\0\0\0\0", *b"\x80\x02\0\0\0\0\0\0"] {
            let header_bytes = u64::from_le_bytes(bytes);
            assert_eq!(parse(&bytes, LIMIT, LIMIT), Ok(header_bytes));
            assert_eq!(parse(&bytes, LIMIT, 9).unwrap_err(), HeaderError::TooLong { header_bytes, limit: 9 });
        }
        // A file that is cut inside a header of 640 bytes is no pickle.
        assert_eq!(parse(b"\x80\x02\0\0\0\0\0\0", 100, LIMIT).unwrap_err().kind(), "HeaderTruncated");
    }
}
