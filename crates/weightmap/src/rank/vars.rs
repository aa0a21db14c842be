//! Variables of an environment, and the numbers in them.

use super::{Error, Result};
use crate::error::quote;

/// What is to be done where the caller and where a launcher gave the numbers.
const COUNT_FROM_0: &str = "ranks count from 0";
const MEND: &str = "correct what sets it, or give rank and world explicitly";

/// The variables of an environment.
pub(super) struct Vars<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

/// A number, and where it was read.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) value: usize,
    name: &'static str,
    text: String,
    help: &'static str,
}

impl<'a> Vars<'a> {
    pub(super) fn new(get: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { get }
    }

    /// The text of a variable; none where that is empty or a negative number.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = (self.get)(name)?.trim().to_owned();
        (!text.is_empty() && !is_negative(&text)).then_some(text)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// The number of the first of these variables that is set.
    pub(super) fn number(&self, names: &[&'static str], by: &'static str) -> Result<Option<Number>> {
        let Some((name, text)) = names.iter().find_map(|&name| Some((name, self.text(name)?))) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(value) => Ok(Some(Number { value, name, text, help: MEND })),
            Err(_) => Err(bad(by, name, Some(text), "a number".to_owned(), MEND)),
        }
    }

    /// The number of tasks on a node, by a list as SLURM writes it: `4(x2),3` is 4, 4 and 3. Where the node is not known, the
    /// number that all nodes have, if they do.
    pub(super) fn tasks(
        &self,
        name: &'static str,
        node: Option<&Number>,
        by: &'static str,
    ) -> Result<Option<Number>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let fault = |expected: String| bad(by, name, Some(text.clone()), expected, MEND);
        let runs: Option<Vec<_>> = text.split(',').map(run).collect();
        let Some(runs) = runs else {
            return Err(fault("numbers of tasks by node, as `4(x2),3`".to_owned()));
        };
        let found =
            match node {
                Some(node) => Some(of_node(&runs, node.value).ok_or_else(|| {
                    fault(format!("an entry for node {}, since {}", node.value, node.shown()))
                })?),
                None => same(&runs),
            };
        Ok(found.map(|value| Number { value, name, text, help: MEND }))
    }

    /// The error of a variable that is not set and would have to be.
    pub(super) fn missing(&self, name: &'static str, expected: String, by: &'static str) -> Error {
        bad(by, name, (self.get)(name), expected, MEND)
    }

    /// Those of the variables that are set, with their texts.
    pub(super) fn shown(&self, names: &[&str]) -> Vec<String> {
        names.iter().filter_map(|name| Some(format!("{name}={}", quote(&self.text(name)?)))).collect()
    }
}

impl Number {
    /// One that the caller gave.
    pub(super) fn given(name: &'static str, value: usize) -> Self {
        Self { value, name, text: value.to_string(), help: COUNT_FROM_0 }
    }

    pub(super) fn shown(&self) -> String {
        format!("{}={}", self.name, quote(&self.text))
    }

    /// An error unless it is the number of one of `limit`.
    pub(super) fn must_be_below(&self, limit: Option<&Self>, by: &'static str) -> Result<()> {
        let Some(limit) = limit else { return Ok(()) };
        limit.must_be(limit.value > 0, by, || "1 or more".to_owned())?;
        let expected = || format!("a number below {}, since {}", limit.value, limit.shown());
        self.must_be(self.value < limit.value, by, expected)
    }

    /// An error unless it counts some of `limit`, and one at least.
    pub(super) fn must_be_within(&self, limit: Option<&Self>, by: &'static str) -> Result<()> {
        self.must_be(self.value > 0, by, || "1 or more".to_owned())?;
        let Some(limit) = limit else { return Ok(()) };
        let expected = || format!("{} or less, since {}", limit.value, limit.shown());
        self.must_be(self.value <= limit.value, by, expected)
    }

    fn must_be(&self, is: bool, by: &'static str, expected: impl FnOnce() -> String) -> Result<()> {
        if is { Ok(()) } else { Err(bad(by, self.name, Some(self.text.clone()), expected(), self.help)) }
    }
}

/// Several of [`Vars::shown`].
pub(super) fn list(shown: &[String]) -> String {
    shown.join(", ")
}

fn bad(
    by: &'static str,
    variable: &'static str,
    found: Option<String>,
    expected: String,
    help: &'static str,
) -> Error {
    Error::BadRank { by, variable, found, expected, help }
}

/// Whether the text is a negative number, however large.
fn is_negative(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// An entry of SLURM's list: so many tasks on each of so many nodes.
fn run(entry: &str) -> Option<(usize, usize)> {
    let entry = entry.trim();
    match entry.split_once("(x") {
        None => Some((entry.parse().ok()?, 1)),
        Some((tasks, nodes)) => Some((tasks.parse().ok()?, nodes.strip_suffix(')')?.parse().ok()?)),
    }
}

/// What such a list has for a node.
fn of_node(runs: &[(usize, usize)], mut node: usize) -> Option<usize> {
    for &(tasks, nodes) in runs {
        match node.checked_sub(nodes) {
            None => return Some(tasks),
            Some(beyond) => node = beyond,
        }
    }
    None
}

/// What such a list has for all nodes, if that is one number.
fn same(runs: &[(usize, usize)]) -> Option<usize> {
    let &(first, _) = runs.first()?;
    runs.iter().all(|&(tasks, _)| tasks == first).then_some(first)
}
