//! The bytes of a write go to all copies from here (`client-sync`, `client-async`): those
//! that follow are left them, and the one that orders tells them to use them. A copy that
//! cannot be left them at once gets them from that one.

use crate::core::plan::Chunk;
use crate::counters::add;
use crate::drive::Call;
use crate::servers::{DataConn, Detours};
use std::io::IoSlice;
use weir_net::Wait;
use weir_types::{CopyIndex, ObjectId, Result, TargetId};
use weir_wire::data::{Access, StageRequest, Staged};
use weir_wire::{Header, Request};

/// So long a copy is waited for until it has taken the bytes.
const LEAVE_MS: u64 = 500;
/// So long for its answer, when the one that orders has answered already.
const ANSWER_MS: u64 = 100;

/// Leaves the bytes with every copy but the one that orders, `access`'s. `left` gets the
/// connections on which answers are outstanding.
pub(crate) fn leave(
    call: Call<'_>,
    access: &Access,
    chunk: &Chunk,
    (checks, bytes): (&[u32], &[IoSlice<'_>]),
    left: &mut Vec<DataConn>,
) -> Option<Staged> {
    let servers = &call.inner.servers;
    let mut staged = Staged { ticket: servers.next_ticket(), copies: 0 };
    for (at, copy) in access.copies.iter().enumerate() {
        let target = copy.target;
        if [access.target, TargetId::NONE].contains(&target) || !servers.is_ready(target) {
            continue;
        }
        let object = ObjectId { copy: CopyIndex(at as u8), ..access.object };
        let request = StageRequest {
            access: Access { target, object, mac: copy.mac, ..access.clone() },
            stripe: chunk.stripe,
            regions: chunk.regions.clone(),
            ticket: staged.ticket,
        };
        match leave_with(call, &request, checks, bytes) {
            Ok(conn) => {
                staged.copies |= 1 << at;
                left.push(conn);
            }
            Err(error) => {
                tracing::debug!("target {target} is not left the bytes of a write: {error}");
                servers.forget(target);
                servers.doubt(target, true);
            }
        }
    }
    (staged.copies != 0).then_some(staged)
}

fn leave_with(
    call: Call<'_>,
    request: &StageRequest,
    checks: &[u32],
    bytes: &[IoSlice<'_>],
) -> Result<DataConn> {
    let (servers, session) = (&call.inner.servers, &call.inner.session);
    let wait = Wait::for_ms(LEAVE_MS);
    let mut conn = servers.take_known(session, request.access.target, &wait, &Detours::none())?;
    let mut header = Header::request(StageRequest::OP, conn.conn.next_request_id());
    call.ctx.sign(&mut header);
    conn.conn.send(header, request, checks, bytes, &wait)?;
    add(&call.inner.counters.data_requests, 1);
    add(&call.inner.counters.write_wire_bytes, bytes.iter().map(|part| part.len() as u64).sum());
    Ok(conn)
}

/// The write is done, whatever the others have to say; they have answered long ago.
pub(crate) fn gather_answers(call: Call<'_>, left: Vec<DataConn>) {
    for mut conn in left {
        let answered = conn.conn.wait_for_reply(&Wait::for_ms(ANSWER_MS));
        let answer = answered.and_then(|()| conn.conn.recv_reply::<()>(&Wait::for_ms(ANSWER_MS)));
        if let Err(error) = &answer {
            tracing::debug!("the bytes of a write were not left: {error}");
        }
        if answer.is_ok() || conn.conn.is_usable() {
            add(&call.inner.counters.data_replies, 1);
            conn.put_back();
        }
    }
}
