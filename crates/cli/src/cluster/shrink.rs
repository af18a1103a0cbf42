//! Removes targets and servers that have left the cluster from its description on this machine.
//! Each step may be repeated. The description is written last, so that an interrupted command can
//! be run again and finds the remaining steps.

use crate::cluster::control;
use crate::cluster::daemon::data_name;
use crate::cluster::data_servers;
use crate::cluster::process::Process;
use crate::cluster::state::StateDir;
use crate::failure::{Done, Failure};
use std::path::{Path, PathBuf};

/// Makes a target disappear from this machine. Its server continues without it, or ends if it was
/// the only one. Returns the directory of the target; `None` if it is not on this machine.
pub fn forget_target(state: &StateDir, target: u32) -> Done<Option<PathBuf>> {
    let _lock = state.lock()?;
    let mut description = state.description()?;
    let Some(server) = description.server_of(target).map(|server| server.id) else {
        return Ok(None);
    };
    let name = data_name(server);
    if let Some(mut config) = data_servers::read(state, server)? {
        let before = config.targets.len();
        config.targets.retain(|t| t.target != target);
        let changed = config.targets.len() < before;
        if changed {
            data_servers::write(state, &config)?;
        }
        if config.targets.is_empty() {
            control::stop(state, &name, false)?;
        } else if changed && Process::from_file(&state.pid_file(&name)).is_some() {
            control::restart(state, &name)?;
        }
    }
    let dir = forget_place(state, target)?;
    for server in &mut description.servers {
        server.targets.retain(|t| *t != target);
        server.replacing.retain(|r| ![r.old, r.new].contains(&target));
    }
    state.set_description(&description)?;
    Ok(Some(dir))
}

/// Removes the key of a target and the link to its directory. Returns the directory.
fn forget_place(state: &StateDir, target: u32) -> Done<PathBuf> {
    remove_file(&state.key_file(&format!("target-{target}")))?;
    let dir = state.target_dir(target);
    match std::fs::read_link(&dir) {
        Ok(leads_to) => remove_file(&dir).map(|()| leads_to),
        Err(_) => Ok(dir),
    }
}

/// Removes everything of a server except its log and the contents of its targets' directories.
/// Returns these directories.
pub fn forget_server(state: &StateDir, server: u32) -> Done<Vec<PathBuf>> {
    let _lock = state.lock()?;
    let mut description = state.description()?;
    let Some(described) = description.servers.iter().find(|described| described.id == server)
    else {
        return Ok(Vec::new());
    };
    let name = data_name(server);
    control::stop(state, &name, false)?;
    let targets = described.targets.iter();
    let dirs = targets.map(|target| forget_place(state, *target)).collect::<Done<Vec<_>>>()?;
    remove_file(&state.config_file(&name))?;
    remove_file(&state.key_file(&format!("server-{server}")))?;
    description.servers.retain(|described| described.id != server);
    state.set_description(&description)?;
    Ok(dirs)
}

fn remove_file(path: &Path) -> Done {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::file(path, e)),
        _ => Ok(()),
    }
}
