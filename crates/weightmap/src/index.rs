//! Which tensor lies in which shard.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod parse;

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::error::{IndexError, IndexFault, Kept};
use crate::names::NameTable;
use crate::shard_name::ShardName;
use crate::warning::Warning;

/// The index of a model: tensors, shards, and which tensor is in which shard.
///
/// Tensors and shards are numbered from 0 in the order in which the index first names them. What a shard
/// holds besides the tensors listed for it does not belong to the model.
#[derive(Debug, Clone)]
pub struct Index {
    tensors: NameTable,
    /// The shard of each tensor.
    shard_of: Vec<u32>,
    shards: Shards,
    /// All tensors, those of one shard together.
    by_shard: Vec<u32>,
    metadata: Option<Box<str>>,
    total_size: Option<u64>,
    warnings: Vec<Warning>,
}

impl Index {
    /// Reads the content of an index file.
    ///
    /// # Errors
    /// Any [`IndexError`]; all faults of names and values come in one [`IndexError::Faults`].
    pub fn parse(json: &[u8]) -> Result<Self, IndexError> {
        parse::parse(json)
    }

    /// Makes an index of the names in the shards' headers, for a model that comes without one.
    pub(crate) fn from_tensors<'a>(
        shards: impl IntoIterator<Item = (ShardName, impl IntoIterator<Item = &'a str>)>,
    ) -> Result<Self, IndexError> {
        let mut builder = Builder::default();
        for (shard, tensors) in shards {
            let shard = builder.shards.insert(shard);
            for name in tensors {
                match builder.tensors.insert(name) {
                    Ok(_) => builder.shard_of.push(shard),
                    Err(there) => builder.found_twice(there, shard),
                }
            }
        }
        builder.finish()
    }

    /// Makes an index of tensors and the number of the shard of each.
    pub(crate) fn placed(
        shards: impl IntoIterator<Item = ShardName>,
        tensors: NameTable,
        shard_of: Vec<u32>,
    ) -> Result<Self, IndexError> {
        let mut builder = Builder { tensors, shard_of, ..Builder::default() };
        for shard in shards {
            builder.shards.insert(shard);
        }
        builder.finish()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the tensors in the order of the index.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.tensors.iter()
    }

    /// The name of a tensor; `None` for a number that no tensor has.
    pub fn name(&self, tensor: u32) -> Option<&str> {
        ((tensor as usize) < self.len()).then(|| self.tensors.get(tensor))
    }

    /// The number of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.tensors.find(name)
    }

    /// The shard of a tensor; `None` for a number that no tensor has.
    pub fn shard_of(&self, tensor: u32) -> Option<u32> {
        self.shard_of.get(tensor as usize).copied()
    }

    /// The shards.
    pub fn shards(&self) -> &[ShardName] {
        &self.shards.names
    }

    /// The number of the shard with this name, which may be spelled as in the index file (`./x` for `x`).
    pub fn find_shard(&self, name: &str) -> Option<u32> {
        let find = |name: &str| self.shards.numbers.find(name);
        find(name).or_else(|| find(ShardName::parse(name).ok()?.as_str()))
    }

    /// The tensors of a shard in the order of the index; none for a number that no shard has.
    pub fn tensors_of(&self, shard: u32) -> impl ExactSizeIterator<Item = u32> + Clone {
        let start = self.by_shard.partition_point(|&tensor| self.shard_of(tensor) < Some(shard));
        let end = self.by_shard.partition_point(|&tensor| self.shard_of(tensor) <= Some(shard));
        self.by_shard.get(start..end).unwrap_or_default().iter().copied()
    }

    /// The JSON text of `metadata`, if there is any.
    pub fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// The bytes of all tensors together, as the index file states them. Nothing relies on the figure: in the
    /// wild it is often wrong.
    ///
    /// `None` where it is absent, or is something else than a whole number, of which [`Index::warnings`]
    /// tells.
    pub fn total_size(&self) -> Option<u64> {
        self.total_size
    }

    /// What is odd about the index and does no harm.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// The distinct shards of an index.
#[derive(Debug, Clone, Default)]
struct Shards {
    names: Vec<ShardName>,
    numbers: NameTable,
}

impl Shards {
    fn insert(&mut self, shard: ShardName) -> u32 {
        self.numbers.insert(shard.as_str()).map_or_else(
            |there| there,
            |number| {
                self.names.push(shard);
                number
            },
        )
    }
}

/// An index in the making.
#[derive(Debug, Default)]
struct Builder {
    tensors: NameTable,
    /// The shard of each tensor, complete as long as there is no fault.
    shard_of: Vec<u32>,
    shards: Shards,
    metadata: Option<Box<str>>,
    faults: Kept<IndexFault>,
}

impl Builder {
    fn fault(&mut self, fault: IndexFault) {
        self.faults.push(fault);
    }

    /// Notes that a header of shard `second` has a tensor that is known already.
    fn found_twice(&mut self, tensor: u32, second: u32) {
        let shard = |number: u32| self.shards.numbers.get(number).to_owned();
        let first = self.shard_of.get(tensor as usize).copied().unwrap_or(second);
        self.fault(IndexFault::TensorInTwoShards {
            tensor: self.tensors.get(tensor).to_owned(),
            first: shard(first),
            second: shard(second),
        });
    }

    fn finish(self) -> Result<Index, IndexError> {
        let Self { tensors, shard_of, shards, metadata, faults } = self;
        if faults.count() > 0 {
            return Err(IndexError::Faults { count: faults.count(), faults: faults.first });
        }
        let mut by_shard: Vec<u32> = (0..).take(tensors.len()).collect();
        by_shard.sort_by_key(|&tensor| shard_of.get(tensor as usize));
        let (total_size, warnings) = match metadata.as_deref().map(total_size) {
            None => (None, Vec::new()),
            Some(Ok(total_size)) => (total_size, Vec::new()),
            Some(Err(warning)) => (None, vec![warning]),
        };
        Ok(Index { tensors, shard_of, shards, by_shard, metadata, total_size, warnings })
    }
}

/// The `total_size` of the JSON text of `metadata`. A whole number counts however it is written: `29.0`,
/// `2.9e1`.
fn total_size(metadata: &str) -> Result<Option<u64>, Warning> {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(metadata) else {
        return Err(Warning::new(
            "OddMetadata",
            "the `metadata` of the index is not an object, and is passed over",
        ));
    };
    let Some(text) = fields.get("total_size").map(|value| value.get()) else { return Ok(None) };
    let whole = || text.parse::<f64>().ok()?.to_string().parse().ok();
    text.parse().ok().or_else(whole).map(Some).ok_or_else(|| {
        let start: String = text.chars().take(40).collect();
        let message =
            format!("`total_size` should be a number of bytes, and is passed over; it is {start:?}");
        Warning::new("OddTotalSize", message)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shard(name: &str) -> ShardName {
        ShardName::parse(name).unwrap()
    }

    fn with_metadata(metadata: &str) -> Index {
        let json = format!(r#"{{"metadata": {metadata}, "weight_map": {{"a": "x.safetensors"}}}}"#);
        Index::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn tensors_and_shards_are_found_by_name_and_by_number() {
        let index = Index::parse(
            br#"{"weight_map": {"c": "2.safetensors", "a": "./s//1.safetensors", "b": "2.safetensors",
                "d": "s/1.safetensors"}, "metadata": {"total_size": 29}}"#,
        )
        .unwrap();
        assert_eq!(index.names().collect::<Vec<_>>(), ["c", "a", "b", "d"]);
        assert_eq!(index.shards(), [shard("2.safetensors"), shard("s/1.safetensors")]);
        assert_eq!((index.find("b"), index.name(2), index.shard_of(2)), (Some(2), Some("b"), Some(0)));
        assert_eq!(index.tensors_of(0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(index.tensors_of(1).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(index.find_shard("s/1.safetensors"), Some(1));
        assert_eq!(index.find_shard("./s/1.safetensors"), Some(1));
        assert_eq!(index.metadata(), Some(r#"{"total_size": 29}"#));
        assert_eq!(index.total_size(), Some(29));
    }

    #[test]
    fn a_number_or_name_that_is_not_there_gives_nothing() {
        let index = with_metadata("{}");
        assert_eq!((index.find("b"), index.name(1), index.shard_of(1)), (None, None, None));
        assert_eq!((index.find_shard("y.safetensors"), index.tensors_of(1).len()), (None, 0));
    }

    #[test]
    fn a_total_size_that_is_a_whole_number_counts() {
        for (text, bytes) in [("0", 0), ("29.0", 29), ("2.9e1", 29), ("18446744073709551615", u64::MAX)] {
            let index = with_metadata(&format!(r#"{{"total_size": {text}}}"#));
            assert_eq!((index.total_size(), index.warnings()), (Some(bytes), [].as_slice()), "{text}");
        }
    }

    #[test]
    fn a_total_size_that_is_something_else_is_a_warning() {
        for text in
            ["\"29\"", "-1", "29.5", "1e30", "1e400", "18446744073709551616", "null", "{\"x\": 1}", "[1]"]
        {
            let index = with_metadata(&format!(r#"{{"total_size": {text}}}"#));
            assert_eq!((index.total_size(), index.warnings().len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn an_absent_total_size_is_no_warning() {
        let index = with_metadata(r#"{"x": 1e400, "total_parameters": 7}"#);
        assert_eq!((index.total_size(), index.warnings().len()), (None, 0));
    }

    #[test]
    fn metadata_that_is_no_object_is_a_warning() {
        for text in ["null", "[]", "\"pt\"", "1"] {
            let index = with_metadata(text);
            assert_eq!((index.total_size(), index.warnings().len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn headers_make_an_index() {
        let headers = [(shard("1.safetensors"), vec!["a", "b"]), (shard("2.safetensors"), vec![])];
        let index = Index::from_tensors(headers).unwrap();
        assert_eq!((index.len(), index.shards().len(), index.tensors_of(1).len()), (2, 2, 0));
    }

    #[test]
    fn a_tensor_in_two_shards_without_an_index_is_an_error_that_names_both() {
        let headers = [(shard("1.safetensors"), ["a", "b"]), (shard("2.safetensors"), ["b", "a"])];
        let error = Index::from_tensors(headers).unwrap_err().to_string();
        let both = r#"is in both "1.safetensors" and "2.safetensors", and without an index nothing says which counts"#;
        assert_eq!(error, format!(r#"2 faults: tensor "b" {both}; tensor "a" {both}"#));
    }

    proptest! {
        #[test]
        fn each_tensor_is_among_those_of_its_shard(shards in prop::collection::vec(0..6_usize, 1..40)) {
            let headers = (0..6_usize).map(|shard| {
                let name = ShardName::of_file(&shard.to_string());
                let tensors = shards.iter().enumerate().filter(move |(_, of)| **of == shard);
                (name, tensors.map(|(tensor, _)| tensor.to_string()).collect::<Vec<_>>())
            });
            let headers: Vec<_> = headers.collect();
            let index =
                Index::from_tensors(headers.iter().map(|(name, all)| (name.clone(), all.iter().map(String::as_str))))
                    .unwrap();
            prop_assert_eq!(index.len(), shards.len());
            for (shard, (_, tensors)) in (0..).zip(&headers) {
                let found: Vec<_> = index.tensors_of(shard).filter_map(|tensor| index.name(tensor)).collect();
                prop_assert_eq!(found, tensors.iter().map(String::as_str).collect::<Vec<_>>());
                prop_assert!(index.tensors_of(shard).all(|tensor| index.shard_of(tensor) == Some(shard)));
            }
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in any::<Vec<u8>>(), cut in 0..60_usize) {
            let _ = Index::parse(&bytes);
            let good = br#"{"weight_map": {"a\u00e9": "x.safetensors"}, "metadata": {"x": 1}}"#;
            let cut = cut.min(good.len() - 1);
            prop_assert!(Index::parse(&good[..cut]).is_err());
        }
    }
}
