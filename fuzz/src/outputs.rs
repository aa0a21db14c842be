//! What each rank puts together by the outputs of a plan, element by element.

use std::collections::BTreeMap;

use weightmap::plan::{OutputRule, PlanSpec};

use crate::model::Tensor;
use crate::reckoning::Unsaid::{self, Fault, Large};
use crate::reckoning::{Local, Reckoned, regex_of};

/// A tensor of a rank: for each place the element that lies there, as the number of its tensor and its own in that;
/// `None` for padding.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<u64>,
    pub cells: Vec<Option<(u32, u64)>>,
}

/// The parts of an output: for each number that is stacked over, the tensors in the order of `from`.
type Rows = BTreeMap<u64, Vec<Option<usize>>>;

/// Numbers by their names.
type Numbers = BTreeMap<String, u64>;

/// Which tensors each output takes, by its place and the numbers of its name.
pub struct Outputs<'a> {
    spec: &'a PlanSpec,
    tensors: &'a [Tensor],
    reckoned: &'a Reckoned,
    groups: BTreeMap<(usize, Numbers), Rows>,
    taken: Vec<bool>,
}

impl<'a> Outputs<'a> {
    /// Finds the parts of all outputs.
    pub fn new(spec: &'a PlanSpec, tensors: &'a [Tensor], reckoned: &'a Reckoned) -> Result<Self, Unsaid> {
        let taken = vec![false; tensors.len()];
        let mut outputs = Self { spec, tensors, reckoned, groups: BTreeMap::new(), taken };
        for (number, tensor) in tensors.iter().enumerate() {
            let is_there = reckoned[number].iter().any(Option::is_some);
            for (place, output) in spec.outputs.iter().enumerate().filter(|_| is_there) {
                for (part, from) in output.from.iter().enumerate() {
                    let Some(numbers) = bound(from, tensor.0)? else { continue };
                    outputs.take(place, output, part, numbers, number)?;
                }
            }
        }
        let is_whole = |rows: &Rows| rows.values().flatten().all(Option::is_some);
        if outputs.groups.values().all(is_whole) { Ok(outputs) } else { Err(Fault("PlanOutput")) }
    }

    fn take(
        &mut self,
        place: usize,
        output: &OutputRule,
        part: usize,
        mut numbers: Numbers,
        tensor: usize,
    ) -> Result<(), Unsaid> {
        if std::mem::replace(&mut self.taken[tensor], true) {
            return Err(Fault("PlanOutput"));
        }
        let row = output.stack.as_ref().and_then(|stack| numbers.remove(stack)).unwrap_or(0);
        let rows = self.groups.entry((place, numbers)).or_default();
        rows.entry(row).or_insert_with(|| vec![None; output.from.len()])[part] = Some(tensor);
        Ok(())
    }

    /// All that a rank has, by name.
    pub fn of(&self, rank: usize) -> Result<BTreeMap<String, Array>, Unsaid> {
        let mut made = BTreeMap::new();
        for (number, tensor) in self.tensors.iter().enumerate().filter(|(number, _)| !self.taken[*number]) {
            if let Some(array) = self.local(number, rank) {
                made.insert(tensor.0.to_owned(), array);
            }
        }
        for ((place, numbers), rows) in &self.groups {
            let output = &self.spec.outputs[*place];
            let Some(array) = self.put_together(output, rows, rank)? else { continue };
            let fill = |name: String, (number, value): (&String, &u64)| {
                name.replace(&format!("{{{number}}}"), &value.to_string())
            };
            let name = numbers.iter().fold(output.name.clone(), fill);
            if made.insert(name, array).is_some() {
                return Err(Fault("PlanOutput"));
            }
        }
        Ok(made)
    }

    fn put_together(&self, output: &OutputRule, rows: &Rows, rank: usize) -> Result<Option<Array>, Unsaid> {
        let mut arrays = Vec::new();
        let mut dtypes = Vec::new();
        for tensors in rows.values() {
            let tensors: Vec<usize> = tensors.iter().flatten().copied().collect();
            let parts: Vec<_> = tensors.iter().filter_map(|&tensor| self.local(tensor, rank)).collect();
            if parts.is_empty() {
                continue;
            }
            let is_flat = |&tensor: &usize| matches!(self.reckoned[tensor][rank], Some(Local::Flat(_)));
            let is_rename = output.concat.is_none() && output.stack.is_none();
            if parts.len() < tensors.len() || (!is_rename && tensors.iter().any(is_flat)) {
                return Err(Fault("PlanOutput"));
            }
            dtypes.extend(tensors.iter().map(|&tensor| &self.tensors[tensor].1));
            arrays.push(match output.concat {
                None => parts.into_iter().next().ok_or(Large)?,
                Some(dim) => self.joined(dim, output.groups, &tensors, &parts, rank)?,
            });
        }
        let Some(first) = arrays.first().cloned() else { return Ok(None) };
        if dtypes.iter().any(|dtype| *dtype != dtypes[0])
            || arrays.iter().any(|array| array.shape != first.shape)
        {
            return Err(Fault("PlanOutput"));
        }
        if output.stack.is_none() {
            return Ok(Some(first));
        }
        let shape = [&[arrays.len() as u64], first.shape.as_slice()].concat();
        Ok(Some(Array { shape, cells: arrays.into_iter().flat_map(|array| array.cells).collect() }))
    }

    /// Parts put together along a dimension, group by group.
    fn joined(
        &self,
        dim: i64,
        groups: Option<u64>,
        tensors: &[usize],
        parts: &[Array],
        rank: usize,
    ) -> Result<Array, Unsaid> {
        let shape = &parts[0].shape;
        let from_start = if dim < 0 { dim + shape.len() as i64 } else { dim };
        let dim =
            usize::try_from(from_start).ok().filter(|dim| *dim < shape.len()).ok_or(Fault("PlanOutput"))?;
        let mut counts = Vec::new();
        let mut lengths = Vec::new();
        for (part, &tensor) in parts.iter().zip(tensors) {
            let is_alike = part.shape.len() == shape.len()
                && (0..shape.len()).all(|other| other == dim || part.shape[other] == shape[other]);
            if !is_alike {
                return Err(Fault("PlanOutput"));
            }
            let len = part.shape[dim];
            let Some(groups) = groups else {
                lengths.push(len);
                counts.push(1);
                continue;
            };
            let all = self.tensors[tensor].2[dim];
            let is_padded = match &self.reckoned[tensor][rank] {
                Some(Local::Dims(dims)) => dims[dim].contains(&None),
                _ => false,
            };
            if !all.is_multiple_of(groups) || is_padded || (all > 0 && !len.is_multiple_of(all / groups)) {
                return Err(Fault("PlanOutput"));
            }
            lengths.push(all / groups);
            counts.push(len.checked_div(all / groups).unwrap_or(0));
        }
        if counts.iter().any(|count| *count != counts[0]) {
            return Err(Fault("PlanOutput"));
        }
        let mut joined = Array { shape: shape.clone(), cells: Vec::new() };
        joined.shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
        let outer: u64 = shape[..dim].iter().product();
        let inner: u64 = shape[dim + 1..].iter().product();
        for row in 0..outer {
            for group in 0..counts[0] {
                for (part, len) in parts.iter().zip(&lengths) {
                    let start = (row * part.shape[dim] + group * len) * inner;
                    let cells = start as usize..(start + len * inner) as usize;
                    joined.cells.extend_from_slice(&part.cells[cells]);
                }
            }
        }
        Ok(joined)
    }

    /// What a rank has of a tensor.
    fn local(&self, tensor: usize, rank: usize) -> Option<Array> {
        let number = u32::try_from(tensor).ok()?;
        match self.reckoned[tensor][rank].as_ref()? {
            Local::Flat(elements) => {
                let cells = elements.iter().map(|element| Some((number, (*element)?))).collect();
                Some(Array { shape: vec![elements.len() as u64], cells })
            }
            Local::Dims(dims) => {
                let mut cells = vec![Some(0)];
                for (indices, len) in dims.iter().zip(self.tensors[tensor].2) {
                    let place = |row: Option<u64>, index: Option<u64>| Some(row? * len + index?);
                    cells = cells
                        .iter()
                        .flat_map(|row| indices.iter().map(move |index| place(*row, *index)))
                        .collect();
                }
                let cells = cells.into_iter().map(|cell| Some((number, cell?))).collect();
                Some(Array { shape: dims.iter().map(|dim| dim.len() as u64).collect(), cells })
            }
        }
    }
}

/// The numbers by which a name is one of a template's: `None` where it is none.
fn bound(template: &str, name: &str) -> Result<Option<Numbers>, Unsaid> {
    let mut pattern = String::new();
    let mut open = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let (number, after) = after.split_once('}').ok_or(Fault("PlanOutput"))?;
        pattern += &regex::escape(text);
        pattern += "(0|[1-9][0-9]*)";
        open.push(number);
        rest = after;
    }
    pattern += &regex::escape(rest);
    let regex = regex_of(&pattern)?;
    let Some(captures) = regex.captures(name) else { return Ok(None) };
    let mut numbers = Numbers::new();
    for (number, digits) in open.into_iter().zip(captures.iter().skip(1)) {
        let value = digits.and_then(|digits| digits.as_str().parse().ok());
        let Some(value) = value else { return Ok(None) };
        if numbers.insert(number.to_owned(), value).is_some_and(|before| before != value) {
            return Ok(None);
        }
    }
    Ok(Some(numbers))
}
