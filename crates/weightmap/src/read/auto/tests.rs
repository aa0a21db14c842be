use super::*;
use Purpose::{Cache, Lent, Tensors};
use ReadMode::{Auto, Buffered, Direct, Mapped};

const MIB: u64 = 1 << 20;

/// All of a file of 64 MiB on a disk, of which nothing is cached.
fn cold() -> Facts {
    Facts {
        asked: Auto,
        storage: Storage::Local,
        can_be_mapped: true,
        can_be_direct: true,
        purpose: Tensors,
        keeps_all: true,
        data_bytes: 64 * MIB,
        wanted_bytes: 64 * MIB,
        huge_bytes: 64 * MIB,
        pages: 16384,
        resident: Some(0),
        load_bytes: 64 * MIB,
        allowed_bytes: u64::MAX,
        drops_behind: false,
        is_shared: false,
    }
}

fn warm() -> Facts {
    Facts { resident: Some(16384), ..cold() }
}

/// Half of the file.
fn thin() -> Facts {
    Facts { wanted_bytes: 32 * MIB, pages: 8192, ..cold() }
}

const CACHED: &str = "in the page cache";
const MOST: &str = "most of a file, not cached";
const PART: &str = "part of a file, not cached";
const SHORT: &str = "short parts of a file, not cached";
const MEMORY: &str = "more than the memory allowed";
const NO_DIRECT: &str = "the file system has no direct reads";

#[test]
fn each_rule_has_its_case_and_says_so() {
    let remote = Storage::Remote("NFS");
    let cases = [
        (cold(), Mapped, MOST),
        (Facts { storage: Storage::Overlay, ..cold() }, Mapped, MOST),
        (Facts { can_be_mapped: false, ..cold() }, Direct, MOST),
        (Facts { purpose: Lent, ..cold() }, Direct, MOST),
        (Facts { resident: None, ..cold() }, Mapped, MOST),
        (thin(), Mapped, PART),
        (Facts { huge_bytes: 28 * MIB, ..thin() }, Mapped, PART),
        (Facts { huge_bytes: 28 * MIB - 1, ..thin() }, Direct, SHORT),
        (Facts { huge_bytes: 0, resident: None, ..thin() }, Buffered, SHORT),
        (Facts { huge_bytes: 0, ..warm() }, Mapped, CACHED),
        (Facts { can_be_mapped: false, ..thin() }, Direct, PART),
        (Facts { can_be_direct: false, can_be_mapped: false, ..thin() }, Buffered, NO_DIRECT),
        (Facts { resident: None, ..thin() }, Mapped, PART),
        (warm(), Mapped, CACHED),
        (Facts { can_be_mapped: false, ..warm() }, Buffered, CACHED),
        (Facts { purpose: Lent, ..warm() }, Buffered, CACHED),
        (Facts { resident: Some(8192), ..thin() }, Mapped, CACHED),
        (Facts { allowed_bytes: 63 * MIB, ..cold() }, Mapped, MEMORY),
        (Facts { allowed_bytes: 63 * MIB, keeps_all: false, ..cold() }, Direct, MEMORY),
        (Facts { purpose: Lent, resident: None, ..cold() }, Buffered, MOST),
        (Facts { allowed_bytes: 63 * MIB, ..warm() }, Mapped, CACHED),
        (
            Facts { allowed_bytes: 63 * MIB, keeps_all: false, can_be_direct: false, ..cold() },
            Buffered,
            NO_DIRECT,
        ),
        (Facts { storage: remote, ..cold() }, Buffered, "NFS"),
        (Facts { storage: remote, ..warm() }, Buffered, "NFS"),
        (Facts { storage: Storage::Memory, ..cold() }, Mapped, "in memory"),
        (Facts { storage: Storage::Memory, purpose: Lent, ..warm() }, Buffered, "in memory"),
        (Facts { purpose: Cache, ..cold() }, Buffered, "into the page cache"),
        (Facts { purpose: Cache, asked: Direct, ..cold() }, Buffered, "into the page cache"),
    ];
    for (number, (facts, mode, reason)) in cases.into_iter().enumerate() {
        let way = choose(&facts);
        assert_eq!((way.mode, way.reason), (mode, reason), "case {number}");
        assert_eq!(way.purpose, facts.purpose);
    }
}

#[test]
fn what_is_asked_for_is_done_where_it_can_be() {
    for asked in [Mapped, Buffered, Direct] {
        for facts in [cold(), warm(), thin(), Facts { storage: Storage::Remote("FUSE"), ..cold() }] {
            let way = choose(&Facts { asked, ..facts });
            assert_eq!((way.mode, way.reason), (asked, "asked for"));
        }
    }
    let lent = choose(&Facts { asked: Mapped, purpose: Lent, ..warm() });
    assert_eq!((lent.mode, lent.reason), (Buffered, "the memory is the caller's"));
    let not_direct = choose(&Facts { asked: Direct, can_be_direct: false, ..cold() });
    assert_eq!((not_direct.mode, not_direct.reason), (Buffered, NO_DIRECT));
}

#[test]
fn seven_eighths_in_the_page_cache_count_as_all() {
    let reason = |resident| choose(&Facts { resident: Some(resident), ..cold() }).reason;
    assert_eq!((reason(14336), reason(14335)), (CACHED, MOST));
}

#[test]
fn a_thirty_second_part_of_a_file_can_be_left_out_before_read_ahead_is_too_much() {
    let is_announced = |wanted_bytes| choose(&Facts { wanted_bytes, ..cold() }).ahead == Ahead::HugeFaults;
    assert_eq!((is_announced(62 * MIB), is_announced(62 * MIB - 1)), (false, true));
}

#[test]
fn what_is_not_cached_is_fetched_as_its_storage_rewards() {
    let far = Facts { storage: Storage::Remote("NFS"), ..cold() };
    let cache = Facts { purpose: Cache, ..cold() };
    let ahead = |facts: Facts| choose(&facts).ahead;
    assert_eq!(
        [far, cache, thin(), cold()].map(ahead),
        [Ahead::Announced, Ahead::Announced, Ahead::HugeFaults, Ahead::System]
    );
    for facts in [far, cache, thin(), cold()] {
        assert_eq!(ahead(Facts { resident: Some(facts.pages), ..facts }), Ahead::System);
    }
}

#[test]
fn gaps_are_read_by_what_a_request_costs() {
    let gap = |facts: Facts| choose(&facts).gap_bytes;
    let buffered = |facts: Facts| Facts { asked: Buffered, ..facts };
    assert_eq!(gap(Facts { asked: Mapped, ..cold() }), sys::page_bytes() - 1);
    assert_eq!(gap(Facts { asked: Direct, ..warm() }), Storage::Local.gap_bytes());
    assert_eq!(gap(buffered(cold())), Storage::Local.gap_bytes());
    assert!(gap(buffered(warm())) < gap(buffered(cold())));
    let remote = Facts { storage: Storage::Remote("NFS"), ..cold() };
    assert!(gap(remote) > gap(buffered(cold())));
}

#[test]
fn what_other_processes_want_too_goes_through_the_page_cache() {
    let short = Facts { wanted_bytes: MIB, huge_bytes: 0, ..cold() };
    assert_eq!(choose(&short).mode, Direct);
    assert_eq!(choose(&Facts { is_shared: true, ..short }).mode, Buffered);
    let asked = Facts { asked: Direct, is_shared: true, ..short };
    assert_eq!(choose(&asked).mode, Direct, "as asked for");
}
