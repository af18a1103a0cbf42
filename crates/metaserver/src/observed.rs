//! What is told of several metadata servers: who leads, and what the others lack.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::clock;
use weir_metastore::{Held, Sequence};

/// What the metadata servers hold, as the one that leads sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Number of the lead.
    pub term: u64,
    /// Name of the member that leads.
    pub leader: String,
    /// The last operation in the journal.
    pub head: Sequence,
    /// The other members.
    pub others: Vec<Follows>,
}

/// A metadata server that stands by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follows {
    /// Its name.
    pub member: String,
    /// Operations that it did not have on its disk when it reported last.
    pub behind: u64,
    /// Time since it has reported.
    pub silent_ms: u64,
}

impl Members {
    /// As counters for `weir status` and the metrics.
    pub(crate) fn list(&self) -> Vec<(String, u64)> {
        let mut list = vec![
            ("journal.term".to_owned(), self.term),
            ("journal.head".to_owned(), self.head.0),
            (format!("journal.leads.{}", self.leader), 1),
        ];
        for Follows { member, behind, silent_ms } in &self.others {
            list.push((format!("journal.behind.{member}"), *behind));
            list.push((format!("journal.silent_ms.{member}"), *silent_ms));
        }
        list
    }
}

/// When which member was heard of.
#[derive(Default)]
pub(crate) struct Heard(BTreeMap<String, (u64, Duration)>);

impl Heard {
    /// What the other members lack, from what all have reported.
    pub fn look(&mut self, leader: &str, head: Sequence, held: &[Held]) -> Vec<Follows> {
        let now = clock::since_boot();
        self.0.retain(|name, _| held.iter().any(|held| held.member == *name));
        let others = held.iter().filter(|held| held.member != leader);
        let follows = others.map(|Held { member, upto, stamp }| {
            let last = self.0.entry(member.clone()).or_insert((*stamp, now));
            if last.0 != *stamp {
                *last = (*stamp, now);
            }
            let silent = now.saturating_sub(last.1);
            Follows {
                member: member.clone(),
                behind: head.0.saturating_sub(upto.0),
                silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
            }
        });
        follows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_reports_nothing_new_is_silent_and_one_that_is_forgotten_is_not_shown() {
        let held = |member: &str, upto, stamp| Held {
            member: member.to_owned(),
            upto: Sequence(upto),
            stamp,
        };
        let mut heard = Heard::default();
        let all = [held("a", 9, 1), held("b", 5, 2), held("c", 9, 3)];
        let seen = heard.look("a", Sequence(9), &all);
        assert_eq!(seen.iter().map(|f| f.behind).collect::<Vec<_>>(), [4, 0]);
        weir_host::thread::sleep(Duration::from_millis(20));
        let seen = heard.look("a", Sequence(9), &[held("b", 9, 4), held("c", 9, 3)]);
        assert_eq!(seen[0], Follows { member: "b".into(), behind: 0, silent_ms: 0 });
        assert!(seen[1].member == "c" && seen[1].silent_ms >= 20, "{seen:?}");
        assert_eq!(heard.look("a", Sequence(9), &[held("b", 9, 4)]).len(), 1);
        assert_eq!(heard.0.len(), 1);
    }
}
