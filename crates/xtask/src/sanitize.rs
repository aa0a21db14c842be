//! `cargo xtask sanitize`: the unit tests of the library under tools that see what the compiler and the tests do not.
//!
//! They need a nightly toolchain, and each part that is not there is left out with a message. It is apart from `cargo xtask
//! test`, since it builds everything twice more.

use anyhow::Result;

use crate::command::{has_toolchain, nightly, toolchain_has};

/// The only target that all of them know.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs what is there: AddressSanitizer with LeakSanitizer, ThreadSanitizer, and Miri.
pub(crate) fn run() -> Result<()> {
    if !has_toolchain() {
        println!("skipped: there is no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    }
    address()?;
    thread()?;
    miri()
}

/// Bytes outside of what was allocated, or after it was freed; and what nobody frees.
///
/// The standard library is not instrumented, so what it does by itself is not seen; allocations are, wherever they are made.
fn address() -> Result<()> {
    let test = format!("test --package weightmap --lib --all-features --target {TARGET}");
    nightly(&[("RUSTFLAGS", "-Zsanitizer=address"), ("ASAN_OPTIONS", "detect_leaks=1")], &test)
}

/// Two threads at one place of memory, one of them writing. It has to see all that synchronises, the standard library too, and
/// so builds that anew, of its sources.
fn thread() -> Result<()> {
    if !toolchain_has("lib/rustlib/src/rust/library/Cargo.lock") {
        println!(
            "ThreadSanitizer skipped: no sources of std (rustup component add rust-src --toolchain nightly)"
        );
        return Ok(());
    }
    let parts = "memory:: gate:: threads:: load:: process::";
    let test =
        format!("test -Zbuild-std --package weightmap --lib --all-features --target {TARGET} -- {parts}");
    nightly(&[("RUSTFLAGS", "-Zsanitizer=thread")], &test)
}

/// The rules of references and of memory. Only of what calls no system: it knows few of its calls.
fn miri() -> Result<()> {
    if !toolchain_has("bin/cargo-miri") {
        println!("Miri skipped: it is not there (rustup component add miri --toolchain nightly)");
        return Ok(());
    }
    let parts = "memory::tests::pieces memory::tests::memory_is memory::tests::ranges memory::tests::what_is gate:: process::";
    nightly(&[], &format!("miri test --package weightmap --lib --no-default-features -- {parts}"))
}
