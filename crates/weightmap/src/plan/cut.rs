//! The steps by which a dimension is cut.

use std::ops::Range;

use super::flaw::{Budget, Flaw};
use super::indices::{Indices, Run};
use super::mesh::Axis;
use super::spec::{Blocks, Interleave, Replicas, Shard, Step};
use super::split::{Division, starts};
use crate::error::list;

/// A step that has been looked through.
#[derive(Debug, Clone)]
pub(super) struct Cutter {
    pub(super) dim: i64,
    /// Its place in the rule.
    pub(super) place: usize,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    Interleave { starts: Vec<u64>, groups: u64 },
    Shard(Sharding),
}

#[derive(Debug, Clone)]
struct Sharding {
    axis: Axis,
    /// Over how many coordinates a block is divided: those of the axis, less replicas. One for all blocks, or one
    /// for each of them.
    replicas: Vec<u32>,
    division: Division,
    unit: u64,
    blocks: Option<Blocks>,
    pad_multiple: Option<u64>,
}

impl Cutter {
    /// Looks a step through; finds the axis by its name.
    pub(super) fn new(
        step: &Step,
        place: usize,
        axis: impl Fn(&str) -> Result<Axis, Flaw>,
    ) -> Result<Self, Flaw> {
        let (dim, how) = match step {
            Step::Interleave(Interleave { dim, interleave, groups }) => {
                if *groups == 0 {
                    return Err(Flaw::new("PlanUneven", "expected `groups` of at least 1, found 0"));
                }
                let starts = starts(interleave).map_err(|flaw| Flaw { kind: "PlanBlocks", ..flaw })?;
                if let Some(part) = interleave.iter().find(|part| *part % groups != 0) {
                    let message = format!("expected parts that {groups} groups divide, found one of {part}");
                    return Err(Flaw::new("PlanUneven", message));
                }
                (*dim, How::Interleave { starts, groups: *groups })
            }
            Step::Shard(shard) => (shard.dim, How::Shard(Sharding::new(shard, axis(&shard.axis)?)?)),
        };
        Ok(Self { dim, place, how })
    }

    /// The axis over which it cuts.
    pub(super) fn axis(&self) -> Option<Axis> {
        match &self.how {
            How::Interleave { .. } => None,
            How::Shard(sharding) => Some(sharding.axis),
        }
    }

    /// The axis over which it cuts, if each of its coordinates has something else.
    pub(super) fn sole_axis(&self) -> Option<Axis> {
        match &self.how {
            How::Shard(sharding) if sharding.replicas.iter().all(|&replicas| replicas <= 1) => {
                Some(sharding.axis)
            }
            _ => None,
        }
    }

    /// What is left at one coordinate of its axis.
    pub(super) fn apply(
        &self,
        local: &Indices,
        coordinate: u32,
        budget: &mut Budget,
    ) -> Result<Indices, Flaw> {
        match &self.how {
            How::Interleave { starts, groups } => interleaved(local, starts, *groups, budget),
            How::Shard(sharding) => sharding.apply(local, coordinate, budget),
        }
    }
}

fn interleaved(local: &Indices, starts: &[u64], groups: u64, budget: &mut Budget) -> Result<Indices, Flaw> {
    let sum = starts.last().copied().unwrap_or(0);
    if sum != local.len {
        let message = format!(
            "expected `interleave` to sum to {}, the length of the dimension, found {sum}",
            local.len
        );
        return Err(Flaw::new("PlanBlocks", message));
    }
    budget.spend(groups.saturating_mul(starts.len() as u64))?;
    let mut turned = Indices::default();
    for group in 0..groups {
        for part in starts.windows(2) {
            let [start, end] = part else { continue };
            let len = (end - start) / groups;
            let from = start + group * len;
            turned.take(local, from..from + len, budget)?;
        }
    }
    Ok(turned)
}

impl Sharding {
    fn new(shard: &Shard, axis: Axis) -> Result<Self, Flaw> {
        let zero =
            |kind, field: &str| Err(Flaw::new(kind, format!("expected `{field}` of at least 1, found 0")));
        match (shard.unit, &shard.blocks, shard.pad_multiple) {
            (Some(0), ..) => return zero("PlanUneven", "unit"),
            (_, Some(Blocks::Count(0)), _) => return zero("PlanBlocks", "blocks"),
            (_, Some(Blocks::Sizes(sizes)), _) if sizes.is_empty() => {
                return Err(Flaw::new(
                    "PlanBlocks",
                    "expected a number or a list of `blocks`, found none in the list",
                ));
            }
            (.., Some(0)) => return zero("PlanPad", "pad_multiple"),
            (_, Some(_), Some(_)) => {
                let message = "expected `blocks` or `pad_multiple`, found both; blocks are not padded";
                return Err(Flaw::new("PlanBlocks", message));
            }
            _ => {}
        }
        if let Some(Blocks::Sizes(sizes)) = &shard.blocks {
            starts(sizes).map_err(|flaw| Flaw { kind: "PlanBlocks", ..flaw })?;
        }
        let replicas = replicas(shard, axis)?;
        // Lists are of one length, so that they are for blocks of equal replicas only.
        let mut distinct = replicas.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut division = Division::Even;
        for replicas in distinct {
            division = Division::new(&shard.split, axis.size / replicas.max(1))?;
        }
        Ok(Self {
            axis,
            replicas,
            division,
            unit: shard.unit.unwrap_or(1),
            blocks: shard.blocks.clone(),
            pad_multiple: shard.pad_multiple,
        })
    }

    fn apply(&self, local: &Indices, coordinate: u32, budget: &mut Budget) -> Result<Indices, Flaw> {
        let padded = self.padded(local)?;
        let local = padded.as_ref().unwrap_or(local);
        let mut left = Indices::default();
        for (number, block) in self.blocks(local.len)?.enumerate() {
            budget.spend(1)?;
            // With no list there is one for all.
            let replicas = self.replicas.get(number).or(self.replicas.last()).copied().unwrap_or(1).max(1);
            let k = self.axis.size / replicas;
            let len = block.end - block.start;
            if len.checked_rem(self.unit) != Some(0) {
                let message = format!("expected a length that units of {} divide, found {len}", self.unit);
                return Err(Flaw::new("PlanUneven", message));
            }
            let units = len / self.unit;
            self.division.check(units, k, if self.unit == 1 { "indices" } else { "units" })?;
            self.division.each(coordinate / replicas, k, units, |run| {
                let place = |unit: u64| block.start + unit * self.unit;
                left.take(local, place(run.start)..place(run.end), budget)
            })?;
        }
        Ok(left)
    }

    /// The list with padding at its end; `None` where it needs none.
    fn padded(&self, local: &Indices) -> Result<Option<Indices>, Flaw> {
        let Some(multiple) = self.pad_multiple else { return Ok(None) };
        let padded = local.len.checked_next_multiple_of(multiple).ok_or_else(|| {
            Flaw::new("PlanTooLarge", format!("expected a `pad_multiple` to be padded to, found {multiple}"))
        })?;
        let mut list = local.clone();
        list.join(Run { from: Run::PADDING, len: padded - local.len });
        Ok(Some(list))
    }

    /// The blocks of a dimension.
    fn blocks(&self, len: u64) -> Result<impl Iterator<Item = Range<u64>>, Flaw> {
        let (count, size, sizes) = match &self.blocks {
            None => (1, len, None),
            Some(Blocks::Count(count)) => {
                if !len.is_multiple_of(*count) && !matches!(self.division, Division::Chunk) {
                    let message = format!(
                        "expected a length that {count} blocks divide, found {len}; `chunk` lets the last be shorter"
                    );
                    return Err(Flaw::new("PlanBlocks", message));
                }
                let size = len.div_ceil(*count);
                // What comes after the end is empty, and need not be looked at.
                (len.div_ceil(size.max(1)).max(1), size, None)
            }
            Some(Blocks::Sizes(sizes)) => {
                let sum = sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size));
                if sum != Some(len) {
                    let shown = list(sizes, sizes.len() as u64);
                    let message = format!(
                        "expected blocks that sum to {len}, the length of the dimension, found {shown}"
                    );
                    return Err(Flaw::new("PlanBlocks", message));
                }
                (sizes.len() as u64, 0, Some(sizes))
            }
        };
        let mut start = 0_u64;
        Ok((0..count).map(move |number| {
            let size = match sizes {
                Some(sizes) => {
                    usize::try_from(number).ok().and_then(|number| sizes.get(number)).copied().unwrap_or(0)
                }
                None => size,
            };
            let end = start.saturating_add(size).min(len);
            std::mem::replace(&mut start, end)..end
        }))
    }
}

/// The replicas of all blocks, or of each.
fn replicas(shard: &Shard, axis: Axis) -> Result<Vec<u32>, Flaw> {
    let each = match &shard.replicas {
        None => vec![1],
        Some(Replicas::Same(same)) => vec![*same],
        Some(Replicas::PerBlock(each)) => {
            let blocks = match &shard.blocks {
                None => 1,
                Some(Blocks::Count(count)) => *count,
                Some(Blocks::Sizes(sizes)) => sizes.len() as u64,
            };
            if each.len() as u64 != blocks {
                let message =
                    format!("expected replicas of {blocks} blocks, one for each, found {}", each.len());
                return Err(Flaw::new("PlanReplicas", message));
            }
            each.clone()
        }
    };
    let checked = |replicas: u64| {
        let fits =
            u32::try_from(replicas).ok().filter(|&replicas| axis.size.checked_rem(replicas) == Some(0));
        fits.ok_or_else(|| {
            let size = axis.size;
            Flaw::new(
                "PlanReplicas",
                format!(
                    "expected a number that divides the {size} coordinates of the axis, found {replicas}"
                ),
            )
        })
    };
    each.into_iter().map(checked).collect()
}
