//! One way to do what is measured.

use std::process::Command;
use std::rc::Rc;

use anyhow::Result;

use crate::sample::Sample;

/// One way to do what is measured.
#[derive(Clone)]
pub struct Competitor<'a> {
    pub(crate) name: String,
    pub(crate) huge_malloc: bool,
    pub(crate) past_cache: bool,
    pub(crate) run: Run<'a>,
}

/// Restores the state of the storage that a run is to find.
pub(crate) type Settle<'a> = &'a dyn Fn() -> Result<()>;

type Measured<'a> = Rc<dyn Fn(Settle<'_>) -> Result<Sample> + 'a>;

/// How a competitor runs, in a process that does nothing else.
#[derive(Clone)]
pub(crate) enum Run<'a> {
    /// This program, which settles the storage after it has made itself ready.
    Here(Measured<'a>),
    /// Another program, which prints a [`Sample`] as JSON, with its arguments.
    Program(Rc<dyn Fn() -> Command + 'a>),
}

impl<'a> Competitor<'a> {
    /// A competitor that does its work by `run`, which is timed as a whole and tells how many bytes it came
    /// to, the same for all competitors. What else it gives is dropped after the clock has stopped.
    ///
    /// One whose name begins with `limit` is a goal, and no peer.
    pub fn new<T>(name: impl Into<String>, run: impl Fn() -> Result<(u64, T)> + 'a) -> Self {
        Self::with_run(name, Run::Here(Rc::new(move |_| Sample::measure(&run))))
    }

    /// As [`new`](Self::new), with something to be made ready before the clock starts.
    pub fn prepared<P, T>(
        name: impl Into<String>,
        prepare: impl Fn() -> Result<P> + 'a,
        run: impl Fn(P) -> Result<(u64, T)> + 'a,
    ) -> Self {
        let run = move |settle: Settle<'_>| {
            let prepared = prepare()?;
            settle()?;
            Sample::measure(|| run(prepared))
        };
        Self::with_run(name, Run::Here(Rc::new(run)))
    }

    /// Another program, which starts its clock itself and prints a [`Sample`] as JSON.
    pub fn program(name: impl Into<String>, command: impl Fn() -> Command + 'a) -> Self {
        Self::with_run(name, Run::Program(Rc::new(command)))
    }

    /// Lets glibc's `malloc` ask for huge pages, to show what is won by them alone.
    #[must_use]
    pub fn with_huge_malloc(self) -> Self {
        Self { huge_malloc: true, ..self }
    }

    /// Says that a run reads from the device even if all is in the page cache.
    #[must_use]
    pub fn past_cache(self) -> Self {
        Self { past_cache: true, ..self }
    }

    /// Adds to the name what tells it from another.
    #[must_use]
    pub fn of(self, what: &str) -> Self {
        Self { name: format!("{}, {what}", self.name), ..self }
    }

    pub(crate) fn is_limit(&self) -> bool {
        self.name.starts_with("limit")
    }

    fn with_run(name: impl Into<String>, run: Run<'a>) -> Self {
        Self { name: name.into(), huge_malloc: false, past_cache: false, run }
    }
}
