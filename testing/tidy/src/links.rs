//! Links between documents: each leads somewhere, and each page is on the index.

use crate::{Finding, Rule, Tree};

/// Lists every page of `docs/`.
const INDEX: &str = "docs/README.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (number, line) in text.lines().enumerate() {
            for target in targets(line) {
                let file = target.split('#').next().unwrap_or(target);
                let whole = joined(path, file);
                let is_page = file.ends_with(".md") || file.ends_with(".rs");
                if is_page && !tree.files.contains_key(&whole) {
                    let what = format!("the link to `{target}` leads nowhere");
                    found.push(Finding {
                        rule: Rule::Link,
                        path: path.to_owned(),
                        line: number + 1,
                        what,
                    });
                }
            }
        }
    }
    let index = tree.files.get(INDEX).map(String::as_str).unwrap_or_default();
    let listed: Vec<String> = index
        .lines()
        .flat_map(targets)
        .map(|target| joined(INDEX, target.split('#').next().unwrap_or(target)))
        .collect();
    for (path, _) in tree.ending(".md") {
        if path.starts_with("docs/") && path != INDEX && !listed.iter().any(|page| page == path) {
            let what = format!("{INDEX} does not link this page");
            found.push(Finding { rule: Rule::Link, path: path.to_owned(), line: 0, what });
        }
    }
    found
}

/// What the links of a line lead to, but for those that leave the project.
fn targets(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#') && !target.is_empty())
        .collect()
}

/// `../README.md`, seen from `docs/pace.md`, is `README.md`.
fn joined(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_somewhere_and_the_index_has_every_page() {
        let of = |index: &str| {
            let mut tree = Tree::default();
            let mut add =
                |path: &str, text: &str| tree.files.insert(path.to_owned(), text.to_owned());
            add(
                "README.md",
                "[docs](docs/README.md), [out](https://example.org/a.md), [here](#more)\n",
            );
            add("docs/pace.md", "[top](../README.md#try), [code](../crates/a/src/lib.rs)\n");
            add("crates/a/src/lib.rs", "");
            add("docs/README.md", index);
            check(&tree).into_iter().map(|finding| finding.path).collect::<Vec<_>>()
        };
        assert_eq!(of("[pace](pace.md)\n"), [""; 0]);
        assert_eq!(of(""), ["docs/pace.md"]);
        assert_eq!(of("[pace](pace.md#jobs) [gone](gone.md)\n"), ["docs/README.md"]);
    }
}
