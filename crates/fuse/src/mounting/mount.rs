//! Mounting and unmounting.

use std::ffi::{CString, OsStr, OsString};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, Mode, OFlags, StatFs};
use rustix::io::Errno as OsErrno;
use rustix::mount::UnmountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::mounting::bare::{Bare, Change};
use crate::mounting::config::{Config, MountWith};
use crate::mounting::mount_error::MountError;
use crate::mounting::takeover;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Longest wait for a file system already at the mountpoint to show that it is alive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes read of the helper's output.
const MAX_HELPER_TEXT_BYTES: u64 = 4096;

/// Type of an automount point, which is mounted over at the first use.
const AUTOMOUNT: &str = "autofs";

/// A mount that this process has made.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    /// Path without symbolic links.
    pub(crate) mountpoint: PathBuf,
    /// `major:minor`, the kernel's unique number of this mount.
    device_number: Option<String>,
    with_helper: bool,
    /// What was made in the directory below while a dead mount was replaced, and is hidden now.
    pub(crate) hidden: Vec<OsString>,
}

/// Mounts, and returns the open device. A dead FUSE mount in the way is replaced.
pub(crate) fn mount(path: &Path, config: &Config) -> Result<(OwnedFd, Mounted), MountError> {
    let Place { mountpoint, is_dead } = place(path)?;
    let direct = match config.mount_with {
        MountWith::Helper => None,
        MountWith::Direct | MountWith::Auto => {
            match mount_direct(&mountpoint, is_dead, config) {
                Err(
                    MountError::System { errno: libc::EPERM, .. } | MountError::DeviceDenied(_),
                ) if config.mount_with == MountWith::Auto => None,
                result => Some(result?),
            }
        }
    };
    let with_helper = direct.is_none();
    let (device, hidden) = match direct {
        Some(device) => (device, Vec::new()),
        None if is_dead => replace_with_helper(&mountpoint, config)?,
        None => (mount_with_helper(&mountpoint, config)?, Vec::new()),
    };
    let device_number = find_mount(&mountpoint).map(|mount| mount.device);
    Ok((device, Mounted { mountpoint, device_number, with_helper, hidden }))
}

/// Detaches a dead mount, since the helper mounts nothing where one is, then mounts. Returns also
/// what was made meanwhile in the directory that was bare.
fn replace_with_helper(
    mountpoint: &Path,
    config: &Config,
) -> Result<(OwnedFd, Vec<OsString>), MountError> {
    let since = Change::now();
    match unmount(mountpoint, true, false) {
        Ok(()) | Err(MountError::NotMounted(_)) => {}
        Err(error) => return Err(error),
    }
    let bare = Bare::open(mountpoint, since);
    let device = mount_with_helper(mountpoint, config)?;
    let hidden = bare.and_then(|bare| bare.new_names()).unwrap_or_else(|error| {
        tracing::warn!(
            "{}: cannot see whether files were made in the directory below while the dead mount was \
             replaced: {error}",
            mountpoint.display()
        );
        Vec::new()
    });
    Ok((device, hidden))
}

fn mount_direct(mountpoint: &Path, is_dead: bool, config: &Config) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.map_err(|errno| match errno {
        OsErrno::NOENT | OsErrno::NXIO | OsErrno::NODEV => MountError::NoDevice,
        errno => device_denied(&errno.to_string()),
    })?;
    if is_dead {
        match takeover::take_over(mountpoint, &device, config) {
            // Somebody has detached the dead one meanwhile.
            Err(MountError::NotMounted(_)) => {}
            result => return result.map(|()| device),
        }
    }
    let (options, flags) = (config.direct_options(&device), config.direct_flags());
    let options = CString::new(options).map_err(|_| MountError::BadConfig("a NUL".into()))?;
    let fstype = format!("fuse.{}", config.subtype);
    rustix::mount::mount(config.source.as_str(), mountpoint, fstype.as_str(), flags, &*options)
        .map_err(|errno| match errno {
            OsErrno::NODEV => MountError::NoDevice,
            errno => MountError::system("mount")(errno),
        })?;
    Ok(device)
}

/// Mounts with `fusermount3`, which passes the open device through a socket. It finds the number of
/// the socket in `_FUSE_COMMFD`. Its standard input is that socket, so that no other child can
/// inherit it by accident.
fn mount_with_helper(mountpoint: &Path, config: &Config) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(MountError::system("socketpair"))?;
    let mut options =
        format!("fsname={},subtype={},{}", config.source, config.subtype, config.mount_options());
    for (on, name) in [
        (config.suid, ",suid"),
        (config.dev, ",dev"),
        (!config.exec, ",noexec"),
        (config.read_only, ",ro"),
    ] {
        if on {
            options.push_str(name);
        }
    }
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options).arg("--").arg(mountpoint);
    command.env("_FUSE_COMMFD", "0").stdin(theirs);
    run_helper(command).map_err(|error| match error {
        MountError::Helper(said) if said.contains("open /dev/fuse") => device_denied(&said),
        // With the helper it could not be opened either.
        MountError::NoHelper if !may_open_device() => device_denied("permission denied"),
        error => error,
    })?;
    receive_device(&ours)?.ok_or_else(|| MountError::Helper("it passed no device".into()))
}

/// Whether this process's user may open the device.
fn may_open_device() -> bool {
    rustix::fs::access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// The error of a device that cannot be opened: who may open it, and what to do.
fn device_denied(why: &str) -> MountError {
    MountError::DeviceDenied(match rustix::fs::stat(DEVICE) {
        Ok(stat) => who_may_open(why, stat.st_mode & 0o777, (stat.st_uid, stat.st_gid)),
        Err(_) => why.to_owned(),
    })
}

fn who_may_open(why: &str, mode: u32, (uid, gid): (u32, u32)) -> String {
    if mode & 0o006 == 0o006 {
        return format!(
            "{why}, although its mode is {mode:04o}: does this machine or container keep devices from \
             its users (a container needs --device {DEVICE})?"
        );
    }
    let group = if mode & 0o060 == 0o060 { format!(" and group {gid}") } else { String::new() };
    format!(
        "{why}: user {uid}{group} alone may (its mode is {mode:04o}). Mount as that user, or let \
         everyone open it, as systems usually do: as root `chmod 666 {DEVICE}`, until the machine is \
         started anew; for good KERNEL==\"fuse\", MODE=\"0666\" in a file of /etc/udev/rules.d"
    )
}

/// Runs the helper to its end. Its standard error explains a failure.
fn run_helper(mut command: Command) -> Result<(), MountError> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::Helper(error.to_string()),
    })?;
    // The command holds the helper's end of the socket open.
    drop(command);
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        // Unreadable text is as good as none.
        let _ = stderr.take(MAX_HELPER_TEXT_BYTES).read_to_string(&mut said);
    }
    let status = child.wait().map_err(|error| MountError::Helper(error.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let said = said.trim();
    let said = said.strip_prefix("fusermount3: ").unwrap_or(said);
    Err(MountError::Helper(if said.is_empty() { status.to_string() } else { said.to_owned() }))
}

fn receive_device(socket: &OwnedFd) -> Result<Option<OwnedFd>, MountError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(MountError::system("receiving the device from fusermount3"))?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

impl Mounted {
    /// Unmounts, unless the mount is gone or another has taken its place. With `lazy` it is
    /// detached at once, and gone after its last use.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        let there = find_mount(&self.mountpoint).map(|mount| mount.device);
        if there.is_none() || there != self.device_number {
            return Err(MountError::NotMounted(self.mountpoint.clone()));
        }
        unmount(&self.mountpoint, lazy, self.with_helper)
    }
}

fn unmount(mountpoint: &Path, lazy: bool, with_helper: bool) -> Result<(), MountError> {
    if !with_helper {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazy);
        match rustix::mount::unmount(mountpoint, flags) {
            Ok(()) => return Ok(()),
            Err(OsErrno::BUSY) => return Err(MountError::InUse(mountpoint.to_owned())),
            Err(OsErrno::INVAL | OsErrno::NOENT) => {
                return Err(MountError::NotMounted(mountpoint.to_owned()));
            }
            Err(OsErrno::PERM) => {}
            Err(errno) => return Err(MountError::system("umount")(errno)),
        }
    }
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    command.arg("--").arg(mountpoint).stdin(Stdio::null());
    run_helper(command).map_err(|error| match error {
        MountError::Helper(said) if said.contains("busy") => {
            MountError::InUse(mountpoint.to_owned())
        }
        MountError::Helper(said) if said.contains("not found") || said.contains("Invalid") => {
            MountError::NotMounted(mountpoint.to_owned())
        }
        error => error,
    })
}

/// A place to mount.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// The directory, as the kernel knows it.
    mountpoint: PathBuf,
    /// Whether a FUSE mount whose process has died is there; otherwise nothing is.
    is_dead: bool,
}

/// Checks a mountpoint; refuses one that must not be mounted over.
fn place(path: &Path) -> Result<Place, MountError> {
    // Through a dead mount the path itself cannot be resolved, its parent can.
    let through_parent = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            std::fs::canonicalize(parent).ok().map(|parent| parent.join(name))
        }
        _ => None,
    };
    if let Some(mountpoint) = through_parent
        && is_taken(&mountpoint)?
    {
        return Ok(Place { mountpoint, is_dead: true });
    }
    let mountpoint = std::fs::canonicalize(path).map_err(|error| path_error(path, &error))?;
    if is_taken(&mountpoint)? {
        return Ok(Place { mountpoint, is_dead: true });
    }
    let metadata = std::fs::metadata(&mountpoint).map_err(|error| path_error(path, &error))?;
    match metadata.is_dir() {
        true => Ok(Place { mountpoint, is_dead: false }),
        false => Err(MountError::NotDirectory(mountpoint)),
    }
}

fn path_error(path: &Path, error: &std::io::Error) -> MountError {
    match error.kind() {
        std::io::ErrorKind::NotFound => MountError::NoMountpoint(path.to_owned()),
        std::io::ErrorKind::NotADirectory => MountError::NotDirectory(path.to_owned()),
        _ => MountError::System {
            what: "looking at the mountpoint",
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        },
    }
}

/// Whether a dead FUSE mount is at the path; refuses if anything else is there that must not be
/// mounted over.
fn is_taken(mountpoint: &Path) -> Result<bool, MountError> {
    let Some(found) = find_mount(mountpoint) else { return Ok(false) };
    if found.fstype == AUTOMOUNT {
        return Ok(false);
    }
    if !(found.fstype.starts_with("fuse") && is_dead(mountpoint)) {
        return Err(MountError::Occupied {
            mountpoint: mountpoint.to_owned(),
            source: found.source,
            fstype: found.fstype,
        });
    }
    tracing::info!(
        mountpoint = %mountpoint.display(),
        source = found.source,
        "taking over the mountpoint of a file system that died"
    );
    Ok(true)
}

/// Whether the daemon of a FUSE mount is gone. A hanging one counts as alive.
fn is_dead(mountpoint: &Path) -> bool {
    let path = mountpoint.to_owned();
    has_no_daemon(move || rustix::fs::statfs(&path))
}

/// The same of what was opened, whatever has come to its path since.
pub(crate) fn is_dead_at(opened: &OwnedFd) -> bool {
    opened.try_clone().is_ok_and(|opened| has_no_daemon(move || rustix::fs::fstatfs(opened)))
}

fn has_no_daemon(ask: impl FnOnce() -> rustix::io::Result<StatFs> + Send + 'static) -> bool {
    let (sender, receiver) = mpsc::channel();
    // A thread of its own: a hanging daemon would hold this one for ever.
    std::thread::spawn(move || {
        // The kernel may answer a stat from its cache, this never.
        let answer = ask();
        // Nobody listens any more after the timeout.
        let _ = sender.send(answer);
    });
    let answer = receiver.recv_timeout(PROBE_TIMEOUT);
    matches!(answer, Ok(Err(OsErrno::NOTCONN | OsErrno::CONNABORTED)))
}

/// Why nothing is mounted over what is at a path.
pub(crate) fn occupied(mountpoint: &Path) -> MountError {
    let mountpoint = mountpoint.to_owned();
    match find_mount(&mountpoint) {
        Some(MountInfo { source, fstype, .. }) => {
            MountError::Occupied { mountpoint, source, fstype }
        }
        None => MountError::NotMounted(mountpoint),
    }
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountInfo {
    device: String,
    mountpoint: PathBuf,
    fstype: String,
    source: String,
}

/// The uppermost mount at exactly this path, if there is one.
fn find_mount(mountpoint: &Path) -> Option<MountInfo> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut mounts = text.split(|&byte| byte == b'\n').filter_map(parse_mountinfo);
    mounts.rfind(|mount| mount.mountpoint == mountpoint)
}

fn parse_mountinfo(line: &[u8]) -> Option<MountInfo> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let text = |word: &[u8]| String::from_utf8_lossy(unescape(word).as_bytes()).into_owned();
    let separator = words.iter().position(|word| *word == b"-")?;
    Some(MountInfo {
        device: text(words.get(2)?),
        mountpoint: unescape(words.get(4)?).into(),
        fstype: text(words.get(separator + 1)?),
        source: text(words.get(separator + 2)?),
    })
}

/// Decodes `\040` and the like, as `/proc` writes blanks and backslashes.
fn unescape(word: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

/// Sets the kernel's read-ahead of a mount. Needs root; otherwise the kernel's 128 KiB remain.
pub(crate) fn set_read_ahead(mounted: &Mounted, read_ahead_kib: u32) {
    let Some(device) = &mounted.device_number else { return };
    let path = Path::new(OsStr::new("/sys/class/bdi")).join(device).join("read_ahead_kb");
    if let Err(error) = std::fs::write(&path, read_ahead_kib.to_string()) {
        tracing::debug!(path = %path.display(), %error, "read-ahead stays as it is");
    }
}

/// Waits until a request can be read. Returns `false` after the timeout.
pub(crate) fn wait_readable(device: impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::new(&device, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timeout)), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_open_the_device_is_said_and_not_what_to_install() {
        let said = MountError::DeviceDenied(who_may_open("EACCES", 0o600, (0, 0))).to_string();
        assert!(said.contains("EACCES: user 0 alone may (its mode is 0600)"), "{said}");
        assert!(said.contains("chmod 666 /dev/fuse") && !said.contains("fuse3"), "{said}");
        let said = who_may_open("EACCES", 0o660, (0, 44));
        assert!(said.contains("user 0 and group 44 alone"), "{said}");
        let said = who_may_open("EPERM", 0o666, (0, 0));
        assert!(said.contains("container") && !said.contains("chmod"), "{said}");
    }

    #[test]
    fn mountinfo_is_parsed_with_blanks_in_names() {
        let line = b"36 35 0:98 / /mnt/my\\040dir\\134x rw,noatime shared:1 - fuse.weir weir:a rw";
        assert_eq!(
            parse_mountinfo(line).unwrap(),
            MountInfo {
                device: "0:98".into(),
                mountpoint: "/mnt/my dir\\x".into(),
                fstype: "fuse.weir".into(),
                source: "weir:a".into(),
            }
        );
        assert_eq!(parse_mountinfo(b"36 35 0:98 /"), None);
        assert_eq!(parse_mountinfo(b""), None);
        assert_eq!(unescape(b"a\\04"), OsStr::new("a\\04"));
    }

    #[test]
    fn unusable_mountpoints_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(place(&file), Err(MountError::NotDirectory(file.clone())));
        let none = dir.path().join("none");
        assert_eq!(place(&none), Err(MountError::NoMountpoint(none.clone())));
        let below = file.join("x");
        assert!(matches!(place(&below), Err(MountError::NotDirectory(_))));
        match place(Path::new("/proc")) {
            Err(MountError::Occupied { fstype, .. }) => assert_eq!(fstype, "proc"),
            other => panic!("{other:?}"),
        }
    }
}
