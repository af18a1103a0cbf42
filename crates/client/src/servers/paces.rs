//! Which copy is read, by what is known of how fast targets are: the shell of
//! [`crate::core::pace`].

use super::{DataConn, Servers};
use crate::core::copies::copies_of;
use crate::core::pace::{Candidate, ColumnKey, Paces, Report, Wanted};
use crate::file::OpenState;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_policy::Micros;
use weir_types::{CopyIndex, JobId, ObjectId, Rank, Segment, TargetId};
use weir_wire::Header;

/// A read that a target has not answered: it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Asking {
    paces: Arc<Mutex<Paces>>,
    target: TargetId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.paces.lock().ended(self.target);
    }
}

impl DataConn {
    /// The reply to a read is waited for.
    pub(crate) fn is_waited_for(&self) {
        if let Some(Asking { paces, target }) = &self.asking {
            paces.lock().waits(*target, now());
        }
    }

    /// What the server says of its target in the reply to a read.
    pub(crate) fn heard_of_pace(&self, reply: &Header, (job, rank): (JobId, Rank)) {
        // Before it has read anything a server says nothing.
        if let Some(Asking { paces, target }) = &self.asking
            && (reply.progress > 0 || reply.work > 0)
        {
            let behind = (reply.work > 0).then_some((job, rank, reply.work));
            let (us_per_mib, in_flight) = (reply.progress, reply.in_flight);
            let report = Report { us_per_mib, in_flight, behind };
            paces.lock().heard(*target, report, now());
        }
    }
}

impl Servers {
    /// The copy of a column that is read, where any will do, and when it is expected to answer;
    /// `None` if none is ready.
    pub(crate) fn copy_to_read(
        &self,
        file: &OpenState,
        segment: &Segment,
        wanted: Wanted,
    ) -> Option<((CopyIndex, TargetId), f64)> {
        let (_, column) = wanted.column;
        let all: Vec<_> = copies_of(segment, column).collect();
        let candidates: Vec<Candidate> = {
            let known = self.known.read();
            let is_usable = |copy, target| {
                let is_ready = known.of(target).is_some_and(|k| k.state.is_online() && !k.doubtful);
                is_ready && !segment.is_filling(column, copy)
            };
            let candidate =
                |&(copy, target)| Candidate { target, is_usable: is_usable(copy, target) };
            all.iter().map(candidate).collect()
        };
        self.chooses.store(true, Relaxed);
        let (policy, mut paces) = (self.config.read_policy, self.paces.lock());
        let chosen = file.choices.lock().choose(policy, wanted, &candidates, &mut paces, now());
        chosen.map(|chosen| (all[chosen.at], chosen.answer_us))
    }

    /// A read of any copy of a column is about to be sent on a connection.
    pub(crate) fn asks_for_pace(&self, conn: &mut DataConn, target: TargetId) {
        self.paces.lock().sent(target);
        conn.asking = Some(Asking { paces: self.paces.clone(), target });
    }

    /// A copy did not give what was to be read.
    pub(crate) fn copy_failed(&self, file: &OpenState, segment: &Segment, object: ObjectId) {
        let column: ColumnKey = (segment.index, object.column);
        let at = copies_of(segment, object.column).position(|(copy, _)| copy == object.copy);
        if let Some(at) = at {
            file.choices.lock().refused(column, at, now());
        }
    }
}

fn now() -> Micros {
    clock::uptime().as_micros() as Micros
}
