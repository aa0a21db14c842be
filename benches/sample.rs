//! One run, measured: its time, and what the process spent meanwhile.

use std::fs;
use std::time::Instant;

use anyhow::Result;

/// One run. A program of another language prints the same as JSON.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// The time of the run, by the clock on the wall.
    pub seconds: f64,
    /// The bytes that it loaded.
    pub bytes: u64,
    /// The time that all threads of the process, and the kernel for them, spent on cores.
    pub cpu_seconds: Option<f64>,
    /// Bytes that the process fetched from devices, or that a delayed file system served.
    pub device_bytes: Option<u64>,
    /// Faults of the whole process that needed no device.
    pub minor_faults: Option<u64>,
    /// The most memory that the process has had resident, pages of mapped files included, from its start on.
    pub peak_bytes: Option<u64>,
    /// Whether some memory of the process was to be of huge pages.
    pub huge_pages_advised: bool,
    /// The requests that a delayed file system served.
    #[serde(default)]
    pub requests: Option<u64>,
}

impl Sample {
    /// Does a run, which tells how many bytes it came to and gives what is to be dropped after the clock has stopped.
    ///
    /// # Errors
    /// When the run fails.
    pub fn measure<T>(run: impl FnOnce() -> Result<(u64, T)>) -> Result<Self> {
        let before = Counters::now();
        let start = Instant::now();
        let (bytes, _kept) = run()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = Counters::now();
        let since = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
        Ok(Self {
            seconds,
            bytes,
            cpu_seconds: after.cpu_seconds.zip(before.cpu_seconds).map(|(after, before)| after - before),
            device_bytes: since(before.device_bytes, after.device_bytes),
            minor_faults: since(before.minor_faults, after.minor_faults),
            peak_bytes: peak_bytes(),
            huge_pages_advised: huge_pages_advised(),
            requests: None,
        })
    }
}

/// What the system has counted for the process since it started; `None` where it does not tell.
struct Counters {
    cpu_seconds: Option<f64>,
    device_bytes: Option<u64>,
    minor_faults: Option<u64>,
}

impl Counters {
    fn now() -> Self {
        Self { cpu_seconds: cpu_seconds(), device_bytes: device_bytes(), minor_faults: minor_faults() }
    }
}

#[cfg(unix)]
#[expect(clippy::cast_precision_loss, reason = "seconds of one run")]
fn cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(not(unix))]
fn cpu_seconds() -> Option<f64> {
    None
}

fn device_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

fn minor_faults() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, a name in parentheses, may hold spaces; this is the eighth after it.
    text.rsplit(')').next()?.split_whitespace().nth(7)?.parse().ok()
}

fn peak_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether a mapping of the process has the mark of `MADV_HUGEPAGE`.
fn huge_pages_advised() -> bool {
    fs::read_to_string("/proc/self/smaps").is_ok_and(|text| text.contains(" hg"))
}
