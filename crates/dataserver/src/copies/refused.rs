//! A change that another copy refuses, since it has a damaged block there, or its disk fails:
//! that one serves the range no more until it has got it from here. The others are asked one
//! by one, since the chain does not say who it was: those that have it count, should this
//! copy be lost.

use super::change::others;
use super::lines::says_nothing;
use super::order::{Order, Others, is_harmless, wants_bytes};
use super::roles::Orders;
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::Relay;

impl Order<'_> {
    /// Another copy does not take it. If it does not exist here either, nothing has
    /// happened; else those that do not take it are to get what is here.
    pub(super) fn refused(&mut self, orders: &Orders, error: Error) -> Result<Others> {
        if let Some(Err(own)) = &self.applied
            && own.kind == error.kind
            && is_harmless(own.kind)
        {
            return Ok(Others::Have);
        }
        let own_failed =
            matches!(&self.applied, Some(Err(own)) if !self.change.leaves_bytes(own.kind));
        if self.change.leaves_bytes(error.kind) && !own_failed {
            self.settled = true;
            return Ok(Others::Refused(error));
        }
        if !std::mem::replace(&mut self.refused, true) {
            let object = self.change.access.object;
            tracing::warn!("object {object}: another copy refuses a change: {error}");
        }
        if self.range.is_none() {
            // What could not be made durable there is not promised.
            return match error.kind {
                ErrorKind::Io | ErrorKind::ReadOnly => Ok(Others::Unknown),
                _ => Err(error),
            };
        }
        let known = match &self.applied {
            Some(Ok(_)) => self.ask_each(orders)?,
            _ => self.make_gaps(orders)?,
        };
        match known {
            true => Ok(Others::Refused(error)),
            false => Ok(Others::Unknown),
        }
    }

    /// Of the others each that does not take it serves the range no more until it has got it
    /// from here; false if that is not so of all now. What the rest have counts, should this
    /// copy be lost.
    fn ask_each(&mut self, orders: &Orders) -> Result<bool> {
        let all = self.change.access.copies.clone();
        for (at, target) in others(&all, self.own, &orders.lacking) {
            if orders.dispensable.contains(&target) {
                self.note_lacking(target)?;
                continue;
            }
            let refusal = match self.send_alone(at, orders.epoch) {
                Ok(()) => continue,
                Err(error) => error,
            };
            if refusal.kind == ErrorKind::Interrupted {
                return Err(refusal);
            }
            if says_nothing(&refusal) || !self.make_gap(at, target, orders.epoch)? {
                return Ok(false);
            }
        }
        self.settled = true;
        Ok(true)
    }

    fn send_alone(&mut self, to: usize, epoch: Epoch) -> Result<()> {
        let (lacking, way) = (Vec::new(), self.shared.copies.ways.now());
        let relay = Relay { by: self.own, epoch, lacking, alone: true, vouched: false, way };
        let target = self.change.access.copies[to].target;
        let sent = self.send(to, &relay).and_then(|line| self.answer(line, target, &relay));
        match sent {
            Err(error) if self.staged && wants_bytes(self.change, to, &error) => {
                self.staged = false;
                self.send(to, &relay).and_then(|line| self.answer(line, target, &relay))
            }
            sent => sent,
        }
    }

    /// All others that take changes serve the range no more until they have got it
    /// from here; false if one of them that may be read cannot be told now.
    pub(super) fn make_gaps(&mut self, orders: &Orders) -> Result<bool> {
        let all = self.change.access.copies.clone();
        for (at, target) in others(&all, self.own, &orders.lacking) {
            if orders.dispensable.contains(&target) {
                self.note_lacking(target)?;
                continue;
            }
            if !self.make_gap(at, target, orders.epoch)? {
                return Ok(false);
            }
        }
        self.settled = true;
        Ok(true)
    }

    /// One that may be read is told that it lacks it; false if it cannot be told now.
    fn make_gap(&self, at: usize, target: TargetId, epoch: Epoch) -> Result<bool> {
        // First, so that somebody knows who has it.
        self.note_gap(target)?;
        if let Err(error) = self.tell_gap(at, target, epoch) {
            tracing::debug!("target {target} cannot be told of a gap: {error}");
            return match error.kind {
                ErrorKind::Interrupted => Err(error),
                _ => Ok(false),
            };
        }
        self.note_told(target)?;
        Ok(true)
    }
}
