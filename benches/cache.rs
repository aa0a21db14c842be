//! What of a checkpoint is in the page cache: all of it before a warm run, nothing before a cold one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::sys;

/// Reads every shard of a checkpoint from start to end.
///
/// # Errors
/// When a file cannot be read.
pub fn fill(checkpoint: &Path) -> Result<()> {
    for path in shards(checkpoint)? {
        io::copy(&mut File::open(&path)?, &mut io::sink()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Drops every shard of a checkpoint from the page cache, and verifies that no page of it is left.
///
/// # Errors
/// When a page stays, as it does while another process maps it; when the system cannot drop pages or cannot tell.
pub fn evict(checkpoint: &Path) -> Result<()> {
    for path in shards(checkpoint)? {
        evict_file(&path).with_context(|| format!("cannot evict {}", path.display()))?;
    }
    Ok(())
}

/// Drops all that the kernel caches, inodes and directories too. Only root may.
///
/// # Errors
/// When the system does not let us, or has no such thing.
pub fn drop_all() -> Result<()> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    fs::write(SWITCH, "3").with_context(|| format!("cannot write to {SWITCH}"))
}

/// The shards of a checkpoint, whether the index names them or not, in the order of their names.
///
/// # Errors
/// When the directory cannot be listed.
pub fn shards(checkpoint: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(checkpoint).with_context(|| format!("cannot list {}", checkpoint.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.sort_unstable();
    Ok(paths)
}

fn evict_file(path: &Path) -> Result<()> {
    /// Pages that were just used wait in a list of each core, from where they are not dropped.
    const TRIES: usize = 5;
    let file = File::open(path)?;
    // Pages that are still dirty stay.
    file.sync_all()?;
    let mut left = 0;
    for _ in 0..TRIES {
        advise_out(&file)?;
        left = sys::resident_pages(&sys::map(path)?)?;
        if left == 0 {
            return Ok(());
        }
    }
    bail!("{left} pages stay in the page cache; does another process map it?")
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn advise_out(file: &File) -> io::Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).map_err(Into::into)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn advise_out(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
