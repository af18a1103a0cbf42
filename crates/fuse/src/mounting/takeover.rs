//! Replaces a mount whose process has died, without a moment at which programs see the directory
//! below: files made there would be hidden by the next mount.
//!
//! The first of these ways that the kernel has and allows is used:
//! 1. The new mount is put beneath the dead one (`MOVE_MOUNT_BENEATH`, Linux 6.5), which is then
//!    detached. Nothing is left of it.
//! 2. The new mount is put over the dead one, which stays below it: an unmount of the new one shows
//!    it again (`weir umount` removes it as well).
//!
//! An ordinary user only has `fusermount3`, which cannot mount over a dead mount: that is detached
//! first, and the bare directory is visible for a moment. What is made there then is named
//! ([`crate::mounting::bare`]).

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::mounting::config::Config;
use crate::mounting::mount::{is_dead_at, occupied};
use crate::mounting::mount_error::MountError;

/// Mounts in place of a dead mount; `device` serves the new one.
pub(crate) fn take_over(
    mountpoint: &Path,
    device: &OwnedFd,
    config: &Config,
) -> Result<(), MountError> {
    // What is done next is done to this one, and not to what comes there meanwhile.
    let dead = rustix::fs::open(mountpoint, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(MountError::system("looking at the dead mount"))?;
    // Another `weir mount` may have come since it was found to be.
    if !is_dead_at(&dead) {
        return Err(occupied(mountpoint));
    }
    let new = detached(device, config)?;
    let to_dead = |flags| {
        let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
            | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH
            | flags;
        move_mount(&new, "", &dead, "", both)
    };
    if let Err(errno) = to_dead(MoveMountFlags::MOVE_MOUNT_BENEATH) {
        tracing::debug!(%errno, "mounting over the dead mount, which stays");
        return to_dead(MoveMountFlags::empty()).map_err(MountError::system("move_mount"));
    }
    // By its descriptor: somebody may just have detached it, and the path is the new one's.
    let by_descriptor = format!("/proc/self/fd/{}", dead.as_raw_fd());
    if let Err(errno) = rustix::mount::unmount(by_descriptor, UnmountFlags::DETACH) {
        // The new one is to be unmounted, and not to be left beneath.
        let of_new = format!("/proc/self/fd/{}", new.as_raw_fd());
        let _ = rustix::mount::unmount(of_new, UnmountFlags::DETACH);
        return Err(MountError::system("umount of the dead mount")(errno));
    }
    Ok(())
}

/// Makes a mount that is not attached yet.
fn detached(device: &OwnedFd, config: &Config) -> Result<OwnedFd, MountError> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC);
    let context = context.map_err(MountError::system("fsopen"))?;
    let set = |key: &str, value: &str| {
        fsconfig_set_string(context.as_fd(), key, value).map_err(MountError::system("fsconfig"))
    };
    set("source", &config.source)?;
    set("subtype", &config.subtype)?;
    for option in config.direct_options(device).split(',') {
        match option.split_once('=') {
            Some((key, value)) => set(key, value)?,
            None => fsconfig_set_flag(context.as_fd(), option)
                .map_err(MountError::system("fsconfig"))?,
        }
    }
    if config.read_only {
        fsconfig_set_flag(context.as_fd(), "ro").map_err(MountError::system("fsconfig"))?;
    }
    fsconfig_create(context.as_fd()).map_err(MountError::system("making the mount"))?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes(config.direct_flags()))
        .map_err(MountError::system("fsmount"))
}

/// Converts flags for the newer system calls.
fn attributes(flags: MountFlags) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
    ] {
        attributes.set(attribute, flags.contains(flag));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when another mount has come since the dead one was looked at.
    #[test]
    fn what_is_not_dead_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mountpoint = dir.path().canonicalize().unwrap();
        let device = std::fs::File::open("/dev/null").unwrap().into();
        let refused = take_over(&mountpoint, &device, &Config::default()).unwrap_err();
        assert_eq!(refused, MountError::NotMounted(mountpoint.clone()));
        let refused = take_over(Path::new("/proc"), &device, &Config::default()).unwrap_err();
        assert!(matches!(refused, MountError::Occupied { .. }), "{refused}");
    }
}
