//! What plans mean.

use serde_json::{Value, json};

use super::{divide, divided, intervals, kinds, one};
use crate::dtype::Dtype;
use crate::plan::{
    Blocks, By, Interleave, OutputRule, Own, Plan, PlanSpec, Rule, Shard, Split, Tensor, Unmatched,
};

/// A plan with a rule of every sort, and every field.
fn full() -> PlanSpec {
    let mut spec = PlanSpec::new()
        .mesh("dense", [("pp", 2), ("tp", 4)])
        .mesh("expert", [("ep", 8)])
        .unmatched(Unmatched::Replicate)
        .rule(Rule::new("dropped").min_dims(1).dropped())
        .rule(
            Rule::new(r"l(?P<l>\d+)\.e(?P<e>\d+)")
                .own(Own::at("pp", [0, -1]))
                .own(Own::var("pp", "l", 4).split(Split::Balanced))
                .own(Own::var("ep", "e", 8).split(Split::Sizes(vec![1; 8])))
                .own(Own::var("ep", "e", 8).split(Split::Ids((0..8).map(|id| vec![id]).collect())))
                .own(Own::by("tp", By::Bytes))
                .own(Own::by("tp", By::Shard)),
        )
        .rule(
            Rule::new("cut")
                .shard(Interleave::of(0, [4, 4], 2))
                .shard(Shard::of(0, "tp").split(Split::Chunk).unit(2).blocks([4, 4]).replicas([1, 2]))
                .shard(Shard::of(-1, "tp").split(Split::Cyclic).blocks(2).replicas(2))
                .shard(Shard::of(1, "pp").pad_multiple(8)),
        )
        .rule(Rule::new("flat").flat("ep", true))
        .rule(Rule::new("(?P<w>.*)_scale").scale_of("${w}", [128, 128]))
        .output(OutputRule::new("q{l}", ["a{l}.{e}", "b{l}.{e}"]).concat(0).groups(2).stack("e"));
    spec.schema = Some("plan.schema.json".to_owned());
    spec
}

#[test]
fn a_plan_that_is_written_can_be_read_again() {
    let plan = full().build().unwrap();
    let written = serde_json::to_string(&plan).unwrap();
    assert_eq!(*Plan::from_json(&written).unwrap().spec(), full());
    assert_eq!(*serde_json::from_str::<Plan>(&written).unwrap().spec(), full());
    assert_eq!(serde_json::from_str::<PlanSpec>(&written).unwrap(), full());
}

/// Adds the names of all fields of objects but those of `meshes`, whose names are free.
fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.push(name.clone());
                if name != "meshes" {
                    fields(value, names);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

/// Adds the names of all properties that a schema tells.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(own)) = object.get("properties") {
                names.extend(own.keys().cloned());
            }
            object.values().for_each(|value| properties(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| properties(value, names)),
        _ => {}
    }
}

#[test]
fn the_schema_has_the_fields_that_plans_have() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut known, mut told) = (Vec::new(), Vec::new());
    fields(&serde_json::to_value(full()).unwrap(), &mut known);
    properties(&schema, &mut told);
    for names in [&mut known, &mut told] {
        names.sort_unstable();
        names.dedup();
    }
    assert_eq!(known, told);
}

#[test]
fn the_last_axis_runs_fastest_and_views_are_of_one_world() {
    let plan = PlanSpec::new()
        .mesh("dense", [("pp", 2), ("tp", 2)])
        .mesh("expert", [("ep", 4)])
        .rule(Rule::new("a").shard(Shard::of(0, "pp")).shard(Shard::of(0, "tp")))
        .rule(Rule::new("b").shard(Shard::of(0, "tp")).shard(Shard::of(0, "pp")))
        .rule(Rule::new("c").shard(Shard::of(0, "ep")))
        .rule(
            Rule::new("d")
                .shard(Shard::of(0, "ep").split(Split::Chunk))
                .shard(Shard::of(0, "tp").split(Split::Chunk)),
        );
    let partition = divided(plan, &[("a", &[4]), ("b", &[4]), ("c", &[4]), ("d", &[8])]).unwrap();
    let of = |tensor| (0..4).map(|rank| intervals(&partition, rank, tensor)[0][0].start).collect::<Vec<_>>();
    assert_eq!(of("a"), [0, 1, 2, 3]);
    assert_eq!(of("b"), [0, 2, 1, 3]);
    assert_eq!(of("c"), [0, 1, 2, 3]);
    assert_eq!(of("d"), [0, 3, 4, 7], "of the axis of the other view, each has what the first has left");
}

#[test]
fn an_axis_of_several_views_is_one_where_it_is_the_same_for_all_ranks() {
    let plan = |axis: &str| {
        PlanSpec::new()
            .mesh("dense", [("pp", 2), ("tp", 4)])
            .mesh("expert", [("pp", 2), ("tp", 2), ("ep", 2)])
            .rule(Rule::new("t").shard(Shard::of(0, axis).split(Split::Chunk)))
    };
    assert!(plan("pp").build().is_ok());
    assert_eq!(kinds(plan("tp").build()), ["PlanAxis"]);
    let starts = |axis| {
        let partition = divided(plan(axis), &[("t", &[8])]).unwrap();
        (0..8).map(|rank| intervals(&partition, rank, "t")[0][0].start).collect::<Vec<_>>()
    };
    assert_eq!(starts("dense.tp"), [0, 2, 4, 6, 0, 2, 4, 6]);
    assert_eq!(starts("expert.tp"), [0, 0, 4, 4, 0, 0, 4, 4]);
    assert_eq!(kinds(plan("dense.ep").build()), ["PlanAxis"]);
}

#[test]
fn the_first_rule_that_matches_the_whole_name_and_has_the_dimensions_counts() {
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 2)])
        .rule(Rule::new(r"w\.1").dropped())
        .rule(Rule::new(r"w\.\d+").min_dims(2).shard(Shard::of(0, "tp")))
        .rule(Rule::new(r"w\..*"))
        .rule(Rule::new(r"w\.2"));
    let partition =
        divided(plan, &[("w.1", &[2, 2]), ("w.2", &[2, 2]), ("w.3", &[2]), ("w.12", &[2, 2])]).unwrap();
    let planned: Vec<_> = partition.rank(1).map(|planned| (planned.name, planned.local_shape)).collect();
    let expected = [("w.2", vec![1, 2]), ("w.3", vec![2]), ("w.12", vec![1, 2])];
    assert_eq!(planned, expected.map(|(name, shape)| (name.to_owned(), shape)));
    assert_eq!(partition.warnings().len(), 1, "the last rule has nothing left");
    assert!(partition.warnings()[0].message.contains("rule 3"));
}

#[test]
fn names_that_differ_in_digits_are_told_apart_by_patterns_that_do() {
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 4)])
        .rule(Rule::new(r"x(?P<n>\d)(?P<d>[0-3]?)").own(Own::var("tp", "n", 4)))
        .rule(Rule::new(r"x(?P<n>\d+)").own(Own::var("tp", "n", 100)));
    let partition =
        divided(plan, &[("x2", &[]), ("x10", &[]), ("x37", &[]), ("x99", &[]), ("x31", &[])]).unwrap();
    let of = |rank| partition.rank(rank).map(|planned| planned.name).collect::<Vec<_>>();
    assert_eq!([of(0), of(1), of(2), of(3)], [vec![], vec!["x10", "x37"], vec!["x2"], vec!["x99", "x31"]]);
}

#[test]
fn all_clauses_of_own_must_hold() {
    let plan = PlanSpec::new().mesh("m", [("pp", 3), ("ep", 2)]).rule(
        Rule::new(r"(?P<e>\d+)\..*")
            .own(Own::at("pp", [0, -1]))
            .own(Own::var("ep", "e", 10).split(Split::Chunk)),
    );
    let partition = divided(plan, &[("7.w", &[2])]).unwrap();
    let owners: Vec<_> = (0..6).filter(|&rank| partition.rank(rank).count() == 1).collect();
    assert_eq!(owners, [1, 5]);
    assert_eq!(partition.rank(6).count(), 0, "there is no such rank");
}

#[test]
fn numbers_can_be_many_without_any_being_listed() {
    for split in [Split::Balanced, Split::Chunk, Split::Cyclic, Split::Sizes(vec![1 << 62, 3 << 62])] {
        let own = Own::var("tp", "n", u64::MAX).split(split.clone());
        let sum = if matches!(split, Split::Sizes(_)) { vec!["PlanSizes"] } else { vec![] };
        let plan = PlanSpec::new().mesh("m", [("tp", 2)]).rule(Rule::new(r"(?P<n>\d+)").own(own));
        assert_eq!(kinds(divided(plan, &[("18446744073709551614", &[1])])), sum, "{split:?}");
    }
}

#[test]
fn every_number_is_one_of_the_coordinate_that_the_split_gives_it_to() {
    for (split, n) in [
        (Split::Even, 12),
        (Split::Chunk, 9),
        (Split::Chunk, 2),
        (Split::Balanced, 14),
        (Split::Balanced, 2),
        (Split::Cyclic, 7),
        (Split::Sizes(vec![0, 3, 0, 2]), 5),
        (Split::Ids(vec![vec![4], vec![], vec![0, 2], vec![1, 3]]), 5),
    ] {
        let names: Vec<_> = (0..n).map(|number| number.to_string()).collect();
        let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), &[1][..])).collect();
        let own = Own::var("tp", "n", n).split(split.clone());
        let owned = PlanSpec::new().mesh("m", [("tp", 4)]).rule(Rule::new(r"(?P<n>\d+)").own(own));
        let owned = divided(owned, &tensors).unwrap();
        let cut = PlanSpec::new()
            .mesh("m", [("tp", 4)])
            .rule(Rule::new("t").shard(Shard::of(0, "tp").split(split.clone())));
        let cut = divided(cut, &[("t", &[n])]).unwrap();
        for rank in 0..4 {
            let names: Vec<u64> = owned.rank(rank).map(|planned| planned.name.parse().unwrap()).collect();
            let indices: Vec<u64> = intervals(&cut, rank, "t").remove(0).into_iter().flatten().collect();
            assert_eq!(names, indices, "{split:?} of {n}, coordinate {rank}");
        }
    }
}

#[test]
fn scales_are_those_of_all_blocks_that_a_rank_has_something_of() {
    let plan = PlanSpec::new()
        .mesh("m", [("pp", 2), ("tp", 2)])
        .rule(Rule::new(r"(?P<w>.*)_scale").scale_of("${w}", [128, 128]))
        .rule(Rule::new("w").own(Own::at("pp", [1])).shard(Shard::of(0, "tp").blocks(2)))
        .rule(Rule::new("dropped").dropped());
    let tensors: [(&str, &[u64]); 4] =
        [("w_scale", &[7, 2]), ("w", &[896, 130]), ("dropped", &[1, 1]), ("dropped_scale", &[1, 1])];
    let partition = divided(plan, &tensors).unwrap();
    assert_eq!(intervals(&partition, 0, "w_scale"), Vec::<Vec<_>>::new(), "owned as the weight is");
    assert_eq!(intervals(&partition, 3, "w"), [vec![224..448, 672..896], one(0..130)]);
    assert_eq!(intervals(&partition, 3, "w_scale"), [vec![1..4, 5..7], one(0..2)]);
    assert_eq!(intervals(&partition, 2, "w_scale"), [vec![0..2, 3..6], one(0..2)]);
    assert_eq!(partition.rank(3).count(), 2, "scales of a weight that is dropped are dropped");
}

#[test]
fn scales_of_blocks_that_are_cut_in_any_order_rise_and_are_there_once() {
    let ids = Split::Ids(vec![vec![3, 0], vec![1, 2]]);
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 2)])
        .rule(Rule::new("w").shard(Shard::of(0, "tp").split(ids).unit(3)))
        .rule(Rule::new("s").scale_of("w", [4]));
    let partition = divided(plan, &[("w", &[12]), ("s", &[3])]).unwrap();
    assert_eq!(intervals(&partition, 0, "w"), [vec![9..12, 0..3]]);
    assert_eq!(intervals(&partition, 0, "s"), [vec![0..1, 2..3]]);
    assert_eq!(intervals(&partition, 1, "s"), [one(0..3)]);
}

#[test]
fn the_ready_plans_suit_any_model() {
    let tensors: [(&str, &[u64]); 3] = [("a", &[5, 2]), ("b", &[]), ("c\n", &[1])];
    let partition = divide(&Plan::fsdp(4).unwrap(), &tensors).unwrap();
    let shapes: Vec<_> = (0..4).map(|rank| partition.rank(rank).next().unwrap().local_shape).collect();
    assert_eq!(shapes, [[2, 2], [2, 2], [1, 2], [0, 2]]);
    assert_eq!(partition.totals().map(|total| total.bytes).collect::<Vec<_>>(), [12, 10, 6, 2]);

    let dtype = &Dtype::U8;
    let sizes = [(3, 0), (4, 1), (2, 0), (3, 2)];
    let tensors = ["a", "b", "c", "d"].into_iter().zip(sizes);
    let tensors = tensors.map(|(name, (bytes, shard))| Tensor { name, dtype, shape: &[], bytes, shard });
    let owners = |plan: Plan| {
        let partition = plan.divide(tensors.clone()).unwrap();
        (0..2)
            .map(|rank| partition.rank(rank).map(|planned| planned.name).collect::<String>())
            .collect::<Vec<_>>()
    };
    assert_eq!(owners(Plan::by_shard(2).unwrap()), ["ac", "bd"]);
    assert_eq!(owners(Plan::balanced(2).unwrap()), ["bc", "ad"]);
    for plan in [Plan::fsdp(0), Plan::by_shard(0), Plan::balanced(u64::MAX)] {
        assert_eq!(kinds(plan), ["PlanWorld"]);
    }
}

#[test]
fn the_parts_of_a_type_of_unknown_width_have_their_share_of_the_bytes() {
    let dtype = &Dtype::from_name("Q8");
    let tensor = Tensor { name: "t", dtype, shape: &[3, 7], bytes: 42, shard: 0 };
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 3)])
        .rule(Rule::new("t").shard(Shard::of(0, "tp")))
        .build()
        .unwrap();
    let partition = plan.divide([tensor].into_iter()).unwrap();
    assert_eq!(partition.rank(1).next().unwrap().bytes, 14);
}

#[test]
fn the_parts_of_a_rank_are_those_of_its_tensors() {
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 2)])
        .rule(Rule::new("a").own(Own::at("tp", [0])))
        .rule(Rule::new("[bc]").shard(Shard::of(0, "tp").blocks(Blocks::Count(1))));
    let partition = divided(plan, &[("a", &[2]), ("b", &[2]), ("c", &[2])]).unwrap();
    let parts: Vec<_> =
        partition.parts(1).map(|(tensor, local)| (tensor, local.class(), local.bytes())).collect();
    assert_eq!(parts, [(1, 1, 2), (2, 1, 2)], "b and c are of one class");
    assert_eq!(partition.parts(1).next().unwrap().1.intervals(), [one(1..2)]);
}

#[test]
fn splits_and_their_like_are_written_by_name_number_or_list() {
    let shard = |value: Value| {
        let mut step = json!({"dim": 0, "axis": "tp"});
        ["split", "blocks", "replicas"].into_iter().for_each(|field| step[field] = value[field].clone());
        serde_json::from_value::<crate::plan::Step>(step).map(|step| serde_json::to_value(step).unwrap())
    };
    for value in [
        json!({"split": "chunk", "blocks": 2, "replicas": 1}),
        json!({"split": [1, 2], "blocks": [3], "replicas": [2]}),
        json!({"split": [[0], [1]], "blocks": 1, "replicas": []}),
    ] {
        let read = shard(value.clone()).unwrap();
        assert_eq!(
            json!({"split": read["split"], "blocks": read["blocks"], "replicas": read["replicas"]}),
            value
        );
    }
    for split in [json!("Even"), json!([1, [2]]), json!(3), json!([-1]), json!({})] {
        assert!(shard(json!({"split": split, "blocks": 1, "replicas": 1})).is_err(), "{split}");
    }
}

#[test]
fn a_rule_that_divides_twice_over_the_same_ranks_is_a_warning() {
    let warned = |rule: Rule| {
        let plan = PlanSpec::new().mesh("dense", [("pp", 2), ("tp", 2)]).mesh("expert", [("ep", 4)]);
        let partition = divided(plan.rule(rule), &[("a.1", &[8, 8])]).unwrap();
        partition.warnings().iter().map(|warning| warning.kind).collect::<Vec<_>>()
    };
    let rule = || Rule::new(r"a\.(?P<l>\d)");
    let lost = ["LostElements"];
    assert_eq!(warned(rule().shard(Shard::of(0, "tp")).shard(Shard::of(1, "tp"))), lost);
    assert_eq!(warned(rule().own(Own::var("pp", "l", 2)).shard(Shard::of(0, "pp"))), lost);
    assert_eq!(
        warned(rule().own(Own::var("ep", "l", 2).split(Split::Chunk)).shard(Shard::of(0, "tp"))),
        lost,
        "of another view"
    );
    assert_eq!(warned(rule().own(Own::var("pp", "l", 2)).shard(Shard::of(0, "tp"))), [""; 0]);
    assert_eq!(warned(rule().shard(Shard::of(0, "pp")).shard(Shard::of(1, "tp"))), [""; 0]);
}
