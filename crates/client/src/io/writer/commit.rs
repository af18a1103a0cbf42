//! Reporting writes to the metadata server.

use crate::state::{Call, Writer};
use std::sync::atomic::Ordering;
use weir_types::{ErrorKind, FileLayout, Result};
use weir_wire::meta::{CommitSizeRequest, SetTime};

/// A report that was answered.
pub(super) struct Told {
    /// Number of requests that it took.
    pub(super) requests: u64,
    /// The epoch of the session in which the last one was answered.
    pub(super) epoch: u64,
}

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
        let Some((unreported, generation)) =
            call.file.unreported(call.file.has_leases(&call.inner.config))
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
            durable: false,
        };
        match call.inner.commit_size(call, &request) {
            Ok(_) => {
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
        self.commit_as(call, false).map(drop)
    }

    /// Reports what the metadata server does not know, if there is anything. With `durable` the
    /// answer comes when that is durable, and everything before it.
    pub(super) fn commit_as(&mut self, call: Call<'_>, durable: bool) -> Result<Option<Told>> {
        if self.told != call.file.server_runs() {
            let runs = call.file.server_runs();
            look_for_cuts(call)?;
            self.written.tell_again();
            self.told = runs;
        }
        if call.file.uncommitted().is_none() && !self.has_news() {
            return Ok(None);
        }
        let first = |layout: FileLayout| layout.segments.first().map(|s| s.index);
        // As it was before the answer: another thread may learn of the change first.
        let (before, generation) = (first(call.file.layout()), call.file.generation());
        match self.commit_once(call, durable) {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                if call.file.is_fenced_off(&call.inner.config, generation) {
                    call.file.lose_leases();
                    // The program is told by its next call.
                    self.notice_loss(call);
                    return Ok(None);
                }
                if first(call.file.layout()) == before {
                    // Cut, but not emptied: what was written is still there, up to the cut.
                    look_for_cuts(call)?;
                    return self.commit_once(call, durable);
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

    fn commit_once(&mut self, call: Call<'_>, durable: bool) -> Result<Option<Told>> {
        let mut requests = 0;
        let runs = call.file.server_runs();
        let (mut size, mut mtime) = match call.file.uncommitted() {
            Some((size, mtime)) => (size, Some(SetTime::At(mtime))),
            // They were reported before all of it was sent.
            None => (0, None),
        };
        let leases = call.file.has_leases(&call.inner.config);
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
                durable,
            };
            let epoch = call.inner.commit_size(call, &request)?;
            requests += 1;
            let more = self.filled.reported(&request.ranges);
            if !self.written.reported(&request.written) && !more {
                call.file.committed(runs);
                return Ok(Some(Told { requests, epoch }));
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
                durable: true,
            };
            call.inner.commit_size(call, &request)?;
            told.store(generation.0, Ordering::Release);
            Ok(())
        };
        let before = call.file.generation();
        match tell() {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                if call.file.is_fenced_off(&call.inner.config, before) {
                    call.file.lose_leases();
                    return Err(ErrorKind::LeaseLost.into());
                }
                tell()
            }
            result => result,
        }
    }
}

/// Without leases somebody else may have cut off what was written: the size that is told must not
/// make the file longer than what is left.
fn look_for_cuts(call: Call<'_>) -> Result<()> {
    let file = call.file;
    if !file.has_leases(&call.inner.config) && file.uncommitted().is_some() {
        let generation = file.generation();
        file.reaches(file.reach(call)?, generation);
    }
    Ok(())
}
