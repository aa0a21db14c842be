//! Tensors that are put together of parts of others.

mod gather;

use std::ops::Range;

use crate::dtype::Dtype;
use crate::error::SliceError;

pub(crate) use gather::Gather;

/// A tensor that is put together of parts of others: which elements of which tensor go where. What no part fills is
/// zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assembly {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// Of the whole, with what is padded.
    pub(crate) shape: Vec<u64>,
    /// By dimension, how many elements at its end are no part's.
    pub(crate) pad: Vec<u64>,
    /// Disjoint, in the order in which they lie in it.
    pub(crate) parts: Vec<Part>,
}

/// The part of one tensor in an assembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The tensor's number in the index.
    pub(crate) tensor: u32,
    /// The shape in which the tensor is cut: its own; its number of elements where it is cut flat; its own after a 1
    /// where it is one of a stack. Its dimensions are those of the assembly.
    pub(crate) shape: Vec<u64>,
    /// For each dimension the indices that are taken, in the order in which they lie in the assembly; the part is
    /// their outer product.
    pub(crate) dims: Vec<Vec<Stretch>>,
}

/// Some neighbouring indices of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The first, in the tensor.
    pub(crate) from: u64,
    /// How many there are; never 0.
    pub(crate) len: u64,
    /// Where the first lies in the assembly.
    pub(crate) at: u64,
}

/// How the bytes of an assembly come together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// It is one fragment.
    Alone(Fragment),
    /// Fragments that each lie in one piece in it, with the bytes before them.
    Joined(Vec<(Fragment, u64)>),
    /// Fragments that are copied to their places once they are there.
    Gathered(Vec<(Fragment, Gather)>),
}

/// By dimension, some indices in rising order.
pub(crate) type Dims = Vec<Vec<Range<u64>>>;

/// What is read of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The part of the assembly that it is of.
    pub(crate) part: usize,
    /// By dimension of the part's shape, the indices in rising order.
    pub(crate) dims: Dims,
}

/// More fragments of one assembly than this are read as one for each part, and copied.
const MOST_FRAGMENTS: usize = 4096;

impl Assembly {
    /// How its bytes come together.
    ///
    /// # Errors
    /// Where elements narrower than a byte would not begin with one, or their width is not known.
    pub(crate) fn form(&self) -> Result<Form, SliceError> {
        if let [part] = self.parts.as_slice()
            && part.is_whole_of(&self.shape)
        {
            return Ok(Form::Alone(part.whole()));
        }
        let dtype = || self.dtype.clone();
        let bits = u64::from(self.dtype.bits().ok_or_else(|| SliceError::UnknownWidth { dtype: dtype() })?);
        let mut joined = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            match part.fragments(number, &self.shape, MOST_FRAGMENTS - joined.len()) {
                Some(fragments) => joined.extend(fragments),
                None => return self.gathered(bits),
            }
        }
        let in_bytes = |(fragment, elements): (Fragment, u64)| {
            // The assembly is of a size that was checked, and this lies in it.
            let offset = elements.saturating_mul(bits);
            if offset % 8 != 0 {
                return Err(SliceError::NotWholeBytes { dtype: dtype() });
            }
            Ok((fragment, offset / 8))
        };
        let mut joined = joined.into_iter().map(in_bytes).collect::<Result<Vec<_>, _>>()?;
        joined.sort_by_key(|(_, offset)| *offset);
        let is_filled = matches!(self.parts.as_slice(), [part] if part.fills(&self.shape));
        match (joined.pop(), joined.is_empty() && is_filled) {
            (Some((fragment, 0)), true) => Ok(Form::Alone(fragment)),
            (last, _) => {
                joined.extend(last);
                Ok(Form::Joined(joined))
            }
        }
    }

    /// The one part that it consists of, and the indices of each dimension if that is but a slice, if they lie in it in
    /// rising order and nothing else does.
    pub(crate) fn as_slice(&self) -> Option<(&Part, Option<Dims>)> {
        let [part] = self.parts.as_slice() else { return None };
        if part.is_whole_of(&self.shape) {
            return Some((part, None));
        }
        part.fills(&self.shape).then(|| (part, Some(part.whole().dims)))
    }

    fn gathered(&self, bits: u64) -> Result<Form, SliceError> {
        let gather = |(number, part): (usize, &Part)| {
            let dims: Vec<_> = part.dims.iter().map(|stretches| rising(stretches)).collect();
            let gather = Gather::new(&part.dims, &dims, &self.shape, bits)
                .ok_or_else(|| SliceError::NotWholeBytes { dtype: self.dtype.clone() })?;
            Ok((Fragment { part: number, dims }, gather))
        };
        self.parts.iter().enumerate().map(gather).collect::<Result<_, _>>().map(Form::Gathered)
    }

    /// The length in bytes, with what is padded; `None` where the width of the elements is not known, or it is too much.
    pub(crate) fn len_bytes(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let elements = self.shape.iter().try_fold(1_u64, |product, &len| product.checked_mul(len))?;
        Some(elements.checked_mul(self.dtype.bits()?.into())?.div_ceil(8))
    }
}

impl Part {
    /// Some indices of each dimension, given in rising order, one after the other from the start of the assembly.
    pub(crate) fn of(tensor: u32, shape: &[u64], dims: &[Vec<Range<u64>>]) -> Self {
        Self {
            tensor,
            shape: shape.to_vec(),
            dims: dims.iter().map(|ranges| Stretch::one_after_another(ranges)).collect(),
        }
    }

    /// What of it lies in a box of its tensor, which begins at `offsets`, as a part of the box; `None` where nothing does.
    pub(crate) fn within(&self, offsets: &[u64], shape: &[u64]) -> Option<Self> {
        let clip = |((stretches, &start), &len): ((&Vec<Stretch>, &u64), &u64)| {
            let clipped: Vec<_> = stretches.iter().filter_map(|stretch| stretch.within(start, len)).collect();
            (!clipped.is_empty()).then_some(clipped)
        };
        let dims = self.dims.iter().zip(offsets).zip(shape).map(clip).collect::<Option<_>>()?;
        Some(Self { tensor: self.tensor, shape: shape.to_vec(), dims })
    }

    /// Whether there is nothing of its tensor in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.dims.iter().any(Vec::is_empty)
    }

    /// Whether it is all of an assembly of this shape, in rising order.
    fn fills(&self, shape: &[u64]) -> bool {
        self.dims.len() == shape.len() && self.dims.iter().zip(shape).all(|(dim, &len)| fill(dim, len))
    }

    /// Whether it is all of its tensor and all of an assembly of this shape.
    fn is_whole_of(&self, shape: &[u64]) -> bool {
        let all = |(stretches, &len): (&Vec<Stretch>, &u64)| match stretches.as_slice() {
            [] => len == 0,
            [one] => *one == Stretch { from: 0, len, at: 0 },
            _ => false,
        };
        self.shape == shape && self.dims.iter().zip(shape).all(all)
    }

    fn whole(&self) -> Fragment {
        let dims = self.dims.iter().map(|stretches| stretches.iter().map(Stretch::source).collect());
        Fragment { part: 0, dims: dims.collect() }
    }

    /// Pieces of it that each lie in one piece in an assembly of this shape, with the elements before them, if there are
    /// no more than `most`.
    fn fragments(&self, number: usize, shape: &[u64], most: usize) -> Option<Vec<(Fragment, u64)>> {
        if self.is_empty() {
            return Some(Vec::new());
        }
        // The innermost dimension that is not filled in order; those within it are.
        let cut = self.dims.iter().zip(shape).rposition(|(dim, &len)| !fill(dim, len)).unwrap_or(0);
        let (outer, inner) = self.dims.split_at_checked(cut)?;
        let one_index = |stretches: &Vec<Stretch>| match stretches.as_slice() {
            [one] if one.len == 1 => Some(*one),
            _ => None,
        };
        let outer = outer.iter().map(one_index).collect::<Option<Vec<_>>>()?;
        let Some((cut_dim, inner)) = inner.split_first() else {
            // A scalar.
            return Some(vec![(Fragment { part: number, dims: Vec::new() }, 0)]);
        };
        let runs: Vec<&[Stretch]> = cut_dim.chunk_by(|one, next| follow(&[*one, *next])).collect();
        if runs.len() > most {
            return None;
        }
        let sources = |stretches: &[Stretch]| stretches.iter().map(Stretch::source).collect::<Vec<_>>();
        let before = |at: u64| {
            let places = outer.iter().map(|one| one.at).chain([at]);
            // Row-major: an index counts for all of the dimensions within its own.
            let elements =
                places.zip(shape).fold(0_u64, |sum, (at, &len)| sum.saturating_mul(len).saturating_add(at));
            shape.iter().skip(cut + 1).fold(elements, |elements, &len| elements.saturating_mul(len))
        };
        let fragment = |run: &&[Stretch]| {
            let dims = outer.iter().map(|one| vec![one.source()]);
            let dims = dims.chain([sources(run)]).chain(inner.iter().map(|stretches| sources(stretches)));
            let at = run.first().map_or(0, |first| first.at);
            (Fragment { part: number, dims: dims.collect() }, before(at))
        };
        Some(runs.iter().map(fragment).collect())
    }
}

impl Stretch {
    /// `None` for none at all.
    pub(crate) fn some(from: u64, len: u64, at: u64) -> Option<Self> {
        (len > 0).then_some(Self { from, len, at })
    }

    pub(crate) fn source(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.len)
    }

    /// Ranges that lie one after the other, from 0 on.
    pub(crate) fn one_after_another(ranges: &[Range<u64>]) -> Vec<Self> {
        let mut at = 0_u64;
        let place = |range: &Range<u64>| {
            let len = range.end.saturating_sub(range.start);
            at = at.saturating_add(len);
            Self::some(range.start, len, at - len)
        };
        ranges.iter().filter_map(place).collect()
    }

    /// What of it lies in `len` indices from `start` on, counted from there.
    fn within(&self, start: u64, len: u64) -> Option<Self> {
        let Range { start: first, end } = self.source();
        let (from, end) = (first.max(start), end.min(start.saturating_add(len)));
        Self::some(from.saturating_sub(start), end.saturating_sub(from), self.at.saturating_add(from - first))
    }
}

/// Whether stretches are all of a dimension of an assembly, in rising order.
fn fill(stretches: &[Stretch], len: u64) -> bool {
    let end = stretches.last().map_or(Some(0), |last| last.at.checked_add(last.len));
    stretches.first().is_none_or(|first| first.at == 0)
        && stretches.windows(2).all(follow)
        && end == Some(len)
}

/// Whether of two stretches the second comes after the first in the tensor, and at once after it in the assembly.
fn follow(pair: &[Stretch]) -> bool {
    match pair {
        [one, next] => next.from >= one.source().end && one.at.checked_add(one.len) == Some(next.at),
        _ => true,
    }
}

/// The indices of some stretches, in rising order.
fn rising(stretches: &[Stretch]) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = stretches.iter().map(Stretch::source).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what parts are made of")]
mod tests;
