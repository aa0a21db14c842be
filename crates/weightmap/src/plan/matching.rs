//! Which rule is a tensor's.

use std::collections::HashMap;

use regex::{RegexSet, RegexSetBuilder};

use super::flaw::Flaw;
use super::rules::{Rule, whole};

/// The most bytes that all patterns of a plan may take when they are compiled.
const MOST_BYTES: usize = 10 << 20;

/// The patterns of all rules, each matched against whole names.
///
/// A model has many names that differ in nothing but digits. Patterns that treat all digits alike are therefore asked
/// once for all names that look the same when each digit is a 0; only the others are asked for every name.
///
/// A pattern that is nothing but a name is looked up: plans that list thousands of names would be too much for a set of
/// patterns.
#[derive(Debug, Clone)]
pub(super) struct Patterns {
    names: HashMap<String, Vec<usize>>,
    blind: Set,
    sharp: Set,
}

/// Some of the patterns.
#[derive(Debug, Clone)]
struct Set {
    set: RegexSet,
    rules: Vec<usize>,
}

impl Patterns {
    /// The patterns of the rules, in their order.
    pub(super) fn new(patterns: &[&str]) -> Result<Self, Flaw> {
        let mut names: HashMap<_, Vec<_>> = HashMap::new();
        let (mut blind, mut sharp) = (Vec::new(), Vec::new());
        for (rule, pattern) in patterns.iter().enumerate() {
            match literal(pattern) {
                Some(name) => names.entry(name).or_default().push(rule),
                None if is_blind(pattern) => blind.push(rule),
                None => sharp.push(rule),
            }
        }
        Ok(Self { names, blind: Set::new(patterns, blind)?, sharp: Set::new(patterns, sharp)? })
    }
}

impl Set {
    fn new(patterns: &[&str], rules: Vec<usize>) -> Result<Self, Flaw> {
        let chosen = rules.iter().filter_map(|&rule| patterns.get(rule)).map(|pattern| whole(pattern));
        let set = RegexSetBuilder::new(chosen).size_limit(MOST_BYTES).build().map_err(|error| {
            Flaw::new(
                "PlanTooLarge",
                format!("the patterns of all rules are too large: {error}; write simpler ones"),
            )
        })?;
        Ok(Self { set, rules })
    }

    fn matches(&self, name: &str) -> impl Iterator<Item = usize> {
        let found = (!self.rules.is_empty()).then(|| self.set.matches(name));
        found.into_iter().flatten().filter_map(|at| self.rules.get(at).copied())
    }
}

/// The only name that a pattern matches, if it is written without anything but characters that stand for themselves. It
/// may give nothing where there is one.
pub(super) fn literal(pattern: &str) -> Option<String> {
    let mut name = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        name.push(match next {
            '\\' => rest.next().filter(char::is_ascii_punctuation).filter(|next| !"<>".contains(*next))?,
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            next => next,
        });
    }
    Some(name)
}

/// Whether a pattern treats all digits alike. It may say no where the answer is yes.
fn is_blind(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let after = rest.get(next.len_utf8()..).unwrap_or_default();
        let all_digits = ["[0-9]", "[^0-9]"].iter().find_map(|class| rest.strip_prefix(class));
        rest = match (next, all_digits) {
            (_, Some(after)) => after,
            // `\x31` and its like name a character by digits and letters.
            ('\\', _) if after.starts_with(['x', 'u', 'U']) => return false,
            ('\\', _) => after.get(after.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
            _ if next.is_ascii_digit() => return false,
            _ => after,
        };
    }
    true
}

/// A rule that matches a name, and where in it its slots are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: usize,
    spans: Vec<Option<(usize, usize)>>,
}

impl Hit {
    fn new(rule: usize, rules: &[Rule], name: &str) -> Self {
        let mut hit = Self { rule, spans: Vec::new() };
        let Some((regex, groups)) =
            rules.get(rule).and_then(|rule| Some((rule.regex.as_ref()?, &rule.groups)))
        else {
            return hit;
        };
        if let Some(captures) = regex.captures(name) {
            let span = |&group: &usize| captures.get(group).map(|found| (found.start(), found.end()));
            hit.spans.extend(groups.iter().map(span));
        }
        hit
    }

    /// The text in a slot; `None` where that part of the pattern has matched nothing.
    pub(super) fn text<'a>(&self, slot: usize, name: &'a str) -> Option<&'a str> {
        let (start, end) = self.spans.get(slot).copied().flatten()?;
        name.get(start..end)
    }
}

/// Finds rules, and remembers what it has found.
pub(super) struct Matcher<'a> {
    patterns: &'a Patterns,
    rules: &'a [Rule],
    /// By the look of a name: what blind patterns match it, in their order.
    known: HashMap<String, Vec<Hit>>,
    look: String,
    sharp: Hit,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(patterns: &'a Patterns, rules: &'a [Rule]) -> Self {
        Self { patterns, rules, known: HashMap::new(), look: String::new(), sharp: Hit::default() }
    }

    /// The first rule that matches a tensor.
    pub(super) fn find(&mut self, name: &str, dims: usize) -> Option<&Hit> {
        let Self { patterns, rules, known, look, sharp } = self;
        let fits = |rule: usize| rules.get(rule).is_some_and(|rule| rule.min_dims <= dims);
        look.clear();
        look.extend(name.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }));
        if !known.contains_key(look.as_str()) {
            let hits = patterns.blind.matches(look).map(|rule| Hit::new(rule, rules, look)).collect();
            known.insert(look.clone(), hits);
        }
        let blind = known.get(look.as_str()).and_then(|hits| hits.iter().find(|hit| fits(hit.rule)));
        let exact = patterns.names.get(name).and_then(|rules| rules.iter().copied().find(|&rule| fits(rule)));
        let first = patterns.sharp.matches(name).find(|&rule| fits(rule)).into_iter().chain(exact).min();
        match (blind, first) {
            (Some(blind), Some(rule)) if blind.rule < rule => Some(blind),
            (blind, None) => blind,
            (_, Some(rule)) => {
                *sharp = Hit::new(rule, rules, name);
                Some(sharp)
            }
        }
    }
}
