//! The threads of a disk: they carry out the operations in its queue, and wait for nothing but the
//! disk.

use crate::copies::follow::follow_at_the_end;
use crate::disk::Disk;
use crate::machine::{Outcome, Work};
use crate::queue::tasks::{Data, Event, Job, Task};
use crate::state::Shared;
use crate::state::suspects::{self, Scrubbed};
use weir_host::clock;
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};

/// Carries out tasks until the end. The body of a disk thread.
pub(crate) fn work_off(shared: &Shared, disk: &Disk) {
    while let Some(task) = disk.next_task() {
        let Task { op, work, mut data, sender, reply_to, .. } = task;
        let looked_at = suspects::looked_at(&work);
        let carry_out = || match work {
            Job::Plain(work) => {
                check_epoch(shared, &work)?;
                let now = told_under(&work, disk.served.id);
                let carry_out = || perform_in_place(shared, disk, work, &mut data);
                match now {
                    // Once it acts under a later epoch it may have ordered changes since.
                    Some(epoch) => {
                        let copies = &shared.copies;
                        let may = || copies.standings.is_acting(epoch).map(|()| epoch);
                        copies.turns.apply(disk.served.id, may, carry_out)
                    }
                    None => carry_out(),
                }
            }
            Job::Follow(change) => follow_at_the_end(shared, disk, &change, &mut data),
        };
        let result = match sender {
            Some(sender) => sender.in_turn(disk.served.id, carry_out),
            None => carry_out(),
        };
        let repairs = &shared.copies.repairs;
        let result = match result {
            Ok(Outcome::Scrubbed(page)) if suspects::is_about_objects(&page) => {
                repairs.scrubbed(Scrubbed { target: disk.served.id, page, op, reply_to });
                continue;
            }
            Err(error) if error.kind == ErrorKind::Corrupt => {
                if let Some(looked_at) = looked_at {
                    repairs.failed(disk.served.id, looked_at, &error);
                }
                Err(error)
            }
            other => other,
        };
        reply_to.post(Event::Done { op, result, data });
    }
}

/// Carries out an operation, unless its layout is older than the removal of the copy here: it
/// would find nothing, and take that for a hole, or make the object again.
fn perform_in_place(shared: &Shared, disk: &Disk, work: Work, data: &mut Data) -> Result<Outcome> {
    let Some(object) = work.by_layout() else { return disk.perform(work, data) };
    let (removed, begun) = (&shared.copies.removed, clock::now());
    removed.require_place(disk, object)?;
    let outcome = disk.perform(work, data)?;
    removed.require_stayed(disk, object, begun)?;
    Ok(outcome)
}

/// The epoch under which another target reports a gap of this one.
fn told_under(work: &Work, own: TargetId) -> Option<Epoch> {
    match work {
        Work::NoteGap { behind, epoch, filled: false, .. } if *behind == own => Some(*epoch),
        _ => None,
    }
}

/// Refuses a report under a newer epoch than this server's map, by which it may seem void.
fn check_epoch(shared: &Shared, work: &Work) -> Result<()> {
    match work {
        // From who ordered when that was so.
        Work::NoteGap { epoch, filled: true, .. } if *epoch != shared.copies.standings.acting() => {
            Err(Error::new(ErrorKind::Busy, "it acts under another map than the sender"))
        }
        Work::NoteGap { epoch, .. } if *epoch > shared.copies.standings.acting() => {
            Err(Error::new(
                ErrorKind::Busy,
                "its map is older than that of the server that has noted it",
            ))
        }
        _ => Ok(()),
    }
}
