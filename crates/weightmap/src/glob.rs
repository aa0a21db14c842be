//! Patterns of tensor names.
//!
//! A name is not a path: `*` passes over dots and slashes alike. A glob becomes one anchored regex, which
//! matches in time linear in the name, whatever the pattern; one of stars alone needs none, and compiling it
//! would take longer than loading a small layer from the page cache.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

use std::str::Chars;

use regex::Regex;

use crate::error::{Error, Result};

/// The longest pattern, in bytes.
const MAX_PATTERN_LEN: usize = 16 << 10;

/// How many braces may stand within each other.
const MAX_DEPTH: usize = 32;

/// The longest number of a range. All numbers of 19 digits, and the next one, fit into a `u64`.
const MAX_DIGITS: usize = 19;

/// A pattern that a whole tensor name matches or does not.
///
/// | written | matches |
/// |---|---|
/// | `*` | any characters, also none |
/// | `?` | one character |
/// | `[a-z_]` | one of these characters |
/// | `[!a-z]`, `[^a-z]` | one character that is none of these |
/// | `{a,b*,}` | one of these patterns, of which any may be empty; braces may stand within braces |
/// | `{0..15}` | a whole number from 0 to 15, both included, without leading zeros; `{15..0}` is the same |
/// | `{00..15}` | the same with leading zeros, all as long as the longer end; `{0..3,7}` mixes both kinds |
/// | `\*` | the character after the backslash, here a star |
///
/// All else stands for itself, upper and lower case apart.
#[derive(Debug, Clone)]
pub(crate) enum Glob {
    /// What stands before, between and behind stars.
    Stars(Vec<Box<str>>),
    Regex(Regex),
}

impl Glob {
    /// Reads a pattern. An [`Error::BadPattern`] says where it is wrong, and why.
    pub(crate) fn parse(pattern: &str) -> Result<Self> {
        let bad = |Fault(position, reason)| Error::BadPattern { pattern: pattern.into(), position, reason };
        let translated = Translator::new(pattern).translate().map_err(bad)?;
        let too_large = |_| bad(Fault(0, "the pattern as a whole is too large; split it into several"));
        if !pattern.contains(['?', '[', '{', '\\']) {
            return Ok(Self::Stars(pattern.split('*').map(Into::into).collect()));
        }
        Regex::new(&translated).map_err(too_large).map(Self::Regex)
    }

    /// Whether the whole of `name` matches.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        match self {
            Self::Stars(literals) => is_match_of_stars(literals, name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

fn is_match_of_stars(literals: &[Box<str>], name: &str) -> bool {
    let [first, between @ .., last] = literals else { return literals.iter().any(|only| **only == *name) };
    let inner = name.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
    // The first place for each leaves the most for those that follow.
    inner.is_some_and(|inner| {
        between.iter().try_fold(inner, |rest, literal| Some(rest.split_once(&**literal)?.1)).is_some()
    })
}

/// A regex of which a match anywhere in a name is enough, as in the ignore lists of transformers and vLLM.
/// `^` and `$` anchor it.
///
/// [`Error::BadRegex`] where it is no regex, or one of more than 16 KiB, or of more than 10 MiB when
/// compiled.
pub(crate) fn search(pattern: &str) -> Result<Regex> {
    let bad = |reason| Error::BadRegex { pattern: pattern.into(), reason };
    if pattern.len() > MAX_PATTERN_LEN {
        return Err(bad(format!(
            "{} bytes, expected at most {MAX_PATTERN_LEN}; split it into several",
            pattern.len()
        )));
    }
    Regex::new(pattern).map_err(|source| bad(source.to_string()))
}

/// The start of a regex that may match anywhere, with `.` for line breaks too.
const UNANCHORED: &str = "(?s)";

/// What is wrong with a glob, and at which byte.
struct Fault(usize, &'static str);

/// Reads a glob from left to right and writes the regex as it goes. It does not recurse, so that no depth of
/// braces can exhaust the stack.
struct Translator<'a> {
    pattern: &'a str,
    rest: Chars<'a>,
    regex: String,
    /// Where the braces stand that are still open.
    open: Vec<usize>,
}

impl<'a> Translator<'a> {
    fn new(pattern: &'a str) -> Self {
        // What begins or ends with a star is not anchored there, since a search for the literal rest is
        // quicker.
        let start = if pattern.starts_with('*') { UNANCHORED } else { r"(?s)\A" };
        Self { pattern, rest: pattern.chars(), regex: start.into(), open: Vec::new() }
    }

    fn translate(mut self) -> Result<String, Fault> {
        if self.pattern.len() > MAX_PATTERN_LEN {
            return Err(Fault(MAX_PATTERN_LEN, "a pattern has at most 16384 bytes; split it into several"));
        }
        loop {
            let position = self.position();
            let Some(char) = self.rest.next() else { break };
            match char {
                // Several stars in a row are one; it costs less.
                '*' if self.regex.ends_with(".*") || self.regex == UNANCHORED => {}
                '*' => self.regex.push_str(".*"),
                '?' => self.regex.push('.'),
                '[' => self.class(position)?,
                ']' => return Err(Fault(position, r"no bracket is open; write `\]` for the character")),
                '{' => self.open_brace(position)?,
                ',' if !self.open.is_empty() => self.alternative()?,
                '}' => self.close_brace(position)?,
                '\\' => {
                    let escaped = self.escaped(position)?;
                    self.literal(escaped);
                }
                _ => self.literal(char),
            }
        }
        if let Some(&position) = self.open.last() {
            return Err(Fault(position, r"the brace is not closed; write `\{` for the character"));
        }
        Ok(self.regex.strip_suffix(".*").map_or_else(|| format!(r"{}\z", self.regex), str::to_owned))
    }

    /// The byte of the pattern that is read next.
    fn position(&self) -> usize {
        self.pattern.len() - self.rest.as_str().len()
    }

    fn literal(&mut self, char: char) {
        self.regex.push_str(&regex::escape(char.encode_utf8(&mut [0; 4])));
    }

    /// The character after a backslash at `position`.
    fn escaped(&mut self, position: usize) -> Result<char, Fault> {
        self.rest
            .next()
            .ok_or(Fault(position, r"nothing follows the backslash; write `\\` for the character"))
    }

    fn open_brace(&mut self, position: usize) -> Result<(), Fault> {
        if self.open.len() == MAX_DEPTH {
            return Err(Fault(position, "braces may be nested 32 deep"));
        }
        self.open.push(position);
        self.regex.push_str("(?:");
        self.range()
    }

    fn close_brace(&mut self, position: usize) -> Result<(), Fault> {
        self.open.pop().ok_or(Fault(position, r"no brace is open; write `\}` for the character"))?;
        self.regex.push(')');
        Ok(())
    }

    /// Begins the next alternative of the innermost brace, which may be a range of numbers.
    fn alternative(&mut self) -> Result<(), Fault> {
        self.regex.push('|');
        self.range()
    }

    /// Reads `first..last`, if that is what comes next.
    fn range(&mut self) -> Result<(), Fault> {
        let position = self.position();
        let (first, after) = split_digits(self.rest.as_str());
        let Some(after) = after.strip_prefix("..").filter(|_| !first.is_empty()) else { return Ok(()) };
        let (last, after) = split_digits(after);
        if last.is_empty() || !(after.is_empty() || after.starts_with([',', '}'])) {
            return Err(Fault(position, r"a range is two whole numbers, as `{0..15}`; write `\.` for a dot"));
        }
        let too_long = Fault(position, "the numbers of a range have at most 19 digits");
        self.regex.push_str(&numbers(first, last).ok_or(too_long)?);
        self.rest = after.chars();
        Ok(())
    }

    /// Reads the rest of the class that the bracket at `open` began.
    fn class(&mut self, open: usize) -> Result<(), Fault> {
        self.regex.push('[');
        if let Some(after) = self.rest.as_str().strip_prefix(['!', '^']) {
            self.regex.push('^');
            self.rest = after.chars();
        }
        if self.rest.as_str().starts_with(']') {
            return Err(Fault(open, r"the class is empty; write `[\]]` for a closing bracket"));
        }
        while !self.skip(']') {
            let position = self.position();
            let first = self.member(open)?;
            // A hyphen at the end of the class is one of its characters.
            let ranges = self.rest.as_str().starts_with('-') && !self.rest.as_str().starts_with("-]");
            let last = if ranges && self.skip('-') { self.member(open)? } else { first };
            if last < first {
                return Err(Fault(position, "the range of characters is reversed"));
            }
            self.regex.push_str(&format!(r"\x{{{:x}}}-\x{{{:x}}}", u32::from(first), u32::from(last)));
        }
        self.regex.push(']');
        Ok(())
    }

    /// One character of a class.
    fn member(&mut self, open: usize) -> Result<char, Fault> {
        let position = self.position();
        match self.rest.next() {
            Some('\\') => self.escaped(position),
            Some(char) => Ok(char),
            None => Err(Fault(open, r"the bracket is not closed; write `\[` for the character")),
        }
    }

    /// Passes over `char`, if that is what comes next.
    fn skip(&mut self, char: char) -> bool {
        let after = self.rest.as_str().strip_prefix(char);
        self.rest = after.unwrap_or(self.rest.as_str()).chars();
        after.is_some()
    }
}

/// The ASCII digits at the start of `text`, and what follows them.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The numbers from one to the other as alternatives of a regex; none if they are too long.
fn numbers(first: &str, last: &str) -> Option<String> {
    let parse = |digits: &str| digits.parse::<u64>().ok().filter(|_| digits.len() <= MAX_DIGITS);
    let (one, other) = (parse(first)?, parse(last)?);
    let (low, high) = (one.min(other), one.max(other));
    let mut blocks = Vec::new();
    if [first, last].iter().any(|digits| digits.len() > 1 && digits.starts_with('0')) {
        push_blocks(&mut blocks, low, high, first.len().max(last.len()));
    } else {
        let mut longer = 1;
        for width in 1..=MAX_DIGITS {
            let least = if width == 1 { 0 } else { longer };
            longer *= 10;
            push_blocks(&mut blocks, low.max(least), high.min(longer - 1), width);
        }
    }
    Some(blocks.join("|"))
}

/// Cuts the numbers from `low` to `high`, all written with `width` digits, into blocks that share their first
/// digits and have all combinations of their last ones. There are at most two blocks for each digit.
fn push_blocks(blocks: &mut Vec<String>, low: u64, high: u64, width: usize) {
    let mut next = low;
    while next <= high {
        let (mut size, mut free) = (1, 0);
        while free + 1 < width && next.is_multiple_of(size * 10) && size * 10 <= high - next + 1 {
            size *= 10;
            free += 1;
        }
        let digit = next / size % 10;
        let last = (digit + (high - next + 1) / size - 1).min(9);
        let fixed = width - free - 1;
        let prefix = if fixed > 0 { format!("{:0fixed$}", next / size / 10) } else { String::new() };
        blocks.push(format!("{prefix}[{digit}-{last}][0-9]{{{free}}}"));
        next += (last - digit + 1) * size;
    }
}

#[cfg(test)]
mod tests;
