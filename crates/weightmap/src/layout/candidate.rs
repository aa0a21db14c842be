//! What the name of a file says about its part in a model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use crate::error::Error;

/// A file that, by its name, could be the model, its index, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) file: &'a str,
    /// The name without variant, numbers and suffix: `model`.
    pub(super) stem: &'a str,
    pub(super) variant: Option<&'a str>,
    pub(super) part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// An index; `legacy` where the variant is not in the place that writers put it into today.
    Index { legacy: bool },
    /// A file that is a model by itself.
    Whole,
    /// Shard `number` of a family, whose last one is number `of`, or nearly so.
    Shard { number: u64, of: u64 },
}

/// The stems whose variants are told by the name alone; elsewhere a dot can mean anything (`Llama-3.1`).
const STEMS_WITH_VARIANTS: [&str; 2] = ["model", "diffusion_pytorch_model"];

impl<'a> Candidate<'a> {
    /// Reads a file name; `asked` is the variant that is wanted, and helps to see it in the names of any
    /// stem.
    ///
    /// Names that start with a dot are none: macOS leaves `._model.safetensors` behind.
    pub(super) fn parse(file: &'a str, asked: Option<&str>) -> Option<Self> {
        if file.starts_with('.') {
            return None;
        }
        let (stem, variant, part) = match file.strip_suffix(".json") {
            Some(rest) => index(rest, asked)?,
            None => weights(file.strip_suffix(".safetensors")?, asked),
        };
        Some(Self { file, stem, variant, part })
    }

    /// The rank that wrote it, where PyTorch Distributed Checkpoint named it:
    /// `shard-00001-model-00001-of-00001.safetensors`.
    pub(super) fn rank(&self) -> Option<u64> {
        let rank = self.stem.strip_prefix("shard-")?.strip_suffix("-model")?;
        matches!(self.part, Part::Shard { .. }).then(|| number(rank))?
    }
}

/// What is known of a name: stem, variant, part.
type Read<'a> = (&'a str, Option<&'a str>, Part);

/// `model.safetensors.index`, `….index.fp16`, and the older `….fp16.index` and
/// `model.fp16.safetensors.index`.
fn index<'a>(name: &'a str, asked: Option<&str>) -> Option<Read<'a>> {
    let (stem, rest) = name.split_once(".safetensors.")?;
    if let Some(variant) = rest.strip_prefix("index.") {
        return Some((stem, Some(variant), Part::Index { legacy: false }));
    }
    if let Some(variant) = rest.strip_suffix(".index") {
        return Some((stem, Some(variant), Part::Index { legacy: true }));
    }
    let (stem, variant) = split_variant(stem, asked);
    (rest == "index").then_some((stem, variant, Part::Index { legacy: variant.is_some() }))
}

/// `model`, `model.fp16`, `model-00001-of-00002`, `model.fp16-00001-of-00002`, and the older
/// `model-00001-of-00002.fp16`.
fn weights<'a>(name: &'a str, asked: Option<&str>) -> Read<'a> {
    if let Some((stem, part)) = shard(name) {
        let (stem, variant) = split_variant(stem, asked);
        return (stem, variant, part);
    }
    if let Some((front, variant)) = name.rsplit_once('.')
        && let Some((stem, part)) = shard(front)
    {
        return (stem, Some(variant), part);
    }
    let (stem, variant) = split_variant(name, asked);
    (stem, variant, Part::Whole)
}

fn split_variant<'a>(stem: &'a str, asked: Option<&str>) -> (&'a str, Option<&'a str>) {
    let is_variant = |front: &str, variant: &str| {
        Some(variant) == asked || (STEMS_WITH_VARIANTS.contains(&front) && !variant.is_empty())
    };
    stem.match_indices('.')
        .filter_map(|(dot, _)| Some((stem.get(..dot)?, stem.get(dot.saturating_add(1)..)?)))
        .find(|(front, variant)| is_variant(front, variant))
        .map_or((stem, None), |(front, variant)| (front, Some(variant)))
}

fn shard(name: &str) -> Option<(&str, Part)> {
    let (front, of) = name.rsplit_once("-of-")?;
    let stem = front.trim_end_matches(|c: char| c.is_ascii_digit());
    let part = Part::Shard { number: number(front.strip_prefix(stem)?)?, of: number(of)? };
    Some((stem.strip_suffix(['-', '_', '.']).unwrap_or(stem), part))
}

/// The value of digits, however many zeros they start with.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Shards that belong together by their names: of one stem and one count.
#[derive(Debug, Default)]
pub(super) struct Family<'a> {
    of: u64,
    /// Numbers and files in the order of the numbers.
    shards: BTreeSet<(u64, &'a str)>,
}

impl<'a> Family<'a> {
    /// The families among the candidates.
    pub(super) fn all(candidates: &[Candidate<'a>]) -> Vec<Self> {
        let mut families = BTreeMap::<_, Self>::new();
        for candidate in candidates {
            if let Part::Shard { number, of } = candidate.part {
                let family = families.entry((candidate.stem, of)).or_default();
                family.of = of;
                family.shards.insert((number, candidate.file));
            }
        }
        families.into_values().collect()
    }

    /// The files in the order of their numbers.
    pub(super) fn files(&self) -> impl Iterator<Item = &'a str> {
        self.shards.iter().map(|(_, file)| *file)
    }

    /// Checks that each number has one shard.
    pub(super) fn check(&self, directory: &Path) -> Result<(), Error> {
        let numbers: BTreeSet<u64> = self.shards.iter().map(|(number, _)| *number).collect();
        if numbers.len() < self.shards.len() {
            return Err(Error::Ambiguous {
                path: directory.to_owned(),
                what: "shards of one number",
                candidates: self.files().map(str::to_owned).collect(),
            });
        }
        let expected = self.expected(&numbers);
        missing_numbers(directory, self.files().next().unwrap_or_default(), "numbers", &numbers, expected)
    }

    /// The numbers of a complete family. In the wild there are `1..=of`, `0..of`, and `0..=of`.
    fn expected(&self, numbers: &BTreeSet<u64>) -> RangeInclusive<u64> {
        match (numbers.contains(&0), numbers.contains(&self.of)) {
            (true, true) => 0..=self.of,
            (true, false) => 0..=self.of.saturating_sub(1),
            (false, _) => 1..=self.of.max(1),
        }
    }
}

/// The error for numbers that are not exactly those that were expected.
pub(super) fn missing_numbers(
    directory: &Path,
    example: &str,
    what: &'static str,
    numbers: &BTreeSet<u64>,
    expected: RangeInclusive<u64>,
) -> Result<(), Error> {
    let present = numbers.range(expected.clone()).count() as u64;
    let missing_count =
        expected.end().saturating_sub(*expected.start()).saturating_add(1).saturating_sub(present);
    if missing_count == 0 && present == numbers.len() as u64 {
        return Ok(());
    }
    Err(Error::IncompleteFamily {
        path: directory.to_owned(),
        example: example.to_owned(),
        what,
        // The names can claim any count: no more of the numbers is made than a message shows.
        missing: expected.clone().filter(|number| !numbers.contains(number)).take(10).collect(),
        missing_count,
        stray: numbers.iter().copied().filter(|number| !expected.contains(number)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(file: &'a str, asked: Option<&str>) -> Option<Read<'a>> {
        Candidate::parse(file, asked).map(|found| (found.stem, found.variant, found.part))
    }

    #[test]
    fn names_of_the_wild_are_understood() {
        let index = |legacy| Part::Index { legacy };
        let shard = |number, of| Part::Shard { number, of };
        for (file, expected) in [
            ("model.safetensors", ("model", None, Part::Whole)),
            ("Llama-3.1.safetensors", ("Llama-3.1", None, Part::Whole)),
            ("consolidated.00.safetensors", ("consolidated.00", None, Part::Whole)),
            ("model.fp16.safetensors", ("model", Some("fp16"), Part::Whole)),
            ("model-00001-of-000034.safetensors", ("model", None, shard(1, 34))),
            ("model_00001-of-00072.safetensors", ("model", None, shard(1, 72))),
            ("00001-of-00072.safetensors", ("", None, shard(1, 72))),
            ("model.fp16-00001-of-00002.safetensors", ("model", Some("fp16"), shard(1, 2))),
            ("model-00001-of-00002.fp16.safetensors", ("model", Some("fp16"), shard(1, 2))),
            ("model.safetensors.index.json", ("model", None, index(false))),
            ("model.safetensors.index.fp16.json", ("model", Some("fp16"), index(false))),
            ("model.safetensors.fp16.index.json", ("model", Some("fp16"), index(true))),
            ("model.fp16.safetensors.index.json", ("model", Some("fp16"), index(true))),
            ("consolidated.safetensors.index.json", ("consolidated", None, index(false))),
        ] {
            assert_eq!(read(file, None), Some(expected), "{file}");
        }
    }

    #[test]
    fn the_variant_asked_for_is_seen_with_any_stem() {
        assert_eq!(read("sd.v1.fp16.safetensors", Some("fp16")), Some(("sd.v1", Some("fp16"), Part::Whole)));
        assert_eq!(read("sd.v1.fp16.safetensors", None), Some(("sd.v1.fp16", None, Part::Whole)));
    }

    #[test]
    fn other_names_are_no_candidates() {
        for file in [
            "config.json",
            "pytorch_model.bin.index.json",
            "model.safetensors.json",
            "model.bin",
            "._model.safetensors",
            "model-00001-of-00002.safetensors.part",
        ] {
            assert_eq!(read(file, None), None, "{file}");
        }
    }

    #[test]
    fn numbers_beyond_64_bits_make_no_family() {
        let found = read("model-1-of-99999999999999999999.safetensors", None);
        assert_eq!(found, Some(("model-1-of-99999999999999999999", None, Part::Whole)));
    }
}
