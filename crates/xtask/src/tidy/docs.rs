//! Relative links in Markdown lead to files that exist.

use super::Fault;
use crate::source::slice;

/// The links of a page that lead nowhere; `exists` answers for paths from the root of the workspace.
pub(super) fn check(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Fault> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut faults = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        let fence = ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence));
        fenced ^= fence;
        if fenced || fence {
            continue;
        }
        for target in links(&without_code(line)) {
            let file = target.split('#').next().unwrap_or("");
            let elsewhere = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
            if !elsewhere && !exists(format!("{folder}/{file}").trim_start_matches('/')) {
                faults.push(Fault::new(
                    format!("{path}:{}", number + 1),
                    format!("the link to `{target}` leads to no file"),
                ));
            }
        }
    }
    faults
}

/// A line without its `code`, in which brackets are no links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of `[text](target)`, and of a line `[name]: target`.
fn links(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).map(|rest| slice(rest, 0..rest.find(')').unwrap_or(rest.len())));
    let reference = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target);
    // What follows the target is its title.
    let target =
        |link: &str| link.split_whitespace().next().unwrap_or("").trim_matches(['<', '>']).to_owned();
    inline.chain(reference).map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let exists = |path: &str| ["README.md", "docs/a.md", "docs/../README.md"].contains(&path);
        check(path, text, exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_to_files_that_exist_are_right() {
        let text =
            "[a](docs/a.md) and [b](README.md#part \"title\")\n[c]: docs/a.md\n[d](#here) [e](https://x.y/z)";
        assert_eq!(faults("README.md", text), [""; 0]);
        assert_eq!(faults("docs/b.md", "[up](../README.md) [beside](a.md)"), [""; 0]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_fault() {
        assert_eq!(
            faults("README.md", "text\n[a](README.md), [`b`](docs/b.md#x)."),
            ["README.md:2: the link to `docs/b.md#x` leads to no file"]
        );
        assert_eq!(faults("docs/a.md", "[up](README.md)").len(), 1);
        assert_eq!(faults("README.md", "[c]: <gone.md>").len(), 1);
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(
            faults("README.md", "`[a](gone)` x\n```text\n[a](gone)\n```\n~~~\n[a](gone)\n~~~"),
            [""; 0]
        );
        assert_eq!(faults("README.md", "```\n```\n[a](gone)").len(), 1);
    }
}
