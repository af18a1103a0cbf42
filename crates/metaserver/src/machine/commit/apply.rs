//! Effects of operations in memory.

use crate::machine::state::MetaMachine;
use crate::ops::Effects;
use weir_metastore::Engine;
use weir_types::{FileId, SessionId};

impl<E: Engine> MetaMachine<E> {
    /// Applies an operation's effects in memory after its transaction is committed.
    pub(in crate::machine) fn apply(&mut self, session: SessionId, effects: Effects) {
        if effects.fresh_used {
            self.spare_id = None;
        }
        if effects.mirrored {
            self.cluster.is_mirrored();
        }
        self.cluster.given(&effects.primaries, &effects.placed);
        if let Some((file, rights)) = effects.opened {
            self.opens.open(session, file, rights);
        }
        if effects.reasserts_anew {
            self.opens.begin_again(session);
        }
        for (file, rights) in effects.reasserted {
            self.opens.open(session, file, rights);
        }
        for file in effects.closed {
            let by_all = self.opens.close(session, file);
            self.left(session, file, by_all, effects.unconfirmed.contains(&file));
        }
        if let Some(file) = effects.orphaned {
            self.orphans.insert(file);
        }
        if let Some(file) = effects.named {
            self.orphans.remove(&file);
        }
        if let Some(file) = effects.copies {
            self.mover.wished(file);
        }
        if let Some(file) = effects.to_encode {
            self.mover.may_encode(file);
        }
        if effects.makeshift {
            self.mover.makeshift();
        }
        if effects.on_one_server {
            self.cluster.partners.put_together();
        }
        let given = effects.given_while_away.into_iter();
        given.for_each(|target| self.cluster.partners.may_be_used(target));
        if let Some((file, columns)) = effects.losses_accepted {
            let what = "an administrator has accepted the losses of a file";
            tracing::warn!(file = file.0, columns_without_a_copy = columns, "{what}");
        }
        if effects.dead_list {
            self.background.dead_lists = true;
        }
        if let Some(room) = effects.room {
            self.quotas.grants.note(session, room);
        }
        effects.marked_until_ms.into_iter().for_each(|until_ms| self.revoked.marked(until_ms));
        effects.quotas_gone.into_iter().for_each(|subject| self.quotas.forget(subject));
    }

    /// Handles a close that may be the session's last of a file. `by_all` says that no session has
    /// it open. `unconfirmed` says that its writes may still arrive.
    pub(in crate::machine) fn left(
        &mut self,
        session: SessionId,
        file: FileId,
        by_all: bool,
        unconfirmed: bool,
    ) {
        if by_all && self.orphans.contains(&file) {
            self.background.collect(file);
        }
        self.closed(session, file, unconfirmed);
    }

    /// Ends a session's leases on a file after its last close. `unconfirmed` says that its writes
    /// may still arrive.
    fn closed(&mut self, session: SessionId, file: FileId, unconfirmed: bool) {
        if self.opens.rights(session, file).is_some() {
            return;
        }
        self.quotas.grants.release(session, file);
        if unconfirmed {
            self.leases.disown(session, file);
        }
        if self.leases.ranges.drop_file(session, file) || unconfirmed {
            self.leases.waiting.file_changed(file);
        }
    }
}
