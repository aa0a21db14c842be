//! Loading together between real processes: `cargo test` under `mpirun`, as `cargo xtask mpi` does it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mpi::traits::Communicator as _;
use weightmap::{Collective, Loaded, NodeReport, Plan, ShardedModel};
use weightmap_mpi::MpiCollective;
use weightmap_testkit::{Llama, TempModel};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// What the rules of a plan give to whom.
const PLANS: [(&str, &str); 3] = [
    ("all of it to everyone", r#""default": "replicate", "rules": []"#),
    (
        "rows and columns to each, the rest to everyone",
        r#""default": "replicate", "rules": [
            {"match": ".*\\.(q|k|v|gate|up)_proj\\.weight", "shard": [{"dim": 0, "axis": "tp", "split": "chunk"}]},
            {"match": ".*\\.(o|down)_proj\\.weight", "shard": [{"dim": 1, "axis": "tp", "split": "chunk"}]}]"#,
    ),
    (
        "rows to each, and nothing to several",
        r#""default": "error", "rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "tp", "split": "chunk"}]}]"#,
    ),
];

/// A few shards of a few MiB, with rows so long that a part of one is worth a read of its own.
const MODEL: Llama = Llama {
    layers: 2,
    hidden: 512,
    intermediate: 2048,
    vocab: 2048,
    heads: 8,
    kv_heads: 4,
    max_shard_bytes: 4 << 20,
};

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    if let Err(error) = check(&MpiCollective::world(&universe)) {
        eprintln!("rank {}: {error}", universe.world().rank());
        // The others may wait for this one, and would for ever.
        universe.world().abort(1);
    }
    ExitCode::SUCCESS
}

fn check(collective: &MpiCollective<'_>) -> Outcome {
    let written = (collective.rank() == 0).then(|| MODEL.checkpoint().temp());
    let path = path(collective, written.as_ref())?;
    for (what, rules) in PLANS {
        let plan = format!(r#"{{"meshes": {{"world": [["tp", {}]]}}, {rules}}}"#, collective.size());
        loads(collective, &path, &Plan::from_json(&plan)?).map_err(|error| format!("{what}: {error}"))?;
    }
    another_plan_is_an_error_for_all(collective, &path)?;
    // The files stay until everyone has read them.
    collective.barrier()?;
    if collective.rank() == 0 {
        println!("{} processes: each byte read once", collective.size());
    }
    Ok(())
}

/// The path that the first rank has, which it tells the others.
fn path(collective: &MpiCollective<'_>, written: Option<&TempModel>) -> Outcome<PathBuf> {
    let own = written.map_or("", |model| model.path().to_str().unwrap_or_default());
    let mut len = [0; 8];
    len.copy_from_slice(&(own.len() as u64).to_le_bytes());
    collective.broadcast(0, &mut len)?;
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(len))?];
    bytes[..own.len()].copy_from_slice(own.as_bytes());
    collective.broadcast(0, &mut bytes)?;
    Ok(String::from_utf8(bytes)?.into())
}

/// Each rank gets the bytes that it would get alone, and the files are read once.
fn loads(collective: &MpiCollective<'_>, path: &Path, plan: &Plan) -> Outcome {
    let model = ShardedModel::open(path)?;
    let together = model.load_together(plan, collective)?;
    let alone = model.select().part(&model.divide(plan)?, collective.rank())?.load()?;
    same(&together.loaded, &alone)?;

    let NodeReport { wanted_bytes, needed_bytes, read_bytes, .. } = together.node;
    ensure(
        needed_bytes == MODEL.total_bytes(),
        &format!("the node needs the model, and not {needed_bytes}"),
    )?;
    ensure(
        read_bytes * 100 <= needed_bytes * 105,
        &format!("{needed_bytes} are read once, and not {read_bytes}"),
    )?;
    ensure(wanted_bytes <= needed_bytes * collective.size() as u64, &format!("{wanted_bytes} are wanted"))
}

fn same(together: &Loaded, alone: &Loaded) -> Outcome {
    let names =
        |loaded: &Loaded| loaded.tensors().iter().map(|tensor| tensor.name().to_owned()).collect::<Vec<_>>();
    ensure(!names(alone).is_empty() && names(together) == names(alone), "the tensors are the same")?;
    for (together, alone) in together.tensors().iter().zip(alone.tensors()) {
        let is_same = together.shape() == alone.shape() && together.bytes() == alone.bytes();
        ensure(is_same, &format!("{} is the same", alone.name()))?;
    }
    Ok(())
}

fn another_plan_is_an_error_for_all(collective: &MpiCollective<'_>, path: &Path) -> Outcome {
    if collective.size() == 1 {
        return Ok(());
    }
    let is_odd = collective.rank() + 1 == collective.size();
    let rules = if is_odd { PLANS[0].1 } else { PLANS[2].1 };
    let plan = format!(r#"{{"meshes": {{"world": [["tp", {}]]}}, {rules}}}"#, collective.size());
    let result = ShardedModel::open(path)?.load_together(&Plan::from_json(&plan)?, collective);
    ensure(result.is_err(), "ranks with different plans do not load")
}

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("it does not hold that {what}").into()) }
}
