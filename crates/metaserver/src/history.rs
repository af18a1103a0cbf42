//! Which journal a metadata directory follows. The journal has a random id, made when it is begun,
//! and the first thing that is written to it is that id, as a record of the metadata. So each
//! directory and each snapshot that follows from the journal has it. A server that has no journal
//! removes it when it starts: from then on its directory has a history of its own.
//!
//! A directory that has the id of an earlier journal begins the next one with it: the next journal
//! then says which one it goes on from. A journal without an id, which an older version of Weir has
//! begun, gets one from the next server that leads.
//!
//! Invariant: a directory joins a journal with an id only if it has this id, or the one that the
//! journal goes on from and
//! - is just what the journal was begun with; or
//! - follows a journal, and was a part of this one when that got its id.

use crate::schema::{self, key};
use weir_metastore::{Begun, Engine, Sequence, Tx, transact};
use weir_types::{Error, ErrorKind, Result};

/// What to do with a directory that is refused.
pub(crate) const EMPTY_IT: &str = "if another metadata server leads, empty it, and it gets a \
     snapshot of that one; never empty the last directory that has the metadata";

/// The id of the journal that a directory follows from; `None` if it has never had one, or has
/// served without it since.
pub(crate) fn of(engine: &dyn Engine) -> Result<Option<[u8; 16]>> {
    match Tx::new(engine).get(key::JOURNAL)? {
        Some(value) => Ok(Some(schema::decode(&value, "of the journal")?)),
        None => Ok(None),
    }
}

/// Fails if a directory does not follow from a journal. `is_replicated`: whether it follows one.
pub(crate) fn check(engine: &dyn Engine, begun: Begun, is_replicated: bool) -> Result<()> {
    let (here, at): (Sequence, Sequence) = (engine.sequence(), begun.at);
    let is_part = here == at || begun.adopted && is_replicated && here <= at;
    let why = match of(engine)? {
        Some(id) if id == begun.id => return Ok(()),
        from if from == begun.from && is_part => return Ok(()),
        Some(_) => format!(
            "it has operations up to {here} and belongs to another journal, one of before or of \
             another cluster, and this journal was begun after operation {at}"
        ),
        None => format!(
            "it has operations up to {here} and follows no journal, and this journal was begun \
             after operation {at}: it has served without the journal"
        ),
    };
    let what = format!("the metadata directory is not one of this journal: {why}; {EMPTY_IT}");
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
