//! The partition, of all that has been divided.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::take;
use std::sync::Arc;

use super::Divider;
use crate::error::{PlanError, quote};
use crate::plan::flaw::{Budget, Flaw};
use crate::plan::outputs::{self, FAULTY, NONE};
use crate::plan::partition::{Partition, Tables};
use crate::plan::spec::{OutputRule, Own, Rule};
use crate::warning::Warning;

/// How many parts of outputs may be looked at, over all ranks.
const MOST_PARTS: u64 = 1 << 28;

impl Divider<'_> {
    /// The partition, once all that is put together has been laid out for all ranks.
    pub(super) fn put_together(mut self, bytes: u64, dropped_bytes: u64) -> Result<Partition, PlanError> {
        let mut warnings = self.unused_rules();
        warnings.extend(self.losing_rules());
        warnings.extend(self.unused_numbers());
        let mut tables = Tables {
            names: take(&mut self.names),
            tensors: take(&mut self.tensors),
            classes: take(&mut self.classes.all),
            owners: take(&mut self.owners.all),
            cuts: take(&mut self.cuts),
            dims: take(&mut self.dims),
            shapes: take(&mut self.shapes.all),
            dtypes: take(&mut self.dtypes.all),
            outputs: self.plan.outputs.clone(),
            ..Tables::default()
        };
        if !tables.outputs.is_empty() {
            self.find_parts(&mut tables);
            warnings.extend(self.unused_outputs(&tables));
            self.check_laid(&tables);
            self.check_names(&tables);
        }
        self.faults.into_result()?;
        Ok(Partition {
            world: self.plan.world.size,
            warnings,
            bytes,
            dropped_bytes,
            tables: Arc::new(tables),
            token: Arc::default(),
        })
    }

    fn unused_rules(&self) -> Vec<Warning> {
        let unused = self.plan.spec.rules.iter().zip(&self.is_used).enumerate();
        let unused = unused.filter(|(_, (_, is_used))| !**is_used && !self.plan.is_for_family);
        let warning = |(number, (rule, _)): (usize, (&Rule, &bool))| {
            let pattern = quote(&rule.pattern);
            let message = format!(
                "rule {number} ({pattern}) is no tensor's: it matches none, or rules before it have them"
            );
            Warning::new("UnusedRule", message)
        };
        unused.map(warning).collect()
    }

    fn losing_rules(&self) -> impl Iterator<Item = Warning> {
        let rules = self.plan.rules.iter().zip(&self.is_used).enumerate();
        let losing = rules.filter(|(_, (rule, is_used))| **is_used && rule.loses());
        losing.map(|(number, _)| {
            let message = format!(
                "rule {number} divides tensors twice over the same ranks: a rank has only what falls to it both times, and what \
                 is left is no rank's; use each axis once, or axes of different ranks"
            );
            Warning::new("LostElements", message)
        })
    }

    /// Of numbers that are divided over an axis by several rules, those that are above all that any tensor has: a plan
    /// for a model of more layers gives the last ranks too little.
    fn unused_numbers(&self) -> Vec<Warning> {
        let mut divided: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        for (&(rule, place), &highest) in &self.owners.highest {
            let own = self.plan.spec.rules.get(rule).and_then(|rule| rule.own.get(place));
            if let Some(Own::Var { axis, n, .. }) = own {
                let known = divided.entry((axis, *n)).or_default();
                *known = highest.max(*known);
            }
        }
        let source = if self.plan.is_for_family { "config.json" } else { "`n`" };
        let warning = |((axis, n), highest): ((&str, u64), u64)| {
            let first = highest.checked_add(1).filter(|&first| first < n)?;
            let axis = quote(axis);
            let message = format!(
                "no tensor has a number from {first} to {} of the {n} that are divided over axis {axis}, so that its \
                 coordinates do not have what they should; is {source} of another model?",
                n - 1
            );
            Some(Warning::new("UnusedNumbers", message))
        };
        divided.into_iter().filter_map(warning).collect()
    }

    fn unused_outputs(&self, tables: &Tables) -> Vec<Warning> {
        let used: HashSet<_> = tables.groups.iter().map(|group| group.output as usize).collect();
        let unused = self.plan.spec.outputs.iter().enumerate().filter(|(number, _)| !used.contains(number));
        let warning = |(number, output): (usize, &OutputRule)| {
            let name = quote(&output.name);
            let message = format!(
                "output {number} ({name}) is put together of nothing: no tensor has a name of `from`"
            );
            Warning::new("UnusedRule", message)
        };
        unused.map(warning).collect()
    }

    /// Finds what each output is put together of.
    fn find_parts(&mut self, tables: &mut Tables) {
        let is_there = |tensor: u32| tables.tensors.get(tensor as usize).is_some_and(|&class| class != NONE);
        let grouping = outputs::group(&tables.outputs, tables.names.iter(), is_there, &mut self.budget);
        for (output, tensor, flaw) in &grouping.flaws {
            self.faults.add(None, *output, (*tensor, tables.names.get(*tensor)), flaw);
        }
        (tables.groups, tables.taken) = (grouping.groups, grouping.taken);
    }

    /// That each rank can put its outputs together. Outputs of tensors of the same classes are so in the same way.
    fn check_laid(&mut self, tables: &Tables) {
        let mut budget = Budget::new(MOST_PARTS);
        let mut known: HashMap<(u32, Vec<u32>), Option<Flaw>> = HashMap::new();
        for (number, group) in (0..).zip(&tables.groups) {
            let class = |&tensor: &u32| tables.tensors.get(tensor as usize).copied().unwrap_or(NONE);
            let classes: Vec<_> = group.tensors.iter().map(class).collect();
            // What lacks a part, or has one with a fault, is told as that.
            if classes.iter().any(|&class| class == NONE || class == FAULTY) {
                continue;
            }
            let key = (group.output, classes);
            let flaw = known.entry(key).or_insert_with(|| {
                let look = |rank| {
                    budget.spend(group.tensors.len() as u64)?;
                    match tables.lay(number, rank)? {
                        Some(laid) => self.budget.spend(laid.pieces()),
                        None => Ok(()),
                    }
                };
                (0..self.plan.world.size).try_for_each(look).err()
            });
            if let Some(flaw) = flaw {
                let first = group.tensors.first().copied().unwrap_or(NONE);
                self.faults.add(None, group.output as usize, (first, tables.names.get(first)), flaw);
            }
        }
    }

    /// That no rank has two outputs, or an output and a tensor, of one name.
    fn check_names(&mut self, tables: &Tables) {
        let mut seen: HashMap<&str, Vec<&[u32]>> = HashMap::new();
        let mut budget = Budget::new(MOST_PARTS);
        for group in &tables.groups {
            let others = seen.entry(group.name.as_str()).or_default();
            let loose = tables
                .names
                .find(&group.name)
                .filter(|&tensor| tables.taken.get(tensor as usize).is_none_or(|&group| group == NONE));
            let loose = loose.as_ref().map(std::slice::from_ref);
            let has = |tensors: &[u32], rank| tensors.iter().any(|&tensor| tables.owns(tensor, rank));
            let mut clash = |other: &[u32]| {
                let cost = (other.len() + group.tensors.len()) as u64 * u64::from(self.plan.world.size);
                budget.spend(cost).is_err()
                    || (0..self.plan.world.size).any(|rank| has(&group.tensors, rank) && has(other, rank))
            };
            if others.iter().copied().chain(loose).any(&mut clash) {
                let first = group.tensors.first().copied().unwrap_or(NONE);
                let name = quote(&group.name);
                let flaw = Flaw::new(
                    "PlanOutput",
                    format!("expected names that are given once on each rank, found {name} twice"),
                );
                self.faults.add(None, group.output as usize, (first, tables.names.get(first)), &flaw);
            }
            others.push(&group.tensors);
        }
    }
}
