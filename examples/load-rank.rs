//! Loads what this process of a job needs of a checkpoint, and prints a line about it. Who has started the processes does
//! not matter: torchrun, mpirun, srun, or this program itself.
//!
//! ```text
//! cargo run --release --example load-rank
//! mpirun -n 8 target/release/examples/load-rank path/to/model --tp 4 --pp 2
//! srun -n 16 target/release/examples/load-rank path/to/model --fsdp 16
//! torchrun --nproc-per-node 4 --no-python target/release/examples/load-rank path/to/model --plan plan.json
//! ```

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, iter};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use weightmap::{LoadOptions, LoadReport, Plan, Rank, ShardedModel};
use weightmap_cli::{PlanArgs, VerifyArgs, status};
use weightmap_testkit::Llama;

/// Load what one process of a job needs of a checkpoint; without a launcher, start as many processes as the plan has ranks
///
/// If no plan is given it is --balanced, whole tensors and about the same bytes for each, over as many ranks as --world or
/// the launcher says; of the demo checkpoint by the program by itself, --tp 2 --pp 2. Rank 0 says on stderr which plan it is.
#[derive(Debug, Parser)]
struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache; without it a demo
    /// checkpoint is made under target/, and by itself the program loads it with --tp 2 --pp 2
    path: Option<PathBuf>,
    /// Which plan.
    #[command(flatten)]
    plan: PlanArgs,
    /// The rank, counted from 0 [default: what the launcher says]
    #[arg(long)]
    rank: Option<usize>,
    /// What it is compared with.
    #[command(flatten)]
    verify: VerifyArgs,
    /// Say on stderr by which variables the rank is known
    #[arg(long)]
    explain: bool,
    /// Print a JSON document for each rank, in a line
    #[arg(long)]
    json: bool,
}

/// How the program by itself loads the demo checkpoint.
const DEMO: [&str; 4] = ["--tp", "2", "--pp", "2"];

fn main() -> ExitCode {
    status(run(Args::parse()))
}

fn run(mut args: Args) -> Result<()> {
    let rank = args.plan.rank(args.rank)?;
    let by_itself = args.rank.is_none() && rank.world() == Some(1);
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    if by_itself && args.path.is_none() && !args.plan.is_given() {
        words.extend(DEMO.map(Into::into));
        args = Args::parse_from(iter::once(&"load-rank".into()).chain(&words));
    }
    let path = args.path.take().map_or_else(|| demo(by_itself), Ok)?;
    let model = ShardedModel::open(&path)?;
    let plan = match args.plan.read()? {
        Some(chosen) => chosen.of(&model)?,
        None => Plan::balanced(args.plan.world.or(rank.world()).unwrap_or(1) as u64)?,
    };
    if by_itself && plan.world() > 1 {
        return start(&words, plan.world());
    }
    if rank.rank() == 0 {
        eprintln!("plan: {}", told(&args.plan, &plan));
    }
    if args.explain {
        eprintln!("{}", rank.explain());
    }
    let options = args.verify.apply(&model, LoadOptions::default())?;
    let loaded = model.select().plan(&plan, &rank)?.load_with(&options)?;
    let told =
        if args.json { json(&rank, &plan, loaded.report()) } else { line(&rank, &plan, loaded.report()) };
    // In one piece, since other ranks may write to the same place.
    io::stdout().write_all(format!("{told}\n").as_bytes()).context("cannot write to the standard output")
}

/// The options that choose the plan, be it that they are given or not.
fn told(chosen: &PlanArgs, plan: &Plan) -> String {
    if !chosen.is_given() {
        return format!("--balanced {}, as none is given", plan.world());
    }
    let PlanArgs { plan, cut, fsdp, by_shard, balanced, .. } = chosen;
    let numbers = [
        ("--tp", cut.tp),
        ("--pp", cut.pp),
        ("--ep", cut.ep),
        ("--dp", cut.dp),
        ("--fsdp", *fsdp),
        ("--by-shard", *by_shard),
        ("--balanced", *balanced),
    ];
    let numbers = numbers.iter().filter_map(|(option, number)| Some(format!("{option} {}", (*number)?)));
    let file = plan.iter().map(|file| format!("--plan {}", file.display()));
    file.chain(numbers).collect::<Vec<_>>().join(" ")
}

/// Does what a launcher does: starts this program once for each rank, waits for all, and tells what they say, in the order
/// of the ranks.
fn start(words: &[OsString], world: usize) -> Result<()> {
    let program = env::current_exe().context("cannot find this program")?;
    let child = |rank: usize| {
        let numbers =
            [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world), ("LOCAL_WORLD_SIZE", world)];
        let mut child = Command::new(&program);
        child.args(words).envs(numbers.map(|(name, number)| (name, number.to_string())));
        child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let running: Vec<_> = (0..world).map(child).collect();
    let outputs: Vec<_> = running.into_iter().map(|child| child?.wait_with_output()).collect();

    let mut failed = Vec::new();
    for (rank, output) in outputs.into_iter().enumerate() {
        let output = output.with_context(|| format!("cannot start rank {rank}"))?;
        io::stderr().write_all(&output.stderr)?;
        io::stdout().write_all(&output.stdout)?;
        if !output.status.success() {
            failed.push(format!("rank {rank} ({})", output.status));
        }
    }
    ensure!(failed.is_empty(), "of {world} processes failed {}", failed.join(", "));
    Ok(())
}

fn line(rank: &Rank, plan: &Plan, report: &LoadReport) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let place = match (rank.local_rank(), rank.local_size()) {
        (Some(rank), Some(size)) => format!(" ({rank}/{size} on its node)"),
        _ => String::new(),
    };
    let over = report.over_read.map_or_else(|| "-".to_owned(), |over| format!("{over:.3}"));
    let mode = report.mode.map_or("mixed", |mode| mode.name());
    format!(
        "rank {}/{}{place}: {} tensors, {} wanted, {} read, over-read {over}, {:.1} ms, {mode}",
        rank.rank(),
        plan.world(),
        report.tensors,
        mib(report.requested_bytes),
        mib(report.read_bytes),
        report.stages.total_seconds * 1e3,
    )
}

fn json(rank: &Rank, plan: &Plan, report: &LoadReport) -> String {
    let document = serde_json::json!({
        "rank": rank.rank(),
        "world": plan.world(),
        "local_rank": rank.local_rank(),
        "local_size": rank.local_size(),
        "node": rank.node(),
        "report": report,
    });
    document.to_string()
}

/// The demo checkpoint, made if it is not there.
fn demo(tell: bool) -> Result<PathBuf> {
    let directory = target_directory().join("demo-llama");
    let llama = Llama::demo();
    if tell {
        let (tensors, bytes) = (llama.tensors().len(), llama.total_bytes() >> 20);
        eprintln!("demo checkpoint: {tensors} tensors, {bytes} MiB of bfloat16, in {}", directory.display());
    }
    llama.ensure(&directory).with_context(|| format!("cannot write {}", directory.display()))?;
    Ok(directory)
}

/// Where cargo builds, which is where this program lies; if it was moved, the `target` of the workspace.
fn target_directory() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let tagged = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    tagged.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), Path::to_owned)
}
