//! Sources for tests: one in memory, and one with the faults of real files.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Source;

/// The bytes of a file, in memory.
pub(crate) struct MemorySource(pub(crate) Vec<u8>);

impl Source for MemorySource {
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut rest = self.0.get(start..).unwrap_or_default();
        let before = rest.len();
        for part in parts {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(before - rest.len())
    }
}

type Hook = Box<dyn Fn(u64) + Send + Sync>;

/// A source with faults. It has none until it is told which; the same calls meet the same faults.
pub(crate) struct FaultySource<S> {
    source: S,
    calls: AtomicU64,
    /// The seed of the lengths, and the longest of them.
    short: Option<(u64, usize)>,
    interrupted: Option<u64>,
    failing: Range<u64>,
    end: u64,
    good_calls: u64,
    before: Option<Hook>,
}

impl<S: Source> FaultySource<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            calls: AtomicU64::new(0),
            short: None,
            interrupted: None,
            failing: 0..0,
            end: u64::MAX,
            good_calls: u64::MAX,
            before: None,
        }
    }

    /// Each read gives from one byte to `most` bytes, by a sequence that the seed determines.
    pub(crate) fn short(self, seed: u64, most: usize) -> Self {
        Self { short: Some((seed, most)), ..self }
    }

    /// Each `every`th call is interrupted by a signal before it has read anything.
    pub(crate) fn interrupted(self, every: u64) -> Self {
        Self { interrupted: Some(every), ..self }
    }

    /// The device fails (EIO) at this range: reads end before it, and those that begin in it fail.
    pub(crate) fn failing_at(self, failing: Range<u64>) -> Self {
        Self { failing, ..self }
    }

    /// The file ends here, whatever its size was before.
    pub(crate) fn cut_at(self, end: u64) -> Self {
        Self { end, ..self }
    }

    /// The device fails (EIO) after this many calls.
    pub(crate) fn failing_after(self, good_calls: u64) -> Self {
        Self { good_calls, ..self }
    }

    /// Each call begins with this, and is told its offset: a slow device is one that waits here for the test
    /// to go on.
    pub(crate) fn before_each(self, hook: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { before: Some(Box::new(hook)), ..self }
    }

    /// How often it was asked.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// How many bytes the call gives at most.
    fn most(&self, call: u64, offset: u64) -> u64 {
        let short = self.short.map_or(u64::MAX, |(seed, most)| 1 + mixed(seed ^ call) % most as u64);
        let end = self.end.saturating_sub(offset);
        let failing = if offset < self.failing.start { self.failing.start - offset } else { u64::MAX };
        short.min(end).min(if self.failing.is_empty() { u64::MAX } else { failing })
    }
}

impl<S: Source> Source for FaultySource<S> {
    fn read_vectored_at(&self, parts: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let call = self.calls.fetch_add(1, Relaxed);
        if let Some(hook) = &self.before {
            hook(offset);
        }
        if self.interrupted.is_some_and(|every| call % every == every - 1) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.failing.contains(&offset) || call >= self.good_calls {
            return Err(device_failure());
        }
        let mut most = usize::try_from(self.most(call, offset)).unwrap_or(usize::MAX);
        let mut cut: Vec<_> = Vec::new();
        for part in parts {
            let length = part.len().min(most);
            most -= length;
            cut.push(IoSliceMut::new(&mut part[..length]));
        }
        self.source.read_vectored_at(&mut cut, offset)
    }
}

/// What a failing device is told as.
pub(crate) fn device_failure() -> io::Error {
    #[cfg(unix)]
    return io::Error::from_raw_os_error(libc::EIO);
    #[cfg(not(unix))]
    io::Error::other("the device failed")
}

/// A number that looks random: a step of the SplitMix64 generator.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
