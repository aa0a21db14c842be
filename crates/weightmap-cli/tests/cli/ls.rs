//! `weightmap ls`, and the selection that `load` shares.

use weightmap_testkit::{Checkpoint, Distributed, Llama, Oracle, ShardBuilder};

use crate::{args, weightmap, weightmap_with};

fn names(arguments: &[&str], input: &str) -> Vec<String> {
    let model = Llama::tiny().checkpoint().temp();
    let arguments = args!["ls", model.path()].into_iter().chain(arguments.iter().map(std::ffi::OsStr::new));
    let text = weightmap_with(arguments, input).ok();
    text.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

#[test]
fn every_tensor_has_a_line_that_says_what_the_file_says() {
    let model = Llama::tiny().checkpoint().temp();
    let oracle = Oracle::open(model.path());
    let text = weightmap(args!["ls", model.path()]).ok();
    assert_eq!(text.lines().count(), oracle.names().len());
    for cells in text.lines().map(|line| line.split('\t').collect::<Vec<_>>()) {
        let tensor = oracle.tensor(cells[0]);
        let (shape, bytes) = (format!("{:?}", tensor.shape), tensor.bytes.len().to_string());
        assert_eq!(cells[1..], [tensor.dtype, shape, tensor.shard, bytes]);
    }
}

#[test]
fn json_has_every_tensor_with_its_range() {
    let model = Llama::tiny().checkpoint().temp();
    let oracle = Oracle::open(model.path());
    let json = weightmap(args!["ls", model.path(), "--json"]).json();
    let rows = json["tensors"].as_array().unwrap();
    assert_eq!(rows.len(), oracle.names().len());
    for row in rows {
        let tensor = oracle.tensor(row["name"].as_str().unwrap());
        assert_eq!(row["range"], serde_json::json!([tensor.range.start, tensor.range.end]));
        assert_eq!(row["bytes"], tensor.bytes.len());
        assert_eq!(row["shape"], serde_json::json!(tensor.shape));
    }
}

#[test]
fn options_add_up_in_the_order_names_globs_regexes() {
    let options =
        ["--regex", r"layers\.1\..*k_proj", "--select", "model.n*", "--select", "lm_*", "--names", "-"];
    assert_eq!(
        names(&options, "model.embed_tokens.weight\n\n  \r\nlm_head.weight\n"),
        [
            "model.embed_tokens.weight",
            "lm_head.weight",
            "model.norm.weight",
            "model.layers.1.self_attn.k_proj.weight"
        ]
    );
}

#[test]
fn what_is_excluded_is_left_out_of_what_is_selected_or_of_all() {
    let some = ["--select", "model.n*", "--select", "lm_*", "--exclude", "model.*"];
    assert_eq!(names(&some, ""), ["lm_head.weight"]);
    let all_but = names(&["--exclude", "model.layers.*"], "");
    assert_eq!(all_but.len(), 3);
    assert!(all_but.iter().all(|name| !name.starts_with("model.layers.")), "{all_but:?}");
    let model = Llama::tiny().checkpoint().temp();
    let stderr = weightmap(args!["ls", model.path(), "--exclude", "*"]).failure(1);
    assert!(stderr.contains("--exclude leaves none"), "{stderr}");
}

#[test]
fn names_can_come_from_a_file() {
    let model = Checkpoint::single(ShardBuilder::new().zeros("a", "U8", &[1]).zeros("b c", "U8", &[1]))
        .file("names.txt", "b c\r\n")
        .temp();
    let text = weightmap(args!["ls", model.path(), "--names", &model.file("names.txt")]).ok();
    assert_eq!(text, "b c\tU8\t[1]\tmodel.safetensors\t1\n");
    let stderr = weightmap(args!["ls", model.path(), "--names", &model.file("gone.txt")]).failure(1);
    assert!(stderr.contains("gone.txt: No such file"), "{stderr}");
}

#[test]
fn an_unknown_name_is_an_error_with_the_nearest_one() {
    let model = Llama::tiny().checkpoint().temp();
    let stderr = weightmap_with(args!["ls", model.path(), "--names", "-"], "model.nrom.weight").failure(1);
    assert!(stderr.contains("\"model.nrom.weight\"; nearest: \"model.norm.weight\""), "{stderr}");
}

#[test]
fn nothing_selected_is_an_error_unless_it_is_allowed() {
    let model = Llama::tiny().checkpoint().temp();
    for (option, value) in [("--select", "x*"), ("--regex", "^x"), ("--names", "-")] {
        let stderr = weightmap(args!["ls", model.path(), option, value]).failure(1);
        assert!(stderr.starts_with("error: "), "{stderr}");
        assert_eq!(weightmap(args!["ls", model.path(), option, value, "--allow-empty"]).ok(), "");
    }
}

#[test]
fn a_checkpoint_without_tensors_lists_none() {
    let model = Checkpoint::single(ShardBuilder::new()).temp();
    assert_eq!(weightmap(args!["ls", model.path()]).ok(), "");
}

#[test]
fn of_a_tensor_that_lies_in_several_shards_all_are_told() {
    let model =
        Distributed::new(3).sharded("a", "U8", &[6], &[(0, 3)]).whole(2, "b", "U8", &[1]).checkpoint().temp();
    let [first, second, third] = [1, 2, 3].map(|rank| Distributed::file_name(rank, 1, 1));
    let text = weightmap(args!["ls", model.path()]).ok();
    let expected = format!("a\tU8\t[6]\t{first} (+2)\t6\nb\tU8\t[1]\t{second}\t1\n");
    assert_eq!(text, expected);
    let json = weightmap(args!["ls", model.path(), "--json"]).json();
    assert_eq!(json["tensors"][0]["shards"], serde_json::json!([first, second, third]));
    assert_eq!(json["tensors"][1]["shards"], serde_json::json!([second]));
}
