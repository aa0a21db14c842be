mod faults;
mod language;
mod matching;
mod outputs;
mod properties;

use std::ops::Range;

use super::{Partition, Plan, PlanSpec, Tensor};
use crate::dtype::Dtype;
use crate::error::{PlanError, PlanFault};

/// Divides tensors of two bytes an element, which all lie in the first shard.
fn divided(spec: PlanSpec, tensors: &[(&str, &[u64])]) -> Result<Partition, PlanError> {
    divide(&spec.build()?, tensors)
}

fn divide(plan: &Plan, tensors: &[(&str, &[u64])]) -> Result<Partition, PlanError> {
    let dtype = &Dtype::Bf16;
    let bytes = |shape: &[u64]| shape.iter().fold(2_u64, |bytes, len| bytes.saturating_mul(*len));
    let tensor = |&(name, shape)| Tensor { name, dtype, shape, bytes: bytes(shape), shard: 0 };
    plan.divide(tensors.iter().map(tensor))
}

/// The kinds of all faults.
fn kinds<T>(result: Result<T, PlanError>) -> Vec<&'static str> {
    result.err().into_iter().flat_map(|error| error.faults).map(|fault| fault.kind).collect()
}

/// The only fault.
fn fault_of<T>(result: Result<T, PlanError>) -> PlanFault {
    let mut faults = result.err().unwrap().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.remove(0)
}

/// What a rank has of a tensor; nothing where it has none of it.
fn intervals(partition: &Partition, rank: usize, tensor: &str) -> Vec<Vec<Range<u64>>> {
    let mut parts = partition.rank(rank).flat_map(|planned| planned.parts);
    parts.find(|part| part.tensor == tensor).map_or(Vec::new(), |part| part.intervals)
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}
