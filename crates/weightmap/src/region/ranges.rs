//! A set of numbers as few ranges, in which a number is found, and counted, by bisection.

use std::ops::Range;

/// Ranges in rising order, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Stretch>);

/// One of the ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    /// How many numbers there are in the ranges before it.
    before: u64,
}

/// One of the numbers, and the range that it is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    stretch: usize,
    pub(super) number: u64,
}

impl Ranges {
    /// Ranges that are given in rising order; neighbours with a gap of at most `max_gap` become one.
    pub(super) fn new(ranges: impl IntoIterator<Item = Range<u64>>, max_gap: u64) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        for Range { start, end } in ranges.into_iter().filter(|range| !range.is_empty()) {
            match stretches.last_mut() {
                Some(last) if start.saturating_sub(last.end) <= max_gap => last.end = end,
                last => {
                    let before = last.map_or(0, |last| last.before + last.len());
                    stretches.push(Stretch { start, end, before });
                }
            }
        }
        Self(stretches)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator {
        self.0.iter().map(|stretch| stretch.start..stretch.end)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Range<u64>> {
        self.0.get(index).map(|stretch| stretch.start..stretch.end)
    }

    /// The one range, if there is only one.
    pub(super) fn single(&self) -> Option<Range<u64>> {
        self.get(0).filter(|_| self.0.len() == 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers there are.
    pub(super) fn len(&self) -> u64 {
        self.0.last().map_or(0, |last| last.before + last.len())
    }

    /// From the first number to the last.
    pub(super) fn hull(&self) -> Range<u64> {
        match self.0.as_slice() {
            [] => 0..0,
            [first, ..] => first.start..self.0.last().unwrap_or(first).end,
        }
    }

    /// How many of the numbers are below `number`, and whether it is one of them.
    pub(super) fn rank(&self, number: u64) -> (u64, bool) {
        let above = self.0.partition_point(|stretch| stretch.start <= number);
        match above.checked_sub(1).and_then(|index| self.0.get(index)) {
            Some(stretch) => {
                (stretch.before + (number.min(stretch.end) - stretch.start), number < stretch.end)
            }
            None => (0, false),
        }
    }

    /// The first number; 0 where there is none.
    pub(super) fn first(&self) -> Position {
        Position { stretch: 0, number: self.hull().start }
    }

    /// The number with the given rank, which must be less than [`len`](Self::len).
    pub(super) fn select(&self, rank: u64) -> Position {
        let stretch = self.0.partition_point(|stretch| stretch.before <= rank).saturating_sub(1);
        let number = self.0.get(stretch).map_or(0, |found| found.start + (rank - found.before));
        Position { stretch, number }
    }

    /// The number after another.
    pub(super) fn next(&self, position: Position) -> Option<Position> {
        let Position { stretch, number } = position;
        if number < self.last_of(position).number {
            return Some(Position { stretch, number: number + 1 });
        }
        let next = self.get(stretch + 1)?;
        Some(Position { stretch: stretch + 1, number: next.start })
    }

    /// The last number of the range that another is in.
    pub(super) fn last_of(&self, position: Position) -> Position {
        let Position { stretch, number } = position;
        Position { stretch, number: self.get(stretch).map_or(number, |range| range.end - 1) }
    }
}

impl Position {
    /// The number of the range that it is in.
    pub(super) fn stretch(self) -> usize {
        self.stretch
    }
}

impl Stretch {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}
