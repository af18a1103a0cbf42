//! `weir up --metrics ADDRESS` of a cluster that there is: its daemons serve metrics from then on.

use crate::cluster::control;
use crate::cluster::credential::Credential;
use crate::cluster::daemon::{META, data_name};
use crate::cluster::process::Process;
use crate::cluster::state::{Description, StateDir};
use crate::cluster::up::await_targets;
use crate::cluster::{ports, secret};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use std::net::IpAddr;

/// Writes where each daemon serves metrics into its configuration, and starts anew those that run,
/// one after the other, so that what has several copies can be used meanwhile. The description comes
/// last: given once more after it was interrupted, the command begins anew. `port` is the first one
/// of the cluster, if it was named: then metrics are served on the ports after its own.
pub fn run(
    state: &StateDir,
    description: &mut Description,
    address: IpAddr,
    port: Option<u16>,
) -> Done {
    let servers = || description.servers.iter().filter(|server| !server.targets.is_empty());
    let first = (!description.joined).then(|| (META.to_owned(), Vec::new()));
    let others = servers().map(|server| (data_name(server.id), server.targets.clone()));
    let daemons: Vec<(String, Vec<u32>)> = first.into_iter().chain(others).collect();
    let base = port.map(|port| port.saturating_add(daemons.len() as u16));
    let (addresses, held) = ports::for_metrics(Some(address), base, daemons.len())?;
    for ((name, _), at) in daemons.iter().zip(&addresses) {
        set(state, name, at)?;
    }
    for (name, targets) in &daemons {
        if Process::from_file(&state.pid_file(name)).is_none() {
            continue;
        }
        logging::say(&format!("weir: {name} is started anew, to serve metrics"));
        control::restart(state, name)?;
        if !targets.is_empty() {
            let client = connect(&Credential::read(&state.credential_file())?, "up")?;
            await_targets(&client, targets)?;
        }
    }
    drop(held);
    description.metrics = Some(address);
    state.set_description(description)?;
    logging::say(
        "weir: mounts serve metrics when they are made anew, or with `-o metrics=ADDRESS:PORT`",
    );
    Ok(())
}

/// What else is in the file stays.
fn set(state: &StateDir, name: &str, address: &str) -> Done {
    let path = state.config_file(name);
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
    let about = |e: String| Failure::new(e).about(path.display());
    let mut config: toml::Table =
        text.parse().map_err(|e: toml::de::Error| about(e.to_string()))?;
    config.insert("metrics".to_owned(), address.into());
    secret::replace_public(&path, &toml::to_string(&config).map_err(|e| about(e.to_string()))?)
}
