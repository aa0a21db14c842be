//! The reference implementation and this one: they agree on a file, or the difference is a policy that has a
//! name.

use proptest::prelude::*;
use safetensors::SafeTensors;
use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::{ShardBuilder, TempModel};

use crate::support::load_all;

/// Name, type, shape, bytes: sorted by name.
type Content = Vec<(String, String, Vec<u64>, Vec<u8>)>;

/// What the reference makes of a file.
fn theirs(file: &[u8]) -> Result<Content, String> {
    let read = SafeTensors::deserialize(file).map_err(|error| format!("{error:?}"))?;
    let mut content: Content = read
        .iter()
        .map(|(name, tensor)| {
            let shape = tensor.shape().iter().map(|&dim| dim as u64).collect();
            (name.to_owned(), format!("{:?}", tensor.dtype()), shape, tensor.data().to_vec())
        })
        .collect();
    content.sort();
    Ok(content)
}

/// What the library makes of it; an error by its kind.
fn ours(file: &[u8]) -> Result<Content, String> {
    let files = TempModel::empty();
    let path = files.file("model.safetensors");
    std::fs::write(&path, file).unwrap();
    let model = ShardedModel::open(path).map_err(|error| error.kind().to_owned())?;
    let loaded = load_all(&model, ReadMode::Buffered).map_err(|error| error.kind().to_owned())?;
    let content = |tensor: &weightmap::Tensor| {
        (
            tensor.name().to_owned(),
            tensor.dtype().name().to_owned(),
            tensor.shape().to_vec(),
            tensor.bytes().to_vec(),
        )
    };
    let mut content: Content = loaded.tensors().iter().map(content).collect();
    content.sort();
    Ok(content)
}

/// Where the two may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// A name occurs twice: the reference takes the last.
    DuplicateKeys,
    /// A tensor is written as a list, or a dtype as a map: the reference takes them, as its deserialiser
    /// does.
    OtherNotation,
    /// The file has a dtype that is not known: the reference refuses all of it.
    UnknownDtype,
    /// A shape has a zero after dimensions whose product overflows: the reference refuses it, and takes other
    /// orders.
    ZeroSize,
}

/// The policy that a difference follows from, if it follows from one.
fn policy(file: &[u8], ours: &Result<Content, String>, theirs: &Result<Content, String>) -> Option<Policy> {
    match (ours, theirs) {
        (Err(kind), Ok(_)) => match kind.as_str() {
            "DuplicateTensor" | "DuplicateMetadataKey" => Some(Policy::DuplicateKeys),
            "InvalidEntry" => has_other_notation(file).then_some(Policy::OtherNotation),
            _ => None,
        },
        (Ok(content), Err(error)) => {
            let is_unknown = |dtype: &str| weightmap::Dtype::known().all(|known| known.name() != dtype);
            let unknown = content.iter().any(|(_, dtype, ..)| is_unknown(dtype));
            let zero = content.iter().any(|(_, _, shape, _)| shape.contains(&0));
            match error.split('(').next() {
                Some("InvalidHeaderDeserialization") => unknown.then_some(Policy::UnknownDtype),
                Some("ValidationOverflow") => zero.then_some(Policy::ZeroSize),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether an entry of the header is a list, or its dtype a map.
fn has_other_notation(file: &[u8]) -> bool {
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + header_len(file)]).unwrap();
    header.as_object().unwrap().values().any(|entry| entry.is_array() || entry["dtype"].is_object())
}

/// Whether they agree: both refuse, or both give the same. If not, the policy that says why.
fn compare(file: &[u8]) -> Result<bool, Policy> {
    let (ours, theirs) = (ours(file), theirs(file));
    let agree = match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        (Err(_), Err(_)) => true,
        _ => false,
    };
    if agree {
        return Ok(ours.is_ok());
    }
    Err(policy(file, &ours, &theirs).unwrap_or_else(|| {
        let header = String::from_utf8_lossy(&file[..file.len().min(2000)]);
        panic!("no policy explains it:\nours {ours:?}\ntheirs {theirs:?}\n{header:?}")
    }))
}

/// A header of this text, and so many zeros of data.
fn forged(header: &str, data: usize) -> Vec<u8> {
    ShardBuilder::new().raw_header(header).data(vec![0; data]).build()
}

#[test]
fn each_policy_is_a_difference_and_no_other_kind_of_file_is() {
    let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    let differing = [
        (Policy::DuplicateKeys, format!(r#"{{"a":{entry},"a":{entry}}}"#), 4),
        (Policy::DuplicateKeys, format!(r#"{{"a":{entry},"\u0061":{entry}}}"#), 4),
        (Policy::DuplicateKeys, r#"{"__metadata__":{"a":"1","a":"2"}}"#.to_owned(), 0),
        (Policy::OtherNotation, r#"{"a":["U8",[4],[0,4]]}"#.to_owned(), 4),
        (
            Policy::OtherNotation,
            r#"{"a":{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}}"#.to_owned(),
            4,
        ),
        (Policy::UnknownDtype, r#"{"a":{"dtype":"Q8_0","shape":[4],"data_offsets":[0,4]}}"#.to_owned(), 4),
        (
            Policy::ZeroSize,
            r#"{"a":{"dtype":"U8","shape":[9223372036854775808,4,0],"data_offsets":[0,0]}}"#.to_owned(),
            0,
        ),
    ];
    for (policy, header, data) in differing {
        assert_eq!(compare(&forged(&header, data)), Err(policy), "{header}");
    }
}

#[test]
fn what_is_odd_and_accepted_by_both_is_the_same() {
    let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    for header in [
        format!(" \t\n{{\"a\":{entry}}}\r\n"),
        format!(r#"{{"__metadata__":null,"a":{entry}}}"#),
        format!(r#"{{"a":{entry},"__metadata__":{{"b":"c"}}}}"#),
        r#"{"a":{"extra":[{"x":1.5e3}],"data_offsets":[0,4],"shape":[2,2],"dtype":"U8"}}"#.to_owned(),
        r#"{"\u00e9\ud83d\ude00":{"dtype":"U8","shape":[4,1,1],"data_offsets":[0,4]}}"#.to_owned(),
        r#"{"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[0,9223372036854775808,9],"data_offsets":[4,4]}}"#.to_owned(),
    ] {
        assert_eq!(compare(&forged(&header, 4)), Ok(true), "{header}");
    }
}

#[test]
fn what_only_a_careless_reader_accepts_is_refused_by_both() {
    for (header, data) in [
        (r#"{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}"#, 4),
        (r#"{"a":{"dtype":"U8","shape":[04],"data_offsets":[0,4]}}"#, 4),
        (r#"{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}"#, 0),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#, 8),
        (r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"shape":[4]}}"#, 4),
        (r#"{"__metadata__":{"a":1}}"#, 0),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, 0),
        ("{}\0", 0),
        ("{} x", 0),
        ("\u{feff}{}", 0),
        ("", 8),
        ("{}", 1),
    ] {
        assert_eq!(compare(&forged(header, data)), Ok(false), "{header:?}");
    }
}

/// Files as the testkit writes them: up to eight tensors of any name, type and shape.
fn files() -> impl Strategy<Value = Vec<u8>> {
    let dtype = prop::sample::select(weightmap::Dtype::known().collect::<Vec<_>>());
    let tensor = (dtype, prop::collection::vec(0..4_u64, 0..3));
    let names = prop::collection::btree_map("\\PC{0,6}|[a-c]|layers\\.[0-9]", tensor, 0..8);
    (names, 0..9_usize, any::<bool>()).prop_map(|(tensors, padding, metadata)| {
        let mut shard = ShardBuilder::new().header_padding(padding);
        if metadata {
            shard = shard.metadata("format", "pt").metadata("é\"\n", "");
        }
        let add = |shard: ShardBuilder,
                   (name, (dtype, mut shape)): (String, (weightmap::Dtype, Vec<u64>))| {
            if dtype.bits().is_some_and(|bits| bits < 8) {
                shape.push(8);
            }
            shard.pattern(&name, dtype.name(), &shape)
        };
        tensors.into_iter().filter(|(name, _)| name != "__metadata__").fold(shard, add).build()
    })
}

/// The length of a file's header, which begins at byte 8.
fn header_len(file: &[u8]) -> usize {
    usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn both_read_the_same_in_a_file_that_is_right(file in files()) {
        prop_assert_eq!(compare(&file), Ok(true));
    }

    #[test]
    fn a_changed_byte_of_the_header_makes_no_other_difference(mut file in files(), place: prop::sample::Index, byte: u8) {
        let place = 8 + place.index(header_len(&file));
        file[place] = byte;
        let _ = compare(&file);
    }

    #[test]
    fn a_changed_character_of_json_makes_no_other_difference(
        mut file in files(),
        place: prop::sample::Index,
        byte in prop::sample::select(&b"{}[]:,\" 0123456789-.eEtfn\\u/*"[..]),
    ) {
        let place = 8 + place.index(header_len(&file));
        file[place] = byte;
        let _ = compare(&file);
    }

    #[test]
    fn a_token_that_is_lost_doubled_moved_or_another_makes_no_other_difference(
        file in files(),
        change in crate::support::tokens::changes(),
    ) {
        let (header, data) = file[8..].split_at(header_len(&file));
        let header = change.of(std::str::from_utf8(header).unwrap());
        let _ = compare(&ShardBuilder::new().raw_header(header).data(data).build());
    }

    #[test]
    fn another_number_makes_no_other_difference(mut file in files(), place: prop::sample::Index, digit in b'0'..=b'9') {
        let digits: Vec<_> = (8..8 + header_len(&file)).filter(|&place| file[place].is_ascii_digit()).collect();
        if !digits.is_empty() {
            file[digits[place.index(digits.len())]] = digit;
        }
        let _ = compare(&file);
    }

    #[test]
    fn a_cut_or_grown_file_is_refused_by_both(mut file in files(), place: prop::sample::Index, grown in 1..20_usize) {
        let cut = place.index(file.len());
        prop_assert_eq!(compare(&file[..cut]), Ok(false));
        file.resize(file.len() + grown, b' ');
        prop_assert_eq!(compare(&file), Ok(false));
    }

    #[test]
    fn another_header_length_makes_no_other_difference(mut file in files(), len in 0..2000_u64) {
        file[..8].copy_from_slice(&len.to_le_bytes());
        let _ = compare(&file);
    }
}
