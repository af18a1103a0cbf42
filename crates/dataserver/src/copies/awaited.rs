//! The wait for the next copy in the chain, and the search for the reason if its reply does not come:
//! that copy may be unreachable, or may itself wait for copies after it.
//!
//! Invariant: a copy that is reported as unreachable is the last of the chain, and so waits for no
//! other, or could not be connected to.

use crate::peers::lines::Line;
use crate::standing::unreachable::PATIENCE;
use crate::state::copies::Copies;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_types::{ErrorKind, Result, TargetId};

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
