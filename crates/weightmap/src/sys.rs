//! What the system tells of faults, residency and the device; `None` wherever it does not tell.
#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "the C library's counters have no safe binding; each call has its proof")
)]

pub(crate) mod direct;
#[cfg_attr(not(all(target_os = "linux", feature = "uring")), path = "sys/no_uring.rs")]
pub(crate) mod uring;

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::OnceLock;

use crate::process::probed;

/// Page faults, counted by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Served without waiting for a device.
    pub(crate) minor: u64,
    /// That waited for a device.
    pub(crate) major: u64,
}

/// The size of a page in bytes.
pub(crate) fn page_bytes() -> u64 {
    #[cfg(unix)]
    {
        // SAFETY: `sysconf` takes no pointer and touches no memory of ours.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
    }
    #[cfg(not(unix))]
    4096
}

/// The size of a huge page on most machines: the most bytes that page caches keep as one, and that one fault
/// fetches.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;

/// The size of the pages that are huge to Linux; `None` where it has none.
pub(crate) fn huge_page_bytes() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    probed(&BYTES, || {
        let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
        text.trim().parse().ok()
    })
}

/// The first two numbers of the kernel's version; `None` where it is not Linux.
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    static VERSION: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    probed(&VERSION, || {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|digits| digits.parse().ok());
        numbers.next().zip(numbers.next())
    })
}

/// The faults of the calling thread since it started.
#[cfg(target_os = "linux")]
pub(crate) fn thread_faults() -> Option<Faults> {
    let usage = usage(libc::RUSAGE_THREAD)?;
    Some(Faults { minor: u64::try_from(usage.ru_minflt).ok()?, major: u64::try_from(usage.ru_majflt).ok()? })
}

/// No system but Linux counts them by thread.
#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_faults() -> Option<Faults> {
    None
}

/// The most bytes of memory that this program has had resident, pages of mapped files included.
///
/// `VmHWM` of `/proc/self/status`: what `getrusage` tells has the peak of the program in it that started this
/// one.
pub(crate) fn peak_resident_bytes() -> Option<u64> {
    if cfg!(not(target_os = "linux")) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(target_os = "linux")]
fn usage(who: libc::c_int) -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is to writable memory of the right type, which the call fills when it returns 0.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call returned 0, so it has filled the structure.
    Some(unsafe { usage.assume_init() })
}

/// The bytes that the process has fetched from devices since it started: `read_bytes` of `/proc/self/io`.
///
/// Read-ahead that the process caused is in it, as is everything else that it reads; network file systems
/// mostly are not.
pub(crate) fn device_bytes() -> Option<u64> {
    if cfg!(not(target_os = "linux")) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// The most descriptors that the process may have open.
pub(crate) fn descriptor_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a writable structure of the right type.
        let answer = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        #[allow(clippy::useless_conversion, reason = "the type of the limit differs from system to system")]
        (answer == 0).then(|| u64::try_from(limit.rlim_cur).unwrap_or(u64::MAX))
    }
    #[cfg(not(unix))]
    None
}

/// Reads consecutive bytes from `offset` on into the parts, one after another; it may read fewer.
#[cfg(target_os = "linux")]
pub(crate) fn read_vectored_at(file: &File, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    let count = libc::c_int::try_from(parts.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: an `IoSliceMut` is promised to have the layout of an `iovec`; `count` of them stand at the
    // pointer, and the memory that each describes is borrowed for writing through the call.
    let answer = unsafe { libc::preadv64(file.as_raw_fd(), parts.as_mut_ptr().cast(), count, offset) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// How many pages of a file's range are in the page cache.
///
/// As [`Residency::pages`]; of several ranges of one file it asks again each time what that asks once.
pub(crate) fn cached_pages(file: &File, range: Range<u64>, mapped: Option<&[u8]>) -> Option<u64> {
    Residency::of(file).pages(range, mapped)
}

/// How it is found out which pages of a file are in the page cache.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems are not asked"))]
pub(crate) struct Residency<'f> {
    file: &'f File,
    /// Whether `cachestat` would find none: the pages of an overlay are those of the file beneath it, and huge
    /// ones are kept elsewhere.
    is_blind: bool,
}

impl<'f> Residency<'f> {
    pub(crate) fn of(file: &'f File) -> Self {
        let is_blind = matches!(file_system_number(file), Some(OVERLAYFS | HUGETLBFS));
        Self { file, is_blind }
    }

    /// How many pages of a range are in the page cache.
    ///
    /// By `cachestat` (Linux 6.5). Where that is lacking, forbidden or wrong, `mapped`, the mapping of the same
    /// range, is asked by `mincore`, if the process owns the file: of other files that answers that all is there.
    #[cfg(target_os = "linux")]
    pub(crate) fn pages(self, range: Range<u64>, mapped: Option<&[u8]>) -> Option<u64> {
        let answer = if self.is_blind { None } else { cachestat(self.file, range) };
        answer.or_else(|| if is_ours(self.file) { mincore(mapped?) } else { None })
    }

    /// Other systems are not asked.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn pages(self, _: Range<u64>, _: Option<&[u8]>) -> Option<u64> {
        None
    }
}

#[cfg(target_os = "linux")]
fn is_ours(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: the call takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    user == 0 || file.metadata().is_ok_and(|metadata| metadata.uid() == user)
}

#[cfg(target_os = "linux")]
fn cachestat(file: &File, range: Range<u64>) -> Option<u64> {
    use std::os::fd::AsRawFd;
    /// The call's number on most architectures; on the others no such call is known, and the answer is an
    /// error.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Span {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let bytes = range.end.checked_sub(range.start)?;
    if bytes == 0 {
        // A span of no bytes would mean the rest of the file.
        return Some(0);
    }
    let span = Span { offset: range.start, bytes };
    let mut counts = Counts::default();
    // SAFETY: both pointers are to structures of the kernel's layout (`struct cachestat_range`, `struct
    // cachestat`) that live through the call, the second one writable; the descriptor is open.
    let answer = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const span, &raw mut counts, 0 as libc::c_uint)
    };
    (answer == 0).then_some(counts.cached)
}

#[cfg(target_os = "linux")]
fn mincore(mapped: &[u8]) -> Option<u64> {
    /// Pages that are asked for at once, so that a mapping of any length needs little memory.
    const PAGES: usize = 4096;
    let page = usize::try_from(page_bytes()).ok()?;
    // The first part ends where a page does, so that no page is counted twice.
    let inside = mapped.as_ptr().addr() % page;
    let (first, rest) = mapped.split_at_checked(page - inside).unwrap_or((mapped, &[]));
    let mut resident = [0_u8; PAGES];
    let count = |part: &[u8]| {
        let inside = part.as_ptr().addr() % page;
        // SAFETY: the start is that of the page that `part` begins in, and all pages up to the end of `part`,
        // of which there are at most `PAGES`, are mapped as a whole; the call writes a byte for each of them
        // and nothing else.
        let answer = unsafe {
            let start = part.as_ptr().cast_mut().wrapping_sub(inside);
            libc::mincore(start.cast(), part.len() + inside, resident.as_mut_ptr().cast())
        };
        let pages = resident.get(..(part.len() + inside).div_ceil(page))?;
        (answer == 0).then(|| pages.iter().filter(|&&page| page & 1 == 1).count() as u64)
    };
    std::iter::once(first).chain(rest.chunks(PAGES * page)).filter(|part| !part.is_empty()).map(count).sum()
}

/// Says whether reads by position of a file are to be extended by read-ahead. It is a request.
///
/// Without it the device gives the pages that were asked for, and no page is marked to start read-ahead when
/// it is touched.
pub(crate) fn set_read_ahead(file: &File, wanted: bool) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        use std::os::fd::AsRawFd;
        let advice = if wanted { libc::POSIX_FADV_NORMAL } else { libc::POSIX_FADV_RANDOM };
        // SAFETY: the call takes no pointer, and the descriptor is open.
        let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, wanted);
}

/// Asks the system to drop the pages of a file from the page cache; pages that are dirty are written first.
///
/// It is a request: pages that someone has mapped stay. [`cached_pages`] tells what came of it.
pub(crate) fn evict(file: &File) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        use std::os::fd::AsRawFd;
        file.sync_all()?;
        // SAFETY: the call takes no pointer, and the descriptor is open.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    {
        let _ = file;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Asks the system to drop the pages that lie within a range of a file from the page cache, and those before it
/// that lie in the same huge page: what the system keeps as one can reach back into what was dropped before, and
/// goes as a whole with the last of it.
///
/// It is a request: pages that are mapped or dirty stay, as does a large folio that reaches beyond the end.
/// [`cached_pages`] tells what came of it.
pub(crate) fn drop_cached(file: &File, range: Range<u64>) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    advise(file, range.start - range.start % HUGE_BYTES..range.end, libc::POSIX_FADV_DONTNEED);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, range);
}

/// Has the system begin to fetch a range of a file into the page cache. It is a request.
pub(crate) fn fetch(file: &File, range: Range<u64>) {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        /// What the system fetches at one request to do so, at least: more than its read-ahead is of, which is 128
        /// KiB by default, it passes over in silence.
        const FETCH_BYTES: u64 = 128 << 10;
        let pieces = crate::extent::split(range, FETCH_BYTES, FETCH_BYTES);
        pieces.for_each(|piece| advise(file, piece, libc::POSIX_FADV_WILLNEED));
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let _ = (file, range);
}

/// What comes of advice on a range is of no concern; a range of no bytes would mean the rest of the file.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn advise(file: &File, range: Range<u64>, advice: libc::c_int) {
    use std::os::fd::AsRawFd;
    let length = range.end.saturating_sub(range.start);
    if let (Ok(start), Ok(length @ 1..)) = (range.start.try_into(), length.try_into()) {
        // SAFETY: the call takes no pointer, and the descriptor is open.
        let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), start, length, advice) };
    }
}

/// Numbers of kinds of file systems, of the kernel's `magic.h`. The roots of containers are overlays; virtiofs answers
/// as FUSE.
pub(crate) const OVERLAYFS: u32 = 0x794c_7630;
pub(crate) const TMPFS: u32 = 0x0102_1994;
pub(crate) const RAMFS: u32 = 0x8584_58f6;
pub(crate) const HUGETLBFS: u32 = 0x9584_58f6;
pub(crate) const FUSE: u32 = 0x6573_5546;

/// The number of the kind of file system that a file is on.
#[cfg(target_os = "linux")]
pub(crate) fn file_system_number(file: &File) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the pointer is to writable memory of the right type, which the call fills when it returns 0.
    if unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call returned 0, so it has filled the structure.
    let number = unsafe { answer.assume_init() }.f_type;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "all numbers are of 32 bits, the field can be wider"
    )]
    Some(number as u32)
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system_number(_: &File) -> Option<u32> {
    None
}

/// The device that a file is on, as `/proc` writes it: its major and minor number, as in `8:1`.
#[cfg(target_os = "linux")]
pub(crate) fn device(file: &File) -> Option<String> {
    let device = std::os::linux::fs::MetadataExt::st_dev(&file.metadata().ok()?);
    Some(format!("{}:{}", libc::major(device), libc::minor(device)))
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub(crate) fn device(_: &File) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_page_is_a_power_of_two() {
        assert!(page_bytes().is_power_of_two() && page_bytes() >= 4096);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn touching_fresh_memory_counts_as_faults_of_this_thread() {
        let before = thread_faults().unwrap();
        // Not from the heap, which may have touched pages to spare.
        memmap2::MmapMut::map_anon(8 << 20).unwrap().fill(1);
        assert!(thread_faults().unwrap().minor > before.minor);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn both_ways_of_counting_cached_pages_agree() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes = 10 * page_bytes() + 1;
        file.write_all(&vec![1; usize::try_from(bytes).unwrap()]).unwrap();
        // What was just written is in the cache.
        let map = crate::mmap::FileMap::new(&file, bytes).unwrap();
        assert_eq!(mincore(map.get(0..bytes).unwrap()), Some(11));
        assert_eq!(mincore(map.get(page_bytes()..page_bytes() + 1).unwrap()), Some(1));
        assert_eq!(mincore(map.get(page_bytes() - 1..page_bytes() + 1).unwrap()), Some(2));
        if let Some(pages) = cachestat(&file, 0..bytes) {
            assert_eq!(pages, 11);
            assert_eq!(cachestat(&file, page_bytes()..2 * page_bytes()), Some(1));
            assert_eq!(cachestat(&file, 5..5), Some(0));
        }
    }
}
