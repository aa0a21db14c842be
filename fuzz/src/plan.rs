//! A plan, and what each rank has by it of a small model, compared with steps that are made on single indices.

use std::collections::{BTreeMap, BTreeSet};

use weightmap::fuzzing::{Assembled, Part, assemblies, divide};
use weightmap::plan::PlanSpec;
use weightmap::{Partition, Plan, PlanError, PlannedPart, PlannedTensor};

use crate::model::{Tensor, tensors};
use crate::outputs::{Array, Outputs};
use crate::reckoning::{Indices, Local, Reckoned, Unsaid, reckon};

/// Of more ranks only some are looked at.
const MOST_RANKS: usize = 64;
/// However long a plan is, an error about it is not: it shows some of its faults.
const MAX_MESSAGE_BYTES: usize = 100_000;
/// What has more elements is not looked at one by one.
const MOST_ELEMENTS: u64 = 1 << 12;

/// Reads a plan, and divides the model by it.
pub fn run(json: &[u8]) {
    let Ok(json) = std::str::from_utf8(json) else { return };
    match Plan::from_json(json) {
        Err(error) => check_error(&error),
        Ok(plan) => check(&plan),
    }
}

/// Divides the model by a plan, and looks at what each rank then has.
pub fn check(plan: &Plan) {
    let written = serde_json::to_string(plan).unwrap();
    assert_eq!(serde_json::from_str::<PlanSpec>(&written).unwrap(), *plan.spec());
    let tensors = tensors();
    let divided = divide(plan, &tensors);
    let reckoned = reckon(plan.spec(), &tensors);
    let made = made(plan, &tensors, reckoned.as_ref().map_err(|unsaid| *unsaid));
    match (&divided, &made) {
        (Err(error), Ok(_)) => assert_eq!(error.kind(), "PlanTooLarge", "refused: {error}"),
        (Ok(_), Err(Unsaid::Fault(kind))) => panic!("taken in spite of {kind}"),
        _ => {}
    }
    match divided {
        Ok(partition) => {
            check_partition(plan, &partition, &tensors, reckoned.ok().as_ref(), made.ok().as_deref())
        }
        Err(error) => check_error(&error),
    }
}

/// What each rank puts together.
fn made(
    plan: &Plan,
    tensors: &[Tensor],
    reckoned: Result<&Reckoned, Unsaid>,
) -> Result<Vec<BTreeMap<String, Array>>, Unsaid> {
    let outputs = Outputs::new(plan.spec(), tensors, reckoned?)?;
    (0..plan.world()).map(|rank| outputs.of(rank)).collect()
}

fn check_partition(
    plan: &Plan,
    partition: &Partition,
    tensors: &[Tensor],
    reckoned: Option<&Reckoned>,
    made: Option<&[BTreeMap<String, Array>]>,
) {
    assert_eq!(partition.bytes(), tensors.iter().map(|tensor| tensor.3).sum::<u64>());
    assert!(partition.dropped_bytes() <= partition.bytes());
    let totals: Vec<_> = partition.totals().collect();
    assert_eq!((totals.len(), partition.world()), (plan.world(), plan.world()));
    assert_eq!(partition.rank(plan.world()).count(), 0);
    let ranks =
        if plan.world() > MOST_RANKS { vec![0, 1, plan.world() - 1] } else { (0..plan.world()).collect() };
    for rank in ranks {
        let planned: Vec<_> = partition.rank(rank).collect();
        let bytes = planned.iter().map(|tensor| tensor.bytes).sum::<u64>();
        assert_eq!((totals[rank].tensors, totals[rank].bytes), (planned.len() as u64, bytes));
        let names: BTreeSet<_> = planned.iter().map(|tensor| &tensor.name).collect();
        assert_eq!(names.len(), planned.len());
        check_assemblies(&assemblies(partition, rank), &planned, made.map(|made| &made[rank]));
        if let Some(reckoned) = reckoned {
            check_rank(rank, &planned, tensors, reckoned, plan.spec().outputs.is_empty());
        }
    }
}

fn check_error(error: &PlanError) {
    assert!(!error.faults.is_empty());
    let message = error.to_string();
    assert!(message.len() < MAX_MESSAGE_BYTES, "{message}");
}

/// That a rank has of each tensor what the steps leave; in outputs it may come in pieces.
fn check_rank(
    rank: usize,
    planned: &[PlannedTensor],
    tensors: &[Tensor],
    reckoned: &Reckoned,
    is_plain: bool,
) {
    for (tensor, locals) in tensors.iter().zip(reckoned) {
        let (name, dtype, shape, bytes, _) = tensor;
        let mut parts: Vec<_> =
            planned.iter().flat_map(|tensor| &tensor.parts).filter(|part| part.tensor == *name).collect();
        let Some(local) = &locals[rank] else {
            assert!(parts.is_empty(), "rank {rank} has some of {name}");
            continue;
        };
        assert!(!parts.is_empty(), "rank {rank} has none of {name}");
        let (dims, cut) = match local {
            Local::Dims(dims) => (dims.clone(), shape.to_vec()),
            Local::Flat(elements) => (vec![elements.clone()], vec![shape.iter().product()]),
        };
        let expected: Vec<Vec<u64>> =
            dims.iter().map(|dim| dim.iter().flatten().copied().collect()).collect();
        let is_flat = matches!(local, Local::Flat(_));
        assert!(parts.iter().all(|part| part.is_flat == is_flat));
        if is_plain {
            let part = parts.pop().unwrap();
            assert!(parts.is_empty());
            let found: Vec<Vec<u64>> =
                part.intervals.iter().map(|dim| dim.iter().cloned().flatten().collect()).collect();
            assert_eq!(found, expected, "{name} of rank {rank}");
            let of = planned.iter().find(|planned| planned.name == *name).unwrap();
            assert_eq!(of.local_shape, lengths(&dims));
            assert_eq!(
                of.pad,
                dims.iter()
                    .map(|dim| dim.iter().filter(|index| index.is_none()).count() as u64)
                    .collect::<Vec<_>>()
            );
            assert_eq!(of.dtype, *dtype);
            let (own, all) = (elements(&expected).len() as u64, cut.iter().product::<u64>());
            assert_eq!(of.bytes, (bytes * own).checked_div(all).unwrap_or(0), "{name} of rank {rank}");
            continue;
        }
        let flatten = |dims: &[Vec<u64>]| -> Vec<u64> {
            let strides: Vec<u64> = (0..cut.len()).map(|dim| cut[dim + 1..].iter().product()).collect();
            let place = |at: Vec<u64>| at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
            elements(dims).into_iter().map(place).collect()
        };
        let pieces = parts.iter().flat_map(|part| {
            flatten(
                &part.intervals.iter().map(|dim| dim.iter().cloned().flatten().collect()).collect::<Vec<_>>(),
            )
        });
        let (mut found, mut expected): (Vec<u64>, _) = (pieces.collect(), flatten(&expected));
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{name} of rank {rank}");
    }
}

fn lengths(dims: &[Indices]) -> Vec<u64> {
    dims.iter().map(|dim| dim.len() as u64).collect()
}

/// All combinations of indices.
fn elements(dims: &[Vec<u64>]) -> Vec<Vec<u64>> {
    dims.iter().fold(vec![Vec::new()], |rows, dim| {
        let with = |row: &Vec<u64>, index: u64| [&row[..], &[index]].concat();
        rows.iter().flat_map(|row| dim.iter().map(move |index| with(row, *index))).collect()
    })
}

/// That what is loaded is what is planned: each element of a part has a place of its own, and the one that it should.
fn check_assemblies(
    assemblies: &[Assembled],
    planned: &[PlannedTensor],
    made: Option<&BTreeMap<String, Array>>,
) {
    assert_eq!(assemblies.len(), planned.len());
    assert!(made.is_none_or(|made| made.len() == planned.len()));
    for ((name, shape, pad, parts), planned) in assemblies.iter().zip(planned) {
        assert_eq!((name, shape, pad), (&planned.name, &planned.local_shape, &planned.pad));
        let all = shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
        let Some(all) = all.filter(|&all| all <= MOST_ELEMENTS) else { continue };
        let mut array = Array { shape: shape.clone(), cells: vec![None; usize::try_from(all).unwrap()] };
        for (tensor, from, to) in parts.iter().flat_map(|part| places(part, shape)) {
            let before = array.cells[usize::try_from(to).unwrap()].replace((tensor, from));
            assert_eq!(before, None, "{name} has two elements in one place");
        }
        let elements = |part: &PlannedPart| -> u64 {
            part.intervals
                .iter()
                .map(|dim| dim.iter().map(|range| range.end - range.start).sum::<u64>())
                .product()
        };
        let expected: u64 = planned.parts.iter().map(elements).sum();
        assert_eq!(array.cells.iter().flatten().count() as u64, expected, "{name}");
        if let Some(made) = made {
            assert_eq!(Some(&array), made.get(name), "{name}");
        }
    }
}

/// The tensor of a part, and for each element its place in the tensor and in what is put together.
fn places((tensor, cut, dims): &Part, shape: &[u64]) -> Vec<(u32, u64, u64)> {
    assert_eq!((dims.len(), cut.len()), (shape.len(), shape.len()));
    let mut places = vec![(0, 0)];
    for ((stretches, len), all) in dims.iter().zip(cut).zip(shape) {
        let indices: Vec<(u64, u64)> = stretches
            .iter()
            .flat_map(|&(from, count, at)| {
                assert!(count > 0 && from + count <= *len && at + count <= *all);
                (0..count).map(move |step| (from + step, at + step))
            })
            .collect();
        places = places
            .iter()
            .flat_map(|&(from, to)| {
                indices.iter().map(move |(index, at)| (from * len + index, to * all + at))
            })
            .collect();
    }
    places.into_iter().map(|(from, to)| (*tensor, from, to)).collect()
}
