//! Ranks of a node that load together: what each of them would load by itself, read once.

mod failures;
mod verified;

use std::ops::Range;
use std::path::Path;

use weightmap::collective::ThreadRank;
use weightmap::{Collective as _, Error, NodeReport, Plan, ReadMode, Result, ShardedModel, Together};
use weightmap_testkit::{Checkpoint, Llama, ShardBuilder};

use crate::support::plan_cases::{FLAT, Layout, plan, plan_named, plans};
use crate::support::planned::{Whole, owners, select};
use crate::support::{in_mode, open, within_a_minute};

/// Runs something on a thread for each rank; fails in place of waiting for ever.
fn on_threads<R: Send + 'static>(
    ranks: Vec<ThreadRank>,
    act: impl Fn(ThreadRank) -> R + Send + Sync + 'static,
) -> Vec<R> {
    within_a_minute(move || {
        std::thread::scope(|scope| {
            let act = &act;
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || act(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    })
}

/// All ranks of these nodes load together, each with a model of its own.
fn load(path: &Path, plan: &Plan, nodes: &[usize]) -> Vec<Result<Together>> {
    let (path, plan) = (path.to_owned(), plan.clone());
    on_threads(ThreadRank::on_nodes(nodes), move |rank| open(&path).load_together(&plan, &rank))
}

/// Asserts that a rank has what it would load by itself.
fn assert_alike(model: &ShardedModel, plan: &Plan, rank: usize, together: &Together, case: &str) {
    let alone = select(model, plan, rank).load().unwrap();
    let names =
        |tensors: &[weightmap::Tensor]| tensors.iter().map(|one| one.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(together.loaded.tensors()), names(alone.tensors()), "{case}");
    for (tensor, alone) in together.loaded.tensors().iter().zip(alone.tensors()) {
        assert_eq!(tensor.info(), alone.info(), "{case}");
        assert!(tensor.bytes() == alone.bytes(), "{case}: {} has other bytes", tensor.name());
        assert!(!tensor.is_mapped(), "{case}: {} is not in memory of its own", tensor.name());
    }
}

/// The bytes that ranks want, together and each byte once, counted element by element.
fn counted(model: &ShardedModel, plan: &Plan, whole: &Whole, ranks: Range<usize>) -> (u64, u64) {
    let partition = model.divide(plan).unwrap();
    let (mut wanted, mut needed) = (0, 0);
    let parts: Vec<_> =
        ranks.flat_map(|rank| partition.rank(rank)).flat_map(|planned| planned.parts).collect();
    for (name, tensor) in whole {
        let owners = owners(tensor, parts.iter().filter(|part| part.tensor == *name));
        let bytes = |elements: u64| elements * tensor.bytes.len() as u64 / (owners.len() as u64).max(1);
        wanted += bytes(owners.iter().sum());
        needed += bytes(owners.iter().filter(|&&owners| owners > 0).count() as u64);
    }
    (wanted, needed)
}

/// Asserts that a report says what was asked for and nothing that cannot be.
fn assert_report(report: &NodeReport, ranks: Range<usize>, counted: (u64, u64), case: &str) {
    assert_eq!(report.ranks, ranks.collect::<Vec<_>>(), "{case}");
    assert_eq!((report.wanted_bytes, report.needed_bytes), counted, "{case}");
    assert_eq!(report.read_bytes, report.rank_read_bytes.iter().sum::<u64>(), "{case}");
    assert!(report.read_bytes >= report.needed_bytes, "{case}: {report:?}");
    let sent: u64 = report.rank_sent_bytes.iter().sum();
    // Whoever reads keeps what it wants itself.
    assert!(
        sent >= report.wanted_bytes.saturating_sub(report.read_bytes) && sent <= report.wanted_bytes,
        "{case}"
    );
    let lengths = [report.rank_read_bytes.len(), report.rank_sent_bytes.len(), report.rank_seconds.len()];
    assert_eq!(lengths, [report.ranks.len(); 3], "{case}");
}

#[test]
fn each_rank_gets_what_it_would_load_by_itself_by_every_plan_and_from_every_layout() {
    for layout in Layout::ALL {
        let (files, whole) = layout.files();
        let model = open(&files);
        for (name, plan) in plans() {
            let case = format!("{name}, {layout:?}");
            let results = load(files.path(), &plan, &[4]);
            if layout == Layout::Grid && FLAT.contains(&name) {
                let kinds: Vec<_> = results.into_iter().map(|result| result.unwrap_err().kind()).collect();
                assert_eq!(kinds, ["SliceFlatInPieces"; 4], "{case}");
                continue;
            }
            let all: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            for (rank, together) in all.iter().enumerate() {
                assert_alike(&model, &plan, rank, together, &format!("{case}, rank {rank}"));
                assert_eq!(together.node, all[0].node, "{case}");
            }
            assert_report(&all[0].node, 0..4, counted(&model, &plan, &whole, 0..4), &case);
        }
    }
}

#[test]
fn ranks_of_a_family_of_models_load_together() {
    let files = Llama::tiny().checkpoint().temp();
    let config = std::fs::read_to_string(files.file("config.json")).unwrap();
    let plan = Plan::for_model(&config, &weightmap::Parallel::default().dp(2).tp(2)).unwrap();
    let model = open(&files);
    let all: Vec<_> = load(files.path(), &plan, &[4]).into_iter().map(Result::unwrap).collect();
    all.iter().enumerate().for_each(|(rank, together)| assert_alike(&model, &plan, rank, together, "llama"));
    assert_eq!(all[0].node.needed_bytes, Llama::tiny().total_bytes());
}

#[test]
fn what_pytorch_has_saved_is_loaded_together() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/dcp/three");
    let model = open(&files);
    let columns =
        r#""rules": [{"match": ".*", "min_dims": 2, "shard": [{"dim": 1, "axis": "tp", "split": "chunk"}]}]"#;
    for plan in [plan_named("replicated"), plan(columns), Plan::fsdp(3).unwrap()] {
        let all: Vec<_> = load(&files, &plan, &[plan.world()]).into_iter().map(Result::unwrap).collect();
        all.iter()
            .enumerate()
            .for_each(|(rank, together)| assert_alike(&model, &plan, rank, together, "saved"));
    }
}

#[test]
fn every_mode_and_number_of_workers_gives_the_same() {
    let (files, _) = Layout::Shards.files();
    let model = open(&files);
    for &mode in ReadMode::ALL {
        for name in ["blocks and replicas", "outputs"] {
            let (path, plan) = (files.path().to_owned(), plan_named(name));
            let all = on_threads(ThreadRank::world(4), move |rank| {
                let options = in_mode(mode).workers(rank.rank() + 1);
                open(&path).load_together_with(&options, &plan, &rank).unwrap()
            });
            for (rank, together) in all.iter().enumerate() {
                assert_alike(&model, &plan_named(name), rank, together, &format!("{name}, {mode}"));
            }
        }
    }
}

#[test]
fn a_world_of_one_reads_all_and_sends_nothing() {
    let (files, _) = Layout::Shards.files();
    let plan = Plan::fsdp(1).unwrap();
    let together = load(files.path(), &plan, &[1]).remove(0).unwrap();
    assert_alike(&open(&files), &plan, 0, &together, "alone");
    assert_eq!((together.node.rank_sent_bytes, together.node.ranks), (vec![0], vec![0]));
}

#[test]
fn ranks_can_load_together_again() {
    let (files, _) = Layout::Shards.files();
    let path = files.path().to_owned();
    let all = on_threads(ThreadRank::world(4), move |rank| {
        let model = open(&path);
        let first = model.load_together(&plan_named("columns"), &rank).unwrap();
        (first, model.load_together(&plan_named("outputs"), &rank).unwrap())
    });
    let model = open(&files);
    for (rank, (first, second)) in all.iter().enumerate() {
        assert_alike(&model, &plan_named("columns"), rank, first, "first");
        assert_alike(&model, &plan_named("outputs"), rank, second, "second");
    }
}

/// Tensors of many windows, in two shards.
fn long() -> Checkpoint {
    let first = (0..13)
        .fold(ShardBuilder::new(), |shard, number| shard.pattern(&format!("t{number}"), "F32", &[64, 4096]));
    Checkpoint::new()
        .shard("a.safetensors", first)
        .shard("b.safetensors", ShardBuilder::new().pattern("u", "BF16", &[2048, 8192]))
}

/// The bytes of [`long`].
const LONG: u64 = (13 + 32) << 20;

fn assert_at_most(figure: u64, times: f64, of: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = figure as f64 / of as f64;
    assert!(ratio <= times, "{figure} is {ratio:.3} times {of}");
}

#[test]
fn what_all_ranks_want_is_read_once_and_by_all_of_them_about_the_same() {
    let files = long().temp();
    let plan = plan_named("replicated");
    let model = open(&files);
    let all: Vec<_> = load(files.path(), &plan, &[4]).into_iter().map(Result::unwrap).collect();
    all.iter().enumerate().for_each(|(rank, together)| assert_alike(&model, &plan, rank, together, "long"));
    let node = &all[0].node;
    assert_eq!((node.needed_bytes, node.wanted_bytes), (LONG, 4 * LONG));
    assert_at_most(node.read_bytes, 1.05, LONG);
    node.rank_read_bytes.iter().for_each(|&bytes| assert_at_most(bytes, 1.3, node.read_bytes / 4));
    assert_eq!(node.rank_sent_bytes.iter().sum::<u64>(), 3 * LONG);
}

#[test]
fn what_ranks_want_of_rows_between_one_another_is_read_once() {
    let files = long().temp();
    let plans = [
        plan(r#""rules": [{"match": ".*", "shard": [{"dim": 1, "axis": "ep"}]}]"#),
        plan(
            r#""rules": [{"match": ".*", "shard": [{"dim": 1, "axis": "tp", "split": "cyclic", "unit": 64}]}]"#,
        ),
        plan(r#""rules": [{"match": "t.*", "shard": [{"dim": 0, "axis": "tp"}]}]"#),
        plan(r#""rules": [{"match": "u", "shard": [{"dim": 0, "axis": "ep", "blocks": 8}]}]"#),
        plan(r#""rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 600}]}]"#),
    ];
    let model = open(&files);
    for (number, plan) in plans.iter().enumerate() {
        let all: Vec<_> = load(files.path(), plan, &[4]).into_iter().map(Result::unwrap).collect();
        for (rank, together) in all.iter().enumerate() {
            assert_alike(&model, plan, rank, together, &format!("plan {number}, rank {rank}"));
        }
        let node = &all[0].node;
        assert_eq!(node.needed_bytes, LONG, "plan {number}");
        assert_at_most(node.read_bytes, 1.05, LONG);
        node.rank_read_bytes.iter().for_each(|&bytes| assert_at_most(bytes, 1.5, node.read_bytes / 4));
    }
}

#[test]
fn what_one_rank_alone_wants_is_not_sent() {
    let files = long().temp();
    let node = load(files.path(), &Plan::fsdp(4).unwrap(), &[4]).remove(0).unwrap().node;
    assert_eq!((node.rank_sent_bytes, node.needed_bytes, node.wanted_bytes), (vec![0; 4], LONG, LONG));
    assert_eq!(node.read_bytes, LONG);
}

#[test]
fn each_node_reads_what_its_own_ranks_want_once() {
    let files = long().temp();
    let columns = plan(r#""rules": [{"match": ".*", "shard": [{"dim": 1, "axis": "tp"}]}]"#);
    for (plan, needed) in
        [(plan_named("replicated"), [LONG; 2]), (columns, [LONG; 2]), (Plan::fsdp(4).unwrap(), [LONG / 2; 2])]
    {
        let model = open(&files);
        let all: Vec<_> = load(files.path(), &plan, &[2, 2]).into_iter().map(Result::unwrap).collect();
        for (rank, together) in all.iter().enumerate() {
            assert_alike(&model, &plan, rank, together, &format!("rank {rank}"));
            let node = rank / 2;
            assert_eq!(together.node, all[node * 2].node);
            assert_eq!(together.node.ranks, [node * 2, node * 2 + 1]);
            assert_eq!(together.node.needed_bytes, needed[node]);
            assert_at_most(together.node.read_bytes, 1.05, needed[node]);
        }
    }
}

#[test]
fn nodes_may_have_different_numbers_of_ranks() {
    let (files, whole) = Layout::Shards.files();
    let model = open(&files);
    for name in ["rows of columns", "owners", "outputs side by side"] {
        let plan = plan_named(name);
        let all: Vec<_> = load(files.path(), &plan, &[1, 3]).into_iter().map(Result::unwrap).collect();
        for (rank, together) in all.iter().enumerate() {
            assert_alike(&model, &plan, rank, together, name);
        }
        assert_report(&all[0].node, 0..1, counted(&model, &plan, &whole, 0..1), name);
        assert_report(&all[3].node, 1..4, counted(&model, &plan, &whole, 1..4), name);
    }
}

/// The rank and the message of another rank's failure.
fn peer(error: &Error) -> (usize, &str) {
    match error {
        Error::Peer { rank, message } => (*rank, message),
        error => panic!("{error}"),
    }
}
