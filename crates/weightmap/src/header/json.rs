//! The text of a header, read in one pass without a value for each tensor.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::dtype::Dtype;
use crate::error::HeaderError;
use crate::names::NameTable;

/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// What a header says, not yet held against the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Document {
    /// The names of the tensors; a tensor's number is that of its row.
    pub(super) names: NameTable,
    pub(super) rows: Vec<Row>,
    /// The dimensions of all tensors, one shape after the other.
    dims: Vec<u64>,
    pub(super) metadata_keys: NameTable,
    pub(super) metadata_values: Vec<Box<str>>,
    pub(super) metadata_is_null: bool,
    /// How many values of the metadata are no strings, and the number of the first of them.
    pub(super) other_values: u64,
    pub(super) other_value: Option<u32>,
    /// How many fields are unknown, and the first of them with the number of its tensor.
    pub(super) unknown_fields: u64,
    pub(super) unknown_field: Option<(u32, Box<str>)>,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) dtype: Dtype,
    /// Where the shape lies in `dims`.
    dims: Range<usize>,
    /// The `data_offsets`, which need not be in order.
    pub(super) range: Range<u64>,
}

impl Document {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.names.iter().zip(&self.rows)
    }

    pub(super) fn shape(&self, row: &Row) -> &[u64] {
        self.dims.get(row.dims.clone()).unwrap_or_default()
    }
}

/// Reads the text of a header; a lenient reader keeps values of the metadata that are no strings as their text.
pub(super) fn read(text: &str, is_lenient: bool) -> Result<Document, HeaderError> {
    if text.starts_with('\u{feff}') {
        return Err(HeaderError::ByteOrderMark);
    }
    let mut reader = Reader { is_lenient, ..Reader::default() };
    let mut json = serde_json::Deserializer::from_str(text);
    match json.deserialize_map(Tensors(&mut reader)).and_then(|()| json.end()) {
        Ok(()) => Ok(reader.document),
        Err(error) => Err(reader.explain(text, &error)),
    }
}

#[derive(Default)]
struct Reader {
    document: Document,
    is_lenient: bool,
    place: Place,
    /// The fault that stopped the parser, where it is one of ours and not of JSON.
    fault: Option<HeaderError>,
    /// The `data_offsets` of the entry at hand.
    offsets: Vec<u64>,
}

/// Where in the header the reader is.
#[derive(Default, Clone, Copy)]
enum Place {
    #[default]
    Outside,
    Entry {
        number: u32,
        field: Option<&'static str>,
    },
    Metadata,
    MetadataValue {
        number: u32,
    },
}

impl Reader {
    /// Keeps a fault, since an error of serde can carry text only.
    fn fail<E: serde::de::Error>(&mut self, fault: HeaderError) -> E {
        self.fault = Some(fault);
        E::custom("")
    }

    fn name(&self, number: u32) -> Box<str> {
        self.document.names.get(number).into()
    }

    fn enter_field<T, E: serde::de::Error>(
        &mut self,
        number: u32,
        field: &'static str,
        before: Option<&T>,
    ) -> Result<(), E> {
        self.place = Place::Entry { number, field: Some(field) };
        match before {
            None => Ok(()),
            Some(_) => Err(self.fail(HeaderError::DuplicateField { tensor: self.name(number), field })),
        }
    }

    fn missing<E: serde::de::Error>(&mut self, number: u32, field: &'static str) -> E {
        self.fail(HeaderError::MissingField { tensor: self.name(number), field })
    }

    /// The dtype of this name; a run of tensors of one unknown dtype shares its text.
    fn dtype(&self, name: &str) -> Dtype {
        match self.document.rows.last() {
            Some(Row { dtype: Dtype::Unknown(last), .. }) if **last == *name => Dtype::Unknown(last.clone()),
            _ => Dtype::from_name(name),
        }
    }

    /// A value of the metadata: what a string says, and, for a lenient reader, the JSON text of anything else.
    fn metadata_value<'de, A: MapAccess<'de>>(
        &mut self,
        number: u32,
        map: &mut A,
    ) -> Result<Box<str>, A::Error> {
        let json = map.next_value::<&'de RawValue>()?.get();
        if json.starts_with('"') {
            return serde_json::from_str(json).map_err(|error| {
                // What is wrong in a string is a fault of JSON.
                self.place = Place::Outside;
                A::Error::custom(message(&error))
            });
        }
        if !self.is_lenient {
            return Err(A::Error::custom(format_args!("expected a string, found {}", kind(json))));
        }
        self.document.other_values += 1;
        self.document.other_value.get_or_insert(number);
        Ok(json.into())
    }

    fn explain(mut self, text: &str, error: &serde_json::Error) -> HeaderError {
        if let Some(fault) = self.fault.take() {
            return fault;
        }
        let (byte, message) = (position(text, error), message(error));
        let is_data = error.is_data();
        match self.place {
            Place::Entry { number, field } if is_data => {
                HeaderError::InvalidEntry { tensor: self.name(number), field, byte, message }
            }
            Place::Metadata if is_data => HeaderError::InvalidMetadata { byte, message },
            Place::MetadataValue { number } if is_data => {
                let key = self.document.metadata_keys.get(number).into();
                HeaderError::InvalidMetadataValue { key, byte, message }
            }
            Place::Entry { number, field } => {
                HeaderError::Json { tensor: Some(self.name(number)), field, byte, message }
            }
            Place::Outside | Place::Metadata | Place::MetadataValue { .. } => {
                HeaderError::Json { tensor: None, field: None, byte, message }
            }
        }
    }
}

/// The byte of the text at which serde_json, which counts lines and columns of bytes from 1, noticed an
/// error.
fn position(text: &str, error: &serde_json::Error) -> u64 {
    let lines_before = error.line().saturating_sub(1);
    let line_start: usize = text.split_inclusive('\n').take(lines_before).map(str::len).sum();
    (line_start + error.column().saturating_sub(1)) as u64
}

/// What serde_json says without where, and cut: it quotes the text that it stumbles over.
fn message(error: &serde_json::Error) -> Box<str> {
    const MOST_CHARS: usize = 200;
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).chars().take(MOST_CHARS).collect()
}

/// What a JSON text is that is no string, with its article.
fn kind(json: &str) -> &'static str {
    match json.as_bytes() {
        [b'{', ..] => "an object",
        [b'[', ..] => "a list",
        [b't' | b'f', ..] => "a boolean",
        [b'n', ..] => "null",
        _ => "a number",
    }
}

/// A string, copied only if it has escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the whole object.
struct Tensors<'a>(&'a mut Reader);

impl<'de> Visitor<'de> for Tensors<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(reader) = self;
        let mut metadata = false;
        while let Some(Text(name)) = map.next_key()? {
            if name == METADATA {
                if metadata {
                    return Err(reader.fail(HeaderError::DuplicateMetadata));
                }
                metadata = true;
                reader.place = Place::Metadata;
                map.next_value_seed(Metadata(reader))?;
            } else {
                let Ok(number) = reader.document.names.insert(&name) else {
                    return Err(reader.fail(HeaderError::DuplicateTensor { tensor: (*name).into() }));
                };
                reader.place = Place::Entry { number, field: None };
                map.next_value_seed(Entry { reader, number })?;
            }
            reader.place = Place::Outside;
        }
        Ok(())
    }
}

/// Reads one tensor's entry into a row.
struct Entry<'a> {
    reader: &'a mut Reader,
    number: u32,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { reader, number } = self;
        let (mut dtype, mut dims, mut range) = (None, None, None);
        while let Some(Text(field)) = map.next_key()? {
            match &*field {
                "dtype" => {
                    reader.enter_field(number, "dtype", dtype.as_ref())?;
                    let Text(name) = map.next_value()?;
                    dtype = Some(reader.dtype(&name));
                }
                "shape" => {
                    reader.enter_field(number, "shape", dims.as_ref())?;
                    let start = reader.document.dims.len();
                    map.next_value_seed(Numbers(&mut reader.document.dims))?;
                    dims = Some(start..reader.document.dims.len());
                }
                "data_offsets" => {
                    reader.enter_field(number, "data_offsets", range.as_ref())?;
                    reader.offsets.clear();
                    map.next_value_seed(Numbers(&mut reader.offsets))?;
                    let &[begin, end] = reader.offsets.as_slice() else {
                        return Err(A::Error::invalid_length(reader.offsets.len(), &"2 offsets"));
                    };
                    range = Some(begin..end);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    reader.document.unknown_fields += 1;
                    reader.document.unknown_field.get_or_insert_with(|| (number, (*field).into()));
                }
            }
            reader.place = Place::Entry { number, field: None };
        }
        let row = Row {
            dtype: dtype.ok_or_else(|| reader.missing(number, "dtype"))?,
            dims: dims.ok_or_else(|| reader.missing(number, "shape"))?,
            range: range.ok_or_else(|| reader.missing(number, "data_offsets"))?,
        };
        reader.document.rows.push(row);
        Ok(())
    }
}

/// Appends an array of integers.
struct Numbers<'a>(&'a mut Vec<u64>);

impl<'de> DeserializeSeed<'de> for Numbers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of unsigned 64-bit integers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<(), A::Error> {
        while let Some(number) = numbers.next_element()? {
            self.0.push(number);
        }
        Ok(())
    }
}

/// Reads `__metadata__`.
struct Metadata<'a>(&'a mut Reader);

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.0.document.metadata_is_null = true;
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(reader) = self;
        while let Some(Text(key)) = map.next_key()? {
            let Ok(number) = reader.document.metadata_keys.insert(&key) else {
                return Err(reader.fail(HeaderError::DuplicateMetadataKey { key: (*key).into() }));
            };
            reader.place = Place::MetadataValue { number };
            let value = reader.metadata_value(number, &mut map)?;
            reader.document.metadata_values.push(value);
            reader.place = Place::Metadata;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, parse_entry};
    use super::*;

    const ENTRY: &str = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;

    #[test]
    fn text_that_is_not_utf_8_says_from_where_on() {
        for (json, byte) in [(&b"\xff"[..], 0), (b"{\"\xc0\xaf\":1}", 2), (b"{\"\xed\xa0\x80\":1}", 2)] {
            assert_eq!(parse(json, 0).unwrap_err(), HeaderError::NotUtf8 { byte });
        }
    }

    #[test]
    fn a_byte_order_mark_is_named() {
        let error = parse("\u{feff}{}", 0).unwrap_err();
        assert_eq!(error, HeaderError::ByteOrderMark);
        assert!(error.to_string().contains("BOM"));
    }

    #[test]
    fn text_that_is_no_json_object_says_where() {
        for (json, position) in [
            ("", 0),
            ("    ", 3),
            ("[]", 0),
            ("null", 3),
            ("{}garbage", 2),
            ("{}\0\0", 2),
            ("{} {}", 3),
            ("// note\n{}", 0),
            ("{\0\"\0", 1),
            (r#"{"__metadata__":{"a":"b",}}"#, 25),
            ("{\n\n \"__metadata__\":{} x}", 22),
            ("{\"a\nb\":1}", 4),
            (r#"{"\ud800":1}"#, 8),
        ] {
            match parse(json, 0).unwrap_err() {
                HeaderError::Json { tensor: None, byte, .. } => assert_eq!(byte, position, "{json:?}"),
                other => panic!("{json:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn bad_json_inside_an_entry_names_tensor_and_field() {
        for shape in ["[NaN]", "[02]", "[1,]", "[1;", "[+1]", "[.5]", "[1 2]"] {
            match parse_entry(r#""U8""#, shape, "[0,1]", 1).unwrap_err() {
                HeaderError::Json { tensor: Some(tensor), field: Some("shape"), .. } => {
                    assert_eq!(&*tensor, "t");
                }
                other => panic!("{shape}: {other:?}"),
            }
        }
    }

    fn assert_invalid_entry(dtype: &str, shape: &str, offsets: &str, expected: &'static str) {
        match parse_entry(dtype, shape, offsets, 16).unwrap_err() {
            HeaderError::InvalidEntry { tensor, field, .. } => {
                assert_eq!((&*tensor, field), ("t", Some(expected)));
            }
            other => panic!("{dtype} {shape} {offsets}: {other:?}"),
        }
    }

    #[test]
    fn a_dtype_is_a_string() {
        for dtype in ["null", "1", r#"{"F32":null}"#, r#"["F32"]"#] {
            assert_invalid_entry(dtype, "[2,2]", "[0,16]", "dtype");
        }
    }

    #[test]
    fn a_shape_is_an_array_of_integers_that_64_bits_hold() {
        for shape in [
            "null",
            "4",
            r#"{"0":2}"#,
            "[-1]",
            "[-0]",
            "[2.0]",
            "[2e0]",
            r#"["2"]"#,
            "[null]",
            "[[2]]",
            "[true]",
            "[18446744073709551616]",
        ] {
            assert_invalid_entry(r#""F32""#, shape, "[0,16]", "shape");
        }
    }

    #[test]
    fn data_offsets_are_two_integers_that_64_bits_hold() {
        for offsets in [
            "null",
            "[]",
            "[0]",
            "[0,16,16]",
            "[-16,0]",
            "[0,16.0]",
            r#"["0","16"]"#,
            r#"{"begin":0,"end":16}"#,
            "[0,18446744073709551632]",
        ] {
            assert_invalid_entry(r#""F32""#, "[2,2]", offsets, "data_offsets");
        }
    }

    #[test]
    fn an_entry_is_an_object() {
        for entry in ["null", r#""F32""#, r#"["F32",[2,2],[0,16]]"#, "1"] {
            let error = parse(format!(r#"{{"t":{entry}}}"#), 16).unwrap_err();
            assert!(matches!(error, HeaderError::InvalidEntry { field: None, .. }), "{entry}: {error:?}");
        }
    }

    #[test]
    fn each_field_has_to_be_there() {
        for field in ["dtype", "shape", "data_offsets"] {
            let error = parse(format!(r#"{{"t":{}}}"#, ENTRY.replace(field, "x")), 1).unwrap_err();
            assert_eq!(error, HeaderError::MissingField { tensor: "t".into(), field });
        }
    }

    #[test]
    fn no_field_occurs_twice_even_when_escaped() {
        for (again, field) in [
            (r#""dtype":"U8""#, "dtype"),
            (r#""shape":[1]"#, "shape"),
            (r#""data_offsets":[0,1]"#, "data_offsets"),
            (r#""\u0064type":"U8""#, "dtype"),
        ] {
            let error =
                parse(format!(r#"{{"t":{},{again}}}}}"#, ENTRY.trim_end_matches('}')), 1).unwrap_err();
            assert_eq!(error, HeaderError::DuplicateField { tensor: "t".into(), field });
        }
    }

    #[test]
    fn no_name_occurs_twice_even_when_escaped() {
        for again in ["a", "\\u0061"] {
            let error = parse(format!(r#"{{"a":{ENTRY},"{again}":{ENTRY}}}"#), 1).unwrap_err();
            assert_eq!(error, HeaderError::DuplicateTensor { tensor: "a".into() });
        }
    }

    #[test]
    fn names_are_what_they_are_once_escapes_are_undone() {
        let header = parse(format!(r#"{{"\u0061\n\ud83d\ude00/../":{ENTRY}}}"#), 1).unwrap();
        assert_eq!(header.find("a\n😀/../"), Some(0));
        assert_eq!(parse(format!(r#"{{"":{ENTRY}}}"#), 1).unwrap().find(""), Some(0));
    }

    #[test]
    fn metadata_is_no_tensor_even_if_it_has_the_fields_of_one() {
        let json = r#"{"__metadata__":{"dtype":"F32","shape":"[]","data_offsets":"[0,4]"}}"#;
        let header = parse(json, 0).unwrap();
        assert_eq!((header.len(), header.metadata().count()), (0, 3));
    }

    #[test]
    fn metadata_is_an_object() {
        for metadata in [r#"[["a","b"]]"#, r#""x""#, "0"] {
            let error = parse(format!(r#"{{"__metadata__":{metadata}}}"#), 0).unwrap_err();
            assert_eq!(error.kind(), "InvalidMetadata", "{metadata}");
        }
    }

    #[test]
    fn a_metadata_value_that_is_no_string_names_its_key() {
        for value in ["0", "1e400", "null", "[]", r#"{"b":"c"}"#, "true"] {
            match parse(format!(r#"{{"__metadata__":{{"x":"","step":{value}}}}}"#), 0).unwrap_err() {
                HeaderError::InvalidMetadataValue { key, .. } => assert_eq!(&*key, "step"),
                other => panic!("{value}: {other:?}"),
            }
        }
    }

    #[test]
    fn metadata_occurs_once_null_or_escaped() {
        for (first, again) in [("{}", "__metadata__"), ("null", "__metadata__"), ("{}", "\\u005f_metadata__")]
        {
            let error = parse(format!(r#"{{"__metadata__":{first},"{again}":{{}}}}"#), 0).unwrap_err();
            assert_eq!(error, HeaderError::DuplicateMetadata);
        }
    }

    #[test]
    fn no_metadata_key_occurs_twice() {
        let error = parse(r#"{"__metadata__":{"a":"1","\u0061":"1"}}"#, 0).unwrap_err();
        assert_eq!(error, HeaderError::DuplicateMetadataKey { key: "a".into() });
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = "[".repeat(200_000);
        assert_eq!(parse(format!(r#"{{"t":{deep}"#), 0).unwrap_err().kind(), "InvalidEntry");
        assert_eq!(parse(format!(r#"{{"t":{{"x":{deep}"#), 0).unwrap_err().kind(), "Json");
        assert_eq!(parse(format!(r#"{{"t":{{"shape":[{deep}"#), 0).unwrap_err().kind(), "InvalidEntry");
        assert_eq!(parse(format!(r#"{{"__metadata__":{{"x":{deep}"#), 0).unwrap_err().kind(), "Json");
    }
}
