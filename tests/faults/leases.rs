//! Files on which another process has a lease, as file servers have.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use weightmap::ReadMode;
use weightmap_testkit::faults::{clear, compiled, inject};

use super::{WAYS, Way, assert_tells, by_workers, checkpoint, rule, with_faults};
use crate::support::{SECOND, assert_error, assert_says, open, open_error, within_a_minute};

/// A process that has a lease on a file, and gives it up when it is told that others want it.
struct Holder(Child);

impl Holder {
    /// `None`, with a line that says so, where there is no compiler or the file system has no leases.
    fn of(file: &Path) -> Option<Self> {
        let program = compiled("lease", include_str!("lease.c"), &[])?;
        let child = Command::new(program).arg(file).stdout(Stdio::piped()).spawn().unwrap();
        let mut holder = Self(child);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "held\n" {
            println!("skipped: no leases here: {line}");
            return None;
        }
        Some(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_under_a_lease_is_waited_for_until_the_holder_gives_way() {
    within_a_minute(|| {
        for &mode in ReadMode::ALL {
            for name in [SECOND, "model.safetensors.index.json"] {
                let files = checkpoint().temp();
                let Some(_holder) = Holder::of(&files.file(name)) else { return };
                Way::Load.go(&open(&files), &by_workers(mode), true).unwrap();
            }
        }
    });
}

#[test]
fn an_open_that_is_refused_for_now_is_made_again_through_what_was_found_there() {
    with_faults(|| {
        let files = checkpoint().temp();
        for &mode in ReadMode::ALL {
            for way in WAYS {
                // Of each the first is ours, and the second holds what is there.
                inject(&rule("open", SECOND, "1", Errno::AGAIN));
                inject(&rule("open", "index.json", "1", Errno::AGAIN));
                way.go(&open(&files), &by_workers(mode), true).unwrap();
                clear();
            }
        }
    });
}

#[test]
fn an_open_that_is_refused_for_good_says_that_another_process_may_have_a_lease() {
    with_faults(|| {
        let files = checkpoint().temp();
        let model = open(&files);
        inject(&rule("open", SECOND, "1-", Errno::AGAIN));
        for &mode in ReadMode::ALL {
            let error = Way::Load.go(&model, &by_workers(mode), true).unwrap_err();
            assert_error(&error, "Io", SECOND);
            assert_tells(&error, Errno::AGAIN);
            assert_says(&error, &["another process has a lease"]);
        }
        inject(&rule("open", "index.json", "1-", Errno::AGAIN));
        let error = open_error(&files);
        clear();
        assert_says(&error, &["index.json", "another process has a lease"]);
    });
}
