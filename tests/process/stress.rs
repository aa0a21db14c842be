//! Many threads that do all there is to do with one model at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use weightmap::{Intervals, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, damage};

use crate::support::{assert_is, in_mode, open, within_a_minute};

const THREADS: u64 = 64;
const SHARDS: u64 = 6;
const STEPS: u64 = 60;
/// The shard that is damaged for half of the time.
const DAMAGED: u64 = 3;

fn shard(number: u64) -> String {
    format!("model-{number:05}-of-{SHARDS:05}.safetensors")
}

fn checkpoint() -> Checkpoint {
    let add = |checkpoint: Checkpoint, number: u64| {
        let builder = ShardBuilder::new().pattern(&format!("{number}.small"), "U8", &[333]).pattern(
            &format!("{number}.rows"),
            "BF16",
            &[30, 500],
        );
        checkpoint.shard(&shard(number), builder)
    };
    (0..SHARDS).fold(Checkpoint::new(), add)
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        // xorshift64*: enough to choose by.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }
}

/// One thing that can be done with a model; gives the shard that it was about.
fn step(dice: &mut Dice, model: &ShardedModel, oracle: &Oracle) -> (u64, weightmap::Result<()>) {
    let number = dice.below(SHARDS);
    let part = || model.select().shard(&shard(number));
    let mode = ReadMode::ALL[usize::try_from(dice.below(4)).unwrap() % ReadMode::ALL.len()];
    let options = in_mode(mode).workers(1 + usize::try_from(dice.below(3)).unwrap());
    let name = format!("{number}.rows");
    let done = match dice.below(7) {
        0 => model.release(&shard(number)),
        1 => model.view(&name).map(|view| assert_eq!(view.bytes(), oracle.tensor(&name).bytes)),
        2 => part()
            .and_then(|part| part.load_with(&options))
            .map(|loaded| loaded.tensors().iter().for_each(|tensor| assert_is(tensor, oracle))),
        3 => part().and_then(|part| part.stream_with(&options)).and_then(|stream| {
            stream
                .take(1 + usize::from(number.is_multiple_of(2)))
                .try_for_each(|tensor| tensor.map(|tensor| assert_is(&tensor, oracle)))
        }),
        4 => model
            .select()
            .slice(&name, [Intervals::from(3..17)])
            .and_then(|part| part.load_with(&options))
            .map(|loaded| {
                assert_eq!(loaded.tensors()[0].bytes(), oracle.slice(&name, 3 * 1000..17 * 1000));
            }),
        5 => part().and_then(|part| part.prefetch_with(&options)).map(drop),
        _ => model.tensor(&name).map(|info| assert_eq!(info.shape, [30, 500])),
    };
    (number, done)
}

/// Runs the steps of all threads, each of which has a seed of its own; tells how many failed.
fn run(seed: u64, model: &ShardedModel, oracle: &Oracle, expected: Option<&str>) -> u64 {
    let (start, failures) = (Barrier::new(usize::try_from(THREADS).unwrap()), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (start, failures) = (&start, &failures);
            scope.spawn(move || {
                let mut dice = Dice(seed * THREADS + number + 1);
                start.wait();
                for _ in 0..STEPS {
                    let (shard, done) = step(&mut dice, model, oracle);
                    if let Err(error) = done {
                        assert_eq!((shard, Some(error.kind())), (DAMAGED, expected), "seed {seed}: {error}");
                        failures.fetch_add(1, SeqCst);
                    }
                }
            });
        }
    });
    failures.into_inner()
}

#[test]
fn sixty_four_threads_load_stream_view_and_release_one_model_at_once() {
    within_a_minute(|| {
        let files = checkpoint().temp();
        let oracle = Oracle::open(&files);
        for seed in 0..2 {
            let model = open(&files);
            assert_eq!(run(seed, &model, &oracle, None), 0);
            let report = model.select().all().load().unwrap().report().clone();
            assert_eq!(report.shards_checked, 0, "each was checked once, at its first touch");
        }
    });
}

#[test]
fn a_damaged_shard_is_an_error_for_all_threads_until_it_is_repaired() {
    within_a_minute(|| {
        let files = checkpoint().temp();
        let oracle = Oracle::open(&files);
        let damaged = files.file(&shard(DAMAGED));
        let good = std::fs::read(&damaged).unwrap();
        damage::overwrite(&damaged, 8, "[");
        let model = open(&files);
        // All that reads of it fails, which is more than half of the steps about it.
        assert!(run(7, &model, &oracle, Some("Json")) > THREADS * STEPS / SHARDS / 2);
        damage::replace(&damaged, good);
        assert_eq!(run(8, &model, &oracle, None), 0);
    });
}

/// A model that some still load from while others drop theirs.
#[test]
fn models_that_share_files_are_opened_and_dropped_at_once() {
    within_a_minute(|| {
        let files = checkpoint().temp();
        let oracle = Oracle::open(&files);
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (files, oracle) = (&files, &oracle);
                scope.spawn(move || {
                    let mut dice = Dice(seed + 1);
                    for _ in 0..STEPS / 4 {
                        let model = open(files);
                        for _ in 0..2 {
                            step(&mut dice, &model, oracle).1.unwrap();
                        }
                        let tensor = model.select().names(["0.small"]).unwrap().load().unwrap();
                        drop(model);
                        assert_is(&tensor.tensors()[0], oracle);
                    }
                });
            }
        });
    });
}
