//! Each way in which a shard can break the format, met at its first touch: the error's kind, its file, its
//! tensor.

use weightmap::Error;
use weightmap_testkit::{Checkpoint, ShardBuilder};

use crate::support::{assert_says, open, open_error, shard_of};

const BAD: &str = "bad.safetensors";

/// What the header's fault is called, and the tensor that it is in.
fn fault(error: &Error) -> (&str, Option<&str>) {
    assert_eq!(error.path().and_then(|path| path.file_name()), Some(BAD.as_ref()), "{error}");
    assert_says(error, &[BAD]);
    (error.kind(), error.tensor())
}

/// Opens a checkpoint that has a good shard and this one, touches this one, and opens it by itself.
fn assert_malformed(shard: ShardBuilder, kind: &str, tensor: Option<&str>) {
    let model =
        Checkpoint::new().shard("good.safetensors", shard_of("good")).shard(BAD, shard).map("t", BAD).temp();
    let opened = open(&model);
    for error in [
        opened.tensor("t").unwrap_err(),
        opened.view("t").unwrap_err(),
        opened.header(BAD).unwrap_err(),
        opened.select().names(["good", "t"]).unwrap().load().unwrap_err(),
        open_error(model.file(BAD)),
    ] {
        assert_eq!(fault(&error), (kind, tensor), "{error}");
        if let Some(tensor) = tensor {
            assert_says(&error, &[&format!("{tensor:?}")]);
        }
    }
    assert_eq!(opened.view("good").unwrap().bytes(), weightmap_testkit::pattern::bytes("good", 4));
}

/// A file whose header is this text, with so many bytes of data.
fn header(text: impl Into<Vec<u8>>, data: usize) -> ShardBuilder {
    ShardBuilder::new().raw_header(text).data(vec![0; data])
}

/// A file of the tensor `t` with the text of its fields, and 16 bytes of data.
fn entry(dtype: &str, shape: &str, offsets: &str) -> ShardBuilder {
    header(format!(r#"{{"t":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}"#), 16)
}

fn shape(text: &str) -> ShardBuilder {
    entry(r#""F32""#, text, "[0,16]")
}

fn offsets(text: &str) -> ShardBuilder {
    entry(r#""F32""#, "[2,2]", text)
}

/// Two tensors of bytes at these offsets, and as many bytes of data.
fn two_ranges(first: (u64, u64), second: (u64, u64), data: usize) -> ShardBuilder {
    let add = |shard: ShardBuilder, name, (begin, end)| shard.declare(name, "U8", &[end - begin], begin, end);
    add(add(ShardBuilder::new(), "s", first), "t", second).data(vec![0; data])
}

/// Four bytes of a tensor `t`.
fn good() -> ShardBuilder {
    shard_of("t")
}

macro_rules! malformed {
    ($($name:ident: $shard:expr => $kind:literal, $tensor:expr;)+) => {$(
        #[test]
        fn $name() {
            assert_malformed($shard, $kind, $tensor);
        }
    )+};
}

const T: Option<&str> = Some("t");

malformed! {
    // The length.
    an_empty_file: good().truncate(0) => "TooShort", None;
    seven_bytes: good().truncate(7) => "TooShort", None;
    a_length_of_zero: ShardBuilder::new().raw_header("").append([0; 4096]) => "EmptyHeader", None;
    a_length_beyond_the_file: good().header_len(1000) => "HeaderTruncated", None;
    a_length_one_beyond_the_file: header("{}", 0).header_len(3) => "HeaderTruncated", None;
    a_length_beyond_the_limit: header("\x00", 0).header_len(100_000_001) => "TooLong", None;
    a_length_of_the_largest_number: header("{}", 0).header_len(u64::MAX) => "TooLong", None;
    a_length_of_the_sign_bit: header("{}", 0).header_len(1 << 63) => "TooLong", None;
    a_length_in_big_endian_order: header("{}", 60).header_len(60_u64.swap_bytes()) => "NotSafetensors", None;
    a_git_lfs_pointer: header("s://git-lfs.github.com/spec/v1\n", 0).header_len(u64::from_le_bytes(*b"version ")) => "NotSafetensors", None;
    a_web_page: header("PE html><html>", 0).header_len(u64::from_le_bytes(*b"<!DOCTYP")) => "NotSafetensors", None;
    a_zip_archive: header([0; 60], 0).header_len(u64::from_le_bytes(*b"PK\x03\x04\0\0\0\0")) => "NotSafetensors", None;
    a_pickle: header("x", 0).header_len(u64::from_le_bytes(*b"\x80\x02}q\0X\x06\0")) => "NotSafetensors", None;
    a_gguf_file: header([0; 40], 0).header_len(u64::from_le_bytes(*b"GGUF\x03\0\0\0")) => "NotSafetensors", None;

    // The text.
    text_that_is_not_utf8: header(b"{\"\xc0\xaf\":1}", 0) => "NotUtf8", None;
    a_byte_order_mark: header("\u{feff}{}", 0) => "ByteOrderMark", None;
    text_that_is_cut: header(r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#, 1) => "Json", None;
    an_array: header("[]", 0) => "Json", None;
    null: header("null", 0) => "Json", None;
    padding_with_nul: header("{}\0\0", 0) => "Json", None;
    garbage_after_the_object: header("{}garbage", 0) => "Json", None;
    a_comma_before_the_end: header(r#"{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}"#, 1) => "Json", None;
    a_raw_control_character_in_a_name: header("{\"a\nb\":{}}", 0) => "Json", None;
    nesting_without_end: header(format!("{{\"t\":{}", "[".repeat(200_000)), 0) => "InvalidEntry", T;

    // The metadata.
    metadata_that_is_nested: header(r#"{"__metadata__":{"a":{"b":"c"}}}"#, 0) => "InvalidMetadataValue", None;
    metadata_with_a_number: header(r#"{"__metadata__":{"a":1}}"#, 0) => "InvalidMetadataValue", None;
    metadata_with_a_null: header(r#"{"__metadata__":{"a":null}}"#, 0) => "InvalidMetadataValue", None;
    metadata_that_is_a_list: header(r#"{"__metadata__":[["a","b"]]}"#, 0) => "InvalidMetadata", None;
    metadata_twice: header(r#"{"__metadata__":{},"__metadata__":{}}"#, 0) => "DuplicateMetadata", None;
    a_key_of_the_metadata_twice: header(r#"{"__metadata__":{"a":"1","\u0061":"1"}}"#, 0) => "DuplicateMetadataKey", None;

    // Names and entries.
    a_tensor_twice: good().declare("t", "U8", &[4], 0, 4) => "DuplicateTensor", T;
    a_tensor_twice_by_an_escape: good().entry(r#""\u0074":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#) => "DuplicateTensor", T;
    an_entry_that_is_a_list: header(r#"{"t":["F32",[2,2],[0,16]]}"#, 16) => "InvalidEntry", T;
    an_entry_that_is_null: header(r#"{"t":null}"#, 0) => "InvalidEntry", T;
    an_entry_that_is_a_string: header(r#"{"t":"F32"}"#, 0) => "InvalidEntry", T;
    an_entry_without_a_dtype: header(r#"{"t":{"shape":[16],"data_offsets":[0,16]}}"#, 16) => "MissingField", T;
    an_entry_without_a_shape: header(r#"{"t":{"dtype":"U8","data_offsets":[0,16]}}"#, 16) => "MissingField", T;
    an_entry_without_offsets: header(r#"{"t":{"dtype":"U8","shape":[16]}}"#, 16) => "MissingField", T;
    a_field_twice: header(r#"{"t":{"dtype":"U8","dtype":"U8","shape":[16],"data_offsets":[0,16]}}"#, 16) => "DuplicateField", T;
    a_dtype_that_is_a_map: entry(r#"{"F32":null}"#, "[2,2]", "[0,16]") => "InvalidEntry", T;
    a_dtype_that_is_null: entry("null", "[2,2]", "[0,16]") => "InvalidEntry", T;
    a_dtype_that_is_a_number: entry("7", "[2,2]", "[0,16]") => "InvalidEntry", T;

    // Shapes.
    a_negative_dimension: shape("[-1,4]") => "InvalidEntry", T;
    a_dimension_that_is_a_float: shape("[2.0,2]") => "InvalidEntry", T;
    a_dimension_with_an_exponent: shape("[2e0,2]") => "InvalidEntry", T;
    a_dimension_that_is_a_string: shape(r#"["2",2]"#) => "InvalidEntry", T;
    a_dimension_beyond_64_bits: shape("[18446744073709551616]") => "InvalidEntry", T;
    a_dimension_of_minus_zero: shape("[-0]") => "InvalidEntry", T;
    a_shape_that_is_nested: shape("[[2,2]]") => "InvalidEntry", T;
    a_shape_that_is_null: shape("null") => "InvalidEntry", T;
    a_shape_that_is_an_object: shape(r#"{"0":2}"#) => "InvalidEntry", T;
    a_shape_of_2_to_the_64_elements: entry(r#""U8""#, "[4294967296,4294967296,1]", "[0,16]") => "SizeOverflow", T;
    a_shape_of_2_to_the_64_bits: entry(r#""I32""#, "[2,9223372036854775807]", "[0,16]") => "SizeOverflow", T;
    a_size_other_than_the_shape_says: entry(r#""F32""#, "[2]", "[0,16]") => "SizeMismatch", T;
    a_scalar_without_bytes: header(r#"{"t":{"dtype":"I32","shape":[],"data_offsets":[0,0]}}"#, 0) => "SizeMismatch", T;
    an_empty_tensor_with_bytes: entry(r#""F32""#, "[0]", "[0,16]") => "SizeMismatch", T;
    half_a_byte: header(r#"{"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#, 2) => "PartialByte", T;
    six_bits: header(r#"{"t":{"dtype":"F6_E2M3","shape":[1],"data_offsets":[0,1]}}"#, 1) => "PartialByte", T;

    // Offsets.
    one_offset: offsets("[0]") => "InvalidEntry", T;
    three_offsets: offsets("[0,16,16]") => "InvalidEntry", T;
    no_offsets: offsets("[]") => "InvalidEntry", T;
    a_negative_offset: offsets("[-16,0]") => "InvalidEntry", T;
    an_offset_that_is_a_float: offsets("[0,16.0]") => "InvalidEntry", T;
    an_offset_beyond_64_bits: offsets("[0,18446744073709551632]") => "InvalidEntry", T;
    offsets_that_are_an_object: offsets(r#"{"begin":0,"end":16}"#) => "InvalidEntry", T;
    offsets_that_are_reversed: offsets("[16,0]") => "ReversedOffsets", T;
    a_hole_at_the_start: two_ranges((8, 12), (12, 16), 16) => "Hole", Some("s");
    a_hole_between_tensors: two_ranges((0, 4), (8, 12), 12) => "Hole", T;
    an_overlap: two_ranges((0, 4), (2, 6), 6) => "Overlap", T;
    two_names_for_the_same_bytes: two_ranges((0, 4), (0, 4), 4) => "Overlap", T;
    an_empty_tensor_inside_another: two_ranges((0, 4), (2, 2), 4) => "Overlap", T;
    an_empty_tensor_beyond_the_end: two_ranges((0, 4), (8, 8), 4) => "Hole", T;
    data_that_is_cut_by_one_byte: two_ranges((0, 4), (4, 8), 7) => "Truncated", T;
    data_that_is_absent: two_ranges((0, 4), (4, 8), 0) => "Truncated", Some("s");
    one_byte_too_many: good().append("x") => "TrailingBytes", None;
    bytes_without_a_tensor: header("{}", 8) => "TrailingBytes", None;
    sizes_whose_sum_is_beyond_64_bits: header(r#"{"s":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]},"t":{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}}"#, 4) => "Truncated", Some("s");
}

#[test]
fn a_hundred_thousand_names_for_the_same_bytes_are_refused_at_once() {
    let many = (0..100_000)
        .map(|number| format!(r#""w{number}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#));
    let text = format!("{{{}}}", many.collect::<Vec<_>>().join(","));
    assert_malformed(header(text, 4), "Overlap", Some("w1"));
}

#[test]
fn names_are_escaped_and_cut_in_messages() {
    let name = format!("\u{1b}[2J\u{7}{}", "n".repeat(1 << 20));
    let shard = ShardBuilder::new().declare(&name, "U8", &[4], 0, 3).data([0; 3]);
    let model = Checkpoint::single(shard).temp();
    let error = open_error(&model);
    assert_eq!((error.kind(), error.tensor()), ("SizeMismatch", Some(&*name)));
    let message = error.to_string();
    assert!(!message.contains(['\u{1b}', '\u{7}']) && message.len() < 2000, "{message}");
}

#[test]
fn a_tensor_that_the_shard_does_not_hold_is_an_error_that_names_both() {
    let model = Checkpoint::new().shard(BAD, good()).map("absent", BAD).temp();
    let opened = open(&model);
    for error in [
        opened.tensor("absent").unwrap_err(),
        opened.view("absent").unwrap_err(),
        opened.select().all().load().unwrap_err(),
    ] {
        assert_eq!(fault(&error), ("TensorNotInShard", Some("absent")));
        assert_says(&error, &["\"absent\""]);
    }
    assert_eq!(opened.view("t").unwrap().bytes().len(), 4, "what the shard does hold can be had");
}

#[test]
fn a_tensor_is_not_looked_for_in_other_shards() {
    let model =
        Checkpoint::new().shard(BAD, good()).shard("other.safetensors", shard_of("x")).map("x", BAD).temp();
    assert_eq!(fault(&open(&model).tensor("x").unwrap_err()), ("TensorNotInShard", Some("x")));
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_an_error_that_says_what_it_is() {
    use weightmap_testkit::damage;
    type Replace = fn(&std::path::Path);
    let replaced = |replace: Replace| {
        let model = Checkpoint::new().shard(BAD, good()).temp();
        replace(&model.file(BAD));
        crate::support::within_a_minute(move || open(&model).tensor("t").unwrap_err())
    };
    let cases: [(Replace, &str); 4] = [
        (|path| damage::replace_by_directory(path), "directory"),
        (|path| damage::replace_by_fifo(path), "FIFO"),
        (|path| damage::replace_by_socket(path), "socket"),
        (|path| damage::replace_by_link(path, "/dev/zero"), "device"),
    ];
    for (replace, word) in cases {
        let error = replaced(replace);
        assert_eq!(fault(&error).0, "NotRegularFile", "{error}");
        assert_says(&error, &[word]);
    }
    assert_eq!(fault(&replaced(|path| damage::replace_by_dangling_link(path))).0, "Io");
    assert_eq!(fault(&replaced(|path| damage::replace_by_link(path, BAD))).0, "Io", "a link to itself");
}
