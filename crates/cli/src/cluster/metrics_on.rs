//! `weir up --metrics ADDRESS` for an existing cluster: makes its daemons serve metrics.

use crate::cluster::awaiting::{TARGETS_TIMEOUT, await_targets_for};
use crate::cluster::control;
use crate::cluster::daemon::data_name;
use crate::cluster::metas;
use crate::cluster::process::Process;
use crate::cluster::state::{Description, StateDir};
use crate::cluster::{ports, secret};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_connect::Credential;

/// The longest to wait for the targets of a restarted daemon to be up to date.
const RESTART_TIMEOUT: Duration = Duration::from_secs(600);

/// Writes a metrics address into the configuration of each daemon and restarts the running ones,
/// one after the other. Each restart waits until no target of the cluster lacks data, so files with
/// several copies stay available. The description is written last, so an interrupted command can be
/// run again. If `port`, the first port of the cluster, is given, metrics are served on the ports
/// after those of the daemons.
pub fn run(
    state: &StateDir,
    description: &mut Description,
    address: IpAddr,
    port: Option<u16>,
) -> Done {
    let servers = || description.servers.iter().filter(|server| !server.targets.is_empty());
    let first = metas::of_this_machine(description).into_iter().map(|(name, _)| name);
    let daemons: Vec<String> = first.chain(servers().map(|server| data_name(server.id))).collect();
    all_there(state, TARGETS_TIMEOUT)?;
    // After an interrupted command, the ports of its daemons are in use.
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
        "weir: mounts serve metrics when they are mounted again, or with `-o metrics=ADDRESS:PORT`",
    );
    Ok(())
}

/// Waits until all targets of the cluster except those out of service are online.
fn all_there(state: &StateDir, patience: Duration) -> Done {
    let client = connect(&Credential::read(&state.credential_file())?, "up")?;
    let map = client.cluster_map()?;
    let targets: Vec<u32> = map.targets().map(|(_, target)| target.target.0).collect();
    let missing = await_targets_for(&client, &targets, patience)?;
    if missing.offline + missing.syncing == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} targets are not online and {} not up to date: until they are, no daemon is restarted \
         to serve metrics",
        missing.offline, missing.syncing
    ))
    .hint("`weir status` says why; when all are online, `weir up --metrics` again"))
}

/// Whether the configuration of a daemon has a metrics port at this address.
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

/// Sets the metrics address in a configuration file and keeps its other entries.
fn set(state: &StateDir, name: &str, address: &str) -> Done {
    let path = state.config_file(name);
    let mut config = config(state, name)?;
    config.insert("metrics".to_owned(), address.into());
    let text =
        toml::to_string(&config).map_err(|e| Failure::new(e.to_string()).about(path.display()))?;
    secret::replace_public(&path, &text)
}
