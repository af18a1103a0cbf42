//! The way to a server while a change is under way: whether it still orders changes, and whether its
//! reply can still arrive.

use super::parts::Parts;
use crate::core::copies::Purpose;
use crate::core::plan::Place;
use crate::rpc::servers::{DataConn, Detours, MAP_WAIT_MS};
use crate::state::Call;
use std::time::Duration;
use weir_net::{Wait, Watch};
use weir_types::{CopyIndex, Error, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::Rights;
use weir_wire::data::Access;

/// After this wait for the reply to a change, the client looks at the map and whether the server is
/// reachable, milliseconds.
const LOOK_MS: u64 = 500;
/// Interval of these checks, and of the same checks while waiting for a connection for a change,
/// milliseconds. The map is requested less often (`rpc/servers/map.rs`).
pub(super) const STEP_MS: u64 = 100;
/// Longest connection attempt while another server could be asked instead, milliseconds.
pub(super) const MAX_CONNECT_MS: u64 = 2000;

/// A wait within the wait of a call, limited to `time_ms`.
pub(super) fn at_most(call: Call<'_>, wait: &Wait, time_ms: u64) -> Wait {
    let left_ms = wait.remaining().as_millis() as u64;
    Wait::for_ms(time_ms.min(left_ms)).interruptible(call.ctx.interrupt)
}

/// Waits until the reply to a change begins to arrive. It waits as long as the server is the
/// primary, which may be waiting for other copies.
pub(super) fn await_change(
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
pub(super) fn check_primary(call: Call<'_>, object: ObjectId, target: TargetId) -> Result<()> {
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
pub(super) fn detours(call: Call<'_>, object: ObjectId, target: TargetId) -> Vec<Access> {
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
