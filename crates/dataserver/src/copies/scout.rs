//! Tries to reach silent targets that changes do without, so that no change waits for the attempt.
//! While they stay silent, and changes are meant for them, the metadata server is told. Otherwise
//! the reports of other servers could bring such a target online again, and changes would wait for
//! it anew.

use crate::peers::lines::SCOUT_EVERY;
use crate::state::Shared;
use weir_host::net::Signal;

/// Works until the server stops.
pub(crate) fn run(shared: &Shared, shutdown: &Signal) {
    let copies = &shared.copies;
    // Who is away gets no changes.
    let wanted = |target| copies.standings.is_known(target) && !copies.standings.is_away(target);
    while matches!(shutdown.wait(Some(SCOUT_EVERY)), Ok(false)) {
        copies.lines.try_silent(wanted, |own, target| copies.cannot_reach(own, target));
    }
}
