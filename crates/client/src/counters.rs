//! What the client counts, so that what the design promises can be checked.

use crate::presence::Presence;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        /// Counters of one client.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$meta])* pub $name: AtomicU64,)*
            /// Which servers are away.
            pub(crate) presence: Presence,
        }

        impl Counters {
            /// Name and value of each, sorted by name.
            pub fn list(&self) -> Vec<(String, u64)> {
                let mut list = vec![$((stringify!($name).to_string(), self.$name.load(Relaxed)),)*];
                list.sort();
                list
            }
        }
    };
}

counters! {
    /// Bytes that callers asked to read.
    read_bytes;
    /// Payload bytes of read replies.
    read_wire_bytes;
    /// Bytes that callers wrote.
    write_bytes;
    /// Payload bytes of write requests.
    write_wire_bytes;
    /// Bytes that servers copied.
    copied_bytes;
    /// Bytes of copies that the servers could not make.
    copied_by_hand_bytes;
    /// Requests sent to data servers.
    data_requests;
    /// Replies of data servers.
    data_replies;
    /// Requests among those that the server of another copy has passed on.
    data_detours;
    /// Questions to data servers how busy a target is.
    load_questions;
    /// Requests sent to the metadata server.
    meta_requests;
    /// Replies of the metadata server.
    meta_replies;
    /// Parts of calls that were sent again.
    data_retries;
    /// Requests to the metadata server that were sent again.
    meta_retries;
    /// Blocks that did not match their checksum on arrival.
    checksum_mismatches;
    /// Parts of calls that went to another copy, because one had failed.
    copies_failed;
    /// Reads of mirrored columns that were sent to another copy than copy 0, whatever for.
    reads_of_other_copies;
    /// Times that a copy was found damaged, and another one asked.
    copies_damaged;
    /// Ranges fetched ahead.
    ahead_fetched;
    /// Ranges fetched ahead that a reader used.
    ahead_used;
    /// Connections made to data servers.
    data_connections;
    /// Connections made to metadata servers.
    meta_connections;
    /// Calls that had to wait for a lease.
    lease_waits;
    /// Leases asked for.
    acquires;
    /// Polls for events that were answered.
    polls;
    /// Events that were obeyed.
    events;
    /// Of those, leases given up.
    recalls;
    /// Leases that were lost, for having been silent too long.
    leases_lost;
    /// Names and attributes answered from what is kept.
    kept_hits;
    /// Names and attributes that had to be asked for.
    kept_misses;
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
