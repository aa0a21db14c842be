//! The files of a distributed checkpoint, which each rank writes for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::candidate::{Candidate, Part, missing_numbers};
use crate::error::Error;

/// The files `shard-R-model-I-of-N` of one N. A rank writes file I only if it has something for it, so that not every
/// pair of R and I need be there.
#[derive(Debug, Default)]
pub(super) struct Ranks<'a> {
    of: u64,
    /// Rank, number and file.
    files: BTreeSet<(u64, u64, &'a str)>,
}

impl<'a> Ranks<'a> {
    /// The distributed checkpoints among the candidates.
    pub(super) fn all(candidates: &[Candidate<'a>]) -> Vec<Self> {
        let mut all = BTreeMap::<_, Self>::new();
        for candidate in candidates {
            if let (Some(rank), Part::Shard { number, of }) = (candidate.rank(), candidate.part) {
                let ranks = all.entry(of).or_default();
                ranks.of = of;
                ranks.files.insert((rank, number, candidate.file));
            }
        }
        all.into_values().collect()
    }

    /// The files by rank and number.
    pub(super) fn files(&self) -> impl Iterator<Item = &'a str> {
        self.files.iter().map(|(_, _, file)| *file)
    }

    /// Checks that each rank up to the last wrote a file, and that each number is there. The last rank is the last
    /// that is here, as no name tells how many there were.
    pub(super) fn check(&self, directory: &Path) -> Result<(), Error> {
        let places: BTreeSet<_> = self.files.iter().map(|(rank, number, _)| (rank, number)).collect();
        if places.len() < self.files.len() {
            return Err(Error::Ambiguous {
                path: directory.to_owned(),
                what: "shards of one rank and number",
                candidates: self.files().map(str::to_owned).collect(),
            });
        }
        let example = self.files().next().unwrap_or_default();
        let ranks: BTreeSet<u64> = self.files.iter().map(|(rank, ..)| *rank).collect();
        let last = ranks.last().copied().unwrap_or(1).max(1);
        missing_numbers(directory, example, "ranks", &ranks, 1..=last)?;
        let numbers = self.files.iter().map(|(_, number, _)| *number).collect();
        missing_numbers(directory, example, "numbers", &numbers, 1..=self.of.max(1))
    }
}
