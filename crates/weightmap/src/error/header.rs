//! Faults of one shard's header.

use std::fmt;
use std::ops::Range;

use super::quote::quote;
use crate::dtype::Dtype;

/// What helps where a header is in order as JSON and wrong in what it says.
const REPAIR: &str = "fetch the file again, or save it anew with another writer";

/// A rule of the format that a header breaks, with the names and ranges concerned.
///
/// Ranges and offsets of tensors are relative to the data area, as `data_offsets` are; a `byte` counts from
/// the first byte of the header's text, which is byte 8 of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file ends before the 8 bytes that give the header's length.
    #[error(
        "the file has {file_bytes} bytes, fewer than the 8 that give the header's length; \
         it is empty or cut: fetch it again"
    )]
    TooShort {
        /// The length of the file.
        file_bytes: u64,
    },
    /// The file is of another kind: what would be the header's length makes no sense.
    #[error("this is not a safetensors file, it looks like {looks_like}; {advice}")]
    NotSafetensors {
        /// What begins with such bytes, with its article.
        looks_like: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The header's length is 0.
    #[error(
        "the header's length is 0: the file begins with zeros, as one does whose space was set aside and never \
         written (an interrupted download, a full disk); fetch it again"
    )]
    EmptyHeader,
    /// The header is longer than is read.
    #[error("the header's length is {header_bytes} bytes and the limit is {limit}; {}", remedy(*header_bytes, *file_bytes))]
    TooLong {
        /// The length that the file gives.
        header_bytes: u64,
        /// The most that is read.
        limit: u64,
        /// The length of the file.
        file_bytes: u64,
    },
    /// The header ends past the end of the file.
    #[error(
        "the header's length is {header_bytes} bytes, but the file has only {file_bytes}, 8 of them the length; \
         it is cut or damaged: fetch it again"
    )]
    HeaderTruncated {
        /// The length that the file gives.
        header_bytes: u64,
        /// The length of the file.
        file_bytes: u64,
    },
    /// The header is not UTF-8.
    #[error("the header is not UTF-8 from its byte {byte} on; the file is damaged: fetch it again")]
    NotUtf8 {
        /// The first byte that is not.
        byte: u64,
    },
    /// The header begins with a byte-order mark, which JSON does not allow.
    #[error(
        "the header begins with a BOM (byte-order mark), and has to begin with '{{'; write the file again"
    )]
    ByteOrderMark,
    /// The header is not JSON, or no object.
    #[error("the header is not a JSON object: {message}, at byte {byte}{}; the file is damaged: fetch it again", Inside { tensor, field })]
    Json {
        /// The tensor in whose entry the fault is.
        tensor: Option<Box<str>>,
        /// The field of that entry.
        field: Option<&'static str>,
        /// Where the fault was noticed.
        byte: u64,
        /// What was expected and what was found.
        message: Box<str>,
    },
    /// A tensor's entry is JSON, but not of the right shape.
    #[error("{}{}: {message}, at byte {byte} of the header; {REPAIR}", Named(tensor), OfField(*field))]
    InvalidEntry {
        /// The tensor.
        tensor: Box<str>,
        /// The field, where the fault is in one.
        field: Option<&'static str>,
        /// Where the fault was noticed.
        byte: u64,
        /// What was expected and what was found.
        message: Box<str>,
    },
    /// A tensor's entry lacks a field.
    #[error("{}: no `{field}`; an entry has `dtype`, `shape` and `data_offsets`; {REPAIR}", Named(tensor))]
    MissingField {
        /// The tensor.
        tensor: Box<str>,
        /// The field.
        field: &'static str,
    },
    /// A tensor's entry has the same field twice.
    #[error("{}: `{field}` occurs twice, and readers differ in which they take; {REPAIR}", Named(tensor))]
    DuplicateField {
        /// The tensor.
        tensor: Box<str>,
        /// The field.
        field: &'static str,
    },
    /// Two entries have the same name, once escapes are undone.
    #[error("{}: occurs twice in the header, and readers differ in which they take; {REPAIR}", Named(tensor))]
    DuplicateTensor {
        /// The name.
        tensor: Box<str>,
    },
    /// `__metadata__` is not an object.
    #[error(
        "`__metadata__` has to map strings to strings: {message}, at byte {byte} of the header; {REPAIR}"
    )]
    InvalidMetadata {
        /// Where the fault was noticed.
        byte: u64,
        /// What was expected and what was found.
        message: Box<str>,
    },
    /// A value in `__metadata__` is not a string.
    #[error(
        "`__metadata__` key {}: {message}, at byte {byte} of the header; write the value as a string, or have it kept as text \
         with `OpenOptions::lenient` (`--lenient`)",
        quote(key)
    )]
    InvalidMetadataValue {
        /// The key of the value.
        key: Box<str>,
        /// Where the fault was noticed.
        byte: u64,
        /// What was expected and what was found.
        message: Box<str>,
    },
    /// `__metadata__` occurs twice.
    #[error("`__metadata__` occurs twice in the header, and readers differ in which they take; {REPAIR}")]
    DuplicateMetadata,
    /// A key occurs twice inside `__metadata__`.
    #[error(
        "`__metadata__` key {}: occurs twice, and readers differ in which they take; {REPAIR}",
        quote(key)
    )]
    DuplicateMetadataKey {
        /// The key.
        key: Box<str>,
    },
    /// A tensor ends before it begins.
    #[error("{}: its `data_offsets` [{begin}, {end}] end before they begin; {REPAIR}", Named(tensor))]
    ReversedOffsets {
        /// The tensor.
        tensor: Box<str>,
        /// The first offset.
        begin: u64,
        /// The second offset.
        end: u64,
    },
    /// A tensor's shape has more bytes than 64 bits can count.
    #[error("{}: {dtype} of shape {} has 2^64 bytes or more; {REPAIR}", Named(tensor), Dims(shape))]
    SizeOverflow {
        /// The tensor.
        tensor: Box<str>,
        /// Its dtype.
        dtype: Dtype,
        /// Its shape.
        shape: Box<[u64]>,
    },
    /// The elements of a tensor, each less than a byte, do not fill its last byte.
    #[error(
        "{}: {dtype} of shape {} has {bits} bits, which are not whole bytes; {REPAIR}",
        Named(tensor),
        Dims(shape)
    )]
    PartialByte {
        /// The tensor.
        tensor: Box<str>,
        /// Its dtype.
        dtype: Dtype,
        /// Its shape.
        shape: Box<[u64]>,
        /// The bits of all elements.
        bits: u128,
    },
    /// A tensor's range is not as long as its dtype and shape say.
    #[error(
        "{}: {dtype} of shape {} has {expected} bytes, but its range {}..{} has {}; {REPAIR}",
        Named(tensor), Dims(shape), range.start, range.end, range.end.saturating_sub(range.start)
    )]
    SizeMismatch {
        /// The tensor.
        tensor: Box<str>,
        /// Its dtype.
        dtype: Dtype,
        /// Its shape.
        shape: Box<[u64]>,
        /// The bytes that dtype and shape ask for.
        expected: u64,
        /// Where the tensor is said to lie.
        range: Range<u64>,
    },
    /// Bytes before a tensor belong to none; the format has no gaps.
    #[error(
        "hole: the bytes {}..{} of the data, before {}, belong to no tensor; \
         save the file again with a writer that leaves no gaps",
        hole.start, hole.end, Named(tensor)
    )]
    Hole {
        /// The tensor after the hole.
        tensor: Box<str>,
        /// The bytes that belong to none.
        hole: Range<u64>,
    },
    /// Two tensors share bytes, all of them or some; the format has no aliases.
    #[error(
        "overlap: {} at {}..{} begins inside {} at {}..{}; a tensor's bytes are its own; \
         save tied weights once, or each with bytes of its own",
        Named(tensor), range.start, range.end, Named(other), other_range.start, other_range.end
    )]
    Overlap {
        /// The tensor that begins later, or comes later in the header.
        tensor: Box<str>,
        /// Its range.
        range: Range<u64>,
        /// The tensor that it overlaps.
        other: Box<str>,
        /// The range of that one.
        other_range: Range<u64>,
    },
    /// The file ends before its tensors do.
    #[error(
        "truncated: the tensors take {expected} bytes after the header and the file has {found} of them, {} are \
         missing, from {} on; fetch it again",
        expected.saturating_sub(*found), Named(tensor)
    )]
    Truncated {
        /// The first tensor that is cut or absent.
        tensor: Box<str>,
        /// The bytes of data that the header describes.
        expected: u64,
        /// The bytes of data that the file has.
        found: u64,
    },
    /// The file goes on after its last tensor.
    #[error(
        "trailing bytes: the tensors end at byte {} of the data, and {} more follow, which belong to none; \
         the header is damaged or something was appended: fetch the file again, or pass over these bytes with \
         `OpenOptions::lenient` (`--lenient`)",
        trailing.start, trailing.end.saturating_sub(trailing.start)
    )]
    TrailingBytes {
        /// The bytes that belong to no tensor.
        trailing: Range<u64>,
    },
}

impl HeaderError {
    /// The name of the variant, stable, as listed in `docs/errors.md`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "TooShort",
            Self::NotSafetensors { .. } => "NotSafetensors",
            Self::EmptyHeader => "EmptyHeader",
            Self::TooLong { .. } => "TooLong",
            Self::HeaderTruncated { .. } => "HeaderTruncated",
            Self::NotUtf8 { .. } => "NotUtf8",
            Self::ByteOrderMark => "ByteOrderMark",
            Self::Json { .. } => "Json",
            Self::InvalidEntry { .. } => "InvalidEntry",
            Self::MissingField { .. } => "MissingField",
            Self::DuplicateField { .. } => "DuplicateField",
            Self::DuplicateTensor { .. } => "DuplicateTensor",
            Self::InvalidMetadata { .. } => "InvalidMetadata",
            Self::InvalidMetadataValue { .. } => "InvalidMetadataValue",
            Self::DuplicateMetadata => "DuplicateMetadata",
            Self::DuplicateMetadataKey { .. } => "DuplicateMetadataKey",
            Self::ReversedOffsets { .. } => "ReversedOffsets",
            Self::SizeOverflow { .. } => "SizeOverflow",
            Self::PartialByte { .. } => "PartialByte",
            Self::SizeMismatch { .. } => "SizeMismatch",
            Self::Hole { .. } => "Hole",
            Self::Overlap { .. } => "Overlap",
            Self::Truncated { .. } => "Truncated",
            Self::TrailingBytes { .. } => "TrailingBytes",
        }
    }

    /// The tensor that the fault is in, where it is in one; of an overlap the later one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Json { tensor, .. } => tensor.as_deref(),
            Self::InvalidEntry { tensor, .. }
            | Self::MissingField { tensor, .. }
            | Self::DuplicateField { tensor, .. }
            | Self::DuplicateTensor { tensor }
            | Self::ReversedOffsets { tensor, .. }
            | Self::SizeOverflow { tensor, .. }
            | Self::PartialByte { tensor, .. }
            | Self::SizeMismatch { tensor, .. }
            | Self::Hole { tensor, .. }
            | Self::Overlap { tensor, .. }
            | Self::Truncated { tensor, .. } => Some(tensor),
            Self::TooShort { .. }
            | Self::NotSafetensors { .. }
            | Self::EmptyHeader
            | Self::TooLong { .. }
            | Self::HeaderTruncated { .. }
            | Self::NotUtf8 { .. }
            | Self::ByteOrderMark
            | Self::InvalidMetadata { .. }
            | Self::InvalidMetadataValue { .. }
            | Self::DuplicateMetadata
            | Self::DuplicateMetadataKey { .. }
            | Self::TrailingBytes { .. } => None,
        }
    }
}

/// What to do about a header of more bytes than are read.
fn remedy(header_bytes: u64, file_bytes: u64) -> String {
    if header_bytes >= file_bytes {
        return format!(
            "the file has only {file_bytes}: it is damaged, or another kind of file; fetch it again"
        );
    }
    "if the file is to be trusted, raise the limit with `OpenOptions::max_header_bytes` (`--max-header-bytes`)".to_owned()
}

struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}", quote(self.0))
    }
}

struct OfField(Option<&'static str>);

impl fmt::Display for OfField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |field| write!(f, ", `{field}`"))
    }
}

struct Inside<'a> {
    tensor: &'a Option<Box<str>>,
    field: &'a Option<&'static str>,
}

impl fmt::Display for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tensor) = self.tensor else { return Ok(()) };
        write!(f, ", in {}{}", Named(tensor), OfField(*self.field))
    }
}

/// A shape, cut where it has very many dimensions.
struct Dims<'a>(&'a [u64]);

impl fmt::Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_DIMS: usize = 16;
        match self.0.get(..MOST_DIMS) {
            Some(some) if some.len() < self.0.len() => write!(f, "{some:?}… ({} dimensions)", self.0.len()),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_name_of_its_variant() {
        for error in [
            HeaderError::EmptyHeader,
            HeaderError::TooShort { file_bytes: 3 },
            HeaderError::Hole { tensor: "a".into(), hole: 0..8 },
        ] {
            assert_eq!(format!("{error:?}").split(' ').next(), Some(error.kind()));
        }
    }

    #[test]
    fn names_are_escaped_and_cut() {
        let clear_screen = HeaderError::DuplicateTensor { tensor: "\u{1b}[2J\0".into() }.to_string();
        assert!(!clear_screen.contains('\u{1b}') && clear_screen.contains(r"\u{1b}[2J\0"), "{clear_screen}");
        let long = HeaderError::DuplicateTensor { tensor: "é".repeat(1 << 20).into() };
        assert!(long.to_string().len() < 600 && long.to_string().contains("(2097152 bytes)"));
        assert_eq!(long.tensor().map(str::len), Some(2 << 20));
    }

    #[test]
    fn shapes_are_cut() {
        let shape = vec![1; 10_000].into();
        let error = HeaderError::SizeOverflow { tensor: "a".into(), dtype: Dtype::U8, shape };
        assert!(error.to_string().len() < 200 && error.to_string().contains("(10000 dimensions)"));
    }
}
