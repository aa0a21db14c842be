use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A file with this header and data behind it.
fn content(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A file of digests with these entries.
fn of_entries(entries: &str, data_bytes: usize) -> Vec<u8> {
    content(&format!(r#"{{"__metadata__":{{"format":"{FORMAT}"}}{entries}}}"#), &vec![0; data_bytes])
}

fn kind(content: &[u8]) -> &'static str {
    Digests::parse(content).unwrap_err().kind()
}

/// The values of the chunks of a tensor of this many bytes, which all differ.
fn values(seed: u8, len: u64) -> Vec<Value> {
    (0..chunk_count(len)).map(|number| digest(&[&[seed], number.to_le_bytes().as_slice()].concat())).collect()
}

#[test]
fn an_entry_of_another_type_or_shape_is_of_something_else() {
    for (entry, data_bytes) in [
        (r#"{"dtype":"I8","shape":[1,32],"data_offsets":[0,32]}"#, 32),
        (r#"{"dtype":"U8","shape":[32],"data_offsets":[0,32]}"#, 32),
        (r#"{"dtype":"U8","shape":[32,1],"data_offsets":[0,32]}"#, 32),
        (r#"{"dtype":"U8","shape":[1,1,32],"data_offsets":[0,32]}"#, 32),
        (r#"{"dtype":"U8","shape":[2,32],"data_offsets":[0,64]}"#, 64),
        (r#"{"dtype":"U8","shape":[0,32],"data_offsets":[0,0]}"#, 0),
        (r#"{"dtype":"U8","shape":[],"data_offsets":[0,1]}"#, 1),
        (r#"{"dtype":"F8_E4M3","shape":[3,32],"data_offsets":[0,96]}"#, 96),
    ] {
        assert_eq!(kind(&of_entries(&format!(r#","s:t":{entry}"#), data_bytes)), "DigestsOfOther", "{entry}");
    }
    let sound = r#","s:t":{"dtype":"U8","shape":[3,32],"data_offsets":[0,96]}"#;
    assert_eq!(Digests::parse(&of_entries(sound, 96)).unwrap().len(), 1);
}

#[test]
fn a_layout_that_is_not_that_of_safetensors_is_no_file_of_digests() {
    let sound = of_entries(r#","s:t":{"dtype":"U8","shape":[1,32],"data_offsets":[0,32]}"#, 32);
    assert_eq!(Digests::parse(&sound).unwrap().len(), 1);
    for len in 0..sound.len() {
        assert_eq!(kind(&sound[..len]), "NotDigests", "{len} bytes of {}", sound.len());
    }
    assert_eq!(kind(&[&sound[..], b"x"].concat()), "NotDigests");
    assert_eq!(kind(&[&u64::MAX.to_le_bytes(), &sound[8..]].concat()), "NotDigests");
    let mut not_utf8 = sound.clone();
    let place = sound.windows(3).position(|three| three == b"s:t").unwrap();
    not_utf8[place] = 0xff;
    assert_eq!(kind(&not_utf8), "NotDigests");
}

#[test]
fn names_that_come_twice_and_ranges_that_overlap_or_are_huge_are_refused() {
    let entry = |name: &str, shape: &str, offsets: &str| {
        format!(r#","{name}":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let one = entry("s:t", "[1,32]", "[0,32]");
    for (other, data_bytes) in [
        (one.clone(), 32),
        (entry(r"s:\u0074", "[1,32]", "[32,64]"), 64),
        (entry("s:u", "[1,32]", "[0,32]"), 32),
        (entry("s:u", "[1,32]", "[16,48]"), 48),
        (entry("s:u", "[1,32]", "[40,72]"), 72),
        (entry("s:u", "[576460752303423487,32]", "[32,18446744073709551616]"), 32),
        (entry("s:u", "[576460752303423488,32]", "[32,32]"), 32),
        (entry("s:u", "[576460752303423486,32]", "[32,18446744073709551584]"), 32),
    ] {
        assert_eq!(kind(&of_entries(&format!("{one}{other}"), data_bytes)), "NotDigests", "{other}");
    }
}

#[test]
fn a_file_that_does_not_say_what_it_is_or_says_something_else_is_refused() {
    for header in [
        "{}",
        r#"{"__metadata__":{}}"#,
        r#"{"__metadata__":{"format":"pt"}}"#,
        r#"{"__metadata__":{"format":"weightmap digests 2"}}"#,
        r#"{"__metadata__":{"format":"Weightmap digests 1"}}"#,
    ] {
        let error = Digests::parse(&content(header, &[])).unwrap_err();
        assert_eq!(error.kind(), "NotDigests", "{header}");
    }
    let error = Digests::parse(&content(r#"{"__metadata__":{"format":"\u001b[2J"}}"#, &[])).unwrap_err();
    assert!(error.to_string().contains("make it anew") && !error.to_string().contains('\u{1b}'), "{error}");
    assert!(Digests::parse(&of_entries("", 0)).unwrap().is_empty());
}

#[test]
fn the_digest_of_a_header_that_is_none_is_not_known() {
    for text in ["", "0", "zz", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64)] {
        let header = format!(r#"{{"__metadata__":{{"format":"{FORMAT}","header of s":"{text}"}}}}"#);
        assert_eq!(Digests::parse(&content(&header, &[])).unwrap().header_of("s"), None, "{text:?}");
    }
}

#[test]
fn what_is_of_a_tensor_of_another_number_of_chunks_is_told() {
    let len = 3 * CHUNK_BYTES;
    let parts =
        Parts { headers: Vec::new(), tensors: vec![("s".to_owned(), "t".to_owned(), len, values(0, len))] };
    let digests = Digests::of_parts(&parts).unwrap();
    assert!(digests.known("s", "t", len).unwrap().is_some());
    assert!(digests.known("s", "u", len).unwrap().is_none());
    for other in [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES, len + 1, u64::MAX] {
        assert_eq!(digests.known("s", "t", other).unwrap_err().kind(), "DigestsOfOther", "{other}");
    }
}

#[test]
fn digests_of_very_many_tensors_are_read() {
    let tensors = (0..100_000).map(|number| ("s".to_owned(), format!("tensor.{number}"), 1, values(7, 1)));
    let digests = Digests::of_parts(&Parts { headers: Vec::new(), tensors: tensors.collect() }).unwrap();
    assert_eq!(digests.len(), 100_000);
    assert_eq!(digests.tensor("s", "tensor.99999"), Some(values(7, 1)[0]));
}

#[test]
fn a_file_over_the_limit_is_refused_before_it_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // Sparse, and no header would allow it.
    file.as_file().set_len(Digests::MAX_BYTES + 1).unwrap();
    let error = Digests::read(file.path()).unwrap_err();
    assert_eq!((error.kind(), error.path()), ("DigestsTooLong", Some(file.path())));
    file.as_file().set_len(Digests::MAX_BYTES).unwrap();
    assert_eq!(Digests::read(file.path()).unwrap_err().kind(), "NotDigests");
}

fn parts() -> impl Strategy<Value = Parts> {
    let name = "[a-z:.\"\\\\\u{1b}层]{0,6}";
    let tensor = ("[ab]\\.x", name, 0..4 * CHUNK_BYTES, any::<u8>());
    vec(tensor, 0..9).prop_map(|tensors| {
        let mut parts = Parts::default();
        for (shard, tensor, len, seed) in tensors {
            if !parts.tensors.iter().any(|(s, t, ..)| (s, t) == (&shard, &tensor)) {
                let values = if len == 0 { vec![digest(&[])] } else { values(seed, len) };
                parts.tensors.push((shard, tensor, len, values));
            }
        }
        parts.headers = vec![("a.x".to_owned(), digest(b"a")), ("b.x".to_owned(), digest(b"b"))];
        parts
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(parts in parts()) {
        let bytes = write::bytes(&parts);
        let digests = Digests::parse(&bytes).unwrap();
        prop_assert_eq!(digests.as_bytes(), &bytes[..]);
        prop_assert_eq!(digests.len(), parts.tensors.len());
        prop_assert_eq!(digests.header_of("a.x"), Some(digest(b"a")));
        prop_assert_eq!(digests.header_of("c.x"), None);
        for (shard, tensor, len, values) in &parts.tensors {
            let known = digests.known(shard, tensor, *len).unwrap().unwrap();
            prop_assert_eq!(digests.tensor(shard, tensor), Some(join(values, *len)));
            for (number, value) in (0..).zip(values) {
                prop_assert_eq!(known.chunk(number), Some(value));
                prop_assert_eq!(digests.chunk(shard, tensor, number), Some(value));
            }
            if *len > CHUNK_BYTES {
                prop_assert_eq!(known.chunk(chunk_count(*len)), None);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..99), at in any::<prop::sample::Index>(), parts in parts()) {
        drop(Digests::parse(&bytes));
        let mut damaged = write::bytes(&parts);
        let at = at.index(damaged.len());
        for (place, byte) in damaged[at..].iter_mut().zip(bytes) {
            *place = byte;
        }
        if let Ok(digests) = Digests::parse(&damaged) {
            for (shard, tensor, len, _) in &parts.tensors {
                let _ = digests.known(shard, tensor, *len);
                let _ = digests.chunk(shard, tensor, u64::MAX);
            }
        }
    }
}
