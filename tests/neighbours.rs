//! The neighbours of each malformation: every field, in the first, a middle and the last tensor of the first, a middle and the
//! last shard, with every text that careless readers take; other kinds of files; names that deceive. Each is accepted
//! with its one meaning, or an error of the right kind that names file and tensor.

mod files;
mod indexes;
mod names;

use weightmap::{ReadMode, ShardedModel, check};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel};

use crate::support::{load_all, open};

/// The first, a middle and the last; two of them in folders.
const SHARDS: [&str; 3] =
    ["model-00001-of-00003.safetensors", "a/model.safetensors", "z/deep/model.safetensors"];

/// A member of a header, each part of it as JSON text.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    dtype: String,
    dims: [String; 2],
    offsets: [String; 2],
    /// What stands in place of all of it.
    raw: Option<String>,
}

impl Entry {
    fn text(&self) -> String {
        let Self { name, dtype, dims, offsets, raw } = self;
        let fields = format!(
            r#"{{"dtype":{dtype},"shape":[{}],"data_offsets":[{}]}}"#,
            dims.join(","),
            offsets.join(",")
        );
        format!("{name}:{}", raw.as_ref().unwrap_or(&fields))
    }
}

/// Three tensors of 16, 8 and 3 bytes.
fn honest(shard: usize) -> Vec<Entry> {
    let tensors = [("F32", [2, 2], 0, 16), ("BF16", [4, 1], 16, 24), ("U8", [1, 3], 24, 27)];
    let entry = |(place, (dtype, dims, begin, end)): (usize, (&str, [u64; 2], u64, u64))| Entry {
        name: format!("\"{}\"", name(shard, place)),
        dtype: format!("\"{dtype}\""),
        dims: dims.map(|dim| dim.to_string()),
        offsets: [begin, end].map(|offset| offset.to_string()),
        raw: None,
    };
    tensors.into_iter().enumerate().map(entry).collect()
}

fn name(shard: usize, place: usize) -> String {
    format!("layers.{shard}.{place}")
}

fn shard_of_entries(entries: &[Entry]) -> ShardBuilder {
    let entries: Vec<_> = entries.iter().map(Entry::text).collect();
    ShardBuilder::new().raw_header(format!("{{{}}}", entries.join(","))).data((0..27).collect::<Vec<u8>>())
}

/// Three shards, of which these are not the honest ones.
fn checkpoint(others: &[(usize, ShardBuilder)]) -> TempModel {
    let mut checkpoint = Checkpoint::new();
    for (shard, file) in SHARDS.into_iter().enumerate() {
        let other = others.iter().find(|(number, _)| *number == shard).map(|(_, other)| other.clone());
        checkpoint = checkpoint.shard(file, other.unwrap_or_else(|| shard_of_entries(&honest(shard))));
        checkpoint = (0..3).fold(checkpoint, |all, place| all.map(&name(shard, place), file));
    }
    checkpoint.temp()
}

/// Asserts that this shard is refused at its first touch, as one of these kinds, that nothing else is, and that the error
/// names the shard, and the tensor where one is at fault.
fn assert_refused(shard: usize, file: ShardBuilder, kinds: &[&str], tensor: Option<&str>, what: &str) {
    let files = checkpoint(&[(shard, file)]);
    let model = open(&files);
    let error = model.tensor(&name(shard, 1)).unwrap_err();
    assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
    assert!(error.path().is_some_and(|path| path.ends_with(SHARDS[shard])), "{what}: {error}");
    assert!(tensor.is_none() || error.tensor() == tensor, "{what}: {error}");
    let loaded = load_all(&model, ReadMode::Auto).unwrap_err();
    assert_eq!((loaded.kind(), loaded.path()), (error.kind(), error.path()), "{what}");
    for other in (0..3).filter(|&other| other != shard) {
        assert_eq!(model.view(&name(other, 2)).unwrap().bytes(), [24, 25, 26], "{what}");
    }
    let faults = check(&files, &ShardedModel::options()).unwrap().faults;
    assert_eq!(faults.iter().map(|fault| fault.kind()).collect::<Vec<_>>(), [error.kind()], "{what}");
}

/// Asserts that this shard means what the honest one does.
fn assert_same(shard: usize, file: ShardBuilder, what: &str) {
    let files = checkpoint(&[(shard, file)]);
    let model = open(&files);
    let loaded = load_all(&model, ReadMode::Buffered).unwrap_or_else(|error| panic!("{what}: {error}"));
    let bytes: Vec<u8> = (0..27).collect();
    for (place, range) in [0..16, 16..24, 24..27].into_iter().enumerate() {
        assert_eq!(loaded.get(&name(shard, place)).unwrap().bytes(), &bytes[range], "{what}");
    }
}

/// Every tensor of every shard.
fn places() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|shard| (0..3).map(move |place| (shard, place)))
}

/// An honest shard with one entry changed.
fn changed(shard: usize, place: usize, change: impl FnOnce(&mut Entry)) -> ShardBuilder {
    let mut entries = honest(shard);
    change(&mut entries[place]);
    shard_of_entries(&entries)
}

/// Texts that are no integer of 64 bits, though some reader takes them for one.
const NO_INTEGERS: [&str; 33] = [
    "1e2",
    "1E0",
    "16e-1",
    "1.0",
    "16.0",
    "0.0",
    "1E400",
    "-1",
    "-0",
    "-0.0",
    "0x10",
    "01",
    "00",
    "007",
    "+1",
    ".5",
    "1.",
    "1e",
    "1_000",
    "Infinity",
    "NaN",
    "-Infinity",
    "null",
    "true",
    "false",
    "\"1\"",
    "\"\"",
    "[1]",
    "[]",
    "{}",
    "18446744073709551616",
    "99999999999999999999999999",
    "1 2",
];

#[test]
fn what_is_no_integer_is_refused_in_every_number_of_every_entry() {
    for (shard, place) in places() {
        for (number, text) in NO_INTEGERS.into_iter().enumerate() {
            // Each text in each field, but not each at each place, which would take its time.
            let field = (number + shard + place) % 4;
            let file = changed(shard, place, |entry| match field {
                0 | 1 => entry.dims[field] = text.to_owned(),
                _ => entry.offsets[field - 2] = text.to_owned(),
            });
            let what = format!("{text} in field {field} of {}", name(shard, place));
            assert_refused(shard, file, &["InvalidEntry", "Json"], Some(&name(shard, place)), &what);
        }
    }
}

#[test]
fn numbers_at_the_end_of_64_bits_are_numbers_that_do_not_fit() {
    for (shard, place) in places() {
        for number in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 53, 1 << 32] {
            for (field, kinds) in [
                (0, &["SizeOverflow", "SizeMismatch"][..]),
                (1, &["SizeOverflow", "SizeMismatch"]),
                (2, &["ReversedOffsets"]),
                (3, &["SizeMismatch"]),
            ] {
                let file = changed(shard, place, |entry| match field {
                    0 | 1 => entry.dims[field] = number.to_string(),
                    _ => entry.offsets[field - 2] = number.to_string(),
                });
                let what = format!("{number} in field {field}");
                assert_refused(shard, file, kinds, Some(&name(shard, place)), &what);
            }
        }
    }
}

#[test]
fn an_offset_that_is_off_by_some_bytes_is_refused_wherever_it_is() {
    for (shard, place) in places() {
        for by in [-8_i64, -1, 1, 8] {
            let moved = |text: &str| (text.parse::<i64>().unwrap() + by).to_string();
            let of_one = |field: usize| {
                changed(shard, place, |entry| entry.offsets[field] = moved(&entry.offsets[field]))
            };
            let both =
                changed(shard, place, |entry| entry.offsets = entry.offsets.clone().map(|text| moved(&text)));
            let kinds = ["SizeMismatch", "ReversedOffsets", "InvalidEntry"];
            for file in [of_one(0), of_one(1)] {
                assert_refused(shard, file, &kinds, Some(&name(shard, place)), &format!("off by {by}"));
            }
            let kinds = ["Hole", "Overlap", "Truncated", "InvalidEntry"];
            assert_refused(shard, both, &kinds, None, &format!("moved by {by}"));
        }
    }
}

#[test]
fn a_dtype_that_is_no_string_is_refused_and_one_that_is_not_known_is_raw_bytes() {
    for (shard, place) in places() {
        let with = |dtype: &str| changed(shard, place, |entry| entry.dtype = dtype.to_owned());
        let tensor = name(shard, place);
        for dtype in [
            "null",
            "7",
            "true",
            r#"["F32"]"#,
            r#"{"F32":null}"#,
            "{}",
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "F32",
            "'F32'",
        ] {
            assert_refused(shard, with(dtype), &["InvalidEntry", "Json"], Some(&tensor), dtype);
        }
        for dtype in
            [r#"" F32""#, r#""F32 ""#, r#""f32""#, r#""""#, r#""F\u00332""#, r#""\u0000""#, r#""F32\u202e""#]
        {
            let known = dtype == r#""F\u00332""#;
            // The same type by an escape fits the first tensor only.
            if known && place != 0 {
                continue;
            }
            assert_same(shard, with(dtype), dtype);
            let checked =
                check(checkpoint(&[(shard, with(dtype))]).path(), &ShardedModel::options()).unwrap();
            let warned = checked.warnings.iter().any(|warning| warning.kind == "UnknownDtype");
            assert_eq!((checked.is_sound(), warned), (true, !known), "{dtype}");
        }
    }
}

#[test]
fn entries_of_another_form_are_refused_wherever_they_are() {
    for (shard, place) in places() {
        for (raw, kinds) in [
            ("null", &["InvalidEntry"][..]),
            ("1", &["InvalidEntry"]),
            ("\"F32\"", &["InvalidEntry"]),
            ("[]", &["InvalidEntry"]),
            (r#"["F32",[2,2],[0,16]]"#, &["InvalidEntry"]),
            ("{}", &["MissingField"]),
            (r#"{"shape":[1],"data_offsets":[0,4]}"#, &["MissingField"]),
            (r#"{"dtype":"F32","data_offsets":[0,4]}"#, &["MissingField"]),
            (r#"{"dtype":"F32","shape":[1]}"#, &["MissingField"]),
            (r#"{"Dtype":"F32","shape":[1],"data_offsets":[0,4]}"#, &["MissingField"]),
            (r#"{"dtype":"F32","shape":[1],"offsets":[0,4]}"#, &["MissingField"]),
            (r#"{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}"#, &["DuplicateField"]),
            (r#"{"dtype":"F32","d\u0074ype":"F32","shape":[1],"data_offsets":[0,4]}"#, &["DuplicateField"]),
            (r#"{"dtype":"F32","shape":[1],"s\u0068ape":[1],"data_offsets":[0,4]}"#, &["DuplicateField"]),
            (
                r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"data\u005foffsets":[0,4]}"#,
                &["DuplicateField"],
            ),
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[]}"#, &["InvalidEntry"]),
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[0]}"#, &["InvalidEntry"]),
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}"#, &["InvalidEntry"]),
            (r#"{"dtype":"F32","shape":null,"data_offsets":[0,4]}"#, &["InvalidEntry"]),
            (r#"{"dtype":"F32","shape":4,"data_offsets":[0,4]}"#, &["InvalidEntry"]),
            (r#"{"dtype":"F4","shape":[3],"data_offsets":[0,2]}"#, &["PartialByte"]),
            (r#"{"dtype":"F6_E3M2","shape":[],"data_offsets":[0,1]}"#, &["PartialByte"]),
            (r#"{"dtype":"F32","shape":[],"data_offsets":[0,0]}"#, &["SizeMismatch"]),
            (r#"{"dtype":"F32","shape":[0,2],"data_offsets":[0,4]}"#, &["SizeMismatch"]),
        ] {
            let file = changed(shard, place, |entry| entry.raw = Some(raw.to_owned()));
            assert_refused(shard, file, kinds, Some(&name(shard, place)), raw);
        }
    }
}

#[test]
fn a_name_that_occurs_twice_is_refused_whichever_of_them_it_is() {
    for shard in 0..3 {
        for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)] {
            let twice = name(shard, other);
            for spelt in [
                twice.clone(),
                twice.replace('l', "\\u006c"),
                twice.replace('l', "\\u006C"),
                twice.replace('.', "\\u002e"),
            ] {
                let file = changed(shard, one, |entry| entry.name = format!("\"{spelt}\""));
                assert_refused(shard, file, &["DuplicateTensor"], Some(&twice), &spelt);
            }
        }
    }
}

#[test]
fn another_way_to_write_the_same_is_the_same() {
    for (shard, place) in places() {
        let escaped: String =
            name(shard, place).encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        assert_same(shard, changed(shard, place, |entry| entry.name = format!("\"{escaped}\"")), &escaped);
        let spaced = changed(shard, place, |entry| {
            entry.dims = entry.dims.clone().map(|dim| format!("\t{dim}\n"));
            entry.offsets = entry.offsets.clone().map(|offset| format!(" {offset}\r"));
        });
        assert_same(shard, spaced, "spaces");
        let other_order = changed(shard, place, |entry| {
            let Entry { dtype, dims, offsets, .. } = entry.clone();
            let (dims, offsets) = (dims.join(","), offsets.join(","));
            entry.raw = Some(format!(
                r#"{{"x":[1e9,{{}}],"data_offsets":[{offsets}],"sh\u0061pe":[{dims}],"dtype":{dtype}}}"#
            ));
        });
        assert_same(shard, other_order, "another order, an unknown field");
    }
}

#[test]
fn faults_of_several_shards_are_all_found_and_none_hides_another() {
    let broken = changed(0, 1, |entry| entry.offsets[1] = "23".to_owned());
    let cut = shard_of_entries(&honest(2)).truncate(200);
    let files = checkpoint(&[(0, broken), (2, cut)]);
    let faults = check(&files, &ShardedModel::options()).unwrap().faults;
    let kinds: Vec<_> = faults.iter().map(|fault| fault.kind()).collect();
    assert_eq!(kinds, ["SizeMismatch", "HeaderTruncated"]);
    let model = open(&files);
    assert!(kinds.contains(&load_all(&model, ReadMode::Auto).unwrap_err().kind()));
    model.view(&name(1, 0)).unwrap();
}

/// The first fault that a reader meets in the file is told: that of a length before that of the text, of the text before
/// that of the entries, of the entries before that of the data.
#[test]
fn of_several_faults_of_one_shard_that_which_hides_the_others_is_told() {
    let text = |entries: &[Entry]| entries.iter().map(Entry::text).collect::<Vec<_>>().join(",");
    let mut entries = honest(1);
    entries[0].offsets[1] = "15".to_owned();
    entries[1].dtype = "null".to_owned();
    let file = ShardBuilder::new().raw_header(format!("{{{}}}", text(&entries))).data([0; 5]);
    assert_refused(1, file.clone(), &["InvalidEntry"], Some(&name(1, 1)), "an entry before sizes");
    assert_refused(1, file.clone().header_len(1 << 40), &["TooLong"], None, "the length before the text");
    entries[1].dtype = "\"BF16\"".to_owned();
    let file = ShardBuilder::new().raw_header(format!("{{{}}}", text(&entries))).data([0; 5]);
    assert_refused(1, file, &["SizeMismatch"], Some(&name(1, 0)), "a size before a short file");
}
