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
    /// The message for people, in one line, with what it does not say itself: an error says all.
    #[serde(skip)]
    line: String,
}

impl From<&Error> for Finding {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        let (file, tensor) = (error.path().map(text), error.tensor().map(str::to_owned));
        Self { kind: error.kind(), file, tensor, line: message.clone(), message }
    }
}

impl From<&Warning> for Finding {
    fn from(warning: &Warning) -> Self {
        let Warning { kind, file, tensor, message, .. } = warning;
        let file = file.as_deref().map(text);
        let mut line = file.as_ref().map_or_else(String::new, |file| format!("{}: ", file.escape_debug()));
        if let Some(tensor) = tensor {
            line += &format!("tensor {}: ", short(tensor));
        }
        line += message;
        Self { kind, file, tensor: tensor.clone(), message: message.clone(), line }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.kind, self.line)
    }
}

/// A name that comes from a file: escaped, and cut where it is very long.
fn short(name: &str) -> String {
    const MOST_CHARS: usize = 200;
    match name.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &name[..end], name.len()),
        None => format!("{name:?}"),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
