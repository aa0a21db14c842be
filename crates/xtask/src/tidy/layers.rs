//! The modules of the library stand in `lib.rs` in reading order, and each uses only those above it.

use super::{Fault, LIBRARY};
use crate::source::{Source, find_word, modules, slice, until_closed, word};

pub(super) fn check(library: &[&Source]) -> Vec<Fault> {
    let porch = format!("{LIBRARY}lib.rs");
    let order = library.iter().find(|source| source.path == porch).map(|source| modules(&source.shipped));
    let Some(order) = order else {
        return vec![Fault::new(porch, "is missing, and with it the order of the modules")];
    };
    let others = library.iter().filter(|source| source.path != porch);
    others.flat_map(|source| check_file(source, &order)).collect()
}

fn check_file(source: &Source, order: &[String]) -> Vec<Fault> {
    let path = source.path.trim_start_matches(LIBRARY).trim_end_matches(".rs").trim_end_matches("/mod");
    let module = word(path);
    let Some(own) = order.iter().position(|name| name == module) else {
        return vec![Fault::new(
            &source.path,
            format!("no `mod {module};` in lib.rs: declare it or delete it"),
        )];
    };
    let depth = path.split('/').count();
    let judge = |(at, used): (usize, &str)| {
        let why = match order.iter().position(|name| name == used) {
            Some(position) if position <= own => return None,
            Some(_) => format!(
                "`{module}` uses `{used}`, which stands below it in lib.rs: the modules use one another upwards only"
            ),
            None => format!(
                "`crate::{used}` does not name a module of lib.rs: write `crate::<module>::…`, so that the order can be checked"
            ),
        };
        Some(Fault::new(source.place(at), why))
    };
    let by_crate =
        find_word(&source.shipped, "crate").flat_map(|at| used(&source.shipped, at + "crate".len()));
    // Through `super` a module may name its own children too; only what names a module of lib.rs is judged.
    let by_super =
        from_root(&source.shipped, depth).filter(|(_, used)| order.iter().any(|name| name == used));
    by_crate.chain(by_super).filter_map(judge).collect()
}

/// The names, with their offsets, that follow the `super::` that lead from a module at `depth` to the root.
fn from_root(code: &str, depth: usize) -> impl Iterator<Item = (usize, &str)> {
    let path = vec!["super"; depth].join("::");
    code.match_indices(path.as_str())
        .filter(|&(at, _)| !slice(code, 0..at).ends_with("::"))
        .map(|(at, found)| at + found.len())
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(|at| used(code, at))
}

/// The names, with their offsets, that a path uses after its part that ends at `at`: one, or each of a
/// `{group}`.
fn used(code: &str, at: usize) -> Vec<(usize, &str)> {
    let rest = slice(code, at..code.len());
    let Some(path) = rest.strip_prefix("::") else { return Vec::new() };
    let start = code.len() - path.len();
    let Some(group) = path.strip_prefix('{') else { return vec![(start, word(path))] };
    let group = slice(group, 0..until_closed(group));
    let mut depth = 0_i32;
    let members = group.split_inclusive(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let mut from = start + 1;
    let mut names = Vec::new();
    for member in members {
        let name = member.trim_start();
        if !name.is_empty() {
            names.push((from + member.len() - name.len(), word(name)));
        }
        from += member.len();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let porch =
            Source::new("crates/weightmap/src/lib.rs", "mod error;\nmod read;\n// mod no;\npub mod model;\n");
        let source = Source::new(format!("crates/weightmap/src/{path}"), text);
        check(&[&porch, &source]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_may_use_those_above_it_and_itself() {
        let text = "use crate::error::Error;\nuse crate::{error, read::{self, mapped}};\nuse crate::read::x;";
        assert!(faults("read.rs", text).is_empty());
        assert!(faults("read/mapped.rs", "use super::model;\nuse super::super::error::Error;").is_empty());
        assert!(faults("model.rs", "pub(crate) use crate::read::Reader;").is_empty());
    }

    #[test]
    fn a_module_below_is_a_fault_in_every_spelling() {
        for text in [
            "\nuse crate::model::Model;",
            "\nuse crate::{error, model};",
            "\nuse crate::{error::{Error, Result}, model::{A}};",
            "\nfn f() { crate::model::go() }",
            "\nuse super::model::Model;",
        ] {
            let faults = faults("read.rs", text);
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert!(
                faults[0].starts_with("crates/weightmap/src/read.rs:2: `read` uses `model`"),
                "{faults:?}"
            );
        }
        assert_eq!(faults("read/mapped.rs", "use super::super::model::Model;").len(), 1);
        assert_eq!(faults("read/mod.rs", "use crate::model;").len(), 1);
    }

    #[test]
    fn members_of_a_group_are_placed_on_their_own_lines() {
        let faults = faults("error.rs", "use crate::{\n    error,\n    read::{a, b},\n    model,\n};");
        assert_eq!(faults.len(), 2);
        assert!(faults[0].contains("error.rs:3: `error` uses `read`"), "{faults:?}");
        assert!(faults[1].contains("error.rs:4: `error` uses `model`"), "{faults:?}");
    }

    #[test]
    fn what_the_root_re_exports_is_imported_from_its_module() {
        assert!(faults("read.rs", "use crate::Error;")[0].contains("`crate::Error` does not name a module"));
        assert_eq!(faults("read.rs", "use crate::*;").len(), 1);
    }

    #[test]
    fn tests_and_comments_may_use_all() {
        let text = "//! [`crate::model`]\n#[cfg(test)]\nmod tests { use crate::model::Model; }";
        assert!(faults("read.rs", text).is_empty());
    }

    #[test]
    fn a_file_that_lib_rs_does_not_declare_is_a_fault() {
        assert!(faults("orphan.rs", "")[0].contains("no `mod orphan;`"));
    }
}
