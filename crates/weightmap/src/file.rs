//! A regular file, opened without blocking.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};
use crate::identity::FileIdentity;

/// Opens `path` for reading if it is a regular file, or a link to one, and says which one it is.
///
/// A FIFO does not block it, a terminal does not become the process's own, and what is there is judged on the
/// descriptor, so that nothing can be swapped in between the check and the use.
pub(crate) fn open_regular(path: &Path) -> Result<(File, FileIdentity)> {
    open_with(REGULAR, path)
}

/// The same for reads past the page cache, which have to be aligned.
///
/// # Errors
/// `EINVAL` where the file system has no such reads, [`io::ErrorKind::Unsupported`] where the system has none.
pub(crate) fn open_direct(path: &Path) -> Result<(File, FileIdentity)> {
    #[cfg(target_os = "linux")]
    return open_with(REGULAR | libc::O_DIRECT, path);
    #[cfg(not(target_os = "linux"))]
    Err(Error::io(path, "open past the page cache", io::ErrorKind::Unsupported.into()))
}

/// The flags that [`open_regular`] promises the effects of.
#[cfg(unix)]
const REGULAR: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;
#[cfg(not(unix))]
const REGULAR: i32 = 0;

fn open_with(flags: i32, path: &Path) -> Result<(File, FileIdentity)> {
    let file = match open_for_reading(flags, path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            open_leased(flags, path).map_err(|_| error)
        }
        file => file,
    };
    let file = file.map_err(|source| {
        // A socket cannot be opened at all (ENXIO); Windows refuses directories. Say what is there instead.
        match std::fs::metadata(path).ok().and_then(|metadata| irregular(&metadata)) {
            Some(found) => Error::NotRegularFile { path: path.to_owned(), found },
            None => Error::io(path, open_action(path, &source), source),
        }
    })?;
    let metadata = file.metadata().map_err(|error| Error::io(path, "stat", error))?;
    match irregular(&metadata) {
        Some(found) => Err(Error::NotRegularFile { path: path.to_owned(), found }),
        None => Ok((file, FileIdentity::of(&metadata))),
    }
}

fn open_for_reading(flags: i32, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    #[cfg(not(unix))]
    let _ = flags;
    options.read(true).open(path)
}

/// Opens a file on which another process has a lease, as file servers do: an open that does not block is refused, and has
/// told the holder to give way. What is there is held first and seen to be a regular file, so that this waits for nobody
/// but the holder, and the kernel bounds that (`/proc/sys/fs/lease-break-time`).
#[cfg(target_os = "linux")]
fn open_leased(flags: i32, path: &Path) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let held = open_for_reading(libc::O_PATH, path)?;
    if irregular(&held.metadata()?).is_some() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let again = format!("/proc/self/fd/{}", held.as_raw_fd());
    open_for_reading(flags & !libc::O_NONBLOCK, Path::new(&again))
}

/// Other systems have no leases that reads break.
#[cfg(not(target_os = "linux"))]
fn open_leased(_: i32, _: &Path) -> io::Result<File> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// Fails if an open file is not as it was when it was identified: shorter, longer or written to since.
pub(crate) fn verify_unchanged(path: &Path, expected: &FileIdentity, file: &File) -> Result<()> {
    let metadata = file.metadata().map_err(|error| Error::io(path, "stat", error))?;
    verify_same(path, expected, &FileIdentity::of(&metadata))
}

/// Fails if what was found is not the file that was expected, or not as it was.
pub(crate) fn verify_same(path: &Path, expected: &FileIdentity, found: &FileIdentity) -> Result<()> {
    let differences = expected.differences(found);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::ShardChanged { path: path.to_owned(), differences })
}

/// The bytes of a range of a file that was seen to have them.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] when the file has become shorter, [`io::ErrorKind::OutOfMemory`] when
/// there is no memory for them.
pub(crate) fn read_range(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.try_reserve_exact(length)?;
    bytes.resize(length, 0);
    read_exact_at(file, &mut bytes, range.start)?;
    Ok(bytes)
}

/// Shows that there is memory to read a text of so many bytes into tables of what it says. Without it they would end the
/// process, as allocations do that are not asked for beforehand.
///
/// It is no more than a look: who takes the memory meanwhile still has it.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`].
pub(crate) fn room_to_read(text_bytes: usize) -> io::Result<()> {
    /// What tables take beside the text that they are made of, at most and rarely.
    const TIMES: usize = 5;
    /// A text that no process is too small for.
    const SMALL: usize = 1 << 20;
    if text_bytes <= SMALL {
        return Ok(());
    }
    Vec::<u8>::new().try_reserve_exact(text_bytes.saturating_mul(TIMES)).map_err(io::Error::from)
}

/// Fills `buffer` from `offset` on.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] when the file ends before the buffer is full.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    read_exact_by(buffer, offset, |rest, offset| read_at(file, rest, offset))
}

/// The most bytes that are asked for at once: systems read less than 2 GiB, and some refuse to be asked for
/// more.
pub(crate) const MOST_BYTES: usize = 1 << 30;

/// Fills `buffer` from `offset` on by reads that may give fewer bytes than there is place for; 0 means the end.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] at the end, and all that a read gives but an interruption.
pub(crate) fn read_exact_by(
    buffer: &mut [u8],
    mut offset: u64,
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut rest = buffer;
    while !rest.is_empty() {
        let most = rest.len().min(MOST_BYTES);
        match read_at(&mut rest[..most], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                rest = rest.get_mut(count..).unwrap_or_default();
                offset = offset.saturating_add(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads bytes from `offset` on, as many as the system gives at once; 0 means the end of the file.
///
/// The descriptor's own position plays no part, so that threads can share it.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, offset);
    #[cfg(not(any(unix, windows)))]
    compile_error!("reads by position are written for Unix and Windows");
}

fn open_action(path: &Path, source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::NotFound && path.is_symlink() {
        "open (the link leads nowhere; was the cache copied without its blobs?)"
    } else {
        "open"
    }
}

fn irregular(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        return Some("a directory");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a FIFO");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
    }
    Some("something else")
}
