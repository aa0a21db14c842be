//! The account as a table for people.

use std::fmt;

use super::{INTO_THE_CACHE, LoadReport, Stages, WorkerRow};
use crate::error::{Bytes, count, three_digits};
use crate::mode::ReadMode;
use crate::warning::Warning;

impl fmt::Display for LoadReport {
    /// A short table for people, without colour; with figures of usual size and one reason it fits 79
    /// columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.stages.total_seconds;
        row(
            f,
            self.verb(),
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
                "{}{} ({}){}",
                self.mode.map_or(if self.shards.is_empty() { "none" } else { "mixed" }, ReadMode::name),
                if self.gathers() { ", slices gathered" } else { "" },
                self.reason,
                On(self.storage())
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
        row(f, "faults", format_args!("{}", Faults(self)))?;
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
        row(f, "open", format_args!("{}, once, before this load", Seconds(open_seconds)))?;
        row(
            f,
            "time",
            format_args!(
                "touch {}, plan {}, read {}, verify {}",
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
        if self.verified_bytes > 0 {
            row(
                f,
                "digests",
                format_args!("{} compared, all as they are to be", Bytes(self.verified_bytes)),
            )?;
        }
        write!(f, "{:<8}{}", "workers", Workers(&self.workers))?;
        warnings(f, &self.warnings)
    }
}

impl LoadReport {
    /// What was done with the tensors.
    fn verb(&self) -> &'static str {
        if self.reason == INTO_THE_CACHE { "warmed" } else { "loaded" }
    }

    /// Whether tensors lie in the mapping, and slices that are not in one piece do not.
    fn gathers(&self) -> bool {
        self.mode == Some(ReadMode::Mapped) && self.mapped_bytes < self.requested_bytes
    }

    /// The kind of storage that all shards are on, unless the reason has told it.
    fn storage(&self) -> Option<&'static str> {
        let first = self.shards.first()?.storage;
        let is_told = self.reason == first || self.shards.iter().any(|row| row.storage != first);
        (!is_told).then_some(first)
    }
}

/// How many faults there were, and what they brought.
struct Faults<'a>(&'a LoadReport);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        if (report.minor_faults, report.major_faults) == (Some(0), Some(0)) {
            return f.write_str("none");
        }
        let (minor, major) = (Given(report.minor_faults, plain), Given(report.major_faults, plain));
        write!(f, "{minor} minor, {major} major")?;
        if let Some(count) = report.bytes_per_fault {
            write!(f, "; {} a fault", Bytes(to_u64(count)))?;
        }
        // Of other ways of reading, the time is that of the reads.
        match report.seconds_per_fault {
            Some(seconds) if report.mode == Some(ReadMode::Mapped) => {
                write!(f, ", {} each", Seconds(seconds))
            }
            _ => Ok(()),
        }
    }
}

/// How many workers there were, how many had nothing to do, and how long the others were busy.
struct Workers<'a>(&'a [WorkerRow]);

impl fmt::Display for Workers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut busy: Vec<_> =
            self.0.iter().filter(|row| row.requests > 0).map(|row| row.busy_seconds).collect();
        busy.sort_by(f64::total_cmp);
        f.write_str(&count(self.0.len() as u64, "thread"))?;
        if busy.len() < self.0.len() {
            write!(f, ", {} idle", self.0.len() - busy.len())?;
        }
        match busy.as_slice() {
            [] => Ok(()),
            [seconds] => write!(f, ", {} busy", Seconds(*seconds)),
            [least, .., most] => write!(f, ", {} to {} busy", Seconds(*least), Seconds(*most)),
        }
    }
}

/// The kind of storage behind how it was read, if there is one to tell.
struct On(Option<&'static str>);

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |storage| write!(f, "; {storage}"))
    }
}

/// A line for each of the first warnings, and one that counts the others: each of very many shards may have some.
fn warnings(f: &mut fmt::Formatter<'_>, warnings: &[Warning]) -> fmt::Result {
    const SHOWN: usize = 10;
    warnings.iter().take(SHOWN).try_for_each(|warning| write!(f, "\nwarning {warning}"))?;
    match warnings.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\nwarning {more} more"),
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

pub(crate) fn ratio(ratio: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{ratio:.3}")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count for display: saturates")]
fn to_u64(value: f64) -> u64 {
    value as u64
}

/// A figure, or a dash where it could not be had.
pub(crate) struct Given<T, F>(pub(crate) Option<T>, pub(crate) F);

impl<T: Copy, F: Fn(T, &mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Given<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => self.1(value, f),
            None => f.write_str("–"),
        }
    }
}

/// A time as people read it: `12.3 ms`.
pub(crate) struct Seconds(pub(crate) f64);

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

    fn worker(requests: u64, busy_seconds: f64) -> WorkerRow {
        WorkerRow { requests, busy_seconds, ..WorkerRow::default() }
    }

    #[test]
    fn workers_are_told_with_those_that_had_nothing_to_do() {
        let shown = |rows: &[WorkerRow]| Workers(rows).to_string();
        let [idle, quick, slow] = [worker(0, 0.0), worker(1, 0.001), worker(9, 0.5)];
        assert_eq!(shown(&[]), "0 threads");
        assert_eq!(shown(std::slice::from_ref(&quick)), "1 thread, 1.00 ms busy");
        assert_eq!(shown(&[idle.clone(), quick.clone()]), "2 threads, 1 idle, 1.00 ms busy");
        assert_eq!(shown(&[slow, idle, quick]), "3 threads, 1 idle, 1.00 ms to 500 ms busy");
    }

    /// A report of as many faults, in this mode, by one worker in a millisecond.
    fn faulted(mode: ReadMode, minor: u64) -> LoadReport {
        let worker = WorkerRow { minor_faults: Some(minor), major_faults: Some(0), ..worker(1, 0.001) };
        let mut report = LoadReport::new(super::super::Account {
            tensors: 0,
            mode_asked: mode,
            stages: Stages::default(),
            shards: Vec::new(),
            workers: vec![worker],
            warnings: Vec::new(),
            disk_bytes: None,
            file_bytes: None,
            shards_opened: 0,
            copied_bytes: 0,
            mapped_bytes: 0,
            verified_bytes: 0,
            peak_buffer_bytes: 0,
        });
        report.mode = Some(mode);
        report
    }

    #[test]
    fn only_where_pages_are_mapped_is_the_time_that_of_faults() {
        let shown = |mode, minor| Faults(&faulted(mode, minor)).to_string();
        assert_eq!(shown(ReadMode::Mapped, 2), "2 minor, 0 major; 0 B a fault, 500 µs each");
        assert_eq!(shown(ReadMode::Direct, 2), "2 minor, 0 major; 0 B a fault");
        assert_eq!(shown(ReadMode::Mapped, 0), "none");
    }

    #[test]
    fn slices_that_are_not_in_the_mapping_are_told_of() {
        let mut report = faulted(ReadMode::Mapped, 0);
        assert!(!report.to_string().contains("gathered"), "{report}");
        report.requested_bytes = 1;
        assert!(report.to_string().contains("mapped, slices gathered ("), "{report}");
    }
}
