#![cfg(target_os = "linux")]

use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::shard::open_same_direct;

fn direct_of(path: &Path, identity: &FileIdentity) -> Result<Direct> {
    Direct::new(Arc::new(open_same_direct(path, identity)?), path, identity)
}

/// Of no whole number of blocks.
const FILE_BYTES: usize = 300_001;

/// The file lies beside the sources: where temporary files go may be memory.
fn file() -> (NamedTempFile, Vec<u8>, FileIdentity) {
    let bytes: Vec<u8> = (0..=250).cycle().take(FILE_BYTES).collect();
    let file = NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.as_file().write_all_at(&bytes, 0).unwrap();
    let identity = FileIdentity::of(&file.as_file().metadata().unwrap());
    (file, bytes, identity)
}

/// The file, if its file system can be read past the page cache; that it is refused otherwise is shown.
fn direct(path: &Path, identity: &FileIdentity) -> Option<Direct> {
    match direct_of(path, identity) {
        Ok(direct) => Some(direct),
        Err(Error::Io { error, .. }) => {
            let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Small, so that a read has many pieces; with a ring where there is one.
fn bounces() -> Vec<Bounce> {
    let without = Bounce::new(8192, None).unwrap();
    let with = Ring::probe().map(|ring| Bounce::new(IN_FLIGHT * 4096, Some(ring)).unwrap());
    std::iter::once(without).chain(with).collect()
}

/// The bytes of a range, each of which was handed over exactly once.
fn collect(direct: &Direct, range: Range<u64>, bounce: &mut Bounce) -> io::Result<Vec<u8>> {
    let length = distance(range.start, range.end);
    let (mut bytes, mut times) = (vec![0; length], vec![0; length]);
    direct.read(range.clone(), bounce, &mut |offset, piece| {
        let place = distance(range.start, offset);
        bytes[place..place + piece.len()].copy_from_slice(piece);
        times[place..place + piece.len()].iter_mut().for_each(|times| *times += 1);
    })?;
    assert!(times.iter().all(|&times| times == 1));
    Ok(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_range_has_the_bytes_of_the_file(
        ranges in prop::collection::vec((0..FILE_BYTES, 0..FILE_BYTES), 1..8),
    ) {
        let (file, bytes, identity) = file();
        let Some(direct) = direct(file.path(), &identity) else { return Ok(()) };
        for mut bounce in bounces() {
            for &(one, other) in &ranges {
                let (start, end) = (one.min(other), one.max(other));
                let found = collect(&direct, start as u64..end as u64, &mut bounce).unwrap();
                prop_assert!(found == bytes[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn what_is_read_in_place_are_the_whole_blocks_of_a_range(
        start in 0..FILE_BYTES,
        length in 0..FILE_BYTES,
        shift in 0_usize..3,
    ) {
        let (file, bytes, identity) = file();
        let Some(direct) = direct(file.path(), &identity) else { return Ok(()) };
        let block = usize::try_from(direct.block_bytes()).unwrap();
        let length = length.min(FILE_BYTES - start);
        // The place in memory suits the one in the file, or is one or two bytes off it.
        let mut memory = MmapMut::map_anon(FILE_BYTES + block + 2).unwrap();
        let target = &mut memory[start % block + shift..][..length];
        let found = direct.read_in_place(start as u64, target).unwrap();
        prop_assert!(target[found.clone()] == bytes[start..][found.clone()]);
        if shift == 0 {
            let blocks = start.div_ceil(block)..(start + length) / block;
            prop_assert_eq!(found.len(), blocks.len() * block);
            prop_assert!(found.is_empty() || start + found.start == blocks.start * block);
        } else {
            prop_assert!(found.is_empty() || (shift as u64).is_multiple_of(direct.alignment.memory));
        }
    }

    #[test]
    fn pieces_are_whole_blocks_and_hold_each_byte_of_the_range_once(
        start in 0_u64..100_000,
        length in 0_u64..100_000,
        block in prop::sample::select(vec![1_u64, 512, 4096]),
        most in 4096_usize..20_000,
    ) {
        let mut next = start;
        for piece in pieces(start..start + length, block, most).unwrap() {
            prop_assert_eq!((piece.offset % block, piece.bytes as u64 % block), (0, 0));
            prop_assert!(piece.bytes <= most && piece.wanted.end <= piece.bytes);
            prop_assert!((piece.wanted.start as u64) < block && !piece.wanted.is_empty());
            prop_assert_eq!(piece.offset + piece.wanted.start as u64, next);
            next = piece.offset + piece.wanted.end as u64;
        }
        prop_assert_eq!(next, start + length);
    }
}

#[test]
fn the_ends_of_the_file_are_read_and_nothing_behind_it() {
    let (file, bytes, identity) = file();
    let Some(direct) = direct(file.path(), &identity) else { return };
    assert!(direct.block_bytes().is_power_of_two());
    let end = FILE_BYTES as u64;
    for mut bounce in bounces() {
        assert!(collect(&direct, 0..end, &mut bounce).unwrap() == bytes);
        assert_eq!(collect(&direct, end - 1..end, &mut bounce).unwrap(), bytes[FILE_BYTES - 1..]);
        for range in [5..5, end..end, end + 5000..end + 5000] {
            assert!(collect(&direct, range, &mut bounce).unwrap().is_empty());
        }
        for range in [end - 1..end + 1, end..end + 1, end + 5000..end + 5001, 0..end + 9000] {
            let error = collect(&direct, range.clone(), &mut bounce).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{range:?}");
        }
        assert!(direct.read(0..u64::MAX, &mut bounce, &mut |_, _| {}).is_err());
        // What failed leaves nothing behind.
        assert!(collect(&direct, 0..end, &mut bounce).unwrap() == bytes);
    }
}

#[test]
fn a_file_that_was_cut_meanwhile_is_an_error() {
    let (file, bytes, identity) = file();
    let Some(direct) = direct(file.path(), &identity) else { return };
    file.as_file().set_len(150_000).unwrap();
    let mut memory = MmapMut::map_anon(200_000).unwrap();
    assert_eq!(direct.read_in_place(0, &mut memory).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    for mut bounce in bounces() {
        let error = collect(&direct, 1..FILE_BYTES as u64, &mut bounce).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(collect(&direct, 1..150_000, &mut bounce).unwrap() == bytes[1..150_000]);
    }
}

#[test]
fn what_a_file_system_refuses_is_read_through_the_page_cache() {
    let (file, bytes, identity) = file();
    let Some(mut direct) = direct(file.path(), &identity) else { return };
    // Offsets that are a multiple of nothing are refused, where there is an alignment at all.
    direct.alignment = Alignment { offset: 1, memory: 1 };
    for mut bounce in bounces() {
        assert!(collect(&direct, 1..100_000, &mut bounce).unwrap() == bytes[1..100_000]);
    }
}

#[test]
fn another_file_is_not_read() {
    let (file, _, identity) = file();
    let changed = FileIdentity { bytes: 1, ..identity.clone() };
    if direct(file.path(), &identity).is_some() {
        assert!(matches!(direct_of(file.path(), &changed), Err(Error::ShardChanged { .. })));
    }
    assert!(direct_of(Path::new("/"), &identity).is_err());
}

#[test]
fn a_panic_of_the_sink_leaves_the_bounce_usable() {
    let (file, bytes, identity) = file();
    let Some(direct) = direct(file.path(), &identity) else { return };
    for mut bounce in bounces() {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            direct.read(0..200_000, &mut bounce, &mut |_, _| panic!("the sink"))
        }));
        assert!(panic.is_err());
        assert!(collect(&direct, 3..200_000, &mut bounce).unwrap() == bytes[3..200_000]);
    }
}

#[test]
fn memory_that_no_system_has_is_an_error() {
    assert!(Bounce::new(usize::MAX, None).is_err());
    assert!(Bounce::new(usize::MAX / 2, Ring::probe()).is_err());
}

#[test]
fn blocks_larger_than_the_memory_are_refused() {
    let error = pieces(0..1, 1 << 20, 4096).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}
