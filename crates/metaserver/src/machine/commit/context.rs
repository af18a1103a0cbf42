//! What an operation sees besides the request and the store.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::ops::{Context, Effects, confine};
use weir_metastore::{Engine, Tx};
use weir_types::{Caller, FileId, Result, SessionId};

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn context<'a>(
        &'a self,
        session: SessionId,
        caller: &'a Caller,
        fresh: FileId,
        now: Moment,
    ) -> Context<'a> {
        Context {
            now: now.unix,
            caller,
            limits: self.limits_of(session),
            session,
            host: self.sessions.by_id.get(&session).map_or("", |session| &session.host),
            fresh,
            cluster: &self.cluster.view,
            servers: &self.cluster.servers,
            opens: &self.opens,
            signer: &self.signer,
            revoked: &self.revoked,
            quotas: &self.quotas,
            leases: &self.leases,
            default_layout: &self.format.default_layout,
            effects: Effects::default(),
        }
    }

    /// Whether a session's client may know all these files.
    pub(in crate::machine) fn reaches_all(
        &self,
        session: SessionId,
        files: &[FileId],
    ) -> Result<bool> {
        if self.limits_of(session).subtree.is_none() {
            return Ok(true);
        }
        let caller = Caller::ROOT;
        let ctx = self.context(session, &caller, FileId(0), Moment::default());
        let mut tx = Tx::new(&self.engine);
        for file in files {
            if !confine::reaches(&mut tx, &ctx, *file).map_err(fault)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
