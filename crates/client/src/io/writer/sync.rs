//! Making what was written durable: data and metadata at once, in one round trip.

use super::patient;
use crate::core::copies::copies_of;
use crate::core::durable::{Unsynced, require_kept};
use crate::core::plan::{Place, columns};
use crate::io::control::{Control, run_control, run_control_beside};
use crate::state::{Call, Writer};
use std::collections::BTreeSet;
use weir_types::{Error, ObjectId, Result, Segment};

/// Results of what a sync has told the metadata server.
struct Metadata {
    /// Of the report of size and time.
    committed: Result<()>,
    /// Whether everything is durable there.
    synced: Result<()>,
}

impl Writer {
    /// Makes everything durable. The metadata server is told the size while the data servers sync:
    /// they have the data already.
    pub(crate) fn sync(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.between_calls();
        writer.notice_loss(call);
        writer.send_gathered(call);
        writer.finish_all(call);
        let mut unsynced = std::mem::take(&mut writer.unsynced);
        let whole = !writer.complete;
        if whole {
            // Whoever wrote it, and whenever: fsync makes the whole file durable.
            all_with_data(call).for_each(|place| unsynced.sent(place));
        }
        let reported = call.file.reported_then();
        let mut metadata = Metadata { committed: Ok(()), synced: Ok(()) };
        let losses = writer.losses;
        let places = || unsynced.all().map(|changed| changed.place);
        let synced = run_control_beside(call, syncs(call, places()), &mut || {
            metadata = writer.sync_metadata(call);
        });
        let synced = synced.and_then(|synced| {
            // What others had added before is known with the answer of the metadata server.
            let known: BTreeSet<ObjectId> = places().map(|place| place.column()).collect();
            let more =
                all_with_data(call).filter(|place| whole && !known.contains(&place.column()));
            run_control(call, syncs(call, more)).map(|_| synced)
        });
        let synced = match synced {
            Ok(synced) => {
                // Leases that were lost meanwhile make it doubtful again.
                writer.complete |= writer.losses == losses;
                Ok(synced.into_iter().map(|taken| taken.and_then(|taken| taken.by)).collect())
            }
            Err(error) => {
                // They are still to be synced, should the program try again.
                writer.unsynced.put_back(std::mem::take(&mut unsynced));
                Err(error)
            }
        };
        // What was lost meanwhile was not there to be committed.
        writer.notice_loss(call);
        writer.note_clean(call);
        let failed = writer.failures.tell_all();
        drop(writer);
        let kept = synced.and_then(|synced_by: Vec<Option<u64>>| {
            if let Err(error) = newest_map(call, &unsynced, &synced_by) {
                // Whether they were kept is still to be found out.
                call.file.writer().unsynced.put_back(std::mem::take(&mut unsynced));
                return Err(error);
            }
            check_kept(call, &unsynced, &synced_by)
        });
        if metadata.committed.is_ok() && metadata.synced.is_ok() {
            call.file.is_durable(reported);
        }
        [failed, metadata.committed, kept, metadata.synced].into_iter().fold(Ok(()), both)
    }

    /// Reports size and time, and makes all metadata durable: with one message.
    fn sync_metadata(&mut self, call: Call<'_>) -> Metadata {
        // It was written, closed and opened again just now. (Who may not write it cannot tell of it.)
        if call.file.is_writable() {
            self.written.take_over(&call.inner.take_left_columns(call.file.id));
        }
        let session = &call.inner.session;
        let changes = session.changes();
        let told = match self.commit_as(call, true) {
            Ok(told) => told,
            Err(error) => return Metadata { committed: Err(error), synced: Ok(()) },
        };
        let synced = told.and_then(|told| session.synced_with(changes + told.requests, told.epoch));
        Metadata { committed: Ok(()), synced: synced.unwrap_or_else(|| session.sync(call.ctx)) }
    }
}

/// The columns that have data, as far as this client knows.
fn all_with_data(call: Call<'_>) -> impl Iterator<Item = Place> {
    let all = columns(call.file.id, &call.file.layout(), call.file.size());
    all.into_iter().filter(|(_, len)| *len > 0).map(|(place, _)| place)
}

/// Requests to sync these columns.
fn syncs(call: Call<'_>, places: impl Iterator<Item = Place>) -> Vec<(Place, Control)> {
    // A column may have moved since the first of its changes, and not since the last.
    let now = |place: Place| {
        let of = |segment: &Segment| Place::of(call.file.id, segment, place.object.column);
        call.file.with_segment(place.object, of).flatten().unwrap_or(place)
    };
    places.map(|place| (now(place), Control::Sync)).collect()
}

/// The first error, with the text of the second one, which may be told only once.
fn both(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (Err(first), Err(second)) => {
            Err(Error { message: format!("{}; and: {}", first.message, second.message), ..first })
        }
        (first, second) => first.and(second),
    }
}

/// Sees to it that the map is one from after the answers, if anything is to be judged by
/// it: see `core::durable`.
fn newest_map(call: Call<'_>, unsynced: &Unsynced, synced_by: &[Option<u64>]) -> Result<()> {
    if unsynced.in_doubt(synced_by).next().is_none() {
        return Ok(());
    }
    let time_ms = call.inner.config.request_timeout_ms;
    call.inner.servers.refresh_map(&call.inner.session, true, time_ms)
}

/// Reports, once, changes that were confirmed by machines which have restarted since, because they
/// may be lost.
fn check_kept(call: Call<'_>, unsynced: &Unsynced, synced_by: &[Option<u64>]) -> Result<()> {
    let servers = &call.inner.servers;
    for (place, taken) in unsynced.in_doubt(synced_by) {
        let object = place.object;
        let targets = |segment: &Segment| -> Vec<_> {
            copies_of(segment, object.column).map(|(_, target)| target).collect()
        };
        let now = call.file.with_segment(object, targets).unwrap_or_default();
        let (online, anew) = (|target| servers.online(target), |target| servers.anew(target));
        require_kept((place, taken), &now, online, anew)?;
    }
    Ok(())
}
