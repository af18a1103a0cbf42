//! Decides what a segment needs.

use super::sites::{Fit, Sites};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use weir_layout::place::MAX_PLACES;
use weir_types::{ColumnIndex, CopyIndex, Filling, Segment, TargetId};

mod coded;
pub use coded::{Parities, improve_with, lacks_room};
pub(crate) use coded::{mirrored, without_parities};

/// A present or former copy of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The column.
    pub column: ColumnIndex,
    /// Index of the copy.
    pub copy: CopyIndex,
    /// Target of the copy.
    pub target: TargetId,
}

/// A layout that is nearer to the wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The new segment, with the old epoch.
    pub segment: Segment,
    /// Copies to be filled.
    pub added: Vec<Place>,
    /// Copies that are dropped from the segment.
    pub dropped: Vec<Place>,
    /// See [`Verdict::Unsettled`].
    pub unsettled: Vec<Place>,
}

/// What a segment needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it is as wished.
    Fine,
    /// Nothing until the present copies are filled.
    Filling,
    /// There is no target for a copy, or no source.
    Stuck,
    /// Other copies can be dropped when these are known to have everything: a postponed write may
    /// be on one copy only.
    Unsettled(Vec<Place>),
    /// This change.
    Change(Box<Change>),
}

/// The wish for a segment, and other conditions.
pub struct Wish<'a> {
    /// Number of copies of each column.
    pub copies: usize,
    /// Whether they should be in different groups of nodes.
    pub in_groups: bool,
    /// Copies to move because their target has too much.
    pub relieved: &'a BTreeSet<(ColumnIndex, CopyIndex)>,
    /// Copies that cannot be made, because an old object of that name still has to be removed.
    pub barred: &'a BTreeSet<Place>,
    /// Copies with everything: their column's first copy has said so while no session wrote.
    pub settled: &'a BTreeSet<(ColumnIndex, CopyIndex)>,
    /// Seed for choices among equals.
    pub seed: u64,
    /// After this many copies were begun or dropped, other columns are left for later.
    pub most: usize,
    /// The most copies to begin.
    pub room: usize,
    /// Whether a column without a whole copy online can be computed from others. Then what is away
    /// is not waited for.
    pub decodes: bool,
}

/// One copy of a column.
#[derive(Clone, Copy, Debug)]
struct Slot {
    target: TargetId,
    filling: bool,
    fit: Option<Fit>,
    online: bool,
    /// Whether its target is full.
    full: bool,
}

impl Slot {
    /// Whether the copy is good. A copy that is being made on a full target does not become whole.
    fn is_good(&self) -> bool {
        matches!(self.fit, Some(Fit::Takes | Fit::Keeps)) && !(self.filling && self.full)
    }
    fn is_current(&self) -> bool {
        self.fit.is_some() && !self.filling && self.online
    }
    fn is_there(&self) -> bool {
        self.fit.is_some()
    }
}

/// The result for a column.
#[derive(Default)]
struct Found {
    added: Vec<Place>,
    dropped: Vec<Place>,
    unsettled: Vec<Place>,
    filling: bool,
    stuck: bool,
}

impl Found {
    /// What comes of a segment, which is `after` if anything is added or dropped.
    fn verdict(self, after: impl FnOnce() -> Segment) -> Verdict {
        let Self { added, dropped, unsettled, filling, stuck } = self;
        if !added.is_empty() || !dropped.is_empty() {
            let segment = after();
            return Verdict::Change(Box::new(Change { segment, added, dropped, unsettled }));
        }
        if !unsettled.is_empty() {
            return Verdict::Unsettled(unsettled);
        }
        match (filling, stuck) {
            (true, _) => Verdict::Filling,
            (false, true) => Verdict::Stuck,
            (false, false) => Verdict::Fine,
        }
    }
}

/// Decides what a segment needs. New copies are counted in `sites`.
pub fn improve(segment: &Segment, wish: &Wish<'_>, sites: &mut Sites) -> Verdict {
    let mut all = Found::default();
    let mut columns = Vec::with_capacity(segment.columns.len());
    for number in 0..segment.columns.len() {
        let column = ColumnIndex(number as u16);
        let mut slots = slots_of(segment, column, wish, sites);
        let found = match all.added.len() + all.dropped.len() < wish.most {
            true => improve_column(column, &mut slots, wish, wish.room - all.added.len(), sites),
            false => Found::default(),
        };
        all.added.extend(found.added);
        all.dropped.extend(found.dropped);
        all.unsettled.extend(found.unsettled);
        all.filling |= found.filling;
        all.stuck |= found.stuck;
        columns.push(slots);
    }
    all.verdict(|| with_columns(segment, &columns))
}

fn slots_of(segment: &Segment, column: ColumnIndex, wish: &Wish<'_>, sites: &Sites) -> Vec<Slot> {
    let member = segment.member(usize::from(column.0));
    let targets = member.map_or(&[][..], |member| &member.targets).iter().enumerate();
    let slot = |(copy, &target): (usize, &TargetId)| {
        let copy = CopyIndex(copy as u8);
        let is_away = wish.decodes && !sites.is_online(target);
        let fit = match sites.fit(target) {
            Fit::Takes | Fit::Keeps if is_away => Fit::Leaves,
            Fit::Takes | Fit::Keeps if wish.relieved.contains(&(column, copy)) => Fit::Leaves,
            fit => fit,
        };
        Slot {
            target,
            filling: segment.is_filling(column, copy),
            fit: (target != TargetId::NONE).then_some(fit),
            online: sites.is_online(target),
            full: sites.is_full(target),
        }
    };
    targets.map(slot).collect()
}

fn improve_column(
    column: ColumnIndex,
    slots: &mut Vec<Slot>,
    wish: &Wish<'_>,
    room: usize,
    sites: &mut Sites,
) -> Found {
    let mut found = Found::default();
    let place = |copy: usize, target| Place { column, copy: CopyIndex(copy as u8), target };
    while let Some(copy) = superfluous(slots, wish, sites) {
        if let Some(heir) = heir(column, copy, slots, wish) {
            found.unsettled.push(place(heir, slots[heir].target));
            break;
        }
        found.dropped.push(place(copy, slots[copy].target));
        slots[copy] = absent();
    }
    for _ in 0..missing(slots, wish, sites).min(room) {
        // A copy that cannot be made now may be later.
        let has_source = wish.decodes || slots.iter().any(Slot::is_current);
        let next = if has_source { room_for_one(column, slots, wish, sites) } else { None };
        let Some((copy, target)) = next else {
            found.stuck = true;
            break;
        };
        if copy == slots.len() {
            slots.push(absent());
        } else if slots[copy].is_there() {
            found.dropped.push(place(copy, slots[copy].target));
        }
        let (fit, online) = (Some(Fit::Takes), sites.is_online(target));
        slots[copy] = Slot { target, filling: true, fit, online, full: false };
        sites.give(target);
        found.added.push(place(copy, target));
    }
    found.filling = slots.iter().any(|s| s.is_there() && s.filling);
    let bad = slots.iter().any(|s| s.is_there() && !s.is_good());
    // What is too much may go when others are back.
    found.stuck |= (bad || has_surplus(slots, wish.copies)) && !found.filling;
    found
}

fn good(slots: &[Slot]) -> impl Iterator<Item = &Slot> {
    slots.iter().filter(|slot| slot.is_good())
}

/// Targets of the remaining copies.
fn stay(slots: &[Slot]) -> BTreeSet<TargetId> {
    good(slots).map(|slot| slot.target).collect()
}

fn taken(slots: &[Slot]) -> BTreeSet<TargetId> {
    slots.iter().filter(|s| s.is_there()).map(|s| s.target).collect()
}

/// Number of copies to make: the missing ones, or one for a copy that shares a group, a domain, a
/// machine or a server with another.
fn missing(slots: &[Slot], wish: &Wish<'_>, sites: &Sites) -> usize {
    let (wished, stay) = (wish.copies, stay(slots));
    let whole = good(slots).filter(|slot| slot.is_current()).count();
    let complete = stay.len() == wished && whole == wished;
    match complete && sites.can_be_further_apart(&taken(slots), &stay, wish.in_groups) {
        true => 1,
        false => wished.saturating_sub(stay.len()),
    }
}

fn absent() -> Slot {
    Slot { target: TargetId::NONE, filling: false, fit: None, online: false, full: false }
}

/// A copy that is not needed, because as many others as wished are good, whole and online. Copies
/// that are not good come first, then those without which the others are furthest apart, then those
/// that are not whole or not online, then the last one.
fn superfluous(slots: &[Slot], wish: &Wish<'_>, sites: &Sites) -> Option<usize> {
    let there = || (0..slots.len()).filter(|&i| slots[i].is_there());
    let rank = |i: &usize| {
        let mut others = stay(slots);
        others.remove(&slots[*i].target);
        (Reverse(sites.spread(&others, wish.in_groups)), slots[*i].is_current(), Reverse(*i))
    };
    let bad = there().find(|&i| !slots[i].is_good());
    let surplus = has_surplus(slots, wish.copies);
    let victim = bad.or_else(|| if surplus { there().min_by_key(rank) } else { None })?;
    let others = good(slots).filter(|slot| slot.is_current()).count();
    let itself = usize::from(slots[victim].is_good() && slots[victim].is_current());
    (others - itself >= wish.copies).then_some(victim)
}

fn has_surplus(slots: &[Slot], wished: usize) -> bool {
    good(slots).count() > wished
}

/// The copy that has to have everything before another is dropped; `None` if one has, or none could
/// get it from that copy.
fn heir(column: ColumnIndex, goes: usize, slots: &[Slot], wish: &Wish<'_>) -> Option<usize> {
    let others = || (0..slots.len()).filter(|i| *i != goes && slots[*i].is_current());
    let settled = |i: usize| wish.settled.contains(&(column, CopyIndex(i as u8)));
    match slots[goes].filling || others().any(settled) {
        true => None,
        false => others().next(),
    }
}

/// Place and target for the next copy of a column.
fn room_for_one(
    column: ColumnIndex,
    slots: &[Slot],
    wish: &Wish<'_>,
    sites: &Sites,
) -> Option<(usize, TargetId)> {
    let stay = stay(slots);
    let mut candidates = sites.candidates(&taken(slots), &stay);
    if wish.in_groups {
        sites.keep_other_group(&mut candidates, &stay);
    }
    place_for(column, slots, (slots.len()..slots.len() + 1, &candidates), wish, sites)
}

/// The first place that is free for one of these targets. `new`: the places behind those that there
/// are.
fn place_for(
    column: ColumnIndex,
    slots: &[Slot],
    (new, candidates): (Range<usize>, &[TargetId]),
    wish: &Wish<'_>,
    sites: &Sites,
) -> Option<(usize, TargetId)> {
    let is_lost = |i: &usize| slots[*i].fit == Some(Fit::Lost);
    let is_free = |i: &usize| !slots[*i].is_there();
    let all = 0..slots.len();
    // What is lost keeps its place until another is whole: it may come back and be all
    // that has the last changes, and people are told where those were.
    let places = all.clone().filter(is_free).chain(new).chain(all.filter(is_lost));
    for copy in places.filter(|copy| *copy < MAX_PLACES) {
        let open = |target: &TargetId| {
            let place = Place { column, copy: CopyIndex(copy as u8), target: *target };
            !wish.barred.contains(&place)
        };
        let among: Vec<TargetId> = candidates.iter().copied().filter(open).collect();
        let seed = wish.seed ^ u64::from(column.0) << 40;
        if let Some(target) = sites.least_given(&among, seed) {
            return Some((copy, target));
        }
    }
    None
}

/// The segment with these columns, and parities behind them; parities that are not among them stay.
/// Unused places at the end are cut off.
fn with_columns(segment: &Segment, columns: &[Vec<Slot>]) -> Segment {
    let used = |slots: &Vec<Slot>| slots.iter().rposition(Slot::is_there).map_or(0, |at| at + 1);
    let stays = |(number, _): &(ColumnIndex, _)| usize::from(number.0) >= columns.len();
    let last = segment.members().filter(stays).filter_map(|(_, member)| member.copies().last());
    let places = columns.iter().map(used).chain(last.map(|(copy, _)| usize::from(copy.0) + 1));
    let places = places.max().unwrap_or(0);
    let mut segment = segment.clone();
    segment.filling.retain(|f| usize::from(f.column.0) >= columns.len());
    let behind = std::mem::take(&mut segment.filling);
    let count = segment.columns.len();
    for (number, slots) in columns.iter().enumerate() {
        let targets: Vec<TargetId> = slots.iter().map(|s| s.target).collect();
        match number.checked_sub(count) {
            None => segment.columns[number].targets = targets,
            Some(parity) => segment.parities[parity].targets = targets,
        }
        let filling = (0..slots.len()).filter(|&i| slots[i].is_there() && slots[i].filling);
        let column = ColumnIndex(number as u16);
        let entry = |copy: usize| Filling { column, copy: CopyIndex(copy as u8) };
        segment.filling.extend(filling.map(entry));
    }
    segment.filling.extend(behind);
    let members = segment.columns.iter_mut().chain(&mut segment.parities);
    members.for_each(|member| member.targets.resize(places, TargetId::NONE));
    segment
}

#[cfg(test)]
mod tests;
