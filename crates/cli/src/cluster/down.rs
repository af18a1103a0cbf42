//! `weir down`: unmounts the mounts of the cluster and stops its daemons. With --purge it deletes
//! the cluster.

use crate::args::Down;
use crate::cluster::control;
use crate::cluster::daemon::data_name;
use crate::cluster::etcd::etcd_name;
use crate::cluster::metas;
use crate::cluster::mounting::{MountFiles, mounts_of, unmount};
use crate::cluster::state::{Description, StateDir};
use crate::failure::{Done, Failure};
use crate::output::{confirmed, print};
use crate::settings::{self, Cluster};
use std::path::PathBuf;

/// Runs `weir down`.
pub fn run(down: &Down) -> Done {
    let state = settings::state_dir(&down.cluster)?;
    let description = state.description()?;
    if down.purge {
        ask(&state, &description, down.yes)?;
    }
    let lock = state.lock()?;
    let stopped = stop(&state, &description, down.force)?;
    let elsewhere = state.targets_elsewhere();
    if down.purge {
        for mountpoint in &description.made_mountpoints {
            // If something else is in the directory by now, this fails and the directory stays.
            let _ = std::fs::remove_dir(mountpoint);
        }
        state.purge()?;
    }
    drop(lock);
    let name = &description.name;
    print(&match (down.purge, stopped) {
        (true, _) if elsewhere.is_empty() => format!("Cluster {name} is deleted.\n"),
        (true, _) => format!(
            "Cluster {name} is deleted, but for its objects in {}: delete these to free the space, \
             or to use the directories for another cluster.\n",
            listed(&elsewhere)
        ),
        (false, 0) => format!("Cluster {name} was not running.\n"),
        (false, _) => {
            format!("Cluster {name} is down; its files are kept. `weir up` starts it again.\n")
        }
    })
}

/// Unmounts the mounts of a cluster and stops its daemons. Returns how many daemons were running.
pub fn stop(state: &StateDir, description: &Description, force: bool) -> Done<usize> {
    leave_mounts(state, force)?;
    stop_daemons(state, description, force)
}

fn listed(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn ask(state: &StateDir, description: &Description, yes: bool) -> Done {
    let dir = state.dir().display();
    let mut question = match description.joined {
        false => format!("This deletes cluster {} with all its files, in {dir}.", description.name),
        true => format!(
            "This deletes what this machine has of cluster {}, in {dir}: its key, and its targets \
             as far as they are there.",
            description.name
        ),
    };
    let elsewhere = state.targets_elsewhere();
    if !elsewhere.is_empty() {
        question += &format!(
            " Its objects in {} stay there: they take space, and are useless afterwards.",
            listed(&elsewhere)
        );
    }
    confirmed(&question, yes)
}

fn leave_mounts(state: &StateDir, force: bool) -> Done {
    for mount in mounts_of(state)? {
        match unmount(&mount, false) {
            // The mount's process is stopped below, which ends every use of the mount.
            Err(_) if force => unmount(&mount, true)?,
            Err(mut failure) => {
                failure.hint = Some("end those programs, or use --force".to_owned());
                return Err(failure);
            }
            Ok(()) => {}
        }
        let files = MountFiles::of(&Cluster::Here(state.clone()), &mount.mountpoint)?;
        if let Some(process) = files.process() {
            process.stop(force)?;
        }
        let _ = std::fs::remove_file(&files.pid);
        let _ = std::fs::remove_file(&files.metrics);
    }
    Ok(())
}

/// Stops all data servers at the same time, then the metadata servers, to which they report, and then
/// the members of etcd. Returns how many daemons were running.
fn stop_daemons(state: &StateDir, description: &Description, force: bool) -> Done<usize> {
    let data: Vec<String> = description.servers.iter().map(|s| data_name(s.id)).collect();
    let metas: Vec<String> =
        metas::of_this_machine(description).into_iter().map(|(name, _)| name).collect();
    let etcd: Vec<String> = description.etcd.iter().map(|member| etcd_name(member.id)).collect();
    let mut ran = 0;
    for together in [data, metas, etcd] {
        ran += stop_together(state, &together, force)?;
    }
    Ok(ran)
}

fn stop_together(state: &StateDir, names: &[String], force: bool) -> Done<usize> {
    let ran = std::thread::scope(|scope| {
        let stops: Vec<_> =
            names.iter().map(|name| scope.spawn(|| control::stop(state, name, force))).collect();
        let results = stops
            .into_iter()
            .map(|stop| stop.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked"))));
        results.collect::<Done<Vec<bool>>>()
    })?;
    Ok(ran.into_iter().filter(|ran| *ran).count())
}
