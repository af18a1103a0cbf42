//! Finds out whether a mount is being served, without ever blocking, whatever state its process is
//! in.

use crate::cluster::mounting::MountFiles;
use crate::cluster::mounts::WeirMount;
use crate::cluster::process::{Process, has_ended};
use crate::cluster::trouble::Trouble;
use crate::failure::Failure;
use crate::settings::Cluster;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// How long to wait for the answer of a mount. A dead one answers at once.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The process serves the mount, or waits for a server.
    Serves,
    /// A signal has stopped the process.
    Stopped(i32),
    /// The process was killed but cannot end: see [`crate::cluster::stuck`].
    Stuck(Process),
    /// The process has ended. Every call on the mount fails with `ENOTCONN`.
    Dead,
}

impl Life {
    /// Determines the state of a mount.
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

/// The failure for a mount whose process has been stopped, with what to do.
pub fn stopped(mountpoint: &Path, pid: i32) -> Failure {
    Trouble::MountStopped { path: mountpoint.display().to_string(), pid }.into()
}

/// The answer of a mount; `None` if it does not answer in time.
fn probe(mountpoint: &Path) -> Option<Result<(), Errno>> {
    let path = CString::new(mountpoint.as_os_str().as_bytes()).ok()?;
    // A separate process makes the call, because the call may never return, and a process that
    // waits for the mount keeps it in use until it is killed.
    // SAFETY: the child makes only system calls, which are permitted whatever other threads its
    // parent has.
    let child = unsafe {
        match libc::fork() {
            0 => {
                // The child ends with its parent, and keeps none of the parent's locks and pipes
                // open.
                libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                let mut usage = MaybeUninit::<libc::statfs>::uninit();
                // The kernel may answer stat from its cache, but never statfs.
                let failed = libc::statfs(path.as_ptr(), usage.as_mut_ptr()) != 0;
                libc::_exit(if failed { *libc::__errno_location() } else { 0 })
            }
            // fork failed. The value must not reach `kill`: as a process number, -1 means every
            // process.
            -1 => return None,
            child => Pid::from_raw(child)?,
        }
    };
    let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else {
        // Without a descriptor there is no way to wait with a time limit.
        let _ = kill_process(child, Signal::KILL);
        let _ = waitpid(Some(child), WaitOptions::NOHANG);
        return None;
    };
    let answered = has_ended(&handle, PROBE_TIMEOUT);
    if !answered {
        // A living mount answers the calls of killed processes. A dead one never does, and the
        // child stays.
        pidfd_send_signal(&handle, Signal::KILL).ok()?;
        has_ended(&handle, PROBE_TIMEOUT);
    }
    let (_, status) = waitpid(Some(child), WaitOptions::NOHANG).ok()??;
    match status.exit_status()? {
        0 => Some(Ok(())),
        error => Some(Err(Errno::from_raw_os_error(error))),
    }
}
