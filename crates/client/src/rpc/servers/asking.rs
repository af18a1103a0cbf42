//! A read that a target has not answered, and what the reply says of the speed of the target.

use crate::core::job::JobReader;
use crate::core::pace::{Paces, Report, Who, who};
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_net::Arrival;
use weir_policy::Micros;
use weir_types::TargetId;
use weir_wire::Header;

/// An unanswered read of a target. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct Asking {
    paces: Arc<Mutex<Paces>>,
    target: TargetId,
}

impl Asking {
    /// A read of a target is about to be sent.
    pub(super) fn new(paces: Arc<Mutex<Paces>>, target: TargetId) -> Self {
        paces.lock().sent(target);
        Self { paces, target }
    }

    /// Records that a caller waits for the reply.
    pub(super) fn is_waited_for(&self) {
        self.paces.lock().waits(self.target, now());
    }

    /// Records the server's report of the target in the reply, and how fast that came.
    pub(super) fn heard(
        &self,
        reply: &Header,
        reader: Option<&JobReader>,
        arrival: Option<Arrival>,
    ) {
        let mut paces = self.paces.lock();
        paces.heard(self.target, report(reply, who(reader)), now());
        if let Some(Arrival { bytes, began, ended }) = arrival {
            let us = |at: Duration| at.as_micros() as Micros;
            paces.came(self.target, bytes, (us(began), us(ended)));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.paces.lock().ended(self.target);
    }
}

/// The report of a target in a reply.
pub(super) fn report(reply: &Header, who: Who) -> Report {
    let behind = (reply.work > 0).then_some(reply.work);
    Report { us_per_mib: reply.progress, in_flight: reply.in_flight, who, behind }
}

pub(super) fn now() -> Micros {
    clock::uptime().as_micros() as Micros
}
