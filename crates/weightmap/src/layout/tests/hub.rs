//! Folders of the hub's cache.

use super::*;

fn repository(revisions: &[&str]) -> TempDir {
    let dir = directory(&["blobs/0a1b"]);
    for revision in revisions {
        write(&dir, &format!("snapshots/{revision}/model.safetensors"), "");
    }
    dir
}

#[test]
fn a_repository_means_the_snapshot_of_main() {
    let dir = repository(&["r1", "r2"]);
    write(&dir, "refs/main", "r2\n");
    assert_eq!(resolve(&dir).unwrap().dir, dir.path().join("snapshots").join("r2"));
}

#[test]
fn without_main_it_means_the_only_snapshot() {
    let dir = repository(&["r1"]);
    assert_eq!(resolve(&dir).unwrap().dir, dir.path().join("snapshots").join("r1"));
}

#[test]
fn without_main_several_snapshots_are_ambiguous() {
    contains(&message(resolve(&repository(&["r1", "r2"]))), &["several snapshots", "\"r1\", \"r2\""]);
}

#[test]
fn a_repository_without_a_snapshot_has_no_model() {
    let dir = repository(&[]);
    fs::create_dir(dir.path().join("snapshots")).unwrap();
    contains(&message(resolve(&dir)), &["no snapshot"]);
}

#[test]
fn a_revision_that_is_no_snapshot_is_an_error() {
    let dir = repository(&["r1", "r2"]);
    for revision in ["", "..", "../r1", "r1/../r2", "/", "r3", "\u{1b}[2J"] {
        write(&dir, "refs/main", revision);
        let error = resolve(&dir).unwrap_err();
        assert!(matches!(error, Error::NoSuchRevision { .. }), "{revision:?}: {error}");
        contains(&error.to_string(), &["\"r1\", \"r2\""]);
    }
}

#[test]
fn a_model_beside_a_folder_of_that_name_is_no_repository() {
    let dir = repository(&["r1"]);
    write(&dir, "model.safetensors", "");
    assert_eq!(resolve(&dir).unwrap().dir, dir.path());
}

#[cfg(unix)]
#[test]
fn symlinks_of_a_snapshot_are_not_resolved() {
    let dir = directory(&["blobs/0a1b"]);
    let snapshot = dir.path().join("snapshots").join("r1");
    fs::create_dir_all(&snapshot).unwrap();
    std::os::unix::fs::symlink("../../blobs/0a1b", snapshot.join("model.safetensors")).unwrap();
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), layout.dir), (vec!["model.safetensors".to_owned()], snapshot));
}
