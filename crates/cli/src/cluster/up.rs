//! `weir up`: makes a cluster on this machine and starts the daemons that are not running. If
//! something fails for a new cluster, everything that this run made and started is removed. For an
//! existing cluster, running daemons keep running.

use crate::args::Up;
use crate::cluster::awaiting::{Missing, await_targets, never_heard_of};
use crate::cluster::daemon::{META, cluster_id, data_name, to_text};
use crate::cluster::life::{self, Life};
use crate::cluster::mounting::{self, mounts_of};
use crate::cluster::process::Process;
use crate::cluster::starting::{self, Begun, Started, start_daemons};
use crate::cluster::state::{Description, ServerDescription, StateDir, StateLock};
use crate::cluster::undo::Undo;
use crate::cluster::{
    daemon, data_servers, grow, invitation, keys, metas, metrics_on, planned, protection, secret,
};
use crate::failure::{Done, Failure};
use crate::files::remote::{caller, try_to_connect};
use crate::logging;
use crate::output::{print, print_json};
use crate::settings::{self, Cluster};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_connect::{Credential, UpDefaults};
use weir_dataserver::DataServerConfig;
use weir_metaserver::{MetaServerConfig, NewFileSystem};
use weir_store::{Target, TargetIdentity};
use weir_types::{ErrorKind, LayoutSpec, ServerId, TargetId};
use weir_wire::Level;
use weir_wire::key::MasterKey;

/// The longest to wait for a metadata server that is running but does not answer.
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `weir up`.
pub fn run(up: &Up) -> Done {
    let state = settings::state_dir(&up.cluster)?;
    let defaults = settings::config_file(&up.cluster)?.up;
    let mountpoint = up.mount.clone().or(defaults.mount.clone());
    let existed = state.dir().exists();
    let lock = state.lock_new()?;
    let mut undo = Undo::of_new(&state);
    undo.fresh = !state.exists();
    if !undo.fresh {
        let done = go_on(up, mountpoint.as_deref(), &mut undo, lock);
        if done.is_err() {
            undo.leave();
            undo.run();
        }
        return done;
    }
    if let Err(failure) = state.make() {
        // The directory contains nothing of the cluster, except perhaps the lock.
        let _ = std::fs::remove_file(state.dir().join(".lock"));
        if !existed {
            let _ = std::fs::remove_dir(state.dir());
        }
        return Err(failure);
    }
    let done = make_new(up, &defaults, mountpoint.as_deref(), &mut undo);
    if done.is_err() {
        undo.run();
    }
    drop(lock);
    done
}

/// Makes a cluster and starts it.
fn make_new(up: &Up, defaults: &UpDefaults, mountpoint: Option<&Path>, undo: &mut Undo) -> Done {
    let state = undo.state.clone();
    let plan = planned::plan(&state, up, defaults)?;
    undo.may_change(&plan.dirs)?;
    planned::link_targets(&state, &plan)?;
    let least = up.protection.unwrap_or_default();
    lay_out(&state, &plan.description, (&up.domain, least), &plan.metrics)?;
    planned::warn(&state, up, &plan.description);
    let planned::Plan { mut description, held, .. } = plan;
    let started = start_daemons(&state, &description, undo)?;
    drop(held);
    let missing = await_targets(&await_metadata(&state)?, &description.targets())?;
    if missing.offline > 0 {
        return Err(never_heard_of(missing.offline));
    }
    if let Some(path) = mountpoint {
        mount(&state, &mut description, path, undo)?;
    }
    report(up, &state, &description, started, &missing)
}

/// Starts the daemons of an existing cluster that are not running. A data server that cannot start
/// is reported, and all others are still started, since the working part is needed.
fn go_on(up: &Up, mountpoint: Option<&Path>, undo: &mut Undo, lock: StateLock) -> Done {
    let state = undo.state.clone();
    let mut description = state.description()?;
    // The other daemons are started even if this fails.
    if let Err(failure) = grow::finish(&state, &mut description) {
        failure.say();
    }
    check_same(&state, &description, up)?;
    if description.has_journal() {
        // A change of the metadata servers may have been interrupted.
        metas::settle(&state, &description)?;
    }
    let begun = starting::begin(&state, &description, undo)?;
    // Other commands may change the cluster while this one waits.
    drop(lock);
    let Started { count: started, failures } = begun.ready(Some(Begun::deadline()), undo);
    failures.iter().for_each(|(_, failure)| failure.say());
    let failed: BTreeSet<u32> = failures.iter().map(|(server, _)| *server).collect();
    let mut missing = Missing::default();
    let is_stopped = running_metadata(&state).is_some_and(Process::is_stopped);
    if started > 0 || is_stopped {
        let servers = description.servers.iter().filter(|server| !failed.contains(&server.id));
        let targets: Vec<u32> = servers.flat_map(|server| server.targets.clone()).collect();
        missing = await_targets(&await_metadata(&state)?, &targets)?;
    }
    let metrics = up.metrics.filter(|at| failed.is_empty() && description.metrics != Some(*at));
    let lock = match metrics.is_some() || mountpoint.is_some() || up.protection.is_some() {
        true => Some(state.lock()?),
        false => None,
    };
    if lock.is_some() {
        description = state.description()?;
    }
    if let Some(level) = up.protection {
        protection::run(&state, &mut description, level)?;
    }
    if let Some(address) = metrics {
        metrics_on::run(&state, &mut description, address, up.port)?;
    }
    if let Some(path) = mountpoint {
        mount(&state, &mut description, path, undo)?;
    }
    drop(lock);
    match failed.is_empty() {
        true => report(up, &state, &description, started, &missing),
        false => Err(goes_on_without(&description.name, &failed)),
    }
}

/// The failure that data servers of an existing cluster cannot start. The reasons have been
/// printed.
fn goes_on_without(cluster: &str, servers: &BTreeSet<u32>) -> Failure {
    let names: Vec<String> = servers.iter().map(|server| data_name(*server)).collect();
    let names = names.join(", ");
    Failure::new(format!("cluster {cluster} goes on without {names}")).hint(format!(
        "what runs keeps running. Solve the problems of {names} shown above, then `weir up` starts \
         it; for a disk that is lost: `weir target replace`. `weir status` shows the state of the \
         cluster"
    ))
}

/// Makes a cluster from a description in the directories that [`StateDir::make`] made, and starts
/// its daemons. If this fails no daemon is running, and the caller has to delete the files.
pub fn make_described(state: &StateDir, description: &Description) -> Done {
    lay_out(state, description, (&None, Level::Args), &[])?;
    let mut undo = Undo::of_existing(state);
    let started = start_daemons(state, description, &mut undo);
    if started.is_err() {
        undo.run();
    }
    started.map(drop)
}

/// Makes keys, configuration files, target directories and the metadata. `metrics` has the metrics
/// addresses of the metadata servers and then of each data server, or is empty.
fn lay_out(
    state: &StateDir,
    description: &Description,
    (domain, least): (&Option<String>, Level),
    metrics: &[String],
) -> Done {
    let master = MasterKey(secret::fresh_key()?);
    secret::write_key(&state.key_file("master"), &master.0)?;
    let metadata = metas::addresses(state, description);
    let socket = state.socket_file(META).map(|path| path.display().to_string());
    let listen = socket.into_iter().chain([description.metadata.clone()]).collect();
    let cluster = cluster_id(&description.id)?;
    let mut metrics_of = metrics.iter().cloned();
    let meta = MetaServerConfig {
        cluster: Some(cluster),
        metrics: metrics_of.next(),
        protection: least,
        journal: metas::journal_config(state, description, META),
        ..MetaServerConfig::new(state.metadata_dir(), listen, state.key_file("master"))
    };
    secret::write_new_public(&state.config_file(META), &to_text(&meta)?)?;
    let owner = caller();
    let new = NewFileSystem {
        root_uid: owner.uid,
        root_gid: owner.gid,
        default_layout: LayoutSpec {
            stripe_unit_bytes: description.stripe_unit_bytes,
            copies: description.copies,
            ..LayoutSpec::default()
        },
        ..NewFileSystem::new(cluster, keys::FIRST_CLIENT)
    };
    weir_metaserver::init(&state.metadata_dir(), &master, &new)?;
    for meta in &description.metas {
        metas::make(state, description, meta, metrics_of.next())?;
    }
    for server in &description.servers {
        let its_own = (domain.clone(), metrics_of.next());
        make_server(state, description, server, &master, its_own)?;
    }
    keys::write_first_credential(state, description, &master, metadata)?;
    // Last, because with its description the directory counts as a cluster.
    state.set_description(description)
}

fn make_server(
    state: &StateDir,
    description: &Description,
    server: &ServerDescription,
    master: &MasterKey,
    (domain, metrics): (Option<String>, Option<String>),
) -> Done {
    let who = (server.id, server.address.as_str());
    let config = data_servers::new_config(state, description, who, &server.targets, metrics);
    let config = DataServerConfig { domain, ..config };
    keys::write_server_keys(&config, master)?;
    for target in &config.targets {
        let identity = TargetIdentity {
            cluster: cluster_id(&description.id)?,
            target: TargetId(target.target),
            server: ServerId(server.id),
        };
        let dir = std::fs::read_link(&target.dir).unwrap_or_else(|_| target.dir.clone());
        Target::create(dir, identity).map_err(|e| {
            let is_one = e.kind == ErrorKind::Exists;
            let failure = Failure::from(e);
            match is_one {
                true => failure.hint(
                    "if it belonged to a cluster that is gone, delete what is in it; otherwise \
                     name another directory",
                ),
                false => failure,
            }
        })?;
    }
    data_servers::write(state, &config)
}

/// Fails if flags contradict an existing cluster, which cannot be changed by them.
fn check_same(state: &StateDir, description: &Description, up: &Up) -> Done {
    let differs = |flag: &str, has: String| {
        let name = &description.name;
        Err(Failure::new(format!("cluster {name} exists and has {has}; {flag} cannot change that"))
            .hint(
                "leave the flag out; `weir server add` and `weir target add` make it larger, \
                 --name makes another one, `weir down --purge` deletes this one",
            ))
    };
    let targets = description.targets().len();
    if up.targets.is_some_and(|n| n as usize != targets) {
        return differs("--targets", format!("{targets} targets"));
    }
    let per_server = description.servers.iter().map(|s| s.targets.len()).max().unwrap_or(0);
    if !up.data.is_empty() {
        let own = description.targets().into_iter().map(|target| state.target_dir(target));
        let has: BTreeSet<PathBuf> = own.flat_map(|dir| settings::absolute(&dir)).collect();
        let asked = up.data.iter().map(|dir| settings::absolute(dir)).collect::<Done<_>>()?;
        if has != asked {
            let dirs: Vec<String> = has.iter().map(|dir| dir.display().to_string()).collect();
            return differs("--data", format!("its targets in {}", dirs.join(", ")));
        }
    }
    if up.copies.is_some_and(|copies| copies.max(1) != description.copies.max(1)) {
        let name = &description.name;
        let has = description.copies.max(1);
        return Err(Failure::new(format!(
            "cluster {name} exists, and was made with --copies {has}"
        ))
        .hint("`weir setlayout --copies N weir:/` changes it for new files"));
    }
    let metas = 1 + description.metas.len();
    if up.meta.is_some_and(|meta| meta as usize != metas) {
        let name = &description.name;
        return Err(Failure::new(format!(
            "cluster {name} exists and has {metas} metadata servers"
        ))
        .hint("`weir meta add` and `weir meta remove` change that"));
    }
    if up.targets_per_server.is_some_and(|n| n as usize != per_server) {
        return differs("--targets-per-server", format!("{per_server} targets per server"));
    }
    if let Some(listen) = up.listen {
        check_listens(state, description, listen)?;
    }
    let port = format!(":{}", up.port.unwrap_or(0));
    if up.port.is_some() && !description.metadata.ends_with(&port) {
        return differs("--port", format!("its metadata server on {}", description.metadata));
    }
    if up.unit.is_some_and(|unit| unit.0 != u64::from(description.stripe_unit_bytes)) {
        let unit = description.stripe_unit_bytes;
        return differs("--unit", format!("a default stripe unit of {unit} bytes (0: built-in)"));
    }
    if up.domain.is_some() {
        for server in &description.servers {
            let name = data_name(server.id);
            let config: DataServerConfig = daemon::read(&state.config_file(&name))?;
            if config.domain != up.domain {
                let is = config.domain.as_ref().map_or("no `domain`".into(), |d| format!("`{d}`"));
                return differs("--domain", format!("{is} in {name}.toml"));
            }
        }
    }
    Ok(())
}

/// Fails if `--listen` differs from where the cluster listens. On a machine that has joined, the
/// address of its data server counts.
fn check_listens(state: &StateDir, description: &Description, listen: IpAddr) -> Done {
    let server = || description.servers.first().map(|server| &server.address);
    let at = if description.joined { server() } else { Some(&description.metadata) };
    if at.and_then(|at| at.parse().ok()).is_some_and(|at: SocketAddr| at.ip() == listen) {
        return Ok(());
    }
    let (name, dir) = (&description.name, state.dir().display());
    let has = at.map_or("nowhere".to_owned(), |at| format!("on {at}"));
    let message = format!("cluster {name} exists and listens {has}; --listen cannot change that");
    Err(Failure::new(message).hint(format!(
        "leave the flag out; --name makes another cluster; to move this one: `weir down`, put the \
         new address in place of the old one in the .toml files of {dir} (and of machines that have \
         joined), `weir up`"
    )))
}

/// The process of this cluster's first metadata server, if it is running on this machine.
fn running_metadata(state: &StateDir) -> Option<Process> {
    Process::from_file(&state.pid_file(META))
}

/// Connects to the metadata server. If it is running but does not answer, this waits and says so.
pub fn await_metadata(state: &StateDir) -> Done<Client> {
    let credential = Credential::read(&state.credential_file())?;
    let several = state.description()?.has_journal();
    let begin = Instant::now();
    let mut said = String::new();
    loop {
        let stopped = running_metadata(state).filter(|process| process.is_stopped());
        let why = match stopped {
            Some(process) => format!(
                "the metadata server (process {0}) is stopped: `kill -CONT {0}` lets it go on",
                process.id()
            ),
            None => "the metadata server does not answer yet".to_owned(),
        };
        if stopped.is_some() && said != why {
            logging::say(&format!("weir: {why}; waiting for it"));
            said.clone_from(&why);
        }
        let error = match try_to_connect(&credential, "up") {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        // At first none of several metadata servers leads.
        let is_early =
            several && matches!(error.kind, ErrorKind::NotLeader | ErrorKind::Unreachable);
        if error.kind != ErrorKind::TimedOut && !is_early {
            let about = format!("cannot connect to cluster {}", credential.cluster);
            return Err(Failure::from(error).about(about));
        }
        if begin.elapsed() > METADATA_TIMEOUT {
            let seconds = METADATA_TIMEOUT.as_secs();
            return Err(Failure::new(format!("{why}; gave up after {seconds} s"))
                .hint("what was started continues by itself; `weir status` shows it"));
        }
        if said != why && !is_early {
            logging::say(&format!("weir: {why}; waiting for it"));
            said = why;
        }
        if is_early {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Mounts the cluster, unless it is mounted there already.
fn mount(state: &StateDir, description: &mut Description, path: &Path, undo: &mut Undo) -> Done {
    let (path, made) = mounting::made_mountpoint(path)?;
    if made {
        undo.mountpoint = Some(path.clone());
    }
    if let Some(mount) = mounts_of(state)?.into_iter().find(|mount| mount.mountpoint == path) {
        match Life::of(&mount) {
            Life::Serves => return Ok(()),
            Life::Stopped(pid) => return Err(life::stopped(&path, pid)),
            // The process is gone, or as good as gone, so the mount cannot be in use.
            Life::Dead | Life::Stuck(_) => mounting::unmount(&mount, true)?,
        }
    }
    mounting::mount(&Cluster::Here(state.clone()), &path, &[])?;
    if made && !description.made_mountpoints.contains(&path) {
        description.made_mountpoints.push(path);
        state.set_description(description)?;
    }
    Ok(())
}

fn report(
    up: &Up,
    state: &StateDir,
    description: &Description,
    started: usize,
    missing: &Missing,
) -> Done {
    let mounts = mounts_of(state)?;
    if up.json {
        return print_json(&json!({
            "name": description.name,
            "dir": state.dir(),
            "metadata": description.metadata,
            "metadata_servers": metas::addresses_for_others(description),
            "credential": state.credential_file(),
            "servers": description.servers,
            "mounts": mounts.iter().map(|m| m.mountpoint.clone()).collect::<Vec<_>>(),
            "started": started,
            "out_of_service": missing.out_of_service,
            "syncing": missing.syncing,
            "offline": missing.offline,
        }));
    }
    let (targets, servers) = (description.targets().len(), description.servers.len());
    let choice = up.cluster.name.as_ref().map(|name| format!(" --name {name}")).unwrap_or_default();
    let choice = match &up.cluster.dir {
        Some(_) => format!(" --dir {}", state.dir().display()),
        None => choice,
    };
    let metas = metas::addresses_for_others(description);
    let mut text = format!(
        "Cluster {} is up: {targets} targets on {servers} data servers, metadata server{} at {}\n",
        description.name,
        if metas.len() == 1 { "" } else { "s" },
        metas.join(", ")
    );
    if started == 0 {
        text += "Everything was running already.\n";
    }
    for (count, what) in [
        (missing.out_of_service, "out of service"),
        (missing.syncing, "not up to date yet"),
        (missing.offline, "not online"),
    ] {
        if count > 0 {
            text += &format!("{count} targets are {what}: `weir status{choice}` says more\n");
        }
    }
    for mount in &mounts {
        text += &format!("Mounted on {}\n", mount.mountpoint.display());
    }
    text += &format!("State, keys and logs are in {}\n\n", state.dir().display());
    text += &match mounts.first() {
        Some(mount) => format!("  cp -a /usr/share/doc {}\n", mount.mountpoint.display()),
        None => format!(
            "  weir mount{choice} DIRECTORY\n  weir cp{choice} -r /usr/share/doc weir:/doc\n"
        ),
    };
    text += &format!("  weir status{choice}\n  weir down{choice}\n");
    if !description.joined && invitation::is_for_others(&description.metadata) {
        text += &format!("  weir invite{choice} | ssh MACHINE weir join --data DIRECTORY\n");
    }
    print(&text)
}
