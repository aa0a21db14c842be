//! `cargo xtask fuzz`: the targets of `fuzz`, on the toolchain that everything else is built with.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{cargo, cargo_in, is_on_path, root};

/// How many inputs each target gets, unless told.
const RUNS: u64 = 200_000;
/// And among the other tests, where all of it takes about a minute.
const FEW_RUNS: u64 = 20_000;

/// An input may not take longer than so many seconds, nor more memory than so many megabytes, all at once or in all.
const LIMITS: [&str; 5] =
    ["-timeout=10", "-malloc_limit_mb=256", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1"];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted<'a> {
    /// None for all.
    targets: Vec<&'a str>,
    runs: u64,
}

/// Runs targets by their names, all if there are none, on as many inputs as `--runs` says.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let Wanted { targets, runs } = wanted(arguments)?;
    let known = known()?;
    if let Some(unknown) = targets.iter().find(|target| !known.iter().any(|known| known == *target)) {
        bail!("unknown target: {unknown}; there are {}", known.join(", "));
    }
    let targets: Vec<&str> =
        if targets.is_empty() { known.iter().map(String::as_str).collect() } else { targets };
    let programs = build()?;
    // All are run, since one that fails says nothing of the others.
    let mut failed = Vec::new();
    for target in targets {
        if !fuzz(&programs, target, runs)? {
            failed.push(target);
        }
    }
    ensure!(failed.is_empty(), "targets that failed: {}", failed.join(", "));
    Ok(())
}

/// All targets on a few inputs, or a word of what is missing.
pub(crate) fn run_if_there() -> Result<()> {
    cargo("fmt --manifest-path fuzz/Cargo.toml --all --check")?;
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if !is_on_path(&compiler) {
        println!("skipped: no C++ compiler, of which libFuzzer is built: install one, or set CXX");
        return Ok(());
    }
    run(&["--runs", &FEW_RUNS.to_string()])
}

fn wanted<'a>(arguments: &[&'a str]) -> Result<Wanted<'a>> {
    let mut wanted = Wanted { targets: Vec::new(), runs: RUNS };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--runs" => {
                let runs = rest.next().context("--runs needs a number")?;
                wanted.runs = runs.parse().with_context(|| format!("--runs needs a number, found {runs}"))?;
            }
            option if option.starts_with('-') => bail!("unknown option: {option}; there is --runs N"),
            target => wanted.targets.push(target),
        }
    }
    Ok(wanted)
}

/// The targets, in the order of their names.
fn known() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// Builds all targets and the first inputs, and gives the folder of the programs.
fn build() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = root().join(target).join("fuzz");
    let folder =
        |path: &Path| path.to_str().map(str::to_owned).context("the path of the checkout is not Unicode");
    let environment = [("CARGO_TARGET_DIR", folder(&target)?)];
    let seeds = "run --quiet --manifest-path fuzz/Cargo.toml --package seeds -- fuzz/corpus";
    cargo_in(&environment, seeds)?;
    let wrapper = ("RUSTC_WRAPPER", folder(&root().join("fuzz/rustc"))?);
    let environment = [&environment[..], &[wrapper]].concat();
    cargo_in(&environment, "build --release --manifest-path fuzz/Cargo.toml --bins")?;
    Ok(target.join("release"))
}

/// Runs one target; whether it found nothing.
fn fuzz(programs: &Path, target: &str, runs: u64) -> Result<bool> {
    let fuzz = root().join("fuzz");
    let (corpus, artifacts) = (fuzz.join("corpus").join(target), fuzz.join("artifacts").join(target));
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let program = programs.join(target);
    let mut command = Command::new(&program);
    command.arg(corpus).args(LIMITS).arg(format!("-runs={runs}"));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    let dictionary = fuzz.join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        println!("{target}: {}", summary(&said));
        return Ok(true);
    }
    let log = artifacts.join("log");
    fs::write(&log, said.as_bytes()).with_context(|| format!("cannot write {}", log.display()))?;
    println!("{target}: FAILED, {}\n{}", output.status, failure(&said));
    println!("all that it said is in {}; to see it again: {} INPUT", log.display(), program.display());
    Ok(false)
}

/// What libFuzzer says at its end of inputs, edges and seconds.
fn summary(said: &str) -> String {
    let line =
        |starts: &str| said.lines().rev().find(|line| line.contains(starts)).unwrap_or_default().trim();
    format!("{}; {}", line("DONE"), line("Done "))
}

/// The lines that tell of a failure: the panic, what libFuzzer makes of it, and the path of the input.
fn failure(said: &str) -> String {
    let tells = |line: &&str| {
        ["panicked at", "ERROR: ", "SUMMARY: ", "Test unit written"].iter().any(|sign| line.contains(sign))
    };
    let mut told = Vec::new();
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        if tells(&line) {
            told.push(line);
            // The message of a panic stands on the next one.
            told.extend(lines.next_if(|_| line.contains("panicked at")));
        }
    }
    told.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_runs_are_read_in_any_order() {
        assert_eq!(wanted(&[]).unwrap(), Wanted { targets: Vec::new(), runs: RUNS });
        let both = Wanted { targets: vec!["header", "index"], runs: 5 };
        assert_eq!(wanted(&["header", "--runs", "5", "index"]).unwrap(), both);
        assert!(
            wanted(&["--runs"]).is_err() && wanted(&["--runs", "x"]).is_err() && wanted(&["--x"]).is_err()
        );
    }

    #[test]
    fn each_target_is_a_program() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let known = known().unwrap();
        assert!(known.iter().any(|target| target == "header"), "{known:?}");
        for target in known {
            assert!(
                manifest.contains(&format!("name = \"{target}\"\npath = \"fuzz_targets/{target}.rs\"")),
                "{target}"
            );
        }
    }

    #[test]
    fn an_unknown_target_is_named_before_anything_is_built() {
        let error = run(&["nonsense"]).unwrap_err().to_string();
        assert!(
            error.starts_with("unknown target: nonsense; there are ") && error.contains("header"),
            "{error}"
        );
    }

    #[test]
    fn of_a_failure_the_panic_and_the_path_are_told() {
        let said = "#1 INITED\nthread 'x' panicked at a.rs:1:2:\nno policy\n#0 0x1\nartifact_prefix='x'; Test unit written to x/crash-1\nBase64: x";
        let told = "thread 'x' panicked at a.rs:1:2:\nno policy\nartifact_prefix='x'; Test unit written to x/crash-1";
        assert_eq!(failure(said), told);
    }
}
