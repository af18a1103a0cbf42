//! Calls under leases: entering a lease, acquiring a missing one, and giving up a recalled one.

use crate::client::Inner;
use crate::config::Consistency;
use crate::context::Context;
use crate::core::lease::{CallKind, Enter, FileLease, blocks};
use crate::core::news::{Found, Numbered};
use crate::counters::add;
use crate::drive::Call;
use crate::file::OpenState;
use crate::writer::Writer;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::plant::{Bug, planted};
use weir_host::sync::MutexGuard;
use weir_net::Wait;
use weir_types::{ErrorKind, FileId, Result, Retry};
use weir_wire::lease::{
    AcquireRequest, LEASE_READ, LEASE_WRITE, LeaseMode, LeaseRange, TO_THE_END,
};
use weir_wire::meta::PendingTruncate;

/// The most ranges of one call that are leased separately. Beyond it one lease covers all from the
/// first to the last.
const MAX_RANGES: usize = 64;
/// Longest wait between two looks at the caller's deadline.
const SLICE: Duration = Duration::from_millis(50);
/// A longer wait is logged.
const LONG: Duration = Duration::from_secs(5);

/// The cache of the layer above, which has to drop data when another client changes it.
pub trait UpperCache: Send + Sync {
    /// Drops cached pages with these bytes of the file. Returns when they are gone. Called without
    /// locks of the client.
    fn drop_pages(&self, file: FileId, start: u64, end: u64);
    /// Called when this client's own write has made a lease to read one to write: as
    /// [`UpperCache::drop_pages`], but nobody wants the lease back.
    fn drop_before_own_write(&self, file: FileId, start: u64, end: u64) {
        self.drop_pages(file, start, end);
    }
    /// Drops all pages of all files, because leases were lost.
    fn drop_everything(&self);
    /// Called when another client changes attributes of a file, possibly its access control list.
    /// Returns when the layer above uses none of them any more. Must wait for processors alone.
    fn forget_attributes(&self, _file: FileId) {}
    /// Called when attributes of a file or directory have changed, possibly because of a name in it
    /// or by this client. Otherwise as [`UpperCache::forget_attributes`].
    fn attributes_change(&self, _file: FileId) {}
    /// Called when the metadata server does not know any more what this client caches. Otherwise as
    /// [`UpperCache::forget_attributes`], for all files.
    fn forget_all_attributes(&self) {}
    /// Whether the layer knows a file, and so may hold it ([`UpperCache::holds`]). Must not block.
    fn knows(&self, _file: FileId) -> bool {
        false
    }
    /// Called when another client removes a name of a file, possibly the last one. Returns `true`
    /// if the file is in use here and has to stay until [`crate::Client::let_go`]. Must not block.
    fn holds(&self, _file: FileId) -> bool {
        false
    }
}

/// A call under a lease. It ends when this is dropped.
pub(crate) struct Entered<'a> {
    file: &'a OpenState,
    id: Option<u64>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && self.file.lease().leave(id)
        {
            self.file.lease_changed.notify_all();
        }
    }
}

/// Begins a call on some bytes: waits until this client holds a lease for it. `entered` is called
/// at that moment, with the lock of the file's leases held: a recall then finds the call under way,
/// and the layer above knows of it.
///
/// # Errors
/// `TimedOut` if other clients do not give up conflicting leases in time, `Interrupted`.
pub(crate) fn enter<'a>(
    call: Call<'a>,
    consistency: Consistency,
    bytes: &[Range<u64>],
    kind: CallKind,
    entered: &dyn Fn(),
) -> Result<Entered<'a>> {
    let ranges = merged(bytes);
    if consistency != Consistency::Strict || ranges.is_empty() {
        entered();
        return Ok(Entered { file: call.file, id: None });
    }
    let mut waits = Waits { file: call.file, kind, patience: None, id: None };
    let mut stale = Vec::new();
    // Held from the moment a lease has come: a recall finds the call under way.
    let mut granted = None;
    loop {
        if !call.inner.holdings.clock.is_good() {
            granted = None;
            call.inner.holdings.clock.wait(waits.patience(call, &ranges))?;
        }
        if kind != CallKind::Page && !call.inner.holdings.drops.is_clean() {
            granted = None;
            call.inner.holdings.drops.wait(waits.patience(call, &ranges))?;
        }
        let first = granted.is_some();
        let mut lease = granted.take().unwrap_or_else(|| call.file.lease());
        match lease.enter(clock::uptime(), &ranges, kind, first) {
            Enter::Entered(id) => {
                // With the lock held: from now on it is under way, and waits no more.
                if let Some(id) = waits.id.take() {
                    lease.end_waiting(id);
                }
                entered();
                drop(lease);
                let entered = Entered { file: call.file, id: Some(id) };
                // Under way, so that the lease is not given up before there was
                // any use of it.
                for range in stale {
                    drop_above(call, range);
                }
                return Ok(entered);
            }
            Enter::Wait(time) => {
                let time = time.map_or(SLICE, |time| time.min(SLICE));
                waits.begin(call, &mut lease, &ranges);
                drop(call.file.lease_changed.wait_timeout(lease, time));
                let wait = waits.patience(call, &ranges);
                wait.check().map_err(|e| {
                    e.context("wait until other clients give up their leases on the file")
                })?;
            }
            Enter::Missing { start, end } => {
                waits.begin(call, &mut lease, &ranges);
                // Before it is noted that somebody asks: others wait for that.
                waits.patience(call, &ranges).check()?;
                let kick = if kind == CallKind::Page { Signal::new().ok() } else { None };
                let id = lease.ask(start, end, kick.clone());
                let to_read = lease.read_only();
                drop(lease);
                let acquired = match &kick {
                    Some(kick) => acquire_until(call, start, end, kick),
                    None => acquire(call, start, end, kind.mode()),
                };
                let mut lease = call.file.lease();
                lease.asked(id);
                call.file.lease_changed.notify_all();
                let Some((new, found)) = acquired? else { continue };
                if kind == CallKind::Write {
                    let part = |had: Range<u64>| had.start.max(new.start)..had.end.min(new.end);
                    stale.extend(to_read.into_iter().map(part).filter(|part| !part.is_empty()));
                }
                if install(call.inner, &mut lease, found, &new) {
                    granted = Some(lease);
                }
            }
        }
    }
}

/// Drops pages of the layer above that are older than what other clients have written back when
/// they gave up their leases. (A page that the layer writes back itself is newer, and cannot be
/// dropped.)
fn drop_above(call: Call<'_>, range: Range<u64>) {
    if let Some(upper) = &call.inner.upper {
        upper.drop_before_own_write(call.file.id, range.start, range.end);
    }
}

/// A call that waits for a lease, from the moment at which it does.
struct Waits<'a> {
    file: &'a OpenState,
    kind: CallKind,
    patience: Option<Wait>,
    id: Option<u64>,
}

impl Waits<'_> {
    fn begin(&mut self, call: Call<'_>, lease: &mut FileLease, ranges: &[Range<u64>]) {
        if self.id.is_none() {
            add(&call.inner.counters.lease_waits, 1);
            self.id = Some(lease.begin_waiting(ranges, self.kind));
        }
    }

    fn patience(&mut self, call: Call<'_>, ranges: &[Range<u64>]) -> &Wait {
        if self.id.is_none() {
            let file = self.file;
            self.begin(call, &mut file.lease(), ranges);
        }
        self.patience.get_or_insert_with(|| patience(call))
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.file.lease().end_waiting(id);
        }
    }
}

fn patience(call: Call<'_>) -> Wait {
    Wait::for_ms(call.inner.config.request_timeout_ms).interruptible(call.ctx.interrupt)
}

/// The whole blocks of these ranges, ascending and merged where they touch.
fn merged(bytes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(bytes.len());
    let mut all: Vec<_> = bytes.iter().filter(|range| !range.is_empty()).map(blocks).collect();
    all.sort_by_key(|range| range.start);
    for range in all {
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }
    if let (Some(first), Some(last), true) =
        (ranges.first(), ranges.last(), ranges.len() > MAX_RANGES)
    {
        let all = first.start..last.end;
        ranges = vec![all];
    }
    ranges
}

/// Requests a lease. Returns `None` if the request has to be repeated, because the file was
/// truncated since, and a truncation that is still pending has to be known before the lease is
/// used.
fn acquire(
    call: Call<'_>,
    start: u64,
    end: u64,
    mode: LeaseMode,
) -> Result<Option<(LeaseRange, Found)>> {
    let file = call.file;
    let request = AcquireRequest { lease: LeaseRange { file: file.id, start, end, mode } };
    add(&call.inner.counters.acquires, 1);
    let (granted, found) = call.inner.session.ask(call.ctx, &request);
    let granted = granted?;
    file.saw_attr(&granted.attr);
    if granted.attr.generation != file.generation() {
        file.refresh(call.inner, call.ctx)?;
    }
    if let Some(pending) = &granted.pending_truncate {
        let settled = call.inner.settle_pending(call, pending);
        match settled {
            // What is left of the file is as it was, also in objects that are still longer. Who
            // is to write there has to cut them before.
            Err(error) if mode == LeaseMode::Read && cannot_cut(pending, error.kind) => {
                tracing::debug!("a truncation is still to be carried out: {error}");
            }
            settled => settled?,
        }
        if file.generation() > pending.generation {
            return Ok(None);
        }
    }
    Ok(Some((granted.lease, found)))
}

/// Whether a truncation cannot be carried out because a disk refuses it.
fn cannot_cut(pending: &PendingTruncate, kind: ErrorKind) -> bool {
    let disk = matches!(kind, ErrorKind::ReadOnly | ErrorKind::Io | ErrorKind::NoSpace);
    disk && pending.size != TO_THE_END
}

/// As [`acquire`], for the write-back of a page, which cannot wait for a client that wants the page
/// itself. Returns `None` if this client has to give the lease up, since the page then goes on
/// without one.
fn acquire_until(
    call: Call<'_>,
    start: u64,
    end: u64,
    kick: &Signal,
) -> Result<Option<(LeaseRange, Found)>> {
    let interrupt = kick.fd().map(|fd| fd.as_raw_fd());
    let ctx = Context { interrupt, ..call.ctx.clone() };
    match acquire(Call { ctx: &ctx, ..call }, start, end, LeaseMode::Write) {
        Err(error) if error.kind == ErrorKind::Interrupted => Ok(None),
        result => result,
    }
}

/// Adds a granted lease, unless any lease of the file was given up since. A recalled lease that was
/// not given up yet counts as held. To be called with the lock held, so that the next recall
/// includes the lease.
fn install(inner: &Inner, held: &mut FileLease, found: Found, lease: &LeaseRange) -> bool {
    let holds = inner.holdings.kept.lock().news.is_held(found, lease.file);
    if holds {
        held.grant(lease.start, lease.end, lease.mode);
    }
    holds
}

impl OpenState {
    pub(crate) fn lease(&self) -> MutexGuard<'_, FileLease> {
        self.lease.lock()
    }

    /// Adds the lease that came with an open.
    pub(crate) fn take_lease(&self, inner: &Inner, found: Found) {
        let mode = match found.keep {
            keep if keep & LEASE_WRITE != 0 => LeaseMode::Write,
            keep if keep & LEASE_READ != 0 => LeaseMode::Read,
            _ => return,
        };
        let all = LeaseRange { file: self.id, start: 0, end: TO_THE_END, mode };
        install(inner, &mut self.lease(), found, &all);
    }

    /// Handles the loss of all leases of the file.
    pub(crate) fn lose_leases(&self) {
        // Held until all of it is known: see `losses_so_far`.
        let mut lease = self.lease();
        let wrote = lease.lose();
        // A truncation of our own, whose answer was lost: all that was written
        // before it has arrived.
        let unreported = self.forget_uncommitted() && !self.is_resizing();
        if wrote && (unreported || self.dirty.load(Ordering::Acquire)) {
            self.lost_writes.store(true, Ordering::Release);
        }
        self.losses.fetch_add(1, Ordering::AcqRel);
        self.lease_changed.notify_all();
        drop(lease);
    }

    /// Number of times that leases were lost. Data that was read or written under a lost lease is
    /// not used or sent afterwards.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// As [`OpenState::losses`], including a loss in progress that is dropping unreported writes.
    /// So a caller that finds nothing to report learns why.
    pub(crate) fn losses_so_far(&self) -> u64 {
        let _whole = self.lease();
        self.losses()
    }

    /// Returns, once, whether writes were lost with the leases.
    pub(crate) fn take_lost_writes(&self) -> bool {
        self.lost_writes.swap(false, Ordering::AcqRel)
    }
}

impl Inner {
    /// Gives up a recalled lease. Returns false if written data could not be reported, so that the
    /// server must not believe it was.
    pub(crate) fn recall(&self, state: &OpenState, number: Numbered, wanted: &LeaseRange) -> bool {
        add(&self.counters.recalls, 1);
        let obeyed = self.give_back(state, number, wanted);
        if !state.is_unconfirmed() {
            return obeyed;
        }
        // What may come late of a write that failed is fenced off, and with it all
        // that this client writes to the file: it begins anew.
        let all = LeaseRange { file: state.id, start: 0, end: TO_THE_END, mode: LeaseMode::Write };
        self.give_back(state, number, &all)
    }

    fn give_back(&self, state: &OpenState, number: Numbered, wanted: &LeaseRange) -> bool {
        state.lease().begin_recall(wanted.start, wanted.end, wanted.mode);
        state.lease_changed.notify_all();
        wait_quiet(state);
        if wanted.mode == LeaseMode::Write
            && !planted(Bug::KeepPages)
            && let Some(upper) = &self.upper
        {
            loop {
                let ranges = state.lease().begin_round(clock::uptime());
                state.lease_changed.notify_all();
                for range in ranges {
                    upper.drop_pages(state.id, range.start, range.end);
                }
                if !state.lease().end_round() {
                    break;
                }
            }
        } else {
            state.lease().close();
        }
        wait_quiet(state);
        let ctx = Context::root();
        let call = Call { inner: self, file: state, ctx: &ctx };
        let reported =
            planted(Bug::AnswerBeforeFlush) || self.insist(state.id, || Writer::give_up(call));
        if wanted.mode == LeaseMode::Write && !planted(Bug::KeepPages) {
            state.reader().clear();
        }
        let mut lease = state.lease();
        lease.give_up();
        self.holdings.kept.lock().news.given_up(number, state.id);
        drop(lease);
        state.forget_reported();
        reported
    }

    /// Ends a recall after the server knows that the lease was given up, or has revoked it.
    pub(crate) fn end_recall(&self, state: &OpenState) {
        state.lease().end_recall();
        state.lease_changed.notify_all();
    }

    /// Reports size and time of writes. Returns false if that could not be done.
    pub(crate) fn report(&self, state: &OpenState) -> bool {
        let ctx = Context::root();
        let call = Call { inner: self, file: state, ctx: &ctx };
        self.insist(state.id, || Writer::report(call))
    }

    /// Repeats a report that another client waits for until the metadata server has received it, or
    /// has revoked the lease, so that there is nothing to report. Returns false if the server
    /// refuses it.
    fn insist(&self, file: FileId, tell: impl Fn() -> Result<()>) -> bool {
        for attempt in 0_u32.. {
            let Err(error) = tell() else { break };
            // The disk of the metadata server may get well.
            let ill =
                matches!(error.kind, ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Io);
            let refused = error.kind.retry() == Retry::Never && !ill;
            if refused || self.events.is_stopped() {
                tracing::error!("file {file}: could not report what was written: {error}");
                return false;
            }
            if attempt == 0 {
                tracing::warn!("file {file}: {error}; reporting what was written again");
            }
            (0..1 << attempt.min(4)).for_each(|_| self.pause());
        }
        true
    }
}

/// Waits for the calls that a recall has to wait for. Each ends within the request timeout.
fn wait_quiet(state: &OpenState) {
    let since = clock::uptime();
    let mut told = false;
    let mut lease = state.lease();
    while !lease.is_quiet() {
        if !told && clock::uptime().saturating_sub(since) >= LONG {
            told = true;
            tracing::warn!(
                "file {}: another client wants a lease back, and calls under way hold it for more \
                 than {LONG:?}: {}",
                state.id,
                lease.under_way()
            );
        }
        lease = state.lease_changed.wait_timeout(lease, SLICE);
    }
}

/// The range of an offset and a length, clipped to the largest file.
pub(crate) fn span(offset: u64, len: u64) -> Result<Range<u64>> {
    Ok(offset..offset.checked_add(len).ok_or(ErrorKind::FileTooLarge)?)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Calls may have many.
mod tests {
    use super::*;

    #[test]
    fn calls_take_whole_blocks_each_once() {
        assert_eq!(merged(&[5000..5001, 0..1, 4000..4096]), [0..8192]);
        assert_eq!(merged(&[1..1]), Vec::<Range<u64>>::new());
        assert_eq!(merged(&[9000..9001, 0..1]), [0..4096, 8192..12288]);
        let many: Vec<_> = (0..100).map(|i| i * 8192..i * 8192 + 1).collect();
        assert_eq!(merged(&many), [0..99 * 8192 + 4096]);
        assert_eq!(merged(&[u64::MAX - 1..u64::MAX]), [u64::MAX / 4096 * 4096..u64::MAX]);
    }
}
