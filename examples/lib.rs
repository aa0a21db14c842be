//! weightmap's examples live beside this file; see the targets in Cargo.toml.
