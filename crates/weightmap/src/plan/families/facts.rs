//! What of a model its plan depends on.

use super::config::{Config, fault};
use super::template::{Family, Template};
use crate::error::{PlanFault, list};
use crate::plan::parallel::Parallel;

/// How many rows and columns share a scale where the config does not say; as DeepSeek-V3 was saved.
const SCALE_BLOCK: [u64; 2] = [128, 128];

/// Layers for predicting further tokens are listed in a pattern, so there are few.
const MOST_MTP: u64 = 64;

/// What of a model its plan depends on.
pub(super) struct Facts {
    pub(super) layers: u64,
    /// Layers behind them that predict further tokens, and are none of the model's own.
    pub(super) mtp: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    /// The rows of a head in the projection of queries.
    pub(super) head_dim: u64,
    /// The rows of a head in that of keys, or of keys and values where one tensor has both.
    pub(super) kv_head_dim: u64,
    /// The columns of a head in the projection of the output.
    pub(super) v_head_dim: u64,
    /// 0 where there are none.
    pub(super) experts: u64,
    pub(super) tied: bool,
    pub(super) nested: bool,
    pub(super) scale_block: [u64; 2],
}

impl Facts {
    /// Reads them all, or tells all that is wrong.
    pub(super) fn read(
        config: &Config,
        template: &Template,
        family: &Family,
    ) -> Result<Self, Vec<PlanFault>> {
        let mut reader = Reader { config, family, faults: Vec::new() };
        let layers = reader.number("num_hidden_layers");
        let heads = reader.number("num_attention_heads");
        let [kv_heads, head_dim, kv_head_dim, v_head_dim] =
            if template.latent { reader.latent(heads) } else { reader.attention(heads) };
        let experts: Vec<&str> = template.experts.iter().map(String::as_str).collect();
        let facts = Self {
            layers,
            mtp: reader.mtp(),
            heads,
            kv_heads,
            head_dim,
            kv_head_dim,
            v_head_dim,
            experts: if experts.is_empty() { 0 } else { reader.first_of(&experts) },
            tied: reader.take(Config::tied).unwrap_or(family.tied),
            nested: config.is_nested(),
            scale_block: reader.take(Config::scale_block).unwrap_or(SCALE_BLOCK),
        };
        if reader.faults.is_empty() { Ok(facts) } else { Err(reader.faults) }
    }

    /// How many neighbouring ranks have the same keys and values.
    pub(super) fn kv_replicas(&self, tp: u64) -> u64 {
        tp.checked_div(self.kv_heads).unwrap_or(1).max(1)
    }

    /// Why it cannot be divided so.
    pub(super) fn misfits(&self, parallel: &Parallel) -> Vec<PlanFault> {
        let misfits = [self.heads_misfit(parallel.tensor()), self.stages_misfit(parallel.stages())];
        misfits.into_iter().flatten().chain(self.experts_misfit(parallel.experts())).collect()
    }

    fn heads_misfit(&self, tp: u64) -> Option<PlanFault> {
        let fits = |tp: u64| {
            self.heads.is_multiple_of(tp)
                && (self.kv_heads.is_multiple_of(tp) || tp.is_multiple_of(self.kv_heads))
        };
        (!fits(tp)).then(|| {
            let Self { heads, kv_heads, .. } = self;
            let fitting: Vec<u64> = (1..=*heads).filter(|tp| fits(*tp)).collect();
            let fitting = list(&fitting, fitting.len() as u64);
            let message = format!(
                "{heads} attention heads and {kv_heads} heads of keys and values are not divided evenly by tp {tp}, \
                 and no head is cut; choose a tp of {fitting}, or write a plan that cuts them otherwise"
            );
            PlanFault::new("PlanUneven", message)
        })
    }

    fn stages_misfit(&self, pp: u64) -> Option<PlanFault> {
        let Self { layers, .. } = self;
        (pp > *layers).then(|| {
            let message =
                format!("pp {pp} is more than the {layers} layers; choose a pp of {layers} at most");
            PlanFault::new("PlanUneven", message)
        })
    }

    fn experts_misfit(&self, ep: u64) -> Option<PlanFault> {
        let message = match self.experts {
            _ if ep == 1 => return None,
            0 => format!("ep is {ep}, and the model has no experts; choose an ep of 1"),
            few if few < ep => {
                format!("ep {ep} is more than the {few} experts; choose an ep of {few} at most")
            }
            _ => return None,
        };
        Some(PlanFault::new("PlanUneven", message))
    }
}

/// Reads a config and gathers what is wrong with it. What cannot be read is 1 until the end, and not compared with
/// anything.
struct Reader<'a> {
    config: &'a Config,
    family: &'a Family,
    faults: Vec<PlanFault>,
}

impl<'a> Reader<'a> {
    fn take<T>(&mut self, read: impl FnOnce(&'a Config) -> Result<Option<T>, PlanFault>) -> Option<T> {
        read(self.config).unwrap_or_else(|fault| {
            self.faults.push(fault);
            None
        })
    }

    /// A number of which the family may know what it is where the config does not say.
    fn find(&mut self, name: &str) -> Option<u64> {
        self.take(|config| config.number(name)).or_else(|| self.family.defaults.get(name).copied())
    }

    fn number(&mut self, name: &str) -> u64 {
        self.first_of(&[name])
    }

    /// A number that the config can have by several names.
    fn first_of(&mut self, names: &[&str]) -> u64 {
        let faults = self.faults.len();
        names.iter().find_map(|name| self.find(name)).unwrap_or_else(|| {
            if self.faults.len() == faults {
                self.faults.push(fault(format!("{} is missing", names.join(" or "))));
            }
            1
        })
    }

    fn mtp(&mut self) -> u64 {
        let name = "num_nextn_predict_layers";
        let layers = self.take(|config| config.count(name, 0)).unwrap_or(0);
        if layers > MOST_MTP {
            self.faults.push(fault(format!("{name} is {layers}; expected at most {MOST_MTP}")));
        }
        layers
    }

    /// The heads of keys and values, and three times the length of a head.
    fn attention(&mut self, heads: u64) -> [u64; 4] {
        let kv_heads = self.find("num_key_value_heads").unwrap_or(heads);
        if self.faults.is_empty() && !heads.is_multiple_of(kv_heads) {
            let message =
                format!("num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}");
            self.faults.push(fault(message));
        }
        let head_dim = self.find("head_dim").unwrap_or_else(|| self.even_head(heads));
        [kv_heads, head_dim, head_dim, head_dim]
    }

    fn even_head(&mut self, heads: u64) -> u64 {
        let hidden = self.number("hidden_size");
        if self.faults.is_empty() && !hidden.is_multiple_of(heads) {
            let message = format!(
                "hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and head_dim is missing"
            );
            self.faults.push(fault(message));
        }
        hidden.checked_div(heads).unwrap_or(1).max(1)
    }

    /// Where keys and values come of a latent vector, one tensor projects it to both, for all heads.
    fn latent(&mut self, heads: u64) -> [u64; 4] {
        let [nope, rope, value] =
            ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"].map(|name| self.number(name));
        [heads, nope + rope, nope + value, value]
    }
}
