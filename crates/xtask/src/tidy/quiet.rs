//! The library prints nothing, reads no environment save for the rank, and does not depend on the byte order of the host.

use super::Fault;
use crate::source::{Source, find_word, slice};

const PRINTS: &str = "the library prints nothing: return it, or use `tracing`";
const READS: &str = "the library reads no environment: take it as an option, and let programs read it";
/// The one file that may, where the caller asks for it.
const READER: &str = "crates/weightmap/src/rank.rs";
const HOST_ENDIAN: &str = "the format is little-endian on every host: use the `_le_` function";

/// Words that the library's code does not contain; those in `!` and `::` only with that behind them.
const FORBIDDEN: [(&str, &str); 11] = [
    ("print!", PRINTS),
    ("println!", PRINTS),
    ("eprint!", PRINTS),
    ("eprintln!", PRINTS),
    ("dbg!", PRINTS),
    ("stdout", PRINTS),
    ("stderr", PRINTS),
    ("env::", READS),
    ("getenv", READS),
    ("from_ne_bytes", HOST_ENDIAN),
    ("to_ne_bytes", HOST_ENDIAN),
];

pub(super) fn check(source: &Source) -> Vec<Fault> {
    let forbidden = FORBIDDEN.iter().filter(|&&(_, why)| why != READS || source.path != READER);
    let found = forbidden.flat_map(|&(pattern, why)| {
        let word = pattern.trim_end_matches(['!', ':']);
        find_word(&source.shipped, word)
            .filter(move |&at| slice(&source.shipped, at..source.shipped.len()).starts_with(pattern))
            .map(move |at| Fault::new(source.place(at), format!("`{word}`: {why}")))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        check(&Source::new("a.rs", text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn printing_is_a_fault() {
        for call in ["print!(x)", "println!(x)", "eprint!(x)", "eprintln!(x)", "dbg!(x)", "io::stdout()"] {
            let faults = faults(&format!("\n{call};"));
            assert_eq!(faults.len(), 1, "{call}");
            assert!(faults[0].starts_with("a.rs:2:") && faults[0].contains("prints nothing"), "{faults:?}");
        }
    }

    #[test]
    fn reading_the_environment_is_a_fault() {
        assert!(faults("std::env::var(\"HOME\")")[0].contains("reads no environment"));
        assert_eq!(faults("env::temp_dir()").len(), 1);
    }

    #[test]
    fn the_rank_alone_may_be_read_from_the_environment() {
        let faults = |path, text| check(&Source::new(path, text)).len();
        assert_eq!(faults("crates/weightmap/src/rank.rs", "std::env::var_os(name)"), 0);
        assert_eq!(faults("crates/weightmap/src/rank.rs", "println!()"), 1);
        assert_eq!(faults("crates/weightmap/src/rank/vars.rs", "std::env::var_os(name)"), 1);
    }

    #[test]
    fn the_hosts_byte_order_is_a_fault() {
        assert!(faults("u64::from_ne_bytes(b)")[0].contains("little-endian"));
        assert_eq!(faults("x.to_ne_bytes()").len(), 1);
    }

    #[test]
    fn tests_docs_strings_and_likenesses_are_none() {
        let text = "/// println!(\"{x}\");\n#[cfg(test)]\nmod tests { fn f() { println!() } }
            let s = \"println!\"; writeln!(f); env!(\"CARGO_PKG_VERSION\"); u64::from_le_bytes(b);";
        assert!(faults(text).is_empty());
    }
}
