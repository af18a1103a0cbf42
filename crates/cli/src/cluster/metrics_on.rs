//! `weir up --metrics ADDRESS` of a cluster that there is: its daemons serve metrics from then on.

use crate::cluster::control;
use crate::cluster::daemon::{META, data_name};
use crate::cluster::process::Process;
use crate::cluster::state::{Description, StateDir};
use crate::cluster::up::{TARGETS_TIMEOUT, await_targets_for};
use crate::cluster::{ports, secret};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_connect::Credential;

/// The longest that the targets of a daemon that was started anew may take to be up to date.
const RESTART_TIMEOUT: Duration = Duration::from_secs(600);

/// Writes where each daemon serves metrics into its configuration, and starts anew those that run,
/// one after the other, each when no target of the cluster lacks anything: so what has several copies
/// can be used meanwhile. The description comes last: given once more after it was interrupted, the
/// command begins anew. `port` is the first one of the cluster, if it was named: then metrics are
/// served on the ports after its own.
pub fn run(
    state: &StateDir,
    description: &mut Description,
    address: IpAddr,
    port: Option<u16>,
) -> Done {
    let servers = || description.servers.iter().filter(|server| !server.targets.is_empty());
    let first = (!description.joined).then(|| META.to_owned());
    let daemons: Vec<String> =
        first.into_iter().chain(servers().map(|server| data_name(server.id))).collect();
    all_there(state, TARGETS_TIMEOUT)?;
    // Those of a run that was interrupted are in use by now.
    let known = daemons.iter().map(|name| known(state, name, address)).collect::<Done<Vec<_>>>()?;
    let held = match known.iter().all(|is_known| *is_known) {
        true => ports::Held::default(),
        false => {
            let base = port.map(|port| port.saturating_add(daemons.len() as u16));
            let (addresses, held) = ports::for_metrics(Some(address), base, daemons.len())?;
            for (name, at) in daemons.iter().zip(&addresses) {
                set(state, name, at)?;
            }
            held
        }
    };
    for name in &daemons {
        if Process::from_file(&state.pid_file(name)).is_none() {
            continue;
        }
        logging::say(&format!("weir: {name} is started anew, to serve metrics"));
        control::restart(state, name)?;
        all_there(state, RESTART_TIMEOUT)?;
    }
    drop(held);
    description.metrics = Some(address);
    state.set_description(description)?;
    logging::say(
        "weir: mounts serve metrics when they are made anew, or with `-o metrics=ADDRESS:PORT`",
    );
    Ok(())
}

/// Waits until all targets of the cluster are online, but for those that are out of service.
fn all_there(state: &StateDir, patience: Duration) -> Done {
    let client = connect(&Credential::read(&state.credential_file())?, "up")?;
    let map = client.cluster_map()?;
    let targets: Vec<u32> = map.targets().map(|(_, target)| target.target.0).collect();
    let missing = await_targets_for(&client, &targets, patience)?;
    if missing.offline + missing.syncing == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} targets are not online and {} not up to date: no daemon is started anew meanwhile, to \
         serve metrics",
        missing.offline, missing.syncing
    ))
    .hint("`weir status` says why; when all are online, `weir up --metrics` again"))
}

/// Whether the configuration of a daemon has a port of this address for metrics.
fn known(state: &StateDir, name: &str, address: IpAddr) -> Done<bool> {
    let config = config(state, name)?;
    let at = config.get("metrics").and_then(toml::Value::as_str);
    Ok(at.and_then(|at| at.parse().ok()).is_some_and(|at: SocketAddr| at.ip() == address))
}

fn config(state: &StateDir, name: &str) -> Done<toml::Table> {
    let path = state.config_file(name);
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
    text.parse().map_err(|e: toml::de::Error| Failure::new(e.to_string()).about(path.display()))
}

/// What else is in the file stays.
fn set(state: &StateDir, name: &str, address: &str) -> Done {
    let path = state.config_file(name);
    let mut config = config(state, name)?;
    config.insert("metrics".to_owned(), address.into());
    let text =
        toml::to_string(&config).map_err(|e| Failure::new(e.to_string()).about(path.display()))?;
    secret::replace_public(&path, &text)
}
