//! `weir meta add` and `weir meta remove`: changes a cluster of this machine from one metadata
//! server to several with a journal on etcd, and back. The cluster must be down, because a running
//! daemon or mount knows only the metadata servers that existed at its start.
//!
//! Invariants
//! - `cluster.toml` is written last when metadata servers are removed, and after everything that it
//!   names when they are added. An interrupted command can be run again.
//! - A metadata server is removed only after another one has everything that is in the journal.

use crate::args::{MetaAdd, MetaRemove};
use crate::cluster::daemon::{self, META, data_name};
use crate::cluster::metas::{self, meta_name};
use crate::cluster::mounting::mounts_of;
use crate::cluster::process::Process;
use crate::cluster::state::{Description, MetaDescription, StateDir};
use crate::cluster::undo::Undo;
use crate::cluster::{etcd, ports};
use crate::failure::{Done, Failure};
use crate::output::print;
use crate::settings;
use std::net::SocketAddr;
use std::path::Path;
use weir_metaserver::MetaServerConfig;

/// The most metadata servers of a cluster.
pub const MAX_METAS: u32 = 7;

/// Runs `weir meta add`.
pub fn add(add: &MetaAdd) -> Done {
    let state = settings::state_dir(&add.cluster)?;
    let lock = state.lock()?;
    let mut description = state.description()?;
    require_first(&description)?;
    require_down(&state, &description)?;
    etcd::require()?;
    let count = add.count as usize;
    if 1 + description.metas.len() + count > MAX_METAS as usize {
        return Err(Failure::new(format!("a cluster has at most {MAX_METAS} metadata servers")));
    }
    let first: SocketAddr = description.metadata.parse().map_err(|_| {
        Failure::new(format!("metadata = \"{}\": not an address", description.metadata))
    })?;
    let held = match first.ip().is_loopback() {
        true => ports::free(first.ip(), count)?,
        // Ports among those that a firewall permits.
        false => ports::usual(first.ip(), description.last_port().saturating_add(1), count)?.0,
    };
    let addresses = held.ports.iter().map(|port| SocketAddr::new(first.ip(), *port).to_string());
    let metrics = ports::for_metrics(description.metrics, None, count)?;
    let mut metrics = metrics.0.into_iter();
    let removed = match description.journal.is_empty() {
        true => Vec::new(),
        false => metas::journal(&state, &description)?.removed()?,
    };
    let next = next_number(&description, &removed);
    let new: Vec<MetaDescription> = addresses
        .zip(next..)
        .map(|(address, id)| MetaDescription { id, address, here: None })
        .collect();
    if !description.has_journal() {
        require_alone(&state)?;
        forget_etcd(&state)?;
        let all = 1 + description.metas.len() + count;
        description.etcd = etcd::plan(all);
    }
    for meta in &new {
        metas::make(&state, &description, meta, metrics.next())?;
    }
    description.metas.extend(new);
    state.set_description(&description)?;
    metas::settle(&state, &description)?;
    drop(lock);
    let names = metas::of_this_machine(&description);
    let list: Vec<String> = names.iter().map(|(name, at)| format!("{name} at {at}")).collect();
    print(&format!(
        "Cluster {} has {} metadata servers: {}\n`weir up` starts it.\n{}",
        description.name,
        list.len(),
        list.join(", "),
        elsewhere(&description)
    ))
}

/// Runs `weir meta remove`.
pub fn remove(remove: &MetaRemove) -> Done {
    let state = settings::state_dir(&remove.cluster)?;
    let lock = state.lock()?;
    let mut description = state.description()?;
    let id = remove.server;
    if description.joined {
        return leave(&state, description, id);
    }
    if id == 1 {
        return Err(Failure::new("the first metadata server, 1, is the one that stays").hint(
            "remove the others; if its disk is lost, empty its directory: it gets everything from \
                   the one that leads",
        ));
    }
    if description.metas.iter().all(|meta| meta.id != id) {
        let known: Vec<String> = description.metas.iter().map(|meta| meta.id.to_string()).collect();
        return Err(Failure::new(format!("there is no metadata server {id}"))
            .hint(format!("those that can be removed: {}", known.join(", "))));
    }
    require_down(&state, &description)?;
    let mut undo = Undo::of_existing(&state);
    let taken = take_in(&state, &description, id, &mut undo);
    undo.run();
    taken?;
    let name = meta_name(id);
    let removed = description.metas.extract_if(.., |meta| meta.id == id).next();
    let alone = description.metas.is_empty();
    let left = match alone {
        true => {
            description.etcd.clear();
            std::mem::take(&mut description.journal)
        }
        false => Vec::new(),
    };
    metas::settle(&state, &description)?;
    state.set_description(&description)?;
    discard(&state.meta_dir(&name))?;
    let _ = std::fs::remove_file(state.config_file(&name));
    if alone {
        discard(&state.etcd_dirs())?;
    }
    drop(lock);
    print(&format!(
        "Cluster {} has {} metadata server{}.\n`weir up` starts it.\n{}",
        description.name,
        1 + description.metas.len(),
        if alone { ", and needs etcd no more" } else { "s" },
        [elsewhere(&description), left_behind(&description, removed, &left)].concat()
    ))
}

/// Describes what a removed metadata server has left on its machine and in etcd, if that is not this
/// machine's.
fn left_behind(
    description: &Description,
    removed: Option<MetaDescription>,
    etcd: &[String],
) -> String {
    let mut text = String::new();
    if let Some(meta) = removed.filter(is_elsewhere) {
        let name = meta_name(meta.id);
        text += &format!(
            "On the machine of {}: `weir meta remove {}` deletes {name} there.\n",
            meta.address, meta.id
        );
    }
    if !etcd.is_empty() {
        text += &format!(
            "The journal in etcd has ended. After that `etcdctl --endpoints {} del --prefix /weir/{}/` \
             deletes what is left there.\n",
            etcd.join(","),
            description.id
        );
    }
    text
}

/// Deletes what this machine has of a metadata server that was removed on the first machine.
fn leave(state: &StateDir, mut description: Description, id: u32) -> Done {
    let name = meta_name(id);
    if metas::of_this_machine(&description).iter().all(|(own, _)| *own != name) {
        return Err(Failure::new(format!("there is no metadata server {id} on this machine"))
            .hint("`weir meta remove` on the first machine comes before"));
    }
    require_down(state, &description)?;
    let config: MetaServerConfig = daemon::read(&state.config_file(&name))?;
    let journal = metas::journal(state, &description)?;
    if !journal.removed()?.contains(&name) {
        return Err(Failure::new(format!("{name} is still a metadata server of the cluster")).hint(
            format!(
                "first on the first machine: `weir meta remove {id}`. If that was done, and another \
                 journal was begun since, delete {} and {} here",
                config.dir.display(),
                config.master_key_file.display()
            ),
        ));
    }
    // The description comes last: as long as it names the server, the command can be run again.
    discard(&config.dir)?;
    discard_file(&config.master_key_file)?;
    description.metas.retain(|meta| meta.id != id);
    description.journal.clear();
    metas::settle(state, &description)?;
    state.set_description(&description)?;
    // The rest of the command needs it if it is run again.
    discard_file(&state.config_file(&name))?;
    print(&format!("{name} is gone from this machine, with the master key.\n"))
}

/// Makes sure that the first metadata server has everything, and that the removed one is not waited
/// for.
fn take_in(state: &StateDir, description: &Description, id: u32, undo: &mut Undo) -> Done {
    etcd::start(state, description, undo)?;
    let journal = metas::journal(state, description)?;
    let config: MetaServerConfig = daemon::read(&state.config_file(META))?;
    let is_it = |meta: &&MetaDescription| meta.id == id;
    let elsewhere = description.metas.iter().find(is_it).is_some_and(is_elsewhere);
    let name = meta_name(id);
    match description.metas.len() {
        1 => weir_metaserver::leave_journal(&config, &journal, &name)?,
        _ => weir_metaserver::take_in_journal(&config, &journal, &name, elsewhere)?,
    }
    Ok(())
}

/// Whether a metadata server other than the first one is on another machine than that.
fn is_elsewhere(meta: &MetaDescription) -> bool {
    meta.here == Some(false)
}

/// The number of the next metadata server: also those that were removed elsewhere keep theirs, because
/// the journal refuses them by their names. `removed`: the names that it refuses.
pub fn next_number(description: &Description, removed: &[String]) -> u32 {
    let prefix = format!("{META}-");
    let removed = removed.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok());
    let numbers = description.metas.iter().map(|meta| meta.id).chain(removed);
    numbers.max().unwrap_or(1) + 1
}

/// Fails if the metadata server has a journal that was set up by hand.
pub fn require_alone(state: &StateDir) -> Done {
    let path = state.config_file(META);
    let config: MetaServerConfig = daemon::read(&path)?;
    match config.journal {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("{} has a [journal] already", path.display())).hint(
            "it was set up by hand: add metadata servers in the same way (docs/high-availability.md)",
        )),
    }
}

/// Stops and deletes members of etcd that an interrupted removal has left: they have the old
/// journal.
fn forget_etcd(state: &StateDir) -> Done {
    for member in 1..=MAX_METAS {
        if let Some(process) = Process::from_file(&state.pid_file(&etcd::etcd_name(member))) {
            process.stop(false)?;
        }
    }
    discard(&state.etcd_dirs())
}

fn discard_file(file: &Path) -> Done {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::file(file, e)),
        _ => Ok(()),
    }
}

fn discard(dir: &Path) -> Done {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::file(dir, e)),
        _ => Ok(()),
    }
}

/// Fails unless this is the machine of the first metadata server.
pub fn require_first(description: &Description) -> Done {
    match description.joined {
        false => Ok(()),
        true => {
            Err(Failure::new("the first metadata server of this cluster is on another machine")
                .hint("run this command there"))
        }
    }
}

/// Fails if daemons or mounts of this machine run.
pub fn require_down(state: &StateDir, description: &Description) -> Done {
    let metas = metas::of_this_machine(description).into_iter().map(|(name, _)| name);
    let data = description.servers.iter().map(|server| data_name(server.id));
    let etcd = description.etcd.iter().map(|member| etcd::etcd_name(member.id));
    let running = metas
        .chain(data)
        .chain(etcd)
        .find(|name| Process::from_file(&state.pid_file(name)).is_some());
    let mount = mounts_of(state)?.into_iter().next().map(|it| it.mountpoint.display().to_string());
    match running.or(mount) {
        None => Ok(()),
        Some(what) => Err(Failure::new(format!("the cluster is in use: {what}"))
            .hint("`weir down` first: running daemons know only the old metadata servers")),
    }
}

/// Describes what has to be done on other machines.
pub fn elsewhere(description: &Description) -> String {
    let mut text = String::new();
    if description.metas.iter().any(is_elsewhere) {
        text += "On every other machine that has a metadata server, run `weir meta join` with the new \
                 line, before `weir up` there. `weir meta add --on` with the addresses that are there gives \
                 it once more.\n";
    }
    if description.invited.is_empty() {
        return text;
    }
    let addresses = metas::addresses_for_others(description);
    text + &format!(
        "On machines that have joined, and in credentials that were handed out, write\n  metadata = \
         {addresses:?}\ninto client.toml and data-N.toml before their daemons and mounts start.\n"
    )
}
