//! Memory of our own for tensors' bytes.
#![expect(
    unsafe_code,
    reason = "workers fill disjoint pieces of one allocation at once; the proof stands with `Piece`"
)]

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::allocation::try_zeroed_slice_box;
use memmap2::MmapMut;

/// What every tensor's address is a multiple of: a cache line, which suits every element type.
pub(crate) const ALIGNMENT: usize = 64;

/// The size of a huge page, on the architectures that have just one that counts.
const HUGE_BYTES: usize = 2 << 20;

/// How many bytes of a huge page may lie behind the end of the memory.
const MOST_UNUSED_BYTES: usize = 128 << 10;

/// A number of bytes as one of memory; what no memory has is as much as any could have.
pub(crate) fn memory_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Zeroed memory, of huge pages where it is long enough and the system gives them.
///
/// A fresh page costs the kernel a fault and a clearing. By pages of 4 KiB that is several times what copying
/// the bytes costs; by huge pages it is little.
pub(crate) enum Memory {
    /// From the allocator: less than a huge page.
    Heap(Box<[Line]>),
    /// From the system: its first byte of use is that of a huge page.
    Mapped { map: MmapMut, start: usize },
}

/// Bytes that are allocated, and so aligned, together.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; ALIGNMENT]);

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Box::default())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.as_slice().len()).finish()
    }
}

impl Memory {
    /// At least so many bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the system gives no memory of this size.
    pub(crate) fn zeroed(bytes: u64) -> io::Result<Self> {
        let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes < isize::MAX as usize - HUGE_BYTES);
        let bytes = bytes.ok_or_else(refused)?;
        if bytes >= HUGE_BYTES
            && let Ok(memory) = Self::mapped(bytes)
        {
            return Ok(memory);
        }
        // Also where the process may have no more mappings.
        try_zeroed_slice_box(bytes.div_ceil(ALIGNMENT)).map(Self::Heap).map_err(|()| refused())
    }

    /// At the start of a huge page: there the system puts mappings of whole ones of itself (Linux 6.7), or there has
    /// to be room to begin at one. What is not touched takes up no memory.
    fn mapped(bytes: usize) -> io::Result<Self> {
        let whole = bytes.next_multiple_of(HUGE_BYTES);
        let mut map = MmapMut::map_anon(whole)?;
        if map.as_ptr().addr() % HUGE_BYTES != 0 {
            map = MmapMut::map_anon(whole + HUGE_BYTES)?;
        }
        let start = map.as_ptr().addr().next_multiple_of(HUGE_BYTES) - map.as_ptr().addr();
        #[cfg(target_os = "linux")]
        {
            // These are requests; without them it is slower, that is all. Where much of the last huge page would be
            // wasted, small ones are better, and for those one call is cheaper than a fault each.
            use memmap2::Advice::{HugePage, NoHugePage, PopulateWrite};
            let _ = map.advise_range(HugePage, start, whole);
            let (rest, unused) = (bytes % HUGE_BYTES, whole - bytes);
            if unused > MOST_UNUSED_BYTES {
                let last = start + bytes - rest;
                let _ = map.advise_range(NoHugePage, last, HUGE_BYTES);
                let _ = map.advise_range(PopulateWrite, last, rest);
            }
        }
        Ok(Self::Mapped { start, map })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Heap(lines) => bytemuck::cast_slice(lines),
            Self::Mapped { map, start } => map.get(*start..).unwrap_or_default(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(lines) => bytemuck::cast_slice_mut(lines),
            Self::Mapped { map, start } => map.get_mut(*start..).unwrap_or_default(),
        }
    }
}

/// Memory that is being filled by pieces. Nobody can look at it before it is whole again.
pub(crate) struct Cut(Arc<Owner>);

/// Keeps the memory, and never touches it while there are pieces.
struct Owner {
    /// The first byte.
    start: NonNull<u8>,
    memory: Memory,
}

// SAFETY: `memory` may be sent and shared by its own right. `start` is only used by pieces, of which no two
// have a byte in common, and none of which can be there when `memory` is looked at.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

/// The right to write a range of memory, which nobody else has.
pub(crate) struct Piece {
    owner: Arc<Owner>,
    range: Range<usize>,
}

impl Cut {
    /// Cuts pieces out of memory, given in rising order; what overlaps the one before it or goes beyond the end is cut
    /// short. What is in no piece stays as it is.
    pub(crate) fn new(
        mut memory: Memory,
        ranges: impl IntoIterator<Item = Range<usize>>,
    ) -> (Self, Vec<Piece>) {
        let end = memory.as_mut_slice().len();
        let mut owner = Arc::new(Owner { start: NonNull::dangling(), memory });
        if let Some(owner) = Arc::get_mut(&mut owner) {
            // Taken where the memory will stay: a box that is moved lays claim to its bytes anew.
            owner.start = NonNull::from(owner.memory.as_mut_slice()).cast();
        }
        let mut at = 0;
        let pieces = ranges.into_iter().map(|Range { start, end: wanted_end }| {
            let start = start.max(at).min(end);
            let range = start..wanted_end.min(end).max(start);
            at = range.end;
            Piece { owner: Arc::clone(&owner), range }
        });
        let pieces = pieces.collect();
        (Self(owner), pieces)
    }

    /// The memory, once every piece has been dropped.
    pub(crate) fn join(self) -> Option<Memory> {
        Some(Arc::into_inner(self.0)?.memory)
    }
}

impl Piece {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range lies in the memory, which the owner keeps alive and in place (what a box or a
        // mapping points to does not move with it). No other piece has a byte of it, pieces cannot be cloned,
        // this one is borrowed for as long as the slice lives, and the owner gives the memory out only when
        // it holds the last reference, and so after every piece is gone.
        unsafe {
            let start = self.owner.start.add(self.range.start);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.range.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn memory_has_the_bytes_asked_for_zeroed_at_an_aligned_address() {
        for bytes in [0, 1, 63, 64, 65, 4097, HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 1] {
            let mut memory = Memory::zeroed(bytes as u64).unwrap();
            assert!(memory.as_slice().len() >= bytes);
            assert!(memory.as_slice().iter().all(|&byte| byte == 0));
            memory.as_mut_slice().fill(7);
            assert!(memory.as_slice().iter().all(|&byte| byte == 7));
            let alignment = if bytes < HUGE_BYTES { ALIGNMENT } else { HUGE_BYTES };
            assert_eq!(memory.as_slice().as_ptr().addr() % alignment, 0);
        }
    }

    /// In a process of its own, since others allocate and free meanwhile in this one.
    #[cfg(target_os = "linux")]
    #[test]
    fn memory_takes_up_no_more_than_was_asked_for() {
        let program = std::env::current_exe().unwrap();
        let test = "memory::tests::what_fifty_memories_take_up";
        let output =
            std::process::Command::new(program).args([test, "--exact", "--ignored"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn what_fifty_memories_take_up() {
        const COUNT: u64 = 50;
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * crate::sys::page_bytes()
        };
        let bytes = HUGE_BYTES as u64 + 64_000;
        let before = resident();
        let memories: Vec<_> = (0..COUNT).map(|_| Memory::zeroed(bytes).unwrap()).collect();
        let filled = memories.into_iter().map(|mut memory| {
            memory.as_mut_slice()[..usize::try_from(bytes).unwrap()].fill(1);
            memory
        });
        let filled: Vec<_> = filled.collect();
        let taken = resident() - before;
        // A huge page too many for each would be twice as much.
        assert!(taken < COUNT * bytes * 3 / 2, "{taken}");
        drop(filled);
    }

    #[test]
    fn memory_that_no_system_has_is_an_error() {
        for bytes in [u64::MAX, u64::MAX / 2, isize::MAX as u64] {
            assert_eq!(Memory::zeroed(bytes).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn pieces_are_filled_by_several_threads_and_joined_when_all_are_done() {
        for bytes in [100, 3 * HUGE_BYTES] {
            let memory = Memory::zeroed(bytes as u64).unwrap();
            let (cut, pieces) = Cut::new(
                memory,
                [0..bytes / 4, bytes / 4..bytes / 4 + bytes / 2, bytes / 4 + bytes / 2..bytes],
            );
            thread::scope(|scope| {
                for (piece, fill) in pieces.into_iter().zip(1..) {
                    scope.spawn(move || {
                        let mut piece = piece;
                        piece.as_mut_slice().fill(fill);
                    });
                }
            });
            let memory = cut.join().unwrap();
            let (first, rest) = memory.as_slice()[..bytes].split_at(bytes / 4);
            let (second, third) = rest.split_at(bytes / 2);
            for (part, fill) in [first, second, third].into_iter().zip(1..) {
                assert!(part.iter().all(|&byte| byte == fill));
            }
        }
    }

    #[test]
    fn memory_is_not_given_out_while_a_piece_is_left() {
        let (cut, pieces) = Cut::new(Memory::zeroed(10).unwrap(), [0..5, 5..10]);
        assert!(cut.join().is_none());
        drop(pieces);
    }

    #[test]
    fn ranges_that_overlap_or_go_beyond_the_end_are_cut_short() {
        let (_cut, mut pieces) = Cut::new(Memory::zeroed(64).unwrap(), [4..40, 30..60, 62..90, 100..101]);
        let lengths: Vec<_> = pieces.iter_mut().map(|piece| piece.as_mut_slice().len()).collect();
        assert_eq!(lengths, [36, 20, 2, 0]);
    }

    #[test]
    fn what_is_in_no_piece_stays_zero() {
        let (cut, mut pieces) = Cut::new(Memory::zeroed(64).unwrap(), [1..2, 3..4]);
        pieces.iter_mut().for_each(|piece| piece.as_mut_slice().fill(7));
        drop(pieces);
        assert_eq!(cut.join().unwrap().as_slice()[..5], [0, 7, 0, 7, 0]);
    }
}
