//! The thread that repairs damage which reads and scrubs have found ([`crate::state::suspects`]). Disk
//! threads do not: they wait for no other server.

use super::{Mend, Mender};
use crate::disk::Disk;
use crate::disk::inspect::MAX_REASON;
use crate::machine::Outcome;
use crate::queue::tasks::{Data, Event};
use crate::state::Shared;
use crate::state::suspects::{Case, Scrubbed, Task, suspect_of};
use std::time::Duration;
use weir_host::clock;
use weir_wire::data::{Mended, ScrubPage};

/// Longest wait of a scrub's reply for repairs. Unfinished repairs are done after it.
const SCRUB_PATIENCE: Duration = Duration::from_secs(10);

/// Repairs suspects until the end. The body of the thread.
pub(crate) fn work_off(shared: &Shared) {
    let repairs = &shared.copies.repairs;
    while let Some((task, pause)) = repairs.next() {
        match task {
            Task::Suspect(case) => {
                let Some(disk) = shared.disk(case.target) else { continue };
                let mender = Mender { shared, disk, object: case.object };
                let mended = mender.mend(&case.suspect);
                // What fails again has been counted.
                if pause == Duration::ZERO || mended.is_ok() {
                    mender.count(&case.suspect, &mended);
                }
                if mended.is_err() {
                    repairs.put_off(case, pause);
                }
            }
            Task::Scrubbed(scrubbed) => {
                let Scrubbed { target, mut page, op, reply_to } = *scrubbed;
                if let Some(disk) = shared.disk(target) {
                    findings(shared, disk, &mut page);
                }
                let (result, data) = (Ok(Outcome::Scrubbed(page)), Data::default());
                reply_to.post(Event::Done { op, result, data });
            }
        }
    }
}

/// Repairs what a scrub has found, and says so in its reply.
fn findings(shared: &Shared, disk: &Disk, page: &mut ScrubPage) {
    let (repairs, begun) = (&shared.copies.repairs, clock::now());
    for finding in &mut page.findings {
        let Some((object, suspect)) = suspect_of(finding) else { continue };
        if clock::elapsed(begun) > SCRUB_PATIENCE {
            finding.mended = Mended::Failed;
            finding.what += "; not repaired yet";
            repairs.suspect(disk.served.id, object, suspect);
            continue;
        }
        let mender = Mender { shared, disk, object };
        let mended = mender.mend(&suspect);
        mender.count(&suspect, &mended);
        finding.mended = match mended {
            Ok(Mend::Alone) => Mended::No,
            // It was made good since.
            Ok(Mend::Sound | Mend::Header | Mend::Blocks(_)) => Mended::Done,
            Ok(Mend::Anew) => Mended::UnderWay,
            Err(why) => {
                finding.what += "; ";
                let mut room = MAX_REASON;
                finding.what.extend(why.message.chars().take_while(|c| {
                    room = room.saturating_sub(c.len_utf8());
                    room > 0
                }));
                let case = Case { target: disk.served.id, object, suspect };
                repairs.put_off(case, Duration::ZERO);
                Mended::Failed
            }
        };
    }
}
