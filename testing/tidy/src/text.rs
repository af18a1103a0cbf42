//! Rules on lines of text: lengths, dates, words.

use crate::{Finding, Rule, Tree};

/// Lines that a source file may have.
pub const FILE_LINES: usize = 600;
/// Characters that a line of a comment or document may have. Tables, links and code in documents
/// are exempt: they cannot be wrapped.
pub const LINE_CHARS: usize = 120;

/// Documents that state when something was measured or changed.
const DATED: [&str; 3] = ["CHANGELOG.md", "docs/figures.md", "docs/figures-scale.md"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Names of modules that say nothing of what is in them.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "misc", "manager", "helper"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        source(path, text, &mut found);
    }
    for (path, text) in tree.ending(".md") {
        document(path, text, &mut found);
    }
    found
}

fn source(path: &str, text: &str, found: &mut Vec<Finding>) {
    let mut add = |rule, line, what: String| {
        found.push(Finding { rule, path: path.to_owned(), line, what });
    };
    let lines = text.lines().count();
    if lines > FILE_LINES {
        let what = format!("{lines} lines; split it by what it does ({FILE_LINES} at most)");
        add(Rule::FileLength, 0, what);
    }
    let stem = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let name = stem.rsplit('/').next().unwrap_or(stem);
    if EMPTY_NAMES.contains(&name) {
        add(Rule::Word, 0, format!("a module named `{name}` says nothing of what is in it"));
    }
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = comment_of(line) else { continue };
        let chars = line.chars().count();
        if chars > LINE_CHARS {
            add(Rule::LineLength, number + 1, format!("a comment of {chars} characters; wrap it"));
        }
        if let Some(date) = date_in(comment) {
            let what = format!("`{date}` in a comment; state the present, git has the past");
            add(Rule::Date, number + 1, what);
        }
    }
}

fn document(path: &str, text: &str, found: &mut Vec<Finding>) {
    let mut add = |rule, line, what: String| {
        found.push(Finding { rule, path: path.to_owned(), line, what });
    };
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        let chars = line.chars().count();
        if !in_code && chars > LINE_CHARS && !is_unbreakable(line) {
            add(Rule::LineLength, number + 1, format!("a line of {chars} characters; wrap it"));
        }
        if let Some(date) = date_in(line).filter(|_| !in_code && !DATED.contains(&path)) {
            let what = format!("`{date}`; state the present, git has the past");
            add(Rule::Date, number + 1, what);
        }
    }
}

/// The comment of a line of Rust that has nothing before it but space.
fn comment_of(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

/// A row of a table, a heading, or a line that is one link or image.
fn is_unbreakable(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') || line.starts_with('#') || line.starts_with("![") || !line.contains(' ')
}

/// A day with its month or year in `text`.
fn date_in(text: &str) -> Option<String> {
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|w| !w.is_empty()).collect();
    for pair in words.windows(2) {
        let is_day = |w: &str| w.len() <= 2 && w.parse().is_ok_and(|d: u32| (1..=31).contains(&d));
        if is_day(pair[0]) && MONTHS.contains(&pair[1]) {
            return Some(pair.join(" "));
        }
    }
    words.into_iter().find(|word| is_iso_date(word)).map(str::to_owned)
}

/// Year, month and day in digits, with hyphens.
fn is_iso_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let digits = |part: &str, n| part.len() == n && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() == 3
        && digits(parts[0], 4)
        && parts[0].starts_with("20")
        && digits(parts[1], 2)
        && digits(parts[2], 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Rule> {
        let mut tree = Tree::default();
        tree.files.insert(path.to_owned(), text.to_owned());
        check(&tree).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn dates_stand_in_no_comment_and_no_document() {
        assert_eq!(found("a.rs", "// Until 27 November 2026 it waited.\n"), [Rule::Date]);
        assert_eq!(found("a.rs", "let day = \"2026-11-28\"; // a value\n"), []);
        assert_eq!(found("docs/a.md", "Measured on 2026-11-28.\n"), [Rule::Date]);
        assert_eq!(found("docs/a.md", "```\n2026-11-28 INFO started\n```\n"), []);
        assert_eq!(found("CHANGELOG.md", "## 0.2.0 (2026-11-28)\n"), []);
        assert_eq!(found("a.rs", "// May 3 of them be away?\n"), []);
    }

    #[test]
    fn long_lines_are_wrapped_where_they_can_be() {
        let long = "word ".repeat(30);
        assert_eq!(found("a.rs", &format!("// {long}\n")), [Rule::LineLength]);
        assert_eq!(found("a.rs", &format!("let a = \"{long}\";\n")), []);
        assert_eq!(found("a.md", &format!("{long}\n")), [Rule::LineLength]);
        assert_eq!(found("a.md", &format!("| {long} |\n")), []);
    }

    #[test]
    fn files_are_short_and_named_by_what_they_do() {
        assert_eq!(found("a.rs", &"\n".repeat(FILE_LINES)), []);
        assert_eq!(found("a.rs", &"\n".repeat(FILE_LINES + 1)), [Rule::FileLength]);
        assert_eq!(found("crates/a/src/utils.rs", ""), [Rule::Word]);
        assert_eq!(found("crates/a/src/misc/mod.rs", ""), [Rule::Word]);
    }
}
