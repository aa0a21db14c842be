//! Phrases that several words of an error's fields make, for its message.

use std::path::Path;

use super::quote::{list, quote, shown};

/// The file that a message is about, at its start.
pub(super) fn of_path(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!("{}: ", shown(path)))
}

/// The tensor that a message is about, at its start.
pub(super) fn of_which(tensor: Option<&str>) -> String {
    tensor.map_or_else(String::new, |name| format!("tensor {}: ", quote(name)))
}

/// The tensor that something was done for.
pub(super) fn of_tensor(tensor: Option<&str>) -> String {
    tensor.map_or_else(String::new, |name| format!(" for tensor {}", quote(name)))
}

/// What of a file was compared, with its verb.
pub(super) fn of_content(tensor: Option<&str>) -> String {
    tensor.map_or_else(|| "the header is".to_owned(), |name| format!("tensor {} is", quote(name)))
}

/// What of a file there are no digests of.
pub(super) fn of_digested(tensor: Option<&str>) -> String {
    tensor.map_or_else(|| "this shard".to_owned(), |name| format!("tensor {}", quote(name)))
}

/// A variable of the environment, or an argument, and what is in it.
pub(super) fn of_variable(name: &str, found: Option<&str>) -> String {
    found.map_or_else(|| format!("{name} is not set"), |found| format!("{name}={}", quote(found)))
}

/// The variant that was asked for.
pub(super) fn of_variant(asked: Option<&str>) -> String {
    asked.map_or_else(|| "without a variant".to_owned(), |variant| format!("of variant {}", quote(variant)))
}

/// The files of other variants, and how to ask for one of them.
pub(super) fn other_variants(found: &[(String, Option<String>)]) -> String {
    let files = list(found.iter().map(|(file, _)| quote(file)), found.len() as u64);
    match found.iter().find_map(|(_, variant)| variant.as_deref()) {
        Some(variant) => {
            format!("found {files}; ask for a variant with `.variant({0})` (`--variant {0}`)", quote(variant))
        }
        None => format!("found {files}; open the model without asking for a variant"),
    }
}

/// The numbers of shards that are missing, the first of so many, and those that are too many.
pub(super) fn numbers(what: &str, missing: &[u64], missing_count: u64, stray: &[u64]) -> String {
    let absent = (missing_count > 0).then(|| format!("missing {what}: {}", list(missing, missing_count)));
    let beyond =
        (!stray.is_empty()).then(|| format!("{what} out of range: {}", list(stray, stray.len() as u64)));
    absent.into_iter().chain(beyond).collect::<Vec<_>>().join("; ")
}
