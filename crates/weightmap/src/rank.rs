//! Which process of a job this is.

mod launcher;
mod vars;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::error::{Error, Result};
use launcher::{COUNT_PODS, LAUNCHERS};
use vars::{Number, Vars, list};

/// Which process of a job this is, of how many, and which on its node. What is not known is `None`.
///
/// Ranks count from 0. A number will do where a `Rank` is asked for: that rank of whatever world the plan has.
///
/// ```
/// use weightmap::Rank;
///
/// let rank = Rank::new(5, 8)?.local(1, 4)?;
/// assert_eq!((rank.rank(), rank.world(), rank.local_rank()), (5, Some(8), Some(1)));
///
/// // What a launcher has set, here not read from the environment.
/// let set = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
/// let rank = Rank::from_vars(|name| Some(set.iter().find(|(set, _)| *set == name)?.1.to_owned()))?;
/// assert_eq!((rank.rank(), rank.world(), rank.local_rank()), (2, Some(4), None));
/// assert!(rank.explain().starts_with("Open MPI decides"));
/// # Ok::<(), weightmap::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rank {
    place: Place,
    explanation: Cow<'static, str>,
}

/// The numbers of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    rank: usize,
    world: Option<usize>,
    local_rank: Option<usize>,
    local_size: Option<usize>,
    node: Option<usize>,
}

/// What is known where there is no launcher.
const ALONE: Place = Place { rank: 0, world: Some(1), local_rank: Some(0), local_size: Some(1), node: None };

/// Who says it, where the caller does.
const CALLER: &str = "the rank that was given";
const GIVEN: &str = "given by the caller";

impl Rank {
    /// A rank of a world of so many, given by the caller.
    ///
    /// # Errors
    /// [`BadRank`](Error::BadRank) unless `rank` is less than `world`.
    pub fn new(rank: usize, world: usize) -> Result<Self> {
        Number::given("rank", rank).must_be_below(Some(&Number::given("world", world)), CALLER)?;
        Ok(Self { place: Place { world: Some(world), ..Place::of(rank) }, explanation: GIVEN.into() })
    }

    /// The same, with its place among the `local_size` processes of the job that run on its node.
    ///
    /// # Errors
    /// [`BadRank`](Error::BadRank) unless `local_rank` is less than `local_size`, and that no more than the world.
    pub fn local(mut self, local_rank: usize, local_size: usize) -> Result<Self> {
        let size = Number::given("local_size", local_size);
        Number::given("local_rank", local_rank).must_be_below(Some(&size), CALLER)?;
        let world = self.place.world.map(|world| Number::given("world", world));
        size.must_be_within(world.as_ref(), CALLER)?;
        self.place.local_rank = Some(local_rank);
        self.place.local_size = Some(local_size);
        Ok(self)
    }

    /// What the launcher of this process says in the environment, which is read now. Nothing else in the library reads it.
    ///
    /// All of it comes from the first of these that is there; without any it is rank 0 of 1.
    ///
    /// | launcher | is there when | rank, world | local rank, local size |
    /// |---|---|---|---|
    /// | torchrun | `TORCHELASTIC_RUN_ID` is set | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE`; node `GROUP_RANK` |
    /// | DeepSpeed, Ray Train, Accelerate | rank, world and local rank are set | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_SIZE` or `LOCAL_WORLD_SIZE` |
    /// | Open MPI | rank or world is set | `OMPI_COMM_WORLD_RANK`, `…_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | MPICH, Intel MPI | rank or world is set | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
    /// | Cray PALS | `PALS_RANKID` or the local rank is set | `PMIX_RANK` or `PALS_RANKID`, – | `PALS_LOCAL_RANKID`, `PALS_LOCAL_SIZE` |
    /// | MVAPICH | rank or world is set | `MV2_COMM_WORLD_RANK`, `…_SIZE` | `MV2_COMM_WORLD_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | LSF jsrun | rank or world is set | `JSM_NAMESPACE_RANK`, `…_SIZE` | `JSM_NAMESPACE_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | srun | `SLURM_STEP_NODELIST` is set | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS` | `SLURM_LOCALID`, from `SLURM_STEP_TASKS_PER_NODE`; node `SLURM_NODEID` |
    /// | PyTorchJob, scripts | rank or world is set | `RANK`, `WORLD_SIZE` | – |
    ///
    /// - A variable that is empty or a negative number is not set.
    /// - The batch shell of a SLURM job has a rank and no step: it is not one of several.
    /// - `torchrun --virtual-local-rank` sets `LOCAL_RANK` to 0 everywhere; then the place on the node follows from
    ///   the rank where all nodes have equally many processes, and is not known elsewhere.
    /// - `RANK` and `WORLD_SIZE` alone count last, so that any launcher that was started within such a job wins.
    /// - What counts pods (`JOB_COMPLETION_INDEX`, `PET_NODE_RANK`) never counts: a pod may have several processes.
    ///
    /// # Errors
    /// [`BadRank`](Error::BadRank) when what the deciding launcher says contradicts itself: a rank beyond its world, one of
    /// the two without the other, text in place of a number. Others are not asked then.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// As [`from_env`](Self::from_env), of variables that `get` gives by name.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let vars = Vars::new(&get);
        let decides = LAUNCHERS.iter().find(|launcher| launcher.is_there(&vars));
        let (place, mut lines) = match decides {
            Some(launcher) => launcher.read(&vars)?,
            None => (ALONE, vec!["no launcher is there: rank 0 of 1".to_owned()]),
        };
        lines.extend(LAUNCHERS.iter().filter_map(|launcher| launcher.passed_over(decides, &vars)));
        let pods = vars.shown(&COUNT_PODS);
        if !pods.is_empty() {
            lines.push(format!("passed over, since it counts pods and not processes: {}", list(&pods)));
        }
        Ok(Self { place, explanation: lines.join("\n").into() })
    }

    /// Its number in the job, counted from 0.
    pub fn rank(&self) -> usize {
        self.place.rank
    }

    /// How many processes the job has; `None` where that is for the plan to say.
    pub fn world(&self) -> Option<usize> {
        self.place.world
    }

    /// Its number among those of the job that run on the same node, counted from 0.
    pub fn local_rank(&self) -> Option<usize> {
        self.place.local_rank
    }

    /// How many of the job run on the same node, this one among them.
    pub fn local_size(&self) -> Option<usize> {
        self.place.local_size
    }

    /// The number of its node among those of the job, counted from 0.
    pub fn node(&self) -> Option<usize> {
        self.place.node
    }

    /// For people, why it is this rank: the launcher that decided and its variables, and in a line each the other
    /// launchers that have set something, with what they were passed over for.
    pub fn explain(&self) -> &str {
        &self.explanation
    }
}

impl Place {
    /// A rank of which nothing else is known.
    fn of(rank: usize) -> Self {
        Self { rank, world: None, local_rank: None, local_size: None, node: None }
    }
}

/// Ranks are equal whose numbers are, whoever says them.
impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Rank {}

impl From<usize> for Rank {
    /// This rank of whatever world the plan has.
    fn from(rank: usize) -> Self {
        Self { place: Place::of(rank), explanation: GIVEN.into() }
    }
}

impl From<&Self> for Rank {
    fn from(rank: &Self) -> Self {
        rank.clone()
    }
}
