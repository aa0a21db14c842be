//! The group `runtime`: what happens to a checkpoint while it is open, a function for each case.

use std::fs;
use std::path::{Path, PathBuf};

use weightmap::{Error, ReadMode, ShardedModel};
use weightmap_testkit::{Oracle, ShardBuilder, TempModel, damage};

use super::{group, made_by};
use crate::open::INDEX;
use crate::support::{FIRST, SECOND, assert_error, assert_is, load_all, open, within_a_minute};
use crate::touch::race;

/// A copy of the folder that all of these begin with.
struct Base {
    files: TempModel,
    dir: PathBuf,
}

impl Base {
    fn shard(&self) -> PathBuf {
        self.dir.join(SECOND)
    }

    fn open(&self) -> ShardedModel {
        open(&self.dir)
    }

    /// Opens it, lets something happen to the second shard, and gives the error of its tensor: by a view and by loads.
    fn error_after(&self, happens: impl FnOnce(&Path)) -> Error {
        let model = self.open();
        happens(&self.shard());
        let error = model.view("c").map(drop).unwrap_err();
        for &mode in ReadMode::ALL {
            assert_eq!(load_all(&model, mode).unwrap_err().kind(), error.kind());
        }
        error
    }
}

/// Another file that is right too, and holds `c`.
fn another() -> Vec<u8> {
    ShardBuilder::new().tensor("c", "U8", &[2], [7, 9]).build()
}

/// The cases that have a test of their own, which stands there because it needs a process of its own.
const ELSEWHERE: [(&str, &str); 2] = [
    ("rt_fd_limit", "touch::a_thousand_shards_are_loaded_with_64_descriptors"),
    ("rt_vm_limit", "touch::a_shard_that_does_not_fit_the_address_space_can_be_read"),
];

/// Does what a case says, and asserts what has to come of it.
type Run = fn(&Base);

/// What is done and what has to come of it, by the name of the case.
#[cfg(unix)]
const CASES: [(&str, Run); 14] = [
    ("rt_base", |base| {
        let oracle = Oracle::open(&base.dir);
        for &mode in ReadMode::ALL {
            let loaded = load_all(&base.open(), mode).unwrap();
            loaded.tensors().iter().for_each(|tensor| assert_is(tensor, &oracle));
        }
    }),
    ("rt_truncate_after_open_before_touch", |base| {
        let error = base.error_after(|shard| damage::truncate(shard, 40));
        assert_error(&error, "HeaderTruncated", SECOND);
    }),
    ("rt_grow_after_open", |base| {
        assert_error(&base.error_after(|shard| damage::append(shard, "x")), "TrailingBytes", SECOND);
    }),
    ("rt_rename_over", |base| {
        let oracle = Oracle::open(&base.dir).tensor("c").bytes;
        let model = base.open();
        assert!(model.view("c").unwrap().bytes() == oracle);
        damage::replace(base.shard(), another());
        assert!(model.view("c").unwrap().bytes() == oracle);
        assert!(load_all(&model, ReadMode::Buffered).unwrap().get("c").unwrap().bytes() == oracle);
    }),
    ("rt_rename_over_before_touch", |base| {
        let model = base.open();
        damage::replace(base.shard(), another());
        assert_eq!(model.view("c").unwrap().bytes(), [7, 9]);
    }),
    ("rt_rewrite_data_in_place", |base| {
        let model = base.open();
        let view = model.view("c").unwrap();
        let (range, shard) = (view.info().range.clone(), base.shard());
        damage::overwrite(&shard, range.start, vec![0x77; view.bytes().len()]);
        damage::touch(&shard);
        // A view shows the file as it is; a load does not hand it out.
        assert_eq!(view.bytes().len() as u64, range.end - range.start);
        assert_error(&load_all(&model, ReadMode::Auto).unwrap_err(), "ShardChanged", SECOND);
    }),
    ("rt_unlink_after_open", |base| {
        assert_error(&base.error_after(|shard| fs::remove_file(shard).unwrap()), "Io", SECOND);
    }),
    ("rt_unlink_after_touch", |base| {
        let oracle = Oracle::open(&base.dir).tensor("c").bytes;
        let model = base.open();
        model.view("c").unwrap();
        fs::remove_file(base.shard()).unwrap();
        assert!(model.view("c").unwrap().bytes() == oracle);
    }),
    ("rt_swap_to_fifo_before_touch", |base| {
        assert_error(&base.error_after(|shard| damage::replace_by_fifo(shard)), "NotRegularFile", SECOND);
    }),
    // Links are followed by policy, whatever they lead to: the cache of the hub consists of them.
    ("rt_swap_to_symlink_outside", |base| {
        let outside = base.files.file("outside.safetensors");
        fs::write(&outside, another()).unwrap();
        let model = base.open();
        damage::replace_by_link(base.shard(), &outside);
        assert_eq!(model.view("c").unwrap().bytes(), [7, 9]);
    }),
    ("rt_index_rewritten_after_open", |base| {
        let oracle = Oracle::open(&base.dir).tensor("c").bytes;
        let model = base.open();
        damage::replace(base.dir.join(INDEX), "{}");
        assert!(model.view("c").unwrap().bytes() == oracle);
    }),
    ("rt_first_touch_race", |base| {
        let model = base.open();
        let views = race(|| model.view("c").unwrap());
        assert!(views.iter().all(|view| view.bytes().as_ptr() == views[0].bytes().as_ptr()));
    }),
    ("rt_first_touch_race_bad", |base| {
        let whole = fs::read(base.shard()).unwrap();
        damage::overwrite(base.shard(), 8, "[");
        let model = base.open();
        let errors = race(|| model.view("c").map(drop).unwrap_err().kind());
        assert!(errors.iter().all(|&kind| kind == "Json"), "{errors:?}");
        // A repair is seen by the next call.
        damage::replace(base.shard(), whole);
        model.view("c").unwrap();
    }),
    ("rt_dir_renamed", |base| {
        let model = base.open();
        fs::rename(&base.dir, base.files.file("moved")).unwrap();
        assert_error(&model.view("c").unwrap_err(), "Io", SECOND);
    }),
];

#[cfg(unix)]
#[test]
fn what_happens_to_an_open_checkpoint_has_the_outcome_that_it_should_have() {
    let Some(made) = made_by("make_malformed.py") else { return };
    within_a_minute(move || {
        for case in group(&made, "runtime") {
            if ELSEWHERE.iter().any(|(name, _)| *name == case.name) {
                continue;
            }
            let run = CASES.iter().find(|(name, _)| *name == case.name);
            let (name, run) = run.unwrap_or_else(|| panic!("nothing tests {}", case.name));
            let files = TempModel::empty();
            let dir = files.file("model");
            fs::create_dir(&dir).unwrap();
            for entry in fs::read_dir(&case.path).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
            }
            assert!([FIRST, SECOND, INDEX].iter().all(|file| dir.join(file).is_file()), "{name}");
            println!("{name}");
            run(&Base { files, dir });
        }
    });
}
