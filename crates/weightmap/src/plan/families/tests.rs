//! Every name of every family falls to the rule that is meant for it, and a config that is wrong is told.

mod division;
mod golden;
mod real_names;

use proptest::prelude::*;
use regex::Regex;
use serde_json::json;

use super::*;
use crate::plan::spec::{Blocks, Own, Replicas, Rule, Split, Step};

/// Sections of tensors, each headed by a family and, where experts are divided, `ep`.
const TENSORS: &str = include_str!("tests/tensors.txt");

/// A tensor of that page: its name with `#` for numbers, its shape, and what becomes of it.
struct Row {
    name: String,
    shape: Vec<u64>,
    fate: String,
}

fn section(title: &str) -> Vec<Row> {
    let lines = TENSORS.lines().skip_while(|line| *line != title).skip(1);
    let rows: Vec<Row> = lines.take_while(|line| !line.is_empty()).map(row).collect();
    assert!(!rows.is_empty(), "{title}");
    rows
}

fn row(line: &str) -> Row {
    let (tensor, fate) = line.split_once(": ").unwrap();
    let mut words: Vec<&str> = tensor.split_whitespace().collect();
    let from = words.iter().rposition(|word| word.parse::<u64>().is_ok()).unwrap();
    let stages = words.split_off(from + 1).join(" ");
    let shape = words[1..].iter().map(|word| word.parse().unwrap()).collect();
    Row { name: words[0].to_owned(), shape, fate: format!("{stages}: {fate}") }
}

/// The titles of all sections.
fn titles() -> impl Iterator<Item = &'static str> {
    TENSORS.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains(':'))
}

/// A config of that page's numbers.
fn config(family: &str) -> Value {
    let text = json!({
        "model_type": family, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 16, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "q_lora_rank": 24,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]},
    });
    match family {
        "gemma3" => json!({"model_type": "gemma3", "text_config": text, "vision_config": {}}),
        _ => text,
    }
}

fn with(family: &str, changes: &[(&str, Value)]) -> String {
    let mut config = config(family);
    for (name, value) in changes {
        config[name] = value.clone();
    }
    config.to_string()
}

fn spec(config: &str, parallel: &Parallel) -> PlanSpec {
    ready(config, parallel).unwrap_or_else(|faults| panic!("{}", PlanError { faults }))
}

fn faults(config: &str, parallel: &Parallel) -> Vec<(&'static str, String)> {
    let faults = ready(config, parallel).expect_err("a fault");
    faults.into_iter().map(|fault| (fault.kind, fault.message)).collect()
}

fn parallel(title: &str) -> (&str, Parallel) {
    let two = Parallel::default().tp(2).pp(2);
    match title.strip_suffix(" ep") {
        Some(family) => (family, two.dp(2).ep(4)),
        None => (title, two),
    }
}

/// What becomes of a name, by the first rule that matches it.
fn fate(rules: &[(Regex, &Rule)], name: &str) -> Option<String> {
    let (_, rule) = rules.iter().find(|(pattern, _)| pattern.is_match(name))?;
    if rule.drop {
        return Some("dropped".to_owned());
    }
    let own: Vec<&str> = rule.own.iter().map(owner).collect();
    let own = if own.is_empty() { "all".to_owned() } else { own.join(", ") };
    let cut = match (&rule.scale_of, rule.shard.as_slice()) {
        (Some(scale), []) => format!("scale of {}", scale.weight.replace("${w}", name.rsplit_once('.')?.0)),
        (None, []) => "whole".to_owned(),
        (None, [Step::Shard(cut)]) => {
            let unit = cut.unit.map_or(String::new(), |unit| format!(", unit {unit}"));
            let replicas = match &cut.replicas {
                None => String::new(),
                Some(Replicas::Same(all)) => format!(", replicas {all}"),
                Some(Replicas::PerBlock(each)) => format!(", replicas {each:?}"),
            };
            let blocks = match &cut.blocks {
                None => String::new(),
                Some(Blocks::Count(count)) => format!(", blocks {count}"),
                Some(Blocks::Sizes(sizes)) => format!(", blocks {sizes:?}"),
            };
            let split = match &cut.split {
                Split::Even => "even",
                Split::Chunk => "chunk",
                Split::Balanced => "balanced",
                other => panic!("{other:?}"),
            };
            format!("dim {} of {}, {split}{unit}{replicas}{blocks}", cut.dim, cut.axis)
        }
        other => panic!("{other:?}"),
    };
    Some(format!("{own}: {cut}"))
}

fn owner(own: &Own) -> &'static str {
    match own {
        Own::At { axis, at } if axis == "pp" => match at.as_slice() {
            [0] => "first",
            [-1] => "last",
            [0, -1] => "ends",
            other => panic!("{other:?}"),
        },
        Own::Var { axis, var, .. } if (axis.as_str(), var.as_str()) == ("pp", "l") => "stage",
        Own::Var { axis, var, .. } if (axis.as_str(), var.as_str()) == ("ep", "e") => "expert",
        other => panic!("{other:?}"),
    }
}

fn compiled(spec: &PlanSpec) -> Vec<(Regex, &Rule)> {
    let whole = |rule: &Rule| Regex::new(&format!("^(?:{})$", rule.pattern)).unwrap();
    spec.rules.iter().map(|rule| (whole(rule), rule)).collect()
}

#[test]
fn every_tensor_of_a_family_falls_to_the_rule_that_is_meant_for_it() {
    for title in titles() {
        let (family, parallel) = parallel(title);
        let spec = spec(&with(family, &[]), &parallel);
        let rules = compiled(&spec);
        for row in section(title) {
            let fate = fate(&rules, &row.name.replace('#', "3"));
            let expected = row.fate.replace('#', "3");
            assert_eq!(fate.as_deref(), Some(expected.as_str()), "{title}: {}", row.name);
        }
    }
}

#[test]
fn what_a_family_does_not_have_falls_to_no_rule() {
    let strange = ["model.layers.1.mlp.gate_proj.qweight", "model.layers.1.mlp.gate_proj.weight_scale", "x"];
    let strange =
        strange.into_iter().chain(["vision_tower.a.weight", "model.layers.1.self_attn.k_proj.biases"]);
    let spec = spec(&with("llama", &[]), &Parallel::default());
    let rules = compiled(&spec);
    for name in strange {
        assert_eq!(fate(&rules, name), None, "{name}");
    }
}

#[test]
fn every_family_and_its_class_has_a_plan() {
    let families = templates().unwrap().into_iter().flat_map(|template| template.families);
    let mut count = 0;
    for (name, family) in families {
        let by_type = spec(&with(&name, &[]), &Parallel::default().tp(2));
        let by_class = [("model_type", json!("new")), ("architectures", json!([family.architecture]))];
        assert_eq!(
            spec(&with(&name, &by_class), &Parallel::default().tp(2)).rules.is_empty(),
            by_type.rules.is_empty()
        );
        compiled(&by_type);
        count += 1;
    }
    assert_eq!(count, 16);
}

#[test]
fn nothing_of_a_template_remains_unfilled() {
    let unfilled = Regex::new(r"(?:^|[^$])\{[a-z_]+\}").unwrap();
    for title in titles() {
        let (family, parallel) = parallel(title);
        let changes = [("num_nextn_predict_layers", json!(1))];
        let text = serde_json::to_string(&spec(&with(family, &changes), &parallel)).unwrap();
        assert_eq!(unfilled.find(&text).map(|found| found.as_str()), None, "{title}");
    }
}

#[test]
fn tied_embeddings_are_at_both_ends_unless_the_config_says_otherwise() {
    let embedding = |family: &str, changes: &[(&str, Value)]| {
        let spec = spec(&with(family, changes), &Parallel::default().pp(2));
        fate(&compiled(&spec), "model.embed_tokens.weight").unwrap()
    };
    assert!(embedding("llama", &[]).starts_with("first"));
    assert!(embedding("llama", &[("tie_word_embeddings", json!(true))]).starts_with("ends"));
    assert!(embedding("gemma2", &[]).starts_with("ends"));
    assert!(embedding("gemma2", &[("tie_word_embeddings", json!(false))]).starts_with("first"));
    assert!(embedding("gemma3", &[("tie_word_embeddings", json!(false))]).starts_with("first"));
}

#[test]
fn layers_that_predict_further_tokens_are_dropped() {
    let changes = [("num_nextn_predict_layers", json!(2))];
    let spec = spec(&with("deepseek_v3", &changes), &Parallel::default());
    let rules = compiled(&spec);
    for name in [
        "model.layers.4.eh_proj.weight",
        "model.layers.5.mlp.gate.weight",
        "model.layers.4.embed_tokens.weight",
    ] {
        assert_eq!(fate(&rules, name).as_deref(), Some("dropped"), "{name}");
    }
    assert_ne!(fate(&rules, "model.layers.3.mlp.gate.weight").as_deref(), Some("dropped"));
}

#[test]
fn heads_of_keys_and_values_are_replicated_where_there_are_fewer_than_ranks() {
    let spec = spec(&with("llama", &[]), &Parallel::default().tp(8));
    let key = fate(&compiled(&spec), "model.layers.0.self_attn.k_proj.weight");
    assert_eq!(key.as_deref(), Some("stage: dim 0 of tp, even, unit 16, replicas 2"));
    let spec = self::spec(&with("phi3", &[]), &Parallel::default().tp(8));
    let fused = fate(&compiled(&spec), "model.layers.0.self_attn.qkv_proj.weight").unwrap();
    assert!(fused.contains("replicas [1, 2, 2], blocks [128, 64, 64]"), "{fused}");
}

#[test]
fn a_small_gemma3_config_means_the_defaults_of_its_family() {
    let config = json!({
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34},
    });
    let spec = spec(&config.to_string(), &Parallel::default().tp(8));
    let key = fate(&compiled(&spec), "language_model.model.layers.0.self_attn.k_proj.weight");
    assert_eq!(key.as_deref(), Some("stage: dim 0 of tp, even, unit 256, replicas 2"));
}

#[test]
fn stages_replicas_and_experts_are_axes_of_two_views() {
    let spec = spec(&with("mixtral", &[]), &Parallel::default().tp(4).pp(2).dp(3).ep(6));
    let axes = |view: &str| {
        spec.meshes[view].iter().map(|(axis, size)| format!("{axis} {size}")).collect::<Vec<_>>()
    };
    assert_eq!(axes("dense"), ["pp 2", "dp 3", "tp 4"]);
    assert_eq!(axes("expert"), ["pp 2", "edp 2", "ep 6"]);
}

#[test]
fn ranks_that_do_not_fit_are_told() {
    let one = Parallel::default();
    let told = |family: &str, parallel: Parallel, kind: &str, says: &str| {
        let faults = faults(&with(family, &[]), &parallel);
        assert!(faults.iter().any(|(k, message)| *k == kind && message.contains(says)), "{faults:?}");
    };
    told("llama", one.tp(0), "PlanWorld", "tp is 0");
    told("llama", one.tp(u64::MAX).pp(3), "PlanWorld", "more ranks than can be counted");
    told("mixtral", one.tp(4).ep(3), "PlanWorld", "ep 3 does not divide the 4 ranks");
    told("llama", one.tp(2).ep(2), "PlanUneven", "no experts");
    told("mixtral", one.dp(16).ep(16), "PlanUneven", "more than the 8 experts");
    told("llama", one.tp(3), "PlanUneven", "choose a tp of 1, 2, 4, 8");
    told("llama", one.pp(5), "PlanUneven", "more than the 4 layers");
    assert_eq!(faults(&with("llama", &[]), &one.tp(3).pp(5).ep(3).dp(3)).len(), 3);
}

#[test]
fn a_config_that_cannot_be_is_told_all_at_once() {
    let told = |config: &str, says: &[&str]| {
        let faults = faults(config, &Parallel::default().tp(2));
        assert!(faults.iter().all(|(kind, _)| *kind == "PlanConfig"), "{faults:?}");
        assert_eq!(faults.len(), says.len(), "{faults:?}");
        for (says, (_, message)) in says.iter().zip(&faults) {
            assert!(message.contains(says), "{message}");
        }
    };
    told("{", &["not JSON"]);
    told("[]", &["not an object"]);
    told(
        r#"{"model_type": "llama"}"#,
        &["num_hidden_layers is missing", "num_attention_heads is missing", "hidden_size is"],
    );
    told(
        &with("llama", &[("num_attention_heads", json!(0))]),
        &["num_attention_heads is 0; expected a whole"],
    );
    told(&with("llama", &[("num_hidden_layers", json!(u64::MAX))]), &["from 1 to 1048576"]);
    told(
        &with("llama", &[("num_key_value_heads", json!(3))]),
        &["8 is not a multiple of num_key_value_heads 3"],
    );
    told(&with("llama", &[("head_dim", json!("16"))]), &["head_dim is the text \"16\""]);
    told(
        &with("llama", &[("head_dim", json!(null)), ("hidden_size", json!(66))]),
        &["hidden_size 66 is not a multiple"],
    );
    told(&with("llama", &[("tie_word_embeddings", json!(1))]), &["expected true or false"]);
    told(
        &with("qwen3", &[("quantization_config", json!({"weight_block_size": [1]}))]),
        &["weight_block_size has 1 numbers"],
    );
    let moe = [
        ("n_routed_experts", json!(-1)),
        ("v_head_dim", json!(1.5)),
        ("num_nextn_predict_layers", json!(65)),
    ];
    let without_experts = json!({"model_type": "mixtral", "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 1,
        "num_key_value_heads": 1});
    told(&without_experts.to_string(), &["num_local_experts or num_experts is missing"]);
    told(&with("deepseek_v3", &moe), &["v_head_dim", "num_nextn", "n_routed_experts"]);
}

#[test]
fn an_unknown_family_is_told_with_those_that_are_known() {
    let faults = faults(
        r#"{"model_type": "mamba\u001b", "architectures": ["MambaForCausalLM"]}"#,
        &Parallel::default(),
    );
    let [(kind, message)] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(*kind, "PlanFamily");
    for says in [r"mamba\u{1b}", "MambaForCausalLM", "deepseek_v2, deepseek_v3, gemma", "docs/plans.md"] {
        assert!(message.contains(says), "{message}");
    }
}

/// Anything that can stand for a number of a config.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        40 => prop::sample::select(vec![1_u64, 2, 4, 8, 16]).prop_map(Value::from),
        1 => (0..20_u64).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => (1_u64..=1 << 20).prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!(-1), json!(0.5), json!("4"), json!([4, 4]), json!({})]),
    ]
}

proptest! {
    #[test]
    fn whatever_a_config_says_there_is_a_plan_for_as_many_ranks_or_a_fault(
        family in prop::sample::select(vec!["llama", "gemma3", "phi3", "mixtral", "deepseek_v3", "gpt_oss"]),
        numbers in prop::collection::vec(number(), 8),
        [tp, pp, dp, ep] in prop::array::uniform4(prop_oneof![40 => 1..3_u64, 1 => 0..9_u64, 1 => any::<u64>()]),
    ) {
        let names = [
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "n_routed_experts", "num_nextn_predict_layers", "v_head_dim",
        ];
        let mut config = config(family);
        let text = if family == "gemma3" { &mut config["text_config"] } else { &mut config };
        for (name, number) in names.into_iter().zip(numbers) {
            text[name] = number;
        }
        let parallel = Parallel::default().tp(tp).pp(pp).dp(dp).ep(ep);
        match Plan::for_model(&config.to_string(), &parallel) {
            Ok(plan) => prop_assert_eq!(Some(plan.world() as u64), parallel.world()),
            Err(error) => prop_assert!(!error.faults.is_empty()),
        }
    }
}
