//! Files that change while a model is open: before the first touch what is there counts, after it a change is
//! an error and never a signal.

use std::path::{Path, PathBuf};

use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel, damage, pattern};

use crate::support::{
    FIRST, SECOND, alone, assert_error, in_mode, load_all, open, shard_of, two_shards, within_a_minute,
};

/// `c` is longer than some pages, and does not end with one.
const C_BYTES: u64 = 40_000;

fn long() -> TempModel {
    let second = ShardBuilder::new().pattern("c", "U8", &[C_BYTES]).pattern("d", "U8", &[3]);
    Checkpoint::new().shard(FIRST, shard_of("a")).shard(SECOND, second).temp()
}

/// A model that is open and whose second shard has been touched.
fn touched() -> (TempModel, ShardedModel, PathBuf) {
    let files = long();
    let model = open(&files);
    model.tensor("c").unwrap();
    let second = files.file(SECOND);
    (files, model, second)
}

/// Asserts that a change after the first touch makes loads fail, in each mode, and leaves the other shard
/// usable.
fn assert_told_of(change: impl Fn(&Path)) {
    for &mode in ReadMode::ALL {
        let (_files, model, second) = touched();
        change(&second);
        for names in [&["c"][..], &["d"], &["a", "c", "d"]] {
            let error = model.select().names(names).unwrap().load_with(&in_mode(mode)).unwrap_err();
            assert_error(&error, "ShardChanged", SECOND);
        }
        model.select().names(["a"]).unwrap().load_with(&in_mode(mode)).unwrap();
    }
}

/// The error of a load after a change before the first touch, the same for a view.
fn before_touch(change: impl FnOnce(&Path)) -> weightmap::Error {
    let files = two_shards().temp();
    let model = open(&files);
    change(&files.file(SECOND));
    let view = model.view("c").map(drop).unwrap_err();
    let load = load_all(&model, ReadMode::Auto).unwrap_err();
    assert_eq!((view.kind(), view.path()), (load.kind(), load.path()));
    model.view("a").unwrap();
    load
}

#[test]
fn a_shard_cut_before_its_first_touch_is_truncated() {
    let end = two_shards().temp().file(SECOND).metadata().unwrap().len();
    assert_error(&before_touch(|path| damage::truncate(path, end - 1)), "Truncated", SECOND);
    assert_error(&before_touch(|path| damage::truncate(path, 40)), "HeaderTruncated", SECOND);
}

#[test]
fn a_shard_grown_before_its_first_touch_has_trailing_bytes() {
    assert_error(&before_touch(|path| damage::append(path, "x")), "TrailingBytes", SECOND);
}

#[test]
fn a_shard_removed_before_its_first_touch_is_an_error_that_names_it() {
    assert_error(&before_touch(|path| std::fs::remove_file(path).unwrap()), "Io", SECOND);
}

#[test]
fn a_shard_replaced_before_its_first_touch_counts_as_it_is() {
    let files = two_shards().temp();
    let model = open(&files);
    let new = ShardBuilder::new().tensor("c", "F32", &[], 1.5_f32.to_le_bytes()).build();
    damage::replace(files.file(SECOND), new);
    assert_eq!(model.view("c").unwrap().to_vec::<f32>().unwrap(), [1.5]);
    assert_error(&model.view("d").unwrap_err(), "TensorNotInShard", SECOND);
}

#[cfg(unix)]
#[test]
fn a_shard_swapped_for_a_fifo_is_an_error_before_and_after_its_first_touch() {
    within_a_minute(|| {
        assert_error(&before_touch(|path| damage::replace_by_fifo(path)), "NotRegularFile", SECOND);
        let (_files, model, second) = touched();
        damage::replace_by_fifo(second);
        model.release(SECOND).unwrap();
        assert_error(&load_all(&model, ReadMode::Auto).unwrap_err(), "NotRegularFile", SECOND);
    });
}

#[test]
fn a_touched_shard_that_is_replaced_or_removed_keeps_its_bytes() {
    for change in [
        |path: &Path| damage::replace(path, "another file"),
        |path: &Path| std::fs::remove_file(path).unwrap(),
    ] {
        for &mode in ReadMode::ALL {
            let (_files, model, second) = touched();
            change(&second);
            let loaded = load_all(&model, mode).unwrap();
            assert!(loaded.get("c").unwrap().bytes() == pattern::bytes("c", 40_000));
            assert!(model.view("c").unwrap().bytes() == pattern::bytes("c", 40_000));
        }
    }
}

#[test]
fn a_touched_shard_that_is_written_to_is_an_error() {
    assert_told_of(|path| {
        damage::overwrite(path, 20_000, [0; 100]);
        // The clock of the file system may be too coarse to tell.
        damage::touch(path);
    });
}

#[test]
fn a_touched_shard_that_grows_is_an_error() {
    assert_told_of(|path| damage::append(path, "x"));
}

#[test]
fn a_touched_shard_that_is_cut_is_an_error_and_no_signal() {
    alone("", || {
        for bytes in [0, 1, 100, 4096, 4097, 20_000] {
            assert_told_of(|path| damage::truncate(path, bytes));
        }
    });
}

#[test]
fn the_zeros_of_a_last_page_that_was_cut_are_not_handed_out() {
    alone("", || {
        for bytes in [1, 2, 3, 4, 1000] {
            assert_told_of(|path| damage::truncate(path, path.metadata().unwrap().len() - bytes));
        }
    });
}

/// A cut that is mended is one: the bytes are other ones.
#[test]
fn a_touched_shard_that_is_cut_and_grown_again_is_an_error() {
    alone("", || {
        assert_told_of(|path| {
            let bytes = path.metadata().unwrap().len();
            damage::truncate(path, 4096);
            damage::append(path, vec![0; usize::try_from(bytes).unwrap() - 4096]);
            damage::touch(path);
        });
    });
}

#[test]
fn tensors_of_their_own_memory_outlive_any_change() {
    alone("", || {
        let (_files, model, second) = touched();
        let loaded = load_all(&model, ReadMode::Buffered).unwrap();
        damage::truncate(second, 0);
        assert!(loaded.get("c").unwrap().bytes() == pattern::bytes("c", 40_000));
    });
}

#[test]
fn an_index_that_is_rewritten_concerns_nobody_who_has_read_it() {
    let files = two_shards().temp();
    let oracle = Oracle::open(&files);
    let model = open(&files);
    damage::replace(files.file("model.safetensors.index.json"), "{}");
    let loaded = load_all(&model, ReadMode::Auto).unwrap();
    loaded.tensors().iter().for_each(|tensor| crate::support::assert_is(tensor, &oracle));
}

#[test]
fn a_directory_that_is_renamed_takes_its_untouched_shards_with_it() {
    let parent = TempModel::empty();
    let dir = parent.file("model");
    two_shards().write(&dir).unwrap();
    let model = open(&dir);
    model.tensor("a").unwrap();
    std::fs::rename(&dir, parent.file("moved")).unwrap();
    assert_eq!(model.view("a").unwrap().bytes(), pattern::bytes("a", 64));
    assert_error(&model.view("c").unwrap_err(), "Io", SECOND);
}

/// Others cut the file and put it back while it is loaded: every load is right or an error, and none is a
/// signal.
#[test]
fn a_shard_that_changes_while_it_is_read_is_right_or_an_error() {
    alone("", || {
        let (files, model, second) = touched();
        let whole = std::fs::read(&second).unwrap();
        std::thread::scope(|scope| {
            let loads = scope.spawn(|| {
                for round in 0..300 {
                    let mode = ReadMode::ALL[round % ReadMode::ALL.len()];
                    // A tensor in memory of its own can be looked at whatever happens to the file.
                    match model.select().names(["c"]).unwrap().load_with(&in_mode(mode)) {
                        Ok(loaded) if !loaded.tensors()[0].is_mapped() => {
                            assert!(loaded.tensors()[0].bytes() == pattern::bytes("c", 40_000));
                        }
                        Ok(_) => {}
                        Err(error) => {
                            assert!(error.path().is_some_and(|path| path.ends_with(SECOND)), "{error}");
                        }
                    }
                }
            });
            while !loads.is_finished() {
                damage::truncate(&second, 5000);
                damage::append(&second, &whole[5000..]);
            }
            loads.join().unwrap();
        });
        drop(files);
    });
}
