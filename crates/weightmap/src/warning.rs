//! Something that is accepted, and that somebody should know of.

use std::path::{Path, PathBuf};

/// A finding that is no error: the checkpoint loads, but not everything about it is as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// A stable name of the kind of finding, in CamelCase, listed in `docs/errors.md`.
    pub kind: &'static str,
    /// The file that it is about, where it is about one.
    pub file: Option<PathBuf>,
    /// The tensor that it is about, where it is about one.
    pub tensor: Option<String>,
    /// What was found and what follows from it.
    pub message: String,
}

impl Warning {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, file: None, tensor: None, message: message.into() }
    }

    pub(crate) fn file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    pub(crate) fn tensor(mut self, tensor: &str) -> Self {
        self.tensor = Some(tensor.to_owned());
        self
    }
}
