//! The cache of the hub as it is found on machines: read-only, half copied, shared by many.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use weightmap::{ReadMode, ShardedModel, check};
use weightmap_testkit::damage;

use crate::open::{INDEX, hub_cache};
use crate::support::{FIRST, SECOND, alone, assert_error, assert_says, load_all, open, open_error};

/// All that is below a folder, links as links: name, inode, times of change.
fn entries(folder: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        found.push((path.clone(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()));
        if metadata.is_dir() {
            found.extend(entries(&path));
        }
    }
    found.sort();
    found
}

/// What a download that broke off leaves where nothing is written beside and renamed.
#[test]
fn a_part_of_a_file_under_its_final_name_is_never_taken_for_all_of_it() {
    let whole = fs::read(hub_cache(&["abc"]).1[0].join(SECOND)).unwrap();
    for bytes in 0..whole.len() {
        let (_cache, snapshots) = hub_cache(&["abc"]);
        damage::truncate(snapshots[0].join(SECOND), bytes as u64);
        let model = open(&snapshots[0]);
        let error = model.view("c").unwrap_err();
        assert!(["TooShort", "HeaderTruncated", "Truncated"].contains(&error.kind()), "{bytes}: {error}");
        assert_error(&error, error.kind(), SECOND);
        // The second try, after it was fetched again.
        damage::replace(snapshots[0].join(SECOND), &whole);
        assert_eq!(load_all(&model, ReadMode::Auto).unwrap().tensors().len(), 4);
    }
}

#[test]
fn a_cache_that_cannot_be_written_to_serves_and_nothing_of_it_is_touched() {
    let (cache, _) = hub_cache(&["abc"]);
    let set = |mode: u32| {
        for folder in ["", "blobs", "snapshots", "snapshots/abc"] {
            fs::set_permissions(cache.file(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o555);
    let before = entries(cache.path());
    for &mode in ReadMode::ALL {
        let model = open(&cache);
        load_all(&model, mode).unwrap();
        model.select().all().prefetch().unwrap();
    }
    assert!(check(&cache, &ShardedModel::options()).unwrap().is_sound());
    assert_eq!(entries(cache.path()), before);
    set(0o755);
}

#[test]
fn a_cache_needs_no_home_and_no_network() {
    alone("unset HOME XDG_CACHE_HOME; export HF_HUB_OFFLINE=1 HF_ENDPOINT=http://127.0.0.1:1", || {
        let (cache, _) = hub_cache(&["abc"]);
        assert_eq!(load_all(&open(&cache), ReadMode::Auto).unwrap().tensors().len(), 4);
        let error = open_error(cache.file("absent"));
        assert_error(&error, "Io", "absent");
    });
}

#[test]
fn eight_threads_open_a_cached_model_a_hundred_times_and_leave_its_links_alone() {
    let (cache, _) = hub_cache(&["abc"]);
    let before = entries(cache.path());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(load_all(&open(&cache), ReadMode::Auto).unwrap().tensors().len(), 4);
                }
            });
        }
    });
    assert_eq!(entries(cache.path()), before);
}

#[test]
fn a_cache_that_was_copied_without_its_blobs_is_told_as_that() {
    let (cache, snapshots) = hub_cache(&["abc"]);
    fs::remove_file(cache.file("blobs/abc0")).unwrap();
    let model = open(&snapshots[0]);
    let error = model.view("a").unwrap_err();
    assert_error(&error, "Io", FIRST);
    assert_says(&error, &["link leads nowhere", "blobs"]);
    model.view("c").unwrap();
    let checked = check(&cache, &ShardedModel::options()).unwrap();
    assert_eq!(checked.faults.len(), 1);

    fs::remove_dir_all(cache.file("blobs")).unwrap();
    let error = open_error(&cache);
    assert_error(&error, "Io", INDEX);
    assert_says(&error, &["link leads nowhere", "blobs"]);
}
