//! Plans that suit any model.

use super::Plan;
use super::spec::{By, Own, PlanSpec, Rule, Shard, Split, Unmatched};
use crate::error::PlanError;

/// The axis of these plans.
const AXIS: &str = "dp";

impl Plan {
    /// Cuts the first dimension of each tensor over `ranks`, as FSDP does: `ceil(n / ranks)` for each rank as long as
    /// there are any. Tensors without dimensions are whole on every rank.
    ///
    /// # Errors
    /// `PlanWorld` for no ranks, or for more than a plan can have.
    pub fn fsdp(ranks: u64) -> Result<Self, PlanError> {
        let rule = Rule::new("(?s).*").min_dims(1).shard(Shard::of(0, AXIS).split(Split::Chunk));
        over(ranks).unmatched(Unmatched::Replicate).rule(rule).build()
    }

    /// Gives whole shards to `ranks`, so that all have about the same bytes and no file is read by two of them.
    ///
    /// # Errors
    /// `PlanWorld` for no ranks, or for more than a plan can have.
    pub fn by_shard(ranks: u64) -> Result<Self, PlanError> {
        over(ranks).rule(Rule::new("(?s).*").own(Own::by(AXIS, By::Shard))).build()
    }

    /// Gives whole tensors to `ranks`, so that all have about the same bytes.
    ///
    /// # Errors
    /// `PlanWorld` for no ranks, or for more than a plan can have.
    pub fn balanced(ranks: u64) -> Result<Self, PlanError> {
        over(ranks).rule(Rule::new("(?s).*").own(Own::by(AXIS, By::Bytes))).build()
    }
}

fn over(ranks: u64) -> PlanSpec {
    PlanSpec::new().mesh("ranks", [(AXIS, ranks)])
}
