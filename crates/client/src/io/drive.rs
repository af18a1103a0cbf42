//! Carries out the decisions of [`Transfer`].

use super::choose::{Chosen, choose};
use super::parts::{Parts, Until};
use super::ways::{MAX_CONNECT_MS, STEP_MS, at_most, await_change, check_primary, detours};
use crate::core::copies::{Purpose, is_damage, is_elsewhere};
use crate::core::plan::Place;
use crate::core::transfer::{Next, Transfer};
use crate::counters::add;
use crate::presence::Peer;
use crate::rpc::servers::{DataConn, Detours};
use crate::state::Call;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::clock;
use weir_net::{BlockingConn, Wait, Watch};
use weir_types::{CopyIndex, Error, ErrorKind, Result, Segment};

/// Timeout for replies of a failed call that may have arrived already, milliseconds.
const LAST_LOOK_MS: u64 = 100;
/// A call that waits for replies and also for space at a copy checks for space at this interval,
/// milliseconds.
const ROOM_LOOK_MS: u64 = 5;
/// The call stops these checks if nothing could be sent for this long, milliseconds.
const LONGEST_LOOKS_MS: u64 = 500;
/// The most failures of a part that is not waited for before something else is done. The first one
/// is most often a pooled connection that was closed.
const HURRIED_FAILURES: u32 = 1;
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

/// Adds the state of each copy to the error of a call that ended at its deadline.
fn named(call: Call<'_>, transfer: &Transfer, parts: &mut impl Parts, error: Error) -> Error {
    let Some(part) = transfer.failed() else { return error };
    let object = parts.place(part).object;
    let all = |segment: &Segment| {
        call.inner.servers.no_current_copy(object, segment, transfer.told(part))
    };
    call.file.with_segment(object, all).unwrap_or(error)
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
                call.inner.servers.copy_failed(&call.file.choosing, segment, object);
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
