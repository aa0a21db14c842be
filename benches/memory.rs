//! Memory of huge pages, and memory that a run is to find as it is on a machine that has been up for a while.

use std::fs;
use std::io;

use anyhow::Result;
use memmap2::MmapMut;

/// Memory that was never used before, of huge pages where the system has such.
pub(crate) fn huge(bytes: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes.max(1))?;
    #[cfg(target_os = "linux")]
    memory.advise(memmap2::Advice::HugePage)?;
    Ok(memory)
}

/// Touches so much memory once and lets go of it, at most half of what is available.
///
/// Memory that a virtual machine has never used is slow at first touch, when the host has to back it. Whoever
/// ran first would pay for all.
///
/// # Errors
/// When the memory cannot be had.
pub(crate) fn touch(bytes: u64) -> Result<()> {
    const PAGE_BYTES: usize = 4096;
    let bytes = available_bytes().map_or(0, |available| bytes.min(available / 2));
    let mut memory = huge(usize::try_from(bytes)?)?;
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    Ok(())
}

fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.trim().strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}
