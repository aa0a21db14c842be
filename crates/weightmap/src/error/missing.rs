//! Shards that are not there.

use std::fmt;

use super::quote::{count, list, quote};

/// A shard that the index names and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingShard {
    /// The shard as the index names it.
    pub name: String,
    /// How many tensors the index puts there.
    pub tensors: usize,
    /// A file that is there and whose name differs only by case, accents or the Unicode form of them.
    pub similar: Option<String>,
}

impl fmt::Display for MissingShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", quote(&self.name), count(self.tensors as u64, "tensor"))?;
        match &self.similar {
            // All that is not ASCII is escaped: these names can look the same.
            Some(similar) => {
                write!(
                    f,
                    "; `{}` is named, `{}` is here)",
                    self.name.escape_default(),
                    similar.escape_default()
                )
            }
            None => f.write_str(")"),
        }
    }
}

/// The absent ones of so many shards.
pub(super) fn missing_shards(missing: &[MissingShard], number: usize, shards: usize) -> String {
    match missing {
        [one] if number == 1 => format!("shard {one} is not there, one of {shards}"),
        _ => {
            let (shards, missing) = (count(shards as u64, "shard"), list(missing, number as u64));
            format!("{number} of {shards} not there: {missing}")
        }
    }
}
