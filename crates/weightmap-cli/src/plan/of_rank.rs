//! What one rank has of each tensor.

use std::ops::Range;

use anyhow::Result;
use serde::Serialize;
use weightmap::{Partition, PlannedPart, PlannedTensor, ShardedModel};

use super::RankRow;
use crate::finding::Finding;
use crate::render::{self, Align, bytes};

/// What is shown, and where it comes from.
pub(super) struct Source<'a> {
    pub(super) path: String,
    pub(super) model: &'a ShardedModel,
    pub(super) partition: &'a Partition,
    pub(super) row: RankRow,
    pub(super) warnings: Vec<Finding>,
}

/// What the JSON document of a rank holds.
#[derive(Debug, Serialize)]
struct Document<'a> {
    path: &'a str,
    rank: usize,
    world: usize,
    tensors: Vec<TensorRow<'a>>,
    bytes: u64,
    shards: u64,
    requests: u64,
    read_bytes: u64,
    over_read: Option<f64>,
    warnings: &'a [Finding],
}

#[derive(Debug, Serialize)]
struct TensorRow<'a> {
    name: &'a str,
    #[serde(flatten)]
    what: What<'a>,
    local_shape: &'a [u64],
    pad: Pad<'a>,
    bytes: u64,
}

/// What something consists of.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What<'a> {
    /// By dimension, the intervals of the tensor in the order in which they lie in the part.
    Intervals { intervals: Vec<Vec<[u64; 2]>> },
    /// Elements of a tensor that is cut as if it had one dimension.
    Flat { flat: [u64; 2] },
    /// Parts of other tensors.
    Parts { parts: Vec<PartRow<'a>> },
}

#[derive(Debug, Serialize)]
struct PartRow<'a> {
    tensor: &'a str,
    #[serde(flatten)]
    what: What<'a>,
}

/// The elements of padding: by dimension, or in all where there is but one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Pad<'a> {
    ByDim(&'a [u64]),
    Flat(u64),
}

/// Shows it: for people on a terminal, elsewhere as records with tabs and exact numbers, or as one JSON document.
pub(super) fn show(source: &Source<'_>, json: bool) -> Result<()> {
    let Source { path, model, partition, row, warnings } = source;
    let tensors: Vec<_> = partition.rank(row.rank).collect();
    let rows = tensors.iter().map(|tensor| TensorRow::of(tensor, model)).collect::<Result<Vec<_>>>()?;
    if json {
        return render::json(&Document {
            path,
            rank: row.rank,
            world: partition.world(),
            tensors: rows,
            bytes: row.forecast.bytes,
            shards: row.forecast.shards,
            requests: row.forecast.requests,
            read_bytes: row.forecast.read_bytes,
            over_read: row.over_read,
            warnings,
        });
    }
    let rows = || tensors.iter().zip(&rows);
    render::text(|page| {
        if !page.is_terminal() {
            return page.records(rows().map(|(tensor, row)| cells(tensor, row, |bytes| bytes.to_string())));
        }
        let align = [Align::Left, Align::Left, Align::Left, Align::Left, Align::Right, Align::Left];
        page.table(0, align, rows().map(|(tensor, row)| cells(tensor, row, bytes)))
    })
}

impl<'a> TensorRow<'a> {
    fn of(tensor: &'a PlannedTensor, model: &ShardedModel) -> Result<Self> {
        let PlannedTensor { name, local_shape, pad, bytes, parts, .. } = tensor;
        let what = match parts.as_slice() {
            [part] if part.tensor == *name => What::of(part, model)?,
            _ => What::Parts {
                parts: parts.iter().map(|part| PartRow::of(part, model)).collect::<Result<_>>()?,
            },
        };
        let pad = match (&what, pad.as_slice()) {
            (What::Flat { .. }, &[pad]) => Pad::Flat(pad),
            (_, pad) => Pad::ByDim(pad),
        };
        Ok(Self { name, what, local_shape, pad, bytes: *bytes })
    }
}

impl<'a> PartRow<'a> {
    fn of(part: &'a PlannedPart, model: &ShardedModel) -> Result<Self> {
        Ok(Self { tensor: &part.tensor, what: What::of(part, model)? })
    }
}

impl What<'_> {
    fn of(part: &PlannedPart, model: &ShardedModel) -> Result<Self> {
        let pair = |range: &Range<u64>| [range.start, range.end];
        if !part.is_flat {
            let dim = |ranges: &Vec<Range<u64>>| ranges.iter().map(pair).collect();
            return Ok(Self::Intervals { intervals: part.intervals.iter().map(dim).collect() });
        }
        let flat = match part.intervals.iter().flatten().next() {
            Some(range) => pair(range),
            // Nothing is left: it is the end of the tensor.
            None => {
                [model.tensor(&part.tensor)?.shape.iter().fold(1, |all: u64, len| all.saturating_mul(*len));
                    2]
            }
        };
        Ok(Self::Flat { flat })
    }

    /// As `--slice` takes it.
    fn text(&self) -> String {
        let range = |[start, end]: &[u64; 2]| format!("{start}:{end}");
        match self {
            Self::Intervals { intervals } => {
                let dim = |ranges: &Vec<[u64; 2]>| match ranges.as_slice() {
                    [] => "0:0".to_owned(),
                    ranges => ranges.iter().map(range).collect::<Vec<_>>().join("+"),
                };
                format!("[{}]", intervals.iter().map(dim).collect::<Vec<_>>().join(","))
            }
            Self::Flat { flat } => format!("flat {}", range(flat)),
            Self::Parts { parts } => {
                let part = |part: &PartRow<'_>| {
                    let gap = if matches!(part.what, What::Flat { .. }) { " " } else { "" };
                    format!("{}{gap}{}", part.tensor, part.what.text())
                };
                parts.iter().map(part).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Name, type, local shape, padding, bytes, and what it consists of.
fn cells(tensor: &PlannedTensor, row: &TensorRow<'_>, bytes: fn(u64) -> String) -> [String; 6] {
    let is_padded = tensor.pad.iter().any(|&pad| pad > 0);
    let pad = if is_padded { format!("pad {:?}", tensor.pad) } else { "–".to_owned() };
    let shape = format!("{:?}", tensor.local_shape);
    [tensor.name.clone(), tensor.dtype.to_string(), shape, pad, bytes(tensor.bytes), row.what.text()]
}
