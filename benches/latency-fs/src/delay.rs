//! Reads that are answered after a set time, however many are in flight.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData};

/// The threads that answer. All wait for the same time, so the first request is due first, and a few threads are enough
/// for any number in flight.
const THREADS: usize = 8;

/// What was served. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(Arc<[AtomicU64; 2]>);

/// Reads that wait for their time.
#[derive(Debug)]
pub(crate) struct Delay {
    time: Duration,
    seconds_per_byte: f64,
    /// When the network has carried what was asked for so far.
    free_at: Mutex<Instant>,
    queue: Sender<Read>,
}

/// A read that waits.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) reply: ReplyData,
    due: Instant,
}

impl Counts {
    fn add(&self, bytes: usize) {
        let [requests, all_bytes] = &*self.0;
        requests.fetch_add(1, Ordering::Relaxed);
        all_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [requests, bytes] = [0, 1].map(|place: usize| self.0[place].load(Ordering::Relaxed));
        write!(f, r#"{{"requests":{requests},"bytes":{bytes}}}"#)
    }
}

impl Delay {
    /// Starts the threads, which end when this is dropped and nothing waits any more.
    pub(crate) fn new(time: Duration, bytes_per_second: Option<u32>, counts: &Counts) -> Self {
        let (queue, reads) = channel();
        let reads = Arc::new(Mutex::new(reads));
        for _ in 0..THREADS {
            let (reads, counts) = (Arc::clone(&reads), counts.clone());
            thread::spawn(move || answer(&reads, &counts));
        }
        let seconds_per_byte = bytes_per_second.map_or(0.0, |bytes| 1.0 / f64::from(bytes));
        Self { time, seconds_per_byte, free_at: Mutex::new(Instant::now()), queue }
    }

    /// Answers a read when its time has come.
    pub(crate) fn answer(&self, file: &Arc<File>, offset: u64, bytes: u32, reply: ReplyData) {
        let due = self.carried(bytes) + self.time;
        let read = Read { file: Arc::clone(file), offset, bytes, reply, due };
        if let Err(unsent) = self.queue.send(read) {
            unsent.0.reply.error(Errno::EIO);
        }
    }

    /// When the network will have carried these bytes, one request after another.
    fn carried(&self, bytes: u32) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::from_secs_f64(self.seconds_per_byte * f64::from(bytes));
        *free_at = Instant::now().max(*free_at) + time;
        *free_at
    }
}

fn answer(reads: &Mutex<Receiver<Read>>, counts: &Counts) {
    let mut buffer = Vec::new();
    loop {
        let next = reads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Read { file, offset, bytes, reply, due }) = next else { return };
        thread::sleep(due.saturating_duration_since(Instant::now()));
        buffer.resize(bytes as usize, 0);
        match read_up_to_end(&file, offset, &mut buffer) {
            Ok(read) => {
                counts.add(read);
                reply.data(&buffer[..read]);
            }
            Err(error) => reply.error(error.into()),
        }
    }
}

/// How much of the buffer was filled: all, but at the end of the file.
fn read_up_to_end(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
