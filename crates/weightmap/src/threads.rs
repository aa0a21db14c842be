//! Threads of our own.
//!
//! They live for one stage of one load: a process that forks between two loads has none to lose, the kernel's
//! counters of a thread are those of its stage, and a load waits for no thread that is not its own, on
//! whatever thread it was called.

use std::cell::Cell;
use std::io;
use std::iter::once;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::descriptors::most_openers;
use crate::error::{Error, Result};

thread_local! {
    /// Whether this is one of our threads.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of ours, on which nobody may wait for us.
pub(crate) fn is_ours() -> bool {
    IS_OURS.get()
}

/// The cores that the process may use.
pub(crate) fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// So many workers, at least one, if descriptors suffice for them.
pub(crate) fn most_workers(asked: usize) -> usize {
    asked.min(most_openers()).max(1)
}

/// Runs something on so many threads at once, each with its number, and waits for them. The calling thread is
/// the first, and begins at once; where the system gives fewer of the others, it is done by those that there
/// are.
pub(crate) fn crew<R: Send>(workers: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let start = |number| {
            let run = move || {
                IS_OURS.set(true);
                work(number)
            };
            Builder::new().name(format!("weightmap-{number}")).spawn_scoped(scope, run).ok()
        };
        let others: Vec<_> = (1..workers).map_while(start).collect();
        let mut results = vec![work(0)];
        results.extend(
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic))),
        );
        results
    })
}

/// Does something with each item, by so many threads, and gives what came of it in the order of the items.
///
/// The caller does the first alone: what that takes tells whether the others are worth starting threads for.
///
/// # Errors
/// One of those that came of an item; then not all of the others were begun.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    workers: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    /// Several times what starting a thread takes.
    const WORTHWHILE: Duration = Duration::from_micros(200);
    let Some((first, rest)) = items.split_first() else { return Ok(Vec::new()) };
    let start = Instant::now();
    let first = work(first)?;
    let left = start.elapsed().saturating_mul(u32::try_from(rest.len()).unwrap_or(u32::MAX));
    let workers = if left < WORTHWHILE { 1 } else { workers.min(rest.len()) };
    let next = AtomicUsize::new(0);
    let done = crew(workers, |_| {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(item) = rest.get(place) else { return Ok(done) };
            match work(item) {
                Ok(result) => done.push((place, result)),
                Err(error) => {
                    next.store(rest.len(), Relaxed);
                    return Err(error);
                }
            }
        }
    });
    let mut done: Vec<_> = done.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(once(first).chain(done.into_iter().map(|(_, result)| result)).collect())
}

/// Starts a thread that drives others.
pub(crate) fn drive<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> Result<JoinHandle<R>> {
    let driver = || {
        IS_OURS.set(true);
        run()
    };
    let started = Builder::new().name("weightmap-driver".to_owned()).spawn(driver);
    started.map_err(|error: io::Error| Error::Threads { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_crew_works_at_once_and_the_caller_is_of_it() {
        let barrier = Barrier::new(3);
        let caller = thread::current().id();
        let ids = crew(3, |number| {
            barrier.wait();
            (number, thread::current().id() == caller)
        });
        assert_eq!(ids, [(0, true), (1, false), (2, false)]);
        assert_eq!(crew(0, |number| number), [0]);
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(
            each(&items, 4, |item| Ok(item * 2)).unwrap(),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert!(each(&[0; 0], 4, |item| Ok(*item)).unwrap().is_empty());
    }

    #[test]
    fn after_an_error_nothing_more_is_begun() {
        let begun = AtomicUsize::new(0);
        let error = each(&[1; 1000], 1, |_| {
            begun.fetch_add(1, Relaxed);
            Err::<(), _>(Error::Cancelled)
        });
        assert!(matches!(error, Err(Error::Cancelled)));
        assert_eq!(begun.into_inner(), 1);
    }

    #[test]
    fn a_panic_is_passed_on_when_all_are_done() {
        let done = AtomicUsize::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crew(3, |number| {
                assert!(number != 1, "on purpose");
                done.fetch_add(1, Relaxed);
            })
        }));
        assert!(result.is_err());
        assert_eq!(done.into_inner(), 2);
    }
}
