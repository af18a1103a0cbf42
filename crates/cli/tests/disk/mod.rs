//! Small file systems that a test fills and breaks.

use crate::harness::Place;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `EXT4_IOC_SHUTDOWN`: from then on the file system fails with `EIO`.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// Whether a command succeeds.
pub fn succeeds(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let mut command = Command::new(program);
    for argument in arguments {
        command.arg(argument);
    }
    command.output().is_ok_and(|output| output.status.success())
}

/// A small file system of its own, gone when dropped.
pub struct Disk {
    pub at: PathBuf,
    image: Option<PathBuf>,
}

impl Disk {
    /// In memory. `None`, said, where this user may not mount.
    pub fn memory(place: &Place, size: &str) -> Option<Self> {
        Self::memory_at(place, "disk", size)
    }

    pub fn memory_at(place: &Place, at: &str, size: &str) -> Option<Self> {
        let at = place.path(at);
        std::fs::create_dir(&at).unwrap();
        let options = format!("-osize={size}");
        let mounted = succeeds("mount", &[&"-ttmpfs", &options, &"weir-test", &at]);
        Self::or_say(mounted, Self { at, image: None })
    }

    /// ext4 in a file, which becomes read-only when it finds an error.
    pub fn ext4(place: &Place) -> Option<Self> {
        Self::ext4_at(place, "disk", 32)
    }

    /// Of so many MiB.
    pub fn ext4_at(place: &Place, at: &str, mib: u64) -> Option<Self> {
        let (at, image) = (place.path(at), place.path("image"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let made = succeeds("mkfs.ext4", &[&"-qF", &image]);
        let disk = Self { at, image: Some(image) };
        Self::or_say(made && disk.mount(), disk)
    }

    fn or_say(mounted: bool, disk: Self) -> Option<Self> {
        if !mounted {
            println!("skipped: needs root (and loop devices)");
        }
        mounted.then_some(disk)
    }

    fn mount(&self) -> bool {
        let Some(image) = &self.image else { return false };
        succeeds("mount", &[&"-oloop,errors=remount-ro", image, &self.at])
    }

    /// What an administrator does: unmount, check, mount.
    pub fn repair(&self) {
        assert!(succeeds("umount", &[&self.at]), "it is still in use");
        let image = self.image.as_ref().unwrap();
        // 1: it has corrected something.
        let checked = Command::new("e2fsck").arg("-fy").arg(image).output().unwrap();
        assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
        assert!(self.mount());
    }

    /// Lets the file system find an error, after which it takes no change any
    /// more. (`mount -o remount,ro` is refused while files are open for
    /// writing, which those of a served target always are.)
    pub fn turn_read_only(&self) -> bool {
        let source = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.at).output();
        let source = String::from_utf8(source.unwrap().stdout).unwrap();
        let device = Path::new(source.trim()).file_name().unwrap().to_owned();
        let trigger = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
        std::fs::write(trigger, "a test").is_ok()
    }

    /// From now on everything fails with `EIO`.
    pub fn break_down(&self) -> bool {
        let dir = std::fs::File::open(&self.at).unwrap();
        let without_flush = 2u32;
        // SAFETY: the ioctl reads one u32, which outlives the call, and the
        // descriptor is open.
        unsafe { libc::ioctl(dir.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const without_flush) == 0 }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        succeeds("umount", &[&"-l", &self.at]);
    }
}
