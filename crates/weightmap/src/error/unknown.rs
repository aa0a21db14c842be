//! Names that are not there, and what may have been meant.

use super::quote::{list, quote, quote_all};

/// A name that is not known, and those that it may be a misspelling of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// The nearest names that there are, the nearest first.
    pub nearest: Vec<String>,
}

/// What may have been meant, for the end of a message.
pub(super) fn did_you_mean(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; nearest: {}", quote_all(nearest)) }
}

/// The names, each with what may have been meant.
pub(super) fn unknown_names(unknown: &[UnknownName]) -> String {
    let one = |UnknownName { name, nearest }: &UnknownName| match nearest.as_slice() {
        [] => quote(name),
        // In brackets, since more names follow.
        _ => format!("{} (nearest: {})", quote(name), quote_all(nearest)),
    };
    match unknown {
        [UnknownName { name, nearest }] => format!("{}{}", quote(name), did_you_mean(nearest)),
        many => list(many.iter().map(one), many.len() as u64),
    }
}
