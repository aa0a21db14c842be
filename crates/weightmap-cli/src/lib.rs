//! What the `weightmap` program does: one module for each subcommand, with its arguments and a function that
//! runs it.
//!
//! A subcommand puts its results on the standard output, as text or with `--json` as one document, and
//! everything else on the standard error. It is a library so that the example `load-subset` can be the `load`
//! subcommand with a demo in front, and `load-rank` choose a plan as it does; what it exports is for that, and can change
//! at any time.

mod finding;
mod open;
mod part;
mod plan_args;
mod progress;
mod read;
mod render;
mod select;
mod size;
mod slice;
mod sums;
mod text;
mod verify;

pub mod check;
pub mod digest;
pub mod info;
pub mod load;
pub mod ls;
pub mod plan;
pub mod prefetch;

pub use open::{FormatArgs, OpenArgs};
pub use part::PartArgs;
pub use plan_args::{ChosenPlan, Cut, PlanArgs};
pub use read::ReadArgs;
pub use select::SelectArgs;
pub use slice::Slice;
pub use verify::VerifyArgs;

use std::iter;
use std::process::ExitCode;

use weightmap::Error;

/// The exit status of a program that ends with this result: 0, or 1 for an error, which is told on stderr.
///
/// Nobody reading the results any more is no error: `weightmap ls … | head` ends quietly.
pub fn status(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if render::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            if let Some(hint) = error.downcast_ref().and_then(hint) {
                render::hint(hint);
            }
            ExitCode::FAILURE
        }
    }
}

/// Tells an error on stderr: of a plan all faults, each in a line.
fn tell(error: &anyhow::Error) {
    match plan::faults(error) {
        Some((heading, faults)) => {
            let lines = faults.iter().map(|fault| fault.to_string().replace('\n', " "));
            let lines: Vec<_> = iter::once(heading).chain(lines).collect();
            render::error(&anyhow::Error::msg(lines.join("\n")));
        }
        None => render::error(error),
    }
}

/// What to do with this program, of which the library's errors know nothing.
fn hint(error: &Error) -> Option<&'static str> {
    match error {
        // The checkpoint may have more of these.
        Error::Header { .. }
        | Error::Index { .. }
        | Error::MissingShards { .. }
        | Error::TensorNotInShard { .. } => {
            Some("`weightmap check` lists all that is wrong with the checkpoint")
        }
        Error::ContentDiffers { .. } => Some("`weightmap check --content` lists all that differs"),
        Error::UnknownTensors { unknown, .. } if unknown.iter().any(|unknown| unknown.name.contains('*')) => {
            Some(
                "patterns are for `--select` and `--exclude`; `--slice`, and each line of `--names`, names one tensor",
            )
        }
        Error::MemoryLimit { tensor: None, .. } => {
            Some("`--stream`, `--mode mapped` and `--memory-limit` do that")
        }
        Error::MemoryLimit { .. } => Some(
            "`--memory-limit` does that, and `--slice` or a plan of more ranks takes less of it; `--mode mapped` leaves it \
                  in the file",
        ),
        _ => None,
    }
}
