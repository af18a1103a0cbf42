//! Counters of a data server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_types::ErrorKind;
use weir_wire::Op;
use weir_wire::capability::Refusal;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident = $label:literal;)*) => {
        /// Counters of all loops and threads.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$meta])* pub(crate) $name: AtomicU64,)* }

        impl Counters {
            /// Name and value of each counter.
            pub fn snapshot(&self) -> Vec<(String, u64)> {
                vec![$(($label.to_string(), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counters! {
    read = "op.read";
    write = "op.write";
    sync = "op.sync";
    truncate = "op.truncate";
    stat_object = "op.stat_object";
    list_objects = "op.list_objects";
    scrub = "op.scrub";
    remove_objects = "op.remove_objects";
    list_lacking = "op.list_lacking";
    accept_loss = "op.accept_loss";
    list_audit = "op.list_audit";
    punch = "op.punch";
    allocate = "op.allocate";
    seek = "op.seek";
    fence = "op.fence";
    copy = "op.copy";
    ping = "op.ping";
    asks_load = "op.load";
    list_readers = "op.list_readers";
    status = "op.status";
    other = "op.other";
    /// Bytes of payloads sent.
    read_bytes = "bytes.read";
    /// Bytes of payloads that were stored.
    written_bytes = "bytes.written";
    /// Bytes of payloads that clients have staged.
    staged_bytes = "bytes.staged";
    /// Staged payloads for which there was no space.
    staged_refused = "staged.refused";
    /// Writes passed on without their bytes to copies that did not have them, and sent again with
    /// them.
    staged_in_vain = "staged.in_vain";
    /// Connections of clients that were forwarded to another server.
    forwarded = "connections.forwarded";
    /// Bytes that copies have written.
    copied_bytes = "bytes.copied";
    /// Bytes that were brought to copies with gaps.
    resynced_bytes = "bytes.resynced";
    /// Time that this work has paused for the configured rate, or for clients.
    resync_paused_ms = "resync.paused_ms";
    /// Requests of clients, or of servers on their behalf. Background work makes way for them.
    asked_begun = "asked.begun";
    /// Such requests that have ended.
    asked_ended = "asked.ended";
    /// Bytes fetched from other servers for copies.
    pulled_bytes = "bytes.pulled";
    /// Reads served from the page cache, without a thread hop.
    read_cached = "read.from_page_cache";
    /// Reads by disk threads.
    read_disk = "read.by_disk_thread";
    /// Reads of processes of jobs that reported their progress.
    read_of_jobs = "read.of_jobs";
    /// Reads repeated after a mismatch at the reader.
    read_locked = "read.locked";
    refused_target = "refused.unknown_target";
    refused_signature = "refused.capability_not_signed";
    refused_session = "refused.capability_of_other_session";
    refused_file = "refused.capability_for_other_file";
    refused_rights = "refused.capability_without_right";
    refused_expired = "refused.capability_expired";
    refused_old_key = "refused.capability_of_old_key";
    refused_revoked = "refused.capability_revoked";
    refused_session_over = "refused.session_revoked";
    /// Requests and connections that came before the server knew what was revoked, and how
    /// connections are to be protected.
    refused_unsure = "refused.revocations_unknown";
    refused_malformed = "refused.malformed";
    refused_stale = "refused.stale_generation";
    refused_ticket = "refused.ticket";
    /// Changes on connections that their clients had given up.
    refused_late = "refused.late";
    /// Payloads that did not match their checksums on arrival.
    damaged_arrivals = "checksum.damaged_on_arrival";
    /// Blocks that did not match on disk.
    corrupt_blocks = "checksum.corrupt_on_disk";
    /// Damage found in copies that have others.
    rot_found = "rot.found";
    /// Such damage that was repaired, or is being repaired, from another copy.
    rot_repaired = "rot.repaired";
    /// Such damage that could not be repaired.
    rot_unrepairable = "rot.unrepairable";
    /// Requests to targets that could not be opened.
    refused_unopened = "refused.target_not_opened";
    /// Changes refused because the disk was full.
    no_space = "error.no_space";
    /// Changes refused because the disk is read-only.
    read_only = "error.read_only";
    /// Disk failures, and changes refused since.
    io_errors = "error.io";
    /// Replies with other errors.
    errors = "error.other";
    /// Times that a target's queue was full.
    queue_full = "queue.full";
    /// Reads that waited for a buffer.
    buffer_waits = "buffer.waits";
    /// Bytes verified for administrators.
    scrubbed_bytes = "scrub.bytes";
    /// Damage found by that.
    scrub_findings = "scrub.findings";
    /// Objects removed on orders of the metadata server or of an administrator.
    objects_removed = "objects.removed";
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

impl Counters {
    /// Number of client requests.
    pub(crate) fn asked(&self) -> u64 {
        self.asked_begun.load(Relaxed)
    }

    /// Whether a client request is under way.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked_begun.load(Relaxed) > self.asked_ended.load(Relaxed)
    }

    pub(crate) fn count_op(&self, op: Op) {
        let counter = match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
            Op::Sync => &self.sync,
            Op::Truncate => &self.truncate,
            Op::StatObject => &self.stat_object,
            Op::ListObjects => &self.list_objects,
            Op::Scrub => &self.scrub,
            Op::RemoveObjects => &self.remove_objects,
            Op::ListLacking => &self.list_lacking,
            Op::AcceptLoss => &self.accept_loss,
            Op::ListAudit => &self.list_audit,
            Op::Punch => &self.punch,
            Op::Allocate => &self.allocate,
            Op::Seek => &self.seek,
            Op::Fence => &self.fence,
            Op::Copy => &self.copy,
            Op::Ping => &self.ping,
            Op::Load => &self.asks_load,
            Op::ListReaders => &self.list_readers,
            Op::Status => &self.status,
            _ => &self.other,
        };
        add(counter, 1);
    }

    pub(crate) fn count_refusal(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::NotSigned => &self.refused_signature,
            Refusal::OtherSession => &self.refused_session,
            Refusal::OtherFile => &self.refused_file,
            Refusal::NoRight => &self.refused_rights,
            Refusal::Expired => &self.refused_expired,
            Refusal::OldKey => &self.refused_old_key,
            Refusal::Revoked => &self.refused_revoked,
        };
        add(counter, 1);
    }

    /// Counts an error of the store.
    pub(crate) fn count_failure(&self, kind: ErrorKind) {
        let counter = match kind {
            ErrorKind::Stale => &self.refused_stale,
            ErrorKind::Unreachable => &self.refused_late,
            ErrorKind::ChecksumMismatch => &self.damaged_arrivals,
            ErrorKind::Corrupt => &self.corrupt_blocks,
            ErrorKind::NoSpace => &self.no_space,
            ErrorKind::ReadOnly => &self.read_only,
            ErrorKind::Io => &self.io_errors,
            _ => &self.errors,
        };
        add(counter, 1);
    }
}
