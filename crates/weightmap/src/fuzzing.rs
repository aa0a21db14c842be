//! What fuzzing reaches of the library's inner parts. It is built with `--cfg fuzzing` alone, and is no part of what is
//! promised: `fuzz` compares each of these with a slower way to the same.

use std::ops::Range;

use crate::dtype::Dtype;
use crate::error::{Error, PiecesError, PlanError, SliceError};
use crate::extent::{self, Cost, Item};
use crate::glob;
use crate::header::Header;
use crate::intervals::Intervals;
use crate::pieces::{self, Offsets};
use crate::plan::{Partition, Plan, Tensor};
use crate::region;
use crate::shard_name::ShardName;

/// A pattern of names.
#[derive(Debug)]
pub struct Glob(glob::Glob);

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`Error::BadPattern`] where it is none.
    pub fn parse(pattern: &str) -> Result<Self, Error> {
        glob::Glob::parse(pattern).map(Self)
    }

    /// Whether the whole of `name` matches.
    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// The bytes of a tensor that are wanted.
#[derive(Debug)]
pub struct Region(region::Region);

impl Region {
    /// All bytes of a tensor.
    pub fn whole(shape: &[u64], len_bytes: u64) -> Self {
        Self(region::Region::whole(shape, len_bytes))
    }

    /// Those of a slice; shape and length are those of an accepted header.
    ///
    /// # Errors
    /// Where it does not fit the shape, or would part a byte.
    pub fn slice(
        dims: &[Intervals],
        dtype: &Dtype,
        shape: &[u64],
        len_bytes: u64,
    ) -> Result<Self, SliceError> {
        region::Region::slice(dims, dtype, shape, len_bytes).map(Self)
    }

    /// The length of each dimension of what is wanted.
    pub fn shape(&self) -> &[u64] {
        self.0.shape()
    }

    /// How many bytes are wanted.
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    /// From the first wanted byte to the last.
    pub fn hull(&self) -> Range<u64> {
        self.0.hull()
    }

    /// Whether all bytes of the hull are wanted.
    pub fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    /// How many wanted bytes there are before `offset`.
    pub fn rank(&self, offset: u64) -> u64 {
        self.0.rank(offset)
    }

    /// The wanted bytes within a window, as the fewest ranges.
    pub fn runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.0.runs(within)
    }

    /// The wanted bytes as ranges, with gaps of at most `max_gap` filled.
    pub fn spans(&self, max_gap: u64) -> impl Iterator<Item = Range<u64>> {
        self.0.spans(max_gap)
    }

    /// Copies the wanted ones of the bytes that begin at offset `at`, and gives how many these are.
    pub fn copy(&self, source: &[u8], at: u64, target: &mut [u8]) -> usize {
        self.0.copy(source, at, target)
    }
}

/// What a request costs: `gap_bytes`, `gap_share`, `row_gap_bytes`, `request_bytes` and `chunk_bytes` of the planner's `Cost`.
pub type Costs = [u64; 5];

/// A range of the file that is read at once, with its portions: the item's number, the range of the file, where its
/// wanted bytes belong among the item's, and whether all bytes are wanted.
pub type Request = (Range<u64>, Vec<(usize, Range<u64>, Range<u64>, bool)>);

/// The requests that read what is wanted of items, which come with where each tensor begins in the file.
pub fn requests(
    items: &[(u64, &Region)],
    [gap_bytes, gap_share, row_gap_bytes, request_bytes, chunk_bytes]: Costs,
) -> Vec<Request> {
    let cost = Cost { gap_bytes, gap_share, row_gap_bytes, request_bytes, chunk_bytes };
    let items = items.iter().enumerate();
    let items = items.map(|(item, &(start, region))| Item { item, start, region: &region.0 }).collect();
    let requests = extent::plan(items, &cost);
    let portion = |portion: extent::Portion| (portion.item, portion.source, portion.dest, portion.is_dense);
    requests
        .into_iter()
        .map(|request| (request.range, request.portions.into_iter().map(portion).collect()))
        .collect()
}

/// Divides tensors by a plan: of each the name, the type, the shape, the bytes and the number of its shard.
///
/// # Errors
/// All that is wrong with the plan for these tensors.
pub fn divide(plan: &Plan, tensors: &[(&str, Dtype, &[u64], u64, u32)]) -> Result<Partition, PlanError> {
    plan.divide(tensors.iter().map(|(name, dtype, shape, bytes, shard)| Tensor {
        name,
        dtype,
        shape,
        bytes: *bytes,
        shard: *shard,
    }))
}

/// What each part of a rank's tensors is: the number of its tensor, the shape in which that is cut, and by dimension
/// which indices lie where: the first, how many, and the place of the first.
pub type Part = (u32, Vec<u64>, Vec<Vec<(u64, u64, u64)>>);

/// A tensor or an output of a rank: its name, its shape, how much of it is padding, and its parts.
pub type Assembled = (String, Vec<u64>, Vec<u64>, Vec<Part>);

/// What a rank has, for loading it.
pub fn assemblies(partition: &Partition, rank: usize) -> Vec<Assembled> {
    let dim = |stretches: Vec<crate::assembly::Stretch>| {
        stretches.into_iter().map(|stretch| (stretch.from, stretch.len, stretch.at)).collect()
    };
    let part =
        |part: crate::assembly::Part| (part.tensor, part.shape, part.dims.into_iter().map(dim).collect());
    partition
        .assemblies(rank)
        .map(|of| (of.name, of.shape, of.pad, of.parts.into_iter().map(part).collect()))
        .collect()
}

/// A whole tensor: its name, its shard or that of its first piece, and, where it lies in several pieces, its shape, its
/// bytes, and of each piece the shard, the offsets and the shape.
pub type Gathered = (String, u32, Option<(Vec<u64>, u64, Vec<(u32, Vec<u64>, Vec<u64>)>)>);

/// The whole tensors of a distributed checkpoint's headers.
///
/// # Errors
/// All faults of all tensors.
pub fn gather(shards: &[(ShardName, Header)]) -> Result<Vec<Gathered>, PiecesError> {
    let offsets: Vec<_> = shards.iter().map(|(name, header)| Offsets::read(name, header)).collect();
    let members: Vec<_> =
        shards.iter().zip(&offsets).map(|((name, header), offsets)| (name, header, offsets)).collect();
    let gathered = pieces::gather(&members)?;
    let names = gathered.names.iter().map(str::to_owned);
    let wholes = gathered.pieces.into_iter().map(|pieces| {
        let pieces = pieces?;
        let of = pieces.pieces.into_iter().map(|piece| (piece.shard, piece.offsets, piece.shape)).collect();
        Some((pieces.shape, pieces.len_bytes, of))
    });
    Ok(names.zip(gathered.shard_of).zip(wholes).map(|((name, shard), whole)| (name, shard, whole)).collect())
}
