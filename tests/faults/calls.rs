//! Each call that we make, failing with each answer that it can get.

use rustix::io::Errno;
use weightmap::{ReadMode, ShardedModel};
use weightmap_testkit::faults::{clear, inject};
use weightmap_testkit::{ShardBuilder, TempModel, damage};

use super::{NO_RING, WAYS, Way, assert_tells, by_workers, checkpoint, rule, touched, with_faults};
use crate::support::{SECOND, assert_error, assert_says, open};

const CALLS: [&str; 9] = ["open", "stat", "opendir", "read", "pread", "mmap", "madvise", "fadvise", "fcntl"];

const ANSWERS: [Errno; 14] = [
    Errno::IO,
    Errno::INTR,
    Errno::AGAIN,
    Errno::NOMEM,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NODEV,
    Errno::INVAL,
    Errno::ACCESS,
    Errno::PERM,
    Errno::NOSPC,
    Errno::STALE,
    Errno::TXTBSY,
    Errno::BADMSG,
];

#[test]
fn whichever_call_fails_with_whatever_the_bytes_are_right_or_the_error_names_the_file() {
    with_faults(|| {
        let files = checkpoint().temp();
        let (mut right, mut wrong, mut number) = (0, 0, 0);
        for call in CALLS {
            for answer in ANSWERS {
                for when in ["1", "2", "4", "1/3:5"] {
                    number += 1;
                    let (way, mode) =
                        (WAYS[number % WAYS.len()], ReadMode::ALL[number / 6 % ReadMode::ALL.len()]);
                    // Before the model is opened, or when all of its shards have been.
                    let touched = (number % 2 == 0).then(|| touched(&files));
                    inject(NO_RING);
                    inject(&rule(call, "*", when, answer));
                    let result = touched.clone().map_or_else(|| ShardedModel::open(&files), Ok);
                    let result = result.and_then(|model| way.go(&model, &by_workers(mode), true));
                    clear();
                    let what = format!("{call} {answer:?} {when} {way:?} {mode}");
                    match result {
                        Ok(()) => right += 1,
                        Err(error) => {
                            assert_eq!(error.kind(), "Io", "{what}: {error}");
                            let is_ours = error.path().is_some_and(|path| path.starts_with(files.path()));
                            assert!(is_ours, "{what}: {error}");
                            wrong += 1;
                        }
                    }
                    // What failed is tried anew.
                    let model = touched.unwrap_or_else(|| open(&files));
                    let again = way.go(&model, &by_workers(mode), true);
                    again.unwrap_or_else(|error| panic!("{what}, then: {error}"));
                }
            }
        }
        assert!(right > 100 && wrong > 100, "{right} right, {wrong} wrong");
    });
}

#[test]
fn a_read_that_fails_names_file_tensor_and_bytes_and_says_what_to_do() {
    with_faults(|| {
        let files = checkpoint().temp();
        let model = touched(&files);
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            for (answer, advice) in [
                (Errno::IO, "try again"),
                (Errno::STALE, "open the model again"),
                (Errno::BADMSG, "fetch the file again"),
                (Errno::NOTCONN, "mount it again"),
                (Errno::TIMEDOUT, "mount it again"),
                (Errno::ACCESS, "permissions"),
                (Errno::NOMEM, "free some"),
                (Errno::NOSPC, "make room"),
                (Errno::AGAIN, "try again later"),
            ] {
                inject(NO_RING);
                inject(&rule("pread", SECOND, "1-", answer));
                for way in [Way::Load, Way::Stream, Way::Into, Way::Rows, Way::Columns, Way::Prefetch] {
                    let error = way.go(&model, &by_workers(mode), true).unwrap_err();
                    assert_tells(&error, answer);
                    let words = [SECOND, "cannot read ", " bytes at offset ", " for tensor \"", advice];
                    assert_says(&error, &words);
                }
                clear();
            }
        }
    });
}

#[test]
fn pages_that_cannot_be_brought_in_are_an_error_that_says_the_same() {
    with_faults(|| {
        let files = checkpoint().temp();
        let model = touched(&files);
        // Of a system that has no such call, or lets the process make none, these are read by position.
        let is_told =
            |answer: &Errno| ![Errno::INTR, Errno::INVAL, Errno::ACCESS, Errno::PERM].contains(answer);
        for answer in ANSWERS.into_iter().filter(is_told) {
            inject(&rule("madvise", SECOND, "1-", answer));
            let error = Way::Load.go(&model, &by_workers(ReadMode::Mapped), true).unwrap_err();
            clear();
            assert_tells(&error, answer);
            assert_says(&error, &[SECOND, "cannot bring in bytes ", " of the mapping for tensor \""]);
        }
    });
}

#[test]
fn interruptions_and_short_reads_are_no_failure() {
    with_faults(|| {
        let files = checkpoint().temp();
        for &mode in ReadMode::ALL {
            for way in WAYS {
                inject(NO_RING);
                for call in ["open", "read", "pread", "madvise"] {
                    inject(&rule(call, "*", "1-5", Errno::INTR));
                    inject(&rule(call, "*", "1/3:9", Errno::INTR));
                }
                for call in ["read", "pread"] {
                    inject(&format!("{call} * 1/2:3 short:1001"));
                    inject(&format!("{call} * 1/2:4 short:65536"));
                }
                let result = way.go(&open(&files), &by_workers(mode), true);
                clear();
                result.unwrap_or_else(|error| panic!("{way:?} {mode}: {error}"));
            }
        }
    });
}

#[test]
fn an_end_that_comes_too_early_is_an_error() {
    with_faults(|| {
        let files = checkpoint().temp();
        for mode in [ReadMode::Buffered, ReadMode::Direct] {
            for way in WAYS {
                let model = touched(&files);
                inject(NO_RING);
                inject(&format!("pread {SECOND} 1- short:0"));
                let error = way.go(&model, &by_workers(mode), true).unwrap_err();
                clear();
                let words = [SECOND, "cannot read", " at offset ", "for tensor \"", "shorter than it was"];
                assert_says(&error, &words);
            }
        }
        inject(&format!("pread {SECOND} 1- short:0"));
        let error = open(&files).tensor("c").unwrap_err();
        assert_says(&error, &[SECOND, "cannot read 8 bytes at offset 0", "shorter than it was"]);
        clear();
    });
}

/// A model whose second shard has `SECOND.new` beside it, another file, and which has been touched or not.
fn to_be_changed(is_touched: bool) -> (TempModel, ShardedModel) {
    let files = checkpoint().temp();
    let other = ShardBuilder::new().zeros("c", "U8", &[7]).build();
    std::fs::write(files.file(&format!("{SECOND}.new")), other).unwrap();
    // The clock of a file system can be so coarse that a write does not show: now it is another time than it tells.
    damage::touch(files.file(SECOND));
    let model = if is_touched { touched(&files) } else { open(&files) };
    (files, model)
}

#[test]
fn a_file_that_changes_just_before_one_of_our_calls_is_an_error_or_as_it_was() {
    with_faults(|| {
        let (mut told, mut number) = (0, 0);
        for change in ["cut:100000", "write:200000", "swap", "unlink"] {
            for call in ["open", "stat", "pread", "madvise", "fadvise"] {
                for when in ["1", "2", "3", "5"] {
                    for &mode in ReadMode::ALL {
                        number += 1;
                        // Before the first touch, other bytes that were written count as they are.
                        let has_other_bytes = ["write:200000", "swap"].contains(&change);
                        let (_files, model) = to_be_changed(has_other_bytes || number % 3 > 0);
                        inject(NO_RING);
                        inject(&format!("{call} {SECOND} {when} {change}"));
                        let result = WAYS[number % WAYS.len()].go(&model, &by_workers(mode), false);
                        clear();
                        if let Err(error) = result {
                            let what = format!("{change} {call} {when} {mode} {error}");
                            assert!(error.path().is_some_and(|path| path.ends_with(SECOND)), "{what}");
                            told += 1;
                        }
                    }
                }
            }
        }
        assert!(told > 20, "{told}");
    });
}

#[test]
fn an_index_that_is_written_to_while_it_is_read_is_an_error() {
    with_faults(|| {
        let files = checkpoint().temp();
        let index = files.file("model.safetensors.index.json");
        damage::touch(&index);
        // The second read finds the end.
        inject("read index.json 2 write:1");
        let error = ShardedModel::open(&files).map(drop).unwrap_err();
        clear();
        assert_error(&error, "ShardChanged", "model.safetensors.index.json");
    });
}

#[test]
fn a_shard_that_is_written_to_while_its_header_is_read_is_an_error_and_then_read_anew() {
    with_faults(|| {
        let (_files, model) = to_be_changed(false);
        inject(&format!("pread {SECOND} 2 write:2000000"));
        let error = model.tensor("c").unwrap_err();
        clear();
        assert_error(&error, "ShardChanged", SECOND);
        model.tensor("c").unwrap();
    });
}
