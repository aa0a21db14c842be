//! Which rule is a tensor's, compared with asking one pattern after the other.

use proptest::prelude::*;
use regex::Regex;

use crate::plan::matching::{Matcher, Patterns, literal};
use crate::plan::mesh::World;
use crate::plan::rules;
use crate::plan::{Own, PlanSpec, Rule, Split};

/// Patterns that treat digits alike, and others that do not, each of which captures a number or nothing.
const PATTERNS: [&str; 12] = [
    r"a\.(?P<n>\d+)",
    r"a\.(?P<n>1\d?)",
    r"[ab]\.(?P<n>[0-9]+)\.c",
    r"(?P<n>)a\.[^0-9]+",
    r".*\.(?P<n>\d)\.c",
    r"(?P<n>)b\.[0-4]+",
    r"(?P<n>)\x61\..*",
    r"(?P<n>)b\.\d{2}",
    r"b\.(?P<n>.+?)(\.c)?",
    r"(?P<n>)\[0-9].*",
    r"(?P<n>)[!-/]3",
    r"(?P<n>)[!-z]+",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_tensor_is_the_first_rules_whose_pattern_matches_all_of_its_name(
        chosen in prop::collection::vec((prop::sample::select(&PATTERNS[..]), 0..3_usize), 0..6),
        names in prop::collection::vec("[ab]\\.[0-9]{1,2}(\\.c)?|a\\.x|[/+]3|\\[0-9\\]", 1..20),
        dims in 0..3_usize,
    ) {
        let own = || Own::var("tp", "n", 100).split(Split::Cyclic);
        let spec = PlanSpec::new().mesh("m", [("tp", 2)]);
        let rule = |&(pattern, dims): &(&str, usize)| Rule::new(pattern).min_dims(dims).own(own());
        let spec = chosen.iter().map(rule).fold(spec, PlanSpec::rule);
        let world = World::new(&spec.meshes).unwrap();
        let looked_through = spec.rules.iter().map(|rule| rules::Rule::new(rule, &world, true).unwrap());
        let looked_through: Vec<_> = looked_through.collect();
        let patterns: Vec<_> = chosen.iter().map(|(pattern, _)| *pattern).collect();
        let patterns = Patterns::new(&patterns).unwrap();
        let mut matcher = Matcher::new(&patterns, &looked_through);
        for name in &names {
            let naive = chosen.iter().enumerate().find_map(|(number, &(pattern, min_dims))| {
                let regex = Regex::new(&format!("^(?:{pattern})$")).unwrap();
                let captures = regex.captures(name).filter(|_| min_dims <= dims)?;
                Some((number, captures.name("n").map(|found| found.as_str())))
            });
            let found = matcher.find(name, dims).map(|hit| (hit.rule, hit.text(0, name)));
            prop_assert_eq!(found, naive, "{}", name);
        }
    }
}

proptest! {
    #[test]
    fn a_pattern_that_is_nothing_but_a_name_matches_that_name_alone(
        pattern in "(a|b|1|\\\\?[.+*?(){}^$|#&~/<>_-]|\\\\[abd]){0,6}",
        others in prop::collection::vec("[ab1.+/_-]{0,6}", 0..20),
    ) {
        if let Some(name) = literal(&pattern) {
            let regex = Regex::new(&format!("^(?:{pattern})$")).unwrap();
            prop_assert!(regex.is_match(&name), "{} {}", pattern, name);
            for other in others {
                prop_assert_eq!(regex.is_match(&other), other == name);
            }
        }
    }
}

#[test]
fn thousands_of_names_are_looked_up() {
    let name = |number: usize| format!("model.layers.{number}.weight");
    let rules = (0..5000).map(|number| Rule::new(regex::escape(&name(number))));
    let spec = rules.fold(PlanSpec::new().mesh("m", [("tp", 2)]), PlanSpec::rule).rule(Rule::new(".*"));
    let plan = spec.build().unwrap();
    let mut matcher = Matcher::new(&plan.patterns, &plan.rules);
    for number in [0, 17, 4999, 5000, 6000] {
        assert_eq!(matcher.find(&name(number), 1).map(|hit| hit.rule), Some(number.min(5000)));
    }
}
