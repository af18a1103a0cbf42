//! Every metric that a daemon serves. `docs/metrics.md` lists the same metrics.

use crate::family::{Family, Kind};

macro_rules! families {
    ($($(#[$about:meta])* $list:ident {
        $($family:ident: $kind:ident $name:literal [$($label:literal)*] = $help:literal;)*
    })*) => {$(
        $(
            #[doc = $help]
            pub static $family: Family = Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        $(#[$about])*
        pub static $list: &[&Family] = &[$(&$family),*];
    )*};
}

families! {
    /// Metrics of every daemon.
    PROCESS {
        BUILD_INFO: Gauge "weir_build_info" ["daemon" "version" "wire"] =
            "1; the labels say which daemon it is (meta, data, mount), its version, and that of the wire";
        UPTIME: Gauge "weir_uptime_seconds" [] = "Time since the daemon began";
        CPU: Counter "process_cpu_seconds_total" [] = "Time of processors, in user and system mode";
        RESIDENT: Gauge "process_resident_memory_bytes" [] = "Memory that is in use";
        OPEN_FDS: Gauge "process_open_fds" [] = "Descriptors that are open";
        MAX_FDS: Gauge "process_max_fds" [] = "Descriptors that may be open";
        LOG_LINES_LOST: Counter "weir_log_lines_lost_total" [] =
            "Lines of its log that were dropped: they could not be written, or came too fast";
    }
    /// Metrics of the network connections of data servers and metadata servers.
    NETWORK {
        CONNECTIONS: Gauge "weir_connections" ["state"] =
            "Connections that are open: authenticated, or not yet (unauthenticated)";
        PROTECTED: Gauge "weir_connections_protected" ["level"] =
            "Connections that are open and authenticated, by level of protection: args, data, private";
        ACCEPTED: Counter "weir_connections_accepted_total" [] = "Connections that were accepted";
        AUTHENTICATED: Counter "weir_connections_authenticated_total" [] =
            "Handshakes that succeeded";
        REFUSED: Counter "weir_connections_refused_total" ["reason"] =
            "Connections that were refused: too_many, handshake (wrong key, bad ticket), version";
        CLOSED: Counter "weir_connections_closed_total" ["reason"] =
            "Connections that the server closed: malformed, not_authentic (changed, repeated or out of order), unprotected (less than required meanwhile), stalled";
        FRAMES: Counter "weir_frames_total" ["direction"] =
            "Frames that were received and sent (direction)";
        BUFFER_WAITS: Counter "weir_connection_buffer_waits_total" [] =
            "Times that a connection waited for a buffer";
    }
    /// Metrics of data servers.
    DATA {
        DATA_REQUESTS: Counter "weir_data_requests_total" ["op"] = "Requests, by operation";
        DATA_REQUEST_TIME: Histogram "weir_data_request_duration_seconds" ["op"] =
            "Time from a request's arrival to its answer: read, write, sync, and all others with a target (other)";
        DATA_IN_PROGRESS: Gauge "weir_data_requests_in_progress" [] =
            "Requests of clients that are not answered yet";
        DATA_BYTES: Counter "weir_data_bytes_total" ["kind"] =
            "Bytes: read and written for clients, staged (left for a write to come), copied, pulled (of those, from other servers), resynced (brought to copies that lacked them), verified (by scrubs)";
        DATA_READS: Counter "weir_data_reads_total" ["kind"] =
            "Reads: from the page cache (page_cache), by a disk thread (disk_thread), of processes of jobs (of_jobs), asked for again after a mismatch (locked)";
        DATA_REFUSED: Counter "weir_data_refused_total" ["reason"] =
            "Requests that were refused, by reason";
        DATA_ERRORS: Counter "weir_data_errors_total" ["kind"] =
            "Operations that failed: no_space, read_only, io, other";
        DATA_CHECKSUMS: Counter "weir_data_checksum_failures_total" ["where"] =
            "Checksums that did not fit: of payloads on arrival, of blocks on disk";
        DATA_ROT: Counter "weir_data_rot_blocks_total" ["outcome"] =
            "Blocks of copies that had rotted: found; repaired, or unrepairable";
        DATA_SCRUB_FINDINGS: Counter "weir_data_scrub_findings_total" [] =
            "What scrubs have found to be wrong";
        DATA_OBJECTS_REMOVED: Counter "weir_data_objects_removed_total" [] =
            "Objects that were removed";
        DATA_STALLS: Counter "weir_data_stalls_total" ["reason"] =
            "Times that a connection was paused: queue_full, buffer";
        DATA_STAGED: Counter "weir_data_staged_writes_total" ["outcome"] =
            "Payloads left for a write to come that were refused for want of room, or were not there (in_vain)";
        DATA_FORWARDED: Counter "weir_data_connections_forwarded_total" [] =
            "Connections of clients that were passed on to another server";
        DATA_RESYNC_PAUSED: Counter "weir_data_resync_paused_seconds_total" [] =
            "Time for which copies were not brought up to date, for clients or for a rate that is set";
        DATA_GAPS: Gauge "weir_data_gaps" ["of"] =
            "Parts of objects that copies lack: others, as noted here; own, those here";
        DATA_RECOVERED: Gauge "weir_data_recovered" ["what"] =
            "What the start found to be recovered after an unclean stop";
        TARGET_READ: Counter "weir_target_read_bytes_total" ["target"] =
            "Bytes read for clients from a target";
        TARGET_WRITTEN: Counter "weir_target_written_bytes_total" ["target"] =
            "Bytes written for clients to a target";
        TARGET_QUEUED: Gauge "weir_target_queued" ["target"] =
            "Requests that wait for a target's disk";
        TARGET_IN_FLIGHT: Gauge "weir_target_in_flight" ["target"] =
            "Requests of a target that are not answered yet";
        TARGET_DISK_TIME: Histogram "weir_target_disk_duration_seconds" ["target" "op"] =
            "Time of operations on a target's disk, without waiting in the queue: read, change";
        TARGET_PACE: Gauge "weir_target_seconds_per_mebibyte" ["target"] =
            "Time that a MiB takes to be read from a target's disk, of late; 0: not known";
        TARGET_SIZE: Gauge "weir_target_size_bytes" ["target"] = "Space of the disk that a target is on, which others may be on too";
        TARGET_FREE: Gauge "weir_target_free_bytes" ["target"] = "Free space of the disk that a target is on";
        TARGET_IN_SERVICE: Gauge "weir_target_in_service" ["target"] =
            "1; 0 if a target's disk has failed, is read-only or missing";
        TARGET_HANGS: Gauge "weir_target_disk_hangs_seconds" ["target"] =
            "For how long a target's disk has neither answered nor failed; 0: it answers";
    }
    /// Metrics of metadata servers.
    META {
        META_REQUESTS: Counter "weir_meta_requests_total" ["op"] =
            "Requests, by operation, of those that were asked for";
        META_ERRORS: Counter "weir_meta_request_errors_total" ["op"] =
            "Requests that were answered with an error, by operation; many are no trouble (a name that does not exist)";
        META_REQUEST_TIME: Histogram "weir_meta_request_duration_seconds" ["answer"] =
            "Time from a request's arrival to its answer: at once (now), after a sync (synced), after other clients gave up what they kept (parked)";
        META_DATA_REQUESTS: Counter "weir_meta_data_requests_total" [] =
            "Requests for the data of files, which belong to data servers";
        META_REPLAYS: Counter "weir_meta_replays_total" [] =
            "Changes that were answered with the result of an earlier time";
        META_CONFLICTS: Counter "weir_meta_conflicts_total" [] =
            "Transactions that were run again";
        META_SESSIONS: Gauge "weir_meta_sessions" [] = "Sessions of clients";
        META_EXPIRED: Counter "weir_meta_sessions_expired_total" [] = "Sessions that expired";
        META_LEASES: Counter "weir_meta_leases_total" ["event"] =
            "Leases that were granted, recalled, lapsed";
        META_EVENTS: Counter "weir_meta_events_total" ["event"] =
            "Events for clients that were sent and acknowledged";
        META_BELIEFS: Gauge "weir_meta_beliefs" [] =
            "Names and attributes that clients may keep, and that are to be recalled before a change";
        META_PARKED: Counter "weir_meta_parked_total" [] =
            "Requests that had to wait for other clients";
        META_PARKED_NOW: Gauge "weir_meta_parked_requests" [] =
            "Requests that wait for other clients now";
        META_PARKED_LONGEST: Gauge "weir_meta_parked_longest_seconds" [] =
            "The longest that a request has waited for other clients";
        META_LOCKS: Gauge "weir_meta_locks" ["state"] = "Locks on files that are held and waiting";
        META_ORPHANS: Gauge "weir_meta_orphans" [] =
            "Files without a name that are open or not removed yet";
        META_OBJECTS_REMOVED: Counter "weir_meta_objects_removed_total" [] =
            "Objects that data servers have removed";
        META_TARGETS_LOST: Counter "weir_meta_targets_lost_total" [] =
            "Times that a target went offline";
        META_EPOCH: Gauge "weir_meta_map_epoch" [] = "Epoch of the cluster map";
        META_KEY_GENERATION: Gauge "weir_meta_key_generation" [] =
            "Generation of the working keys that sign capabilities";
        META_REVOCATIONS_LACKING: Gauge "weir_meta_revocations_lacking" [] =
            "Data servers that have not heard yet of a client whose key was revoked or changed";
        META_LEADS: Gauge "weir_meta_leads" [] =
            "1: this metadata server leads, or is the only one; 0: it stands by";
        META_TERM: Gauge "weir_meta_term" [] = "Number of the lead; 0: there is one metadata server";
        META_BEHIND: Gauge "weir_meta_behind_operations" [] =
            "Operations of the journal that this metadata server does not have yet";
        META_MEMBER_BEHIND: Gauge "weir_meta_member_behind_operations" ["member"] =
            "Operations that another metadata server did not have on its disk when it reported last; told by the one that leads";
        META_MEMBER_SILENT: Gauge "weir_meta_member_silent_seconds" ["member"] =
            "Time since another metadata server has reported; told by the one that leads";
        META_APPEND_TIME: Histogram "weir_meta_append_duration_seconds" [] =
            "Time of appends to the journal of several metadata servers";
        META_DISK_SIZE: Gauge "weir_meta_disk_size_bytes" [] =
            "Space of the disk that the metadata is on; 0: not known";
        META_DISK_FREE: Gauge "weir_meta_disk_free_bytes" [] =
            "Free space of the disk that the metadata is on";
        COPIES_TO_DO: Gauge "weir_copies_missing" [] =
            "Copies that are to be made or moved, as far as was looked";
        COPIES_BYTES_TO_DO: Gauge "weir_copies_missing_bytes" [] = "Bytes of those";
        COPIES_DONE: Counter "weir_copies_made_total" [] = "Copies that were made or moved";
        COPIES_BYTES_DONE: Counter "weir_copies_made_bytes_total" [] = "Bytes of those";
        COPIES_EXPECTED: Gauge "weir_copies_expected_seconds" [] =
            "How long the rest will take; 0: not known";
        COPIES_FILLING: Gauge "weir_copies_being_made" [] = "Copies that are being made";
        COPIES_SOURCELESS: Gauge "weir_copies_without_source" [] =
            "Copies that are being made and for which no copy is online";
        COPIES_STUCK: Gauge "weir_copies_stuck_segments" [] =
            "Segments for which there is no target, or no copy online";
        COPIES_LOOKING: Gauge "weir_copies_looking" [] =
            "1 while all files are looked at for what is missing";
        COPIES_LOOKED_AT: Gauge "weir_copies_files_looked_at" [] = "Files that were looked at";
        ENCODING_SEGMENTS: Gauge "weir_encoding_segments" ["state"] =
            "Segments of files that get parities: waiting, sealed (parities are being made), coded";
        ENCODING_BYTES: Gauge "weir_encoding_bytes" ["kind"] =
            "Bytes of those: logical (of files), stored (on targets), reclaimable (by parities)";
        REBALANCING: Gauge "weir_rebalancing" [] = "1 while targets are evened out";
        UNEVEN: Gauge "weir_uneven_ratio" [] =
            "How far the furthest target was from the mean, of its space, when it was looked last";
        RELIEVED: Gauge "weir_rebalancing_copies" [] = "Copies on their way to even targets out";
        TARGET_STATE: Gauge "weir_target_state" ["target" "server" "state"] =
            "1 for the state that a target is in, 0 for the others: online, suspect, syncing, offline, out_of_service";
        TARGET_SLOW: Gauge "weir_target_slow" ["target" "server"] =
            "1 while a target's disk is much slower than the others";
        TARGET_DRAINING: Gauge "weir_target_draining" ["target" "server"] =
            "1 while a target is drained";
        TARGET_GIVEN_UP: Gauge "weir_target_given_up" ["target" "server"] =
            "1 while a target is done without because its disk hangs";
        TARGET_BEHIND: Gauge "weir_target_behind_parts" ["target" "server"] =
            "Parts of objects, of 1 MiB at the most, that a target lacks";
        TARGET_BEHIND_EXPECTED: Gauge "weir_target_behind_expected_seconds" ["target" "server"] =
            "How long a target that is syncing will take to get them; 0: not known";
        TARGET_SILENT: Gauge "weir_target_silent_seconds" ["target" "server"] =
            "When a target's server was heard of last, ago";
    }
    /// Metrics of mounts.
    MOUNT {
        MOUNT_TIME: Histogram "weir_mount_operation_duration_seconds" ["op"] =
            "Time that operations of programs took in the mount, by kind";
        MOUNT_FAILURES: Counter "weir_mount_operation_failures_total" ["op"] =
            "Operations that failed with EIO, ETIMEDOUT, ENOSPC or ESTALE";
        MOUNT_IN_PROGRESS: Gauge "weir_mount_operations_in_progress" [] =
            "Operations that are being served";
        MOUNT_GROUP_READS: Counter "weir_mount_group_reads_total" [] =
            "Times that the groups of a caller were read from /proc, for a message that may depend on them";
        CLIENT_BYTES: Counter "weir_client_bytes_total" ["kind"] =
            "Bytes: read and written by programs past the kernel's cache, read_wire and write_wire (payloads), read_near (of those, from this machine), copied by servers, copied_by_hand";
        CLIENT_REQUESTS: Counter "weir_client_requests_total" ["server"] =
            "Requests sent to servers: data, meta";
        CLIENT_REPLIES: Counter "weir_client_replies_total" ["server"] = "Replies of servers";
        CLIENT_RETRIES: Counter "weir_client_retries_total" ["server"] =
            "Requests that were sent again";
        CLIENT_CONNECTIONS: Counter "weir_client_connections_total" ["server"] =
            "Connections made to servers";
        CLIENT_DETOURS: Counter "weir_client_detours_total" [] =
            "Requests that the server of another copy has passed on";
        CLIENT_QUESTIONS: Counter "weir_client_load_questions_total" [] =
            "Questions to data servers how busy a target is";
        CLIENT_COPIES: Counter "weir_client_copies_total" ["event"] =
            "Reads of other copies than the first (read), parts of calls that went to another copy because one had failed (failed), copies found damaged (damaged), columns of encoded files computed because their disks were slow (computed)";
        CLIENT_MISMATCHES: Counter "weir_client_checksum_mismatches_total" [] =
            "Blocks that did not match their checksum on arrival";
        CLIENT_AHEAD: Counter "weir_client_read_ahead_total" ["event"] =
            "Ranges that were fetched ahead, and used of those";
        CLIENT_LEASES: Counter "weir_client_leases_total" ["event"] =
            "Leases: acquires, waits for one, recalls (given up for others), lost (silent for too long)";
        CLIENT_EVENTS: Counter "weir_client_events_total" ["event"] =
            "Polls for events that were answered, and events that were obeyed";
        CLIENT_KEPT: Counter "weir_client_kept_total" ["outcome"] =
            "Names and attributes that were answered from what is kept (hit), or asked for (miss)";
        CLIENT_AWAY: Gauge "weir_client_servers_away" [] =
            "Servers that do not answer";
    }
}

/// All metric families.
pub fn all() -> impl Iterator<Item = &'static Family> {
    [PROCESS, NETWORK, DATA, META, MOUNT].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let names: BTreeSet<_> = all().map(|family| family.name).collect();
        assert_eq!(names.len(), all().count());
        for Family { name, kind, labels, help } in all() {
            assert!(name.starts_with("weir_") || name.starts_with("process_"), "{name}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!help.contains(['\n', '\\', '|']) && !labels.contains(&"le"), "{name}");
        }
    }

    #[test]
    fn the_documentation_has_the_same_metrics() {
        let documented: BTreeSet<String> = include_str!("../../../docs/metrics.md")
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(str::to_owned)
            .collect();
        let row = |family: &Family| {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let Family { name, kind, help, .. } = family;
            format!("| `{name}` | {} | {} | {help} |", kind.name(), labels.join(", "))
        };
        let served: BTreeSet<String> = all().map(row).collect();
        let missing: Vec<_> = served.difference(&documented).collect();
        let extra: Vec<_> = documented.difference(&served).collect();
        assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
    }
}
