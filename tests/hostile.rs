//! Files of very many things, of which memory holds no more than they justify. The benches have them in full size
//! (`benches/hostile.rs`).

use std::fs;

use weightmap::{Check, Error, OpenOptions, ReadMode, ShardedModel, check};
use weightmap_testkit::{Checkpoint, Distributed, ShardBuilder, TempModel};

use crate::support::{alone, assert_says, in_mode};

const SHARD: &str = "model-00001-of-00001.safetensors";

/// A shard of so many tensors of one byte, each with an entry that is as short as one can be.
fn shard_of(count: u64) -> ShardBuilder {
    let entry = |number| {
        format!(r#""{number:x}":{{"dtype":"U8","shape":[],"data_offsets":[{number},{}]}}"#, number + 1)
    };
    let header = (0..count).map(entry).collect::<Vec<_>>().join(",");
    ShardBuilder::new().raw_header(format!("{{{header}}}")).data(vec![0; usize::try_from(count).unwrap()])
}

/// An index of so many tensors, each with a shard of this name.
fn index(count: u64, shard: impl Fn(u64) -> String) -> String {
    let entry = |number| format!(r#""{number:x}":"{}""#, shard(number));
    format!(r#"{{"weight_map":{{{}}}}}"#, (0..count).map(entry).collect::<Vec<_>>().join(","))
}

fn checked(files: &TempModel) -> Check {
    check(files, &OpenOptions::default()).unwrap()
}

#[test]
fn of_very_many_findings_the_first_thousand_are_told_and_all_are_counted() {
    let files =
        Checkpoint::new().shard(SHARD, shard_of(5000)).index_text(index(2, |_| SHARD.to_owned())).temp();
    let found = checked(&files);
    assert!(found.is_sound());
    assert_eq!((found.warnings.len(), found.more_warnings), (1000, 3998), "5000 but 2, which are listed");

    let files =
        Checkpoint::new().shard(SHARD, shard_of(1)).index_text(index(5000, |_| SHARD.to_owned())).temp();
    let found = checked(&files);
    assert_eq!((found.faults.len(), found.more_faults, found.shards), (1000, 3999, 1));
    assert!(found.faults.iter().all(|fault| fault.kind() == "TensorNotInShard"));
}

#[test]
fn very_many_shards_that_are_absent_are_counted_and_each_can_be_asked_for() {
    let name = |number| if number == 0 { SHARD.to_owned() } else { format!("{number}/x.safetensors") };
    let files = Checkpoint::new().shard(SHARD, shard_of(1)).index_text(index(5000, name)).temp();
    let error = ShardedModel::open(&files).map(drop).unwrap_err();
    let Error::MissingShards { missing, count, shards, .. } = &error else { panic!("{error}") };
    assert_eq!((missing.len(), *count, *shards, error.count()), (1000, 4999, 5000, 4999));
    assert_says(&error, &["4999 of 5000 shards", "and 4989 more"]);

    let model = ShardedModel::options().allow_missing(true).open(&files).unwrap();
    for number in [1, 1000, 1001, 4999] {
        let error = model.tensor(&format!("{number:x}")).unwrap_err();
        assert_says(
            &error,
            &[&format!("shard \"{number}/x.safetensors\" (1 tensor) is not there, one of 5000")],
        );
    }
    assert_eq!(model.select().all().load().unwrap().tensors().len(), 1);
    let found = checked(&files);
    assert_eq!((found.faults.len(), found.more_faults, found.shards), (1000, 3999, 1));
}

#[test]
fn a_shard_name_that_no_path_has_room_for_is_not_taken_apart() {
    for parts in [2041, 2042, 1_000_000] {
        let name = format!("{}x.safetensors", "a/".repeat(parts));
        let files = Checkpoint::new().index_text(index(1, |_| name.clone())).temp();
        let error = ShardedModel::open(&files).map(drop).unwrap_err();
        assert_eq!(error.kind(), if name.len() <= 4096 { "MissingShards" } else { "BadShardName" });
        assert!(error.to_string().len() < 1000);
    }
}

/// The most memory that a process of its own has had beyond what it began with, beside the size of the input.
#[cfg(target_os = "linux")]
fn peak_of(files: &TempModel) -> (u64, u64) {
    let peak = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    let bytes = fs::read_dir(files).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    // What was the peak before counts no more.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    let opened = ShardedModel::open(files).and_then(|model| {
        let name = model.names().next().unwrap().to_owned();
        model.select().names([name])?.load_with(&in_mode(ReadMode::Buffered)).map(drop)
    });
    assert!(opened.map_or_else(|error| error.to_string().len(), |()| 0) < 10_000);
    let found = checked(files);
    assert!(found.faults.len() + found.warnings.len() <= 1000);
    (peak() - before, bytes)
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_a_small_multiple_of_a_hostile_input() {
    let pieces = |entry: &str| {
        let info = (0..200_000).map(|number| format!("\"{number:x}\":{entry}")).collect::<Vec<_>>().join(",");
        Distributed::new(1).whole(0, "t", "U8", &[4]).info(0, &format!("{{{info}}}")).checkpoint()
    };
    let indexed = |text| Checkpoint::new().shard(SHARD, shard_of(1)).index_text(text);
    let inputs: [(&str, Checkpoint); 6] = [
        ("tensors", Checkpoint::new().shard(SHARD, shard_of(200_000)).without_index()),
        (
            "unlisted",
            Checkpoint::new().shard(SHARD, shard_of(200_000)).index_text(index(1, |_| SHARD.to_owned())),
        ),
        ("not in the shard", indexed(index(200_000, |_| SHARD.to_owned()))),
        ("absent shards", indexed(index(200_000, |number| format!("{number:x}.safetensors")))),
        ("absent folders", indexed(index(200_000, |number| format!("{number:x}/x.safetensors")))),
        ("offsets of what is not there", pieces("{}")),
    ];
    // In a process of its own, since others allocate meanwhile in this one.
    alone("", || {
        for (name, input) in inputs {
            let (peak, bytes) = peak_of(&input.temp());
            assert!(peak < 8 * bytes + (8 << 20), "{name}: {peak} bytes of memory for {bytes}");
        }
    });
}
