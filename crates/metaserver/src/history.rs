//! Which journal a metadata directory follows. The journal has a random id, made when it is begun,
//! and the first thing that is written to it is that id, as a record of the metadata. So each
//! directory and each snapshot that follows from the journal has it. A server that has no journal
//! removes it when it starts: from then on its directory has a history of its own.
//!
//! Invariant: a directory joins a journal only if it has the journal's id, or has none and is just
//! what the journal was begun with.

use crate::schema::{self, key};
use weir_metastore::{Begun, Engine, Sequence, Tx, transact};
use weir_types::{Error, ErrorKind, Result};

/// The id of the journal that a directory follows from; `None` if it has never had one, or has
/// served without it since.
fn of(engine: &dyn Engine) -> Result<Option<[u8; 16]>> {
    match Tx::new(engine).get(key::JOURNAL)? {
        Some(value) => Ok(Some(schema::decode(&value, "of the journal")?)),
        None => Ok(None),
    }
}

/// Fails if a directory does not follow from a journal.
pub(crate) fn check(engine: &dyn Engine, begun: Begun) -> Result<()> {
    let (here, at): (Sequence, Sequence) = (engine.sequence(), begun.at);
    let why = match of(engine)? {
        Some(id) if id == begun.id => return Ok(()),
        Some(_) => "it belongs to another journal, one of before or of another cluster".to_owned(),
        None if here == at => return Ok(()),
        None => format!(
            "it has operations up to {here} and follows no journal, and this journal was begun \
             after operation {at}: it has served without the journal"
        ),
    };
    let what = format!(
        "the metadata directory is not one of this journal: {why}; empty it, and it gets a snapshot \
         of the metadata server that leads"
    );
    Err(Error::new(ErrorKind::Corrupt, what))
}

/// Writes the id of the journal, as the first thing that is written to it.
pub(crate) fn follow<E: Engine>(engine: &mut E, id: [u8; 16]) -> Result<()> {
    if of(engine)? == Some(id) {
        return Ok(());
    }
    let record = schema::encode(&id);
    transact(engine, |tx| Ok::<_, Error>(tx.put(key::JOURNAL, &record)?))?;
    engine.flush().map(drop)
}

/// Removes the id: this directory goes on without a journal.
pub(crate) fn leave<E: Engine>(engine: &mut E) -> Result<()> {
    if of(engine)?.is_none() {
        return Ok(());
    }
    transact(engine, |tx| Ok::<_, Error>(tx.delete(key::JOURNAL)?))?;
    engine.flush().map(drop)
}
