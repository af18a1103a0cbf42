//! The wait for the reply of the next copy in the chain, and the search for the reason if it does
//! not come: that copy may be unreachable, or may itself wait for copies after it.
//!
//! Invariant: a copy that is reported as unreachable is the last of the chain, and so waits for no
//! other, or could not be connected to.

use super::Copies;
use super::chain;
use super::follow::PATIENCE;
use super::lines::Line;
use super::order::{ORDER_MS, Order, STEP_MS, orders_of};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_types::{Error, ErrorKind, Result, TargetId};
use weir_wire::data::Relay;

/// After this time without a reply, the client side checks whether a copy that waits for others is
/// reachable, so that this is known when patience ends.
const DOUBT: Duration = Duration::from_secs(1);

/// The wait of one target for another.
pub(super) struct Awaited {
    pub(super) own: TargetId,
    pub(super) target: TargetId,
    /// Whether that target is the last of the chain, so that it has no other reason to be silent.
    pub(super) last: bool,
    pub(super) begun: Instant,
}

impl Awaited {
    /// Checks a wait for the first bytes on `line`. An error of `look` ends the wait.
    ///
    /// # Errors
    /// That of `look`.
    pub(super) fn look(
        &self,
        copies: &Copies,
        line: &Line<'_>,
        look: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        look()?;
        if !self.last && clock::elapsed(self.begun) > DOUBT {
            copies.lines.probe(self.target, &|| match line.is_ready(0) {
                Ok(false) => look(),
                _ => Err(ErrorKind::Interrupted.into()),
            });
        }
        self.gave_up(copies);
        Ok(())
    }

    /// Reports the target if it may be unreachable and was waited for long enough.
    pub(super) fn gave_up(&self, copies: &Copies) {
        let out_of_reach = self.last || copies.lines.is_out_of_reach(self.target);
        if out_of_reach && clock::elapsed(self.begun) >= PATIENCE {
            copies.cannot_reach(self.own, self.target);
        }
    }
}

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
