//! Looks at files without changing them, and at which targets are online.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::mover::sites::Sites;
use crate::ops::move_copies::{self, Look, Means};
use crate::ops::parities::Writers;
use std::collections::BTreeSet;
use weir_metastore::{Engine, Tx};
use weir_types::{FileId, Result, TargetId};
use weir_wire::map::TargetState;

impl<E: Engine> MetaMachine<E> {
    /// Online targets according to the present map, and not to the last tick: a target that has
    /// ordered until now does not know what others lack.
    pub(super) fn online(&self) -> BTreeSet<TargetId> {
        let all = self.cluster.all().into_iter();
        let online = all.filter(|(_, t)| t.state == TargetState::Online);
        online.map(|(_, t)| t.target).collect()
    }

    /// Looks at a file without changing it.
    pub(super) fn look(
        &mut self,
        file: FileId,
        from: u64,
        scratch: &mut Sites,
        now: Moment,
    ) -> Result<Option<Look>> {
        let relieved = &self.mover.relieved;
        let (most, room, filled) = (usize::MAX, usize::MAX, &[][..]);
        let writers = self.writers(now);
        let mut means = Means { sites: scratch, relieved, most, room, filled, writers };
        let mut tx = Tx::new(&self.engine);
        let look = move_copies::look(&mut tx, file, from, &mut means).map_err(fault)?;
        self.mover.left |= look.as_ref().is_some_and(|look| look.stuck > 0 || look.makeshift);
        if look.as_ref().is_some_and(|look| look.waits_for_removal) {
            self.mover.look_again(file, now);
        }
        Ok(look)
    }

    /// Who writes files or waits to, and where room is short.
    pub(super) fn writers(&self, now: Moment) -> Writers<'_> {
        let (awaited, short) = (&self.mover.awaited, &self.mover.short);
        Writers { opens: &self.opens, awaited, short, now: now.unix }
    }
}
