//! Metrics of a mount's client for Prometheus.

use weir_client::Watch;
use weir_metrics::names as n;
use weir_metrics::{Counted, Page};

/// Adds all metrics of a client to a page.
pub fn tell_client(page: &mut Page, watch: &Watch) {
    let mut counted = Counted::new(watch.counters());
    let bytes = [
        ("read", "read_bytes"),
        ("read_wire", "read_wire_bytes"),
        ("read_near", "read_near_bytes"),
        ("write", "write_bytes"),
        ("write_wire", "write_wire_bytes"),
        ("copied", "copied_bytes"),
        ("copied_by_hand", "copied_by_hand_bytes"),
    ];
    counted.tell_all(page, &n::CLIENT_BYTES, &bytes);
    for (family, of_data, of_meta) in [
        (&n::CLIENT_REQUESTS, "data_requests", "meta_requests"),
        (&n::CLIENT_REPLIES, "data_replies", "meta_replies"),
        (&n::CLIENT_RETRIES, "data_retries", "meta_retries"),
        (&n::CLIENT_CONNECTIONS, "data_connections", "meta_connections"),
    ] {
        counted.tell_all(page, family, &[("data", of_data), ("meta", of_meta)]);
    }
    counted.tell(page, &n::CLIENT_DETOURS, "data_detours");
    counted.tell(page, &n::CLIENT_QUESTIONS, "load_questions");
    let copies = [
        ("read", "reads_of_other_copies"),
        ("failed", "copies_failed"),
        ("damaged", "copies_damaged"),
        ("computed", "columns_computed"),
    ];
    counted.tell_all(page, &n::CLIENT_COPIES, &copies);
    counted.tell(page, &n::CLIENT_MISMATCHES, "checksum_mismatches");
    let ahead = [("fetched", "ahead_fetched"), ("used", "ahead_used")];
    counted.tell_all(page, &n::CLIENT_AHEAD, &ahead);
    let leases = [
        ("acquires", "acquires"),
        ("waits", "lease_waits"),
        ("recalls", "recalls"),
        ("lost", "leases_lost"),
    ];
    counted.tell_all(page, &n::CLIENT_LEASES, &leases);
    counted.tell_all(page, &n::CLIENT_EVENTS, &[("polls", "polls"), ("events", "events")]);
    counted.tell_all(page, &n::CLIENT_KEPT, &[("hit", "kept_hits"), ("miss", "kept_misses")]);
    page.number(&n::CLIENT_AWAY, watch.away() as u64);
    debug_assert!(counted.left().is_empty(), "not told: {:?}", counted.left());
}
