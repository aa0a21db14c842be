//! When one rank fails all do, and none waits for it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use weightmap::collective::ThreadRank;
use weightmap::{Collective as _, Error, LoadOptions, Plan, Result, ShardedModel, Together};
use weightmap_testkit::{Checkpoint, Distributed, ShardBuilder, TempModel, damage};

use super::{long, on_threads, peer};
use crate::support::open;
use crate::support::plan_cases::{Layout, plan, plan_named};

/// The rank that fails.
const GUILTY: usize = 2;

/// Each rank opens the model at a path of its own, and does something first.
fn load(
    paths: impl Fn(usize) -> PathBuf + Send + Sync + 'static,
    plans: impl Fn(usize) -> Plan + Send + Sync + 'static,
    options: impl Fn(usize) -> LoadOptions + Send + Sync + 'static,
    first: impl Fn(usize, &ShardedModel) + Send + Sync + 'static,
) -> Vec<Result<Together>> {
    on_threads(ThreadRank::world(4), move |rank| {
        let number = rank.rank();
        let model = open(paths(number));
        first(number, &model);
        model.load_together_with(&options(number), &plans(number), &rank)
    })
}

fn all_same(rank: usize, _: &ShardedModel) {
    assert!(rank < 4);
}

fn defaults(_: usize) -> LoadOptions {
    LoadOptions::default()
}

/// Asserts that one rank has failed at something, and that the others were told of it.
fn assert_guilty(results: Vec<Result<Together>>, kind: &str) {
    let errors: Vec<Error> = results.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors[GUILTY].kind(), kind, "{}", errors[GUILTY]);
    let message = errors[GUILTY].to_string();
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != GUILTY) {
        let (guilty, told) = peer(error);
        assert_eq!(guilty, GUILTY, "rank {rank}: {error}");
        assert!(message.starts_with(told), "rank {rank} was told {told:?} of {message:?}");
    }
}

/// The same files twice: for the guilty rank, and for the others.
fn two(checkpoint: &Checkpoint) -> (TempModel, TempModel) {
    (checkpoint.temp(), checkpoint.temp())
}

/// The folder of each rank.
fn paths(others: &TempModel, guilty: &TempModel) -> impl Fn(usize) -> PathBuf + Send + Sync + 'static {
    let (others, guilty) = (others.path().to_owned(), guilty.path().to_owned());
    move |rank| if rank == GUILTY { guilty.clone() } else { others.clone() }
}

#[test]
fn a_rank_whose_folder_lacks_a_shard_is_told_of() {
    let (others, guilty) = two(&long());
    let shard = guilty.file("b.safetensors");
    let remove = move |rank: usize, _: &ShardedModel| {
        if rank == GUILTY {
            fs::remove_file(&shard).unwrap();
        }
    };
    let results = load(paths(&others, &guilty), |_| plan_named("replicated"), defaults, remove);
    let kind = results[GUILTY].as_ref().unwrap_err().kind();
    assert_guilty(results, kind);
    assert_eq!(kind, "Io");
}

#[test]
fn ranks_of_different_plans_all_fail() {
    let files = long().temp();
    for (one, other) in [
        (
            plan_named("replicated"),
            plan(r#""rules": [{"match": ".*", "shard": [{"dim": 1, "axis": "tp"}]}]"#),
        ),
        (plan_named("replicated"), plan(r#""rules": [{"match": "u", "drop": true}]"#)),
        (plan_named("replicated"), Plan::fsdp(4).unwrap()),
        // Of these nothing is sent.
        (Plan::balanced(4).unwrap(), Plan::fsdp(4).unwrap()),
    ] {
        let path = files.path().to_owned();
        let plans = move |rank| if rank == GUILTY { other.clone() } else { one.clone() };
        for (rank, result) in load(move |_| path.clone(), plans, defaults, all_same).iter().enumerate() {
            let (other, message) = peer(result.as_ref().unwrap_err());
            assert!(message.contains("same plan"), "{message}");
            assert_eq!(other == GUILTY, rank != GUILTY, "rank {rank} was told of {other}");
        }
    }
}

#[test]
fn a_plan_of_another_world_is_the_failure_of_the_rank_that_has_it() {
    let files = long().temp();
    let path = files.path().to_owned();
    let plans = |rank| if rank == GUILTY { Plan::fsdp(5).unwrap() } else { Plan::fsdp(4).unwrap() };
    assert_guilty(load(move |_| path.clone(), plans, defaults, all_same), "PlanWorld");
    let path = files.path().to_owned();
    for result in load(move |_| path.clone(), |_| Plan::fsdp(5).unwrap(), defaults, all_same) {
        assert_eq!(result.unwrap_err().kind(), "PlanWorld");
    }
}

#[test]
fn a_plan_that_does_not_suit_the_model_is_a_fault_for_all() {
    let (files, _) = Layout::Shards.files();
    let path = files.path().to_owned();
    let uneven = |_| plan(r#""rules": [{"match": "embed", "shard": [{"dim": 0, "axis": "tp"}]}]"#);
    for result in load(move |_| path.clone(), uneven, defaults, all_same) {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.path()), ("PlanUneven", Some(files.path())));
    }
}

#[test]
fn ranks_that_see_other_files_all_fail() {
    let shard = |rows| ShardBuilder::new().pattern("a", "F32", &[rows, 8]).pattern("b", "F32", &[8, 8]);
    let others = Checkpoint::single(shard(8)).temp();
    for other in [
        Checkpoint::single(shard(12)),
        Checkpoint::single(shard(8).header_padding(16)),
        Checkpoint::single(ShardBuilder::new().pattern("b", "F32", &[8, 8]).pattern("a", "F32", &[8, 8])),
        Checkpoint::new().shard("x.safetensors", shard(8)).without_index(),
        Distributed::new(2)
            .sharded("a", "F32", &[8, 8], &[(0, 2)])
            .whole(1, "b", "F32", &[8, 8])
            .checkpoint(),
    ] {
        let guilty = other.temp();
        let results = load(paths(&others, &guilty), |_| plan_named("replicated"), defaults, all_same);
        for result in results {
            peer(&result.unwrap_err());
        }
    }
}

#[test]
fn a_file_that_is_cut_after_it_was_checked_is_the_failure_of_the_rank_that_reads_it() {
    for bytes in [5000, 30 << 20] {
        let (others, guilty) = two(&long());
        let shard = guilty.file("b.safetensors");
        let cut = move |rank: usize, model: &ShardedModel| {
            if rank == GUILTY {
                model.divide(&plan_named("replicated")).unwrap();
                damage::truncate(&shard, bytes);
            }
        };
        let results = load(paths(&others, &guilty), |_| plan_named("replicated"), defaults, cut);
        assert_guilty(results, "ShardChanged");
    }
}

#[test]
fn what_a_rank_reads_by_itself_and_is_cut_is_told_to_the_others_too() {
    let (others, guilty) = two(&long());
    let shard = guilty.file("b.safetensors");
    let cut = move |rank: usize, model: &ShardedModel| {
        if rank == GUILTY {
            model.divide(&plan_named("replicated")).unwrap();
            damage::truncate(&shard, 5000);
        }
    };
    let results = load(paths(&others, &guilty), |_| Plan::fsdp(4).unwrap(), defaults, cut);
    assert_guilty(results, "ShardChanged");
}

#[test]
fn a_rank_with_too_little_memory_is_told_of() {
    let files = long().temp();
    let path = files.path().to_owned();
    let options = |rank| {
        let options = LoadOptions::default();
        if rank == GUILTY { options.memory_limit(1 << 20) } else { options }
    };
    assert_guilty(
        load(move |_| path.clone(), |_| plan_named("replicated"), options, all_same),
        "MemoryLimit",
    );
}

#[test]
fn none_waits_for_a_rank_that_has_left() {
    let files = long().temp();
    let path = Arc::new(files.path().to_owned());
    for is_panic in [false, true] {
        let path = Arc::clone(&path);
        let results = on_threads(ThreadRank::world(4), move |rank| {
            if rank.rank() == GUILTY {
                let leave = move || {
                    let _rank = rank;
                    assert!(!is_panic, "a rank that panics, as this test wants");
                };
                drop(catch_unwind(AssertUnwindSafe(leave)));
                return None;
            }
            Some(open(&*path).load_together(&plan_named("replicated"), &rank))
        });
        for (rank, result) in results.into_iter().enumerate().filter(|(rank, _)| *rank != GUILTY) {
            let error = result.unwrap().unwrap_err();
            assert_eq!(error.kind(), "Collective", "rank {rank}: {error}");
            assert!(error.to_string().contains("rank 2"), "{error}");
        }
    }
}

#[test]
fn a_failure_of_one_node_does_not_concern_another() {
    let (others, guilty) = two(&long());
    let shard = guilty.file("b.safetensors");
    fs::write(&shard, "no shard").unwrap();
    let paths = paths(&others, &guilty);
    let results = on_threads(ThreadRank::on_nodes(&[2, 2]), move |rank| {
        open(paths(rank.rank())).load_together(&plan_named("replicated"), &rank)
    });
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(peer(results[3].as_ref().unwrap_err()).0, GUILTY);
    assert!(results[GUILTY].is_err());
}

#[test]
fn ranks_that_have_failed_at_a_plan_can_load_together_by_another() {
    let files = long().temp();
    let path = files.path().to_owned();
    let results = on_threads(ThreadRank::world(4), move |rank| {
        let model = open(&path);
        let first = model.load_together(&Plan::fsdp(3).unwrap(), &rank).map(drop);
        (first, model.load_together(&Plan::fsdp(4).unwrap(), &rank))
    });
    for (first, second) in results {
        assert_eq!(first.unwrap_err().kind(), "PlanWorld");
        assert_eq!(second.unwrap().loaded.tensors().len(), 14);
    }
}

#[test]
fn a_panic_of_one_ranks_progress_function_is_told_to_the_others_while_it_lives_on() {
    let files = long().temp();
    let path = files.path().to_owned();
    let results = on_threads(ThreadRank::world(2), move |rank| {
        let is_guilty = rank.rank() == 0;
        let options = LoadOptions::default().progress(move |_, _| assert!(!is_guilty, "as this test wants"));
        let model = open(&path);
        let load = AssertUnwindSafe(|| model.load_together_with(&options, &Plan::fsdp(2).unwrap(), &rank));
        let result = catch_unwind(load);
        (rank, result)
    });
    assert!(results[0].1.is_err());
    let error = results[1].1.as_ref().unwrap().as_ref().unwrap_err();
    assert_eq!(peer(error).0, 0);
}
