//! The communicator of one node, on the threads where MPI allows it.

#![expect(unsafe_code, reason = "rsmpi marks no communicator as `Send`")]

use std::io::{self, ErrorKind};
use std::mem;
use std::thread::{self, ThreadId};

use mpi::Threading;
use mpi::topology::SimpleCommunicator;

/// A communicator that only the thread that made it uses, or any thread where MPI takes calls of several at once.
pub(crate) struct Node {
    communicator: Option<SimpleCommunicator>,
    /// The thread that made it, where it is bound to that.
    thread: Option<ThreadId>,
}

// SAFETY: a communicator is a handle, which any thread may use where MPI runs at `MPI_THREAD_MULTIPLE`. At all other
// levels it is used and freed on the thread that made it and nowhere else: `get` is the only way to it, and `drop`
// asks it.
unsafe impl Send for Node {}

impl Node {
    pub(crate) fn new(communicator: SimpleCommunicator) -> Self {
        let is_bound = mpi::environment::threading_support() != Threading::Multiple;
        Self { communicator: Some(communicator), thread: is_bound.then(|| thread::current().id()) }
    }

    /// The communicator.
    ///
    /// # Errors
    /// On a thread on which it must not be used.
    pub(crate) fn get(&self) -> io::Result<&SimpleCommunicator> {
        let is_here = self.thread.is_none_or(|thread| thread == thread::current().id());
        self.communicator.as_ref().filter(|_| is_here).ok_or_else(|| {
            let why = "MPI takes calls of no other thread than the one that made this collective: make it there, or \
                       initialise MPI with `Threading::Multiple`";
            io::Error::new(ErrorKind::Unsupported, why)
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.get().is_err() {
            // Never freed is better than freed on this thread.
            mem::forget(self.communicator.take());
        }
    }
}
