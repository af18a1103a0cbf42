//! Changes that were not synced yet, and whether a sync has made all of them durable.
//!
//! An acknowledged change may still be in the server's memory alone. If the server's machine
//! restarts before the sync, the change is lost, and the sync has to report that.
//!
//! In a column with several copies, every copy that was online at the change has it, and a target
//! that comes online again was brought up to date by one that was online meanwhile. So the change
//! is lost only if there was a moment since at which none of these targets was online. While there
//! always is one, that target has the change, the others have it or get it before they are online,
//! and the primary that answered the sync had it and has made it durable everywhere. (The last
//! online target counts as away if its machine restarts.) The map says when each target was online
//! ([`TargetEntry::online`]). All targets may be away after the epoch from which none has lost
//! anything ([`TargetEntry::anew`]): the first that returns has all changes. Otherwise the sync
//! fails. If a change was postponed for the other copies, only the target that took it certainly
//! has it.
//!
//! That holds only under a map from after the sync was answered, and for whole copies that
//! the column had when the change was made. It does not help a column whose only copy is
//! where it was: a target with nothing to be brought up to date with may be online again
//! before anybody missed it. Only the run of its disk tells.
//!
//! [`TargetEntry::online`]: weir_wire::map::TargetEntry::online

use super::plan::Place;
use std::collections::BTreeMap;
use weir_types::{Epoch, Error, ErrorKind, ObjectId, Result, TargetId};

/// The most changes of a column that are kept apart because different copies got them.
const MAX_KEPT_APART: usize = 16;

/// The server that has taken a change, and the copies that got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The run of the target's disk; `None`: not known, or of several.
    pub by: Option<u64>,
    /// Epoch of the map when the first such change was sent.
    pub epoch: Epoch,
    /// Targets of all copies at that time. If the change was postponed for the others, only the
    /// target that took it.
    pub copies: Vec<TargetId>,
}

impl Taken {
    /// Merges a later change of the same column. The result holds for both.
    fn and(&mut self, later: &Taken) {
        if self.by != later.by {
            self.by = None;
        }
        self.epoch = self.epoch.min(later.epoch);
        self.copies.retain(|target| later.copies.contains(target));
    }
}

/// A column that has to be synced.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Its place.
    pub place: Place,
    /// Confirmed changes. Changes that different copies got are kept apart, for example those that
    /// were postponed under one primary and under the next, because each can be lost alone.
    pub taken: Vec<Taken>,
}

impl Changed {
    fn confirmed(&mut self, taken: Taken) {
        let same = self.taken.iter().position(|before| before.copies == taken.copies);
        let is_full = self.taken.len() >= MAX_KEPT_APART;
        match same.or(is_full.then_some(MAX_KEPT_APART - 1)) {
            Some(at) => self.taken[at].and(&taken),
            None => self.taken.push(taken),
        }
    }
}

/// Columns of a file with changes since the last sync, by their first object.
#[derive(Debug, Default)]
pub struct Unsynced(BTreeMap<ObjectId, Changed>);

impl Unsynced {
    /// Records that a change of a column is about to be sent.
    pub fn sent(&mut self, place: Place) {
        self.0.entry(place.column()).or_insert(Changed { place, taken: Vec::new() });
    }

    /// Records that a change of a column was confirmed.
    pub fn confirmed(&mut self, place: Place, taken: Taken) {
        let changed = self.0.entry(place.column());
        changed.or_insert(Changed { place, taken: Vec::new() }).confirmed(taken);
    }

    /// All columns, in the order of their objects.
    pub fn all(&self) -> impl Iterator<Item = &Changed> {
        self.0.values()
    }

    /// Puts back columns whose sync has failed.
    pub fn put_back(&mut self, all: Unsynced) {
        for Changed { place, taken } in all.0.into_values() {
            self.sent(place);
            taken.into_iter().for_each(|taken| self.confirmed(place, taken));
        }
    }

    /// Forgets all columns.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Changes that may be lost: those that another machine took than the one that answered the
    /// sync, and those of columns with several copies. The machine that took a change of several
    /// copies may have been away meanwhile, and may have received the bytes of a copy that has lost
    /// the change. `synced_by` has one entry for each of [`Unsynced::all`].
    pub fn in_doubt<'a>(
        &'a self,
        synced_by: &'a [Option<u64>],
    ) -> impl Iterator<Item = (Place, &'a Taken)> {
        self.0.values().zip(synced_by).flat_map(|(changed, by)| {
            let is_other = |taken: &Taken| taken.by.is_none() || taken.by != *by;
            let doubtful = move |taken: &&Taken| taken.copies.len() > 1 || is_other(taken);
            changed.taken.iter().filter(doubtful).map(|taken| (changed.place, taken))
        })
    }
}

/// A period in which a target was online: from an epoch, until another one unless it is still
/// online.
pub type Online = (Epoch, Option<Epoch>);

/// Whether at every moment between two epochs (the second may be open) at least one of these
/// targets was online.
fn always_one(online: &[Online], since: Epoch, until: Option<Epoch>) -> bool {
    let mut at = since;
    loop {
        let here = |(from, until): &&Online| *from <= at && until.is_none_or(|until| until > at);
        let ends = online.iter().filter(here).map(|(_, until)| *until);
        // No end is the latest.
        let last = ends.max_by_key(|until| until.map_or(u64::MAX, |until| until.0));
        match last {
            None => return false,
            Some(None) => return true,
            Some(Some(end)) if until.is_some_and(|until| end > until) => return true,
            // At the last epoch of that one.
            Some(Some(end)) if end.0 - 1 > at.0 => at = Epoch(end.0 - 1),
            Some(Some(_)) => return false,
        }
    }
}

/// Checks that a change is durable after a sync that another machine answered. `now` are the
/// targets of the column's copies. `online` says when a target was online, and `anew` from when on
/// it has kept everything, according to a map from after the reply.
///
/// # Errors
/// `Io` if the change may be lost.
pub fn require_kept(
    (place, taken): (Place, &Taken),
    now: &[TargetId],
    online: impl Fn(TargetId) -> Vec<Online>,
    anew: impl Fn(TargetId) -> Option<Epoch>,
) -> Result<()> {
    let only = match (&taken.copies[..], now) {
        ([then], [now]) if then == now => Some(*now),
        _ => None,
    };
    let times = || taken.copies.iter().flat_map(|target| online(*target)).collect::<Vec<_>>();
    // Since then none of them has lost anything. `None`: that is not known of all.
    let kept_since: Option<Vec<Epoch>> =
        taken.copies.iter().chain(now).map(|target| anew(*target)).collect();
    let last_loss = kept_since.and_then(|epochs| epochs.into_iter().max());
    let is_kept = || {
        let before = last_loss.is_some_and(|loss| loss <= taken.epoch);
        before || always_one(&times(), taken.epoch, last_loss)
    };
    if only.is_none() && !taken.copies.is_empty() && is_kept() {
        return Ok(());
    }
    let what = match only {
        Some(target) => format!(
            "target {target}: its machine was started anew since some of this was written, and \
             what was not synced before may be gone: write it again"
        ),
        None => format!(
            "file {}, column {}: all its copies were away at the same time since some of this was \
             written, or their disks failed, or their machines were started anew, and what was not \
             synced before may be gone: write it again",
            place.object.file, place.object.column
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

    /// As when the primary goes after it has put a write off, and the next one puts one off,
    /// too: each of the two is on one target.
    #[test]
    fn writes_that_were_put_off_on_two_targets_need_both_of_them() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1]));
        unsynced.confirmed(place(1), taken(8, 4, &[2]));
        unsynced.confirmed(place(1), taken(8, 5, &[2]));
        sync(&unsynced, 8, &[Some(3), Some(4)]).unwrap();
        sync(&unsynced, 8, &[Some(3), Some(9)]).unwrap();
        assert!(sync(&unsynced, 9, &[Some(3), Some(9)]).is_err(), "the second was lost");
        assert!(sync(&unsynced, 8, &[Some(9), Some(4)]).is_err(), "the first was lost");
        let keeps = |anew: [u64; 2]| {
            let anew = move |target: TargetId| Some(Epoch(anew[target.0 as usize - 1]));
            let now = [TargetId(1), TargetId(2)];
            let mut in_doubt = unsynced.in_doubt(&[None]);
            in_doubt.try_for_each(|taken| require_kept(taken, &now, |_| Vec::new(), anew))
        };
        keeps([1, 1]).unwrap();
        assert!(keeps([9, 9]).is_err() && keeps([1, 9]).is_err() && keeps([9, 1]).is_err());
    }

    /// As when a file has one writer, and then another, under `hybrid`.
    #[test]
    fn a_write_that_is_put_off_does_not_vouch_for_one_before_it_that_was_not() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        unsynced.confirmed(place(0), taken(7, 3, &[1]));
        sync(&unsynced, 7, &[Some(3), Some(9)]).unwrap();
        assert!(sync(&unsynced, 7, &[Some(9), Some(8)]).is_err(), "1 was given what 2 had lost");
    }

    #[test]
    fn beyond_what_is_kept_apart_what_holds_for_all_counts() {
        let mut unsynced = Unsynced::default();
        (1..=40).for_each(|target| unsynced.confirmed(place(0), taken(7, 3, &[target])));
        let [changed] = &unsynced.all().collect::<Vec<_>>()[..] else { panic!("one column") };
        assert_eq!(changed.taken.len(), MAX_KEPT_APART);
        assert!(sync(&unsynced, 8, &[Some(1); 40]).is_err(), "nothing holds for the last of them");
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
            always_one(&online.collect::<Vec<_>>(), Epoch(since), None)
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

    /// As when the first loses its machine and is brought up to date, and then both are
    /// away whose machines run on.
    #[test]
    fn a_write_is_kept_if_nobody_loses_anything_from_when_all_were_away() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 3, &[1, 2]));
        let online = |target: TargetId| match target.0 {
            1 => vec![(Epoch(1), Some(Epoch(4))), (Epoch(6), Some(Epoch(9))), (Epoch(12), None)],
            _ => vec![(Epoch(1), Some(Epoch(8))), (Epoch(14), None)],
        };
        let kept = |anew: [u64; 3], now: &[u32]| {
            let now: Vec<TargetId> = now.iter().map(|target| TargetId(*target)).collect();
            let anew = move |target: TargetId| {
                Some(Epoch(anew[target.0 as usize - 1])).filter(|anew| anew.0 > 0)
            };
            let mut in_doubt = unsynced.in_doubt(&[Some(8)]);
            in_doubt.try_for_each(|taken| require_kept(taken, &now, online, anew)).is_ok()
        };
        assert!(kept([5, 1, 1], &[1, 2]), "the other one had it as the first lost it");
        assert!(kept([5, 8, 1], &[1, 2]), "the first had it again");
        assert!(!kept([5, 9, 1], &[1, 2]), "nobody was there");
        assert!(!kept([12, 1, 1], &[1, 2]) && !kept([5, 0, 1], &[1, 2]));
        assert!(!kept([5, 1, 12], &[1, 3]), "the one that has it now");
    }

    /// As when two servers do not reach each other for a while, so one goes on alone, and its disk
    /// fails before the other is up to date. What the disk had not synced is gone, whatever the other
    /// one gets from it afterwards.
    #[test]
    fn a_disk_that_fails_while_the_other_copy_lacks_something_may_have_lost_a_write() {
        let mut unsynced = Unsynced::default();
        unsynced.confirmed(place(0), taken(7, 5, &[1, 2]));
        let kept = |left_out: u64, back: u64| {
            let online = move |target: TargetId| match target.0 {
                1 => vec![(Epoch(1), Some(Epoch(7))), (Epoch(12), None)],
                _ => vec![(Epoch(1), Some(Epoch(left_out))), (Epoch(back), None)],
            };
            let anew = |target: TargetId| Some(Epoch([8, 1][target.0 as usize - 1]));
            let mut in_doubt = unsynced.in_doubt(&[Some(8)]);
            let now = [TargetId(1), TargetId(2)];
            in_doubt.try_for_each(|taken| require_kept(taken, &now, online, anew))
        };
        let error = kept(4, 10).unwrap_err();
        assert!(error.kind == ErrorKind::Io && error.message.contains("their disks failed"));
        kept(4, 6).unwrap();
        kept(4, 7).unwrap_err();
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
        assert!(sync(&unsynced, 8, &[None, None, Some(1)]).is_err());
        sync(&unsynced, 8, &[None, Some(1), Some(1)]).unwrap();
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
