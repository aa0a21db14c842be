//! What several modules need.

pub(crate) mod plan_cases;
pub(crate) mod planned;
pub(crate) mod tokens;

use std::any::type_name;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use weightmap::{Error, LoadOptions, Loaded, ReadMode, ShardedModel, Tensor};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

/// The two shards of [`two_shards`].
pub(crate) const FIRST: &str = "model-00001-of-00002.safetensors";
pub(crate) const SECOND: &str = "model-00002-of-00002.safetensors";

/// A small checkpoint: `a` and `b` in the first shard, `c` and `d` in the second.
pub(crate) fn two_shards() -> Checkpoint {
    Checkpoint::new()
        .shard(FIRST, ShardBuilder::new().pattern("a", "F32", &[4, 4]).pattern("b", "F16", &[5]))
        .shard(SECOND, ShardBuilder::new().pattern("c", "U8", &[7]).pattern("d", "BF16", &[3, 3]))
}

/// A shard of one tensor.
pub(crate) fn shard_of(tensor: &str) -> ShardBuilder {
    ShardBuilder::new().pattern(tensor, "U8", &[4])
}

pub(crate) fn open(path: impl AsRef<Path>) -> ShardedModel {
    ShardedModel::open(path).expect("the model opens")
}

/// The error of opening a path.
pub(crate) fn open_error(path: impl AsRef<Path>) -> Error {
    ShardedModel::open(path).map(drop).expect_err("the model does not open")
}

pub(crate) fn in_mode(mode: ReadMode) -> LoadOptions {
    LoadOptions::default().mode(mode)
}

/// Loads all tensors; there may be none.
pub(crate) fn load_all(model: &ShardedModel, mode: ReadMode) -> weightmap::Result<Loaded> {
    model.select().allow_empty().all().load_with(&in_mode(mode))
}

/// Asserts that a loaded tensor is what the oracle reads.
pub(crate) fn assert_is(tensor: &Tensor, oracle: &Oracle) {
    let (name, expected) = (tensor.name(), oracle.tensor(tensor.name()));
    assert_eq!(tensor.dtype().name(), expected.dtype, "{name:?}");
    assert_eq!(tensor.shape(), expected.shape, "{name:?}");
    assert!(tensor.bytes() == expected.bytes, "{name:?} has other bytes");
}

/// Asserts that an error says all this.
pub(crate) fn assert_says(error: &Error, words: &[&str]) {
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// Asserts that an error is of a kind, and about a file of this name.
pub(crate) fn assert_error(error: &Error, kind: &str, file: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.path().is_some_and(|path| path.ends_with(file)), "not about {file}: {error}");
    assert_says(error, &[file]);
}

/// Fails, in place of hanging for ever, when something blocks. A minute is far more than any of it takes.
pub(crate) fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    let worker = std::thread::spawn(move || sender.send(work()));
    match done.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it blocks"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the worker sends before it ends"),
        },
    }
}

/// A checkpoint on a disk; `None`, with a line that says so, where the build lies in memory, from which nothing
/// can be evicted.
#[cfg(target_os = "linux")]
pub(crate) fn on_disk(checkpoint: &Checkpoint) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder can be made");
    let stat = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir.path()).output().expect("stat runs");
    if ["tmpfs", "ramfs"].contains(&String::from_utf8_lossy(&stat.stdout).trim()) {
        println!("skipped: {} is in memory", dir.path().display());
        return None;
    }
    checkpoint.write(&dir).expect("the checkpoint can be written");
    Some(dir)
}

/// What tells a process that [`alone`] has started it.
const CHILD: &str = "WEIGHTMAP_TESTS_CHILD";

/// Whether this is a process that [`alone`] has started.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the body of a test in a process of its own, so that nothing else is counted there, and a signal is a
/// failure of that test only. `limits` is shell text that runs first, such as `ulimit -n 64`.
///
/// The body is a closure that the test function itself makes, since its name tells which test to run.
pub(crate) fn alone<F: FnOnce()>(limits: &str, body: F) {
    if is_alone() {
        return body();
    }
    let path = type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, test) = path.split_once("::").expect("the path of a test");
    let output = Command::new("sh")
        .args(["-c", &format!("{limits}\nexec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("the path of this program"))
        .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a process can be started");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{}\n{stdout}\n{stderr}", output.status);
}

/// Where a process finds the model that was made for it.
pub(crate) const MODEL: &str = "WEIGHTMAP_TESTS_MODEL";

/// The model that was made for this process by [`alone_with`].
pub(crate) fn model_path() -> PathBuf {
    std::env::var_os(MODEL).expect("a process that has a model").into()
}

/// As [`alone`], with a model that is made by a process without the limits: see [`model_path`].
pub(crate) fn alone_with<F: FnOnce()>(files: impl FnOnce() -> TempModel, limits: &str, body: F) {
    if is_alone() {
        return body();
    }
    let files = files();
    alone(&format!("export {MODEL}='{}'\n{limits}", files.path().display()), body);
}
