//! What belongs to one process, and is made anew in a child of it.

use std::mem;
use std::process;
use std::sync::{Arc, OnceLock};

/// A value of this process. A child that was forked has one of its own, made when it first asks.
///
/// At a fork another thread may be holding a lock. In the child that thread is not there, so the lock is held for
/// ever, and what it guards is half done. And the child's descriptors are copied before its memory, so that it knows of some
/// that it does not have. So a parent's value is neither touched in a child nor dropped: what it has open stays open there.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    process: u32,
    value: Arc<T>,
    child: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::of(process::id(), value)
    }

    fn of(process: u32, value: T) -> Self {
        Self { process, value: Arc::new(value), child: OnceLock::new() }
    }

    /// The value of the calling process; `anew` makes it from that of its parent, of which it must take no lock.
    pub(crate) fn get(&self, anew: impl Fn(&T) -> T) -> &T {
        self.get_in(process::id(), anew)
    }

    fn get_in(&self, process: u32, anew: impl Fn(&T) -> T) -> &T {
        let mut here = self;
        while here.process != process {
            here = match here.child.get() {
                Some(child) => child,
                None => {
                    // Made before it is put there: the next fork may come meanwhile.
                    let child = Box::new(Self::of(process, anew(&here.value)));
                    here.child.get_or_init(|| child)
                }
            };
        }
        &here.value
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            mem::forget(Arc::clone(&self.value));
        }
    }
}

/// What was found out of the system, by `probe` the first time.
///
/// Threads that ask at once may each probe, and none waits for another, as it would with [`OnceLock::get_or_init`]: in a
/// process that was forked meanwhile it would wait for ever.
pub(crate) fn probed<T: Copy>(known: &OnceLock<T>, probe: impl FnOnce() -> T) -> T {
    known.get().copied().unwrap_or_else(|| {
        let found = probe();
        *known.get_or_init(|| found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_value_and_a_child_one_made_of_it() {
        /// Never dropped, since the values of other processes never are.
        static VALUE: OnceLock<PerProcess<i32>> = OnceLock::new();
        let value = VALUE.get_or_init(|| PerProcess::new(1));
        let doubled = |parent: &i32| parent * 2;
        assert_eq!(*value.get(doubled), 1);
        let own = process::id();
        let child = value.get_in(own + 1, doubled);
        assert_eq!(*child, 2);
        assert!(std::ptr::eq(child, value.get_in(own + 1, doubled)), "it is made once");
        assert_eq!(*value.get_in(own + 2, doubled), 4, "a child of the child");
        assert_eq!(*value.get(doubled), 1);
    }

    #[test]
    fn what_was_probed_once_is_known() {
        let known = OnceLock::new();
        assert_eq!(probed(&known, || 1), 1);
        assert_eq!(probed(&known, || 2), 1);
    }
}
