//! Whether somebody serves a mount: asked in a way that never hangs, whatever
//! its process does.

use crate::cluster::mounting::MountFiles;
use crate::cluster::mounts::WeirMount;
use crate::cluster::process::Process;
use crate::cluster::trouble::Trouble;
use crate::failure::Failure;
use crate::settings::Cluster;
use rustix::io::Errno;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How long a mount may take to answer. A dead one does at once.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How a mount is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its process serves it, or waits for a server.
    Serves,
    /// Its process has been stopped by a signal.
    Stopped(i32),
    /// Its process was killed, and cannot end: see [`crate::cluster::stuck`].
    Stuck(Process),
    /// Its process has ended: every call there fails with `ENOTCONN`.
    Dead,
}

impl Life {
    /// How this mount is.
    pub fn of(mount: &WeirMount) -> Self {
        let files = Cluster::from_source(&mount.source)
            .and_then(|cluster| MountFiles::of(&cluster, &mount.mountpoint).ok());
        let process = files.and_then(|files| Process::recorded(&files.pid));
        match process {
            Some(process) if process.is_stopped() => Self::Stopped(process.id()),
            _ => match (probe(&mount.mountpoint), process) {
                (Some(Err(Errno::NOTCONN | Errno::CONNABORTED)), _) => Self::Dead,
                // Another process may serve what is mounted there now.
                (Some(Ok(())), _) => Self::Serves,
                (_, Some(process)) if process.is_stuck() => Self::Stuck(process),
                _ => Self::Serves,
            },
        }
    }
}

/// What is wrong with a mount whose process has been stopped, and what to do.
pub fn stopped(mountpoint: &Path, pid: i32) -> Failure {
    Trouble::MountStopped { path: mountpoint.display().to_string(), pid }.into()
}

/// What a mount answers; `None`: nothing, for as long as it may take.
fn probe(mountpoint: &Path) -> Option<Result<(), Errno>> {
    let (sender, receiver) = mpsc::channel();
    let path = mountpoint.to_owned();
    // A thread of its own: a process that does not answer would hold this one.
    std::thread::spawn(move || {
        // The kernel may answer a stat from its cache, this never.
        let _ = sender.send(rustix::fs::statfs(&path).map(drop));
    });
    receiver.recv_timeout(PROBE_TIMEOUT).ok()
}
