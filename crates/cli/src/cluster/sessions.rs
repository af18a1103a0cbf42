//! `weir clients`: lists the connected mounts and programs.

use crate::args::{Clients, StandingChoice};
use crate::cluster::program::Program;
use crate::failure::Done;
use crate::files::remote::connect;
use crate::logging;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_duration, plain};
use serde_json::{Value, json};
use weir_client::Client;
use weir_types::SessionId;
use weir_wire::holders::{SessionPage, SessionStanding, SessionView};

/// Runs `weir clients`.
pub fn list(asked: &Clients) -> Done {
    let client = connect(&settings::cluster(&asked.client)?.credential()?, "clients")?;
    let mut found = Vec::new();
    let mut more = false;
    let times = each(&client, |view| {
        if is_asked_for(asked, &view) {
            more = found.len() >= asked.limit;
            if !more {
                found.push(view);
            }
        }
        !more
    })?;
    if more {
        logging::say(&format!("weir: there are more than {}; --limit shows more", asked.limit));
    }
    if asked.json {
        return print_json(&json!({
            "lease_ms": times.0,
            "session_timeout_ms": times.1,
            "more": more,
            "clients": found.iter().map(to_json).collect::<Vec<_>>(),
        }));
    }
    print(&table(&found).render())
}

/// Calls `visit` for each session until it returns `false`. Returns the lease time and the time
/// after which sessions end.
pub fn each(client: &Client, mut visit: impl FnMut(SessionView) -> bool) -> Done<(u64, u64)> {
    let admin = client.administrator()?;
    let mut after = SessionId(0);
    loop {
        let SessionPage { sessions, lease_ms, timeout_ms, end } = admin.sessions(after)?;
        let last = sessions.last().map(|view| view.session);
        let go_on = sessions.into_iter().all(&mut visit);
        match last {
            Some(last) if go_on && !end => after = last,
            _ => return Ok((lease_ms, timeout_ms)),
        }
    }
}

fn is_asked_for(asked: &Clients, view: &SessionView) -> bool {
    let standing = asked.standing.map(|choice| match choice {
        StandingChoice::Live => SessionStanding::Live,
        StandingChoice::Silent => SessionStanding::Silent,
        StandingChoice::CutOff => SessionStanding::CutOff,
    });
    let program = Program::parse(&view.program).name;
    asked.host.as_ref().is_none_or(|host| *host == view.host)
        && asked
            .key
            .as_ref()
            .is_none_or(|key| *key == view.key_name || *key == view.client.to_string())
        && asked.program.as_ref().is_none_or(|text| program.contains(text.as_str()))
        && standing.is_none_or(|standing| standing == view.standing)
}

/// The standing of a session in one word.
fn standing(view: &SessionView) -> &'static str {
    match view.standing {
        SessionStanding::Live => "live",
        SessionStanding::Silent => "silent",
        SessionStanding::CutOff => "cut off",
    }
}

fn table(found: &[SessionView]) -> Table {
    let titles = [
        ">SESSION", "KEY", "HOST", ">PID", "STANDING", ">SINCE", ">HEARD", ">OPEN", ">LEASES",
        ">LOCKS", ">WAITS", "VERSION", "PROGRAM",
    ];
    let mut table = Table::new(&titles);
    for view in found {
        let program = Program::parse(&view.program);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            view.session.to_string(),
            key_of(view),
            plain(host_of(view)),
            or_none(program.pid.map(|pid| pid.to_string())),
            standing(view).to_owned(),
            or_none(view.since_ms.map(|ms| human_duration(ms / 1000))),
            human_duration(view.silent_ms / 1000),
            view.open_files.to_string(),
            view.leased_files.to_string(),
            view.locks.to_string(),
            view.waiting.to_string(),
            or_none(program.version.as_deref().map(plain)),
            plain(&program.name),
        ]);
    }
    table
}

fn key_of(view: &SessionView) -> String {
    match view.key_name.as_str() {
        "" => view.client.to_string(),
        name => plain(name),
    }
}

/// The machine of a session, for people.
pub fn host_of(view: &SessionView) -> &str {
    if view.host.is_empty() { "-" } else { &view.host }
}

fn to_json(view: &SessionView) -> Value {
    let program = Program::parse(&view.program);
    json!({
        "session": view.session.0,
        "client": view.client.0,
        "key": view.key_name,
        "host": view.host,
        "program": program.name,
        "pid": program.pid,
        "version": program.version,
        "standing": standing(view),
        "since_ms": view.since_ms,
        "silent_ms": view.silent_ms,
        "open_files": view.open_files,
        "leased_files": view.leased_files,
        "locks": view.locks,
        "waiting": view.waiting,
    })
}
