//! Errors returned to clients. Each must be explained by a fault, and there are none after
//! everything has healed.

use super::Violation;
use super::losses::{Asked, Losses};
use crate::history::{Call, History, Node, Outcome, Position, What};
use crate::plan::{DiskErrorKind, Fault, NodeName, Plan, PlannedFault};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_types::ErrorKind;

/// Calls that begin this long after the last fault succeed.
pub const GRACE: Duration = Duration::from_secs(10);
/// Maximum number of violations reported for a run.
const MAX_VIOLATIONS: usize = 3;

/// Judges every error.
pub fn judge(history: &History, plan: &Plan, losses: &Losses) -> Vec<Violation> {
    let facts = Facts::new(plan);
    let mut healed = Duration::MAX;
    let mut begun: BTreeMap<u32, (Position, &Call, u8)> = BTreeMap::new();
    // For each file, clients with leases or write-behind that have not been told the outcome of
    // earlier writes.
    let mut owed: BTreeSet<(u8, u8)> = BTreeSet::new();
    // For each file, clients whose next sync must still report an error of a write.
    let mut unsynced: BTreeSet<(u8, u8)> = BTreeSet::new();
    // Files whose writes have all been sent since: a power cut of the metadata server may undo the
    // size, which is lost with the lease.
    let mut flushed: BTreeSet<(u8, u8)> = BTreeSet::new();
    // Clients that may have lost leases.
    let mut troubled: BTreeSet<u8> = BTreeSet::new();
    let mut violations = Vec::new();
    for (position, entry) in history.entries.iter().enumerate() {
        match &entry.what {
            What::Healed => healed = entry.at + GRACE,
            What::PowerCut(Node::Meta) => {
                owed.extend(&flushed);
                unsynced.extend(&flushed);
            }
            What::Trouble { client: Some(client), .. } => drop(troubled.insert(*client)),
            What::Trouble { client: None, .. } => troubled.extend(0..=u8::MAX),
            What::Begin { id, call, client } => {
                begun.insert(*id, (position, call, *client));
                let behind = plan.shape.leases || writes_behind(plan, *client);
                if let Call::Write { file, .. } | Call::Append { file, .. } = call
                    && behind
                    && (entry.at <= healed || losses.of_file(*file).any(|l| l.contains(&position)))
                {
                    owed.insert((*client, *file));
                    unsynced.insert((*client, *file));
                }
            }
            What::End { id, outcome: Outcome::Done } => {
                if let Some((_, call @ (Call::Sync { file } | Call::Flush { file }), client)) =
                    begun.get(id)
                {
                    let of = (*client, *file);
                    let was_owed = owed.remove(&of) | unsynced.remove(&of);
                    match call {
                        Call::Flush { .. } if was_owed => drop(flushed.insert(of)),
                        Call::Flush { .. } => {}
                        _ => drop(flushed.remove(&of)),
                    }
                }
            }
            What::End { id, outcome: Outcome::Unknown(error) } => {
                let Some((from, call, client)) = begun.get(id).copied() else { continue };
                // Other errors concern the call itself, and a close does not settle them.
                let of_before = matches!(error.kind, ErrorKind::LeaseLost | ErrorKind::Io)
                    && !matches!(call, Call::Flush { .. });
                let tells = match call {
                    Call::Write { file, .. }
                    | Call::Append { file, .. }
                    | Call::Cut { file, .. } => tells(&mut owed, (client, *file), of_before),
                    Call::Sync { file } | Call::Flush { file } => {
                        let of = (client, *file);
                        // Both have been reported by then.
                        tells(&mut owed, of, of_before) | tells(&mut unsynced, of, of_before)
                    }
                    _ => false,
                };
                if error.kind == ErrorKind::LeaseLost && !troubled.contains(&client) {
                    violations.push(Violation {
                        what: format!(
                            "#{id} of client{client} ({call:?}): leases were lost, although nothing kept the client from the metadata server"
                        ),
                        evidence: history.excerpt(|other| other == *id),
                    });
                }
                let (behind, span) = (writes_behind(plan, client), (from, position));
                if losses.explain(error.kind, &Asked { call, behind, span }) {
                    continue;
                }
                let asked = history.entries[from].at;
                let late = asked > healed && !tells;
                let span = Span { asked, told: entry.at, tells };
                if !facts.explain(error.kind, call, client, late, &span) {
                    let when = entry.at.as_secs_f64();
                    let why = if late { " although all faults have ended" } else { "" };
                    let kind = error.kind;
                    violations.push(Violation {
                        what: format!(
                            "#{id} of client{client} ({call:?}) failed at {when:.4} s with {kind:?}: {error}{why}"
                        ),
                        evidence: history.excerpt(|other| other == *id),
                    });
                }
            }
            _ => {}
        }
        if violations.len() >= MAX_VIOLATIONS {
            break;
        }
    }
    violations
}

/// Whether a call may report errors of earlier writes. `settles`: afterwards nothing is left to
/// report.
fn tells(owed: &mut BTreeSet<(u8, u8)>, of: (u8, u8), settles: bool) -> bool {
    if settles { owed.remove(&of) } else { owed.contains(&of) }
}

fn writes_behind(plan: &Plan, client: u8) -> bool {
    plan.clients.get(usize::from(client)).is_some_and(|client| client.write_behind)
}

/// The time of a call, and whether it may report errors of earlier writes.
struct Span {
    asked: Duration,
    told: Duration,
    tells: bool,
}

/// A fault of a disk.
struct DiskFault {
    from: Duration,
    /// Calls that begin before this may meet the fault, or a server that it has ended.
    until: Duration,
    /// The disk is full.
    is_full: bool,
}

impl DiskFault {
    fn of(planned: &PlannedFault) -> Option<Self> {
        let (is_full, ms) = match planned.fault {
            Fault::DiskError { error, ms, .. } => (error == DiskErrorKind::NoSpace, ms),
            Fault::DiskFails { ms, .. } => (false, ms),
            Fault::DiskFull { ms, .. } => (true, ms),
            _ => return None,
        };
        let from = Duration::from_millis(planned.at_ms.into());
        Some(Self { from, until: from + Duration::from_millis(ms.into()) + GRACE, is_full })
    }

    fn explains(&self, kind: ErrorKind, span: &Span) -> bool {
        let is_it = kind != ErrorKind::NoSpace || self.is_full;
        is_it && span.told >= self.from && (span.tells || span.asked <= self.until)
    }
}

/// The parts of a plan that explain errors.
struct Facts<'a> {
    plan: &'a Plan,
    disk_faults: Vec<DiskFault>,
    power_cuts: bool,
    /// Whether nothing goes wrong at all.
    quiet: bool,
}

impl<'a> Facts<'a> {
    fn new(plan: &'a Plan) -> Self {
        let any = |wanted: fn(&Fault) -> bool| plan.faults.iter().any(|p| wanted(&p.fault));
        Self {
            plan,
            // Without leases, a write may collide with another client's cut.
            quiet: plan.shape.leases && plan.faults.is_empty() && plan.shape.reset_ppm == 0,
            disk_faults: plan.faults.iter().filter_map(DiskFault::of).collect(),
            power_cuts: any(|fault| matches!(fault, Fault::PowerCut { .. })),
        }
    }

    fn explain(&self, kind: ErrorKind, call: &Call, client: u8, late: bool, span: &Span) -> bool {
        use ErrorKind as K;
        match (call, kind) {
            _ if self.quiet => false,
            // The metadata server forgets the open files of a client that has been silent for long.
            (Call::Peek { .. }, _) if self.was_away(client) => true,
            (Call::Peek { .. }, K::Stale) => false,
            // Data written before a power cut may be gone, and the next sync reports it, however
            // late. And nobody knows any longer what a removed target had.
            (call, K::Io) if call.syncs_names() => {
                // However late the sync comes.
                let span = Span { tells: true, ..*span };
                let failed = |fault: &DiskFault| fault.explains(kind, &span);
                self.disk_faults.iter().any(failed) || self.power_cuts || self.plan.removes()
            }
            _ if late => false,
            // A session that a power cut has undone; the call timed out.
            (_, K::BadCapability | K::BadTicket) => self.power_cuts,
            (_, K::Io | K::NoSpace | K::ReadOnly) => {
                self.disk_faults.iter().any(|fault| fault.explains(kind, span))
            }
            (_, kind) => matches!(
                kind,
                K::TimedOut
                    | K::Unreachable
                    | K::Stale
                    | K::LeaseLost
                    | K::Busy
                    | K::Overloaded
                    | K::SessionExpired
                    | K::TargetMissing
                    | K::NotCurrent
            ),
        }
    }

    /// Whether something kept a client from the metadata server.
    fn was_away(&self, client: u8) -> bool {
        let this = NodeName::Client(client);
        self.plan.shape.reset_ppm > 0
            || self.plan.faults.iter().any(|planned| match &planned.fault {
                Fault::Stop { node, .. }
                | Fault::Kill { node, .. }
                | Fault::PowerCut { node, .. } => *node == this,
                Fault::Partition { a, b, .. } | Fault::Slow { a, b, .. } => {
                    *a == this || *b == this
                }
                Fault::Late { client: late, .. } => *late == client,
                Fault::SlowDisk { node, .. } | Fault::DiskError { node, .. } => {
                    *node == NodeName::Meta
                }
                _ => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_a_disk_explains_errors_of_its_time_and_kind() {
        let node = NodeName::Data(0);
        let full = PlannedFault { at_ms: 5_000, fault: Fault::DiskFull { node, ms: 1_000 } };
        let fails = PlannedFault { fault: Fault::DiskFails { node, ms: 1_000 }, ..full.clone() };
        let [full, fails] = [full, fails].map(|planned| DiskFault::of(&planned).unwrap());
        let ms = Duration::from_millis;
        let span = |asked, told, tells| Span { asked: ms(asked), told: ms(told), tells };
        let meanwhile = span(4_000, 5_500, false);
        assert!(full.explains(ErrorKind::NoSpace, &meanwhile));
        assert!(full.explains(ErrorKind::Io, &meanwhile));
        assert!(fails.explains(ErrorKind::Io, &meanwhile));
        assert!(!fails.explains(ErrorKind::NoSpace, &meanwhile), "it had room all the time");
        assert!(!full.explains(ErrorKind::NoSpace, &span(4_000, 4_500, true)), "before");
        assert!(!full.explains(ErrorKind::NoSpace, &span(20_000, 20_500, false)), "long after");
        assert!(
            full.explains(ErrorKind::NoSpace, &span(20_000, 20_500, true)),
            "of a write of then"
        );
    }
}
