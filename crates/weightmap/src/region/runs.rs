//! The ranges of a pattern, one after the other.

use std::borrow::Borrow;
use std::ops::Range;

use super::pattern::{Level, Pattern};
use super::ranges::Position;

/// The ranges of a pattern that lie within a window, in rising order, those merged that have a gap of at most
/// `max_gap`.
///
/// Each takes as long, however many there are, and no allocation.
pub(super) struct Runs<P> {
    pattern: P,
    window: Range<u64>,
    max_gap: u64,
    /// Where each level stands, innermost first; the innermost at the last index of a range of them.
    indices: Vec<Position>,
    /// How many indices of that range are still to come, and how far they are apart.
    left: u64,
    stride: u64,
    /// Where the innermost ranges are repeated now.
    base: u64,
    /// The next of these.
    run: usize,
    /// A range that was looked at, and does not belong to the one before it.
    ahead: Option<Range<u64>>,
}

impl<P: Borrow<Pattern>> Runs<P> {
    pub(super) fn new(pattern: P, window: Range<u64>, max_gap: u64) -> Self {
        let Pattern { runs, levels } = pattern.borrow();
        let (rank, len) = (pattern.borrow().rank(window.start), pattern.borrow().len());
        // Past the last offset there is nothing to stand at, and an empty window can lie within a range.
        let window = if rank < len && !window.is_empty() { window } else { 0..0 };
        let mut rank = rank.min(len.saturating_sub(1));
        let place = |level: &Level| {
            let position = level.indices.select(rank / level.inner_len);
            rank %= level.inner_len;
            position
        };
        let mut indices: Vec<_> = levels.iter().rev().map(place).collect();
        indices.reverse();
        let run = runs.select(rank).stretch();
        let stride = levels.first().map_or(0, |level| level.stride);
        let mut runs = Self { pattern, window, max_gap, indices, left: 0, stride, base: 0, run, ahead: None };
        runs.arrive();
        runs
    }

    /// Adds up where the indices lead.
    fn arrive(&mut self) {
        let levels = &self.pattern.borrow().levels;
        let offsets = levels.iter().zip(&self.indices).map(|(level, index)| level.stride * index.number);
        self.base = offsets.sum();
        if let (Some(level), Some(index)) = (levels.first(), self.indices.first_mut()) {
            let last = level.indices.last_of(*index);
            self.left = last.number - index.number;
            *index = last;
        }
    }

    /// The next range of the pattern, which may touch the one before it.
    #[inline]
    fn advance(&mut self) -> Option<Range<u64>> {
        loop {
            if let Some(Range { start, end }) = self.pattern.borrow().runs.get(self.run) {
                self.run += 1;
                return Some(self.base + start..self.base + end);
            }
            if self.left > 0 {
                self.left -= 1;
                self.base += self.stride;
            } else {
                self.step()?;
            }
            self.run = 0;
        }
    }

    /// Goes on to the next index of the innermost level that has one, and to the first ones of those within.
    fn step(&mut self) -> Option<()> {
        let levels = &self.pattern.borrow().levels;
        let steps = levels.iter().zip(&self.indices).map(|(level, &index)| level.indices.next(index));
        let (inner, next) = steps.enumerate().find_map(|(inner, next)| Some(inner).zip(next))?;
        let firsts = levels.iter().take(inner).map(|level| level.indices.first());
        for (index, to) in self.indices.iter_mut().zip(firsts.chain([next])) {
            *index = to;
        }
        self.arrive();
        Some(())
    }
}

impl<P: Borrow<Pattern>> Iterator for Runs<P> {
    type Item = Range<u64>;

    #[inline]
    fn next(&mut self) -> Option<Range<u64>> {
        let mut run = self.ahead.take().or_else(|| self.advance())?;
        if run.start >= self.window.end {
            return None;
        }
        loop {
            match self.advance() {
                Some(next) if next.start - run.end <= self.max_gap => run.end = next.end,
                next => {
                    self.ahead = next;
                    return Some(run.start.max(self.window.start)..run.end.min(self.window.end));
                }
            }
        }
    }
}
