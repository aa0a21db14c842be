//! Names with numbers left open: `model.layers.{l}.mlp.experts.{e}.up_proj.weight`.

use super::flaw::Flaw;
use crate::error::quote;

/// How many numbers an output may have.
const MOST_NUMBERS: usize = 16;

/// A name in which some runs of digits are left open.
#[derive(Debug, Clone)]
pub(super) struct Template {
    /// The name with a 0 for each run of digits, and for each that is left open.
    pub(super) look: String,
    runs: Vec<Digits>,
}

#[derive(Debug, Clone)]
enum Digits {
    /// As they stand there.
    Fixed(String),
    /// A number: the place of its name among those of the output.
    Open(usize),
}

impl Template {
    /// Reads a template; adds names of numbers that are not among `numbers`.
    pub(super) fn parse(text: &str, numbers: &mut Vec<String>) -> Result<Self, Flaw> {
        let flaw = |why: &str| Flaw::new("PlanOutput", format!("{}: {why}", quote(text)));
        let mut template = Self { look: String::new(), runs: Vec::new() };
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let after = rest.get(next.len_utf8()..).unwrap_or_default();
            let (run, after) = match next {
                '{' => {
                    let (name, after) =
                        after.split_once('}').ok_or_else(|| flaw("expected a `}` after each `{`"))?;
                    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                        return Err(flaw("expected a name between `{` and `}`, as in {l}"));
                    }
                    if numbers.len() >= MOST_NUMBERS {
                        return Err(flaw(
                            "expected few numbers in the names of an output, found more than 16",
                        ));
                    }
                    let known = numbers.iter().position(|known| known == name).unwrap_or_else(|| {
                        numbers.push(name.to_owned());
                        numbers.len() - 1
                    });
                    (Digits::Open(known), after)
                }
                '0'..='9' => {
                    let (digits, after) = split_digits(rest);
                    (Digits::Fixed(digits.to_owned()), after)
                }
                _ => {
                    template.look.push(next);
                    rest = after;
                    continue;
                }
            };
            // Where two runs touch, nothing would say where the first one ends.
            if after.starts_with(|c: char| c.is_ascii_digit() || c == '{') {
                return Err(flaw("expected a character between a number and other digits, found none"));
            }
            template.look.push('0');
            template.runs.push(run);
            rest = after;
        }
        Ok(template)
    }

    /// The numbers of a name of the same look; `None` where it is not one of the template's.
    pub(super) fn bind(&self, name: &str, numbers: usize) -> Option<Vec<u64>> {
        let mut bound = vec![None; numbers];
        let mut rest = name;
        for run in &self.runs {
            let (_, found) = rest.split_at_checked(rest.find(|c: char| c.is_ascii_digit())?)?;
            let (digits, after) = split_digits(found);
            match run {
                Digits::Fixed(fixed) if fixed != digits => return None,
                Digits::Fixed(_) => {}
                Digits::Open(number) => {
                    let value = canonical(digits)?;
                    let bound = bound.get_mut(*number)?;
                    if bound.is_some_and(|before| before != value) {
                        return None;
                    }
                    *bound = Some(value);
                }
            }
            rest = after;
        }
        // Numbers that it does not have are those over which parts are stacked.
        Some(bound.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// The name with these numbers.
    pub(super) fn name(&self, numbers: &[u64]) -> String {
        let mut name = String::with_capacity(self.look.len());
        let mut runs = self.runs.iter();
        for c in self.look.chars() {
            match (c, if c == '0' { runs.next() } else { None }) {
                (_, Some(Digits::Fixed(fixed))) => name.push_str(fixed),
                (_, Some(Digits::Open(number))) => {
                    name.push_str(&numbers.get(*number).copied().unwrap_or_default().to_string());
                }
                (c, None) => name.push(c),
            }
        }
        name
    }

    /// Which runs are left open.
    pub(super) fn open(&self) -> Vec<bool> {
        self.runs.iter().map(|run| matches!(run, Digits::Open(_))).collect()
    }

    /// What all names of the template have in common: see [`common`].
    pub(super) fn common(&self) -> String {
        let mut text = String::new();
        let mut runs = self.runs.iter();
        for c in self.look.chars() {
            match if c == '0' { runs.next() } else { None } {
                Some(Digits::Fixed(fixed)) => text.push_str(fixed),
                Some(Digits::Open(_)) => text.push_str(OPEN),
                None => text.push(c),
            }
        }
        text
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.runs.iter().any(|run| matches!(run, Digits::Open(open) if *open == number))
    }
}

/// What stands for a run of digits that is left open.
const OPEN: &str = "{}";

/// Writes a name but for the runs of digits that are left open.
pub(super) fn common(name: &str, open: &[bool], text: &mut String) {
    text.clear();
    let mut open = open.iter();
    let mut rest = name;
    while let Some((before, found)) =
        rest.find(|c: char| c.is_ascii_digit()).and_then(|at| rest.split_at_checked(at))
    {
        let (digits, after) = split_digits(found);
        text.push_str(before);
        text.push_str(if open.next() == Some(&true) { OPEN } else { digits });
        rest = after;
    }
    text.push_str(rest);
}

/// Writes the look of a name: a 0 for each run of digits.
pub(super) fn look(name: &str, look: &mut String) {
    look.clear();
    let mut in_run = false;
    for c in name.chars() {
        if !c.is_ascii_digit() {
            look.push(c);
        } else if !in_run {
            look.push('0');
        }
        in_run = c.is_ascii_digit();
    }
}

/// A number as it is written without zeros before it.
fn canonical(digits: &str) -> Option<u64> {
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    digits.parse().ok()
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}
