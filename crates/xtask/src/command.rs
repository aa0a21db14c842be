//! Calls of cargo, from the root of the workspace, each shown before it runs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Runs cargo with these arguments, which are separated by spaces.
pub(crate) fn cargo(arguments: &str) -> Result<()> {
    cargo_with(&[], arguments)
}

/// Runs cargo with these variables added to its environment.
pub(crate) fn cargo_with(variables: &[(&str, &str)], arguments: &str) -> Result<()> {
    run(command(arguments).envs(variables.iter().copied()), &shown(variables, arguments))
}

/// Runs cargo in an environment that is too long to be shown.
pub(crate) fn cargo_in(environment: &[(&str, String)], arguments: &str) -> Result<()> {
    let variables = environment.iter().map(|(name, value)| (name, value));
    run(command(arguments).envs(variables), &shown(&[], arguments))
}

/// Runs the cargo of the nightly toolchain, with these variables added to its environment.
pub(crate) fn nightly(variables: &[(&str, &str)], arguments: &str) -> Result<()> {
    let mut command = Command::new("cargo");
    command.arg("+nightly").args(arguments.split_whitespace()).current_dir(root());
    // The proxy of rustup asks these first, which the cargo that runs this has set.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").envs(variables.iter().copied());
    run(&mut command, &shown(variables, &format!("+nightly {arguments}")))
}

/// Whether there is a nightly toolchain.
pub(crate) fn has_toolchain() -> bool {
    sysroot().is_some()
}

/// Whether the nightly toolchain has this file.
pub(crate) fn toolchain_has(file: &str) -> bool {
    sysroot().is_some_and(|sysroot| sysroot.join(file).is_file())
}

/// Where the nightly toolchain is.
fn sysroot() -> Option<PathBuf> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN");
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

fn run(command: &mut Command, shown: &str) -> Result<()> {
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

/// What cargo prints on its standard output for these arguments; what it prints beside that is for the error.
pub(crate) fn cargo_output(arguments: &str) -> Result<String> {
    let shown = shown(&[], arguments);
    let output = command(arguments).output().with_context(|| format!("cannot start `{shown}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` ended with {}\n{}", output.status, said.trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether cargo has this subcommand here.
pub(crate) fn has_subcommand(name: &str) -> bool {
    command(&format!("{name} --version")).output().is_ok_and(|output| output.status.success())
}

/// Whether a program of this name, or path, is there.
pub(crate) fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn command(arguments: &str) -> Command {
    // The cargo that runs this program, which is not always the first one in PATH.
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

fn shown(variables: &[(&str, &str)], arguments: &str) -> String {
    let variables: String = variables.iter().map(|(name, value)| format!("{name}=\"{value}\" ")).collect();
    format!("{variables}cargo {arguments}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_lock_file() {
        assert!(root().join("Cargo.lock").is_file());
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        assert_eq!(shown(&[("A", "b c")], "doc --no-deps"), "A=\"b c\" cargo doc --no-deps");
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = cargo_output("no-such-subcommand-at-all --x").unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("`cargo no-such-subcommand-at-all --x` ended with"), "{error}");
        assert!(error.contains("no such command"), "{error}");
    }

    #[test]
    fn a_subcommand_that_is_absent_is_not_had() {
        assert!(has_subcommand("tree"));
        assert!(!has_subcommand("no-such-subcommand-at-all"));
    }

    #[test]
    fn cargo_is_on_the_path_and_nonsense_is_not() {
        assert!(is_on_path("cargo"));
        assert!(!is_on_path("no-such-program-at-all"));
    }
}
