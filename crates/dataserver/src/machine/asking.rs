//! Requests about the load of a target and its readers.

use super::{Action, Body, Incoming, Machine};
use weir_types::Result;
use weir_types::codec::Decode;
use weir_wire::Header;
use weir_wire::data::{ListReadersRequest, LoadRequest};

/// The most readers in one page.
const MAX_READERS_PAGE: usize = 4096;

impl<C: Copy> Machine<C> {
    /// Replies with the load that the reply to a read would have.
    pub(super) fn load(&self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let request = LoadRequest::from_bytes(incoming.body)?;
        let target = self.served(request.target)?;
        let mut header = Header::reply_to(incoming.header, None);
        let nothing = (request.first, 0, false);
        target.load.is_read(incoming.header, nothing, incoming.now_unix_ms);
        target.load.say(incoming.header, &mut header);
        Ok(Action::Reply { conn: incoming.conn, header, body: Body::Empty, data_of: None })
    }

    /// Lists the readers.
    pub(super) fn list_readers(&self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ListReadersRequest { target, after, max_readers } =
            ListReadersRequest::from_bytes(incoming.body)?;
        let target = self.served(target)?;
        let max = (max_readers as usize).clamp(1, MAX_READERS_PAGE);
        let page = target.load.readers.lock().at(incoming.now_unix_ms).page(after, max);
        let header = Header::reply_to(incoming.header, None);
        Ok(Action::Reply { conn: incoming.conn, header, body: Body::Readers(page), data_of: None })
    }
}
