//! What a load does with one shard.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::budget::Keeps;
use super::outputs::Outputs;
use crate::error::Result;
use crate::extent::{self, Cost, Item, Request, length, pages, union};
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
    pub(super) items: Vec<Wanted>,
    storage: Storage,
    /// The pages that hold what is wanted, disjoint and in order.
    spans: Vec<Range<u64>>,
    resident: Option<u64>,
}

/// An item that is wanted of a shard.
pub(super) struct Wanted {
    pub(super) item: usize,
    pub(super) info: Arc<TensorInfo>,
    /// Whether it is an output as it lies in the file, so that it can lie in a mapping.
    pub(super) is_alone: bool,
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
    /// Whether other processes of the machine may want the same pages.
    pub(super) is_shared: bool,
    pub(super) load_bytes: u64,
    pub(super) allowed_bytes: u64,
    /// As in [`Cost`].
    pub(super) chunk_bytes: u64,
}

impl Touched {
    pub(super) fn new(shard: Arc<Shard>, file: &File, is_first_touch: bool, items: Vec<Wanted>) -> Self {
        let (page, file_bytes) = (sys::page_bytes(), shard.checked.identity.bytes);
        let ranges = items.iter().flat_map(|Wanted { info, .. }| {
            // What lies between the rows of a slice is read with them more often than not.
            let spans = info.region.spans(ROW_GAP_BYTES);
            spans.map(|span| span.start.saturating_add(info.start)..span.end.saturating_add(info.start))
        });
        let spans = union(ranges.map(|range| pages(range, page, file_bytes)));
        let resident = resident(&shard, file, &spans);
        Self { storage: Storage::of(file), shard, is_first_touch, items, spans, resident }
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
            _ if self.items.iter().all(Wanted::can_be_mapped) => way,
            ReadMode::Mapped => choose(Facts { asked: ReadMode::Buffered, ..facts }),
            _ => choose(Facts { can_be_mapped: false, ..facts }),
        };
        Chosen { touched: self, way, gathering }
    }

    fn facts(&self, terms: &Terms) -> Facts {
        Facts {
            asked: terms.mode,
            storage: self.storage,
            can_be_mapped: self.shard.map().is_ok(),
            can_be_direct: true,
            purpose: terms.purpose,
            keeps_all: terms.keeps_all,
            data_bytes: self.shard.header().data_bytes(),
            wanted_bytes: self.requested_bytes(),
            huge_bytes: total(self.spans.iter().map(|span| length(&huge::inner(span)))),
            pages: self.pages(),
            resident: self.resident,
            load_bytes: terms.load_bytes,
            allowed_bytes: terms.allowed_bytes,
            drops_behind: terms.drops_behind,
            is_shared: terms.is_shared,
        }
    }

    fn requested_bytes(&self) -> u64 {
        total(self.items.iter().map(|wanted| wanted.info.len_bytes()))
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

    /// The outputs, each one item of this shard, that need memory of their own.
    pub(super) fn owned(&self) -> impl Iterator<Item = &TensorInfo> + Clone {
        let alone = self.touched.items.iter().filter(|wanted| wanted.is_alone);
        let owned = alone.filter(|wanted| {
            let way = self.way_of(wanted);
            way.purpose == Purpose::Tensors && !way.needs_no_memory()
        });
        owned.map(|wanted| &*wanted.info)
    }

    /// Plans the requests. Those of items that are read apart have nothing of another output.
    pub(super) fn plan(self, outputs: &Outputs, keeps: Keeps, terms: &Terms) -> Part {
        let mut groups = BTreeMap::<_, Vec<&Wanted>>::new();
        for wanted in self.touched.items.iter().filter(|wanted| wanted.info.len_bytes() > 0) {
            let apart = outputs.is_apart(wanted.item, keeps).then(|| outputs.vessel(wanted.item).output);
            let is_shared = outputs.is_shared(wanted.item);
            groups.entry((apart, is_shared, self.way_of(wanted) == self.way)).or_default().push(wanted);
        }
        let mut requests = Vec::new();
        let starts: HashMap<_, _> =
            self.touched.items.iter().map(|wanted| (wanted.item, wanted.info.range.start)).collect();
        for ((.., is_usual), wanted) in &groups {
            let way = if *is_usual { self.way } else { self.gathering };
            let items = wanted.iter().map(|Wanted { item, info, .. }| Item {
                item: *item,
                start: info.start,
                region: &info.region,
            });
            let cost = way.cost(terms.allowed_bytes);
            // Chunks are looked at whole, so that rows are not worth reading apart within one.
            let row_gap_bytes = cost.row_gap_bytes.max(terms.chunk_bytes);
            let cost = Cost { chunk_bytes: terms.chunk_bytes, row_gap_bytes, ..cost };
            let planned = extent::plan(items.collect(), &cost);
            requests.extend(planned.into_iter().map(|request| (way, request)));
        }
        // An item that has several requests has them one after the other, whatever else wants of the same range, so that
        // who waits for memory to begin another holds none of them back.
        let start = |request: &Request| {
            let first = request.portions.first().and_then(|portion| starts.get(&portion.item));
            (
                first.copied().unwrap_or(request.range.start),
                request.portions.first().map(|portion| portion.item),
            )
        };
        requests.sort_by_key(|(_, request)| (start(request), request.range.start));
        let all_gathered = !groups.is_empty() && groups.keys().all(|(.., is_usual)| !is_usual);
        let way = if all_gathered { self.gathering } else { self.way };
        drop(groups);
        let touched = self.touched;
        let row = ShardRow {
            shard: touched.shard.name.clone(),
            tensors: touched.items.len() as u64,
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

    fn way_of(&self, wanted: &Wanted) -> Way {
        let is_gathered = self.way.mode == ReadMode::Mapped && !wanted.can_be_mapped();
        if is_gathered { self.gathering } else { self.way }
    }
}

impl Wanted {
    fn can_be_mapped(&self) -> bool {
        self.is_alone && self.info.region.is_contiguous()
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
