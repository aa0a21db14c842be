//! Faults of a mapping that fetch a huge page each.
//!
//! Linux serves a fault in a mapping that is both advised to be of huge pages and to be read at random by reading the
//! huge page around it, and not a byte more: that is as quick as reads past the page cache, takes a tenth of their
//! time of the processor, and leaves few large folios in the page cache. Kernels that do not know the first advice (before
//! 5.18, or without huge pages) would read page by page, so what a fault fetches is looked at before it is relied on.

use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;

use crate::mmap::FileMap;
use crate::sys::{self, HUGE_BYTES};

/// The part of a range that is of whole huge pages.
pub(crate) fn inner(range: &Range<u64>) -> Range<u64> {
    let start = range.start.checked_next_multiple_of(HUGE_BYTES).unwrap_or(u64::MAX).min(range.end);
    start..(range.end - range.end % HUGE_BYTES).max(start)
}

/// The whole huge pages that hold a range.
pub(super) fn around(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(HUGE_BYTES).unwrap_or(u64::MAX);
    range.start - range.start % HUGE_BYTES..end
}

/// Has the faults of a mapping fetch a huge page each; tells whether they will. `wanted`, of whole huge pages, is what
/// will be read first.
///
/// It holds for the whole mapping, which stays one to the kernel, until the load is done.
pub(super) fn advise(map: &FileMap, file: &File, wanted: &Range<u64>) -> bool {
    /// The first version whose faults heed both.
    const SINCE: (u32, u32) = (5, 18);
    /// Whether the faults of this system do, once it has been seen.
    static WORKS: OnceLock<bool> = OnceLock::new();
    let is_possible = sys::huge_page_bytes() == Some(HUGE_BYTES) && sys::kernel_version() >= Some(SINCE);
    if !is_possible || WORKS.get() == Some(&false) || !map.advise_huge_faults() {
        return false;
    }
    let works = WORKS
        .get()
        .copied()
        .or_else(|| probe(map, file, wanted.start).map(|works| *WORKS.get_or_init(|| works)));
    if works != Some(true) {
        map.advise_usual_faults();
    }
    works == Some(true)
}

/// Whether a fault in the huge page at `start` fetches all of it; `None` where that cannot be told, as some of it was there
/// before.
fn probe(map: &FileMap, file: &File, start: u64) -> Option<bool> {
    let page = start..start.checked_add(HUGE_BYTES)?;
    let cached = || sys::cached_pages(file, page.clone(), map.get(page.clone()));
    if cached()? != 0 {
        return None;
    }
    // A failure is told to whoever populates the page for what is in it.
    map.populate(start..start + 1).ok()?;
    let works = cached()? == HUGE_BYTES / sys::page_bytes();
    tracing::debug!(works, "faults that fetch huge pages");
    Some(works)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_inner_part_is_of_whole_huge_pages_and_within(start in 0..10 * HUGE_BYTES, len in 0..10 * HUGE_BYTES) {
            let range = start..start + len;
            let inner = inner(&range);
            prop_assert!(range.start <= inner.start && inner.start <= inner.end && inner.end <= range.end);
            if inner.is_empty() {
                prop_assert!(len < 2 * HUGE_BYTES);
            } else {
                prop_assert!(inner.start.is_multiple_of(HUGE_BYTES) && inner.end.is_multiple_of(HUGE_BYTES));
                prop_assert!(inner.start - range.start < HUGE_BYTES && range.end - inner.end < HUGE_BYTES);
            }
        }
    }

    #[test]
    fn ranges_that_are_advised_bring_in_themselves_and_no_more() {
        const BYTES: u64 = 8 * HUGE_BYTES;
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; usize::try_from(BYTES).unwrap()]).unwrap();
        sys::evict(&file).unwrap();
        let map = FileMap::new(&file, BYTES).unwrap();
        let cached = |range: Range<u64>| sys::cached_pages(&file, range.clone(), map.get(range));
        let inside = 2 * HUGE_BYTES..6 * HUGE_BYTES;
        if cached(0..BYTES) != Some(0) || !advise(&map, &file, &inside) {
            eprintln!("skipped: this system's faults fetch no huge pages, or it cannot be seen");
            return;
        }
        map.populate(inside.clone()).unwrap();
        assert_eq!(cached(inside.clone()), Some((inside.end - inside.start) / sys::page_bytes()));
        assert_eq!((cached(0..inside.start), cached(inside.end..BYTES)), (Some(0), Some(0)));
    }
}
