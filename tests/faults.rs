//! Calls of the system that fail, come short or find a file changed, and things that are no files: what comes of them is the
//! right bytes or an error that says what to do, and never a signal, a hang or wrong bytes.
#![cfg(target_os = "linux")]

mod assembled;
mod calls;
mod fallbacks;
mod irregular;
mod leases;
mod outside;
mod storm;

use rustix::io::Errno;
use weightmap::{Error, Intervals, LoadOptions, ReadMode, Result, ShardedModel};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel, faults, pattern};

use crate::support::{FIRST, SECOND, alone, in_mode, is_alone, open, shard_of};

/// Bytes of `c`, which has memory of its own where it is not mapped.
const C_BYTES: u64 = 3 << 20;

/// Rows of `e`, each of 1200 bytes.
const E_ROWS: u64 = 200;

/// `a` in the first shard; in the second `c`, `e` and `d`.
fn checkpoint() -> Checkpoint {
    let second = ShardBuilder::new()
        .pattern("c", "U8", &[C_BYTES])
        .pattern("e", "F32", &[E_ROWS, 300])
        .pattern("d", "U8", &[3]);
    Checkpoint::new().shard(FIRST, shard_of("a")).shard(SECOND, second)
}

/// Runs a test's body in a process of its own that has preloaded the library of faults.
fn with_faults<F: FnOnce()>(body: F) {
    if is_alone() {
        return body();
    }
    let Some(library) = faults::library() else { return };
    alone(&format!("export {}='{}'", faults::PRELOAD, library.display()), body);
}

/// The ways to have tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Load,
    Stream,
    Into,
    Columns,
    Rows,
    Prefetch,
}

const WAYS: [Way; 6] = [Way::Load, Way::Stream, Way::Into, Way::Columns, Way::Rows, Way::Prefetch];

/// Which rows of `e` are wanted, or which bytes of each row.
const WANTED: std::ops::Range<u64> = 70..130;

impl Way {
    /// Goes this way; a success has the right bytes. What lies in a mapping is looked at only if nobody cuts the file.
    fn go(self, model: &ShardedModel, options: &LoadOptions, looks_at_mapped: bool) -> Result<()> {
        let all = model.select().all();
        let check = |name: &str, bytes: &[u8], is_mapped: bool| {
            assert!(is_mapped && !looks_at_mapped || bytes == expected(name, self), "{self:?} {name}");
        };
        match self {
            Self::Load | Self::Rows | Self::Columns => {
                let selection = match self {
                    Self::Rows => model.select().slice("e", [WANTED])?,
                    Self::Columns => {
                        model.select().slice("e", [(0..E_ROWS).into(), Intervals::from(WANTED)])?
                    }
                    _ => all,
                };
                for tensor in selection.load_with(options)?.tensors() {
                    check(tensor.name(), tensor.bytes(), tensor.is_mapped());
                }
            }
            Self::Stream => {
                for tensor in all.stream_with(options)? {
                    let tensor = tensor?;
                    check(tensor.name(), tensor.bytes(), tensor.is_mapped());
                }
            }
            Self::Into => {
                let mut memory =
                    vec![
                        0;
                        usize::try_from(all.infos()?.iter().map(|info| info.len_bytes()).sum::<u64>())
                            .unwrap()
                    ];
                let (mut rest, mut places) = (memory.as_mut_slice(), Vec::new());
                all.load_into_with(options, |info| {
                    let (place, later) =
                        std::mem::take(&mut rest).split_at_mut(usize::try_from(info.len_bytes()).unwrap());
                    rest = later;
                    places.push((info.name.clone(), place.len()));
                    place
                })?;
                let mut rest = memory.as_slice();
                for (name, bytes) in places {
                    let (place, later) = rest.split_at(bytes);
                    check(&name, place, false);
                    rest = later;
                }
            }
            Self::Prefetch => drop(all.prefetch_with(options)?),
        }
        Ok(())
    }
}

/// What a tensor of the model has, or the part of it that is wanted.
fn expected(name: &str, way: Way) -> Vec<u8> {
    const ROW: usize = 1200;
    let wanted = usize::try_from(WANTED.start).unwrap()..usize::try_from(WANTED.end).unwrap();
    let all = match name {
        "a" => pattern::bytes(name, 4),
        "c" => pattern::bytes(name, usize::try_from(C_BYTES).unwrap()),
        "d" => pattern::bytes(name, 3),
        _ => pattern::bytes(name, ROW * usize::try_from(E_ROWS).unwrap()),
    };
    match way {
        Way::Rows => all[wanted.start * ROW..wanted.end * ROW].to_vec(),
        Way::Columns => {
            all.chunks(ROW).flat_map(|row| row[wanted.start * 4..wanted.end * 4].to_vec()).collect()
        }
        _ => all,
    }
}

/// A model whose shards have been touched.
fn touched(files: &TempModel) -> ShardedModel {
    let model = open(files);
    for tensor in ["a", "c"] {
        model.tensor(tensor).unwrap();
    }
    model
}

/// Takes rings away, whose reads are no calls of the C library.
const NO_RING: &str = "uring * 1- errno:1";

/// The rule by which a call fails with this answer.
fn rule(call: &str, suffix: &str, when: &str, answer: Errno) -> String {
    format!("{call} {suffix} {when} errno:{}", answer.raw_os_error())
}

/// How a mode reads, by several workers.
fn by_workers(mode: ReadMode) -> LoadOptions {
    in_mode(mode).workers(3)
}

/// Asserts that an error of the system is told with the file, what was done, what the system said and what to do.
fn assert_tells(error: &Error, answer: Errno) {
    let text = error.to_string();
    let answer = std::io::Error::from(answer).to_string();
    assert_eq!(error.kind(), "Io", "{text}");
    assert!(text.contains(": cannot ") && text.contains(&format!("{answer}; ")), "{text}");
    assert!(error.path().is_some(), "{text}");
}
