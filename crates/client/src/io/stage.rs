//! Staging: the client sends the bytes of a write to all copies itself (`client-sync`,
//! `client-async`). The other copies stage them, and the copy that orders the write tells them to
//! use them. A copy that cannot stage the bytes at once gets them from the ordering copy.

use crate::core::plan::Chunk;
use crate::counters::add;
use crate::rpc::servers::{DataConn, Detours};
use crate::state::Call;
use std::io::IoSlice;
use weir_net::Wait;
use weir_types::{CopyIndex, ObjectId, Result, TargetId};
use weir_wire::data::{Access, StageRequest, Staged};
use weir_wire::{Header, Request};

/// Timeout of sending the bytes to a copy, milliseconds.
const LEAVE_MS: u64 = 500;
/// Timeout of its reply after the ordering copy has replied, milliseconds.
const ANSWER_MS: u64 = 100;

/// Stages the bytes at every copy except the ordering one, which `access` names. Connections with
/// outstanding replies are added to `left`.
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
                tracing::debug!("target {target}: the bytes of a write were not staged: {error}");
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

/// Receives the replies of the other copies after the write is done. Their contents do not matter,
/// and they have usually arrived long ago.
pub(crate) fn gather_answers(call: Call<'_>, left: Vec<DataConn>) {
    for mut conn in left {
        let answered = conn.conn.wait_for_reply(&Wait::for_ms(ANSWER_MS));
        let answer = answered.and_then(|()| conn.conn.recv_reply::<()>(&Wait::for_ms(ANSWER_MS)));
        if let Err(error) = &answer {
            tracing::debug!("the bytes of a write were not staged: {error}");
        }
        if answer.is_ok() || conn.conn.is_usable() {
            add(&call.inner.counters.data_replies, 1);
            conn.put_back();
        }
    }
}
