//! The checkpoints that are measured, below the directory that cargo gives to benches.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use weightmap_testkit::{Llama, Moe};

/// Where [`write_llama`] puts its checkpoint.
pub fn llama_dir(target: &str) -> PathBuf {
    Path::new(target).join("llama")
}

/// Where [`write_moe`] puts its checkpoint.
pub fn moe_dir(target: &str) -> PathBuf {
    Path::new(target).join("moe")
}

/// Writes the demo llama, 296 MiB in 7 shards, unless it is there, and reads it into the page cache.
///
/// # Errors
/// When a file cannot be written or read.
pub fn write_llama(target: &str) -> io::Result<()> {
    let written = Llama::demo().ensure(llama_dir(target))?;
    for path in written.shards.iter().chain(&written.index) {
        let mut file = File::open(path)?;
        // Pages that are still dirty would be written while something is measured.
        file.sync_all()?;
        io::copy(&mut file, &mut io::sink())?;
    }
    Ok(())
}

/// Writes the index and the headers of 92,000 tensors in 163 shards; the tensors' bytes are holes.
///
/// # Errors
/// When a file cannot be written.
pub fn write_moe(target: &str) -> io::Result<()> {
    Moe::full().write(moe_dir(target)).map(drop)
}
