//! What a rank should have by a plan, put together element by element of whole tensors.

use std::collections::BTreeMap;
use std::ops::Range;

use weightmap::plan::OutputRule;
use weightmap::{
    Error, LoadOptions, LoadReport, Plan, PlannedPart, PlannedTensor, ReadMode, Selection, ShardedModel,
    Tensor, TensorInfo,
};
use weightmap_testkit::{Oracle, OracleTensor, byte_len, pattern};

/// The tensors of a model, whole, by name.
pub(crate) type Whole = BTreeMap<String, OracleTensor>;

/// All tensors that the oracle finds.
pub(crate) fn whole(oracle: &Oracle) -> Whole {
    oracle.names().into_iter().map(|name| (name.to_owned(), oracle.tensor(name))).collect()
}

/// A tensor whose content follows from its name.
pub(crate) fn patterned(name: &str, dtype: &str, shape: &[u64]) -> OracleTensor {
    let bytes = byte_len(dtype, shape);
    OracleTensor {
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        shard: String::new(),
        range: 0..bytes,
        bytes: pattern::bytes(name, length(bytes)),
    }
}

/// What a rank should have, under one name.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    /// Empty where nothing is padded.
    pub(crate) pad: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    /// By tensor, how many bytes of it are in it.
    parts: BTreeMap<String, u64>,
}

impl Wanted {
    /// A tensor, or a slice of it.
    pub(crate) fn slice(name: &str, whole: &OracleTensor, dims: &[Vec<Range<u64>>]) -> Self {
        let OracleTensor { dtype, shape, bytes, .. } = whole.slice(dims);
        let parts = (!bytes.is_empty()).then(|| (name.to_owned(), bytes.len() as u64)).into_iter().collect();
        Self { name: name.to_owned(), dtype, shape, pad: Vec::new(), bytes, parts }
    }

    /// How many of its bytes are in the checkpoint.
    pub(crate) fn requested_bytes(&self) -> u64 {
        self.parts.values().sum()
    }

    /// Asserts that this is told of it.
    pub(crate) fn assert_told(&self, info: &TensorInfo, case: &str) {
        let Self { name, dtype, shape, pad, .. } = self;
        assert_eq!(
            (&info.name, info.dtype.name(), &info.shape, &info.pad),
            (name, &**dtype, shape, pad),
            "{case}"
        );
        assert_eq!(info.len_bytes(), self.bytes.len() as u64, "{case}, {name}");
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        for part in info.parts.iter().filter(|part| part.bytes > 0) {
            *parts.entry(part.tensor.clone()).or_default() += part.bytes;
        }
        if !parts.is_empty() {
            assert_eq!(parts, self.parts, "{case}, {name}");
        }
    }

    /// Asserts that a tensor is it.
    pub(crate) fn assert_is(&self, tensor: &Tensor, case: &str) {
        self.assert_told(tensor.info(), case);
        assert!(tensor.bytes() == self.bytes, "{case}: {} has other bytes", self.name);
    }
}

/// What a rank has by a plan.
pub(crate) fn select(model: &ShardedModel, plan: &Plan, rank: usize) -> Selection {
    model.select().allow_empty().plan(plan, rank).expect("the plan suits the model")
}

/// What a rank should have, in the order of the model: the indices of each tensor are those of the partition, all else
/// is done here.
pub(crate) fn wanted(model: &ShardedModel, plan: &Plan, whole: &Whole, rank: usize) -> Vec<Wanted> {
    // Without outputs, the partition tells how each part is padded.
    let mut alone = plan.spec().clone();
    alone.outputs.clear();
    let alone = alone.build().expect("a plan");
    let alone = model.divide(&alone).expect("the plan suits the model");
    let alone: BTreeMap<_, _> = alone.rank(rank).map(|planned| (planned.name.clone(), planned)).collect();
    let local = |part: &PlannedPart| Block::local(&whole[&part.tensor], &alone[&part.tensor]);
    let put_together = |mut planned: PlannedTensor| {
        planned.parts = joined(&planned, &alone, whole);
        let blocks: Vec<_> = planned.parts.iter().map(&local).collect();
        let rule = plan.spec().outputs.iter().find(|rule| look(&rule.name) == look(&planned.name));
        let block = match rule {
            Some(rule) => Block::output(rule, &planned.parts, &blocks, whole),
            None => blocks.into_iter().next().expect("a part"),
        };
        assert_eq!(block.shape, planned.local_shape, "{}", planned.name);
        let parts =
            planned.parts.iter().map(|part| (part.tensor.clone(), Block::real(&whole[&part.tensor], part)));
        let is_padded = planned.pad.iter().any(|&pad| pad > 0);
        let wanted = Wanted {
            dtype: whole[&planned.parts[0].tensor].dtype.clone(),
            shape: block.shape,
            pad: if is_padded { planned.pad } else { Vec::new() },
            bytes: block.bytes,
            parts: parts
                .map(|(tensor, real)| (tensor, real.bytes.len() as u64))
                .filter(|(_, bytes)| *bytes > 0)
                .collect(),
            name: planned.name,
        };
        assert_eq!(wanted.requested_bytes(), planned.bytes, "{}", wanted.name);
        wanted
    };
    model.divide(plan).expect("the plan suits the model").rank(rank).map(put_together).collect()
}

/// The part of each tensor in a planned one, in the order of their first pieces; asserts that the pieces are all of it.
fn joined(
    planned: &PlannedTensor,
    alone: &BTreeMap<String, PlannedTensor>,
    whole: &Whole,
) -> Vec<PlannedPart> {
    let mut pieces: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut parts = Vec::new();
    for piece in &planned.parts {
        let known = pieces.entry(&piece.tensor).or_default();
        if parts.iter().all(|part: &PlannedPart| part.tensor != piece.tensor) {
            parts.push(alone[&piece.tensor].parts[0].clone());
        }
        known.extend(elements(&whole[&piece.tensor], piece));
    }
    for part in &parts {
        let mut expected = elements(&whole[&part.tensor], part);
        expected.sort_unstable();
        let found = pieces.get_mut(part.tensor.as_str()).expect("a piece");
        found.sort_unstable();
        assert_eq!(*found, expected, "{}", part.tensor);
    }
    parts
}

/// Asserts that a selection is what is wanted, in whichever way it is loaded.
pub(crate) fn assert_loads(selection: &Selection, wanted: &[Wanted], mode: ReadMode, case: &str) {
    let case = &format!("{case}, {mode}");
    let options = LoadOptions::default().mode(mode).workers(3);
    let assert_report = |report: &LoadReport| {
        let requested_bytes = wanted.iter().map(Wanted::requested_bytes).sum();
        assert_eq!(
            (report.tensors, report.requested_bytes),
            (wanted.len() as u64, requested_bytes),
            "{case}"
        );
    };
    let names: Vec<_> = wanted.iter().map(|wanted| wanted.name.as_str()).collect();
    assert_eq!(selection.selected().collect::<Vec<_>>(), names, "{case}");

    let loaded = selection.load_with(&options).unwrap();
    wanted.iter().zip(loaded.tensors()).for_each(|(wanted, tensor)| wanted.assert_is(tensor, case));
    assert_eq!(loaded.tensors().len(), wanted.len(), "{case}");
    assert_report(loaded.report());

    // With as little memory as it says that it needs.
    let limited = |bytes| selection.stream_with(&options.clone().memory_limit(bytes)).unwrap();
    let mut stream = limited(1);
    let few: Result<Vec<_>, _> = stream.by_ref().collect();
    let streamed = few.or_else(|error| match error {
        Error::MemoryLimit { needed_bytes, .. } => {
            stream = limited(needed_bytes);
            stream.by_ref().collect()
        }
        error => Err(error),
    });
    let streamed: BTreeMap<_, _> =
        streamed.unwrap().into_iter().map(|tensor| (tensor.name().to_owned(), tensor)).collect();
    wanted.iter().for_each(|wanted| wanted.assert_is(&streamed[&wanted.name], case));
    assert_eq!(streamed.len(), wanted.len(), "{case}");
    assert_report(stream.report().expect("a report after the end"));

    let infos = selection.infos().unwrap();
    let mut memory: Vec<_> = infos.iter().map(|info| vec![0xA5; length(info.len_bytes())]).collect();
    let mut buffers = memory.iter_mut();
    let report = selection.load_into_with(&options, |_| buffers.next().expect("a tensor")).unwrap();
    assert_report(&report);
    for ((wanted, info), bytes) in wanted.iter().zip(&infos).zip(&memory) {
        wanted.assert_told(info, case);
        assert!(*bytes == wanted.bytes, "{case}: {} has other bytes in the caller's memory", wanted.name);
    }
    assert_report(&selection.prefetch_with(&options).unwrap());
}

/// Asserts that each rank loads what it should, in every way.
pub(crate) fn assert_plan(model: &ShardedModel, plan: &Plan, whole: &Whole, case: &str) {
    for rank in 0..plan.world() {
        let wanted = wanted(model, plan, whole, rank);
        for &mode in ReadMode::ALL {
            assert_loads(&select(model, plan, rank), &wanted, mode, &format!("{case}, rank {rank}"));
        }
    }
}

/// A name without its numbers, be they told or left open.
fn look(name: &str) -> String {
    let is_open = |part: &str| part.starts_with('{') || part.parse::<u64>().is_ok();
    name.split('.').map(|part| if is_open(part) { "#" } else { part }).collect::<Vec<_>>().join(".")
}

/// Which elements of a tensor, counted through all of it, are in a part.
fn elements(whole: &OracleTensor, part: &PlannedPart) -> Vec<usize> {
    let all: u64 = whole.shape.iter().product();
    let shape = if part.is_flat { Vec::from([all]) } else { whole.shape.clone() };
    let numbers = part.intervals.iter().zip(shape).fold(vec![0], |outer: Vec<u64>, (dim, len)| {
        let within = |first: u64| dim.iter().cloned().flatten().map(move |index| first * len + index);
        outer.into_iter().flat_map(within).collect()
    });
    numbers.into_iter().map(length).collect()
}

/// For each element of a tensor, how many of some parts of it have it.
pub(crate) fn owners<'a>(whole: &OracleTensor, parts: impl IntoIterator<Item = &'a PlannedPart>) -> Vec<u64> {
    let all: u64 = whole.shape.iter().product();
    let mut owners = vec![0; length(all)];
    parts.into_iter().flat_map(|part| elements(whole, part)).for_each(|number| owners[number] += 1);
    owners
}

/// A tensor of a rank.
#[derive(Debug, Clone)]
struct Block {
    shape: Vec<u64>,
    bits: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// What of a tensor is planned for, without padding.
    fn real(whole: &OracleTensor, part: &PlannedPart) -> Self {
        let bits = byte_len(&whole.dtype, &[8]);
        let shape =
            if part.is_flat { Vec::from([whole.shape.iter().product()]) } else { whole.shape.clone() };
        let OracleTensor { shape, bytes, .. } =
            OracleTensor { shape, ..whole.clone() }.slice(&part.intervals);
        Self { shape, bits, bytes }
    }

    /// With padding.
    fn local(whole: &OracleTensor, planned: &PlannedTensor) -> Self {
        let real = Self::real(whole, &planned.parts[0]);
        planned.pad.iter().enumerate().fold(real, |block, (dim, &pad)| {
            let mut shape = block.shape.clone();
            shape[dim] = pad;
            let bytes = shape.iter().product::<u64>() * block.bits / 8;
            let zeros = Self { shape, bits: block.bits, bytes: vec![0; length(bytes)] };
            Self::joined(&[block, zeros], dim)
        })
    }

    fn output(rule: &OutputRule, parts: &[PlannedPart], blocks: &[Self], whole: &Whole) -> Self {
        let width = rule.from.len();
        let rows: Vec<_> = parts
            .chunks(width)
            .zip(blocks.chunks(width))
            .map(|(parts, blocks)| match (rule.concat, rule.groups) {
                (None, _) => blocks[0].clone(),
                (Some(dim), None) => Self::joined(blocks, dim_of(dim, &blocks[0])),
                (Some(dim), Some(groups)) => {
                    let dim = dim_of(dim, &blocks[0]);
                    let group = |part: &PlannedPart| whole[&part.tensor].shape[dim] / groups;
                    let local_groups = blocks[0].shape[dim] / group(&parts[0]);
                    let pieces: Vec<_> = (0..local_groups)
                        .flat_map(|number| {
                            parts.iter().zip(blocks).map(move |(part, block)| {
                                block.range(dim, number * group(part)..(number + 1) * group(part))
                            })
                        })
                        .collect();
                    Self::joined(&pieces, dim)
                }
            })
            .collect();
        if rule.stack.is_none() {
            return rows.into_iter().next().expect("a part");
        }
        let stacked = rows.iter().map(|row| Self { shape: [&[1], &*row.shape].concat(), ..row.clone() });
        Self::joined(&stacked.collect::<Vec<_>>(), 0)
    }

    /// One after the other along a dimension.
    fn joined(blocks: &[Self], dim: usize) -> Self {
        let mut shape = blocks[0].shape.clone();
        shape[dim] = blocks.iter().map(|block| block.shape[dim]).sum();
        let outer = shape[..dim].iter().product();
        let bytes =
            (0..outer).flat_map(|row| blocks.iter().flat_map(move |block| block.row(row, dim)).copied());
        Self { bits: blocks[0].bits, bytes: bytes.collect(), shape }
    }

    /// Some indices of a dimension.
    fn range(&self, dim: usize, range: Range<u64>) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = range.end - range.start;
        let outer: u64 = shape[..dim].iter().product();
        let inner = self.bytes.len() as u64 / outer.max(1) / self.shape[dim].max(1);
        let place = |index: u64| length(index * inner);
        let bytes =
            (0..outer).flat_map(|row| &self.row(row, dim)[place(range.start)..place(range.end)]).copied();
        Self { bits: self.bits, bytes: bytes.collect(), shape }
    }

    /// The bytes at one index of all dimensions before `dim` together.
    fn row(&self, row: u64, dim: usize) -> &[u8] {
        let bits = self.shape[dim..].iter().product::<u64>() * self.bits;
        assert!(bits.is_multiple_of(8), "a row of {:?} ends within a byte", self.shape);
        let place = |row: u64| length(row * bits / 8);
        &self.bytes[place(row)..place(row + 1)]
    }
}

fn dim_of(dim: i64, block: &Block) -> usize {
    let dims = i64::try_from(block.shape.len()).expect("a number of dimensions");
    usize::try_from(if dim < 0 { dim + dims } else { dim }).expect("a dimension")
}

fn length(number: u64) -> usize {
    usize::try_from(number).expect("a tensor that fits in memory")
}
