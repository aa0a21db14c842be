//! Where a tensor's bytes come from: the ways of reading, and the choice between them.

mod buffered;
mod mapped;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::extent::{Extent, Merge, pages};
use crate::meter::Meter;
use crate::mode::ReadMode;
use crate::pool::Pool;
use crate::shard::Shard;
use crate::sys::{self, FileSystem};
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;

/// How one shard is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Mapped,
    Buffered,
}

/// What is known of a shard's reads as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Density {
    /// Bytes of the file that are read.
    pub(crate) read_bytes: u64,
    pub(crate) file_bytes: u64,
    /// Whether all pages that are read were seen to be in the page cache.
    pub(crate) is_resident: bool,
}

impl Density {
    /// Whether read-ahead would fetch much that nobody asked for: it runs on past the end of what is read,
    /// and before its start, by up to 8 MiB on some machines. At most all of the file is fetched, so a
    /// thirty-second part is not much.
    fn is_thin(&self) -> bool {
        !self.is_resident && self.read_bytes < self.file_bytes - self.file_bytes / 32
    }
}

/// A run of neighbouring tensors of one shard, to be read by one worker or, if it is long, by several.
pub(crate) struct Task {
    pub(crate) shard: Arc<Shard>,
    pub(crate) way: Way,
    pub(crate) density: Density,
    /// Its regions' items are places in [`Reading::infos`].
    pub(crate) extent: Extent,
}

/// What is asked of the kernel at once, at most: a failure is told after this much, and another worker can
/// take the next.
const REQUEST_BYTES: usize = 8 << 20;

/// What all tasks of a load share.
pub(crate) struct Reading<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) infos: &'a [Arc<TensorInfo>],
    pub(crate) meter: &'a Meter,
}

impl Way {
    /// Chooses for a shard, and says why.
    pub(crate) fn choose(asked: ReadMode, shard: &Shard, file: &File) -> (Self, &'static str) {
        match asked {
            ReadMode::Mapped => (Self::Mapped, "asked for"),
            ReadMode::Buffered => (Self::Buffered, "asked for"),
            ReadMode::Auto => Self::auto(shard.map().is_ok(), sys::file_system(file)),
        }
    }

    /// The rule of [`ReadMode::Auto`].
    fn auto(can_be_mapped: bool, file_system: FileSystem) -> (Self, &'static str) {
        match file_system {
            _ if !can_be_mapped => (Self::Buffered, "the file cannot be mapped"),
            FileSystem::Remote(kind) => (Self::Buffered, kind),
            FileSystem::Local => (Self::Mapped, "local file system"),
        }
    }

    pub(crate) fn mode(self) -> ReadMode {
        match self {
            Self::Mapped => ReadMode::Mapped,
            Self::Buffered => ReadMode::Buffered,
        }
    }

    /// Which neighbours are worth one read.
    pub(crate) fn merge(self) -> Merge {
        // A gap in which no whole page lies costs nothing: the device gives whole pages.
        let max_gap = sys::page_bytes() - 1;
        match self {
            Self::Mapped => Merge { max_gap, max_bytes: mapped::EXTENT_BYTES },
            Self::Buffered => Merge { max_gap, max_bytes: buffered::COALESCED_BYTES },
        }
    }

    /// The range of the file that the kernel is asked for to read an extent.
    pub(crate) fn read_range(self, extent: &Extent, file_bytes: u64) -> Range<u64> {
        match self {
            Self::Mapped => pages(extent.range.clone(), sys::page_bytes(), file_bytes),
            Self::Buffered => extent.range.clone(),
        }
    }
}

impl Task {
    /// The bytes of its tensors.
    pub(crate) fn tensor_bytes(&self) -> u64 {
        self.extent.regions.iter().map(|region| region.range.end - region.range.start).sum()
    }

    /// How many requests it takes, about.
    pub(crate) fn requests(&self) -> usize {
        let Range { start, end } = self.extent.range;
        usize::try_from((end - start).div_ceil(REQUEST_BYTES as u64)).unwrap_or(usize::MAX)
    }

    /// Reads the tensors of the extent; each comes with its place in [`Reading::infos`].
    pub(crate) fn run(&self, reading: &Reading<'_>) -> Result<Vec<(usize, Tensor)>> {
        let tensors = match self.way {
            Way::Mapped => mapped::read(self, reading),
            Way::Buffered => buffered::read(self, reading),
        };
        tensors.map_err(|error| match self.extent.regions.first() {
            Some(region) => error.about(&reading.info(region.item).name),
            None => error,
        })
    }
}

impl Reading<'_> {
    fn info(&self, item: usize) -> Arc<TensorInfo> {
        Arc::clone(&self.infos[item])
    }

    /// Shows that a shard is still the file that was checked: bytes that changed while they were read are not
    /// handed out as if nothing had happened, nor the zeros that a mapping shows where its last page was cut.
    pub(crate) fn verify(&self, shard: &Shard) -> Result<()> {
        self.pool.verified_file(shard).map(drop)
    }

    /// Why a read failed: because the file has changed, if it has.
    fn failure(&self, shard: &Shard, action: String, source: std::io::Error) -> Error {
        match self.verify(shard) {
            Err(changed @ Error::ShardChanged { .. }) => changed,
            _ => Error::io(&shard.path, action, source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_maps_what_can_be_mapped_and_is_near() {
        let chosen = |can_be_mapped, file_system| {
            let (way, reason) = Way::auto(can_be_mapped, file_system);
            (way.mode(), reason)
        };
        assert_eq!(chosen(true, FileSystem::Local), (ReadMode::Mapped, "local file system"));
        assert_eq!(chosen(true, FileSystem::Remote("NFS")), (ReadMode::Buffered, "NFS"));
        assert_eq!(chosen(false, FileSystem::Local), (ReadMode::Buffered, "the file cannot be mapped"));
        assert_eq!(
            chosen(false, FileSystem::Remote("NFS")),
            (ReadMode::Buffered, "the file cannot be mapped")
        );
    }
}
