//! The `weightmap` program, judged by its exit status, its standard output and its standard error.
#![expect(clippy::expect_used, reason = "what fails here ends the test")]

mod check;
mod digest;
#[cfg(target_os = "linux")]
mod faults;
mod info;
mod load;
mod ls;
mod output;
mod plan;
mod prefetch;
mod slice;
mod stream;

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What a run of the program came to.
struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            status: output.status.code().expect("no signal ends it"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// The standard output of a run that succeeded and said nothing else.
    fn ok(self) -> String {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""));
        self.stdout
    }

    fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("one JSON document")
    }

    /// The standard error of a run that failed with this status and gave no result.
    fn failure(self, status: i32) -> String {
        assert_eq!((self.status, self.stdout.as_str()), (status, ""), "{}", self.stderr);
        self.stderr
    }
}

fn weightmap<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    weightmap_with(arguments, "")
}

/// Runs the program with this text on its standard input.
fn weightmap_with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, input: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightmap"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that does not read its input may be gone by now.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    Run::of(child.wait_with_output().expect("the program ends"))
}

/// The arguments as one list: `args!["ls", model.path(), "--json"]`.
macro_rules! args {
    ($($argument:expr),* $(,)?) => {
        [$(std::ffi::OsStr::new($argument)),*]
    };
}
use args;
