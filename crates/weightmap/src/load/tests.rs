use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

use super::*;
use crate::assembly::{Assembly, Part, Stretch};
use crate::dtype::Dtype;
use crate::mode::ReadMode;
use crate::model::ShardedModel;

/// Tensors of BF16 over three shards, some of them of many requests; `t0` to `t5`.
const SHAPES: [[u64; 2]; 6] = [[6, 10], [6, 10], [3, 10], [700, 2048], [700, 2048], [9000, 1024]];

fn checkpoint() -> TempModel {
    let shard = |numbers: &[usize]| {
        let add = |shard: ShardBuilder, &number: &usize| {
            shard.pattern(&format!("t{number}"), "BF16", &SHAPES[number])
        };
        numbers.iter().fold(ShardBuilder::new(), add)
    };
    let checkpoint = Checkpoint::new().shard("a.safetensors", shard(&[0, 3]));
    checkpoint.shard("b.safetensors", shard(&[4, 1])).shard("c.safetensors", shard(&[5, 2])).temp()
}

fn part(tensor: usize, rows: &[(Range<u64>, u64)], columns: &[(Range<u64>, u64)]) -> (usize, Part) {
    let stretches = |places: &[(Range<u64>, u64)]| {
        let stretch = |(from, at): &(Range<u64>, u64)| Stretch::some(from.start, from.end - from.start, *at);
        places.iter().filter_map(stretch).collect()
    };
    let dims = vec![stretches(rows), stretches(columns)];
    (tensor, Part { tensor: 0, shape: SHAPES[tensor].to_vec(), dims })
}

/// An assembly of this name, with the bytes that it should have.
fn assembly(
    model: &ShardedModel,
    oracle: &Oracle,
    name: &str,
    shape: [u64; 2],
    pad: [u64; 2],
    parts: Vec<(usize, Part)>,
) -> (Assembly, Vec<u8>) {
    let mut bytes = vec![0; usize::try_from(shape[0] * shape[1] * 2).unwrap()];
    let mut numbered = Vec::new();
    for (tensor, part) in parts {
        let name = format!("t{tensor}");
        let source = oracle.tensor(&name).bytes;
        for row in &part.dims[0] {
            for column in &part.dims[1] {
                for step in 0..row.len {
                    let from = ((row.from + step) * part.shape[1] + column.from) * 2;
                    let at = ((row.at + step) * shape[1] + column.at) * 2;
                    let range = |start: u64| {
                        usize::try_from(start).unwrap()..usize::try_from(start + column.len * 2).unwrap()
                    };
                    bytes[range(at)].copy_from_slice(&source[range(from)]);
                }
            }
        }
        numbered.push(Part { tensor: model.index().find(&name).unwrap(), ..part });
    }
    let (shape, pad) = (shape.to_vec(), pad.to_vec());
    (Assembly { name: name.to_owned(), dtype: Dtype::Bf16, shape, pad, parts: numbered }, bytes)
}

/// Assemblies of every form, small and long, that mix shards.
fn assemblies(model: &ShardedModel, oracle: &Oracle) -> Vec<(Assembly, Vec<u8>)> {
    let all = |len: u64| vec![(0..len, 0)];
    let assembly = |name: &str, shape, pad, parts| assembly(model, oracle, name, shape, pad, parts);
    vec![
        assembly("renamed", [6, 10], [0, 0], vec![part(0, &all(6), &all(10))]),
        assembly("slice", [3, 4], [0, 0], vec![part(0, &[(0..1, 0), (3..5, 1)], &[(2..6, 0)])]),
        assembly(
            "concat",
            [15, 10],
            [0, 0],
            vec![
                part(0, &all(6), &all(10)),
                part(1, &[(0..6, 6)], &all(10)),
                part(2, &[(0..3, 12)], &all(10)),
            ],
        ),
        assembly("padded", [5, 10], [2, 0], vec![part(2, &all(3), &all(10))]),
        assembly("padded rows", [3, 12], [0, 2], vec![part(2, &all(3), &all(10))]),
        assembly(
            "side by side",
            [6, 20],
            [0, 0],
            vec![part(0, &all(6), &all(10)), part(1, &all(6), &[(0..10, 10)])],
        ),
        assembly(
            "in turn",
            [6, 10],
            [0, 0],
            vec![
                part(0, &[(0..1, 0), (1..2, 2), (2..3, 4)], &all(10)),
                part(1, &[(3..4, 1), (4..5, 3), (0..1, 5)], &all(10)),
            ],
        ),
        assembly("before a part of nothing", [5, 10], [0, 0], vec![part(2, &all(3), &all(10))]),
        assembly("nothing", [0, 10], [0, 0], vec![part(0, &[], &all(10))]),
        assembly("all padding", [2, 10], [2, 0], vec![part(0, &[], &all(10))]),
        assembly(
            "long concat",
            [1400, 2048],
            [0, 0],
            vec![part(3, &all(700), &all(2048)), part(4, &[(0..700, 700)], &all(2048))],
        ),
        assembly(
            "long columns",
            [700, 2048],
            [0, 0],
            vec![part(3, &all(700), &[(0..1024, 1024)]), part(4, &all(700), &[(1024..2048, 0)])],
        ),
        assembly("of many requests", [9010, 1024], [10, 0], vec![part(5, &all(9000), &all(1024))]),
        assembly(
            "backwards",
            [9000, 1024],
            [0, 0],
            vec![part(5, &[(4000..9000, 0), (0..4000, 5000)], &all(1024))],
        ),
    ]
}

/// With some whole tensors between them.
fn selection(model: &ShardedModel, assemblies: &[(Assembly, Vec<u8>)]) -> Selection {
    let add = |selection: Selection, (assembly, _): &(Assembly, _)| selection.assembled(assembly.clone());
    let selection = assemblies.iter().take(4).fold(model.select().names(["t0", "t5"]).unwrap(), add);
    assemblies.iter().skip(4).fold(selection.names(["t1", "t3"]).unwrap(), add)
}

fn expected(oracle: &Oracle, assemblies: &[(Assembly, Vec<u8>)]) -> BTreeMap<String, Vec<u8>> {
    let whole = ["t0", "t5", "t1", "t3"].map(|name| (name.to_owned(), oracle.tensor(name).bytes));
    let made = assemblies.iter().map(|(assembly, bytes)| (assembly.name.clone(), bytes.clone()));
    made.chain(whole).collect()
}

fn found<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> BTreeMap<String, Vec<u8>> {
    tensors.into_iter().map(|tensor| (tensor.name().to_owned(), tensor.bytes().to_vec())).collect()
}

/// Compares without printing megabytes.
fn assert_same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>, how: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{how}");
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{how}: {name}");
    }
}

#[test]
fn every_way_of_loading_puts_the_same_together() {
    let files = checkpoint();
    let oracle = Oracle::open(files.path());
    for &mode in ReadMode::ALL {
        for workers in [1, 4] {
            let model = ShardedModel::open(files.path()).unwrap();
            let assemblies = assemblies(&model, &oracle);
            let (selection, expected) = (selection(&model, &assemblies), expected(&oracle, &assemblies));
            let options = LoadOptions::default().mode(mode).workers(workers);
            let how = |what: &str| format!("{what}, {mode}, {workers} workers");

            let loaded = selection.load_with(&options).unwrap();
            assert_same(&found(loaded.tensors()), &expected, &how("load"));
            let order: Vec<_> = loaded.tensors().iter().map(Tensor::name).collect();
            assert_eq!(order, selection.selected().collect::<Vec<_>>());
            let padding: u64 = 2 * (2 * 10 + 3 * 2 + 2 * 10 + 2 * 10 + 10 * 1024);
            let bytes: u64 = loaded.tensors().iter().map(|tensor| tensor.bytes().len() as u64).sum();
            assert_eq!(loaded.report().requested_bytes, bytes - padding, "padding is not requested");

            // Less than all, and little more than what the longest needs.
            let options = options.memory_limit(40 << 20);
            let tensors = selection.stream_with(&options).unwrap().map(Result::unwrap);
            let tensors = tensors.map(|tensor| (tensor.name().to_owned(), tensor.bytes().to_vec()));
            assert_same(&tensors.collect(), &expected, &how("stream"));
        }
    }
}

#[test]
fn the_callers_memory_gets_the_same_with_zeros_where_nothing_is() {
    let files = checkpoint();
    let oracle = Oracle::open(files.path());
    let model = ShardedModel::open(files.path()).unwrap();
    let assemblies = assemblies(&model, &oracle);
    let selection = selection(&model, &assemblies);
    let mut memory: Vec<_> = selection
        .infos()
        .unwrap()
        .iter()
        .map(|info| vec![7; usize::try_from(info.len_bytes()).unwrap()])
        .collect();
    let mut buffers = memory.iter_mut();
    selection.load_into(|_| buffers.next().unwrap()).unwrap();
    let names = selection.selected().map(str::to_owned);
    assert_same(&names.zip(memory).collect(), &expected(&oracle, &assemblies), "load_into");
}

#[test]
fn what_is_put_together_says_of_what() {
    let files = checkpoint();
    let oracle = Oracle::open(files.path());
    let model = ShardedModel::open(files.path()).unwrap();
    let selection = selection(&model, &assemblies(&model, &oracle));
    let infos = selection.infos().unwrap();
    let info = |name: &str| infos.iter().find(|info| info.name == name).unwrap();
    let concat = info("concat");
    assert_eq!((concat.shape.as_slice(), concat.len_bytes()), ([15, 10].as_slice(), 300));
    let parts: Vec<_> =
        concat.parts.iter().map(|part| (part.tensor.as_str(), part.shard.as_str(), part.bytes)).collect();
    assert_eq!(
        parts,
        [("t0", "a.safetensors", 120), ("t1", "b.safetensors", 120), ("t2", "c.safetensors", 60)]
    );
    assert_eq!(info("padded").pad, [2, 0]);
    assert_eq!(info("renamed").parts.iter().map(|part| part.tensor.as_str()).collect::<Vec<_>>(), ["t0"]);
    let loaded = selection.load().unwrap();
    let loaded: Vec<_> = loaded.tensors().iter().map(Tensor::info).collect();
    assert_eq!(loaded, infos.iter().collect::<Vec<_>>());
}

#[test]
fn nothing_is_put_together_in_the_page_cache() {
    let files = checkpoint();
    let oracle = Oracle::open(files.path());
    let model = ShardedModel::open(files.path()).unwrap();
    let selection = selection(&model, &assemblies(&model, &oracle));
    let report = selection.prefetch().unwrap();
    assert_eq!((report.copied_bytes, report.mapped_bytes), (0, 0));
    assert_eq!(report.requested_bytes, selection.load().unwrap().report().requested_bytes);
}

/// Tensors of three shards, of which outputs are put together in all ways, many more than fit in memory at once.
fn crowd() -> TempModel {
    let shard = |shard: u32| {
        (0..CROWD).fold(ShardBuilder::new(), |tensors, number| {
            tensors.pattern(&format!("{number}.{shard}"), "BF16", &[CROWD_ROWS[number % 4], 512])
        })
    };
    let add =
        |checkpoint: Checkpoint, number| checkpoint.shard(&format!("{number}.safetensors"), shard(number));
    (0..3).fold(Checkpoint::new(), add).temp()
}

/// From 16 to 500 KiB.
const CROWD_ROWS: [u64; 4] = [16, 200, 40, 500];

/// How many tensors each shard has.
const CROWD: usize = 40;

/// Of each number, the parts of all shards: one after the other, side by side, row by row in turn, or one of them whole.
fn crowded(model: &ShardedModel) -> Vec<Assembly> {
    let assembly = |number: usize| {
        let rows = CROWD_ROWS[number % 4];
        let part = |shard: u64, rows_at: Vec<Stretch>, column: u64| Part {
            tensor: model.index().find(&format!("{number}.{shard}")).unwrap(),
            shape: vec![rows, 512],
            dims: vec![rows_at, Stretch::some(0, 512, column).into_iter().collect()],
        };
        let all = |at: u64| Stretch::some(0, rows, at).into_iter().collect();
        let in_turn =
            |shard: u64| (0..rows).filter_map(|row| Stretch::some(row, 1, row * 3 + shard)).collect();
        let (shape, parts) = match number % 5 {
            0 => ([rows * 3, 512], (0..3).map(|shard| part(shard, all(shard * rows), 0)).collect()),
            1 => ([rows, 512 * 3], (0..3).map(|shard| part(shard, all(0), shard * 512)).collect()),
            2 => ([rows * 3, 512], (0..3).map(|shard| part(shard, in_turn(shard), 0)).collect()),
            3 => ([rows + 7, 512], vec![part(number as u64 % 3, all(0), 0)]),
            _ => ([rows, 512], vec![part(number as u64 % 3, all(0), 0)]),
        };
        let pad = vec![if number % 5 == 3 { 7 } else { 0 }, 0];
        Assembly { name: format!("out {number}"), dtype: Dtype::Bf16, shape: shape.to_vec(), pad, parts }
    };
    (0..CROWD).map(assembly).collect()
}

/// The name of a tensor and a digest of its bytes, which are too many to be kept.
fn digest(tensor: &Tensor) -> (String, u64) {
    let mut hasher = DefaultHasher::new();
    hasher.write(tensor.bytes());
    (tensor.name().to_owned(), hasher.finish())
}

#[test]
fn a_stream_of_many_outputs_in_little_memory_comes_to_its_end_while_the_last_two_are_kept() {
    let files = crowd();
    let expected = {
        let model = ShardedModel::open(files.path()).unwrap();
        let all = crowded(&model).into_iter().fold(model.select(), Selection::assembled);
        let loaded = all.load().unwrap();
        loaded.tensors().iter().map(digest).collect::<BTreeMap<_, _>>()
    };
    for &mode in ReadMode::ALL {
        for reversed in [false, true] {
            let model = ShardedModel::open(files.path()).unwrap();
            let mut outputs = crowded(&model);
            if reversed {
                outputs.reverse();
            }
            let selection = outputs.into_iter().fold(model.select(), Selection::assembled);
            let options = LoadOptions::default().mode(mode).workers(8);
            let limited = |bytes| selection.stream_with(&options.clone().memory_limit(bytes)).unwrap();
            let Some(Err(Error::MemoryLimit { needed_bytes, .. })) = limited(1).next() else {
                panic!("one byte is enough")
            };
            for limit in [needed_bytes, needed_bytes + (1 << 20), needed_bytes * 2, needed_bytes * 4] {
                let (sender, ended) = mpsc::channel();
                let stream = limited(limit);
                let consumer = thread::spawn(move || {
                    let mut kept = VecDeque::new();
                    let mut digests = BTreeMap::new();
                    for tensor in stream {
                        let tensor: Tensor = tensor.unwrap();
                        digests.extend([digest(&tensor)]);
                        kept.push_back(tensor);
                        kept.drain(..kept.len().saturating_sub(2));
                    }
                    sender.send(digests).unwrap();
                });
                let digests = ended.recv_timeout(Duration::from_secs(60));
                let digests = digests.unwrap_or_else(|_| panic!("{mode}, {limit} bytes: it blocks or fails"));
                assert_eq!(digests, expected, "{mode}, {limit} bytes");
                consumer.join().unwrap();
            }
        }
    }
}
