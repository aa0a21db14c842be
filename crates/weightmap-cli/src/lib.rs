//! What the `weightmap` program does: one module for each subcommand, with its arguments and a function that
//! runs it.
//!
//! A subcommand puts its results on the standard output, as text or with `--json` as one document, and
//! everything else on the standard error. It is a library so that the example `load-subset` can be the `load`
//! subcommand with a demo in front; what it exports is for that, and can change at any time.

mod finding;
mod open;
mod render;
mod select;

pub mod check;
pub mod info;
pub mod load;
pub mod ls;

pub use open::{FormatArgs, OpenArgs};
pub use select::SelectArgs;

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
            render::error(&error);
            if error.downcast_ref().is_some_and(is_fault) {
                render::hint("`weightmap check` lists all that is wrong with the checkpoint");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether an error is of a checkpoint, which may have more of them, and not of the command.
fn is_fault(error: &Error) -> bool {
    matches!(
        error,
        Error::Header { .. }
            | Error::Index { .. }
            | Error::MissingShards { .. }
            | Error::TensorNotInShard { .. }
    )
}
