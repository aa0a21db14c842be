//! How tensors are read, as it is asked for and told.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How tensors are read. All ways give the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReadMode {
    /// Chosen for each shard by what it is on, what of it is in the page cache, how much of it is wanted, and
    /// the memory allowed. `docs/performance.md` has the rules, each with the measurement behind it, and the
    /// report says which one it was.
    #[default]
    Auto,
    /// Without a copy: tensors lie in the mapped file, and their pages are brought in in windows by
    /// `MADV_POPULATE_READ`, where an I/O fault is an error. Linux before 5.14 and other systems lack that:
    /// there they are read by position, which brings them into the page cache and leaves the faults to the caller.
    Mapped,
    /// Positioned reads into memory of the tensors' own, aligned for every element type. What happens to the
    /// file afterwards does not concern them.
    Buffered,
    /// As [`Buffered`](Self::Buffered), past the page cache: what is read takes up no memory but the tensors'
    /// own, least time of the processor, and nothing that others could use later. Where the file system has no such
    /// reads it is `Buffered`, as the report tells.
    Direct,
}

impl ReadMode {
    /// The modes by name: `auto`, `mapped`, `buffered`, `direct`.
    pub const ALL: &[Self] = &[Self::Auto, Self::Mapped, Self::Buffered, Self::Direct];

    /// The name in lower case, as it is parsed and serialised.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mapped => "mapped",
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReadMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.iter().copied().find(|mode| mode.name() == name);
        known.ok_or_else(|| Error::UnknownReadMode { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_by_their_names() {
        for &mode in ReadMode::ALL {
            assert_eq!(mode.name().parse::<ReadMode>().unwrap(), mode);
        }
        assert_eq!("Mapped".parse::<ReadMode>().unwrap_err().kind(), "UnknownReadMode");
    }
}
