//! Sets of RAID 5 and mirror: two copies of each column stay beside one parity.
//!
//! Invariants
//! - Any two parts of the cluster, see [`Sites::part`], may die: the two copies of a column are in two
//!   parts, no two columns have theirs in the same two parts, and the parity is in none of these. A
//!   segment is sealed only if its set can be so. Where there are too few parts later, each column
//!   still has two copies.
//! - What is lost is made elsewhere: where all that is so, or else where it can be. A copy that is
//!   being made stays as long as its member needs it.
//! - Copies are dropped only when all that is so, and everything that stays is whole. Where there are
//!   too few parts for that, what is lost, or on targets that go, is dropped when each member has as
//!   many whole copies as it needs on targets that stay.

use super::{absent, begun, decodes, is_whole};
use crate::mover::plan::{
    Change, Found, Place, Slot, Verdict, Wish, place_for, slots_of, taken, with_columns,
};
use crate::mover::sites::{Fit, Sites};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::place::MAX_PLACES;
use weir_types::limits::{MAX_CODED_COLUMNS, MIN_CODED_COLUMNS};
use weir_types::{Column, ColumnIndex, CopyIndex, Segment, SegmentState, ServerId, TargetId};

/// Copies of a column that stay.
pub(crate) const COPIES: usize = 2;
/// The most parts that are tried for a parity.
const MAX_TRIED: usize = 16;

/// What fails as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Of(ServerId),
    /// A target on the only server.
    Alone(TargetId),
}

/// The parts of the copies that stay.
#[derive(Clone)]
struct Pairs {
    part_of: BTreeMap<TargetId, Part>,
    /// Those of each column, and then of the parity.
    of: Vec<Vec<Part>>,
}

impl Pairs {
    fn none(columns: usize, sites: &Sites) -> Self {
        let part = |target| sites.part(target).map_or(Part::Alone(target), Part::Of);
        let part_of = sites.all().map(|(target, _)| (target, part(target))).collect();
        Self { part_of, of: vec![Vec::new(); columns + 1] }
    }

    fn part(&self, target: TargetId) -> Part {
        self.part_of.get(&target).copied().unwrap_or(Part::Alone(target))
    }

    /// Number of copies of a member that stay.
    fn needed(&self, number: usize) -> usize {
        if number < self.columns() { COPIES } else { 1 }
    }

    /// Whether a copy of a member may be in a part, beside all others so far.
    fn allows(&self, number: usize, part: Part) -> bool {
        let Some((parity, columns)) = self.of.split_last() else { return false };
        if number >= columns.len() {
            return !columns.iter().flatten().any(|of| *of == part);
        }
        if parity.contains(&part) || columns[number].contains(&part) {
            return false;
        }
        match columns[number][..] {
            [other] => self.is_free(part, other),
            // The other copy needs a place too.
            _ => self.parts().any(|other| !parity.contains(&other) && self.is_free(part, other)),
        }
    }

    /// Whether there are too few parts for the set, however it is placed.
    fn are_too_few(&self, sites: &Sites) -> bool {
        let stay = self
            .part_of
            .iter()
            .filter(|(target, _)| matches!(sites.fit(**target), Fit::Takes | Fit::Keeps));
        let parts = stay.map(|(_, part)| *part).collect::<BTreeSet<_>>().len();
        parts.saturating_sub(1) * parts.saturating_sub(2) / 2 < self.columns()
    }

    /// Number of columns.
    fn columns(&self) -> usize {
        self.of.len() - 1
    }

    fn parts(&self) -> impl Iterator<Item = Part> {
        self.part_of.values().copied()
    }

    /// Whether no column has its copies in these two parts.
    fn is_free(&self, one: Part, other: Part) -> bool {
        let is_same =
            |of: &Vec<Part>| of.len() == COPIES && of.contains(&one) && of.contains(&other);
        one != other && !self.of.iter().any(is_same)
    }

    fn take(&mut self, number: usize, target: TargetId) {
        let part = self.part(target);
        self.of[number].push(part);
    }

    /// Chooses copies that stay among those that suit, the parity first.
    fn settle(
        &mut self,
        all: &[Vec<Slot>],
        kept: &mut [Vec<usize>],
        suits: &dyn Fn(&Slot) -> bool,
    ) {
        for number in (0..all.len()).rev() {
            for (at, slot) in all[number].iter().enumerate() {
                let is_new =
                    !kept[number].contains(&at) && kept[number].len() < self.needed(number);
                if is_new && suits(slot) && self.allows(number, self.part(slot.target)) {
                    kept[number].push(at);
                    self.take(number, slot.target);
                }
            }
        }
    }

    /// Place and target for another copy of a member; `anywhere`: if need be beside others that it
    /// should be apart from.
    fn room(
        &self,
        number: usize,
        (slots, anywhere): (&[Slot], bool),
        wish: &Wish<'_>,
        sites: &Sites,
    ) -> Option<(usize, TargetId)> {
        let mut barred = taken(slots);
        let is_barred = |target: &TargetId| !anywhere && !self.allows(number, self.part(*target));
        barred.extend(sites.all().map(|(target, _)| target).filter(is_barred));
        self.free_of(number, (slots, &barred), wish, sites)
    }

    fn free_of(
        &self,
        number: usize,
        (slots, barred): (&[Slot], &BTreeSet<TargetId>),
        wish: &Wish<'_>,
        sites: &Sites,
    ) -> Option<(usize, TargetId)> {
        let stay = slots.iter().filter(|slot| slot.is_good()).map(|slot| slot.target).collect();
        let candidates = sites.candidates(barred, &stay);
        let column = ColumnIndex(number as u16);
        place_for(column, slots, (slots.len()..MAX_PLACES, &candidates), wish, sites)
    }

    /// Begins what a member lacks; `anywhere`: if need be beside others that it should be apart from,
    /// unless it is only in a wrong place.
    fn make(
        &mut self,
        number: usize,
        (slots, kept): (&mut Vec<Slot>, &mut Vec<usize>),
        (decodes, anywhere): (bool, bool),
        wish: &Wish<'_>,
        sites: &mut Sites,
        found: &mut Found,
    ) {
        let column = ColumnIndex(number as u16);
        let place = |copy: usize, target| Place { column, copy: CopyIndex(copy as u8), target };
        let has_source = decodes || slots.iter().any(Slot::is_current);
        while kept.len() < self.needed(number) {
            if found.added.len() >= wish.room.min(wish.most) {
                break;
            }
            let stay = slots.iter().filter(|slot| stays(slot, sites)).count();
            let next = self.room(number, (&slots[..], false), wish, sites);
            let next = next.or_else(|| match anywhere && stay < self.needed(number) {
                true => self.room(number, (&slots[..], true), wish, sites),
                false => None,
            });
            let Some((copy, target)) = next.filter(|_| has_source) else {
                found.stuck = true;
                break;
            };
            if copy >= slots.len() {
                slots.resize(copy + 1, absent());
            } else if slots[copy].is_there() {
                found.dropped.push(place(copy, slots[copy].target));
            }
            slots[copy] = begun(target, sites);
            self.take(number, target);
            kept.push(copy);
            found.added.push(place(copy, target));
        }
    }

    /// Whether `keep` can make the set complete, if the parity, the last member of `all`, is in this
    /// place.
    fn can_be_complete(
        mut self,
        mut all: Vec<Vec<Slot>>,
        parity: usize,
        wish: &Wish<'_>,
        sites: &mut Sites,
    ) -> bool {
        let mut kept = vec![Vec::new(); all.len()];
        self.take(all.len() - 1, all[all.len() - 1][parity].target);
        kept[all.len() - 1].push(parity);
        self.settle(&all, &mut kept, &is_whole);
        let wide = Wish { most: usize::MAX, room: usize::MAX, ..*wish };
        let mut found = Found::default();
        for number in (0..all.len()).rev() {
            let member = (&mut all[number], &mut kept[number]);
            self.make(number, member, (false, false), &wide, sites, &mut found);
        }
        !found.stuck
    }
}

/// Chooses a target for the parity: in the part with the fewest copies of columns, if the others
/// have room for the set.
pub(super) fn seal(segment: &Segment, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let columns = segment.columns.len();
    if !(MIN_CODED_COLUMNS..=MAX_CODED_COLUMNS).contains(&columns) {
        return Verdict::Stuck;
    }
    let mut all: Vec<Vec<Slot>> =
        (0..columns).map(|n| slots_of(segment, ColumnIndex(n as u16), wish, sites)).collect();
    let none = Pairs::none(columns, sites);
    let mut parts: BTreeMap<Part, usize> = none.parts().map(|part| (part, 0)).collect();
    for slot in all.iter().flatten().filter(|slot| is_whole(slot)) {
        *parts.entry(none.part(slot.target)).or_default() += 1;
    }
    let mut parts: Vec<(usize, Part)> = parts.into_iter().map(|(part, has)| (has, part)).collect();
    parts.sort();
    let place = parts.iter().take(MAX_TRIED).find_map(|(_, part)| {
        let elsewhere = |target: &TargetId| none.part(*target) != *part;
        let barred = sites.all().map(|(target, _)| target).filter(elsewhere).collect();
        let (copy, target) = none.free_of(columns, (&[], &barred), wish, sites)?;
        let (mut sites, mut all) = (sites.clone(), all.clone());
        all.push(parity_at(copy, target, &mut sites));
        none.clone().can_be_complete(all, copy, wish, &mut sites).then_some((copy, target))
    });
    let Some((copy, target)) = place else { return Verdict::Stuck };
    all.push(parity_at(copy, target, sites));
    let column = ColumnIndex(columns as u16);
    let added = vec![Place { column, copy: CopyIndex(copy as u8), target }];
    let parities = vec![Column { targets: Vec::new() }];
    let segment = Segment { parities, state: SegmentState::Sealed, ..segment.clone() };
    let (segment, dropped, unsettled) = (with_columns(&segment, &all), Vec::new(), Vec::new());
    Verdict::Change(Box::new(Change { segment, added, dropped, unsettled }))
}

fn parity_at(copy: usize, target: TargetId, sites: &mut Sites) -> Vec<Slot> {
    let mut slots = vec![absent(); copy];
    slots.push(begun(target, sites));
    slots
}

/// Makes what is lost, or in a wrong place, and then drops what is too much.
pub(super) fn keep(segment: &Segment, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let columns = segment.columns.len();
    let mut all: Vec<Vec<Slot>> =
        (0..=columns).map(|n| slots_of(segment, ColumnIndex(n as u16), wish, sites)).collect();
    let mut pairs = Pairs::none(columns, sites);
    let mut kept: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    let away = |slot: &Slot| slot.is_good() && !slot.filling;
    let made = |slot: &Slot| slot.is_good() && slot.filling;
    for suits in [&is_whole as &dyn Fn(&Slot) -> bool, &away, &made] {
        pairs.settle(&all, &mut kept, suits);
    }
    let is_complete = |(number, of): (usize, &Vec<usize>)| {
        of.len() == pairs.needed(number) && of.iter().all(|at| all[number][*at].is_current())
    };
    let complete = kept.iter().enumerate().all(is_complete);
    let is_enough = |(number, slots): (usize, &Vec<Slot>)| {
        slots.iter().filter(|slot| slot.is_current() && stays(slot, sites)).count()
            >= pairs.needed(number)
    };
    let enough = pairs.are_too_few(sites) && all.iter().enumerate().all(is_enough);
    let decodes = decodes(segment, sites);
    let mut found = Found::default();
    for number in (0..all.len()).rev() {
        let (slots, kept) = (&mut all[number], &mut kept[number]);
        let member = (&mut *slots, &mut *kept);
        pairs.make(number, member, (decodes, true), wish, sites, &mut found);
        found.filling |= kept.iter().any(|at| slots[*at].filling);
        let others = Others { number, needed: pairs.needed(number), kept, complete, enough };
        others.drop_from(slots, pairs.columns(), wish, sites, &mut found);
    }
    found.verdict(|| with_columns(segment, &all))
}

/// Whether a copy is on a target that it may stay on, also if that has too much.
fn stays(slot: &Slot, sites: &Sites) -> bool {
    let is_there = slot.is_there() && !(slot.filling && slot.full);
    is_there && matches!(sites.fit(slot.target), Fit::Takes | Fit::Keeps)
}

/// The copies of a member that are not among those that were chosen.
struct Others<'a> {
    number: usize,
    needed: usize,
    kept: &'a [usize],
    /// Whether all of the set is where it should be, and whole.
    complete: bool,
    /// Whether there are too few parts, and each member has as many whole copies as it needs.
    enough: bool,
}

impl Others<'_> {
    /// Drops what does not stay.
    fn drop_from(
        &self,
        slots: &mut [Slot],
        columns: usize,
        wish: &Wish<'_>,
        sites: &Sites,
        found: &mut Found,
    ) {
        let column = ColumnIndex(self.number as u16);
        let place = |copy: usize, target| Place { column, copy: CopyIndex(copy as u8), target };
        let is_settled = |at: &usize| {
            self.number >= columns || wish.settled.contains(&(column, CopyIndex(*at as u8)))
        };
        let whole = slots.iter().filter(|slot| slot.is_good() && !slot.filling).count();
        let lacks = self.kept.len() < self.needed && whole < self.needed;
        let heirs: Vec<usize> = match self.complete {
            true => self.kept.to_vec(),
            false => (0..slots.len()).filter(|at| is_whole(&slots[*at])).collect(),
        };
        for other in (0..slots.len()).filter(|at| !self.kept.contains(at)) {
            let slot = slots[other];
            if !slot.is_there() {
                continue;
            }
            // It is in a wrong place, and there was no other.
            if slot.filling && slot.is_good() && lacks {
                found.filling = true;
                continue;
            }
            let goes = slot.filling || self.complete || self.enough && !stays(&slot, sites);
            if !goes {
                // It may go when others are back, or elsewhere.
                found.stuck = true;
                continue;
            }
            if let Some(at) = heirs.iter().find(|at| !is_settled(at))
                && !slot.filling
            {
                found.unsettled.push(place(*at, slots[*at].target));
                break;
            }
            if found.dropped.len() + found.added.len() >= wish.most {
                break;
            }
            found.dropped.push(place(other, slot.target));
            slots[other] = absent();
        }
    }
}

#[cfg(test)]
mod tests;
