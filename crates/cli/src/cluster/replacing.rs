//! `weir target replace`: replaces a target whose disk has failed by a new one on the same server.

use crate::args::TargetReplace;
use crate::cluster::adding::{New, begin, serve};
use crate::cluster::daemon::data_name;
use crate::cluster::process::Process;
use crate::cluster::removal;
use crate::cluster::state::{Description, StateDir};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::settings::{self, Cluster};
use std::path::Path;
use weir_types::{ServerId, TargetId};
use weir_wire::map::TargetState;

/// Runs `weir target replace`. After an interruption it can be run again and continues with the
/// target made before. A directory that already holds a target of the server is not added again.
pub fn run(replace: &TargetReplace) -> Done {
    let state = settings::state_dir(&replace.cluster)?;
    let cluster = Cluster::Here(state.clone());
    let old = replace.target;
    let lock = state.lock()?;
    let mut description = begin(&state)?;
    let Some(server) = description.server_of(old).map(|server| server.id) else {
        let views = connect(&cluster.credential()?, "target replace")?.targets()?;
        let failure = Failure::new(format!("target {old} is not of this machine"));
        return Err(match views.iter().find(|view| view.target == TargetId(old)) {
            Some(view) => failure.hint(advice(Some(&description), old, view.server, &view.host)),
            None => failure.hint("`weir targets` shows those that there are"),
        });
    };
    if description.joined {
        let host = weir_host::host_name();
        return Err(Failure::new("this machine has joined the cluster, and cannot change it")
            .hint(advice(Some(&description), old, ServerId(server), &host)));
    }
    let client = connect(&cluster.credential()?, "target replace")?;
    let views = client.targets()?;
    let view = views.iter().find(|view| view.target == TargetId(old));
    let is_served = |state| !matches!(state, TargetState::Offline | TargetState::OutOfService);
    if view.is_some_and(|view| is_served(view.state)) {
        // If a target was made to replace this one, and stays, it does not replace anything.
        let before = description.clone();
        for server in &mut description.servers {
            server.replacing.retain(|replacement| replacement.old != old);
        }
        if description != before {
            state.set_description(&description)?;
        }
        return Err(Failure::new(format!("target {old} is in use: its disk has not failed")).hint(
            format!(
                "`weir target add --server {server}`, `weir target drain {old} --wait`, `weir \
                 target remove {old}` loses nothing"
            ),
        ));
    }
    if view.is_some() {
        removal::ask(&client, &[TargetId(old)], replace.yes, print)?;
    }
    let dir = replace.target_dir.as_deref().map(settings::absolute).transpose()?;
    match made(&state, &description, old, dir.as_deref())? {
        // The new target was made, but perhaps an interruption prevented the restart of the server.
        Some(new) => {
            let runs = Process::from_file(&state.pid_file(&data_name(server))).is_some();
            let is_known = views.iter().any(|view| view.target == TargetId(new));
            if !runs || !is_known {
                serve(&state, &client, server, &[new])?;
            }
        }
        None => {
            let (address, dirs, replaces) = (None, vec![dir], Some(old));
            let new = New { server, address, dirs, replaces };
            new.add_here(&state, &mut description, &client)?;
        }
    }
    drop(lock);
    print(&removal::take_out(&cluster, &client.administrator()?, TargetId(old), true)?)
}

/// What to do with a target that is lost for good, as the end of a sentence: see [`advice`].
pub fn if_lost(
    description: Option<&Description>,
    target: u32,
    server: ServerId,
    host: &str,
) -> String {
    let replace = advice(description, target, server, host);
    match description {
        Some(here) if !here.joined => format!(
            "`weir target drain {target}` and then `weir target remove {target}`, or {replace}"
        ),
        _ => replace,
    }
}

/// How to replace the failed disk of a target, as the end of a sentence. The answer depends on
/// where the server was made. `description` describes the cluster on this machine, if there is one.
pub fn advice(
    description: Option<&Description>,
    target: u32,
    server: ServerId,
    host: &str,
) -> String {
    let join = format!("`weir invite --replace {target} | ssh {host} weir join --data DIRECTORY`");
    match description {
        Some(here) if here.joined => match here.server_of(target) {
            Some(_) => format!("on the machine of the metadata server ({}) {join}", here.metadata),
            None => format!(
                "`weir status` on the machine of the metadata server ({}) says how to replace it",
                here.metadata
            ),
        },
        Some(here) if here.server_of(target).is_some() => {
            format!("`weir target replace {target}`")
        }
        Some(here) if here.invited.iter().any(|guest| guest.server == server.0) => join,
        Some(_) => format!(
            "`weir target add --server {server} --output DIRECTORY` makes another one for its \
             server, and then `weir target remove {target} --force` removes it"
        ),
        None => {
            "`weir status` on the machine of the metadata server says how to replace it".to_owned()
        }
    }
}

/// The existing replacement of a target: the target that was made for this purpose, or the one that
/// the server has in this directory.
fn made(
    state: &StateDir,
    description: &Description,
    old: u32,
    dir: Option<&Path>,
) -> Done<Option<u32>> {
    let Some(server) = description.server_of(old) else { return Ok(None) };
    let is_in = |target: u32, dir: &Path| {
        std::fs::read_link(state.target_dir(target)).is_ok_and(|to| to == dir)
    };
    let noted = server.replacing.iter().find(|replacement| replacement.old == old);
    match (noted.map(|replacement| replacement.new), dir) {
        (Some(new), Some(dir)) if !is_in(new, dir) => {
            let what = format!("target {new} was made to replace target {old}, and is elsewhere");
            Err(Failure::new(what).hint("leave out --target-dir: then it does"))
        }
        (None, Some(dir)) => {
            let mut others = server.targets.iter().copied().filter(|target| *target != old);
            Ok(others.find(|target| is_in(*target, dir)))
        }
        (noted, _) => Ok(noted),
    }
}
