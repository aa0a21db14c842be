//! A model's directory that goes when it is dropped.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary directory to hold a model.
#[derive(Debug)]
pub struct TempModel {
    dir: TempDir,
}

impl TempModel {
    /// An empty directory.
    ///
    /// # Panics
    /// When none can be made.
    pub fn empty() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory can be made") }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file in the directory, whether it is there or not.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// For references only: a function that took the model itself would remove it before it returned.
impl AsRef<Path> for &TempModel {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}
