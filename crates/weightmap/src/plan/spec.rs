//! A plan as it is written: data, and a builder for it.

mod build;
mod written;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use written::Top;
use written::{WrittenOwn, WrittenStep};

/// What is written in a plan, before anything of it is checked. `docs/plans.md` tells the language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Top<Rule, OutputRule>")]
#[non_exhaustive]
pub struct PlanSpec {
    /// Where the schema of the language lies, for editors. It means nothing here.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Views of one world, by name: axes with their sizes, the last of which runs fastest over the ranks.
    pub meshes: BTreeMap<String, Vec<(String, u64)>>,
    /// What becomes of tensors that no rule matches.
    pub default: Unmatched,
    /// The first one that matches a tensor says what each rank has of it.
    pub rules: Vec<Rule>,
    /// What is put together of the ranks' parts; parts that no output takes are outputs themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputRule>,
}

/// What becomes of a tensor that no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unmatched {
    /// It is a fault of the plan.
    #[default]
    Error,
    /// Every rank has all of it.
    Replicate,
}

/// What each rank has of the tensors whose whole name matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// A regular expression of whole names, with named captures.
    #[serde(rename = "match")]
    pub pattern: String,
    /// It matches only tensors of at least so many dimensions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_dims: usize,
    /// No rank has any of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drop: bool,
    /// Which ranks have something of it: those for which all of this holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Own>,
    /// How it is cut, step by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shard: Vec<Step>,
    /// Cuts it as if it had one dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flat: Option<Flat>,
    /// It holds the scales of blocks of another tensor, and is cut as that one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_of: Option<ScaleOf>,
}

/// Which coordinates of an axis have a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "WrittenOwn")]
#[non_exhaustive]
pub enum Own {
    /// Those that are told.
    At {
        /// The axis.
        axis: String,
        /// Coordinates; negative ones count from the end, -1 being the last.
        at: Vec<i64>,
    },
    /// The one that a number in the name falls to.
    Var {
        /// The axis.
        axis: String,
        /// The named capture that holds the number.
        var: String,
        /// How many numbers there are, from 0 on.
        n: u64,
        /// How they are divided.
        #[serde(skip_serializing_if = "is_even")]
        split: Split,
    },
    /// One that is chosen so that all have about the same.
    By {
        /// The axis.
        axis: String,
        /// What is divided.
        by: By,
    },
}

/// What is divided so that all coordinates of an axis have about the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum By {
    /// Tensors.
    Bytes,
    /// Shards, with all tensors of each.
    Shard,
}

/// One step of cutting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "WrittenStep")]
#[non_exhaustive]
pub enum Step {
    /// Brings the elements of a dimension into another order: its parts are cut into groups, which then lie group by
    /// group, each with its piece of every part.
    Interleave(Interleave),
    /// Cuts a dimension over an axis.
    Shard(Shard),
}

/// A step that brings the elements of a dimension into another order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Interleave {
    /// The dimension; negative ones count from the end.
    pub dim: i64,
    /// The lengths of its parts.
    pub interleave: Vec<u64>,
    /// Into how many groups each part is cut.
    pub groups: u64,
}

/// A step that cuts a dimension over an axis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Shard {
    /// The dimension; negative ones count from the end.
    pub dim: i64,
    /// The axis.
    pub axis: String,
    /// How it is divided.
    #[serde(default, skip_serializing_if = "is_even")]
    pub split: Split,
    /// How many indices are never parted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u64>,
    /// Blocks that are each divided over the axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Blocks>,
    /// How many neighbouring coordinates have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// The dimension is padded to a multiple of it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad_multiple: Option<u64>,
}

/// How a number of things is divided over an axis of `k` coordinates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Split {
    /// The same for all, or it is a fault.
    #[default]
    Even,
    /// `ceil(n / k)` for each, as long as there are any.
    Chunk,
    /// The first have one more where it does not come out even.
    Balanced,
    /// In turn.
    Cyclic,
    /// As many as are told for each coordinate.
    Sizes(Vec<u64>),
    /// Those that are told for each coordinate, in that order.
    Ids(Vec<Vec<u64>>),
}

/// Blocks of a dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Blocks {
    /// So many, of one length.
    Count(u64),
    /// Of these lengths.
    Sizes(Vec<u64>),
}

/// How many neighbouring coordinates have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Replicas {
    /// Of all blocks.
    Same(u64),
    /// Of each block.
    PerBlock(Vec<u64>),
}

/// A tensor cut as if it had one dimension, `ceil(elements / k)` for each coordinate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Flat {
    /// The axis.
    pub axis: String,
    /// Whether all parts are padded to the same length.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pad: bool,
}

/// The scales of blocks of another tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScaleOf {
    /// The name of that tensor, with `${name}` for captures of the rule.
    pub weight: String,
    /// By dimension, how many of its elements share a scale.
    pub block: Vec<u64>,
}

/// Something that is put together of a rank's parts. `{l}` in names stands for a number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OutputRule {
    /// The name of the output; all numbers of it stand in the names of the parts too.
    pub name: String,
    /// The names of the parts, in the order in which they are put together.
    pub from: Vec<String>,
    /// Along which dimension several parts are put together; negative ones count from the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concat: Option<i64>,
    /// In how many groups over all ranks each part lies, if they are put together group by group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// The number over which what has been put together is stacked, along a new first dimension: those that the rank
    /// has, in rising order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_even(split: &Split) -> bool {
    *split == Split::Even
}
