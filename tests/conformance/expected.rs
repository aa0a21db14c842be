//! What is asked for, and every way of getting it compared with the oracle.

use std::collections::BTreeMap;
use std::ops::Range;

use weightmap::{LoadOptions, ReadMode, Selection, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, OracleTensor};

use crate::support::open;

/// The ranges of each dimension that are wanted; dimensions that are not told are whole.
pub(super) type Dims = Vec<Vec<Range<u64>>>;

/// What every tensor in memory of its own has an address that is a multiple of.
const ALIGNMENT: usize = 64;

/// The tensors and slices that are asked for, in the order in which they are.
pub(super) struct Expected {
    pub(super) tensors: Vec<Wanted>,
}

/// One of them, and what the oracle says of it.
pub(super) struct Wanted {
    pub(super) name: String,
    dims: Option<Dims>,
    tensor: OracleTensor,
}

impl Expected {
    pub(super) fn new<'a>(oracle: &Oracle, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::slices(oracle, names.into_iter().map(|name| (name, None)))
    }

    /// Whole tensors and slices.
    pub(super) fn slices<'a>(
        oracle: &Oracle,
        wanted: impl IntoIterator<Item = (&'a str, Option<Dims>)>,
    ) -> Self {
        let wanted = wanted.into_iter().map(|(name, dims)| {
            let whole = oracle.tensor(name);
            let tensor = dims.as_ref().map(|dims| whole.slice(dims)).unwrap_or(whole);
            Wanted { name: name.to_owned(), dims, tensor }
        });
        Self { tensors: wanted.collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|wanted| wanted.tensor.bytes.len() as u64).sum()
    }

    pub(super) fn selection(&self, model: &ShardedModel) -> Selection {
        self.tensors.iter().fold(model.select().allow_empty(), |selection, Wanted { name, dims, .. }| {
            match dims {
                Some(dims) => selection.slice(name, dims.iter().map(Vec::as_slice)).unwrap(),
                None => selection.names([name]).unwrap(),
            }
        })
    }
}

/// Asserts that name, type, shape, shard, range and bytes are those of the oracle.
macro_rules! assert_same {
    ($found:expr, $wanted:expr) => {{
        let (found, Wanted { name, dims, tensor }) = ($found, $wanted);
        let info = found.info();
        assert_eq!((found.name(), info.name.as_str()), (name.as_str(), name.as_str()));
        assert_eq!(
            (found.dtype().name(), found.shape()),
            (tensor.dtype.as_str(), &*tensor.shape),
            "{name:?} {dims:?}"
        );
        assert_eq!(
            (info.shard.as_str(), &info.range, info.len_bytes()),
            (tensor.shard.as_str(), &tensor.range, tensor.bytes.len() as u64),
            "{name:?} {dims:?}"
        );
        assert_eq!(info.slice.is_some(), dims.is_some());
        assert!(found.bytes() == tensor.bytes, "{name:?} {dims:?} has other bytes");
    }};
}

/// A view is of a whole tensor.
pub(super) fn assert_views(model: &ShardedModel, expected: &Expected) {
    for wanted in expected.tensors.iter().filter(|wanted| wanted.dims.is_none()) {
        assert_same!(&model.view(&wanted.name).unwrap(), wanted);
    }
}

pub(super) fn assert_load(model: &ShardedModel, expected: &Expected, options: &LoadOptions) {
    let loaded = expected.selection(model).load_with(options).unwrap();
    assert_eq!(loaded.tensors().len(), expected.tensors.len());
    for (found, wanted) in loaded.tensors().iter().zip(&expected.tensors) {
        assert_same!(found, wanted);
        assert_aligned(found);
        assert!(std::ptr::eq(loaded.get(&wanted.name).unwrap(), found));
    }
    assert_eq!(loaded.report().requested_bytes, expected.bytes());
    assert_eq!(loaded.report().tensors, expected.tensors.len() as u64);
}

pub(super) fn assert_stream(model: &ShardedModel, expected: &Expected, options: &LoadOptions) {
    let mut left: BTreeMap<&str, _> =
        expected.tensors.iter().map(|wanted| (wanted.name.as_str(), wanted)).collect();
    let mut stream = expected.selection(model).stream_with(options).unwrap();
    for found in stream.by_ref() {
        let found = found.unwrap();
        assert_same!(&found, left.remove(found.name()).expect("asked for, and not given before"));
        assert_aligned(&found);
    }
    assert!(left.is_empty(), "not given: {:?}", left.keys());
    assert_eq!(stream.report().unwrap().requested_bytes, expected.bytes());
}

/// Loads into memory at odd addresses, of which the bytes before it must stay as they are.
pub(super) fn assert_load_into(model: &ShardedModel, expected: &Expected, options: &LoadOptions) {
    const BEFORE: u8 = 0xa5;
    let memory = expected.tensors.iter().map(|wanted| vec![BEFORE; 1 + wanted.tensor.bytes.len()]);
    let mut memory: Vec<_> = memory.collect();
    let mut buffers = memory.iter_mut().zip(&expected.tensors);
    let report = expected.selection(model).load_into_with(options, |info| {
        let (buffer, wanted) = buffers.next().expect("it is asked for no more than was selected");
        assert_eq!(info.name, wanted.name, "it is asked for in the order of the selection");
        &mut buffer[1..]
    });
    assert_eq!(report.unwrap().requested_bytes, expected.bytes());
    for (buffer, Wanted { name, dims, tensor }) in memory.iter().zip(&expected.tensors) {
        assert!(buffer[0] == BEFORE && buffer[1..] == tensor.bytes, "{name:?} {dims:?} has other bytes");
    }
}

fn assert_aligned(tensor: &weightmap::Tensor) {
    let address = tensor.bytes().as_ptr().addr();
    assert!(tensor.is_mapped() || address.is_multiple_of(ALIGNMENT), "{} at {address:#x}", tensor.name());
}

/// Asserts that all ways of getting bytes agree with the oracle, in each mode.
pub(super) fn assert_all_ways(files: &std::path::Path, expected: &Expected, workers: &[usize]) {
    let shared = open(files);
    assert_views(&shared, expected);
    for &mode in ReadMode::ALL {
        for &workers in workers {
            let options = LoadOptions::default().mode(mode).workers(workers);
            assert_load(&shared, expected, &options);
            assert_load_into(&shared, expected, &options);
            assert_stream(&open(files), expected, &options);
        }
    }
}

/// Asserts that all ways of reading a whole checkpoint agree with the oracle.
pub(super) fn assert_conforms_with(checkpoint: &Checkpoint, workers: &[usize]) {
    let model = checkpoint.temp();
    let oracle = Oracle::open(&model);
    // Neither the order of the index nor that of the files.
    let (odd, even): (Vec<_>, Vec<_>) =
        oracle.names().into_iter().enumerate().partition(|(place, _)| place % 2 == 1);
    let expected =
        Expected::new(&oracle, odd.into_iter().chain(even.into_iter().rev()).map(|(_, name)| name));
    assert_eq!(open(&model).len(), expected.tensors.len());
    assert_all_ways(model.path(), &expected, workers);
}
