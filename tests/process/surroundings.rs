//! Where a process runs: what it may write, where it stands, what it was started with.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use weightmap::{OpenOptions, ReadMode, ShardedModel};
use weightmap_testkit::{Oracle, TempModel};

use crate::support::{alone, alone_with, assert_is, in_mode, load_all, model_path, open, two_shards};

/// Does all that can be done with a model.
fn use_model(path: &Path) {
    let oracle = Oracle::open(path);
    for &mode in ReadMode::ALL {
        let model = open(path);
        let loaded = load_all(&model, mode).unwrap();
        loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
        let stream = model.select().all().stream_with(&in_mode(mode).drop_behind(true)).unwrap();
        assert_eq!(stream.map(|tensor| assert_is(&tensor.unwrap(), &oracle)).count(), 4);
        model.select().all().prefetch_with(&in_mode(mode)).unwrap();
        assert_eq!(model.view("c").unwrap().bytes(), oracle.tensor("c").bytes);
    }
    assert!(weightmap::check(path, &OpenOptions::default()).unwrap().is_sound());
}

/// A process that has mounted the model again where nothing can be written, in a name space of its own.
#[cfg(target_os = "linux")]
const READ_ONLY: &str = r#"[ -n "$WEIGHTMAP_TESTS_MOUNTED" ] || {
  export WEIGHTMAP_TESTS_MOUNTED=1
  if unshare -m true 2>&-; then
    exec unshare -m sh -c 'mount --bind "$WEIGHTMAP_TESTS_MODEL" "$WEIGHTMAP_TESTS_MODEL" &&
      mount -o remount,ro,bind "$WEIGHTMAP_TESTS_MODEL" && exec "$0" "$@"' "$0" "$@"
  fi
}"#;

#[cfg(target_os = "linux")]
#[test]
fn a_model_on_a_read_only_file_system_is_loaded() {
    alone_with(
        || two_shards().temp(),
        READ_ONLY,
        || {
            let path = model_path();
            if fs::write(path.join("written"), "").is_ok() {
                println!("skipped: nothing can be mounted here");
                return;
            }
            use_model(&path);
        },
    );
}

#[test]
fn a_model_that_nobody_may_write_to_is_loaded() {
    // Root may write all the same, and has to become someone else.
    let become_other = r#"if [ "$(id -u)" = 0 ] && command -v setpriv >&-; then
        exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0" "$@"; fi"#;
    let files = || {
        let files = two_shards().temp();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fs::read_dir(files.path()).unwrap().for_each(|entry| mode(&entry.unwrap().path(), 0o444));
        mode(files.path(), 0o555);
        files
    };
    alone_with(files, become_other, || {
        let path = model_path();
        if fs::write(path.join("written"), "").is_ok() {
            println!("skipped: this user may write everywhere");
            return;
        }
        use_model(&path);
    });
}

#[test]
fn a_process_without_an_environment_loads() {
    alone_with(
        || two_shards().temp(),
        r#"exec env -i WEIGHTMAP_TESTS_CHILD=1 WEIGHTMAP_TESTS_MODEL="$WEIGHTMAP_TESTS_MODEL" "$0" "$@""#,
        || {
            assert!(std::env::var_os("HOME").is_none() && std::env::var_os("PATH").is_none());
            use_model(&model_path());
        },
    );
}

#[test]
fn a_process_whose_directory_is_gone_loads_by_whole_paths() {
    alone("", || {
        let files = two_shards().temp();
        let gone = TempModel::empty();
        let path = gone.path().to_owned();
        std::env::set_current_dir(&path).unwrap();
        let model = open(&files);
        drop(gone);
        assert!(!path.exists());
        assert_eq!(load_all(&model, ReadMode::Auto).unwrap().tensors().len(), 4);
        use_model(files.path());
        assert_eq!(ShardedModel::open("model").map(drop).unwrap_err().kind(), "Io");
        std::env::set_current_dir("/").unwrap();
    });
}

/// All that is below a directory: what it is, how long, and when it was changed.
fn state(directory: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64, i64, i64)> {
    let mut state = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        if of.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let times = (of.mode(), of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        state.insert(path, times);
    }
    state
}

#[test]
fn a_cache_of_the_hub_that_many_open_at_once_is_not_written_to() {
    let cache = TempModel::empty();
    let (blobs, snapshot) = (cache.file("blobs"), cache.file("snapshots").join("c0"));
    two_shards().write(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    for entry in fs::read_dir(&blobs).unwrap() {
        let name = entry.unwrap().file_name();
        symlink(Path::new("../../blobs").join(&name), snapshot.join(&name)).unwrap();
    }
    let before = state(cache.path());
    assert_eq!(before.len(), 3 + 1 + 2 * 3);
    thread::scope(|scope| {
        for _ in 0..16 {
            let cache = &cache;
            scope.spawn(move || {
                for number in 0..100 {
                    let model = open(cache);
                    assert_eq!(model.len(), 4);
                    if number % 25 == 0 {
                        use_model(model.directory());
                    }
                }
            });
        }
    });
    assert_eq!(state(cache.path()), before);
}
