//! `weir up --protection LEVEL` for an existing cluster: how much connections are protected at
//! least. The configuration of the metadata servers says so; data servers hear it from them.

use crate::cluster::awaiting::await_targets;
use crate::cluster::control;
use crate::cluster::daemon;
use crate::cluster::metas;
use crate::cluster::process::Process;
use crate::cluster::state::{Description, StateDir};
use crate::cluster::up;
use crate::failure::{Done, Failure};
use crate::logging;
use weir_metaserver::MetaServerConfig;
use weir_wire::Level;

/// Sets the level in the configuration of each metadata server, and restarts those that run, one
/// after the other. Connections of a lower level are closed, and made anew at this one. The
/// description is written last, so an interrupted command can be run again.
pub fn run(state: &StateDir, description: &mut Description, level: Level) -> Done {
    if description.joined {
        return Err(Failure::new("--protection is for the machine of the metadata server")
            .hint(format!("`weir up --protection {level}` there, at {}", description.metadata)));
    }
    let label = level.label();
    let mut is_new = description.protection.as_deref().unwrap_or(Level::Args.label()) != label;
    let names: Vec<String> =
        metas::of_this_machine(description).into_iter().map(|(name, _)| name).collect();
    for name in &names {
        let config: MetaServerConfig = daemon::read(&state.config_file(name))?;
        if config.protection != level {
            metas::set(state, name, "protection", label)?;
            is_new = true;
        }
    }
    if !is_new {
        return Ok(());
    }
    for name in &names {
        if Process::from_file(&state.pid_file(name)).is_none() {
            continue;
        }
        logging::say(&format!(
            "weir: {name} is started anew, to protect connections as `{level}` at least"
        ));
        control::restart(state, name)?;
        await_targets(&up::await_metadata(state)?, &description.targets())?;
    }
    description.protection = Some(label.to_owned());
    state.set_description(description)
}
