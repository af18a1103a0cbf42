//! Sync and truncate: one small request for each object.

use crate::core::plan::Part;
use crate::core::transfer::Transfer;
use crate::drive::{Call, Parts, Until, drive, now_ms};
use crate::servers::DataConn;
use weir_net::Wait;
use weir_types::{Result, TargetId};
use weir_wire::data::{ObjectLen, SyncRequest, TruncateRequest};
use weir_wire::{Header, Request, Rights};

/// Objects asked at the same time.
const BATCH: usize = 32;

/// What to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Make it durable.
    Sync,
    /// Cut it to this length.
    Truncate(u64),
}

struct ControlParts<'a> {
    call: Call<'a>,
    list: &'a [(Part, Control)],
    conns: Vec<Option<DataConn>>,
}

/// Does all of a list, several at a time.
pub(crate) fn run_control(call: Call<'_>, list: Vec<(Part, Control)>) -> Result<()> {
    for batch in list.chunks(BATCH) {
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        let mut transfer = Transfer::new(batch.len(), deadline_ms);
        let conns = batch.iter().map(|_| None).collect();
        let mut parts = ControlParts { call, list: batch, conns };
        drive(call, &mut transfer, &mut parts, Until::Done)?;
    }
    Ok(())
}

impl Parts for ControlParts<'_> {
    fn target(&self, part: usize) -> TargetId {
        self.list[part].0.target
    }

    fn conn(&mut self, part: usize) -> &mut Option<DataConn> {
        &mut self.conns[part]
    }

    fn send(&mut self, part: usize, _locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let (part, control) = &self.list[part];
        // Whoever may use a file may ask that it be durable.
        let needed = match control {
            Control::Sync => Rights::NONE,
            Control::Truncate(_) => Rights::WRITE,
        };
        let access = self.call.file.access(part, needed)?;
        let id = conn.conn.next_request_id();
        match *control {
            Control::Sync => {
                let header = Header::request(SyncRequest::OP, id);
                conn.conn.send(header, &SyncRequest { access }, &[], &[], wait)
            }
            Control::Truncate(len) => {
                let header = Header::request(TruncateRequest::OP, id);
                conn.conn.send(header, &TruncateRequest { access, len }, &[], &[], wait)
            }
        }
    }

    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        match self.list[part].1 {
            Control::Sync => conn.conn.recv_reply::<()>(wait),
            Control::Truncate(_) => conn.conn.recv_reply::<ObjectLen>(wait).map(drop),
        }
    }
}
