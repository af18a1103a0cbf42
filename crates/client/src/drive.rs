//! Carries out what [`Transfer`] decides: the thin shell around it.

use crate::client::Inner;
use crate::context::Context;
use crate::core::transfer::{Next, Transfer};
use crate::counters::add;
use crate::file::OpenState;
use crate::servers::DataConn;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::clock;
use weir_net::Wait;
use weir_types::{Error, ErrorKind, Result, TargetId};

/// A call in progress: whose it is.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) file: &'a OpenState,
    pub(crate) ctx: &'a Context,
}

/// The parts of a call: how each is sent and its answer taken.
pub(crate) trait Parts {
    /// Where a part goes.
    fn target(&self, part: usize) -> TargetId;
    /// Whether it changes an object: done late, it could undo a newer change.
    fn changes(&self, part: usize) -> bool;
    /// Sends the request of a part.
    fn send(&mut self, part: usize, locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// Takes the answer of a part.
    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()>;
    /// The connection on which a part's answer is awaited.
    fn conn(&mut self, part: usize) -> &mut Option<DataConn>;
    /// Gets anew what a server has refused for being out of date.
    fn refresh(&mut self, call: Call<'_>) -> Result<()> {
        call.file.refresh(call.inner, call.ctx)
    }
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// All parts are sent.
    Sent,
    /// The call has ended.
    Done,
}

/// Milliseconds since a fixed point of this process.
pub(crate) fn now_ms() -> u64 {
    clock::uptime().as_millis() as u64
}

/// Goes on with a call. With [`Until::Sent`], failures wait for the second
/// visit, which may be in another thread.
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
    loop {
        let next = transfer.next(now_ms());
        if let (Next::Send(part) | Next::Receive(part), Until::Done) = (&next, until)
            && let Some(peer) = call.inner.servers.peer(parts.target(*part))
        {
            asking.entry(*part).or_insert_with(|| presence.asking(peer));
        }
        match next {
            Next::Send(part) => {
                if let Err(error) = send(call, transfer, parts, part, &wait) {
                    retry(call, transfer, parts, part, error);
                }
            }
            _ if until == Until::Sent => return Ok(()),
            Next::Receive(part) => match receive(call, parts, part, &wait) {
                Ok(()) => {
                    asking.remove(&part);
                    transfer.on_result(part, Ok(()), now_ms());
                }
                Err(error) => retry(call, transfer, parts, part, error),
            },
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
                return Err(error);
            }
        }
    }
}

fn send(
    call: Call<'_>,
    transfer: &Transfer,
    parts: &mut impl Parts,
    part: usize,
    wait: &Wait,
) -> Result<()> {
    let target = parts.target(part);
    let mut conn = call.inner.servers.take(&call.inner.session, target, wait)?;
    add(&call.inner.counters.data_requests, 1);
    conn.owes_change(parts.changes(part));
    if let Err(error) = parts.send(part, transfer.locked(part), &mut conn, wait) {
        let error = conn.in_context(target, error);
        if conn.conn.is_usable() {
            // Nothing of it was sent.
            conn.owes_change(false);
            conn.put_back();
        }
        return Err(error);
    }
    *parts.conn(part) = Some(conn);
    Ok(())
}

fn receive(call: Call<'_>, parts: &mut impl Parts, part: usize, wait: &Wait) -> Result<()> {
    let mut conn = parts
        .conn(part)
        .take()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "no connection to receive from"))?;
    let result = parts.receive(part, &mut conn, wait);
    if result.is_ok() || conn.conn.is_usable() {
        conn.owes_change(false);
        call.inner.counters.presence.heard(conn.peer());
        add(&call.inner.counters.data_replies, 1);
        if result.is_ok() {
            conn.put_back();
            return Ok(());
        }
    }
    result.map_err(|e| {
        let e = conn.in_context(parts.target(part), e);
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
    if error.kind == ErrorKind::Unreachable || error.kind == ErrorKind::Protocol {
        // The others in the pool are likely as dead as this one.
        call.inner.servers.forget(parts.target(part));
    }
    if let Some(peer) = call.inner.servers.peer(parts.target(part)) {
        call.inner.counters.presence.unreachable(peer, &error);
    }
    *parts.conn(part) = None;
    add(&call.inner.counters.data_retries, 1);
    tracing::debug!("{error}");
    transfer.on_result(part, Err(error), now_ms());
}
