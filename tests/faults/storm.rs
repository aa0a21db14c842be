//! Shards that others change at random moments while many threads read them: bytes as they were when the model was opened, or
//! an error, and never a signal.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{FallocateFlags, fallocate};
use weightmap::ReadMode;
use weightmap_testkit::damage;

use super::{WAYS, by_workers, checkpoint, touched};
use crate::support::{SECOND, alone, open};

/// How many rounds each loader makes; more of them find more, and take longer.
const ROUNDS: u64 = 150;

/// Threads that load.
const LOADERS: u64 = 3;

/// A sequence that looks random: the SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// Changes a file in one of the ways. In place it does so only after it has another time of modification, since the clock of
/// a file system can be too coarse to tell.
fn change(path: &Path, whole: &[u8], random: &mut Random) {
    let end = whole.len() as u64;
    let is_whole = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == end);
    if !is_whole {
        return damage::replace(path, whole);
    }
    let at = random.below(end);
    damage::touch(path);
    match random.below(7) {
        0 | 1 => damage::truncate(path, at),
        2 => damage::append(path, "more"),
        3 => damage::overwrite(path, at, "other bytes"),
        4 => {
            let file = File::options().write(true).open(path).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Not every file system can.
            let _ = fallocate(file, punch, at, 100_000);
            damage::overwrite(path, at, "\0");
        }
        5 => damage::replace(path, "another file"),
        _ => fs::remove_file(path).unwrap(),
    }
    // What was written to has to be put back as another file.
    if random.below(2) == 0 {
        damage::replace(path, whole);
    } else if fs::metadata(path).is_ok_and(|metadata| metadata.len() == end) {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn while_others_change_a_shard_in_every_way_loads_are_right_or_errors() {
    alone("", || {
        let files = checkpoint().temp();
        let path = files.file(SECOND);
        let whole = fs::read(&path).unwrap();
        // A model is opened while nobody writes: what is there then is what counts.
        let turn = Mutex::new(());
        let wrong = AtomicU64::new(0);
        let load = &|loader: u64| {
            let mut random = Random(loader);
            for _ in 0..ROUNDS {
                let (mode, way) = (random.of(ReadMode::ALL), random.of(&WAYS));
                let model = {
                    let _turn = turn.lock().unwrap();
                    if !fs::metadata(&path).is_ok_and(|metadata| metadata.len() == whole.len() as u64) {
                        damage::replace(&path, &whole);
                    }
                    touched(&files)
                };
                let options = by_workers(mode).drop_behind(random.below(4) == 0);
                if let Err(error) = way.go(&model, &options, false) {
                    assert!(error.path().is_some_and(|path| path.ends_with(SECOND)), "{error}");
                    wrong.fetch_add(1, Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            let loaders: Vec<_> = (1..=LOADERS).map(|loader| scope.spawn(move || load(loader))).collect();
            let mut random = Random(17);
            while !loaders.iter().all(|loader| loader.is_finished()) {
                let _turn = turn.lock().unwrap();
                change(&path, &whole, &mut random);
            }
            loaders.into_iter().for_each(|loader| loader.join().unwrap());
        });
        let (wrong, all) = (wrong.into_inner(), LOADERS * ROUNDS);
        assert!(0 < wrong && wrong < all, "{wrong} errors of {all}");
        damage::replace(&path, &whole);
        for &mode in ReadMode::ALL {
            WAYS.iter().for_each(|way| way.go(&open(&files), &by_workers(mode), true).unwrap());
        }
    });
}

#[test]
fn while_shards_are_cut_and_put_back_opens_and_loads_are_right_or_errors() {
    alone("", || {
        let files = checkpoint().temp();
        let path = files.file(SECOND);
        let whole = fs::read(&path).unwrap();
        let load = &|loader: u64| {
            let mut random = Random(loader);
            for _ in 0..ROUNDS / 5 {
                let model = open(&files);
                for _ in 0..5 {
                    let (mode, way) = (random.of(ReadMode::ALL), random.of(&WAYS));
                    if let Err(error) = way.go(&model, &by_workers(mode), false) {
                        assert!(error.path().is_some_and(|path| path.ends_with(SECOND)), "{error}");
                    }
                    model.release(SECOND).unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            let loaders: Vec<_> = (1..=LOADERS).map(|loader| scope.spawn(move || load(loader))).collect();
            let mut random = Random(3);
            while !loaders.iter().all(|loader| loader.is_finished()) {
                damage::truncate(&path, random.below(whole.len() as u64));
                damage::replace(&path, &whole);
            }
            loaders.into_iter().for_each(|loader| loader.join().unwrap());
        });
    });
}
