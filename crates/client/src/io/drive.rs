//! Carries out the decisions of [`Transfer`].

use crate::client::Inner;
use crate::context::Context;
use crate::core::choices::Wanted;
use crate::core::copies::{
    Purpose, is_computable, is_damage, is_elsewhere, is_hopeless, is_mirrored,
};
use crate::core::plan::Place;
use crate::core::transfer::{Next, Transfer};
use crate::counters::add;
use crate::file::OpenState;
use crate::presence::Peer;
use crate::servers::{Choosable, DataConn, Detours, MAP_WAIT_MS, Slot, Waits};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::clock;
use weir_net::{BlockingConn, Wait, Watch};
use weir_types::{CopyIndex, Error, ErrorKind, ObjectId, Result, Segment, TargetId};
use weir_wire::Rights;
use weir_wire::data::Access;

/// Timeout for replies of a failed call that may have arrived already, milliseconds.
const LAST_LOOK_MS: u64 = 100;
/// After this wait for the reply to a change, the client looks at the map and whether the server is
/// reachable, milliseconds.
const LOOK_MS: u64 = 500;
/// Interval of these checks, and of the same checks while waiting for a connection for a change,
/// milliseconds. The map is requested less often (`servers.rs`).
const STEP_MS: u64 = 100;
/// A call that waits for replies and also for space at a copy checks for space at this interval,
/// milliseconds.
const ROOM_LOOK_MS: u64 = 5;
/// The call stops these checks if nothing could be sent for this long, milliseconds.
const LONGEST_LOOKS_MS: u64 = 500;
/// The most failures of a part that is not waited for before something else is done. The first one
/// is most often a pooled connection that was closed.
const HURRIED_FAILURES: u32 = 1;
/// Longest connection attempt while another server could be asked instead, milliseconds.
const MAX_CONNECT_MS: u64 = 2000;

/// The context of a call in progress.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) file: &'a OpenState,
    pub(crate) ctx: &'a Context,
}

/// The parts of a call: how to send each, and how to receive its reply.
pub(crate) trait Parts {
    /// Destination of a part. Its copy is chosen again whenever the part is sent.
    fn place(&mut self, part: usize) -> &mut Place;
    /// Whether the part changes an object, so that carrying it out late could undo a newer change.
    fn changes(&self, part: usize) -> bool;
    /// Purpose of the request to a copy.
    fn purpose(&self, part: usize) -> Purpose {
        if self.changes(part) { Purpose::Change } else { Purpose::Read }
    }
    /// Whether any current copy of a column may be used.
    fn may_read_any_copy(&self) -> bool {
        false
    }
    /// The target that is read first where any current copy may be used, whatever the speeds.
    fn preferred(&self) -> Option<TargetId> {
        None
    }
    /// Whether the call goes on without a part that can be computed from others of its segment.
    fn may_lack(&self) -> bool {
        false
    }
    /// Whether parts wait for space at copies independently of each other.
    fn is_cut(&self) -> bool {
        false
    }
    /// Whether no caller waits for the call yet.
    fn is_ahead(&self) -> bool {
        false
    }
    /// Timeout for connecting to the server of an only copy, after this many failures. `None` for
    /// the timeout of the call.
    fn connect_ms(&self, _failures: u32) -> Option<u64> {
        None
    }
    /// Whether something else is to be done as soon as all was sent. What has failed twice is then
    /// tried again after it.
    fn hurries(&self) -> bool {
        false
    }
    /// Whether replies are received in order of arrival even without other copies.
    fn takes_as_they_come(&self) -> bool {
        false
    }
    /// The bytes that a part reads, if it reads bytes.
    fn wanted(&mut self, _part: usize) -> Option<Wanted> {
        None
    }
    /// Keeps the slot of a part. Its read counts as outstanding at the copy until the slot is
    /// dropped.
    fn keep(&mut self, _part: usize, _slot: Option<Slot>) {}
    /// The kept slot of a part.
    fn kept(&self, _part: usize) -> Option<&Slot> {
        None
    }
    /// Sends the request of a part.
    fn send(&mut self, part: usize, locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// Receives the reply to a part.
    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// The connections of the parts with outstanding replies.
    fn conns(&mut self) -> &mut [Option<DataConn>];
    /// Renews what a server has refused as out of date.
    fn refresh(&mut self, call: Call<'_>) -> Result<()> {
        call.file.refresh(call.inner, call.ctx)
    }
}

/// How far to drive a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until all parts are sent.
    Sent,
    /// Until the call has ended.
    Done,
}

/// Milliseconds since a fixed point of this process.
pub(crate) fn now_ms() -> u64 {
    clock::uptime().as_millis() as u64
}

/// Drives a call. With [`Until::Sent`], failures are handled by the second run, which may be in
/// another thread.
pub(crate) fn drive(
    call: Call<'_>,
    transfer: &mut Transfer,
    parts: &mut impl Parts,
    until: Until,
) -> Result<()> {
    let left = transfer.deadline_ms().saturating_sub(now_ms());
    let wait = Wait::for_ms(left).interruptible(call.ctx.interrupt);
    let presence = &call.inner.counters.presence;
    // Whom this call waits for, for each part.
    let mut asking = BTreeMap::new();
    let begun_ms = now_ms();
    let mut sent_ms = begun_ms;
    loop {
        match transfer.next(now_ms()) {
            // What was not tried yet has gone before.
            Next::Send(part)
                if until == Until::Sent
                    && parts.hurries()
                    && transfer.failures(part) > HURRIED_FAILURES =>
            {
                transfer.defer(part);
                return Ok(());
            }
            Next::Send(part) => {
                match choose(call, transfer, parts, part, &wait) {
                    Ok(Chosen::Copy) => {}
                    Ok(Chosen::Later) => {
                        transfer.defer(part);
                        continue;
                    }
                    Err(missing) if missing.computable && parts.may_lack() => {
                        tracing::debug!("{}", missing.error);
                        transfer.lacks(part, missing.error);
                        continue;
                    }
                    Err(missing) => {
                        transfer.no_copy(part, missing.error, missing.hopeless, now_ms());
                        continue;
                    }
                }
                if let (Some(peer), Until::Done) = (peer(call, parts, part), until) {
                    asking.insert(part, presence.asking(peer));
                }
                match send(call, transfer, parts, part, &wait) {
                    Ok(()) => {
                        sent_ms = now_ms();
                        transfer.sent(part, sent_ms);
                    }
                    Err(error) => retry(call, transfer, parts, part, error),
                }
            }
            _ if until == Until::Sent => return Ok(()),
            Next::Receive(part) => {
                let awaited = match parts.takes_as_they_come() {
                    true => transfer.in_flight(),
                    false => transfer.awaited(part),
                };
                for part in &awaited {
                    if let Some(peer) = peer(call, parts, *part) {
                        asking.entry(*part).or_insert_with(|| presence.asking(peer));
                    }
                }
                let deferred = transfer.deferred();
                let looks = now_ms() < sent_ms + LONGEST_LOOKS_MS && !wait.expired();
                if !deferred.is_empty() && looks && !comes_soon(call, parts, &awaited, &wait) {
                    transfer.retry_deferred();
                    continue;
                }
                if !looks {
                    // Others need not stand behind who does not look.
                    deferred.into_iter().for_each(|part| parts.keep(part, None));
                }
                let (part, came) = await_reads(call, transfer, parts, &awaited, (&wait, begun_ms));
                match came.and_then(|()| receive(call, transfer, parts, part, &wait)) {
                    Ok(()) => {
                        parts.keep(part, None);
                        asking.remove(&part);
                        transfer.on_result(part, Ok(()), now_ms());
                    }
                    Err(error) => retry(call, transfer, parts, part, error),
                }
            }
            Next::Sleep { until_ms } => {
                let time = Duration::from_millis(until_ms.saturating_sub(now_ms()));
                if let Err(error) = wait.sleep(time) {
                    transfer.cancel(error);
                }
            }
            Next::Refresh => {
                let result = parts.refresh(call);
                transfer.refreshed(result);
            }
            Next::Done => return Ok(()),
            Next::Fail(error) => {
                asking.values().for_each(|asking| asking.gave_up(&error));
                return Err(named(call, transfer, parts, error));
            }
        }
    }
}

/// Receives replies that have arrived for a failed call.
pub(crate) fn take_rest(call: Call<'_>, transfer: &Transfer, parts: &mut impl Parts) {
    for part in transfer.in_flight() {
        let has_come = |conn: &DataConn| conn.conn.wait_for_reply(&Wait::for_ms(0)).is_ok();
        if parts.conns()[part].as_ref().is_some_and(has_come)
            && let Err(error) = receive(call, transfer, parts, part, &Wait::for_ms(LAST_LOOK_MS))
        {
            tracing::debug!("{error}");
        }
    }
}

fn peer(call: Call<'_>, parts: &mut impl Parts, part: usize) -> Option<Peer> {
    call.inner.servers.peer(parts.place(part).target)
}

/// Result of choosing a copy for a part.
enum Chosen {
    /// A copy was chosen.
    Copy,
    /// No copy has space for the request now.
    Later,
}

/// No copy can be asked now.
struct Missing {
    error: Error,
    /// Whether no copy will become available either.
    hopeless: bool,
    /// Whether it can be computed from others of its segment.
    computable: bool,
}

/// Chooses the copy that a part goes to.
fn choose(
    call: Call<'_>,
    transfer: &mut Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &Wait,
) -> Result<Chosen, Missing> {
    let object = parts.place(part).object;
    let (servers, purpose) = (&call.inner.servers, parts.purpose(part));
    let has_others =
        |segment: &Segment| is_mirrored(segment, object.column) || is_computable(purpose, segment);
    let may =
        parts.place(part).mirrored || call.file.with_segment(object, has_others) == Some(true);
    if !transfer.may_choose(part, may) {
        return Ok(Chosen::Copy);
    }
    for newest in [transfer.doubts_primary(part), true] {
        if newest && let Err(error) = servers.refresh_map(&call.inner.session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not refreshed: {error}");
        }
        // Who has been asked in vain is not asked by its speed.
        let by_speed = transfer.told(part).is_empty() && parts.may_read_any_copy();
        let preferred = if by_speed { parts.preferred() } else { None };
        let wanted = if by_speed { parts.wanted(part) } else { None };
        let waits = (waits(transfer, parts, part, wait), parts.kept(part).and_then(Slot::turn));
        let chosen = call.file.with_segment(object, |segment| {
            let mirrored = is_mirrored(segment, object.column);
            let named = |target| servers.ready_copy(segment, object.column, target);
            if let Some(copy) = preferred.filter(|_| mirrored).and_then(named) {
                return Some(Ok((copy, mirrored, 0.0, None)));
            }
            let fastest = wanted
                .filter(|_| mirrored)
                .map(|wanted| servers.copy_to_read(call.file, segment, &wanted, waits));
            match fastest {
                Some(Choosable::Copy(read)) => {
                    let copy = (read.copy, read.target);
                    return Some(Ok((copy, mirrored, read.answer_us, read.slot)));
                }
                Some(Choosable::Later(slot)) => return Some(Err(slot)),
                Some(Choosable::None) | None => {}
            }
            let tried = transfer.tried(part);
            let copy = servers.next_copy(purpose, segment, object.column, tried)?;
            Some(Ok((copy, mirrored, 0.0, None)))
        });
        // The segment is gone: its server says so.
        let Some(chosen) = chosen else {
            parts.keep(part, None);
            return Ok(Chosen::Copy);
        };
        let Some(chosen) = chosen else { continue };
        let ((copy, target), mirrored, answer_us, slot) = match chosen {
            Ok(chosen) => chosen,
            Err(slot) => {
                if slot.is_some() {
                    parts.keep(part, slot);
                }
                return Ok(Chosen::Later);
            }
        };
        parts.keep(part, slot);
        transfer.expect(part, (answer_us / 1_000.0) as u64);
        *parts.place(part) = Place { object: ObjectId { copy, ..object }, target, mirrored };
        let has_others = mirrored || call.file.with_segment(object, has_others) == Some(true);
        transfer.chosen(part, has_others.then_some((copy, purpose)));
        return Ok(Chosen::Copy);
    }
    parts.keep(part, None);
    let told = transfer.told(part);
    let missing = call.file.with_segment(object, |segment| Missing {
        error: servers.no_current_copy(object, segment, told),
        hopeless: is_hopeless(segment, object.column, told),
        computable: is_computable(purpose, segment),
    });
    missing.map_or(Ok(Chosen::Copy), Err)
}

/// Whether a part may wait for a copy with space. While it waits, its call has no outstanding
/// replies that others wait for.
fn waits<'a>(
    transfer: &Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &'a Wait,
) -> Waits<'a> {
    if parts.is_ahead() {
        return Waits::Ahead;
    }
    let column = parts.place(part).column();
    let mut waits = Waits::May(wait);
    for other in transfer.others_in_flight(part) {
        if parts.is_cut() && parts.place(other).column() == column {
            return Waits::Elsewhere;
        }
        waits = Waits::No;
    }
    waits
}

/// Adds the state of each copy to the error of a call that ended at its deadline.
fn named(call: Call<'_>, transfer: &Transfer, parts: &mut impl Parts, error: Error) -> Error {
    let Some(part) = transfer.failed() else { return error };
    let object = parts.place(part).object;
    let all = |segment: &Segment| {
        call.inner.servers.no_current_copy(object, segment, transfer.told(part))
    };
    call.file.with_segment(object, all).unwrap_or(error)
}

/// A wait within the wait of a call, limited to `time_ms`.
fn at_most(call: Call<'_>, wait: &Wait, time_ms: u64) -> Wait {
    let left_ms = wait.remaining().as_millis() as u64;
    Wait::for_ms(time_ms.min(left_ms)).interruptible(call.ctx.interrupt)
}

fn send(
    call: Call<'_>,
    transfer: &Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &Wait,
) -> Result<()> {
    let (servers, session) = (&call.inner.servers, &call.inner.session);
    let Place { object, target, .. } = *parts.place(part);
    let purpose = transfer.purpose(part);
    let patient = purpose.map(|_| at_most(call, wait, transfer.patience_ms(part)));
    let wait = patient.as_ref().unwrap_or(wait);
    let all = || detours(call, object, target);
    let detours = Detours::of(&all);
    let mut conn = match purpose {
        None => match parts.connect_ms(transfer.failures(part)) {
            Some(time_ms) => servers.take(session, target, &at_most(call, wait, time_ms))?,
            None => servers.take(session, target, wait)?,
        },
        Some(purpose) => {
            // What is to be sent may be long, but not so to connect.
            let hurried = parts.connect_ms(transfer.failures(part));
            let most_ms = hurried.filter(|_| purpose == Purpose::Change);
            let wait = at_most(call, wait, most_ms.unwrap_or(MAX_CONNECT_MS).min(MAX_CONNECT_MS));
            match purpose {
                Purpose::Read => {
                    // At first another copy is asked instead.
                    let last = transfer.has_asked_all(part) || servers.is_cut(target);
                    let detours = if last { detours } else { Detours::none() };
                    servers.take_known(session, target, &wait, &detours)?
                }
                Purpose::Change => {
                    let look = || check_primary(call, object, target);
                    let watch = Watch { every: Duration::from_millis(STEP_MS), look: &look };
                    servers.take_watched(session, target, &wait, Some(watch), &detours)?
                }
            }
        }
    };
    add(&call.inner.counters.data_requests, 1);
    add(&call.inner.counters.data_detours, u64::from(conn.via.is_some()));
    conn.owes_change(parts.changes(part));
    if purpose == Some(Purpose::Read) {
        if parts.may_read_any_copy() {
            servers.asks_for_pace(&mut conn, target);
        }
        let is_other = object.copy != CopyIndex(0);
        add(&call.inner.counters.reads_of_other_copies, u64::from(is_other));
    }
    if let Err(error) = parts.send(part, transfer.locked(part), &mut conn, wait) {
        let error = conn.in_context(target, error);
        if conn.conn.is_usable() {
            // Nothing of it was sent.
            conn.owes_change(false);
            conn.put_back();
        }
        return Err(error);
    }
    parts.conns()[part] = Some(conn);
    Ok(())
}

/// Waits until the reply to one of several reads begins to arrive. Returns which part is to be
/// received, or has timed out. Other replies are waited for where they are received.
fn await_reads(
    call: Call<'_>,
    transfer: &Transfer,
    parts: &mut impl Parts,
    awaited: &[usize],
    (wait, begun_ms): (&Wait, u64),
) -> (usize, Result<()>) {
    // Nobody can stand in for an only copy.
    let until_ms = |part: &usize| match transfer.purpose(*part) {
        Some(Purpose::Read) => transfer.patient_until_ms(*part, begun_ms),
        _ => u64::MAX,
    };
    let part = awaited.iter().copied().min_by_key(until_ms).unwrap_or_default();
    if until_ms(&part) == u64::MAX && awaited.len() < 2 {
        return (part, Ok(()));
    }
    // Each has its own time since it was sent.
    let left_ms = until_ms(&part).saturating_sub(now_ms()).max(LAST_LOOK_MS);
    match first_to_come(parts.conns(), awaited, &at_most(call, wait, left_ms)) {
        Ok(part) => (part, Ok(())),
        Err(error) => {
            let target = parts.place(part).target;
            let conn = parts.conns()[part].as_ref();
            (part, Err(conn.map_or(error.clone(), |conn| conn.in_context(target, error))))
        }
    }
}

/// Whether one of several replies begins to arrive before the next check for space at a copy.
fn comes_soon(call: Call<'_>, parts: &mut impl Parts, awaited: &[usize], wait: &Wait) -> bool {
    let soon = at_most(call, wait, ROOM_LOOK_MS);
    // What else is amiss finds who waits for the answer.
    !matches!(first_to_come(parts.conns(), awaited, &soon), Err(e) if e.kind == ErrorKind::TimedOut)
}

fn first_to_come(conns: &[Option<DataConn>], awaited: &[usize], wait: &Wait) -> Result<usize> {
    let conn = |part: &usize| conns[*part].as_ref().map(|conn| (*part, conn));
    let conns: Vec<_> = awaited.iter().filter_map(conn).collect();
    conns.iter().for_each(|(_, conn)| conn.is_waited_for());
    if let [(part, conn)] = conns[..] {
        return conn.conn.wait_for_reply(wait).map(|()| part);
    }
    let all: Vec<_> = conns.iter().map(|(_, conn)| &conn.conn).collect();
    BlockingConn::wait_for_any_reply(&all, wait).map(|at| conns[at].0)
}

/// Receives the reply to a part. If other copies could replace the read, its reply has begun to
/// arrive.
fn receive(
    call: Call<'_>,
    transfer: &Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &Wait,
) -> Result<()> {
    let mut conn = parts.conns()[part]
        .take()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "no connection to receive from"))?;
    let target = parts.place(part).target;
    let purpose = transfer.purpose(part);
    if purpose == Some(Purpose::Change) {
        await_change(call, parts, part, &conn, wait).map_err(|e| conn.in_context(target, e))?;
    }
    // Who has begun to answer may be cut off before the end of it.
    let patient = purpose.map(|_| at_most(call, wait, transfer.patience_ms(part)));
    let result = parts.receive(part, &mut conn, patient.as_ref().unwrap_or(wait));
    if result.is_ok() || conn.conn.is_usable() {
        conn.owes_change(false);
        call.inner.counters.presence.heard(conn.peer());
        call.inner.servers.heard(&conn);
        add(&call.inner.counters.data_replies, 1);
        if result.is_ok() {
            if purpose == Some(Purpose::Read) {
                call.inner.servers.doubt(target, false);
            }
            conn.put_back();
            return Ok(());
        }
    }
    result.map_err(|e| {
        let e = conn.in_context(target, e);
        if conn.conn.is_usable() {
            conn.put_back();
        }
        e
    })
}

/// Waits until the reply to a change begins to arrive. It waits as long as the server is the
/// primary, which may be waiting for other copies.
fn await_change(
    call: Call<'_>,
    parts: &mut impl Parts,
    part: usize,
    conn: &DataConn,
    wait: &Wait,
) -> Result<()> {
    let Place { object, target, .. } = *parts.place(part);
    let mut time_ms = LOOK_MS;
    loop {
        match conn.conn.wait_for_reply(&at_most(call, wait, time_ms)) {
            Err(error) if error.kind == ErrorKind::TimedOut && !wait.expired() => {
                check_primary(call, object, target).map_err(|_| error)?;
                check_way(call, object, target, (conn, wait))?;
                time_ms = STEP_MS;
            }
            result => return result,
        }
    }
}

/// Checks that no other target orders changes of an object's column now, according to the map.
///
/// # Errors
/// `Unreachable`: waiting for this target is pointless.
fn check_primary(call: Call<'_>, object: ObjectId, target: TargetId) -> Result<()> {
    let servers = &call.inner.servers;
    if let Err(error) = servers.refresh_map(&call.inner.session, false, MAP_WAIT_MS) {
        tracing::debug!("cluster map not refreshed: {error}");
    }
    let primary = call.file.with_segment(object, |segment| {
        servers.next_copy(Purpose::Change, segment, object.column, &[])
    });
    match primary.flatten() {
        Some((_, primary)) if primary != target => {
            let what = format!("target {primary} orders changes instead of it");
            Err(Error::new(ErrorKind::Unreachable, what))
        }
        _ => Ok(()),
    }
}

/// Checks that the reply to a change can still arrive on its connection.
///
/// # Errors
/// `Unreachable`: the request should be sent again on another route.
fn check_way(
    call: Call<'_>,
    object: ObjectId,
    target: TargetId,
    (conn, wait): (&DataConn, &Wait),
) -> Result<()> {
    let all = || detours(call, object, target);
    let look = || match conn.conn.wait_for_reply(&at_most(call, wait, 0)) {
        Err(error) if error.kind == ErrorKind::TimedOut => check_primary(call, object, target),
        // It is there.
        _ => Err(ErrorKind::Interrupted.into()),
    };
    let watch = Watch { every: Duration::from_millis(STEP_MS), look: &look };
    let (servers, session) = (&call.inner.servers, &call.inner.session);
    let wait = at_most(call, wait, MAX_CONNECT_MS);
    servers.check_way(session, conn, (&wait, Some(watch)), &Detours::of(&all))
}

/// Proofs for the servers of other copies, so that they forward a connection to the server of
/// `target`.
fn detours(call: Call<'_>, object: ObjectId, target: TargetId) -> Vec<Access> {
    let place = Place { object, target, mirrored: true };
    let Ok(access) = call.file.access(&place, Rights::NONE) else { return Vec::new() };
    let others = access.copies.iter().enumerate().filter(|(_, copy)| copy.target != target);
    let mut all: Vec<Access> = others
        .filter(|(_, copy)| copy.target != TargetId::NONE)
        .map(|(at, copy)| Access {
            target: copy.target,
            object: ObjectId { copy: CopyIndex(at as u8), ..object },
            mac: copy.mac,
            ..access.clone()
        })
        .collect();
    // Those first that are there.
    all.sort_by_key(|access| !call.inner.servers.is_ready(access.target));
    all
}

fn retry(
    call: Call<'_>,
    transfer: &mut Transfer,
    parts: &mut impl Parts,
    part: usize,
    error: Error,
) {
    let Place { object, target, .. } = *parts.place(part);
    let change = transfer.purpose(part) == Some(Purpose::Change);
    let silent = change && error.kind == ErrorKind::TimedOut;
    if silent || matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Protocol) {
        // The others in the pool are likely as dead as this one.
        call.inner.servers.forget(target);
    }
    if transfer.purpose(part) == Some(Purpose::Read) {
        if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
            call.inner.servers.doubt(target, true);
        }
        if error.kind == ErrorKind::NotCurrent {
            call.inner.servers.seems_outdated();
        }
        if is_elsewhere(error.kind, transfer.locked(part)) {
            call.file.with_segment(object, |segment| {
                call.inner.servers.copy_failed(call.file, segment, object);
            });
            add(&call.inner.counters.copies_failed, 1);
            if is_damage(error.kind) {
                add(&call.inner.counters.copies_damaged, 1);
                call.inner.damage.found(object, &error);
            }
        }
    }
    if let Some(peer) = call.inner.servers.peer(target) {
        call.inner.counters.presence.unreachable(peer, &error);
    }
    parts.conns()[part] = None;
    parts.keep(part, None);
    add(&call.inner.counters.data_retries, 1);
    tracing::debug!("{error}");
    transfer.on_result(part, Err(error), now_ms());
}
