//! The `weightmap` program.

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use weightmap_cli::{check, digest, info, load, ls, plan, prefetch, status};

/// Inspect, check and load sharded safetensors checkpoints.
#[derive(Debug, Parser)]
#[command(name = "weightmap", version)]
struct Cli {
    /// Tell on stderr what is opened, touched and loaded; twice for every detail.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 100)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Args),
    Ls(ls::Args),
    Check(check::Args),
    Digest(digest::Args),
    Plan(plan::Args),
    Load(load::Args),
    Prefetch(prefetch::Args),
}

fn main() -> ExitCode {
    let Cli { verbose, command } = Cli::parse();
    subscribe(verbose);
    match command {
        Command::Info(args) => status(info::run(&args)),
        Command::Ls(args) => status(ls::run(&args)),
        Command::Plan(args) => status(plan::run(&args)),
        // Lines of the log would tear the bar.
        Command::Check(args) => check::run(&args, verbose == 0),
        Command::Digest(args) => status(digest::run(&args, verbose == 0)),
        Command::Load(args) => status(load::run(&args.path, &args.options, verbose == 0)),
        Command::Prefetch(args) => status(prefetch::run(&args, verbose == 0)),
    }
}

fn subscribe(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr)
        // What cannot be written cannot be complained of either.
        .log_internal_errors(false)
        .init();
}
