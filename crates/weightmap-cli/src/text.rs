//! Text files: those that arguments name, and those that lie beside a model.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// The longest text that is read, in bytes: what has no end, as a device, must have one.
const MOST_BYTES: u64 = 256 << 20;

/// The text of a file that the user names, without the byte order mark that some editors put before it. It can be a pipe,
/// as shells give one for `<(…)`; `-` is the standard input.
///
/// # Errors
/// When it cannot be read, is longer than 256 MiB, or is not UTF-8.
pub(crate) fn named(file: &Path) -> io::Result<String> {
    if file == Path::new("-") { read(io::stdin()) } else { read(File::open(file)?) }
}

/// The same of a file that lies beside a model, where anything can be in its place: nothing but a regular file is read, and
/// nothing is waited for.
///
/// # Errors
/// Those of [`named`], and when it is no regular file.
pub(crate) fn beside(file: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.read(true).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read(file)
}

fn read(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("it is longer than 256 MiB"));
    }
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}
