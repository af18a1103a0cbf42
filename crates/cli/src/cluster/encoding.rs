//! The progress of replacing copies by parities, as the metadata server reports it.

use crate::text::human_size;
use serde_json::{Value, json};
use weir_wire::data::ServerStatus;

/// Segments of files that get parities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    waiting: u64,
    sealed: u64,
    coded: u64,
    logical_bytes: u64,
    stored_bytes: u64,
    reclaimable_bytes: u64,
}

impl Encoding {
    /// Reads the progress from the counters of the metadata server.
    pub fn of(status: &ServerStatus) -> Self {
        let counter = |name: &str| {
            let is_it = |known: &str| known.strip_prefix("encoding.") == Some(name);
            let found = status.counters.iter().find(|(counter, _)| is_it(counter));
            found.map_or(0, |(_, value)| *value)
        };
        Self {
            waiting: counter("segments.waiting"),
            sealed: counter("segments.sealed"),
            coded: counter("segments.coded"),
            logical_bytes: counter("bytes.logical"),
            stored_bytes: counter("bytes.stored"),
            reclaimable_bytes: counter("bytes.reclaimable"),
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting + self.sealed + self.coded == 0
    }

    /// The progress as text for people; empty if no file gets parities.
    pub fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        format!(
            "\nEncoding: segments waiting: {}, being encoded: {}, with parities: {}\n{}",
            self.waiting,
            self.sealed,
            self.coded,
            self.space().unwrap_or_default(),
        )
    }

    /// The room that these files take, as a line for people; `None` if there are none.
    pub fn space(&self) -> Option<String> {
        let [logical, stored, reclaimable] =
            [self.logical_bytes, self.stored_bytes, self.reclaimable_bytes].map(human_size);
        (!self.is_empty()).then(|| {
            format!(
                "Files with --reduce: {logical} logical, {stored} stored, {reclaimable} \
                 reclaimable by encoding\n"
            )
        })
    }

    /// The progress as JSON.
    pub fn json(&self) -> Value {
        json!({
            "segments_waiting": self.waiting,
            "segments_being_encoded": self.sealed,
            "segments_coded": self.coded,
            "logical_bytes": self.logical_bytes,
            "stored_bytes": self.stored_bytes,
            "reclaimable_bytes": self.reclaimable_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_while_no_file_gets_parities() {
        assert_eq!(
            (Encoding::default().text(), Encoding::default().space()),
            (String::new(), None)
        );
        let some = Encoding { coded: 1, stored_bytes: 5 << 30, ..Encoding::default() };
        let text = some.text();
        assert!(text.contains("with parities: 1") && text.contains("5.0G stored"), "{text}");
    }
}
