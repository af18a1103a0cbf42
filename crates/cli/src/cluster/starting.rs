//! Starts the daemons of a cluster on this machine that are not running.

use crate::cluster::control;
use crate::cluster::daemon::data_name;
use crate::cluster::process::{Process, START_TIMEOUT, Starting};
use crate::cluster::state::{Description, StateDir};
use crate::cluster::undo::Undo;
use crate::cluster::{etcd, metas};
use crate::failure::{Done, Failure};
use std::time::Instant;

/// Starts the daemons that are not running and returns how many were started. Fails if one cannot
/// start.
pub fn start_daemons(state: &StateDir, description: &Description, undo: &mut Undo) -> Done<usize> {
    let started = begin(state, description, undo)?.ready(None, undo);
    started.failures.into_iter().next().map_or(Ok(started.count), |(_, failure)| Err(failure))
}

/// Data servers that are starting and have not been waited for.
pub struct Begun {
    count: usize,
    servers: Vec<(u32, Starting)>,
    failures: Vec<(u32, Failure)>,
}

/// The result of starting the daemons.
pub struct Started {
    /// How many daemons were started.
    pub count: usize,
    /// The numbers of the data servers that cannot start, with the reason.
    pub failures: Vec<(u32, Failure)>,
}

/// Starts the metadata servers, with etcd if there are several, and waits for them, then starts the
/// data servers without waiting.
pub fn begin(state: &StateDir, description: &Description, undo: &mut Undo) -> Done<Begun> {
    let mut begun = Begun { count: 0, servers: Vec::new(), failures: Vec::new() };
    begun.count += etcd::start(state, description, undo)?;
    // Data servers register with the metadata servers, so these start first.
    begun.count += start_metas(state, description, undo)?;
    for server in description.servers.iter().filter(|server| !server.targets.is_empty()) {
        let name = data_name(server.id);
        match start(state, &name, undo) {
            Ok(starting) => begun.servers.extend(starting.map(|it| (server.id, it))),
            Err(failure) => begun.failures.push((server.id, failure)),
        }
    }
    Ok(begun)
}

impl Begun {
    /// The end of the time that a start usually takes.
    pub fn deadline() -> Instant {
        Instant::now() + START_TIMEOUT
    }

    /// Waits for all data servers, even if one fails. A server that recovers is waited for as long
    /// as it makes progress, or until `until`, and continues alone then.
    pub fn ready(self, until: Option<Instant>, undo: &mut Undo) -> Started {
        let Self { mut count, servers, mut failures } = self;
        for (server, starting) in servers {
            let ready = match until {
                Some(until) => starting.ready_until(until),
                None => starting.ready(),
            };
            match ready {
                Ok(process) => {
                    undo.processes.push(process);
                    count += 1;
                }
                Err(failure) => failures.push((server, failure)),
            }
        }
        Started { count, failures }
    }
}

/// Starts the metadata servers of this machine that are not running. A server that cannot start is
/// reported, and the others are still started. Fails if none can start.
fn start_metas(state: &StateDir, description: &Description, undo: &mut Undo) -> Done<usize> {
    let names = metas::of_this_machine(description);
    let mut starting = Vec::new();
    let mut failures = Vec::new();
    for (name, _) in &names {
        match start(state, name, undo) {
            Ok(started) => starting.extend(started),
            Err(failure) => failures.push(failure),
        }
    }
    let mut count = 0;
    for one in starting {
        match one.ready() {
            Ok(process) => {
                undo.processes.push(process);
                count += 1;
            }
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(last) = failures.pop() {
        if failures.len() + 1 == names.len() {
            return Err(last);
        }
        failures.into_iter().chain([last]).for_each(|failure| failure.say());
    }
    Ok(count)
}

fn start(state: &StateDir, name: &str, undo: &mut Undo) -> Done<Option<Starting>> {
    let pid_file = state.pid_file(name);
    if Process::from_file(&pid_file).is_none() {
        undo.pid_files.push(pid_file);
    }
    control::start(state, name)
}
