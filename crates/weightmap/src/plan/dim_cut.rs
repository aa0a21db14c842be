//! The cut of one dimension: which of its indices each rank has, and in which order.

use std::ops::Range;

use super::cut::Cutter;
use super::flaw::{Budget, Flaw};
use super::indices::{Indices, Run};
use super::mesh::Grid;

/// What each rank has of a dimension.
#[derive(Debug, Clone)]
pub(super) struct DimCut {
    grid: Grid,
    /// By cell of the grid.
    parts: Vec<DimPart>,
    runs: Vec<Run>,
}

/// What one rank has of a dimension.
#[derive(Debug, Clone, Copy, Default)]
struct DimPart {
    first: u32,
    runs: u32,
    len: u64,
    pad: u64,
}

/// The same, to be looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalDim<'a> {
    /// In the order in which they lie in the local tensor, none of padding; adjacent ones are joined.
    pub(super) runs: &'a [Run],
    /// With padding.
    pub(super) len: u64,
    /// How many indices at the end are padding.
    pub(super) pad: u64,
}

/// The most cells of a grid whose axes are not those of one view.
const MOST_CELLS: u64 = 1 << 20;

impl DimCut {
    /// A dimension that is whole on every rank.
    pub(super) fn whole(len: u64) -> Self {
        let mut cut = Self { grid: Grid::new([]), parts: vec![DimPart::default()], runs: Vec::new() };
        // A single run is always kept.
        _ = cut.keep(0, &Indices::whole(len));
        cut
    }

    /// A dimension that some steps cut; the place of the step that cannot be made, where there is one.
    pub(super) fn new(
        len: u64,
        steps: &[&Cutter],
        world: u32,
        budget: &mut Budget,
    ) -> Result<Self, (usize, Flaw)> {
        let place = steps.first().map_or(0, |step| step.place);
        let cut = Self::on(Grid::new(steps.iter().filter_map(|step| step.axis())), world, budget);
        let mut cut = cut.map_err(|flaw| (place, flaw))?;
        let ranks = cut.grid.ranks(world);
        cut.descend(&Indices::whole(len), steps, ranks, budget)?;
        Ok(cut)
    }

    fn on(grid: Grid, world: u32, budget: &mut Budget) -> Result<Self, Flaw> {
        let cells = grid.cells();
        let looked_at = if grid.is_free() { cells } else { cells.saturating_add(u64::from(world)) };
        budget.spend(looked_at.max(if cells > MOST_CELLS { u64::MAX } else { 0 }))?;
        let parts = vec![DimPart::default(); usize::try_from(cells).unwrap_or(0)];
        Ok(Self { grid, parts, runs: Vec::new() })
    }

    /// Makes the steps for some ranks, one of each cell, that have had the same until here.
    fn descend(
        &mut self,
        local: &Indices,
        steps: &[&Cutter],
        ranks: Vec<u32>,
        budget: &mut Budget,
    ) -> Result<(), (usize, Flaw)> {
        let Some((step, rest)) = steps.split_first() else {
            return ranks
                .iter()
                .try_for_each(|&rank| self.keep(self.grid.cell(rank), local))
                .map_err(|flaw| (0, flaw));
        };
        let mut groups = vec![ranks];
        if let Some(axis) = step.axis() {
            let ranks = groups.pop().unwrap_or_default();
            groups.resize_with(axis.size as usize, Vec::new);
            for rank in ranks {
                if let Some(group) = groups.get_mut(axis.coordinate(rank) as usize) {
                    group.push(rank);
                }
            }
        }
        let place = |flaw| (step.place, flaw);
        budget.spend(groups.len() as u64).map_err(place)?;
        for (coordinate, ranks) in (0..).zip(groups).filter(|(_, ranks)| !ranks.is_empty()) {
            let left = step.apply(local, coordinate, budget).map_err(place)?;
            self.descend(&left, rest, ranks, budget)?;
        }
        Ok(())
    }

    fn keep(&mut self, cell: usize, local: &Indices) -> Result<(), Flaw> {
        let is_padding = |run: &Run| run.from == Run::PADDING;
        let (runs, padding) = match local.runs.split_last() {
            Some((last, before)) if is_padding(last) => (before, last.len),
            _ => (local.runs.as_slice(), 0),
        };
        if runs.iter().any(is_padding) {
            let message = "expected the padding of each rank to lie at the end of its part, found it between \
                           indices; pad in the last step";
            return Err(Flaw::new("PlanPad", message));
        }
        let first = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        self.runs.extend_from_slice(runs);
        if let Some(part) = self.parts.get_mut(cell) {
            *part =
                DimPart { first, runs: u32::try_from(runs.len()).unwrap_or(0), len: local.len, pad: padding };
        }
        Ok(())
    }

    /// What a rank has.
    pub(super) fn of(&self, rank: u32) -> LocalDim<'_> {
        let part = self.parts.get(self.grid.cell(rank)).copied().unwrap_or_default();
        let runs = self.runs.get(part.first as usize..).and_then(|runs| runs.get(..part.runs as usize));
        LocalDim { runs: runs.unwrap_or_default(), len: part.len, pad: part.pad }
    }

    /// What each rank has of the scales, one for each `block` indices, of what it has of the dimension.
    pub(super) fn scaled(&self, block: u64, budget: &mut Budget) -> Result<Self, Flaw> {
        budget.spend((self.runs.len() as u64).saturating_add(self.parts.len() as u64))?;
        let mut scaled = Self { grid: self.grid.clone(), parts: self.parts.clone(), runs: Vec::new() };
        for (cell, part) in self.parts.iter().enumerate() {
            let runs = self.runs.get(part.first as usize..).and_then(|runs| runs.get(..part.runs as usize));
            let mut blocks: Vec<Range<u64>> = runs
                .unwrap_or_default()
                .iter()
                .map(|run| run.from / block..run.from.saturating_add(run.len).div_ceil(block))
                .collect();
            blocks.sort_unstable_by_key(|blocks| blocks.start);
            let mut local = Indices::default();
            let mut end = 0;
            for Range { start, end: until } in blocks {
                let from = start.max(end);
                local.join(Run { from, len: until.saturating_sub(from) });
                end = end.max(until);
            }
            scaled.keep(cell, &local)?;
        }
        Ok(scaled)
    }

    /// The most that a rank has of it, with padding.
    pub(super) fn longest(&self) -> u64 {
        self.parts.iter().map(|part| part.len).max().unwrap_or(0)
    }
}
