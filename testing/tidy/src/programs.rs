//! A crate with `tests/main.rs` has one program of tests: what is not among its modules is not run.

use crate::{Finding, Rule, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, main) in tree.ending("/tests/main.rs") {
        let folder = path.trim_end_matches("main.rs");
        let beside = tree.ending(".rs").filter_map(|(file, _)| file.strip_prefix(folder));
        for file in beside.filter(|file| *file != "main.rs") {
            let name = match file.split_once('/') {
                None => file.trim_end_matches(".rs"),
                Some((name, "mod.rs")) => name,
                Some(_) => continue,
            };
            let is_module = |line: &str| line.trim_end() == format!("mod {name};");
            if !main.lines().any(is_module) {
                found.push(Finding {
                    rule: Rule::Test,
                    path: format!("{folder}{file}"),
                    line: 0,
                    what: format!("not run: `mod {name};` is missing in {path}"),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_program_has_is_found() {
        let mut tree = Tree::default();
        for (path, text) in [
            ("a/tests/main.rs", "mod one;\nmod two;\n"),
            ("a/tests/one.rs", ""),
            ("a/tests/two/mod.rs", ""),
            ("a/tests/two/part.rs", ""),
            ("a/tests/three.rs", ""),
            ("b/tests/four.rs", ""),
        ] {
            tree.files.insert(path.to_owned(), text.to_owned());
        }
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["a/tests/three.rs"]);
    }
}
