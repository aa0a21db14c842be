//! What always holds of cuts, compared with steps that are made on single indices.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{divided, intervals};
use crate::plan::{Blocks, Interleave, PlanSpec, Replicas, Rule, Shard, Split, Step};

/// Indices one by one; `None` for padding.
type Indices = Vec<Option<u64>>;

/// Makes a step on single indices, as its definition says it; `None` where it is a fault.
fn made(step: &Step, indices: &Indices, coordinate: usize, k: usize) -> Option<Indices> {
    match step {
        Step::Interleave(Interleave { interleave, groups, .. }) => {
            let groups = usize::try_from(*groups).unwrap();
            let mut rest = indices.as_slice();
            let mut parts = Vec::new();
            for len in interleave {
                let (part, after) = rest.split_at_checked(usize::try_from(*len).unwrap())?;
                (part.len() % groups == 0).then(|| parts.push(part))?;
                rest = after;
            }
            let piece = |part: &[Option<u64>], group| {
                part[part.len() / groups * group..part.len() / groups * (group + 1)].to_vec()
            };
            let turned = (0..groups)
                .flat_map(|group| parts.iter().flat_map(move |part| piece(part, group)).collect::<Vec<_>>());
            rest.is_empty().then(|| turned.collect())
        }
        Step::Shard(shard) => {
            let mut indices = indices.clone();
            let multiple = usize::try_from(shard.pad_multiple.unwrap_or(1)).unwrap();
            indices.resize(indices.len().next_multiple_of(multiple), None);
            let replicas: Vec<_> = match &shard.replicas {
                None => vec![1],
                Some(Replicas::Same(same)) => vec![*same],
                Some(Replicas::PerBlock(each)) => each.clone(),
            };
            let blocks = match &shard.blocks {
                None => vec![indices.len()],
                Some(Blocks::Sizes(sizes)) => {
                    sizes.iter().map(|size| usize::try_from(*size).unwrap()).collect()
                }
                Some(Blocks::Count(count)) => {
                    let count = usize::try_from(*count).unwrap();
                    (indices.len().is_multiple_of(count) || shard.split == Split::Chunk).then_some(())?;
                    let size = indices.len().div_ceil(count);
                    (0..count).map(|block| size.min(indices.len().saturating_sub(block * size))).collect()
                }
            };
            (blocks.iter().sum::<usize>() == indices.len()).then_some(())?;
            let mut left = Vec::new();
            let mut rest = indices.as_slice();
            for (number, len) in blocks.into_iter().enumerate() {
                let (block, after) = rest.split_at(len);
                rest = after;
                let replicas = usize::try_from(*replicas.get(number).or(replicas.last())?).unwrap();
                k.is_multiple_of(replicas).then_some(())?;
                left.extend(share(block, &shard.split, shard.unit, coordinate / replicas, k / replicas)?);
            }
            Some(left)
        }
    }
}

/// What one of `k` has of a block.
fn share(block: &[Option<u64>], split: &Split, unit: Option<u64>, at: usize, k: usize) -> Option<Indices> {
    let unit = usize::try_from(unit.unwrap_or(1)).unwrap();
    block.len().is_multiple_of(unit).then_some(())?;
    let units: Vec<_> = block.chunks(unit).collect();
    let m = units.len();
    let own: Vec<usize> = match split {
        Split::Even => (m % k == 0).then(|| (0..m).filter(|i| i / (m / k).max(1) == at).collect())?,
        Split::Chunk => (0..m).filter(|i| i / m.div_ceil(k) == at).collect(),
        Split::Balanced => {
            let mut owner = Vec::new();
            for c in 0..k {
                owner.extend(vec![c; m / k + usize::from(c < m % k)]);
            }
            (0..m).filter(|&i| owner[i] == at).collect()
        }
        Split::Cyclic => (0..m).filter(|i| i % k == at).collect(),
        Split::Sizes(sizes) => {
            (sizes.len() == k && sizes.iter().sum::<u64>() == m as u64).then_some(())?;
            let owner: Vec<_> =
                (0..).zip(sizes).flat_map(|(c, size)| vec![c; usize::try_from(*size).unwrap()]).collect();
            (0..m).filter(|&i| owner[i] == at).collect()
        }
        Split::Ids(ids) => {
            (ids.len() == k && ids.iter().map(Vec::len).sum::<usize>() == m).then_some(())?;
            ids[at].iter().map(|id| usize::try_from(*id).unwrap()).collect()
        }
    };
    Some(own.into_iter().flat_map(|unit| units[unit].to_vec()).collect())
}

/// The coordinates of a rank on the axes `a` and `b`, which have 2 and `k`.
fn coordinates(rank: usize, k: usize) -> [(usize, usize); 2] {
    [(rank / k, 2), (rank % k, k)]
}

fn split(k: usize) -> impl Strategy<Value = Split> {
    prop_oneof![
        3 => Just(Split::Even),
        3 => Just(Split::Chunk),
        3 => Just(Split::Balanced),
        3 => Just(Split::Cyclic),
        1 => vec(0..4_u64, k).prop_map(Split::Sizes),
        1 => (1..4_usize).prop_flat_map(move |each| Just((0..(k * each) as u64).collect::<Vec<_>>()).prop_shuffle()
            .prop_map(move |ids| Split::Ids(ids.chunks(each).map(<[u64]>::to_vec).collect()))),
    ]
}

fn step(axis: &'static str, k: usize) -> impl Strategy<Value = Step> {
    let blocks = prop_oneof![
        3 => Just(None),
        2 => (1..4_u64).prop_map(|count| Some(Blocks::Count(count))),
        1 => vec(0..9_u64, 1..4).prop_map(|sizes| Some(Blocks::Sizes(sizes))),
    ];
    let replicas = prop_oneof![3 => Just(None), 1 => (1..3_u64).prop_map(|same| Some(Replicas::Same(same)))];
    let pad = prop_oneof![3 => Just(None), 1 => (1..9_u64).prop_map(Some)];
    let shard = (split(k), prop::option::of(1..4_u64), blocks, replicas, pad).prop_map(
        move |(split, unit, blocks, replicas, pad_multiple)| {
            let pad_multiple = pad_multiple.filter(|_| blocks.is_none());
            Step::Shard(Shard { dim: 0, axis: axis.to_owned(), split, unit, blocks, replicas, pad_multiple })
        },
    );
    let interleave = (vec(0..4_u64, 1..4), 1..4_u64).prop_map(|(parts, groups)| {
        Step::Interleave(Interleave::of(
            0,
            parts.iter().map(|part| part * groups).collect::<Vec<_>>(),
            groups,
        ))
    });
    prop_oneof![5 => shard, 1 => interleave]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_rank_has_what_the_steps_leave_when_they_are_made_on_single_indices(
        (k, steps) in (1..5_usize).prop_flat_map(|k| (Just(k), vec(prop_oneof![step("a", 2), step("b", k)], 0..3))),
        len in 0..40_u64,
    ) {
        let axis_of = |step: &Step| usize::from(matches!(step, Step::Shard(shard) if shard.axis == "b"));
        let rule = steps.iter().fold(Rule::new("t"), |rule, step| rule.shard(step.clone()));
        let spec = PlanSpec::new().mesh("m", [("a", 2), ("b", k as u64)]).rule(rule);
        let expected: Option<Vec<Indices>> = (0..2 * k)
            .map(|rank| {
                let whole = (0..len).map(Some).collect();
                steps.iter().try_fold(whole, |indices, step| {
                    let (coordinate, k) = coordinates(rank, k)[axis_of(step)];
                    made(step, &indices, coordinate, k)
                })
            })
            .collect();
        let is_padded_within = |indices: &Indices| indices.windows(2).any(|pair| pair[0].is_none() && pair[1].is_some());
        let expected = expected.filter(|ranks| !ranks.iter().any(is_padded_within));
        match (expected, divided(spec, &[("t", &[len])])) {
            (None, Err(_)) => {}
            (Some(expected), Ok(partition)) => {
                for (rank, expected) in expected.iter().enumerate() {
                    let tensor = partition.rank(rank).next().unwrap();
                    let real: Vec<_> = expected.iter().flatten().copied().collect();
                    let found: Vec<_> = intervals(&partition, rank, "t").remove(0).into_iter().flatten().collect();
                    prop_assert_eq!(&found, &real);
                    prop_assert_eq!(&tensor.local_shape, &[expected.len() as u64]);
                    prop_assert_eq!(&tensor.pad, &[(expected.len() - real.len()) as u64]);
                    prop_assert_eq!(tensor.bytes, 2 * real.len() as u64);
                }
            }
            (expected, found) => {
                return Err(TestCaseError::fail(format!("expected {expected:?}, found {found:?}")));
            }
        }
    }

    #[test]
    fn ranks_have_every_index_once_and_replicas_as_often_as_they_are_many(
        k in 1..9_usize, replicas in 1..4_usize, units in 0..40_u64, unit in 1..4_u64,
        split in prop_oneof![Just(Split::Chunk), Just(Split::Balanced), Just(Split::Cyclic)],
        blocks in prop::option::of(1..4_u64),
    ) {
        let len = units * unit * blocks.unwrap_or(1);
        let mut shard = Shard::of(-1, "tp").split(split).unit(unit).replicas(replicas as u64);
        shard.blocks = blocks.map(Blocks::Count);
        let world = k * replicas;
        let spec = PlanSpec::new().mesh("m", [("tp", world as u64)]).rule(Rule::new("t").shard(shard));
        let partition = divided(spec, &[("t", &[3, len])]).unwrap();
        let mut times = vec![0; usize::try_from(len).unwrap()];
        for rank in 0..world {
            for index in intervals(&partition, rank, "t").remove(1).into_iter().flatten() {
                times[usize::try_from(index).unwrap()] += 1;
            }
        }
        prop_assert!(times.iter().all(|&times| times == replicas), "{times:?}");
        let bytes: u64 = partition.totals().map(|total| total.bytes).sum();
        prop_assert_eq!(bytes, 2 * 3 * len * replicas as u64);
    }

    #[test]
    fn flat_parts_have_every_element_once(k in 1..9_u64, shape in vec(0..6_u64, 0..4), pad in any::<bool>()) {
        let spec = PlanSpec::new().mesh("m", [("dp", k)]).rule(Rule::new("t").flat("dp", pad));
        let partition = divided(spec, &[("t", &shape)]).unwrap();
        let parts: Vec<_> = (0..partition.world()).map(|rank| partition.rank(rank).next().unwrap()).collect();
        let elements: Vec<_> = parts.iter().flat_map(|part| part.parts[0].intervals[0].clone()).flatten().collect();
        let all = shape.iter().product::<u64>();
        prop_assert_eq!(elements, (0..all).collect::<Vec<_>>());
        prop_assert!(!pad || parts.iter().all(|part| part.local_shape == [all.div_ceil(k)]));
    }
}
