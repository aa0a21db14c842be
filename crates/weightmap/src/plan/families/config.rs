//! A `config.json`, and what is asked of it.

use serde_json::{Map, Value};

use crate::error::{PlanFault, quote};

/// The most that a number of a model can be: more than any has, and little enough that a product of two is no
/// overflow.
const MOST: u64 = 1 << 20;

/// A `config.json` as it is. Where the language model is a part of the model, it has a config of its own in it.
pub(super) struct Config {
    whole: Map<String, Value>,
    text: Option<Map<String, Value>>,
}

impl Config {
    pub(super) fn parse(json: &str) -> Result<Self, PlanFault> {
        match serde_json::from_str(json) {
            Ok(Value::Object(mut whole)) => {
                let text = match whole.remove("text_config") {
                    Some(Value::Object(text)) => Some(text),
                    _ => None,
                };
                Ok(Self { whole, text })
            }
            Ok(_) => Err(fault("config.json is not an object; it is the file that lies beside the shards")),
            Err(error) => Err(fault(format!("config.json is not JSON: {error}"))),
        }
    }

    /// Whether the language model is a part of it.
    pub(super) fn is_nested(&self) -> bool {
        self.text.is_some()
    }

    /// What the whole and then the language model is said to be.
    pub(super) fn model_types(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|part| part.get("model_type").and_then(Value::as_str))
    }

    /// The names of the classes that it was saved from.
    pub(super) fn architectures(&self) -> impl Iterator<Item = &str> {
        let lists = self.parts().filter_map(|part| part.get("architectures").and_then(Value::as_array));
        lists.flatten().filter_map(Value::as_str)
    }

    /// A number of the language model, from 1 on; `None` if it is not there or null.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, PlanFault> {
        self.count(name, 1)
    }

    /// The same, from `least` on.
    pub(super) fn count(&self, name: &str, least: u64) -> Result<Option<u64>, PlanFault> {
        let found = self.text.iter().chain([&self.whole]).find_map(|part| present(part, name));
        found.map(|value| whole_number(name, value, least)).transpose()
    }

    /// Whether the embeddings are those of the output too; `None` if it is not said.
    pub(super) fn tied(&self) -> Result<Option<bool>, PlanFault> {
        let name = "tie_word_embeddings";
        match self.parts().find_map(|part| present(part, name)) {
            None => Ok(None),
            Some(Value::Bool(tied)) => Ok(Some(*tied)),
            Some(other) => Err(unexpected(name, other, "true or false")),
        }
    }

    /// How many rows and columns of a weight share a scale; `None` if it is not said.
    pub(super) fn scale_block(&self) -> Result<Option<[u64; 2]>, PlanFault> {
        let name = "weight_block_size";
        let quantization = self.parts().find_map(|part| part.get("quantization_config")?.as_object());
        match quantization.and_then(|quantization| present(quantization, name)) {
            None => Ok(None),
            Some(Value::Array(lengths)) => match lengths.as_slice() {
                [rows, columns] => Ok(Some([whole_number(name, rows, 1)?, whole_number(name, columns, 1)?])),
                _ => Err(fault(format!("{name} has {} numbers; expected rows and columns", lengths.len()))),
            },
            Some(other) => Err(unexpected(name, other, "two numbers, rows and columns")),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Map<String, Value>> {
        [&self.whole].into_iter().chain(&self.text)
    }
}

fn present<'a>(part: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    part.get(name).filter(|value| !value.is_null())
}

fn whole_number(name: &str, value: &Value, least: u64) -> Result<u64, PlanFault> {
    let number = value.as_u64().filter(|number| (least..=MOST).contains(number));
    number.ok_or_else(|| unexpected(name, value, &format!("a whole number from {least} to {MOST}")))
}

fn unexpected(name: &str, value: &Value, expected: &str) -> PlanFault {
    let found = match value {
        Value::String(text) => format!("the text {}", quote(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    fault(format!("{name} is {found}; expected {expected}"))
}

pub(super) fn fault(message: impl Into<String>) -> PlanFault {
    PlanFault::new("PlanConfig", message)
}
