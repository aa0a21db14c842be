//! `unsafe` stands in few files, where it can be read at one sitting.

use super::Fault;
use crate::source::{Source, find_word, slice};

/// Those files, what MPI needs, and what the benches need of the kernel to be fair.
const ALLOWED: [&str; 8] = [
    "crates/weightmap/src/memory.rs",
    "crates/weightmap/src/mmap.rs",
    "crates/weightmap/src/sys.rs",
    "crates/weightmap/src/sys/direct.rs",
    "crates/weightmap/src/sys/uring.rs",
    "crates/weightmap-mpi/src/node.rs",
    "benches/sys.rs",
    "benches/peers/src/main.rs",
];

pub(super) fn check(source: &Source) -> Vec<Fault> {
    if ALLOWED.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let blocks = find_word(&source.code, "unsafe").map(|at| (at, "`unsafe`"));
    let lints = find_word(&source.code, "unsafe_code")
        .filter(|&at| !tightens(&source.code, at))
        .map(|at| (at, "an exception to the lint `unsafe_code`"));
    let why = |what| format!("{what} may stand only in {}", ALLOWED.join(" and "));
    blocks.chain(lints).map(|(at, what)| Fault::new(source.place(at), why(what))).collect()
}

/// Whether the attribute that names the lint at `at` makes it stricter.
fn tightens(code: &str, at: usize) -> bool {
    let attribute = slice(code, 0..at).rsplit('[').next().unwrap_or("");
    ["deny(", "forbid("].iter().any(|level| attribute.starts_with(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn unsafe_code_is_a_fault_outside_of_these_files() {
        let text = "fn f() {\n    unsafe { g() }\n}";
        let faults_of_shard = check(&Source::new("crates/weightmap/src/shard.rs", text));
        assert_eq!(faults_of_shard.len(), 1);
        assert_eq!(faults_of_shard[0].place, "crates/weightmap/src/shard.rs:2");
        assert_eq!(faults("crates/weightmap-cli/src/mmap.rs", text), 1);
        assert_eq!(faults("crates/weightmap/src/mmap.rs", text), 0);
        assert_eq!(faults("tests/x.rs", "#[cfg(test)] mod tests { unsafe fn f() {} }"), 1);
    }

    #[test]
    fn an_exception_to_the_lint_is_a_fault_too() {
        assert_eq!(faults("a.rs", "#![allow(unsafe_code)]"), 1);
        assert_eq!(faults("a.rs", "#[expect(\n    unsafe_code,\n    reason = \"x\"\n)]"), 1);
        assert_eq!(faults("a.rs", "#![forbid(unsafe_code)]"), 0);
    }

    #[test]
    fn the_word_alone_is_no_fault() {
        assert_eq!(faults("a.rs", "// unsafe\nlet unsafe_but_named = \"unsafe\";"), 0);
    }
}
