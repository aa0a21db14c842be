//! What cannot be had and need not be: mappings, reads past the page cache, descriptors.

use rustix::io::Errno;
use weightmap::ReadMode;
use weightmap_testkit::faults::{clear, inject};

use super::{NO_RING, WAYS, Way, assert_tells, by_workers, checkpoint, rule, touched, with_faults};
use crate::support::{SECOND, assert_error, assert_says, in_mode, open};

#[test]
fn a_file_that_cannot_be_mapped_is_read_by_position_unless_a_mapping_was_asked_for() {
    with_faults(|| {
        let files = checkpoint().temp();
        for answer in [Errno::NODEV, Errno::NOMEM, Errno::INVAL, Errno::ACCESS, Errno::PERM, Errno::AGAIN] {
            inject(&rule("mmap", SECOND, "1-", answer));
            let model = open(&files);
            for mode in [ReadMode::Auto, ReadMode::Buffered, ReadMode::Direct] {
                for way in WAYS {
                    way.go(&model, &by_workers(mode), true)
                        .unwrap_or_else(|error| panic!("{answer:?} {error}"));
                }
            }
            let loaded = model.select().shard(SECOND).unwrap().load().unwrap();
            assert!(loaded.tensors().iter().all(|tensor| !tensor.is_mapped()));
            assert_eq!(loaded.report().mapped_bytes, 0);
            let load = Way::Load.go(&model, &in_mode(ReadMode::Mapped), true).unwrap_err();
            for error in [load, model.view("c").map(drop).unwrap_err()] {
                assert_error(&error, "Io", SECOND);
                let answer = std::io::Error::from(answer).to_string();
                assert_says(&error, &["cannot map", "ReadMode::Buffered", &answer]);
            }
            clear();
            // When it is opened again it is mapped again.
            model.release(SECOND).unwrap();
            model.view("c").unwrap();
        }
    });
}

/// Some file systems have private mappings only.
#[test]
fn a_file_that_cannot_be_mapped_to_be_shared_is_mapped_all_the_same() {
    with_faults(|| {
        let files = checkpoint().temp();
        inject(&rule("mmap", SECOND, "1", Errno::NODEV));
        let model = open(&files);
        for way in WAYS {
            way.go(&model, &in_mode(ReadMode::Mapped), true).unwrap();
        }
        assert!(
            model.select().names(["c"]).unwrap().load_with(&in_mode(ReadMode::Mapped)).unwrap().tensors()[0]
                .is_mapped()
        );
        clear();
    });
}

#[test]
fn where_the_page_cache_cannot_be_passed_by_it_is_not() {
    with_faults(|| {
        let files = checkpoint().temp();
        for what in ["fcntl * 1- errno:22", "fcntl * 1- errno:13"] {
            let model = touched(&files);
            inject(what);
            for way in WAYS {
                way.go(&model, &in_mode(ReadMode::Direct), true).unwrap();
            }
            clear();
        }
        // A block that the file system refuses is read through the page cache.
        let model = touched(&files);
        inject(NO_RING);
        inject(&rule("pread", SECOND, "1/2:3", Errno::INVAL));
        Way::Load.go(&model, &in_mode(ReadMode::Direct).workers(1), true).unwrap_or_else(|error| {
            assert_says(&error, &[SECOND, "Invalid argument"]);
        });
        clear();
    });
}

#[test]
fn what_kept_descriptors_stand_for_is_given_up_before_a_process_without_any_left_fails() {
    with_faults(|| {
        let files = checkpoint().temp();
        for answer in [Errno::MFILE, Errno::NFILE] {
            for &mode in ReadMode::ALL {
                let model = open(&files);
                // It keeps a descriptor of the first shard.
                model.tensor("a").unwrap();
                inject(&rule("open", SECOND, "1", answer));
                for way in WAYS {
                    way.go(&model, &by_workers(mode), true).unwrap();
                }
                clear();
                model.release(SECOND).unwrap();
                inject(&rule("open", SECOND, "1-", answer));
                let error = Way::Load.go(&model, &by_workers(mode), true).unwrap_err();
                clear();
                assert_error(&error, "Io", SECOND);
                assert_tells(&error, answer);
                assert_says(&error, &["cannot open for tensor \"c\"", "files open as"]);
                Way::Load.go(&model, &by_workers(mode), true).unwrap();
            }
        }
    });
}

/// Other systems, and Linux before 5.14, have no call that brings pages in.
#[test]
fn pages_that_no_call_brings_in_are_left_to_whoever_touches_them() {
    with_faults(|| {
        let files = checkpoint().temp();
        let model = touched(&files);
        inject(&rule("madvise", SECOND, "1-", Errno::INVAL));
        for way in WAYS {
            way.go(&model, &by_workers(ReadMode::Mapped), true).unwrap();
        }
        // Nothing touches what was cut off, which would be a signal.
        inject(&format!("pread {SECOND} 2 cut:100000"));
        let error = Way::Load.go(&model, &by_workers(ReadMode::Mapped), false).unwrap_err();
        clear();
        assert_error(&error, "ShardChanged", SECOND);
    });
}
