//! The rules of a plan, looked through.

use regex::{Regex, RegexBuilder};

use super::cut::Cutter;
use super::flaw::Flaw;
use super::mesh::{Axis, World};
use super::spec::{self, By, Own};
use super::split::Places;
use crate::error::quote;

/// How many clauses and steps a rule may have.
const MOST_STEPS: usize = 64;

/// How many bytes a pattern may have.
const MOST_LEN: usize = 16 << 10;

/// A rule that has no fault of its own.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) min_dims: usize,
    pub(super) own: Vec<Clause>,
    pub(super) treatment: Treatment,
    /// The pattern, where something is captured by it.
    pub(super) regex: Option<Regex>,
    /// The groups of the pattern that are asked for: the slots.
    pub(super) groups: Vec<usize>,
}

impl Rule {
    /// Whether it divides a tensor twice by coordinates that are bound to each other, so that some elements are no rank's.
    pub(super) fn loses(&self) -> bool {
        let cut = match &self.treatment {
            Treatment::Cut(steps) => steps.iter().filter_map(Cutter::sole_axis).collect(),
            Treatment::Flat { axis, .. } => vec![*axis],
            Treatment::Drop | Treatment::Scale { .. } => Vec::new(),
        };
        let owns = |axis: &Axis| self.own.iter().any(|clause| clause.axis.binds(*axis));
        cut.iter()
            .enumerate()
            .any(|(place, axis)| owns(axis) || cut.iter().skip(place + 1).any(|other| axis.binds(*other)))
    }
}

/// A condition for a rank to have something of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Clause {
    pub(super) axis: Axis,
    pub(super) which: Which,
}

/// Which coordinates of the axis meet it.
#[derive(Debug, Clone)]
pub(super) enum Which {
    /// These, in rising order.
    At(Vec<u32>),
    /// The one that the number in a slot falls to.
    Number { name: String, slot: usize, places: Places },
    /// One that is chosen for each tensor.
    Chosen(By),
}

/// What becomes of a tensor.
#[derive(Debug, Clone)]
pub(super) enum Treatment {
    Drop,
    Cut(Vec<Cutter>),
    Flat { axis: Axis, pad: bool },
    Scale { weight: Vec<Piece>, block: Vec<u64> },
}

/// A piece of the name of a weight.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(String),
    Slot(usize),
}

/// A pattern that matches whole names only.
pub(super) fn whole(pattern: &str) -> String {
    format!(r"\A(?:{pattern})\z")
}

impl Rule {
    /// Looks a rule through; with all that is wrong with it but what [`flaws`](Self::flaws) tells. Captures are looked
    /// for only if all patterns are known to be such.
    pub(super) fn new(rule: &spec::Rule, world: &World, is_pattern: bool) -> Result<Self, Vec<Flaw>> {
        let mut flaws = Vec::new();
        if rule.own.len().max(rule.shard.len()) > MOST_STEPS {
            let message =
                format!("expected at most {MOST_STEPS} clauses of `own` and steps of `shard`, found more");
            return Err(vec![Flaw::new("PlanTooLarge", message)]);
        }
        let asked = rule.scale_of.is_some() || rule.own.iter().any(|own| matches!(own, Own::Var { .. }));
        let regex = if is_pattern && asked { compiled(&rule.pattern, &mut flaws) } else { None };
        let mut slots = Slots { regex: regex.as_ref(), groups: Vec::new() };
        let mut own = Vec::new();
        for written in &rule.own {
            match Clause::new(written, world, &mut slots) {
                Ok(clause) => own.push(clause),
                Err(flaw) => flaws.push(flaw),
            }
        }
        let treatment = Treatment::new(rule, world, &mut slots, &mut flaws);
        let groups = slots.groups;
        match (flaws.is_empty(), treatment) {
            (true, Some(treatment)) => Ok(Self { min_dims: rule.min_dims, own, treatment, regex, groups }),
            _ => Err(flaws),
        }
    }

    /// What is wrong with a rule in whatever world.
    pub(super) fn flaws(rule: &spec::Rule) -> Vec<Flaw> {
        check_syntax(&rule.pattern).err().into_iter().chain(contradiction(rule)).collect()
    }
}

/// That a pattern can be read. A limit of no bytes has it read and not compiled, which would take long for some.
fn check_syntax(pattern: &str) -> Result<(), Flaw> {
    if pattern.len() > MOST_LEN {
        let message = format!(
            "expected at most {MOST_LEN} bytes of `match`, found {}; write several rules",
            pattern.len()
        );
        return Err(Flaw::new("PlanTooLarge", message));
    }
    for pattern in [pattern, &whole(pattern)] {
        if let Err(regex::Error::Syntax(reason)) = RegexBuilder::new(pattern).size_limit(0).build() {
            // Its last line tells what is wrong; those before it show the place.
            let reason = reason.lines().last().map_or("", |line| line.trim_start_matches("error: "));
            let found =
                format!("expected a regular expression in `match`, found {}: {reason}", quote(pattern));
            return Err(Flaw::new("PlanRegex", found));
        }
    }
    Ok(())
}

fn compiled(pattern: &str, flaws: &mut Vec<Flaw>) -> Option<Regex> {
    match RegexBuilder::new(&whole(pattern)).size_limit(1 << 20).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            flaws.push(Flaw::new(
                "PlanTooLarge",
                format!("`match` is too large: {error}; write a simpler one"),
            ));
            None
        }
    }
}

/// Fields that exclude one another.
fn contradiction(rule: &spec::Rule) -> Option<Flaw> {
    let is_cut = !rule.shard.is_empty() || rule.flat.is_some();
    let is_owned = !rule.own.is_empty();
    if rule.drop && (is_cut || is_owned || rule.scale_of.is_some()) {
        return Some(Flaw::new(
            "PlanSyntax",
            "`drop` stands beside `own`, `shard`, `flat` or `scale_of`; leave one of them",
        ));
    }
    if !rule.shard.is_empty() && rule.flat.is_some() {
        return Some(Flaw::new(
            "PlanFlat",
            "`flat` stands beside `shard`, and a tensor is cut in one way; leave one of them",
        ));
    }
    if rule.scale_of.is_some() && is_cut {
        return Some(Flaw::new(
            "PlanScale",
            "`scale_of` stands beside `shard` or `flat`; scales are cut as their weight is",
        ));
    }
    None
}

/// The captures that a rule asks for.
struct Slots<'a> {
    regex: Option<&'a Regex>,
    groups: Vec<usize>,
}

impl Slots<'_> {
    /// The slot of a named capture; `None` where the pattern has none of this name. Where the pattern is at fault
    /// itself, any will do.
    fn slot(&mut self, name: &str) -> Option<usize> {
        let Some(regex) = self.regex else { return Some(0) };
        let group = regex.capture_names().position(|known| known == Some(name))?;
        let known = self.groups.iter().position(|&known| known == group);
        Some(known.unwrap_or_else(|| {
            self.groups.push(group);
            self.groups.len() - 1
        }))
    }
}

impl Clause {
    fn new(own: &Own, world: &World, slots: &mut Slots<'_>) -> Result<Self, Flaw> {
        match own {
            Own::At { axis, at } => {
                let axis = world.axis(axis)?;
                Ok(Self { axis, which: Which::At(coordinates(at, axis)?) })
            }
            Own::Var { axis, var, n, split } => {
                let axis = world.axis(axis)?;
                let places = Places::new(split, *n, axis.size)?;
                let slot = slots.slot(var).ok_or_else(|| {
                    let message =
                        format!("expected a capture `(?P<{var}>…)` in `match` for `var`, found none");
                    Flaw::new("PlanVar", message)
                })?;
                Ok(Self { axis, which: Which::Number { name: var.clone(), slot, places } })
            }
            Own::By { axis, by } => Ok(Self { axis: world.axis(axis)?, which: Which::Chosen(*by) }),
        }
    }
}

/// Coordinates in rising order, negative ones counted from the end.
fn coordinates(at: &[i64], axis: Axis) -> Result<Vec<u32>, Flaw> {
    if at.is_empty() {
        return Err(Flaw::new(
            "PlanAt",
            "expected a coordinate in `at`, found none; `drop` gives a tensor to no rank",
        ));
    }
    let size = i64::from(axis.size);
    let coordinate = |&at: &i64| {
        let from_start = if at < 0 { at.checked_add(size) } else { Some(at) };
        let within = from_start.filter(|at| (0..size).contains(at)).and_then(|at| u32::try_from(at).ok());
        within.ok_or_else(|| {
            let message = format!("expected coordinates from {} to {} in `at`, found {at}", -size, size - 1);
            Flaw::new("PlanAt", message)
        })
    };
    let mut coordinates = at.iter().map(coordinate).collect::<Result<Vec<_>, _>>()?;
    coordinates.sort_unstable();
    coordinates.dedup();
    Ok(coordinates)
}

impl Treatment {
    fn new(rule: &spec::Rule, world: &World, slots: &mut Slots<'_>, flaws: &mut Vec<Flaw>) -> Option<Self> {
        if rule.drop {
            return Some(Self::Drop);
        }
        if let Some(flat) = &rule.flat {
            let axis = world.axis(&flat.axis).map_err(|flaw| flaws.push(flaw)).ok()?;
            return Some(Self::Flat { axis, pad: flat.pad });
        }
        if let Some(scale) = &rule.scale_of {
            if scale.block.contains(&0) {
                flaws.push(Flaw::new("PlanScale", "expected lengths of at least 1 in `block`, found 0"));
            }
            let weight = pieces(&scale.weight, slots).map_err(|flaw| flaws.push(flaw)).ok()?;
            return Some(Self::Scale { weight, block: scale.block.clone() });
        }
        let mut cutters = Vec::new();
        for (place, step) in rule.shard.iter().enumerate() {
            match Cutter::new(step, place, |name| world.axis(name)) {
                Ok(cutter) => cutters.push(cutter),
                Err(flaw) => flaws.push(flaw),
            }
        }
        Some(Self::Cut(cutters))
    }
}

/// The name of a weight, with `${name}` for captures.
fn pieces(template: &str, slots: &mut Slots<'_>) -> Result<Vec<Piece>, Flaw> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| {
            Flaw::new("PlanScale", "expected a `}` after each `${` of `weight`, found none")
        })?;
        let slot = slots.slot(name).ok_or_else(|| {
            let message = format!("expected a capture `(?P<{name}>…)` in `match` for `weight`, found none");
            Flaw::new("PlanScale", message)
        })?;
        pieces.extend([Piece::Text(text.to_owned()), Piece::Slot(slot)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}
