//! The progress of making and moving copies, as the metadata server reports it.

use crate::cluster::daemon::META;
use crate::cluster::targets::time_left;
use crate::text::human_size;
use serde_json::{Value, json};
use weir_wire::data::ServerStatus;

/// The progress of making and moving copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    pub copies_done: u64,
    copies_to_do: u64,
    pub bytes_done: u64,
    bytes_to_do: u64,
    bytes_per_s: u64,
    expected_s: u64,
    filling: u64,
    pub without_source: u64,
    pub stuck: u64,
    looking: bool,
    pub rebalancing: bool,
    uneven_percent: u64,
}

impl Moving {
    /// Reads the progress from the counters of the metadata server, if it answered.
    pub fn of(servers: &[(String, ServerStatus)]) -> Option<Self> {
        let (_, status) = servers.iter().find(|(name, _)| name == META)?;
        let counter = |name: &str| {
            let found = status.counters.iter().find(|(counter, _)| counter == name);
            found.map_or(0, |(_, value)| *value)
        };
        Some(Self {
            copies_done: counter("mover.copies_done"),
            copies_to_do: counter("mover.copies_to_do"),
            bytes_done: counter("mover.bytes_done"),
            bytes_to_do: counter("mover.bytes_to_do"),
            bytes_per_s: counter("mover.bytes_per_s"),
            expected_s: counter("mover.expected_s"),
            filling: counter("mover.filling"),
            without_source: counter("mover.without_source"),
            stuck: counter("mover.segments_stuck"),
            looking: counter("mover.looking") > 0,
            rebalancing: counter("mover.rebalancing") > 0,
            uneven_percent: counter("mover.uneven_percent"),
        })
    }

    /// Whether copies are being made, or the metadata server is looking for missing ones.
    pub fn is_at_work(&self) -> bool {
        self.looking || self.filling > self.without_source
    }

    /// The progress as text for people; empty if there is nothing to report.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.copies_to_do > 0 || self.filling > 0 {
            text += &format!(
                "\nCopies: {} to be made ({}), {} made since the metadata server started ({}), \
                 {}/s",
                self.copies_to_do,
                human_size(self.bytes_to_do),
                self.copies_done,
                human_size(self.bytes_done),
                human_size(self.bytes_per_s),
            );
            text += &match time_left(self.expected_s) {
                Some(left) => format!(", {left} left"),
                None if self.copies_to_do > 0 => ", how long is not known yet".to_owned(),
                None => String::new(),
            };
            text += if self.looking { "; still looking for more\n" } else { "\n" };
        }
        if self.rebalancing {
            text += &format!(
                "\nRebalancing: the furthest target was {} % of its space from the mean when this \
                 round began\n",
                self.uneven_percent
            );
        }
        text
    }

    /// The progress in one line.
    pub fn line(&self) -> String {
        let text = self.text();
        text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// The progress as JSON.
    pub fn json(&self) -> Value {
        json!({
            "copies_done": self.copies_done,
            "copies_to_do": self.copies_to_do,
            "bytes_done": self.bytes_done,
            "bytes_to_do": self.bytes_to_do,
            "bytes_per_s": self.bytes_per_s,
            "expected_s": self.expected_s,
            "filling": self.filling,
            "without_source": self.without_source,
            "segments_stuck": self.stuck,
            "looking": self.looking,
            "rebalancing": self.rebalancing,
            "uneven_percent": self.uneven_percent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_with_its_speed_and_end() {
        let counters = [("mover.copies_to_do", 7), ("mover.bytes_to_do", 1 << 30)];
        let counters = counters.iter().chain(&[("mover.bytes_per_s", 1 << 20)]);
        let counters = counters.chain(&[("mover.expected_s", 1024)]);
        let status = ServerStatus {
            version: String::new(),
            uptime_ms: 0,
            connections: 0,
            counters: counters.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            targets: Vec::new(),
        };
        let moving = Moving::of(&[(META.to_owned(), status)]).unwrap();
        let text = moving.text();
        assert!(text.contains("7 to be made") && text.contains("left"), "{text}");
        let both = Moving { rebalancing: true, ..moving };
        let line = both.line();
        assert!(line.contains("left; Rebalancing: ") && !line.contains('\n'), "{line}");
        assert_eq!(moving.json()["copies_to_do"], 7);
        assert_eq!(Moving::default().text(), "");
    }
}
