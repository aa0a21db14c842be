//! How far workers may run ahead of whoever takes what they load.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bounds the bytes that have been begun and not yet been taken.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    limit: u64,
    inside: u64,
    closed: bool,
}

impl Gate {
    pub(crate) fn new(limit: u64) -> Self {
        Self { state: Mutex::new(State { limit, ..State::default() }), changed: Condvar::new() }
    }

    /// Sets the limit anew.
    pub(crate) fn limit(&self, limit: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).limit = limit;
        self.changed.notify_all();
    }

    /// Waits until `bytes` more fit, and counts them; what alone exceeds the limit goes in alone, and nothing waits for
    /// nothing. Tells `false`, at once, when the gate is closed.
    #[must_use]
    pub(crate) fn enter(&self, bytes: u64) -> bool {
        let full = |state: &mut State| {
            let must_fit = bytes > 0 && state.inside > 0;
            !state.closed && must_fit && state.inside.saturating_add(bytes) > state.limit
        };
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.changed.wait_while(state, full).unwrap_or_else(PoisonError::into_inner);
        state.inside = state.inside.saturating_add(bytes);
        !state.closed
    }

    /// Counts bytes out that have been taken.
    pub(crate) fn leave(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside = state.inside.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn what_does_not_fit_waits_until_others_leave() {
        let gate = Gate::new(10);
        let (sender, entered) = mpsc::channel();
        assert!(gate.enter(8));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(gate.enter(5));
                sender.send("second").unwrap();
            });
            assert!(gate.enter(2), "8 and 2 fit");
            assert!(entered.try_recv().is_err(), "8, 2 and 5 do not");
            gate.leave(8);
            assert_eq!(entered.recv().unwrap(), "second");
        });
    }

    #[test]
    fn what_exceeds_the_limit_goes_in_alone() {
        let gate = Gate::new(10);
        assert!(gate.enter(1000));
        gate.leave(1000);
        assert!(gate.enter(10));
    }

    #[test]
    fn who_brings_nothing_does_not_wait() {
        let gate = Gate::new(10);
        assert!(gate.enter(1000));
        assert!(gate.enter(0), "more of what is inside already");
        gate.close();
        assert!(!gate.enter(0));
    }

    #[test]
    fn closing_sends_away_those_who_wait_and_those_who_come() {
        let gate = Gate::new(1);
        assert!(gate.enter(1));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter(1));
            gate.close();
            assert!(!waiting.join().unwrap());
        });
        assert!(!gate.enter(1));
    }
}
