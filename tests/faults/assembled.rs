//! What is put together: parts of ranks, outputs of plans, pieces of a distributed checkpoint, and what ranks prefetch together.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weightmap::{Plan, ReadMode, Result, ShardedModel, Tensor};
use weightmap_testkit::faults::{clear, inject};
use weightmap_testkit::{TempModel, damage};

use super::{NO_RING, by_workers, with_faults};
use crate::support::plan_cases::{FLAT, Layout, plans};
use crate::support::planned::{Wanted, wanted};
use crate::support::{alone, open};

/// The part of a rank by a plan, of a model that lies in its files in one of the ways.
struct Case {
    files: TempModel,
    plan: Plan,
    rank: usize,
    wanted: Vec<Wanted>,
    /// One of its shards.
    shard: PathBuf,
    number: usize,
}

/// Does something for each layout of the model, each plan, and some rank and shard.
fn for_each_case(what: impl Fn(&Case)) {
    let mut number = 0;
    for layout in Layout::ALL {
        for (name, plan) in plans() {
            if layout == Layout::Grid && FLAT.contains(&name) {
                // Pieces of parts of rows have no flat ranges.
                continue;
            }
            number += 1;
            let ((files, whole), rank) = (layout.files(), number % 4);
            let model = open(&files);
            let wanted = wanted(&model, &plan, &whole, rank);
            let shard = files.file(model.shards()[number % model.shards().len()].as_str());
            what(&Case { files, plan, rank, wanted, shard, number });
        }
    }
}

impl Case {
    /// Loads, streams and prefetches; what comes of it is what is wanted.
    fn go(&self, model: &ShardedModel, mode: ReadMode, looks_at_mapped: bool) -> Result<()> {
        let check = |tensor: &Tensor| {
            let wanted = self.wanted.iter().find(|wanted| wanted.name == tensor.name()).unwrap();
            if looks_at_mapped || !tensor.is_mapped() {
                wanted.assert_is(tensor, "a part of a rank");
            }
        };
        let selection = model.select().allow_empty().plan(&self.plan, self.rank)?;
        selection.load_with(&by_workers(mode))?.tensors().iter().for_each(check);
        for tensor in selection.stream_with(&by_workers(mode))? {
            check(&tensor?);
        }
        selection.prefetch_with(&by_workers(mode))?;
        model.prefetch_together(&self.plan, &[0, 1, 2, 3], self.rank).map(drop)
    }
}

#[test]
fn a_read_that_fails_is_told_or_made_again_whatever_is_put_together() {
    with_faults(|| {
        let errors = AtomicU64::new(0);
        for_each_case(|case| {
            let model = open(&case.files);
            for &mode in ReadMode::ALL {
                for fault in ["pread errno:5", "pread short:0", "madvise errno:5", "stat errno:116"] {
                    let (call, what) = fault.split_once(' ').unwrap();
                    inject(NO_RING);
                    inject(&format!("{call} .safetensors {} {what}", 1 + case.number % 5));
                    if let Err(error) = case.go(&model, mode, true) {
                        assert_eq!(error.kind(), "Io", "{error}");
                        assert!(
                            error.path().is_some_and(|path| path.starts_with(case.files.path())),
                            "{error}"
                        );
                        errors.fetch_add(1, Relaxed);
                    }
                    clear();
                }
                inject(NO_RING);
                inject("pread .safetensors 1/2:7 errno:4");
                inject("pread .safetensors 1/2:8 short:5");
                let result = case.go(&model, mode, true);
                clear();
                result.unwrap();
            }
        });
        assert!(errors.load(Relaxed) > 100, "{errors:?}");
    });
}

#[test]
fn a_shard_that_is_cut_before_one_of_our_calls_is_told_whatever_is_put_together() {
    with_faults(|| {
        let errors = AtomicU64::new(0);
        for_each_case(|case| {
            let content = fs::read(&case.shard).unwrap();
            let name = case.shard.file_name().unwrap().to_str().unwrap();
            for &mode in ReadMode::ALL {
                let model = open(&case.files);
                inject(NO_RING);
                for call in ["pread", "madvise"] {
                    inject(&format!("{call} {name} {} cut:{}", 1 + case.number % 4, content.len() - 1));
                }
                if let Err(error) = case.go(&model, mode, false) {
                    assert!(error.path().is_some_and(|path| path.ends_with(name)), "{error}");
                    errors.fetch_add(1, Relaxed);
                }
                clear();
                damage::replace(&case.shard, &content);
            }
        });
        assert!(errors.load(Relaxed) > 50, "{errors:?}");
    });
}

/// By rings too, where there are any.
#[test]
fn while_a_shard_is_cut_and_put_back_what_is_put_together_is_right_or_an_error() {
    alone("", || {
        for_each_case(|case| {
            let content = fs::read(&case.shard).unwrap();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for twentieths in 1..20 {
                        damage::truncate(&case.shard, content.len() as u64 * twentieths / 20);
                        damage::replace(&case.shard, &content);
                    }
                });
                while !writer.is_finished() {
                    for &mode in ReadMode::ALL {
                        let result =
                            ShardedModel::open(&case.files).and_then(|model| case.go(&model, mode, false));
                        if let Err(error) = result {
                            assert!(error.path().is_some_and(|path| path == case.shard), "{error}");
                        }
                    }
                }
                writer.join().unwrap();
            });
        });
    });
}
