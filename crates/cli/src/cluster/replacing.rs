//! `weir target replace`: a new target on the same server for one whose disk has failed.

use crate::args::TargetReplace;
use crate::cluster::adding::{add_here, begin};
use crate::cluster::removal;
use crate::cluster::state::{Description, StateDir};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::settings::{self, Cluster};
use std::path::Path;
use weir_types::TargetId;
use weir_wire::map::TargetState;

/// Runs it. Given once more after it was interrupted, it goes on: a directory that holds a
/// target of the server by now is not added again.
pub fn run(replace: &TargetReplace) -> Done {
    let state = settings::state_dir(&replace.cluster)?;
    let cluster = Cluster::Here(state.clone());
    let old = replace.target;
    let lock = state.lock()?;
    let mut description = begin(&state)?;
    let Some(server) = description.server_of(old).map(|server| server.id) else {
        return Err(Failure::new(format!("target {old} is not of this machine")).hint(
            "`weir target add --output DIR` makes another one for its server; then `weir target \
             remove --force`",
        ));
    };
    let client = connect(&cluster.credential()?, "target replace")?;
    let view = client.targets()?.into_iter().find(|view| view.target == TargetId(old));
    let is_served = |state| !matches!(state, TargetState::Offline | TargetState::OutOfService);
    if view.as_ref().is_some_and(|view| is_served(view.state)) {
        return Err(Failure::new(format!("target {old} is in use: its disk has not failed")).hint(
            format!(
                "`weir target add --server {server}`, `weir target drain {old} --wait`, `weir \
                 target remove {old}` loses nothing"
            ),
        ));
    }
    if view.is_some() {
        removal::ask(&client, &[TargetId(old)], replace.yes)?;
    }
    let dir = replace.target_dir.as_deref().map(settings::absolute).transpose()?;
    let is_there = dir.as_deref().is_some_and(|dir| serves(&state, &description, server, dir));
    if !is_there {
        add_here(&state, &mut description, &client, server, vec![dir])?;
    }
    drop(lock);
    removal::take_out(&cluster, &client.administrator()?, TargetId(old), true)
}

/// Whether a server has a target in a directory.
fn serves(state: &StateDir, description: &Description, server: u32, dir: &Path) -> bool {
    let server = description.servers.iter().find(|described| described.id == server);
    let mut targets = server.iter().flat_map(|server| &server.targets);
    targets.any(|target| std::fs::read_link(state.target_dir(*target)).is_ok_and(|to| to == dir))
}
