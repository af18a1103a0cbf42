//! What was changed and not synced yet, and whether a sync has made all of it durable.
//!
//! A change that a server acknowledged may still be in its memory alone. Should its
//! machine start anew before the sync, the change is lost, and the sync has to say so.
//!
//! Of a column with several copies, every copy that was online when the change was made
//! has it, and a target that comes online again has been brought up to date by one that
//! was online meanwhile. So the change is lost only if there was a moment since at which
//! none of these targets was online: while there always is one, it has the change, what
//! it has the others have or are given before they are online, and the primary that
//! answered the sync had it, and has made it durable everywhere. (A target that is the
//! last one online, and whose machine starts anew, counts as one that was away.) The map
//! says when each target was online ([`TargetEntry::online`]). And where none of the targets
//! has lost anything since ([`TargetEntry::anew`]), the first that is back has all.
//! Otherwise the sync fails. Of a change that was put off for the others only the target
//! that took it is sure to have it.
//!
//! That holds only under a map from after the sync was answered, and for whole copies that
//! the column had when the change was made. It does not help a column whose only copy is
//! where it was: a target with nothing to be brought up to date with may be online again
//! before anybody missed it. Only the run of its machine tells.
//!
//! [`TargetEntry::online`]: weir_wire::map::TargetEntry::online

use super::plan::Place;
use std::collections::BTreeMap;
use weir_types::{Epoch, Error, ErrorKind, ObjectId, Result, TargetId};

/// Which server has taken a change, and which copies got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The run of the server's machine; `None`: several took changes of this column.
    pub by: Option<u64>,
    /// The epoch of the map when the (first) change was sent.
    pub epoch: Epoch,
    /// The targets of all copies then; of the one that took it if it was put off for the
    /// others.
    pub copies: Vec<TargetId>,
}

impl Taken {
    /// A later change of the same column. What is said of both is what holds for both.
    fn and(&mut self, later: Taken) {
        if self.by != later.by {
            self.by = None;
        }
        self.epoch = self.epoch.min(later.epoch);
        self.copies.retain(|target| later.copies.contains(target));
    }
}

/// A column that is to be synced.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Where it is.
    pub place: Place,
    /// `None`: nobody has confirmed anything.
    pub taken: Option<Taken>,
}

/// The columns of a file that were changed since the last sync, by their first object.
#[derive(Debug, Default)]
pub struct Unsynced(BTreeMap<ObjectId, Changed>);

impl Unsynced {
    /// A change of a column is about to be sent.
    pub fn sent(&mut self, place: Place) {
        self.0.entry(place.column()).or_insert(Changed { place, taken: None });
    }

    /// A change of a column was confirmed.
    pub fn confirmed(&mut self, place: Place, taken: Taken) {
        let changed = self.0.entry(place.column()).or_insert(Changed { place, taken: None });
        match &mut changed.taken {
            Some(before) => before.and(taken),
            none => *none = Some(taken),
        }
    }

    /// All, in order of their objects.
    pub fn all(&self) -> impl Iterator<Item = &Changed> {
        self.0.values()
    }

    /// What was not synced after all is still to be synced.
    pub fn put_back(&mut self, all: Unsynced) {
        for Changed { place, taken } in all.0.into_values() {
            self.sent(place);
            if let Some(taken) = taken {
                self.confirmed(place, taken);
            }
        }
    }

    /// Nothing is left.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The columns of which the machine that answered the sync is not the one that took
    /// the changes, and those that several copies have: the one that took them may have been away
    /// meanwhile, and have been given what another one had that has lost them. `synced_by`:
    /// one for each of [`Unsynced::all`].
    pub fn in_doubt<'a>(
        &'a self,
        synced_by: &'a [Option<u64>],
    ) -> impl Iterator<Item = &'a Changed> {
        let pairs = self.0.values().zip(synced_by);
        let doubtful = |(changed, by): &(&Changed, &Option<u64>)| {
            let is_other = |taken: &Taken| taken.by.is_none() || taken.by != **by;
            changed.taken.as_ref().is_some_and(|t| t.copies.len() > 1 || is_other(t))
        };
        pairs.filter(doubtful).map(|(changed, _)| changed)
    }
}

/// A time in which a target was online: from this epoch on until that one, if it is over.
pub type Online = (Epoch, Option<Epoch>);

/// Whether one of these targets, or another, was online at every moment since an epoch:
/// before one went another had come.
fn always_one(online: &[Online], since: Epoch) -> bool {
    let mut at = since;
    loop {
        let here = |(from, until): &&Online| *from <= at && until.is_none_or(|until| until > at);
        let ends = online.iter().filter(here).map(|(_, until)| *until);
        // No end is the latest.
        let last = ends.max_by_key(|until| until.map_or(u64::MAX, |until| until.0));
        match last {
            None => return false,
            Some(None) => return true,
            // At the last epoch of that one.
            Some(Some(until)) if until.0 - 1 > at.0 => at = Epoch(until.0 - 1),
            Some(Some(_)) => return false,
        }
    }
}

/// Whether what was changed is durable after a sync that another machine answered. `now`:
/// the targets of the column's copies. `online` says when a target was online, and `anew`
/// since when it is known to have kept everything, by a map from after the answer.
///
/// # Errors
/// `Io` if it may be lost.
pub fn require_kept(
    changed: &Changed,
    now: &[TargetId],
    online: impl Fn(TargetId) -> Vec<Online>,
    anew: impl Fn(TargetId) -> Option<Epoch>,
) -> Result<()> {
    let Some(taken) = &changed.taken else { return Ok(()) };
    let only = match (&taken.copies[..], now) {
        ([then], [now]) if then == now => Some(*now),
        _ => None,
    };
    let times = || taken.copies.iter().flat_map(|target| online(*target)).collect::<Vec<_>>();
    let keeps = |target: &TargetId| anew(*target).is_some_and(|anew| anew <= taken.epoch);
    let all_keep = || taken.copies.iter().all(keeps);
    if only.is_none() && (all_keep() || always_one(&times(), taken.epoch)) {
        return Ok(());
    }
    let what = match only {
        Some(target) => format!(
            "target {target}: its machine was started anew since some of this was written, and \
             what was not synced before may be gone: write it again"
        ),
        None => format!(
            "file {}, column {}: the machines of all its copies were started anew, or were away, \
             at the same time since some of this was written, and what was not synced before may \
             be gone: write it again",
            changed.place.object.file, changed.place.object.column
        ),
    };
    Err(Error::new(ErrorKind::Io, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    fn place(copy: u8) -> Place {
        let (segment, column) = (SegmentIndex(0), ColumnIndex(0));
        let object = ObjectId { file: FileId(5), segment, column, copy: CopyIndex(copy) };
        Place { object, target: TargetId(u32::from(copy) + 1), mirrored: true }
    }

    fn taken(by: u64, epoch: u64, copies: &[u32]) -> Taken {
        let copies = copies.iter().map(|t| TargetId(*t)).collect();
        Taken { by: Some(by), epoch: Epoch(epoch), copies }
    }

    /// The result of a sync that machine `by` answered; copy n is on target n, which is
    /// online since `since[n - 1]`.
    fn sync(unsynced: &Unsynced, by: u64, since: &[Option<u64>]) -> Result<()> {
        let now: Vec<_> = (1..=since.len() as u32).map(TargetId).collect();
        let online = |target: TargetId| {
            since[target.0 as usize - 1].map(|since| (Epoch(since), None)).into_iter().collect()
        };
        unsynced
            .in_doubt(&[Some(by)])
            .try_for_each(|changed| require_kept(changed, &now, online, |_| None))
    }

    #[test]
    fn a_write_to_one_copy_is_lost_if_its_machine_started_anew() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(Place { mirrored: false, ..place(0) }, taken(7, 3, &[1]));
        sync(&unsynced, 7, &[Some(9)]).unwrap();
        let error = sync(&unsynced, 8, &[Some(1)]).unwrap_err();
        assert!(error.kind == ErrorKind::Io && error.message.starts_with("target 1: its machine"));
    }

    #[test]
    fn a_write_that_was_put_off_is_lost_if_the_machine_that_took_it_started_anew() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1]));
        let error = sync(&unsynced, 8, &[Some(9), Some(1)]).unwrap_err();
        assert!(error.kind == ErrorKind::Io, "the other copy may never have got it");
        sync(&unsynced, 8, &[Some(1), Some(9)]).unwrap();
        let changed = unsynced.in_doubt(&[Some(8)]).next().unwrap();
        let (now, away) = ([TargetId(1), TargetId(2)], |_| Vec::new());
        let kept = |anew| require_kept(changed, &now, away, move |_| Some(Epoch(anew)));
        kept(2).unwrap();
        kept(4).unwrap_err();
    }

    #[test]
    fn a_write_to_two_copies_is_lost_only_if_both_were_away() {
        let mut unsynced = Unsynced::default();
        unsynced.sent(place(0));
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        sync(&unsynced, 8, &[None, Some(3)]).unwrap();
        sync(&unsynced, 8, &[Some(2), Some(6)]).unwrap();
        assert!(sync(&unsynced, 8, &[None, Some(4)]).is_err(), "back since, without the write");
        assert!(sync(&unsynced, 8, &[None, None]).is_err());
    }

    /// As when the first one is away, the other one loses its machine, and is the one that
    /// has more by the map as both are back.
    #[test]
    fn the_run_of_the_machine_does_not_vouch_for_a_copy_that_was_away_meanwhile() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        assert!(sync(&unsynced, 7, &[Some(9), Some(8)]).is_err());
        sync(&unsynced, 7, &[Some(3), Some(8)]).unwrap();
        // One that is being made has nothing of it.
        let mut single = Unsynced::default();
        single.confirmed(place(0), taken(7, 3, &[1]));
        assert!(single.in_doubt(&[Some(7)]).next().is_none());
        // Nobody has lost anything.
        let (now, away) = ([TargetId(1), TargetId(2)], |_| Vec::new());
        let changed = unsynced.in_doubt(&[Some(7)]).next().unwrap();
        require_kept(changed, &now, away, |_| Some(Epoch(3))).unwrap();
    }

    #[test]
    fn a_write_is_kept_while_one_of_its_copies_was_there_at_any_moment() {
        let always = |online: &[(u64, u64)], since: u64| {
            let online = online.iter().map(|(from, until)| {
                (Epoch(*from), Some(Epoch(*until)).filter(|until| until.0 > 0))
            });
            always_one(&online.collect::<Vec<_>>(), Epoch(since))
        };
        assert!(always(&[(1, 4), (6, 0), (1, 8), (9, 0)], 3), "each was away once");
        assert!(always(&[(1, 4), (3, 6), (5, 8), (7, 0)], 3), "one came before another went");
        assert!(!always(&[(1, 4), (4, 0)], 3), "it began anew");
        assert!(!always(&[(1, 4), (6, 0), (1, 6), (9, 0)], 3), "as one came the other went");
        assert!(!always(&[(1, 4), (6, 0), (1, 5), (9, 0)], 3));
        assert!(always(&[(1, 4), (6, 0), (1, 5), (9, 0)], 6));
        assert!(!always(&[(4, 0)], 3) && always(&[(3, 0)], 3) && !always(&[(1, 3)], 3));
        assert!(!always(&[], 0) && !always(&[(0, 1)], 0) && always(&[(0, 0)], 0));
    }

    /// As when the target of a file with one copy is drained while it is written.
    #[test]
    fn a_write_whose_only_copy_has_moved_is_not_lost() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(Place { mirrored: false, ..place(0) }, taken(7, 3, &[1]));
        unsynced.confirmed(place(0), taken(7, 4, &[1, 2]));
        let online = |target: TargetId| match target.0 {
            1 => vec![(Epoch(2), None)],
            _ => Vec::new(),
        };
        for changed in unsynced.in_doubt(&[Some(8)]) {
            require_kept(changed, &[TargetId(2)], online, |_| None).unwrap();
            assert!(require_kept(changed, &[TargetId(2)], |_| Vec::new(), |_| None).is_err());
        }
    }

    #[test]
    fn a_copy_that_was_added_after_the_write_does_not_vouch_for_it() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 5, &[1, 2]));
        unsynced.confirmed(place(0), taken(7, 6, &[1, 3]));
        assert!(sync(&unsynced, 8, &[None, Some(1), Some(1)]).is_err());
        sync(&unsynced, 8, &[Some(5), None, None]).unwrap();
    }

    /// As when the primary goes, the next one takes writes and goes, too, and the first is
    /// back: its run is the same, but it may lack what the other took.
    #[test]
    fn the_run_of_the_machine_vouches_only_for_what_it_took_itself() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        unsynced.confirmed(place(1), taken(8, 4, &[1, 2]));
        assert_eq!(unsynced.all().count(), 1, "one column, whichever copy took it");
        assert!(sync(&unsynced, 7, &[Some(6), Some(9)]).is_err());
    }

    #[test]
    fn what_was_not_synced_is_still_remembered() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        let before = std::mem::take(&mut unsynced);
        unsynced.confirmed(place(0), taken(8, 4, &[1, 2]));
        unsynced.put_back(before);
        assert!(sync(&unsynced, 8, &[Some(4), Some(4)]).is_err());
        sync(&unsynced, 8, &[Some(3), None]).unwrap();
    }
}
