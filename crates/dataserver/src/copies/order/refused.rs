//! Changes that another copy refuses, because it has a damaged block there, or its disk fails. That
//! copy stops serving the range until it has received it from here. The copies are asked one by
//! one, since the chain does not say which has refused: copies with the change are authoritative if
//! this one is lost.

use super::{Order, Others, is_harmless};
use crate::machine::change::others;
use crate::peers::lines::says_nothing;
use crate::standing::roles::Orders;
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::Relay;

impl Order<'_> {
    /// Handles a refusal by another copy. If the change does not exist here either, nothing has
    /// happened. Otherwise the copies without it receive the bytes from here.
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

    /// Makes each other copy without the change stop serving the range until it has received it
    /// from here. Returns false if that did not succeed for all. The bytes of the rest count if
    /// this copy is lost.
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
            Err(error) if self.staged && self.change.wants_bytes(to, &error) => {
                self.staged = false;
                self.send(to, &relay).and_then(|line| self.answer(line, target, &relay))
            }
            sent => sent,
        }
    }

    /// Makes all other copies that take changes stop serving the range until they have received it
    /// from here. Returns false if a copy that may be read cannot be told now.
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

    /// Tells a copy that may be read that it lacks the change. Returns false if it cannot be told
    /// now.
    fn make_gap(&self, at: usize, target: TargetId, epoch: Epoch) -> Result<bool> {
        // First, so that somebody knows who has it.
        self.note_gap(target)?;
        if let Err(error) = self.tell_gap(at, target, epoch) {
            tracing::debug!("cannot report a gap to target {target}: {error}");
            return match error.kind {
                ErrorKind::Interrupted => Err(error),
                _ => Ok(false),
            };
        }
        self.note_told(target)?;
        Ok(true)
    }
}
