use std::sync::mpsc;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Does the same on a thread for each rank, and returns what came of it, in the order of the ranks.
fn on_all<R: Send>(ranks: Vec<ThreadRank>, act: impl Fn(&ThreadRank) -> R + Sync) -> Vec<R> {
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || act(&rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Bytes that tell which ones they are.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..=250).cycle().skip(seed * 31 % 251).take(len).collect()
}

fn slices(parts: &[Vec<u8>]) -> Vec<&[u8]> {
    parts.iter().map(Vec::as_slice).collect()
}

/// Expects this kind of error, with these words in it, of every rank.
fn all_fail(results: &[io::Result<()>], kind: ErrorKind, words: &str) {
    assert!(!results.is_empty());
    for result in results {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn ranks_and_groups_are_those_of_the_nodes() {
    let ranks = ThreadRank::on_nodes(&[2, 0, 3]);
    let told: Vec<_> = ranks.iter().map(|rank| (rank.rank(), rank.size(), rank.local_group())).collect();
    let first: &[usize] = &[0, 1];
    let last: &[usize] = &[2, 3, 4];
    assert_eq!(told, [(0, 5, first), (1, 5, first), (2, 5, last), (3, 5, last), (4, 5, last)]);
    assert!(ThreadRank::world(0).is_empty());
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    let come = Mutex::new(0);
    let seen = on_all(ThreadRank::world(5), |rank| {
        *come.lock().unwrap() += 1;
        rank.barrier().unwrap();
        *come.lock().unwrap()
    });
    assert_eq!(seen, [5; 5]);
}

#[test]
fn every_root_reaches_its_node_and_no_other() {
    let got = on_all(ThreadRank::on_nodes(&[2, 3]), |rank| {
        rank.local_group()
            .iter()
            .map(|&root| {
                let mut own = bytes(rank.rank(), 9);
                rank.broadcast(root, &mut own).unwrap();
                own
            })
            .collect::<Vec<_>>()
    });
    for (rank, got) in got.iter().enumerate() {
        let roots = if rank < 2 { 0..2 } else { 2..5 };
        assert_eq!(*got, roots.map(|root| bytes(root, 9)).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn all_get_the_bytes_of_any_root(nodes in vec(1..4_usize, 1..4), lens in vec(0..5000_usize, 1..4)) {
        on_all(ThreadRank::on_nodes(&nodes), |rank| {
            for &len in &lens {
                for &root in rank.local_group() {
                    let mut own = bytes(rank.rank(), len);
                    rank.broadcast(root, &mut own).unwrap();
                    assert_eq!(own, bytes(root, len));
                }
            }
        });
    }

    #[test]
    fn each_gets_its_own_part_of_any_root(
        nodes in vec(1..4_usize, 1..4),
        lens in vec(prop_oneof![Just(0), 0..5000_usize], 3),
    ) {
        on_all(ThreadRank::on_nodes(&nodes), |rank| {
            let group = rank.local_group();
            let place = group.iter().position(|&other| other == rank.rank()).unwrap();
            for &root in group {
                let parts: Vec<_> = (0..group.len()).map(|to| bytes(root + 7 * to, lens[to])).collect();
                let given = if root == rank.rank() { slices(&parts) } else { Vec::new() };
                let mut own = vec![0; lens[place]];
                rank.scatterv(root, &given, &mut own).unwrap();
                assert_eq!(own, parts[place]);
            }
        });
    }

    #[test]
    fn one_wrong_length_is_an_error_for_all_and_writes_nothing(
        size in 2..5_usize, len in 0..50_usize, off in 1..9_usize, odd in any::<prop::sample::Index>(),
    ) {
        let odd = odd.index(size);
        let results = on_all(ThreadRank::world(size), |rank| {
            let mut own = vec![9; if rank.rank() == odd { len + off } else { len }];
            let before = own.clone();
            let parts = vec![vec![1; len]; size];
            let given = if rank.rank() == 0 { slices(&parts) } else { Vec::new() };
            let results = [rank.broadcast(0, &mut own), rank.scatterv(0, &given, &mut own)];
            assert_eq!(own, before);
            results
        });
        all_fail(&results.into_iter().flatten().collect::<Vec<_>>(), ErrorKind::InvalidInput, "has room for");
    }
}

#[test]
fn a_root_of_another_node_is_an_error_for_all() {
    let results = on_all(ThreadRank::on_nodes(&[2, 1]), |rank| rank.broadcast(3, &mut [0; 4]));
    all_fail(&results, ErrorKind::InvalidInput, "the root, rank 3, is none of the ranks of this node");
}

#[test]
fn two_roots_are_an_error_for_all() {
    let results = on_all(ThreadRank::world(3), |rank| rank.broadcast(rank.rank() / 2, &mut [0; 4]));
    all_fail(&results, ErrorKind::InvalidInput, "rank 2 calls Broadcast { root: 1 }");
}

#[test]
fn different_calls_are_an_error_for_all() {
    let results = on_all(ThreadRank::world(3), |rank| match rank.rank() {
        1 => rank.barrier(),
        _ => rank.broadcast(0, &mut [0; 4]),
    });
    all_fail(&results, ErrorKind::InvalidInput, "rank 1 calls Barrier");
}

#[test]
fn a_part_too_few_is_an_error_for_all() {
    let results = on_all(ThreadRank::world(3), |rank| {
        let parts: &[&[u8]] = if rank.rank() == 1 { &[&[1], &[2]] } else { &[] };
        rank.scatterv(1, parts, &mut [0])
    });
    all_fail(&results, ErrorKind::InvalidInput, "the root, rank 1, gives 2 parts where 3 are due");
}

#[test]
fn parts_of_another_than_the_root_are_an_error_for_all() {
    let results = on_all(ThreadRank::world(2), |rank| rank.scatterv(1, &[&[1], &[2]], &mut [0]));
    all_fail(&results, ErrorKind::InvalidInput, "rank 0 gives 2 parts, but only the root, rank 1, may");
}

#[test]
fn after_such_an_error_the_group_is_still_in_step() {
    let got = on_all(ThreadRank::world(3), |rank| {
        rank.broadcast(0, &mut vec![0; rank.rank()]).unwrap_err();
        let mut own = [if rank.rank() == 2 { 2 } else { 0 }];
        rank.broadcast(2, &mut own).unwrap();
        own
    });
    assert_eq!(got, [[2]; 3]);
}

#[test]
fn who_waits_for_a_dropped_rank_gets_an_error() {
    let mut ranks = ThreadRank::world(4);
    let dropped = ranks.remove(1);
    let (tell, told) = mpsc::channel();
    let results = thread::scope(|scope| {
        // Some of the others are waiting already, or are not: either way none may wait for ever.
        scope.spawn(move || {
            told.recv().unwrap();
            drop(dropped);
        });
        on_all(ranks, |rank| {
            tell.send(()).unwrap_or(());
            rank.barrier()
        })
    });
    all_fail(&results, ErrorKind::BrokenPipe, "rank 1 of this node has left the group");
}

#[test]
fn who_waits_for_a_rank_that_panics_gets_an_error() {
    let mut ranks = ThreadRank::world(3);
    let panics = ranks.remove(2);
    let results = thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let _held = &panics;
            std::panic::resume_unwind(Box::new("no message"));
        });
        let results = on_all(ranks, |rank| rank.broadcast(2, &mut [0; 8]));
        thread.join().unwrap_err();
        results
    });
    all_fail(&results, ErrorKind::BrokenPipe, "rank 2 of this node has left the group");
}

#[test]
fn a_rank_that_leaves_after_its_last_call_spoils_nobodys() {
    for _ in 0..200 {
        let mut ranks = ThreadRank::world(3).into_iter();
        let early = ranks.next().unwrap();
        let results = thread::scope(|scope| {
            scope.spawn(move || early.barrier().unwrap());
            on_all(ranks.collect(), ThreadRank::barrier)
        });
        assert!(results.iter().all(io::Result::is_ok), "{results:?}");
    }
}

#[test]
fn the_group_keeps_no_bytes_after_a_call() {
    let mut ranks = ThreadRank::world(2);
    let other = ranks.remove(1);
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            other.broadcast(1, &mut [3; 100]).unwrap();
            other
        });
        ranks[0].broadcast(1, &mut [0; 100]).unwrap();
        drop(other.join().unwrap());
    });
    assert!(ranks[0].node.state().last.is_empty());
}
