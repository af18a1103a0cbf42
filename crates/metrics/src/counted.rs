//! Counters by name, as they are handed out one after the other.

use crate::family::Family;
use crate::page::Page;
use std::collections::BTreeMap;

/// Numbers by the names that `weir status --counters` shows, until they are told.
#[derive(Debug)]
pub struct Counted(BTreeMap<String, u64>);

impl Counted {
    /// These.
    pub fn new(list: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self(list.into_iter().collect())
    }

    /// Has one more.
    pub fn add(&mut self, name: String, value: u64) {
        self.0.insert(name, value);
    }

    /// Takes one; 0 if it is not there.
    pub fn take(&mut self, name: &str) -> u64 {
        self.0.remove(name).unwrap_or(0)
    }

    /// Tells one as a family of its own.
    pub fn tell(&mut self, page: &mut Page, family: &'static Family, name: &str) {
        page.number(family, self.take(name));
    }

    /// Tells some as a family with one label, whose values stand beside the names.
    pub fn tell_all(&mut self, page: &mut Page, family: &'static Family, names: &[(&str, &str)]) {
        let mut samples = page.family(family);
        for (label, name) in names {
            samples.number(&[label], self.take(name));
        }
    }

    /// Tells those whose names begin so as a family with one label: the rest of the name.
    pub fn tell_prefix(&mut self, page: &mut Page, family: &'static Family, prefix: &str) {
        let mut samples = page.family(family);
        for (name, value) in self.take_if(|name| name.starts_with(prefix)) {
            samples.number(&[name.get(prefix.len()..).unwrap_or_default()], value);
        }
    }

    /// Takes those that a condition holds for.
    pub fn take_if(&mut self, is: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|(name, _)| is(name));
        self.0 = left;
        let taken: BTreeMap<_, _> = taken;
        taken.into_iter().collect()
    }

    /// The names that were not taken.
    pub fn left(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{DATA_REFUSED, META_SESSIONS};

    #[test]
    fn what_is_told_is_told_once() {
        let list = [("refused.a", 1), ("refused.b", 2), ("sessions", 3), ("more", 4)];
        let mut counted = Counted::new(list.map(|(name, value)| (name.to_owned(), value)));
        let mut page = Page::default();
        counted.tell_prefix(&mut page, &DATA_REFUSED, "refused.");
        counted.tell(&mut page, &META_SESSIONS, "sessions");
        assert_eq!(counted.left(), ["more"]);
        let text = page.into_text();
        assert!(text.contains("{reason=\"a\"} 1\n") && text.contains("{reason=\"b\"} 2\n"));
        assert!(text.contains("weir_meta_sessions 3\n"), "{text}");
        assert_eq!(counted.take("sessions"), 0);
    }
}
