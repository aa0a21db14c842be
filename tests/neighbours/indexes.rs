//! Indexes: what stands at the top, what in `weight_map`, and texts that are almost one.

use std::fs;

use proptest::prelude::*;
use serde_json::Value;
use weightmap::{Index, ShardedModel, check};
use weightmap_testkit::{Checkpoint, TempModel};

use crate::open::INDEX;
use crate::support::{assert_error, assert_says, load_all, open, open_error, shard_of};

fn with_index(text: impl Into<Vec<u8>>) -> TempModel {
    Checkpoint::new().shard("x.safetensors", shard_of("x")).index_text(text).temp()
}

#[test]
fn what_careless_readers_accept_at_the_top_or_in_the_map_is_refused() {
    let map = r#""weight_map": {"x": "x.safetensors"}"#;
    for (text, kind) in [
        (format!("{{{map}, {map}}}"), "DuplicateKey"),
        (format!("{{{map}, \"weight\\u005fmap\": {{}}}}"), "DuplicateKey"),
        (format!("{{\"metadata\": {{}}, {map}, \"meta\\u0064ata\": null}}"), "DuplicateKey"),
        (r#"{"weight_map": {"x": "x.safetensors", "x": "x.safetensors"}}"#.to_owned(), "DuplicateTensor"),
        (
            r#"{"weight_map": {"x": "x.safetensors", "\u0078": "x.safetensors"}}"#.to_owned(),
            "DuplicateTensor",
        ),
        (r#"{"weight_map": {"x": "x.safetensors", "x": "./x.safetensors"}}"#.to_owned(), "DuplicateTensor"),
        (r#"{"Weight_map": {"x": "x.safetensors"}}"#.to_owned(), "NoWeightMap"),
        (r#"{"weight_map ": {"x": "x.safetensors"}}"#.to_owned(), "NoWeightMap"),
        (r#"{"metadata": {"weight_map": {"x": "x.safetensors"}}}"#.to_owned(), "NoWeightMap"),
        (format!("{{{map}}}{{{map}}}"), "Json"),
        (format!("{{{map}}}\n{{{map}}}"), "Json"),
        (format!("{{{map}}}]"), "Json"),
        (format!("{{{map}}}\0"), "Json"),
        (format!("{{{map},}}"), "Json"),
        (format!("[{{{map}}}]"), "IndexShape"),
        (format!("'{{{map}}}'"), "Json"),
        (r#"{weight_map: {"x": "x.safetensors"}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"x": "x.safetensors" "y": "x.safetensors"}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"x\ud800": "x.safetensors"}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"x": "\udc00x.safetensors"}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"x": "x.safe"#.to_owned(), "Json"),
        (r#"{"weight_map": "x.safetensors"}"#.to_owned(), "IndexShape"),
        (r#"{"weight_map": [["x", "x.safetensors"]]}"#.to_owned(), "IndexShape"),
        (r#"{"weight_map": {"x": ["x.safetensors"]}}"#.to_owned(), "NotAName"),
        (r#"{"weight_map": {"x": 1E400}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"x": 1e2}}"#.to_owned(), "NotAName"),
        (r#"{"weight_map": {"x": NaN}}"#.to_owned(), "Json"),
        (r#"{"weight_map": {"": ""}}"#.to_owned(), "BadShardName"),
        (format!("\u{feff}{{{map}}}"), "ByteOrderMark"),
        (" \n\t ".to_owned(), "Json"),
        ("null".to_owned(), "IndexShape"),
        ("Entry not found".to_owned(), "Json"),
        (format!("{{{map}, \"note\": {}}}", "[".repeat(10_000)), "Json"),
    ] {
        let error = open_error(&with_index(text.as_str()));
        assert_error(&error, kind, INDEX);
        let checked = check(with_index(text).path(), &ShardedModel::options()).unwrap();
        assert_eq!(checked.faults[0].kind(), kind);
    }
}

#[test]
fn an_index_of_another_kind_is_told_as_that() {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let shard = shard_of("x").build();
    for (bytes, kind, word) in [
        (b"PK\x03\x04\x14\0\0\0\x08\0".to_vec(), "NotAnIndex", "zip"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), "NotAnIndex", "gzip"),
        (b"\x28\xb5\x2f\xfd\x04\x58\x21\0".to_vec(), "NotAnIndex", "zstd"),
        (b"\xfd7zXZ\0\0\x04\xe6\xd6".to_vec(), "NotAnIndex", "xz"),
        (b"\x80\x04\x95\x2a\0\0\0\0\0\0\0".to_vec(), "NotAnIndex", "pickle"),
        (b"%PDF-1.7\n%\xe2\xe3".to_vec(), "NotAnIndex", "PDF"),
        (b"GGUF\x03\0\0\0".to_vec(), "NotAnIndex", "GGUF"),
        (shard, "NotAnIndex", "safetensors"),
        (
            b"version https://git-lfs.github.com/spec/v1\r\noid sha256:0\r\n".to_vec(),
            "LfsPointer",
            "git lfs pull",
        ),
        (b"{\r\n<<<<<<< HEAD\r\n}".to_vec(), "MergeConflict", "line 2"),
        (b"<?xml version=\"1.0\"?><Error/>".to_vec(), "Html", "XML"),
        ([&b"\xff\xfe"[..], &utf16("{}")].concat(), "ByteOrderMark", "UTF-16"),
        (utf16("{\"weight_map\": {}}"), "Json", "JSON"),
        (vec![0xff; 100], "NotUtf8", "UTF-8"),
        (vec![0; 100], "Json", "JSON"),
    ] {
        let error = open_error(&with_index(bytes));
        assert_error(&error, kind, INDEX);
        assert_says(&error, &[word]);
    }
}

#[test]
fn an_index_with_line_ends_of_windows_or_none_is_the_same() {
    let text = "{\n  \"metadata\": {\"total_size\": 4},\n  \"weight_map\": {\n    \"x\": \"x.safetensors\"\n  }\n}\n";
    for text in [
        text.to_owned(),
        text.replace('\n', "\r\n"),
        text.replace(['\n', ' '], ""),
        format!("\n\n{text}\n \t"),
    ] {
        let checked = check(with_index(text).path(), &ShardedModel::options()).unwrap();
        assert!(checked.is_sound() && checked.warnings.is_empty(), "{checked:?}");
    }
}

#[test]
fn a_tensor_that_is_named_as_the_metadata_is_in_no_shard() {
    let files = with_index(r#"{"weight_map": {"x": "x.safetensors", "__metadata__": "x.safetensors"}}"#);
    let error = open(&files).tensor("__metadata__").unwrap_err();
    assert_error(&error, "TensorNotInShard", "x.safetensors");
    open(&files).view("x").unwrap();
}

#[test]
fn a_name_is_a_name_and_is_never_decoded_as_in_a_url() {
    let name = "%2e%2e/x.safetensors";
    let files = Checkpoint::new().shard(name, shard_of("x")).shard("x.safetensors", shard_of("y")).temp();
    assert_eq!(load_all(&open(&files), weightmap::ReadMode::Auto).unwrap().tensors().len(), 2);
    fs::remove_dir_all(files.file("%2e%2e")).unwrap();
    assert_says(&open_error(&files), &[name]);
}

#[test]
fn spellings_of_one_shard_are_one_and_its_twins_are_others() {
    let text =
        r#"{"weight_map": {"x": "./././x.safetensors", "y": ".//x.safetensors", "z": "x.safetensors"}}"#;
    let index = Index::parse(text.as_bytes()).unwrap();
    assert_eq!(index.shards().len(), 1);
    // The same name in another case, or in another form of Unicode.
    let names = ["mod\u{e9}l.safetensors", "mode\u{301}l.safetensors", "MOD\u{e9}L.safetensors"];
    let model = names.iter().fold(Checkpoint::new(), |all, name| all.shard(name, shard_of(name)));
    let files = model.temp();
    // A file system that takes them for one leaves fewer files.
    if fs::read_dir(files.path()).unwrap().count() == 4 {
        let model = open(&files);
        for name in names {
            assert_eq!(model.view(name).unwrap().bytes(), weightmap_testkit::pattern::bytes(name, 4));
        }
    }
}

#[cfg(unix)]
#[test]
fn two_names_of_one_file_are_two_shards() {
    let files = TempModel::empty();
    shard_of("x").write(files.file("1.safetensors")).unwrap();
    std::os::unix::fs::symlink("1.safetensors", files.file("2.safetensors")).unwrap();
    fs::hard_link(files.file("1.safetensors"), files.file("3.safetensors")).unwrap();
    for second in ["2.safetensors", "3.safetensors"] {
        let text = format!(r#"{{"weight_map": {{"x": "1.safetensors", "y": "{second}"}}}}"#);
        fs::write(files.file(INDEX), text).unwrap();
        let model = open(&files);
        model.view("x").unwrap();
        assert_error(&model.view("y").unwrap_err(), "TensorNotInShard", second);
        let text = format!(r#"{{"weight_map": {{"x": "{second}"}}}}"#);
        fs::write(files.file(INDEX), text).unwrap();
        assert_eq!(open(&files).view("x").unwrap().bytes(), weightmap_testkit::pattern::bytes("x", 4));
    }
}

/// What an index lists, by a parser that knows nothing of indexes.
fn listed(json: &[u8]) -> Option<Vec<(String, String)>> {
    // Half a pair and a number beyond 64 bits are JSON, and may stand where nobody looks.
    let text = std::str::from_utf8(json).ok()?.replace("\\ud800", "\\ufffd").replace("1E400", "1");
    let value: Value = serde_json::from_str(&text).ok()?;
    let map = value.get("weight_map")?.as_object()?;
    let mut listed: Vec<_> = map
        .iter()
        .map(|(name, shard)| Some((name.clone(), shard.as_str()?.to_owned())))
        .collect::<Option<_>>()?;
    listed.sort();
    Some(listed)
}

/// An index is refused, or means what the other parser reads.
fn assert_one_meaning(json: &[u8]) -> Result<(), TestCaseError> {
    match Index::parse(json) {
        Err(error) => prop_assert!(!error.kind().is_empty() && error.to_string().len() < 10_000),
        Ok(index) => {
            let spelt = |name: &str| weightmap::ShardName::parse(name).unwrap().to_string();
            let expected = listed(json).expect("what is accepted is JSON");
            let expected: Vec<_> = expected.into_iter().map(|(name, shard)| (name, spelt(&shard))).collect();
            let shard = |number: u32| index.shards()[index.shard_of(number).unwrap() as usize].to_string();
            let mut found: Vec<_> =
                (0..).zip(index.names()).map(|(number, name)| (name.to_owned(), shard(number))).collect();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }
    Ok(())
}

const REAL: &str = r#"{"metadata": {"total_size": 29.0, "x": [null, {"y": -1e3}]}, "weight_map": {"a.é": "1.safetensors",
    "b\u00e9\n": "s/2.safetensors", "c": "./1.safetensors", "": "s//2.safetensors"}, "other": {"weight_map": {}}}"#;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_changed_byte_leaves_an_index_one_meaning_or_none(place in 0..REAL.len(), byte: u8) {
        let mut json = REAL.as_bytes().to_vec();
        json[place] = byte;
        assert_one_meaning(&json)?;
    }

    #[test]
    fn a_token_that_is_lost_doubled_moved_or_another_leaves_an_index_one_meaning_or_none(
        change in crate::support::tokens::changes(),
    ) {
        assert_one_meaning(change.of(REAL).as_bytes())?;
    }
}
