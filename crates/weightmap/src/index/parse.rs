//! From the text of an index file to an [`Index`], in one pass and without an allocation per tensor.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Builder, Index};
use crate::error::{IndexError, IndexFault};
use crate::names::NameTable;
use crate::shard_name::ShardName;
use crate::signature::{Signature, TELLING_BYTES, binary};

/// Keys at the top that an error names where `weight_map` is not among them.
const KEYS_SHOWN: usize = 10;
/// Characters of a message of the JSON parser that are kept: it quotes the file.
const MESSAGE_CHARS: usize = 300;

pub(super) fn parse(json: &[u8]) -> Result<Index, IndexError> {
    let text = std::str::from_utf8(json).map_err(|error| match json {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => IndexError::Bom { encoding: "UTF-16" },
        _ => other_file(json).unwrap_or(IndexError::NotUtf8 { offset: error.valid_up_to() }),
    })?;
    let mut file = File::for_text(text);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_any(&mut file).and_then(|()| reader.end());
    read.map_err(|error| other_file(json).unwrap_or_else(|| explain(text, &error)))?;
    if !file.has_weight_map {
        return Err(IndexError::NoWeightMap { found: file.keys });
    }
    let index = file.builder.finish()?;
    if index.is_empty() { Err(IndexError::EmptyWeightMap) } else { Ok(index) }
}

/// What is known of an index file so far.
struct File {
    builder: Builder,
    /// The first keys at the top.
    keys: Vec<String>,
    has_weight_map: bool,
    /// The shards as the file spells them, where that is not the name as it is kept.
    spellings: NameTable,
    /// The shard of each such spelling; `None` for one that is no shard name.
    spelled: Vec<Option<u32>>,
    /// The spelling of the tensor before, most often that of the next one too, and its shard.
    previous: Option<(String, Option<u32>)>,
}

impl File {
    fn for_text(text: &str) -> Self {
        // A line of a real index has about 96 bytes, half of them the name of the tensor.
        let tensors = NameTable::with_capacity(text.len() / 96, text.len() / 2);
        Self {
            builder: Builder { tensors, ..Builder::default() },
            keys: Vec::new(),
            has_weight_map: false,
            spellings: NameTable::default(),
            spelled: Vec::new(),
            previous: None,
        }
    }

    /// Takes the name of a tensor and gives its number.
    fn tensor(&mut self, name: &str) -> u32 {
        self.builder.tensors.insert(name).unwrap_or_else(|there| {
            self.builder.fault(IndexFault::DuplicateTensor { tensor: name.to_owned() });
            there
        })
    }

    /// Takes the shard of the tensor whose name was read last.
    fn shard(&mut self, tensor: u32, spelling: &str) {
        if self.previous.as_ref().is_none_or(|(previous, _)| previous != spelling) {
            let shard =
                self.builder.shards.numbers.find(spelling).or_else(|| self.respelled(tensor, spelling));
            let mut text = self.previous.take().map(|(text, _)| text).unwrap_or_default();
            text.clear();
            text.push_str(spelling);
            self.previous = Some((text, shard));
        }
        if let Some((_, Some(shard))) = self.previous {
            self.builder.shard_of.push(shard);
        }
    }

    /// The shard of a spelling that is new, or is not the name as it is kept.
    fn respelled(&mut self, tensor: u32, spelling: &str) -> Option<u32> {
        if let Some(number) = self.spellings.find(spelling) {
            return self.spelled.get(number as usize).copied().flatten();
        }
        let name = ShardName::parse(spelling);
        let is_kept = name.as_ref().is_ok_and(|name| name.as_str() == spelling);
        let shard = match name {
            Ok(name) => Some(self.builder.shards.insert(name)),
            Err(fault) => {
                let tensor = self.builder.tensors.get(tensor).to_owned();
                self.builder.fault(IndexFault::ShardName { tensor, fault });
                None
            }
        };
        if !is_kept && self.spellings.insert(spelling).is_ok() {
            self.spelled.push(shard);
        }
        shard
    }

    fn second<'de, A: MapAccess<'de>>(&mut self, key: &'static str, map: &mut A) -> Result<(), A::Error> {
        self.builder.fault(IndexFault::DuplicateKey { key });
        map.next_value::<IgnoredAny>().map(|_| ())
    }

    fn not_a_name(&mut self, tensor: u32, found: &'static str) {
        let tensor = self.builder.tensors.get(tensor).to_owned();
        self.builder.fault(IndexFault::NotAName { tensor, found });
    }
}

/// The object at the top.
impl<'de> Visitor<'de> for &mut File {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "weight_map" if !self.has_weight_map => {
                    self.has_weight_map = true;
                    map.next_value_seed(WeightMap(self))?;
                }
                "metadata" if self.builder.metadata.is_none() => {
                    self.builder.metadata = Some(map.next_value::<&'de RawValue>()?.get().into());
                }
                "weight_map" => self.second("weight_map", &mut map)?,
                "metadata" => self.second("metadata", &mut map)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.keys.len() < KEYS_SHOWN {
                self.keys.push(key);
            }
        }
        Ok(())
    }
}

/// The object of tensors and shards.
struct WeightMap<'f>(&'f mut File);

impl<'de> DeserializeSeed<'de> for WeightMap<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for WeightMap<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`weight_map` as an object from tensors to shards")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(tensor) = map.next_key_seed(Tensor(self.0))? {
            map.next_value_seed(Shard(self.0, tensor))?;
        }
        Ok(())
    }
}

/// The name of a tensor, from which its number is made.
struct Tensor<'f>(&'f mut File);

impl<'de> DeserializeSeed<'de> for Tensor<'_> {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Tensor<'_> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a tensor")
    }

    fn visit_str<E>(self, name: &str) -> Result<u32, E> {
        Ok(self.0.tensor(name))
    }
}

/// The value of a tensor: the name of its shard, or a fault that does not stop the others from being found.
struct Shard<'f>(&'f mut File, u32);

impl<'de> DeserializeSeed<'de> for Shard<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shard<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a shard")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.shard(self.1, name);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.not_a_name(self.1, "null");
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.0.not_a_name(self.1, "a boolean");
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.0.not_a_name(self.1, "a number");
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.0.not_a_name(self.1, "a number");
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.0.not_a_name(self.1, "a number");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        self.0.not_a_name(self.1, "a list");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        self.0.not_a_name(self.1, "an object");
        Ok(())
    }
}

/// The error of an index that is a file of another kind, whose first bytes no JSON has.
fn other_file(json: &[u8]) -> Option<IndexError> {
    let is_shard = matches!(json, [_, _, _, _, 0, 0, 0, 0, b'{', ..]);
    if is_shard {
        return Some(IndexError::OtherFile { looks_like: "a safetensors file" });
    }
    let start = json.get(..json.len().min(TELLING_BYTES)).unwrap_or_default();
    let Signature { looks_like, .. } = binary(start, 2)?;
    Some(IndexError::OtherFile { looks_like })
}

/// Says what is wrong with a text that the JSON parser refused.
fn explain(text: &str, error: &serde_json::Error) -> IndexError {
    let (line, column) = (error.line(), error.column());
    let start = text.trim_start();
    if text.starts_with('\u{feff}') {
        return IndexError::Bom { encoding: "UTF-8" };
    }
    if start.starts_with("version https://git-lfs.github.com/spec/") {
        return IndexError::LfsPointer;
    }
    if let Some(mark) = text.lines().position(is_conflict_mark) {
        return IndexError::MergeConflict { line: mark.saturating_add(1) };
    }
    if start.starts_with('<') {
        return IndexError::Html;
    }
    let rest = text.lines().nth(line.saturating_sub(1)).and_then(|text| text.get(column.saturating_sub(1)..));
    if rest.is_some_and(|rest| rest.starts_with("//") || rest.starts_with("/*")) {
        return IndexError::Comment { line };
    }
    let message = error.to_string().chars().take(MESSAGE_CHARS).collect();
    match error.classify() {
        serde_json::error::Category::Data => IndexError::Shape { line, column, message },
        _ => IndexError::Json { line, column, message },
    }
}

fn is_conflict_mark(line: &str) -> bool {
    ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|mark| line.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> IndexError {
        Index::parse(json.as_bytes()).unwrap_err()
    }

    fn faults(json: &str) -> Vec<IndexFault> {
        match error(json) {
            IndexError::Faults { faults, count } => {
                assert_eq!(faults.len(), count);
                faults
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn unknown_keys_at_the_top_are_accepted_whatever_they_hold() {
        let json =
            r#"{"_note": [1e400, {"weight_map": 1}], "weight_map": {"a": "x.safetensors"}, "_note": 2}"#;
        assert_eq!(Index::parse(json.as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn escapes_in_names_are_resolved() {
        let index = Index::parse(br#"{"weight\u005fmap": {"a\u00e9\"": "\u0078.safetensors"}}"#).unwrap();
        assert_eq!((index.name(0), index.shards()[0].as_str()), (Some("aé\""), "x.safetensors"));
    }

    #[test]
    fn a_tensor_listed_twice_is_a_fault_also_with_the_same_shard_or_another_spelling() {
        let json = r#"{"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "a": "x.safetensors",
            "\u0062": "y.safetensors"}}"#;
        let twice = |tensor: &str| IndexFault::DuplicateTensor { tensor: tensor.to_owned() };
        assert_eq!(faults(json), [twice("a"), twice("b")]);
    }

    #[test]
    fn a_top_level_key_that_is_there_twice_is_a_fault() {
        let json =
            r#"{"metadata": {}, "weight_map": {"a": "x.safetensors"}, "metadata": {}, "weight_map": null}"#;
        let twice = |key| IndexFault::DuplicateKey { key };
        assert_eq!(faults(json), [twice("metadata"), twice("weight_map")]);
    }

    #[test]
    fn values_that_are_no_strings_are_faults() {
        let json = r#"{"weight_map": {"a": 1, "b": -1, "c": 1.5, "d": null, "e": true, "f": ["x.safetensors", [[]]],
            "g": {"file": {"x": 1}}, "h": "x.safetensors"}}"#;
        let found: Vec<_> = faults(json)
            .into_iter()
            .map(|fault| match fault {
                IndexFault::NotAName { found, .. } => found,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(found, ["a number", "a number", "a number", "null", "a boolean", "a list", "an object"]);
    }

    #[test]
    fn faults_of_all_kinds_come_in_one_error() {
        let json = r#"{"weight_map": {"a": "", "b": "../x.safetensors", "c": "x.bin", "c": 1, "d": "../x.safetensors"}}"#;
        assert_eq!(
            error(json).to_string(),
            "5 faults: \
             tensor \"a\": bad shard name \"\": it is empty; \
             tensor \"b\": unsafe shard name \"../x.safetensors\": a part of it is `..`, or ends in a dot or space, which Windows strips; \
             tensor \"c\": bad shard name \"x.bin\": it does not end in `.safetensors`; \
             tensor \"c\" is listed twice, and readers differ in which entry they take; leave the right one; \
             tensor \"c\": expected the name of a shard, found a number"
        );
    }

    #[test]
    fn many_faults_are_counted_and_not_all_kept() {
        let entries: Vec<_> = (0..5000).map(|number| format!("\"{number}\": 1")).collect();
        let error = error(&format!("{{\"weight_map\": {{{}}}}}", entries.join(",")));
        assert!(matches!(&error, IndexError::Faults { faults, count: 5000 } if faults.len() == 1000));
        assert!(error.to_string().ends_with(" and 4990 more"), "{error}");
    }

    #[test]
    fn a_missing_weight_map_is_an_error_that_lists_the_keys_found() {
        let error = error(r#"{"model_type": "llama", "weights": {}}"#).to_string();
        assert!(error.ends_with(r#"the keys are: "model_type", "weights""#), "{error}");
    }

    #[test]
    fn an_empty_weight_map_is_an_error() {
        assert_eq!(error(r#"{"metadata": {"total_size": 0}, "weight_map": {}}"#), IndexError::EmptyWeightMap);
    }

    #[test]
    fn a_weight_map_that_is_no_object_is_an_error_with_its_position() {
        for (value, found) in
            [("null", "null"), ("[[\"a\", \"x.safetensors\"]]", "sequence"), ("7", "integer")]
        {
            let error = error(&format!("{{\"metadata\": {{}},\n\"weight_map\": {value}}}"));
            assert!(matches!(error, IndexError::Shape { line: 2, .. }), "{error}");
            assert!(error.to_string().contains(found), "{error}");
        }
    }

    #[test]
    fn a_text_that_is_no_object_is_an_error() {
        for json in ["[]", "null", "\"weight_map\""] {
            assert!(matches!(error(json), IndexError::Shape { line: 1, .. }), "{json}");
        }
    }

    #[test]
    fn a_message_does_not_grow_with_the_file() {
        let error = error(&format!("{{\"weight_map\": \"{}\"}}", "x".repeat(1 << 20)));
        assert!(error.to_string().len() < 500);
    }

    #[test]
    fn a_text_that_was_cut_off_is_an_error_with_its_position() {
        let error = error("{\"weight_map\":\n  {\"a\": \"model-0");
        assert!(matches!(error, IndexError::Json { line: 2, column: 16, .. }), "{error:?}");
    }

    #[test]
    fn text_after_the_object_is_an_error() {
        let error = error("{\"weight_map\": {\"a\": \"x.safetensors\"}} {}");
        assert!(matches!(error, IndexError::Json { line: 1, .. }), "{error:?}");
    }

    #[test]
    fn an_empty_file_is_an_error() {
        assert!(matches!(error(""), IndexError::Json { .. }));
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        for start in ["", "{\"weight_map\":", "{\"weight_map\":{\"a\":", "{\"metadata\":", "{\"x\":"] {
            let _ = error(&format!("{start}{}", "[".repeat(200_000)));
            let _ = error(&format!("{start}{}", "{\"a\":".repeat(200_000)));
        }
    }

    #[test]
    fn a_byte_order_mark_is_named() {
        assert_eq!(error("\u{feff}{}"), IndexError::Bom { encoding: "UTF-8" });
        for utf16 in [b"\xff\xfe{\0}\0", b"\xfe\xff\0{\0}"] {
            assert_eq!(Index::parse(utf16).unwrap_err(), IndexError::Bom { encoding: "UTF-16" });
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_with_their_offset() {
        assert_eq!(Index::parse(b"{\"a\xff\"").unwrap_err(), IndexError::NotUtf8 { offset: 3 });
    }

    #[test]
    fn a_git_lfs_pointer_is_named() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n";
        assert_eq!(error(pointer), IndexError::LfsPointer);
    }

    #[test]
    fn marks_of_a_merge_conflict_are_named() {
        for (json, line) in [
            ("{\n<<<<<<< HEAD\n}", 2),
            ("{\"weight_map\": {\"a\": \"x.safetensors\"}}\n=======\n{}", 2),
            ("<<<<<<< HEAD\n{}\n", 1),
            ("{\"a\": 1,\n\n>>>>>>> main\n}", 3),
        ] {
            assert_eq!(error(json), IndexError::MergeConflict { line });
        }
    }

    #[test]
    fn comments_are_named() {
        for (json, line) in [
            ("// note //\n{}", 1),
            ("{\n  \"a\": 1, // one\n}", 2),
            ("{\"a\": 1 // one\n}", 1),
            ("{\n  /* x */ \"a\": 1}", 2),
        ] {
            assert_eq!(error(json), IndexError::Comment { line }, "{json}");
        }
    }

    #[test]
    fn a_web_page_is_named() {
        assert_eq!(error("\n<!DOCTYPE html><html>Not found</html>"), IndexError::Html);
    }
}
