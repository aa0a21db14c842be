use proptest::prelude::*;
use weightmap_testkit::{Checkpoint, ShardBuilder};

use super::super::part::{Terms, Touched, Wanted};
use super::*;
use crate::mode::ReadMode;
use crate::model::ShardedModel;
use crate::read::Purpose;

const MIB: u64 = 1 << 20;

/// What a request is for: tensors, and which of their bytes.
type Portions = Vec<(usize, Range<u64>)>;

/// The runs that read tensors of these lengths, one after another in a file: of each, its requests.
fn planned(lengths: &[u64], run_bytes: u64) -> Vec<Vec<Portions>> {
    let add = |shard: ShardBuilder, (number, bytes): (usize, &u64)| {
        shard.zeros(&format!("t{number:03}"), "U8", &[*bytes])
    };
    let files = Checkpoint::single(lengths.iter().enumerate().fold(ShardBuilder::new(), add)).temp();
    let model = ShardedModel::open(files.path()).unwrap();
    let (shard, is_first_touch) = model.pool().touch(0).unwrap();
    let file = model.pool().file(&shard).unwrap();
    let infos: Vec<_> = model.select().all().infos().unwrap().into_iter().map(Arc::new).collect();
    let recipes = model.select().all().recipes().collect::<Result<_, _>>().unwrap();
    let outputs = Outputs::new(recipes, &infos, model.pool()).unwrap();
    let wanted = |(item, info)| Wanted { item, info: Arc::clone(info), is_alone: true };
    let touched = Touched::new(shard, &file, is_first_touch, infos.iter().enumerate().map(wanted).collect());
    let terms = Terms {
        mode: ReadMode::Buffered,
        purpose: Purpose::Tensors,
        keeps_all: true,
        drops_behind: false,
        is_shared: false,
        load_bytes: lengths.iter().sum(),
        allowed_bytes: u64::MAX,
        chunk_bytes: 0,
    };
    let mut part = [touched.choose(&terms, model.pool()).plan(&outputs, Keeps::All, &terms)];
    let portions = |task: Task<'_>| {
        let portions = task.request.portions.into_iter();
        portions.map(|portion| (portion.item, portion.dest)).collect::<Vec<_>>()
    };
    let runs = runs(&mut part, &infos, &outputs, Keeps::All, run_bytes).into_iter();
    runs.map(|run| run.tasks.into_iter().map(portions).collect()).collect()
}

/// How many bytes the requests of a run have.
fn bytes(run: &[Portions]) -> u64 {
    run.iter().flatten().map(|(_, dest)| dest.end - dest.start).sum()
}

/// The tensors of a run.
fn items(run: &[Portions]) -> Vec<usize> {
    let mut items: Vec<_> = run.iter().flatten().map(|(item, _)| *item).collect();
    items.dedup();
    items
}

#[test]
fn neighbours_are_in_one_run_up_to_its_length() {
    let runs = planned(&[8 * MIB; 10], 24 * MIB);
    assert_eq!(
        runs.iter().map(|run| items(run)).collect::<Vec<_>>(),
        [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8], vec![9]]
    );
}

#[test]
fn a_tensor_that_is_too_long_for_a_run_has_runs_for_itself() {
    let runs = planned(&[MIB, 100 * MIB, MIB, MIB], 32 * MIB);
    let items: Vec<_> = runs.iter().map(|run| items(run)).collect();
    assert_eq!((items.first(), items.last()), (Some(&vec![0]), Some(&vec![2, 3])));
    let long = &items[1..items.len() - 1];
    assert!(long.len() >= 3 && long.iter().all(|items| *items == [1]), "{items:?}");
}

#[test]
fn a_tensor_of_several_requests_that_fits_a_run_is_in_one() {
    let runs = planned(&[20 * MIB, 30 * MIB, 40 * MIB], 40 * MIB);
    assert_eq!(runs.iter().map(|run| items(run)).collect::<Vec<_>>(), [vec![0, 1], vec![2]]);
    assert!(runs[0].len() > 4, "each is read by several requests");
}

#[test]
fn a_run_is_long_enough_for_read_ahead_and_short_enough_for_all_workers() {
    assert_eq!(run_bytes(0, 1), REQUEST_BYTES);
    assert_eq!(run_bytes(64 * REQUEST_BYTES, 4), 4 * REQUEST_BYTES);
    assert_eq!(run_bytes(u64::MAX, 1), 64 * MIB);
    assert_eq!(run_bytes(MIB, 0), REQUEST_BYTES);
    assert_eq!(run_bytes(u64::MAX, usize::MAX), REQUEST_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_is_in_one_run_and_a_tensor_in_several_runs_shares_none(
        lengths in prop::collection::vec(1_u64..90, 1..12),
        run in 8_u64..64,
    ) {
        let lengths: Vec<_> = lengths.iter().map(|length| length * MIB).collect();
        let runs = planned(&lengths, run * MIB);
        for (item, length) in lengths.iter().enumerate() {
            let portions = runs.iter().flatten().flatten().filter(|(of, _)| *of == item);
            let mut at = 0;
            for (_, dest) in portions {
                prop_assert_eq!(dest.start, at);
                at = dest.end;
            }
            prop_assert_eq!(at, *length);
            let with_it: Vec<_> = runs.iter().map(|run| items(run)).filter(|items| items.contains(&item)).collect();
            prop_assert!(with_it.len() == 1 || with_it.iter().all(|items| items.len() == 1));
        }
        // A run that has reached its length begins nothing more.
        for run_of in &runs {
            let last = *items(run_of).last().unwrap();
            let before: Vec<_> = match items(run_of).len() {
                1 => run_of[..run_of.len() - 1].to_vec(),
                _ => run_of.iter().filter(|request| request.iter().all(|(item, _)| *item != last)).cloned().collect(),
            };
            prop_assert!(bytes(&before) < run * MIB || items(run_of).len() == 1 && lengths[last] <= run * MIB);
        }
    }
}
