//! What weightmap's benches share; how to run and to read them stands in README.md.

pub mod interleave;
#[cfg(target_os = "linux")]
pub mod limits;
pub mod models;
pub mod peers;
