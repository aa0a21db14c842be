//! Where the elements of a fragment go.

use std::ops::Range;

use super::Stretch;

/// Where the elements of a fragment go in an assembly: a copy of runs of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gather {
    /// Outermost first; of the last, neighbours lie side by side both here and there.
    dims: Vec<Dim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Dim {
    /// Bytes from one index to the next in the fragment.
    local_stride: u64,
    /// And in the assembly.
    stride: u64,
    /// What goes where, in indices of the fragment and of the assembly.
    moves: Vec<Move>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    local: u64,
    at: u64,
    len: u64,
}

impl Gather {
    /// Of stretches by dimension, whose indices the fragment has in rising order, into an assembly of this shape. `None`
    /// where runs would not be of whole bytes.
    pub(super) fn new(
        stretches: &[Vec<Stretch>],
        rising: &[Vec<Range<u64>>],
        shape: &[u64],
        bits: u64,
    ) -> Option<Self> {
        let mut dims = Vec::new();
        let (mut local_stride, mut stride) = (bits, bits);
        for ((stretches, rising), &len) in stretches.iter().zip(rising).zip(shape).rev() {
            let moves = moves(stretches, rising);
            let local_len = moves.iter().map(|one| one.len).fold(0, u64::saturating_add);
            // What all of the assembly's dimension lies in as it does here needs no dimension of its own.
            let is_all =
                dims.is_empty() && local_stride == stride && moves == [Move { local: 0, at: 0, len }];
            if !is_all {
                dims.push(Dim { local_stride, stride, moves });
            }
            local_stride = local_stride.checked_mul(local_len)?;
            stride = stride.checked_mul(len)?;
        }
        if dims.is_empty() {
            dims.push(Dim { local_stride, stride, moves: vec![Move { local: 0, at: 0, len: 1 }] });
        }
        dims.reverse();
        let in_bytes = |dim: Dim| {
            let is_whole = dim.stride.is_multiple_of(8) && dim.local_stride.is_multiple_of(8);
            is_whole.then_some(Dim { local_stride: dim.local_stride / 8, stride: dim.stride / 8, ..dim })
        };
        // Of elements narrower than a byte, the last dimension has to be cut at bytes.
        if !bits.is_multiple_of(8)
            && let Some(last) = dims.last_mut()
        {
            *last = last.by_bytes()?;
        }
        Some(Self { dims: dims.into_iter().map(in_bytes).collect::<Option<_>>()? })
    }

    /// Copies a fragment's bytes to their places; tells how many. What lies beyond either end is left out.
    pub(crate) fn copy(&self, local: &[u8], assembly: &mut [u8]) -> u64 {
        copy(&self.dims, 0, 0, local, assembly)
    }
}

impl Dim {
    /// The same with 8 times as long an index, if everything is a multiple of that.
    fn by_bytes(&self) -> Option<Self> {
        let scale = 8 / gcd(self.stride, 8);
        let scaled = |one: &Move| {
            let is_whole = [one.local, one.at, one.len].iter().all(|number| number % scale == 0);
            is_whole.then(|| Move { local: one.local / scale, at: one.at / scale, len: one.len / scale })
        };
        let moves = self.moves.iter().map(scaled).collect::<Option<_>>()?;
        Some(Self { local_stride: self.local_stride * scale, stride: self.stride * scale, moves })
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

fn copy(dims: &[Dim], local_base: u64, base: u64, local: &[u8], assembly: &mut [u8]) -> u64 {
    let Some((dim, inner)) = dims.split_first() else { return 0 };
    let mut copied = 0;
    for Move { local: from, at, len } in &dim.moves {
        let (from, at) = (local_base + from * dim.local_stride, base + at * dim.stride);
        if inner.is_empty() {
            copied += copy_run(local, from, assembly, at, len * dim.stride);
        } else {
            for index in 0..*len {
                let (from, at) = (from + index * dim.local_stride, at + index * dim.stride);
                copied += copy(inner, from, at, local, assembly);
            }
        }
    }
    copied
}

fn copy_run(local: &[u8], from: u64, assembly: &mut [u8], at: u64, bytes: u64) -> u64 {
    let range = |start: u64| Some(usize::try_from(start).ok()?..usize::try_from(start + bytes).ok()?);
    let run = range(from).and_then(|range| local.get(range));
    let place = range(at).and_then(|range| assembly.get_mut(range));
    match (run, place) {
        (Some(run), Some(place)) => {
            place.copy_from_slice(run);
            bytes
        }
        _ => 0,
    }
}

/// Where each stretch goes, of indices that lie in rising order in the fragment; those that stay neighbours are one.
fn moves(stretches: &[Stretch], rising: &[Range<u64>]) -> Vec<Move> {
    let mut starts = Vec::with_capacity(rising.len());
    let mut rank = 0_u64;
    for range in rising {
        starts.push(rank);
        rank = rank.saturating_add(range.end - range.start);
    }
    let mut moves: Vec<Move> = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        let place = rising.partition_point(|range| range.start < stretch.from);
        let local = starts.get(place).copied().unwrap_or(0);
        match moves.last_mut() {
            Some(last) if last.local + last.len == local && last.at + last.len == stretch.at => {
                last.len += stretch.len;
            }
            _ => moves.push(Move { local, at: stretch.at, len: stretch.len }),
        }
    }
    moves
}
