//! Writes tiny, huge and damaged safetensors checkpoints, and reads them back by a path of its own.
//!
//! It shares no code with the crates under test, so that a fault in one of them cannot hide in both. What the
//! tests compare:
//!
//! - [`pattern`] — content that follows from a tensor's name and a byte's offset, so any slice can be verified;
//! - [`ShardBuilder`] — one file, honest by default and forgeable in every part;
//! - [`Checkpoint`] — a directory of shards with its index, forgeable too; [`TempModel`] is one that is removed
//!   when dropped;
//! - [`Llama`] and [`Moe`] — models of real names and shapes: one with content, one huge and sparse;
//! - [`Distributed`] — tensors in pieces, each rank's in a file of its own;
//! - [`damage`] — what happens to files on disk;
//! - [`faults`] — calls of the system that fail, in a process that is started for it;
//! - [`Oracle`] — an independent reader.
//!
//! ```
//! use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, pattern};
//!
//! let model = Checkpoint::new()
//!     .shard("model-00001-of-00002.safetensors", ShardBuilder::new().pattern("a", "BF16", &[4, 2]))
//!     .shard("model-00002-of-00002.safetensors", ShardBuilder::new().zeros("b", "F32", &[3]))
//!     .temp();
//! let oracle = Oracle::open(model.path());
//! assert_eq!(oracle.names(), ["a", "b"]);
//! assert_eq!(oracle.tensor("a").bytes, pattern::bytes("a", 16));
//! ```
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a file operation that fails here ends the test, loudly"
)]

mod checkpoint;
pub mod damage;
mod distributed;
mod dtype;
mod ensure;
#[cfg(unix)]
pub mod faults;
mod llama;
mod moe;
mod oracle;
pub mod pattern;
mod shard;
mod slice;
mod temp_model;

pub use checkpoint::{Checkpoint, Written};
pub use distributed::{Distributed, Mesh};
pub use dtype::byte_len;
pub use llama::Llama;
pub use moe::Moe;
pub use oracle::{Oracle, OracleTensor};
pub use shard::ShardBuilder;
pub use temp_model::TempModel;
