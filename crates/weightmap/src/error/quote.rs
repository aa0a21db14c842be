//! Names and lists of them, as they are shown in messages.

use std::fmt::Display;
use std::path::Path;

use crate::dtype::Dtype;

/// Items of a list that a message shows before it only counts.
const SHOWN: usize = 10;
/// Characters of a name that a message shows.
const SHOWN_CHARS: usize = 200;

/// A name that comes from a file: escaped, and cut where it is very long.
pub(crate) fn quote(name: &str) -> String {
    match name.char_indices().nth(SHOWN_CHARS).and_then(|(end, _)| name.get(..end)) {
        Some(start) => format!("{start:?}… ({} bytes)", name.len()),
        None => format!("{name:?}"),
    }
}

/// A path as it is, save that what controls a terminal or the order of text, which names of files can bring in, is
/// escaped.
pub(crate) fn shown(path: &Path) -> String {
    let escape = |c: char| if is_unseen(c) { c.escape_default().to_string() } else { c.to_string() };
    path.to_string_lossy().chars().map(escape).collect()
}

/// Whether a character controls the terminal or the order in which text is shown, or is never seen.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The name of a type; one that is not known comes from a file and is escaped.
pub(crate) fn dtype_name(dtype: &Dtype) -> String {
    match dtype {
        Dtype::Unknown(name) => quote(name),
        known => known.to_string(),
    }
}

/// The first items of a list that has `total`, and how many more there are.
pub(crate) fn list(items: impl IntoIterator<Item = impl Display>, total: u64) -> String {
    joined(items, ", ", total)
}

/// As [`list`], of whole clauses, which have commas of their own.
pub(crate) fn clauses(items: impl IntoIterator<Item = impl Display>, total: u64) -> String {
    joined(items, "; ", total)
}

fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str, total: u64) -> String {
    let shown: Vec<String> = items.into_iter().take(SHOWN).map(|item| item.to_string()).collect();
    match total.saturating_sub(shown.len() as u64) {
        0 => shown.join(separator),
        more => format!("{} and {more} more", shown.join(separator)),
    }
}

/// Names, escaped, the first ones of them; `none` for no names.
pub(crate) fn quote_all(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    list(names.iter().map(|name| quote(name)), names.len() as u64)
}

/// `1 tensor`, `2 tensors`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_very_long_ones_are_cut() {
        assert_eq!(quote("a\n\"b\u{1b}[31m"), r#""a\n\"b\u{1b}[31m""#);
        let cut = quote(&"é".repeat(5000));
        assert!(cut.chars().count() < 250 && cut.ends_with("… (10000 bytes)"), "{cut}");
    }

    #[test]
    fn a_path_keeps_all_but_control_characters() {
        assert_eq!(shown(Path::new("a b/\"é\"/\u{1b}[2J\n")), r#"a b/"é"/\u{1b}[2J\n"#);
    }

    #[test]
    fn an_unknown_type_is_escaped() {
        assert_eq!(dtype_name(&Dtype::Bf16), "BF16");
        assert_eq!(dtype_name(&Dtype::Unknown("Q\n".into())), r#""Q\n""#);
    }

    #[test]
    fn a_long_list_is_counted() {
        assert_eq!(quote_all(&[]), "none");
        assert_eq!(list([1, 2], 2), "1, 2");
        assert_eq!(list(0..99, 99), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 89 more");
    }
}
