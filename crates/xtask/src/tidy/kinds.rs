//! Every kind of error and warning that the library names is explained in `docs/errors.md`, and no other.

use std::collections::BTreeMap;

use super::Fault;
use crate::source::{Source, slice, until_closed};

/// The page that explains the kinds.
pub(super) const PAGE: &str = "docs/errors.md";
/// The module whose faults have their kinds as literals, `PlanUneven` and so on.
const PLAN: &str = "crates/weightmap/src/plan";

pub(super) fn check(library: &[&Source], page: Option<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut kinds = BTreeMap::new();
    for source in library {
        for (at, kind) in error_kinds(source).chain(plan_kinds(source)) {
            kinds.entry(kind).or_insert_with(|| source.place(at));
        }
        for (at, kind) in warnings(source) {
            match kind {
                Some(kind) => _ = kinds.entry(kind).or_insert_with(|| source.place(at)),
                None => faults.push(Fault::new(
                    source.place(at),
                    "give `Warning::new` its kind as a literal, so that it can be looked up in docs/errors.md",
                )),
            }
        }
    }
    let Some(page) = page else {
        let why = format!(
            "is missing: it explains each kind of error and warning, of which there are {}",
            kinds.len()
        );
        faults.push(Fault::new(PAGE, why));
        return faults;
    };
    let explained: BTreeMap<_, _> = entries(page).map(|(line, kind)| (kind, line)).collect();
    let undocumented = kinds.iter().filter(|(kind, _)| !explained.contains_key(*kind));
    faults.extend(
        undocumented
            .map(|(kind, place)| Fault::new(place, format!("the kind `{kind}` is not explained in {PAGE}"))),
    );
    let unknown = explained.iter().filter(|(kind, _)| !kinds.contains_key(*kind));
    faults.extend(unknown.map(|(kind, line)| {
        Fault::new(format!("{PAGE}:{line}"), format!("the library names no kind `{kind}`: delete the row"))
    }));
    faults
}

/// The kinds that the bodies of `fn kind(` return, with their offsets.
fn error_kinds(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.shipped.match_indices("fn kind(").flat_map(|(at, _)| {
        let rest = slice(&source.shipped, at..source.shipped.len());
        let body =
            rest.find(['{', ';']).filter(|&open| slice(rest, open..open + 1) == "{").map_or(0..0, |open| {
                let inside = at + open + 1;
                inside..inside + until_closed(slice(rest, open + 1..rest.len()))
            });
        source.literals(body).filter(|(_, literal)| is_camel_case(literal))
    })
}

/// The kinds of faults of plans, with their offsets: what is found is put together from several places, so that these
/// are all literals of the module that could be one.
fn plan_kinds(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let is_plan = source.path.starts_with(PLAN);
    let literals = is_plan.then(|| source.literals(0..source.shipped.len())).into_iter().flatten();
    literals.filter(|&(at, literal)| {
        // What serde is told to convert from is a type.
        let is_type = slice(&source.shipped, 0..at).ends_with("from = ");
        !is_type && literal.strip_prefix("Plan").is_some_and(is_camel_case)
    })
}

/// The calls of `Warning::new`, with their offsets and their kinds; `None` where that is no literal.
fn warnings(source: &Source) -> impl Iterator<Item = (usize, Option<&str>)> {
    let calls = source.shipped.match_indices("Warning::new");
    let calls = calls.map(|(at, found)| at + found.len());
    calls.filter(|&at| slice(&source.shipped, at..at + 1) == "(").map(|at| {
        let arguments = slice(&source.shipped, at + 1..source.shipped.len());
        // The literal itself is blank in this view: what is left before it or behind it is the comma.
        let first = at + 1..at + 1 + arguments.find(|c: char| !c.is_whitespace()).unwrap_or(0);
        (at, source.literals(first).next().map(|(_, kind)| kind))
    })
}

/// The kinds that have a row of a table, with their lines: ``| `Kind` | what it means | what to do |``.
fn entries(page: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(page.lines()).filter_map(|(number, line)| {
        let (kind, _) = line.strip_prefix("| `")?.split_once("` |")?;
        is_camel_case(kind).then_some((number, kind))
    })
}

fn is_camel_case(literal: &str) -> bool {
    literal.starts_with(|c: char| c.is_ascii_uppercase())
        && literal.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "impl E {
        pub fn kind(&self) -> &'static str {
            match self { Self::A { x } => { \"AnError\" } Self::B => \"Other\", _ => \"not a kind\" }
        }
        fn kinds() { \"Unrelated\" }
    }
    trait T { fn kind(&self) -> &'static str; }
    const X: &str = \"AfterTheTrait\";
    fn f() {
        w.push(Warning::new(\"AWarning\", \"Message\"));
        w.push(Warning::new(
            \"Second\", message));
    }";

    fn faults(code: &str, page: Option<&str>) -> Vec<String> {
        check(&[&Source::new("a.rs", code)], page).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kinds_that_are_explained_are_right() {
        let page = "| `AnError` | x |\n| `Other` | y |\n| `AWarning` | `z` |\n| `Second` | |\n| `lower` | |\n| words | |\n";
        assert_eq!(faults(CODE, Some(page)), [""; 0]);
    }

    #[test]
    fn a_kind_that_is_not_explained_is_a_fault() {
        assert_eq!(
            faults(CODE, Some("| `AnError` | |\n| `Other` | |\nof `Second`\n| `AWarning` | |")),
            ["a.rs:11: the kind `Second` is not explained in docs/errors.md"]
        );
        assert!(
            faults(CODE, Some("| `Other` | |\n| `Second` | |\n| `AWarning` | |"))[0]
                .starts_with("a.rs:3: the kind `AnError`")
        );
    }

    #[test]
    fn a_row_on_a_kind_that_does_not_exist_is_a_fault() {
        assert_eq!(
            faults("", Some("# Errors\n\n| `Gone` | |\n")),
            ["docs/errors.md:3: the library names no kind `Gone`: delete the row"]
        );
    }

    #[test]
    fn kinds_of_plans_are_literals_of_their_module() {
        let code = "fn f() { Flaw::new(\"PlanUneven\", \"Plan B\"); zero(\"PlanPad\", \"Plan\"); }
            #[serde(try_from = \"PlanSpec\")]";
        let faults = |path: &str| check(&[&Source::new(path, code)], Some("| `PlanPad` | x |")).len();
        assert_eq!(faults("crates/weightmap/src/plan/cut.rs"), 1);
        assert_eq!(faults("crates/weightmap/src/load.rs"), 1, "there, the row is of no kind");
    }

    #[test]
    fn a_missing_page_is_a_fault() {
        let faults = faults(CODE, None);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("docs/errors.md: is missing") && faults[0].ends_with("there are 4"));
    }

    #[test]
    fn a_warning_whose_kind_cannot_be_seen_is_a_fault() {
        let faults = faults("fn f(k: &'static str) { Warning::new(k, \"Message\") }", Some(""));
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("as a literal"));
    }
}
