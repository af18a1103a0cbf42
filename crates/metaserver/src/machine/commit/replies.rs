//! Replies that wait until something is durable, and what every reply is stamped with.

use crate::machine::answer::{Answer, Peer, Reply};
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_wire::message::Op;

impl<E: Engine> MetaMachine<E> {
    /// Delays a reply about the map until the map is durable. Otherwise a power cut could give its
    /// epoch to another map.
    pub(in crate::machine) fn after_map(&mut self, reply: Reply) -> Answer {
        if self.engine.synced() >= self.map_at {
            return Answer::Now(reply);
        }
        self.engine.request_sync(self.map_at);
        Answer::AfterSync(self.map_at, reply)
    }

    pub(in crate::machine) fn after_sync(&mut self, reply: Reply) -> Answer {
        let upto = self.engine.sequence();
        self.engine.request_sync(upto);
        Answer::AfterSync(upto, reply)
    }

    /// Counts a reply, and adds the number of the receiver's last event.
    pub(in crate::machine) fn stamped(&mut self, peer: Peer, op: Op, mut answer: Answer) -> Answer {
        if let Some(reply) = answer.reply_mut() {
            if let Peer::Client(session) = peer {
                reply.events = self.leases.events.last(session);
            }
            self.counters.answered(op, reply.status.is_some());
        }
        answer
    }
}
