//! The first touch of a shard: once, whoever asks; with few descriptors; and again after a failure.

use std::path::Path;
use std::sync::Barrier;

use weightmap::{Error, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel, damage};

use crate::support::{
    FIRST, SECOND, alone, assert_error, assert_is, in_mode, load_all, open, two_shards, within_a_minute,
};

/// How many bytes this process has read, by all calls that read.
#[cfg(target_os = "linux")]
pub(crate) fn read_chars() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// How often this process maps a file.
#[cfg(target_os = "linux")]
pub(crate) fn mappings(path: &Path) -> usize {
    let path = path.canonicalize().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

/// What 64 threads get that ask at the same time.
pub(crate) fn race<T: Send>(ask: impl Fn() -> T + Sync) -> Vec<T> {
    let start = Barrier::new(64);
    let ask = || {
        start.wait();
        ask()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[cfg(target_os = "linux")]
#[test]
fn of_64_threads_one_reads_the_header_and_all_see_the_same() {
    alone("", || {
        // So long that no thread has read it before the last one asks.
        let header = 8 << 20;
        let shard = ShardBuilder::new().metadata("note", &"n".repeat(header)).pattern("c", "U8", &[7]);
        let files = Checkpoint::new().shard(FIRST, shard).temp();
        let model = open(&files);
        let before = read_chars();
        let views = race(|| model.view("c").unwrap());
        let read = read_chars() - before;
        assert!(read < 2 * header as u64, "{read} bytes were read for a header of {header}");
        assert_eq!(mappings(&files.file(FIRST)), 1);
        for view in &views {
            assert_eq!(view.bytes(), weightmap_testkit::pattern::bytes("c", 7));
            assert_eq!(view.bytes().as_ptr(), views[0].bytes().as_ptr());
        }
    });
}

#[test]
fn loads_that_race_for_one_shard_open_and_check_it_once() {
    let files = two_shards().temp();
    let model = open(&files);
    let selection = model.select().names(["c"]).unwrap();
    for report in
        race(|| selection.load_with(&in_mode(ReadMode::Buffered).workers(1)).unwrap().report().clone())
    {
        assert!(report.shards_opened <= 1 && report.shards_checked <= 1, "{report:?}");
    }
    assert_eq!(selection.load().unwrap().report().shards_checked, 0);
}

#[test]
fn all_who_wait_for_a_bad_shard_get_the_error_and_after_a_repair_it_serves() {
    let files = two_shards().temp();
    let good = std::fs::read(files.file(SECOND)).unwrap();
    damage::overwrite(files.file(SECOND), 8, "[");
    let model = open(&files);
    for error in race(|| model.view("c").map(drop).unwrap_err()) {
        assert_error(&error, "Json", SECOND);
    }
    damage::replace(files.file(SECOND), good);
    let oracle = Oracle::open(&files);
    for view in race(|| model.view("c").unwrap()) {
        assert_eq!(view.bytes(), oracle.tensor("c").bytes);
    }
}

#[test]
fn one_bad_shard_does_not_hinder_the_others() {
    let files = two_shards().temp();
    damage::truncate(files.file(SECOND), 3);
    let model = open(&files);
    assert_error(&load_all(&model, ReadMode::Auto).unwrap_err(), "TooShort", SECOND);
    let loaded = model.select().shard(FIRST).unwrap().load().unwrap();
    loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &Oracle::open(files.file(FIRST))));
}

#[cfg(unix)]
#[test]
fn a_fifo_blocks_no_thread() {
    let files = two_shards().temp();
    damage::replace_by_fifo(files.file(SECOND));
    within_a_minute(move || {
        let model = open(&files);
        for error in race(|| model.view("c").map(drop).unwrap_err()) {
            assert_error(&error, "NotRegularFile", SECOND);
        }
    });
}

fn thousand_shards() -> TempModel {
    let add = |checkpoint: Checkpoint, number: u32| {
        let shard = ShardBuilder::new().pattern(&format!("t{number}"), "U8", &[9]);
        checkpoint.shard(&format!("model-{number:05}-of-01000.safetensors"), shard)
    };
    (1..=1000).fold(Checkpoint::new(), add).temp()
}

#[cfg(target_os = "linux")]
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_shards_are_loaded_with_64_descriptors() {
    alone("ulimit -n 64", || {
        let files = thousand_shards();
        let oracle = Oracle::open(&files);
        for &mode in ReadMode::ALL {
            let model = open(&files);
            let loaded = load_all(&model, mode).unwrap();
            assert_eq!((loaded.tensors().len(), loaded.report().shards_checked), (1000, 1000));
            loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
            assert!(descriptors() <= 32, "{} descriptors are kept", descriptors());
            let again = load_all(&model, mode).unwrap();
            assert_eq!(again.report().shards_checked, 0, "what is opened again is not checked again");
            let stream = open(&files).select().all().stream_with(&in_mode(mode)).unwrap();
            assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 1000);
        }
        let model = open(&files);
        for name in oracle.names() {
            assert_eq!(model.view(name).unwrap().bytes(), oracle.tensor(name).bytes);
        }
        let check = weightmap::check(&files, &weightmap::OpenOptions::default()).unwrap();
        assert!(check.is_sound() && check.shards == 1000, "{:?}", check.faults);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_shards_without_an_index_are_opened_with_64_descriptors() {
    alone("ulimit -n 64", || {
        let files = thousand_shards();
        std::fs::remove_file(files.file("model.safetensors.index.json")).unwrap();
        assert_eq!(load_all(&open(&files), ReadMode::Auto).unwrap().tensors().len(), 1000);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn descriptors_that_others_take_are_an_error_and_no_panic() {
    alone("ulimit -n 64", || {
        let files = two_shards().temp();
        let model = open(&files);
        let mut taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert!(matches!(model.tensor("a"), Err(Error::Io { .. })));
        taken.pop();
        model.tensor("a").unwrap();
        // The descriptor of the first shard is given up for the second.
        model.tensor("c").unwrap();
        drop(taken);
        load_all(&model, ReadMode::Buffered).unwrap();
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_shard_that_does_not_fit_the_address_space_can_be_read() {
    // 8 GiB of address space, and a shard of 64.
    alone("ulimit -v 8388608", || {
        let shard = ShardBuilder::new().pattern("small", "U8", &[100]).zeros("large", "U8", &[64 << 30]);
        let files = Checkpoint::new().shard(FIRST, shard).temp();
        let model = open(&files);
        assert_eq!(model.tensor("large").unwrap().len_bytes(), 64 << 30);
        assert_error(&model.view("small").map(drop).unwrap_err(), "Io", FIRST);
        let small = |mode| model.select().names(["small"]).unwrap().load_with(&in_mode(mode));
        assert_error(&small(ReadMode::Mapped).unwrap_err(), "Io", FIRST);
        for mode in [ReadMode::Auto, ReadMode::Buffered] {
            assert_eq!(
                small(mode).unwrap().tensors()[0].bytes(),
                weightmap_testkit::pattern::bytes("small", 100)
            );
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_cannot_be_had_is_an_error() {
    alone("ulimit -v 8388608", || {
        let files =
            Checkpoint::new().shard(FIRST, ShardBuilder::new().zeros("large", "U8", &[64 << 30])).temp();
        let error = load_all(&open(&files), ReadMode::Buffered).unwrap_err();
        assert_error(&error, "Io", FIRST);
    });
}

#[test]
fn a_sparse_shard_of_a_tebibyte_is_read_in_part() {
    let shard = ShardBuilder::new().zeros("large", "U8", &[1 << 40]).pattern("small", "U8", &[100]);
    let files = Checkpoint::new().shard(FIRST, shard).temp();
    for &mode in ReadMode::ALL {
        let loaded = ShardedModel::open(&files)
            .unwrap()
            .select()
            .names(["small"])
            .unwrap()
            .load_with(&in_mode(mode))
            .unwrap();
        assert_eq!(loaded.tensors()[0].bytes(), weightmap_testkit::pattern::bytes("small", 100));
        assert!(loaded.report().read_bytes <= 8192);
        assert!(loaded.report().spared_bytes.unwrap() >= (1 << 40) - 8192);
    }
}
