//! `cargo xtask tidy`: the architecture, as rules that a machine checks.
//!
//! Each rule is a function from texts to faults, in a file of its own; what touches the disk is here.

mod docs;
mod kinds;
mod layers;
mod length;
mod quiet;
mod tree;
mod unsafety;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo_output, root};
use crate::source::Source;

const LIBRARY: &str = "crates/weightmap/src/";

/// A rule that is broken: where, and why that is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// `path:line`, or the path alone where no line is to blame.
    place: String,
    why: String,
}

impl Fault {
    fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// Checks every rule, prints all faults, and fails if there is one.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let sources = sources(&root)?;
    let library: Vec<&Source> = shipped_library(&sources);
    for note in sources.iter().filter_map(length::check) {
        println!("note: {note}");
    }
    let mut faults = layers::check(&library);
    faults.extend(sources.iter().flat_map(unsafety::check));
    faults.extend(library.iter().flat_map(|source| quiet::check(source)));
    faults.extend(kinds::check(&library, fs::read_to_string(root.join(kinds::PAGE)).ok().as_deref()));
    for rule in &tree::RULES {
        faults.extend(rule.check(&cargo_output(&rule.command())?));
    }
    for (path, text) in pages(&root)? {
        faults.extend(docs::check(&path, &text, |target| root.join(target).exists()));
    }
    for fault in &faults {
        println!("{fault}");
    }
    ensure!(faults.is_empty(), "{} of the project's rules broken, as listed above", faults.len());
    Ok(())
}

/// Every Rust file of the workspace.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in ["crates", "examples", "benches", "tests", "fuzz"] {
        list(root, folder, true, ".rs", &mut paths)?;
    }
    paths.into_iter().map(|path| Ok(Source::new(path.as_str(), read(root, &path)?))).collect()
}

/// The library's files, but those that exist only in its tests.
fn shipped_library(sources: &[Source]) -> Vec<&Source> {
    let library = || sources.iter().filter(|source| source.path.starts_with(LIBRARY));
    let tests: Vec<String> = library()
        .flat_map(|source| {
            let folder =
                source.path.trim_end_matches(".rs").trim_end_matches("/lib").trim_end_matches("/mod");
            source.test_modules.iter().map(move |module| format!("{folder}/{module}"))
        })
        .collect();
    library()
        .filter(|source| {
            !tests.iter().any(|test| {
                source.path.strip_prefix(test.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']))
            })
        })
        .collect()
}

/// The Markdown pages that lie at the root and in `docs`, with their texts.
fn pages(root: &Path) -> Result<Vec<(String, String)>> {
    let mut paths = Vec::new();
    list(root, "", false, ".md", &mut paths)?;
    list(root, "docs", true, ".md", &mut paths)?;
    paths.into_iter().map(|path| Ok((path.clone(), read(root, &path)?))).collect()
}

/// Adds the files of `folder` whose names end in `suffix`, relative to `root`, sorted within each folder.
fn list(root: &Path, folder: &str, deep: bool, suffix: &str, paths: &mut Vec<String>) -> Result<()> {
    let path = root.join(folder);
    if !path.is_dir() {
        return Ok(());
    }
    let context = || format!("cannot list {}", path.display());
    let mut entries = fs::read_dir(&path)
        .with_context(context)?
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(context)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type().with_context(context)?;
        if kind.is_dir() && deep && name != "target" && !name.starts_with('.') {
            list(root, &relative, deep, suffix, paths)?;
        } else if kind.is_file() && name.ends_with(suffix) {
            paths.push(relative);
        }
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_among_the_sources() {
        let sources = sources(&root()).unwrap();
        assert!(sources.iter().any(|source| source.path == "crates/xtask/src/tidy.rs"));
        assert!(!sources.iter().any(|source| source.path.contains("/target/")));
    }

    #[test]
    fn files_of_test_modules_are_not_shipped() {
        let sources = [
            Source::new("crates/weightmap/src/lib.rs", "mod read; #[cfg(test)] mod forge;"),
            Source::new("crates/weightmap/src/forge.rs", ""),
            Source::new("crates/weightmap/src/forgery.rs", ""),
            Source::new("crates/weightmap/src/read.rs", "#[cfg(test)] mod tests;"),
            Source::new("crates/weightmap/src/read/tests.rs", ""),
            Source::new("crates/weightmap/src/read/tests/more.rs", ""),
            Source::new("crates/weightmap-cli/src/main.rs", ""),
        ];
        let shipped: Vec<&str> =
            shipped_library(&sources).iter().map(|source| source.path.as_str()).collect();
        assert_eq!(
            shipped,
            [
                "crates/weightmap/src/lib.rs",
                "crates/weightmap/src/forgery.rs",
                "crates/weightmap/src/read.rs"
            ]
        );
    }
}
