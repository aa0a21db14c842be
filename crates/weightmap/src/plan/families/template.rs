//! Ready plans as they are written: rules with names in braces for what differs from model to model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::plan::spec::Rule;

/// What all templates have in common.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Common {
    /// Pieces of rules by their names; numbers of the model can stand in them.
    parts: BTreeMap<String, Value>,
    /// They stand before those of each template.
    rules: Vec<RuleTemplate>,
}

/// The rules of families whose tensors have the same names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    /// By `model_type`.
    pub(super) families: BTreeMap<String, Family>,
    /// Whether keys and values come of a latent vector.
    #[serde(default)]
    pub(super) latent: bool,
    /// The names by which the config can have the number of experts.
    #[serde(default)]
    pub(super) experts: Vec<String>,
    rules: Vec<RuleTemplate>,
}

/// What a config of a family means by what it does not say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    /// The class of a model of it, for configs that name only that.
    pub(super) architecture: String,
    /// Whether its embeddings are those of the output too.
    #[serde(default)]
    pub(super) tied: bool,
    /// Numbers.
    #[serde(default)]
    pub(super) defaults: BTreeMap<String, u64>,
}

/// A rule that may be there only `if` or `unless` something holds.
#[derive(Deserialize)]
struct RuleTemplate {
    #[serde(rename = "if")]
    when: Option<String>,
    unless: Option<String>,
    #[serde(flatten)]
    rule: Map<String, Value>,
}

/// What is put into a template.
pub(super) struct Filling {
    /// What stands for a name in braces: a text that is nothing but the name becomes the value, and in longer ones
    /// texts and numbers take the name's place. Other names remain as they are.
    pub(super) values: BTreeMap<String, Value>,
    /// What holds.
    pub(super) flags: BTreeSet<&'static str>,
}

impl Template {
    pub(super) fn rules(&self, common: &Common, filling: Filling) -> Result<Vec<Rule>, serde_json::Error> {
        let filling = filling.with_parts(common);
        let rules = common.rules.iter().chain(&self.rules).filter(|rule| filling.holds(rule));
        rules.map(|rule| serde_json::from_value(filling.fill(&Value::Object(rule.rule.clone())))).collect()
    }
}

impl Filling {
    /// Parts refer to numbers, and patterns to the `stem`.
    fn with_parts(mut self, common: &Common) -> Self {
        self.values.extend(common.parts.get("stem").map(|stem| ("stem".to_owned(), stem.clone())));
        let parts: Vec<_> = common.parts.iter().map(|(name, part)| (name.clone(), self.fill(part))).collect();
        self.values.extend(parts);
        self
    }

    fn holds(&self, rule: &RuleTemplate) -> bool {
        let flag = |name: &str| self.flags.contains(name);
        rule.when.as_deref().is_none_or(flag) && !rule.unless.as_deref().is_some_and(flag)
    }

    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, field)| (name.clone(), self.fill(field))).collect()
            }
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        if let Some(value) = name.and_then(|name| self.values.get(name)) {
            return value.clone();
        }
        let mut filled = text.to_owned();
        for (name, value) in &self.values {
            if let Value::String(value) = value {
                filled = filled.replace(&format!("{{{name}}}"), value);
            }
        }
        Value::String(filled)
    }
}
