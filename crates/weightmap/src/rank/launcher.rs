//! What each launcher sets. No rank is put together of what two of them say.

use super::vars::{Number, Vars, list};
use super::{Error, Place, Result};

/// A launcher, with the variables that it sets. Of several for one number the first that is set counts.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    signs: Signs,
    rank: Names,
    world: Names,
    local_rank: Names,
    local_size: Names,
    node: Names,
    /// How many nodes there are.
    nodes: Names,
    quirk: Quirk,
}

type Names = &'static [&'static str];

/// By what it is seen that a launcher is there.
#[derive(Debug)]
enum Signs {
    /// All of these are set.
    All(Names),
    /// One of these is set.
    Any(Names),
}

/// What a launcher says in a way of its own.
#[derive(Debug, PartialEq, Eq)]
enum Quirk {
    None,
    /// The local rank may be 0 everywhere.
    VirtualLocalRank,
    /// The local size is a list over all nodes.
    TasksPerNode,
}

/// What says which pod this is, and not which process.
pub(super) const COUNT_PODS: [&str; 2] = ["JOB_COMPLETION_INDEX", "PET_NODE_RANK"];

/// In the order in which they are asked: who starts processes within the job of another comes before that one.
pub(super) const LAUNCHERS: [Launcher; 9] = [
    Launcher {
        name: "torchrun",
        signs: Signs::All(&["TORCHELASTIC_RUN_ID"]),
        rank: &["RANK"],
        world: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        node: &["GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        quirk: Quirk::VirtualLocalRank,
    },
    Launcher {
        name: "DeepSpeed, Ray Train or Accelerate",
        signs: Signs::All(&["RANK", "WORLD_SIZE", "LOCAL_RANK"]),
        rank: &["RANK"],
        world: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_SIZE", "LOCAL_WORLD_SIZE"],
        ..NOTHING
    },
    Launcher {
        name: "Open MPI",
        signs: Signs::Any(&["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]),
        rank: &["OMPI_COMM_WORLD_RANK"],
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        ..NOTHING
    },
    Launcher {
        name: "MPICH or Intel MPI",
        signs: Signs::Any(&["PMI_RANK", "PMI_SIZE"]),
        rank: &["PMI_RANK"],
        world: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
        ..NOTHING
    },
    // PMIX_RANK is no sign of it: Open MPI and srun set it too. It does not tell the world.
    Launcher {
        name: "Cray PALS",
        signs: Signs::Any(&["PALS_RANKID", "PALS_LOCAL_RANKID"]),
        rank: &["PMIX_RANK", "PALS_RANKID"],
        local_rank: &["PALS_LOCAL_RANKID"],
        local_size: &["PALS_LOCAL_SIZE"],
        ..NOTHING
    },
    Launcher {
        name: "MVAPICH",
        signs: Signs::Any(&["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"]),
        rank: &["MV2_COMM_WORLD_RANK"],
        world: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        ..NOTHING
    },
    Launcher {
        name: "LSF jsrun",
        signs: Signs::Any(&["JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"]),
        rank: &["JSM_NAMESPACE_RANK"],
        world: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
        ..NOTHING
    },
    // A batch shell has a rank and a world as well, but no step. `srun --preserve-env` leaves SLURM_NTASKS as it was in the
    // job, so the step's own number comes first.
    Launcher {
        name: "srun",
        signs: Signs::All(&["SLURM_STEP_NODELIST"]),
        rank: &["SLURM_PROCID"],
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &["SLURM_STEP_TASKS_PER_NODE"],
        node: &["SLURM_NODEID"],
        quirk: Quirk::TasksPerNode,
        ..NOTHING
    },
    Launcher {
        name: "PyTorchJob or a script",
        signs: Signs::Any(&["RANK", "WORLD_SIZE"]),
        rank: &["RANK"],
        world: &["WORLD_SIZE"],
        ..NOTHING
    },
];

const NOTHING: Launcher = Launcher {
    name: "",
    signs: Signs::Any(&[]),
    rank: &[],
    world: &[],
    local_rank: &[],
    local_size: &[],
    node: &[],
    nodes: &[],
    quirk: Quirk::None,
};

impl Launcher {
    /// Whether it has started this process, as far as can be seen.
    pub(super) fn is_there(&self, vars: &Vars<'_>) -> bool {
        match self.signs {
            Signs::All(names) => names.iter().all(|name| vars.is_set(name)),
            Signs::Any(names) => names.iter().any(|name| vars.is_set(name)),
        }
    }

    /// What it says, and a text about that.
    pub(super) fn read(&self, vars: &Vars<'_>) -> Result<(Place, Vec<String>)> {
        let by = self.name;
        let rank = vars.number(self.rank, by)?;
        let world = vars.number(self.world, by)?;
        let local_rank = vars.number(self.local_rank, by)?;
        let node = vars.number(self.node, by)?;
        let local_size = match (&self.quirk, self.local_size) {
            (Quirk::TasksPerNode, &[list]) => vars.tasks(list, node.as_ref(), by)?,
            _ => vars.number(self.local_size, by)?,
        };

        let rank = rank.ok_or_else(|| self.missing(self.rank, "the number of this process", vars))?;
        if let (None, [_, ..]) = (&world, self.world) {
            return Err(self.missing(self.world, "the number of processes", vars));
        }
        rank.must_be_below(world.as_ref(), by)?;
        if let Some(size) = &local_size {
            size.must_be_within(world.as_ref(), by)?;
        }
        if let Some(local_rank) = &local_rank {
            local_rank.must_be_below(local_size.as_ref(), by)?;
        }

        let value = |number: Option<Number>| number.map(|number| number.value);
        let said = Place {
            rank: rank.value,
            world: value(world),
            local_rank: value(local_rank),
            local_size: value(local_size),
            node: value(node),
        };
        let mut lines = vec![format!("{by} decides: {}", list(&vars.shown(&self.variables())))];
        let mut place = said;
        if self.quirk == Quirk::VirtualLocalRank {
            place.local_rank = true_local_rank(said, value(vars.number(self.nodes, by)?));
        }
        if place.local_rank != said.local_rank {
            let found = place.local_rank.map_or_else(|| "not known".to_owned(), |local| local.to_string());
            lines.push(format!("the place on the node is {found}, since LOCAL_RANK is 0 for all of them"));
        }
        Ok((place, lines))
    }

    /// Why another one decided, with what this one has set that the other has not; `None` where there is nothing such.
    pub(super) fn passed_over(&self, by: Option<&Self>, vars: &Vars<'_>) -> Option<String> {
        let counted = by.map(Self::variables).unwrap_or_default();
        let mut others = self.variables();
        others.retain(|name| !counted.contains(name));
        let set = vars.shown(&others);
        if set.is_empty() {
            return None;
        }
        let reason = match (by, self.is_there(vars)) {
            (Some(by), true) => format!("{} comes before it", by.name),
            _ => match self.signs {
                Signs::All(names) => {
                    let unset: Vec<&str> = names.iter().copied().filter(|name| !vars.is_set(name)).collect();
                    format!("{} is not set", unset.join(" and "))
                }
                Signs::Any(names) => format!("neither {} is set", names.join(" nor ")),
            },
        };
        Some(format!("{} is passed over, since {reason}: {}", self.name, list(&set)))
    }

    /// All that it sets, each once, its signs first.
    pub(super) fn variables(&self) -> Vec<&'static str> {
        let (Signs::All(signs) | Signs::Any(signs)) = self.signs;
        let numbers = [self.rank, self.world, self.local_rank, self.local_size, self.node, self.nodes];
        let mut variables: Vec<&'static str> = Vec::new();
        for &name in std::iter::once(signs).chain(numbers).flatten() {
            if !variables.contains(&name) {
                variables.push(name);
            }
        }
        variables
    }

    fn missing(&self, names: Names, what: &str, vars: &Vars<'_>) -> Error {
        let set = list(&vars.shown(&self.variables()));
        let name = names.first().copied().unwrap_or_default();
        vars.missing(name, format!("{what}, since {set}"), self.name)
    }
}

/// The place on its node of a process that torchrun started. `--virtual-local-rank` says 0 to every process, so a 0 counts
/// only for the first one of a node. Ranks run on from node to node: which one is the first follows where all nodes have
/// equally many, and is not known elsewhere.
fn true_local_rank(said: Place, nodes: Option<usize>) -> Option<usize> {
    let Place { rank, world, local_rank: Some(0), local_size, .. } = said else { return said.local_rank };
    if rank == 0 || local_size == Some(1) {
        return Some(0);
    }
    let (size, world) = (local_size?, world?);
    let is_even = match nodes {
        Some(nodes) => nodes.checked_mul(size) == Some(world),
        None => world.checked_rem(size)? == 0,
    };
    rank.checked_rem(size).filter(|_| is_even)
}
