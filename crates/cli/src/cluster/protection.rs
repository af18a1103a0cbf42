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
/// after the other. Connections of a lower level are closed, and made anew at this one.
pub fn run(state: &StateDir, description: &Description, level: Level) -> Done {
    if description.joined {
        return Err(Failure::new("--protection is for the machine of the metadata server")
            .hint(format!("`weir up --protection {level}` there, at {}", description.metadata)));
    }
    let mut changed = Vec::new();
    for (name, _) in metas::of_this_machine(description) {
        let config: MetaServerConfig = daemon::read(&state.config_file(&name))?;
        if config.protection != level {
            metas::set(state, &name, "protection", level.label())?;
            changed.push(name);
        }
    }
    for name in &changed {
        if Process::from_file(&state.pid_file(name)).is_none() {
            continue;
        }
        logging::say(&format!(
            "weir: {name} is started anew, to protect connections as `{level}` at least"
        ));
        control::restart(state, name)?;
        await_targets(&up::await_metadata(state)?, &description.targets())?;
    }
    Ok(())
}
