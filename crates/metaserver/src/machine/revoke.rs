//! Revocations: their numbers, and what is known of them after a start.

use super::{MetaMachine, Moment};
use crate::revoked::Revoked;
use crate::schema::{self, key};
use weir_metastore::{Engine, IdAllocator, Tx};
use weir_types::{ClientId, ErrorKind, FileId, Result};

/// The revocations of a server that starts, and the last number.
pub(super) fn load(
    engine: &dyn Engine,
    ids: &mut IdAllocator,
    lasts_ms: u64,
    now: Moment,
) -> Result<(Revoked, u64)> {
    let marked = Tx::new(engine).get(key::REVOKED)?;
    let marked = marked.map(|it| schema::decode::<u64>(&it, "of revocations")).transpose()?;
    let number = ids.take().ok_or(ErrorKind::Overloaded)?;
    Ok((Revoked::new(lasts_ms, marked.unwrap_or(0), number, now.unix_ms()), number))
}

impl<E: Engine> MetaMachine<E> {
    /// Refuses an operation that may revoke something while there is no number for that.
    ///
    /// # Errors
    /// `Overloaded`.
    pub(super) fn require_number(&self) -> Result<()> {
        match self.ids.available() {
            0 => Err(ErrorKind::Overloaded.into()),
            _ => Ok(()),
        }
    }

    /// A number after everything that was made before.
    fn number(&mut self) -> u64 {
        let number = self.ids.take().unwrap_or(self.signer.version());
        debug_assert!(number > self.signer.version());
        self.signer.revoked(number);
        number
    }

    /// Ends a client's sessions on data servers, too.
    pub(super) fn revoke_client(&mut self, client: ClientId, now: Moment) {
        let number = self.number();
        self.revoked.client(client, number, now.unix_ms());
    }

    /// Voids the capabilities for a file. Whoever has it open gets new ones.
    pub(super) fn revoke_file(&mut self, file: FileId, now: Moment) {
        let number = self.number();
        self.revoked.file(file, number, now.unix_ms());
    }
}
