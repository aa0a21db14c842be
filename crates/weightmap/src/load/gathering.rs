//! Outputs whose items are copied to their places once all of them are there.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::outputs::{Output, Outputs};
use crate::memory::Memory;

/// By place in the selection, the outputs whose items are copied.
pub(super) struct Gatherings<'a>(HashMap<usize, Gathering<'a>>);

/// One of them.
pub(super) struct Gathering<'a> {
    /// Whether memory for it was let in.
    entered: OnceLock<bool>,
    /// Of each item, what was read.
    items: Vec<Mutex<(Arc<Memory>, Range<usize>)>>,
    left: AtomicUsize,
    /// The caller's memory for the output, if it goes there.
    lent: Mutex<Option<&'a mut [u8]>>,
}

impl<'a> Gatherings<'a> {
    /// `lent` is the caller's memory, by place in the selection.
    pub(super) fn new(outputs: &Outputs, mut lent: HashMap<usize, &'a mut [u8]>) -> Self {
        let gathered = outputs.iter().enumerate().filter(|(_, output)| output.gathers().is_some());
        let gathering = |(number, output): (usize, &Output)| {
            let gathering = Gathering {
                entered: OnceLock::new(),
                items: output.items.clone().map(|_| Mutex::default()).collect(),
                left: AtomicUsize::new(output.items.len()),
                lent: Mutex::new(lent.remove(&number)),
            };
            (number, gathering)
        };
        Self(gathered.map(gathering).collect())
    }

    pub(super) fn of(&self, output: usize) -> Option<&Gathering<'a>> {
        self.0.get(&output)
    }
}

impl<'a> Gathering<'a> {
    /// Whether memory for all of it was let in, which the first one asks for while others wait.
    pub(super) fn enter(&self, ask: impl FnOnce() -> bool) -> bool {
        *self.entered.get_or_init(ask)
    }

    /// Takes what was read of an item.
    pub(super) fn add(&self, item: usize, bytes: (Arc<Memory>, Range<usize>)) {
        if let Some(place) = self.items.get(item) {
            *lock(place) = bytes;
        }
    }

    /// Counts one more item as there; tells whether it was the last.
    pub(super) fn is_last(&self) -> bool {
        self.left.fetch_sub(1, AcqRel) == 1
    }

    /// What was read of each item, for whoever copies it, and then lets go of it.
    pub(super) fn take(&self) -> impl Iterator<Item = (Arc<Memory>, Range<usize>)> {
        self.items.iter().map(|item| std::mem::take(&mut *lock(item)))
    }

    /// The caller's memory for the output.
    pub(super) fn take_lent(&self) -> Option<&'a mut [u8]> {
        lock(&self.lent).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
