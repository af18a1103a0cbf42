//! Counters by name, taken out as they are written to a metrics page.

use crate::family::Family;
use crate::page::Page;
use std::collections::BTreeMap;

/// The counters of `weir status --counters`, by name, that are not on the metrics page yet.
#[derive(Debug)]
pub struct Counted(BTreeMap<String, u64>);

impl Counted {
    /// Collects counters by name.
    pub fn new(list: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self(list.into_iter().collect())
    }

    /// Adds a counter.
    pub fn add(&mut self, name: String, value: u64) {
        self.0.insert(name, value);
    }

    /// Removes a counter and returns its value; 0 if there is none of this name.
    pub fn take(&mut self, name: &str) -> u64 {
        self.0.remove(name).unwrap_or(0)
    }

    /// Moves a counter to the page as a family without labels.
    pub fn tell(&mut self, page: &mut Page, family: &'static Family, name: &str) {
        page.number(family, self.take(name));
    }

    /// Moves several counters to the page as one family with one label. Each entry of `names` is
    /// the value of the label and the name of the counter.
    pub fn tell_all(&mut self, page: &mut Page, family: &'static Family, names: &[(&str, &str)]) {
        let mut samples = page.family(family);
        for (label, name) in names {
            samples.number(&[label], self.take(name));
        }
    }

    /// Moves the counters with a prefix to the page as one family with one label: the rest of their
    /// names.
    pub fn tell_prefix(&mut self, page: &mut Page, family: &'static Family, prefix: &str) {
        let mut samples = page.family(family);
        for (name, value) in self.take_if(|name| name.starts_with(prefix)) {
            samples.number(&[name.get(prefix.len()..).unwrap_or_default()], value);
        }
    }

    /// Removes and returns the counters whose names match a condition.
    pub fn take_if(&mut self, is: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|(name, _)| is(name));
        self.0 = left;
        let taken: BTreeMap<_, _> = taken;
        taken.into_iter().collect()
    }

    /// The names of the counters that nobody has taken.
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
