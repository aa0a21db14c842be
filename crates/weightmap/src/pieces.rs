//! Tensors that lie in pieces in several shards, as PyTorch Distributed Checkpoint (DCP) writes them.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

mod offsets;
mod tiling;

use std::ops::Range;

use crate::dtype::Dtype;
use crate::error::{Kept, PieceFault, PiecesError, SliceError};
use crate::header::{Header, HeaderEntry};
use crate::names::NameTable;
use crate::shard_name::ShardName;

pub(crate) use offsets::Offsets;

/// A whole tensor and the pieces that make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) dtype: Dtype,
    /// Of the whole: as far as its pieces reach.
    pub(crate) shape: Vec<u64>,
    /// Of the whole.
    pub(crate) len_bytes: u64,
    /// By their offsets, outermost first. None is empty; together they have each element once.
    pub(crate) pieces: Vec<Piece>,
}

/// The piece of a tensor that one shard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) shard: u32,
    /// Where it begins in the whole, by dimension.
    pub(crate) offsets: Vec<u64>,
    pub(crate) shape: Vec<u64>,
}

impl Piece {
    /// The piece as a range of the whole's elements, its start and length.
    ///
    /// # Errors
    /// If it has not all of each row that it has something of.
    pub(crate) fn elements(&self, shape: &[u64]) -> Result<(u64, u64), SliceError> {
        let is_all = self.shape.get(1..) == shape.get(1..);
        let row = shape.iter().skip(1).fold(1_u64, |product, &len| product.saturating_mul(len));
        match (self.offsets.first(), self.shape.first()) {
            (Some(offset), Some(rows)) if is_all => {
                Ok((offset.saturating_mul(row), rows.saturating_mul(row)))
            }
            (None, None) => Ok((0, 1)),
            _ => Err(SliceError::FlatInPieces),
        }
    }
}

/// The tensors of all shards, put together.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// In the order in which the headers first name them.
    pub(crate) names: NameTable,
    /// The shard of each tensor, or of its first piece.
    pub(crate) shard_of: Vec<u32>,
    /// By tensor; `None` for one that lies whole in its shard.
    pub(crate) pieces: Vec<Option<Pieces>>,
}

/// What one shard has of a tensor.
struct Found<'a> {
    shard: u32,
    entry: HeaderEntry<'a>,
    /// `None` where the shard does not say.
    offsets: Option<&'a [u64]>,
}

/// A shard, its header, and what that says of offsets.
pub(crate) type Member<'a> = (&'a ShardName, &'a Header, &'a Offsets);

/// Puts the tensors of all shards together. The shape of a whole is not stored: it is what the pieces reach.
///
/// # Errors
/// All faults of all tensors.
pub(crate) fn gather(shards: &[Member<'_>]) -> Result<Gathered, PiecesError> {
    let mut names = NameTable::default();
    let mut faults = Kept::default();
    let mut found: Vec<Vec<Found<'_>>> = Vec::new();
    for (shard, (_, header, offsets)) in (0..).zip(shards) {
        faults.append(offsets.faults().clone());
        for (number, entry) in (0..).zip(header.iter()) {
            let tensor = names.insert(entry.name).unwrap_or_else(|there| there);
            let piece = Found { shard, entry, offsets: offsets.get(number) };
            match found.get_mut(tensor as usize) {
                Some(pieces) => pieces.push(piece),
                None => found.push(vec![piece]),
            }
        }
    }
    // Offsets that cannot be read would be told once more, as those that are not there.
    none(faults)?;
    let mut faults = Kept::default();
    let mut gathered = Gathered { names, ..Gathered::default() };
    for found in &found {
        match whole(shards, found) {
            Ok((shard, pieces)) => {
                gathered.shard_of.push(shard);
                gathered.pieces.push(pieces);
            }
            Err(fault) => faults.push(fault),
        }
    }
    none(faults).map(|()| gathered)
}

/// The shard of a tensor's first piece, and, where it lies in more than that, the pieces.
fn whole(shards: &[Member<'_>], found: &[Found<'_>]) -> Result<(u32, Option<Pieces>), PieceFault> {
    let Some(first) = found.first() else { return Ok((u32::MAX, None)) };
    if found.len() == 1 && first.offsets.is_none() {
        return Ok((first.shard, None));
    }
    let tensor = Tensor { shards, found, first };
    let mut pieces = found.iter().map(|piece| tensor.piece(piece)).collect::<Result<Vec<_>, _>>()?;
    let shape = tiling::hull(&pieces).map_err(|piece| tensor.overflow(piece))?;
    pieces.retain(|piece| !piece.shape.contains(&0));
    pieces.sort_by(|one, other| one.offsets.cmp(&other.offsets));
    if let Some((one, other)) = tiling::overlap(&pieces) {
        return Err(tensor.overlap(one, other));
    }
    // They lie in the hull and apart, so they fill it if they have as many elements.
    let elements = tiling::elements(&shape).unwrap_or(u64::MAX);
    let have = pieces.iter().filter_map(|piece| tiling::elements(&piece.shape)).fold(0, u64::saturating_add);
    if have < elements {
        return Err(tensor.hole(shape, elements, have));
    }
    let entire = match pieces.as_slice() {
        [only] => Some(only.shard),
        [] => found.iter().find(|found| found.entry.shape == shape).map(|found| found.shard),
        _ => None,
    };
    if let Some(shard) = entire {
        return Ok((shard, None));
    }
    let bytes = found.iter().map(|found| found.entry.range.end.saturating_sub(found.entry.range.start));
    let len_bytes = bytes.fold(0, u64::saturating_add);
    let shard = pieces.first().map_or(first.shard, |piece| piece.shard);
    Ok((shard, Some(Pieces { dtype: first.entry.dtype.clone(), shape, len_bytes, pieces })))
}

/// One tensor, and what there is of it.
struct Tensor<'a> {
    shards: &'a [Member<'a>],
    found: &'a [Found<'a>],
    first: &'a Found<'a>,
}

impl Tensor<'_> {
    /// A piece that is of the kind of the first.
    fn piece(&self, found: &Found<'_>) -> Result<Piece, PieceFault> {
        let offsets = found.offsets.ok_or_else(|| PieceFault::WithoutOffsets {
            shard: self.shard(found.shard),
            tensor: self.name(),
            shards: self.found.len(),
        })?;
        let (first, entry) = (&self.first.entry, &found.entry);
        if entry.dtype != first.dtype {
            return Err(PieceFault::Dtypes {
                tensor: self.name(),
                first: self.shard(self.first.shard),
                expected: first.dtype.clone(),
                second: self.shard(found.shard),
                found: entry.dtype.clone(),
            });
        }
        if entry.shape.len() != first.shape.len() {
            return Err(PieceFault::Dims {
                tensor: self.name(),
                first: self.shard(self.first.shard),
                expected: first.shape.len(),
                second: self.shard(found.shard),
                found: entry.shape.len(),
            });
        }
        Ok(Piece { shard: found.shard, offsets: offsets.to_vec(), shape: entry.shape.to_vec() })
    }

    fn overflow(&self, piece: &Piece) -> PieceFault {
        PieceFault::Overflow { tensor: self.name(), shard: self.shard(piece.shard) }
    }

    fn overlap(&self, one: &Piece, other: &Piece) -> PieceFault {
        PieceFault::Overlap {
            tensor: self.name(),
            first: self.shard(one.shard),
            first_place: one.place(),
            second: self.shard(other.shard),
            second_place: other.place(),
        }
    }

    fn hole(&self, shape: Vec<u64>, expected: u64, found: u64) -> PieceFault {
        PieceFault::Hole { tensor: self.name(), shape, pieces: self.found.len(), expected, found }
    }

    fn name(&self) -> String {
        self.first.entry.name.to_owned()
    }

    fn shard(&self, number: u32) -> String {
        self.shards.get(number as usize).map_or_else(String::new, |(name, ..)| name.to_string())
    }
}

impl Piece {
    /// Its indices of a dimension; all where there is no such dimension.
    fn range(&self, dim: usize) -> Range<u64> {
        match (self.offsets.get(dim), self.shape.get(dim)) {
            (Some(&offset), Some(&len)) => offset..offset.saturating_add(len),
            _ => 0..u64::MAX,
        }
    }

    /// Its indices for a message: `[0:4, 8:16]`.
    fn place(&self) -> String {
        let ranges = (0..self.shape.len()).map(|dim| self.range(dim));
        let ranges: Vec<_> = ranges.map(|Range { start, end }| format!("{start}:{end}")).collect();
        format!("[{}]", ranges.join(", "))
    }
}

/// Fails if there are any.
fn none(faults: Kept<PieceFault>) -> Result<(), PiecesError> {
    match faults.count() {
        0 => Ok(()),
        count => Err(PiecesError { faults: faults.first, count }),
    }
}

#[cfg(test)]
mod tests;
