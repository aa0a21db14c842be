//! What is no file where one should be, and files of odd sizes and names.

use std::fs;
use std::path::{Path, PathBuf};

use weightmap::{Intervals, ReadMode, ShardedModel, check};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel, damage};

use super::{Way, by_workers, checkpoint};
use crate::support::{FIRST, SECOND, assert_says, load_all, open, open_error, within_a_minute};

const INDEX: &str = "model.safetensors.index.json";

/// A thing that is no file, what puts it in the place of one, and what an error calls it.
type Thing = (&'static str, fn(&Path), &'static str);

const THINGS: [Thing; 9] = [
    ("FIFO", |path| damage::replace_by_fifo(path), "found a FIFO"),
    ("socket", |path| damage::replace_by_socket(path), "found a socket"),
    ("directory", |path| damage::replace_by_directory(path), "found a directory"),
    ("endless device", |path| damage::replace_by_link(path, "/dev/zero"), "found a device"),
    ("empty device", |path| damage::replace_by_link(path, "/dev/null"), "found a device"),
    ("terminal", |path| damage::replace_by_link(path, "/dev/ptmx"), "found a device"),
    ("disk", |path| damage::replace_by_link(path, disk()), "found a device"),
    ("loop", |path| damage::replace_by_link(path, path), "links lead round in a circle"),
    ("link to nowhere", |path| damage::replace_by_dangling_link(path), "the link leads nowhere"),
];

/// A disk of this machine, or else another device.
fn disk() -> PathBuf {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let disks = disks.map(|entry| Path::new("/dev").join(entry.file_name()));
    disks.into_iter().find(|path| path.exists()).unwrap_or_else(|| "/dev/null".into())
}

/// Does something for each thing, in a directory of its own; what blocks, fails.
fn for_each_thing(what: fn(&TempModel, &Thing)) {
    for thing in THINGS {
        within_a_minute(move || what(&checkpoint().temp(), &thing));
    }
}

fn assert_about(error: &weightmap::Error, (name, _, words): &Thing, file: &str) {
    assert!(["Io", "NotRegularFile"].contains(&error.kind()), "{name}: {error}");
    assert_says(error, &[file, words]);
}

#[test]
fn in_the_place_of_a_shard_it_is_an_error_of_every_mode_and_no_wait() {
    for_each_thing(|files, thing| {
        let model = open(files);
        (thing.1)(&files.file(SECOND));
        for &mode in ReadMode::ALL {
            for way in [Way::Load, Way::Stream, Way::Into, Way::Prefetch] {
                assert_about(&way.go(&model, &by_workers(mode), true).unwrap_err(), thing, SECOND);
            }
            model.select().shard(FIRST).unwrap().load().unwrap();
        }
        let found = check(files.path(), &ShardedModel::options()).unwrap();
        assert_about(&found.faults[0], thing, SECOND);
    });
}

#[test]
fn swapped_in_after_the_first_touch_it_is_an_error_once_the_file_has_to_be_opened_again() {
    for_each_thing(|files, thing| {
        let model = open(files);
        load_all(&model, ReadMode::Auto).unwrap();
        (thing.1)(&files.file(SECOND));
        model.release(SECOND).unwrap();
        for &mode in ReadMode::ALL {
            assert_about(&Way::Load.go(&model, &by_workers(mode), true).unwrap_err(), thing, SECOND);
        }
    });
}

#[test]
fn in_the_place_of_the_index_it_is_an_error_and_no_wait() {
    for_each_thing(|files, thing| {
        (thing.1)(&files.file(INDEX));
        assert_about(&open_error(files), thing, INDEX);
        let by_path = open_error(files.file(INDEX));
        // A directory of that name is opened as one.
        assert!(thing.0 == "directory" || by_path.to_string().contains(INDEX), "{}: {by_path}", thing.0);
    });
}

#[test]
fn opened_by_its_path_it_is_an_error_and_no_wait() {
    for_each_thing(|files, thing| {
        (thing.1)(&files.file(SECOND));
        let error = open_error(files.file(SECOND));
        assert!(thing.0 == "directory" || error.to_string().contains(SECOND), "{}: {error}", thing.0);
    });
}

#[test]
fn in_the_place_of_what_lies_beside_a_model_it_is_passed_over_or_an_error() {
    for_each_thing(|files, thing| {
        let adapter = TempModel::empty();
        ShardBuilder::new()
            .pattern("a", "U8", &[4])
            .write(adapter.file("adapter_model.safetensors"))
            .unwrap();
        fs::write(adapter.file("adapter_config.json"), "{}").unwrap();
        (thing.1)(&adapter.file("adapter_config.json"));
        load_all(&open(&adapter), ReadMode::Auto).unwrap();
        let hub = TempModel::empty();
        fs::create_dir_all(hub.file("snapshots")).unwrap();
        fs::create_dir_all(hub.file("refs")).unwrap();
        fs::rename(files.path(), hub.file("snapshots/abc")).unwrap();
        fs::create_dir(files.path()).unwrap();
        fs::write(hub.file("refs/main"), "abc").unwrap();
        (thing.1)(&hub.file("refs/main"));
        // Nothing there is as if there were none: the only snapshot is taken.
        match ShardedModel::open(&hub) {
            Ok(model) => drop(load_all(&model, ReadMode::Auto).unwrap()),
            Err(error) => assert_about(&error, thing, "main"),
        }
    });
}

#[test]
fn an_empty_file_is_an_error_that_tells_its_size() {
    let files = checkpoint().temp();
    let model = open(&files);
    fs::write(files.file(SECOND), "").unwrap();
    for &mode in ReadMode::ALL {
        assert_says(&load_all(&model, mode).unwrap_err(), &[SECOND, "0 bytes"]);
    }
    assert_says(&open_error(files.file(SECOND)), &[SECOND, "0 bytes"]);
    fs::write(files.file(INDEX), "").unwrap();
    assert_says(&open_error(&files), &[INDEX]);
}

/// A file of 1 TiB that takes up no room; `None`, with a line that says so, where there can be none.
fn sparse(path: &Path, head: &[u8]) -> Option<u64> {
    const BYTES: u64 = 1 << 40;
    fs::write(path, head).unwrap();
    let bytes = head.len() as u64 + BYTES;
    match fs::File::options().write(true).open(path).and_then(|file| file.set_len(bytes)) {
        Ok(()) => Some(BYTES),
        Err(error) => {
            println!("skipped: no file of 1 TiB here: {error}");
            None
        }
    }
}

#[test]
fn a_file_of_a_tebibyte_of_nothing_is_an_error_at_once() {
    within_a_minute(|| {
        let files = checkpoint().temp();
        if sparse(&files.file(SECOND), b"").is_none() {
            return;
        }
        for &mode in ReadMode::ALL {
            let error = load_all(&open(&files), mode).unwrap_err();
            assert_says(&error, &[SECOND]);
        }
        sparse(&files.file(INDEX), b"").unwrap();
        let error = open_error(&files);
        assert_eq!(error.kind(), "IndexTooLarge", "{error}");
    });
}

#[test]
fn of_a_tensor_of_a_tebibyte_a_slice_is_read_and_the_whole_does_not_fit() {
    within_a_minute(|| {
        let files = TempModel::empty();
        let path = files.file("model.safetensors");
        let head = ShardBuilder::new().declare("t", "U8", &[1 << 40], 0, 1 << 40).head();
        let Some(bytes) = sparse(&path, &head) else { return };
        let end = fs::metadata(&path).unwrap().len();
        damage::overwrite(&path, end - 3, "end");
        let model = open(&files);
        for &mode in ReadMode::ALL {
            let last = Intervals::from(bytes - 5..bytes);
            let slice = model.select().slice("t", [last]).unwrap();
            let loaded = slice.load_with(&by_workers(mode)).unwrap();
            assert_eq!(loaded.tensors()[0].bytes(), b"\0\0end");
        }
        let all = model.select().all();
        let error = all.load_with(&by_workers(ReadMode::Buffered).memory_limit(1 << 30)).unwrap_err();
        assert_eq!(error.kind(), "MemoryLimit", "{error}");
    });
}

#[test]
fn line_ends_in_names_are_read_or_refused_and_escaped_in_messages() {
    let parent = TempModel::empty();
    let dir = parent.file("mo\ndel");
    let shard = || ShardBuilder::new().pattern("a\nb", "U8", &[9]);
    Checkpoint::new().shard(FIRST, shard()).write(&dir).unwrap();
    let model = open(&dir);
    assert_eq!(load_all(&model, ReadMode::Auto).unwrap().get("a\nb").unwrap().bytes().len(), 9);
    damage::truncate(dir.join(FIRST), 20);
    let fresh = open(&dir).tensor("a\nb").map(drop).unwrap_err();
    let named = Checkpoint::new().shard("sha\nrd.safetensors", shard()).temp();
    for (error, words) in [
        (load_all(&model, ReadMode::Auto).unwrap_err(), [r"mo\ndel", FIRST]),
        (fresh, [r"mo\ndel", FIRST]),
        (open_error(&named), [INDEX, r"sha\nrd.safetensors"]),
    ] {
        assert!(!error.to_string().contains('\n'), "{error}");
        assert_says(&error, &words);
    }
}
