//! What a load cost, against what was asked for.

mod table;

pub(crate) use table::{Given, Seconds, ratio};

use crate::mode::ReadMode;
use crate::shard_name::ShardName;
use crate::sys;
use crate::warning::Warning;

/// The reason of a load that keeps nothing: it has only filled the page cache.
pub(crate) const INTO_THE_CACHE: &str = "into the page cache";

/// The account of one load.
///
/// Bytes are bytes, pages are pages of [`page_bytes`](Self::page_bytes), times are wall-clock seconds. A
/// figure that the system cannot give is `None`, never 0.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// Tensors that were loaded, empty ones included.
    pub tensors: u64,
    /// Bytes of tensor data that were asked for: the sum of the tensors' lengths.
    pub requested_bytes: u64,
    /// Bytes that the kernel was asked for in order to have the tensors: their own, the gaps between merged
    /// neighbours and rows, and of what is mapped or read past the page cache the rest of the first and last
    /// page, which can be part of the header. The reads of headers are not in it, nor is what read-ahead adds.
    pub read_bytes: u64,
    /// `read_bytes / requested_bytes`; `None` when nothing was asked for.
    pub over_read: Option<f64>,
    /// Bytes that the process fetched from devices during the load, `read_bytes` of `/proc/self/io`:
    /// read-ahead and headers are in it, and so is whatever else the process read meanwhile; most network
    /// file systems are not.
    pub disk_bytes: Option<u64>,
    /// Bytes of headers read by this load, their 8-byte lengths included.
    pub header_bytes: u64,
    /// Bytes of the checkpoint's files that this load did not ask for: the sizes of all shards that are
    /// there, less `read_bytes` and `header_bytes`. `None` if the size of a shard cannot be had.
    pub spared_bytes: Option<u64>,
    /// Faults of this load's worker threads, while they read, that were served without waiting for a device.
    pub minor_faults: Option<u64>,
    /// Faults of this load's worker threads, while they read, that waited for a device.
    pub major_faults: Option<u64>,
    /// `requested_bytes` by the sum of both kinds of faults; `None` without faults.
    pub bytes_per_fault: Option<f64>,
    /// The time that workers spent reading and populating by the number of their faults. It is an upper bound
    /// of what a fault costs: copying and waiting for reads are in it. `None` without faults.
    pub seconds_per_fault: Option<f64>,
    /// Pages that hold what was asked for, each counted once; of slices, with those between rows that are up to 64
    /// KiB apart.
    pub extent_pages: u64,
    /// Those of `extent_pages` that were in the page cache before the first read. The page that a header ends
    /// in is among them, as this load may just have read it.
    pub resident_before: Option<u64>,
    /// Those of `extent_pages` that were in the page cache after the last read.
    pub resident_after: Option<u64>,
    /// The size of a page in bytes.
    pub page_bytes: u64,
    /// Bytes that were copied in user space to their tensors: rows of slices from scratch memory, and from that
    /// which direct reads go through. What the kernel copies out of the page cache is not in it.
    pub copied_bytes: u64,
    /// Bytes of tensors that lie in mapped files: handed out without a copy.
    pub mapped_bytes: u64,
    /// Bytes that were compared with their digests ([`LoadOptions::verify`](crate::LoadOptions::verify)): those of every chunk of which
    /// something was asked for, headers not among them. A chunk that several requests share counts for each.
    pub verified_bytes: u64,
    /// Shards that hold a tensor of this load.
    pub shards_touched: u64,
    /// Times that a shard's file was opened during this load, by other loads of the model too if they ran
    /// meanwhile; for reads past the page cache it is opened once more. One that is still open is not opened
    /// again, but of more shards than a quarter of the process's limit of descriptors, some have been closed
    /// since.
    pub shards_opened: u64,
    /// Shards whose header was read and checked during this load: its first touch.
    pub shards_checked: u64,
    /// Windows of a mapping that were populated, of at most 8 MiB each, and reads by position, of at most 16 MiB
    /// each; of those past the page cache, ranges, each of which is read in pieces that are in flight together. What
    /// announces a range is not counted.
    pub requests: u64,
    /// The mode that was asked for.
    pub mode_asked: ReadMode,
    /// The mode that all shards were read in; `None` when they differ (see [`shards`](Self::shards)) or there
    /// are none.
    pub mode: Option<ReadMode>,
    /// Why that mode, or those.
    pub reason: String,
    /// How many bytes of memory for tensors and for scratch this load held at once, at most.
    pub peak_buffer_bytes: u64,
    /// The most memory that the process has had resident since it started, mapped pages included: `VmHWM` of
    /// `/proc/self/status`.
    pub peak_memory_bytes: Option<u64>,
    /// Time by stage.
    pub stages: Stages,
    /// A row for each shard that was touched, in the order of the index.
    pub shards: Vec<ShardRow>,
    /// A row for each worker thread.
    pub workers: Vec<WorkerRow>,
    /// What is odd about the headers of these shards and was accepted, by leniency or in any case.
    pub warnings: Vec<Warning>,
}

/// Where the time of a load went, in seconds of wall-clock time.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Stages {
    /// Opening the model: finding its files and reading the index. It was spent once, before this load, and
    /// is not in `total_seconds`.
    pub open_seconds: f64,
    /// First touches: opening shards, reading and checking headers, mapping; and counting resident pages.
    pub touch_seconds: f64,
    /// Choosing how each shard is read, and turning tensors into reads.
    pub plan_seconds: f64,
    /// Reading: from the first request to the last byte. Of a stream, the time in which workers waited for
    /// the consumer is in it, and in `total_seconds`.
    pub read_seconds: f64,
    /// Showing that no file has changed meanwhile, counting resident pages again, and, once in a model's
    /// life, asking for the sizes of shards that have not been touched.
    pub verify_seconds: f64,
    /// The whole load.
    pub total_seconds: f64,
}

/// What was read of one shard.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct ShardRow {
    /// The shard.
    pub shard: ShardName,
    /// Tensors of this load that it holds; of those that are put together, the parts.
    pub tensors: u64,
    /// Bytes of those tensors.
    pub requested_bytes: u64,
    /// As [`LoadReport::read_bytes`], of this shard.
    pub read_bytes: u64,
    /// Whether this load was the shard's first touch: read its header and checked it.
    pub is_first_touch: bool,
    /// The length of its header in bytes, with the 8 bytes that give it; read by this load or an earlier one.
    pub header_bytes: u64,
    /// As [`LoadReport::requests`], of this shard.
    pub requests: u64,
    /// As [`LoadReport::extent_pages`].
    pub extent_pages: u64,
    /// As [`LoadReport::resident_before`].
    pub resident_before: Option<u64>,
    /// As [`LoadReport::resident_after`].
    pub resident_after: Option<u64>,
    /// The kind of storage that it is on, by its file system.
    pub storage: &'static str,
    /// How it was read. Of a shard whose tensors lie in its mapping, slices that do not lie in one piece are read
    /// in another way: into memory.
    pub mode: ReadMode,
    /// Why so.
    pub reason: &'static str,
}

/// What one worker thread did.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct WorkerRow {
    /// Its number, from 0.
    pub worker: u64,
    /// Bytes that it asked the kernel for.
    pub read_bytes: u64,
    /// Requests that it made.
    pub requests: u64,
    /// Time that it spent in them, in seconds.
    pub busy_seconds: f64,
    /// As [`LoadReport::minor_faults`].
    pub minor_faults: Option<u64>,
    /// As [`LoadReport::major_faults`].
    pub major_faults: Option<u64>,
}

/// What a load has counted, before sums and ratios are made of it.
pub(crate) struct Account {
    /// Those that are handed over, whatever they are put together of.
    pub(crate) tensors: u64,
    pub(crate) mode_asked: ReadMode,
    pub(crate) stages: Stages,
    pub(crate) shards: Vec<ShardRow>,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) disk_bytes: Option<u64>,
    /// Of all shards.
    pub(crate) file_bytes: Option<u64>,
    pub(crate) shards_opened: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) mapped_bytes: u64,
    pub(crate) verified_bytes: u64,
    pub(crate) peak_buffer_bytes: u64,
}

impl LoadReport {
    #[expect(clippy::cast_precision_loss, reason = "ratios are shown with a few digits")]
    pub(crate) fn new(account: Account) -> Self {
        let Account { mode_asked, stages, shards, workers, disk_bytes, file_bytes, shards_opened, .. } =
            account;
        let sum = |figure: fn(&ShardRow) -> u64| total(shards.iter().map(figure));
        let sum_known = |figure: fn(&ShardRow) -> Option<u64>| shards.iter().map(figure).sum::<Option<u64>>();
        let faults_of =
            |figure: fn(&WorkerRow) -> Option<u64>| workers.iter().map(figure).sum::<Option<u64>>();
        let (requested_bytes, read_bytes) = (sum(|row| row.requested_bytes), sum(|row| row.read_bytes));
        let header_bytes = sum(|row| if row.is_first_touch { row.header_bytes } else { 0 });
        let (minor_faults, major_faults) =
            (faults_of(|row| row.minor_faults), faults_of(|row| row.major_faults));
        let faults =
            minor_faults.zip(major_faults).map(|(minor, major)| minor + major).filter(|&faults| faults > 0);
        let busy_seconds = workers.iter().map(|row| row.busy_seconds).sum::<f64>();
        Self {
            tensors: account.tensors,
            requested_bytes,
            read_bytes,
            over_read: (requested_bytes > 0).then(|| read_bytes as f64 / requested_bytes as f64),
            disk_bytes,
            header_bytes,
            spared_bytes: file_bytes.map(|all| all.saturating_sub(read_bytes.saturating_add(header_bytes))),
            minor_faults,
            major_faults,
            bytes_per_fault: faults.map(|faults| requested_bytes as f64 / faults as f64),
            seconds_per_fault: faults.map(|faults| busy_seconds / faults as f64),
            extent_pages: sum(|row| row.extent_pages),
            resident_before: sum_known(|row| row.resident_before),
            resident_after: sum_known(|row| row.resident_after),
            page_bytes: sys::page_bytes(),
            copied_bytes: account.copied_bytes,
            mapped_bytes: account.mapped_bytes,
            verified_bytes: account.verified_bytes,
            shards_touched: shards.len() as u64,
            shards_opened,
            shards_checked: sum(|row| u64::from(row.is_first_touch)),
            requests: total(workers.iter().map(|row| row.requests)),
            mode_asked,
            mode: shards
                .first()
                .map(|row| row.mode)
                .filter(|&mode| shards.iter().all(|row| row.mode == mode)),
            reason: reasons(&shards),
            peak_buffer_bytes: account.peak_buffer_bytes,
            peak_memory_bytes: sys::peak_resident_bytes(),
            stages,
            shards,
            workers,
            warnings: account.warnings,
        }
    }
}

/// The distinct reasons of the shards, in their order.
fn reasons(shards: &[ShardRow]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for row in shards {
        if !reasons.contains(&row.reason) {
            reasons.push(row.reason);
        }
    }
    if reasons.is_empty() { "nothing to read".to_owned() } else { reasons.join(", ") }
}

/// Files can be sparse and as long as a number goes, so that even a sum of their sizes has to end somewhere.
pub(crate) fn total(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}
