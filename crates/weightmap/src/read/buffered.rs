//! Reading by position, into memory of the tensors' own.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;

use rayon::prelude::*;

use super::{REQUEST_BYTES, Reading, Task};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::extent::Region;
use crate::file::read_exact_at;
use crate::shard::Shard;
use crate::sys;
use crate::tensor::Tensor;

/// The longest run of small neighbours that is read at once and then copied apart.
pub(super) const COALESCED_BYTES: u64 = 1 << 20;

thread_local! {
    /// What coalesced neighbours are read into; it ends with the worker's thread, and so with the load.
    static SCRATCH: RefCell<Buffer> = RefCell::default();
}

pub(super) fn read(task: &Task, reading: &Reading<'_>) -> Result<Vec<(usize, Tensor)>> {
    let Task { shard, extent, .. } = task;
    let file = reading.pool.file(shard)?;
    sys::set_read_ahead(&file, !task.density.is_thin());
    match extent.regions.as_slice() {
        [region] => Ok(vec![alone(shard, &file, region, reading)?]),
        regions => coalesced(shard, &file, &extent.range, regions, reading),
    }
}

/// Reads one tensor straight into its memory.
fn alone(shard: &Shard, file: &File, region: &Region, reading: &Reading<'_>) -> Result<(usize, Tensor)> {
    let mut buffer = allocate(shard, &region.range, reading)?;
    let start = region.range.start;
    let bytes = buffer.as_mut_slice();
    if bytes.len() <= REQUEST_BYTES {
        request(shard, file, bytes, start, reading)?;
    } else {
        bytes.par_chunks_mut(REQUEST_BYTES).enumerate().try_for_each(|(number, piece)| {
            request(shard, file, piece, start + (number * REQUEST_BYTES) as u64, reading)
        })?;
    }
    Ok((region.item, Tensor::owned(reading.info(region.item), buffer)))
}

/// Reads neighbours with the gaps between them at once, and copies each into memory of its own, where it is
/// aligned.
fn coalesced(
    shard: &Shard,
    file: &File,
    range: &Range<u64>,
    regions: &[Region],
    reading: &Reading<'_>,
) -> Result<Vec<(usize, Tensor)>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let bytes = distance(range.start, range.end);
        if scratch.as_slice().len() < bytes {
            let before = std::mem::replace(scratch, allocate(shard, range, reading)?);
            reading.meter.let_go(before.as_slice().len() as u64);
        }
        let run = &mut scratch.as_mut_slice()[..bytes];
        request(shard, file, run, range.start, reading)?;
        let copies = regions.iter().map(|region| {
            let mut buffer = allocate(shard, &region.range, reading)?;
            // A region lies within its extent.
            let place = distance(range.start, region.range.start);
            let length = buffer.as_slice().len();
            buffer.as_mut_slice().copy_from_slice(&run[place..place + length]);
            reading.meter.copied(length as u64);
            Ok((region.item, Tensor::owned(reading.info(region.item), buffer)))
        });
        copies.collect()
    })
}

/// The bytes between two offsets. Where they do not fit the address space they cannot be allocated either.
fn distance(start: u64, end: u64) -> usize {
    usize::try_from(end - start).unwrap_or(usize::MAX)
}

fn allocate(shard: &Shard, range: &Range<u64>, reading: &Reading<'_>) -> Result<Buffer> {
    let bytes = range.end - range.start;
    let buffer = Buffer::zeroed(bytes).map_err(|error| {
        let action = format!("allocate {bytes} bytes for those at offset {}", range.start);
        Error::io(&shard.path, action, error)
    })?;
    reading.meter.hold(bytes);
    Ok(buffer)
}

fn request(shard: &Shard, file: &File, buffer: &mut [u8], start: u64, reading: &Reading<'_>) -> Result<()> {
    let bytes = buffer.len() as u64;
    reading.meter.request(bytes, || {
        read_exact_at(file, buffer, start)
            .map_err(|error| reading.failure(shard, format!("read {bytes} bytes at offset {start}"), error))
    })
}
