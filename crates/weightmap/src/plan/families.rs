//! Ready plans, for the families of models that a `config.json` names.
//!
//! They are written in the plan language, in the folder beside this file: one template for families whose tensors have
//! the same names, and what all have in common. `docs/plans.md` tells what is cut how, and why.

mod config;
mod facts;
mod template;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::config::Config;
use self::facts::Facts;
use self::template::{Common, Family, Filling, Template};
use super::Plan;
use super::parallel::Parallel;
use super::spec::PlanSpec;
use crate::error::{PlanError, PlanFault, quote_all};

const COMMON: &str = include_str!("families/common.json");

const TEMPLATES: [&str; 7] = [
    include_str!("families/llama.json"),
    include_str!("families/mixtral.json"),
    include_str!("families/qwen_moe.json"),
    include_str!("families/deepseek.json"),
    include_str!("families/gpt_oss.json"),
    include_str!("families/phi.json"),
    include_str!("families/phi3.json"),
];

impl Plan {
    /// The plan for a model of a well-known family: what each of `parallel`'s ranks has of it.
    ///
    /// `config_json` is the text of the `config.json` that lies beside the shards. Its `model_type` names the family,
    /// or that of its `text_config`, or else its `architectures`: llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3,
    /// phi, phi3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_oss. `docs/plans.md` has what is cut
    /// how. A tensor that the family does not have is a fault when the plan is carried out, be it a scale of an unknown
    /// way of quantizing: it is never taken for something else.
    ///
    /// ```
    /// use weightmap::{Parallel, Plan};
    ///
    /// let config = r#"{"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    ///                  "num_key_value_heads": 8, "hidden_size": 4096}"#;
    /// let plan = Plan::for_model(config, &Parallel::default().tp(4).pp(2))?;
    /// assert_eq!(plan.world(), 8);
    /// # Ok::<(), weightmap::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// All at once: an unknown family (`PlanFamily`), numbers of the config that are missing or cannot be
    /// (`PlanConfig`), ranks that do not fit each other (`PlanWorld`) or the model (`PlanUneven`).
    pub fn for_model(config_json: &str, parallel: &Parallel) -> Result<Self, PlanError> {
        let spec = ready(config_json, parallel).map_err(|faults| PlanError { faults })?;
        Ok(Self { is_for_family: true, ..Self::try_from(spec)? })
    }
}

/// The plan as it is written, or all faults.
fn ready(config_json: &str, parallel: &Parallel) -> Result<PlanSpec, Vec<PlanFault>> {
    let config = Config::parse(config_json).map_err(one)?;
    let templates = templates().map_err(|error| one(broken(&error)))?;
    let (template, family) = find(&templates, &config).ok_or_else(|| one(unknown(&templates, &config)))?;

    let facts = Facts::read(&config, template, family);
    let meshes = parallel.meshes();
    let (facts, meshes) = match (facts, meshes) {
        (Ok(facts), Ok(meshes)) => (facts, meshes),
        (facts, meshes) => return Err(facts.err().into_iter().flatten().chain(meshes.err()).collect()),
    };
    let misfits = facts.misfits(parallel);
    if !misfits.is_empty() {
        return Err(misfits);
    }

    let common: Common = serde_json::from_str(COMMON).map_err(|error| one(broken(&error)))?;
    let rules = template.rules(&common, filling(&facts, parallel)).map_err(|error| one(broken(&error)))?;
    Ok(PlanSpec { meshes: meshes.into_iter().collect(), rules, ..PlanSpec::new() })
}

fn templates() -> Result<Vec<Template>, serde_json::Error> {
    TEMPLATES.iter().map(|text| serde_json::from_str(text)).collect()
}

/// What the config calls itself goes before the classes that it was saved from.
fn find<'a>(templates: &'a [Template], config: &Config) -> Option<(&'a Template, &'a Family)> {
    let by_type = |name| templates.iter().find_map(|template| Some((template, template.families.get(name)?)));
    let by_class = |class| {
        let families =
            templates.iter().flat_map(|template| template.families.values().map(move |f| (template, f)));
        families.into_iter().find(|(_, family)| family.architecture == class)
    };
    config.model_types().find_map(by_type).or_else(|| config.architectures().find_map(by_class))
}

fn filling(facts: &Facts, parallel: &Parallel) -> Filling {
    let mtp: Vec<String> = (facts.layers..facts.layers + facts.mtp).map(|layer| layer.to_string()).collect();
    let embedding_stages: &[i64] = if facts.tied { &[0, -1] } else { &[0] };
    let values: [(&str, Value); 11] = [
        ("layers", facts.layers.into()),
        ("mtp_layers", mtp.join("|").into()),
        ("experts", facts.experts.into()),
        ("head_dim", facts.head_dim.into()),
        ("kv_head_dim", facts.kv_head_dim.into()),
        ("v_head_dim", facts.v_head_dim.into()),
        ("kv_replicas", facts.kv_replicas(parallel.tensor()).into()),
        ("q_rows", (facts.heads * facts.head_dim).into()),
        ("kv_rows", (facts.kv_heads * facts.head_dim).into()),
        ("scale_block", facts.scale_block.to_vec().into()),
        ("embedding_stages", embedding_stages.to_vec().into()),
    ];
    let flags = [("apart", parallel.experts() > 1), ("mtp", facts.mtp > 0), ("multimodal", facts.nested)];
    Filling {
        values: values.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>(),
        flags: flags.into_iter().filter(|(_, holds)| *holds).map(|(flag, _)| flag).collect::<BTreeSet<_>>(),
    }
}

fn unknown(templates: &[Template], config: &Config) -> PlanFault {
    let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect::<Vec<_>>();
    let types = owned(&mut config.model_types());
    let classes = owned(&mut config.architectures());
    let mut families: Vec<&String> = templates.iter().flat_map(|template| template.families.keys()).collect();
    families.sort_unstable();
    let message = format!(
        "there is no ready plan for the model_type {} (architectures {}) of config.json; there are plans for {}; \
         write one for others, as docs/plans.md tells",
        quote_all(&types),
        quote_all(&classes),
        families.iter().map(|family| family.as_str()).collect::<Vec<_>>().join(", "),
    );
    PlanFault::new("PlanFamily", message)
}

fn broken(error: &serde_json::Error) -> PlanFault {
    PlanFault::new("PlanSyntax", format!("a template of a ready plan: {error}"))
}

fn one(fault: PlanFault) -> Vec<PlanFault> {
    vec![fault]
}
