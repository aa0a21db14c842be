//! Many names in one allocation, numbered, found in O(1).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Distinct names, numbered from 0 in the order in which they were added.
///
/// The text lies back to back in one string, so that 200,000 names cost three allocations. Names come from
/// files that nobody vouches for: the hash is keyed at random, so that they cannot be chosen to collide.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable {
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl NameTable {
    /// A table with room for `names` names of `bytes` bytes together.
    pub(crate) fn with_capacity(names: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(names),
            numbers: HashTable::with_capacity(names),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a name and gives its number, or, where the name is there already, the number that it has as an
    /// error.
    pub(crate) fn insert(&mut self, name: &str) -> Result<u32, u32> {
        let Self { text, ends, numbers, hasher } = self;
        let same = |&number: &u32| bytes(text, ends, number) == name.as_bytes();
        let rehash = |&number: &u32| hasher.hash_one(bytes(text, ends, number));
        match numbers.entry(hasher.hash_one(name.as_bytes()), same, rehash) {
            Entry::Occupied(there) => Err(*there.get()),
            Entry::Vacant(free) => {
                // A name takes at least three bytes of the text that it comes from, which no limit lets
                // grow to 12 GiB; the table would be full of memory long before it is full of numbers.
                let number = u32::try_from(ends.len()).unwrap_or(u32::MAX);
                free.insert(number);
                text.push_str(name);
                ends.push(text.len());
                Ok(number)
            }
        }
    }

    /// The name with this number; empty for a number that was never given out.
    pub(crate) fn get(&self, number: u32) -> &str {
        self.text.get(range(&self.ends, number)).unwrap_or_default()
    }

    /// The number of a name.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let same = |&number: &u32| bytes(&self.text, &self.ends, number) == name.as_bytes();
        self.numbers.find(self.hasher.hash_one(name.as_bytes()), same).copied()
    }

    /// The names in the order of their numbers.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.ends.len()).map(|position| self.get(u32::try_from(position).unwrap_or(u32::MAX)))
    }
}

/// Where a name lies in the text; nowhere for a number that was never given out.
fn range(ends: &[usize], number: u32) -> Range<usize> {
    let position = number as usize;
    let start = position.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    ends.get(position).map_or(0..0, |&end| start..end)
}

/// A name for comparing and hashing: bytes need no look at the boundaries of characters.
fn bytes<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a [u8] {
    text.as_bytes().get(range(ends, number)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_order_and_found_again() {
        let mut table = NameTable::default();
        let names = ["b", "", "a", "model.layers.0.mlp.weight", "é"];
        for (number, name) in (0..).zip(names) {
            assert_eq!(table.insert(name), Ok(number));
        }
        for (number, name) in (0..).zip(names) {
            assert_eq!(table.find(name), Some(number));
            assert_eq!(table.get(number), name);
        }
        assert_eq!(table.find("c"), None);
        assert_eq!(table.iter().collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_name_that_is_there_already_is_an_error_with_its_number() {
        let mut table = NameTable::with_capacity(2, 2);
        assert_eq!(table.insert("a"), Ok(0));
        assert_eq!(table.insert("b"), Ok(1));
        assert_eq!(table.insert("a"), Err(0));
        assert_eq!(table.len(), 2);
    }
}
