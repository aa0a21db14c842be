//! The programs of the workspaces below this one, which ordinary builds do not compile.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Builds the program of a workspace below `benches`, which has the workspace's name, and tells where it is. `target` is
/// the folder for what benches write, `CARGO_TARGET_TMPDIR`; the program goes beside it.
///
/// # Errors
/// When cargo cannot build it, as without a network if its dependencies were never fetched.
pub fn build(name: &str, target: &str) -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(name).join("Cargo.toml");
    // A folder of its own: what ordinary builds have made for themselves stays as it is.
    let target = Path::new(target).with_file_name(name);
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "cannot build {}", manifest.display());
    Ok(target.join("release").join(name).with_extension(std::env::consts::EXE_EXTENSION))
}
