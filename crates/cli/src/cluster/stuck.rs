//! Mounts whose process was killed but cannot end.
//!
//! A thread of the process makes the kernel drop a page. That page is locked until a read of it is
//! answered, and no thread is left to answer. The waiting thread cannot be killed and keeps the
//! FUSE connection open. So the kernel does not notice that the mount is not being served any more,
//! and has to be told.

use crate::cluster::mounting::kernel_unmount;
use crate::cluster::mounts::WeirMount;
use crate::cluster::process::Process;
use crate::failure::{Done, Failure};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::time::Duration;

/// A killed process that has not ended after this time is stuck.
const ENDS_BY_ITSELF: Duration = Duration::from_secs(1);
/// The longest that the process may take to end after its connection was aborted.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the process of a stuck mount. The next mount takes its place.
pub fn end_process(mount: &WeirMount, process: Process) -> Done {
    if process.wait(ENDS_BY_ITSELF) || (abort(mount).is_ok() && process.wait(END_TIMEOUT)) {
        return Ok(());
    }
    end(mount, process)
}

/// Removes a stuck mount and ends its process. All calls that wait for it get errors.
pub fn end(mount: &WeirMount, process: Process) -> Done {
    let mountpoint = &mount.mountpoint;
    // The threads of the process may still be ending; then no force is needed.
    if process.wait(ENDS_BY_ITSELF) {
        return kernel_unmount(mountpoint, true).map_err(|e| Failure::file(mountpoint, e));
    }
    force(mount).map_err(|e| {
        Failure::file(mountpoint, e).hint(format!("root can: `umount -f {}`", mountpoint.display()))
    })?;
    if process.wait(END_TIMEOUT) {
        return Ok(());
    }
    let message =
        format!("process {} was killed, and does not end without its mount", process.id());
    Err(Failure::new(message).about(mountpoint.display()))
}

fn force(mount: &WeirMount) -> Result<(), Errno> {
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(&mount.mountpoint, flags) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    // fusermount3 cannot force an unmount, but the kernel lets users abort the connection of their
    // own mounts (if its control file system is mounted).
    abort(mount)?;
    kernel_unmount(&mount.mountpoint, true)
}

/// Aborts the FUSE connection between the kernel and the process.
fn abort(mount: &WeirMount) -> Result<(), Errno> {
    let abort = format!("/sys/fs/fuse/connections/{}/abort", mount.connection);
    std::fs::write(abort, "1").map_err(|_| Errno::PERM)
}
