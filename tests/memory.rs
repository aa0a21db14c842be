//! How much memory a load holds at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use weightmap::{Error, ReadMode};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

use crate::support::{alone, assert_is, assert_says, in_mode, open, within_a_minute};

const MIB: u64 = 1 << 20;

/// The modes whose tensors have memory of their own.
const OWNED: [ReadMode; 2] = [ReadMode::Buffered, ReadMode::Direct];

/// The most that one worker has for itself.
const WORKER_BYTES: u64 = 4 * MIB;

/// Tensors `a` of 6 MiB and `b` of 2.
fn two() -> TempModel {
    let shard = ShardBuilder::new().pattern("a", "U8", &[6, MIB]).pattern("b", "U8", &[2 * MIB]);
    Checkpoint::single(shard).temp()
}

/// Asserts that an error is about memory; gives what is needed, what is allowed, and the tensor.
fn limit(error: &Error) -> (u64, u64, Option<&str>) {
    let Error::MemoryLimit { needed_bytes, limit_bytes, .. } = error else { panic!("{error}") };
    assert_says(error, &[&needed_bytes.to_string(), &limit_bytes.to_string(), "memory_limit"]);
    (*needed_bytes, *limit_bytes, error.tensor())
}

#[test]
fn a_load_that_needs_more_than_its_limit_is_refused_before_it_reads() {
    let files = two();
    for mode in OWNED {
        let all = open(&files).select().all();
        let options = in_mode(mode).workers(1).memory_limit(7 * MIB).progress(|_, _| panic!("it has read"));
        let error = all.load_with(&options).unwrap_err();
        let (needed, allowed, tensor) = limit(&error);
        assert_eq!((allowed, tensor), (7 * MIB, None));
        assert!((8 * MIB..=8 * MIB + WORKER_BYTES).contains(&needed), "{mode}: {needed}");
        assert_eq!(error.path().unwrap(), files.path());

        let loaded = all.load_with(&in_mode(mode).workers(1).memory_limit(needed)).unwrap();
        assert!(loaded.report().peak_buffer_bytes <= needed, "what is told to suffice suffices");
        assert!(all.load_with(&in_mode(mode).workers(1).memory_limit(needed - 1)).is_err());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn of_a_load_that_is_refused_no_data_is_read() {
    alone("", || {
        let files = two();
        for mode in OWNED {
            let all = open(&files).select().all();
            let before = crate::touch::read_chars();
            limit(&all.load_with(&in_mode(mode).memory_limit(MIB)).unwrap_err());
            limit(&all.stream_with(&in_mode(mode).memory_limit(MIB)).unwrap().next().unwrap().unwrap_err());
            let read = crate::touch::read_chars() - before;
            assert!(read < MIB, "{mode}: {read} bytes");
        }
    });
}

#[test]
fn mapped_tensors_and_memory_of_the_callers_are_not_counted() {
    let files = two();
    let all = open(&files).select().all();
    let mapped = in_mode(ReadMode::Mapped).memory_limit(1);
    assert_eq!(all.load_with(&mapped).unwrap().report().peak_buffer_bytes, 0);
    assert_eq!(all.stream_with(&mapped).unwrap().filter(Result::is_ok).count(), 2);
    for mode in OWNED {
        let mut memory = [vec![0; 6 << 20], vec![0; 2 << 20]];
        let mut buffers = memory.iter_mut();
        let options = in_mode(mode).workers(1).memory_limit(WORKER_BYTES);
        let report = all.load_into_with(&options, |_| buffers.next().unwrap()).unwrap();
        assert!(report.peak_buffer_bytes <= WORKER_BYTES, "{mode}: {}", report.peak_buffer_bytes);
    }
}

#[test]
fn a_slice_needs_the_memory_of_a_slice() {
    let files = two();
    let allowed = 2 * MIB + WORKER_BYTES;
    for mode in OWNED {
        let options = in_mode(mode).workers(1).memory_limit(allowed);
        let slice = |columns| {
            let dims = [weightmap::Intervals::from(..), (0..columns).into()];
            open(&files).select().slice("a", dims).unwrap()
        };
        let loaded = slice(MIB / 4).load_with(&options).unwrap();
        assert!(loaded.report().peak_buffer_bytes <= allowed);
        let (needed, _, _) =
            limit(&slice(MIB * 3 / 4).load_with(&options.memory_limit(4 * MIB)).unwrap_err());
        assert!((6 * MIB * 3 / 4..6 * MIB * 3 / 4 + WORKER_BYTES + 1).contains(&needed), "{mode}: {needed}");
    }
}

/// Small tensors of 12 MiB together, two of 3 MiB, and one of 20 that is read by several requests.
fn mixed() -> TempModel {
    let add = |shard: ShardBuilder, number: u64| {
        shard.pattern(&format!("small.{number}"), "U8", &[10_000 + 777 * (number % 100)])
    };
    let shard = (0..250)
        .fold(ShardBuilder::new(), add)
        .pattern("middle.0", "U8", &[3 * MIB + 1])
        .pattern("long", "U8", &[20 * MIB + 3])
        .pattern("middle.1", "U8", &[3 * MIB - 1]);
    Checkpoint::single(shard).temp()
}

#[test]
fn a_stream_holds_no_more_than_its_limit() {
    let files = mixed();
    let oracle = Oracle::open(&files);
    within_a_minute(move || {
        for &mode in ReadMode::ALL {
            for allowed in [25 * MIB, 32 * MIB, 80 * MIB] {
                for workers in [1, 2, 5] {
                    let options = in_mode(mode).memory_limit(allowed).workers(workers);
                    let mut stream = open(&files).select().all().stream_with(&options).unwrap();
                    let tensors = stream.by_ref().map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count();
                    let report = stream.report().unwrap();
                    assert_eq!((tensors, report.tensors), (253, 253));
                    let peak = report.peak_buffer_bytes;
                    assert!(peak <= allowed, "{mode}, {workers} workers: {peak} of {allowed}");
                }
            }
        }
    });
}

#[test]
fn a_stream_of_mapped_tensors_goes_on_where_one_is_longer_than_its_limit() {
    let files = mixed();
    let oracle = Oracle::open(&files);
    within_a_minute(move || {
        for allowed in [0, 1, 19 * MIB] {
            for workers in [1, 5] {
                let options = in_mode(ReadMode::Mapped).memory_limit(allowed).workers(workers);
                let stream = open(&files).select().all().stream_with(&options).unwrap();
                assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 253);
            }
        }
    });
}

#[test]
fn small_tensors_are_read_in_small_requests_where_memory_is_small() {
    let files = mixed();
    let oracle = Oracle::open(&files);
    within_a_minute(move || {
        let small = open(&files).select().glob("small.*").unwrap();
        for (mode, allowed) in [
            (ReadMode::Buffered, MIB),
            (ReadMode::Buffered, 3 * MIB),
            (ReadMode::Buffered, 6 * MIB),
            (ReadMode::Direct, 5 * MIB),
            (ReadMode::Direct, 10 * MIB),
        ] {
            let mut stream = small.stream_with(&in_mode(mode).memory_limit(allowed)).unwrap();
            assert_eq!(stream.by_ref().map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 250);
            let peak = stream.report().unwrap().peak_buffer_bytes;
            assert!(peak <= allowed, "{mode}: {peak} of {allowed}");
        }
    });
}

/// The consumer takes a tensor only when half of what is allowed lies ready, or all that is left.
#[test]
fn a_stream_that_is_taken_slowly_holds_no_more_than_its_limit() {
    const ALLOWED: u64 = 40 * MIB;
    const TENSOR: u64 = 3 * MIB;
    let add = |shard: ShardBuilder, number: u32| shard.zeros(&format!("t{number}"), "U8", &[TENSOR]);
    let files = Checkpoint::single((0..40).fold(ShardBuilder::new(), add)).temp();
    within_a_minute(move || {
        for &mode in ReadMode::ALL {
            let done = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&done);
            let options = in_mode(mode).memory_limit(ALLOWED).workers(2).progress(move |bytes, _| {
                counter.fetch_max(bytes, SeqCst);
            });
            let mut stream = open(&files).select().all().stream_with(&options).unwrap();
            for taken in 0..40 {
                let ready = || done.load(SeqCst) - taken * TENSOR;
                while ready() < ALLOWED / 2 && done.load(SeqCst) < 40 * TENSOR {
                    std::thread::yield_now();
                }
                assert!(ready() <= ALLOWED, "{mode}: {} bytes lie ready", ready());
                stream.next().unwrap().unwrap();
            }
            assert!(stream.next().is_none());
            assert!(stream.report().unwrap().peak_buffer_bytes <= ALLOWED);
        }
    });
}

#[test]
fn a_tensor_that_alone_exceeds_the_limit_is_told_by_name() {
    let files = mixed();
    for mode in OWNED {
        let options = in_mode(mode).memory_limit(20 * MIB);
        let mut stream = open(&files).select().all().stream_with(&options).unwrap();
        let error = stream.next().unwrap().unwrap_err();
        let (needed, allowed, tensor) = limit(&error);
        assert_eq!((allowed, tensor), (20 * MIB, Some("long")));
        assert!(needed > 20 * MIB);
        assert_says(&error, &["slices"]);
        assert!(stream.next().is_none(), "an error is the last item");
    }
}

#[test]
fn what_a_limit_leaves_to_workers_bounds_how_many_there_are() {
    let add = |shard: ShardBuilder, number| shard.zeros(&format!("t{number}"), "U8", &[8 * MIB]);
    let files = Checkpoint::single((0..16).fold(ShardBuilder::new(), add)).temp();
    let workers = |allowed| {
        let options = in_mode(ReadMode::Direct).workers(8).memory_limit(allowed);
        let mut stream = open(&files).select().all().stream_with(&options).unwrap();
        assert!(stream.by_ref().all(|tensor| tensor.is_ok()));
        let report = stream.report().unwrap();
        // Where the file system has no direct reads, workers need less.
        (report.mode == Some(ReadMode::Direct)).then_some(report.workers.len())
    };
    assert!([Some(1), None].contains(&workers(16 * MIB)));
    assert!([Some(4), None].contains(&workers(64 * MIB)));
}
