//! Dependencies between crates run one way: up the table of `ARCHITECTURE.md`.

use std::collections::BTreeMap;

use crate::{Finding, Rule, Tree};

const MAP: &str = "ARCHITECTURE.md";
/// The only product that may depend on what proves it: it has the commands `weir sim` and
/// `weir testbed`.
const MAY_USE_PROOFS: &str = "cli";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let map = tree.files.get(MAP).map(String::as_str).unwrap_or_default();
    let places: BTreeMap<&str, usize> = map
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .enumerate()
        .map(|(place, path)| (path.rsplit('/').next().unwrap_or(path), place))
        .collect();
    // A package may have another name than its folder, as `weir-capi` in `bindings/c`.
    let folders: BTreeMap<String, &str> = tree
        .crate_folders()
        .into_iter()
        .map(|folder| {
            (package(&tree.files[&format!("{folder}/Cargo.toml")], folder), short(folder))
        })
        .collect();
    for folder in tree.crate_folders() {
        let path = format!("{folder}/Cargo.toml");
        let mut add = |what: String| {
            found.push(Finding { rule: Rule::Direction, path: path.clone(), line: 0, what });
        };
        let name = short(folder);
        let Some(&place) = places.get(name) else {
            add(format!("the table of crates in {MAP} lacks `{name}`"));
            continue;
        };
        let manifest: toml::Table = match tree.files[&path].parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                add(error.to_string());
                continue;
            }
        };
        let dependencies = manifest.get("dependencies").and_then(|all| all.as_table());
        for dependency in dependencies.into_iter().flat_map(|all| all.keys()) {
            let Some(other) = dependency.strip_prefix("weir-") else { continue };
            match places.get(folders.get(other).copied().unwrap_or(other)) {
                Some(&above) if above < place => {}
                _ => add(format!("depends on `{other}`, which does not stand above it in {MAP}")),
            }
            if folder.starts_with("crates/")
                && name != MAY_USE_PROOFS
                && tree.files.contains_key(&format!("testing/{other}/Cargo.toml"))
            {
                add(format!("product depends on `{other}`, which proves it"));
            }
        }
    }
    found
}

/// The name of a package, as others name it after `weir-`.
fn package(manifest: &str, folder: &str) -> String {
    let named =
        manifest.lines().find_map(|line| line.strip_prefix("name = \"weir-")?.split('"').next());
    named.unwrap_or(short(folder)).to_owned()
}

/// `crates/types` is `types`.
fn short(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_uses_only_what_stands_above_it() {
        let of = |net: &str, host: &str| {
            let mut tree = Tree::default();
            let mut add =
                |path: &str, text: &str| tree.files.insert(path.to_owned(), text.to_owned());
            add(MAP, "| `host` | x |\n| `net` | x |\n| `testing/sim` | x |\n");
            add("crates/net/src/lib.rs", "");
            add("crates/host/src/lib.rs", "");
            add("testing/sim/src/lib.rs", "");
            add("testing/sim/Cargo.toml", "[dependencies]\nweir-net.workspace = true\n");
            add("crates/net/Cargo.toml", net);
            add("crates/host/Cargo.toml", host);
            check(&tree).into_iter().map(|finding| finding.path).collect::<Vec<_>>()
        };
        let uses_host = "[dependencies]\nweir-host.workspace = true\n";
        assert_eq!(of(uses_host, ""), [""; 0]);
        assert_eq!(
            of("", "[dependencies]\nweir-net.workspace = true\n"),
            ["crates/host/Cargo.toml"]
        );
        assert_eq!(of("", "[dev-dependencies]\nweir-net.workspace = true\n"), [""; 0]);
        // Below it in the table, and a proof of the product.
        assert_eq!(of("[dependencies]\nweir-sim.workspace = true\n", "").len(), 2);
    }
}
