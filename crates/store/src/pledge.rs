//! Changes that are under way on several copies at once.

use crate::backing::Backing;
use crate::object::Object;
use std::sync::Arc;
use weir_types::Result;

/// The promise that pieces of an object are suspect if the target stops uncleanly while this
/// exists. Checkpoints keep their marks, and the target is not closed as one that has nothing to
/// recover.
///
/// Drop it when the outcome of the change is known, durably where that is needed: every copy has
/// confirmed it, or gaps are noted for those that have not. If the outcome cannot be found out,
/// forget the pledge ([`std::mem::forget`]).
pub struct Pledge {
    backing: Arc<Backing>,
    number: u64,
}

impl Object {
    /// See [`crate::Target::pledge`].
    pub(crate) fn pledge(&self, pieces: &[(u64, u64)]) -> Result<Pledge> {
        let nothing = pieces.iter().all(|piece| piece.1 == 0);
        // A change without bytes is represented by the object's first byte.
        let pieces = if nothing { &[(0, 1)] } else { pieces };
        let mut change = self.begin_change()?;
        self.cover(&mut change, pieces)?;
        // No checkpoint can intervene, because the change holds the era.
        let number = self.backing().intents()?.pledge(self.id(), pieces, self.len())?;
        Ok(Pledge { backing: self.backing().clone(), number })
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        if let Some(log) = self.backing.log() {
            log.release(self.number);
        }
    }
}
