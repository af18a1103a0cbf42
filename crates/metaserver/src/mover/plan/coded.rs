//! Decides what a segment with parities needs: a set of its columns and parities, each on another
//! target.
//!
//! Invariants
//! - A segment is sealed only if its set can be where no part of the cluster, see [`Sites::part`],
//!   has more of it than there are parities: one part may die. What is made anew goes to such places,
//!   too, and elsewhere only if there are none. All copies stay until the set is there.
//! - A segment is open, and has no parities, or sealed: then nobody may write it. It is sealed while
//!   its parities are made, and as long as they count.
//! - Copies are dropped only after all parities are whole. Parities are dropped only after there are
//!   as many copies again, online, as are wished, or two if no more can be made, or if they never
//!   counted.

pub(crate) mod mirrored;

use super::{
    Change, Found, Place, Slot, Verdict, Wish, absent, improve, place_for, slots_of, taken,
    with_columns,
};
use crate::mover::sites::{Fit, Sites};
use std::collections::{BTreeMap, BTreeSet};
use weir_host::plant::{Bug, planted};
use weir_layout::place::MAX_PLACES;
use weir_types::limits::{MAX_CODED_COLUMNS, MIN_CODED_COLUMNS};
use weir_types::{
    Column, ColumnIndex, CopyIndex, Filling, Scheme, Segment, SegmentState, ServerId, TargetId,
};

/// The wish for the parities of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parities {
    /// None: somebody writes, or wants to, or they are not wished.
    None,
    /// So many, and one copy of each column.
    Wished(u8),
    /// One, and two copies of each column.
    Mirrored,
}

/// Decides what a segment needs that has parities, or may get them. New copies are counted in
/// `sites`.
pub fn improve_with(
    parities: Parities,
    segment: &Segment,
    wish: &Wish<'_>,
    sites: &mut Sites,
) -> Verdict {
    let (count, mirrors) = match parities {
        Parities::None => {
            return match (segment.state, segment.scheme) {
                (SegmentState::Open, _) => improve(segment, wish, sites),
                (SegmentState::Sealed, Scheme::Copies) => unsealed(segment),
                (SegmentState::Sealed, Scheme::Coded) => thaw(segment, wish, sites),
            };
        }
        Parities::Wished(count) => (count, false),
        Parities::Mirrored => (1, true),
    };
    match (segment.state, segment.scheme) {
        (SegmentState::Open, _) => match improve(segment, wish, sites) {
            Verdict::Fine | Verdict::Unsettled(_) if mirrors => {
                mirrored::seal(segment, wish, sites)
            }
            Verdict::Fine | Verdict::Unsettled(_) => seal(segment, count, wish, sites),
            // First what it needs as a file of copies.
            other => other,
        },
        (SegmentState::Sealed, Scheme::Copies) => {
            // What the columns need they get as copies.
            let wide = Wish { most: usize::MAX, room: usize::MAX, ..*wish };
            let needs = improve(segment, &wide, &mut sites.clone());
            let lacks = matches!(&needs, Verdict::Change(change) if !change.added.is_empty());
            let columns = segment.columns.len();
            let mut parities = (columns..)
                .zip(&segment.parities)
                .flat_map(|(n, _)| slots_of(segment, ColumnIndex(n as u16), wish, sites));
            let goes = parities.any(|slot| slot.is_there() && !slot.is_good());
            if segment.parities.len() != usize::from(count) || goes || lacks {
                return unsealed(segment);
            }
            let is_parity = |f: &Filling| usize::from(f.column.0) >= segment.columns.len();
            match segment.filling.iter().any(is_parity) && !planted(Bug::CountUnmadeParities) {
                true => Verdict::Filling,
                false => changed(Segment { scheme: Scheme::Coded, ..segment.clone() }, Vec::new()),
            }
        }
        (SegmentState::Sealed, Scheme::Coded) => match segment.parities.len() == usize::from(count)
        {
            true if mirrors => mirrored::keep(segment, wish, sites),
            true => keep(segment, wish, sites),
            // With so many it is encoded anew.
            false => thaw(segment, wish, sites),
        },
    }
}

fn changed(segment: Segment, dropped: Vec<Place>) -> Verdict {
    let (added, unsettled) = (Vec::new(), Vec::new());
    Verdict::Change(Box::new(Change { segment, added, dropped, unsettled }))
}

/// The segment as one of copies.
fn unsealed(segment: &Segment) -> Verdict {
    let (segment, dropped) = without_parities(segment);
    changed(segment, dropped)
}

/// A segment as one of copies, and where its parities were.
pub(crate) fn without_parities(segment: &Segment) -> (Segment, Vec<Place>) {
    let columns = segment.columns.len();
    let of = segment.members().filter(|(number, _)| usize::from(number.0) >= columns);
    let place = |column, (copy, target)| Place { column, copy, target };
    let dropped =
        of.flat_map(|(column, member)| member.copies().map(move |copy| place(column, copy)));
    let dropped = dropped.collect();
    let mut segment = segment.clone();
    segment.filling.retain(|f| usize::from(f.column.0) < columns);
    segment.parities.clear();
    (segment.scheme, segment.state) = (Scheme::Copies, SegmentState::Open);
    (segment, dropped)
}

/// Whether enough of a coded segment is online and whole to compute the rest.
pub fn decodes(segment: &Segment, sites: &Sites) -> bool {
    let is_there = |(column, member): &(ColumnIndex, &Column)| {
        let whole = member.copies().filter(|(copy, _)| !segment.is_filling(*column, *copy));
        whole.into_iter().any(|(_, target)| sites.is_online(target))
    };
    segment.is_coded() && segment.members().filter(is_there).count() >= segment.columns.len()
}

/// Whether copies of a coded segment cannot be made because targets are full: it could be computed,
/// and none of its copies is being made where there is room.
pub fn lacks_room(segment: &Segment, sites: &Sites) -> bool {
    let is_full = |(target, _)| sites.is_online(target) && sites.is_full(target);
    let target_of = |f: &Filling| segment.target(usize::from(f.column.0), f.copy);
    let is_made = |f: &Filling| target_of(f).is_some_and(|target| sites.can_be_filled(target));
    decodes(segment, sites) && sites.all().any(is_full) && !segment.filling.iter().any(is_made)
}

/// Makes as many copies as are wished, and then drops the parities.
fn thaw(segment: &Segment, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let wish = Wish { decodes: decodes(segment, sites), ..*wish };
    let verdict = improve(segment, &wish, sites);
    let slots = |n: usize| slots_of(segment, ColumnIndex(n as u16), &wish, sites);
    let is_made = |slot: &Slot| slot.is_there() && slot.filling && slot.online && !slot.full;
    // Where no more can be made, two do: as many as others have that lack some. What is away may
    // never come back, and can be computed as long as there are parities.
    let least = wish.copies.clamp(1, 2);
    let is_enough = |n: usize| slots(n).iter().filter(|slot| slot.is_current()).count() >= least;
    let mut columns = 0..segment.columns.len();
    match verdict {
        Verdict::Change(_) => verdict,
        Verdict::Filling if columns.clone().any(|n| slots(n).iter().any(is_made)) => verdict,
        _ if columns.all(is_enough) => unsealed(segment),
        Verdict::Filling => verdict,
        _ => Verdict::Stuck,
    }
}

/// Chooses targets for the parities, apart from those copies of the columns that are to stay.
fn seal(segment: &Segment, count: u8, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let columns = segment.columns.len();
    if !(MIN_CODED_COLUMNS..=MAX_CODED_COLUMNS).contains(&columns) {
        return Verdict::Stuck;
    }
    let mut all: Vec<Vec<Slot>> =
        (0..columns).map(|n| slots_of(segment, ColumnIndex(n as u16), wish, sites)).collect();
    let most = usize::from(count);
    let mut kept = Kept::none(&all, most, sites);
    kept.settle_all(&is_whole);
    let at = kept.at();
    let chosen = at.iter().zip(&all).filter_map(|(at, of)| Some(of[(*at)?].target));
    let mut apart: BTreeSet<TargetId> = chosen.collect();
    // Columns that share too few targets stay as copies beside the parities, until `keep` has made
    // them on targets of their own. Is there room for that?
    for (number, _) in at.iter().enumerate().filter(|(_, at)| at.is_none()) {
        let column = ColumnIndex(number as u16);
        let has_source = all[number].iter().any(is_whole);
        let room = room(column, &all[number], (&apart, most), wish, sites);
        let Some((_, target)) = room.filter(|_| has_source) else { return Verdict::Stuck };
        apart.insert(target);
    }
    let mut added = Vec::new();
    for parity in 0..usize::from(count) {
        let column = ColumnIndex((columns + parity) as u16);
        let Some((copy, target)) = room(column, &[], (&apart, most), wish, sites) else {
            return Verdict::Stuck;
        };
        apart.insert(target);
        let mut slots = vec![absent(); copy];
        slots.push(begun(target, sites));
        all.push(slots);
        added.push(Place { column, copy: CopyIndex(copy as u8), target });
    }
    let none = Column { targets: Vec::new() };
    let parities = vec![none; usize::from(count)];
    let segment = Segment { parities, state: SegmentState::Sealed, ..segment.clone() };
    let (segment, dropped, unsettled) = (with_columns(&segment, &all), Vec::new(), Vec::new());
    Verdict::Change(Box::new(Change { segment, added, dropped, unsettled }))
}

/// Drops all but one copy of each column, and makes anew what is lost.
fn keep(segment: &Segment, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let count = segment.columns.len() + segment.parities.len();
    let mut all: Vec<Vec<Slot>> =
        (0..count).map(|n| slots_of(segment, ColumnIndex(n as u16), wish, sites)).collect();
    let most = segment.parities.len();
    let (kept, crowded) = keepers(&all, most, sites);
    let decodes = decodes(segment, sites);
    let target_of = |n: usize, at: usize, all: &[Vec<Slot>]| all[n][at].target;
    let mut apart: BTreeSet<TargetId> =
        kept.iter().enumerate().filter_map(|(n, at)| Some(target_of(n, (*at)?, &all))).collect();
    // Until then copies may be what is left of a member, now or when a part dies that has too many.
    let complete = kept.iter().zip(&all).all(|(at, of)| at.is_some_and(|at| of[at].is_current()));
    let mut found = Found::default();
    for (number, kept) in kept.iter().enumerate() {
        let column = ColumnIndex(number as u16);
        let is_parity = number >= segment.columns.len();
        let slots = &mut all[number];
        let place = |copy: usize, target| Place { column, copy: CopyIndex(copy as u8), target };
        let has_source = decodes || slots.iter().any(Slot::is_current);
        let busy = found.added.len() >= wish.room.min(wish.most);
        let mut next = None;
        let is_crowded = kept.is_some_and(|at| crowded.contains(&number) && slots[at].is_current());
        if has_source && !busy && (kept.is_none() || is_crowded) {
            next = room(column, slots, (&apart, most), wish, sites);
        }
        match *kept {
            Some(at) if slots[at].filling => found.filling = true,
            Some(at) if next.is_none() => {
                found.stuck |= is_crowded && !busy;
                let settled = is_parity || wish.settled.contains(&(column, CopyIndex(at as u8)));
                let others: Vec<usize> =
                    (0..slots.len()).filter(|&i| i != at && slots[i].is_there()).collect();
                for other in others {
                    let stays = !complete || !crowded.is_empty() && slots[other].is_good();
                    // It may go when others are back, or elsewhere.
                    if stays && !slots[other].filling {
                        found.stuck = true;
                        continue;
                    }
                    if !settled && !slots[other].filling {
                        found.unsettled.push(place(at, slots[at].target));
                        break;
                    }
                    if found.dropped.len() + found.added.len() >= wish.most {
                        break;
                    }
                    found.dropped.push(place(other, slots[other].target));
                    slots[other] = absent();
                }
            }
            _ => {
                if next.is_none() && has_source && !busy {
                    next = room(column, slots, (&apart, usize::MAX), wish, sites);
                }
                let Some((copy, target)) = next else {
                    found.stuck |= !busy;
                    continue;
                };
                // Places between may be out of the question.
                if copy >= slots.len() {
                    slots.resize(copy + 1, absent());
                } else if slots[copy].is_there() {
                    found.dropped.push(place(copy, slots[copy].target));
                }
                slots[copy] = begun(target, sites);
                apart.insert(target);
                found.added.push(place(copy, target));
            }
        }
    }
    found.verdict(|| with_columns(segment, &all))
}

fn begun(target: TargetId, sites: &mut Sites) -> Slot {
    sites.give(target);
    let online = sites.is_online(target);
    Slot { target, filling: true, fit: Some(Fit::Takes), online, full: false }
}

/// Place and target for a copy of a member, apart from others, where no part has more than so many.
fn room(
    column: ColumnIndex,
    slots: &[Slot],
    (apart, most): (&BTreeSet<TargetId>, usize),
    wish: &Wish<'_>,
    sites: &Sites,
) -> Option<(usize, TargetId)> {
    let mut of_parts = BTreeMap::<_, usize>::new();
    for part in apart.iter().filter_map(|target| sites.part(*target)) {
        *of_parts.entry(part).or_default() += 1;
    }
    let apart = if planted(Bug::SetOnOneTarget) { &BTreeSet::new() } else { apart };
    let is_full = |target: &TargetId| {
        sites.part(*target).is_some_and(|part| of_parts.get(&part).is_some_and(|of| *of >= most))
    };
    let mut barred: BTreeSet<TargetId> = apart.union(&taken(slots)).copied().collect();
    barred.extend(sites.all().map(|(target, _)| target).filter(is_full));
    let candidates = sites.candidates(&barred, apart);
    place_for(column, slots, (slots.len()..MAX_PLACES, &candidates), wish, sites)
}

fn is_whole(slot: &Slot) -> bool {
    slot.is_good() && slot.is_current()
}

/// The copy of each member that is to stay, each on another target: whole ones, as many as can be,
/// then those that are away for a while, and then those that are being made. Also the members of
/// parts that have more than `most` that way: those that should be elsewhere.
fn keepers(all: &[Vec<Slot>], most: usize, sites: &Sites) -> (Vec<Option<usize>>, BTreeSet<usize>) {
    let away = |slot: &Slot| slot.is_good() && !slot.filling;
    let made = |slot: &Slot| slot.is_good() && slot.filling;
    let mut kept = Kept::none(all, most, sites);
    let mut crowded = BTreeSet::new();
    for most in [most, usize::MAX] {
        kept.most = most;
        for suits in [&is_whole as Suits<'_>, &away, &made] {
            kept.settle_all(suits);
        }
        if most < usize::MAX {
            crowded.extend(kept.left());
        }
    }
    (kept.at(), crowded)
}

type Suits<'a> = &'a dyn Fn(&Slot) -> bool;

/// The chosen copies of members.
struct Kept<'a> {
    all: &'a [Vec<Slot>],
    sites: &'a Sites,
    /// The most of them in one part.
    most: usize,
    /// The member that has a target, and its copy there.
    of_targets: BTreeMap<TargetId, (usize, usize)>,
}

impl<'a> Kept<'a> {
    fn none(all: &'a [Vec<Slot>], most: usize, sites: &'a Sites) -> Self {
        Self { all, sites, most, of_targets: BTreeMap::new() }
    }

    /// The copy of each member.
    fn at(&self) -> Vec<Option<usize>> {
        let mut kept = vec![None; self.all.len()];
        self.of_targets.values().for_each(|&(member, copy)| kept[member] = Some(copy));
        kept
    }

    /// Members without one.
    fn left(&self) -> Vec<usize> {
        let at = self.at();
        (0..at.len()).filter(|member| at[*member].is_none()).collect()
    }

    fn settle_all(&mut self, suits: Suits<'_>) {
        for member in self.left() {
            self.settle(member, suits, &mut Seen::default());
        }
    }

    /// Gives a member a target, moving others to others of theirs (Kuhn's algorithm, with parts that
    /// hold so many).
    fn settle(&mut self, member: usize, suits: Suits<'_>, seen: &mut Seen) -> bool {
        for (copy, slot) in self.all[member].iter().enumerate().filter(|(_, slot)| suits(slot)) {
            if !seen.targets.insert(slot.target) {
                continue;
            }
            let holder = self.of_targets.get(&slot.target).map(|(holder, _)| *holder);
            let is_free = match (holder, self.sites.part(slot.target)) {
                (Some(holder), _) => self.settle(holder, suits, seen),
                (None, Some(part)) if self.has(part).len() >= self.most => {
                    seen.parts.insert(part) && self.free_one(part, suits, seen)
                }
                (None, _) => true,
            };
            if is_free {
                self.of_targets.insert(slot.target, (member, copy));
                return true;
            }
        }
        false
    }

    /// Moves a member out of a part.
    fn free_one(&mut self, part: ServerId, suits: Suits<'_>, seen: &mut Seen) -> bool {
        for (target, holder) in self.has(part) {
            if seen.targets.insert(target) && self.settle(holder, suits, seen) {
                self.of_targets.remove(&target);
                return true;
            }
        }
        false
    }

    /// Targets of a part, with the members there.
    fn has(&self, part: ServerId) -> Vec<(TargetId, usize)> {
        let is_there = |target: &TargetId| self.sites.part(*target) == Some(part);
        let there = self.of_targets.iter().filter(|(target, _)| is_there(target));
        there.map(|(target, (holder, _))| (*target, *holder)).collect()
    }
}

/// What was tried.
#[derive(Default)]
struct Seen {
    targets: BTreeSet<TargetId>,
    parts: BTreeSet<ServerId>,
}

#[cfg(test)]
mod tests;
