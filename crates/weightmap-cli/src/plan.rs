//! `weightmap plan`: what each rank of a job has of a checkpoint, and what loading it would cost.

mod of_rank;

use std::iter;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use weightmap::{Forecast, Partition, PlanFault, Rank, ShardedModel};

use crate::finding::Finding;
use crate::open::OpenArgs;
use crate::plan_args::PlanArgs;
use crate::render::{self, Align, bytes, count, percent};

/// Show what each rank has of a checkpoint by a plan, and what loading it would cost
///
/// Headers are read, and no data. Exit status: 0 the plan can be carried out, 1 it has faults, or it could not be looked
/// at.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_group("a_plan", |group| group.required(true)))]
pub struct Args {
    /// A directory, an index file, a safetensors file, or a folder of the hub's cache
    pub path: PathBuf,
    /// Which plan.
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Show what this rank has of each tensor, counted from 0
    #[arg(long, value_name = "R")]
    pub rank: Option<usize>,
    /// How the checkpoint is opened.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What the JSON document of all ranks holds.
#[derive(Debug, Serialize)]
struct Document {
    path: String,
    world: usize,
    /// Of all tensors of the checkpoint.
    tensor_bytes: u64,
    ranks: Vec<RankRow>,
    /// The largest part to the mean; `None` where no rank has any bytes.
    imbalance: Option<f64>,
    /// Bytes of the checkpoint's tensors that no rank has.
    dropped_bytes: u64,
    warnings: Vec<Finding>,
}

/// A rank, and what loading its part would cost.
#[derive(Debug, Serialize)]
struct RankRow {
    rank: usize,
    #[serde(flatten)]
    forecast: Forecast,
    /// The bytes read to those wanted; `None` where none are.
    over_read: Option<f64>,
}

/// What the JSON document of a plan holds that cannot be carried out.
#[derive(Debug, Serialize)]
struct Refused<'a> {
    error: String,
    faults: Vec<FaultRow<'a>>,
}

#[derive(Debug, Serialize)]
struct FaultRow<'a> {
    kind: &'a str,
    rule: Option<usize>,
    tensor: Option<&'a str>,
    more: u64,
    message: &'a str,
}

impl<'a> From<&'a PlanFault> for FaultRow<'a> {
    fn from(fault: &'a PlanFault) -> Self {
        let PlanFault { kind, rule, tensor, more, message, .. } = fault;
        Self { kind, rule: *rule, tensor: tensor.as_deref(), more: *more, message }
    }
}

/// Shows a row for each rank, or what one rank has of each tensor. It opens all shards and reads headers, no data. With
/// `--json` the faults of a plan are a document too.
///
/// # Errors
/// When the checkpoint cannot be opened, a shard is not sound, or the plan cannot be carried out.
pub fn run(args: &Args) -> Result<()> {
    let shown = show(args);
    if let (true, Some((heading, faults))) = (args.json, shown.as_ref().err().and_then(faults)) {
        render::json(&Refused { error: heading, faults: faults.iter().map(FaultRow::from).collect() })?;
    }
    shown
}

/// The faults of a plan, if it is these that an error tells, and a heading for them.
pub(crate) fn faults(error: &anyhow::Error) -> Option<(String, &[PlanFault])> {
    let weightmap::Error::Plan { path, fault } = error.downcast_ref()? else { return None };
    let of = path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display()));
    let faults = &fault.faults;
    Some((format!("{of}the plan has {}", count(faults.len() as u64, "fault")), faults))
}

fn show(args: &Args) -> Result<()> {
    let chosen = args.plan.read()?.context("no plan is given")?;
    let model = args.open.open(&args.path)?;
    let partition = model.divide(&chosen.of(&model)?)?;
    // A rank that there is not is told before anything is counted.
    let rank = args.rank.map(|rank| Rank::new(rank, partition.world())).transpose()?;
    let mut rows = ranks(&model, &partition)?;
    let warnings = model.warnings().iter().chain(partition.warnings()).map(Finding::from).collect();
    let path = args.path.to_string_lossy().into_owned();
    if let Some(rank) = rank {
        let row = (rank.rank() < rows.len()).then(|| rows.swap_remove(rank.rank()));
        let row = row.context("the rank was not counted")?;
        return of_rank::show(
            &of_rank::Source { path, model: &model, partition: &partition, row, warnings },
            args.json,
        );
    }
    let document = Document {
        path,
        world: partition.world(),
        tensor_bytes: partition.bytes(),
        imbalance: imbalance(&rows),
        ranks: rows,
        dropped_bytes: partition.dropped_bytes(),
        warnings,
    };
    if args.json { render::json(&document) } else { document.show() }
}

fn ranks(model: &ShardedModel, partition: &Partition) -> Result<Vec<RankRow>> {
    let row = |(rank, forecast): (usize, Forecast)| RankRow {
        rank,
        forecast,
        over_read: ratio(forecast.read_bytes, forecast.bytes),
    };
    Ok(model.forecast(partition)?.into_iter().enumerate().map(row).collect())
}

/// The largest part to the mean of all.
fn imbalance(rows: &[RankRow]) -> Option<f64> {
    let bytes = || rows.iter().map(|row| u128::from(row.forecast.bytes));
    let (largest, sum) = (bytes().max()?, bytes().sum::<u128>());
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    (sum > 0).then(|| largest as f64 * rows.len() as f64 / sum as f64)
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Document {
    fn show(&self) -> Result<()> {
        let heading = ["rank", "tensors", "bytes", "share", "shards", "requests", "over-read"];
        let rows = self.ranks.iter().map(|row| row.cells(self.tensor_bytes));
        let rows = iter::once(heading.map(str::to_owned)).chain(rows);
        render::text(|page| {
            page.table(0, [Align::Right; 7], rows)?;
            let imbalance = digits(self.imbalance);
            page.prose(&format!("\nimbalance  {imbalance}, the largest part to the mean"), 11)?;
            let (dropped, all) = (bytes(self.dropped_bytes), bytes(self.tensor_bytes));
            page.prose(&format!("dropped    {dropped} of {all} are in tensors that no rank has"), 11)?;
            self.warnings.iter().try_for_each(|warning| page.prose(&format!("warning {warning}"), 2))
        })
    }
}

impl RankRow {
    fn cells(&self, of: u64) -> [String; 7] {
        let Forecast { tensors, bytes: own, shards, requests, .. } = self.forecast;
        [
            self.rank.to_string(),
            tensors.to_string(),
            bytes(own),
            percent(own, of),
            shards.to_string(),
            requests.to_string(),
            digits(self.over_read),
        ]
    }
}

fn digits(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}"))
}
