//! Starts and stops daemons of the cluster on this machine by name.

use crate::cluster::daemon::is_data;
use crate::cluster::process::{self, DaemonSpec, Process, Starting};
use crate::cluster::state::StateDir;
use crate::failure::Done;
use crate::logging;

/// Starts a daemon; `None` if it is running already.
pub fn start(state: &StateDir, name: &str) -> Done<Option<Starting>> {
    let pid_file = state.pid_file(name);
    if Process::from_file(&pid_file).is_some() {
        return Ok(None);
    }
    let network = state.network_file(name);
    let daemon = DaemonSpec {
        name,
        command: &[if is_data(name) { "data" } else { "meta" }],
        arguments: vec!["--config".into(), state.config_file(name).into()],
        log: &state.log_file(name),
        pid_file: &pid_file,
        network: network.is_symlink().then_some(&network),
    };
    process::start(&daemon).map(Some)
}

/// Stops a daemon. Returns whether it was running.
pub fn stop(state: &StateDir, name: &str, force: bool) -> Done<bool> {
    let pid_file = state.pid_file(name);
    let process = Process::from_file(&pid_file);
    if let Some(process) = process
        && process.stop(force).map_err(|e| e.about(name))?
    {
        logging::say(&format!(
            "weir: {name} had to be killed; its log: {}",
            state.log_file(name).display()
        ));
    }
    let _ = std::fs::remove_file(&pid_file);
    if let Some(socket) = state.socket_file(name) {
        let _ = std::fs::remove_file(socket);
    }
    Ok(process.is_some())
}

/// Stops a daemon if it is running, and starts it. Returns when it is ready.
pub fn restart(state: &StateDir, name: &str) -> Done {
    stop(state, name, false)?;
    match start(state, name)? {
        Some(starting) => starting.ready().map(drop),
        None => Ok(()),
    }
}
