//! What is put together of several tensors, looked through.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::flaw::{Budget, Flaw};
use super::spec::OutputRule;
use super::template::{self, Template};
use crate::error::{list, quote};

/// An output that has no fault of its own.
#[derive(Debug, Clone)]
pub(super) struct Output {
    pub(super) name: Template,
    pub(super) from: Vec<Template>,
    pub(super) concat: Option<i64>,
    pub(super) groups: Option<u64>,
    /// The place of the number over which it is stacked.
    pub(super) stack: Option<usize>,
    /// How many numbers are left open.
    pub(super) numbers: usize,
}

impl Output {
    /// Looks an output through, which is the `place`th.
    pub(super) fn new(place: usize, output: &OutputRule) -> Result<Self, Flaw> {
        Self::parse(output).map_err(|flaw| {
            Flaw::new(flaw.kind, format!("output {place} ({}): {}", quote(&output.name), flaw.message))
        })
    }

    fn parse(output: &OutputRule) -> Result<Self, Flaw> {
        let flaw = |message: String| Err(Flaw::new("PlanOutput", message));
        let mut numbers = Vec::new();
        let name = Template::parse(&output.name, &mut numbers)?;
        let of_name = numbers.len();
        let from = output
            .from
            .iter()
            .map(|from| Template::parse(from, &mut numbers))
            .collect::<Result<Vec<_>, _>>()?;
        let stack = match &output.stack {
            None => None,
            Some(stack) => match numbers.iter().position(|number| number == stack) {
                Some(at) if at >= of_name => Some(at),
                _ => {
                    return flaw(format!(
                        "expected {{{stack}}} in `from` and not in `name`, since `stack` names it"
                    ));
                }
            },
        };
        for (template, text) in from.iter().zip(&output.from) {
            let missing = (0..numbers.len()).find(|&number| {
                let is_expected = number < of_name || Some(number) == stack;
                template.has(number) != is_expected
            });
            if let Some(number) = missing {
                let number = numbers.get(number).map_or("", String::as_str);
                return flaw(format!(
                    "expected the same numbers in `name` and in {}, found {{{number}}} in one of them \
                     only; `stack` names the one that the name lacks",
                    quote(text)
                ));
            }
        }
        let mut seen = HashSet::new();
        if let Some(text) = output.from.iter().find(|text| !seen.insert(*text)) {
            return flaw(format!("expected each part once in `from`, found {} twice", quote(text)));
        }
        match (from.len(), output.concat, output.groups) {
            (0, ..) => flaw("expected a part in `from`, found none".to_owned()),
            (2.., None, _) => {
                flaw("expected `concat`, the dimension along which several parts are put together".to_owned())
            }
            (_, _, Some(0)) => flaw("expected `groups` of at least 1, found 0".to_owned()),
            (_, None, Some(_)) => flaw("expected `concat` beside `groups`, found none".to_owned()),
            _ => Ok(Self {
                name,
                from,
                concat: output.concat,
                groups: output.groups,
                stack,
                numbers: numbers.len(),
            }),
        }
    }

    /// Whether it gives one tensor another name and does nothing else.
    pub(super) fn is_rename(&self) -> bool {
        self.stack.is_none() && self.concat.is_none()
    }
}

/// The tensors that one output is put together of, on whichever rank.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) output: u32,
    pub(super) name: String,
    /// The tensors: for each number that is stacked over, in rising order, one for each part.
    pub(super) tensors: Vec<u32>,
}

/// Where each output takes its parts.
pub(super) struct Grouping {
    pub(super) groups: Vec<Group>,
    /// By tensor, the group that takes it; [`NONE`] where none does.
    pub(super) taken: Vec<u32>,
    /// What is wrong, with output and tensor.
    pub(super) flaws: Vec<(usize, u32, Flaw)>,
}

/// No number of anything.
pub(super) const NONE: u32 = u32::MAX;
/// In place of the class of a tensor that has a fault.
pub(super) const FAULTY: u32 = u32::MAX - 1;

/// The templates of all parts of outputs, to be found by names.
struct Templates<'a> {
    /// By look: which runs of digits are left open, in one or several ways.
    open: HashMap<&'a str, Vec<Vec<bool>>>,
    /// By what names have in common: the place of the output, that of the part in it, and its template.
    parts: HashMap<String, Vec<(usize, usize, &'a Template)>>,
}

impl<'a> Templates<'a> {
    fn new(outputs: &'a [Output]) -> Self {
        let mut templates = Self { open: HashMap::new(), parts: HashMap::new() };
        for (at, output) in outputs.iter().enumerate() {
            for (part, template) in output.from.iter().enumerate() {
                let parts = templates.parts.entry(template.common()).or_default();
                if parts.is_empty() {
                    templates.open.entry(template.look.as_str()).or_default().push(template.open());
                }
                parts.push((at, part, template));
            }
        }
        for open in templates.open.values_mut() {
            open.sort_unstable();
            open.dedup();
        }
        templates
    }
}

/// What is known while the parts of outputs are looked for.
struct Finder<'a> {
    outputs: &'a [Output],
    /// Each group with the place of its output and its numbers.
    found: Vec<(usize, Vec<u64>, Found)>,
    known: HashMap<(usize, Vec<u64>), usize>,
}

/// The parts of one group: for each number that is stacked over, the tensors in the order of `from`.
type Found = BTreeMap<u64, Vec<u32>>;

/// Finds the parts of all outputs among tensors, of which only those that `is_there` count.
pub(super) fn group<'a>(
    outputs: &[Output],
    names: impl Iterator<Item = &'a str>,
    is_there: impl Fn(u32) -> bool,
    budget: &mut Budget,
) -> Grouping {
    let templates = Templates::new(outputs);
    let mut grouping = Grouping { groups: Vec::new(), taken: Vec::new(), flaws: Vec::new() };
    let mut finder = Finder { outputs, found: Vec::new(), known: HashMap::new() };
    let (mut look, mut common) = (String::new(), String::new());
    for (tensor, name) in (0..).zip(names) {
        template::look(name, &mut look);
        let open = templates.open.get(look.as_str()).filter(|_| is_there(tensor));
        let mut taken = NONE;
        for open in open.into_iter().flatten() {
            template::common(name, open, &mut common);
            let parts = templates.parts.get(common.as_str()).map_or(&[][..], Vec::as_slice);
            let found = budget.spend(1 + parts.len() as u64).map_err(|flaw| (0, flaw));
            if let Err((at, flaw)) = found.and_then(|()| finder.take(tensor, name, parts, &mut taken)) {
                grouping.flaws.push((at, tensor, flaw));
                break;
            }
        }
        grouping.taken.push(taken);
    }
    finder.into_groups(&mut grouping);
    grouping
}

impl Finder<'_> {
    /// Adds a tensor to the group that takes it, if one of these parts does; tells which one did.
    fn take(
        &mut self,
        tensor: u32,
        name: &str,
        parts: &[(usize, usize, &Template)],
        taken: &mut u32,
    ) -> Result<(), (usize, Flaw)> {
        for &(at, part, template) in parts {
            let Some(output) = self.outputs.get(at) else { continue };
            let Some(mut numbers) = template.bind(name, output.numbers) else { continue };
            if let Some((other, ..)) = self.found.get(*taken as usize) {
                let message =
                    format!("expected each tensor in one output, found it in outputs {other} and {at}");
                return Err((at, Flaw::new("PlanOutput", message)));
            }
            let stacked = output.stack.and_then(|number| numbers.get_mut(number)).map_or(0, std::mem::take);
            let group = *self.known.entry((at, numbers)).or_insert_with_key(|(_, numbers)| {
                self.found.push((at, numbers.clone(), Found::new()));
                self.found.len() - 1
            });
            *taken = u32::try_from(group).unwrap_or(NONE);
            if let Some((_, _, found)) = self.found.get_mut(group) {
                let parts = found.entry(stacked).or_insert_with(|| vec![NONE; output.from.len()]);
                if let Some(slot) = parts.get_mut(part) {
                    *slot = tensor;
                }
            }
        }
        Ok(())
    }

    /// Adds the groups, and the flaws of those of which not all parts are there.
    fn into_groups(self, grouping: &mut Grouping) {
        for (at, mut numbers, found) in self.found {
            let Some(output) = self.outputs.get(at) else { continue };
            for (stacked, parts) in &found {
                if let Some(number) = output.stack.and_then(|number| numbers.get_mut(number)) {
                    *number = *stacked;
                }
                let there = parts.iter().copied().find(|&part| part != NONE).unwrap_or(0);
                if let Some(flaw) = missing(output, parts, &numbers) {
                    grouping.flaws.push((at, there, flaw));
                }
            }
            let name = output.name.name(&numbers);
            let tensors = found.into_values().flatten().collect();
            grouping.groups.push(Group { output: u32::try_from(at).unwrap_or(NONE), name, tensors });
        }
    }
}

/// The flaw of an output of which not all parts are there.
fn missing(output: &Output, parts: &[u32], numbers: &[u64]) -> Option<Flaw> {
    let absent = output.from.iter().zip(parts).filter(|&(_, &part)| part == NONE);
    let absent: Vec<_> = absent.map(|(template, _)| quote(&template.name(numbers))).collect();
    let name = quote(&output.name.name(numbers));
    (!absent.is_empty()).then(|| {
        let absent = list(&absent, absent.len() as u64);
        Flaw::new(
            "PlanOutput",
            format!("expected all parts of output {name}, found no tensor {absent}, or it is dropped"),
        )
    })
}
