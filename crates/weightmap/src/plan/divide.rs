//! Divides the tensors of a model.

mod scales;
mod together;

use std::collections::HashMap;
use std::hash::Hash;

use super::Plan;
use super::cut::Cutter;
use super::dim_cut::DimCut;
use super::flaw::{Budget, Faults, Flaw, countable, too_many_elements};
use super::laid::resolve;
use super::matching::{Hit, Matcher};
use super::outputs::{FAULTY, NONE};
use super::owners::{Chosen, EVERYONE, Owners};
use super::partition::{Class, Cut, Partition, Tensor};
use super::rules::{Rule, Treatment, Which};
use super::spec::Unmatched;
use crate::dtype::Dtype;
use crate::error::PlanError;
use crate::names::NameTable;

/// How many pieces and ranks the cuts of a plan may look at: some seconds' work.
const MOST_WORK: u64 = 1 << 24;

/// How many dimensions a tensor may have: what is kept of each, for each rank, is more than its length in a header justifies.
const MOST_DIMS: usize = 64;

/// What is known while tensors are divided.
struct Divider<'a> {
    plan: &'a Plan,
    names: NameTable,
    owners: Owners,
    budget: Budget,
    faults: Faults,
    dtypes: Numbered<Dtype>,
    shapes: Numbered<Vec<u64>>,
    classes: Numbered<Class>,
    dims: Vec<DimCut>,
    cuts: Vec<Cut>,
    known_dims: HashMap<DimKey, Result<u32, (usize, Flaw)>>,
    known_cuts: HashMap<CutKey, Result<u32, (usize, Flaw)>>,
    /// By tensor, its class; [`NONE`] where no rank has it.
    tensors: Vec<u32>,
    /// By tensor, its rule; [`NONE`] where none matches it.
    rules: Vec<u32>,
    /// By rule, whether it has matched anything.
    is_used: Vec<bool>,
}

/// What decides how a dimension is cut.
#[derive(PartialEq, Eq, Hash)]
enum DimKey {
    Whole {
        len: u64,
    },
    /// By the rule's steps for one of so many dimensions.
    Cut {
        rule: usize,
        dims: usize,
        dim: usize,
        len: u64,
    },
    /// As this one is, in blocks.
    Scaled {
        dim: u32,
        block: u64,
    },
}

/// What decides how a tensor is cut: its rule, its shape, and of scales the cut of the weight.
type CutKey = (usize, u32, u32);

impl Plan {
    /// Divides tensors, which come in the order of the model, by it. Their names are distinct; the first has number 0.
    ///
    /// # Errors
    /// All that is wrong with it for these tensors, at once.
    pub(crate) fn divide<'a>(
        &self,
        tensors: impl Iterator<Item = Tensor<'a>> + Clone,
    ) -> Result<Partition, PlanError> {
        let mut divider = Divider::new(self);
        divider.owners.take(divider.chosen(tensors.clone()));
        let scales = divider.divide(tensors.clone());
        divider.divide_scales(tensors.clone(), scales);
        let (mut bytes, mut dropped_bytes) = (0_u64, 0_u64);
        for (tensor, class) in tensors.zip(&divider.tensors) {
            bytes = bytes.saturating_add(tensor.bytes);
            dropped_bytes = dropped_bytes.saturating_add(if *class == NONE { tensor.bytes } else { 0 });
        }
        divider.put_together(bytes, dropped_bytes)
    }
}

impl<'a> Divider<'a> {
    fn new(plan: &'a Plan) -> Self {
        let world = plan.world.size;
        Self {
            plan,
            names: NameTable::default(),
            owners: Owners::new(world),
            budget: Budget::new(MOST_WORK),
            faults: Faults::default(),
            dtypes: Numbered::default(),
            shapes: Numbered::default(),
            classes: Numbered::default(),
            dims: Vec::new(),
            cuts: Vec::new(),
            known_dims: HashMap::new(),
            known_cuts: HashMap::new(),
            tensors: Vec::new(),
            rules: Vec::new(),
            is_used: vec![false; plan.rules.len()],
        }
    }

    /// Chooses coordinates for tensors whose rule balances them: for that, all of them must be known.
    fn chosen<'t>(&self, tensors: impl Iterator<Item = Tensor<'t>>) -> Chosen {
        let mut chosen = Chosen::default();
        let chooses = |rule: &Rule| rule.own.iter().any(|clause| matches!(clause.which, Which::Chosen(_)));
        if !self.plan.rules.iter().any(chooses) {
            return chosen;
        }
        let mut matcher = Matcher::new(&self.plan.patterns, &self.plan.rules);
        let mut by_rule: HashMap<usize, Vec<(u32, Tensor<'_>)>> = HashMap::new();
        for (number, tensor) in (0..).zip(tensors) {
            if let Some(hit) = matcher.find(tensor.name, tensor.shape.len()) {
                by_rule.entry(hit.rule).or_default().push((number, tensor));
            }
        }
        for (number, rule) in self.plan.rules.iter().enumerate().filter(|(_, rule)| chooses(rule)) {
            chosen.choose(number, rule, by_rule.get(&number).map_or(&[][..], Vec::as_slice));
        }
        chosen
    }

    /// Finds the class of each tensor; those that hold scales are left for later, when all weights have theirs.
    fn divide<'t>(&mut self, tensors: impl Iterator<Item = Tensor<'t>>) -> Vec<(u32, Hit)> {
        let plan = self.plan;
        let mut matcher = Matcher::new(&plan.patterns, &plan.rules);
        let mut scales = Vec::new();
        for (number, tensor) in (0..).zip(tensors) {
            _ = self.names.insert(tensor.name);
            let hit = matcher.find(tensor.name, tensor.shape.len());
            let rule = hit.and_then(|hit| plan.rules.get(hit.rule));
            self.rules.push(hit.and_then(|hit| u32::try_from(hit.rule).ok()).unwrap_or(NONE));
            let mut class = NONE;
            match (hit, rule) {
                (Some(hit), Some(rule)) => {
                    if let Some(is_used) = self.is_used.get_mut(hit.rule) {
                        *is_used = true;
                    }
                    match &rule.treatment {
                        Treatment::Drop => {}
                        Treatment::Scale { .. } => scales.push((number, hit.clone())),
                        _ => match self.class(rule, hit, number, &tensor) {
                            Ok(found) => class = found,
                            Err((place, flaw)) => {
                                class = FAULTY;
                                self.faults.add(Some(hit.rule), place, (number, tensor.name), &flaw);
                            }
                        },
                    }
                }
                _ => match self.unmatched(&tensor) {
                    Ok(found) => class = found,
                    Err(flaw) => {
                        class = FAULTY;
                        self.faults.add(None, 0, (number, tensor.name), &flaw);
                    }
                },
            }
            self.tensors.push(class);
        }
        scales
    }

    /// The class of a tensor that no rule matches.
    fn unmatched(&mut self, tensor: &Tensor<'_>) -> Result<u32, Flaw> {
        if self.plan.spec.default == Unmatched::Error {
            let message = "expected a rule whose `match` takes the whole name, found none; write one, as `.*\\.weight` for all that \
                 end so, or set `default` to `replicate`";
            return Err(Flaw::new("PlanUnmatched", message));
        }
        let shape = self.shapes.of(tensor.shape);
        let cut =
            self.cut((usize::MAX, shape, NONE), |divider| divider.cut_dims(usize::MAX, &[], tensor.shape));
        cut.and_then(|cut| self.number(tensor, shape, cut, EVERYONE)).map_err(|(_, flaw)| flaw)
    }

    /// The class of a tensor of a rule; where it has none, the place in the rule that is at fault.
    fn class(
        &mut self,
        rule: &Rule,
        hit: &Hit,
        number: u32,
        tensor: &Tensor<'_>,
    ) -> Result<u32, (usize, Flaw)> {
        if tensor.shape.len() > MOST_DIMS {
            let found = tensor.shape.len();
            let message = format!(
                "expected at most {MOST_DIMS} dimensions, as NumPy and PyTorch have them, found {found}"
            );
            return Err((0, Flaw::new("PlanTooLarge", message)));
        }
        let shape = self.shapes.of(tensor.shape);
        let cut = self.cut((hit.rule, shape, NONE), |divider| match &rule.treatment {
            Treatment::Cut(steps) => divider.cut_dims(hit.rule, steps, tensor.shape),
            Treatment::Flat { axis, pad } => {
                let product =
                    || tensor.shape.iter().try_fold(1_u64, |product, len| product.checked_mul(*len));
                let elements = if tensor.shape.contains(&0) { Some(0) } else { product() };
                let elements = elements.ok_or_else(|| (0, too_many_elements()))?;
                let chunk = elements.div_ceil(u64::from(axis.size));
                Ok(Cut::Flat { axis: *axis, elements, chunk, pad: *pad })
            }
            Treatment::Drop | Treatment::Scale { .. } => Ok(Cut::Dims(Vec::new())),
        })?;
        // The places of clauses come after those of steps.
        let owner = self.owners.of(rule, hit, number, tensor.name, &mut self.budget);
        let owner = owner.map_err(|(place, flaw)| (usize::MAX / 2 + place, flaw))?;
        self.number(tensor, shape, cut, owner)
    }

    /// The number of a class.
    fn number(
        &mut self,
        tensor: &Tensor<'_>,
        shape: u32,
        cut: u32,
        owner: u32,
    ) -> Result<u32, (usize, Flaw)> {
        let dtype = self.dtypes.of(tensor.dtype);
        let class = Class { owner, cut, shape, dtype, bytes: tensor.bytes };
        if let Some(known) = self.classes.find(&class) {
            return Ok(known);
        }
        self.check_padded(tensor, cut).map_err(|flaw| (0, flaw))?;
        Ok(self.classes.of(&class))
    }

    /// That no rank has more bytes, with padding, than can be counted.
    fn check_padded(&self, tensor: &Tensor<'_>, cut: u32) -> Result<(), Flaw> {
        let Some(Cut::Dims(dims)) = self.cuts.get(cut as usize) else { return Ok(()) };
        let longest = || dims.iter().filter_map(|&dim| self.dims.get(dim as usize)).map(DimCut::longest);
        if longest().zip(tensor.shape).all(|(longest, len)| longest <= *len) {
            return Ok(());
        }
        countable(longest(), tensor.dtype)
    }

    /// The number of a cut, which is made where it is not known.
    fn cut(
        &mut self,
        key: CutKey,
        make: impl FnOnce(&mut Self) -> Result<Cut, (usize, Flaw)>,
    ) -> Result<u32, (usize, Flaw)> {
        if let Some(known) = self.known_cuts.get(&key) {
            return known.clone();
        }
        let made = make(self).map(|cut| push(&mut self.cuts, cut));
        self.known_cuts.insert(key, made.clone());
        made
    }

    /// Cuts each dimension of a shape by those of the steps that are about it.
    fn cut_dims(&mut self, rule: usize, steps: &[Cutter], shape: &[u64]) -> Result<Cut, (usize, Flaw)> {
        let mut of_dim = vec![Vec::new(); shape.len()];
        for step in steps {
            let dim = resolve(step.dim, shape.len()).and_then(|dim| of_dim.get_mut(dim));
            let Some(dim) = dim else {
                let message = format!("expected a dimension of the shape {shape:?}, found {}", step.dim);
                return Err((step.place, Flaw::new("PlanDim", message)));
            };
            dim.push(step);
        }
        let cut = |(dim, (steps, &len)): (usize, (Vec<&Cutter>, &u64))| {
            let world = self.plan.world.size;
            if steps.is_empty() {
                return self.dim(DimKey::Whole { len }, |_| Ok(DimCut::whole(len)));
            }
            let key = DimKey::Cut { rule, dims: shape.len(), dim, len };
            self.dim(key, |divider| {
                DimCut::new(len, &steps, world, &mut divider.budget).map_err(|(place, flaw)| {
                    (place, Flaw::new(flaw.kind, format!("dimension {dim} of {shape:?}: {}", flaw.message)))
                })
            })
        };
        of_dim.into_iter().zip(shape).enumerate().map(cut).collect::<Result<_, _>>().map(Cut::Dims)
    }

    /// The number of a dimension's cut, which is made where it is not known.
    fn dim(
        &mut self,
        key: DimKey,
        make: impl FnOnce(&mut Self) -> Result<DimCut, (usize, Flaw)>,
    ) -> Result<u32, (usize, Flaw)> {
        if let Some(known) = self.known_dims.get(&key) {
            return known.clone();
        }
        let made = make(self).map(|cut| push(&mut self.dims, cut));
        self.known_dims.insert(key, made.clone());
        made
    }
}

/// Adds a thing, and gives its number.
fn push<T>(all: &mut Vec<T>, one: T) -> u32 {
    all.push(one);
    u32::try_from(all.len() - 1).unwrap_or(NONE)
}

/// Things that are numbered as they come, each once.
struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn find<Q: Eq + Hash + ?Sized>(&self, thing: &Q) -> Option<u32>
    where
        T: std::borrow::Borrow<Q>,
    {
        self.numbers.get(thing).copied()
    }

    fn of<Q: Eq + Hash + ToOwned<Owned = T> + ?Sized>(&mut self, thing: &Q) -> u32
    where
        T: std::borrow::Borrow<Q>,
    {
        self.find(thing).unwrap_or_else(|| {
            let number = push(&mut self.all, thing.to_owned());
            self.numbers.insert(thing.to_owned(), number);
            number
        })
    }
}
