//! `cargo xtask test`: all that must hold before a change is merged.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::command::{cargo, cargo_with, has_subcommand};
use crate::{fuzz, mpi, tidy};

/// Runs every step in order, quick ones first, and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    step("format", || cargo("fmt --all --check"))?;
    step("tidy", tidy::run)?;
    // Of the benches this is all: clippy compiles them, and `cargo test` leaves them alone.
    step("lints", || cargo("clippy --workspace --all-targets --all-features -- -D warnings"))?;
    step("lints without default features", || {
        cargo("clippy --package weightmap --no-default-features -- -D warnings")
    })?;
    step("tests", || cargo("test --workspace --all-features"))?;
    step("documentation", || {
        cargo_with(&[("RUSTDOCFLAGS", "-D warnings")], "doc --workspace --all-features --no-deps")
    })?;
    step("example", || cargo("run --release --example load-subset"))?;
    step("example of ranks", || cargo("run --release --example load-rank"))?;
    step("fuzzing", fuzz::run_if_there)?;
    step("mpi", mpi::run_if_there)?;
    step("dependencies", dependencies)?;
    println!("all passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Does one step, says how long it took, and puts its name to the error if it fails.
fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    let done = work();
    let seconds = start.elapsed().as_secs_f64();
    match done {
        Ok(()) => println!("{name}: passed in {seconds:.1} s\n"),
        Err(_) => println!("{name}: FAILED after {seconds:.1} s\n"),
    }
    done.with_context(|| format!("{name} failed"))
}

fn dependencies() -> Result<()> {
    if has_subcommand("deny") {
        // Without the advisories, which need a network and can fail for a tree that passed yesterday.
        cargo("deny --all-features check bans licenses sources")
    } else {
        println!("skipped: cargo-deny is not installed (cargo install --locked cargo-deny)");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_is_named() {
        let error = step("lints", || anyhow::bail!("clippy is unhappy")).unwrap_err();
        assert_eq!(format!("{error:#}"), "lints failed: clippy is unhappy");
    }
}
