//! What each rank of a job has of a model: from a plan and the names, types and shapes of tensors, no data read.
//!
//! A plan is written as JSON (`docs/plans.md` tells the language) or in Rust:
//!
//! ```
//! use weightmap::plan::{Own, PlanSpec, Rule, Shard, Split, Unmatched};
//!
//! let layers = Own::var("pp", "l", 32).split(Split::Balanced);
//! let plan = PlanSpec::new()
//!     .mesh("dense", [("pp", 2), ("tp", 4)])
//!     .unmatched(Unmatched::Error)
//!     .rule(Rule::new(r"model\.embed_tokens\.weight").own(Own::at("pp", [0])).shard(Shard::of(0, "tp")))
//!     .rule(Rule::new(r"model\.layers\.(?P<l>\d+)\..*").own(layers).shard(Shard::of(0, "tp").unit(128)))
//!     .build()?;
//! assert_eq!(plan.world(), 8);
//! # Ok::<(), weightmap::PlanError>(())
//! ```

mod flaw;
mod spec;
mod mesh;
mod split;
mod indices;
mod cut;
mod dim_cut;
mod rules;
mod matching;
mod template;
mod outputs;
mod owners;
mod partition;
mod local;
mod laid;
mod totals;
mod divide;
mod ready;
mod parallel;
mod families;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub use parallel::Parallel;
pub use partition::{Partition, PlannedPart, PlannedTensor};
pub use spec::{
    Blocks, By, Flat, Interleave, OutputRule, Own, PlanSpec, Replicas, Rule, ScaleOf, Shard, Split, Step,
    Unmatched,
};
pub use totals::RankTotal;

pub(crate) use local::Local;
pub(crate) use partition::Tensor;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{PlanError, PlanFault, quote};
use flaw::Flaw;
use matching::Patterns;
use mesh::World;
use outputs::Output;
use spec::Top;

/// A plan that has no fault of its own: which rank has which part of which tensor.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "PlanSpec")]
pub struct Plan {
    spec: PlanSpec,
    world: World,
    rules: Vec<rules::Rule>,
    patterns: Patterns,
    outputs: Vec<Output>,
    /// Whether it is for a family of models: it then has rules for tensors that only some of them have.
    is_for_family: bool,
}

impl Plan {
    /// Reads a plan that is written as JSON.
    ///
    /// # Errors
    /// All that is wrong with it, at once.
    pub fn from_json(json: &str) -> Result<Self, PlanError> {
        let fault = |message: String| PlanError { faults: vec![PlanFault::new("PlanSyntax", message)] };
        if json.trim_start().starts_with('[') {
            return Err(fault(NO_OBJECT.to_owned()));
        }
        let top: Top<&RawValue, &RawValue> =
            serde_json::from_str(json).map_err(|error| fault(error.to_string()))?;
        let Top { schema, meshes, default, rules, outputs } = top;
        let mut faults = Vec::new();
        let rules =
            each(&rules, &mut faults, |rule, message| PlanFault::new("PlanSyntax", message).rule(rule));
        let outputs = each(&outputs, &mut faults, |output, message| {
            PlanFault::new("PlanSyntax", format!("output {output}: {message}"))
        });
        if !faults.is_empty() {
            return Err(PlanError { faults });
        }
        Self::try_from(PlanSpec { schema, meshes, default, rules, outputs })
    }

    /// How many ranks there are: the product of the axes of each mesh.
    pub fn world(&self) -> usize {
        self.world.size as usize
    }

    /// That it is a plan for so many ranks.
    ///
    /// # Errors
    /// `PlanWorld` where it is not.
    pub fn check_world(&self, ranks: usize) -> Result<(), PlanError> {
        if ranks == self.world() {
            return Ok(());
        }
        let message = format!(
            "expected {} ranks, as the meshes of the plan have, found {ranks}; start as many, or change the meshes",
            self.world()
        );
        Err(PlanError { faults: vec![PlanFault::new("PlanWorld", message)] })
    }

    /// As it is written.
    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }
}

impl TryFrom<PlanSpec> for Plan {
    type Error = PlanError;

    /// Looks a plan through, and finds all that is wrong with it before any tensor is known.
    fn try_from(spec: PlanSpec) -> Result<Self, PlanError> {
        if spec.rules.len() > MOST_RULES {
            let message =
                format!("expected at most {MOST_RULES} rules, found {}; write patterns", spec.rules.len());
            return Err(PlanError { faults: vec![PlanFault::new("PlanTooLarge", message)] });
        }
        let mut faults = Vec::new();
        let fault = |flaw: Flaw| PlanFault::new(flaw.kind, flaw.message);
        let world =
            World::new(&spec.meshes).map_err(|flaws| faults.extend(flaws.into_iter().map(fault))).ok();
        let flaws: Vec<_> = spec.rules.iter().map(rules::Rule::flaws).collect();
        // One limit holds for all patterns together, so that they are looked at before any is used by itself.
        let patterns: Vec<_> = spec.rules.iter().map(|rule| rule.pattern.as_str()).collect();
        let can_be_read = !flaws.iter().flatten().any(|flaw| flaw.kind == "PlanRegex");
        let patterns =
            can_be_read.then(|| Patterns::new(&patterns).map_err(|flaw| faults.push(fault(flaw))).ok());
        let patterns = patterns.flatten();
        let mut rules = Vec::new();
        for (number, (rule, mut flaws)) in spec.rules.iter().zip(flaws).enumerate() {
            // Without a world nothing can be said of axes.
            if let Some(world) = &world {
                let found = rules::Rule::new(rule, world, patterns.is_some());
                found.map_or_else(|more| flaws.extend(more), |rule| rules.push(rule));
            }
            faults.extend(flaws.into_iter().map(|flaw| fault(flaw).rule(number)));
        }
        let mut outputs = Vec::new();
        for (place, output) in spec.outputs.iter().enumerate() {
            match Output::new(place, output) {
                Ok(output) => outputs.push(output),
                Err(flaw) => faults.push(fault(flaw)),
            }
        }
        match (world, patterns) {
            (Some(world), Some(patterns)) if faults.is_empty() => {
                Ok(Self { spec, world, rules, patterns, outputs, is_for_family: false })
            }
            _ => Err(PlanError { faults }),
        }
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.spec.serialize(serializer)
    }
}

/// Reads each of a list; of those that cannot be read, a fault with its place.
fn each<T: for<'de> Deserialize<'de>>(
    list: &[&RawValue],
    faults: &mut Vec<PlanFault>,
    fault: impl Fn(usize, String) -> PlanFault,
) -> Vec<T> {
    let mut read = Vec::with_capacity(list.len());
    for (place, raw) in list.iter().enumerate() {
        let object = raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()));
        let message = match object {
            Some(Ok(one)) => {
                read.push(one);
                continue;
            }
            Some(Err(error)) => error.to_string(),
            None => NO_OBJECT.to_owned(),
        };
        // Line and column would be those within this one.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let start: String = raw.get().chars().take(MOST_SHOWN).collect();
        faults.push(fault(place, format!("{message}, in {}", quote(&start))));
    }
    read
}

/// Of a list, which serde would take for the fields of an object in their order.
const NO_OBJECT: &str = "expected an object with the fields of `docs/plans.md`, found something else";
/// As many as the largest models have tensors, once over.
const MOST_RULES: usize = 1 << 18;

/// How many characters of what cannot be read are shown.
const MOST_SHOWN: usize = 80;
