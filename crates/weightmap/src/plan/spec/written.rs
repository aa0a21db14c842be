//! How JSON becomes a plan's data: with messages that name what is wrong, where serde would say that nothing matches.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::{
    Blocks, By, Interleave, OutputRule, Own, PlanSpec, Replicas, Rule, Shard, Split, Step, Unmatched,
};

/// Axes with their sizes, by mesh.
type Meshes = BTreeMap<String, Vec<(String, u64)>>;

/// The object that a plan is, with rules and outputs that may be still unread.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "R: Deserialize<'de>, O: Deserialize<'de>"))]
pub(in super::super) struct Top<R, O> {
    #[serde(rename = "$schema", default)]
    pub(in super::super) schema: Option<String>,
    #[serde(deserialize_with = "meshes")]
    pub(in super::super) meshes: Meshes,
    #[serde(default)]
    pub(in super::super) default: Unmatched,
    pub(in super::super) rules: Vec<R>,
    #[serde(default = "Vec::new")]
    pub(in super::super) outputs: Vec<O>,
}

impl From<Top<Rule, OutputRule>> for PlanSpec {
    fn from(top: Top<Rule, OutputRule>) -> Self {
        let Top { schema, meshes, default, rules, outputs } = top;
        Self { schema, meshes, default, rules, outputs }
    }
}

/// Meshes by name; a name that stands there twice is an error, and not the last of them.
fn meshes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Meshes, D::Error> {
    struct Views;
    impl<'de> Visitor<'de> for Views {
        type Value = Meshes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of meshes, each a list of [axis, size]")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut views = BTreeMap::new();
            while let Some((name, axes)) = map.next_entry::<String, _>()? {
                if views.insert(name.clone(), axes).is_some() {
                    return Err(de::Error::custom(format_args!("mesh {name:?} is there twice")));
                }
            }
            Ok(views)
        }
    }
    deserializer.deserialize_map(Views)
}

/// A clause of `own` with all fields that one can have.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenOwn {
    axis: String,
    at: Option<Vec<i64>>,
    var: Option<String>,
    n: Option<u64>,
    split: Option<Split>,
    by: Option<By>,
}

impl TryFrom<WrittenOwn> for Own {
    type Error = &'static str;

    fn try_from(written: WrittenOwn) -> Result<Self, Self::Error> {
        let WrittenOwn { axis, at, var, n, split, by } = written;
        match (at, var, by) {
            (Some(_), None, None) | (None, None, Some(_)) if n.is_some() || split.is_some() => {
                Err("`own` has `n` or `split`, which only go with `var`")
            }
            (Some(at), None, None) => Ok(Self::At { axis, at }),
            (None, Some(var), None) => {
                let n = n.ok_or("`own` has `var` without `n`, the number of its values")?;
                Ok(Self::Var { axis, var, n, split: split.unwrap_or_default() })
            }
            (None, None, Some(by)) => Ok(Self::By { axis, by }),
            _ => Err("`own` needs exactly one of `at`, `var` and `by`"),
        }
    }
}

/// A step of `shard` with all fields that one can have.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenStep {
    dim: i64,
    axis: Option<String>,
    split: Option<Split>,
    unit: Option<u64>,
    blocks: Option<Blocks>,
    replicas: Option<Replicas>,
    pad_multiple: Option<u64>,
    interleave: Option<Vec<u64>>,
    groups: Option<u64>,
}

impl TryFrom<WrittenStep> for Step {
    type Error = &'static str;

    fn try_from(written: WrittenStep) -> Result<Self, Self::Error> {
        let WrittenStep { dim, axis, split, unit, blocks, replicas, pad_multiple, interleave, groups } =
            written;
        let Some(interleave) = interleave else {
            if groups.is_some() {
                return Err("`groups` goes with `interleave` only");
            }
            let axis = axis.ok_or("a step of `shard` needs `axis`, or `interleave` and `groups`")?;
            let split = split.unwrap_or_default();
            return Ok(Self::Shard(Shard { dim, axis, split, unit, blocks, replicas, pad_multiple }));
        };
        let is_cut = axis.is_some() || split.is_some() || unit.is_some() || blocks.is_some();
        if is_cut || replicas.is_some() || pad_multiple.is_some() {
            return Err(
                "a step with `interleave` has no other fields than `dim` and `groups`: cut in another step",
            );
        }
        let groups = groups.ok_or("`interleave` needs `groups`")?;
        Ok(Self::Interleave(Interleave { dim, interleave, groups }))
    }
}

/// A number, or a list of numbers.
enum OneOrMany {
    One(u64),
    Many(Vec<u64>),
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a list of numbers, none below 0")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = list.next_element()? {
                    numbers.push(number);
                }
                Ok(OneOrMany::Many(numbers))
            }
        }
        deserializer.deserialize_any(Numbers)
    }
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(count) => Self::Count(count),
            OneOrMany::Many(sizes) => Self::Sizes(sizes),
        })
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(same) => Self::Same(same),
            OneOrMany::Many(each) => Self::PerBlock(each),
        })
    }
}

/// The splits that have a name.
const NAMED: [(&str, Split); 4] = [
    ("even", Split::Even),
    ("chunk", Split::Chunk),
    ("balanced", Split::Balanced),
    ("cyclic", Split::Cyclic),
];

impl Serialize for Split {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sizes(sizes) => sizes.serialize(serializer),
            Self::Ids(ids) => ids.serialize(serializer),
            named => {
                let name = NAMED.iter().find(|(_, split)| split == named).map_or("even", |(name, _)| name);
                serializer.serialize_str(name)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Splits;
        impl<'de> Visitor<'de> for Splits {
            type Value = Split;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a split: even, chunk, balanced, cyclic, a list of sizes, or a list of lists of ids",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Split, E> {
                let named = NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, split)| split);
                named.ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(name), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Split, A::Error> {
                let (mut sizes, mut ids) = (Vec::new(), Vec::new());
                while let Some(entry) = list.next_element()? {
                    match entry {
                        OneOrMany::One(size) => sizes.push(size),
                        OneOrMany::Many(of_one) => ids.push(of_one),
                    }
                }
                match (sizes.is_empty(), ids.is_empty()) {
                    (false, false) => Err(de::Error::custom("`split` mixes sizes and lists of ids")),
                    (_, true) => Ok(Split::Sizes(sizes)),
                    (true, false) => Ok(Split::Ids(ids)),
                }
            }
        }
        deserializer.deserialize_any(Splits)
    }
}
