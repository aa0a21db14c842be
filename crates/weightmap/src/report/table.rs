//! The account as a table for people.

use std::fmt;

use super::{LoadReport, Stages};
use crate::error::count;
use crate::mode::ReadMode;

impl fmt::Display for LoadReport {
    /// A short table for people, without colour; with figures of usual size and one reason it fits 79
    /// columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.stages.total_seconds;
        row(
            f,
            "loaded",
            format_args!(
                "{}, {} in {} ({})",
                count(self.tensors, "tensor"),
                Bytes(self.requested_bytes),
                Seconds(seconds),
                Rate(self.requested_bytes, seconds)
            ),
        )?;
        row(
            f,
            "mode",
            format_args!(
                "{} ({})",
                self.mode.map_or(if self.shards.is_empty() { "none" } else { "mixed" }, ReadMode::name),
                self.reason
            ),
        )?;
        row(
            f,
            "read",
            format_args!(
                "{} in {}, over-read {}; from the device {}",
                Bytes(self.read_bytes),
                count(self.requests, "request"),
                Given(self.over_read, ratio),
                Given(self.disk_bytes, bytes)
            ),
        )?;
        row(f, "spared", format_args!("{} of the checkpoint not read", Given(self.spared_bytes, bytes)))?;
        row(
            f,
            "faults",
            format_args!(
                "{} minor, {} major; {} a fault, {} each",
                Given(self.minor_faults, plain),
                Given(self.major_faults, plain),
                Given(self.bytes_per_fault, mean_bytes),
                Given(self.seconds_per_fault, time)
            ),
        )?;
        row(
            f,
            "cached",
            format_args!(
                "{} of {} pages before, {} after",
                Given(self.resident_before, plain),
                self.extent_pages,
                Given(self.resident_after, plain)
            ),
        )?;
        row(
            f,
            "shards",
            format_args!(
                "{} touched, {} opened, {} checked ({} of headers)",
                self.shards_touched,
                self.shards_opened,
                self.shards_checked,
                Bytes(self.header_bytes)
            ),
        )?;
        let Stages { open_seconds, touch_seconds, plan_seconds, read_seconds, verify_seconds, .. } =
            self.stages;
        row(
            f,
            "time",
            format_args!(
                "open {}, touch {}, plan {}, read {}, verify {}",
                Seconds(open_seconds),
                Seconds(touch_seconds),
                Seconds(plan_seconds),
                Seconds(read_seconds),
                Seconds(verify_seconds)
            ),
        )?;
        row(
            f,
            "memory",
            format_args!(
                "{} mapped, {} buffers, {} copied; peak RSS {}",
                Bytes(self.mapped_bytes),
                Bytes(self.peak_buffer_bytes),
                Bytes(self.copied_bytes),
                Given(self.peak_memory_bytes, bytes)
            ),
        )?;
        write!(
            f,
            "{:<8}{} threads, {} to {} busy",
            "workers",
            self.workers.len(),
            Seconds(
                self.workers
                    .iter()
                    .map(|worker| worker.busy_seconds)
                    .fold(f64::INFINITY, f64::min)
                    .min(seconds)
            ),
            Seconds(self.workers.iter().map(|worker| worker.busy_seconds).fold(0.0, f64::max))
        )
    }
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{label:<8}{text}")
}

fn plain(count: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{count}")
}

fn bytes(count: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", Bytes(count))
}

fn ratio(ratio: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{ratio:.3}")
}

fn mean_bytes(count: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", Bytes(to_u64(count)))
}

fn time(seconds: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", Seconds(seconds))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count for display: saturates")]
fn to_u64(value: f64) -> u64 {
    value as u64
}

/// A figure, or a dash where it could not be had.
struct Given<T, F>(Option<T>, F);

impl<T: Copy, F: Fn(T, &mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Given<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => self.1(value, f),
            None => f.write_str("–"),
        }
    }
}

/// A count of bytes in binary units, as people read it: `1.50 GiB`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        for next in units {
            // What would be shown in four digits is shown in the next unit.
            if value < 999.5 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        if unit == "B" { write!(f, "{value:.0} B") } else { three_digits(f, value, unit) }
    }
}

fn three_digits(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    write!(f, "{value:.decimals$} {unit}")
}

/// A time as people read it: `12.3 ms`.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds >= 0.9995 => three_digits(f, seconds, "s"),
            seconds if seconds >= 0.9995e-3 => three_digits(f, seconds * 1e3, "ms"),
            seconds => three_digits(f, seconds * 1e6, "µs"),
        }
    }
}

/// Bytes by seconds.
struct Rate(u64, f64);

impl fmt::Display for Rate {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            seconds if seconds > 0.0 => write!(f, "{}/s", Bytes(to_u64(self.0 as f64 / seconds))),
            _ => f.write_str("–"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_three_digits_and_binary_units() {
        let shown = [0, 999, 1000, 1536, 10_235, 100 << 10, 1023 << 20, u64::MAX]
            .map(|bytes| Bytes(bytes).to_string());
        assert_eq!(
            shown,
            ["0 B", "999 B", "0.98 KiB", "1.50 KiB", "10.0 KiB", "100 KiB", "1.00 GiB", "16384 PiB"]
        );
    }

    #[test]
    fn times_are_shown_in_a_unit_of_their_size() {
        let shown = [0.0, 12.3e-6, 0.0123, 1.0, 90.5].map(|seconds| Seconds(seconds).to_string());
        assert_eq!(shown, ["0.00 µs", "12.3 µs", "12.3 ms", "1.00 s", "90.5 s"]);
    }

    #[test]
    fn what_could_not_be_had_is_a_dash_and_not_a_zero() {
        assert_eq!(Given(None, plain).to_string(), "–");
        assert_eq!(Given(Some(0), plain).to_string(), "0");
        assert_eq!(Rate(5, 0.0).to_string(), "–");
    }
}
