//! A process whose control group allows it half of what the model has.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use weightmap::{LoadOptions, ReadMode};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder};

use crate::support::{MODEL, alone, assert_says, in_mode, is_alone, model_path, on_disk, open};

const MIB: u64 = 1 << 20;

/// What the group may have, and what the model has.
const ALLOWED: u64 = 128 * MIB;
const TENSORS: u64 = 32;
const TENSOR: u64 = 8 * MIB;

/// A control group, which is removed at the end.
struct Group(PathBuf);

impl Group {
    /// A group with a limit, where one can be had: that takes rights that few processes have.
    fn new(name: &str, bytes: u64) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        mounts.lines().find_map(|mount| {
            let mut fields = mount.split(' ').skip(1);
            let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let limit = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => "memory.limit_in_bytes",
                "cgroup2" => "memory.max",
                _ => return None,
            };
            let group = Self(Path::new(point).join(format!("weightmap-{name}-{}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            // A file that is not there is not made: the group has no such controller.
            fs::OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs a test's body in a process of a group that is allowed half of the model, which lies on a disk and is not
/// in the page cache.
fn in_small_group<F: FnOnce()>(name: &str, body: F) {
    if is_alone() {
        return body();
    }
    let add = |shard: ShardBuilder, number| shard.pattern(&format!("t{number:02}"), "U8", &[TENSOR]);
    let Some(dir) = on_disk(&Checkpoint::single((0..TENSORS).fold(ShardBuilder::new(), add))) else { return };
    let Some(group) = Group::new(name, ALLOWED) else {
        println!("skipped: no control group can be made here");
        return;
    };
    // Pages that are in the cache are on someone else's account.
    open(dir.path()).evict().unwrap();
    let (group_path, model) = (group.0.display(), dir.path().display());
    alone(&format!("echo $$ > '{group_path}/cgroup.procs' && export {MODEL}='{model}'"), body);
}

/// Streams all tensors; gives the most memory that was held at once.
fn stream(options: &LoadOptions) -> u64 {
    let path = model_path();
    let oracle = Oracle::open(&path);
    let model = open(&path);
    model.evict().unwrap();
    let mut stream = model.select().all().stream_with(options).unwrap();
    let mut count = 0;
    for tensor in stream.by_ref() {
        let tensor = tensor.unwrap();
        count += 1;
        // A tensor in four, so that the pages of the oracle's reads are few.
        if count % 4 == 0 {
            assert!(tensor.bytes() == oracle.tensor(tensor.name()).bytes, "{}", tensor.name());
        }
    }
    assert_eq!(count, TENSORS);
    stream.report().unwrap().peak_buffer_bytes
}

#[test]
fn a_model_of_twice_the_memory_allowed_is_streamed_whole() {
    in_small_group("stream", || {
        for &mode in ReadMode::ALL {
            let peak = stream(&in_mode(mode).drop_behind(true));
            assert!(peak < ALLOWED, "{mode}: {peak} bytes");
        }
    });
}

#[test]
fn the_memory_allowed_bounds_a_stream_that_keeps_pages_too() {
    in_small_group("keep", || {
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            let peak = stream(&in_mode(mode).workers(3));
            assert!(peak < ALLOWED, "{mode}: {peak} bytes");
        }
    });
}

#[test]
fn what_does_not_fit_the_memory_allowed_is_an_error_and_no_signal() {
    in_small_group("load", || {
        let all = open(model_path()).select().all();
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            let error = all.load_with(&in_mode(mode)).unwrap_err();
            assert_eq!(error.kind(), "MemoryLimit", "{error}");
            assert_says(&error, &["control group", "stream"]);
        }
        // What lies in the mapping can be given back.
        let loaded = all.load_with(&in_mode(ReadMode::Mapped)).unwrap();
        assert_eq!(loaded.report().mapped_bytes, TENSORS * TENSOR);
    });
}
