//! Which modules of a crate import which: read from the tokens of each file, so that comments and
//! strings do not count and paths within macros do.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module's path below its crate: `[]` is `lib.rs` or `main.rs`.
pub type Module = Vec<String>;

/// The modules of one crate by their files' paths, and what each of them imports.
#[derive(Debug, Default)]
pub struct Modules {
    /// File of each module.
    pub files: BTreeMap<Module, String>,
    /// The modules that each module names in a path.
    pub imports: BTreeMap<Module, BTreeSet<Module>>,
}

impl Modules {
    /// Reads the files below `sources` (`crates/types/src/`). Modules that only tests have are left
    /// out.
    ///
    /// # Errors
    ///
    /// The path of a file that is not Rust.
    pub fn read<'a>(
        sources: &str,
        files: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Modules, String> {
        let mut modules = Modules::default();
        let mut parsed = BTreeMap::new();
        for (path, text) in files {
            let module = module_of(&path[sources.len()..]);
            let tokens: TokenStream = text.parse().map_err(|e| format!("{path}: {e}"))?;
            parsed.insert(module.clone(), File::of(tokens, &module));
            modules.files.insert(module, path.to_owned());
        }
        let tests: Vec<Module> =
            parsed.values().flat_map(|file| file.test_modules.clone()).collect();
        let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
        modules.files.retain(|module, _| !is_test(module));

        for (module, file) in &parsed {
            if is_test(module) {
                continue;
            }
            let imports = file.paths.iter().map(|path| modules.owner(path, &parsed));
            let imports = imports.filter(|owner| owner != module && !owner.is_empty()).collect();
            modules.imports.insert(module.clone(), imports);
        }
        Ok(modules)
    }

    /// The module that defines what `path` names: names that a module hands on from another one are
    /// followed.
    fn owner(&self, path: &[String], parsed: &BTreeMap<Module, File>) -> Module {
        let mut path = path.to_vec();
        // A re-export may lead to another one; a chain of ten would be a loop.
        for _ in 0..10 {
            let longest = (0..=path.len()).rev().find(|&n| self.files.contains_key(&path[..n]));
            let n = longest.unwrap_or(0);
            let handed_on = path.get(n).and_then(|name| parsed.get(&path[..n])?.exports.get(name));
            match handed_on {
                Some(from) if from[..] != path[..] => path.splice(..=n, from.iter().cloned()),
                _ => return path[..n].to_vec(),
            };
        }
        Vec::new()
    }
}

/// `core/lease/mod.rs` is `[core, lease]`.
fn module_of(below: &str) -> Module {
    let stem = below.trim_end_matches(".rs");
    let mut parts: Module = stem.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        parts.pop();
    }
    parts
}

/// What one file says of modules.
#[derive(Debug, Default)]
struct File {
    /// Every path into its own crate that it names, from the crate's root.
    paths: BTreeSet<Module>,
    /// Names that it hands on with `pub use`, and where they come from.
    exports: BTreeMap<String, Module>,
    /// Modules that it declares for tests only.
    test_modules: Vec<Module>,
}

impl File {
    fn of(tokens: TokenStream, module: &Module) -> File {
        let mut file = File::default();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let children = declared(&tokens);
        file.read(&tokens, module, &children);
        file
    }

    fn read(&mut self, tokens: &[TokenTree], module: &Module, children: &BTreeSet<String>) {
        let mut at = 0;
        while at < tokens.len() {
            if let Some(past) = self.test_item(tokens, at, module) {
                at = past;
                continue;
            }
            if is_word(tokens, at, "use") {
                let end =
                    (at..tokens.len()).find(|&i| is_mark(tokens, i, ';')).unwrap_or(tokens.len());
                let public = at > 0 && (is_word(tokens, at - 1, "pub") || is_group(tokens, at - 1));
                self.used(&tokens[at + 1..end], module, children, public);
                at = end;
                continue;
            }
            if let TokenTree::Group(group) = &tokens[at] {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                self.read(&inner, module, children);
            } else if at < 2 || !is_mark(tokens, at - 1, ':') {
                let (path, past) = plain_path(tokens, at);
                if path.len() > 1 {
                    self.paths.extend(absolute(&path, module, children));
                    at = past;
                    continue;
                }
            }
            at += 1;
        }
    }

    /// If an item that only tests have begins at `at`: where it ends.
    fn test_item(&mut self, tokens: &[TokenTree], at: usize, module: &Module) -> Option<usize> {
        let TokenTree::Group(attribute) =
            tokens.get(at + 1).filter(|_| is_mark(tokens, at, '#'))?
        else {
            return None;
        };
        let attribute: String =
            attribute.stream().to_string().chars().filter(|c| !c.is_whitespace()).collect();
        if attribute != "cfg(test)" {
            return None;
        }
        let mut end = at + 2;
        while end < tokens.len() && !is_mark(tokens, end, ';') {
            if is_word(tokens, end, "mod")
                && let Some(TokenTree::Ident(name)) = tokens.get(end + 1)
            {
                self.test_modules.push([module.clone(), vec![name.to_string()]].concat());
            }
            let braces =
                matches!(&tokens[end], TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
            end += 1;
            if braces {
                return Some(end);
            }
        }
        Some(end + 1)
    }

    /// The tree of a `use`.
    fn used(
        &mut self,
        tokens: &[TokenTree],
        module: &Module,
        children: &BTreeSet<String>,
        public: bool,
    ) {
        for (path, name) in leaves(tokens) {
            if let Some(path) = absolute(&path, module, children) {
                if public {
                    self.exports.insert(name.clone(), path.clone());
                }
                self.paths.insert(path);
            }
        }
    }
}

/// Modules that a file declares.
fn declared(tokens: &[TokenTree]) -> BTreeSet<String> {
    (0..tokens.len())
        .filter(|&at| is_word(tokens, at, "mod"))
        .filter_map(|at| match tokens.get(at + 1)? {
            TokenTree::Ident(name) => Some(name.to_string()),
            _ => None,
        })
        .collect()
}

/// `a::b::c` from `at` on, and where it ends.
fn plain_path(tokens: &[TokenTree], at: usize) -> (Module, usize) {
    let mut path = Vec::new();
    let mut past = at;
    while let Some(TokenTree::Ident(name)) = tokens.get(past) {
        path.push(name.to_string());
        past += 1;
        if !(is_mark(tokens, past, ':') && is_mark(tokens, past + 1, ':')) {
            break;
        }
        past += 2;
    }
    (path, past.max(at + 1))
}

/// The paths of a `use`, each with the name that it brings in.
fn leaves(tokens: &[TokenTree]) -> Vec<(Module, String)> {
    let mut found = Vec::new();
    for branch in tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
        let mut path: Module = Vec::new();
        let mut name = None;
        let mut at = 0;
        while at < branch.len() {
            match &branch[at] {
                TokenTree::Ident(word) if word == "as" => {
                    name = branch.get(at + 1).map(ToString::to_string);
                    at += 1;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for (rest, name) in leaves(&inner) {
                        let rest = if rest == ["self"] { Vec::new() } else { rest };
                        found.push(([path.clone(), rest].concat(), name));
                    }
                    path.clear();
                }
                _ => {}
            }
            at += 1;
        }
        if let Some(last) = path.last().cloned() {
            found.push((path, name.unwrap_or(last)));
        }
    }
    found
}

/// A path of a file as one from the root of its crate; none if it leads to another crate, or begins
/// with a name that is no module.
fn absolute(path: &[String], module: &Module, children: &BTreeSet<String>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name if children.contains(name) => [module.clone(), vec![name.to_owned()]].concat(),
        _ => return None,
    };
    for part in rest {
        match part.as_str() {
            "super" => drop(base.pop()?),
            "self" => {}
            _ => base.push(part.clone()),
        }
    }
    Some(base)
}

fn is_word(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Ident(name)) if name == word)
}

fn is_mark(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark)
}

fn is_group(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Group(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read("src/", files.iter().copied()).unwrap();
        let name =
            |module: &Module| if module.is_empty() { "root".to_owned() } else { module.join("::") };
        let mut found = Vec::new();
        for (module, imports) in &modules.imports {
            found.extend(
                imports.iter().map(|import| format!("{} -> {}", name(module), name(import))),
            );
        }
        found
    }

    #[test]
    fn paths_lead_to_the_module_that_has_them() {
        let root = ("src/lib.rs", "mod a; mod b; pub use b::c::Deep;");
        let deep = ("src/b/c.rs", "pub struct Deep;");
        let b = ("src/b/mod.rs", "pub mod c; pub fn f() {}");
        let of = |text| imports(&[root, b, deep, ("src/a.rs", text)]);
        let ours = |found: Vec<String>| -> Vec<String> {
            found.into_iter().filter(|line| line.starts_with("a ")).collect()
        };
        assert_eq!(ours(of("use crate::b::{self, c::Deep as D};")), ["a -> b", "a -> b::c"]);
        assert_eq!(ours(of("use crate::Deep;")), ["a -> b::c"]);
        assert_eq!(
            ours(of("fn g() { assert!(crate::b::f() == super::b::c::X) }")),
            ["a -> b", "a -> b::c"]
        );
        assert_eq!(
            ours(of("// crate::b::f()\nconst A: &str = \"crate::b::f\"; use std::b::c;")),
            [""; 0]
        );
        assert_eq!(ours(of("#[cfg(test)] mod tests { use crate::b::f; }")), [""; 0]);
        assert_eq!(
            ours(of("#[cfg(test)] use crate::b::f; fn g() { crate::b::c::h() }")),
            ["a -> b::c"]
        );
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        let files = [
            ("src/lib.rs", "mod a; #[cfg(test)] mod model;"),
            ("src/a.rs", "#[cfg(test)] mod tests;"),
            ("src/a/tests.rs", "use crate::a::x;"),
            ("src/model.rs", "use crate::a::x;"),
        ];
        assert_eq!(imports(&files), ["root -> a"; 0]);
    }
}
