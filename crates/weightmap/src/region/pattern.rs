//! Offsets that repeat: ranges of them within rows, rows within planes, and so on.

use std::ops::Range;

use super::ranges::Ranges;

/// A set of offsets, as ranges that are repeated at the wanted indices of a dimension, all of which is
/// repeated at those of the next outer one, and so on.
///
/// A dimension is no level of its own where what it repeats can be told by ranges alone, so that the pattern
/// of a whole tensor, and of whole rows, has no level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) runs: Ranges,
    /// Innermost first.
    pub(super) levels: Vec<Level>,
}

/// A dimension that repeats what is within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    /// From one index to the next.
    pub(super) stride: u64,
    pub(super) indices: Ranges,
    /// How many offsets there are at each index.
    pub(super) inner_len: u64,
}

impl Pattern {
    pub(super) fn run(run: Range<u64>) -> Self {
        Self { runs: Ranges::new([run], 0), levels: Vec::new() }
    }

    /// The pattern at each index of a dimension, gaps of at most `max_gap` filled where that saves a level.
    pub(super) fn repeat(mut self, stride: u64, indices: Ranges, max_gap: u64) -> Self {
        if let Some(run) = self.as_run()
            && (stride.saturating_sub(run.end - run.start) <= max_gap
                || indices.len() == indices.iter().len() as u64)
        {
            let joined = |range: Range<u64>| {
                let (first, last) =
                    (range.start.saturating_mul(stride), (range.end - 1).saturating_mul(stride));
                first.saturating_add(run.start)..last.saturating_add(run.end)
            };
            return Self { runs: Ranges::new(indices.iter().map(joined), max_gap), levels: Vec::new() };
        }
        let level = match self.levels.last().and_then(|inner| inner.times(stride).zip(Some(inner))) {
            // All indices of the inner dimension are wanted: both are one.
            Some((times, inner)) => {
                let scaled = indices.iter().map(|range| range.start * times..range.end * times);
                let level = Level { indices: Ranges::new(scaled, 0), ..*inner };
                self.levels.pop();
                level
            }
            None => Level { stride, indices, inner_len: self.len() },
        };
        self.levels.push(level);
        self
    }

    /// The pattern with gaps of at most `max_gap` filled, except some between two repetitions. What is left has
    /// a wider gap within each repetition, so that at most two of its ranges in a row are still to be joined.
    pub(super) fn filled(&self, max_gap: u64) -> Self {
        let runs = Ranges::new(self.runs.iter(), max_gap);
        let repeat = |inner: Self, level: &Level| inner.repeat(level.stride, level.indices.clone(), max_gap);
        self.levels.iter().fold(Self { runs, levels: Vec::new() }, repeat)
    }

    /// The pattern as one range, where it is one.
    fn as_run(&self) -> Option<Range<u64>> {
        self.runs.single().filter(|_| self.levels.is_empty())
    }

    /// How many offsets there are.
    pub(super) fn len(&self) -> u64 {
        match self.levels.last() {
            Some(outer) => outer.inner_len.saturating_mul(outer.indices.len()),
            None => self.runs.len(),
        }
    }

    /// From the first offset to the last.
    pub(super) fn hull(&self) -> Range<u64> {
        self.levels.iter().fold(self.runs.hull(), |inner, level| {
            let Range { start, end } = level.indices.hull();
            let (first, last) =
                (start.saturating_mul(level.stride), end.saturating_sub(1).saturating_mul(level.stride));
            first.saturating_add(inner.start)..last.saturating_add(inner.end)
        })
    }

    /// How many of the offsets are below `offset`.
    pub(super) fn rank(&self, mut offset: u64) -> u64 {
        let mut rank = 0;
        for level in self.levels.iter().rev() {
            let (indices, inside) = level.indices.rank(offset / level.stride);
            rank += indices * level.inner_len;
            if !inside {
                return rank;
            }
            offset %= level.stride;
        }
        rank + self.runs.rank(offset).0
    }
}

impl Level {
    /// How many indices lie within an outer stride, if all of them are wanted.
    fn times(&self, outer: u64) -> Option<u64> {
        let times = outer / self.stride;
        (self.indices.single() == Some(0..times)).then_some(times)
    }
}
