//! What frameworks answer, and what they refuse, compared with what plans answer.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::{Partition, Plan, PlannedTensor, Tensor};
use crate::dtype::Dtype;
use crate::error::PlanError;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Checks all cases of the files in a folder; tells how many there were.
fn check_folder(folder: &Path) -> usize {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| check_file(path)).sum()
}

fn check_file(path: &Path) -> usize {
    let document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let cases = document["cases"].as_array().unwrap();
    for case in cases {
        for plan in [&case["plan"], &case["plan_ext"]].into_iter().filter(|plan| !plan.is_null()) {
            check(case, plan).unwrap_or_else(|why| panic!("{} in {}: {why}", case["id"], path.display()));
        }
    }
    cases.len()
}

fn check(case: &Value, plan: &Value) -> Result<(), String> {
    let ranks = case["ranks"].as_array();
    let world = case["world"].as_u64().or(ranks.map(|ranks| ranks.len() as u64)).ok_or("no world")?;
    let divided = divided(case, plan, usize::try_from(world).map_err(|_| "a large world")?);
    match (case["error"].as_str(), ranks, divided) {
        (Some(error), _, Err(found)) => {
            let kind = format!("Plan{}{}", error[..1].to_uppercase(), &error[1..]);
            (found.kind() == kind).then_some(()).ok_or(format!("expected {kind}, found {found}"))
        }
        (None, Some(ranks), Ok(partition)) => {
            let is_lenient = case["compare"] == "nonempty";
            (0..).zip(ranks).try_for_each(|(rank, expected)| compare(&partition, rank, expected, is_lenient))
        }
        (None, Some(_), Err(error)) => Err(error.to_string()),
        (error, _, Ok(partition)) => Err(format!("expected {error:?}, found {:?}", partition.rank(0).next())),
        (None, None, Err(_)) => Err("neither ranks nor error".to_owned()),
    }
}

fn divided(case: &Value, plan: &Value, world: usize) -> Result<Partition, PlanError> {
    let plan = Plan::from_json(&plan.to_string())?;
    plan.check_world(world)?;
    let tensor = &case["tensor"];
    let dtype = Dtype::from_name(tensor["dtype"].as_str().unwrap());
    let shape = numbers(&tensor["shape"]);
    let bytes = shape.iter().product::<u64>() * u64::from(dtype.bits().unwrap()) / 8;
    let tensor =
        Tensor { name: tensor["name"].as_str().unwrap(), dtype: &dtype, shape: &shape, bytes, shard: 0 };
    plan.divide([tensor].into_iter())
}

fn compare(partition: &Partition, rank: usize, expected: &Value, is_lenient: bool) -> Result<(), String> {
    let found = partition.rank(rank).next();
    let same = match &found {
        None => expected["intervals"].is_null() && expected["flat"].is_null(),
        Some(found) if !expected["flat"].is_null() => is_flat(found, expected),
        Some(found) => {
            let shape = numbers(&expected["local_shape"]);
            let is_empty = shape.contains(&0) && is_lenient;
            found.local_shape == shape
                && found.pad == numbers(&expected["pad"])
                && found.parts[0].intervals == intervals(expected)
                || is_empty && found.local_shape.contains(&0)
        }
    };
    if same { Ok(()) } else { Err(format!("rank {rank}: expected {expected}, found {found:?}")) }
}

fn is_flat(found: &PlannedTensor, expected: &Value) -> bool {
    let range = numbers(&expected["flat"]);
    let own: Vec<_> = std::iter::once(range[0]..range[1]).filter(|range| !range.is_empty()).collect();
    let pad = expected["pad"].as_u64().unwrap();
    let part = &found.parts[0];
    part.is_flat
        && part.intervals == [own]
        && found.pad == [pad]
        && found.local_shape == [range[1] - range[0] + pad]
}

fn intervals(expected: &Value) -> Vec<Vec<Range<u64>>> {
    let dims = expected["intervals"].as_array();
    let dim =
        |dim: &Value| dim.as_array().unwrap().iter().map(|pair| numbers(pair)[0]..numbers(pair)[1]).collect();
    dims.into_iter().flatten().map(dim).collect()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn plans_answer_as_frameworks_do() {
    assert!(check_folder(&Path::new(ROOT).join("tests/data/golden")) > 100);
}

#[test]
fn plans_answer_as_frameworks_do_in_all_cases_that_are_beside_the_checkout() {
    let folder = Path::new(ROOT).join("../shared/golden");
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    assert!(check_folder(&folder) + check_file(&folder.join("hf_tiny_llama/intervals.json")) > 1000);
}
