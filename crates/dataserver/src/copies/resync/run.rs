//! Goes through the gaps of one target, again and again, and does about each what can be done now.

use super::Resync;
use crate::copies::columns::FRESH;
use crate::copies::push::Push;
use crate::copies::{build, fill};
use crate::standing::roles::Map;
use std::time::Duration;
use weir_host::clock;
use weir_store::{ELSEWHERE, Gap, RangeSet, UNHEARD};
use weir_types::limits::MAX_FIND_COPIES;
use weir_types::{CopyIndex, ErrorKind, Result, TargetId};
use weir_wire::data::CopyAccess;
use weir_wire::peer::Copies as Column;

/// Interval of looks at the log.
const INTERVAL: Duration = Duration::from_millis(250);
/// Interval while copies are made one after the other.
const SHORT_INTERVAL: Duration = Duration::from_millis(20);

impl Resync {
    /// Works until the server stops.
    pub(crate) fn run(mut self) {
        let mut interval = INTERVAL;
        while matches!(self.shutdown.wait(Some(interval)), Ok(false)) {
            if self.shared.copies.standings.is_kept(self.own()).is_err() {
                continue;
            }
            let filled = fill::fill_all(&self.shared, &self.disk, &self.shutdown);
            if let Err(error) = &filled {
                tracing::debug!("{}: cannot make copies yet: {error}", self.disk.store.name());
            }
            if let Err(error) = build::work_off(&self.shared, &self.disk, &self.shutdown) {
                tracing::debug!("{}: {error}", self.disk.store.name());
            }
            // More of them will have been ordered meanwhile.
            interval = if matches!(filled, Ok(true)) { SHORT_INTERVAL } else { INTERVAL };
            // What is noted later is noted under a later epoch, or this one is not said.
            let acting = self.shared.copies.acting();
            let mut to_be_filled = 0;
            if self.disk.store.gaps().lost()
                && let Err(error) = self.look_for_lost()
            {
                tracing::debug!("{}: cannot note lost gaps yet: {error}", self.disk.store.name());
            }
            let mut confirmed = acting;
            for behind in self.in_turn() {
                // Nothing can be done for it now, however much it lacks; and others wait.
                // (Of one that was removed nobody needs anything.)
                let (standings, lines) = (&self.shared.copies.standings, &self.shared.copies.lines);
                let is_silent = standings.is_known(behind) && lines.is_silent(behind);
                if behind != self.own() && (standings.is_away(behind) || is_silent) {
                    self.failed.insert(behind);
                    continue;
                }
                match self.work_off(behind) {
                    Ok(count) => {
                        to_be_filled += count;
                        match self.disk.store.gaps().next(behind, None) {
                            Some(_) => self.failed.insert(behind),
                            None => self.failed.remove(&behind),
                        };
                    }
                    Err(error) => {
                        self.failed.insert(behind);
                        tracing::debug!("{}: gaps of {behind}: {error}", self.disk.store.name());
                        to_be_filled += u64::from(behind == self.own());
                        if behind == ELSEWHERE {
                            confirmed = self.confirmed;
                        }
                    }
                }
            }
            self.confirmed = confirmed;
            self.disk.progress.saw(acting, to_be_filled);
        }
        self.disk.builds.end();
    }

    /// Targets with gaps. Those that are not online because of them come first. Copies that are
    /// being made, and postponed changes, can wait.
    fn in_turn(&self) -> Vec<TargetId> {
        let counts = self.disk.store.gaps().counts();
        let mut behind: Vec<TargetId> = counts.into_iter().map(|(target, _)| target).collect();
        let map = self.shared.copies.standings.map();
        behind.sort_by_key(|target| !self.is_first(&map, *target));
        behind
    }

    fn is_first(&self, map: &Map, behind: TargetId) -> bool {
        [self.own(), ELSEWHERE, UNHEARD].contains(&behind)
            || map.syncing().any(|target| target == behind)
    }

    /// Whether a target with precedence has come back meanwhile. A target for which nothing can be
    /// done has none, or the others would hardly make progress.
    fn gives_way(&self, behind: TargetId) -> bool {
        let map = self.shared.copies.standings.map();
        let waits = |target: TargetId| {
            !self.failed.contains(&target) && self.disk.store.gaps().next(target, None).is_some()
        };
        !self.is_first(&map, behind) && map.syncing().any(waits)
    }

    /// Works off the gaps of one target. Returns the number of parts of this target's own gaps that
    /// another has to fill before it is online. The first error is returned, but does not end the
    /// work: other objects may be on other servers.
    fn work_off(&mut self, behind: TargetId) -> Result<u64> {
        let (mut after, mut to_be_filled, mut result) = (None, 0, Ok(()));
        loop {
            let mut page = Vec::new();
            while page.len() < MAX_FIND_COPIES
                && let Some(gap) = self.disk.store.gaps().next(behind, after)
            {
                after = Some(gap.object);
                page.push(gap);
            }
            if page.is_empty() {
                break;
            }
            let mut columns = self.find(page.iter().map(|gap| gap.object).collect())?;
            let mut found = clock::now();
            for (at, gap) in page.iter().enumerate() {
                if clock::elapsed(found) > FRESH {
                    // A copy that has moved meanwhile would be made anew where it was.
                    let rest = page[at..].iter().map(|gap| gap.object).collect();
                    columns.splice(at.., self.find(rest)?);
                    found = clock::now();
                }
                self.shared.copies.standings.is_kept(self.own())?;
                match self.gap(behind, gap, columns[at].as_ref()) {
                    Ok(waits) => to_be_filled += if waits { gap.parts() } else { 0 },
                    Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                    Err(error) => result = result.and(Err(error)),
                }
                if self.gives_way(behind) {
                    return result.map(|()| to_be_filled);
                }
            }
        }
        result.map(|()| to_be_filled)
    }

    /// Does what can be done now about one gap. Returns whether another copy has to fill it.
    fn gap(&mut self, behind: TargetId, gap: &Gap, column: Option<&Column>) -> Result<bool> {
        let own = self.own();
        let who = if [ELSEWHERE, UNHEARD].contains(&behind) { own } else { behind };
        let place = column.and_then(|column| {
            let at = |target| column.copies.iter().position(|copy| copy.target == target);
            // One that was here before, and has gone, was another object than the one that has
            // come since.
            let here = at(own).filter(|here| *here == usize::from(gap.object.copy.0))?;
            Some((column, here, at(who)?))
        });
        // No other copy is left that could have it.
        if behind == ELSEWHERE && place.is_some_and(|(column, ..)| copies_in(column) == 1) {
            return Ok(false);
        }
        let place = place.filter(|(column, ..)| copies_in(column) > 1);
        // No file needs it any more, here or there.
        let Some((column, here, there)) = place else {
            self.disk.progress.is_not_ours(gap.object, behind);
            self.disk.store.gaps().clear(gap.object, behind, &(0..u64::MAX))?;
            return Ok(false);
        };
        if behind == UNHEARD {
            return self.hear(gap, column, here);
        }
        match self.shared.copies.standings.who_orders(&column.copies) {
            // Who went later may have what this one has lost.
            None => {
                Ok(behind == own && self.shared.copies.standings.comes_later(own, &column.copies))
            }
            Some(orders) if orders == own && behind == own => {
                // What this one lacks is to be known first.
                if !self.is_unheard(gap.object) {
                    self.give_to_others(gap, column, here)?;
                }
                Ok(false)
            }
            // One behind it may have it; else another should order, which has it. One that is
            // not back yet waits for nothing here: it is to come back first.
            Some(orders) if orders == own && behind == ELSEWHERE => {
                let back = |target: TargetId| {
                    ![own, TargetId::NONE].contains(&target)
                        && !self.shared.copies.standings.is_done_without(target)
                };
                if !column.copies.iter().any(|copy| back(copy.target)) {
                    return Ok(false);
                }
                // What is lacking is to be known first.
                if self.is_unheard(gap.object) {
                    return Ok(false);
                }
                if self.is_to_be_taken(gap, own) {
                    match self.take(gap, column) {
                        Ok(()) => return Ok(false),
                        Err(error) => {
                            let name = self.disk.store.name();
                            tracing::debug!("{name}: cannot fill a gap of {}: {error}", gap.object);
                        }
                    }
                }
                // One that is coming back may have it, and must not wait for this one.
                let standings = &self.shared.copies.standings;
                let comes = |target: TargetId| {
                    standings.is_known(target)
                        && !standings.is_online(target)
                        && !standings.is_away(target)
                };
                Ok(!column.copies.iter().any(|copy| comes(copy.target)))
            }
            Some(orders) if orders == own => {
                if self.is_unheard(gap.object) {
                    return Ok(false);
                }
                self.push(gap, column, there)?;
                Ok(false)
            }
            // It says itself what is so, when everybody has said what it missed before. Who is
            // not online may be the one that has it.
            Some(orders) if orders == who => {
                let standings = &self.shared.copies.standings;
                if standings.is_settled(who) && standings.is_online(own) {
                    self.disk.store.gaps().clear(gap.object, behind, &(0..u64::MAX))?;
                }
                Ok(false)
            }
            Some(orders) => {
                let refused = self.tell(orders, (behind, who), gap, column, there)?;
                if who != own || behind != own {
                    return Ok(false);
                }
                let counts =
                    !refused.is_empty() && self.counts(gap.object, &refused, column, orders)?;
                Ok(!counts || self.disk.store.gaps().of(gap.object, own).is_some())
            }
        }
    }

    /// Makes the bytes of this copy count: all other online copies receive them, and only then the
    /// gap is cleared.
    fn give_to_others(&mut self, gap: &Gap, column: &Column, here: usize) -> Result<()> {
        let copies = &self.shared.copies;
        let orders = copies.standings.orders(self.own(), &column.copies)?;
        let (gaps, own) = (self.disk.store.gaps(), self.own());
        // What comes to be in doubt anew from here on stays so.
        gap.bytes.iter().for_each(|range| gaps.sent(gap.object, own, &range));
        let others = column.copies.iter().enumerate();
        for (at, copy) in others.filter(|(at, c)| *at != here && c.target != TargetId::NONE) {
            let away =
                orders.lacking.contains(&copy.target) || orders.dispensable.contains(&copy.target);
            if !away {
                self.bring(gap, column, at)?;
                continue;
            }
            let index = CopyIndex(at as u8);
            for range in gap.bytes.iter() {
                self.disk.store.gaps().note(gap.object, copy.target, index, &range)?;
            }
        }
        self.disk.store.gaps().clear_sent(gap.object, self.own())
    }

    fn push(&mut self, gap: &Gap, column: &Column, to: usize) -> Result<()> {
        match self.disk.store.gaps().of(gap.object, ELSEWHERE) {
            None => {
                let catch_up = |push: &Push<'_>, buffer: &mut _| push.catch_up(&gap.bytes, buffer);
                self.with_push(gap, column, to, catch_up)
            }
            Some(elsewhere) => self.push_what_is_here(gap, &elsewhere, column, to),
        }
    }

    /// Sends the bytes that this copy has. Bytes that it lacks itself the other copy may have, and
    /// knows if not. But a copy that is being made gets them from no other, so its gap stays noted.
    fn push_what_is_here(
        &mut self,
        gap: &Gap,
        elsewhere: &RangeSet,
        column: &Column,
        to: usize,
    ) -> Result<()> {
        let mut here = gap.bytes.clone();
        elsewhere.iter().for_each(|lacking| here.remove(&lacking));
        let len = self.disk.store.object(gap.object)?.map_or(0, |object| object.len());
        let mut there_is = here.clone();
        there_is.remove(&(len..u64::MAX));
        if !there_is.is_empty() {
            self.bring(&Gap { bytes: there_is, ..gap.clone() }, column, to)?;
        }
        let mut behind_end = here.clone();
        behind_end.remove(&(0..len));
        if !behind_end.is_empty() {
            self.with_push(gap, column, to, |push, _| push.clear_away(&behind_end))?;
        }
        let CopyAccess { target, filling, .. } = column.copies[to];
        // What was brought has been struck out by that.
        match filling {
            true => Ok(()),
            false => self.leave_to(target, gap, &here),
        }
    }

    /// Leaves out bytes that this copy lacks itself. Later changes of them are another gap.
    fn leave_to(&self, target: TargetId, gap: &Gap, here: &RangeSet) -> Result<()> {
        let (gaps, locks) = (self.disk.store.gaps(), &self.shared.copies.locks);
        let mut lacking = gap.bytes.clone();
        here.iter().for_each(|range| lacking.remove(&range));
        for range in lacking.iter() {
            let _lock = locks.lock(self.own(), gap.object, range.clone());
            let elsewhere = gaps.of(gap.object, ELSEWHERE).unwrap_or_default();
            for part in elsewhere.iter() {
                let part = part.start.max(range.start)..part.end.min(range.end);
                if !part.is_empty() {
                    gaps.clear(gap.object, target, &part)?;
                }
            }
        }
        Ok(())
    }

    fn bring(&mut self, gap: &Gap, column: &Column, to: usize) -> Result<()> {
        self.with_push(gap, column, to, |push, buffer| push.bring(&gap.bytes, buffer))
    }

    fn with_push(
        &mut self,
        gap: &Gap,
        column: &Column,
        to: usize,
        bring: impl FnOnce(&Push<'_>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (shared, disk, object) = (&*self.shared, &*self.disk, gap.object);
        let pace = |bytes| self.pacer.pace(bytes);
        let push = Push { shared, disk, object, column, to, pace: &pace };
        let brought = bring(&push, &mut buffer);
        self.buffer = buffer;
        brought
    }
}

fn copies_in(column: &Column) -> usize {
    column.copies.iter().filter(|copy| copy.target != TargetId::NONE).count()
}
