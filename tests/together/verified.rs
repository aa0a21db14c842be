//! Ranks that load together and compare with digests: what differs is an error, and none waits for whoever finds it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weightmap::collective::ThreadRank;
use weightmap::{Collective as _, Digests, LoadOptions, NodeShare, Plan, Result, Together};
use weightmap_testkit::{Oracle, TempModel, damage};

use super::{assert_alike, long, on_threads};
use crate::support::open;
use crate::support::plan_cases::{FLAT, Layout, plans};

/// The digests of a checkpoint as it is.
fn digests(path: &Path) -> Arc<Digests> {
    Arc::new(open(path).digest(&LoadOptions::default()).expect("a sound checkpoint"))
}

/// Four ranks of a node.
fn load(path: &Path, plan: &Plan, digests: &Arc<Digests>) -> Vec<Result<Together>> {
    let (path, plan, digests) = (path.to_owned(), plan.clone(), Arc::clone(digests));
    on_threads(ThreadRank::world(4), move |rank| {
        let options = LoadOptions::default().verify(Arc::clone(&digests));
        open(&path).load_together_with(&options, &plan, &rank)
    })
}

fn prefetch(path: PathBuf, plan: &Plan, digests: &Arc<Digests>) -> Vec<Result<NodeShare>> {
    let (plan, digests) = (plan.clone(), Arc::clone(digests));
    on_threads(ThreadRank::world(4), move |rank| {
        let options = LoadOptions::default().verify(Arc::clone(&digests));
        open(&path).prefetch_together_with(&options, &plan, &[0, 1, 2, 3], rank.rank())
    })
}

/// Turns a bit of a tensor's byte over.
fn flip(files: &TempModel, tensor: &str, at: u64) {
    let info = open(files.path()).tensor(tensor).expect("the tensor is there");
    let byte = Oracle::open(files.path()).slice(tensor, at..at + 1)[0] ^ 1;
    damage::overwrite(files.file(info.shard.as_str()), info.range.start + at, [byte]);
}

/// Plans for the tensors of [`long`] by which all of them, some, and one of the ranks want a byte of it.
fn plans_of_long() -> Vec<Plan> {
    let rules = [
        r#"{"match": ".*"}"#,
        r#"{"match": ".*", "shard": [{"dim": 1, "axis": "tp"}]}"#,
        r#"{"match": ".*", "shard": [{"dim": 0, "axis": "ep"}]}"#,
    ];
    let written = rules.iter().map(|rule| super::plan(&format!(r#""rules": [{rule}]"#)));
    written.chain([Plan::fsdp(4).expect("a plan"), Plan::balanced(4).expect("a plan")]).collect()
}

#[test]
fn what_is_as_its_digests_say_is_loaded_and_brought_into_the_page_cache_by_every_plan() {
    for layout in Layout::ALL {
        let (files, _) = layout.files();
        let (model, digests) = (open(&files), digests(files.path()));
        for (name, plan) in plans() {
            if layout == Layout::Grid && FLAT.contains(&name) {
                // Pieces cannot be cut flat.
                continue;
            }
            for (rank, together) in load(files.path(), &plan, &digests).into_iter().enumerate() {
                let case = format!("{name}, {layout:?}, rank {rank}");
                assert_alike(&model, &plan, rank, &together.expect(&case), &case);
            }
            for share in prefetch(files.path().to_owned(), &plan, &digests) {
                share.expect(name);
            }
        }
    }
}

#[test]
fn a_byte_that_changed_is_an_error_for_all_ranks_and_names_the_tensor_where_it_is_found() {
    for (tensor, at) in [("t3", 0), ("u", (5 << 20) + 77), ("u", (32 << 20) - 1)] {
        let files = long().temp();
        let digests = digests(files.path());
        flip(&files, tensor, at);
        for (number, plan) in plans_of_long().iter().enumerate() {
            let case = format!("{tensor}, byte {at}, plan {number}");
            let mut found = 0;
            for result in load(files.path(), plan, &digests) {
                let error = result.expect_err(&case);
                match error.kind() {
                    "ContentDiffers" => {
                        assert_eq!(error.tensor(), Some(tensor), "{case}");
                        found += 1;
                    }
                    kind => assert_eq!(kind, "Peer", "{case}: {error}"),
                }
            }
            assert!(found > 0, "{case}");
        }
    }
}

#[test]
fn a_byte_that_changed_is_found_by_the_rank_that_brings_it_into_the_page_cache() {
    let files = long().temp();
    let digests = digests(files.path());
    flip(&files, "u", 9 << 20);
    for (number, plan) in plans_of_long().iter().enumerate() {
        let shares = prefetch(files.path().to_owned(), plan, &digests);
        let found: Vec<_> = shares.iter().filter_map(|share| share.as_ref().err()).collect();
        assert!(!found.is_empty() && found.len() < 4, "plan {number}: {found:?}");
        for error in found {
            assert_eq!((error.kind(), error.tensor()), ("ContentDiffers", Some("u")), "plan {number}");
        }
    }
}

#[test]
fn digests_of_another_checkpoint_are_an_error_for_all_ranks() {
    let files = long().temp();
    let (other, _) = Layout::Shards.files();
    let digests = digests(other.path());
    for plan in plans_of_long() {
        let kinds: Vec<_> = load(files.path(), &plan, &digests)
            .into_iter()
            .map(|result| result.map(drop).expect_err("nothing is known of these").kind())
            .collect();
        assert!(kinds.contains(&"NotDigested"), "{kinds:?}");
        assert!(kinds.iter().all(|kind| ["NotDigested", "Peer"].contains(kind)), "{kinds:?}");
    }
}
