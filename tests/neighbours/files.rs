//! Lengths of headers, padding, ends of files; and files of other kinds under a shard's name.

use weightmap::ShardedModel;
use weightmap_testkit::ShardBuilder;

use super::{SHARDS, assert_refused, assert_same, checkpoint, honest, name, shard_of_entries};
use crate::support::open;

fn header_len(file: &ShardBuilder) -> u64 {
    u64::from_le_bytes(file.head()[..8].try_into().unwrap())
}

#[test]
fn a_length_of_the_header_that_is_off_is_refused_in_every_shard() {
    for shard in 0..3 {
        let file = shard_of_entries(&honest(shard));
        let right = header_len(&file);
        for (length, kinds) in [
            (0, &["EmptyHeader"][..]),
            (1, &["Json"]),
            (right - 8, &["Json"]),
            (right - 1, &["Json"]),
            // The next bytes are data.
            (right + 1, &["Json"]),
            (right + 8, &["Json"]),
            (right + 27, &["Json"]),
            (right + 28, &["HeaderTruncated"]),
            (100_000_000, &["HeaderTruncated"]),
            (100_000_001, &["TooLong"]),
            (u64::from(u32::MAX), &["TooLong"]),
            (right | 1 << 63, &["TooLong"]),
            // Byte by byte in the other order, 128.
            (1 << 63, &["NotSafetensors"]),
            (u64::MAX - 8, &["TooLong"]),
            (u64::MAX, &["TooLong"]),
            (right.swap_bytes(), &["NotSafetensors"]),
        ] {
            assert_refused(shard, file.clone().header_len(length), kinds, None, &length.to_string());
        }
    }
}

#[test]
fn a_length_that_no_file_has_is_not_said_to_be_a_matter_of_limits() {
    let file = shard_of_entries(&honest(0)).header_len(u64::MAX);
    let error = open(checkpoint(&[(0, file)]).path()).tensor(&name(0, 0)).unwrap_err().to_string();
    assert!(error.contains("18446744073709551615") && error.contains("damaged"), "{error}");
    assert!(!error.contains("raise the limit"), "{error}");
}

#[test]
fn padding_with_spaces_is_right_to_any_length_and_of_nothing_else() {
    let file = shard_of_entries(&honest(1));
    for spaces in [0, 1, 7, 8, 9, 4096, 100_001] {
        assert_same(1, file.clone().header_padding(spaces), &format!("{spaces} spaces"));
    }
    let text = String::from_utf8(file.head().split_off(8)).unwrap();
    let with = |after: &str| {
        ShardBuilder::new().raw_header(format!("{text}{after}")).data((0..27).collect::<Vec<u8>>())
    };
    for after in ["\n", "\t\r\n "] {
        assert_same(1, with(after), after);
    }
    for after in [
        "\0", "\u{b}", "\u{c}", "\u{a0}", "\u{feff}", "\u{2028}", ",", "}", "{}", " {}", "null", "//",
        "\u{1a}",
    ] {
        assert_refused(1, with(after), &["Json"], None, after);
    }
}

#[test]
fn a_header_of_exactly_the_limit_is_read_and_of_one_byte_more_is_not() {
    let file = shard_of_entries(&honest(1)).header_padding(1000);
    let bytes = header_len(&file);
    let files = checkpoint(&[(1, file)]);
    for (limit, is_read) in [(bytes - 1, false), (bytes, true), (bytes + 1, true)] {
        let model = ShardedModel::options().max_header_bytes(limit).open(&files).unwrap();
        let answer = model.tensor(&name(1, 0));
        assert_eq!(answer.is_ok(), is_read, "{limit}");
        assert!(is_read || answer.unwrap_err().kind() == "TooLong");
    }
}

/// As real files have it whose header is 126 MB.
#[test]
fn a_header_beyond_the_limit_that_all_readers_have_is_read_when_the_limit_is_raised() {
    let file = shard_of_entries(&honest(1));
    let spaces = 100_000_001 - header_len(&file);
    let files = checkpoint(&[(1, file.header_padding(usize::try_from(spaces).unwrap()))]);
    let error = open(&files).tensor(&name(1, 0)).unwrap_err().to_string();
    assert!(error.contains("100000001") && error.contains("max_header_bytes"), "{error}");
    let model = ShardedModel::options().max_header_bytes(100_000_001).open(&files).unwrap();
    assert_eq!(model.view(&name(1, 2)).unwrap().bytes(), [24, 25, 26]);
}

#[test]
fn a_file_that_is_cut_at_any_byte_is_refused_as_what_it_is() {
    let file = shard_of_entries(&honest(2));
    let data = 8 + header_len(&file);
    for bytes in 0..file.file_len() {
        let kind = match bytes {
            0..8 => "TooShort",
            _ if bytes < data => "HeaderTruncated",
            _ => "Truncated",
        };
        let files = checkpoint(&[(2, file.clone().truncate(bytes))]);
        let model = open(&files);
        let error = model.tensor(&name(2, 0)).unwrap_err();
        assert_eq!(error.kind(), kind, "{bytes}: {error}");
        assert!(error.path().unwrap().ends_with(SHARDS[2]));
    }
}

/// Bytes that other kinds of files begin with, and a word of what the message says.
const OTHERS: [(&[u8], &str); 34] = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
    (b"version https://git-lfs.github.com/spec/v1\r\noid sha256:0\r\nsize 9\r\n", "git lfs pull"),
    (b"# xet version 0\nfilesize = 9\n", "Xet"),
    (b"<<<<<<< HEAD\nversion https://git-lfs", "merge conflict"),
    (b"<!DOCTYPE html>\n<html>", "HTML"),
    (b"\r\n<html><head>", "HTML"),
    (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "XML"),
    (b"{\"error\":\"Repository not found\"}", "JSON"),
    (b"[{\"error\": 1}]   ", "JSON"),
    (b"Entry not found and more", "text"),
    (b"Invalid username or password.", "text"),
    ("Доступ к файлу запрещён".as_bytes(), "text"),
    (b"\xef\xbb\xbf{\"a\":1}  ", "text"),
    (b"\xff\xfe{\0\"\0a\0\"\0", "UTF-16"),
    (b"PK\x03\x04\x14\0\0\0\x08\0\0\0", "zip"),
    (b"PK\x03\x04\0\0\x08\x08\0\0\0\0", "zip"),
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
    (b"\x80\x02}q\0X\x06\0\0\0", "pickle"),
    (b"\x80\x03}q\0X\x06\0\0\0", "pickle"),
    (b"\x80\x04\x95\x2a\0\0\0\0\0\0\0", "pickle"),
    (b"\x80\x05\x95\x2a\0\0\0\0\0\0\0", "pickle"),
    (b"GGUF\x03\0\0\0\x10\0\0\0", "GGUF"),
    (b"GGUF\0\0\0\x03\0\0\0\0", "GGUF"),
    (b"tjgg\x03\0\0\0\0\x7d\0\0", "GGJT"),
    (b"lmgg\0\x7d\0\0\0\x10\0\0", "GGML"),
    (b"\x89HDF\r\n\x1a\n\0\0\0\0", "HDF5"),
    (b"\x93NUMPY\x01\0v\0{'descr'", "NumPy"),
    (b"\x08\x07\x12\x07pytorch\x1a", "ONNX"),
    (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "gzip"),
    (b"\x28\xb5\x2f\xfd\x04\x58\x21\0\0", "zstd"),
    (b"\xfd7zXZ\0\0\x04\xe6\xd6", "xz"),
    (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "JPEG"),
    (b"\x7fELF\x02\x01\x01\0\0\0", "ELF"),
];

#[test]
fn a_file_of_another_kind_is_told_as_that_in_every_shard_and_of_any_size() {
    for (number, (bytes, word)) in OTHERS.into_iter().enumerate() {
        for more in [0, 600, 100_000] {
            let shard = number % 3;
            // The first eight bytes are the length.
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let file = ShardBuilder::new().raw_header(&bytes[8..]).header_len(length).append(vec![7; more]);
            assert_refused(shard, file.clone(), &["NotSafetensors"], None, word);
            let error = open(checkpoint(&[(shard, file)]).path()).tensor(&name(shard, 0)).unwrap_err();
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
}

#[test]
fn a_tar_archive_is_told_though_it_begins_with_a_name() {
    let mut block = vec![0; 1024];
    block[..17].copy_from_slice(b"model.safetensors");
    block[257..265].copy_from_slice(b"ustar\x0000");
    let file = ShardBuilder::new().header_len(u64::from_le_bytes(*b"model.sa")).raw_header(&block[8..]);
    let error = open(checkpoint(&[(0, file)]).path()).tensor(&name(0, 0)).unwrap_err();
    assert!(error.kind() == "NotSafetensors" && error.to_string().contains("tar archive"), "{error}");
}

/// What follows the first bytes is looked at where these make a length that fits.
#[test]
fn a_large_file_of_another_kind_is_told_though_its_first_bytes_make_a_length() {
    let file =
        ShardBuilder::new().header_len(0x0008_8b1f).raw_header(vec![0x55; 0x0008_8b1f]).append([0; 99]);
    let error = open(checkpoint(&[(0, file)]).path()).tensor(&name(0, 0)).unwrap_err();
    assert!(error.kind() == "NotSafetensors" && error.to_string().contains("gzip"), "{error}");
}

#[test]
fn files_of_one_repeated_byte_are_refused_with_advice() {
    for byte in [0_u8, 1, b' ', b'{', 0x7f, 0x80, 0xff] {
        for bytes in [8, 9, 64, 5000] {
            let file =
                ShardBuilder::new()
                    .header_len(u64::from_le_bytes([byte; 8]))
                    .raw_header(vec![byte; bytes - 8]);
            let kinds = ["EmptyHeader", "TooLong", "NotSafetensors", "HeaderTruncated"];
            assert_refused(0, file, &kinds, None, &format!("{bytes} of {byte}"));
        }
    }
}
