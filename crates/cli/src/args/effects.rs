//! Every flag, environment variable, mount option and configuration key needs a test that shows its
//! effect. `tests/effects.txt` names that test for each of them. A new setting needs a new line in
//! the table. When a test is removed or renamed, the test here fails and names the setting.
//!
//! A setting without such a test has a `-` in the table, and these lines are counted.

use super::{Arguments, MountHelper};
use crate::mount_options::KNOWN;
use clap::{Arg, Command, CommandFactory};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_client::job;

/// One line of the table.
struct Shown {
    /// The file of the test, relative to `crates/`.
    file: String,
    /// The name of the test function.
    test: String,
    /// Where the steps of the test are written: another function of the same file, or another file.
    helper: Option<String>,
}

/// The number of lines with a `-`: settings without a test. It may only be lowered.
const WITHOUT: usize = 0;

/// The flags that choose a cluster, which all commands take from one struct.
const SHARED: [&str; 4] = ["--name", "--dir", "--config", "--credential"];

#[test]
fn everything_that_can_be_said_has_a_test_that_shows_its_effect() {
    let (table, without) = table();
    assert_eq!(without.len(), WITHOUT, "tests for what these do: {without:?}");
    let there = everything();
    let is_missing = |what: &&String| !table.contains_key(*what) && !without.contains(*what);
    let missing: Vec<&String> = there.iter().filter(is_missing).collect();
    let missing: String = missing.iter().map(|what| format!("\n  {what}")).collect();
    assert!(missing.is_empty(), "no test in tests/effects.txt shows what these do:{missing}");
    let all = table.keys().chain(&without);
    let gone: Vec<&String> = all.filter(|what| !there.contains(*what)).collect();
    assert!(gone.is_empty(), "tests/effects.txt has what nobody can say: {gone:?}");
    let wrong: Vec<String> = table.iter().filter_map(|(what, shown)| fault(what, shown)).collect();
    assert!(wrong.is_empty(), "in tests/effects.txt:\n  {}", wrong.join("\n  "));
}

/// Returns what is wrong with a line. The test must exist and use the setting.
fn fault(what: &str, shown: &Shown) -> Option<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(crates.join(file));
    let Ok(source) = read(&shown.file) else {
        return Some(format!("{what}: there is no file crates/{}", shown.file));
    };
    let Some(test) = function(&source, &shown.test).filter(|_| is_test(&source, &shown.test))
    else {
        return Some(format!("{what}: crates/{} has no test {}", shown.file, shown.test));
    };
    let helper = match shown.helper.as_deref() {
        Some(file) if file.contains('/') => read(file).ok(),
        Some(name) => function(&source, name).map(str::to_owned),
        None => Some(String::new()),
    };
    let Some(helper) = helper else {
        return Some(format!("{what}: there is no {:?}", shown.helper));
    };
    let is_said = |text: &str| {
        spellings(what).iter().any(|spelling| has_word(text, spelling))
            || shorts_of(what).into_iter().any(|short| says(text, short))
    };
    (!is_said(&without_comments(test)) && !is_said(&without_comments(&helper)))
        .then(|| format!("{what}: it is not said by {} of crates/{}", shown.test, shown.file))
}

/// Returns the text of one function in source formatted by rustfmt.
fn function<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let at = ["(", "<"].iter().find_map(|next| source.find(&format!("fn {name}{next}")))?;
    let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let margin = source[line..].len() - source[line..].trim_start_matches(' ').len();
    let end = format!("\n{}}}\n", " ".repeat(margin));
    let length = source[at..].find(&end)?;
    Some(&source[at..at + length])
}

#[test]
fn what_another_function_says_is_not_said_by_a_test() {
    let source = "#[test]\nfn one() {\n    a(\"--all\");\n}\n\nfn two() {\n    b(\"--none\");\n}\n";
    assert_eq!(function(source, "one"), Some("fn one() {\n    a(\"--all\");"));
    assert_eq!(function(source, "two"), Some("fn two() {\n    b(\"--none\");"));
    assert_eq!(function(source, "on"), None);
}

/// Returns a source text without its comments.
fn without_comments(source: &str) -> String {
    let code = |line: &str| {
        let is_comment = |at: &usize| line[..*at].matches('"').count().is_multiple_of(2);
        let end = line.match_indices("//").map(|(at, _)| at).find(is_comment);
        line[..end.unwrap_or(line.len())].to_owned() + "\n"
    };
    // The first word of a line within a string begins after its `\n`.
    source.lines().map(code).collect::<String>().replace("\\n", "\n")
}

/// Whether a text has this whole word: neither `--names` nor an identifier that contains the word
/// counts.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let next = &text[at + word.len()..];
        !text[..at].ends_with(is_part) && !next.starts_with(is_part) && !next.starts_with('-')
    })
}

#[test]
fn what_is_said_about_a_test_is_not_said_by_it() {
    let source = "fn has_a_key_ms() { // --lazy\n    a(\"b://--force\"); // key_ms\n}";
    let code = without_comments(source);
    for (word, is_there) in [("--lazy", false), ("--force", true), ("key_ms", false)] {
        assert_eq!(has_word(&code, word), is_there, "{word}");
    }
}

/// Whether a source has this function with the attribute `#[test]`.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let before = text[..at].trim_end();
    before
        .lines()
        .rev()
        .take_while(|line| line.trim_start().starts_with('#'))
        .any(|line| line.trim() == "#[test]")
}

/// The ways in which a test may write a setting.
fn spellings(what: &str) -> Vec<String> {
    let last = what.rsplit(' ').next().unwrap_or(what);
    let mut all = vec![last.to_owned()];
    // A key in a table of the configuration file; a flag beside others: -rp.
    if let Some((_, key)) = last.rsplit_once('.') {
        all.push(key.to_owned());
    }
    all
}

/// Whether a short flag occurs in a string literal, alone or combined with others as in -rp.
fn says(text: &str, short: char) -> bool {
    let words = text.split('"').filter_map(|word| word.strip_prefix('-'));
    words.filter(|word| word.chars().all(char::is_alphanumeric)).any(|word| word.contains(short))
}

/// The short forms of a flag.
fn shorts_of(what: &str) -> Vec<char> {
    let mut names: Vec<&str> = what.split(' ').collect();
    let Some(flag) = names.pop() else { return Vec::new() };
    let mut command = Arguments::command();
    if names.first() == Some(&"mount.fuse.weir") {
        (command, names) = (MountHelper::command(), Vec::new());
    }
    for name in names {
        match command.find_subcommand(name) {
            Some(below) => command = below.clone(),
            None => return Vec::new(),
        }
    }
    let arg = command.get_arguments().find(|arg| spelled(arg) == flag).cloned();
    arg.and_then(|arg| arg.get_short_and_visible_aliases()).unwrap_or_default()
}

/// Reads the table: the lines that name a test, and the settings without one.
fn table() -> (BTreeMap<String, Shown>, BTreeSet<String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/effects.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut table, mut without) = (BTreeMap::new(), BTreeSet::new());
    for line in lines {
        let (what, shown) = line.split_once(" = ").unwrap_or_else(|| panic!("no ' = ': {line}"));
        if shown.trim() == "-" {
            assert!(without.insert(what.trim().to_owned()), "twice: {what}");
            continue;
        }
        let mut words = shown.split_whitespace();
        let word = words.next().unwrap_or_else(|| panic!("no file: {line}"));
        let (file, test) = word.split_once("::").unwrap_or_else(|| panic!("no '::': {line}"));
        let full = |file: &str| match file.contains('/') {
            true => file.to_owned(),
            false => format!("cli/tests/{file}"),
        };
        let shown = Shown {
            file: full(file),
            test: test.to_owned(),
            helper: words.next().map(|helper| match helper.contains("/src/") {
                true => helper.to_owned(),
                false if helper.contains('.') => format!("cli/tests/{helper}"),
                false => helper.to_owned(),
            }),
        };
        assert!(table.insert(what.trim().to_owned(), shown).is_none(), "twice: {what}");
    }
    (table, without)
}

/// Lists all settings of command lines and files.
fn everything() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    flags(&Arguments::command(), "", &mut all);
    flags(&MountHelper::command(), "mount.fuse.weir", &mut all);
    // Variables that belong to no flag.
    let variables = ["WEIR_LOG", job::JOB, job::RANK, job::RANKS, job::SHARED, job::RANGES];
    all.extend(variables.map(|name| format!("environment {name}")));
    all.extend(KNOWN.split(", ").map(|option| {
        let name = option.split('=').next().unwrap_or(option);
        format!("mount option {}", name.trim())
    }));
    keys::<weir_connect::ConfigFile>("config.toml ", &mut all);
    all.remove("config.toml up");
    all.remove("config.toml mount");
    keys::<weir_connect::UpDefaults>("config.toml up.", &mut all);
    keys::<weir_connect::MountDefaults>("config.toml mount.", &mut all);
    keys::<weir_metaserver::MetaServerConfig>("meta.toml ", &mut all);
    all.remove("meta.toml journal");
    keys::<weir_metaserver::JournalConfig>("meta.toml journal.", &mut all);
    keys::<weir_dataserver::DataServerConfig>("data.toml ", &mut all);
    all.remove("data.toml targets");
    keys::<weir_dataserver::TargetConfig>("data.toml targets.", &mut all);
    all
}

fn flags(command: &Command, path: &str, all: &mut BTreeSet<String>) {
    for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
        let flag = spelled(arg);
        if let Some(variable) = arg.get_env() {
            all.insert(format!("environment {}", variable.to_string_lossy()));
        }
        let is_shared = arg.get_help_heading() == Some("Which cluster");
        match flag.as_str() {
            "--help" | "--version" => {}
            _ if is_shared && SHARED.contains(&flag.as_str()) => drop(all.insert(flag)),
            _ => drop(all.insert(format!("{path} {flag}").trim().to_owned())),
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        flags(below, format!("{path} {}", below.get_name()).trim(), all);
    }
}

fn spelled(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => arg.get_id().to_string(),
    }
}

/// Adds the keys of a struct that is read from a file.
fn keys<T: for<'de> Deserialize<'de>>(prefix: &str, all: &mut BTreeSet<String>) {
    let mut fields: &[&str] = &[];
    let _ = T::deserialize(Fields(&mut fields));
    assert!(!fields.is_empty(), "{prefix}: no struct");
    all.extend(fields.iter().map(|field| format!("{prefix}{field}")));
}

/// A deserializer that reads nothing and records the names of a struct's fields.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("only structs"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("seen"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}
