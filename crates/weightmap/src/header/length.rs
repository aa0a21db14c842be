//! The first 8 bytes of a file: the header's length, or the sign of another kind of file.

use super::LENGTH_BYTES;
use crate::error::HeaderError;
use crate::signature::{Signature, TELLING_BYTES, recognise};

pub(super) fn parse(first: &[u8], file_bytes: u64, limit: u64) -> Result<u64, HeaderError> {
    let Some(&length) = first.first_chunk() else {
        return Err(HeaderError::TooShort { file_bytes: first.len() as u64 });
    };
    let header_bytes = u64::from_le_bytes(length);
    let room = file_bytes.saturating_sub(LENGTH_BYTES);
    if header_bytes == 0 {
        return Err(HeaderError::EmptyHeader);
    }
    if header_bytes <= limit.min(room) {
        return Ok(header_bytes);
    }
    // A length that fits the file, or would if more of it were there, can begin with any bytes: few of them
    // are a signature only where no header could be as long as they say.
    let is_absurd = u32::try_from(header_bytes).is_err();
    let least = match header_bytes > limit {
        _ if is_absurd => 2,
        true => 3,
        false => 4,
    };
    if (is_absurd || header_bytes > room)
        && let Some(error) = other_file(first, least, limit.min(room))
    {
        return Err(error);
    }
    Err(if header_bytes > limit {
        HeaderError::TooLong { header_bytes, limit, file_bytes }
    } else {
        HeaderError::HeaderTruncated { header_bytes, file_bytes }
    })
}

/// The error of a header that is no JSON, or that the file is of another kind, whose first bytes make a length that fits.
pub(super) fn or_other_file(error: HeaderError, json: &[u8]) -> HeaderError {
    if json.starts_with(b"{") || !matches!(error, HeaderError::NotUtf8 { .. } | HeaderError::Json { .. }) {
        return error;
    }
    let start: Vec<u8> = (json.len() as u64)
        .to_le_bytes()
        .into_iter()
        .chain(json.iter().copied())
        .take(TELLING_BYTES)
        .collect();
    other_file(&start, 3, 0).unwrap_or(error)
}

/// What a file is that begins with these bytes, and what to do; `most` is the longest header that could be.
fn other_file(first: &[u8], least: usize, most: u64) -> Option<HeaderError> {
    if let Some(Signature { looks_like, advice }) = recognise(first, least) {
        return Some(HeaderError::NotSafetensors { looks_like, advice });
    }
    let swapped = first.first_chunk().map_or(0, |&first| u64::from_be_bytes(first));
    (1..=most).contains(&swapped).then_some(HeaderError::NotSafetensors {
        looks_like: "a file whose header length is in big-endian order",
        advice: "write it again on a little-endian machine or with a writer that keeps to the format",
    })
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
        assert_eq!(error, HeaderError::TooLong { header_bytes: above, limit: LIMIT, file_bytes: u64::MAX });
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
            assert_eq!(
                parse(&bytes, LIMIT, 9).unwrap_err(),
                HeaderError::TooLong { header_bytes, limit: 9, file_bytes: LIMIT }
            );
        }
        // A file that is cut inside a header of 640 bytes is no pickle.
        assert_eq!(parse(b"\x80\x02\0\0\0\0\0\0", 100, LIMIT).unwrap_err().kind(), "HeaderTruncated");
    }
}
