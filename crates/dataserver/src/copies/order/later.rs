//! Changes that are acknowledged before the other copies have them (`server-async`,
//! `client-async`). Before the acknowledgement both sides note durably what those copies lack.
//! After it the change is passed on at once, in the order of the locks. The result is only
//! remembered: the gap stays until the thread for gaps has looked at it ([`crate::copies::resync`]) and
//! brings the bytes that have not arrived.

use super::{Order, STEP_MS};
use crate::copies::chain;
use crate::counters::add;
use crate::machine::Work;
use crate::machine::change::others;
use crate::peers::lines::Line;
use crate::standing::roles::Orders;
use crate::standing::unreachable::PATIENCE;
use std::ops::Range;
use weir_host::clock;
use weir_store::gap_parts;
use weir_types::{CopyIndex, Epoch, Error, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::Relay;

impl Order<'_> {
    /// Lets the other copies note that they lack the change, which they get afterwards: they count
    /// as lacking now. Some copies get it now instead: copies that are being updated or made,
    /// copies that cannot be told or are found to be away, and all copies if this one itself lacks
    /// bytes that are elsewhere.
    pub(super) fn put_off(&mut self, orders: &mut Orders) -> Result<()> {
        let all = &self.change.access.copies;
        let (object, Some(range)) = (self.change.access.object, self.range.clone()) else {
            return Ok(());
        };
        let gaps = self.disk.store.gaps();
        if !gaps.may_put_off(object, &range) {
            return Ok(());
        }
        for (at, target) in others(all, self.own, &orders.lacking).collect::<Vec<_>>() {
            // It would never have all that it lacks; and should it order then, nobody would
            // bring it what it has been told that it lacks.
            if orders.dispensable.contains(&target) {
                continue;
            }
            if self.is_put_off_for(object, &range, (at, target), orders.epoch)? {
                orders.lacking.push(target);
                self.later.push(target);
            }
        }
        Ok(())
    }

    /// Postpones the change for one copy, part by part. Returns false if it cannot be told of one
    /// of them.
    fn is_put_off_for(
        &self,
        object: ObjectId,
        range: &Range<u64>,
        (at, target): (usize, TargetId),
        epoch: Epoch,
    ) -> Result<bool> {
        let gaps = self.disk.store.gaps();
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(gap_parts(&(start..start + 1)).end);
            let piece = start..end;
            start = end;
            // Known to both already, as a rule.
            if gaps.put_off_again(object, target, &piece) {
                continue;
            }
            // It first: should this server end in between, that one lacks what is nowhere,
            // and gets what is here. What it lacked before, from one that ordered before,
            // is not known here: then nothing more is put off.
            let begun = clock::now();
            if let Err(error) = self.tell_first_gap(at, target, &piece, epoch) {
                tracing::debug!("cannot report a gap to target {target}: {error}");
                // It waits for nobody with that. Should only its disk be slow it is told of as well:
                // each change would wait for it anew.
                if error.kind == ErrorKind::TimedOut && clock::elapsed(begun) >= PATIENCE {
                    self.shared.copies.cannot_reach(self.own, target);
                }
                return Ok(false);
            }
            gaps.put_off(object, target, CopyIndex(at as u8), &piece)?;
        }
        Ok(true)
    }

    /// Passes the change on to the copies for which it was postponed. No client waits for that.
    pub(super) fn hand_on_later(&mut self) {
        let copies = &self.shared.copies;
        if self.later.iter().any(|target| copies.resting.is_resting(*target)) {
            return;
        }
        if let Err(error) = self.try_later() {
            tracing::debug!("target {}: changes stay postponed: {error}", self.own);
            // The first of them may have it, and hand it on after what is brought by then.
            copies.ways.leave();
            self.later.iter().for_each(|target| copies.resting.rest(*target));
        }
    }

    fn try_later(&mut self) -> Result<()> {
        let (copies, all) = (&self.shared.copies, &self.change.access.copies);
        let orders = copies.standings.orders(self.own, all)?;
        self.under_way.go_on(orders.epoch);
        // Who has it already gets the same once more, in the same order.
        let Orders { epoch, mut lacking, dispensable, .. } = orders;
        // As long as one is waited for here others wait for the same bytes. Who does not answer was
        // done without before, or has it.
        let is_silent = |target: &TargetId| copies.lines.misses(self.own, *target);
        lacking.extend(dispensable.into_iter().filter(is_silent));
        let way = copies.ways.now();
        let relay = Relay { by: self.own, epoch, lacking, alone: false, vouched: false, way };
        let Some(to) = chain::next(all, self.own, &relay) else { return Ok(()) };
        let line = self.send(to, &relay)?;
        let answer = self.answer_soon(line, all[to].target);
        match answer {
            Err(error) if self.staged && self.change.wants_bytes(to, &error) => {
                add(&self.shared.counters.staged_in_vain, 1);
                self.staged = false;
                let line = self.send(to, &relay)?;
                self.answer_soon(line, all[to].target)?;
            }
            answer => answer?,
        }
        let Work::Write { pieces, .. } = &self.change.work else { return Ok(()) };
        let takes = |target: &&TargetId| !relay.lacking.contains(target);
        for target in self.later.iter().filter(takes) {
            let gaps = self.disk.store.gaps();
            gaps.in_run(*target, copies.lines.run_of(*target));
            gaps.got(self.change.access.object, *target, pieces);
        }
        Ok(())
    }

    fn answer_soon(&mut self, line: Line<'_>, target: TargetId) -> Result<()> {
        let copies = &self.shared.copies;
        let begun = clock::now();
        while !line.is_ready(STEP_MS)? {
            let orders = copies.standings.orders(self.own, &self.change.access.copies)?;
            self.under_way.go_on(orders.epoch);
            if orders.lacking.contains(&target) || clock::elapsed(begun) > PATIENCE {
                return Err(Error::new(ErrorKind::TimedOut, "no answer"));
            }
        }
        self.change.receive(line, &copies.lines.wait(PATIENCE.as_millis() as u64))
    }
}
