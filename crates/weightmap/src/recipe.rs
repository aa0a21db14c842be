//! What has to be read for a tensor that is wanted, and how it becomes that tensor.

use std::sync::Arc;

use crate::assembly::{Assembly, Form, Fragment, Gather, Part};
use crate::error::{Error, Result, SliceError};
use crate::intervals::Intervals;
use crate::pieces::{Piece, Pieces};
use crate::pool::Pool;
use crate::shard::Shard;
use crate::tensor_info::TensorInfo;

/// What has to be read for a tensor that is wanted, and how it becomes that tensor.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// What it is, if it is not one tensor or slice as it lies in its file, under its name.
    assembly: Option<Arc<Assembly>>,
    pub(crate) sources: Vec<Source>,
    pub(crate) making: Making,
}

/// What is read of one shard.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) shard: u32,
    pub(crate) tensor: u32,
    /// In which it is cut, if that is not the shape of the header.
    shape: Option<Vec<u64>>,
    /// Which indices; `None` for all.
    slice: Option<Arc<[Intervals]>>,
}

/// How sources become what is wanted.
#[derive(Debug, Clone)]
pub(crate) enum Making {
    /// It is the one source.
    Alone,
    /// Each source lies in one piece in it, at this offset in bytes; what is between them is zero.
    Joined(Vec<u64>),
    /// They are copied to their places once all are there; what is between these is zero.
    Gathered(Vec<Gather>),
}

impl Recipe {
    /// For a tensor of the index, or a slice of it.
    pub(crate) fn of_tensor(pool: &Pool, tensor: u32, slice: Option<&Arc<[Intervals]>>) -> Result<Self> {
        if let Some(pieces) = pool.pieces(tensor) {
            let name = pool.index.name(tensor).unwrap_or_default();
            let part =
                sliced(tensor, pieces, slice.map_or(&[], |slice| slice)).map_err(|fault| Error::Slice {
                    path: pool.directory.clone(),
                    tensor: name.to_owned(),
                    shape: pieces.shape.clone(),
                    fault: Box::new(fault),
                })?;
            let shape = part.dims.iter().map(|dim| dim.iter().map(|one| one.len).sum()).collect::<Vec<_>>();
            let (pad, dtype) = (vec![0; shape.len()], pieces.dtype.clone());
            return Self::of_assembly(
                pool,
                &Assembly { name: name.to_owned(), dtype, shape, pad, parts: vec![part] },
            );
        }
        let (shard, slice) = (pool.shard_of(tensor)?, slice.map(Arc::clone));
        Ok(Self::of_source(Source { shard, tensor, shape: None, slice }))
    }

    /// For what is read of one shard, as it is.
    pub(crate) fn of_source(source: Source) -> Self {
        Self { assembly: None, sources: vec![source], making: Making::Alone }
    }

    /// For something that is put together of tensors of the index.
    pub(crate) fn of_assembly(pool: &Pool, assembly: &Assembly) -> Result<Self> {
        let fault = |fault| Error::Slice {
            path: pool.directory.clone(),
            tensor: assembly.name.clone(),
            shape: assembly.shape.clone(),
            fault: Box::new(fault),
        };
        let mut shards = Vec::new();
        let mut parts = Vec::new();
        for part in &assembly.parts {
            match pool.pieces(part.tensor) {
                None => {
                    shards.push(pool.shard_of(part.tensor)?);
                    parts.push(part.clone());
                }
                Some(pieces) => {
                    for (shard, piece) in in_pieces(part, pieces).map_err(fault)? {
                        pool.check_present(shard)?;
                        shards.push(shard);
                        parts.push(piece);
                    }
                }
            }
        }
        if let (true, Some(first)) = (parts.is_empty(), assembly.parts.first()) {
            // Nothing is in no piece; it still is of some shard.
            shards.push(pool.shard_of(first.tensor)?);
            parts.push(first.clone());
        }
        let assembly = Assembly { parts, ..assembly.clone() };
        if assembly.len_bytes().is_none() && assembly.dtype.bits().is_some() {
            return Err(fault(SliceError::TooLong { dtype: assembly.dtype.clone(), len_bytes: u64::MAX }));
        }
        let source = |Fragment { part, dims }: Fragment| {
            let (part, shard) = assembly.parts.get(part).zip(shards.get(part))?;
            let slice: Arc<[_]> = dims.into_iter().map(Intervals::from).collect();
            let is_whole = part.dims.iter().zip(&part.shape).all(|(dim, &len)| match dim.as_slice() {
                [] => len == 0,
                [one] => one.source() == (0..len),
                _ => false,
            });
            let slice = (!is_whole).then_some(slice);
            Some(Source { shard: *shard, tensor: part.tensor, shape: Some(part.shape.clone()), slice })
        };
        let (sources, making) = match assembly.form().map_err(fault)? {
            Form::Alone(fragment) => (source(fragment).into_iter().collect(), Making::Alone),
            Form::Joined(fragments) => {
                let (fragments, offsets): (Vec<_>, _) = fragments.into_iter().unzip();
                (fragments.into_iter().filter_map(source).collect(), Making::Joined(offsets))
            }
            Form::Gathered(fragments) => {
                let (fragments, gathers): (Vec<_>, _) = fragments.into_iter().unzip();
                (fragments.into_iter().filter_map(source).collect(), Making::Gathered(gathers))
            }
        };
        Ok(Self { assembly: Some(Arc::new(assembly)), sources, making })
    }

    /// What the headers of the shards concerned tell of it; opens these.
    pub(crate) fn look_up(&self, pool: &Pool) -> Result<Arc<TensorInfo>> {
        let source = |source: &Source| Ok(Arc::new(source.info_in(pool, &*pool.shard(source.shard)?)?));
        self.info(pool, &self.sources.iter().map(source).collect::<Result<Vec<_>>>()?)
    }

    /// What is known of it, by what is known of its sources.
    pub(crate) fn info(&self, pool: &Pool, sources: &[Arc<TensorInfo>]) -> Result<Arc<TensorInfo>> {
        let info = match (&self.assembly, &self.making, sources) {
            (None, _, [source]) => return Ok(Arc::clone(source)),
            (Some(assembly), Making::Alone, [source]) => {
                let in_pieces = self.sources.iter().any(|source| pool.pieces(source.tensor).is_some());
                let is_renamed = source.name != assembly.name;
                match TensorInfo::clone(source).named(&assembly.name) {
                    info if in_pieces || is_renamed => info.made_of(source),
                    info => info,
                }
            }
            (Some(assembly), _, sources) => {
                let first = assembly.parts.first().map_or(u32::MAX, |part| part.tensor);
                let shard = pool.shard_name(pool.shard_of(first)?)?;
                TensorInfo::assembled(assembly, sources.iter().map(|source| &**source), shard)
            }
            (None, ..) => return Err(Error::Cancelled),
        };
        Ok(Arc::new(info))
    }
}

impl Source {
    /// What the header of its shard tells of it.
    pub(crate) fn info_in(&self, pool: &Pool, shard: &Shard) -> Result<TensorInfo> {
        let whole = pool.info_in(shard, self.tensor)?;
        let (name, shape) = (whole.name.clone(), whole.shape.clone());
        let info = match &self.shape {
            None => whole,
            Some(shape) => whole.reshaped(shape).ok_or_else(|| Error::ShardChanged {
                path: shard.path.clone(),
                differences: vec![format!("the shape of tensor {name} is not the one that was planned for")],
            })?,
        };
        let Some(slice) = &self.slice else { return Ok(info) };
        info.sliced(slice).map_err(|fault| Error::Slice {
            path: shard.path.clone(),
            tensor: name,
            shape,
            fault: Box::new(fault),
        })
    }
}

/// A slice of a tensor that lies in pieces.
fn sliced(tensor: u32, pieces: &Pieces, slice: &[Intervals]) -> Result<Part, SliceError> {
    if slice.len() > pieces.shape.len() {
        return Err(SliceError::TooManyDims { given: slice.len(), shape: pieces.shape.clone() });
    }
    let all = Intervals::from(..);
    let wanted = slice.iter().chain(std::iter::repeat(&all));
    let resolve = |((dim, &len), wanted): ((usize, &u64), &Intervals)| wanted.resolve(dim, len);
    let dims = pieces.shape.iter().enumerate().zip(wanted).map(resolve).collect::<Result<Vec<_>, _>>()?;
    Ok(Part::of(tensor, &pieces.shape, &dims))
}

/// A part of a tensor as parts of its pieces, with the shard of each.
fn in_pieces(part: &Part, pieces: &Pieces) -> Result<Vec<(u32, Part)>, SliceError> {
    let rank = pieces.shape.len();
    // One of a stack has a dimension before its own.
    let is_stacked = part.shape.len() == rank + 1 && part.shape.get(1..) == Some(&pieces.shape);
    let is_flat = part.shape != pieces.shape && !is_stacked;
    let inside = |piece: &Piece| {
        let found = if is_flat {
            let (start, len) = piece.elements(&pieces.shape)?;
            part.within(&[start], &[len])
        } else if is_stacked {
            let offsets = [&[0], piece.offsets.as_slice()].concat();
            part.within(&offsets, &[&[1], piece.shape.as_slice()].concat())
        } else {
            part.within(&piece.offsets, &piece.shape)
        };
        Ok(found.map(|part| (piece.shard, part)))
    };
    pieces.pieces.iter().map(inside).filter_map(Result::transpose).collect()
}
