//! What a load says that it cost.

use std::sync::{Arc, Mutex};

use weightmap::{LoadOptions, LoadReport, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel};

use crate::support::{FIRST, SECOND, alone, in_mode, is_alone, load_all, open, two_shards};

const MIB: u64 = 1 << 20;

fn load(model: &ShardedModel, names: &[&str], options: &LoadOptions) -> LoadReport {
    model.select().names(names).unwrap().load_with(options).unwrap().report().clone()
}

/// The sizes of all shards.
fn file_bytes(files: &TempModel) -> u64 {
    [FIRST, SECOND].map(|shard| files.file(shard).metadata().unwrap().len()).iter().sum()
}

/// Two shards of several MiB on a disk.
#[cfg(target_os = "linux")]
fn on_disk() -> Option<tempfile::TempDir> {
    let shard = |first: &str, second: &str| {
        ShardBuilder::new().pattern(first, "U8", &[6 * MIB + 1]).pattern(second, "U8", &[2 * MIB])
    };
    crate::support::on_disk(&Checkpoint::new().shard(FIRST, shard("a", "b")).shard(SECOND, shard("c", "d")))
}

#[test]
fn bytes_requested_read_and_spared_add_up_to_the_files() {
    let files = two_shards().temp();
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c", "d"]] {
        let report = load(&open(&files), names, &in_mode(ReadMode::Buffered));
        let requested =
            [("a", 64), ("b", 10), ("c", 7), ("d", 18)].iter().filter(|(name, _)| names.contains(name));
        assert_eq!(report.requested_bytes, requested.map(|(_, bytes)| bytes).sum::<u64>());
        assert_eq!(report.read_bytes, report.requested_bytes, "neighbours without gaps");
        assert_eq!(report.over_read, Some(1.0));
        assert_eq!(report.spared_bytes, Some(file_bytes(&files) - report.read_bytes - report.header_bytes));
    }
}

#[test]
fn a_gap_between_merged_neighbours_is_read_and_not_requested() {
    let files = with_a_gap_of(50);
    let report = load(&open(&files), &["a", "b"], &in_mode(ReadMode::Buffered));
    assert_eq!((report.requested_bytes, report.read_bytes, report.requests), (2000, 2050, 1));
    // The system puts each byte where it belongs, and the gap where it is of no concern.
    assert_eq!((report.over_read, report.copied_bytes), (Some(1.025), 0));
}

#[test]
fn a_gap_is_not_read_where_that_would_be_much_beside_what_was_requested() {
    let files = with_a_gap_of(100);
    let report = load(&open(&files), &["a", "b"], &in_mode(ReadMode::Buffered));
    assert_eq!((report.requested_bytes, report.read_bytes, report.requests), (2000, 2000, 2));
}

/// Between tensors of 1000 bytes.
fn with_a_gap_of(bytes: u64) -> TempModel {
    let shard = ShardBuilder::new().pattern("a", "U8", &[1000]).pattern("gap", "U8", &[bytes]);
    Checkpoint::single(shard.pattern("b", "U8", &[1000])).temp()
}

#[test]
fn a_wide_gap_is_not_read() {
    let shard = ShardBuilder::new().pattern("a", "U8", &[100]).zeros("gap", "U8", &[4 * MIB]).pattern(
        "b",
        "U8",
        &[100],
    );
    let files = Checkpoint::single(shard).temp();
    for mode in [ReadMode::Buffered, ReadMode::Mapped] {
        let report = load(&open(&files), &["a", "b"], &in_mode(mode));
        assert!(
            report.read_bytes >= report.requested_bytes && report.read_bytes < MIB,
            "{mode}: {}",
            report.read_bytes
        );
        assert_eq!((report.requests, report.shards[0].requests), (2, 2));
        assert!(report.spared_bytes.unwrap() >= 3 * MIB);
    }
}

#[test]
fn mapped_tensors_are_read_in_whole_pages_as_far_as_the_file_goes() {
    let files = two_shards().temp();
    let report = load(&open(&files), &["c"], &in_mode(ReadMode::Mapped));
    assert_eq!(report.read_bytes, files.file(SECOND).metadata().unwrap().len());
    assert!(report.over_read.unwrap() > 1.0);
    assert_eq!((report.mapped_bytes, report.copied_bytes, report.extent_pages), (7, 0, 1));
}

#[test]
fn memory_is_that_of_the_tensors_and_of_bounded_scratch() {
    let files = Checkpoint::single(
        ShardBuilder::new().pattern("a", "U8", &[20 * MIB]).pattern("b", "U8", &[100]).pattern(
            "c",
            "U8",
            &[100],
        ),
    )
    .temp();
    let buffered = load(&open(&files), &["a", "b", "c"], &in_mode(ReadMode::Buffered));
    assert_eq!((buffered.mapped_bytes, buffered.requested_bytes), (0, 20 * MIB + 200));
    let peak = buffered.peak_buffer_bytes;
    assert!((buffered.requested_bytes..=buffered.requested_bytes + 64 * MIB).contains(&peak), "{peak}");
    let mapped = load(&open(&files), &["a", "b", "c"], &in_mode(ReadMode::Mapped));
    assert_eq!((mapped.mapped_bytes, mapped.peak_buffer_bytes), (20 * MIB + 200, 0));
    assert!(mapped.peak_memory_bytes.is_none_or(|bytes| bytes > MIB));
}

#[test]
fn shards_are_counted_as_they_are_touched_opened_and_checked() {
    let files = two_shards().temp();
    let header = |shard: &str| open(&files).header(shard).unwrap().data_start();
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let model = open(&files);
        let counts = |names: &[&str]| {
            let report = load(&model, names, &in_mode(mode));
            (report.shards_touched, report.shards_opened, report.shards_checked, report.header_bytes)
        };
        assert_eq!(counts(&["a"]), (1, 1, 1, header(FIRST)), "{mode}");
        assert_eq!(counts(&["a", "b"]), (1, 0, 0, 0), "{mode}: the second load checks nothing");
        assert_eq!(counts(&["b", "c"]), (2, 1, 1, header(SECOND)), "{mode}");
    }
}

#[test]
fn rows_of_shards_and_workers_sum_up_to_the_whole() {
    let shard = |name: &str| {
        ShardBuilder::new().pattern(name, "U8", &[20 * MIB]).pattern(&format!("{name}2"), "F32", &[9])
    };
    let files = Checkpoint::new().shard(FIRST, shard("a")).shard(SECOND, shard("c")).temp();
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let report = load(&open(&files), &["c2", "a", "c"], &in_mode(mode).workers(3));
        let shards: Vec<_> = report
            .shards
            .iter()
            .map(|row| (row.shard.as_str(), row.tensors, row.requested_bytes, row.mode))
            .collect();
        assert_eq!(shards, [(FIRST, 1, 20 * MIB, mode), (SECOND, 2, 20 * MIB + 36, mode)]);
        assert_eq!(report.workers.iter().map(|row| row.worker).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(report.workers.iter().map(|row| row.read_bytes).sum::<u64>(), report.read_bytes);
        assert_eq!(report.shards.iter().map(|row| row.read_bytes).sum::<u64>(), report.read_bytes);
        assert_eq!(report.workers.iter().map(|row| row.requests).sum::<u64>(), report.requests);
        assert!(report.requests >= 5, "a tensor of 20 MiB is read by several requests: {}", report.requests);
        assert_eq!(report.shards.iter().map(|row| row.extent_pages).sum::<u64>(), report.extent_pages);
        assert_eq!((report.mode_asked, report.mode, report.reason.as_str()), (mode, Some(mode), "asked for"));
    }
}

#[test]
fn the_mode_that_auto_chose_is_told_with_its_reason() {
    let files = two_shards().temp();
    let report = load(&open(&files), &["a"], &in_mode(ReadMode::Auto));
    assert_eq!(report.mode_asked, ReadMode::Auto);
    assert!(matches!(report.mode, Some(ReadMode::Mapped | ReadMode::Buffered)));
    assert!(!report.reason.is_empty() && report.reason != "asked for");
}

#[test]
fn times_of_stages_are_within_that_of_the_whole() {
    let files = two_shards().temp();
    let stages = load(&open(&files), &["a"], &LoadOptions::default()).stages;
    let parts = [stages.touch_seconds, stages.plan_seconds, stages.read_seconds, stages.verify_seconds];
    assert!(parts.iter().all(|seconds| *seconds > 0.0) && stages.open_seconds > 0.0);
    assert!(parts.iter().sum::<f64>() <= stages.total_seconds, "{stages:?}");
}

#[test]
fn nothing_costs_nothing() {
    let files = two_shards().temp();
    let report = open(&files).select().allow_empty().load().unwrap().report().clone();
    assert_eq!(
        (report.tensors, report.requested_bytes, report.read_bytes, report.shards_touched),
        (0, 0, 0, 0)
    );
    assert_eq!(
        (report.over_read, report.mode, report.bytes_per_fault.is_some_and(f64::is_nan)),
        (None, None, false)
    );
    assert_eq!(report.spared_bytes, Some(file_bytes(&files)));
    assert!(!report.to_string().contains("NaN") && !report.to_string().contains("inf"), "{report}");
}

#[test]
fn progress_counts_up_to_all_that_was_asked_for() {
    let files = two_shards().temp();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let options =
        LoadOptions::default().workers(1).progress(move |done, all| log.lock().unwrap().push((done, all)));
    open(&files).select().all().load_with(&options).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted() && seen.iter().all(|(_, all)| *all == 99), "{seen:?}");
    assert_eq!(seen.last(), Some(&(99, 99)));
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_cold_comes_from_the_device_and_what_is_warm_does_not() {
    alone("", || {
        let Some(dir) = on_disk() else { return };
        for mode in [ReadMode::Mapped, ReadMode::Buffered] {
            let model = open(&dir);
            // The headers are read before: reading them brings the pages after them in, too.
            model.select().all().infos().unwrap();
            model.evict().unwrap();
            let cold = load(&model, &["a", "c"], &in_mode(mode));
            assert_eq!(cold.resident_before, Some(0), "{mode}");
            assert_eq!(cold.resident_after, Some(cold.extent_pages), "{mode}");
            let disk = cold.disk_bytes.unwrap();
            assert!(
                (cold.requested_bytes..3 * cold.requested_bytes).contains(&disk),
                "{mode}: {disk} bytes of the device"
            );

            let warm = load(&model, &["a", "c"], &in_mode(mode));
            assert_eq!(warm.resident_before, Some(warm.extent_pages), "{mode}");
            assert!(warm.disk_bytes.unwrap() < MIB, "{mode}: {:?} bytes of the device", warm.disk_bytes);
            assert_eq!((warm.requested_bytes, warm.extent_pages), (cold.requested_bytes, cold.extent_pages));
        }
    });
}

/// Reading a header makes the system read ahead, some pages of the data among them; it must not be megabytes.
#[cfg(target_os = "linux")]
#[test]
fn a_first_touch_brings_in_no_more_than_the_header_and_its_neighbourhood() {
    let Some(dir) = on_disk() else { return };
    let model = open(&dir);
    model.evict().unwrap();
    let cold = load(&model, &["a", "c"], &in_mode(ReadMode::Buffered));
    assert_eq!(cold.shards_checked, 2);
    assert!(cold.resident_before.unwrap() <= 2 * 64, "{:?} pages", cold.resident_before);
}

#[cfg(target_os = "linux")]
#[test]
fn pages_of_what_was_not_asked_for_are_not_counted() {
    let Some(dir) = on_disk() else { return };
    let model = open(&dir);
    let report = load(&model, &["b"], &in_mode(ReadMode::Buffered));
    let page = report.page_bytes;
    assert!((2 * MIB / page..=2 * MIB / page + 1).contains(&report.extent_pages), "{}", report.extent_pages);
    assert_eq!(report.resident_after, Some(report.extent_pages));
}

#[cfg(target_os = "linux")]
#[test]
fn pages_that_a_tensor_still_maps_make_eviction_fail() {
    let Some(dir) = on_disk() else { return };
    let model = open(&dir);
    let loaded = load_all(&model, ReadMode::Mapped).unwrap();
    let error = model.evict().unwrap_err();
    assert_eq!((error.kind(), error.path()), ("StillCached", Some(&*dir.path().join(FIRST))));
    drop(loaded);
    model.evict().unwrap();
    let report = load(&model, &["a"], &in_mode(ReadMode::Buffered));
    assert_eq!(report.shards_opened, 1, "eviction releases the shards");
}

/// In a process whose memory has not been used before: what is used again need not fault.
#[cfg(target_os = "linux")]
#[test]
fn faults_of_the_workers_are_counted() {
    alone("", || {
        let Some(dir) = on_disk() else { return };
        let report = load(&open(&dir), &["a", "b", "c", "d"], &in_mode(ReadMode::Buffered));
        let (minor, major) = (report.minor_faults.unwrap(), report.major_faults.unwrap());
        assert!(minor > 0, "fresh memory is faulted in");
        assert_eq!(report.workers.iter().map(|row| row.minor_faults.unwrap()).sum::<u64>(), minor);
        assert_eq!(report.workers.iter().map(|row| row.major_faults.unwrap()).sum::<u64>(), major);
        let requested = report.bytes_per_fault.unwrap() * (minor + major) as f64;
        assert!((requested - report.requested_bytes as f64).abs() < 1.0);
        assert!(report.seconds_per_fault.unwrap() > 0.0);
    });
}

#[test]
fn as_json_it_has_the_names_that_are_promised() {
    let files = two_shards().temp();
    let report = load(&open(&files), &["a"], &LoadOptions::default());
    let json = serde_json::to_value(&report).unwrap();
    for name in [
        "requested_bytes",
        "read_bytes",
        "over_read",
        "disk_bytes",
        "minor_faults",
        "major_faults",
        "bytes_per_fault",
        "resident_before",
        "resident_after",
        "copied_bytes",
        "mapped_bytes",
        "shards_touched",
        "shards_opened",
        "shards_checked",
        "spared_bytes",
        "header_bytes",
        "stages",
        "peak_buffer_bytes",
        "peak_memory_bytes",
        "shards",
        "workers",
        "mode",
        "reason",
        "warnings",
    ] {
        assert!(json.get(name).is_some(), "no {name} in {json}");
    }
    assert_eq!((&json["requested_bytes"], &json["shards"][0]["shard"]), (&64.into(), &FIRST.into()));
    assert_eq!(json["mode_asked"], "auto");
    assert!(json["stages"]["total_seconds"].as_f64().is_some());
    assert_eq!(json["workers"][0]["worker"], 0);
}

#[test]
fn for_people_it_is_a_table_that_fits_a_terminal() {
    let files = two_shards().temp();
    let report = load(&open(&files), &["a", "c"], &LoadOptions::default());
    let text = report.to_string();
    for word in [
        "2 tensors",
        "71 B",
        report.shards[0].storage,
        "over-read",
        "faults",
        "2 touched, 2 opened, 2 checked",
        "cached",
        "spared",
    ] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 79), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn eviction_drops_what_it_can_though_a_tensor_maps_one_shard() {
    let Some(dir) = on_disk() else { return };
    let model = open(&dir);
    let held = model.select().names(["a"]).unwrap().load_with(&in_mode(ReadMode::Mapped)).unwrap();
    load(&model, &["a", "b", "c", "d"], &in_mode(ReadMode::Mapped));
    assert_eq!(model.evict().unwrap_err().kind(), "StillCached");
    let report = load(&model, &["c", "d"], &in_mode(ReadMode::Mapped));
    assert!(report.resident_before.unwrap() <= 1 && report.shards_opened == 1, "{report:?}");
    drop(held);
}

#[cfg(target_os = "linux")]
#[test]
fn a_thin_read_has_the_device_give_what_was_asked_for_and_little_more() {
    alone("", || {
        let Some(dir) = on_disk() else { return };
        for mode in [ReadMode::Mapped, ReadMode::Buffered] {
            for headers_are_cached in [false, true] {
                let model = open(&dir);
                model.evict().unwrap();
                if headers_are_cached {
                    [FIRST, SECOND].iter().for_each(|shard| drop(open(&dir).header(shard).unwrap()));
                }
                let report = load(&open(&dir), &["b", "d"], &in_mode(mode));
                let (asked, device) = (report.requested_bytes, report.disk_bytes.unwrap());
                assert!(
                    device >= asked && device <= asked + asked / 20,
                    "{mode}: {device} bytes for {asked}"
                );
            }
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn peak_memory_is_that_of_this_program_and_not_of_the_one_that_started_it() {
    // The parent touches much before it starts the child.
    let fat = vec![1_u8; if is_alone() { 0 } else { 300 << 20 }];
    alone("", || {
        let files = two_shards().temp();
        let peak = load(&open(&files), &["a"], &LoadOptions::default()).peak_memory_bytes.unwrap();
        assert!(peak > MIB && peak < 250 * MIB, "{peak}");
    });
    drop(std::hint::black_box(fat));
}

#[test]
fn loads_of_one_model_at_the_same_time_count_only_their_own_first_touches() {
    let files = two_shards().temp();
    let model = open(&files);
    let reports: Vec<_> = std::thread::scope(|scope| {
        let load = |name| load(&model, &[name], &LoadOptions::default());
        let handles = ["a", "c", "a", "c"].map(|name| scope.spawn(move || load(name)));
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert_eq!(reports.iter().map(|report| report.shards_checked).sum::<u64>(), 2);
    assert!(reports.iter().all(|report| report.shards_checked <= 1));
}
