//! Shards of an index that are absent, which was allowed.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

use crate::error::{Error, MissingShard};
use crate::index::Index;

/// Which shards of an index are absent; by default none.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// By shard; empty where none is absent.
    lacks: Vec<bool>,
    /// That of all of them, which tells of the first.
    error: Option<Error>,
    /// The numbers of these, in order.
    first: Vec<u32>,
}

impl Missing {
    /// `error` is the [`Error::MissingShards`] of all that are absent.
    pub(crate) fn new(lacks: Vec<bool>, error: Error) -> Self {
        let absent = (0..).zip(&lacks).filter(|(_, lacks)| **lacks).map(|(shard, _)| shard);
        let told = match &error {
            Error::MissingShards { missing, .. } => missing.len(),
            _ => 0,
        };
        Self { first: absent.take(told).collect(), lacks, error: Some(error) }
    }

    pub(crate) fn has(&self, shard: u32) -> bool {
        self.lacks.get(shard as usize).copied().unwrap_or(false)
    }

    /// The error for one shard, if it is absent.
    pub(crate) fn error(&self, shard: u32, index: &Index) -> Option<Error> {
        let name = index.shards().get(shard as usize).filter(|_| self.has(shard))?.as_str();
        let Some(Error::MissingShards { path, missing, shards, hint, .. }) = &self.error else { return None };
        let known = self.first.binary_search(&shard).ok().and_then(|place| missing.get(place));
        let missing = known.cloned().unwrap_or_else(|| MissingShard {
            name: name.to_owned(),
            tensors: index.tensors_of(shard).len(),
            similar: None,
        });
        let (path, hint) = (path.clone(), hint.clone());
        Some(Error::MissingShards { path, missing: vec![missing], count: 1, shards: *shards, hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_is_absent_has_its_error_be_it_among_the_first_or_not() {
        let index = Index::parse(
            br#"{"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "c": "z.safetensors"}}"#,
        )
        .unwrap();
        let first =
            MissingShard { name: "x.safetensors".to_owned(), tensors: 1, similar: Some("X".to_owned()) };
        let error = Error::MissingShards {
            path: "i.json".into(),
            missing: vec![first],
            count: 2,
            shards: 3,
            hint: String::new(),
        };
        let missing = Missing::new(vec![true, false, true], error);
        assert_eq!([0, 1, 2, 3].map(|shard| missing.has(shard)), [true, false, true, false]);
        let message = |shard| missing.error(shard, &index).map(|error| error.to_string());
        assert!(message(0).unwrap().contains("`X` is here"));
        assert_eq!(message(1), None);
        assert!(message(2).unwrap().contains(r#"shard "z.safetensors" (1 tensor) is not there, one of 3"#));
        assert!(!Missing::default().has(0));
    }
}
