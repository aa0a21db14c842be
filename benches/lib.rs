//! What weightmap's benches share; how to run and to read them stands in README.md.

mod machine;
mod memory;
pub mod sys;

pub mod cache;
pub mod models;
pub mod workspaces;
pub mod mount;

pub mod sample;
pub mod competitor;
pub mod storage;
mod table;
pub mod interleave;

pub mod wanted;
pub mod baseline;
#[cfg(target_os = "linux")]
pub mod limits;
pub mod ours;
