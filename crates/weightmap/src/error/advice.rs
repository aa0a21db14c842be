//! What can be done about the answer of the system.

use std::io;

/// What an error of the system mostly means for a checkpoint and what to do about it, at the end of a message: empty, or
/// a clause after a semicolon.
pub(super) fn advice(error: &io::Error) -> String {
    let advice = of_number(error.raw_os_error()).or_else(|| of_kind(error.kind()));
    advice.map_or_else(String::new, |advice| format!("; {advice}"))
}

/// What only the number of an answer tells.
#[cfg(unix)]
fn of_number(number: Option<i32>) -> Option<&'static str> {
    Some(match number? {
        libc::EMFILE => "the process has as many files open as it may: raise its limit (`ulimit -n`)",
        libc::ENFILE => "all processes together have as many files open as the system allows: close some",
        libc::EIO => "the device failed, or the server behind it: look into the system's log, and try again",
        libc::EFAULT => {
            "the file was cut meanwhile, or its device failed: look at it, and open the model again"
        }
        libc::ENODEV | libc::ENXIO => "what is there does not support this: look at what it is",
        libc::ELOOP => "links lead round in a circle: put the file there",
        libc::EBADMSG => "the file system finds its checksums wrong: fetch the file again",
        libc::EOVERFLOW => "the system cannot address the file",
        #[cfg(target_os = "linux")]
        libc::EUCLEAN => "the file system is damaged: check it, and fetch the file again",
        #[cfg(target_os = "linux")]
        libc::EHWPOISON => "the machine's memory is damaged: look into the system's log",
        _ => return None,
    })
}

#[cfg(not(unix))]
fn of_number(_: Option<i32>) -> Option<&'static str> {
    None
}

fn of_kind(kind: io::ErrorKind) -> Option<&'static str> {
    use io::ErrorKind as Kind;
    Some(match kind {
        Kind::UnexpectedEof => "the file is shorter than it was: fetch it again, and open the model again",
        Kind::StaleNetworkFileHandle => {
            "the file was replaced or removed on its server: open the model again"
        }
        Kind::WouldBlock => {
            "another process has a lease on the file, or it is being fetched from an archive: try again later"
        }
        Kind::ExecutableFileBusy | Kind::ResourceBusy => {
            "another process has the file to itself: try again when it is done"
        }
        Kind::PermissionDenied => {
            "look at the permissions of the file, and of the directories on the way to it"
        }
        Kind::OutOfMemory => {
            "the system gives no memory: free some, or raise the process's limits (`ulimit -v`)"
        }
        Kind::StorageFull | Kind::QuotaExceeded => {
            "the file system needs space to fetch it to: make room where it keeps its copies"
        }
        Kind::TimedOut
        | Kind::NotConnected
        | Kind::ConnectionAborted
        | Kind::ConnectionReset
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown => "the server of the file system does not answer: mount it again, and try again",
        _ => return None,
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn answers_that_a_read_can_get_come_with_what_to_do() {
        for (number, words) in [
            (libc::EIO, "try again"),
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "close some"),
            (libc::ESTALE, "open the model again"),
            (libc::EAGAIN, "try again later"),
            (libc::EACCES, "permissions"),
            (libc::EPERM, "permissions"),
            (libc::ENOMEM, "free some"),
            (libc::ENODEV, "look at what it is"),
            (libc::ENOSPC, "make room"),
            (libc::ETXTBSY, "when it is done"),
            (libc::EBADMSG, "fetch the file again"),
            (libc::EFAULT, "open the model again"),
            (libc::ENOTCONN, "mount it again"),
            (libc::ETIMEDOUT, "mount it again"),
            (libc::ELOOP, "put the file there"),
        ] {
            let advice = advice(&io::Error::from_raw_os_error(number));
            assert!(advice.starts_with("; ") && advice.contains(words), "{number}: {advice:?}");
        }
    }

    #[test]
    fn what_says_enough_by_itself_gets_no_advice() {
        for error in [io::Error::from_raw_os_error(libc::ENOENT), io::Error::other("whatever")] {
            assert_eq!(advice(&error), "");
        }
    }
}
