//! What is put together of several tensors.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{divided, fault_of, kinds, one};
use crate::assembly::Assembly;
use crate::plan::{By, OutputRule, Own, PlanSpec, Rule, Shard, Split, Unmatched};

fn spec(world: u64) -> PlanSpec {
    PlanSpec::new().mesh("m", [("tp", world)]).unmatched(Unmatched::Replicate)
}

/// For each element of an assembly, outermost first, the tensor and the index in it that it comes from.
fn elements(assembly: &Assembly) -> Vec<Option<(u32, Vec<u64>)>> {
    let mut elements = vec![None; usize::try_from(assembly.shape.iter().product::<u64>()).unwrap()];
    for part in &assembly.parts {
        let mut at = vec![(0, Vec::new())];
        for (dim, len) in part.dims.iter().zip(&assembly.shape) {
            let next = at.iter().flat_map(|(place, index): &(u64, Vec<u64>)| {
                dim.iter().flat_map(move |stretch| {
                    (0..stretch.len).map(move |i| {
                        (
                            place * len + stretch.at + i,
                            index.iter().copied().chain([stretch.from + i]).collect(),
                        )
                    })
                })
            });
            at = next.collect();
        }
        for (place, index) in at {
            let element = &mut elements[usize::try_from(place).unwrap()];
            assert_eq!(element.replace((part.tensor, index)), None, "an element is filled twice");
        }
    }
    elements
}

#[test]
fn parts_of_an_output_lie_one_after_the_other() {
    let plan = spec(2)
        .rule(Rule::new("[qk]").shard(Shard::of(0, "tp")))
        .output(OutputRule::new("qk", ["q", "k"]).concat(0));
    let partition = divided(plan, &[("k", &[2, 1]), ("rest", &[]), ("q", &[4, 1])]).unwrap();
    let assemblies: Vec<_> = partition.assemblies(1).collect();
    let names: Vec<_> = assemblies.iter().map(|assembly| assembly.name.as_str()).collect();
    assert_eq!(names, ["qk", "rest"], "an output stands where the first of its parts does");
    assert_eq!(assemblies[0].shape, [3, 1]);
    let from: Vec<_> =
        elements(&assemblies[0]).into_iter().flatten().map(|(tensor, index)| (tensor, index[0])).collect();
    assert_eq!(from, [(2, 2), (2, 3), (0, 1)]);
    let planned = partition.rank(1).next().unwrap();
    assert_eq!(
        (planned.name.as_str(), planned.local_shape.as_slice(), planned.bytes),
        ("qk", &[3, 1][..], 6)
    );
    assert_eq!(planned.parts.iter().map(|part| part.tensor.as_str()).collect::<Vec<_>>(), ["q", "k"]);
    assert_eq!(
        partition.totals().map(|total| (total.tensors, total.bytes)).collect::<Vec<_>>(),
        [(2, 8), (2, 8)]
    );
}

#[test]
fn parts_can_be_put_together_group_by_group() {
    let plan = spec(2)
        .rule(Rule::new("[qkv]").shard(Shard::of(0, "tp")))
        .output(OutputRule::new("qkv", ["q", "k", "v"]).concat(-1).groups(4));
    let partition = divided(plan, &[("q", &[8]), ("k", &[4]), ("v", &[4])]).unwrap();
    let from: Vec<_> =
        elements(&partition.assemblies(1).next().unwrap()).into_iter().map(Option::unwrap).collect();
    let from: Vec<_> = from.into_iter().map(|(tensor, index)| (tensor, index[0])).collect();
    assert_eq!(from, [(0, 4), (0, 5), (1, 2), (2, 2), (0, 6), (0, 7), (1, 3), (2, 3)]);
    let planned = partition.rank(1).next().unwrap();
    let told: Vec<_> =
        planned.parts.iter().map(|part| (part.tensor.as_str(), part.intervals[0].clone())).collect();
    let pieces = [("q", 4..6), ("k", 2..3), ("v", 2..3), ("q", 6..8), ("k", 3..4), ("v", 3..4)];
    assert_eq!(told, pieces.map(|(tensor, range)| (tensor, one(range))), "they are told as they lie");
}

#[test]
fn groups_that_cross_runs_of_indices_are_told_in_their_order() {
    let plan = spec(2)
        .rule(Rule::new("[ab]").shard(Shard::of(0, "tp").split(Split::Cyclic)).shard(Shard::of(1, "tp")))
        .output(OutputRule::new("ab", ["a", "b"]).concat(0).groups(4));
    let partition = divided(plan, &[("a", &[8, 2]), ("b", &[4, 2])]).unwrap();
    let planned = partition.rank(0).next().unwrap();
    let told: Vec<_> =
        planned.parts.into_iter().map(|part| (part.tensor, part.intervals[0].clone())).collect();
    let piece = |tensor: &str, ranges: &[Range<u64>]| (tensor.to_owned(), ranges.to_vec());
    assert_eq!(
        told,
        [
            piece("a", &[0..1, 2..3]),
            piece("b", &one(0..1)),
            piece("a", &[4..5, 6..7]),
            piece("b", &one(2..3))
        ]
    );
}

#[test]
fn what_a_rank_has_is_stacked_in_rising_order_of_the_numbers() {
    let experts = Own::var("tp", "e", 12).split(Split::Cyclic);
    let plan = spec(2)
        .rule(Rule::new(r"l0\.e(?P<e>\d+)\.[ab]").own(experts))
        .output(OutputRule::new("l{l}.w", ["l{l}.e{e}.a", "l{l}.e{e}.b"]).concat(0).stack("e"));
    let names: Vec<_> = (0..12).flat_map(|e| [format!("l0.e{e}.b"), format!("l0.e{e}.a")]).collect();
    let mut tensors: Vec<_> = names.iter().map(|name| (name.as_str(), &[1, 2][..])).collect();
    tensors.sort_unstable();
    let partition = divided(plan, &tensors).unwrap();
    let planned: Vec<_> = partition.rank(1).collect();
    assert_eq!(planned.len(), 1);
    assert_eq!(planned[0].local_shape, [6, 2, 2]);
    let parts: Vec<_> = planned[0].parts.iter().map(|part| part.tensor.as_str()).collect();
    assert_eq!(parts[..4], ["l0.e1.a", "l0.e1.b", "l0.e3.a", "l0.e3.b"]);
    assert_eq!(parts[10..], ["l0.e11.a", "l0.e11.b"], "numbers rise, and not names");
    let assembly = partition.assemblies(1).next().unwrap();
    assert_eq!(assembly.parts[2].shape, [1, 1, 2]);
    assert!(elements(&assembly).iter().all(Option::is_some));
}

#[test]
fn a_tensor_can_get_another_name_and_another_the_old_one() {
    let plan = spec(2)
        .rule(Rule::new("a").flat("tp", true))
        .output(OutputRule::new("b", ["a"]))
        .output(OutputRule::new("a", ["b"]));
    let partition = divided(plan, &[("a", &[3]), ("b", &[1])]).unwrap();
    let names: Vec<_> =
        partition.rank(1).map(|planned| (planned.name, planned.local_shape, planned.pad)).collect();
    assert_eq!(names, [("b".to_owned(), vec![2], vec![1]), ("a".to_owned(), vec![1], vec![0])]);
}

#[test]
fn padding_stays_where_its_part_is_and_counts_only_at_the_end() {
    let rule = Rule::new("[ab]").shard(Shard::of(0, "tp").pad_multiple(4));
    let plan = spec(2).rule(rule).output(OutputRule::new("ab", ["a", "b"]).concat(0));
    let partition = divided(plan, &[("a", &[3]), ("b", &[3])]).unwrap();
    let assembly = partition.assemblies(1).next().unwrap();
    assert_eq!((assembly.shape.as_slice(), assembly.pad.as_slice()), (&[4][..], &[1][..]));
    let is_filled: Vec<_> = elements(&assembly).iter().map(Option::is_some).collect();
    assert_eq!(is_filled, [true, false, true, false]);
}

#[test]
fn what_cannot_be_put_together_is_a_fault() {
    let one = |output: OutputRule, tensors: &[(&str, &[u64])]| {
        let pipe = Own::at("tp", [0]);
        let plan = spec(2).rule(Rule::new("first.*").own(pipe)).output(output);
        kinds(divided(plan, tensors))
    };
    let ab = || OutputRule::new("ab{l}", ["a{l}", "b{l}"]).concat(0);
    assert_eq!(one(ab(), &[("a1", &[2]), ("b1", &[3])]), [""; 0]);
    assert_eq!(one(ab(), &[("a1", &[2]), ("b2", &[2])]), ["PlanOutput"], "the other part is missing");
    assert_eq!(one(ab(), &[("a1", &[2]), ("b01", &[2])]), ["PlanOutput"], "01 is not the number 1");
    assert_eq!(one(ab(), &[("a1", &[2, 2]), ("b1", &[2, 3])]), ["PlanOutput"], "of different shapes");
    assert_eq!(one(ab(), &[("a1", &[2, 2]), ("b1", &[2])]), ["PlanOutput"], "of different dimensions");
    assert_eq!(one(ab().concat(1), &[("a1", &[2]), ("b1", &[2])]), ["PlanOutput"], "no such dimension");
    assert_eq!(one(ab().groups(2), &[("a1", &[2]), ("b1", &[3])]), ["PlanOutput"], "groups do not divide");
    assert_eq!(
        one(ab(), &[("a1", &[2]), ("b1", &[2]), ("ab1", &[])]),
        ["PlanOutput"],
        "the name is another's"
    );
    let torn = OutputRule::new("c", ["a", "first"]).concat(0);
    assert_eq!(one(torn, &[("a", &[2]), ("first", &[2])]), ["PlanOutput"], "rank 1 has but one of them");
    let stack = || OutputRule::new("s", ["e{e}"]).stack("e");
    assert_eq!(one(stack(), &[("e0", &[2]), ("e1", &[3])]), ["PlanOutput"], "rows of different shapes");
    assert_eq!(one(stack(), &[("e0", &[2]), ("e1", &[2])]), [""; 0]);
}

#[test]
fn a_part_with_a_fault_is_told_once() {
    let plan = spec(2)
        .rule(Rule::new("a").shard(Shard::of(0, "tp")))
        .output(OutputRule::new("c", ["a", "b"]).concat(0));
    assert_eq!(kinds(divided(plan, &[("a", &[3]), ("b", &[2])])), ["PlanUneven"]);
}

#[test]
fn digits_of_an_output_may_stand_fixed_or_open() {
    let plan = spec(1)
        .output(OutputRule::new("first", ["l0.e0"]))
        .output(OutputRule::new("l{l}", ["l{l}.e1"]))
        .output(OutputRule::new("twice{l}", ["l{l}.f{l}"]))
        .output(OutputRule::new("e{e}", ["l0.e{e}"]));
    let tensors = ["l0.e0", "l1.e0", "l2.e1", "l3.f3", "l3.f4", "l0.e00"].map(|name| (name, &[1][..]));
    let fault = fault_of(divided(plan, &tensors));
    assert!(
        fault.message.contains("outputs 0 and 3") || fault.message.contains("outputs 3 and 0"),
        "{fault}"
    );
    let plan = spec(1)
        .output(OutputRule::new("first", ["l0.e0"]))
        .output(OutputRule::new("l{l}", ["l{l}.e1"]))
        .output(OutputRule::new("twice{l}", ["l{l}.f{l}"]));
    let partition = divided(plan, &tensors).unwrap();
    let names: Vec<_> = partition.rank(0).map(|planned| planned.name).collect();
    assert_eq!(names, ["first", "l1.e0", "l2", "twice3", "l3.f4", "l0.e00"]);
}

#[test]
fn two_outputs_of_one_name_are_a_fault_only_where_a_rank_has_both() {
    let plan = |rank_of_b: i64| {
        spec(2)
            .rule(Rule::new("a").own(Own::at("tp", [0])))
            .rule(Rule::new("b").own(Own::at("tp", [rank_of_b])))
            .output(OutputRule::new("c", ["a"]))
            .output(OutputRule::new("c", ["b"]))
    };
    let tensors: [(&str, &[u64]); 2] = [("a", &[1]), ("b", &[1])];
    assert_eq!(kinds(divided(plan(1), &tensors)), [""; 0]);
    assert_eq!(kinds(divided(plan(0), &tensors)), ["PlanOutput"]);
}

#[test]
fn a_part_goes_to_one_output_only() {
    let plan = spec(1).output(OutputRule::new("b", ["a"])).output(OutputRule::new("c", ["a"]));
    let fault = fault_of(divided(plan, &[("a", &[1])]));
    assert!(fault.message.contains("outputs 0 and 1"), "{fault}");
}

#[test]
fn an_output_of_nothing_is_a_warning() {
    let plan = spec(1).output(OutputRule::new("b", ["a"]));
    let partition = divided(plan, &[("x", &[1])]).unwrap();
    assert_eq!(partition.warnings().iter().map(|warning| warning.kind).collect::<Vec<_>>(), ["UnusedRule"]);
}

#[test]
fn outputs_that_make_no_sense_are_faults_of_the_plan() {
    let of = |output: OutputRule| kinds(spec(1).output(output).build());
    for (output, why) in [
        (OutputRule::new("a", [""; 0]), "no parts"),
        (OutputRule::new("a", ["b", "c"]), "no dimension"),
        (OutputRule::new("a", ["b", "b"]).concat(0), "a part twice"),
        (OutputRule::new("a{l}", ["b"]), "a number of the name only"),
        (OutputRule::new("a", ["b{l}"]), "a number of the parts only"),
        (OutputRule::new("a{l}", ["b{l}"]).stack("l"), "stacked over a number of the name"),
        (OutputRule::new("a", ["b"]).stack("e"), "stacked over no number"),
        (OutputRule::new("a", ["b"]).concat(0).groups(0), "no groups"),
        (OutputRule::new("a", ["b"]).groups(1), "groups without a dimension"),
        (OutputRule::new("a{l}", ["b{l}1"]), "a number beside digits"),
        (OutputRule::new("a{l}", ["b{l"]), "a brace that stays open"),
        (OutputRule::new("a{}", ["b{}"]), "a number without a name"),
    ] {
        assert_eq!(of(output), ["PlanOutput"], "{why}");
    }
}

#[test]
fn groups_without_end_end_in_a_fault() {
    let plan = spec(1).output(OutputRule::new("c", ["a", "b"]).concat(0).groups(1 << 40));
    assert_eq!(kinds(divided(plan, &[("a", &[1 << 40]), ("b", &[1 << 40])])), ["PlanTooLarge"]);
}

#[test]
fn an_output_of_more_bytes_than_can_be_counted_is_a_fault() {
    let rule = Rule::new("[ab]").shard(Shard::of(0, "tp").split(Split::Chunk).pad_multiple(1 << 61));
    let plan = spec(1).rule(rule);
    let tensors: [(&str, &[u64]); 2] = [("a", &[1]), ("b", &[1])];
    assert_eq!(kinds(divided(plan.clone(), &tensors)), [""; 0]);
    assert_eq!(
        kinds(divided(plan.output(OutputRule::new("c", ["a", "b"]).concat(0)), &tensors)),
        ["PlanTooLarge"]
    );
}

#[test]
fn a_tensor_without_elements_is_cut_flat_however_long_its_other_dimensions_are() {
    let plan = spec(2).rule(Rule::new("a").flat("tp", true));
    let partition = divided(plan, &[("a", &[1 << 40, 1 << 40, 0])]).unwrap();
    let planned: Vec<_> = partition.rank(1).collect();
    assert_eq!((planned[0].local_shape.as_slice(), planned[0].bytes), (&[0][..], 0));
}

#[test]
fn parts_without_elements_take_no_room_however_they_are_cut() {
    let rule = Rule::new(".*").shard(Shard::of(0, "tp").split(Split::Cyclic));
    let names: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), &[1 << 22, 0][..])).collect();
    let partition = divided(spec(2).rule(rule), &tensors).unwrap();
    let stretches = |assembly: Assembly| {
        assert_eq!(assembly.shape, [1 << 21, 0]);
        assembly.parts.iter().flat_map(|part| &part.dims).map(Vec::len).sum::<usize>()
    };
    assert!(partition.assemblies(1).map(stretches).sum::<usize>() <= 40 * 2);
    let planned = partition.rank(1).next().unwrap();
    assert_eq!((planned.local_shape, planned.pad), (vec![1 << 21, 0], vec![0, 0]));
}

#[test]
fn numbers_that_no_tensor_has_are_told_once_for_all_rules_that_divide_them() {
    let own = || Own::var("tp", "l", 6);
    let plan = || {
        spec(2)
            .rule(Rule::new(r"dense(?P<l>\d+)").own(own()))
            .rule(Rule::new(r"moe(?P<l>\d+)").own(own()))
            .rule(Rule::new(r"none(?P<l>\d+)").own(Own::var("tp", "l", 8)))
    };
    let told = |tensors: &[(&str, &[u64])]| -> Vec<String> {
        let partition = divided(plan(), tensors).unwrap();
        let numbers = partition.warnings().iter().filter(|warning| warning.kind == "UnusedNumbers");
        numbers.map(|warning| warning.message.clone()).collect()
    };
    assert_eq!(told(&[("dense0", &[1]), ("moe5", &[1])]), [""; 0], "some layers are dense, and others not");
    assert_eq!(told(&[("other", &[1])]), [""; 0], "rules that are no tensor's are told as such");
    let few = told(&[("dense0", &[1]), ("moe3", &[1])]);
    assert!(few.len() == 1 && few[0].contains("from 4 to 5 of the 6"), "{few:?}");
}

#[test]
fn balanced_tensors_go_longest_first_to_whoever_has_least() {
    let plan = spec(2).rule(Rule::new(".*").own(Own::by("tp", By::Bytes)));
    let partition = divided(plan, &[("a", &[1]), ("b", &[5]), ("c", &[3]), ("d", &[3])]).unwrap();
    let of = |rank| partition.rank(rank).map(|planned| planned.name).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned(), "d".to_owned()]));
}

proptest! {
    #[test]
    fn outputs_have_each_element_of_their_parts_once(
        world in 1..4_u64, groups in 1..4_u64, sizes in vec(1..4_u64, 1..4), rows in 0..3_u64, grouped in any::<bool>(),
    ) {
        // Each part has whole groups on every rank.
        let shapes: Vec<_> = sizes.iter().map(|size| [rows, size * groups * world]).collect();
        let names: Vec<_> = (0..sizes.len()).map(|part| format!("p{part}.x")).collect();
        let tensors: Vec<_> = names.iter().zip(&shapes).map(|(name, shape)| (name.as_str(), &shape[..])).collect();
        let mut output = OutputRule::new("all", names.clone()).concat(1);
        output.groups = grouped.then_some(groups * world);
        let plan = spec(world).rule(Rule::new(".*").shard(Shard::of(1, "tp"))).output(output);
        let partition = divided(plan, &tensors).unwrap();
        let mut seen = Vec::new();
        for rank in 0..partition.world() {
            let assembly = partition.assemblies(rank).next().unwrap();
            let found = elements(&assembly);
            prop_assert!(found.iter().all(Option::is_some), "an element is left");
            let planned = partition.rank(rank).next().unwrap();
            let told: Vec<_> = planned.parts.iter().flat_map(|part| {
                let tensor = names.iter().position(|name| *name == part.tensor).unwrap();
                part.intervals[1].iter().cloned().flatten().map(move |index| (u32::try_from(tensor).unwrap(), index))
            }).collect();
            let row = found.iter().take(if rows > 0 { told.len() } else { 0 }).flatten();
            let row: Vec<_> = row.map(|(tensor, index)| (*tensor, index[1])).collect();
            prop_assert!(rows == 0 || row == told, "what is told lies so: {row:?}, {told:?}");
            if grouped && rows > 0 {
                let of_group = |size: &u64| usize::try_from(*size).unwrap();
                let first = found.iter().take(sizes.iter().map(of_group).sum()).flatten();
                let row: Vec<_> = first.map(|(tensor, _)| *tensor).collect();
                let pieces = (0..).zip(&sizes).flat_map(|(tensor, size)| vec![tensor; of_group(size)]);
                let expected: Vec<_> = pieces.collect();
                prop_assert_eq!(row, expected, "the first group has its piece of each part");
            }
            seen.extend(found.into_iter().flatten());
        }
        seen.sort_unstable();
        let all: u64 = shapes.iter().map(|shape| shape[0] * shape[1]).sum();
        prop_assert_eq!(seen.len() as u64, all);
        seen.dedup();
        prop_assert_eq!(seen.len() as u64, all);
    }
}
