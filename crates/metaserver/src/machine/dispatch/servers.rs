//! Requests of data servers.

use crate::machine::answer::{Answer, Reply, request};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_types::codec::Reader;
use weir_types::{Error, ErrorKind, Result, ServerId};
use weir_wire::message::Op;

impl<E: Engine> MetaMachine<E> {
    /// Handles a request of a data server.
    pub(super) fn on_server(
        &mut self,
        server: ServerId,
        op: Op,
        body: &[u8],
        now: Moment,
    ) -> Result<Answer> {
        // On a connection from before it was removed.
        self.cluster.may_be_there(server)?;
        let rest = Reader::new(body);
        let reply = match op {
            Op::Ping => Reply::ok(&()),
            Op::Register => {
                let reply = self.register(server, &request(rest)?, now)?;
                return Ok(self.after_map(reply));
            }
            Op::Heartbeat => {
                let reply = self.heartbeat(server, &request(rest)?, now)?;
                return Ok(self.after_map(reply));
            }
            Op::FindPeer => self.find_peer(server, &request(rest)?, now)?,
            Op::FindCopies => {
                let found = self.find_copies(server, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&found)));
            }
            Op::ListCopies => {
                let page = self.list_copies(server, &request(rest)?)?;
                return Ok(self.after_sync(Reply::ok(&page)));
            }
            _ => {
                let message = format!("data servers do not ask for {}", op.label());
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        };
        Ok(Answer::Now(reply))
    }
}
