//! Which ranks have something of a tensor.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::flaw::{Budget, Flaw};
use super::matching::Hit;
use super::mesh::Axis;
use super::partition::Tensor;
use super::rules::{Rule, Which};
use super::spec::By;

/// The ranks for which all of some conditions hold; all ranks where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    clauses: Vec<(Axis, Coordinates)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Coordinates {
    One(u32),
    /// In rising order.
    Some(Arc<[u32]>),
}

impl Owner {
    pub(super) fn owns(&self, rank: u32) -> bool {
        self.clauses.iter().all(|(axis, coordinates)| match coordinates {
            Coordinates::One(one) => axis.coordinate(rank) == *one,
            Coordinates::Some(some) => some.binary_search(&axis.coordinate(rank)).is_ok(),
        })
    }

    /// Whether there is any such rank.
    fn is_any(&self, world: u32, budget: &mut Budget) -> Result<bool, Flaw> {
        // Where axes do not depend on each other, the first coordinates of all of them meet in this rank.
        let mut axes: Vec<_> = self.clauses.iter().map(|(axis, _)| *axis).collect();
        axes.sort_unstable();
        axes.dedup();
        let first = |axis: &Axis| {
            let of_axis = self.clauses.iter().filter(|(other, _)| other == axis);
            let first = of_axis.map(|(_, coordinates)| match coordinates {
                Coordinates::One(one) => *one,
                Coordinates::Some(some) => some.first().copied().unwrap_or(0),
            });
            axis.stride.saturating_mul(first.max().unwrap_or(0))
        };
        let likely = axes.iter().map(first).fold(0, u32::saturating_add);
        if likely < world && self.owns(likely) {
            return Ok(true);
        }
        budget.spend(u64::from(world))?;
        Ok((0..world).any(|rank| self.owns(rank)))
    }
}

/// The owners that there are, each once.
#[derive(Debug)]
pub(super) struct Owners {
    pub(super) all: Vec<Owner>,
    /// By the rule and the coordinate that each of its clauses has chosen.
    known: HashMap<Vec<u32>, Result<u32, Flaw>>,
    key: Vec<u32>,
    /// By rule and clause, the highest number that a tensor had.
    pub(super) highest: HashMap<(usize, usize), u64>,
    chosen: Chosen,
    world: u32,
}

/// The owner that has everything.
pub(super) const EVERYONE: u32 = 0;

impl Owners {
    pub(super) fn new(world: u32) -> Self {
        let all = vec![Owner { clauses: Vec::new() }];
        Self {
            all,
            known: HashMap::new(),
            key: Vec::new(),
            highest: HashMap::new(),
            chosen: Chosen::default(),
            world,
        }
    }

    /// Takes what has been chosen, before it is asked for.
    pub(super) fn take(&mut self, chosen: Chosen) {
        self.chosen = chosen;
    }

    /// The number of a tensor's owner; where there is none, the place of the clause that cannot be answered.
    pub(super) fn of(
        &mut self,
        rule: &Rule,
        hit: &Hit,
        tensor: u32,
        name: &str,
        budget: &mut Budget,
    ) -> Result<u32, (usize, Flaw)> {
        if rule.own.is_empty() {
            return Ok(EVERYONE);
        }
        self.key.clear();
        self.key.push(u32::try_from(hit.rule).unwrap_or(u32::MAX));
        for (place, clause) in rule.own.iter().enumerate() {
            self.key.push(match &clause.which {
                Which::At(_) => 0,
                Which::Number { name: var, slot, places } => {
                    let number = number(var, hit.text(*slot, name)).map_err(|flaw| (place, flaw))?;
                    let highest = self.highest.entry((hit.rule, place)).or_default();
                    *highest = number.max(*highest);
                    places.of(number).map_err(|flaw| (place, flaw))?
                }
                Which::Chosen(_) => self.chosen.of(hit.rule, place, tensor),
            });
        }
        if let Some(known) = self.known.get(self.key.as_slice()) {
            return known.clone().map_err(|flaw| (rule.own.len(), flaw));
        }
        let clauses = rule.own.iter().zip(self.key.iter().skip(1)).map(|(clause, &one)| {
            let coordinates = match &clause.which {
                Which::At(some) => Coordinates::Some(some.as_slice().into()),
                _ => Coordinates::One(one),
            };
            (clause.axis, coordinates)
        });
        let owner = Owner { clauses: clauses.collect() };
        let found = owner.is_any(self.world, budget).and_then(|is_any| match is_any {
            true => {
                self.all.push(owner);
                Ok(u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX))
            }
            false => Err(Flaw::new(
                "PlanUnowned",
                "expected a rank for which all of `own` holds, found none; use `drop` if no rank shall have it",
            )),
        });
        self.known.insert(self.key.clone(), found.clone());
        found.map_err(|flaw| (rule.own.len(), flaw))
    }
}

fn number(var: &str, text: Option<&str>) -> Result<u64, Flaw> {
    let text =
        text.ok_or_else(|| Flaw::new("PlanVar", format!("expected a number for `{var}`, found no capture")))?;
    text.parse().map_err(|_| {
        let found = crate::error::quote(text);
        Flaw::new("PlanVar", format!("expected a number for `{var}`, found {found}; capture digits only"))
    })
}

/// What has been chosen so that all coordinates have about the same bytes.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// By rule and clause: the coordinate of each tensor that the rule matches.
    of: HashMap<(usize, usize), HashMap<u32, u32>>,
}

impl Chosen {
    /// Chooses for the tensors of one rule, which come with their numbers.
    pub(super) fn choose(&mut self, rule: usize, clauses: &Rule, tensors: &[(u32, Tensor<'_>)]) {
        for (place, clause) in clauses.own.iter().enumerate() {
            let Which::Chosen(by) = clause.which else { continue };
            // Tensors that stay together are one thing, in the order of the first of them.
            let mut things: HashMap<u64, (u64, u32)> = HashMap::new();
            let thing = |number: u32, tensor: &Tensor<'_>| match by {
                By::Bytes => u64::from(number),
                By::Shard => u64::from(tensor.shard),
            };
            for (number, tensor) in tensors {
                let (bytes, _) = things.entry(thing(*number, tensor)).or_insert((0, *number));
                *bytes = bytes.saturating_add(tensor.bytes);
            }
            let coordinates = balanced(things, clause.axis.size);
            let of_tensor = |(number, tensor): &(u32, Tensor<'_>)| {
                (*number, coordinates.get(&thing(*number, tensor)).copied().unwrap_or(0))
            };
            self.of.insert((rule, place), tensors.iter().map(of_tensor).collect());
        }
    }

    fn of(&self, rule: usize, place: usize, tensor: u32) -> u32 {
        self.of.get(&(rule, place)).and_then(|of| of.get(&tensor)).copied().unwrap_or(0)
    }
}

/// Gives each thing, the longest first, to the coordinate that has least so far: of things with their bytes and the
/// number of their first tensor.
fn balanced(things: HashMap<u64, (u64, u32)>, k: u32) -> HashMap<u64, u32> {
    let mut things: Vec<_> = things.into_iter().collect();
    things.sort_unstable_by_key(|&(_, (bytes, first))| (Reverse(bytes), first));
    // Coordinates beyond the number of things get none.
    let k = k.min(u32::try_from(things.len()).unwrap_or(u32::MAX));
    let mut loads: BinaryHeap<_> = (0..k).map(|coordinate| Reverse((0_u64, coordinate))).collect();
    let mut coordinates = HashMap::with_capacity(things.len());
    for (thing, (bytes, _)) in things {
        let Some(Reverse((load, coordinate))) = loads.pop() else { break };
        coordinates.insert(thing, coordinate);
        loads.push(Reverse((load.saturating_add(bytes), coordinate)));
    }
    coordinates
}
