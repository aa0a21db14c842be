//! One load, from touching its shards to its report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::LoadOptions;
use super::budget::{Budget, Keeps};
use super::gathering::Gatherings;
use super::outputs::Outputs;
use super::part::{Chosen, Part, Terms, Touched, Wanted};
use super::queue::{lend, run_bytes, runs};
use super::reading::Reading;
use crate::digests::CHUNK_BYTES;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::meter::Meter;
use crate::read::Purpose;
use crate::recipe::{Making, Recipe, Source};
use crate::report::{Account, LoadReport, Stages, total};
use crate::select::Selection;
use crate::sys;
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;
use crate::threads::{available_cores, crew, each, most_workers};

/// One load. Whoever shares it can take what it delivers, and cancel it.
pub(crate) struct Job {
    selection: Selection,
    options: LoadOptions,
    purpose: Purpose,
    budget: Budget,
    pub(crate) meter: Meter,
    pub(crate) gate: Gate,
}

/// A load whose shards have been touched: what is wanted is known, and nothing of it read.
pub(crate) struct Prepared {
    touched: Vec<Touched>,
    /// By item.
    infos: Vec<Arc<TensorInfo>>,
    pub(crate) outputs: Outputs,
    start: Instant,
    /// Of the process before the load.
    opened_before: u64,
    device_before: Option<u64>,
    touch_seconds: f64,
}

impl Job {
    pub(crate) fn new(selection: &Selection, options: &LoadOptions, purpose: Purpose) -> Result<Self> {
        selection.check_not_empty()?;
        Ok(Self {
            selection: selection.clone(),
            options: options.clone(),
            purpose,
            budget: Budget::new(options.memory_limit),
            meter: Meter::new(options.progress.clone()),
            gate: Gate::new(u64::MAX),
        })
    }

    /// Runs all stages; hands over each tensor as it is done, with its place in the selection.
    pub(crate) fn run(
        &self,
        keeps: Keeps,
        deliver: impl Fn(usize, Tensor) + Sync + Send,
    ) -> Result<LoadReport> {
        let prepared = self.prepare()?;
        self.finish(prepared, keeps, None, deliver)
    }

    /// The first stage: touches the shards and finds out what is wanted of each.
    pub(crate) fn prepare(&self) -> Result<Prepared> {
        let _entered = self.span().entered();
        let pool = &self.selection.pool;
        let (start, opened_before, device_before) = (Instant::now(), pool.opened(), sys::device_bytes());
        let recipes = self.selection.recipes().collect::<Result<Vec<_>>>()?;
        let by_shard: Vec<_> = by_shard(&recipes).into_iter().collect();
        let workers = most_workers(self.options.workers.unwrap_or_else(available_cores));
        let touched = each(&by_shard, workers, |(number, items)| self.touch(*number, items))?;
        let infos = in_order(&touched);
        let outputs = Outputs::new(recipes, &infos, pool)?;
        self.meter.expect(total(infos.iter().map(|info| info.len_bytes())));
        let touch_seconds = start.elapsed().as_secs_f64();
        Ok(Prepared { touched, infos, outputs, start, opened_before, device_before, touch_seconds })
    }

    /// The other stages. `buffers` are the caller's memory, by place in the selection.
    pub(crate) fn finish(
        &self,
        prepared: Prepared,
        keeps: Keeps,
        buffers: Option<Vec<&mut [u8]>>,
        deliver: impl Fn(usize, Tensor) + Sync,
    ) -> Result<LoadReport> {
        let _entered = self.span().entered();
        let pool = &self.selection.pool;
        let Prepared { touched, infos, outputs, start, opened_before, device_before, touch_seconds } =
            prepared;
        let planning = Instant::now();
        let terms = Terms {
            mode: self.options.mode,
            purpose: self.purpose,
            keeps_all: keeps == Keeps::All,
            drops_behind: self.options.drop_behind,
            is_shared: self.selection.is_shared,
            chunk_bytes: if self.options.inspection.is_empty() { 0 } else { CHUNK_BYTES },
            load_bytes: total(infos.iter().map(|info| info.len_bytes())),
            allowed_bytes: self.budget.bytes(),
        };
        let chosen: Vec<_> = touched.into_iter().map(|touched| touched.choose(&terms, pool)).collect();
        // What cannot be held is not planned either, which would take its time.
        let (workers, ahead) = self.share(keeps, &chosen, &infos, &outputs)?;
        self.gate.limit(ahead);
        let parts = chosen.into_iter().map(|chosen| chosen.plan(&outputs, keeps, &terms));
        let mut parts: Vec<_> = parts.collect();
        let mut runs = runs(&mut parts, &infos, &outputs, keeps, run_bytes(terms.load_bytes, workers));
        let (by_item, by_output) = outputs.lend(buffers.unwrap_or_default(), &infos);
        lend(&mut runs, by_item);
        let gatherings = Gatherings::new(&outputs, by_output);
        let plan_seconds = planning.elapsed().as_secs_f64();

        let reading = Instant::now();
        let workers = workers.min(runs.len());
        let stage = Reading::new(
            (pool, &self.meter, &self.gate, &self.options.inspection),
            &infos,
            &outputs,
            runs,
            gatherings,
            deliver,
        );
        stage.deliver_unread(self.purpose)?;
        let worker_rows = crew(workers, |number| stage.work(number));
        parts.iter().for_each(Part::settle);
        stage.finish()?;
        let read_seconds = reading.elapsed().as_secs_f64();
        let shards = each(&parts, workers, |part| part.verify(pool))?;
        let file_bytes = pool.file_bytes();
        let total_seconds = start.elapsed().as_secs_f64();
        Ok(LoadReport::new(Account {
            mode_asked: self.options.mode,
            stages: Stages {
                open_seconds: pool.open_seconds,
                touch_seconds,
                plan_seconds,
                read_seconds,
                verify_seconds: reading.elapsed().as_secs_f64() - read_seconds,
                total_seconds,
            },
            shards,
            workers: worker_rows,
            disk_bytes: sys::device_bytes()
                .zip(device_before)
                .map(|(after, before)| after.saturating_sub(before)),
            file_bytes,
            warnings: parts.iter().flat_map(|part| part.shard.warnings()).collect(),
            tensors: outputs.iter().len() as u64,
            shards_opened: pool.opened().saturating_sub(opened_before),
            copied_bytes: self.meter.copied_bytes(),
            mapped_bytes: self.meter.mapped_bytes(),
            verified_bytes: self.meter.verified_bytes(),
            peak_buffer_bytes: self.meter.peak_bytes(),
        }))
    }

    /// Gives up: what is being read is finished, nothing more is begun.
    pub(crate) fn cancel(&self) {
        self.meter.cancel();
        self.gate.close();
    }

    fn span(&self) -> tracing::Span {
        tracing::debug_span!("load", tensors = self.selection.len(), mode = %self.options.mode)
    }

    /// Touches a shard and finds out what is wanted of it, while its descriptor is at hand.
    fn touch(&self, number: u32, items: &[(usize, &Source, bool)]) -> Result<Touched> {
        self.meter.check_not_cancelled()?;
        let pool = &self.selection.pool;
        let first = items.first().and_then(|(_, source, _)| pool.index.name(source.tensor));
        let about = |error: Error| error.about(first.unwrap_or_default());
        let (shard, is_first_touch) = pool.touch(number).map_err(about)?;
        let file = pool.file(&shard).map_err(about)?;
        let wanted = |&(item, source, is_alone): &(usize, &Source, bool)| {
            let info = Arc::new(source.info_in(pool, &shard)?);
            Ok(Wanted { item, info, is_alone })
        };
        let items = items.iter().map(wanted).collect::<Result<Vec<_>>>()?;
        let inspection = &self.options.inspection;
        if !inspection.is_empty() {
            inspection.begin(&shard, &items.iter().map(|wanted| &*wanted.info.name).collect::<Vec<_>>())?;
        }
        Ok(Touched::new(shard, &file, is_first_touch, items))
    }

    /// How many workers read, as many as were asked for or as the storages reward; and how far they may run ahead.
    fn share(
        &self,
        keeps: Keeps,
        chosen: &[Chosen],
        infos: &[Arc<TensorInfo>],
        outputs: &Outputs,
    ) -> Result<(usize, u64)> {
        let rewarded = || chosen.iter().map(|chosen| chosen.workers(available_cores())).max();
        let most = most_workers(self.options.workers.or_else(rewarded).unwrap_or(1));
        let inspected_bytes = if self.options.inspection.is_empty() { 0 } else { CHUNK_BYTES };
        let worker_bytes = chosen.iter().map(Chosen::worker_bytes).max().unwrap_or(0) + inspected_bytes;
        let alone = chosen.iter().flat_map(Chosen::owned).map(|info| (info, info.len_bytes()));
        let made = outputs.iter().filter(|output| self.purpose == Purpose::Tensors && !output.is_alone());
        let owned = alone.chain(made.map(|output| (&*output.info, output.needed_bytes(infos))));
        // Those that are put together by a copy are so one after the other, as many at once as there are workers.
        let copied = outputs.iter().map(|output| output.copied_bytes(infos));
        let copied = copied.filter(|&bytes| bytes > 0 && self.purpose != Purpose::Cache);
        let copied_bytes = total(copied.clone()).min(copied.max().unwrap_or(0).saturating_mul(most as u64));
        self.budget.share(keeps, most, worker_bytes, &owned, copied_bytes, &self.selection.pool.directory)
    }
}

/// What has to be read of each shard, with the numbers of the items, and whether each is alone.
fn by_shard(recipes: &[Recipe]) -> BTreeMap<u32, Vec<(usize, &Source, bool)>> {
    let mut shards = BTreeMap::<u32, Vec<_>>::new();
    let sources = recipes.iter().flat_map(|recipe| {
        let is_alone = matches!(recipe.making, Making::Alone);
        recipe.sources.iter().map(move |source| (source, is_alone))
    });
    for (item, (source, is_alone)) in sources.enumerate() {
        shards.entry(source.shard).or_default().push((item, source, is_alone));
    }
    shards
}

/// What is known of each item.
fn in_order(touched: &[Touched]) -> Vec<Arc<TensorInfo>> {
    let mut items: Vec<_> = touched.iter().flat_map(|touched| &touched.items).collect();
    items.sort_unstable_by_key(|wanted| wanted.item);
    items.into_iter().map(|wanted| Arc::clone(&wanted.info)).collect()
}
