//! Requests of administrators who check the file system.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::{Engine, Verified};
use weir_types::limits::MAX_LIST_LEN;
use weir_types::{ClientId, ErrorKind, FileId, Result, SessionId};
use weir_wire::SignedCapability;
use weir_wire::meta::VerifiedMeta;

/// The most files in one query.
const MAX_COUNTED_FILES: usize = 4096;

impl<E: Engine> MetaMachine<E> {
    /// A capability for all objects of all targets.
    pub(in crate::machine) fn admin_capability(
        &self,
        client: ClientId,
        session: SessionId,
        now: Moment,
    ) -> Result<SignedCapability> {
        self.require_administrator(client)?;
        let targets = self.cluster.view.targets.iter().map(|t| t.target);
        Ok(self.signer.sign_for_administrator(session, now.unix_ms(), targets))
    }

    /// Compares some on-disk data with its checksums.
    pub(in crate::machine) fn verify_meta(
        &mut self,
        client: ClientId,
        place: u64,
    ) -> Result<VerifiedMeta> {
        self.require_administrator(client)?;
        let Verified { mut damage, bytes, next } = self.engine.verify(place)?;
        damage.truncate(MAX_LIST_LEN);
        Ok(VerifiedMeta { damage, bytes, next })
    }

    /// Number of sessions that have each file open.
    pub(in crate::machine) fn count_opens(
        &self,
        client: ClientId,
        files: &[FileId],
    ) -> Result<Vec<u32>> {
        self.require_administrator(client)?;
        if files.len() > MAX_COUNTED_FILES {
            return Err(ErrorKind::TooBig.into());
        }
        Ok(files.iter().map(|&file| self.opens.sessions_with(file)).collect())
    }
}
