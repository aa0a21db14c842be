//! What reads past the page cache ask of a file and of memory.

use std::fs::File;
use std::io;

/// The powers of two of which places are multiples; both 0 where a file cannot be read past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Of offsets and lengths.
    pub(crate) offset: u64,
    /// Of addresses.
    pub(crate) memory: u64,
}

impl Alignment {
    /// What a file system tells (`STATX_DIOALIGN`, Linux 6.1); where it does not tell, 4096, which suits
    /// nearly all.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the path is a C string, the descriptor is open, and the last pointer is to writable memory
        // of the right type.
        let status = unsafe {
            libc::statx(
                file.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                libc::STATX_DIOALIGN,
                answer.as_mut_ptr(),
            )
        };
        // SAFETY: the structure consists of integers, which were zeroed.
        let answer = unsafe { answer.assume_init() };
        if status != 0 || answer.stx_mask & libc::STATX_DIOALIGN == 0 {
            return Ok(Self { offset: 4096, memory: 4096 });
        }
        let found = Self {
            offset: u64::from(answer.stx_dio_offset_align),
            memory: u64::from(answer.stx_dio_mem_align),
        };
        let is_usable = found.offset.is_power_of_two() && found.memory.is_power_of_two();
        is_usable.then_some(found).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Other systems are not asked.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_: &File) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has reads of a file that was opened without blocking wait for it: a ring would give up otherwise where a
/// file system cannot begin a read without waiting.
#[cfg(target_os = "linux")]
pub(crate) fn set_waiting(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the call takes no pointer, and the descriptor is open.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Other systems have no such reads.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_waiting(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
