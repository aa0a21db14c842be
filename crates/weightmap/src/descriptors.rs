//! Files that are kept open, as many as the process can spare.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::sys;

/// How many descriptors of a model are kept open: at most a quarter of those that the process may have, since
/// the rest is the caller's.
fn most_descriptors() -> usize {
    let limit = sys::descriptor_limit().map_or(64, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    (limit / 4).clamp(1, 256)
}

/// How many threads may open files at once, each for one at a time.
pub(crate) fn most_openers() -> usize {
    most_descriptors().div_ceil(2)
}

/// How a descriptor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the page cache.
    Cached,
    /// Past the page cache.
    Direct,
}

/// Descriptors that are kept open for reads by position, the least recently used given up first.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    /// The most recently used last.
    kept: Mutex<VecDeque<(u32, Access, Arc<File>)>>,
}

impl Descriptors {
    pub(crate) fn new() -> Self {
        Self { most: most_descriptors(), kept: Mutex::default() }
    }

    pub(crate) fn get(&self, number: u32, access: Access) -> Option<Arc<File>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(of, by, _)| (*of, *by) == (number, access))?;
        let entry = kept.remove(place)?;
        let file = Arc::clone(&entry.2);
        kept.push_back(entry);
        Some(file)
    }

    pub(crate) fn keep(&self, number: u32, access: Access, file: File) -> Arc<File> {
        let file = Arc::new(file);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, by, _)| (*of, *by) != (number, access));
        kept.push_back((number, access, Arc::clone(&file)));
        while kept.len() > self.most {
            kept.pop_front();
        }
        file
    }

    pub(crate) fn remove(&self, number: u32) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, ..)| *of != number);
    }

    /// Opens a file, and where the process has run out of descriptors, gives up those kept and tries again,
    /// as long as there are any. Then others hold all there are. Threads of ours give theirs back soon: it waits for that until
    /// for a second none has opened anything.
    pub(crate) fn spare<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        /// How often any thread has opened something.
        static OPENED: AtomicU64 = AtomicU64::new(0);
        const WAIT: Duration = Duration::from_millis(1);
        const MOST_WAITS: u32 = 1000;
        let (mut waits, mut seen) = (0, OPENED.load(Relaxed));
        loop {
            match open() {
                Err(error) if error.is_out_of_descriptors() && waits < MOST_WAITS => {
                    if !self.clear() {
                        thread::sleep(WAIT);
                        let opened = OPENED.load(Relaxed);
                        waits = if opened == seen { waits + 1 } else { 0 };
                        seen = opened;
                    }
                }
                result => {
                    if result.is_ok() {
                        OPENED.fetch_add(1, Relaxed);
                    }
                    return result;
                }
            }
        }
    }

    /// Gives all of them up; tells whether there were any.
    fn clear(&self) -> bool {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let any = !kept.is_empty();
        kept.clear();
        any
    }
}
