//! A long file often holds a second noun.

use super::{Fault, LIBRARY};
use crate::source::Source;

const LINES: usize = 600;

/// What is to be said of a file of the library that is long. It is no fault: some nouns are big.
pub(super) fn check(source: &Source) -> Option<Fault> {
    let lines = source.lines();
    let long = source.path.starts_with(LIBRARY) && lines > LINES;
    long.then(|| {
        Fault::new(&source.path, format!("{lines} lines, more than {LINES}: does it hold a second noun?"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_of_the_library_is_noted() {
        let long = "\n".repeat(LINES + 1);
        assert!(check(&Source::new("crates/weightmap/src/a.rs", long.as_str())).is_some());
        assert!(check(&Source::new("crates/weightmap/src/a.rs", &long[1..])).is_none());
        assert!(check(&Source::new("crates/xtask/src/a.rs", long)).is_none());
    }
}
