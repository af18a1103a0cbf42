//! Rules that the compiler does not know, checked on the source tree itself.
//!
//! [`check`] reads the files that git tracks and returns every place that breaks a rule of
//! [`Rule`]. `tests/tree.rs` runs it on this repository. A place that breaks a rule on purpose
//! stands in `allowed.txt`; an entry that is no longer needed is a finding as well, so that the
//! list only shrinks.

mod allowed;
mod circles;
mod crates;
mod links;
mod modules;
mod papers;
mod programs;
mod text;
mod tree;

use std::fmt;

pub use allowed::{Allowed, apply};
pub use tree::Tree;

/// What a place may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A source file has more than [`text::FILE_LINES`] lines.
    FileLength,
    /// A comment, or a line of a document, is longer than [`text::LINE_CHARS`] characters.
    LineLength,
    /// A comment or a document has a date: history belongs to git, figures to `figures.md`.
    Date,
    /// A word that says nothing, or that names what the project does not know.
    Word,
    /// More than [`circles::MODULES`] modules of a crate import each other.
    Circle,
    /// A crate depends on one that stands below it in `ARCHITECTURE.md`.
    Direction,
    /// A document that no index links, or a link that leads nowhere.
    Link,
    /// A file of tests that no program has, or a test that is named and does not exist.
    Test,
}

impl Rule {
    /// The name of the rule in messages and in `allowed.txt`.
    pub fn name(self) -> &'static str {
        match self {
            Rule::FileLength => "file-length",
            Rule::LineLength => "line-length",
            Rule::Date => "date",
            Rule::Word => "word",
            Rule::Circle => "circle",
            Rule::Direction => "direction",
            Rule::Link => "link",
            Rule::Test => "test",
        }
    }
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: Rule,
    /// The file, as a path from the top of the repository.
    pub path: String,
    /// The line, counted from 1; 0 if the whole file is meant.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { rule, path, line, what } = self;
        match line {
            0 => write!(f, "{path}: {what} [{}]", rule.name()),
            _ => write!(f, "{path}:{line}: {what} [{}]", rule.name()),
        }
    }
}

/// Every place of `tree` that breaks a rule, sorted.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(text::check(tree));
    found.extend(circles::check(tree));
    found.extend(crates::check(tree));
    found.extend(links::check(tree));
    found.extend(papers::check(tree));
    found.extend(programs::check(tree));
    found.sort();
    found
}
