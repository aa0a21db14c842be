//! Changes of one token of a JSON text.

use proptest::prelude::*;
use proptest::sample::Index;

/// What happens to one token, or to two.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    first: Index,
    second: Index,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Lose,
    Double,
    Swap,
    Copy,
    Become(&'static str),
}

/// Texts that a token can become.
const OTHERS: [&str; 26] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"\"",
    "\"a\"",
    "\"\\u0061\"",
    "\"\\ud800\"",
    "\"__metadata__\"",
    "\"dtype\"",
    "\"F32\"",
    "0",
    "1",
    "-0",
    "1.0",
    "1e2",
    "1E400",
    "01",
    "18446744073709551615",
    "18446744073709551616",
    "null",
    "true",
    "NaN",
    "\u{feff}",
];

pub(crate) fn changes() -> impl Strategy<Value = Change> {
    let what = prop_oneof![
        Just(What::Lose),
        Just(What::Double),
        Just(What::Swap),
        Just(What::Copy),
        prop::sample::select(&OTHERS[..]).prop_map(What::Become),
    ];
    (any::<Index>(), any::<Index>(), what).prop_map(|(first, second, what)| Change { first, second, what })
}

impl Change {
    pub(crate) fn of(&self, json: &str) -> String {
        let mut tokens = tokens(json);
        if tokens.is_empty() {
            return String::new();
        }
        let (first, second) = (self.first.index(tokens.len()), self.second.index(tokens.len()));
        match self.what {
            What::Lose => drop(tokens.remove(first)),
            What::Double => tokens.insert(first, tokens[first]),
            What::Swap => tokens.swap(first, second),
            What::Copy => tokens.insert(second, tokens[first]),
            What::Become(other) => tokens[first] = other,
        }
        tokens.concat()
    }
}

/// The tokens of a text; together they are the text.
fn tokens(json: &str) -> Vec<&str> {
    let mut rest = json;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_literal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        let length = match first {
            '"' => string_length(rest),
            _ if is_literal(first) => rest.find(|c| !is_literal(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

/// The length of the string that a text begins with.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn tokens_are_told_apart() {
    let json = r#"{"a\"": [1, -2e+3], "é":null}"#;
    assert_eq!(tokens(json).concat(), json);
    assert_eq!(tokens(json)[..6], ["{", r#""a\"""#, ":", " ", "[", "1"]);
}
