//! What a single failure must not be felt as: calls on files with several copies
//! succeed, and in time, while one server of each column has been well, and so
//! have the clients and the metadata server.

use super::Violation;
use super::facts::{ClientFacts, FileFacts};
use super::health::Health;
use super::losses::{Asked, Losses, changed_by};
use crate::history::{Call, History, Outcome, Position, What};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_types::ErrorKind;

/// Until a client that was told of another way has gone it.
const FEW_SECONDS: Duration = Duration::from_secs(5);
/// Until a disk that hangs is done without.
const HUNG: Duration = Duration::from_secs(16);
/// Violations told of one run.
const MAX_VIOLATIONS: usize = 3;

/// What may be expected of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Clients hold leases: otherwise a write may meet a cut of another client.
    pub leases: bool,
    /// Until a data server that is silent counts as away.
    pub detection: Duration,
    /// Until everybody has leases and servers again after trouble with clients or
    /// the metadata server.
    pub recovery: Duration,
    /// A client gives up a request after so long.
    pub request: Duration,
    /// Targets are taken out of the cluster.
    pub removes: bool,
    /// Disks hang.
    pub hangs: bool,
}

/// Judges every call on files all of whose columns have several copies.
pub fn judge(
    history: &History,
    files: &[FileFacts],
    clients: &[ClientFacts],
    expected: Expected,
) -> Vec<Violation> {
    let (health, losses) = (Health::of(history), Losses::of(history, files));
    // A client may give a lease up only when it has written back: twice that.
    let hung = if expected.hangs { HUNG } else { Duration::ZERO };
    let limit = 2 * (expected.detection + hung) + FEW_SECONDS;
    let mut begun: BTreeMap<u32, (Position, u8, &Call)> = BTreeMap::new();
    let mut owed = Owed::default();
    // The end of a client's last change of a file that succeeded, by file and client.
    let mut settled: BTreeMap<(u8, u8), Position> = BTreeMap::new();
    // Clients that were refused because of a loss, and of which file: they may not be able to
    // give up their leases before that is accepted.
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
                // It may be told what became of what was written behind before.
                let behind = clients[usize::from(client)].write_behind;
                let asked = Asked { call, behind, span: (from, position) };
                let is_told_again = behind && owed.explains((client, file), call, outcome);
                // What was written behind since then may have failed at any time, and been told to
                // nobody: each call that failed meanwhile told its own error.
                let since = settled.get(&(file, client)).copied().unwrap_or(from).min(from);
                let owing =
                    Asked { call, behind, span: (if behind { since } else { from }, position) };
                if changed_by(call).is_some() && !matches!(outcome, Outcome::Unknown(_)) {
                    settled.insert((file, client), position);
                }
                // What is lost is waited for until somebody accepts that.
                let waited = losses.met(&asked).map(|accepted| history.entries[accepted].at);
                let took = entry.at.saturating_sub(waited.unwrap_or(begun_at));
                let before = match behind {
                    true => expected.request,
                    false => Duration::ZERO,
                };
                let span = (begun_at.saturating_sub(before), entry.at);
                let failed = match outcome {
                    // One that is full can still be read.
                    Outcome::Unknown(error) if error.kind == ErrorKind::NoSpace => continue,
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::Stale && !expected.leases =>
                    {
                        continue;
                    }
                    Outcome::Unknown(_) if is_told_again => continue,
                    // Nobody knows any more what a target had kept that was taken out.
                    Outcome::Unknown(error)
                        if error.kind == ErrorKind::Io
                            && expected.removes
                            && call.syncs_names() =>
                    {
                        continue;
                    }
                    // What every copy may have lost its client is told of.
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
                    // It waited for the lease of such a client.
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
                // One that hangs may be needed for what another has that is away.
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

/// What a client's calls on a file were told, and a sync has still to be told: who writes
/// again what was refused does not know that bytes of before are gone.
#[derive(Default)]
struct Owed(BTreeMap<(u8, u8), Vec<ErrorKind>>);

impl Owed {
    /// Whether a call fails with what an earlier one was told. Only a sync settles it.
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
