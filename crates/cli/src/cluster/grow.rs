//! Adds a target to a data server of this machine, or a new server with its first target.
//!
//! The new target is written to `cluster.toml` first (`adding`), and removed from there when the
//! server's configuration has it. If a command is interrupted in between, the next command that
//! takes the lock of the cluster finishes the change, or undoes it if the target cannot be made.
//! Each step may be repeated:
//!
//! 1. Write `adding` to `cluster.toml`.
//! 2. Make the link of `targets/N` to a directory elsewhere, the keys and the target. The
//!    superblock is written last: a directory without one is no target.
//! 3. Write `data-N.toml`. From here on the change is not undone, since a server may serve the
//!    target.
//! 4. Stop the server if it is running. Its next start serves the target.
//! 5. Write `cluster.toml` with the target in the list of its server.

use crate::cluster::control;
use crate::cluster::daemon::{cluster_id, data_name};
use crate::cluster::data_servers::{self, target_config};
use crate::cluster::keys;
use crate::cluster::ports;
use crate::cluster::secret;
use crate::cluster::state::{Adding, Description, Replacement, ServerDescription, StateDir};
use crate::failure::{Done, Failure};
use std::path::Path;
use weir_store::{Target, TargetIdentity};
use weir_types::{ErrorKind, ServerId, TargetId};
use weir_wire::key::MasterKey;

/// Makes a target, and its server if that is new. A failure before the target is made undoes the
/// change. Afterwards the server is not running.
pub fn add(state: &StateDir, description: &mut Description, adding: Adding) -> Done {
    description.adding = Some(adding);
    state.set_description(description)?;
    finish(state, description).map(drop)
}

/// Finishes an unfinished addition, or undoes it. Returns the server to start.
pub fn finish(state: &StateDir, description: &mut Description) -> Done<Option<u32>> {
    let Some(adding) = description.adding.clone() else { return Ok(None) };
    let about = |failure: Failure| failure.about(format!("target {} is not added", adding.target));
    if let Err(failure) = make(state, description, &adding) {
        if !is_configured(state, &adding)? {
            take_back(state, description, &adding)?;
        }
        return Err(about(failure));
    }
    configure(state, description, &adding).map_err(about)?;
    control::stop(state, &data_name(adding.server), false)?;
    let server = description.servers.iter_mut().find(|server| server.id == adding.server);
    match (server, adding.address) {
        (Some(server), _) => {
            server.targets.push(adding.target);
            server.targets.sort_unstable();
            server.targets.dedup();
            let replacement = |old| Replacement { old, new: adding.target };
            server.replacing.extend(adding.replaces.map(replacement));
        }
        (None, Some(address)) => {
            let (id, targets) = (adding.server, vec![adding.target]);
            let replacing = Vec::new();
            description.servers.push(ServerDescription { id, address, targets, replacing });
        }
        (None, None) => return Err(Failure::new(format!("no server {}", adding.server))),
    }
    description.adding = None;
    state.set_description(description)?;
    Ok(Some(adding.server))
}

/// Makes the directory with its link, the keys and the target.
fn make(state: &StateDir, description: &Description, adding: &Adding) -> Done {
    let link = state.target_dir(adding.target);
    if let Some(dir) = &adding.dir {
        make_link(&link, dir)?;
    }
    let config = target_config(state, adding.target);
    if description.joined {
        // The key was in the invitation, and is already written.
        secret::read_key(&config.key_file)?;
    } else {
        let master = MasterKey(secret::read_key(&state.key_file("master"))?);
        keys::write_target_key(&config, &master)?;
        if adding.address.is_some() {
            let server = ServerId(adding.server);
            keys::write_server_key(&state.key_file(&format!("server-{server}")), server, &master)?;
        }
    }
    let identity = TargetIdentity {
        cluster: cluster_id(&description.id)?,
        target: TargetId(adding.target),
        server: ServerId(adding.server),
    };
    let dir = adding.dir.as_ref().unwrap_or(&link);
    match Target::create(dir, identity) {
        // The interrupted command has made the target.
        Err(e) if e.kind == ErrorKind::Exists && Target::open(dir)?.identity() == identity => {
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Links a target's directory into the state directory.
pub fn make_link(link: &Path, dir: &Path) -> Done {
    match std::os::unix::fs::symlink(dir, link) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            match std::fs::read_link(link).is_ok_and(|leads_to| leads_to == dir) {
                true => Ok(()),
                false => Err(Failure::file(link, e)),
            }
        }
        result => result.map_err(|e| Failure::file(link, e)),
    }
}

/// Whether a server may serve the target already.
fn is_configured(state: &StateDir, adding: &Adding) -> Done<bool> {
    let config = data_servers::read(state, adding.server)?;
    let has = |config: weir_dataserver::DataServerConfig| {
        config.targets.iter().any(|target| target.target == adding.target)
    };
    Ok(config.is_some_and(has))
}

/// Adds the target to the configuration of its server.
fn configure(state: &StateDir, description: &Description, adding: &Adding) -> Done {
    if is_configured(state, adding)? {
        return Ok(());
    }
    let config = match (data_servers::read(state, adding.server)?, &adding.address) {
        (Some(mut config), _) => {
            config.targets.push(target_config(state, adding.target));
            config
        }
        (None, Some(address)) => {
            let server = (adding.server, address.as_str());
            // The port is held only for a moment: if another process takes it, the server runs
            // without metrics.
            let (metrics, _held) = ports::for_metrics(description.metrics, None, 1)?;
            let metrics = metrics.into_iter().next();
            data_servers::new_config(state, description, server, &[adding.target], metrics)
        }
        (None, None) => {
            let message = format!("data server {} has no configuration file", adding.server);
            return Err(Failure::new(message));
        }
    };
    data_servers::write(state, &config)
}

/// Undoes an unfinished addition. Files in the directory that do not belong to a target stay.
fn take_back(state: &StateDir, description: &mut Description, adding: &Adding) -> Done {
    let link = state.target_dir(adding.target);
    if adding.dir.is_some() {
        // A link that leads elsewhere was not made by this command.
        let leads_to = std::fs::read_link(&link).ok();
        if leads_to.is_some() && leads_to == adding.dir {
            std::fs::remove_file(&link).map_err(|e| Failure::file(&link, e))?;
        }
    } else if !link.join("superblock").exists() {
        // The files of a new target; a directory with others stays.
        for name in ["intents", "lock"] {
            let _ = std::fs::remove_file(link.join(name));
        }
        let _ = std::fs::remove_dir(link.join("objects"));
        let _ = std::fs::remove_dir(&link);
    }
    let _ = std::fs::remove_file(state.key_file(&format!("target-{}", adding.target)));
    if adding.address.is_some() {
        let _ = std::fs::remove_file(state.key_file(&format!("server-{}", adding.server)));
    }
    description.adding = None;
    state.set_description(description)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A cluster of one server with one target, none of which runs.
    fn cluster(dir: &Path) -> (StateDir, Description) {
        let state = StateDir::at(dir.join("state"));
        state.make().unwrap();
        let master = MasterKey(secret::fresh_key().unwrap());
        secret::write_key(&state.key_file("master"), &master.0).unwrap();
        let description = Description {
            name: "a".into(),
            id: "00".repeat(16),
            metadata: "127.0.0.1:20000".into(),
            joined: false,
            stripe_unit_bytes: 0,
            copies: 0,
            metrics: None,
            protection: None,
            made_mountpoints: Vec::new(),
            adding: None,
            servers: vec![ServerDescription {
                id: 1,
                address: "127.0.0.1:20001".into(),
                targets: vec![1],
                replacing: Vec::new(),
            }],
            invited: Vec::new(),
            metas: Vec::new(),
            etcd: Vec::new(),
            journal: Vec::new(),
        };
        let server = (1, "127.0.0.1:20001");
        let config = data_servers::new_config(&state, &description, server, &[1], None);
        data_servers::write(&state, &config).unwrap();
        state.set_description(&description).unwrap();
        (state, description)
    }

    fn target(dir: Option<PathBuf>) -> Adding {
        Adding { server: 1, address: None, target: 2, dir, replaces: None }
    }

    fn configured(state: &StateDir, server: u32) -> Vec<u32> {
        let config = data_servers::read(state, server).unwrap();
        config.map(|c| c.targets.iter().map(|t| t.target).collect()).unwrap_or_default()
    }

    /// Whether all of it is there.
    fn is_there(state: &StateDir, server: u32, target: u32) -> bool {
        let description = state.description().unwrap();
        let mut servers = description.servers.iter();
        let described = servers.any(|s| s.id == server && s.targets.contains(&target));
        let key = secret::read_key(&state.key_file(&format!("target-{target}"))).is_ok();
        let store = Target::open(state.target_dir(target));
        let made = store.is_ok_and(|t| t.identity().target == TargetId(target));
        described && key && made && configured(state, server).contains(&target)
    }

    #[test]
    fn a_target_is_added_wherever_it_was_interrupted() {
        let outside = tempfile::tempdir().unwrap();
        for interrupted in 0..=5 {
            let dir = tempfile::tempdir().unwrap();
            let (state, mut description) = cluster(dir.path());
            let disk = outside.path().join(interrupted.to_string());
            let adding = target(Some(disk.clone()));
            description.adding = Some(adding.clone());
            state.set_description(&description).unwrap();
            // The work of a command that was interrupted at this point.
            if interrupted > 0 {
                make_link(&state.target_dir(2), &disk).unwrap();
            }
            match interrupted {
                2 => weir_connect::secret::write_new(&state.key_file("target-2"), "ha").unwrap(),
                3 => {
                    std::fs::create_dir_all(disk.join("objects")).unwrap();
                    std::fs::write(disk.join("intents"), "half of it").unwrap();
                }
                4.. => make(&state, &description, &adding).unwrap(),
                _ => {}
            }
            if interrupted > 4 {
                configure(&state, &description, &adding).unwrap();
            }
            let mut found = state.description().unwrap();
            finish(&state, &mut found).unwrap();
            assert!(is_there(&state, 1, 2), "interrupted after step {interrupted}");
            assert_eq!(state.description().unwrap().adding, None);
            assert_eq!(configured(&state, 1), [1, 2]);
        }
    }

    #[test]
    fn a_target_that_cannot_be_made_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (state, mut description) = cluster(dir.path());
        let before = description.clone();
        let disk = dir.path().join("disk");
        let other = TargetIdentity { cluster: [7; 16], target: TargetId(9), server: ServerId(9) };
        Target::create(&disk, other).unwrap();
        let failure = add(&state, &mut description, target(Some(disk.clone()))).unwrap_err();
        assert!(failure.message.contains("it is target 9 already"), "{failure}");
        assert_eq!((&state.description().unwrap(), &description), (&before, &before));
        assert!(!state.target_dir(2).is_symlink() && !state.key_file("target-2").exists());
        assert_eq!(Target::open(&disk).unwrap().identity(), other, "nothing happened to it");
        // The obstacle is gone, and the number can be used for another target.
        add(&state, &mut description, target(None)).unwrap();
        assert!(is_there(&state, 1, 2));
        // A file in place of the directory.
        std::fs::write(state.target_dir(3), "mine").unwrap();
        let third = Adding { target: 3, ..target(None) };
        add(&state, &mut description, third).unwrap_err();
        assert_eq!(std::fs::read(state.target_dir(3)).unwrap(), b"mine");
        assert_eq!(state.description().unwrap().adding, None);
    }

    #[test]
    fn a_server_is_added_with_its_first_target() {
        let dir = tempfile::tempdir().unwrap();
        let (state, mut description) = cluster(dir.path());
        let address = Some("127.0.0.1:20002".to_owned());
        let adding = Adding { server: 4, address, target: 2, dir: None, replaces: None };
        // The command was interrupted in the middle of the configuration.
        description.adding = Some(adding.clone());
        state.set_description(&description).unwrap();
        make(&state, &description, &adding).unwrap();
        finish(&state, &mut description).unwrap();
        assert!(is_there(&state, 4, 2));
        secret::read_key(&state.key_file("server-4")).unwrap();
        let config = data_servers::read(&state, 4).unwrap().unwrap();
        assert_eq!((config.server, &*config.listen), (4, "127.0.0.1:20002"));
        config.check().unwrap();
        add(&state, &mut description, Adding { address: None, target: 3, ..adding }).unwrap();
        assert_eq!(configured(&state, 4), [2, 3]);
    }
}
