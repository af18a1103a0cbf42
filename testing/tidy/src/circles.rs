//! No knots: modules of a crate that all import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Module, Modules};
use crate::{Finding, Rule, Tree};

/// Modules that may import each other in a circle.
pub const MODULES: usize = 3;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for folder in tree.crate_folders() {
        let sources = format!("{folder}/src/");
        let files = tree.ending(".rs").filter(|(path, _)| path.starts_with(&sources));
        let modules = match Modules::read(&sources, files) {
            Ok(modules) => modules,
            Err(what) => {
                found.push(Finding { rule: Rule::Circle, path: sources, line: 0, what });
                continue;
            }
        };
        for circle in circles(&modules.imports) {
            if circle.len() > MODULES {
                let mut what = format!(
                    "{} modules import each other; let imports run one way ({MODULES} at most)",
                    circle.len()
                );
                for module in &circle {
                    let within = modules.imports[module].iter().filter(|to| circle.contains(to));
                    let to: Vec<String> = within.map(|to| to.join("::")).collect();
                    what += &format!("\n    {} -> {}", module.join("::"), to.join(", "));
                }
                found.push(Finding { rule: Rule::Circle, path: folder.to_owned(), line: 0, what });
            }
        }
    }
    found
}

/// The strongly connected components of more than one module (Tarjan).
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let mut search = Search {
        imports,
        order: BTreeMap::new(),
        low: BTreeMap::new(),
        stack: Vec::new(),
        found: Vec::new(),
    };
    for module in imports.keys() {
        if !search.order.contains_key(module) {
            search.visit(module);
        }
    }
    search.found
}

struct Search<'a> {
    imports: &'a BTreeMap<Module, BTreeSet<Module>>,
    order: BTreeMap<&'a Module, usize>,
    low: BTreeMap<&'a Module, usize>,
    stack: Vec<&'a Module>,
    found: Vec<Vec<Module>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, module: &'a Module) {
        let number = self.order.len();
        self.order.insert(module, number);
        self.low.insert(module, number);
        self.stack.push(module);
        for end in self.imports.get(module).into_iter().flatten() {
            match self.order.get(end) {
                None => {
                    self.visit(end);
                    let low = self.low[module].min(self.low[end]);
                    self.low.insert(module, low);
                }
                Some(&seen) if self.stack.contains(&end) => {
                    let low = self.low[module].min(seen);
                    self.low.insert(module, low);
                }
                Some(_) => {}
            }
        }
        if self.low[module] == number {
            let begin = self.stack.iter().rposition(|&m| m == module).unwrap_or(0);
            let mut circle: Vec<Module> = self.stack.drain(begin..).cloned().collect();
            circle.sort();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_modules_in_a_circle_are_found_and_three_are_not() {
        let of = |last: &str| {
            let mut tree = Tree::default();
            let mut add =
                |path: &str, text: &str| tree.files.insert(path.to_owned(), text.to_owned());
            add("crates/x/Cargo.toml", "");
            add("crates/x/src/lib.rs", "mod a; mod b; mod c; mod d;");
            add("crates/x/src/a.rs", "use crate::b::B;");
            add("crates/x/src/b.rs", "use crate::c::C;");
            add("crates/x/src/c.rs", "use crate::d::D; use crate::a::A;");
            add("crates/x/src/d.rs", last);
            check(&tree)
        };
        assert_eq!(of(""), []);
        let found = of("fn f() { crate::a::f() }");
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("4 modules import each other"), "{}", found[0]);
        assert!(found[0].what.contains("\n    c -> a, d\n    d -> a"), "{}", found[0]);
    }
}
