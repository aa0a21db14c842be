//! Where the parts of an output lie in it.

use std::ops::Range;

use super::flaw::{Flaw, countable};
use super::local::Local;
use super::outputs::{Group, NONE, Output};
use super::partition::{PlannedPart, PlannedTensor, Tables};
use crate::assembly::{Assembly, Part, Stretch};
use crate::error::quote;

/// A tensor of a rank, alone or put together of several.
#[derive(Debug, Clone)]
pub(super) struct Laid<'a> {
    /// The number of the group; [`NONE`] for a tensor by itself.
    group: u32,
    shape: Vec<u64>,
    parts: Vec<Placed<'a>>,
}

/// One of its parts.
#[derive(Debug, Clone)]
struct Placed<'a> {
    tensor: u32,
    local: Local<'a>,
    /// Where it lies along the new first dimension of a stack.
    row: Option<u64>,
    along: Option<Along>,
}

/// Where a part lies along the dimension in which parts are put together.
#[derive(Debug, Clone, Copy)]
struct Along {
    dim: usize,
    /// Where its first group begins.
    start: u64,
    /// The length of each of its groups.
    group: u64,
    /// How far the groups of all parts together reach.
    stride: u64,
}

impl<'a> Laid<'a> {
    /// Into how many pieces its parts fall where they are put together group by group, with the runs of indices that
    /// each of them has in other dimensions.
    pub(super) fn pieces(&self) -> u64 {
        let of_part = |part: &Placed<'_>| {
            let Some(along) = part.along else { return 1 };
            let others = (0..part.local.dims()).filter(|&dim| dim != along.dim);
            let runs = others.filter_map(|dim| part.local.dim(dim)).map(|dim| dim.runs.len() as u64);
            part.groups().saturating_mul(runs.fold(1, u64::saturating_add))
        };
        self.parts.iter().map(of_part).fold(0, u64::saturating_add)
    }

    /// The pieces of its parts in the order in which they lie in it, each with the indices that it has.
    fn in_order(&self) -> Vec<(&Placed<'a>, Vec<Vec<Range<u64>>>)> {
        let mut pieces = Vec::new();
        for row in self.parts.chunk_by(|one, next| one.row == next.row) {
            // A part without elements has a piece too, to be told of.
            let groups = row.iter().map(Placed::groups).max().unwrap_or(1).max(1);
            if groups == 1 || row.len() == 1 {
                pieces.extend(row.iter().map(|part| (part, part.local.intervals())));
                continue;
            }
            let mut of_parts: Vec<_> = row.iter().map(Placed::by_group).collect();
            for _ in 0..groups {
                let next = row.iter().zip(&mut of_parts);
                pieces.extend(next.filter_map(|(part, groups)| Some((part, groups.next()?))));
            }
        }
        pieces
    }

    pub(super) fn alone(tensor: u32, local: Local<'a>) -> Self {
        Self {
            group: NONE,
            shape: local.shape(),
            parts: vec![Placed { tensor, local, row: None, along: None }],
        }
    }
}

/// That two parts of an output are the same in something.
fn same<T: PartialEq>(one: &T, other: &T, message: impl FnOnce() -> String) -> Result<(), Flaw> {
    if one == other { Ok(()) } else { Err(Flaw::new("PlanOutput", message())) }
}

impl Tables {
    /// What a rank puts together as a group; nothing where it has none of the parts.
    pub(super) fn lay(&self, group: u32, rank: u32) -> Result<Option<Laid<'_>>, Flaw> {
        let Some(of) = self.groups.get(group as usize) else { return Ok(None) };
        let Some(output) = self.outputs.get(of.output as usize) else { return Ok(None) };
        let width = output.from.len().max(1);
        let mut laid = Laid { group, shape: Vec::new(), parts: Vec::new() };
        let mut rows = 0;
        for tensors in of.tensors.chunks(width) {
            let own: Vec<_> = tensors.iter().filter_map(|&tensor| self.owned(tensor, rank)).collect();
            if own.is_empty() {
                continue;
            }
            if own.len() < width {
                return Err(self.torn(of, tensors, &own, rank));
            }
            let row = output.stack.map(|_| rows);
            let (shape, placed) = self.joined(output, of, &own, row, rank)?;
            if rows == 0 {
                laid.shape = shape;
            } else {
                same(&shape, &laid.shape, || {
                    let name = quote(&of.name);
                    format!(
                        "expected parts of one local shape to be stacked to {name}, found {:?} and {shape:?} on rank \
                         {rank}",
                        laid.shape
                    )
                })?;
            }
            laid.parts.extend(placed);
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        if let Some(first) = laid.parts.first().filter(|_| rows > 1) {
            for part in &laid.parts {
                self.same_dtype(of, &first.local, &part.local)?;
            }
        }
        if output.stack.is_some() {
            laid.shape.insert(0, rows);
        }
        if let Some(first) = laid.parts.first() {
            countable(laid.shape.iter().copied(), first.local.dtype())?;
        }
        Ok(Some(laid))
    }

    /// Whether a rank has something of a tensor.
    pub(super) fn owns(&self, tensor: u32, rank: u32) -> bool {
        self.owned(tensor, rank).is_some()
    }

    /// What a rank has of a tensor, with the tensor's number.
    fn owned(&self, tensor: u32, rank: u32) -> Option<(u32, Local<'_>)> {
        let class = *self.tensors.get(tensor as usize)?;
        let owner = self.classes.get(class as usize)?.owner;
        let is_owned = self.owners.get(owner as usize).is_some_and(|owner| owner.owns(rank));
        is_owned.then(|| self.local(class, rank)).flatten().map(|local| (tensor, local))
    }

    /// The flaw of an output of which a rank has some parts and lacks others.
    fn torn(&self, group: &Group, tensors: &[u32], own: &[(u32, Local<'_>)], rank: u32) -> Flaw {
        let lacks = tensors.iter().find(|tensor| own.iter().all(|(other, _)| other != *tensor));
        let lacks = quote(self.names.get(lacks.copied().unwrap_or(NONE)));
        let has = quote(self.names.get(own.first().map_or(NONE, |(tensor, _)| *tensor)));
        let name = quote(&group.name);
        let message = format!(
            "expected a rank to have all parts of output {name}, found that rank {rank} has {has} \
             and not {lacks}; give both the same `own`"
        );
        Flaw::new("PlanOutput", message)
    }

    fn same_dtype(&self, group: &Group, one: &Local<'_>, other: &Local<'_>) -> Result<(), Flaw> {
        same(&one.dtype_number(), &other.dtype_number(), || {
            let name = quote(&group.name);
            format!(
                "expected parts of one type in output {name}, found {} and {}",
                one.dtype(),
                other.dtype()
            )
        })
    }

    /// The shape of what parts are put together to along a dimension, and where each of them lies.
    fn joined<'a>(
        &self,
        output: &Output,
        group: &Group,
        own: &[(u32, Local<'a>)],
        row: Option<u64>,
        rank: u32,
    ) -> Result<(Vec<u64>, Vec<Placed<'a>>), Flaw> {
        let flaw =
            |message: String| Flaw::new("PlanOutput", format!("output {}: {message}", quote(&group.name)));
        let Some((_, first)) = own.first() else { return Ok((Vec::new(), Vec::new())) };
        if !output.is_rename() && own.iter().any(|(_, local)| local.is_flat()) {
            return Err(flaw(
                "expected parts that are not cut flat, found one that is; it can only be renamed".to_owned(),
            ));
        }
        let mut shape = first.shape();
        let Some(concat) = output.concat else {
            let placed = own.iter().map(|&(tensor, local)| Placed { tensor, local, row, along: None });
            return Ok((shape, placed.collect()));
        };
        let dim = resolve(concat, shape.len()).ok_or_else(|| {
            flaw(format!("expected a dimension of the parts in `concat`, found {concat} of {}", shape.len()))
        })?;
        let mut lengths = Vec::with_capacity(own.len());
        for (_, local) in own {
            self.same_dtype(group, first, local)?;
            let mut own_shape = local.shape();
            let len = own_shape.get(dim).copied().unwrap_or(0);
            if own_shape.len() == shape.len() {
                own_shape.get_mut(dim).zip(shape.get(dim)).into_iter().for_each(|(own, &first)| *own = first);
            }
            if own_shape != shape {
                let found = format!("{shape:?} and {:?} on rank {rank}", local.shape());
                return Err(flaw(format!(
                    "expected parts of the same local shape but for dimension {dim}, found {found}"
                )));
            }
            lengths.push((len, group_len(output.groups, local, dim, len).map_err(&flaw)?));
        }
        let count = |&(len, group): &(u64, u64)| len.checked_div(group).unwrap_or(0);
        let counts: Vec<_> = lengths.iter().map(count).collect();
        if let Some(other) = counts.iter().find(|&count| Some(count) != counts.first())
            && output.groups.is_some()
        {
            let found = format!("{} and {other} on rank {rank}", counts.first().copied().unwrap_or(0));
            return Err(flaw(format!("expected as many groups of each part, found {found}")));
        }
        let total = lengths.iter().try_fold(0_u64, |sum, (len, _)| sum.checked_add(*len));
        let total =
            total.ok_or_else(|| flaw("expected a length that 64 bits can count, found more".to_owned()))?;
        let stride = lengths.iter().fold(0_u64, |sum, (_, group)| sum.saturating_add(*group));
        if let Some(len) = shape.get_mut(dim) {
            *len = total;
        }
        let mut start = 0;
        let placed = own.iter().zip(lengths).map(|(&(tensor, local), (_, group))| {
            let along = Along { dim, start, group, stride };
            start = group.saturating_add(start);
            Placed { tensor, local, row, along: Some(along) }
        });
        Ok((shape, placed.collect()))
    }

    pub(super) fn planned(&self, laid: &Laid<'_>) -> PlannedTensor {
        let part = |(placed, intervals): (&Placed<'_>, Vec<Vec<Range<u64>>>)| PlannedPart {
            tensor: self.names.get(placed.tensor).to_owned(),
            intervals,
            is_flat: placed.local.is_flat(),
        };
        PlannedTensor {
            name: self.name(laid).to_owned(),
            dtype: laid.parts.first().map_or(crate::dtype::Dtype::U8, |part| part.local.dtype().clone()),
            pad: pad(&laid.shape, laid.parts.iter().map(Placed::stretches)),
            bytes: laid.parts.iter().map(|part| part.local.bytes()).sum(),
            parts: laid.in_order().into_iter().map(part).collect(),
            local_shape: laid.shape.clone(),
        }
    }

    pub(super) fn assembly(&self, laid: &Laid<'_>) -> Assembly {
        let dims: Vec<_> = laid.parts.iter().map(Placed::stretches).collect();
        let pad = pad(&laid.shape, dims.iter().map(Vec::as_slice));
        let part = |(placed, dims): (&Placed<'_>, Vec<Vec<Stretch>>)| {
            let mut shape = placed.local.global_shape();
            if placed.row.is_some() {
                shape.insert(0, 1);
            }
            Part { tensor: placed.tensor, shape, dims }
        };
        let mut parts: Vec<_> = laid.parts.iter().zip(dims).map(part).collect();
        // Where there is nothing at all, the first part tells of which shard.
        let first = parts.first().cloned();
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            parts.extend(first);
        }
        Assembly {
            name: self.name(laid).to_owned(),
            dtype: laid.parts.first().map_or(crate::dtype::Dtype::U8, |part| part.local.dtype().clone()),
            pad,
            parts,
            shape: laid.shape.clone(),
        }
    }

    fn name(&self, laid: &Laid<'_>) -> &str {
        match self.groups.get(laid.group as usize) {
            Some(group) => &group.name,
            None => self.names.get(laid.parts.first().map_or(NONE, |part| part.tensor)),
        }
    }
}

impl Placed<'_> {
    /// In how many groups it lies.
    fn groups(&self) -> u64 {
        let groups = |along: Along| self.local.dim(along.dim)?.len.checked_div(along.group);
        self.along.and_then(groups).unwrap_or(1)
    }

    /// By group, the indices of each dimension.
    fn by_group(&self) -> impl Iterator<Item = Vec<Vec<Range<u64>>>> + use<> {
        let mut intervals = self.local.intervals();
        let (dim, group) = self.along.map_or((0, u64::MAX), |along| (along.dim, along.group.max(1)));
        let mut left = intervals.get_mut(dim).map(std::mem::take).unwrap_or_default().into_iter();
        let mut rest = left.next();
        (0..self.groups()).map(move |_| {
            let mut own = Vec::new();
            let mut lacks = group;
            while lacks > 0
                && let Some(Range { start, end }) = rest.take()
            {
                let until = end.min(start.saturating_add(lacks));
                lacks -= until - start;
                own.push(start..until);
                rest = if until < end { Some(until..end) } else { left.next() };
            }
            let mut piece = intervals.clone();
            piece.get_mut(dim).into_iter().for_each(|intervals| *intervals = std::mem::take(&mut own));
            piece
        })
    }

    /// By dimension of the assembly, the indices that are taken, and where they lie in it.
    fn stretches(&self) -> Vec<Vec<Stretch>> {
        let row = self.row.map(|at| Vec::from([Stretch { from: 0, len: 1, at }]));
        let own = self.local.loaded().into_iter().enumerate().map(|(dim, intervals)| {
            let along = self.along.filter(|along| along.dim == dim);
            let mut stretches: Vec<Stretch> = Vec::new();
            let mut local = 0_u64;
            for interval in intervals {
                let len = interval.end - interval.start;
                match along {
                    None => stretches.push(Stretch { from: interval.start, len, at: local }),
                    Some(along) => along.place(interval.start, len, local, &mut stretches),
                }
                local = local.saturating_add(len);
            }
            stretches
        });
        row.into_iter().chain(own).collect()
    }
}

impl Along {
    /// Places neighbouring indices, of which the first is the `local`th of the part.
    fn place(&self, from: u64, len: u64, local: u64, stretches: &mut Vec<Stretch>) {
        let mut done = 0;
        while done < len {
            let at = local + done;
            let (number, within) = (at / self.group.max(1), at % self.group.max(1));
            let next = (self.group.max(1) - within).min(len - done);
            let at = number * self.stride + self.start + within;
            match stretches.last_mut() {
                Some(last) if last.from + last.len == from + done && last.at + last.len == at => {
                    last.len += next;
                }
                _ => stretches.push(Stretch { from: from + done, len: next, at }),
            }
            done += next;
        }
    }
}

/// The length of a part's groups on this rank: all of it, where there are none.
fn group_len(groups: Option<u64>, local: &Local<'_>, dim: usize, len: u64) -> Result<u64, String> {
    let Some(groups) = groups else { return Ok(len) };
    let all = local.global_shape().get(dim).copied().unwrap_or(0);
    if all % groups != 0 {
        return Err(format!("expected a length of dimension {dim} that {groups} groups divide, found {all}"));
    }
    if local.dim(dim).is_some_and(|dim| dim.pad > 0) {
        return Err(format!(
            "expected no padding in dimension {dim}, which is put together in groups, found some"
        ));
    }
    let group = all / groups;
    match len.checked_rem(group) {
        Some(rest) if rest != 0 => Err(format!(
            "expected whole groups of {group} in dimension {dim} on each rank, found {len} indices"
        )),
        _ => Ok(group),
    }
}

/// By dimension, how many elements at its end are no part's.
fn pad<D: AsRef<[Vec<Stretch>]>>(shape: &[u64], parts: impl Iterator<Item = D>) -> Vec<u64> {
    let mut pad = shape.to_vec();
    for dims in parts {
        for ((pad, stretches), len) in pad.iter_mut().zip(dims.as_ref()).zip(shape) {
            let end =
                stretches.iter().map(|stretch| stretch.at.saturating_add(stretch.len)).max().unwrap_or(0);
            *pad = (*pad).min(len.saturating_sub(end));
        }
    }
    pad
}

/// A dimension that may be counted from the end.
pub(super) fn resolve(dim: i64, dims: usize) -> Option<usize> {
    let dims = i64::try_from(dims).ok()?;
    let from_start = if dim < 0 { dim.checked_add(dims)? } else { dim };
    usize::try_from(from_start).ok().filter(|_| from_start < dims)
}
