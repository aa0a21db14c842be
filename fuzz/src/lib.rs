//! What fuzzing does with an input: a module for each target. Each panics where the library is wrong, by itself or
//! compared with a slower way to the same.

pub mod json;

pub mod division;
pub mod extents;
pub mod family;
pub mod glob;
pub mod header;
pub mod index;
pub mod model;
pub mod outputs;
pub mod pieces;
pub mod plan;
pub mod reckoning;
pub mod slices;
