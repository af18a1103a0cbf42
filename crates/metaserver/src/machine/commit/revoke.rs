//! Revocations: their numbers, and what is known of them after a start.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::revoked::{LEAST_MS, Revoked};
use crate::schema::{self, key};
use weir_metastore::{Engine, IdAllocator, Tx, transact};
use weir_types::{ClientId, Error, ErrorKind, FileId, Result};

/// The revocations of a server that starts, and the last number. `lasts_ms` is the longer validity
/// of capabilities and tickets. It may have been longer before: a longer one is recorded, and what
/// was made under it counts.
pub(in crate::machine) fn load(
    engine: &mut dyn Engine,
    ids: &mut IdAllocator,
    lasts_ms: u64,
    now: Moment,
) -> Result<(Revoked, u64)> {
    let mut tx = Tx::new(engine);
    let mut number_in = |key| -> Result<u64> {
        let found = tx.get(key)?;
        let number = found.map(|it| schema::decode::<u64>(&it, "of revocations")).transpose()?;
        Ok(number.unwrap_or(0))
    };
    let (marked, lasted) = (number_in(key::REVOKED)?, number_in(key::LASTED)?.max(LEAST_MS));
    if lasts_ms > lasted {
        let record = schema::encode(&lasts_ms);
        transact(engine, |tx| Ok::<_, Error>(tx.put(key::LASTED, &record)?))?;
    }
    let number = ids.take().ok_or(ErrorKind::Overloaded)?;
    Ok((Revoked::new(lasts_ms.max(lasted), marked, number, now.unix_ms()), number))
}

impl<E: Engine> MetaMachine<E> {
    /// Refuses an operation that may revoke something while there is no number for that.
    ///
    /// # Errors
    /// `Overloaded`.
    pub(in crate::machine) fn require_number(&self) -> Result<()> {
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
    pub(in crate::machine) fn revoke_client(&mut self, client: ClientId, now: Moment) {
        let number = self.number();
        self.revoked.client(client, number, now.unix_ms());
    }

    /// Voids the capabilities for a file. Whoever has it open gets new ones.
    pub(in crate::machine) fn revoke_file(&mut self, file: FileId, now: Moment) {
        let number = self.number();
        self.revoked.file(file, number, now.unix_ms());
    }
}
