//! The arguments that choose a plan.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ArgGroup;
use weightmap::{Error, Parallel, Plan, PlanError, Rank, ShardedModel};

use crate::text;

/// What each rank has of a model: a plan that is written, or one of those that are ready.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(group = ArgGroup::new("a_plan").multiple(true)
    .args(["plan", "tp", "pp", "ep", "dp", "fsdp", "by_shard", "balanced"]))]
pub struct PlanArgs {
    /// A plan, written as JSON; - is the standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Cut", "fsdp", "by_shard", "balanced"])]
    pub plan: Option<PathBuf>,
    /// The plan for the model's family.
    #[command(flatten)]
    pub cut: Cut,
    /// The model's config.json, for --tp, --pp, --ep and --dp [default: the one that lies beside the shards]
    #[arg(long, value_name = "FILE", requires = "Cut")]
    pub config: Option<PathBuf>,
    /// Cut the first dimension of each tensor over N ranks
    #[arg(long, value_name = "N", conflicts_with_all = ["Cut", "by_shard", "balanced"])]
    pub fsdp: Option<u64>,
    /// Divide whole shards over N ranks, about the same bytes for each
    #[arg(long, value_name = "N", conflicts_with_all = ["Cut", "balanced"])]
    pub by_shard: Option<u64>,
    /// Divide whole tensors over N ranks, about the same bytes for each
    #[arg(long, value_name = "N", conflicts_with = "Cut")]
    pub balanced: Option<u64>,
    /// How many ranks are started, which must be as many as the plan has
    #[arg(long, value_name = "N")]
    pub world: Option<usize>,
}

/// The ready plan for the family of models that `config.json` names.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = true)]
pub struct Cut {
    /// Cut each layer over N ranks, as it suits the model that config.json names
    #[arg(long, value_name = "N")]
    pub tp: Option<u64>,
    /// Divide the layers into N stages
    #[arg(long, value_name = "N")]
    pub pp: Option<u64>,
    /// Divide the experts of each layer over N ranks
    #[arg(long, value_name = "N")]
    pub ep: Option<u64>,
    /// Have N replicas
    #[arg(long, value_name = "N")]
    pub dp: Option<u64>,
}

/// A plan for any model.
#[derive(Debug)]
pub struct ChosenPlan {
    what: Chosen,
    world: Option<usize>,
}

#[derive(Debug)]
enum Chosen {
    Plan(Box<Plan>),
    /// The one for the model's family, by the `config.json` that is given or lies beside the shards.
    OfFamily(Parallel, Option<PathBuf>),
}

impl PlanArgs {
    /// Whether a plan is chosen.
    pub fn is_given(&self) -> bool {
        self.plan.is_some()
            || self.cut.parallel().is_some()
            || self.fsdp.or(self.by_shard).or(self.balanced).is_some()
    }

    /// Reads the chosen plan, if there is one: once, since the standard input cannot be read again.
    ///
    /// # Errors
    /// When it cannot be read, or has faults of its own.
    pub fn read(&self) -> Result<Option<ChosenPlan>> {
        let plan = |plan: Result<Plan, PlanError>| {
            plan.map(|plan| Chosen::Plan(Box::new(plan))).map_err(Error::from)
        };
        let what = match *self {
            Self { plan: Some(ref file), .. } => Chosen::Plan(Box::new(written(file)?)),
            Self { fsdp: Some(ranks), .. } => plan(Plan::fsdp(ranks))?,
            Self { by_shard: Some(ranks), .. } => plan(Plan::by_shard(ranks))?,
            Self { balanced: Some(ranks), .. } => plan(Plan::balanced(ranks))?,
            _ => match self.cut.parallel() {
                Some(parallel) => Chosen::OfFamily(parallel, self.config.clone()),
                None => return Ok(None),
            },
        };
        Ok(Some(ChosenPlan { what, world: self.world }))
    }

    /// The rank that is given, or else the one that the launcher says.
    ///
    /// # Errors
    /// [`BadRank`](Error::BadRank) for a rank that is not below `--world`, and for a launcher that contradicts itself.
    pub fn rank(&self, given: Option<usize>) -> weightmap::Result<Rank> {
        match (given, self.world) {
            (Some(rank), Some(world)) => Rank::new(rank, world),
            (Some(rank), None) => Ok(rank.into()),
            (None, _) => Rank::from_env(),
        }
    }
}

impl Cut {
    /// `None` where nothing of it is given.
    fn parallel(&self) -> Option<Parallel> {
        let one = |number: Option<u64>| number.unwrap_or(1);
        self.tp.or(self.pp).or(self.ep).or(self.dp)?;
        Some(Parallel::default().tp(one(self.tp)).pp(one(self.pp)).ep(one(self.ep)).dp(one(self.dp)))
    }
}

impl ChosenPlan {
    /// The plan for a model; its tensors are not looked at.
    ///
    /// # Errors
    /// When it depends on a `config.json` that cannot be read or does not go with it, or is for another number of ranks than
    /// `--world` says.
    pub fn of(&self, model: &ShardedModel) -> Result<Plan> {
        let plan = match &self.what {
            Chosen::Plan(plan) => Plan::clone(plan),
            Chosen::OfFamily(parallel, config) => {
                let beside = model.directory().join("config.json");
                match config {
                    Some(config) => of_family(parallel, config, text::named(config))?,
                    None => of_family(parallel, &beside, text::beside(&beside))?,
                }
            }
        };
        if let Some(world) = self.world {
            plan.check_world(world).map_err(Error::from)?;
        }
        Ok(plan)
    }
}

fn written(file: &Path) -> Result<Plan> {
    let text = text::named(file).with_context(|| format!("--plan: cannot read {}", file.display()))?;
    Ok(Plan::from_json(&text).map_err(|fault| of_file(file, fault))?)
}

fn of_family(parallel: &Parallel, config: &Path, text: io::Result<String>) -> Result<Plan> {
    let text = text.with_context(|| {
        format!(
            "--tp, --pp, --ep and --dp go by the model's config.json, and {} cannot be read; give another one by --config, \
             a plan by --plan, or cut any model by --fsdp",
            config.display()
        )
    })?;
    Ok(Plan::for_model(&text, parallel).map_err(|fault| of_file(config, fault))?)
}

fn of_file(file: &Path, fault: PlanError) -> Error {
    Error::Plan { path: Some(file.to_owned()), fault: Box::new(fault) }
}
