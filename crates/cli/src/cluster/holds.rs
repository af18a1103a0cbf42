//! `weir locks`: shows who holds or waits for which locks and leases on which files.

use crate::args::{HoldChoice, Locks};
use crate::cluster::program::Program;
use crate::cluster::sessions::{each, host_of};
use crate::failure::{Done, Failure};
use crate::files::name::{RemoteName, shown};
use crate::files::remote::{Sessions, connect};
use crate::logging;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_duration, plain};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use weir_client::{Administrator, Client};
use weir_types::{FileId, SessionId};
use weir_wire::holders::{Hold, HoldKind, ListHoldsRequest, SessionView};
use weir_wire::lock::LAST_BYTE;

/// The owner of a session.
struct Holder {
    host: String,
    program: Program,
}

/// The locks and leases that were found.
struct Found {
    holds: Vec<Hold>,
    holders: HashMap<SessionId, Holder>,
    /// Whether there are more than were asked for.
    more: bool,
}

/// Runs `weir locks`.
pub fn list(asked: &Locks) -> Done {
    let found = find(asked)?;
    if found.more {
        logging::say(&format!("weir: there are more than {}; --limit shows more", asked.limit));
    }
    if asked.json {
        let holds: Vec<Value> = found.holds.iter().map(|hold| found.to_json(hold)).collect();
        return print_json(&json!({ "more": found.more, "locks": holds }));
    }
    print(&found.table().render())
}

fn find(asked: &Locks) -> Done<Found> {
    if asked.paths.is_empty() {
        let client = connect(&settings::cluster(&asked.client)?.credential()?, "locks")?;
        return look(asked, &client, &[None]);
    }
    let mut sessions = Sessions::default();
    let mut files = Vec::new();
    let mut tree = None;
    for path in &asked.paths {
        let name = RemoteName::parse(path)?;
        let of = sessions.tree(&asked.client, &name, "locks")?;
        files.push(Some(of.attr(&name.path, true)?.file));
        let first = tree.get_or_insert_with(|| of.clone());
        if !Arc::ptr_eq(first, &of) {
            return Err(Failure::new("the files are of different clusters")
                .hint("ask for those of each cluster by itself"));
        }
    }
    match tree {
        Some(tree) => look(asked, &tree.client, &files),
        None => Ok(Found { holds: Vec::new(), holders: HashMap::new(), more: false }),
    }
}

/// Lists the locks and leases on some files, or on all.
fn look(asked: &Locks, client: &Client, files: &[Option<FileId>]) -> Done<Found> {
    let mut holders = HashMap::new();
    each(client, |view: SessionView| {
        let program = Program::parse(&view.program);
        holders.insert(view.session, Holder { host: host_of(&view).to_owned(), program });
        true
    })?;
    let mut found = Found { holds: Vec::new(), holders, more: false };
    let admin = client.administrator()?;
    for file in files {
        look_at(asked, &admin, *file, &mut found)?;
    }
    Ok(found)
}

fn look_at(asked: &Locks, admin: &Administrator, file: Option<FileId>, found: &mut Found) -> Done {
    let kind = asked.kind.map(|kind| match kind {
        HoldChoice::Posix => HoldKind::Posix,
        HoldChoice::Flock => HoldKind::Flock,
        HoldChoice::Lease => HoldKind::Lease,
    });
    let session = asked.session.map(SessionId);
    let mut request = ListHoldsRequest { place: None, file, session, kind, waiting: asked.waiting };
    while !found.more {
        let page = admin.holds(&request)?;
        for hold in page.holds {
            let on_host = |host: &String| {
                found.holders.get(&hold.session).is_some_and(|holder| holder.host == *host)
            };
            if asked.host.as_ref().is_none_or(on_host) {
                found.more |= found.holds.len() >= asked.limit;
                if !found.more {
                    found.holds.push(hold);
                }
            }
        }
        match page.next {
            Some(next) => request.place = Some(next),
            None => return Ok(()),
        }
    }
    Ok(())
}

impl Found {
    fn table(&self) -> Table {
        let titles =
            ["PATH", "KIND", "MODE", "RANGE", ">WAITS", "HOST", ">PID", ">SESSION", "MOUNT"];
        let mut table = Table::new(&titles);
        for hold in &self.holds {
            let holder = self.holders.get(&hold.session);
            let waits = hold.waits_ms.map(|ms| human_duration(ms / 1000));
            table.row(vec![
                path_of(hold),
                kind_of(hold).to_owned(),
                mode_of(hold).to_owned(),
                range_of(hold),
                waits.unwrap_or_else(|| "-".to_owned()),
                // The session of this client has ended, and its files are being closed.
                plain(holder.map_or("(gone)", |holder| holder.host.as_str())),
                pid_of(hold).map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                hold.session.to_string(),
                plain(holder.map_or("-", |holder| holder.program.name.as_str())),
            ]);
        }
        table
    }

    fn to_json(&self, hold: &Hold) -> Value {
        let holder = self.holders.get(&hold.session);
        json!({
            "path": (!hold.path.is_empty()).then(|| shown(&hold.path)),
            "file": hold.file.0,
            "kind": kind_of(hold),
            "mode": mode_of(hold),
            "start": hold.start,
            "end": (hold.last < LAST_BYTE).then(|| hold.last + 1),
            "waiting": hold.waits_ms.is_some(),
            "waits_ms": hold.waits_ms,
            "session": hold.session.0,
            "host": holder.map(|holder| &holder.host),
            "pid": pid_of(hold),
            "program": holder.map(|holder| &holder.program.name),
            "program_pid": holder.and_then(|holder| holder.program.pid),
        })
    }
}

fn path_of(hold: &Hold) -> String {
    match hold.path.is_empty() {
        true => format!("(file {})", hold.file),
        false => plain(&shown(&hold.path)),
    }
}

fn kind_of(hold: &Hold) -> &'static str {
    match hold.kind {
        HoldKind::Posix => "posix",
        HoldKind::Flock => "flock",
        HoldKind::Lease => "lease",
    }
}

fn mode_of(hold: &Hold) -> &'static str {
    if hold.exclusive { "write" } else { "read" }
}

/// The process that asked for a lock; `None` for leases, which belong to the mount.
fn pid_of(hold: &Hold) -> Option<u32> {
    (hold.kind != HoldKind::Lease).then_some(hold.pid)
}

fn range_of(hold: &Hold) -> String {
    match (hold.start, hold.last) {
        (0, last) if last >= LAST_BYTE => "all".to_owned(),
        (start, last) if last >= LAST_BYTE => format!("{start}-"),
        (start, last) => format!("{start}-{last}"),
    }
}
