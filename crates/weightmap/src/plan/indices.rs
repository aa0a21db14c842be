//! Some indices of a dimension, in an order.

use std::ops::Range;

use super::flaw::{Budget, Flaw};

/// Neighbouring indices of a dimension; from [`Run::PADDING`] on, indices that are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: u64,
    pub(super) len: u64,
}

impl Run {
    /// Where padding comes from.
    pub(super) const PADDING: u64 = u64::MAX;

    fn follows(self, before: Self) -> bool {
        match before.from {
            Self::PADDING => self.from == Self::PADDING,
            from => self.from != Self::PADDING && from.checked_add(before.len) == Some(self.from),
        }
    }

    /// The part of it from `skip` on, `len` long.
    fn part(self, skip: u64, len: u64) -> Self {
        let from = if self.from == Self::PADDING { Self::PADDING } else { self.from.saturating_add(skip) };
        Self { from, len }
    }
}

/// The indices that a step has left, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Indices {
    pub(super) runs: Vec<Run>,
    /// Where each run begins among them.
    at: Vec<u64>,
    pub(super) len: u64,
}

impl Indices {
    pub(super) fn whole(len: u64) -> Self {
        let mut local = Self::default();
        local.join(Run { from: 0, len });
        local
    }

    /// Adds a run at the end; whether it could not be joined to the last one.
    pub(super) fn join(&mut self, run: Run) -> bool {
        if run.len == 0 {
            return false;
        }
        let at = self.len;
        self.len = at.saturating_add(run.len);
        match self.runs.last_mut() {
            Some(last) if run.follows(*last) => {
                last.len = last.len.saturating_add(run.len);
                false
            }
            _ => {
                self.runs.push(run);
                self.at.push(at);
                true
            }
        }
    }

    /// Adds those of another's that lie at these places of it.
    pub(super) fn take(&mut self, other: &Self, places: Range<u64>, budget: &mut Budget) -> Result<(), Flaw> {
        budget.spend(1)?;
        let first = other.at.partition_point(|&at| at <= places.start).saturating_sub(1);
        let runs = other.runs.iter().zip(&other.at).skip(first).take_while(|(_, at)| **at < places.end);
        for (run, &at) in runs {
            let start = places.start.max(at);
            let end = places.end.min(at.saturating_add(run.len));
            if start < end && self.join(run.part(start - at, end - start)) {
                budget.spend(1)?;
            }
        }
        Ok(())
    }
}
