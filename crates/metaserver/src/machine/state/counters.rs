//! Counters of the server.

use weir_wire::message::Op;

/// Counters since the start of the process.
#[derive(Debug)]
pub struct Counters {
    requests: Vec<u64>,
    errors: Vec<u64>,
    /// Requests for file data. The metadata server is not on the data path: it refuses them, and no
    /// client sends any.
    pub data_requests: u64,
    /// Mutations that were answered with an earlier result.
    pub replays: u64,
    /// Transactions that were repeated after a conflict.
    pub conflicts: u64,
    /// Sessions that expired.
    pub sessions_expired: u64,
    /// Objects that data servers reported as removed.
    pub objects_removed: u64,
    /// Number of times that a target went offline.
    pub targets_lost: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: vec![0; Op::ALL.len()],
            errors: vec![0; Op::ALL.len()],
            data_requests: 0,
            replays: 0,
            conflicts: 0,
            sessions_expired: 0,
            objects_removed: 0,
            targets_lost: 0,
        }
    }
}

/// Whether an operation belongs to data servers.
pub fn is_data(op: Op) -> bool {
    matches!(
        op,
        Op::Read
            | Op::Write
            | Op::Sync
            | Op::Truncate
            | Op::StatObject
            | Op::ListObjects
            | Op::Scrub
            | Op::RemoveObjects
            | Op::Punch
            | Op::Allocate
            | Op::Seek
            | Op::Fence
            | Op::Copy
    )
}

impl Counters {
    /// Counts an answered request.
    pub(in crate::machine) fn answered(&mut self, op: Op, failed: bool) {
        let at = op.index();
        self.requests[at] += 1;
        self.errors[at] += u64::from(failed);
        self.data_requests += u64::from(is_data(op));
    }

    /// Number of requests of one operation.
    pub fn requests(&self, op: Op) -> u64 {
        self.requests[op.index()]
    }

    /// Names and values, sorted by name. Operations without requests are left out, except those of
    /// data servers, whose zero is shown.
    pub fn list(&self) -> Vec<(String, u64)> {
        let mut list = vec![
            ("conflicts".into(), self.conflicts),
            ("data_requests".into(), self.data_requests),
            ("objects_removed".into(), self.objects_removed),
            ("replays".into(), self.replays),
            ("sessions_expired".into(), self.sessions_expired),
            ("targets_lost".into(), self.targets_lost),
        ];
        for (op, (&requests, &errors)) in Op::ALL.iter().zip(self.requests.iter().zip(&self.errors))
        {
            if requests > 0 || matches!(op, Op::Read | Op::Write) {
                list.push((format!("op.{}", op.label()), requests));
            }
            if errors > 0 {
                list.push((format!("op.{}.errors", op.label()), errors));
            }
        }
        list.sort();
        list
    }
}
