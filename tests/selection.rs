//! Selecting: names, patterns, shards; and what is said of names that are not there.

use proptest::prelude::*;
use weightmap::{Error, Selection, ShardedModel};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel};

use crate::support::{FIRST, SECOND, assert_says, open, two_shards};

/// Names as a llama of 20 layers has them, in two shards, the upper layers in the second.
fn llama() -> TempModel {
    let parts = ["self_attn.q_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight"];
    let layers = |numbers: std::ops::Range<u32>| {
        let names = numbers.flat_map(|number| parts.map(|part| format!("model.layers.{number}.{part}")));
        names.fold(ShardBuilder::new(), |shard, name| shard.pattern(&name, "U8", &[2]))
    };
    let first = layers(0..10).pattern("model.embed_tokens.weight", "U8", &[3]);
    Checkpoint::new()
        .shard(FIRST, first)
        .shard(SECOND, layers(10..20).pattern("lm_head.weight", "U8", &[3]))
        .temp()
}

fn chosen(selection: &Selection) -> Vec<&str> {
    selection.selected().collect()
}

/// The names of the index that a predicate holds for.
fn filtered(model: &ShardedModel, predicate: impl Fn(&str) -> bool) -> Vec<&str> {
    model.names().filter(|name| predicate(name)).collect()
}

fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

#[test]
fn globs_choose_by_the_whole_name() {
    let files = llama();
    let model = open(&files);
    type Case<'a> = (&'a str, fn(&str) -> bool);
    let cases: [Case<'_>; 9] = [
        ("*", |_| true),
        ("model.layers.3.*", |name| layer(name) == Some(3)),
        ("*.weight", |_| true),
        ("*layers*up*", |name| name.contains("mlp.up_proj")),
        ("model.layers.?.mlp.up_proj.weight", |name| name.contains("up_proj") && layer(name) < Some(10)),
        ("model.layers.1[0-3].*", |name| matches!(layer(name), Some(10..=13))),
        ("model.layers.1[!0-3].*", |name| matches!(layer(name), Some(14..=19))),
        ("model.layers.{8..11}.*", |name| matches!(layer(name), Some(8..=11))),
        ("{lm_head,model.embed_tokens}.weight", |name| layer(name).is_none()),
    ];
    for (pattern, predicate) in cases {
        let selection = model.select().glob(pattern).unwrap();
        assert_eq!(chosen(&selection), filtered(&model, predicate), "{pattern}");
        assert_eq!(selection.len(), selection.selected().len());
    }
    assert_eq!(model.select().glob("model.layers.{00..03}.*").unwrap_err().kind(), "NothingMatches");
    assert_eq!(
        model.select().glob("layers").unwrap_err().kind(),
        "NothingMatches",
        "a part of a name is not enough"
    );
}

#[test]
fn regexes_choose_by_a_part_unless_they_have_anchors() {
    let files = llama();
    let model = open(&files);
    assert_eq!(
        chosen(&model.select().regex("up_proj").unwrap()),
        filtered(&model, |name| name.contains("up_proj"))
    );
    assert_eq!(chosen(&model.select().regex(r"^lm_head\.weight$").unwrap()), ["lm_head.weight"]);
}

#[test]
fn a_shard_is_chosen_with_the_tensors_that_the_index_places_there() {
    let model = two_shards().map("a", SECOND).unmap("d").temp();
    assert_eq!(chosen(&open(&model).select().shard(SECOND).unwrap()), ["a", "c"]);
    assert_eq!(chosen(&open(&model).select().shard(&format!("./{FIRST}")).unwrap()), ["b"]);
}

#[test]
fn what_is_asked_for_several_times_comes_once_where_it_was_asked_for_first() {
    let model = open(&two_shards().temp());
    let selection =
        model.select().names(["d", "a", "d"]).unwrap().glob("[ab]").unwrap().shard(SECOND).unwrap().all();
    assert_eq!(chosen(&selection), ["d", "a", "b", "c"]);
}

#[test]
fn all_tensors_come_in_the_order_of_the_index() {
    let text = format!(r#"{{"weight_map": {{"d": {SECOND:?}, "a": {FIRST:?}, "c": {SECOND:?}}}}}"#);
    let model = two_shards().index_text(text).temp();
    assert_eq!(chosen(&open(&model).select().all()), ["d", "a", "c"]);
}

#[test]
fn all_unknown_names_come_in_one_error_with_the_nearest_that_there_are() {
    let files = llama();
    let model = open(&files);
    let error = model
        .select()
        .names(["lm_heed.weight", "model.embed_tokens.weight", "model.layer.3.mlp.up_proj.weight"])
        .unwrap_err();
    let Error::UnknownTensors { unknown, path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, files.path());
    assert_eq!(
        unknown.iter().map(|unknown| unknown.name.as_str()).collect::<Vec<_>>(),
        ["lm_heed.weight", "model.layer.3.mlp.up_proj.weight"]
    );
    assert_eq!(unknown[0].nearest[0], "lm_head.weight");
    assert_eq!(unknown[1].nearest[0], "model.layers.3.mlp.up_proj.weight");
    assert_says(&error, &["\"lm_heed.weight\"", "\"lm_head.weight\""]);
    for error in [model.tensor("lm_heed.weight").unwrap_err(), model.view("lm_heed.weight").unwrap_err()] {
        assert_eq!((error.kind(), error.tensor()), ("UnknownTensors", Some("lm_heed.weight")));
        assert_says(&error, &["\"lm_head.weight\""]);
    }
}

#[test]
fn an_unknown_shard_is_an_error_with_the_nearest_that_there_are() {
    let model = open(&two_shards().temp());
    for error in [
        model.select().shard("model-00003-of-00002.safetensors").unwrap_err(),
        model.header("model-00003-of-00002.safetensors").unwrap_err(),
        model.release("model-00003-of-00002.safetensors").unwrap_err(),
    ] {
        assert_eq!(error.kind(), "UnknownShard");
        assert_says(&error, &[FIRST, "model-00003-of-00002.safetensors"]);
    }
}

#[test]
fn a_pattern_that_matches_nothing_is_an_error_that_says_what_is_near() {
    let files = llama();
    let model = open(&files);
    let error = model.select().glob("lm_heads.*").unwrap_err();
    assert_eq!(error.kind(), "NothingMatches");
    assert_says(&error, &["\"lm_heads.*\"", "lm_head.weight"]);
    assert_eq!(model.select().regex("^head").unwrap_err().kind(), "NothingMatches");
    assert!(model.select().allow_empty().glob("lm_heads.*").unwrap().is_empty());
}

#[test]
fn a_pattern_that_is_none_is_an_error_that_shows_it() {
    let model = open(&two_shards().temp());
    for pattern in ["[a", "{a,b", "{3..x}", "[z-a]"] {
        let error = model.select().glob(pattern).unwrap_err();
        assert_eq!(error.kind(), "BadPattern", "{pattern}");
        assert_says(&error, &[&format!("{pattern:?}")]);
    }
    let error = model.select().regex("(a").unwrap_err();
    assert_eq!(error.kind(), "BadRegex");
    assert_says(&error, &["(a"]);
}

#[test]
fn an_empty_selection_is_an_error_unless_it_was_allowed() {
    let model = open(&two_shards().temp());
    let selection = model.select();
    assert_eq!(selection.load().unwrap_err().kind(), "EmptySelection");
    assert_eq!(selection.stream().map(drop).unwrap_err().kind(), "EmptySelection");
    let allowed = selection.allow_empty();
    assert_eq!(allowed.load().unwrap().tensors().len(), 0);
    assert_eq!(allowed.stream().unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn selecting_opens_no_shard() {
    let files = two_shards().temp();
    let model = open(&files);
    for shard in [FIRST, SECOND] {
        weightmap_testkit::damage::replace_by_dangling_link(files.file(shard));
    }
    let selection = model
        .select()
        .all()
        .glob("*")
        .unwrap()
        .regex(".")
        .unwrap()
        .shard(FIRST)
        .unwrap()
        .names(["c"])
        .unwrap();
    assert_eq!(selection.len(), 4);
    assert_eq!(selection.infos().unwrap_err().kind(), "Io");
}

#[test]
fn what_the_headers_tell_comes_in_the_order_asked_for() {
    let files = two_shards().temp();
    let model = open(&files);
    let infos = model.select().names(["d", "a"]).unwrap().infos().unwrap();
    let told: Vec<_> = infos
        .iter()
        .map(|info| (info.name.as_str(), info.shard.as_str(), info.len_bytes(), info.elements()))
        .collect();
    assert_eq!(told, [("d", SECOND, 18, 9), ("a", FIRST, 64, 16)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_number_range_chooses_the_numbers_in_it(low in 0..25_u32, more in 0..25_u32) {
        let files = llama();
        let model = open(&files);
        let selection = model.select().allow_empty().glob(&format!("model.layers.{{{low}..{}}}.*", low + more)).unwrap();
        let expected = filtered(&model, |name| layer(name).is_some_and(|layer| (low..=low + more).contains(&layer)));
        prop_assert_eq!(chosen(&selection), expected);
    }
}

#[test]
fn the_rest_is_what_another_selection_does_not_have() {
    let files = llama();
    let model = open(&files);
    let upper = model.select().names(["lm_head.weight"]).unwrap().glob("model.layers.1?.*").unwrap();
    let rest = model.select().all().except(&upper);
    assert_eq!(
        chosen(&rest),
        filtered(&model, |name| layer(name).is_none_or(|layer| layer < 10) && name != "lm_head.weight")
    );
    assert_eq!(rest.len() + upper.len(), model.len());
    assert!(rest.clone().except(&rest).is_empty());
    // What was left out can be asked for again, and then as a whole.
    let again =
        model.select().slice("lm_head.weight", [weightmap::Intervals::from(0..1)]).unwrap().except(&upper);
    let again = again.names(["lm_head.weight"]).unwrap();
    assert_eq!(again.infos().unwrap()[0].shape, [3]);
}
