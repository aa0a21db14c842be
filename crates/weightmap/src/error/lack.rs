//! What the process lacks, and no file is at fault for.

use std::io;

use super::Error;

impl Error {
    /// Whether it says something of the process and nothing of the file: it lacks permission, memory, threads
    /// or descriptors.
    pub(crate) fn is_of_the_process(&self) -> bool {
        let lacks = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::OutOfMemory)
        };
        matches!(self, Self::MemoryLimit { .. } | Self::Threads { .. })
            || self.is_out_of_descriptors()
            || matches!(self, Self::Io { error, .. } if lacks(error))
    }

    /// Whether the process has no descriptor left, or the system.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        #[cfg(unix)]
        return matches!(self, Self::Io { error, .. } if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)));
        #[cfg(not(unix))]
        return false;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn io(kind: io::ErrorKind) -> Error {
        Error::io(Path::new("x.safetensors"), "read 8 bytes", kind.into())
    }

    #[test]
    fn what_the_process_lacks_is_told_from_what_a_file_lacks() {
        assert!(io(io::ErrorKind::PermissionDenied).is_of_the_process());
        assert!(io(io::ErrorKind::OutOfMemory).is_of_the_process());
        assert!(!io(io::ErrorKind::NotFound).is_of_the_process());
        assert!(!io(io::ErrorKind::UnexpectedEof).is_of_the_process());
        #[cfg(unix)]
        {
            let error = Error::io(Path::new("x"), "open", io::Error::from_raw_os_error(libc::EMFILE));
            assert!(error.is_of_the_process() && error.is_out_of_descriptors());
        }
    }
}
