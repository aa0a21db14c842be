//! What the machine gives to someone who asks for the same bytes in the plainest way: the goals, not the peers.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use anyhow::Result;
use memmap2::{Advice, Mmap, MmapMut};
use rayon::prelude::*;

use crate::baseline::with_parts;
use crate::memory::huge;
use crate::wanted::{FileRanges, Wanted, total_bytes};

/// What is populated, or populated and copied, at a time.
const WINDOW_BYTES: usize = 8 << 20;

/// The unit of reads past the page cache: no device asks for a coarser one.
const BLOCK_BYTES: u64 = 4096;

/// Gaps up to which two ranges are read as one: at the speed of a disk they cost less than another request.
const BRIDGED_BYTES: u64 = 64 << 10;

/// What cold loads are measured against.
pub const PLAIN: [(&str, PlainReads); 2] = [
    (
        "limit: plain reads of 8 MiB, 1 thread",
        PlainReads { threads: 1, request_bytes: 8 << 20, direct: false, keep: false },
    ),
    (
        "limit: O_DIRECT of 4 MiB, 4 threads",
        PlainReads { threads: 4, request_bytes: 4 << 20, direct: true, keep: true },
    ),
];

/// Reads of ranges that somebody else has found out.
#[derive(Debug, Clone, Copy)]
pub struct PlainReads {
    /// How many threads take the next request of one list.
    pub threads: usize,
    /// The size of a request.
    pub request_bytes: u64,
    /// Whether they go past the page cache.
    pub direct: bool,
    /// Whether each request has memory of its own, of huge pages that were never used before; otherwise a thread uses
    /// the same buffer again and again.
    pub keep: bool,
}

impl PlainReads {
    /// Reads all of the ranges, and gives their bytes and the memory.
    ///
    /// # Errors
    /// When a file cannot be opened or read.
    pub fn run(&self, files: &[FileRanges]) -> Result<(u64, MmapMut)> {
        let requests = files.iter().map(|file| self.requests(file)).collect::<io::Result<Vec<_>>>()?;
        let requests: Vec<(&File, Range<u64>)> = requests
            .iter()
            .flat_map(|(file, requests)| requests.iter().map(move |range| (file, range.clone())))
            .collect();
        let room = if self.keep { requests.iter().map(|(_, range)| length(range)).sum() } else { 0 };
        let mut memory = huge(room)?;
        let mut rest = &mut memory[..];
        let queue = requests.into_iter().map(|(file, range)| {
            let target = if self.keep { length(&range) } else { 0 };
            let (target, others) = std::mem::take(&mut rest).split_at_mut(target);
            rest = others;
            (file, range, target)
        });
        self.serve(queue.collect())?;
        Ok((total_bytes(files), memory))
    }

    fn serve(&self, queue: Vec<(&File, Range<u64>, &mut [u8])>) -> io::Result<()> {
        let queue = Mutex::new(queue.into_iter());
        let work = || -> io::Result<()> {
            let mut buffer = if self.keep { None } else { Some(huge(to_usize(self.request_bytes))?) };
            loop {
                let next = queue.lock().map_err(|_| io::Error::other("a reader has panicked"))?.next();
                let Some((file, range, target)) = next else { return Ok(()) };
                match &mut buffer {
                    Some(buffer) => read_up_to_end(file, range.start, &mut buffer[..length(&range)])?,
                    None => read_up_to_end(file, range.start, target)?,
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().map_err(|_| io::Error::other("a reader has panicked"))?
            })
        })
    }

    /// The file, and what is asked of it.
    fn requests(&self, file: &FileRanges) -> io::Result<(File, Vec<Range<u64>>)> {
        let flags = if self.direct { libc::O_DIRECT } else { 0 };
        let opened = File::options().read(true).custom_flags(flags).open(&file.path)?;
        // Reads past the page cache are of whole blocks.
        let unit = if self.direct { BLOCK_BYTES } else { 1 };
        let mut spans: Vec<Range<u64>> = Vec::new();
        for range in &file.ranges {
            let (start, end) = (range.start / unit * unit, range.end.next_multiple_of(unit));
            match spans.last_mut() {
                Some(last) if start <= last.end + BRIDGED_BYTES => last.end = end,
                _ => spans.push(start..end),
            }
        }
        let requests = spans.into_iter().flat_map(|Range { start, end }| {
            let starts = (start..end).step_by(to_usize(self.request_bytes));
            starts.map(move |at| at..end.min(at + self.request_bytes))
        });
        Ok((opened, requests.collect()))
    }
}

/// Populates the pages of what is wanted in the mappings, and gives its bytes and the mappings.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn populated(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, Vec<Mmap>)> {
    let (done, maps) = with_parts(checkpoint, wanted, |maps, parts| {
        let windows = windows(maps, parts)?;
        windows.par_iter().map(Window::populate).sum::<io::Result<u64>>()
    })?;
    Ok((done?, maps))
}

/// Populates, and copies into huge pages that were never used before.
///
/// # Errors
/// When the checkpoint cannot be read.
pub fn copied(checkpoint: &Path, wanted: &Wanted) -> Result<(u64, MmapMut)> {
    let (done, _) = with_parts(checkpoint, wanted, |maps, parts| {
        let windows = windows(maps, parts)?;
        let mut memory = huge(windows.iter().map(Window::len).sum())?;
        let mut rest = &mut memory[..];
        let targets: Vec<&mut [u8]> = windows
            .iter()
            .map(|window| {
                let (target, others) = std::mem::take(&mut rest).split_at_mut(window.len());
                rest = others;
                target
            })
            .collect();
        let bytes = windows.par_iter().zip(targets).map(|(window, target)| window.copy_to(target));
        let bytes = bytes.sum::<io::Result<u64>>()?;
        io::Result::Ok((bytes, memory))
    })?;
    Ok(done?)
}

/// Pieces of one mapping that are worked on together.
struct Window<'a> {
    map: &'a Mmap,
    pieces: Vec<&'a [u8]>,
}

impl Window<'_> {
    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Populates from the first piece to the last, and what is between them.
    fn populate(&self) -> io::Result<u64> {
        let end = |piece: &&[u8]| piece.as_ptr().addr() + piece.len();
        let (first, last) =
            (self.pieces.first().map_or(0, |piece| piece.as_ptr().addr()), self.pieces.last().map_or(0, end));
        self.map.advise_range(Advice::PopulateRead, first - self.map.as_ptr().addr(), last - first)?;
        Ok(self.len() as u64)
    }

    fn copy_to(&self, mut target: &mut [u8]) -> io::Result<u64> {
        let bytes = self.populate()?;
        for piece in &self.pieces {
            let (head, rest) = target.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            target = rest;
        }
        Ok(bytes)
    }
}

/// What is wanted, in windows of [`WINDOW_BYTES`].
fn windows<'a>(maps: &'a [Mmap], parts: &'a [crate::baseline::Part<'a>]) -> io::Result<Vec<Window<'a>>> {
    let mut windows: Vec<Window<'a>> = Vec::new();
    let mut room = 0;
    for part in parts {
        let pieces = part.pieces().map_err(io::Error::other)?;
        for piece in pieces.into_iter().flat_map(|piece| piece.chunks(WINDOW_BYTES)) {
            let inside = |map: &&Mmap| map.as_ptr_range().contains(&piece.as_ptr());
            match windows.last_mut() {
                Some(window) if piece.len() <= room && inside(&window.map) => window.pieces.push(piece),
                _ => {
                    let map = maps.iter().find(inside).ok_or(io::ErrorKind::NotFound)?;
                    windows.push(Window { map, pieces: vec![piece] });
                    room = WINDOW_BYTES;
                }
            }
            room -= piece.len();
        }
    }
    Ok(windows)
}

fn read_up_to_end(file: &File, mut offset: u64, mut target: &mut [u8]) -> io::Result<()> {
    while !target.is_empty() {
        let read = file.read_at(target, offset)?;
        if read == 0 {
            break;
        }
        offset += read as u64;
        target = &mut target[read..];
    }
    Ok(())
}

fn length(range: &Range<u64>) -> usize {
    to_usize(range.end - range.start)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
