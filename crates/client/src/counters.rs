//! Counters of the client. Tests check the design's promises with them.

use crate::presence::Presence;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        /// Counters of one client.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$meta])* pub $name: AtomicU64,)*
            /// Servers that are away.
            pub(crate) presence: Presence,
        }

        impl Counters {
            /// Name and value of each counter, sorted by name.
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
    /// Of these, bytes of data servers on the machine of the client.
    read_near_bytes;
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
    /// Requests that the server of another copy has forwarded.
    data_detours;
    /// Questions to data servers about the load of a target.
    load_questions;
    /// Requests sent to the metadata server.
    meta_requests;
    /// Replies of the metadata server.
    meta_replies;
    /// Parts of calls that were retried.
    data_retries;
    /// Requests to the metadata server that were retried.
    meta_retries;
    /// Blocks that did not match their checksum on arrival.
    checksum_mismatches;
    /// Parts of calls that went to another copy because one had failed.
    copies_failed;
    /// Reads of mirrored columns that were sent to another copy than copy 0, for whatever reason.
    reads_of_other_copies;
    /// Times that a copy was found damaged and another one was asked.
    copies_damaged;
    /// Columns of whole stripes that were computed from parities because their disks were slow.
    columns_computed;
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
    /// Leases requested.
    acquires;
    /// Answered polls for events.
    polls;
    /// Events carried out.
    events;
    /// Events that were recalls of leases.
    recalls;
    /// Leases lost because the client was silent for too long.
    leases_lost;
    /// Names and attributes served from the cache.
    kept_hits;
    /// Names and attributes that had to be requested.
    kept_misses;
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
