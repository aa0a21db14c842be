//! What identifies a file.

use std::fs::Metadata;
use std::time::SystemTime;

/// What shows that a file which is opened again is the one that was checked before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    /// The device that the file is on; `None` where the system does not tell.
    pub(crate) device: Option<u64>,
    /// The number of the inode; `None` where the system does not tell.
    pub(crate) inode: Option<u64>,
    /// The size in bytes.
    pub(crate) bytes: u64,
    /// When the content was last modified; `None` where the file system does not tell.
    pub(crate) modified: Option<SystemTime>,
}

impl FileIdentity {
    /// The identity that the system reports for an open file.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let (device, inode) = {
            use std::os::unix::fs::MetadataExt;
            (Some(metadata.dev()), Some(metadata.ino()))
        };
        #[cfg(not(unix))]
        let (device, inode) = (None, None);
        Self { device, inode, bytes: metadata.len(), modified: metadata.modified().ok() }
    }

    /// What tells this file from another one, or from another state of it; nothing if they are the same.
    pub(crate) fn differences(&self, found: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        if (self.device, self.inode) != (found.device, found.inode) {
            differences.push("another file stands there".to_owned());
        }
        if self.bytes != found.bytes {
            differences.push(format!("expected {} bytes, found {}", self.bytes, found.bytes));
        }
        if self.modified != found.modified {
            differences.push("it was modified since".to_owned());
        }
        differences
    }
}
