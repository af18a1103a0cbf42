//! Mounts and unmounts. Each mount is served by a daemon of its own.

use crate::cluster::life::{self, Life};
use crate::cluster::mount_lock::MountLock;
use crate::cluster::mounts::{self, WeirMount};
use crate::cluster::process::{self, DaemonSpec, Process};
use crate::cluster::state::{StateDir, make_dir};
use crate::cluster::stuck;
use crate::failure::{Done, Failure};
use crate::settings::{self, Cluster};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_types::checksum::crc32c;

/// The longest that the process of a mount may take to end after the unmount: its last calls wait
/// 30 s for a server that does not answer, and what they leave is written after them.
const END_TIMEOUT: Duration = Duration::from_secs(90);

/// The most dead mounts below another one that an unmount removes.
const MOST_DEAD: usize = 64;

/// The files of a mount's process.
pub struct MountFiles {
    /// The name of the mount as a daemon.
    pub name: String,
    /// The pid file.
    pub pid: PathBuf,
    /// The log.
    pub log: PathBuf,
    /// The file with the address of its metrics; missing if it serves none.
    pub metrics: PathBuf,
}

impl MountFiles {
    /// The files for a mount of a cluster.
    pub fn of(cluster: &Cluster, mountpoint: &Path) -> Done<Self> {
        let name = format!("mount-{:08x}", crc32c(mountpoint.as_os_str().as_bytes()));
        match cluster {
            Cluster::Here(state) => Ok(Self {
                pid: state.pid_file(&name),
                log: state.log_file(&name),
                metrics: state.metrics_file(&name),
                name,
            }),
            Cluster::Elsewhere(_) => {
                let dir = elsewhere_dir()?;
                let file = |suffix| dir.join(format!("{name}.{suffix}"));
                Ok(Self { pid: file("pid"), log: file("log"), metrics: file("metrics"), name })
            }
        }
    }

    /// Writes this process into the pid file, so that an unmount can wait for its end.
    pub fn record_this(&self) -> Done {
        if let Some(dir) = self.pid.parent() {
            make_dir(dir, 0o700)?;
        }
        Process::record_this(&self.pid)
    }

    /// The process of the mount, if it is running.
    pub fn process(&self) -> Option<Process> {
        Process::from_file(&self.pid)
    }

    /// The address at which the mount serves metrics, if it does.
    pub fn metrics_address(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.metrics).ok()?;
        Some(text.trim().to_owned())
    }
}

/// The directory for pid files and logs of mounts of clusters that are not on this machine.
pub fn elsewhere_dir() -> Done<PathBuf> {
    Ok(settings::state_home()?.join(".mounts"))
}

/// The absolute path of a mountpoint, found without accessing the mount itself: it may be dead.
pub fn mountpoint(path: &Path) -> Done<PathBuf> {
    let path = std::path::absolute(path).map_err(|e| Failure::file(path, e))?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = parent.canonicalize().map_err(|e| Failure::file(parent, e))?;
            let path = parent.join(name);
            if mounts::at(&path)?.is_some() {
                return Ok(path);
            }
            // A symbolic link is followed, unless it is dangling.
            Ok(match path.is_symlink() {
                true => path.canonicalize().unwrap_or(path),
                false => path,
            })
        }
        _ => Ok(path),
    }
}

/// The absolute path of a mountpoint. If it is missing, it is made with its parents. Returns also
/// whether it was made.
pub fn made_mountpoint(path: &Path) -> Done<(PathBuf, bool)> {
    let is_missing = |path: &Path| {
        path.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    if let Ok(found) = mountpoint(path)
        && (mounts::at(&found)?.is_some() || !is_missing(&found))
    {
        return Ok((found, false));
    }
    std::fs::create_dir_all(path).map_err(|e| Failure::file(path, e))?;
    Ok((mountpoint(path)?, true))
}

/// Removes the rest of a mount that cannot end. Fails, with what to do, if nothing can be mounted
/// here afterwards.
pub fn clear_mountpoint(path: &Path) -> Done {
    if let Some(mount) = mounts::at(path)? {
        match Life::of(&mount) {
            // The new mount replaces the dead one.
            Life::Dead => return check_fuse(),
            Life::Stuck(process) => {
                stuck::end_process(&mount, process)?;
                if mounts::at(path)?.is_some() {
                    return check_fuse();
                }
            }
            Life::Stopped(pid) => return Err(life::stopped(path, pid)),
            Life::Serves => {
                return Err(Failure::new("a Weir is mounted here already")
                    .about(path.display())
                    .hint(format!("`weir umount {}` removes it", path.display())));
            }
        }
    }
    let meta = std::fs::metadata(path).map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        let failure = Failure::file(path, e);
        if missing { failure.hint("make the directory first") } else { failure }
    })?;
    if !meta.is_dir() {
        return Err(Failure::file(path, Errno::NOTDIR));
    }
    check_fuse()
}

fn check_fuse() -> Done {
    if Path::new("/dev/fuse").exists() {
        return Ok(());
    }
    Err(Failure::new("FUSE is missing: /dev/fuse does not exist").hint(
        "load it with `modprobe fuse`; a container needs --device /dev/fuse --cap-add SYS_ADMIN",
    ))
}

/// Mounts in the background. Returns when the mount works.
pub fn mount(cluster: &Cluster, mountpoint: &Path, options: &[String]) -> Done<Process> {
    let _lock = MountLock::take(mountpoint)?;
    clear_mountpoint(mountpoint)?;
    let files = MountFiles::of(cluster, mountpoint)?;
    if matches!(cluster, Cluster::Elsewhere(_)) {
        make_dir(&elsewhere_dir()?, 0o700)?;
    }
    let mut arguments: Vec<OsString> = vec!["--foreground".into()];
    match cluster {
        Cluster::Here(state) => arguments.extend(["--dir".into(), state.dir().into()]),
        Cluster::Elsewhere(file) => arguments.extend(["--credential".into(), file.into()]),
    }
    if !options.is_empty() {
        arguments.extend(["-o".into(), options.join(",").into()]);
    }
    arguments.extend(["--".into(), mountpoint.into()]);
    let daemon = DaemonSpec {
        name: &files.name,
        command: &["mount"],
        arguments,
        log: &files.log,
        pid_file: &files.pid,
        network: None,
    };
    let started = process::start(&daemon)?.ready();
    if started.is_err() {
        let _ = std::fs::remove_file(&files.pid);
    }
    started
}

/// Unmounts, and waits until the mount's process has written everything.
pub fn unmount(mount: &WeirMount, lazy: bool) -> Done {
    let mountpoint = &mount.mountpoint;
    match Life::of(mount) {
        Life::Stuck(process) => stuck::end(mount, process)?,
        Life::Stopped(pid) if !lazy => return Err(life::stopped(mountpoint, pid)),
        // A process that uses a dead mount only gets errors from it.
        Life::Dead => take_away(mountpoint, true)?,
        Life::Serves | Life::Stopped(_) => take_away(mountpoint, lazy)?,
    }
    take_away_dead(mountpoint)?;
    // With --lazy the process continues to serve processes that still use the mount.
    let Some(cluster) = Cluster::from_source(&mount.source).filter(|_| !lazy) else {
        return Ok(());
    };
    let files = MountFiles::of(&cluster, mountpoint)?;
    if files.process().is_some_and(|process| !process.wait(END_TIMEOUT)) {
        return Err(Failure::new("unmounted, but its process has not ended yet")
            .about(mountpoint.display())
            .hint(format!("its log: {}", files.log.display())));
    }
    let _ = std::fs::remove_file(&files.pid);
    let _ = std::fs::remove_file(&files.metrics);
    Ok(())
}

/// Removes dead mounts that a later mount covers.
fn take_away_dead(mountpoint: &Path) -> Done {
    for _ in 0..MOST_DEAD {
        match mounts::at(mountpoint)? {
            Some(mount) if matches!(Life::of(&mount), Life::Dead) => take_away(mountpoint, true)?,
            _ => break,
        }
    }
    Ok(())
}

/// Unmounts. Fails with the names of programs that have to end first if the mount is in use.
fn take_away(mountpoint: &Path, lazy: bool) -> Done {
    let Err(error) = kernel_unmount(mountpoint, lazy) else { return Ok(()) };
    if error != Errno::BUSY {
        return Err(Failure::file(mountpoint, error));
    }
    let users = mounts::users(mountpoint);
    let who = match users.is_empty() {
        true => "a program uses it".to_owned(),
        false => format!("used by {}", users.join(", ")),
    };
    Err(Failure::new(format!("busy: {who}"))
        .about(mountpoint.display())
        .hint("end that program or let it leave the directory; --lazy detaches the mount now"))
}

/// Unmounts. With `lazy` the mount disappears at once, and ends when its last user has ended.
pub fn kernel_unmount(mountpoint: &Path, lazy: bool) -> Result<(), Errno> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match rustix::mount::unmount(mountpoint, flags) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    // A user may unmount what fusermount3 mounted for them.
    let option = if lazy { "-uz" } else { "-u" };
    let output = Command::new("fusermount3").arg(option).arg("--").arg(mountpoint).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("busy") => Err(Errno::BUSY),
        _ => Err(Errno::PERM),
    }
}

/// The mounts of the cluster in a state directory.
pub fn mounts_of(state: &StateDir) -> Done<Vec<WeirMount>> {
    let source = Cluster::Here(state.clone()).source();
    Ok(mounts::all()?.into_iter().filter(|m| m.source == source).collect())
}
