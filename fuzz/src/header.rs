//! The header of a file, compared with what the reference implementation makes of it.

use std::collections::HashMap;
use std::ops::Range;

use safetensors::SafeTensors;
use safetensors::tensor::Metadata;
use weightmap::{Dtype, Header, HeaderError};

use crate::json::{Json, is_refused_for_content};

/// What the reference reads at most, and the library by default.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Files that lack data are completed with zeros up to so many bytes.
const MAX_FILE_BYTES: u64 = 1 << 16;
/// However long a file is, an error about it is not.
const MAX_MESSAGE_BYTES: usize = 4000;

/// Name, type, shape, and where it begins and ends in the data.
type Tensor = (String, String, Vec<u64>, (u64, u64));

/// What a file holds: tensors and `__metadata__`, both sorted.
#[derive(Debug, PartialEq)]
struct Content {
    tensors: Vec<Tensor>,
    metadata: Vec<(String, String)>,
}

/// Where the two may differ.
#[derive(Debug, PartialEq)]
enum Policy {
    /// A name or a key of `__metadata__` occurs twice: the reference takes the last.
    DuplicateKeys,
    /// A tensor is written as a list, or a dtype as a map: the reference takes them, as its deserialiser does.
    OtherNotation,
    /// A dtype is not known: the reference refuses the file, the library typed access to that tensor.
    UnknownDtype,
    /// A shape has a zero after dimensions whose product overflows: the reference refuses it, and takes other orders.
    ZeroSize,
    /// 64 bits hold the bytes of a tensor and not its bits, which the reference counts.
    ManyBits,
    /// The value of an unknown field is passed over, and nothing but its grammar is looked at.
    UnknownField,
}

/// Reads a file, and once more with the data that it lacks.
pub fn run(file: &[u8]) {
    let ours = ours(file);
    compare(file, &ours, &theirs(file));
    let Err(HeaderError::Truncated { expected, .. }) = ours else { return };
    let header = header(file).unwrap_or_default();
    let Some(whole) = expected.checked_add(8 + header.len() as u64) else { return };
    if whole <= MAX_FILE_BYTES {
        let mut file = file.to_vec();
        file.resize(usize::try_from(whole).unwrap(), 0);
        compare(&file, &self::ours(&file), &theirs(&file));
    } else {
        compare(file, &parsed(header, whole), &theirs_of_header(header));
    }
}

/// The text of a file's header, where it has one.
fn header(file: &[u8]) -> Option<&[u8]> {
    let len = u64::from_le_bytes(*file.first_chunk()?);
    file.get(8..)?.get(..usize::try_from(len).ok()?)
}

fn ours(file: &[u8]) -> Result<Content, HeaderError> {
    let first = &file[..file.len().min(8)];
    let len = Header::parse_len(first, file.len() as u64, MAX_HEADER_BYTES)?;
    assert!(len > 0 && len <= file.len() as u64 - 8);
    parsed(header(file).unwrap(), file.len() as u64)
}

fn parsed(json: &[u8], file_bytes: u64) -> Result<Content, HeaderError> {
    let header = Header::parse(json, file_bytes).inspect_err(|error| {
        let message = error.to_string();
        assert!(!message.is_empty() && message.len() < MAX_MESSAGE_BYTES, "{message}");
    })?;
    check(&header, json, file_bytes);
    let start = header.data_start();
    let tensor = |entry: weightmap::HeaderEntry<'_>| {
        let range = (entry.range.start - start, entry.range.end - start);
        (entry.name.to_owned(), entry.dtype.name().to_owned(), entry.shape.to_vec(), range)
    };
    let mut content = Content {
        tensors: header.iter().map(tensor).collect(),
        metadata: header.metadata().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    };
    content.tensors.sort();
    content.metadata.sort();
    Ok(content)
}

/// That a header keeps to what its type promises.
fn check(header: &Header, json: &[u8], file_bytes: u64) {
    assert_eq!(header.data_start(), 8 + json.len() as u64);
    assert_eq!((header.file_bytes(), header.data_start() + header.data_bytes()), (file_bytes, file_bytes));
    let mut ranges: Vec<Range<u64>> = header.iter().map(|entry| entry.range).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let end = ranges.iter().fold(header.data_start(), |at, range| {
        assert!(range.start == at && range.start <= range.end);
        range.end
    });
    assert_eq!(end, file_bytes);
    assert_eq!((header.len(), header.is_empty()), (ranges.len(), ranges.is_empty()));
    for (number, entry) in (0..).zip(header.iter()) {
        assert_eq!(header.find(entry.name), Some(number));
        assert_eq!(header.get(entry.name).unwrap().range, entry.range);
    }
    assert!(header.warnings().len() <= 4, "{:?}", header.warnings());
    assert!(header.warnings().iter().all(|warning| warning.message.len() < MAX_MESSAGE_BYTES));
}

fn theirs(file: &[u8]) -> Result<Content, String> {
    let (_, metadata) = SafeTensors::read_metadata(file).map_err(|error| format!("{error:?}"))?;
    Ok(content(&metadata))
}

/// What the reference makes of a header alone; it says nothing then of how much data there is.
fn theirs_of_header(json: &[u8]) -> Result<Content, String> {
    serde_json::from_slice(json).map(|metadata| content(&metadata)).map_err(|error| error.to_string())
}

fn content(metadata: &Metadata) -> Content {
    let tensors = metadata.tensors().into_iter().map(|(name, info)| {
        let shape = info.shape.iter().map(|&len| len as u64).collect();
        let (begin, end) = info.data_offsets;
        (name, format!("{:?}", info.dtype), shape, (begin as u64, end as u64))
    });
    let pairs = metadata.metadata().iter().flat_map(HashMap::iter);
    let mut content = Content {
        tensors: tensors.collect(),
        metadata: pairs.map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
    content.tensors.sort();
    content.metadata.sort();
    content
}

fn compare(file: &[u8], ours: &Result<Content, HeaderError>, theirs: &Result<Content, String>) {
    let policy = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => return assert_eq!(ours, theirs),
        (Err(_), Err(_)) => return,
        (Err(error), Ok(_)) => refused(file, error),
        (Ok(ours), Err(error)) => taken(file, ours, error),
    };
    assert!(policy.is_some(), "no policy explains it:\nours {ours:?}\ntheirs {theirs:?}");
}

/// Why the library refuses what the reference takes.
fn refused(file: &[u8], error: &HeaderError) -> Option<Policy> {
    let json: Json = serde_json::from_slice(header(file)?).ok()?;
    let repeats = || json.repeats() || json.all("__metadata__").any(Json::repeats);
    let is_other = |entry: &Json| {
        matches!(entry, Json::List(_)) || entry.all("dtype").any(|dtype| matches!(dtype, Json::Object(_)))
    };
    match error {
        HeaderError::DuplicateTensor { .. } | HeaderError::DuplicateMetadataKey { .. } => {
            repeats().then_some(Policy::DuplicateKeys)
        }
        HeaderError::InvalidEntry { .. } => {
            json.members().iter().any(|(_, entry)| is_other(entry)).then_some(Policy::OtherNotation)
        }
        _ => None,
    }
}

/// Why the library takes what the reference refuses.
fn taken(file: &[u8], ours: &Content, error: &str) -> Option<Policy> {
    let is_unknown = |dtype: &str| Dtype::known().all(|known| known.name() != dtype);
    if ours.tensors.iter().any(|(_, dtype, ..)| is_unknown(dtype)) {
        return Some(Policy::UnknownDtype);
    }
    if let Err(error) = serde_json::from_slice::<Json>(header(file)?) {
        return is_refused_for_content(&error).then_some(Policy::UnknownField);
    }
    if !error.contains("ValidationOverflow") && !error.contains("overflow") {
        return None;
    }
    let bits = |(_, dtype, shape, _): &Tensor| {
        let width = Dtype::from_name(dtype).bits().unwrap_or(0);
        shape.iter().try_fold(u64::from(width), |bits, len| bits.checked_mul(*len))
    };
    if ours.tensors.iter().any(|(_, _, shape, _)| shape.contains(&0)) {
        return Some(Policy::ZeroSize);
    }
    ours.tensors.iter().any(|tensor| bits(tensor).is_none()).then_some(Policy::ManyBits)
}
