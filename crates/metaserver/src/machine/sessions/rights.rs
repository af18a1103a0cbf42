//! What the client of a session may do. The record of its key in the store says it: also whether
//! it is an administrator. The client made with the file system is the first.

use crate::machine::state::MetaMachine;
use crate::schema::{self, ClientRecord, ClientStanding, key};
use weir_metastore::{Engine, Tx};
use weir_types::restrictions::needs_record;
use weir_types::{ClientId, Error, ErrorKind, FileId, Restrictions, Result, SessionId};

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn standing(&self, client: ClientId) -> Result<ClientStanding> {
        let record = Tx::new(&self.engine).get(&key::client(client))?;
        let record =
            record.map(|r| schema::decode::<ClientRecord>(&r, "of a client")).transpose()?;
        Ok(record.map(|r| r.standing).unwrap_or_default())
    }

    /// Refuses every client that is not an administrator now, whatever it was when its session
    /// began.
    ///
    /// # Errors
    /// `NotAdministrator`.
    pub(in crate::machine) fn require_administrator(&self, client: ClientId) -> Result<()> {
        if self.standing(client)? == ClientStanding::Administrator {
            return Ok(());
        }
        let message = format!(
            "client {client} is not an administrator: use the credential that `weir up` made, \
             client.toml in the state directory"
        );
        Err(Error::new(ErrorKind::NotAdministrator, message))
    }

    /// Refuses a client whose record existed once and is lost.
    ///
    /// # Errors
    /// `AuthFailed`.
    pub(in crate::machine) fn require_record(&self, client: ClientId) -> Result<()> {
        if !needs_record(client) || self.clients.by_id.contains_key(&client) {
            return Ok(());
        }
        let message = format!(
            "what client {client} may do is not known any more (was the metadata restored from \
             an older export?): make a new key with `weir key new`"
        );
        Err(Error::new(ErrorKind::AuthFailed, message))
    }

    /// Restrictions of a session's client. The server itself has none.
    pub(in crate::machine) fn limits_of(&self, session: SessionId) -> Restrictions {
        let session = self.sessions.by_id.get(&session);
        session.map_or(Restrictions::NONE, |session| self.clients.limits(session.client))
    }

    /// The directory that is the root for a session's client.
    pub(in crate::machine) fn root_of(&self, session: SessionId) -> FileId {
        self.limits_of(session).subtree.unwrap_or(FileId::ROOT)
    }
}
