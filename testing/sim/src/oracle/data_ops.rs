//! The calls on one file in a history, and their outcomes.
//!
//! Writes of a client with leases count as done when they have returned, even if they are held
//! back: nobody may read anything older. They may be lost with their client, or if the client is
//! told so. Without leases, a held-back write counts as done when a later sync, flush or cut of its
//! client has succeeded, and as unknown when one has failed. Meanwhile its own client sees it, by
//! the rule that calls of one client take effect in their order.

use super::facts::{ClientFacts, NEVER};
use crate::history::{CELL_BYTES, Call, History, Node, Outcome, Position, What};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_types::ErrorKind;

/// Within this time before a client's death, the metadata server may have restarted without the
/// client reporting its leases to it.
const BEFORE_DEATH: Duration = Duration::from_secs(10);
/// A session ends this long after its client's death.
const AFTER_DEATH: Duration = Duration::from_secs(35);

/// A call on a file, with its outcome.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub id: u32,
    pub client: u8,
    /// The run of the client.
    pub session: u32,
    pub begin: Position,
    /// The latest moment at which it was done; [`NEVER`]: unknown.
    pub end: Position,
    /// For an unknown outcome: when its client had stopped sending it.
    pub given_up: Position,
    /// For a call that was done and may be lost: from when on it may be lost or be done once more,
    /// and when its client had stopped sending it.
    pub loose: Option<(Position, Position)>,
    /// For a call that may be lost: from when on it may also be late.
    pub late: Option<Position>,
    /// A sync that failed because something is lost.
    pub told: bool,
    /// Calls with smaller numbers were made before the client opened the file.
    pub opened: u32,
    /// Held back by a client with leases.
    pub losable: bool,
    /// Of a client with leases: it can no longer be done once another client was granted a lease.
    pub fenced: bool,
    /// Of a client whose writes are all confirmed or given up when they return.
    pub in_line: bool,
    /// Whether it tells its client the outcome of earlier writes.
    pub tells: bool,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Write {
        first: u32,
        cells: u32,
    },
    /// At a place that is known from its result, or from a read.
    Append {
        first: Option<u32>,
        cells: u32,
    },
    Cut {
        keep: u32,
    },
    Read {
        first: u32,
        seen: Vec<u64>,
    },
    Sync,
}

impl Action {
    /// The value that it writes into a cell.
    pub fn writes(&self, id: u32, cell: u32) -> Option<u64> {
        let tag = u64::from(id) + 1;
        match *self {
            Action::Write { first, cells } => (first..first + cells).contains(&cell).then_some(tag),
            Action::Append { first: Some(first), cells } => {
                let within = (first..first + cells).contains(&cell);
                within.then(|| crate::history::cell_of_record(tag, cell - first))
            }
            Action::Cut { keep } => (cell >= keep).then_some(0),
            _ => None,
        }
    }

    /// The value that it read from a cell.
    pub fn read(&self, cell: u32) -> Option<u64> {
        match self {
            Action::Read { first, seen } if cell >= *first => {
                seen.get((cell - first) as usize).copied()
            }
            _ => None,
        }
    }
}

/// A call that tells its client the outcome of earlier writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tells {
    pub session: u32,
    pub begin: Position,
    pub end: Position,
    pub kind: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    /// A write: all losses before its begin have been reported.
    Nothing,
    /// A sync, flush or cut: all earlier writes have been sent.
    AllIsWell,
    /// Earlier writes may be lost.
    Lost,
    /// The client was killed: nobody is left to tell.
    Killed,
    /// The client was killed after it had sent everything; the size is found from the objects.
    Gone,
}

/// All calls on a file.
#[derive(Default)]
pub(super) struct Asked {
    /// In order of their begin.
    pub ops: Vec<Op>,
    /// The reports to clients with leases.
    pub told: Vec<Tells>,
}

/// The interpretation of a history.
struct Reading<'a> {
    file: u8,
    /// Number of cells of a growing file; there is nothing beyond its end.
    log_cells: Option<u32>,
    clients: &'a [ClientFacts],
    asked: Asked,
    /// Calls in progress, including calls about the file by other means.
    open: BTreeMap<u32, usize>,
    opened: Vec<u32>,
    kills: Vec<u32>,
    /// Calls that returned and are not known to be sent.
    unsettled: Vec<Vec<usize>>,
    /// Whether a client was killed, or may have lost leases.
    troubled: bool,
    /// For each client, until when its requests may arrive late.
    late: Vec<Duration>,
}

/// The calls on a file, with their ends.
pub(super) fn asked_of(
    history: &History,
    file: u8,
    log_cells: Option<u32>,
    clients: &[ClientFacts],
) -> Asked {
    let mut reading = Reading {
        file,
        log_cells,
        clients,
        asked: Asked::default(),
        open: BTreeMap::new(),
        opened: vec![0; clients.len()],
        kills: vec![0; clients.len()],
        unsettled: vec![Vec::new(); clients.len()],
        troubled: false,
        late: vec![Duration::ZERO; clients.len()],
    };
    let mut next_id = 0;
    for (at, entry) in history.entries.iter().enumerate() {
        match &entry.what {
            What::Begin { client, id, call } => {
                next_id = id + 1;
                reading.begin(at, *client, *id, call);
            }
            What::End { id, outcome } => reading.end((at, entry.at), *id, outcome),
            What::Trouble { client, until, late, .. } => {
                reading.troubled = true;
                // The request may arrive after others were granted leases, at a metadata server
                // that does not know of its client's leases.
                if *late || restarts_near(history, at, *until) {
                    reading.slow_down(at, *client, *until);
                }
            }
            What::ClientKilled { client } => {
                reading.troubled = true;
                let unknown = restarts_near(history, at, entry.at + AFTER_DEATH);
                reading.killed(at, *client, next_id, unknown);
            }
            _ => {}
        }
    }
    let mut asked = reading.asked;
    // A read or sync without a result proves nothing.
    asked.ops.retain(|op| {
        op.end != NEVER || op.told || !matches!(op.action, Action::Read { .. } | Action::Sync)
    });
    asked
}

fn action_of(call: &Call, wanted: u8) -> Option<Action> {
    let (file, action) = match call {
        Call::Write { file, first, cells } => {
            (file, Action::Write { first: *first, cells: *cells })
        }
        Call::Append { file, cells } => (file, Action::Append { first: None, cells: *cells }),
        Call::Read { file, first, cells } => {
            (file, Action::Read { first: *first, seen: vec![0; *cells as usize] })
        }
        Call::Cut { file, keep } => (file, Action::Cut { keep: *keep }),
        // A flush settles what a sync settles, but makes nothing durable.
        Call::Sync { file } => (file, Action::Sync),
        Call::Flush { file } | Call::Stat { file } => {
            (file, Action::Read { first: 0, seen: Vec::new() })
        }
        _ => return None,
    };
    (*file == wanted).then_some(action)
}

impl Reading<'_> {
    fn session(&self, client: u8) -> u32 {
        self.kills[usize::from(client)] << 8 | u32::from(client)
    }

    fn begin(&mut self, at: Position, client: u8, id: u32, call: &Call) {
        if *call == (Call::Flush { file: self.file }) {
            self.opened[usize::from(client)] = id;
        }
        let Some(action) = action_of(call, self.file) else { return };
        let facts = &self.clients[usize::from(client)];
        self.open.insert(id, self.asked.ops.len());
        self.asked.ops.push(Op {
            id,
            client,
            session: self.session(client),
            begin: at,
            end: NEVER,
            given_up: NEVER,
            loose: None,
            late: None,
            told: false,
            opened: self.opened[usize::from(client)],
            // The size of appended bytes is unknown before it is reported.
            losable: facts.leases && (facts.write_behind || matches!(call, Call::Append { .. })),
            fenced: facts.leases,
            in_line: !facts.write_behind,
            tells: !matches!(call, Call::Read { .. } | Call::Stat { .. }),
            action,
        });
    }

    fn end(&mut self, (at, now): (Position, Duration), id: u32, outcome: &Outcome) {
        let Some(index) = self.open.remove(&id) else { return };
        let log_cells = self.log_cells;
        let op = &mut self.asked.ops[index];
        let client = usize::from(op.client);
        let behind = self.clients[client].write_behind;
        let writes = matches!(op.action, Action::Write { .. } | Action::Append { .. });
        let held = behind || op.losable;
        let is_flush = matches!(op.action, Action::Read { .. }) && *outcome == Outcome::Done;
        let settles = is_flush || matches!(op.action, Action::Sync | Action::Cut { .. });
        let kind = match outcome {
            Outcome::Unknown(_) => Told::Lost,
            _ if settles => Told::AllIsWell,
            _ => Told::Nothing,
        };
        let (losable, fenced, tells) = (op.losable, op.fenced, op.tells);
        if fenced && tells {
            let (session, begin) = (op.session, op.begin);
            self.asked.told.push(Tells { session, begin, end: at, kind });
        }
        match outcome {
            Outcome::Unknown(error) => {
                op.given_up = at;
                op.told = error.kind == ErrorKind::Io && op.action == Action::Sync;
                // The error may belong to any earlier write. Those may still be on their way, and
                // it is unknown when they are given up.
                if tells || !fenced {
                    for write in std::mem::take(&mut self.unsettled[client]) {
                        self.asked.ops[write].loose = fenced.then_some((at, NEVER));
                    }
                }
            }
            Outcome::Cells(tags) => {
                op.end = at;
                if let Action::Read { first, seen } = &mut op.action {
                    let short = tags.len() < seen.len();
                    seen.clone_from(tags);
                    if let Some(cells) = log_cells.filter(|_| short) {
                        // There is nothing beyond the end of a growing file.
                        seen.resize(seen.len().max(cells.saturating_sub(*first) as usize), 0);
                    }
                }
            }
            Outcome::Stat { size, .. } => {
                op.end = at;
                if self.troubled {
                    // If a dead client had not reported its size, whoever opens the file determines
                    // it.
                    op.action = Action::Read { first: 0, seen: Vec::new() };
                    return;
                }
                let first = size.div_ceil(CELL_BYTES as u64) as u32;
                let beyond = log_cells.unwrap_or(0).saturating_sub(first);
                op.action = Action::Read { first, seen: vec![0; beyond as usize] };
            }
            _ if writes && held => {
                if losable {
                    op.end = at;
                    op.late = (self.late[client] >= now).then_some(at);
                }
                self.unsettled[client].push(index);
            }
            _ => {
                op.end = at;
                if settles {
                    for write in self.unsettled[client].drain(..) {
                        let write = &mut self.asked.ops[write];
                        write.end = write.end.min(at);
                    }
                }
            }
        }
        if let (Outcome::At(offset), Action::Append { first, .. }) =
            (outcome, &mut self.asked.ops[index].action)
        {
            *first = Some((offset / CELL_BYTES as u64) as u32);
        }
    }

    fn slow_down(&mut self, at: Position, client: Option<u8>, until: Duration) {
        for number in 0..self.late.len() {
            if client.is_none_or(|client| usize::from(client) == number) {
                self.late[number] = self.late[number].max(until);
                for write in &self.unsettled[number] {
                    let write = &mut self.asked.ops[*write];
                    write.late = write.late.or(Some(at)).filter(|_| write.losable);
                }
            }
        }
    }

    /// `unknown`: the metadata server may not know which leases the client held.
    fn killed(&mut self, at: Position, client: u8, next_id: u32, unknown: bool) {
        let session = self.session(client);
        self.opened[usize::from(client)] = next_id;
        let ops = &mut self.asked.ops;
        let facts = &self.clients[usize::from(client)];
        let sent = !facts.write_behind && !unknown;
        for op in std::mem::take(&mut self.unsettled[usize::from(client)]) {
            if ops[op].losable && sent {
                ops[op].late = None;
            } else if ops[op].losable {
                (ops[op].loose, ops[op].late) = (Some((at, at)), None);
            } else {
                ops[op].given_up = at;
            }
        }
        let under_way = self.open.values().filter(|op| ops[**op].client == client);
        for op in under_way.copied().collect::<Vec<_>>() {
            ops[op].given_up = at;
        }
        if unknown {
            for op in ops.iter_mut().filter(|op| op.session == session && op.fenced) {
                (op.losable, op.fenced) = (true, false);
            }
        }
        self.open.retain(|_, op| ops[*op].client != client);
        if facts.leases {
            let kind = if sent { Told::Gone } else { Told::Killed };
            self.asked.told.push(Tells { session, begin: at, end: at, kind });
        }
        self.kills[usize::from(client)] += 1;
    }
}

fn ends_meta(what: &What) -> bool {
    matches!(what, What::Down(Node::Meta) | What::PowerCut(Node::Meta))
}

/// The metadata server has leases in memory only, and is told about them after a restart. It does
/// not know those of a client that dies or is away at about that time. Then the client's writes are
/// not fenced off, and a size that it had not reported is not found.
fn restarts_near(history: &History, at: Position, until: Duration) -> bool {
    let away = history.entries[at].at;
    history
        .entries
        .iter()
        .any(|entry| ends_meta(&entry.what) && entry.at + BEFORE_DEATH >= away && entry.at <= until)
}
