//! The wait for the reply of the next copy in the chain.

use super::{ORDER_MS, Order, STEP_MS, orders_of};
use crate::copies::awaited::Awaited;
use crate::copies::chain;
use crate::peers::lines::Line;
use crate::standing::unreachable::PATIENCE;
use std::cell::RefCell;
use std::time::Duration;
use weir_host::clock;
use weir_types::{Error, ErrorKind, Result, TargetId};
use weir_wire::data::Relay;

impl Order<'_> {
    /// Waits for a reply as long as it is wanted.
    pub(super) fn answer(&mut self, line: Line<'_>, target: TargetId, relay: &Relay) -> Result<()> {
        let (copies, all) = (&self.shared.copies, &self.change.access.copies);
        let last = chain::next(all, target, relay).is_none();
        let begun = clock::now();
        let awaited = Awaited { own: self.own, target, last, begun };
        let (own, since) = (self.own, self.since);
        let under_way = RefCell::new(&mut self.under_way);
        let look = || {
            let orders = orders_of(&copies.standings, own, all, &under_way.borrow(), since)?;
            // Else the epoch in which the other one is done without never comes.
            under_way.borrow_mut().go_on(orders.epoch);
            let waited = clock::elapsed(begun);
            let spared = orders.dispensable.contains(&target) && waited > PATIENCE;
            let over = waited > Duration::from_millis(ORDER_MS);
            match orders.lacking.contains(&target) || spared || over {
                true => Err(Error::new(ErrorKind::TimedOut, "no answer")),
                false => Ok(()),
            }
        };
        while !line.is_ready(STEP_MS)? {
            awaited.look(copies, &line, &look)?;
        }
        // Who has begun to answer may be cut off before the end of it.
        self.change.receive(line, &copies.lines.wait(PATIENCE.as_millis() as u64))
    }
}
