//! What a file is that begins with bytes of another kind.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

/// The most bytes of a file's start that tell anything: those of a tar archive stand in its first block.
pub(crate) const TELLING_BYTES: usize = 512;

/// What a file seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    /// With its article.
    pub(crate) looks_like: &'static str,
    /// What to do about it where a shard was expected.
    pub(crate) advice: &'static str,
}

const FETCH: &str = "fetch the file again, and look at what the server answers";
const CONVERT: &str = "convert it, or point to the safetensors files beside it";
const UNPACK: &str = "unpack it";
const ANOTHER: &str = "look for the file that should have this name, and fetch it again";

/// How files begin, what they are, and what to do.
type Rows = [(&'static [u8], &'static str, &'static str)];

/// Files that have been found under the name of a shard or could be.
const BINARY: &Rows = &[
    (b"PK\x03\x04", "a zip archive, as PyTorch and NumPy write", CONVERT),
    (b"PK\x05\x06", "an empty zip archive", CONVERT),
    (b"\x80\x02", "a pickle, as old PyTorch writes", CONVERT),
    (b"\x80\x03", "a pickle", CONVERT),
    (b"\x80\x04\x95", "a pickle", CONVERT),
    (b"\x80\x05\x95", "a pickle", CONVERT),
    (b"\x80\x04", "a pickle", CONVERT),
    (b"\x80\x05", "a pickle", CONVERT),
    (b"GGUF", "a GGUF file", CONVERT),
    (b"lmgg", "a GGML file", CONVERT),
    (b"fmgg", "a GGML file (GGMF)", CONVERT),
    (b"tjgg", "a GGML file (GGJT)", CONVERT),
    (b"algg", "a GGML adapter (GGLA)", CONVERT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes", CONVERT),
    (b"\x93NUMPY", "a NumPy array", CONVERT),
    (b"\x1f\x8b\x08\x00", "a gzip archive", UNPACK),
    (b"\x1f\x8b\x08\x08", "a gzip archive", UNPACK),
    (b"\x1f\x8b", "a gzip archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (b"\x04\x22\x4d\x18", "an lz4 archive", UNPACK),
    (b"BZh", "a bzip2 archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a rar archive", UNPACK),
    (
        b"\x00\x05\x16\x07",
        "an AppleDouble file, which macOS leaves beside the real one",
        "delete it; the real file has the same name without `._`",
    ),
    (b"%PDF-", "a PDF document", ANOTHER),
    (b"\xff\xd8\xff", "a JPEG picture", ANOTHER),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture", ANOTHER),
    (b"\x7fELF", "an ELF program or library", ANOTHER),
    (b"MZ", "a program of Windows, or a llamafile", ANOTHER),
    (b"\xcf\xfa\xed\xfe", "a program of macOS", ANOTHER),
    (b"SQLite format 3\0", "an SQLite database", ANOTHER),
];

/// The same of files that are text.
const TEXT: &Rows = &[
    (b"version ", "a Git LFS pointer", "fetch the content with `git lfs pull`, or download the file itself"),
    (b"# xet version", "a Xet pointer", "fetch the content with `git xet`, or download the file itself"),
    (b"<<<<<<< ", "a file with an unresolved merge conflict of Git", "restore one side of it"),
    (b"#!", "a script", ANOTHER),
    (b"\xef\xbb\xbf", "text", FETCH),
    (b"\xff\xfe{\0", "text in UTF-16", "save it as UTF-8 without a byte order mark"),
    (b"\xff\xfe<\0", "text in UTF-16", FETCH),
];

/// The name of the format in a tar archive, and where it stands.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// What a file is that begins with these bytes, of which there are at most [`TELLING_BYTES`]; `None` if nothing tells it.
/// Signatures of fewer than `least` bytes do not count.
pub(crate) fn recognise(bytes: &[u8], least: usize) -> Option<Signature> {
    binary(bytes, least).or_else(|| find(TEXT, bytes, least)).or_else(|| text(bytes))
}

/// The same of files that are no text.
pub(crate) fn binary(bytes: &[u8], least: usize) -> Option<Signature> {
    if bytes.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        return Some(Signature { looks_like: "a tar archive", advice: UNPACK });
    }
    // The version of its format, and then the name of the program that wrote it.
    if matches!(bytes, [0x08, 1..=32, 0x12, ..]) && least <= 3 {
        return Some(Signature { looks_like: "an ONNX model", advice: CONVERT });
    }
    find(BINARY, bytes, least)
}

/// The first row whose signature is here: all of it, or the first eight bytes where there are no more.
fn find(rows: &Rows, bytes: &[u8], least: usize) -> Option<Signature> {
    let is_here = |signature: &[u8]| {
        let known = signature.get(..bytes.len().max(8)).unwrap_or(signature);
        signature.len() >= least && bytes.starts_with(known)
    };
    let &(_, looks_like, advice) = rows.iter().find(|(signature, ..)| is_here(signature))?;
    Some(Signature { looks_like, advice })
}

/// What text a file is, by the eight bytes that it begins with.
fn text(bytes: &[u8]) -> Option<Signature> {
    let start = bytes.get(..8)?;
    let start = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character that is cut at the end.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(start.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if start.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        return None;
    }
    let looks_like = match start.trim_start().chars().next() {
        Some('<') => "HTML or XML, perhaps the page of an error",
        Some('{' | '[') => "JSON, perhaps the message of an error",
        _ => "text, perhaps the message of an error",
    };
    Some(Signature { looks_like, advice: FETCH })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks_like(bytes: &[u8]) -> Option<&'static str> {
        recognise(bytes, 2).map(|found| found.looks_like)
    }

    #[test]
    fn files_are_told_by_how_they_begin() {
        for (bytes, expected) in [
            (&b"version https://git-lfs.github.com/spec/v1\r\n"[..], "Git LFS"),
            (b"# xet version 0\n", "Xet"),
            (b"<<<<<<< HEAD\n", "merge conflict"),
            (b"<!DOCTYPE html>", "HTML"),
            (b"\n\n<?xml version", "XML"),
            (b"{\"error\":\"Repository not found\"}", "JSON"),
            (b"Entry not found", "text"),
            ("Доступ запрещён".as_bytes(), "text"),
            ("x層層層層".as_bytes(), "text"),
            (b"PK\x03\x04\x14\0\0\0", "zip"),
            (b"\x80\x02\x8a\x0al\xfc\x9cF", "pickle"),
            (b"\x80\x03}q\0X\x06\0", "pickle"),
            (b"\x80\x04\x95\x2a\0\0\0\0", "pickle"),
            (b"\x80\x05\x95\x2a\0\0\0\0", "pickle"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"lmgg\x01\0\0\0", "GGML"),
            (b"tjgg\x03\0\0\0", "GGJT"),
            (b"\x89HDF\r\n\x1a\n", "HDF5"),
            (b"\x93NUMPY\x01\0", "NumPy"),
            (b"\x08\x07\x12\x07pytorch", "ONNX"),
            (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
            (b"\x28\xb5\x2f\xfd\x04\x58\x21\0", "zstd"),
            (b"\xfd7zXZ\0\0\x04", "xz"),
            (b"BZh91AY&", "bzip2"),
            (b"\0\x05\x16\x07\0\x02\0\0", "AppleDouble"),
            (b"%PDF-1.7", "PDF"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG"),
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"\x7fELF\x02\x01\x01\0", "ELF"),
            (b"MZ\x90\0\x03\0\0\0", "Windows"),
            (b"\xff\xfe{\0\"\0a\0", "UTF-16"),
        ] {
            let found = looks_like(bytes).unwrap_or_else(|| panic!("nothing tells of {expected}"));
            assert!(found.contains(expected), "{expected}: {found}");
            assert_eq!(looks_like(&bytes[..8]), Some(found), "its first eight bytes");
        }
    }

    #[test]
    fn a_tar_archive_is_told_by_its_first_block_whatever_the_name_in_it() {
        let mut block = [0; 512];
        block[..17].copy_from_slice(b"model.safetensors");
        block[257..262].copy_from_slice(b"ustar");
        assert_eq!(looks_like(&block), Some("a tar archive"));
        assert_eq!(looks_like(&block[..8]), Some("text, perhaps the message of an error"));
    }

    #[test]
    fn bytes_of_no_kind_tell_nothing() {
        for bytes in [&[0xff; 8][..], &[0; 8], b"\x01\x02\x03\x04\x05\x06\x07\x08", b"", b"Entry"] {
            assert_eq!(looks_like(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_short_signature_counts_only_where_it_may() {
        let pickle = b"\x80\x02\0\0\0\0\0\0";
        assert!(recognise(pickle, 2).is_some() && recognise(pickle, 3).is_none());
    }
}
