//! The part of a request that belongs to one tensor, and the memory for it.

use std::iter;
use std::ops::Range;

use crate::extent::Portion;
use crate::tensor_info::TensorInfo;

/// A portion of a request with the memory that its bytes go to.
pub(crate) struct Fill<'a> {
    pub(crate) info: &'a TensorInfo,
    pub(crate) portion: &'a Portion,
    /// As long as the portion has wanted bytes.
    pub(crate) target: &'a mut [u8],
}

impl Fill<'_> {
    /// Copies to their places what is wanted of the bytes that lie at an offset of the file; tells how many.
    pub(super) fn scatter(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        let common = overlap(&self.portion.source, &(offset..offset.saturating_add(bytes.len() as u64)));
        if common.is_empty() {
            return 0;
        }
        let (info, is_dense) = (self.info, self.portion.is_dense);
        let from = part(bytes, offset, &common);
        let target = self.target_of(&common);
        if is_dense {
            target.copy_from_slice(from);
        } else {
            info.region.copy(from, common.start - info.start, target);
        }
        target.len() as u64
    }

    /// Copies what is wanted of the bytes that lie at an offset of the file back to their places there.
    pub(crate) fn gather(&mut self, offset: u64, bytes: &mut [u8]) {
        let common = overlap(&self.portion.source, &(offset..offset.saturating_add(bytes.len() as u64)));
        let portion = Portion { source: common, ..self.portion.clone() };
        let info = self.info;
        for run in runs(info, &portion).filter(|run| !run.is_empty()) {
            let from = self.target_of(&run);
            if let Some(place) = bytes.get_mut(index(run.start - offset)..index(run.end - offset)) {
                place.copy_from_slice(from);
            }
        }
    }

    /// The memory for what is wanted of a range of the file that lies within the portion.
    pub(crate) fn target_of(&mut self, range: &Range<u64>) -> &mut [u8] {
        let place = self.place_of(range);
        self.target.get_mut(index(place.start)..index(place.end)).unwrap_or_default()
    }

    /// Whether every byte that a range of the file shares with the portion is wanted.
    pub(super) fn wants_all_of(&self, range: &Range<u64>) -> bool {
        let common = overlap(&self.portion.source, range);
        let place = self.place_of(&common);
        place.end - place.start == common.end - common.start
    }

    fn place_of(&self, range: &Range<u64>) -> Range<u64> {
        let Portion { source, dest, is_dense, .. } = self.portion;
        if *is_dense {
            return range.start - source.start..range.end - source.start;
        }
        let rank = |offset: u64| self.info.region.rank(offset - self.info.start) - dest.start;
        rank(range.start)..rank(range.end)
    }
}

/// The fills that share bytes with a range.
pub(super) fn touched<'a, 'b>(fills: &'a mut [Fill<'b>], range: &Range<u64>) -> &'a mut [Fill<'b>] {
    let first = fills.partition_point(|fill| fill.portion.source.end <= range.start);
    let end = fills.partition_point(|fill| fill.portion.source.start < range.end);
    fills.get_mut(first..end).unwrap_or_default()
}

/// The ranges of the file that hold what is wanted of a portion, each in one piece.
fn runs<'a>(info: &'a TensorInfo, portion: &'a Portion) -> impl Iterator<Item = Range<u64>> + 'a {
    let start = info.start;
    let Portion { source, is_dense, .. } = portion;
    let whole = is_dense.then(|| source.clone());
    let inside = source.start.saturating_sub(start)..source.end.saturating_sub(start);
    let apart = (!is_dense).then(|| info.region.runs(inside));
    whole.into_iter().chain(apart.into_iter().flatten().map(move |run| run.start + start..run.end + start))
}

/// What is read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) range: Range<u64>,
    /// How many of its bytes are wanted.
    pub(super) wanted_bytes: u64,
}

/// Which runs are read at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Join {
    /// The most bytes between two of them.
    pub(super) gap_bytes: u64,
    /// The most bytes of several.
    pub(super) most_bytes: u64,
    /// The most bytes among those of several that are not wanted.
    pub(super) waste_bytes: u64,
}

/// What is read at once to have all that is wanted of some portions.
pub(super) fn stretches<'a>(
    portions: impl Iterator<Item = (&'a TensorInfo, &'a Portion)>,
    join: Join,
) -> impl Iterator<Item = Stretch> {
    let Join { gap_bytes, most_bytes, waste_bytes } = join;
    let mut runs = portions.flat_map(|(info, portion)| runs(info, portion)).peekable();
    iter::from_fn(move || {
        let Range { start, mut end } = runs.next()?;
        let (mut wanted_bytes, mut wasted_bytes) = (end - start, 0);
        while let Some(next) = runs.next_if(|next| {
            let gap = next.start.saturating_sub(end);
            gap <= gap_bytes && next.end - start <= most_bytes && wasted_bytes + gap <= waste_bytes
        }) {
            wanted_bytes += next.end - next.start;
            wasted_bytes += next.start.saturating_sub(end);
            end = next.end;
        }
        Some(Stretch { range: start..end, wanted_bytes })
    })
}

/// What two ranges share; it ends before it begins where that is nothing.
pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// The bytes of a range of the file, of some that begin at `offset`; it lies within them.
fn part<'a>(bytes: &'a [u8], offset: u64, range: &Range<u64>) -> &'a [u8] {
    bytes.get(index(range.start - offset)..index(range.end - offset)).unwrap_or_default()
}

/// A distance within memory.
pub(super) fn index(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
