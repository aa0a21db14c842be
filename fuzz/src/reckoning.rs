//! What each rank has by a plan, found by making each step on single indices, as the language defines it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;

use regex::Regex;
use weightmap::plan::{Blocks, By, Interleave, Own, PlanSpec, Replicas, Rule, Shard, Split, Step, Unmatched};

use crate::model::Tensor;

/// Plans of more ranks, and with larger numbers, take too long.
const MOST_RANKS: usize = 64;
const MOST: u64 = 1 << 10;

/// Indices one by one; `None` for padding.
pub type Indices = Vec<Option<u64>>;

/// What a rank has of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Local {
    /// By dimension.
    Dims(Vec<Indices>),
    /// Of the elements in the order of the file.
    Flat(Indices),
}

/// By tensor and rank; `None` where a rank has nothing of it.
pub type Reckoned = Vec<Vec<Option<Local>>>;

/// Why nothing can be said.
#[derive(Debug, Clone, Copy)]
pub enum Unsaid {
    /// It would take too long.
    Large,
    /// It is a fault, of this kind.
    Fault(&'static str),
}

use Unsaid::{Fault, Large};

/// What each rank has of each tensor.
pub fn reckon(spec: &PlanSpec, tensors: &[Tensor]) -> Result<Reckoned, Unsaid> {
    let world = World::new(spec)?;
    let regexes: Vec<_> = spec.rules.iter().map(|rule| regex_of(&rule.pattern)).collect::<Result<_, _>>()?;
    let rule_of = |tensor: &Tensor| {
        let fits = |(number, rule): &(usize, &Rule)| {
            rule.min_dims <= tensor.2.len() && regexes[*number].is_match(tensor.0)
        };
        spec.rules.iter().enumerate().find(fits).map(|(number, _)| number)
    };
    let rules: Vec<_> = tensors.iter().map(rule_of).collect();
    let mut reckoned = Vec::new();
    for (number, tensor) in tensors.iter().enumerate() {
        let Some(rule) = rules[number] else {
            if spec.default == Unmatched::Error {
                return Err(Fault("PlanUnmatched"));
            }
            reckoned.push(vec![Some(whole(tensor)); world.ranks]);
            continue;
        };
        let same_rule: Vec<_> = (0..tensors.len()).filter(|&other| rules[other] == Some(rule)).collect();
        let of =
            Of { world: &world, tensors, rule: &spec.rules[rule], regex: &regexes[rule], same_rule, number };
        reckoned.push(of.locals()?);
    }
    for number in 0..tensors.len() {
        let Some(rule) = rules[number].map(|rule| (&spec.rules[rule], &regexes[rule])) else { continue };
        if rule.0.scale_of.is_some() {
            scaled(rule, number, tensors, &rules, spec, &mut reckoned)?;
        }
    }
    Ok(reckoned)
}

/// The pattern of whole names; those of the last plans are kept, since they take longer than all else.
pub fn regex_of(pattern: &str) -> Result<Regex, Unsaid> {
    thread_local!(static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        if let Some(regex) = known.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = Regex::new(&format!(r"\A(?:{pattern})\z")).map_err(|_| Large)?;
        if known.len() > 100 {
            known.clear();
        }
        known.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn whole(tensor: &Tensor) -> Local {
    Local::Dims(tensor.2.iter().map(|&len| (0..len).map(Some).collect()).collect())
}

/// The coordinates of each rank on an axis, and how many there are.
type Axis = (Vec<usize>, usize);

struct World {
    ranks: usize,
    /// By mesh and name.
    axes: Vec<(String, String, Axis)>,
}

impl World {
    fn new(spec: &PlanSpec) -> Result<Self, Unsaid> {
        let size =
            |axes: &Vec<(String, u64)>| axes.iter().try_fold(1_u64, |size, (_, len)| size.checked_mul(*len));
        let ranks = spec.meshes.values().next().and_then(size).and_then(|ranks| usize::try_from(ranks).ok());
        let ranks = ranks.filter(|&ranks| ranks <= MOST_RANKS).ok_or(Large)?;
        let mut axes = Vec::new();
        for (mesh, of) in &spec.meshes {
            let mut stride = 1;
            for (name, len) in of.iter().rev() {
                let len = usize::try_from(*len).map_err(|_| Large)?;
                let coordinates = (0..ranks).map(|rank| rank / stride % len).collect();
                axes.push((mesh.clone(), name.clone(), (coordinates, len)));
                stride *= len;
            }
        }
        Ok(Self { ranks, axes })
    }

    /// An axis by its name, which the plan was accepted with.
    fn axis(&self, name: &str) -> Result<&Axis, Unsaid> {
        let found = self.axes.iter().find(|(mesh, axis, _)| axis == name || format!("{mesh}.{axis}") == name);
        found.map(|(.., axis)| axis).ok_or(Fault("PlanAxis"))
    }
}

/// A tensor and its rule.
struct Of<'a> {
    world: &'a World,
    tensors: &'a [Tensor],
    rule: &'a Rule,
    regex: &'a Regex,
    /// The numbers of all tensors of the rule.
    same_rule: Vec<usize>,
    number: usize,
}

impl Of<'_> {
    fn locals(&self) -> Result<Vec<Option<Local>>, Unsaid> {
        let ranks = self.world.ranks;
        if self.rule.drop {
            return Ok(vec![None; ranks]);
        }
        let locals = (0..ranks).map(|rank| self.local(rank)).collect::<Result<Vec<_>, _>>()?;
        if self.rule.scale_of.is_some() && self.rule.own.is_empty() {
            return Ok(vec![None; ranks]);
        }
        let owned = self.owned()?;
        if !owned.contains(&true) {
            return Err(Fault("PlanUnowned"));
        }
        Ok(owned.into_iter().zip(locals).map(|(owned, local)| owned.then_some(local)).collect())
    }

    /// By rank, whether it has something of the tensor.
    fn owned(&self) -> Result<Vec<bool>, Unsaid> {
        let mut owned = vec![true; self.world.ranks];
        for own in &self.rule.own {
            let (axis, wanted) = match own {
                Own::At { axis, at } => {
                    let axis = self.world.axis(axis)?;
                    let from_end = |&at: &i64| if at < 0 { at + axis.1 as i64 } else { at };
                    (axis, at.iter().map(from_end).map(|at| at as usize).collect())
                }
                Own::Var { axis, var, n, split } => {
                    let axis = self.world.axis(axis)?;
                    (axis, vec![self.place(var, *n, split, axis.1)?])
                }
                Own::By { axis, by } => {
                    let axis = self.world.axis(axis)?;
                    (axis, vec![self.chosen(*by, axis.1)])
                }
                _ => return Err(Large),
            };
            for (owned, coordinate) in owned.iter_mut().zip(&axis.0) {
                *owned &= wanted.contains(coordinate);
            }
        }
        Ok(owned)
    }

    /// The coordinate to which the number in a capture falls.
    fn place(&self, var: &str, n: u64, split: &Split, k: usize) -> Result<usize, Unsaid> {
        let captures = self.regex.captures(self.tensors[self.number].0).ok_or(Large)?;
        let number = captures.name(var).ok_or(Fault("PlanVar"))?.as_str();
        let number: u64 = number.parse().map_err(|_| Fault("PlanVar"))?;
        if number >= n {
            return Err(Fault("PlanVar"));
        }
        if n > MOST {
            return Err(Large);
        }
        let things: Vec<_> = (0..n).map(Some).collect();
        for at in 0..k {
            if share(&things, split, 1, at, k)?.contains(&Some(number)) {
                return Ok(at);
            }
        }
        Err(Large)
    }

    /// The coordinate that is chosen so that all have about the same bytes.
    fn chosen(&self, by: By, k: usize) -> usize {
        // Each thing with its bytes and the numbers of its tensors.
        let mut things: Vec<(u64, Vec<usize>)> = Vec::new();
        for &number in &self.same_rule {
            let tensor = &self.tensors[number];
            let stays = |(_, numbers): &&mut (u64, Vec<usize>)| {
                by == By::Shard && self.tensors[numbers[0]].4 == tensor.4
            };
            match things.iter_mut().find(stays) {
                Some((bytes, numbers)) => {
                    *bytes += tensor.3;
                    numbers.push(number);
                }
                None => things.push((tensor.3, vec![number])),
            }
        }
        things.sort_by_key(|(bytes, numbers)| (Reverse(*bytes), numbers[0]));
        let mut loads = vec![0; k];
        for (bytes, numbers) in things {
            let least = (0..k).min_by_key(|&at| loads[at]).unwrap_or(0);
            loads[least] += bytes;
            if numbers.contains(&self.number) {
                return least;
            }
        }
        0
    }

    /// What a rank has of it if it has anything.
    fn local(&self, rank: usize) -> Result<Local, Unsaid> {
        let (.., shape, _, _) = self.tensors[self.number];
        if let Some(flat) = &self.rule.flat {
            let (coordinates, k) = self.world.axis(&flat.axis)?;
            let elements: Indices = (0..shape.iter().product()).map(Some).collect();
            let chunk = elements.len().div_ceil(*k);
            let mut own = share(&elements, &Split::Chunk, 1, coordinates[rank], *k)?;
            if flat.pad {
                own.resize(chunk, None);
            }
            return Ok(Local::Flat(own));
        }
        let mut dims: Vec<Indices> = shape.iter().map(|&len| (0..len).map(Some).collect()).collect();
        for step in &self.rule.shard {
            let dim = match step {
                Step::Interleave(Interleave { dim, .. }) | Step::Shard(Shard { dim, .. }) => *dim,
                _ => return Err(Large),
            };
            let from_start = if dim < 0 { dim + shape.len() as i64 } else { dim };
            let dim = usize::try_from(from_start).ok().and_then(|dim| dims.get_mut(dim));
            let dim = dim.ok_or(Fault("PlanDim"))?;
            *dim = match step {
                Step::Interleave(interleave) => turned(interleave, dim)?,
                Step::Shard(shard) => {
                    let (coordinates, k) = self.world.axis(&shard.axis)?;
                    sharded(shard, dim, coordinates[rank], *k)?
                }
                _ => return Err(Large),
            };
        }
        let is_padded_within =
            |dim: &Indices| dim.windows(2).any(|pair| pair[0].is_none() && pair[1].is_some());
        if dims.iter().any(is_padded_within) {
            return Err(Fault("PlanPad"));
        }
        Ok(Local::Dims(dims))
    }
}

fn turned(interleave: &Interleave, indices: &Indices) -> Result<Indices, Unsaid> {
    let Interleave { interleave: parts, groups, .. } = interleave;
    if parts.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len)) != Some(indices.len() as u64) {
        return Err(Fault("PlanBlocks"));
    }
    if *groups > MOST {
        return Err(Large);
    }
    let mut turned = Indices::new();
    for group in 0..*groups as usize {
        let mut start = 0;
        for len in parts.iter().map(|len| *len as usize) {
            let piece = len / *groups as usize;
            turned.extend_from_slice(&indices[start + group * piece..start + (group + 1) * piece]);
            start += len;
        }
    }
    Ok(turned)
}

fn sharded(shard: &Shard, indices: &Indices, at: usize, k: usize) -> Result<Indices, Unsaid> {
    let mut indices = indices.clone();
    let multiple = shard.pad_multiple.unwrap_or(1);
    let padded =
        (indices.len() as u64).checked_next_multiple_of(multiple).filter(|len| *len <= MOST).ok_or(Large)?;
    indices.resize(padded as usize, None);
    let len = indices.len() as u64;
    let blocks: Vec<u64> = match &shard.blocks {
        None => vec![len],
        Some(Blocks::Sizes(sizes)) => sizes.clone(),
        Some(Blocks::Count(count)) if *count > MOST => return Err(Large),
        Some(Blocks::Count(count)) => {
            if !len.is_multiple_of(*count) && shard.split != Split::Chunk {
                return Err(Fault("PlanBlocks"));
            }
            let size = len.div_ceil(*count);
            (0..*count).map(|block| size.min(len.saturating_sub(block * size))).collect()
        }
        _ => return Err(Large),
    };
    if blocks.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len)) != Some(len) {
        return Err(Fault("PlanBlocks"));
    }
    let mut left = Indices::new();
    let mut rest = indices.as_slice();
    for (number, len) in blocks.into_iter().enumerate() {
        let (block, after) = rest.split_at(len as usize);
        rest = after;
        let replicas = match &shard.replicas {
            None => 1,
            Some(Replicas::Same(same)) => *same,
            Some(Replicas::PerBlock(each)) => each[number],
            _ => return Err(Large),
        } as usize;
        left.extend(share(block, &shard.split, shard.unit.unwrap_or(1), at / replicas, k / replicas)?);
    }
    Ok(left)
}

/// What one of `k` has of a block.
fn share(block: &[Option<u64>], split: &Split, unit: u64, at: usize, k: usize) -> Result<Indices, Unsaid> {
    if !(block.len() as u64).is_multiple_of(unit) {
        return Err(Fault("PlanUneven"));
    }
    let units: Vec<_> = block.chunks(usize::try_from(unit).map_err(|_| Large)?.max(1)).collect();
    let m = units.len();
    let sizes = |sizes: &[usize]| -> Vec<usize> {
        let start: usize = sizes[..at].iter().sum();
        (start..start + sizes[at]).collect()
    };
    let own: Vec<usize> = match split {
        Split::Even if !m.is_multiple_of(k) => return Err(Fault("PlanUneven")),
        Split::Even | Split::Balanced => {
            sizes(&(0..k).map(|c| m / k + usize::from(c < m % k)).collect::<Vec<_>>())
        }
        Split::Chunk => (0..m).filter(|unit| unit / m.div_ceil(k) == at).collect(),
        Split::Cyclic => (0..m).filter(|unit| unit % k == at).collect(),
        Split::Sizes(each) => {
            let all = each.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size));
            if all != Some(m as u64) {
                return Err(Fault("PlanSizes"));
            }
            sizes(&each.iter().map(|size| *size as usize).collect::<Vec<_>>())
        }
        Split::Ids(ids) => {
            if ids.iter().map(Vec::len).sum::<usize>() != m {
                return Err(Fault("PlanIds"));
            }
            ids[at].iter().map(|id| *id as usize).collect()
        }
        _ => return Err(Large),
    };
    Ok(own.into_iter().flat_map(|unit| units[unit].to_vec()).collect())
}

/// Cuts scales as their weight is cut.
fn scaled(
    (rule, regex): (&Rule, &Regex),
    number: usize,
    tensors: &[Tensor],
    rules: &[Option<usize>],
    spec: &PlanSpec,
    reckoned: &mut Reckoned,
) -> Result<(), Unsaid> {
    let scale = rule.scale_of.as_ref().ok_or(Large)?;
    let captures = regex.captures(tensors[number].0).ok_or(Large)?;
    let mut name = String::new();
    let mut rest = scale.weight.as_str();
    while let Some((text, after)) = rest.split_once("${") {
        let (capture, after) = after.split_once('}').ok_or(Fault("PlanScale"))?;
        name += text;
        name += captures.name(capture).map_or("", |found| found.as_str());
        rest = after;
    }
    name += rest;
    let weight = tensors.iter().position(|tensor| tensor.0 == name).ok_or(Fault("PlanScale"))?;
    match rules[weight].map(|rule| &spec.rules[rule]) {
        Some(rule) if rule.drop => {
            reckoned[number].fill(None);
            return Ok(());
        }
        Some(rule) if rule.scale_of.is_some() || rule.flat.is_some() => return Err(Fault("PlanScale")),
        _ => {}
    }
    let of_weight = tensors[weight].2;
    let is_shape = scale.block.len() == of_weight.len()
        && of_weight
            .iter()
            .zip(&scale.block)
            .map(|(len, block)| len.div_ceil(*block))
            .eq(tensors[number].2.iter().copied());
    if !is_shape {
        return Err(Fault("PlanScale"));
    }
    let locals = match rules[weight] {
        // What is whole on every rank, whether or not it has it.
        None => vec![whole(&tensors[weight]); reckoned[weight].len()],
        Some(rule) => {
            let mut everyones = spec.rules[rule].clone();
            everyones.own.clear();
            let mut alone = spec.clone();
            alone.rules = vec![everyones];
            reckon(&alone, &tensors[weight..=weight])?.remove(0).into_iter().flatten().collect()
        }
    };
    for (rank, local) in locals.into_iter().enumerate() {
        let has = if rule.own.is_empty() { &reckoned[weight][rank] } else { &reckoned[number][rank] };
        reckoned[number][rank] = match (has, local) {
            (None, _) => None,
            (Some(_), Local::Dims(dims)) => {
                let blocks = dims.iter().zip(&scale.block).map(|(indices, block)| {
                    let mut blocks: Vec<_> =
                        indices.iter().flatten().map(|index| Some(index / block)).collect();
                    blocks.sort_unstable();
                    blocks.dedup();
                    blocks
                });
                Some(Local::Dims(blocks.collect()))
            }
            (Some(_), Local::Flat(_)) => return Err(Fault("PlanScale")),
        };
    }
    Ok(())
}
