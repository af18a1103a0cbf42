//! The records of clients: administrators set what each may do.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::{self, ClientRecord, Inode, key};
use std::ops::Bound;
use weir_metastore::{Engine, Tx, transact};
use weir_types::restrictions::needs_record;
use weir_types::{
    ClientId, ClientStanding, Error, ErrorKind, FileId, FileKind, Restrictions, Result,
};
use weir_wire::meta::{ClientInfo, ClientPage};

/// The most client records.
const MAX_CLIENTS: usize = 65_536;
/// Clients in one reply.
const PAGE: usize = 1024;
/// The longest name of a client, bytes.
const MAX_NAME_BYTES: usize = 256;

impl<E: Engine> MetaMachine<E> {
    /// Sets what a client may do. Its sessions end, because they have opened files under the old
    /// rights; on data servers, too, which are told with their next heartbeat.
    pub(in crate::machine) fn set_client(
        &mut self,
        asker: ClientId,
        info: ClientInfo,
        now: Moment,
    ) -> Result<()> {
        self.require_administrator(asker)?;
        self.check_client(asker, &info)?;
        let ClientInfo { client, name, standing, restrictions } = info;
        let record = ClientRecord { standing, name, restrictions };
        let bytes = schema::encode(&record);
        // A key that was just made has nothing yet.
        let is_new = needs_record(client) && !self.clients.by_id.contains_key(&client);
        self.require_number()?;
        let (marked, _) = transact(&mut self.engine, |tx| {
            tx.put(&key::client(client), &bytes)?;
            Ok::<_, Error>(if is_new { None } else { self.revoked.mark(tx, now.unix_ms())? })
        })?;
        marked.into_iter().for_each(|until_ms| self.revoked.marked(until_ms));
        self.clients.by_id.insert(client, record);
        if !is_new {
            self.revoke_client(client, now);
        }
        let all = self.sessions.by_id.iter();
        let ended: Vec<_> = all.filter(|(_, s)| s.client == client).map(|(id, _)| *id).collect();
        ended.into_iter().try_for_each(|session| self.end_session(session, false))
    }

    fn check_client(&self, asker: ClientId, info: &ClientInfo) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::InvalidArgument, why));
        if info.client == asker {
            return wrong(format!(
                "client {asker} cannot change its own key: use another administrator's credential"
            ));
        }
        if info.name.len() > MAX_NAME_BYTES {
            return wrong(format!("a client's name has at most {MAX_NAME_BYTES} bytes"));
        }
        info.restrictions.check()?;
        let administers = info.standing == ClientStanding::Administrator;
        if administers && info.restrictions != Restrictions::NONE {
            return wrong("an administrator reads all metadata: it cannot be restricted".into());
        }
        let mut all = self.clients.by_id.iter();
        if let Some((other, _)) = all.find(|(id, record)| {
            **id != info.client && !info.name.is_empty() && record.name == info.name
        }) {
            let message =
                format!("client {other} has the name '{}' already: take another one", info.name);
            return Err(Error::new(ErrorKind::Exists, message));
        }
        let known = self.clients.by_id.contains_key(&info.client);
        if !known && self.clients.by_id.len() >= MAX_CLIENTS {
            let message = format!("{MAX_CLIENTS} clients are kept already, which is the most");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        info.restrictions.subtree.map_or(Ok(()), |dir| self.check_subtree(dir))
    }

    fn check_subtree(&self, dir: FileId) -> Result<()> {
        let Some(bytes) = Tx::new(&self.engine).get(&key::inode(dir))? else {
            let message = format!("there is no directory {dir} to be the subtree of a client");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let inode: Inode = schema::decode(&bytes, "of an inode")?;
        if inode.kind != FileKind::Directory {
            let message = format!("file {dir} is no directory, so no subtree of a client");
            return Err(Error::new(ErrorKind::NotDirectory, message));
        }
        Ok(())
    }

    /// Clients with greater ids than this one.
    pub(in crate::machine) fn list_clients(
        &self,
        asker: ClientId,
        after: ClientId,
    ) -> Result<ClientPage> {
        self.require_administrator(asker)?;
        let rest = self.clients.by_id.range((Bound::Excluded(after), Bound::Unbounded));
        let info = |(&client, record): (&ClientId, &ClientRecord)| ClientInfo {
            client,
            name: record.name.clone(),
            standing: record.standing,
            restrictions: record.restrictions,
        };
        let clients: Vec<_> = rest.take(PAGE).map(info).collect();
        let end = clients.len() < PAGE;
        Ok(ClientPage { clients, end })
    }
}
