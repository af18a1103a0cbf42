//! Calls under leases: entering a lease, and acquiring a missing one.

use super::cut::{share_size, size_alone};
use crate::config::Consistency;
use crate::context::Context;
use crate::core::lease::{CallKind, Enter, FileLease, blocks};
use crate::core::news::Found;
use crate::counters::add;
use crate::state::{Call, Inner, OpenState};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::sync::{ReadGuard, WriteGuard};
use weir_net::Wait;
use weir_types::{ErrorKind, Result};
use weir_wire::lease::{
    AcquireRequest, LEASE_READ, LEASE_WRITE, LeaseMode, LeaseRange, TO_THE_END,
};
use weir_wire::meta::PendingTruncate;

/// The most ranges of one call that are leased separately. Beyond it one lease covers all from the
/// first to the last.
const MAX_RANGES: usize = 64;
/// Longest wait between two looks at the caller's deadline.
const SLICE: Duration = Duration::from_millis(50);

/// A call under a lease. It ends when this is dropped.
pub(crate) struct Entered<'a> {
    file: &'a OpenState,
    id: Option<u64>,
    /// Nobody of this client cuts the file under a call that writes.
    _sizing: Option<Excludes<'a>>,
}

/// Which calls of this client do not go on meanwhile.
enum Excludes<'a> {
    Cuts { _shared: ReadGuard<'a, ()> },
    Writes { _alone: WriteGuard<'a, ()> },
}

impl<'a> Excludes<'a> {
    fn by(call: Call<'a>, kind: CallKind) -> Option<Self> {
        match kind {
            CallKind::Write => {
                share_size(call.inner, call.file).map(|guard| Self::Cuts { _shared: guard })
            }
            CallKind::Whole => {
                size_alone(call.inner, call.file).map(|guard| Self::Writes { _alone: guard })
            }
            // A page waits for nobody; the layer above, which writes it back, writes none while it
            // cuts.
            CallKind::Read | CallKind::Look | CallKind::Page => None,
        }
    }
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
    // Before the lease: who cuts the file waits for that of others.
    let _sizing = Excludes::by(call, kind);
    if consistency != Consistency::Strict || ranges.is_empty() {
        entered();
        return Ok(Entered { file: call.file, id: None, _sizing });
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
                let entered = Entered { file: call.file, id: Some(id), _sizing };
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
                if matches!(kind, CallKind::Write | CallKind::Whole) {
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
