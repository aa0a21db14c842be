//! Plans that are written in Rust.

use super::{
    Blocks, By, Flat, Interleave, OutputRule, Own, PlanSpec, Replicas, Rule, ScaleOf, Shard, Split, Step,
    Unmatched,
};
use crate::error::PlanError;
use crate::plan::Plan;

impl PlanSpec {
    /// A plan without meshes and rules, to which a tensor that no rule matches is a fault.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says where the schema of the language lies, for editors.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Adds a view of the world, or replaces the one of this name. The last axis runs fastest.
    #[must_use]
    pub fn mesh<A: Into<String>>(
        mut self,
        name: impl Into<String>,
        axes: impl IntoIterator<Item = (A, u64)>,
    ) -> Self {
        let axes = axes.into_iter().map(|(axis, size)| (axis.into(), size)).collect();
        self.meshes.insert(name.into(), axes);
        self
    }

    /// Says what becomes of tensors that no rule matches.
    #[must_use]
    pub fn unmatched(mut self, unmatched: Unmatched) -> Self {
        self.default = unmatched;
        self
    }

    /// Adds a rule after those that are there.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds an output.
    #[must_use]
    pub fn output(mut self, output: OutputRule) -> Self {
        self.outputs.push(output);
        self
    }

    /// The plan, if it has no fault.
    ///
    /// # Errors
    /// All that is wrong with it, at once.
    pub fn build(self) -> Result<Plan, PlanError> {
        Plan::try_from(self)
    }
}

impl Rule {
    /// A rule for the tensors whose whole name matches; as it is, every rank has all of them.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), ..Self::default() }
    }

    /// Lets it match only tensors of at least so many dimensions.
    #[must_use]
    pub fn min_dims(mut self, dims: usize) -> Self {
        self.min_dims = dims;
        self
    }

    /// Gives the tensors to no rank.
    #[must_use]
    pub fn dropped(mut self) -> Self {
        self.drop = true;
        self
    }

    /// Adds a condition for a rank to have something of the tensors.
    #[must_use]
    pub fn own(mut self, own: Own) -> Self {
        self.own.push(own);
        self
    }

    /// Adds a step of cutting.
    #[must_use]
    pub fn shard(mut self, step: impl Into<Step>) -> Self {
        self.shard.push(step.into());
        self
    }

    /// Cuts the tensors as if they had one dimension; `pad` makes all parts equally long.
    #[must_use]
    pub fn flat(mut self, axis: impl Into<String>, pad: bool) -> Self {
        self.flat = Some(Flat { axis: axis.into(), pad });
        self
    }

    /// Cuts the tensors as the weights whose scales they hold: `weight` names these, with `${name}` for captures;
    /// `block` says how many elements of each dimension share a scale.
    #[must_use]
    pub fn scale_of(mut self, weight: impl Into<String>, block: impl Into<Vec<u64>>) -> Self {
        self.scale_of = Some(ScaleOf { weight: weight.into(), block: block.into() });
        self
    }
}

impl Own {
    /// The coordinates of an axis that are told; negative ones count from the end.
    pub fn at(axis: impl Into<String>, at: impl Into<Vec<i64>>) -> Self {
        Self::At { axis: axis.into(), at: at.into() }
    }

    /// The coordinate that the number in a named capture falls to, of `n` numbers that are divided evenly.
    pub fn var(axis: impl Into<String>, var: impl Into<String>, n: u64) -> Self {
        Self::Var { axis: axis.into(), var: var.into(), n, split: Split::Even }
    }

    /// A coordinate that is chosen so that all have about the same bytes.
    pub fn by(axis: impl Into<String>, by: By) -> Self {
        Self::By { axis: axis.into(), by }
    }

    /// Divides the numbers of [`Own::var`] in another way; the others have nothing to divide.
    #[must_use]
    pub fn split(mut self, by: Split) -> Self {
        if let Self::Var { split, .. } = &mut self {
            *split = by;
        }
        self
    }
}

impl Shard {
    /// Cuts a dimension evenly over an axis; a negative dimension counts from the end.
    pub fn of(dim: i64, axis: impl Into<String>) -> Self {
        Self { dim, axis: axis.into(), ..Self::default() }
    }

    /// Divides it in another way.
    #[must_use]
    pub fn split(mut self, split: Split) -> Self {
        self.split = split;
        self
    }

    /// Never parts so many neighbouring indices, as those of a head.
    #[must_use]
    pub fn unit(mut self, unit: u64) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Divides each of these blocks: a number of them, or their lengths.
    #[must_use]
    pub fn blocks(mut self, blocks: impl Into<Blocks>) -> Self {
        self.blocks = Some(blocks.into());
        self
    }

    /// Gives the same to so many neighbouring coordinates, of all blocks or of each.
    #[must_use]
    pub fn replicas(mut self, replicas: impl Into<Replicas>) -> Self {
        self.replicas = Some(replicas.into());
        self
    }

    /// Pads the dimension to a multiple of this before it is cut.
    #[must_use]
    pub fn pad_multiple(mut self, multiple: u64) -> Self {
        self.pad_multiple = Some(multiple);
        self
    }
}

impl Interleave {
    /// Cuts each part of a dimension, given by their lengths, into groups, and puts them group by group.
    pub fn of(dim: i64, parts: impl Into<Vec<u64>>, groups: u64) -> Self {
        Self { dim, interleave: parts.into(), groups }
    }
}

impl From<Shard> for Step {
    fn from(shard: Shard) -> Self {
        Self::Shard(shard)
    }
}

impl From<Interleave> for Step {
    fn from(interleave: Interleave) -> Self {
        Self::Interleave(interleave)
    }
}

impl From<u64> for Blocks {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl<const N: usize> From<[u64; N]> for Blocks {
    fn from(sizes: [u64; N]) -> Self {
        Self::Sizes(sizes.into())
    }
}

impl From<Vec<u64>> for Blocks {
    fn from(sizes: Vec<u64>) -> Self {
        Self::Sizes(sizes)
    }
}

impl From<u64> for Replicas {
    fn from(same: u64) -> Self {
        Self::Same(same)
    }
}

impl<const N: usize> From<[u64; N]> for Replicas {
    fn from(each: [u64; N]) -> Self {
        Self::PerBlock(each.into())
    }
}

impl From<Vec<u64>> for Replicas {
    fn from(each: Vec<u64>) -> Self {
        Self::PerBlock(each)
    }
}

impl OutputRule {
    /// An output of these parts; one part alone is renamed.
    pub fn new<F: Into<String>>(name: impl Into<String>, from: impl IntoIterator<Item = F>) -> Self {
        Self { name: name.into(), from: from.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Puts the parts together along this dimension.
    #[must_use]
    pub fn concat(mut self, dim: i64) -> Self {
        self.concat = Some(dim);
        self
    }

    /// Puts them together group by group, of so many over all ranks.
    #[must_use]
    pub fn groups(mut self, groups: u64) -> Self {
        self.groups = Some(groups);
        self
    }

    /// Stacks what has been put together over this number of the names.
    #[must_use]
    pub fn stack(mut self, number: impl Into<String>) -> Self {
        self.stack = Some(number.into());
        self
    }
}
