//! Tensors in the order in which they are done.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};

use weightmap::{LoadOptions, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel, damage};

use crate::support::{
    FIRST, SECOND, alone, assert_error, assert_is, in_mode, open, two_shards, within_a_minute,
};

#[test]
fn every_tensor_comes_once_and_the_report_after_the_last() {
    let files = two_shards().temp();
    let (model, oracle) = (open(&files), Oracle::open(&files));
    for &mode in ReadMode::ALL {
        let mut stream = model.select().all().stream_with(&in_mode(mode)).unwrap();
        let mut names = BTreeSet::new();
        while let Some(tensor) = stream.next() {
            let tensor = tensor.unwrap();
            assert_is(&tensor, &oracle);
            assert!(names.insert(tensor.name().to_owned()), "{} came twice", tensor.name());
            assert!(stream.report().is_none(), "a report before the end");
        }
        assert!(names.iter().eq(["a", "b", "c", "d"]));
        let report = stream.report().expect("a report after the end");
        assert_eq!((report.tensors, report.requested_bytes), (4, 99));
        assert!(stream.next().is_none(), "the end is the end");
    }
}

#[test]
fn a_tensor_outlives_stream_and_model() {
    let files = two_shards().temp();
    let tensor = open(&files).select().names(["a"]).unwrap().stream().unwrap().next().unwrap().unwrap();
    assert_is(&tensor, &Oracle::open(&files));
}

/// Forty tensors of 16 MiB of nothing: more than a stream reads ahead.
fn long() -> TempModel {
    let add = |shard: ShardBuilder, number: u32| shard.zeros(&format!("t{number}"), "U8", &[16 << 20]);
    Checkpoint::single((0..40).fold(ShardBuilder::new(), add)).temp()
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_that_is_dropped_stops_reading_and_leaves_no_thread() {
    alone("", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let files = long();
        let before = threads();
        for &mode in ReadMode::ALL {
            let done = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&done);
            let options = LoadOptions::default().mode(mode).workers(3).progress(move |bytes, all| {
                assert_eq!(all, 640 << 20);
                counter.fetch_max(bytes, SeqCst);
            });
            let mut stream = open(&files).select().all().stream_with(&options).unwrap();
            let tensor = stream.next().unwrap().unwrap();
            drop(stream);
            assert!(
                done.load(SeqCst) <= (256 + 16) << 20,
                "{} bytes were read for one tensor",
                done.load(SeqCst)
            );
            // A thread that has been joined can still be listed for a moment.
            within_a_minute(move || {
                while threads() > before + 1 {
                    std::thread::yield_now();
                }
            });
            assert_eq!(tensor.bytes().len(), 16 << 20);
        }
    });
}

#[test]
fn a_stream_reads_ahead_and_stops_at_its_bound_while_nobody_takes() {
    within_a_minute(|| {
        let files = long();
        for &mode in ReadMode::ALL {
            let done = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&done);
            let options = LoadOptions::default().mode(mode).workers(2).progress(move |bytes, _| {
                counter.fetch_max(bytes, SeqCst);
            });
            let mut stream = open(&files).select().all().stream_with(&options).unwrap();
            stream.next().unwrap().unwrap();
            while done.load(SeqCst) < 240 << 20 {
                std::thread::yield_now();
            }
            // Long enough for a worker to go on, if it does.
            assert_ne!(weightmap_testkit::pattern::bytes("work", 64 << 20).last(), None);
            let bytes = done.load(SeqCst);
            assert!(bytes <= (256 + 16) << 20, "{mode}: {bytes} bytes were read for one tensor");
        }
    });
}

#[test]
fn a_stream_that_is_never_asked_ends_when_it_is_dropped() {
    let files = long();
    within_a_minute(move || drop(open(&files).select().all().stream().unwrap()));
}

#[test]
fn a_bad_shard_is_the_last_item() {
    let files = two_shards().temp();
    damage::truncate(files.file(SECOND), 20);
    let mut stream = open(&files).select().all().stream().unwrap();
    let items: Vec<_> = stream.by_ref().collect();
    let (last, before) = items.split_last().unwrap();
    assert_error(last.as_ref().unwrap_err(), "HeaderTruncated", SECOND);
    assert!(before.iter().all(Result::is_ok));
    assert!(stream.report().is_none() && stream.next().is_none());
}

#[test]
fn a_file_that_was_written_to_is_told_of_after_what_was_read() {
    let files = two_shards().temp();
    let oracle = Oracle::open(&files);
    for &mode in ReadMode::ALL {
        let model = open(&files);
        model.tensor("c").unwrap();
        damage::touch(files.file(SECOND));
        let items: Vec<_> = model.select().all().stream_with(&in_mode(mode)).unwrap().collect();
        let (last, before) = items.split_last().unwrap();
        assert_error(last.as_ref().unwrap_err(), "ShardChanged", SECOND);
        before.iter().for_each(|tensor| assert_is(tensor.as_ref().unwrap(), &oracle));
    }
}

#[test]
fn a_file_that_was_cut_is_told_of_after_what_could_be_read() {
    alone("", || {
        for &mode in ReadMode::ALL {
            let files = Checkpoint::new()
                .shard(FIRST, ShardBuilder::new().pattern("a", "U8", &[100]))
                .shard(SECOND, ShardBuilder::new().pattern("b", "U8", &[64 << 10]))
                .temp();
            let oracle = Oracle::open(&files);
            let model = open(&files);
            model.tensor("b").unwrap();
            damage::truncate(files.file(SECOND), 4096);
            let items: Vec<_> = model.select().all().stream_with(&in_mode(mode)).unwrap().collect();
            let (last, before) = items.split_last().unwrap();
            assert_error(last.as_ref().unwrap_err(), "ShardChanged", SECOND);
            before.iter().for_each(|tensor| assert_is(tensor.as_ref().unwrap(), &oracle));
        }
    });
}

#[test]
fn a_stream_can_be_dropped_by_its_own_progress_function() {
    // A tensor without elements is told of by another thread than the others.
    let empty = ShardBuilder::new().zeros("empty", "U8", &[0]);
    for files in [two_shards().temp(), Checkpoint::single(empty).temp()] {
        drop_in_progress(open(&files));
    }
}

fn drop_in_progress(model: ShardedModel) {
    within_a_minute(move || {
        let slot = Arc::new(Mutex::new(None));
        let (dropped, ended) = mpsc::channel();
        let own = Arc::clone(&slot);
        // The stream may be done before it is in its slot; then there is nothing to drop in the progress
        // function.
        let options = LoadOptions::default().progress(move |_, _| {
            drop(own.lock().unwrap().take());
            let _ = dropped.send(());
        });
        *slot.lock().unwrap() = Some(model.select().all().stream_with(&options).unwrap());
        ended.recv().unwrap();
        drop(slot.lock().unwrap().take());
    });
}

#[test]
fn a_progress_function_that_panics_ends_load_and_stream_and_nobody_waits() {
    // Two tensors of which one fills what a stream reads ahead.
    let add = |shard: ShardBuilder, name: &str| shard.zeros(name, "U8", &[200 << 20]);
    let files = Checkpoint::single(["a", "b", "c"].into_iter().fold(ShardBuilder::new(), add)).temp();
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let model = open(&files);
        let ended = within_a_minute(move || {
            let options = in_mode(mode).progress(|_, _| panic!("the progress function"));
            let all = model.select().all();
            let load = catch_unwind(AssertUnwindSafe(|| all.load_with(&options).is_ok()));
            let stream = catch_unwind(AssertUnwindSafe(|| all.stream_with(&options).unwrap().count()));
            (load.is_err(), stream.is_err())
        });
        assert_eq!(ended, (true, true), "{mode}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn streams_that_are_dropped_in_the_middle_leave_no_descriptor() {
    alone("", || {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let files = long();
        let model = open(&files);
        for &mode in ReadMode::ALL {
            let middle = || {
                let options = LoadOptions::default().mode(mode).workers(3);
                let mut stream = model.select().all().stream_with(&options).unwrap();
                stream.by_ref().take(5).for_each(|tensor| assert!(tensor.is_ok()));
            };
            middle();
            let before = descriptors();
            (0..5).for_each(|_| middle());
            assert_eq!(descriptors(), before, "{mode}");
        }
    });
}

/// A small tensor and one that several requests read, in one file.
fn small_and_large() -> TempModel {
    let shard = ShardBuilder::new().pattern("small", "U8", &[9]).pattern("large", "U8", &[48 << 20]);
    Checkpoint::new().shard(FIRST, shard).temp()
}

#[test]
fn a_file_that_is_cut_amid_a_large_tensor_ends_the_stream_without_it() {
    alone("", || {
        for &mode in ReadMode::ALL {
            for workers in [1, 3] {
                let files = small_and_large();
                let path = files.file(FIRST);
                // Cut once the small one is there. With one worker nothing of the large one has been read.
                let options = in_mode(mode).workers(workers).progress(move |_, _| {
                    damage::truncate(&path, 20 << 20);
                });
                let mut stream = open(&files).select().all().stream_with(&options).unwrap();
                let items: Vec<_> = stream.by_ref().collect();
                let (last, before) = items.split_last().unwrap();
                assert_error(last.as_ref().unwrap_err(), "ShardChanged", FIRST);
                assert!(stream.report().is_none() && stream.next().is_none());
                if workers == 1 {
                    let names: Vec<_> = before.iter().map(|tensor| tensor.as_ref().unwrap().name()).collect();
                    assert_eq!(names, ["small"], "{mode}");
                }
            }
        }
    });
}

/// The file is cut while the large tensor is being read: as soon as the process has read a third of it.
#[cfg(target_os = "linux")]
#[test]
fn no_tensor_is_given_of_which_a_part_was_cut_off() {
    alone("", || {
        for &mode in ReadMode::ALL {
            let files = small_and_large();
            let model = open(&files);
            model.tensor("large").unwrap();
            let all = Oracle::open(&files).tensor("large").bytes;
            let before = crate::touch::read_chars();
            let mut stream = model.select().all().stream_with(&in_mode(mode).workers(2)).unwrap();
            // What is mapped is not counted as read: it is cut at once, or after a while.
            let is_under_way = || crate::touch::read_chars() - before > 16 << 20;
            (0..2000).find(|_| is_under_way());
            damage::truncate(files.file(FIRST), 20 << 20);
            for item in stream.by_ref() {
                match item {
                    Ok(tensor) if tensor.name() == "large" && !tensor.is_mapped() => {
                        assert!(tensor.bytes() == all, "{mode}: a part is missing");
                    }
                    Ok(_) => {}
                    Err(error) => assert_error(&error, "ShardChanged", FIRST),
                }
            }
            assert!(stream.next().is_none());
        }
    });
}
