//! Counts the requests of one thread.

use crate::{Event, Sum};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

/// The most sums of a tally. The owner takes them when it is full.
pub const MAX_EVENTS: usize = 1024;

/// The same order of the sums in each run of a simulation.
pub(crate) type Hasher = BuildHasherDefault<DefaultHasher>;

/// Sums of events, by place: the target of a data server.
#[derive(Debug)]
pub struct Tally<P> {
    sums: HashMap<(P, Event), Sum, Hasher>,
}

impl<P> Default for Tally<P> {
    fn default() -> Self {
        Self { sums: HashMap::default() }
    }
}

impl<P: Eq + Hash> Tally<P> {
    /// Counts a request. Returns whether there is no room for another event: then the sums have to
    /// be taken.
    #[must_use]
    pub fn note(&mut self, place: P, event: Event, one: Sum) -> bool {
        self.sums.entry((place, event)).and_modify(|sum| sum.add(one)).or_insert(one);
        self.sums.len() >= MAX_EVENTS
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Takes all sums.
    pub fn take(&mut self) -> impl Iterator<Item = ((P, Event), Sum)> {
        self.sums.drain()
    }
}
