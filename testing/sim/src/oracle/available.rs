//! Availability under single failures: calls on files with several copies must succeed in time
//! while one server of each column, the clients and the metadata server have been well.

use super::Violation;
use super::facts::{ClientFacts, FileFacts};
use super::health::Health;
use super::losses::{Asked, Losses, changed_by};
use crate::history::{Call, History, Outcome, Position, What};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_types::ErrorKind;

/// Time until a client has used another route that it was told about.
const FEW_SECONDS: Duration = Duration::from_secs(5);
/// Time until others go on without a hanging disk.
const HUNG: Duration = Duration::from_secs(16);
/// Maximum number of violations reported for a run.
const MAX_VIOLATIONS: usize = 3;

/// The expectations for a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Clients hold leases. Otherwise a write may collide with another client's cut.
    pub leases: bool,
    /// Time until a silent data server counts as away.
    pub detection: Duration,
    /// Time until everybody has leases and servers again after a disturbance of clients or the
    /// metadata server.
    pub recovery: Duration,
    /// Timeout of a client's request.
    pub request: Duration,
    /// Whether targets are removed from the cluster.
    pub removes: bool,
    /// Whether disks hang.
    pub hangs: bool,
}

/// Judges every call on files whose columns all have several copies.
pub fn judge(
    history: &History,
    files: &[FileFacts],
    clients: &[ClientFacts],
    expected: Expected,
) -> Vec<Violation> {
    let (health, losses) = (Health::of(history), Losses::of(history, files));
    // A client may return a lease only after it has written back, so this counts twice.
    let hung = if expected.hangs { HUNG } else { Duration::ZERO };
    let limit = 2 * (expected.detection + hung) + FEW_SECONDS;
    let mut begun: BTreeMap<u32, (Position, u8, &Call)> = BTreeMap::new();
    let mut owed = Owed::default();
    // For each file and client, the end of the client's last successful change.
    let mut settled: BTreeMap<(u8, u8), Position> = BTreeMap::new();
    // Clients that were refused because of a loss, with the file. They may be unable to return
    // their leases before the loss is accepted.
    let mut refused = BTreeSet::new();
    let mut violations = Vec::new();
    for (position, entry) in history.entries.iter().enumerate() {
        match &entry.what {
            What::Begin { id, client, call } => {
                begun.insert(*id, (position, *client, call));
            }
            What::End { id, outcome } => {
                let Some((from, client, call)) = begun.get(id).copied() else { continue };
                let Some(file) = file_of(call) else { continue };
                let begun_at = history.entries[from].at;
                // The call may report the outcome of earlier write-behind.
                let behind = clients[usize::from(client)].write_behind;
                let asked = Asked { call, behind, span: (from, position) };
                let is_told_again = behind && owed.explains((client, file), call, outcome);
                // Write-behind since then may have failed at any time without a report: each
                // failing call reported its own error.
                let since = settled.get(&(file, client)).copied().unwrap_or(from).min(from);
                let owing =
                    Asked { call, behind, span: (if behind { since } else { from }, position) };
                if changed_by(call).is_some() && !matches!(outcome, Outcome::Unknown(_)) {
                    settled.insert((file, client), position);
                }
                // A call waits for a loss until somebody accepts it.
                let waited = losses.met(&asked).map(|accepted| history.entries[accepted].at);
                let took = entry.at.saturating_sub(waited.unwrap_or(begun_at));
                let before = match behind {
                    true => expected.request,
                    false => Duration::ZERO,
                };
                let span = (begun_at.saturating_sub(before), entry.at);
                let failed = match outcome {
                    // A full disk can still be read.
                    Outcome::Unknown(error) if error.kind == ErrorKind::NoSpace => continue,
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::Stale && !expected.leases =>
                    {
                        continue;
                    }
                    Outcome::Unknown(_) if is_told_again => continue,
                    // Nobody knows any longer what a removed target had.
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::Io
                            && expected.removes
                            && call.syncs_names() =>
                    {
                        continue;
                    }
                    // A client is told when every copy may have lost its data.
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::Io
                            && files[usize::from(file)]
                                .may_have_lost(&health, history, position) =>
                    {
                        continue;
                    }
                    Outcome::Unknown(error) if losses.explain(error.kind, &owing) => {
                        refused.insert((file, client));
                        continue;
                    }
                    // The call waited for the lease of such a client.
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::TimedOut
                            && expected.leases
                            && waited.is_some()
                            && refused
                                .iter()
                                .any(|(of, who)| (*of, *who != client) == (file, true)) =>
                    {
                        continue;
                    }
                    Outcome::Unknown(error) => {
                        Some(format!("failed with {:?}: {error}", error.kind))
                    }
                    _ if took > limit => Some("came too late".to_owned()),
                    _ => None,
                };
                let Some(failed) = failed else { continue };
                let served = files[usize::from(file)].are_served(&health, span);
                // The hanging disk may be needed for data of a server that is away.
                let needed = expected.hangs && health.are_several_in_doubt(span);
                if !served || needed || health.is_troubled(expected.recovery, span) {
                    continue;
                }
                let what = format!(
                    "#{id} of client{client} ({call:?}) {failed}, after {:.3} s, although a copy of \
                     each column was there all the time",
                    took.as_secs_f64()
                );
                violations
                    .push(Violation { what, evidence: history.excerpt(|other| other == *id) });
            }
            _ => {}
        }
        if violations.len() >= MAX_VIOLATIONS {
            break;
        }
    }
    violations
}

/// Errors of a client's calls on a file that a sync still has to report. A client that repeats a
/// refused write does not know that earlier bytes are gone.
#[derive(Default)]
struct Owed(BTreeMap<(u8, u8), Vec<ErrorKind>>);

impl Owed {
    /// Whether a call fails with the error of an earlier one. Only a sync settles it.
    fn explains(&mut self, of: (u8, u8), call: &Call, outcome: &Outcome) -> bool {
        let owed = self.0.entry(of).or_default();
        let tells = matches!(call, Call::Sync { .. } | Call::Flush { .. });
        let explains =
            matches!(outcome, Outcome::Unknown(error) if tells && owed.contains(&error.kind));
        match outcome {
            _ if matches!(call, Call::Sync { .. }) => owed.clear(),
            Outcome::Unknown(error) => owed.push(error.kind),
            _ => {}
        }
        explains
    }
}

fn file_of(call: &Call) -> Option<u8> {
    match call {
        Call::Write { file, .. }
        | Call::Read { file, .. }
        | Call::Append { file, .. }
        | Call::Stat { file }
        | Call::Cut { file, .. }
        | Call::Sync { file }
        | Call::Flush { file } => Some(*file),
        _ => None,
    }
}
