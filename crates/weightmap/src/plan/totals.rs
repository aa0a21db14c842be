//! What each rank has, in sum.

use std::collections::HashMap;

use super::outputs::NONE;
use super::partition::{Class, Tables};

/// What a rank has, in sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankTotal {
    /// How many tensors and outputs it has; empty ones count too.
    pub tensors: u64,
    /// The bytes of them that are in the checkpoint: without padding.
    pub bytes: u64,
}

/// What must be counted of each class to sum up a rank.
pub(super) struct Counts {
    /// By class: how many tensors there are, and how many of them no output takes.
    classes: Vec<(u64, u64)>,
    /// How many outputs have the same owners of their parts.
    groups: Vec<(Vec<u32>, u64)>,
}

impl Counts {
    pub(super) fn new(tables: &Tables) -> Self {
        let mut classes = vec![(0, 0); tables.classes.len()];
        for (tensor, &class) in tables.tensors.iter().enumerate() {
            if let Some((all, loose)) = classes.get_mut(class as usize) {
                *all += 1;
                *loose += u64::from(tables.taken.get(tensor).is_none_or(|&group| group == NONE));
            }
        }
        let owner = |&tensor: &u32| {
            let class = tables.tensors.get(tensor as usize)?;
            tables.classes.get(*class as usize).map(|class| class.owner)
        };
        let mut groups: HashMap<Vec<u32>, u64> = HashMap::new();
        for group in &tables.groups {
            let mut owners: Vec<_> = group.tensors.iter().filter_map(owner).collect();
            owners.sort_unstable();
            owners.dedup();
            *groups.entry(owners).or_default() += 1;
        }
        Self { classes, groups: groups.into_iter().collect() }
    }

    pub(super) fn of(&self, tables: &Tables, rank: u32) -> RankTotal {
        let owned: Vec<_> = tables.owners.iter().map(|owner| owner.owns(rank)).collect();
        let owns = |owner: u32| owned.get(owner as usize).copied().unwrap_or(false);
        let mut total = RankTotal::default();
        let is_there = |(_, class): &(u32, &Class)| owns(class.owner);
        for (number, _) in (0..).zip(&tables.classes).filter(is_there) {
            let (all, loose) = self.classes.get(number as usize).copied().unwrap_or_default();
            let bytes = tables.local(number, rank).map_or(0, |local| local.bytes());
            total.bytes = total.bytes.saturating_add(bytes.saturating_mul(all));
            total.tensors += loose;
        }
        let made = self.groups.iter().filter(|(owners, _)| owners.iter().any(|&owner| owns(owner)));
        total.tensors += made.map(|(_, count)| count).sum::<u64>();
        total
    }
}
