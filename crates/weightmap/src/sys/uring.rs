//! Reads in flight by io_uring.
//!
//! A ring belongs to one worker of one load and ends with it; a child that a fork makes meanwhile gets neither
//! the ring nor its memory.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use io_uring::{IoUring, Probe, opcode, types};
use memmap2::{MmapMut, MmapRaw};

use crate::process::probed;

/// The most reads that are in flight at once.
const READS: u32 = 32;

/// A ring that works.
pub(crate) struct Ring(IoUring);

/// Memory in slots of one size, each of which a read of a ring can be in flight into.
pub(crate) struct Slots {
    ring: IoUring,
    /// Given back only when nothing is in flight into it.
    memory: ManuallyDrop<MmapRaw>,
    slot_bytes: usize,
    /// Which slots the kernel writes to.
    in_flight: Vec<bool>,
}

impl Ring {
    /// A ring, if the process may have one and reads by it work: containers and hardened kernels often forbid
    /// it, and old ones have none.
    pub(crate) fn probe() -> Option<Self> {
        /// What the first one that was made has shown.
        static WORKS: OnceLock<bool> = OnceLock::new();
        if WORKS.get() == Some(&false) {
            return None;
        }
        match IoUring::builder().dontfork().build(READS) {
            Ok(ring) if probed(&WORKS, || works().unwrap_or(false)) => Some(Self(ring)),
            Ok(_) => None,
            Err(error) => {
                // A process that has run out of descriptors or memory can have a ring later.
                if let Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL) = error.raw_os_error() {
                    let _ = WORKS.set(false);
                }
                None
            }
        }
    }
}

/// Whether rings know the operation, and a read by one gives the bytes that are there.
fn works() -> io::Result<bool> {
    const SENT: &[u8] = b"ring";
    let ring = IoUring::builder().dontfork().build(READS)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) {
        return Ok(false);
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(SENT)?;
    let mut slots = Slots::new(Ring(ring), MmapMut::map_anon(SENT.len())?, 1);
    slots.start(0, &File::from(OwnedFd::from(reader)), 0, SENT.len())?;
    let count = slots.wait()?.map(|(_, outcome)| outcome).transpose()?;
    Ok(count == Some(SENT.len()) && slots.idle(0) == SENT)
}

impl Slots {
    /// Cuts memory into slots of one size.
    pub(crate) fn new(Ring(ring): Ring, memory: MmapMut, slots: usize) -> Self {
        let slot_bytes = memory.len() / slots.max(1);
        let memory = ManuallyDrop::new(MmapRaw::from(memory));
        Self { ring, memory, slot_bytes, in_flight: vec![false; slots] }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Begins to read `bytes` of a file from `offset` on into a slot that is idle.
    pub(crate) fn start(&mut self, slot: usize, file: &File, offset: u64, bytes: usize) -> io::Result<()> {
        let Some(target) = self.idle(slot).get_mut(..bytes) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let length = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), target.as_mut_ptr(), length)
            .offset(offset)
            .build()
            .user_data(slot as u64);
        // SAFETY: the target is memory of `self` that nobody has a reference to until the read has ended:
        // `idle` gives none to a slot in flight, and the memory is given back only when no slot is. That
        // holds from here on whether the kernel takes the entry or not.
        unsafe { self.ring.submission().push(&read) }.map_err(|_| io::ErrorKind::WouldBlock)?;
        self.in_flight[slot] = true;
        // The kernel knows the file when it has taken the entry, and until then only its number.
        while !self.ring.submission().is_empty() {
            self.enter(0)?;
        }
        Ok(())
    }

    /// Waits for a read to end: its slot, which is idle then, and how many bytes it gave; `None` when none is
    /// in flight.
    pub(crate) fn wait(&mut self) -> io::Result<Option<(usize, io::Result<usize>)>> {
        while self.in_flight.contains(&true) {
            let Some(ended) = self.ring.completion().next() else {
                self.enter(1)?;
                continue;
            };
            let slot = usize::try_from(ended.user_data()).unwrap_or(usize::MAX);
            if let Some(in_flight) = self.in_flight.get_mut(slot) {
                *in_flight = false;
                let outcome = usize::try_from(ended.result());
                let outcome = outcome.map_err(|_| io::Error::from_raw_os_error(-ended.result()));
                return Ok(Some((slot, outcome)));
            }
        }
        Ok(None)
    }

    /// Waits for all reads to end.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        while self.wait()?.is_some() {}
        Ok(())
    }

    /// The memory of a slot; none while a read is in flight into it.
    pub(crate) fn idle(&mut self, slot: usize) -> &mut [u8] {
        if self.in_flight.get(slot) != Some(&false) {
            return &mut [];
        }
        let start = self.memory.as_mut_ptr().wrapping_add(slot * self.slot_bytes);
        // SAFETY: there are as many slots as `in_flight` has places, all within the memory, which is mapped
        // for reading and writing and zeroed at first; the kernel does not write to this one, and the
        // reference borrows `self`, so that no other one exists and none is started into it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start, self.slot_bytes) }
    }

    /// Hands entries over to the kernel, and waits for so many reads to end.
    fn enter(&self, ended: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(ended) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                // The kernel lacks memory for the moment.
                Some(libc::EAGAIN | libc::EBUSY) => {
                    std::thread::yield_now();
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Where the kernel does not tell that it has ended its reads, the memory stays.
        if self.drain().is_ok() {
            // SAFETY: it is dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A pipe as a file: reads of it wait until something is written.
    fn pipe() -> (File, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        (File::from(OwnedFd::from(reader)), writer)
    }

    /// Slots, where a ring works; that it does not is shown otherwise.
    fn slots(count: usize) -> Option<Slots> {
        let Some(ring) = Ring::probe() else {
            assert!(!works().unwrap_or(false));
            return None;
        };
        Some(Slots::new(ring, MmapMut::map_anon(4096 * count).unwrap(), count))
    }

    #[test]
    fn a_slot_in_flight_is_nobodys_until_its_read_has_ended() {
        let Some(mut slots) = slots(2) else { return };
        let (file, mut writer) = pipe();
        slots.start(1, &file, 0, 4096).unwrap();
        assert!(slots.idle(1).is_empty());
        assert_eq!(slots.idle(0).len(), 4096);
        assert_eq!(slots.start(1, &file, 0, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(slots.start(0, &file, 0, 4097).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        writer.write_all(b"bytes").unwrap();
        let (slot, outcome) = slots.wait().unwrap().unwrap();
        assert_eq!((slot, outcome.unwrap()), (1, 5));
        assert_eq!(&slots.idle(1)[..6], b"bytes\0");
        assert!(slots.wait().unwrap().is_none());
    }

    #[test]
    fn a_read_that_fails_tells_why() {
        let Some(mut slots) = slots(1) else { return };
        let directory = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        slots.start(0, &directory, 0, 10).unwrap();
        let (_, outcome) = slots.wait().unwrap().unwrap();
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn memory_is_given_back_only_when_its_reads_have_ended() {
        let Some(mut slots) = slots(1) else { return };
        let (file, mut writer) = pipe();
        slots.start(0, &file, 0, 4096).unwrap();
        let dropped = std::thread::spawn(move || drop(slots));
        writer.write_all(b"late").unwrap();
        dropped.join().unwrap();
        // The read has taken the bytes: it had not been given up.
        drop(writer);
        assert_eq!((&file).read(&mut [0; 4]).unwrap(), 0);
    }
}
