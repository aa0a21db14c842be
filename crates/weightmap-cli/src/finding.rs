//! A fault or a warning, as it is told.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use weightmap::{Error, Warning};

/// What was found to be wrong or odd, as all subcommands tell it.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    kind: &'static str,
    file: Option<String>,
    tensor: Option<String>,
    message: String,
    /// All of it for people, in one line.
    #[serde(skip)]
    line: String,
}

impl From<&Error> for Finding {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        let (file, tensor) = (error.path().map(text), error.tensor().map(str::to_owned));
        let kind = error.kind();
        Self { kind, file, tensor, line: format!("[{kind}] {message}"), message }
    }
}

impl From<&Warning> for Finding {
    fn from(warning: &Warning) -> Self {
        let Warning { kind, file, tensor, message, .. } = warning;
        let (file, tensor) = (file.as_deref().map(text), tensor.clone());
        Self { kind, file, tensor, message: message.clone(), line: warning.to_string() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
