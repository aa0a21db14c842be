//! What is wrong with plans.

use super::{divided, fault_of, kinds};
use crate::plan::{Interleave, Own, Plan, PlanSpec, Rule, Shard, Split, Unmatched};

fn spec(rule: Rule) -> PlanSpec {
    PlanSpec::new().mesh("m", [("tp", 4)]).rule(rule)
}

fn sharded(shard: Shard) -> PlanSpec {
    spec(Rule::new("t").shard(shard))
}

fn tp() -> Shard {
    Shard::of(0, "tp")
}

/// The message of a rule that cannot be read.
fn syntax(rule: &str) -> String {
    let json = format!(r#"{{"meshes": {{"m": [["tp", 2]]}}, "rules": [{{"match": "a"}}, {rule}]}}"#);
    let fault = fault_of(Plan::from_json(&json));
    assert_eq!((fault.kind, fault.rule), ("PlanSyntax", Some(1)), "{fault}");
    fault.to_string()
}

#[test]
fn a_field_that_is_none_is_named_with_its_rule() {
    for (rule, says) in [
        (r#"{"match": "t", "shards": []}"#, "unknown field `shards`"),
        (r#"{"match": "t", "shard": [{"dim": 0, "axis": "tp", "replica": 2}]}"#, "unknown field `replica`"),
        (r#"{"match": "t", "own": [{"axis": "tp", "att": [0]}]}"#, "unknown field `att`"),
        (r#"{"match": "t", "flat": {"axis": "tp", "padd": true}}"#, "unknown field `padd`"),
        (r#"{"match": "t", "own": [{"axis": "tp"}]}"#, "exactly one of `at`, `var` and `by`"),
        (r#"{"match": "t", "own": [{"axis": "tp", "at": [0], "by": "bytes"}]}"#, "exactly one of"),
        (r#"{"match": "t", "own": [{"axis": "tp", "at": [0], "n": 2}]}"#, "only go with `var`"),
        (r#"{"match": "t", "own": [{"axis": "tp", "var": "l"}]}"#, "`var` without `n`"),
        (r#"{"match": "t", "own": [{"axis": "tp", "by": "tensor"}]}"#, "unknown variant `tensor`"),
        (r#"{"match": "t", "shard": [{"dim": 0}]}"#, "needs `axis`"),
        (
            r#"{"match": "t", "shard": [{"dim": 0, "axis": "tp", "groups": 2}]}"#,
            "`groups` goes with `interleave`",
        ),
        (r#"{"match": "t", "shard": [{"dim": 0, "interleave": [2]}]}"#, "needs `groups`"),
        (
            r#"{"match": "t", "shard": [{"dim": 0, "interleave": [2], "groups": 2, "unit": 1}]}"#,
            "no other fields",
        ),
        (r#"{"match": "t", "shard": [{"dim": 0, "axis": "tp", "split": "evn"}]}"#, "evn"),
        (r#"{"match": "t", "shard": [{"dim": 0, "axis": "tp", "unit": -1}]}"#, "-1"),
        (r#"{"match": "t", "match": "t"}"#, "duplicate field `match`"),
        (r#"{"drop": true}"#, "missing field `match`"),
        ("3", "expected an object"),
        (r#"["t"]"#, "expected an object"),
    ] {
        let message = syntax(rule);
        assert!(message.contains(says) && message.contains("rule 1"), "{rule}: {message}");
    }
}

#[test]
fn what_is_wrong_with_the_whole_is_told() {
    for (json, says) in [
        ("", "EOF"),
        ("[]", "expected an object"),
        (r#"{"rules": []}"#, "missing field `meshes`"),
        (r#"{"meshes": {}}"#, "missing field `rules`"),
        (r#"{"meshes": {"m": [["a", 2]]}, "rules": [], "rule": []}"#, "unknown field `rule`"),
        (r#"{"meshes": {"m": [["a", 2]], "m": [["a", 2]]}, "rules": []}"#, "mesh \"m\" is there twice"),
        (r#"{"meshes": {"m": [["a", 2, 3]]}, "rules": []}"#, "trailing"),
        (r#"{"meshes": {"m": [["a", -2]]}, "rules": []}"#, "-2"),
        (r#"{"meshes": {"m": [["a", 2]]}, "rules": [], "default": "drop"}"#, "unknown variant `drop`"),
    ] {
        let fault = fault_of(Plan::from_json(json));
        assert_eq!(fault.kind, "PlanSyntax");
        assert!(fault.message.contains(says), "{json}: {fault}");
    }
    let outputs = r#"{"meshes": {"m": [["a", 2]]}, "rules": [], "outputs": [{"name": "a", "form": []}]}"#;
    assert!(fault_of(Plan::from_json(outputs)).message.starts_with("output 0: unknown field `form`"));
}

#[test]
fn all_faults_of_a_plan_are_told_at_once() {
    let json = r#"{"meshes": {"m": [["tp", 2]]}, "rules": [
        {"match": "(", "own": [{"axis": "pp", "at": [0]}]},
        {"match": "a", "own": [{"axis": "tp", "at": [2]}, {"axis": "tp", "at": []}]},
        {"match": "b", "drop": true, "shard": [{"dim": 0, "axis": "tp", "unit": 0}]}
        ], "outputs": [{"name": "a", "from": []}]}"#;
    let error = Plan::from_json(json).unwrap_err();
    let found: Vec<_> = error.faults.iter().map(|fault| (fault.kind, fault.rule)).collect();
    let expected = [
        ("PlanRegex", Some(0)),
        ("PlanAxis", Some(0)),
        ("PlanAt", Some(1)),
        ("PlanAt", Some(1)),
        ("PlanSyntax", Some(2)),
        ("PlanOutput", None),
    ];
    assert_eq!(found, expected, "{error}");
    let message = error.faults[0].to_string();
    assert!(message.ends_with(r#"found "(": unclosed group"#), "{message}");
    let two =
        r#"{"meshes": {"m": [["tp", 2]]}, "rules": [{"match": 1}, {"match": "a"}, {"match": "b", "x": 1}]}"#;
    assert_eq!(kinds(Plan::from_json(two)), ["PlanSyntax"; 2]);
}

#[test]
fn a_world_must_be_one() {
    let world = |meshes: &[(&str, &[(&str, u64)])]| {
        let spec =
            meshes.iter().fold(PlanSpec::new(), |spec, (name, axes)| spec.mesh(*name, axes.iter().copied()));
        kinds(spec.build())
    };
    assert_eq!(world(&[("a", &[("x", 6)]), ("b", &[("y", 2), ("z", 3)])]), [""; 0]);
    assert_eq!(world(&[("a", &[])]), [""; 0]);
    assert_eq!(world(&[]), ["PlanWorld"]);
    assert_eq!(world(&[("a", &[("x", 6)]), ("b", &[("y", 5)])]), ["PlanWorld"]);
    assert_eq!(world(&[("a", &[("x", 0)])]), ["PlanWorld"]);
    assert_eq!(world(&[("a", &[("x", 1 << 20)])]), [""; 0]);
    assert_eq!(world(&[("a", &[("x", 1 << 20), ("y", 2)])]), ["PlanWorld"]);
    assert_eq!(world(&[("a", &[("x", u64::MAX), ("y", u64::MAX)])]), ["PlanWorld"]);
    assert_eq!(world(&[("a", &[("x", 2), ("x", 2)])]), ["PlanAxis"]);
    let plan = spec(Rule::new("t")).build().unwrap();
    assert!(plan.check_world(4).is_ok());
    assert_eq!(kinds(plan.check_world(3)), ["PlanWorld"]);
}

#[test]
fn each_fault_of_a_rule_by_itself_has_its_kind() {
    let own = |own: Own| spec(Rule::new(r"(?P<l>\d+)").own(own));
    let ids = |ids: [&[u64]; 4]| Split::Ids(ids.iter().map(|ids| ids.to_vec()).collect());
    for (spec, kind) in [
        (spec(Rule::new("a)(b")), "PlanRegex"),
        (spec(Rule::new("t").shard(Shard::of(0, "pp"))), "PlanAxis"),
        (own(Own::at("tp", [4])), "PlanAt"),
        (own(Own::at("tp", [-5])), "PlanAt"),
        (own(Own::at("tp", [i64::MIN])), "PlanAt"),
        (own(Own::var("tp", "x", 4)), "PlanVar"),
        (own(Own::var("tp", "l", 5)), "PlanUneven"),
        (own(Own::var("tp", "l", 4).split(Split::Sizes(vec![1; 3]))), "PlanSizes"),
        (own(Own::var("tp", "l", 5).split(Split::Sizes(vec![1; 4]))), "PlanSizes"),
        (own(Own::var("tp", "l", 4).split(ids([&[0], &[1], &[2], &[2]]))), "PlanIds"),
        (own(Own::var("tp", "l", 4).split(ids([&[0], &[1], &[2], &[4]]))), "PlanIds"),
        (own(Own::var("tp", "l", 5).split(ids([&[0], &[1], &[2], &[3]]))), "PlanIds"),
        (sharded(tp().unit(0)), "PlanUneven"),
        (sharded(tp().blocks(0)), "PlanBlocks"),
        (sharded(tp().blocks([u64::MAX, 1])), "PlanBlocks"),
        (sharded(tp().blocks([]).replicas([]).split(Split::Ids(Vec::new()))), "PlanBlocks"),
        (sharded(tp().replicas(0)), "PlanReplicas"),
        (sharded(tp().replicas(3)), "PlanReplicas"),
        (sharded(tp().replicas(u64::MAX)), "PlanReplicas"),
        (sharded(tp().blocks(2).replicas([1, 2, 4])), "PlanReplicas"),
        (sharded(tp().replicas([1, 2])), "PlanReplicas"),
        (sharded(tp().pad_multiple(0)), "PlanPad"),
        (sharded(tp().blocks(2).pad_multiple(2)), "PlanBlocks"),
        (sharded(tp().split(Split::Sizes(vec![1; 5]))), "PlanSizes"),
        (sharded(tp().split(Split::Sizes(vec![u64::MAX; 4]))), "PlanSizes"),
        (sharded(tp().split(Split::Ids(vec![vec![0]; 4]))), "PlanIds"),
        (sharded(tp().replicas(2).split(Split::Sizes(vec![1; 4]))), "PlanSizes"),
        (spec(Rule::new("t").shard(Interleave::of(0, [4, 3], 2))), "PlanUneven"),
        (spec(Rule::new("t").shard(Interleave::of(0, [4], 0))), "PlanUneven"),
        (spec(Rule::new("t").shard(Interleave::of(0, [u64::MAX, u64::MAX], 1))), "PlanBlocks"),
        (spec(Rule::new("t").flat("tp", false).shard(tp())), "PlanFlat"),
        (spec(Rule::new("t").flat("pp", false)), "PlanAxis"),
        (spec(Rule::new("t").dropped().own(Own::at("tp", [0]))), "PlanSyntax"),
        (spec(Rule::new("t").scale_of("w", [1]).shard(tp())), "PlanScale"),
        (spec(Rule::new("t").scale_of("w", [0])), "PlanScale"),
        (spec(Rule::new("t").scale_of("${x}", [1])), "PlanScale"),
        (spec(Rule::new("t").scale_of("${x", [1])), "PlanScale"),
    ] {
        let shown = format!("{spec:?}");
        assert_eq!(kinds(spec.build()), [kind], "{shown}");
    }
}

#[test]
fn each_fault_of_a_tensor_has_its_kind() {
    let ids = Split::Ids(vec![vec![0], vec![1], vec![2], vec![3]]);
    for (spec, shape, kind) in [
        (sharded(tp()), &[7][..], "PlanUneven"),
        (sharded(tp().unit(3)), &[8], "PlanUneven"),
        (sharded(tp().unit(3)), &[18], "PlanUneven"),
        (sharded(tp().pad_multiple(6)), &[5], "PlanUneven"),
        (sharded(tp().split(Split::Sizes(vec![1; 4]))), &[5], "PlanSizes"),
        (sharded(tp().split(ids)), &[5], "PlanIds"),
        (sharded(tp().blocks(3)), &[8], "PlanBlocks"),
        (sharded(tp().blocks([4, 8])), &[8], "PlanBlocks"),
        (sharded(Shard::of(1, "tp")), &[4], "PlanDim"),
        (sharded(Shard::of(-2, "tp")), &[4], "PlanDim"),
        (sharded(Shard::of(i64::MIN, "tp")), &[4], "PlanDim"),
        (sharded(tp()), &[], "PlanDim"),
        (sharded(tp().pad_multiple(1 << 63)), &[(1 << 63) + 1], "PlanTooLarge"),
        (sharded(tp().split(Split::Chunk).pad_multiple(1 << 62)), &[8, 64], "PlanTooLarge"),
        (spec(Rule::new("t").shard(Interleave::of(0, [4, 2], 2))), &[8], "PlanBlocks"),
        (spec(Rule::new("t").flat("tp", false)), &[u64::MAX, 2], "PlanTooLarge"),
        (spec(Rule::new("t").own(Own::at("tp", [0])).own(Own::at("tp", [1]))), &[1], "PlanUnowned"),
        (spec(Rule::new("t(?P<n>x)?").own(Own::var("tp", "n", 4))), &[1], "PlanVar"),
        (spec(Rule::new("(?P<n>t)").own(Own::var("tp", "n", 4))), &[1], "PlanVar"),
        (spec(Rule::new("u")), &[1], "PlanUnmatched"),
        (spec(Rule::new("t").scale_of("w", [1])), &[1], "PlanScale"),
        (spec(Rule::new("t").scale_of("t", [1])), &[1], "PlanScale"),
    ] {
        let shown = format!("{spec:?}");
        assert_eq!(kinds(divided(spec, &[("t", shape)])), [kind], "{shown}");
    }
}

#[test]
fn padding_that_would_lie_between_indices_is_a_fault() {
    let within = tp().pad_multiple(8);
    let after = |next: Shard| spec(Rule::new("t").shard(within.clone()).shard(next));
    assert_eq!(kinds(divided(after(tp().split(Split::Chunk)), &[("t", &[5])])), [""; 0]);
    let two = |first: Shard, next: Shard| {
        let spec =
            PlanSpec::new().mesh("m", [("tp", 2), ("dp", 2)]).rule(Rule::new("t").shard(first).shard(next));
        kinds(divided(spec, &[("t", &[6])]))
    };
    let turned = Shard::of(0, "dp").split(Split::Ids(vec![vec![3, 0], vec![1, 2]]));
    assert_eq!(two(Shard::of(0, "tp").pad_multiple(8), turned), ["PlanPad"]);
    assert_eq!(two(Shard::of(0, "tp").pad_multiple(8), Shard::of(0, "dp")), [""; 0]);
}

#[test]
fn a_scale_must_fit_its_weight() {
    let spec = |weight: Rule| {
        PlanSpec::new().mesh("m", [("tp", 2)]).rule(weight).rule(Rule::new("s").scale_of("w", [4, 4]))
    };
    let fault = |weight: Rule, w: &[u64], s: &[u64]| kinds(divided(spec(weight), &[("s", s), ("w", w)]));
    let w = || Rule::new("w");
    assert_eq!(fault(w(), &[8, 9], &[2, 3]), [""; 0]);
    assert_eq!(fault(w(), &[8, 9], &[2, 2]), ["PlanScale"], "too few blocks");
    assert_eq!(fault(w(), &[8], &[2]), ["PlanScale"], "blocks of another number of dimensions");
    assert_eq!(fault(w().flat("tp", false), &[8, 8], &[2, 2]), ["PlanScale"], "cut flat");
    assert_eq!(
        fault(w().shard(Shard::of(0, "tp")), &[7, 8], &[2, 2]),
        ["PlanUneven"],
        "the weight's fault alone"
    );
}

#[test]
fn tensors_of_the_same_fault_are_counted() {
    let plan = PlanSpec::new()
        .mesh("m", [("tp", 2)])
        .rule(Rule::new(r"b\d").shard(Shard::of(0, "tp")))
        .rule(Rule::new(r"c\d").shard(Shard::of(0, "tp")));
    let tensors: [(&str, &[u64]); 6] =
        [("x", &[1]), ("c1", &[3]), ("b1", &[3]), ("b2", &[5]), ("y", &[1]), ("b3", &[2])];
    let error = divided(plan, &tensors).unwrap_err();
    let found: Vec<_> =
        error.faults.iter().map(|fault| (fault.kind, fault.tensor.as_deref(), fault.more)).collect();
    let expected =
        [("PlanUnmatched", Some("x"), 1), ("PlanUneven", Some("c1"), 0), ("PlanUneven", Some("b1"), 1)];
    assert_eq!(found, expected);
    let message = error.faults[2].to_string();
    assert!(
        message.contains("dimension 0 of [3]: expected 3 indices to be divided over 2 coordinates"),
        "{message}"
    );
}

#[test]
fn plans_that_would_take_for_ever_end_in_a_fault() {
    let huge = 1 << 60;
    for (spec, shape) in
        [
            (sharded(tp().split(Split::Cyclic)), &[huge][..]),
            (spec(Rule::new("t").shard(Interleave::of(0, [huge, huge], huge))), &[2 * huge]),
            (sharded(tp().split(Split::Chunk).blocks(huge)), &[huge]),
            (
                PlanSpec::new()
                    .mesh("m", [("a", 1 << 10), ("b", 1 << 10)])
                    .mesh("n", [("x", 1 << 5), ("y", 1 << 15)])
                    .rule(["a", "b", "x", "y"].iter().fold(Rule::new("t"), |rule, axis| {
                        rule.shard(Shard::of(0, *axis).split(Split::Chunk))
                    })),
                &[1 << 40],
            ),
        ]
    {
        let shown = format!("{spec:?}");
        assert_eq!(kinds(divided(spec, &[("t", shape)])), ["PlanTooLarge"], "{shown}");
    }
    let steps = (0..65).fold(Rule::new("t"), |rule, _| rule.shard(tp()));
    assert_eq!(kinds(spec(steps).build()), ["PlanTooLarge"]);
    assert_eq!(kinds(spec(Rule::new("t".repeat(1 << 15))).build()), ["PlanTooLarge"]);
    for bomb in [r"(?P<n>(\w{100}){100}){100}", r"(?P<n>.{1000}){1000}"] {
        assert_eq!(kinds(spec(Rule::new(bomb)).build()), ["PlanTooLarge"], "{bomb}");
        assert_eq!(
            kinds(spec(Rule::new(bomb).own(Own::var("tp", "n", 4))).build()),
            ["PlanTooLarge"],
            "{bomb}"
        );
    }
}

#[test]
fn what_no_rule_matches_is_a_fault_or_whole() {
    let plan = |unmatched| spec(Rule::new("t")).unmatched(unmatched);
    assert_eq!(kinds(divided(plan(Unmatched::Error), &[("u", &[1])])), ["PlanUnmatched"]);
    let partition = divided(plan(Unmatched::Replicate), &[("u", &[3])]).unwrap();
    assert!((0..4).all(|rank| partition.rank(rank).next().is_some_and(|planned| planned.local_shape == [3])));
}

#[test]
fn a_tensor_of_more_dimensions_than_anybody_has_is_a_fault() {
    let plan = || sharded(tp());
    let ones = |dims: usize| [vec![4], vec![1; dims - 1]].concat();
    assert!(divided(plan(), &[("t", &ones(64))]).is_ok());
    assert_eq!(kinds(divided(plan(), &[("t", &ones(65))])), ["PlanTooLarge"]);
}
