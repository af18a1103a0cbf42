//! Connections: the key that a peer has to know, and the session that it joins.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::sessions::{MAX_SESSIONS, Session};
use crate::schema::{self, ClientStanding, SessionRecord, key};
use weir_metastore::{Engine, transact};
use weir_types::{ClientId, Error, ErrorKind, Result, SessionId, check_host};
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::{Key, Level};

impl<E: Engine> MetaMachine<E> {
    /// Sets the lowest level of protection of connections to this server and to data servers.
    pub fn set_protection(&mut self, least: Level) {
        self.protection = least;
    }

    /// The lowest level of protection of connections.
    pub fn protection(&self) -> Level {
        self.protection
    }

    /// The key that a peer has to know, or why it has none.
    ///
    /// # Errors
    /// `AuthFailed`, `SessionExpired`.
    pub fn key_for(&self, hello: &Hello) -> Result<Key> {
        match &hello.identity {
            Identity::Client(client) => {
                if self.standing(*client)? == ClientStanding::Revoked {
                    let message = format!("the key of client {client} has been revoked");
                    return Err(Error::new(ErrorKind::AuthFailed, message));
                }
                self.require_record(*client)?;
                Ok(self.signer.master().client(*client))
            }
            Identity::Server(server) => {
                self.cluster.may_be_there(*server)?;
                Ok(self.signer.server_key(*server))
            }
            Identity::Metadata => Ok(self.signer.master().metadata()),
            Identity::Ticket(..) => Err(Error::new(
                ErrorKind::AuthFailed,
                "this is the metadata server; tickets are for data servers",
            )),
        }
    }

    /// Welcomes an authenticated peer, which joins its session or gets a new one.
    ///
    /// # Errors
    /// `SessionExpired` (open a new one), `Overloaded` (too many sessions), `InvalidArgument` (the
    /// name of its host).
    pub fn welcome(&mut self, hello: &Hello, now: Moment) -> Result<Welcome> {
        self.notice_pause(now);
        check_host(&hello.host)?;
        let session = match hello.identity {
            Identity::Client(client) if hello.session == SessionId(0) => {
                self.new_session(client, &hello.name, now)?
            }
            Identity::Client(client) => {
                let found = self.sessions.by_id.get_mut(&hello.session);
                let found = found.filter(|session| session.client == client);
                found.ok_or(ErrorKind::SessionExpired)?.last_heard_ms = now.monotonic_ms;
                hello.session
            }
            _ => SessionId(0),
        };
        if let Some(session) = self.sessions.by_id.get_mut(&session) {
            session.host.clone_from(&hello.host);
        }
        self.connections += 1;
        let (cluster, instance) = (self.format.cluster, self.instance);
        Ok(Welcome { session, cluster, instance, runs: Vec::new() })
    }

    /// Records that a welcomed connection is gone. Its session goes on, because the client may come
    /// back.
    pub fn disconnected(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    fn new_session(&mut self, client: ClientId, name: &str, now: Moment) -> Result<SessionId> {
        if self.sessions.by_id.len() >= MAX_SESSIONS {
            return Err(Error::new(ErrorKind::Overloaded, "too many sessions"));
        }
        let id = SessionId(self.ids.take().ok_or(ErrorKind::Overloaded)?);
        let name: String = name.chars().take(256).collect();
        let record = SessionRecord { client, name, ended: false };
        let bytes = schema::encode(&record);
        transact(&mut self.engine, |tx| Ok::<_, Error>(tx.put(&key::session(id), &bytes)?))?;
        self.sessions.by_id.insert(id, Session::new(client, now.monotonic_ms, true));
        Ok(id)
    }
}
