//! The names that somebody may have meant.

use std::collections::BinaryHeap;

/// How many candidates are compared exactly.
const CANDIDATES: usize = 100;

/// How many bytes of a name are looked at. No real tensor's name is as long, and exact comparison takes time
/// in proportion to its square.
const MAX_LEN: usize = 256;

/// The names most like `wanted`, at most `most` of them, the nearest first; of two as near, the earlier
/// first.
///
/// The measure is how many characters must be inserted, deleted, replaced or swapped with their neighbour,
/// upper and lower case alike. A name further away than half of the longer one's length is left out, unless
/// it contains `wanted` as it stands.
///
/// Only the [`CANDIDATES`] of the lowest [`Letters::bound`] are compared exactly, so that the time is in
/// proportion to the bytes of all names.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let wanted = head(wanted);
    let letters = Letters::of(wanted);
    let hopeful = |distance: usize, name: &str| {
        distance <= wanted.len().max(name.len()) / 2 || (!wanted.is_empty() && name.contains(wanted))
    };

    let mut best: BinaryHeap<(usize, usize, &str)> = BinaryHeap::with_capacity(CANDIDATES + 1);
    for (order, name) in names.enumerate() {
        let bound = letters.bound(head(name));
        let enough = best.len() == CANDIDATES && best.peek().is_some_and(|&(worst, ..)| worst <= bound);
        if !enough && hopeful(bound, head(name)) {
            best.push((bound, order, name));
        }
        if best.len() > CANDIDATES {
            best.pop();
        }
    }

    let wanted_lower = wanted.to_ascii_lowercase();
    let distance = |name: &str| strsim::osa_distance(&wanted_lower, &head(name).to_ascii_lowercase());
    let exact = best.into_iter().map(|(_, order, name)| (distance(name), order, name));
    let mut near: Vec<_> = exact.filter(|&(distance, _, name)| hopeful(distance, head(name))).collect();
    near.sort_unstable();
    near.into_iter().take(most).map(|(.., name)| name.to_owned()).collect()
}

/// The part of a name that is looked at.
fn head(name: &str) -> &str {
    let end = (0..=MAX_LEN.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

/// How often each letter occurs in a text.
struct Letters([i16; 128]);

impl Letters {
    fn of(text: &str) -> Self {
        let mut counts = [0; 128];
        letters(text).for_each(|letter| counts[letter] += 1);
        Self(counts)
    }

    /// A lower bound of the distance to `name`, for the price of one look at it: an edit makes up for at most
    /// one letter too few and one too many. Outside ASCII it counts bytes, and is an estimate.
    fn bound(&self, name: &str) -> usize {
        let mut counts = self.0;
        letters(name).for_each(|letter| counts[letter] -= 1);
        let missing: i16 = counts.iter().map(|&count| count.max(0)).sum();
        let extra: i16 = counts.iter().map(|&count| (-count).max(0)).sum();
        usize::from(missing.max(extra).unsigned_abs())
    }
}

/// The bytes of a text as numbers below 128. Bit 5 tells upper from lower case, and is set in digits and
/// dots; the few other signs that it confuses make the bound lower, not wrong.
fn letters(text: &str) -> impl Iterator<Item = usize> {
    text.bytes().map(|byte| usize::from((byte | 0b10_0000) & 0b111_1111))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model() -> Vec<String> {
        let mut names = vec!["lm_head.weight".into(), "model.embed_tokens.weight".into()];
        for layer in 0..60 {
            for part in
                ["mlp.up_proj", "mlp.down_proj", "mlp.gate_proj", "self_attn.q_proj", "input_layernorm"]
            {
                names.push(format!("model.layers.{layer}.{part}.weight"));
            }
            for expert in 0..20 {
                names.push(format!("model.layers.{layer}.experts.{expert}.up_proj.weight"));
            }
        }
        names.push("model.norm.weight".into());
        names
    }

    fn first(wanted: &str) -> Option<String> {
        nearest(wanted, model().iter().map(String::as_str), 3).into_iter().next()
    }

    #[track_caller]
    fn assert_first(wanted: &str, expected: &str) {
        assert_eq!(first(wanted).as_deref(), Some(expected));
    }

    #[test]
    fn a_missing_prefix_is_found() {
        assert_first("layers.12.mlp.up_proj.weight", "model.layers.12.mlp.up_proj.weight");
        assert_first("norm.weight", "model.norm.weight");
    }

    #[test]
    fn a_missing_suffix_is_found() {
        assert_first("model.layers.12.mlp.up_proj", "model.layers.12.mlp.up_proj.weight");
        assert_first("lm_head", "lm_head.weight");
    }

    #[test]
    fn a_missing_prefix_and_suffix_are_found() {
        assert_first("layers.7.experts.3.up_proj", "model.layers.7.experts.3.up_proj.weight");
        assert_first("norm", "model.norm.weight");
        assert_first("embed_tokens", "model.embed_tokens.weight");
        let name = "encoder.block.0.layer.0.SelfAttention.q.weight";
        assert_eq!(nearest("SelfAttention", ["shared.weight", name].into_iter(), 3), [name]);
    }

    #[test]
    fn a_wrong_layer_number_gives_a_layer_that_is_there() {
        assert_first("model.layers.60.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight");
    }

    #[test]
    fn a_typo_is_found() {
        assert_first("model.layers.31.mlp.up_prj.weight", "model.layers.31.mlp.up_proj.weight");
        assert_first("model.layers.31.mlp.up_plroj.weight", "model.layers.31.mlp.up_proj.weight");
        assert_first("modle.layers.21.self_attn.q_pr0j.weihgt", "model.layers.21.self_attn.q_proj.weight");
    }

    #[test]
    fn transposed_letters_are_found() {
        assert_first("model.layers.13.mlp.down_porj.weight", "model.layers.13.mlp.down_proj.weight");
        assert_first("model.lyaers.13.mlp.down_proj.weight", "model.layers.13.mlp.down_proj.weight");
    }

    #[test]
    fn upper_and_lower_case_are_alike() {
        assert_first("Model.Layers.13.MLP.Down_Proj.Weight", "model.layers.13.mlp.down_proj.weight");
        assert_eq!(nearest("LM_HEAD", ["x", "Lm_Head"].into_iter(), 3), ["Lm_Head"]);
    }

    #[test]
    fn a_name_that_is_like_none_has_no_neighbours() {
        assert_eq!(first("unet.down_blocks.0.resnets.1.conv1.bias"), None);
        assert_eq!(first("zzz"), None);
        assert_eq!(first(""), None);
    }

    #[test]
    fn no_more_names_than_asked_for_and_the_nearest_first() {
        let names = ["abcdef", "abcde", "abcdxx", "abcdey"];
        assert_eq!(nearest("abcde", names.into_iter(), 3), ["abcde", "abcdef", "abcdey"]);
        assert_eq!(nearest("abcde", names.into_iter(), 9).len(), 4);
        assert!(nearest("abcde", names.into_iter(), 0).is_empty());
        assert!(nearest("abcde", [].into_iter(), 3).is_empty());
    }

    #[test]
    fn the_best_candidate_is_kept_among_many_others() {
        let names: Vec<_> = (0..5000).map(|number| format!("tensor.{number:04}")).collect();
        let names = || names.iter().map(String::as_str);
        assert_eq!(nearest("tensor.4711x", names(), 1), ["tensor.4711"]);
        assert_eq!(nearest("tensor.0000x", names(), 1), ["tensor.0000"]);
    }

    #[test]
    fn very_long_names_are_compared_by_their_heads() {
        let long = "a".repeat(1 << 20);
        let names = vec![long.as_str(); 300];
        let wanted = format!("b{long}");
        assert_eq!(nearest(&wanted, names.iter().copied(), 1), [long.as_str()]);
        assert_eq!(nearest("ab", names.iter().copied(), 1), [""; 0]);
        let accents = "é".repeat(300);
        assert_eq!(nearest(&format!("x{accents}"), [accents.as_str()].into_iter(), 1), [accents.as_str()]);
    }

    proptest! {
        #[test]
        fn the_bound_is_below_the_distance(wanted in "[abB.0_]{0,12}", name in "[abA.0-]{0,12}") {
            let bound = Letters::of(&wanted).bound(&name);
            let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
            prop_assert!(bound <= strsim::osa_distance(&wanted, &name));
        }

        #[test]
        fn few_names_are_ranked_exactly(
            wanted in "[a-c]{1,8}", names in prop::collection::vec("[a-c]{1,8}", 0..30),
        ) {
            let found = nearest(&wanted, names.iter().map(String::as_str), 30);
            let distance = |name: &str| strsim::osa_distance(&wanted, name);
            prop_assert!(found.is_sorted_by_key(|name| distance(name)));
            let near = |name: &&String| {
                distance(name) <= wanted.len().max(name.len()) / 2 || name.contains(&wanted)
            };
            prop_assert_eq!(found.len(), names.iter().filter(near).count());
        }
    }
}
