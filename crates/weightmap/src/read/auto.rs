//! The rules of [`ReadMode::Auto`].

use super::{Ahead, Way};
use crate::mode::ReadMode;
use crate::report::INTO_THE_CACHE;
use crate::storage::Storage;
use crate::sys;

/// What is known of a shard, and of the load that it is part of, before its bytes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) asked: ReadMode,
    pub(crate) storage: Storage,
    /// Whether the file could be mapped.
    pub(crate) can_be_mapped: bool,
    /// Whether the file system lets the page cache be passed by.
    pub(crate) can_be_direct: bool,
    pub(crate) purpose: Purpose,
    /// Whether the load holds all of its tensors until it is done.
    pub(crate) keeps_all: bool,
    /// Bytes of the file behind its header.
    pub(crate) data_bytes: u64,
    /// Those of them that are wanted.
    pub(crate) wanted_bytes: u64,
    /// Bytes of the pages that hold them and make up whole huge pages.
    pub(crate) huge_bytes: u64,
    /// Pages that hold them.
    pub(crate) pages: u64,
    /// Those of `pages` that are in the page cache; `None` where the system does not tell.
    pub(crate) resident: Option<u64>,
    /// Bytes that the whole load wants.
    pub(crate) load_bytes: u64,
    /// Bytes of memory that the process may still use.
    pub(crate) allowed_bytes: u64,
    pub(crate) drops_behind: bool,
    /// Whether other processes of the machine may want the same pages, so that they should be in the page cache.
    pub(crate) is_shared: bool,
}

/// What becomes of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They are tensors', wherever they lie.
    Tensors,
    /// They go to memory of the caller's, so that none can lie in a mapping.
    Lent,
    /// They are to be in the page cache, and that is all.
    Cache,
}

/// How a shard is read, and the rule that says so.
pub(crate) fn choose(facts: &Facts) -> Way {
    let (mode, reason) = match (facts.purpose, facts.asked) {
        (Purpose::Cache, _) => (ReadMode::Buffered, INTO_THE_CACHE),
        (_, ReadMode::Auto) => facts.rule(),
        (_, asked) => (asked, "asked for"),
    };
    let (mode, reason) = match mode {
        ReadMode::Direct if !facts.can_be_direct => {
            (ReadMode::Buffered, "the file system has no direct reads")
        }
        ReadMode::Mapped if facts.purpose == Purpose::Lent => {
            (ReadMode::Buffered, "the memory is the caller's")
        }
        mode => (mode, reason),
    };
    let gap_bytes = match mode {
        // A page that was not asked for would be in the page table.
        ReadMode::Mapped => sys::page_bytes() - 1,
        ReadMode::Direct => facts.storage.gap_bytes(),
        _ if facts.is_resident() => CACHED_GAP_BYTES,
        _ => facts.storage.gap_bytes(),
    };
    let Facts { purpose, drops_behind, .. } = *facts;
    let gap_share = facts.storage.gap_share();
    Way { mode, reason, purpose, ahead: facts.ahead(), gap_bytes, gap_share, drops_behind }
}

/// What can be copied out of the page cache in the time that one more call takes.
const CACHED_GAP_BYTES: u64 = 4095;

impl Facts {
    fn rule(&self) -> (ReadMode, &'static str) {
        match self.storage {
            Storage::Remote(kind) => return (ReadMode::Buffered, kind),
            Storage::Memory => return (self.mapped_or(ReadMode::Buffered), "in memory"),
            Storage::Local | Storage::Overlay => {}
        }
        if self.is_resident() {
            (self.mapped_or(ReadMode::Buffered), "in the page cache")
        } else if self.load_bytes > self.allowed_bytes {
            // What is held until the end can only lie in mappings, whose pages the system may take back.
            let mode = if self.keeps_all { self.mapped_or(self.past_cache()) } else { self.past_cache() };
            (mode, "more than the memory allowed")
        } else if !self.is_thin() {
            (self.mapped_or(self.past_cache()), "most of a file, not cached")
        } else if self.huge_bytes >= self.wanted_bytes - self.wanted_bytes / 8 {
            (self.mapped_or(self.past_cache()), "part of a file, not cached")
        } else {
            // For the ends of many ranges, faults of huge pages cannot be used.
            (self.past_cache(), "short parts of a file, not cached")
        }
    }

    /// Where it is not known what is in the page cache, it may be all; and what others want too is read once for all.
    fn past_cache(&self) -> ReadMode {
        if self.resident.is_some() && !self.is_shared { ReadMode::Direct } else { ReadMode::Buffered }
    }

    fn mapped_or(&self, other: ReadMode) -> ReadMode {
        if self.can_be_mapped && self.purpose == Purpose::Tensors { ReadMode::Mapped } else { other }
    }

    /// Whether nearly all that is wanted is in the page cache.
    fn is_resident(&self) -> bool {
        self.resident.is_some_and(|resident| resident >= self.pages - self.pages / 8)
    }

    /// Read-ahead is left to the system for the most of a file of this machine: it is quicker there, since it makes
    /// larger folios.
    fn ahead(&self) -> Ahead {
        if self.is_resident() || self.storage == Storage::Memory {
            Ahead::System
        } else if matches!(self.storage, Storage::Remote(_)) || self.purpose == Purpose::Cache {
            Ahead::Announced
        } else if self.is_thin() {
            Ahead::HugeFaults
        } else {
            Ahead::System
        }
    }

    /// Whether read-ahead would fetch much that nobody asked for: it runs on past the end of what is read,
    /// and before its start, by up to 8 MiB on some machines. At most all of the file is fetched, so a
    /// thirty-second part is not much.
    fn is_thin(&self) -> bool {
        self.wanted_bytes < self.data_bytes - self.data_bytes / 32
    }
}

#[cfg(test)]
mod tests;
