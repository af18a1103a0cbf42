//! The metadata servers of a cluster that has several, as the one that leads sees them.

use crate::cluster::trouble::Trouble;
use crate::text::{Table, human_duration};
use serde::Serialize;
use weir_wire::data::ServerStatus;

/// A metadata server that has not reported for this time counts as missing. Each reports every 5 s,
/// and the leader checks every 5 s.
const SILENT_MS: u64 = 20_000;

/// A metadata server.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MetaMember {
    name: String,
    leads: bool,
    /// Operations that the server did not have on its disk at its last report.
    behind: u64,
    /// Time since the last report.
    silent_ms: u64,
}

/// The metadata servers in the status of the leader; none if there is only one.
pub fn of(status: &ServerStatus) -> Vec<MetaMember> {
    let count = |name: &str| {
        let found = status.counters.iter().find(|(counter, _)| counter == name);
        found.map_or(0, |(_, value)| *value)
    };
    let names = |prefix: &'static str| {
        status.counters.iter().filter_map(move |(counter, _)| counter.strip_prefix(prefix))
    };
    let leads = names("journal.leads.").map(|name| MetaMember {
        name: name.to_owned(),
        leads: true,
        behind: 0,
        silent_ms: 0,
    });
    let others = names("journal.behind.").map(|name| MetaMember {
        name: name.to_owned(),
        leads: false,
        behind: count(&format!("journal.behind.{name}")),
        silent_ms: count(&format!("journal.silent_ms.{name}")),
    });
    leads.chain(others).collect()
}

/// The members as a table.
pub fn text(members: &[MetaMember]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["METADATA SERVER", "STATE", ">BEHIND"]);
    for member in members {
        let state = match (member.leads, member.is_missing()) {
            (true, _) => "leads".to_owned(),
            (false, false) => "stands by".to_owned(),
            (false, true) => format!("silent for {}", human_duration(member.silent_ms / 1000)),
        };
        table.row(vec![member.name.clone(), state, member.behind.to_string()]);
    }
    format!("\n{}", table.render())
}

/// The problems of missing metadata servers.
pub fn troubles(members: &[MetaMember]) -> impl Iterator<Item = Trouble> {
    members.iter().filter(|member| member.is_missing()).map(|member| Trouble::MetaSilent {
        name: member.name.clone(),
        silent_s: member.silent_ms / 1000,
    })
}

impl MetaMember {
    /// The name of the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the server leads.
    pub fn leads(&self) -> bool {
        self.leads
    }

    fn is_missing(&self) -> bool {
        self.silent_ms >= SILENT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(counters: Vec<(String, u64)>) -> ServerStatus {
        let (version, targets) = (String::new(), Vec::new());
        ServerStatus { version, uptime_ms: 0, connections: 0, counters, targets }
    }

    #[test]
    fn who_leads_who_is_behind_and_who_is_silent_is_shown() {
        let counters = [
            ("journal.leads.meta-2", 1),
            ("journal.term", 7),
            ("journal.behind.meta", 12),
            ("journal.silent_ms.meta", 0),
            ("journal.behind.meta-3", 0),
            ("journal.silent_ms.meta-3", 90_000),
        ];
        let counters = counters.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let members = of(&status(counters));
        let text = text(&members);
        let lines: Vec<Vec<&str>> =
            text.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["meta-2", "leads", "0"]);
        assert_eq!(lines[2], ["meta", "stands", "by", "12"]);
        assert_eq!(lines[3][..3], ["meta-3", "silent", "for"]);
        assert_eq!(troubles(&members).count(), 1);
        assert!(of(&status(Vec::new())).is_empty());
    }
}
