//! The arguments that say what is loaded: a selection, or the part of a rank.

use anyhow::{Result, anyhow, bail};
use clap::ArgGroup;
use weightmap::{Plan, Rank, Selection, ShardedModel};

use crate::plan_args::{ChosenPlan, PlanArgs};
use crate::render;
use crate::select::{SelectArgs, Wanted};

/// What is loaded: what is selected, or what a plan gives to a rank, less what is excluded.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(group = ArgGroup::new("selected").multiple(true).conflicts_with_all(["a_plan", "of_rank"])
    .args(["globs", "regexes", "names", "slices"]))]
#[command(group = ArgGroup::new("of_rank").multiple(true).requires("a_plan").args(["rank", "world"]))]
pub struct PartArgs {
    /// Which tensors.
    #[command(flatten)]
    pub selection: SelectArgs,
    /// By which plan.
    #[command(flatten)]
    pub plan: PlanArgs,
    /// The rank whose part by the plan it is, counted from 0 [default: what the launcher says]
    #[arg(long, value_name = "R")]
    pub rank: Option<usize>,
}

/// What is loaded of any model.
pub(crate) enum Part<'a> {
    Selected(Wanted<'a>),
    OfRank { plan: ChosenPlan, rank: Box<Rank>, excluded: &'a SelectArgs },
}

impl PartArgs {
    /// Reads the file of the names or of the plan, and which rank this is: once. Where the launcher says that, it is told
    /// on stderr if that is wanted.
    pub(crate) fn read(&self, tell: bool) -> Result<Part<'_>> {
        let Some(plan) = self.plan.read()? else {
            return self.selection.read().map(Part::Selected);
        };
        let rank = self.plan.rank(self.rank)?;
        if let (true, None, Some(world @ 2..)) = (tell, self.rank, rank.world()) {
            let by = rank.explain().lines().next().unwrap_or_default();
            render::note(&anyhow!("rank {} of {world}: {by}", rank.rank()));
        }
        Ok(Part::OfRank { plan, rank: Box::new(rank), excluded: &self.selection })
    }
}

impl Part<'_> {
    /// Looks it up in a model.
    pub(crate) fn of(&self, model: &ShardedModel) -> Result<Selection> {
        let (plan, rank, excluded) = match self {
            Self::Selected(wanted) => return wanted.of(model),
            Self::OfRank { plan, rank, excluded } => (known(plan.of(model)?, rank)?, rank, excluded),
        };
        let none = model.select();
        let none = if excluded.allow_empty { none.allow_empty() } else { none };
        let part = none.plan(&plan, &**rank)?;
        let part = excluded.excluded.iter().try_fold(part, |part, glob| part.except_glob(glob))?;
        // A rank may have nothing but what is excluded.
        Ok(part.allow_empty())
    }

    /// The plan for a model, and the rank, if it is the part of one.
    pub(crate) fn by_plan(&self, model: &ShardedModel) -> Result<Option<(Plan, &Rank)>> {
        match self {
            Self::Selected(_) => Ok(None),
            Self::OfRank { plan, rank, .. } => Ok(Some((known(plan.of(model)?, rank)?, rank))),
        }
    }
}

/// The plan, if it is known which of its ranks this is.
fn known(plan: Plan, rank: &Rank) -> Result<Plan> {
    if rank.world() == Some(1) && plan.world() > 1 {
        bail!(
            "the plan is for {} ranks, and there is no launcher that says which of them this is, or one of a single \
             process; give --rank",
            plan.world()
        );
    }
    Ok(plan)
}
