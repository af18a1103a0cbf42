//! Completions and manual pages, as shells and `man` take them.

use crate::harness::{Place, said};
use std::fs;
use std::process::Command;

/// What bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> String {
    let script = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _weir weir "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).arg(place.path("weir.bash")).args(words);
    said(bash).ok()
}

#[test]
fn bash_completes_commands_flags_and_their_values() {
    let place = Place::new();
    fs::write(place.path("weir.bash"), place.weir(&["completions", "bash"]).ok()).unwrap();
    assert_eq!(offered(&place, &["weir", "mou"]), "mount\n");
    assert_eq!(offered(&place, &["weir", "target", "rep"]), "replace\n");
    assert_eq!(offered(&place, &["weir", "status", "--cou"]), "--counters\n");
    assert_eq!(offered(&place, &["weir", "setlayout", "--placement", "gro"]), "groups\n");
}

#[test]
fn other_shells_have_theirs_and_unknown_ones_are_refused() {
    let place = Place::new();
    assert!(place.weir(&["completions", "zsh"]).ok().starts_with("#compdef weir"));
    assert!(place.weir(&["completions", "fish"]).ok().contains("complete -c weir"));
    let unknown = place.weir(&["completions", "command.com"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("bash"), "{unknown:?}");
}

#[test]
fn each_command_has_a_manual_page() {
    let place = Place::new();
    place.weir(&["man", "new"]).ok();
    let page = |name: &str| fs::read_to_string(place.path("new/man1").join(name)).unwrap();
    let all = page("weir.1");
    for name in ["up", "mount", "scrub", "target", "completions"] {
        assert!(all.contains(&format!("weir\\-{name}(1)")), "weir.1 does not refer to {name}");
        page(&format!("weir-{name}.1"));
    }
    let replace = page("weir-target-replace.1");
    assert!(replace.contains(r"\-\-target\-dir"), "{replace}");
    assert!(!page("weir-mount.1").contains("detached"), "a flag of programs of ours");
    fs::write(place.path("file"), "").unwrap();
    place.weir(&["man", "file"]).fails(&["file/man1: Not a directory"]);
}

#[test]
fn man_shows_a_page_without_a_complaint() {
    if Command::new("man").arg("--version").output().is_err() {
        eprintln!("skipped: needs man");
        return;
    }
    let place = Place::new();
    place.weir(&["man", "pages"]).ok();
    for page in fs::read_dir(place.path("pages/man1")).unwrap() {
        let page = page.unwrap().path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(&page);
        let shown = said(man);
        assert!(shown.err.is_empty(), "{}: {}", page.display(), shown.err);
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        let words: Vec<String> = shown.ok().split_whitespace().map(str::to_owned).collect();
        assert!(words.join(" ").contains(&format!("{name} - ")), "{name} does not say what it is");
    }
}
