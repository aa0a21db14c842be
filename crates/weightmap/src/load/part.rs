//! What a load does with one shard.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::extent::{self, Item, Request, pages, union};
use crate::meter::Tally;
use crate::mode::ReadMode;
use crate::pool::Pool;
use crate::read::{Ahead, Direct, Facts, Purpose, Way, choose, huge};
use crate::report::{ShardRow, total};
use crate::shard::Shard;
use crate::storage::Storage;
use crate::sys;
use crate::tensor_info::TensorInfo;

/// Rows of a slice that are no farther apart count as one span of pages.
const ROW_GAP_BYTES: u64 = 64 << 10;

/// A shard that has been touched, and what is wanted of it.
pub(super) struct Touched {
    pub(super) shard: Arc<Shard>,
    pub(super) is_first_touch: bool,
    /// With their places in the selection.
    pub(super) tensors: Vec<(usize, Arc<TensorInfo>)>,
    storage: Storage,
    /// The pages that hold what is wanted, disjoint and in order.
    spans: Vec<Range<u64>>,
    resident: Option<u64>,
}

/// A shard of which it is known how it will be read.
pub(super) struct Chosen {
    touched: Touched,
    /// For what lies in one piece.
    way: Way,
    /// For what does not, of which there can be no view: as if the file could not be mapped.
    gathering: Way,
}

/// A shard whose reads are planned.
pub(super) struct Part {
    pub(super) shard: Arc<Shard>,
    row: ShardRow,
    pub(super) spans: Arc<[Range<u64>]>,
    /// In file order.
    pub(super) requests: Vec<(Way, Request)>,
    pub(super) tally: Arc<Tally>,
    /// Whether faults of the mapping were made to fetch huge pages.
    is_advised: bool,
}

/// What is the same for all shards of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) mode: ReadMode,
    pub(super) purpose: Purpose,
    /// Whether the load holds all of its tensors until it is done.
    pub(super) keeps_all: bool,
    pub(super) drops_behind: bool,
    pub(super) load_bytes: u64,
    pub(super) allowed_bytes: u64,
}

impl Touched {
    pub(super) fn new(
        shard: Arc<Shard>,
        file: &File,
        is_first_touch: bool,
        tensors: Vec<(usize, Arc<TensorInfo>)>,
    ) -> Self {
        let (page, file_bytes) = (sys::page_bytes(), shard.checked.identity.bytes);
        let ranges = tensors.iter().flat_map(|(_, info)| {
            // What lies between the rows of a slice is read with them more often than not.
            let spans = info.region.spans(ROW_GAP_BYTES);
            spans.map(|span| span.start.saturating_add(info.start)..span.end.saturating_add(info.start))
        });
        let spans = union(ranges.map(|range| pages(range, page, file_bytes)));
        let resident = resident(&shard, file, &spans);
        Self { storage: Storage::of(file), shard, is_first_touch, tensors, spans, resident }
    }

    /// Chooses how the shard is read.
    pub(super) fn choose(self, terms: &Terms, pool: &Pool) -> Chosen {
        let facts = self.facts(terms);
        let choose = |facts: Facts| {
            let way = choose(&facts);
            if way.mode == ReadMode::Direct && !Direct::is_possible(&self.shard, pool) {
                return choose(&Facts { can_be_direct: false, ..facts });
            }
            way
        };
        let way = choose(facts);
        let gathering = match terms.mode {
            _ if self.tensors.iter().all(|(_, info)| info.region.is_contiguous()) => way,
            ReadMode::Mapped => choose(Facts { asked: ReadMode::Buffered, ..facts }),
            _ => choose(Facts { can_be_mapped: false, ..facts }),
        };
        Chosen { touched: self, way, gathering }
    }

    fn facts(&self, terms: &Terms) -> Facts {
        let file_bytes = self.shard.checked.identity.bytes;
        Facts {
            asked: terms.mode,
            storage: self.storage,
            can_be_mapped: self.shard.map().is_ok(),
            can_be_direct: true,
            purpose: terms.purpose,
            keeps_all: terms.keeps_all,
            data_bytes: file_bytes.saturating_sub(self.shard.header().data_start()),
            wanted_bytes: self.requested_bytes(),
            huge_bytes: total(self.spans.iter().map(|span| length(&huge::inner(span)))),
            pages: self.pages(),
            resident: self.resident,
            load_bytes: terms.load_bytes,
            allowed_bytes: terms.allowed_bytes,
            drops_behind: terms.drops_behind,
        }
    }

    fn requested_bytes(&self) -> u64 {
        total(self.tensors.iter().map(|(_, info)| info.len_bytes()))
    }

    fn pages(&self) -> u64 {
        total(self.spans.iter().map(|span| length(span).div_ceil(sys::page_bytes())))
    }
}

impl Chosen {
    /// How many workers the storage rewards, on so many cores.
    pub(super) fn workers(&self, cores: usize) -> usize {
        self.ways().map(|way| way.workers(self.touched.storage, cores)).max().unwrap_or(1)
    }

    /// The memory that each worker has for itself.
    pub(super) fn worker_bytes(&self) -> u64 {
        self.ways().map(Way::worker_bytes).max().unwrap_or(0)
    }

    /// The tensors that need memory of their own.
    pub(super) fn owned(&self) -> impl Iterator<Item = &TensorInfo> + Clone {
        let infos = self.touched.tensors.iter().map(|(_, info)| &**info);
        infos.filter(|info| {
            let way = self.way_of(info);
            way.purpose == Purpose::Tensors && !way.needs_no_memory()
        })
    }

    /// Plans the requests.
    pub(super) fn plan(self, allowed_bytes: u64) -> Part {
        let filled = self.touched.tensors.iter().filter(|(_, info)| info.len_bytes() > 0);
        let (whole, apart): (Vec<_>, Vec<_>) = filled.partition(|(_, info)| self.way_of(info) == self.way);
        let plan = |tensors: &[&(usize, Arc<TensorInfo>)], way: Way| {
            let items = tensors.iter().map(|(item, info)| Item {
                item: *item,
                start: info.start,
                region: &info.region,
            });
            let requests = extent::plan(items.collect(), &way.cost(allowed_bytes));
            requests.into_iter().map(move |request| (way, request))
        };
        let mut requests: Vec<_> = plan(&whole, self.way).chain(plan(&apart, self.gathering)).collect();
        requests.sort_by_key(|(_, request)| request.range.start);
        let way = if whole.is_empty() && !apart.is_empty() { self.gathering } else { self.way };
        let touched = self.touched;
        let row = ShardRow {
            shard: touched.shard.name.clone(),
            tensors: touched.tensors.len() as u64,
            requested_bytes: touched.requested_bytes(),
            read_bytes: 0,
            requests: 0,
            is_first_touch: touched.is_first_touch,
            header_bytes: touched.shard.header().data_start(),
            extent_pages: touched.pages(),
            resident_before: touched.resident,
            resident_after: None,
            storage: touched.storage.name(),
            mode: way.mode,
            reason: way.reason,
        };
        let is_advised = self.way.ahead == Ahead::HugeFaults;
        let (shard, spans) = (touched.shard, touched.spans.into());
        Part { row, requests, shard, spans, tally: Arc::default(), is_advised }
    }

    fn ways(&self) -> impl Iterator<Item = Way> {
        [self.way, self.gathering].into_iter()
    }

    fn way_of(&self, info: &TensorInfo) -> Way {
        let is_gathered = self.way.mode == ReadMode::Mapped && !info.region.is_contiguous();
        if is_gathered { self.gathering } else { self.way }
    }
}

impl Part {
    /// Has faults of the shard's mapping read ahead as they do by default, whatever the load made of them.
    pub(super) fn settle(&self) {
        if self.is_advised
            && let Ok(map) = self.shard.map()
        {
            map.advise_usual_faults();
        }
    }

    /// Shows that the shard is still the file that was checked, now that all of its reads are done, and counts
    /// its pages again.
    pub(super) fn verify(&self, pool: &Pool) -> Result<ShardRow> {
        let file = pool.verified_file(&self.shard)?;
        let resident_after = resident(&self.shard, &file, &self.spans);
        let (read_bytes, requests) = self.tally.told();
        Ok(ShardRow { read_bytes, requests, resident_after, ..self.row.clone() })
    }
}

/// How many pages of the spans are in the page cache.
fn resident(shard: &Shard, file: &File, spans: &[Range<u64>]) -> Option<u64> {
    let map = shard.map().ok();
    let mapped = |span: &Range<u64>| map.and_then(|map| map.get(span.clone()));
    let residency = sys::Residency::of(file);
    spans.iter().map(|span| residency.pages(span.clone(), mapped(span))).sum()
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}
