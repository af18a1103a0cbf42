//! A small disk: a file system in a file. It can be filled, and it can fail as real
//! ones do.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for what the loads have, and for little more.
const BYTES: u64 = 256 << 20;
/// `EXT4_IOC_SHUTDOWN`: from then on everything fails with `EIO`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Every call fails; what was written before is kept.
    Dead,
    /// Every call fails; what was not synced is lost.
    DeadAndForgetful,
    /// It cannot be written any more; what was not synced may be lost.
    ReadOnly,
}

/// Mounted where a target was; unmounted when dropped.
pub struct Disk {
    image: PathBuf,
    at: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

impl Disk {
    /// Moves what is in the directory `at` to a disk of its own, which takes its place.
    /// Nothing where that is not possible.
    pub fn new(image: PathBuf, at: PathBuf) -> Option<Self> {
        File::create(&image).unwrap().set_len(BYTES).unwrap();
        let old = at.with_extension("old");
        std::fs::rename(&at, &old).unwrap();
        std::fs::create_dir(&at).unwrap();
        let disk = Self { image, at };
        if !run("mkfs.ext4", &["-q", "-m0", &disk.image.to_string_lossy()]) || !disk.mount() {
            return None;
        }
        let contents = format!("{}/.", old.display());
        assert!(run("cp", &["-a", &contents, &disk.at.to_string_lossy()]));
        // A disk that forgets is not to forget that.
        assert!(run("sync", &["-f", &disk.at.to_string_lossy()]));
        std::fs::remove_dir_all(old).unwrap();
        Some(disk)
    }

    fn mount(&self) -> bool {
        let (image, at) = (self.image.to_string_lossy(), self.at.to_string_lossy());
        run("mount", &["-o", "loop,errors=remount-ro,data=ordered", &image, &at])
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Not one byte is left.
    pub fn fill(&self) {
        let mut length = BYTES;
        let file = File::create(self.ballast()).unwrap();
        let mut end = 0;
        // What is left after a large piece takes smaller ones.
        while length >= 4096 {
            // SAFETY: plain numbers and an open descriptor.
            let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), end, length as i64) };
            if failed == 0 { end += length as i64 } else { length /= 2 }
        }
    }

    /// Gives the room back.
    pub fn empty(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    pub fn fail(&self, failure: Failure) {
        let how: u32 = match failure {
            Failure::Dead => 0,
            Failure::DeadAndForgetful => 2,
            Failure::ReadOnly => {
                let device = device_of(&self.at);
                let error = format!("/sys/fs/ext4/{device}/trigger_fs_error");
                return std::fs::write(error, "1").unwrap();
            }
        };
        let at = File::open(&self.at).unwrap();
        // SAFETY: the call reads one number, which outlives it.
        let failed = unsafe { libc::ioctl(at.as_raw_fd(), SHUTDOWN, &raw const how) };
        assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    }

    /// Like after a repair: the contents of the device are there again. Nobody may use it.
    pub fn replace(&self) {
        assert!(self.unmount(), "{}: still in use", self.at.display());
        assert!(self.mount());
    }

    fn unmount(&self) -> bool {
        run("umount", &[&self.at.to_string_lossy()])
    }
}

fn device_of(at: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let is_it = |line: &&str| line.split(' ').nth(1).is_some_and(|m| Path::new(m) == at);
    let line = mounts.lines().rfind(is_it).unwrap();
    line.split(' ').next().unwrap().rsplit('/').next().unwrap().to_owned()
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.unmount() {
            run("umount", &["-l", &self.at.to_string_lossy()]);
        }
    }
}
