//! What several ranks of a node want: read by one, and sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use super::Node;
use super::peers::Peers;
use super::schedule::{Receipt, Window, runs};
use crate::error::{Error, Result};
use crate::inspect::Hand;
use crate::memory::memory_len;
use crate::read::overlap;
use crate::read::source::{Source as _, read_exact_at};
use crate::shard::Shard;
use crate::storage::Storage;
use crate::tensor_info::TensorInfo;

/// What came of taking part.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Bytes that this rank asked the kernel for.
    pub(super) read_bytes: u64,
    /// Bytes that others got of them.
    pub(super) sent_bytes: u64,
    /// What this rank failed at. It went on with the exchange, as the others would have waited.
    pub(super) failure: Option<Error>,
}

/// How many windows are read ahead of what is being sent.
const AHEAD: usize = 2;

/// A window's bytes, the unwanted ones among them anything.
type Page = Vec<u8>;

/// Walks through all windows, in the same order on all ranks: reads those that are this rank's to read, and gives and
/// takes. `targets` is the memory of each of the own items.
///
/// # Errors
/// [`Error::Collective`], after which the group is of no more use; every other failure is told in [`Given`].
pub(super) fn exchange(node: &Node, peers: &Peers<'_>, mut targets: Vec<&mut [u8]>) -> Result<Given> {
    let member = peers.member();
    let (sender, pages) = sync_channel(AHEAD);
    let (recycle, spare) = channel();
    std::thread::scope(|scope| {
        let read = move || node.read_windows(member, &sender, &spare);
        let reader =
            std::thread::Builder::new().name("weightmap-windows".to_owned()).spawn_scoped(scope, read);
        // Goes with this closure, whatever it comes to, so that the reader does not wait for ever.
        let pages = pages;
        let mut given = Given::default();
        if let Err(error) = reader {
            given.failure = Some(Error::Threads { reason: error.to_string() });
        }
        for window in &node.schedule.windows {
            let is_mine = window.reader == member;
            let page = if is_mine { take(&pages, window, &mut given) } else { Vec::new() };
            if window.is_solo() {
                deliver(node, member, window, &page, &mut targets);
            } else {
                give(node, peers, window, &page, &mut targets, &mut given)?;
            }
            if is_mine {
                let _ = recycle.send(page);
            }
        }
        Ok(given)
    })
}

/// The next window that was read; zeros if that failed.
fn take(pages: &Receiver<Result<(Page, u64)>>, window: &Window, given: &mut Given) -> Page {
    match pages.recv() {
        Ok(Ok((page, read_bytes))) => {
            given.read_bytes = given.read_bytes.saturating_add(read_bytes);
            return page;
        }
        Ok(Err(error)) => drop(given.failure.get_or_insert(error)),
        // There is no thread that reads, which has been told.
        Err(_) => {}
    }
    vec![0; memory_len(window.bytes())]
}

/// Puts what the own rank wants of a window where it belongs.
fn deliver(node: &Node, member: usize, window: &Window, page: &[u8], targets: &mut [&mut [u8]]) {
    for receipt in window.receipts.iter().filter(|receipt| receipt.member == member) {
        if let (Some(info), Some(target)) = (node.info(receipt), target(targets, receipt)) {
            copy(info, window, page, target);
        }
    }
}

/// Gives a window to those who want of it, or gets of it what is wanted.
fn give(
    node: &Node,
    peers: &Peers<'_>,
    window: &Window,
    page: &[u8],
    targets: &mut [&mut [u8]],
    given: &mut Given,
) -> Result<()> {
    let (member, count) = (peers.member(), peers.count());
    let is_mine = window.reader == member;
    let own: Vec<_> = window.receipts.iter().filter(|receipt| receipt.member == member).collect();
    if window.is_for_all(count)
        && let [receipt] = own.as_slice()
        && let Some(target) = target(targets, receipt)
    {
        if is_mine {
            target.copy_from_slice(page.get(..target.len()).unwrap_or_default());
            given.sent_bytes =
                given.sent_bytes.saturating_add(window.bytes().saturating_mul(count as u64 - 1));
        }
        return peers.broadcast(window.reader, target);
    }
    let packed: Vec<Page> =
        if is_mine { (0..count).map(|to| pack(node, window, page, to)).collect() } else { Vec::new() };
    if is_mine {
        let others =
            packed.iter().enumerate().filter(|(to, _)| *to != member).map(|(_, part)| part.len() as u64);
        given.sent_bytes = given.sent_bytes.saturating_add(others.sum());
    }
    let parts: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    match own.as_slice() {
        [receipt] => peers.scatterv(window.reader, &parts, target(targets, receipt).unwrap_or_default()),
        several => {
            let bytes = several.iter().map(|receipt| receipt.dest.end - receipt.dest.start).sum();
            let mut received = vec![0; memory_len(bytes)];
            peers.scatterv(window.reader, &parts, &mut received)?;
            let mut rest = received.as_slice();
            for receipt in several {
                let Some(target) = target(targets, receipt) else { continue };
                let Some((now, later)) = rest.split_at_checked(target.len()) else { continue };
                target.copy_from_slice(now);
                rest = later;
            }
            Ok(())
        }
    }
}

/// What a member wants of a window, one item after the other.
fn pack(node: &Node, window: &Window, page: &[u8], member: usize) -> Page {
    let receipts = window.receipts.iter().filter(|receipt| receipt.member == member);
    receipts.fold(Vec::new(), |mut packed, receipt| {
        let start = packed.len();
        packed.resize(start + memory_len(receipt.dest.end - receipt.dest.start), 0);
        if let (Some(info), Some(target)) = (node.info(receipt), packed.get_mut(start..)) {
            copy(info, window, page, target);
        }
        packed
    })
}

/// Copies what an item wants of a window.
fn copy(info: &TensorInfo, window: &Window, page: &[u8], target: &mut [u8]) {
    info.region.copy(page, window.range.start.saturating_sub(info.start), target);
}

fn target<'t>(targets: &'t mut [&mut [u8]], receipt: &Receipt) -> Option<&'t mut [u8]> {
    let Range { start, end } = receipt.dest;
    targets.get_mut(receipt.item)?.get_mut(memory_len(start)..memory_len(end))
}

/// Runs of a window that were read to their places in a page.
struct Read<'a> {
    page: &'a [u8],
    /// Where the window begins in the file.
    start: u64,
    runs: &'a [&'a Range<u64>],
}

impl Read<'_> {
    fn at(&self, range: &Range<u64>) -> &[u8] {
        let place = |at: u64| memory_len(at.saturating_sub(self.start));
        self.page.get(place(range.start)..place(range.end)).unwrap_or_default()
    }
}

impl Hand for Read<'_> {
    fn whole(&mut self, range: &Range<u64>) -> Option<&[u8]> {
        self.runs.iter().any(|run| run.start <= range.start && range.end <= run.end).then(|| self.at(range))
    }

    fn lay_over(&mut self, range: &Range<u64>, bytes: &mut [u8]) {
        for run in self.runs {
            let common = overlap(range, run);
            if common.is_empty() {
                continue;
            }
            let place = memory_len(common.start - range.start)..memory_len(common.end - range.start);
            let from = self.at(&common);
            if let Some(place) = bytes.get_mut(place).filter(|place| place.len() == from.len()) {
                place.copy_from_slice(from);
            }
        }
    }
}

impl Node {
    fn info(&self, receipt: &Receipt) -> Option<&TensorInfo> {
        self.wishes.get(receipt.member)?.infos.get(receipt.item).map(|info| &**info)
    }

    /// Reads, in order, the windows that are this member's to read, each into memory that comes back. After a failure
    /// each of the others is one too.
    fn read_windows(&self, member: usize, pages: &SyncSender<Result<(Page, u64)>>, spare: &Receiver<Page>) {
        let mine = || self.schedule.windows.iter().filter(|window| window.reader == member);
        let mut next = mine().skip(1);
        let mut failure = self.begin(mine()).err();
        for window in mine() {
            let mut page = spare.try_recv().unwrap_or_default();
            page.resize(memory_len(window.bytes()), 0);
            let read = match &failure {
                Some(error) => Err(error.clone()),
                None => self.read_window(window, next.next(), &mut page),
            };
            failure = failure.or_else(|| read.as_ref().err().cloned());
            if pages.send(read.map(|bytes| (page, bytes))).is_err() {
                return;
            }
        }
    }

    /// Tells those who look at what is loaded of which tensors something will be read.
    pub(super) fn begin<'w>(&self, windows: impl Iterator<Item = &'w Window>) -> Result<()> {
        if self.inspection.is_empty() {
            return Ok(());
        }
        let mut tensors = BTreeMap::<u32, BTreeSet<&str>>::new();
        for window in windows {
            let names = window.receipts.iter().filter_map(|receipt| Some(&*self.info(receipt)?.name));
            tensors.entry(window.shard).or_default().extend(names);
        }
        tensors.into_iter().try_for_each(|(number, names)| {
            self.inspection.begin(&*self.pool.shard(number)?, &names.into_iter().collect::<Vec<_>>())
        })
    }

    /// Reads what is wanted of a window to its place in a page; tells how many bytes that were. The next one is announced
    /// first.
    pub(super) fn read_window(&self, window: &Window, next: Option<&Window>, page: &mut [u8]) -> Result<u64> {
        let shard = self.pool.shard(window.shard)?;
        let file = self.pool.file(&shard)?;
        let gap_bytes = Storage::of(&file).gap_bytes();
        let wanted = |window: &Window| {
            runs(window.receipts.iter().filter_map(|receipt| self.info(receipt)), &window.range, gap_bytes)
        };
        if let Some(next) = next.filter(|next| next.shard == window.shard) {
            wanted(next).iter().for_each(|run| file.announce(run));
        }
        let mut read_bytes = 0;
        for run in wanted(window) {
            let inside = memory_len(run.start - window.range.start)..memory_len(run.end - window.range.start);
            let bytes = run.end - run.start;
            let read = match page.get_mut(inside) {
                Some(place) => read_exact_at(&file, place, run.start),
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            read.map_err(|error| {
                // A file that was cut says so.
                self.pool.verified(&shard, Some(&file)).err().unwrap_or_else(|| {
                    let name = window
                        .receipts
                        .first()
                        .and_then(|receipt| self.info(receipt))
                        .map(|info| &*info.name);
                    let action = format!("read {bytes} bytes at offset {}", run.start);
                    Error::io(&shard.path, action, error).about(name.unwrap_or_default())
                })
            })?;
            read_bytes += bytes;
        }
        self.pool.verified(&shard, Some(&file))?;
        let looked = self.inspect(window, &wanted(window), (&shard, &file), page);
        // Where the file was written to meanwhile, that is what is told.
        Ok(read_bytes + looked.or_else(|error| shard.verify_unchanged(&file).and(Err(error)))?)
    }

    /// Has those who look at what is loaded look at the chunks of a window, of which these runs are there; tells how many bytes
    /// were read for it.
    fn inspect(
        &self,
        window: &Window,
        runs: &[Range<u64>],
        (shard, file): (&Shard, &File),
        page: &[u8],
    ) -> Result<u64> {
        let infos = window.receipts.iter().filter_map(|receipt| self.info(receipt));
        if self.inspection.is_empty() {
            return Ok(0);
        }
        // Several ranks want of one tensor as a rule.
        let tensors: BTreeMap<_, _> = infos.map(|info| (&*info.name, info)).collect();
        let (mut scratch, mut read_bytes) = (Vec::new(), 0);
        for (name, info) in tensors {
            let whole = shard.whole(name).map_or(info.range.clone(), |entry| entry.range);
            let is_of_it = |run: &&Range<u64>| run.start < whole.end && whole.start < run.end;
            let own: Vec<_> = runs.iter().filter(is_of_it).collect();
            let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
            // Each chunk once, whatever is wanted of it.
            let source = first.start.max(whole.start)..last.end.min(whole.end);
            let mut hand = Read { page, start: window.range.start, runs: &own };
            let of = (shard, file, name);
            read_bytes += self.inspection.look(of, &source, &mut scratch, &mut hand)?.read_bytes;
        }
        Ok(read_bytes)
    }
}
