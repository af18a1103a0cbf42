//! The header in the tree matches the source.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::Path;

#[test]
fn the_package_of_the_header_needs_the_library_of_its_version() {
    let manifest = include_str!("../Cargo.toml");
    let depends = format!("depends = \"libweir0 (= {})\"", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&depends), "bindings/c/Cargo.toml: {depends}");
}

#[test]
fn the_header_is_that_of_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    // cbindgen finds the modules of the crate.
    let builder = cbindgen::Builder::new().with_config(config).with_src(here.join("src/lib.rs"));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let file = here.join("include/weir.h");
    if std::env::var_os("WEIR_WRITE_HEADER").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "bindings/c/include/weir.h is not what the source says: run \
         WEIR_WRITE_HEADER=1 cargo test -p weir-capi --test header"
    );
}

#[test]
fn every_function_is_declared_once() {
    let begins = |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase());
    let lines = include_str!("../include/weir.h").lines().filter(begins);
    let functions: Vec<&str> = lines
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("weir_"))
        .collect();
    let distinct: std::collections::BTreeSet<&str> = functions.iter().copied().collect();
    assert!(distinct.len() > 50, "{distinct:?}");
    assert_eq!(functions.len(), distinct.len());
}

#[test]
fn every_function_is_on_the_page_of_the_manual() {
    let (header, page) = (include_str!("../include/weir.h"), include_str!("../libweir.3"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = |text: &'static str| text.split(|c| !is_name(c)).filter(|word| !word.is_empty());
    let known: std::collections::BTreeSet<&str> = words(page).collect();
    let lines = header.lines().filter(|line| !line.starts_with("//"));
    let functions = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names = functions.filter_map(|before| words(before).next_back());
    let missing: Vec<&str> =
        names.filter(|name| name.starts_with("weir_") && !known.contains(name)).collect();
    assert!(missing.is_empty(), "libweir.3 does not name {missing:?}");
}
