//! What loading by a plan would cost.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::extent::affordable_gap;
use crate::intervals::Intervals;
use crate::plan::{Local, Partition, RankTotal};
use crate::pool::Pool;
use crate::read::REQUEST_BYTES;
use crate::region::Region;
use crate::report::total;
use crate::select::Selection;
use crate::storage::Storage;
use crate::threads::{available_cores, each, most_workers};

/// What a rank's load would cost, as far as headers tell: nothing of it depends on what is in the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Forecast {
    /// How many tensors, and outputs that are put together, the rank has; empty ones count too.
    pub tensors: u64,
    /// The bytes of them that are in the checkpoint: without padding.
    pub bytes: u64,
    /// How many shards hold some of these bytes.
    pub shards: u64,
    /// How many reads by position have these bytes from files of a local disk: neighbours that are no farther apart
    /// than what is cheaper to read than to leave out are read together, up to 8 MiB.
    pub requests: u64,
    /// The bytes of these reads: `bytes`, and the gaps that are read through.
    pub read_bytes: u64,
}

/// A tensor, where it begins.
#[derive(Debug, Clone, Copy)]
struct Place {
    shard: u32,
    start: u64,
    tensor: u32,
}

/// What is read of a tensor, in bytes from its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Extent {
    hull: Range<u64>,
    wanted_bytes: u64,
    read_bytes: u64,
    requests: u64,
}

/// What has been read so far, in the order of shards and files.
#[derive(Debug, Default)]
struct Reads {
    shards: u64,
    requests: u64,
    read_bytes: u64,
    last_shard: Option<u32>,
    /// Of that shard, what is still to be told to be read.
    extents: Vec<Extent>,
}

/// Of each rank of a partition.
pub(crate) fn forecast(pool: &Arc<Pool>, partition: &Partition) -> Result<Vec<Forecast>> {
    partition.check_model(&pool.token).map_err(|fault| Error::plan(Some(&pool.directory), fault))?;
    let totals: Vec<_> = partition.totals().enumerate().collect();
    let places = places(pool)?;
    each(&totals, most_workers(available_cores()), |&(rank, RankTotal { tensors, bytes, .. })| {
        let reads = match &places {
            Some(places) => Reads::of_rank(partition, rank, places),
            None => Reads::of_pieces(pool, partition, rank)?,
        };
        let Reads { shards, requests, read_bytes, .. } = reads;
        Ok(Forecast { tensors, bytes, shards, requests, read_bytes })
    })
}

/// All tensors, in the order in which they lie in the shards; `None` where some lie in pieces.
fn places(pool: &Pool) -> Result<Option<Vec<Place>>> {
    let mut places = Vec::with_capacity(pool.index.len());
    for (number, _) in (0..).zip(pool.index.shards()) {
        let shard = pool.shard(number)?;
        for tensor in pool.index.tensors_of(number) {
            if pool.pieces(tensor).is_some() {
                return Ok(None);
            }
            let entry = pool.index.name(tensor).and_then(|name| shard.header().get(name));
            places.extend(entry.map(|entry| Place { shard: number, start: entry.range.start, tensor }));
        }
    }
    places.sort_unstable_by_key(|place| (place.shard, place.start));
    Ok(Some(places))
}

impl Reads {
    /// Tensors of one class have the same extent, which is found once.
    fn of_rank(partition: &Partition, rank: usize, places: &[Place]) -> Self {
        let mut extents: Vec<Option<Extent>> = Vec::new();
        let mut class_of = vec![usize::MAX; places.len()];
        for (tensor, local) in partition.parts(rank) {
            let class = local.class() as usize;
            if extents.len() <= class {
                extents.resize(class + 1, None);
            }
            if let (Some(known), Some(of_tensor)) =
                (extents.get_mut(class), class_of.get_mut(tensor as usize))
            {
                *of_tensor = class;
                known.get_or_insert_with(|| Extent::of(&local));
            }
        }
        let mut reads = Self::default();
        for place in places {
            let class = class_of.get(place.tensor as usize).copied().unwrap_or(usize::MAX);
            if let Some(Some(extent)) = extents.get(class) {
                reads.add(place.shard, place.start, extent);
            }
        }
        reads.finish();
        reads
    }

    fn of_pieces(pool: &Arc<Pool>, partition: &Partition, rank: usize) -> Result<Self> {
        let mut extents = Vec::new();
        for recipe in Selection::new(Arc::clone(pool)).part(partition, rank)?.recipes() {
            for source in &recipe?.sources {
                let info = source.info_in(pool, &*pool.shard(source.shard)?)?;
                extents.push((source.shard, info.start, Extent::of_region(&info.region)));
            }
        }
        extents
            .sort_unstable_by_key(|(shard, start, extent)| (*shard, start.saturating_add(extent.hull.start)));
        let mut reads = Self::default();
        extents.iter().for_each(|(shard, start, extent)| reads.add(*shard, *start, extent));
        reads.finish();
        Ok(reads)
    }

    /// Reads what comes next.
    fn add(&mut self, shard: u32, start: u64, extent: &Extent) {
        if extent.read_bytes == 0 {
            return;
        }
        if self.last_shard != Some(shard) {
            self.finish();
            self.last_shard = Some(shard);
            self.shards += 1;
        }
        let hull = start.saturating_add(extent.hull.start)..start.saturating_add(extent.hull.end);
        self.extents.push(Extent { hull, ..*extent });
    }

    /// Counts what is read of the last shard: neighbours together, where that is cheaper and not much more.
    fn finish(&mut self) {
        let gaps = self.extents.windows(2).map(|pair| match pair {
            [one, next] => next.hull.start.saturating_sub(one.hull.end),
            _ => 0,
        });
        let wanted_bytes = total(self.extents.iter().map(|extent| extent.wanted_bytes));
        let gap_bytes = affordable_gap(gaps, wanted_bytes, GAP_BYTES, Storage::Local.gap_share());
        let mut open: Option<Range<u64>> = None;
        for Extent { hull, read_bytes, requests, .. } in self.extents.drain(..) {
            self.read_bytes = self.read_bytes.saturating_add(read_bytes);
            let is_small = requests == 1 && hull.end - hull.start <= REQUEST_BYTES;
            // Of tensors that overlap, as pieces of one can, each is read by itself.
            let joined = open.take().filter(|_| is_small).and_then(|open| {
                let gap = hull.start.checked_sub(open.end).filter(|gap| *gap <= gap_bytes)?;
                (hull.end - open.start <= REQUEST_BYTES).then_some((open.start..hull.end, gap))
            });
            match joined {
                Some((range, gap)) => {
                    self.read_bytes = self.read_bytes.saturating_add(gap);
                    open = Some(range);
                }
                None => {
                    self.requests = self.requests.saturating_add(requests);
                    open = is_small.then_some(hull);
                }
            }
        }
    }
}

/// What is read through on a local disk.
const GAP_BYTES: u64 = Storage::Local.gap_bytes();

/// So many rows are counted one by one.
const MOST_COUNTED: usize = 1 << 20;

impl Extent {
    fn of(local: &Local<'_>) -> Self {
        let dims: Vec<_> = local
            .loaded()
            .into_iter()
            .map(|mut ranges| {
                ranges.sort_unstable_by_key(|range| range.start);
                Intervals::from(ranges)
            })
            .collect();
        let bytes = local.tensor_bytes();
        let region = Region::slice(&dims, local.dtype(), &local.global_shape(), bytes);
        // What cannot be cut by bytes cannot be loaded either, which loading tells.
        region.map_or_else(|_| Self::default(), |region| Self::of_region(&region))
    }

    fn of_region(region: &Region) -> Self {
        let (hull, wanted_bytes) = (region.hull(), region.len_bytes());
        if region.is_contiguous() {
            let read_bytes = hull.end - hull.start;
            let requests = if read_bytes <= 2 * REQUEST_BYTES { 1 } else { read_bytes / REQUEST_BYTES };
            return Self { hull, wanted_bytes, read_bytes, requests };
        }
        let spans = region.spans(GAP_BYTES).take(MOST_COUNTED);
        let (requests, read_bytes, end) = spans.fold((0_u64, 0_u64, 0), |(count, bytes, _), span| {
            let length = span.end - span.start;
            (count + length.div_ceil(REQUEST_BYTES), bytes.saturating_add(length), span.end)
        });
        if requests < MOST_COUNTED as u64 {
            return Self { hull, wanted_bytes, read_bytes, requests };
        }
        // The rest repeats what was counted.
        let share = |number: u64| {
            let whole = u128::from(hull.end - hull.start);
            let counted = u128::from(end.saturating_sub(hull.start)).max(1);
            u64::try_from(u128::from(number) * whole / counted).unwrap_or(u64::MAX)
        };
        Self { read_bytes: share(read_bytes), requests: share(requests), hull, wanted_bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Dtype;
    use crate::extent::{Cost, Item, plan};

    fn rows(rows: Range<u64>, columns: Range<u64>, shape: [u64; 2]) -> Extent {
        let dims = [rows, columns].map(Intervals::from);
        Extent::of_region(&Region::slice(&dims, &Dtype::U8, &shape, shape[0] * shape[1]).unwrap())
    }

    #[test]
    fn rows_are_one_request_and_columns_one_for_each_row_that_lies_far_from_the_next() {
        assert_eq!(
            rows(2..4, 0..10, [8, 10]),
            Extent { hull: 20..40, wanted_bytes: 20, read_bytes: 20, requests: 1 }
        );
        let near = rows(0..8, 0..5, [8, 10]);
        assert_eq!((near.requests, near.read_bytes), (1, 75), "the gaps are read");
        let far = rows(0..8, 0..5, [8, 100_000]);
        assert_eq!((far.requests, far.read_bytes), (8, 40), "they are left out");
    }

    #[test]
    fn millions_of_rows_are_told_without_counting_each() {
        let rows = rows(0..1 << 40, 0..1, [1 << 40, 1 << 20]);
        let whole = 1 << 40;
        assert!([rows.requests, rows.read_bytes].iter().all(|told| told.abs_diff(whole) < whole >> 16));
    }

    proptest! {
        #[test]
        fn whole_tensors_are_in_as_many_requests_as_are_planned(
            tensors in vec((0_u64..40_000, prop_oneof![0_u64..9000, 0_u64..(40 << 20)]), 0..30),
        ) {
            let mut at = 0;
            let placed: Vec<_> = tensors.iter().map(|&(gap, bytes)| {
                at += gap + bytes;
                (at - bytes, Region::whole(&[bytes], bytes))
            }).collect();
            let mut reads = Reads::default();
            placed.iter().for_each(|(start, region)| reads.add(0, *start, &Extent::of_region(region)));
            reads.finish();
            let items = placed.iter().enumerate().map(|(item, (start, region))| Item { item, start: *start, region });
            let gap_share = Storage::Local.gap_share();
            let (gap_bytes, request_bytes) = (GAP_BYTES, REQUEST_BYTES);
            let cost = Cost { gap_bytes, gap_share, row_gap_bytes: REQUEST_BYTES, request_bytes, chunk_bytes: 0 };
            let requests = plan(items.collect(), &cost);
            prop_assert_eq!(reads.requests, requests.len() as u64);
            let bytes: u64 = requests.iter().map(|request| request.range.end - request.range.start).sum();
            prop_assert_eq!(reads.read_bytes, bytes);
        }
    }
}
