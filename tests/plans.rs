//! What a plan gives to a rank, loaded: compared with what is put together of whole tensors by hand.

mod golden;

use weightmap::{Error, Intervals, LoadOptions, Parallel, Plan, Rank, ReadMode, Selection};
use weightmap_testkit::{Checkpoint, Llama, Moe, Oracle, ShardBuilder};

use crate::support::plan_cases::{Layout, plan, plan_named, plans};
use crate::support::planned::{assert_plan, owners, select, wanted, whole};
use crate::support::{FIRST, assert_says, in_mode, open, within_a_minute};

#[test]
fn each_rank_loads_what_its_plan_says_in_every_way() {
    within_a_minute(|| {
        let (files, whole) = Layout::Shards.files();
        for (name, plan) in plans() {
            assert_plan(&open(&files), &plan, &whole, name);
        }
    });
}

#[test]
fn a_plan_for_a_family_of_models_gives_each_rank_its_part() {
    within_a_minute(|| {
        let files = Llama::tiny().checkpoint().temp();
        let whole = whole(&Oracle::open(&files));
        let config = std::fs::read_to_string(files.file("config.json")).unwrap();
        for parallel in
            [Parallel::default().tp(2), Parallel::default().tp(4).pp(2), Parallel::default().dp(2)]
        {
            let plan = Plan::for_model(&config, &parallel).unwrap();
            assert_plan(&open(&files), &plan, &whole, &format!("{parallel:?}"));
        }
    });
}

#[test]
fn ready_plans_give_each_rank_its_part() {
    within_a_minute(|| {
        let files = Llama::tiny().checkpoint().temp();
        let whole = whole(&Oracle::open(&files));
        for ranks in [1, 3, 5] {
            for plan in [Plan::fsdp(ranks), Plan::by_shard(ranks), Plan::balanced(ranks)] {
                assert_plan(&open(&files), &plan.unwrap(), &whole, &format!("{ranks} ranks"));
            }
        }
    });
}

#[test]
fn the_experts_of_a_huge_model_are_told_from_headers_alone() {
    let files = Moe { tensors: 1000, shards: 5 }.checkpoint().temp();
    let model = open(&files);
    let config = std::fs::read_to_string(files.file("config.json")).unwrap();
    let plan = Plan::for_model(&config, &Parallel::default().tp(2).dp(2).ep(4)).unwrap();
    let partition = model.divide(&plan).unwrap();
    let mut experts = 0;
    for (rank, total) in partition.totals().enumerate() {
        let infos = select(&model, &plan, rank).infos().unwrap();
        let bytes: u64 = infos.iter().map(|info| info.len_bytes()).sum();
        assert_eq!((infos.len() as u64, bytes), (total.tensors, total.bytes));
        for (info, planned) in infos.iter().zip(partition.rank(rank)) {
            assert_eq!(
                (&info.name, &info.shape, info.len_bytes()),
                (&planned.name, &planned.local_shape, planned.bytes)
            );
        }
        experts += infos.iter().filter(|info| info.name.contains(".experts.")).count();
    }
    assert_eq!(
        experts,
        model.names().filter(|name| name.contains(".experts.")).count(),
        "each is one rank's"
    );
}

#[test]
fn the_ranks_of_a_mesh_have_the_whole_checkpoint_together() {
    let (files, whole) = Layout::Shards.files();
    let model = open(&files);
    for (case, plan) in plans() {
        let partition = model.divide(&plan).unwrap();
        let parts: Vec<_> =
            (0..4).flat_map(|rank| partition.rank(rank)).flat_map(|planned| planned.parts).collect();
        for (name, tensor) in &whole {
            let owners = owners(tensor, parts.iter().filter(|part| part.tensor == *name));
            let is_dropped = case == "owners" && name == "scalar";
            assert!(owners.iter().all(|&owners| (owners == 0) == is_dropped), "{name} by {case}: {owners:?}");
        }
    }
}

/// Tensors so long that gaps between the rows of ranks are not read through.
fn long() -> Checkpoint {
    let add = |shard: ShardBuilder, name: &str| shard.pattern(name, "F32", &[256, 4096]);
    let shard = |names: [&str; 3]| names.into_iter().fold(ShardBuilder::new(), add);
    Checkpoint::new()
        .shard("a.safetensors", shard(["a", "b", "c"]))
        .shard("b.safetensors", shard(["d", "e", "f"]))
}

#[test]
fn a_rank_reads_its_rows_and_hardly_more() {
    let files = long().temp();
    let whole = whole(&Oracle::open(&files));
    let plans = [
        (Plan::fsdp(4).unwrap(), true),
        (Plan::balanced(4).unwrap(), true),
        (Plan::by_shard(2).unwrap(), true),
        (plan(r#""rules": [{"match": ".*", "flat": {"axis": "ep"}}]"#), true),
        (
            plan(r#""rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "ep", "pad_multiple": 300}]}]"#),
            true,
        ),
        (
            plan(
                r#""rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "ep"}]}], "outputs": [
                    {"name": "abc", "from": ["a", "b", "c"], "concat": 0}]"#,
            ),
            true,
        ),
        (plan(r#""rules": [{"match": ".*", "shard": [{"dim": 1, "axis": "tp"}]}]"#), false),
    ];
    for (place, (plan, is_in_rows)) in plans.iter().enumerate() {
        for rank in 0..plan.world() {
            let model = open(&files);
            let wanted = wanted(&model, plan, &whole, rank);
            let loaded = select(&model, plan, rank).load_with(&in_mode(ReadMode::Buffered)).unwrap();
            wanted.iter().zip(loaded.tensors()).for_each(|(wanted, tensor)| wanted.assert_is(tensor, "long"));
            let report = loaded.report();
            let needed: u64 = wanted.iter().map(|wanted| wanted.requested_bytes()).sum();
            assert_eq!(report.requested_bytes, needed);
            if *is_in_rows {
                assert_eq!(report.read_bytes, needed, "plan {place}, rank {rank}");
            }
            assert!(report.over_read.is_none_or(|ratio| ratio <= if *is_in_rows { 1.05 } else { 2.0 }));
        }
    }
}

#[test]
fn a_part_of_a_tensor_that_was_selected_whole_takes_its_place() {
    let (files, _) = Layout::Shards.files();
    let selection = open(&files).select().names(["norm", "embed"]).unwrap();
    let selection = selection.plan(&plan_named("rows"), 0).unwrap();
    let infos = selection.infos().unwrap();
    assert_eq!((infos[0].name.as_str(), infos[0].shape.as_slice()), ("norm", [2].as_slice()));
    assert_eq!(infos.iter().filter(|info| info.name == "norm").count(), 1);
}

/// The only fault of a plan, which is about this directory.
fn assert_fault(error: &Error, kind: &str, directory: &std::path::Path) {
    assert_eq!((error.kind(), error.path()), (kind, Some(directory)), "{error}");
    let Error::Plan { fault, .. } = error else { panic!("{error}") };
    assert_eq!(fault.faults.len(), 1, "{error}");
    assert_says(error, &[&directory.display().to_string()]);
}

#[test]
fn a_rank_of_another_world_is_a_fault() {
    let (files, _) = Layout::Shards.files();
    let model = open(&files);
    for world in [3, 5, 8] {
        let error = model.select().plan(&plan_named("rows"), Rank::new(1, world).unwrap()).unwrap_err();
        assert_fault(&error, "PlanWorld", model.directory());
        assert_says(&error, &["4 ranks", &world.to_string()]);
    }
    assert!(model.select().plan(&plan_named("rows"), Rank::new(1, 4).unwrap()).is_ok());
}

#[test]
fn a_rank_that_the_plan_does_not_have_is_an_error() {
    let (files, _) = Layout::Shards.files();
    let model = open(&files);
    for rank in [4, usize::MAX] {
        let error = model.select().plan(&plan_named("rows"), rank).unwrap_err();
        assert_eq!(error.kind(), "BadRank", "{error}");
        let partition = model.divide(&plan_named("rows")).unwrap();
        assert_eq!(model.select().part(&partition, rank).unwrap_err().kind(), "BadRank");
        assert_eq!(partition.rank(rank).count(), 0);
    }
}

#[test]
fn what_was_divided_of_another_model_is_a_fault() {
    let (files, _) = Layout::Shards.files();
    let (model, again) = (open(&files), open(&files));
    let partition = again.divide(&plan_named("rows")).unwrap();
    let error = model.select().part(&partition, 0).unwrap_err();
    assert_fault(&error, "PlanModel", model.directory());
    assert!(again.select().part(&partition, 0).is_ok());
}

#[test]
fn all_faults_of_a_plan_for_a_model_come_at_once_and_name_its_directory() {
    let (files, _) = Layout::Shards.files();
    let model = open(&files);
    let plan = plan(
        r#""rules": [
            {"match": "embed", "shard": [{"dim": 0, "axis": "tp"}]},
            {"match": "norm", "shard": [{"dim": 1, "axis": "tp"}]},
            {"match": "scalar", "own": [{"axis": "pp", "at": [0]}, {"axis": "dense.pp", "at": [1]}]}]"#,
    );
    for rank in 0..4 {
        let error = model.select().plan(&plan, rank).unwrap_err();
        assert_eq!(error.path(), Some(model.directory()));
        let kinds: Vec<_> = error.clone().into_each().iter().map(Error::kind).collect();
        assert_eq!(kinds, ["PlanUneven", "PlanDim", "PlanUnowned"]);
        assert_says(
            &error,
            &[&model.directory().display().to_string(), "\"embed\"", "\"norm\"", "\"scalar\""],
        );
    }
}

#[test]
fn packed_elements_that_would_be_cut_within_a_byte_are_an_error_of_their_kind() {
    let files = Checkpoint::single(
        ShardBuilder::new().pattern("a", "F4", &[2, 6]).pattern("b", "F4", &[2, 3]).pattern(
            "c",
            "F4",
            &[2, 3],
        ),
    )
    .temp();
    let cut = |rest: &str| plan(rest);
    let cases = [
        (r#""rules": [{"match": "a", "shard": [{"dim": 1, "axis": "tp"}]}]"#, "SliceNotOnByte"),
        (r#""rules": [{"match": "a", "flat": {"axis": "ep"}}]"#, "SliceNotOnByte"),
        (r#""rules": [{"match": "b", "shard": [{"dim": 0, "axis": "tp"}]}]"#, "SliceNotOnByte"),
        (
            r#""rules": [], "outputs": [{"name": "bc", "from": ["b", "c"], "concat": 1}]"#,
            "SliceNotWholeBytes",
        ),
        (
            r#""rules": [{"match": "b", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 4}, {"dim": 1, "axis": "pp", "pad_multiple": 4}]}]"#,
            "SliceNotOnByte",
        ),
    ];
    for (rest, kind) in cases {
        let model = open(&files);
        let selection = select(&model, &cut(rest), 0);
        for error in [
            selection.infos().unwrap_err(),
            selection.load_with(&in_mode(ReadMode::Buffered)).unwrap_err(),
            selection.load_with(&in_mode(ReadMode::Mapped)).unwrap_err(),
            selection.prefetch().unwrap_err(),
            selection.stream().unwrap().find_map(Result::err).unwrap(),
        ] {
            assert_eq!(error.kind(), kind, "{rest}: {error}");
            assert!(error.tensor().is_some());
        }
    }
}

#[test]
fn packed_elements_that_are_cut_between_bytes_are_loaded() {
    within_a_minute(|| {
        let files = Checkpoint::single(
            ShardBuilder::new().pattern("a", "F4", &[4, 6]).pattern("b", "F4", &[4, 2]).pattern(
                "c",
                "F6_E2M3",
                &[4, 8],
            ),
        )
        .temp();
        let whole = whole(&Oracle::open(&files));
        for rest in [
            r#""rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "ep"}]}]"#,
            r#""rules": [{"match": "a", "shard": [{"dim": 1, "axis": "tp", "split": [2, 4]}]}]"#,
            r#""rules": [{"match": "a|c", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 6}]}]"#,
            r#""rules": [{"match": "c", "flat": {"axis": "tp"}}]"#,
            r#""rules": [], "outputs": [{"name": "ab", "from": ["a", "b"], "concat": 1}]"#,
            r#""rules": [{"match": "c", "shard": [{"dim": 1, "axis": "tp", "split": [[4, 5, 6, 7], [0, 1, 2, 3]]}]}]"#,
        ] {
            assert_plan(&open(&files), &plan(rest), &whole, rest);
        }
    });
}

#[test]
fn elements_of_unknown_width_go_whole_to_their_ranks_or_are_an_error() {
    let files = Checkpoint::new()
        .shard(FIRST, ShardBuilder::new().tensor("q", "Q8_0", &[8], *b"unknown bytes"))
        .temp();
    let model = open(&files);
    let loaded = select(&model, &Plan::balanced(2).unwrap(), 0).load().unwrap();
    assert_eq!(loaded.tensors()[0].bytes(), b"unknown bytes");
    let error = select(&model, &Plan::fsdp(2).unwrap(), 0).load().unwrap_err();
    assert_eq!(error.kind(), "SliceUnknownWidth", "{error}");
}

/// Two ranks; `a` is cut by columns, all else is the first one's; and `a` is also given as `b`.
fn columns() -> Plan {
    let plan = r#"{
        "meshes": {"m": [["tp", 2]]},
        "rules": [
            {"match": "a", "shard": [{"dim": 1, "axis": "tp"}]},
            {"match": ".*", "own": [{"axis": "tp", "at": [0]}]}
        ],
        "outputs": [{"name": "b", "from": ["a"]}]
    }"#;
    Plan::from_json(plan).unwrap()
}

#[test]
fn slices_of_the_same_range_that_share_a_stream_do_not_wait_for_each_other() {
    within_a_minute(|| {
        const MIB: u64 = 1 << 20;
        let shard = ShardBuilder::new().zeros("a", "U8", &[48, MIB]);
        let others = (0..12).map(|number| format!("z{number:02}"));
        let shard = others.fold(shard, |shard, name| shard.zeros(&name, "U8", &[20 * MIB]));
        let files = Checkpoint::single(shard).temp();
        let model = open(&files);
        let part = model
            .select()
            .plan(&columns(), 0)
            .unwrap()
            .slice("a", [Intervals::from(..), Intervals::from(MIB / 2..)]);
        let options = in_mode(ReadMode::Buffered).workers(1).memory_limit(44 * MIB);
        let tensors = part.unwrap().stream_with(&options).unwrap().map(Result::unwrap);
        assert_eq!(tensors.map(|tensor| tensor.bytes().len() as u64).sum::<u64>(), 288 * MIB);
    });
}

#[test]
fn of_what_a_plan_gives_by_one_name_the_last_stays() {
    let files =
        Checkpoint::single(ShardBuilder::new().pattern("a", "U8", &[4, 4]).pattern("b2", "U8", &[3])).temp();
    let model = open(&files);
    let twice = model.select().plan(&columns(), 0).unwrap().plan(&columns(), 1).unwrap();
    assert_eq!(twice.selected().collect::<Vec<_>>(), ["b2", "b"]);
    let loaded = twice.load().unwrap();
    assert_eq!(loaded.tensors().len(), 2);
    let whole = Oracle::open(&files).tensor("a").bytes;
    let right: Vec<_> = whole.chunks(4).flat_map(|row| row[2..].to_vec()).collect();
    assert_eq!(loaded.get("b").unwrap().bytes(), right);
}

#[test]
fn a_tensor_that_is_selected_after_an_output_of_its_name_takes_its_place() {
    let files =
        Checkpoint::single(ShardBuilder::new().pattern("a", "U8", &[4]).pattern("b", "U8", &[3])).temp();
    let model = open(&files);
    let plan = r#"{"meshes": {"m": [["tp", 1]]}, "default": "replicate", "rules": [{"match": "b", "drop": true}],
        "outputs": [{"name": "b", "from": ["a"]}]}"#;
    let part = || model.select().plan(&Plan::from_json(plan).unwrap(), 0).unwrap();
    let length = |part: Selection| {
        let loaded = part.load().unwrap();
        assert_eq!(loaded.tensors().iter().filter(|tensor| tensor.name() == "b").count(), 1);
        loaded.get("b").unwrap().bytes().len()
    };
    assert_eq!(length(part()), 4, "it is made of `a`");
    assert_eq!(length(part().names(["b"]).unwrap()), 3);
    assert_eq!(length(part().glob("b*").unwrap()), 3);
    assert_eq!(length(part().all()), 3);
    assert_eq!(length(part().shard(model.shards()[0].as_str()).unwrap()), 3);
    assert_eq!(length(part().slice("b", [1..]).unwrap()), 2);
}

#[test]
fn a_rank_that_a_plan_gives_nothing_loads_nothing() {
    let files = Checkpoint::single(ShardBuilder::new().pattern("z", "U8", &[4])).temp();
    let model = open(&files);
    let nothing = model.select().plan(&Plan::by_shard(2).unwrap(), 1).unwrap();
    assert!(nothing.is_empty());
    assert_eq!(nothing.load().unwrap().tensors().len(), 0);
    assert_eq!(nothing.stream().unwrap().count(), 0);
    assert_eq!(model.select().load().unwrap_err().kind(), "EmptySelection", "without a plan it is a mistake");
}

#[test]
fn outputs_are_excluded_by_their_names() {
    let files =
        Checkpoint::single(ShardBuilder::new().pattern("a", "U8", &[4, 4]).pattern("z", "U8", &[3])).temp();
    let model = open(&files);
    let part = || model.select().plan(&columns(), 0).unwrap();
    assert_eq!(part().except_glob("b").unwrap().selected().collect::<Vec<_>>(), ["z"]);
    assert_eq!(
        part().except_glob("a").unwrap().len(),
        2,
        "it is in the model, and not by this name in the part"
    );
    assert_eq!(part().except_glob("c*").unwrap_err().kind(), "NothingMatches");
}

#[test]
fn a_prefetch_of_what_will_be_put_together_holds_none_of_it() {
    let shard = ShardBuilder::new().zeros("a", "U8", &[64, 1 << 16]).zeros("c", "U8", &[64, 1 << 16]);
    let files = Checkpoint::single(shard).temp();
    let plan = r#"{"meshes": {"m": [["tp", 2]]}, "rules": [{"match": ".*", "shard": [{"dim": 0, "axis": "tp"}]}],
        "outputs": [{"name": "ac", "from": ["a", "c"], "concat": 1}]}"#;
    let model = open(&files);
    let part = model.select().plan(&Plan::from_json(plan).unwrap(), 0).unwrap();
    let options = LoadOptions::default().memory_limit(1 << 20);
    assert_eq!(part.prefetch_with(&options).unwrap().requested_bytes, 4 << 20);
    assert_eq!(part.load_with(&options).unwrap_err().kind(), "MemoryLimit");
}

#[test]
fn what_has_another_name_says_of_which_tensor_it_is() {
    let files = Checkpoint::single(ShardBuilder::new().pattern("a", "U8", &[4, 4])).temp();
    let loaded = open(&files).select().plan(&columns(), 0).unwrap().load().unwrap();
    let info = loaded.get("b").unwrap().info();
    assert_eq!(info.parts.iter().map(|part| part.tensor.as_str()).collect::<Vec<_>>(), ["a"]);
}
