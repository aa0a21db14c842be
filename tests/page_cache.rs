//! What a load leaves in the page cache, and what it finds there.
//!
//! How much of a file is in the cache is told by the device: how much it gives when the file is read. So each test
//! runs in a process of its own, where nobody else reads.
#![cfg(target_os = "linux")]

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use weightmap::{Intervals, LoadReport, ReadMode, Selection};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder};

use crate::support::{FIRST, SECOND, alone, assert_is, in_mode, on_disk, open};

const MIB: u64 = 1 << 20;

/// Two shards: in the first a tensor that several requests read and one that does not end with a page, in the
/// second some of a MiB.
fn checkpoint() -> Checkpoint {
    let first = ShardBuilder::new().pattern("long", "U64", &[1024, 3072]).pattern("b", "U8", &[4 * MIB + 1]);
    let second = (0..20)
        .fold(ShardBuilder::new(), |shard, number| shard.pattern(&format!("t{number:02}"), "U8", &[MIB]));
    Checkpoint::new().shard(FIRST, first).shard(SECOND, second)
}

/// The bytes that this process has had devices give.
fn device_bytes() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}

/// How many bytes of a file are not in the page cache; afterwards they are.
fn uncached_bytes(path: &Path) -> u64 {
    let before = device_bytes();
    std::fs::read(path).unwrap();
    device_bytes() - before
}

fn uncached(dir: &Path) -> u64 {
    [FIRST, SECOND].iter().map(|shard| uncached_bytes(&dir.join(shard))).sum()
}

fn file_bytes(dir: &Path) -> u64 {
    [FIRST, SECOND].iter().map(|shard| dir.join(shard).metadata().unwrap().len()).sum()
}

#[test]
fn what_is_dropped_behind_is_not_in_the_page_cache_afterwards() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let all = file_bytes(dir.path());
        for &mode in ReadMode::ALL {
            let model = open(&dir);
            model.evict().unwrap();
            let options = in_mode(mode).drop_behind(true);
            let oracle = Oracle::open(&dir);
            for (taken, tensor) in model.select().all().stream_with(&options).unwrap().enumerate() {
                let tensor = tensor.unwrap();
                // The oracle's reads would be in the cache, too.
                assert!(taken > 0 || !tensor.bytes().is_empty());
            }
            drop(model);
            let left = all - uncached(dir.path()).min(all);
            // Read-ahead can fetch again what has been dropped.
            assert!(left <= all / 4, "{mode}: {left} of {all} bytes are cached");

            let loaded = open(&dir).select().all().load_with(&options).unwrap();
            loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
            drop(loaded);
        }
    });
}

#[test]
fn what_is_not_dropped_behind_stays_in_the_page_cache() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        for mode in [ReadMode::Mapped, ReadMode::Buffered] {
            let model = open(&dir);
            model.evict().unwrap();
            assert!(model.select().all().stream_with(&in_mode(mode)).unwrap().all(|tensor| tensor.is_ok()));
            assert!(uncached(dir.path()) < MIB, "{mode}");
        }
    });
}

#[test]
fn rows_that_lie_far_apart_are_fetched_without_what_is_between_them() {
    alone("", || {
        let shard = ShardBuilder::new().pattern("wide", "U8", &[48, MIB]);
        let Some(dir) = on_disk(&Checkpoint::single(shard)) else { return };
        for &mode in ReadMode::ALL {
            let model = open(&dir);
            model.evict().unwrap();
            let part = model.select().slice("wide", [(..).into(), Intervals::from(5000..5016)]).unwrap();
            let before = device_bytes();
            let report = part.load_with(&in_mode(mode)).unwrap().report().clone();
            assert_eq!(report.requested_bytes, 48 * 16);
            let fetched = device_bytes() - before;
            // A page or two for each row, and what is read around the header.
            assert!(fetched < 2 * MIB, "{mode}: {fetched} bytes for 48 rows");
        }
    });
}

#[test]
fn direct_reads_leave_nothing_in_the_page_cache() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        model.evict().unwrap();
        let loaded = model.select().all().load_with(&in_mode(ReadMode::Direct)).unwrap();
        let report = loaded.report();
        if report.mode != Some(ReadMode::Direct) {
            assert_eq!(report.reason, "the file system has no direct reads");
            println!("skipped: {} has no direct reads", dir.path().display());
            return;
        }
        assert!(report.disk_bytes.unwrap() >= report.requested_bytes);
        // The header's neighbourhood is.
        assert!(report.resident_after.unwrap() <= 2 * 64, "{:?} pages", report.resident_after);
        assert!(uncached(dir.path()) + MIB >= file_bytes(dir.path()));
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &Oracle::open(&dir)));
    });
}

#[test]
fn tensors_that_lie_in_the_mapping_keep_their_pages_until_they_are_dropped() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        model.evict().unwrap();
        let options = in_mode(ReadMode::Mapped).drop_behind(true);
        let loaded = model.select().all().load_with(&options).unwrap();
        let report = loaded.report();
        assert_eq!(report.resident_after, Some(report.extent_pages));
        let before = device_bytes();
        loaded.tensors().iter().for_each(|tensor| assert_eq!(tensor.bytes().to_vec(), tensor.bytes()));
        assert!(device_bytes() - before < MIB, "the pages were fetched again");
        drop(loaded);
        let all = file_bytes(dir.path());
        let left = all - uncached(dir.path()).min(all);
        assert!(left <= all / 4, "{left} of {all} bytes are cached");
    });
}

/// Evicts, prefetches, and gives the report.
fn prefetched(selection: &Selection) -> LoadReport {
    let report = selection.prefetch().unwrap();
    assert_eq!((report.mapped_bytes, report.copied_bytes), (0, 0));
    assert_eq!((report.mode, report.reason.as_str()), (Some(ReadMode::Buffered), "into the page cache"));
    report
}

#[test]
fn what_is_prefetched_is_in_the_page_cache_and_not_in_the_process() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        model.evict().unwrap();
        let report = prefetched(&model.select().all());
        assert_eq!((report.tensors, report.requested_bytes), (22, 48 * MIB + 1));
        assert!(report.read_bytes >= report.requested_bytes);
        assert!(report.disk_bytes.unwrap() >= report.requested_bytes - MIB);
        assert_eq!(report.resident_after, Some(report.extent_pages));
        assert!(report.peak_buffer_bytes <= MIB * report.workers.len() as u64);
        assert!(uncached(dir.path()) < MIB);

        let loaded = model.select().all().load_with(&in_mode(ReadMode::Auto)).unwrap();
        assert_eq!(loaded.report().reason, "in the page cache");
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &Oracle::open(&dir)));
    });
}

#[test]
fn what_is_not_prefetched_stays_on_the_disk() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        model.evict().unwrap();
        // Half of the columns of the long tensor, and a tensor amid the second shard.
        let halves = [weightmap::Intervals::from(..), (..1536).into()];
        let some = model.select().slice("long", halves).unwrap().names(["t10"]).unwrap();
        let report = prefetched(&some);
        assert_eq!(report.requested_bytes, 13 * MIB);
        let all = file_bytes(dir.path());
        // Rows are too near to each other to be read apart by everybody.
        let cold = uncached_of(&dir.path().join(SECOND), MIB * 2..MIB * 9);
        assert!(cold >= 6 * MIB, "{cold} bytes were not in the cache");
        assert!(uncached(dir.path()) <= all - report.requested_bytes);
    });
}

/// The same of a range of a file.
fn uncached_of(path: &Path, range: std::ops::Range<u64>) -> u64 {
    let mut file = std::fs::File::open(path).unwrap();
    file.seek(SeekFrom::Start(range.start)).unwrap();
    let before = device_bytes();
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes).unwrap();
    device_bytes() - before
}

/// The storage, the mode and the reason of a load; on a disk `Direct` may not be had.
fn told(selection: &Selection) -> (&'static str, Option<ReadMode>, String) {
    let report = selection.load().unwrap().report().clone();
    (report.shards[0].storage, report.mode, report.reason)
}

#[test]
fn auto_tells_by_which_rule_it_reads() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        let (all, thin) = (model.select().all(), model.select().names(["t03", "t09"]).unwrap());
        if !["local file system", "overlay of file systems"].contains(&told(&all).0) {
            println!("skipped: {} is on no local disk", dir.path().display());
            return;
        }
        let warm = (Some(ReadMode::Mapped), "in the page cache".to_owned());
        let rule = |(_, mode, reason)| (mode, reason);
        assert_eq!(rule(told(&all)), warm);

        model.evict().unwrap();
        assert_eq!(rule(told(&all)), (Some(ReadMode::Mapped), "most of a file, not cached".to_owned()));
        assert_eq!(rule(told(&all)), warm);
        assert_eq!(rule(told(&thin)), warm);

        let has_direct = thin.load_with(&in_mode(ReadMode::Direct)).unwrap().report().mode;
        let direct = |reason: &str| match has_direct {
            Some(ReadMode::Direct) => (Some(ReadMode::Direct), reason.to_owned()),
            _ => (Some(ReadMode::Buffered), "the file system has no direct reads".to_owned()),
        };
        model.evict().unwrap();
        assert_eq!(rule(told(&thin)), direct("short parts of a file, not cached"));

        model.evict().unwrap();
        let limited = in_mode(ReadMode::Auto).memory_limit(40 * MIB);
        let mut stream = all.stream_with(&limited).unwrap();
        assert!(stream.by_ref().all(|tensor| tensor.is_ok()));
        let report = stream.report().unwrap();
        assert_eq!((report.mode, report.reason.clone()), direct("more than the memory allowed"));
    });
}

#[test]
fn rules_that_differ_by_shard_are_all_told() {
    alone("", || {
        let Some(dir) = on_disk(&checkpoint()) else { return };
        let model = open(&dir);
        model.evict().unwrap();
        std::fs::read(dir.path().join(FIRST)).unwrap();
        let loaded = model.select().all().load().unwrap();
        let reasons: Vec<_> = loaded.report().shards.iter().map(|row| row.reason).collect();
        if loaded.report().shards[0].storage == "local file system" {
            assert_eq!(reasons, ["in the page cache", "most of a file, not cached"]);
            assert_eq!(loaded.report().reason, "in the page cache, most of a file, not cached");
        }
    });
}

#[test]
fn in_memory_there_is_nothing_to_wait_for() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm here");
        return;
    };
    checkpoint().write(&dir).unwrap();
    let (storage, mode, reason) = told(&open(&dir).select().all());
    if storage == "file system in memory" {
        assert_eq!((mode, reason.as_str()), (Some(ReadMode::Mapped), "in memory"));
    }
    for &mode in ReadMode::ALL {
        let loaded = open(&dir).select().all().load_with(&in_mode(mode)).unwrap();
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &Oracle::open(&dir)));
    }
}
