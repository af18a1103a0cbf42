//! Reporting writes to the metadata server, and making them durable.

use super::failures::Failures;
use super::{Writer, patient};
use crate::control::{Control, run_control};
use crate::core::copies::copies_of;
use crate::core::durable::{Unsynced, require_kept};
use crate::core::plan::{Place, columns};
use crate::drive::Call;
use std::sync::atomic::Ordering;
use weir_types::{ErrorKind, FileLayout, Result, Segment};
use weir_wire::meta::{CommitSizeRequest, SetTime};

impl Writer {
    /// Prepares the end of a lease: the servers get all data, and the metadata server knows size
    /// and time. Failed writes are reported to the program.
    ///
    /// # Errors
    /// The metadata server could not be told.
    pub(crate) fn give_up(call: Call<'_>) -> Result<()> {
        let mut writer = call.file.writer();
        writer.between_calls();
        writer.notice_loss(call);
        writer.send_gathered(call);
        writer.finish_all(call);
        let committed = match writer.commit(call) {
            Err(error) if error.kind == ErrorKind::Stale => {
                writer.failures.note(error);
                Ok(())
            }
            // The last name went, and the file with it: nobody will ask.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            result => result,
        };
        writer.note_clean(call);
        committed
    }

    /// Reports size and time of writes to the metadata server, whether they were sent or not. It
    /// waits neither for data servers, nor for threads that do, nor for reports of other clients,
    /// because all of these may be waiting for this report.
    pub(crate) fn report(call: Call<'_>) -> Result<()> {
        let _reporting = call.file.reporting.lock();
        let runs = call.file.server_runs();
        let Some((unreported, generation)) = call.file.unreported(call.file.has_leases(call.inner))
        else {
            return Ok(());
        };
        // What the metadata server is told of a write that has not returned it may have forgotten
        // in a power cut by the time it does: then the write is to be told of again.
        let have_returned = call.file.writer.try_lock().is_some();
        let request = CommitSizeRequest {
            file: call.file.id,
            size: unreported.0,
            generation,
            mtime: Some(SetTime::At(unreported.1)),
            written: Vec::new(),
            ranges: Vec::new(),
            sparse: false,
        };
        match call.inner.commit_size(call, &request) {
            Ok(attr) => {
                call.file.saw_attr(&attr);
                if have_returned {
                    call.file.committed_if(unreported, runs);
                }
                Ok(())
            }
            // The file was cut, or we were cut off, after these writes. The writer learns
            // which by its own commit, or there is nobody.
            Err(error) if matches!(error.kind, ErrorKind::Stale | ErrorKind::NotFound) => Ok(()),
            // Told by whoever gave up the lease or closed the file meanwhile.
            Err(_) if call.file.uncommitted().is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn commit(&mut self, call: Call<'_>) -> Result<()> {
        if self.told != call.file.server_runs() {
            let runs = call.file.server_runs();
            look_for_cuts(call)?;
            self.written.tell_again();
            self.told = runs;
        }
        if call.file.uncommitted().is_none() && !self.has_news() {
            return Ok(());
        }
        let first = |layout: FileLayout| layout.segments.first().map(|s| s.index);
        match self.commit_once(call) {
            Err(error) if error.kind == ErrorKind::Stale => {
                let (before, generation) = (first(call.file.layout()), call.file.generation());
                call.file.refresh(call.inner, call.ctx)?;
                if call.file.is_fenced_off(call.inner, generation) {
                    call.file.lose_leases();
                    // The program is told by its next call.
                    self.notice_loss(call);
                    return Ok(());
                }
                if first(call.file.layout()) == before {
                    // Cut, but not emptied: what was written is still there, up to the cut.
                    look_for_cuts(call)?;
                    return self.commit_once(call);
                }
                // What was written is gone with what it was written over. The
                // program is told once, and may go on anew.
                call.file.forget_uncommitted();
                self.written.forget();
                self.filled.forget();
                Err(error.context("the file was emptied meanwhile"))
            }
            result => result,
        }
    }

    fn commit_once(&mut self, call: Call<'_>) -> Result<()> {
        let runs = call.file.server_runs();
        let (mut size, mut mtime) = match call.file.uncommitted() {
            Some((size, mtime)) => (size, Some(SetTime::At(mtime))),
            // They were reported before all of it was sent.
            None => (0, None),
        };
        let leases = call.file.has_leases(call.inner);
        // Once, but for a file of very many segments, or one that is written in very many places.
        loop {
            let Some(generation) = call.file.reported_under(leases) else {
                return Err(ErrorKind::Stale.into());
            };
            self.filled.is_full(call.file.full());
            let request = CommitSizeRequest {
                file: call.file.id,
                size,
                generation,
                mtime,
                written: self.written.report(),
                ranges: self.filled.report(generation),
                sparse: false,
            };
            let attr = call.inner.commit_size(call, &request)?;
            call.file.saw_attr(&attr);
            let more = self.filled.reported(&request.ranges);
            if !self.written.reported(&request.written) && !more {
                call.file.committed(runs);
                return Ok(());
            }
            (size, mtime) = (0, None);
        }
    }

    /// Announces holes, and preallocated space beyond the end, before they are made: the metadata
    /// server is told that they may be anywhere, and replies when that is durable. Done once, until
    /// the file is emptied or truncated.
    pub(super) fn note_sparse(&mut self, call: Call<'_>) -> Result<()> {
        let told = &call.file.sparse;
        let tell = || -> Result<()> {
            let generation = call.file.generation();
            if told.load(Ordering::Acquire) == generation.0 {
                return Ok(());
            }
            let request = CommitSizeRequest {
                file: call.file.id,
                size: 0,
                generation,
                mtime: None,
                written: Vec::new(),
                ranges: Vec::new(),
                sparse: true,
            };
            let attr = call.inner.commit_size(call, &request)?;
            call.file.saw_attr(&attr);
            told.store(generation.0, Ordering::Release);
            Ok(())
        };
        let before = call.file.generation();
        match tell() {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                if call.file.is_fenced_off(call.inner, before) {
                    call.file.lose_leases();
                    return Err(ErrorKind::LeaseLost.into());
                }
                tell()
            }
            result => result,
        }
    }

    /// Makes everything durable.
    pub(crate) fn sync(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.flush_locked(call, Failures::tell_all)?;
        let mut unsynced = std::mem::take(&mut writer.unsynced);
        if !writer.complete {
            // Whoever wrote it, and whenever: fsync makes the whole file durable.
            let all = columns(call.file.id, &call.file.layout(), call.file.size());
            let with_data = all.into_iter().filter(|(_, len)| *len > 0);
            with_data.for_each(|(place, _)| unsynced.sent(place));
        }
        // A column may have moved since the first of its changes, and not since the last.
        let now = |place: Place| {
            let of = |segment: &Segment| Place::of(call.file.id, segment, place.object.column);
            call.file.with_segment(place.object, of).flatten().unwrap_or(place)
        };
        let list = unsynced.all().map(|changed| (now(changed.place), Control::Sync)).collect();
        let synced = match run_control(call, list) {
            Ok(synced) => synced,
            Err(error) => {
                // They are still to be synced, should the program try again.
                writer.unsynced.put_back(unsynced);
                return Err(error);
            }
        };
        writer.complete = true;
        drop(writer);
        let synced_by: Vec<Option<u64>> =
            synced.into_iter().map(|taken| taken.and_then(|taken| taken.by)).collect();
        if let Err(error) = newest_map(call, &unsynced, &synced_by) {
            // Whether they were kept is still to be found out.
            call.file.writer().unsynced.put_back(unsynced);
            return Err(error);
        }
        check_kept(call, &unsynced, &synced_by)?;
        let reported = call.file.reported();
        call.inner.session.sync(call.ctx)?;
        call.file.is_durable(reported);
        Ok(())
    }
}

/// Without leases somebody else may have cut off what was written: the size that is told must not
/// make the file longer than what is left.
fn look_for_cuts(call: Call<'_>) -> Result<()> {
    let file = call.file;
    if !file.has_leases(call.inner) && file.uncommitted().is_some() {
        let generation = file.generation();
        file.reaches(file.reach(call)?, generation);
    }
    Ok(())
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
