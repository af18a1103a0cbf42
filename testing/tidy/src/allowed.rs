//! Places that may break a rule, and the check that their list only shrinks.

use std::collections::BTreeMap;

use crate::Finding;

/// For each rule and file, how many findings are allowed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    counts: BTreeMap<(String, String), usize>,
}

impl Allowed {
    /// Reads lines of `RULE COUNT PATH`. Empty lines and those that begin with `#` are comments.
    ///
    /// # Errors
    ///
    /// The first line that is not of this form.
    pub fn parse(text: &str) -> Result<Allowed, String> {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let entry = (|| {
                let (rule, count, path) = (words.next()?, words.next()?, words.next()?);
                Some(((rule.to_owned(), path.to_owned()), count.parse().ok()?))
            })();
            let (key, count) = entry.ok_or_else(|| format!("not `RULE COUNT PATH`: {line}"))?;
            counts.insert(key, count);
        }
        Ok(Allowed { counts })
    }

    /// The list that allows just `findings`, in the form that [`Allowed::parse`] reads.
    pub fn text_for(findings: &[Finding]) -> String {
        let counts = count(findings);
        counts.iter().map(|((rule, path), count)| format!("{rule} {count} {path}\n")).collect()
    }
}

fn count(findings: &[Finding]) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry((finding.rule.name().to_owned(), finding.path.clone())).or_default() += 1;
    }
    counts
}

/// What is left to complain of: the findings of each rule and file that has more of them than
/// `allowed` says, and each entry of `allowed` that says more than there are.
pub fn apply(allowed: &Allowed, findings: Vec<Finding>) -> Vec<String> {
    let counts = count(&findings);
    let mut left = Vec::new();
    for finding in findings {
        let key = (finding.rule.name().to_owned(), finding.path.clone());
        let may = allowed.counts.get(&key).copied().unwrap_or(0);
        if counts[&key] > may {
            left.push(finding.to_string());
        }
    }
    for (key, &may) in &allowed.counts {
        let are = counts.get(key).copied().unwrap_or(0);
        if are < may {
            let (rule, path) = key;
            left.push(format!(
                "{path}: allowed.txt allows {may} of `{rule}`, there are {are}: lower the number"
            ));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    fn finding(path: &str, line: usize) -> Finding {
        Finding { rule: Rule::Date, path: path.to_owned(), line, what: "a date".to_owned() }
    }

    #[test]
    fn the_list_allows_no_more_and_no_less_than_there_is() {
        let two = vec![finding("a.md", 1), finding("a.md", 2)];
        let list = Allowed::parse(&Allowed::text_for(&two)).unwrap();
        assert_eq!(apply(&list, two.clone()), Vec::<String>::new());
        assert_eq!(apply(&list, [two.clone(), vec![finding("a.md", 3)]].concat()).len(), 3);
        assert_eq!(apply(&list, two[..1].to_vec()).len(), 1);
        assert_eq!(
            apply(&Allowed::default(), two),
            ["a.md:1: a date [date]", "a.md:2: a date [date]"]
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        assert!(Allowed::parse("date a.md\n").is_err());
        assert!(Allowed::parse("date two a.md\n").is_err());
        assert_eq!(Allowed::parse("# why\n\n").unwrap(), Allowed::default());
    }
}
