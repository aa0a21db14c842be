//! `weightmap plan`, and `load` and `prefetch` by a plan.

use std::process::Command;

use serde_json::{Value, json};
use weightmap_testkit::{Checkpoint, Llama, Oracle, ShardBuilder, TempModel};

use crate::load::digest;
use crate::{Run, args, weightmap, weightmap_with};

/// A tensor for each way in which a plan can treat one.
fn every_kind() -> TempModel {
    let shard = ShardBuilder::new()
        .pattern("rows", "BF16", &[8, 4])
        .pattern("padded", "BF16", &[7, 4])
        .pattern("flat", "F32", &[3, 2])
        .pattern("norm", "F32", &[4])
        .pattern("scalar", "F32", &[])
        .pattern("dropped", "U8", &[100])
        .pattern("short", "U8", &[1])
        .pattern("q", "U8", &[4, 2])
        .pattern("k", "U8", &[2, 2]);
    Checkpoint::single(shard).temp()
}

fn plan_of_every_kind() -> String {
    json!({
        "meshes": {"m": [["tp", 2]]},
        "default": "replicate",
        "rules": [
            {"match": "rows|q|k", "shard": [{"dim": 0, "axis": "tp"}]},
            {"match": "padded", "shard": [{"dim": 0, "axis": "tp", "pad_multiple": 8}]},
            {"match": "flat", "flat": {"axis": "tp", "pad": true}},
            {"match": "short", "shard": [{"dim": 0, "axis": "tp", "split": "chunk"}]},
            {"match": "dropped", "drop": true},
            {"match": "nothing"},
        ],
        "outputs": [{"name": "qk", "from": ["q", "k"], "concat": 0}],
    })
    .to_string()
}

/// What the JSON document of a rank says of each tensor.
fn tensors_of(model: &TempModel, plan: &str, rank: &str) -> Vec<Value> {
    let arguments = args!["plan", model.path(), "--plan", "-", "--rank", rank, "--json"];
    let document = weightmap_with(arguments, plan).json();
    document["tensors"].as_array().expect("a list").clone()
}

/// Runs the program where no launcher is but the one that has set these.
fn under(variables: &[(&str, &str)], arguments: &[&std::ffi::OsStr]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightmap"));
    command.env_clear().envs(variables.iter().copied()).args(arguments);
    Run::of(command.output().expect("the program ends"))
}

#[test]
fn a_rank_has_of_each_kind_of_tensor_what_its_record_says() {
    assert_eq!(
        tensors_of(&every_kind(), &plan_of_every_kind(), "1"),
        [
            json!({"name": "rows", "intervals": [[[4, 8]], [[0, 4]]], "local_shape": [4, 4], "pad": [0, 0], "bytes": 32}),
            json!({"name": "padded", "intervals": [[[4, 7]], [[0, 4]]], "local_shape": [4, 4], "pad": [1, 0], "bytes": 24}),
            json!({"name": "flat", "flat": [3, 6], "local_shape": [3], "pad": 0, "bytes": 12}),
            json!({"name": "norm", "intervals": [[[0, 4]]], "local_shape": [4], "pad": [0], "bytes": 16}),
            json!({"name": "scalar", "intervals": [], "local_shape": [], "pad": [], "bytes": 4}),
            json!({"name": "short", "intervals": [[]], "local_shape": [0], "pad": [0], "bytes": 0}),
            json!({"name": "qk", "local_shape": [3, 2], "pad": [0, 0], "bytes": 6, "parts": [
                {"tensor": "q", "intervals": [[[2, 4]], [[0, 2]]]},
                {"tensor": "k", "intervals": [[[1, 2]], [[0, 2]]]},
            ]}),
        ]
    );
}

#[test]
fn a_flat_part_of_nothing_but_padding_lies_at_the_end_of_the_tensor() {
    let model = Checkpoint::single(ShardBuilder::new().pattern("p", "U8", &[2, 2])).temp();
    let plan =
        r#"{"meshes": {"m": [["dp", 3]]}, "rules": [{"match": "p", "flat": {"axis": "dp", "pad": true}}]}"#;
    let wanted = json!({"name": "p", "flat": [4, 4], "local_shape": [2], "pad": 2, "bytes": 0});
    assert_eq!(tensors_of(&model, plan, "2"), [wanted]);
}

#[test]
fn a_rank_that_does_not_own_a_tensor_does_not_list_it() {
    let model = Checkpoint::single(ShardBuilder::new().pattern("p", "U8", &[2])).temp();
    let plan =
        r#"{"meshes": {"m": [["pp", 2]]}, "rules": [{"match": "p", "own": [{"axis": "pp", "at": [1]}]}]}"#;
    assert_eq!(tensors_of(&model, plan, "0"), Vec::<Value>::new());
    assert_eq!(tensors_of(&model, plan, "1").len(), 1);
}

#[test]
fn records_for_other_programs_have_the_intervals_as_slices() {
    let model = every_kind();
    let arguments = args!["plan", model.path(), "--plan", "-", "--rank", "0"];
    let text = weightmap_with(arguments, &plan_of_every_kind()).ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "rows\tBF16\t[4, 4]\t–\t32\t[0:4,0:4]");
    assert_eq!(lines[2], "flat\tF32\t[3]\t–\t12\tflat 0:3");
    assert_eq!(lines[6], "qk\tU8\t[3, 2]\t–\t6\tq[0:2,0:2] k[0:1,0:2]");
}

#[test]
fn all_ranks_are_told_in_a_table_with_what_none_of_them_has() {
    let model = every_kind();
    let text = weightmap_with(args!["plan", model.path(), "--plan", "-"], &plan_of_every_kind()).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["rank", "tensors", "bytes", "share", "shards", "requests", "over-read"]);
    assert_eq!(rows[1][..6], ["0", "7", "103", "B", "37.18", "%"]);
    assert_eq!(rows[2][..4], ["1", "7", "94", "B"]);
    assert!(text.contains("\nimbalance  1.046, the largest part to the mean\n"), "{text}");
    assert!(text.contains("\ndropped    100 B of 277 B are in tensors that no rank has\n"), "{text}");
    assert!(text.contains("\nwarning [") && text.contains("rule 5"), "{text}");
}

#[test]
fn the_document_of_all_ranks_has_the_same_numbers() {
    let model = every_kind();
    let arguments = args!["plan", model.path(), "--plan", "-", "--world", "2", "--json"];
    let document = weightmap_with(arguments, &plan_of_every_kind()).json();
    assert_eq!((&document["world"], &document["dropped_bytes"]), (&2.into(), &100.into()));
    assert!((document["imbalance"].as_f64().unwrap() - 103.0 / 98.5).abs() < 1e-9, "{document}");
    assert_eq!(document["warnings"].as_array().unwrap().len(), 1);
    for (number, rank) in document["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&rank["rank"], &rank["tensors"]), (&number.into(), &7.into()));
        let sum: u64 = tensors_of(&model, &plan_of_every_kind(), &number.to_string())
            .iter()
            .map(|tensor| tensor["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(rank["bytes"], sum);
        for field in ["shards", "requests", "read_bytes", "over_read"] {
            assert!(rank[field].is_number(), "{field}: {rank}");
        }
    }
}

const FAULTY: &str = r#"{"meshes": {"m": [["tp", 3]]}, "rules": [
    {"match": "rows|q", "shard": [{"dim": 0, "axis": "tp"}]},
    {"match": "norm|scalar", "shard": [{"dim": 1, "axis": "tp"}]}]}"#;

#[test]
fn the_faults_of_a_plan_are_told_all_at_once_one_in_a_line() {
    let model = every_kind();
    let stderr = weightmap_with(args!["plan", model.path(), "--plan", "-"], FAULTY).failure(1);
    let lines: Vec<_> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].ends_with(": the plan has 3 faults"), "{stderr}");
    assert!(lines[1].starts_with("[PlanUneven] rule 0: tensor \"rows\" and 1 more: "), "{stderr}");
    assert!(lines[2..].iter().any(|line| line.starts_with("[PlanDim] rule 1: tensor \"norm\"")), "{stderr}");
    assert!(lines[2..].iter().any(|line| line.starts_with("[PlanUnmatched] tensor \"padded\"")), "{stderr}");
    assert_eq!(
        weightmap_with(args!["load", model.path(), "--plan", "-", "--rank", "0"], FAULTY).failure(1),
        stderr
    );
}

#[test]
fn the_faults_of_a_plan_are_a_document_with_json() {
    for rank in [None, Some("--rank=1")] {
        let model = every_kind();
        let arguments = args!["plan", model.path(), "--plan", "-", "--json"];
        let run = weightmap_with(arguments.into_iter().chain(rank.map(std::ffi::OsStr::new)), FAULTY);
        assert_eq!(run.status, 1);
        assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        assert!(document["error"].as_str().unwrap().ends_with("the plan has 3 faults"));
        let uneven = &document["faults"][0];
        assert_eq!(uneven["kind"], "PlanUneven");
        assert_eq!(
            (&uneven["rule"], &uneven["tensor"], &uneven["more"]),
            (&0.into(), &"rows".into(), &1.into())
        );
        assert!(uneven["message"].as_str().unwrap().contains("[8, 4]"), "{uneven}");
        let unmatched = document["faults"].as_array().unwrap().iter().find(|fault| fault["rule"].is_null());
        assert_eq!(unmatched.unwrap()["kind"], "PlanUnmatched");
    }
}

#[test]
fn a_plan_that_is_no_json_and_a_rank_that_there_is_not_are_errors() {
    let model = every_kind();
    let stderr = weightmap_with(args!["plan", model.path(), "--plan", "-"], "{").failure(1);
    assert!(stderr.contains("[PlanSyntax]"), "{stderr}");
    let stderr = weightmap(args!["plan", model.path(), "--balanced", "2", "--rank", "2"]).failure(1);
    assert!(stderr.contains("rank") && stderr.contains('2'), "{stderr}");
    let stderr = weightmap(args!["plan", model.path(), "--plan", "/nowhere/plan.json"]).failure(1);
    assert!(stderr.contains("/nowhere/plan.json"), "{stderr}");
}

#[test]
fn a_world_that_the_plan_does_not_have_is_a_fault() {
    let model = every_kind();
    let stderr = weightmap(args!["plan", model.path(), "--fsdp", "4", "--world", "8"]).failure(1);
    assert!(stderr.contains("[PlanWorld] expected 4 ranks"), "{stderr}");
    weightmap(args!["plan", model.path(), "--fsdp", "4", "--world", "4"]).ok();
    let stderr =
        weightmap(args!["load", model.path(), "--fsdp", "4", "--world", "8", "--rank", "0"]).failure(1);
    assert!(stderr.contains("[PlanWorld] expected 4 ranks"), "{stderr}");
}

#[test]
fn the_plan_for_the_family_comes_from_the_config_beside_the_shards_or_another() {
    let llama = Llama::tiny();
    let config = r#"{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "hidden_size": 64}"#;
    let without = llama.checkpoint().temp();
    std::fs::remove_file(without.file("config.json")).unwrap();
    let arguments = args!["plan", without.path(), "--tp", "2", "--pp", "2", "--json"];
    let stderr = weightmap(arguments).failure(1);
    assert!(
        stderr.contains("config.json") && stderr.contains("--plan") && stderr.contains("--fsdp"),
        "{stderr}"
    );

    let with = llama.checkpoint().file("config.json", config).temp();
    let document = weightmap(args!["plan", with.path(), "--tp", "2", "--pp", "2", "--json"]).json();
    assert_eq!(document["world"], 4);
    let bytes = |rank: usize| document["ranks"][rank]["bytes"].as_u64().unwrap();
    assert!(bytes(0) > 0 && bytes(0) == bytes(1), "{document}");

    let config = with.file("config.json");
    let given =
        weightmap(args!["plan", without.path(), "--tp", "2", "--pp", "2", "--config", &config, "--json"]);
    assert_eq!(given.json()["ranks"], document["ranks"]);
}

#[test]
fn loaded_bytes_are_those_of_the_slice_of_a_rank() {
    let model = every_kind();
    let oracle = Oracle::open(model.path());
    let first = |range| std::iter::once(range).collect::<Vec<_>>();
    let arguments = args!["load", model.path(), "--plan", "-", "--rank", "1", "--digest", "--json"];
    let document = weightmap_with(arguments, &plan_of_every_kind()).json();
    let digests = document["digests"].as_object().unwrap();
    assert_eq!(digests.len(), 7);
    assert_eq!(digests["rows"], digest(&oracle.tensor("rows").slice(&[first(4..8)]).bytes));
    assert_eq!(digests["norm"], digest(&oracle.tensor("norm").bytes));
    let padded = [oracle.tensor("padded").slice(&[first(4..7)]).bytes, vec![0; 8]].concat();
    assert_eq!(digests["padded"], digest(&padded));
    let qk = ["q", "k"].map(|name| {
        let tensor = oracle.tensor(name);
        let rows = tensor.shape[0];
        tensor.slice(&[first(rows / 2..rows)]).bytes
    });
    assert_eq!(digests["qk"], digest(&qk.concat()));
    assert_eq!(document["runs"][0]["requested_bytes"], 94);
}

#[test]
fn what_is_excluded_is_not_loaded_of_a_part() {
    let model = every_kind();
    let arguments =
        args!["load", model.path(), "--fsdp", "2", "--rank", "0", "--exclude", "[dr]*", "--digest", "--json"];
    let document = weightmap(arguments).json();
    let names: Vec<_> = document["digests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["flat", "k", "norm", "padded", "q", "scalar", "short"]);
}

#[test]
fn the_rank_comes_from_the_launcher_where_none_is_given() {
    let model = every_kind();
    let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
    let load = args!["load", model.path(), "--fsdp", "2"];
    let json = [&load[..], &args!["--digest", "--json"]].concat();
    let given = [&json[..], &args!["--rank", "1"]].concat();
    let digests = |run: Run| run.json()["digests"].clone();
    assert_eq!(digests(under(&mpi, &json)), digests(under(&[], &given)));

    let told = under(&mpi, &load);
    assert_eq!(told.status, 0, "{}", told.stderr);
    assert!(
        told.stderr.starts_with("note: rank 1 of 2: Open MPI decides: OMPI_COMM_WORLD_RANK"),
        "{}",
        told.stderr
    );

    let stderr = under(&[], &load).failure(1);
    assert!(stderr.contains("give --rank"), "{stderr}");
    let many = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
    let stderr = under(&many, &json).failure(1);
    assert!(stderr.contains("[PlanWorld] expected 2 ranks"), "{stderr}");
    // One rank has all of it, whoever asks.
    under(&[], &args!["load", model.path(), "--fsdp", "1", "--json"]).json();
}

#[test]
fn prefetch_takes_the_part_of_a_rank() {
    let model = every_kind();
    let document =
        weightmap(args!["prefetch", model.path(), "--balanced", "3", "--rank", "2", "--json"]).json();
    let plan = weightmap(args!["plan", model.path(), "--balanced", "3", "--json"]).json();
    assert_eq!(document["report"]["requested_bytes"], plan["ranks"][2]["bytes"]);
}

#[test]
fn ranks_of_a_machine_share_a_prefetch() {
    let model = every_kind();
    // All of them need all of it.
    let plan = r#"{"meshes": {"m": [["dp", 3]]}, "default": "replicate", "rules": []}"#;
    let share = |rank: &str| {
        let arguments =
            args!["prefetch", model.path(), "--plan", "-", "--rank", rank, "--node", "0,1,2", "--json"];
        weightmap_with(arguments, plan).json()["report"].clone()
    };
    let shares = ["0", "1", "2"].map(share);
    let sum: u64 = shares.iter().map(|share| share["read_bytes"].as_u64().unwrap()).sum();
    assert_eq!(json!(sum), shares[0]["needed_bytes"]);
    assert_eq!(json!(3 * sum), shares[0]["wanted_bytes"]);
    assert_eq!(shares[0]["rank_bytes"], shares[2]["rank_bytes"]);
    let alone = args!["prefetch", model.path(), "--fsdp", "3", "--rank", "0", "--node", "1,2"];
    weightmap(alone).failure(1);
}

#[test]
fn a_rank_that_has_nothing_loads_nothing() {
    let model = Checkpoint::single(ShardBuilder::new().pattern("p", "U8", &[2])).temp();
    let document = weightmap(args!["load", model.path(), "--balanced", "2", "--rank", "1", "--json"]).json();
    assert_eq!(document["runs"][0]["tensors"], 0);
}

#[test]
fn a_plan_and_a_selection_exclude_each_other_and_so_do_two_plans() {
    let model = every_kind();
    for [option, value] in [["--select", "*"], ["--regex", "a"], ["--names", "-"], ["--slice", "a[0:1]"]] {
        for plan in ["--fsdp", "--tp", "--balanced", "--plan"] {
            weightmap(args!["load", model.path(), plan, "1", option, value]).failure(2);
        }
    }
    for options in
        [["--fsdp", "--tp"], ["--plan", "--pp"], ["--by-shard", "--balanced"], ["--plan", "--fsdp"]]
    {
        weightmap(args!["plan", model.path(), options[0], "1", options[1], "1"]).failure(2);
    }
    // Without a plan there are no ranks.
    weightmap(args!["plan", model.path()]).failure(2);
    weightmap(args!["load", model.path(), "--rank", "0"]).failure(2);
    weightmap(args!["plan", model.path(), "--fsdp", "1", "--config", "c.json"]).failure(2);
}
