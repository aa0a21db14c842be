//! Reading past the page cache.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapMut;

use crate::error::{Error, Result};
use crate::file::{read_at, read_exact_at};
use crate::identity::FileIdentity;
use crate::pool::Pool;
use crate::shard::{Shard, open_same};
use crate::sys;
use crate::sys::direct::{Alignment, set_waiting};
use crate::sys::uring::{Ring, Slots};

/// How many reads of one worker are in flight at once, where there is a ring.
const IN_FLIGHT: usize = 8;

/// A file that is read past the page cache.
pub(crate) struct Direct {
    file: Arc<File>,
    path: PathBuf,
    expected: FileIdentity,
    /// What places in the file and in memory are multiples of.
    alignment: Alignment,
}

/// Memory of one worker that direct reads go through, since tensors seldom lie where a device can write to.
pub(crate) enum Bounce {
    /// One read at a time.
    Whole(MmapMut),
    /// Many, by a ring.
    Slots(Box<Slots>),
}

/// Blocks of a file that are read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    offset: u64,
    bytes: usize,
    /// Which of its bytes are asked for; not empty.
    wanted: Range<usize>,
}

impl Direct {
    /// A shard's file, which must be the one that was checked.
    ///
    /// # Errors
    /// [`Error::ShardChanged`] when it is not; [`Error::Io`] where its file system or the system has no reads
    /// past the page cache.
    pub(crate) fn of(shard: &Shard, pool: &Pool) -> Result<Self> {
        Self::new(pool.direct_file(shard)?, &shard.path, &shard.checked.identity)
    }

    fn new(file: Arc<File>, path: &Path, expected: &FileIdentity) -> Result<Self> {
        let prepared = set_waiting(&file).and_then(|()| alignment(&file));
        let alignment = prepared.map_err(|error| Error::io(path, "prepare for direct reads", error))?;
        Ok(Self { file, path: path.to_owned(), expected: expected.clone(), alignment })
    }

    /// Whether a shard's file can be read past the page cache.
    pub(crate) fn is_possible(shard: &Shard, pool: &Pool) -> bool {
        Self::of(shard, pool).is_ok()
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The length of the file, as it was checked.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.expected.bytes
    }

    /// The size in bytes of the blocks that are read as a whole, a power of two.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.alignment.offset
    }

    /// Reads the blocks that hold a range, and hands every byte of the range to the sink, once: pieces with
    /// their offsets in the file, in any order.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends within the range.
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        bounce: &mut Bounce,
        sink: &mut dyn FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        let pieces = pieces(range, self.block_bytes(), bounce.piece_bytes())?;
        match bounce {
            Bounce::Whole(memory) => self.read_in_turn(pieces, memory, sink),
            Bounce::Slots(slots) => self.read_at_once(pieces, slots, sink),
        }
    }

    /// Reads the whole blocks within a part of the file straight into `target`, which stands for the part from
    /// `offset` on, and says where in it they are: nowhere if there are none, or if the address does not suit.
    /// The rest is left to [`Direct::read`].
    ///
    /// On kernels that only refer to the memory of such reads and do not pin it (before 6.5), a fork amid the
    /// call can lose bytes, where another thread writes to the same pages.
    ///
    /// # Errors
    /// As of [`Direct::read`].
    pub(crate) fn read_in_place(&self, offset: u64, target: &mut [u8]) -> io::Result<Range<usize>> {
        let end = offset.saturating_add(target.len() as u64);
        let first = offset.checked_next_multiple_of(self.block_bytes()).unwrap_or(end).min(end);
        let bytes = distance(first, end) - remainder(end - first, self.block_bytes());
        let place = distance(offset, first);
        let blocks = target.get_mut(place..place + bytes).unwrap_or_default();
        if remainder(blocks.as_ptr().addr() as u64, self.alignment.memory) != 0 {
            return Ok(0..0);
        }
        self.fill(&Piece { offset: first, bytes, wanted: 0..bytes }, blocks)?;
        Ok(place..place + bytes)
    }

    fn read_in_turn(
        &self,
        mut pieces: impl Iterator<Item = Piece>,
        memory: &mut [u8],
        sink: &mut dyn FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        pieces.try_for_each(|piece| {
            self.fill(&piece, memory)?;
            piece.hand_over(memory, sink);
            Ok(())
        })
    }

    fn read_at_once(
        &self,
        mut pieces: impl Iterator<Item = Piece>,
        slots: &mut Slots,
        sink: &mut dyn FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        // A read that failed may have left some in flight.
        slots.drain()?;
        let mut reading: Vec<Piece> = pieces.by_ref().take(slots.len()).collect();
        for (slot, piece) in reading.iter().enumerate() {
            slots.start(slot, &self.file, piece.offset, piece.bytes)?;
        }
        while let Some((slot, outcome)) = slots.wait()? {
            let piece = &mut reading[slot];
            if !outcome.is_ok_and(|count| count >= piece.wanted.end) {
                // What a ring could not read, or not all of it, is read without one, or its failure told.
                self.fill(piece, slots.idle(slot))?;
            }
            piece.hand_over(slots.idle(slot), sink);
            if let Some(next) = pieces.next() {
                slots.start(slot, &self.file, next.offset, next.bytes)?;
                *piece = next;
            }
        }
        Ok(())
    }

    /// Reads a piece to the start of `memory`, at least up to the end of what is wanted of it.
    fn fill(&self, piece: &Piece, memory: &mut [u8]) -> io::Result<()> {
        let memory = memory.get_mut(..piece.bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let mut filled = 0;
        while filled < piece.wanted.end {
            // A short read can end anywhere; the next one has to begin at a block.
            let start = filled - remainder(filled as u64, self.block_bytes());
            match read_at(&self.file, &mut memory[start..], piece.offset + start as u64) {
                Ok(count) if start + count > filled => filled = start + count,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some file systems refuse their last block, or ask for more than they tell.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    let file = open_same(&self.path, &self.expected).map_err(io::Error::other)?;
                    return read_exact_at(&file, &mut memory[..piece.wanted.end], piece.offset);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Bounce {
    /// Memory of so many bytes, rounded up to whole pages for each read in flight.
    pub(crate) fn new(bytes: usize, ring: Option<Ring>) -> io::Result<Self> {
        let page = usize::try_from(sys::page_bytes()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let slots = if ring.is_some() { IN_FLIGHT } else { 1 };
        let rounded = bytes.max(1).checked_next_multiple_of(page * slots);
        let memory = MmapMut::map_anon(rounded.ok_or(io::ErrorKind::OutOfMemory)?)?;
        #[cfg(target_os = "linux")]
        {
            // It is a request, and costs little where it is not heard.
            let _ = memory.advise(memmap2::Advice::HugePage);
            // A fork amid a direct read could leave the bytes in the child's memory alone, as open(2) tells. Where all advice
            // is refused, this is in no more danger than the tensors' own memory.
            let _ = memory.advise(memmap2::Advice::DontFork);
        }
        Ok(match ring {
            Some(ring) => Self::Slots(Box::new(Slots::new(ring, memory, slots))),
            None => Self::Whole(memory),
        })
    }

    /// The most bytes of one read.
    fn piece_bytes(&self) -> usize {
        match self {
            Self::Whole(memory) => memory.len(),
            Self::Slots(slots) => slots.slot_bytes(),
        }
    }
}

impl Piece {
    fn hand_over(&self, memory: &[u8], sink: &mut dyn FnMut(u64, &[u8])) {
        let wanted = memory.get(self.wanted.clone()).unwrap_or_default();
        sink(self.offset + self.wanted.start as u64, wanted);
    }
}

/// Cuts the blocks that hold a range into pieces of at most `most` bytes.
fn pieces(range: Range<u64>, block: u64, most: usize) -> io::Result<impl Iterator<Item = Piece>> {
    let end = range.end.checked_next_multiple_of(block).ok_or(io::ErrorKind::UnexpectedEof)?;
    let step = (most - remainder(most as u64, block)) as u64;
    if step == 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("blocks of {block} bytes")));
    }
    // An empty range has no blocks, wherever it lies.
    let first = if range.is_empty() { range.end } else { range.start - range.start % block };
    let cut = move |offset: u64| {
        let stop = end.min(offset.saturating_add(step));
        let wanted = distance(offset, range.start.max(offset))..distance(offset, range.end.min(stop));
        Piece { offset, bytes: distance(offset, stop), wanted }
    };
    let next = move |&offset: &u64| offset.checked_add(step);
    Ok(std::iter::successors(Some(first), next).take_while(move |&offset| offset < range.end).map(cut))
}

/// The bytes between two offsets of a piece, which fits memory.
fn distance(start: u64, end: u64) -> usize {
    usize::try_from(end - start).unwrap_or(usize::MAX)
}

/// What is left over by whole blocks; it is less than the value, and so fits memory if that does.
fn remainder(value: u64, block: u64) -> usize {
    usize::try_from(value % block).unwrap_or(usize::MAX)
}

/// The alignment that reads of a file keep, if memory can have what it asks for.
fn alignment(file: &File) -> io::Result<Alignment> {
    let alignment = Alignment::of(file)?;
    if alignment.memory > sys::page_bytes() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Whole blocks of the file are to be whole places in memory too.
    Ok(Alignment { offset: alignment.offset.max(alignment.memory), ..alignment })
}
