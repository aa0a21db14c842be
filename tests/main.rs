//! The library as its users meet it, one module per behaviour.
//!
//! Checkpoints are made by the testkit, and what the library says of them is compared with the testkit's own
//! reader or with the reference implementation. Tests that count what a process has (threads, descriptors,
//! bytes read), or that a fault would kill by a signal, run in a process of their own: see
//! [`support::alone`].
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test that it helps"
)]

mod changes;
mod check;
mod conformance;
mod container;
mod dcp;
mod differential;
mod digests;
mod faults;
mod hub;
mod lenient;
mod hostile;
mod malformed;
mod memory;
mod neighbours;
mod open;
mod page_cache;
mod plans;
mod process;
mod ranks;
mod release;
mod report;
mod scale;
mod selection;
mod shared_cases;
mod slices;
mod stream;
mod support;
mod together;
mod touch;
mod typed;
