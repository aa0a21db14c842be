//! Threads of our own.

use std::cell::Cell;
use std::io;
use std::thread::{self, JoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

thread_local! {
    /// Whether this is one of our threads.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of ours, on which nobody may wait for us.
pub(crate) fn is_ours() -> bool {
    IS_OURS.get()
}

/// One worker for each core that the process may use; more than 16 rarely help and can hurt.
pub(crate) fn default_workers() -> usize {
    const MOST_WORKERS: usize = 16;
    thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_WORKERS))
}

/// Runs something with so many workers, at least one, and waits for them: a process that forks between two loads has
/// none to lose. The global pool of rayon is never used.
pub(crate) fn with_threads<R>(workers: usize, run: impl FnOnce(&ThreadPool) -> R) -> Result<R> {
    let workers = workers.max(1);
    let name = |number| format!("weightmap-{number}");
    let builder = ThreadPoolBuilder::new().num_threads(workers).thread_name(name);
    let worker = |thread: rayon::ThreadBuilder| {
        IS_OURS.set(true);
        thread.run();
    };
    builder.build_scoped(worker, run).map_err(|error| Error::Threads { workers, reason: error.to_string() })
}

/// Starts a thread that drives workers.
pub(crate) fn drive<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> Result<JoinHandle<R>> {
    let driver = || {
        IS_OURS.set(true);
        run()
    };
    thread::Builder::new().name("weightmap-driver".to_owned()).spawn(driver).map_err(no_thread)
}

/// The error of a thread that cannot be had.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by it")]
pub(crate) fn no_thread(error: io::Error) -> Error {
    Error::Threads { workers: 1, reason: error.to_string() }
}
