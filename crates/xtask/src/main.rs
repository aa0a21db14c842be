//! The project's own tasks, run as `cargo xtask <task>`.

mod command;
mod fuzz;
mod mpi;
mod sanitize;
mod source;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <task>

  test      everything that must hold before a change is merged, in order, up to the first failure
  mpi       only weightmap-mpi: its lints, and its tests and example in four processes
  fuzz      targets of fuzz by their names, or all: fuzz [TARGET…] [--runs N]
  sanitize  the library's unit tests under AddressSanitizer, ThreadSanitizer and Miri, as far as they are there
  tidy      only the rules of the architecture that the compiler does not know
  help      this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(),
        ["mpi"] => mpi::run(),
        ["fuzz", ref wanted @ ..] => fuzz::run(wanted),
        ["sanitize"] => sanitize::run(),
        ["tidy"] => tidy::run(),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        [] => Err(anyhow::anyhow!("no task given\n{HELP}")),
        _ => Err(anyhow::anyhow!("unknown task: {}\n{HELP}", arguments.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
