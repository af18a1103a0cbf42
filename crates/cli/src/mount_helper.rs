//! `mount.fuse.weir`: the program that mount(8), and so /etc/fstab and systemd, call for the type
//! `fuse.weir`. It is `weir` under another name.

use crate::args::{ClusterChoice, MountHelper};
use crate::cluster::mounting::{self, mountpoint};
use crate::failure::{Done, Failure};
use crate::logging;
use crate::mount_options::MountOptions;
use crate::remount;
use crate::settings::{self, Cluster};
use clap::Parser;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// The name under which mount(8) looks for it.
const NAME: &str = "mount.fuse.weir";

// The exit code for wrong usage, as mount(8) defines it.
const WRONG_USAGE: u8 = 1;
const MOUNT_FAILED: u8 = 32;

/// Runs as the helper if this program was called by that name.
pub fn run_if_called() -> Option<Done> {
    let name = std::env::args_os().next()?;
    if Path::new(&name).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    Some(match MountHelper::try_parse() {
        Ok(asked) => mount(&asked).map_err(|failure| failure.code(MOUNT_FAILED)),
        // The error or the help text prints itself.
        Err(error) => error.print().map_err(|_| Failure::new("")).and_then(|()| {
            if error.use_stderr() { Err(Failure::new("").code(WRONG_USAGE)) } else { Ok(()) }
        }),
    })
}

fn mount(asked: &MountHelper) -> Done {
    if let Some(namespace) = &asked.namespace {
        enter(namespace)?;
    }
    let cluster = Cluster::named_by_source(&asked.source)?;
    let path = mountpoint(&asked.mountpoint)?;
    if remount::is_asked(&asked.options) {
        if asked.fake {
            return Ok(());
        }
        return remount::remount(&path, &asked.options, Some(&cluster.source()));
    }
    let mut options = settings::config_file(&ClusterChoice::default())?.mount.options;
    let asked_for =
        asked.options.iter().filter(|option| !asked.sloppy || MountOptions::knows(option));
    options.extend(asked_for.cloned());
    MountOptions::parse(&options)?;
    if asked.verbose {
        logging::say(&format!("{NAME}: {} on {}", cluster.source(), path.display()));
    }
    if asked.fake {
        return Ok(());
    }
    mounting::mount(&cluster, &path, &options).map(drop)
}

/// Enters another mount namespace.
fn enter(namespace: &Path) -> Done {
    let file = File::open(namespace).map_err(|e| Failure::file(namespace, e))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|e| Failure::file(namespace, e))
}
