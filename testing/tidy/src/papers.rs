//! Tests that the table of the papers names exist.

use crate::{Finding, Rule, Tree};

/// Its rows name tests as `CRATE MODULE::TEST`, or all of a module as `CRATE MODULE::`.
const PAGE: &str = "docs/papers.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let page = tree.files.get(PAGE).map(String::as_str).unwrap_or_default();
    for (number, row) in page.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        for named in row.split('`').skip(1).step_by(2) {
            let Some((package, path)) = named.split_once(' ') else { continue };
            let Some((module, test)) = path.rsplit_once("::") else { continue };
            if !exists(tree, package, module, test) {
                found.push(Finding {
                    rule: Rule::Test,
                    path: PAGE.to_owned(),
                    line: number + 1,
                    what: format!("there is no test `{named}`"),
                });
            }
        }
    }
    found
}

/// Whether the file of a module, in `src` or `tests` of a package, has this test; any test, if the
/// name is empty.
fn exists(tree: &Tree, package: &str, module: &str, test: &str) -> bool {
    let module = module.replace("::", "/");
    for (path, _) in tree.ending("/Cargo.toml").filter(|(_, text)| name_in(text) == Some(package)) {
        let folder = path.trim_end_matches("Cargo.toml");
        for place in ["src", "tests"] {
            for end in [".rs", "/mod.rs", "/tests.rs"] {
                let Some(text) = tree.files.get(&format!("{folder}{place}/{module}{end}")) else {
                    continue;
                };
                if tests_in(text).any(|name| test.is_empty() || name == test) {
                    return true;
                }
            }
        }
    }
    false
}

/// The name of the package of a manifest, which is the first name; further ones are of programs.
fn name_in(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// The names of the tests in a source file.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("#[test]").skip(1);
    after.filter_map(|rest| Some(rest.split_once("fn ")?.1.split_once('(')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> usize {
        let mut tree = Tree::default();
        for (path, text) in [
            ("crates/a/Cargo.toml", "[package]\nname = \"weir-a\"\n\n[[bin]]\nname = \"b\"\n"),
            ("crates/a/src/one/two.rs", "#[test]\nfn it_holds() {}\n\nfn no_test() {}\n"),
            ("crates/a/tests/three/mod.rs", "#[test]\nfn it_fails() {}\n"),
            ("crates/a/tests/four.rs", "fn no_test() {}\n"),
            (PAGE, page),
        ] {
            tree.files.insert(path.to_owned(), text.to_owned());
        }
        check(&tree).len()
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        assert_eq!(found("| 1 | `weir-a one::two::it_holds`, `weir-a three::it_fails` |\n"), 0);
        assert_eq!(found("| 1 | `weir-a three::`, `weir a`, `a::b` |\n`weir-a MODULE::TEST`\n"), 0);
        for wrong in [
            "weir-a one::two::it_fails",
            "weir-a one::two::no_test",
            "weir-a one::it_holds",
            "weir-a four::",
            "weir-a five::",
            "b one::two::it_holds",
        ] {
            assert_eq!(found(&format!("| 1 | `weir-a three::`, `{wrong}` |\n")), 1, "{wrong}");
        }
    }
}
