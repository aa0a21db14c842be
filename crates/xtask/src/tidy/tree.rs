//! What the library and the testkit must not depend on, not even through others.

use super::Fault;

/// Crates that must not be in the dependency tree of a package.
pub(super) struct Rule {
    package: &'static str,
    /// Names; one that ends in `*` stands for all that begin so.
    forbidden: &'static [&'static str],
    why: &'static str,
}

pub(super) const RULES: [Rule; 2] = [
    Rule {
        package: "weightmap",
        forbidden: &["tokio", "pyo3", "reqwest", "hf-hub", "clap", "anyhow"],
        why: "the library is used inside of other programs: no runtime, no network, no Python, no matters of programs",
    },
    Rule {
        package: "weightmap-testkit",
        forbidden: &["weightmap*", "safetensors"],
        why: "the testkit is an independent oracle: it shares no code with what it judges",
    },
];

impl Rule {
    /// The arguments with which cargo prints the tree, one crate a line and the package itself first.
    pub(super) fn command(&self) -> String {
        format!("tree --package {} --edges normal --prefix none --all-features", self.package)
    }

    /// The faults of the tree that [`Rule::command`] prints.
    pub(super) fn check(&self, tree: &str) -> Vec<Fault> {
        let mut found: Vec<&str> = tree
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| self.forbids(name))
            .collect();
        found.sort_unstable();
        found.dedup();
        let place = format!("crates/{}/Cargo.toml", self.package);
        let why = |name| {
            format!(
                "`{name}` is in the tree: {} (cargo tree -p {} -e normal -i {name} shows the way)",
                self.why, self.package
            )
        };
        found.into_iter().map(|name| Fault::new(&place, why(name))).collect()
    }

    fn forbids(&self, name: &str) -> bool {
        self.forbidden.iter().any(|&forbidden| match forbidden.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == forbidden,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &Rule = &RULES[0];
    const TESTKIT: &Rule = &RULES[1];

    #[test]
    fn a_forbidden_crate_is_one_fault_however_often_it_stands_there() {
        let tree = "weightmap v0.1.0 (/x)\nserde v1.0.0\ntokio v1.0.0\ntokio-util v0.7.0\ntokio v1.0.0 (*)\n";
        let faults = LIBRARY.check(tree);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].place, "crates/weightmap/Cargo.toml");
        assert!(faults[0].why.starts_with("`tokio` is in the tree"), "{}", faults[0]);
    }

    #[test]
    fn the_testkit_depends_on_nothing_of_ours() {
        let tree =
            "weightmap-testkit v0.1.0 (/x)\ntempfile v3.0.0\nweightmap v0.1.0 (/x)\nsafetensors v0.8.0\n";
        assert_eq!(TESTKIT.check(tree).len(), 2);
    }

    #[test]
    fn the_package_itself_is_no_dependency() {
        assert!(TESTKIT.check("weightmap-testkit v0.1.0 (/x)\n").is_empty());
    }
}
