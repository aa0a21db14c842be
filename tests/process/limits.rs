//! A process that may have little of something: descriptors, address space, threads, stack, system calls.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use weightmap::{Error, Intervals, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

use crate::support::{
    alone, alone_with, assert_error, assert_is, assert_says, in_mode, load_all, model_path, open, two_shards,
};

/// So many shards of one small and one larger tensor.
fn shards(count: u32) -> TempModel {
    let add = |checkpoint: Checkpoint, number: u32| {
        let shard = ShardBuilder::new().pattern(&format!("{number}.small"), "U8", &[99]).pattern(
            &format!("{number}.large"),
            "F32",
            &[7, 5000],
        );
        checkpoint.shard(&format!("model-{number:05}-of-{count:05}.safetensors"), shard)
    };
    (1..=count).fold(Checkpoint::new(), add).temp()
}

fn assert_loads_all(model: &ShardedModel, oracle: &Oracle, mode: ReadMode) {
    let loaded = load_all(model, mode).unwrap_or_else(|error| panic!("{mode}: {error}"));
    assert_eq!(loaded.tensors().len(), model.len());
    loaded.tensors().iter().for_each(|tensor| assert_is(tensor, oracle));
}

/// More threads than there are descriptors, each of which needs one.
fn load_by(threads: usize) {
    let path = model_path();
    let oracle = Oracle::open(&path);
    let bytes = |name| (name, oracle.tensor(name).bytes);
    let expected: BTreeMap<_, _> = oracle.names().into_iter().map(bytes).collect();
    let (model, start) = (open(&path), Barrier::new(threads));
    let load = |mode| {
        start.wait();
        let loaded = load_all(&model, mode).unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!(loaded.tensors().len(), expected.len());
        loaded.tensors().iter().for_each(|tensor| assert!(tensor.bytes() == expected[tensor.name()]));
    };
    let load = &load;
    thread::scope(|scope| {
        for &mode in ReadMode::ALL.iter().cycle().take(threads) {
            scope.spawn(move || load(mode));
        }
    });
}

#[test]
fn sixty_four_threads_load_64_shards_with_16_descriptors() {
    alone_with(|| shards(64), "ulimit -n 16", || load_by(64));
}

#[test]
fn sixty_four_threads_load_64_shards_with_32_descriptors() {
    alone_with(|| shards(64), "ulimit -n 32", || load_by(64));
}

#[test]
fn memory_for_a_tensor_that_cannot_be_had_is_an_error_that_names_it() {
    let files = || {
        let shard = ShardBuilder::new().pattern("small", "U8", &[99]).zeros("large", "U8", &[64 << 30]);
        Checkpoint::single(shard).temp()
    };
    alone_with(files, "ulimit -v 8388608", || {
        let model = open(model_path());
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            let whole = model.select().names(["large"]).unwrap();
            let options = in_mode(mode).memory_limit(1 << 40);
            let error = whole.load_with(&options).unwrap_err();
            assert_error(&error, "Io", "model.safetensors");
            assert_eq!(error.tensor(), Some("large"));
            assert_says(&error, &["allocate", "68719476736 bytes"]);
            let error = whole.stream_with(&options).unwrap().next().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.tensor()), ("Io", Some("large")));
            let rows =
                model.select().slice("large", [Intervals::from(5..9)]).unwrap().load_with(&options).unwrap();
            assert_eq!(rows.tensors()[0].bytes(), [0; 4]);
        }
        assert_eq!(model.select().names(["small"]).unwrap().load().unwrap().tensors().len(), 1);
    });
}

/// The header is within the limit, and what it takes to read it is not to be had.
#[test]
fn memory_for_a_header_that_cannot_be_had_is_an_error() {
    let files = || {
        let shard = ShardBuilder::new().metadata("long", &"x".repeat(90 << 20)).pattern("small", "U8", &[9]);
        Checkpoint::new().shard("model-00001-of-00001.safetensors", shard).temp()
    };
    // A process of this size runs, and has less than the header left.
    alone_with(files, "ulimit -v 90000", || {
        let error = open(model_path()).tensor("small").unwrap_err();
        assert_error(&error, "Io", "model-00001-of-00001.safetensors");
        assert!(matches!(error, Error::Io { error, .. } if error.kind() == std::io::ErrorKind::OutOfMemory));
    });
}

/// There is memory for the text, and not for what is made of it.
#[test]
fn memory_for_what_a_header_says_that_cannot_be_had_is_an_error() {
    let header = || {
        let entry = |number| format!(r#""{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
        let entries = (0..1_000_000).map(entry).collect::<Vec<_>>().join(",");
        Checkpoint::single(ShardBuilder::new().raw_header(format!("{{{entries}}}"))).temp()
    };
    alone_with(header, "ulimit -v 200000", || {
        let error = ShardedModel::open(model_path()).map(drop).unwrap_err();
        assert_error(&error, "Io", "model.safetensors");
        assert_says(&error, &["memory for a header"]);
    });
}

#[test]
fn memory_for_what_an_index_says_that_cannot_be_had_is_an_error() {
    let index = || {
        let entry = |number| format!(r#""{number}":"x.safetensors""#);
        let entries = (0..2_000_000).map(entry).collect::<Vec<_>>().join(",");
        Checkpoint::new().index_text(format!(r#"{{"weight_map":{{{entries}}}}}"#)).temp()
    };
    alone_with(index, "ulimit -v 200000", || {
        let error = ShardedModel::open(model_path()).map(drop).unwrap_err();
        assert_error(&error, "Io", "model.safetensors.index.json");
        assert_says(&error, &["memory for an index"]);
    });
}

/// What limits the threads of a user does not hold for root, who has to become someone else.
const NO_THREADS: &str = "ulimit -u 1
if [ \"$(id -u)\" = 0 ]; then exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"; fi";

#[test]
fn a_load_does_without_threads_that_cannot_be_started_and_a_stream_says_so() {
    alone_with(
        || shards(8),
        NO_THREADS,
        || {
            if thread::Builder::new().spawn(|| ()).is_ok() {
                println!("skipped: threads can be started here");
                return;
            }
            let path = model_path();
            let (model, oracle) = (open(&path), Oracle::open(&path));
            for &mode in ReadMode::ALL {
                assert_loads_all(&model, &oracle, mode);
                assert_loads_all(&open(&path), &oracle, mode);
                let error = model.select().all().stream_with(&in_mode(mode)).unwrap_err();
                assert_eq!(error.kind(), "Threads");
                assert_says(&error, &["load"]);
            }
            model.select().all().prefetch().unwrap();
            assert!(weightmap::check(&path, &weightmap::OpenOptions::default()).unwrap().is_sound());
        },
    );
}

#[test]
fn a_process_that_may_write_no_file_loads() {
    alone_with(
        || shards(2),
        "ulimit -f 0",
        || {
            let path = model_path();
            let (model, oracle) = (open(&path), Oracle::open(&path));
            for &mode in ReadMode::ALL {
                assert_loads_all(&model, &oracle, mode);
                let stream = model.select().all().stream_with(&in_mode(mode)).unwrap();
                assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 4);
            }
            model.select().all().prefetch().unwrap();
        },
    );
}

/// The test runs on the first thread of the process, which is the one that has this stack.
#[test]
fn a_small_stack_is_enough_however_deep_a_header_goes() {
    alone("ulimit -s 256", || {
        let nested =
            |open: &str, close: &str, depth| format!("{}{}", open.repeat(depth), close.repeat(depth));
        for depth in [1, 100, 100_000] {
            for value in [nested("[", "]", depth), nested("{\"a\":", "}", depth).replace(":}", ":0}")] {
                let shard = ShardBuilder::new()
                    .entry(&format!(r#""t":{{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":{value}}}"#));
                let index = format!(r#"{{"x": {value}, "weight_map": {{"t": "model-1.safetensors"}}}}"#);
                let files = Checkpoint::new().shard("model-1.safetensors", shard).index_text(index).temp();
                let opened = ShardedModel::open(&files).and_then(|model| model.tensor("t"));
                assert!(opened.is_ok(), "{depth}: {opened:?}");
            }
        }
        let shape = vec![1; 100_000];
        let files = Checkpoint::single(ShardBuilder::new().pattern("deep", "U8", &shape)).temp();
        let model = open(&files);
        assert_loads_all(&model, &Oracle::open(&files), ReadMode::Buffered);
        let row = model.select().slice("deep", vec![0..1; 100_000]).unwrap().load().unwrap();
        assert_eq!(row.tensors()[0].shape().len(), 100_000);
    });
}

/// Has the kernel answer these calls, or those of them with these arguments, with an error: for the calling thread, and all
/// that it starts.
fn refuse(calls: &[(libc::c_long, Option<(u8, u64)>)], error: i32) {
    let rule = |&(call, argument): &(libc::c_long, Option<(u8, u64)>)| {
        let is = |(place, value)| {
            let equal = SeccompCondition::new(place, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
            SeccompRule::new(vec![equal.unwrap()]).unwrap()
        };
        (call, argument.map(is).into_iter().collect())
    };
    let rules: BTreeMap<_, Vec<SeccompRule>> = calls.iter().map(rule).collect();
    let errno = SeccompAction::Errno(u32::try_from(error).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Loads in all modes where these calls are refused.
fn load_without(calls: &[(libc::c_long, Option<(u8, u64)>)], error: i32) {
    refuse(calls, error);
    let files = two_shards().temp();
    let oracle = Oracle::open(&files);
    for &mode in ReadMode::ALL {
        let model = open(&files);
        assert_loads_all(&model, &oracle, mode);
        model.select().all().prefetch_with(&in_mode(mode)).unwrap();
        let stream = model.select().all().stream_with(&in_mode(mode)).unwrap();
        assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 4);
        for name in oracle.names() {
            assert_eq!(model.view(name).unwrap().bytes(), oracle.tensor(name).bytes);
        }
    }
    assert!(weightmap::check(&files, &weightmap::OpenOptions::default()).unwrap().is_sound());
}

/// The calls that old kernels do not have and containers forbid.
const NEW_CALLS: [(libc::c_long, Option<(u8, u64)>); 4] =
    [(libc::SYS_io_uring_setup, None), (CACHESTAT, None), (libc::SYS_preadv2, None), (libc::SYS_statx, None)];

/// The same number on all architectures.
const CACHESTAT: libc::c_long = 451;

/// Where the third argument of `madvise` is its advice, the one that brings pages in for reading.
const POPULATE: (libc::c_long, Option<(u8, u64)>) = (libc::SYS_madvise, Some((2, 22)));

#[test]
fn calls_that_the_kernel_does_not_know_are_done_without() {
    alone("", || load_without(&NEW_CALLS, libc::ENOSYS));
}

#[test]
fn calls_that_the_process_may_not_make_are_done_without() {
    // That `statx` may be called is known to this process already.
    alone("", || load_without(&NEW_CALLS[..3], libc::EPERM));
}

#[test]
fn advice_that_the_kernel_does_not_know_is_done_without() {
    alone("", || load_without(&[POPULATE], libc::EINVAL));
    alone("", || load_without(&[(libc::SYS_madvise, None)], libc::EINVAL));
}

#[test]
fn all_advice_may_be_refused() {
    let calls = [
        (libc::SYS_madvise, None),
        (libc::SYS_fadvise64, None),
        (libc::SYS_mincore, None),
        (libc::SYS_fstatfs, None),
        (libc::SYS_prlimit64, None),
        (libc::SYS_getrusage, None),
        (libc::SYS_sched_getaffinity, None),
    ];
    alone("", || load_without(&calls, libc::EPERM));
}

/// As where mapping a file is forbidden, or the file system has none.
#[test]
fn a_file_that_cannot_be_mapped_is_read() {
    alone("", || {
        let files = two_shards().temp();
        let (oracle, model) = (Oracle::open(&files), open(&files));
        // The flags of a shared mapping, which is what files are mapped with; memory of our own is private.
        let shared = (libc::SYS_mmap, Some((3, u64::from(libc::MAP_SHARED.unsigned_abs()))));
        refuse(&[shared], libc::EPERM);
        for mode in [ReadMode::Auto, ReadMode::Buffered, ReadMode::Direct] {
            assert_loads_all(&model, &oracle, mode);
        }
        assert_error(&load_all(&model, ReadMode::Mapped).unwrap_err(), "Io", crate::support::FIRST);
    });
}
