//! Letting go of shards, and opening them again.

use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::{Oracle, TempModel, damage};

use crate::support::{FIRST, SECOND, assert_error, assert_is, load_all, open, two_shards};

/// A model whose shards have been touched and released, after which something was done to the second one's
/// file.
fn released_then(change: impl FnOnce(&std::path::Path)) -> (TempModel, ShardedModel) {
    let files = two_shards().temp();
    let model = open(&files);
    load_all(&model, ReadMode::Auto).unwrap();
    for shard in [FIRST, SECOND] {
        model.release(shard).unwrap();
    }
    change(&files.file(SECOND));
    (files, model)
}

/// Asserts that the first shard serves, the second one fails so, and a model that is opened anew takes what
/// is there.
fn assert_changed(change: impl FnOnce(&std::path::Path)) -> TempModel {
    let (files, model) = released_then(change);
    for &mode in ReadMode::ALL {
        assert_error(&load_all(&model, mode).unwrap_err(), "ShardChanged", SECOND);
    }
    assert_error(&model.view("c").unwrap_err(), "ShardChanged", SECOND);
    model.select().shard(FIRST).unwrap().load().unwrap();
    files
}

#[test]
fn a_released_shard_is_opened_again_and_its_header_not_read_again() {
    let (files, model) = released_then(|_| ());
    let oracle = Oracle::open(&files);
    for &mode in ReadMode::ALL {
        let loaded = load_all(&model, mode).unwrap();
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
        let report = loaded.report();
        // By two descriptors each, if it can be read past the page cache.
        let opened = if report.mode == Some(ReadMode::Direct) { 4 } else { 2 };
        assert_eq!((report.shards_opened, report.shards_checked, report.header_bytes), (opened, 0, 0));
        model.release(FIRST).unwrap();
        model.release(SECOND).unwrap();
    }
}

#[test]
fn a_shard_that_was_not_touched_can_be_released() {
    let files = two_shards().temp();
    let model = open(&files);
    model.release(FIRST).unwrap();
    model.release(FIRST).unwrap();
    assert_eq!(load_all(&model, ReadMode::Auto).unwrap().report().shards_checked, 2);
}

#[test]
fn a_released_shard_that_was_replaced_is_an_error_be_the_content_the_same() {
    let files = assert_changed(|path| damage::replace(path, std::fs::read(path).unwrap()));
    load_all(&open(&files), ReadMode::Auto).unwrap();
}

#[test]
fn a_released_shard_that_was_written_to_is_an_error() {
    assert_changed(|path| damage::touch(path));
}

#[test]
fn a_released_shard_that_was_cut_or_grown_is_an_error() {
    assert_changed(|path| damage::truncate(path, 100));
    assert_changed(|path| damage::append(path, "x"));
}

#[test]
fn a_released_shard_that_is_gone_is_an_error_until_it_is_back() {
    let (files, model) = released_then(|path| std::fs::rename(path, path.with_extension("aside")).unwrap());
    assert_error(&load_all(&model, ReadMode::Auto).unwrap_err(), "Io", SECOND);
    std::fs::rename(files.file(SECOND).with_extension("aside"), files.file(SECOND)).unwrap();
    load_all(&model, ReadMode::Auto).unwrap();
}

#[test]
fn views_and_tensors_stay_after_release_and_after_the_model() {
    let files = two_shards().temp();
    let oracle = Oracle::open(&files);
    let model = open(&files);
    let view = model.view("c").unwrap();
    let loaded: Vec<_> = ReadMode::ALL.iter().map(|&mode| load_all(&model, mode).unwrap()).collect();
    model.release(SECOND).unwrap();
    drop(model);
    damage::replace(files.file(SECOND), "another file");
    let expected = weightmap_testkit::pattern::bytes("c", 7);
    assert_eq!(view.bytes(), expected);
    for loaded in &loaded {
        assert_eq!(loaded.get("c").unwrap().bytes(), expected);
        assert_is(loaded.get("a").unwrap(), &oracle);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_mapping_ends_with_release_and_its_last_tensor() {
    let files = two_shards().temp();
    let mapped = |shard: &str| crate::touch::mappings(&files.file(shard));
    let model = open(&files);
    let view = model.view("c").unwrap();
    assert_eq!((mapped(FIRST), mapped(SECOND)), (0, 1));
    model.release(SECOND).unwrap();
    assert_eq!(mapped(SECOND), 1, "the view keeps it");
    drop(view);
    assert_eq!(mapped(SECOND), 0);
    let loaded = load_all(&model, ReadMode::Mapped).unwrap();
    drop(model);
    assert_eq!((mapped(FIRST), mapped(SECOND)), (1, 1), "the tensors keep them");
    drop(loaded);
    assert_eq!((mapped(FIRST), mapped(SECOND)), (0, 0));
}

#[test]
fn clones_share_their_shards() {
    let files = two_shards().temp();
    let model = open(&files);
    model.clone().tensor("a").unwrap();
    let report = model.select().names(["a"]).unwrap().load().unwrap().report().clone();
    assert_eq!((report.shards_opened, report.shards_checked), (0, 0));
}
