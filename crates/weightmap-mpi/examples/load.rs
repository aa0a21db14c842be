//! The ranks of an MPI job load a checkpoint together: what several ranks of a node need is read by one of them.
//!
//! ```text
//! mpirun -n 4 target/release/examples/load path/to/model plan.json
//! ```
//!
//! Without a plan the model is divided by tensor parallelism, after its `config.json`; without a model it is a demo.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use mpi::traits::Communicator as _;
use weightmap::plan::Parallel;
use weightmap::{Collective as _, Plan, ShardedModel};
use weightmap_mpi::MpiCollective;
use weightmap_testkit::Llama;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    if let Err(error) = load(&MpiCollective::world(&universe)) {
        eprintln!("rank {}: {error}", universe.world().rank());
        // The others may wait for this one, and would for ever.
        universe.world().abort(1);
    }
    ExitCode::SUCCESS
}

fn load(collective: &MpiCollective<'_>) -> Outcome {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (path, plan) = match (arguments.next(), arguments.next()) {
        (None, _) => demo(collective)?,
        (Some(path), Some(plan)) => (path, Plan::from_json(&text(&plan)?)?),
        (Some(path), None) => {
            let parallel = Parallel::default().tp(collective.size() as u64);
            let plan = Plan::for_model(&text(&path.join("config.json"))?, &parallel)?;
            (path, plan)
        }
    };
    let together = ShardedModel::open(&path)?.load_together(&plan, collective)?;
    let (rank, loaded) = (collective.rank(), &together.loaded);
    let bytes: usize = loaded.tensors().iter().map(|tensor| tensor.bytes().len()).sum();
    println!("rank {rank}: {} tensors, {} MiB", loaded.tensors().len(), bytes >> 20);
    collective.barrier()?;
    if collective.local_group().first() == Some(&rank) {
        println!("{}", together.node);
    }
    Ok(())
}

/// The text of a file.
fn text(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// A checkpoint where cargo builds, of which the matrices of the layers are divided and the rest is everyone's.
fn demo(collective: &MpiCollective<'_>) -> Outcome<(PathBuf, Plan)> {
    let program = env::current_exe()?;
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    let path = target.ok_or("no model is given, and cargo does not build here: give one")?.join("demo-llama");
    if collective.local_group().first() == Some(&collective.rank()) {
        Llama::demo().ensure(&path)?;
    }
    collective.barrier()?;
    let plan = r#"{"meshes": {"world": [["tp", RANKS]]}, "default": "replicate", "rules": [
        {"match": ".*\\.(q|k|v|gate|up)_proj\\.weight", "shard": [{"dim": 0, "axis": "tp", "split": "chunk"}]},
        {"match": ".*\\.(o|down)_proj\\.weight", "shard": [{"dim": 1, "axis": "tp", "split": "chunk"}]}]}"#;
    Ok((path, Plan::from_json(&plan.replace("RANKS", &collective.size().to_string()))?))
}
