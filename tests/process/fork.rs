//! A process that forks: before, amid and after loads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fork::{Fork, fork, waitpid};
use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder};

use crate::support::{alone, assert_is, in_mode, load_all, open, two_shards};

/// Runs something in a fork of this process, and waits for it: it must succeed, and within a minute.
fn forked(body: impl FnOnce()) {
    match fork().unwrap() {
        Fork::Parent(child) => assert_eq!(waitpid(child).unwrap(), 0, "the child has failed"),
        Fork::Child => {
            let (done, ended) = mpsc::channel::<()>();
            thread::spawn(move || {
                if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                    eprintln!("it blocks");
                    exit(2);
                }
            });
            let result = catch_unwind(AssertUnwindSafe(body));
            exit(i32::from(result.is_err()) + i32::from(done.send(()).is_err()));
        }
    }
}

fn assert_all(model: &ShardedModel, oracle: &Oracle, mode: ReadMode) {
    let loaded = load_all(model, mode).unwrap();
    loaded.tensors().iter().for_each(|tensor| assert_is(tensor, oracle));
    assert_eq!(loaded.tensors().len(), model.len());
}

#[test]
fn what_was_opened_before_a_fork_can_be_used_in_parent_and_child() {
    alone("", || {
        let files = two_shards().temp();
        let oracle = Oracle::open(&files);
        for &mode in ReadMode::ALL {
            let model = open(&files);
            let view = model.view("a").unwrap();
            let loaded = model.select().names(["a", "b"]).unwrap().load_with(&in_mode(mode)).unwrap();
            let all = model.select().all();
            forked(|| {
                assert_eq!(view.bytes(), oracle.tensor("a").bytes);
                loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
                // The first shard was touched before, the second was not.
                assert_all(&model, &oracle, mode);
                let stream = all.stream_with(&in_mode(mode)).unwrap();
                assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 4);
                forked(|| assert_all(&model, &oracle, mode));
            });
            assert_all(&model, &oracle, mode);
            forked(move || drop((all, view, loaded, model)));
        }
    });
}

#[test]
fn a_child_knows_which_files_its_parent_has_checked() {
    alone("", || {
        let files = two_shards().temp();
        let model = open(&files);
        model.view("c").unwrap();
        forked(|| assert_eq!(load_all(&model, ReadMode::Auto).unwrap().report().shards_checked, 1));
        weightmap_testkit::damage::touch(files.file(crate::support::SECOND));
        forked(|| assert_eq!(model.view("c").map(drop).unwrap_err().kind(), "ShardChanged"));
    });
}

/// Threads of the parent touch, read and release shards of one model all the time, so that one of them holds some lock at
/// almost every fork.
#[test]
fn a_process_that_forks_amid_loads_has_children_that_load() {
    const SHARDS: u32 = 8;
    alone("", || {
        let add = |checkpoint: Checkpoint, number: u32| {
            let shard = ShardBuilder::new().pattern(&format!("{number}.small"), "U8", &[777]).pattern(
                &format!("{number}.large"),
                "F32",
                &[3, 100_000],
            );
            checkpoint.shard(&format!("model-{number:05}-of-{SHARDS:05}.safetensors"), shard)
        };
        let files = (1..=SHARDS).fold(Checkpoint::new(), add).temp();
        let oracle = Oracle::open(&files);
        let model = open(&files);
        let is_over = AtomicBool::new(false);
        let work = |number: usize| {
            while !is_over.load(SeqCst) {
                let mode = ReadMode::ALL[number % ReadMode::ALL.len()];
                load_all(&model, mode).unwrap();
                model.shards().iter().for_each(|shard| model.release(shard.as_str()).unwrap());
            }
        };
        thread::scope(|scope| {
            for number in 0..6 {
                scope.spawn(move || work(number));
            }
            let forks = catch_unwind(AssertUnwindSafe(|| {
                for number in 0..60 {
                    forked(|| assert_all(&model, &oracle, ReadMode::ALL[number % ReadMode::ALL.len()]));
                }
            }));
            is_over.store(true, SeqCst);
            forks.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert_all(&model, &oracle, ReadMode::Auto);
    });
}

#[test]
fn a_stream_is_of_the_process_that_began_it() {
    alone("", || {
        let files = two_shards().temp();
        let oracle = Oracle::open(&files);
        let model = open(&files);
        let begin = || model.select().all().stream_with(&in_mode(ReadMode::Buffered)).unwrap();
        let (mut taken, dropped) = (begin(), begin());
        forked(move || {
            drop(dropped);
            assert_eq!(taken.next().unwrap().unwrap_err().kind(), "Forked");
            assert!(taken.next().is_none(), "an error is the last item");
            drop(taken);
        });
        let mut taken = begin();
        assert_is(&taken.next().unwrap().unwrap(), &oracle);
        forked(|| drop(begin()));
        assert_eq!(taken.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 3);
    });
}
