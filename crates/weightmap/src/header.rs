//! The header of a shard: which tensors it holds, and where.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod check;
mod json;
mod length;

use std::ops::Range;

use crate::dtype::Dtype;
use crate::error::{HeaderError, quote};
use crate::warning::Warning;
use json::{Document, Row};

/// The bytes before the header's text, which give its length.
pub(crate) const LENGTH_BYTES: u64 = 8;

/// What the header of one shard says, every rule of the format checked.
///
/// A file begins with the length n of the header, 8 bytes, little-endian. Then come n bytes of JSON, an
/// object with an entry for each tensor, and then the data, which the tensors cover exactly: no holes, no
/// overlaps, nothing after the last. A `Header` that exists keeps to this; what is odd but harmless is in
/// [`Header::warnings`].
#[derive(Debug, Clone)]
pub struct Header {
    document: Document,
    data_start: u64,
    /// Those that tensors cover.
    data_bytes: u64,
    file_bytes: u64,
    warnings: Vec<Warning>,
}

/// What is accepted of a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderRules {
    /// The longest one that is read.
    pub(crate) max_bytes: u64,
    /// Whether it is read as [`Header::parse_lenient`] does.
    pub(crate) is_lenient: bool,
}

/// One tensor of a [`Header`].
#[derive(Debug, Clone)]
pub struct HeaderEntry<'a> {
    /// The name, any text at all: it is not fit to be a path or to be printed as it is.
    pub name: &'a str,
    /// The type of the elements.
    pub dtype: &'a Dtype,
    /// The size of each dimension, outermost first; empty for a scalar.
    pub shape: &'a [u64],
    /// The bytes of the file that hold the tensor, counted from the start of the file.
    pub range: Range<u64>,
}

impl Header {
    /// The length in bytes of the header of a file that is `file_bytes` long and begins with `first`: its
    /// first 8 bytes, fewer if it is shorter. Up to 512 tell better what another kind of file it is.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`], [`HeaderError::EmptyHeader`], [`HeaderError::TooLong`] when it is more than
    /// `max_header_bytes`, [`HeaderError::HeaderTruncated`] when it is more than the file holds, and, instead
    /// of the last two, [`HeaderError::NotSafetensors`] when the bytes are those of another kind of file.
    pub fn parse_len(first: &[u8], file_bytes: u64, max_header_bytes: u64) -> Result<u64, HeaderError> {
        length::parse(first, file_bytes, max_header_bytes)
    }

    /// Reads the text of a header, `json`, which is all of it, of a file that is `file_bytes` long.
    ///
    /// # Errors
    /// The first rule that is broken: of JSON, then of each entry in the order of the header, then of the
    /// data area from its start.
    pub fn parse(json: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        Self::parse_as(json, file_bytes, false)
    }

    /// As [`parse`](Self::parse), and accepts two things more, each with a warning: bytes after the last tensor, which
    /// no tensor is given ([`trailing_bytes`](Self::trailing_bytes)), and values of `__metadata__` that are no strings,
    /// which are kept as their JSON text.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse) but [`HeaderError::TrailingBytes`] and [`HeaderError::InvalidMetadataValue`].
    pub fn parse_lenient(json: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        Self::parse_as(json, file_bytes, true)
    }

    pub(crate) fn parse_as(json: &[u8], file_bytes: u64, is_lenient: bool) -> Result<Self, HeaderError> {
        let header_bytes = json.len() as u64;
        let cut = || HeaderError::HeaderTruncated { header_bytes, file_bytes };
        let data_start = header_bytes.checked_add(LENGTH_BYTES).ok_or_else(cut)?;
        let room = file_bytes.checked_sub(data_start).ok_or_else(cut)?;
        let document = std::str::from_utf8(json)
            .map_err(|error| HeaderError::NotUtf8 { byte: error.valid_up_to() as u64 })
            .and_then(|text| json::read(text, is_lenient))
            .map_err(|error| length::or_other_file(error, json))?;
        check::sizes(&document)?;
        let data_bytes = check::coverage(&document, room)?;
        if data_bytes < room && !is_lenient {
            return Err(HeaderError::TrailingBytes { trailing: data_bytes..room });
        }
        let mut header = Self { document, data_start, data_bytes, file_bytes, warnings: Vec::new() };
        header.warnings = header.oddities(json);
        Ok(header)
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.document.rows.len()
    }

    /// Whether the file holds no tensor at all, which is legal.
    pub fn is_empty(&self) -> bool {
        self.document.rows.is_empty()
    }

    /// The number of a tensor, counted from 0 in the order of the header.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.document.names.find(name)
    }

    /// The tensor with this number.
    pub fn entry(&self, number: u32) -> Option<HeaderEntry<'_>> {
        let row = self.document.rows.get(number as usize)?;
        Some(self.to_entry(self.document.names.get(number), row))
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<HeaderEntry<'_>> {
        self.entry(self.find(name)?)
    }

    /// The tensors in the order of the header, which need not be that of the data.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = HeaderEntry<'_>> {
        self.document.names.iter().zip(&self.document.rows).map(|(name, row)| self.to_entry(name, row))
    }

    /// The keys and values of `__metadata__`, in the order of the header.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.document.metadata_keys.iter().zip(self.document.metadata_values.iter().map(AsRef::as_ref))
    }

    /// The value of a key of `__metadata__`.
    pub(crate) fn metadata_value(&self, key: &str) -> Option<&str> {
        let number = usize::try_from(self.document.metadata_keys.find(key)?).ok()?;
        self.document.metadata_values.get(number).map(AsRef::as_ref)
    }

    /// Where the data begins in the file, in bytes; writers may leave it at any alignment.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The bytes of data, which is the bytes of all tensors together.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The bytes of the file after its last tensor, which belong to none: 0 unless the header was read leniently.
    pub fn trailing_bytes(&self) -> u64 {
        // The data ends in the file.
        self.file_bytes - self.data_start - self.data_bytes
    }

    /// The length of the whole file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// What is odd about the header and was accepted, at most one of each kind; `file` is not set.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn to_entry<'a>(&'a self, name: &'a str, row: &'a Row) -> HeaderEntry<'a> {
        // No tensor ends past the data, so that neither sum is more than `file_bytes`.
        let range = self.data_start + row.range.start..self.data_start + row.range.end;
        HeaderEntry { name, dtype: &row.dtype, shape: self.document.shape(row), range }
    }

    /// What was accepted by leniency, and then what is odd in any case.
    fn oddities(&self, json: &[u8]) -> Vec<Warning> {
        let trailing_bytes = (self.trailing_bytes() > 0).then(|| {
            let message = format!(
                "the tensors end at byte {} of the data, and {} more follow, which belong to none and are passed over",
                self.data_bytes,
                self.trailing_bytes()
            );
            Warning::new("TrailingBytesIgnored", message)
        });
        let metadata_as_text = self.document.other_value.map(|number| {
            let (key, count) = (quote(self.document.metadata_keys.get(number)), self.document.other_values);
            let message = format!(
                "`__metadata__` key {key}: its value is not a string, and kept as its JSON text; such values in this \
                 header: {count}"
            );
            Warning::new("MetadataValueAsText", message)
        });
        [trailing_bytes, metadata_as_text]
            .into_iter()
            .flatten()
            .chain(warnings(json, &self.document))
            .collect()
    }
}

/// One warning of a kind, however often there is reason for it: a file must not make a report of any length.
fn warnings(json: &[u8], document: &Document) -> Vec<Warning> {
    let leading_space = (!json.starts_with(b"{")).then(|| {
        Warning::new("LeadingWhiteSpace", "white space before the header's '{', which some readers refuse")
    });
    let null_metadata = document.metadata_is_null.then(|| {
        Warning::new("NullMetadata", "`__metadata__` is null, not an object, which some readers refuse")
    });
    let unknown_field = document.unknown_field.as_ref().map(|(number, field)| {
        let count = document.unknown_fields;
        let message =
            format!("unknown field {}, ignored; unknown fields in this header: {count}", quote(field));
        Warning::new("UnknownField", message).tensor(document.names.get(*number))
    });
    let mut unknown = document.iter().filter(|(_, row)| matches!(row.dtype, Dtype::Unknown(_)));
    let unknown_dtype = unknown.next().map(|(name, row)| {
        let (dtype, count) = (quote(row.dtype.name()), 1 + unknown.count());
        let message = format!(
            "unknown dtype {dtype}: its size cannot be checked and only its bytes can be had; \
             tensors of unknown dtype in this header: {count}"
        );
        Warning::new("UnknownDtype", message).tensor(name)
    });
    [leading_space, null_metadata, unknown_field, unknown_dtype].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Parses a header that is followed by so many bytes of data.
    pub(super) fn parse(json: impl AsRef<[u8]>, data_bytes: u64) -> Result<Header, HeaderError> {
        let json = json.as_ref();
        Header::parse(json, 8 + json.len() as u64 + data_bytes)
    }

    /// Parses a header of one tensor `t`, with the text of its fields.
    pub(super) fn parse_entry(
        dtype: &str,
        shape: &str,
        offsets: &str,
        data_bytes: u64,
    ) -> Result<Header, HeaderError> {
        parse(format!(r#"{{"t":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}"#), data_bytes)
    }

    #[test]
    fn tensors_are_found_by_name_and_number_in_header_order() {
        let json = r#"{"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},
                       "__metadata__":{"format":"pt","":"é"},
                       "a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}}"#;
        let header = parse(json, 7).unwrap();
        let start = 8 + json.len() as u64;
        assert_eq!((header.len(), header.is_empty()), (2, false));
        assert_eq!((header.data_start(), header.data_bytes(), header.file_bytes()), (start, 7, start + 7));
        assert_eq!(header.iter().map(|entry| entry.name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!((header.find("a"), header.find("c")), (Some(1), None));
        assert!(
            header.entry(2).is_none() && header.get("c").is_none() && header.get("__metadata__").is_none()
        );
        let a = header.get("a").unwrap();
        assert_eq!((a.name, a.dtype, a.shape, a.range), ("a", &Dtype::F32, &[][..], start..start + 4));
        let b = header.entry(0).unwrap();
        assert_eq!((b.name, b.dtype, b.shape, b.range), ("b", &Dtype::U8, &[3][..], start + 4..start + 7));
        assert_eq!(header.metadata().collect::<Vec<_>>(), [("format", "pt"), ("", "é")]);
        assert_eq!(header.warnings(), []);
    }

    #[test]
    fn a_header_without_tensors_is_legal() {
        for json in ["{}", "{}      ", "{}\r \t\n", r#"{"__metadata__":{"key":"value"}}"#] {
            let header = parse(json, 0).unwrap();
            assert!(header.is_empty() && header.warnings().is_empty());
        }
    }

    #[test]
    fn a_file_shorter_than_its_header_is_cut() {
        for file_bytes in [0, 7, 8, 9] {
            let error = Header::parse(b"{}", file_bytes).unwrap_err();
            assert_eq!(error, HeaderError::HeaderTruncated { header_bytes: 2, file_bytes });
        }
    }

    fn warning(json: &str, data_bytes: u64) -> Warning {
        match parse(json, data_bytes).unwrap().warnings() {
            [warning] => warning.clone(),
            other => panic!("expected one warning, found {other:?}"),
        }
    }

    #[test]
    fn white_space_before_the_object_is_a_warning() {
        assert_eq!(warning("\t\n{}\r ", 0).kind, "LeadingWhiteSpace");
    }

    #[test]
    fn metadata_that_is_null_is_a_warning() {
        assert_eq!(warning(r#"{"__metadata__":null}"#, 0).kind, "NullMetadata");
    }

    #[test]
    fn unknown_fields_are_one_warning_however_many() {
        let json = r#"{"a":{"x":[{"y":1}],"dtype":"U8","shape":[1],"z":2,"data_offsets":[0,1]},
                       "b":{"dtype":"U8","shape":[1],"data_offsets":[1,2],"x":0}}"#;
        let warning = warning(json, 2);
        assert_eq!((warning.kind, warning.tensor.as_deref()), ("UnknownField", Some("a")));
        assert!(warning.message.contains("\"x\"") && warning.message.ends_with(": 3"), "{}", warning.message);
    }

    #[test]
    fn tensors_of_unknown_dtypes_open_with_one_warning() {
        let json = r#"{"a":{"dtype":"Q8_0","shape":[32],"data_offsets":[0,34]},
                       "b":{"dtype":"f32","shape":[2],"data_offsets":[34,35]}}"#;
        let warning = warning(json, 35);
        assert_eq!((warning.kind, warning.tensor.as_deref()), ("UnknownDtype", Some("a")));
        assert!(
            warning.message.contains("\"Q8_0\"") && warning.message.ends_with(": 2"),
            "{}",
            warning.message
        );
        assert_eq!(parse(json, 35).unwrap().get("b").unwrap().dtype.name(), "f32");
    }

    /// A tensor to be written: name, dtype, shape.
    type Spec = (String, Dtype, Vec<u64>);

    fn specs() -> impl Strategy<Value = Vec<Spec>> {
        let dtype = proptest::sample::select(Dtype::known().collect::<Vec<_>>());
        let shape = prop::collection::vec(prop_oneof![4 => 1..5u64, 1 => Just(0)], 0..4);
        let spec =
            ("\\PC{0,8}|[a-c\\x00-\\x1f\"\\\\]{0,3}", dtype, shape).prop_map(|(name, dtype, mut shape)| {
                // Four elements of 4 or of 6 bits fill bytes.
                if dtype.bits().is_some_and(|bits| bits < 8) {
                    shape.push(4);
                }
                (name, dtype, shape)
            });
        prop::collection::vec(spec, 0..20).prop_map(|mut specs| {
            let mut names = HashSet::from(["__metadata__".to_owned()]);
            specs.retain(|(name, ..)| names.insert(name.clone()));
            specs
        })
    }

    fn tensor_bytes((_, dtype, shape): &Spec) -> u64 {
        shape.iter().product::<u64>() * u64::from(dtype.bits().unwrap()) / 8
    }

    /// The header of tensors that are named in one order and lie in another, with `space` around each token.
    fn write(specs: &[Spec], order: &[usize], space: &str) -> (String, Vec<Range<u64>>) {
        let mut ranges = vec![0..0; specs.len()];
        let mut end = 0;
        for &number in order {
            let start = end;
            end += tensor_bytes(&specs[number]);
            ranges[number] = start..end;
        }
        let entries: Vec<String> = specs
            .iter()
            .zip(&ranges)
            .map(|((name, dtype, shape), range)| {
                let name = serde_json::to_string(name).unwrap();
                let shape = shape.iter().map(u64::to_string).collect::<Vec<_>>().join(&format!("{space},{space}"));
                format!(
                    "{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{space}{shape}]{space},\"data_offsets\":[{},{space}{}]}}",
                    range.start, range.end
                )
            })
            .collect();
        (format!("{{{space}{}{space}}}{space}", entries.join(",")), ranges)
    }

    fn layouts() -> impl Strategy<Value = (Vec<Spec>, Vec<usize>, String)> {
        specs().prop_flat_map(|specs| {
            let order = (0..specs.len()).collect::<Vec<_>>();
            (Just(specs), Just(order).prop_shuffle(), "[ \t\r\n]{0,3}")
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read((specs, order, space) in layouts()) {
            let (json, ranges) = write(&specs, &order, &space);
            let header = parse(&json, specs.iter().map(tensor_bytes).sum()).unwrap();
            prop_assert_eq!(header.len(), specs.len());
            for ((entry, (name, dtype, shape)), range) in header.iter().zip(&specs).zip(ranges) {
                prop_assert_eq!((entry.name, entry.dtype, entry.shape), (&**name, dtype, &**shape));
                prop_assert_eq!(entry.range, header.data_start() + range.start..header.data_start() + range.end);
                prop_assert_eq!(header.get(name).unwrap().name, name);
            }
        }

        #[test]
        fn a_changed_byte_never_panics_and_what_opens_covers_the_data(
            (specs, order, space) in layouts(),
            place: prop::sample::Index,
            byte: u8,
        ) {
            let (json, _) = write(&specs, &order, &space);
            let mut json = json.into_bytes();
            let place = place.index(json.len());
            json[place] = byte;
            match parse(&json, specs.iter().map(tensor_bytes).sum()) {
                Err(error) => prop_assert!(!error.to_string().is_empty()),
                Ok(header) => {
                    let covered: u64 = header.iter().map(|entry| entry.range.end - entry.range.start).sum();
                    prop_assert_eq!(covered, header.data_bytes());
                }
            }
        }

        #[test]
        fn a_lenient_reader_sees_the_same_tensors_and_passes_over_what_follows(
            (specs, order, space) in layouts(),
            more in 0..1000_u64,
        ) {
            let (json, _) = write(&specs, &order, &space);
            let right: u64 = specs.iter().map(tensor_bytes).sum();
            let strict = parse(&json, right).unwrap();
            let lenient =
                Header::parse_lenient(json.as_bytes(), 8 + json.len() as u64 + right + more).unwrap();
            let told = |header: &Header| format!("{:?}", header.iter().collect::<Vec<_>>());
            prop_assert_eq!(told(&lenient), told(&strict));
            prop_assert_eq!((lenient.trailing_bytes(), lenient.data_bytes()), (more, right));
            let is_told = lenient.warnings().iter().any(|warning| warning.kind == "TrailingBytesIgnored");
            prop_assert_eq!(is_told, more > 0);
        }

        #[test]
        fn any_other_length_of_the_file_is_an_error((specs, order, space) in layouts(), data_bytes: u64) {
            let (json, _) = write(&specs, &order, &space);
            let right: u64 = specs.iter().map(tensor_bytes).sum();
            let data_bytes = data_bytes >> 8;
            prop_assert_eq!(parse(&json, data_bytes).is_ok(), data_bytes == right);
        }
    }
}
