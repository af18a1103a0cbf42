//! Sizes and times of files whose size only a cut changes. The size is the initial one, and the
//! time never goes back.

use super::facts::{ClientFacts, FileFacts};
use super::{Violation, trouble_of};
use crate::history::{CELL_BYTES, Call, History, Node, Outcome, Position, What};
use std::collections::BTreeMap;

/// The attributes of a file that a client was told.
struct Stat {
    id: u32,
    client: u8,
    begin: Position,
    end: Position,
    size: u64,
    mtime_ns: i64,
}

/// Judges what clients with leases were told. `clocks_agree`: the time comes from the writer's
/// clock, so otherwise it may go back.
pub fn judge(
    history: &History,
    files: &[FileFacts],
    clients: &[ClientFacts],
    clocks_agree: bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, facts) in files.iter().enumerate() {
        let mut stats = stats_of(history, file as u8);
        stats.retain(|stat| clients[usize::from(stat.client)].leases);
        if clocks_agree {
            violations.extend(goes_back(history, file, &stats));
        }
        if !facts.log {
            violations.extend(wrong_size(history, file, facts, &stats));
        }
    }
    violations
}

fn calls(history: &History) -> impl Iterator<Item = (Position, u32, u8, &Call)> {
    history.entries.iter().enumerate().filter_map(|(at, entry)| match &entry.what {
        What::Begin { id, client, call } => Some((at, *id, *client, call)),
        _ => None,
    })
}

fn stats_of(history: &History, file: u8) -> Vec<Stat> {
    let begun: BTreeMap<u32, (Position, u8)> = calls(history)
        .filter(|(_, _, _, call)| **call == Call::Stat { file })
        .map(|(at, id, client, _)| (id, (at, client)))
        .collect();
    let told = history.entries.iter().enumerate().filter_map(|(end, entry)| match entry.what {
        What::End { id, outcome: Outcome::Stat { size, mtime_ns } } => {
            let (begin, client) = *begun.get(&id)?;
            Some(Stat { id, client, begin, end, size, mtime_ns })
        }
        _ => None,
    });
    told.collect()
}

/// Finds a query whose time is later than that of a later query, unless the write of the later time
/// is lost.
fn goes_back(history: &History, file: usize, stats: &[Stat]) -> Option<Violation> {
    let lost = |from: Position, to: Position, client: u8| {
        let killed = What::ClientKilled { client };
        history.entries[from..to]
            .iter()
            .any(|e| matches!(e.what, What::PowerCut(Node::Meta)) || e.what == killed)
            || trouble_of(history, client).iter().any(|(a, b)| *a < to && *b > from)
    };
    stats.iter().enumerate().find_map(|(i, later)| {
        let earlier = stats[..i].iter().filter(|s| s.end < later.begin);
        let wrong = earlier
            .filter(|s| s.mtime_ns > later.mtime_ns)
            .find(|s| !lost(s.begin, later.end, s.client))?;
        let what = format!(
            "file {file}: its time goes back from {} (#{}) to {} (#{})",
            wrong.mtime_ns, wrong.id, later.mtime_ns, later.id
        );
        let about = |id: u32| id == wrong.id || id == later.id;
        Some(Violation { what, evidence: history.excerpt(about) })
    })
}

fn wrong_size(
    history: &History,
    file: usize,
    facts: &FileFacts,
    stats: &[Stat],
) -> Option<Violation> {
    let whole = u64::from(facts.cells) * CELL_BYTES as u64;
    let wrong = stats.iter().find(|stat| {
        stat.size != whole && !may_be_cut(history, file as u8, (stat.begin, stat.end))
    })?;
    let what = format!("file {file}: #{} was told {} bytes, not {whole}", wrong.id, wrong.size);
    let about = |other: u32| {
        other == wrong.id
            || calls(history).any(|(_, id, _, call)| {
                id == other && matches!(call, Call::Cut { file: f, .. } if usize::from(*f) == file)
            })
    };
    Some(Violation { what, evidence: history.excerpt(about) })
}

/// Whether a cut was in progress, or one with an unknown end came before, or the metadata server
/// forgot one.
fn may_be_cut(history: &History, file: u8, (begin, end): (Position, Position)) -> bool {
    let mut open = BTreeMap::new();
    for (at, entry) in history.entries[..end].iter().enumerate() {
        match &entry.what {
            What::Begin { id, call: Call::Cut { file: f, .. }, .. } if *f == file => {
                open.insert(*id, at);
            }
            What::End { id, outcome: Outcome::Done } if at < begin => {
                open.remove(id);
            }
            What::PowerCut(Node::Meta) => return true,
            _ => {}
        }
    }
    !open.is_empty()
}
