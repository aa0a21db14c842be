//! What ranks have by ready plans, of tensors of all families.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use crate::dtype::Dtype;
use crate::plan::partition::{Partition, Tensor};

fn divide(config: &str, parallel: &Parallel, rows: &[Row]) -> Partition {
    let tensors = rows.iter().map(|row| Tensor {
        name: &row.name,
        dtype: &Dtype::U8,
        shape: &row.shape,
        bytes: row.shape.iter().product(),
        shard: 0,
    });
    let plan = Plan::for_model(config, parallel).unwrap_or_else(|error| panic!("{error}"));
    plan.divide(tensors).unwrap_or_else(|error| panic!("{error}"))
}

/// A section's tensors as those of one layer, and of one expert where they are one's.
fn tensors(title: &str) -> Vec<Row> {
    section(title).into_iter().map(|row| Row { name: row.name.replace('#', "3"), ..row }).collect()
}

/// All different parts that ranks have of a tensor.
fn parts(partition: &Partition, name: &str) -> BTreeSet<Vec<Vec<(u64, u64)>>> {
    let spans = |dim: &Vec<Range<u64>>| dim.iter().map(|span| (span.start, span.end)).collect();
    let ranks = (0..partition.world()).flat_map(|rank| partition.rank(rank));
    let of_name = ranks.filter(|tensor| tensor.name == name && !tensor.local_shape.contains(&0));
    of_name.map(|tensor| tensor.parts[0].intervals.iter().map(spans).collect()).collect()
}

fn elements(part: &[Vec<(u64, u64)>]) -> u64 {
    part.iter().map(|dim| dim.iter().map(|(start, end)| end - start).sum::<u64>()).product()
}

#[test]
fn the_different_parts_of_each_tensor_are_the_tensor() {
    for title in titles() {
        let (family, parallel) = parallel(title);
        let rows = tensors(title);
        let partition = divide(&with(family, &[]), &parallel, &rows);
        assert_eq!(Some(partition.world() as u64), parallel.world());
        for row in &rows {
            let parts = parts(&partition, &row.name);
            let sum: u64 = parts.iter().map(|part| elements(part)).sum();
            let whole: u64 = row.shape.iter().product();
            if row.fate.contains("scale of") {
                // Two parts have the scale of a block that the cut goes through.
                assert!(sum >= whole, "{title}: {} is in parts {parts:?}", row.name);
            } else {
                assert_eq!(sum, whole, "{title}: {} is in parts {parts:?}", row.name);
                assert_eq!(parts.len() > 1, row.fate.contains("dim"), "{title}: {}", row.name);
            }
        }
    }
}

#[test]
fn no_rank_has_anything_of_another_stage() {
    let rows = tensors("llama");
    let partition = divide(&with("llama", &[]), &Parallel::default().pp(4).tp(2), &rows);
    let names = |rank: usize| partition.rank(rank).map(|tensor| tensor.name).collect::<Vec<_>>();
    assert_eq!(names(0), ["model.embed_tokens.weight"]);
    assert_eq!(names(3), [""; 0]);
    assert_eq!(names(7).len(), rows.len() - 1);
}

#[test]
fn an_expert_has_one_rank_in_each_group_of_ranks() {
    let rows = tensors("mixtral ep");
    let partition = divide(&with("mixtral", &[]), &Parallel::default().tp(2).dp(4).ep(4), &rows);
    let expert = "model.layers.3.block_sparse_moe.experts.3.w1.weight";
    let owners = (0..8).filter(|&rank| partition.rank(rank).any(|tensor| tensor.name == expert));
    assert_eq!(owners.collect::<Vec<_>>(), [1, 5]);
}

#[test]
fn scales_lie_where_their_weights_do() {
    let rows = tensors("deepseek_v2 ep");
    let partition = divide(&with("deepseek_v2", &[]), &Parallel::default().tp(2).pp(2).ep(2), &rows);
    for rank in 0..4 {
        let has = |name: &str| partition.rank(rank).any(|tensor| tensor.name.ends_with(name));
        assert_eq!(has("experts.3.down_proj.weight"), rank == 2, "rank {rank}");
        assert_eq!(has("experts.3.down_proj.weight_scale_inv"), rank == 2, "rank {rank}");
    }
}

#[test]
fn what_a_rank_has_of_stacked_experts_fits_together() {
    for tp in [1, 2, 4] {
        let partition = divide(&with("gpt_oss", &[]), &Parallel::default().tp(tp), &tensors("gpt_oss"));
        for rank in 0..partition.world() {
            let shape = |name: &str| {
                let name = format!("model.layers.3.mlp.experts.{name}");
                let found = partition.rank(rank).find(|tensor| tensor.name == name);
                found.map_or(vec![0; 4], |tensor| tensor.local_shape)
            };
            let blocks = shape("down_proj_blocks")[2];
            assert_eq!(shape("gate_up_proj_blocks")[1], blocks * 64, "rank {rank} of {tp}");
            assert_eq!(shape("gate_up_proj_bias")[1], blocks * 64, "rank {rank} of {tp}");
            assert_eq!(shape("gate_up_proj")[2], shape("down_proj")[1] * 2, "rank {rank} of {tp}");
        }
    }
}

#[test]
fn a_fused_projection_is_cut_as_its_parts_are() {
    let partition = divide(&with("phi3", &[]), &Parallel::default().tp(8), &tensors("phi3"));
    let fused = partition.rank(5).find(|tensor| tensor.name.ends_with("qkv_proj.weight")).unwrap();
    assert_eq!(fused.parts[0].intervals[0], [80..96, 160..176, 224..240]);
    let fused = partition.rank(5).find(|tensor| tensor.name.ends_with("gate_up_proj.weight")).unwrap();
    assert_eq!(fused.parts[0].intervals[0], [60..72, 156..168]);
}

#[test]
fn a_ready_plan_is_silent_about_rules_that_match_nothing() {
    let partition = divide(&with("llama", &[]), &Parallel::default(), &tensors("llama")[..1]);
    assert_eq!(partition.warnings(), []);
}
