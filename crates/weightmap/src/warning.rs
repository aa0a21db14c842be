//! Something that is accepted, and that somebody should know of.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{quote, shown};

/// A finding that is no error: the checkpoint loads, but not everything about it is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Warning {
    /// A stable name of the kind of finding, in CamelCase, listed in `docs/errors.md`.
    pub kind: &'static str,
    /// The file that it is about, where it is about one.
    #[serde(serialize_with = "as_text")]
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

/// A path need not be UTF-8, and a report is written nevertheless.
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&path.as_deref().map(Path::to_string_lossy), serializer)
}

impl fmt::Display for Warning {
    /// In one line, as the program prints it: `[kind] file: tensor "name": message`. What comes from files is
    /// escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] ", self.kind)?;
        if let Some(file) = &self.file {
            write!(f, "{}: ", shown(file))?;
        }
        if let Some(tensor) = &self.tensor {
            write!(f, "tensor {}: ", quote(tensor))?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_told_with_the_file_and_the_tensor_that_it_is_about() {
        let warning = Warning::new("UnknownDtype", "its size is not checked");
        assert_eq!(warning.to_string(), "[UnknownDtype] its size is not checked");
        let warning = warning.file(Path::new("m/x.safetensors")).tensor("a\u{1b}");
        assert_eq!(
            warning.to_string(),
            r#"[UnknownDtype] m/x.safetensors: tensor "a\u{1b}": its size is not checked"#
        );
    }
}
