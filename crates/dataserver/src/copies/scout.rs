//! Tries targets that did not answer and are done without: no change waits for that. As long as
//! they do not, and would get changes, the metadata server is told: else such a target might be
//! online again by what others say of it, and changes would wait for it anew.

use crate::service::Shared;
use std::time::Duration;
use weir_host::net::Signal;

/// Between looks whether it is time to try one.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// Until the server stops.
pub(crate) fn run(shared: &Shared, shutdown: &Signal) {
    let copies = &shared.copies;
    // Who is away gets no changes.
    let wanted = |target| copies.standings.is_known(target) && !copies.standings.is_away(target);
    while matches!(shutdown.wait(Some(INTERVAL)), Ok(false)) {
        copies.lines.try_silent(wanted, |own, target| copies.cannot_reach(own, target));
    }
}
