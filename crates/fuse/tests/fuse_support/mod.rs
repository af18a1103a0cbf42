//! Mounts of a file system in memory.

pub mod memfs;

use memfs::{MemFs, Probe};

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_fuse::{Config, Handle, MountError, Session};

/// Whether mounts can be made here; says so if not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let usable = root && std::fs::File::open("/dev/fuse").is_ok();
    if !usable {
        eprintln!("skipped: needs /dev/fuse and root");
    }
    usable
}

/// A mounted [`MemFs`] that a thread serves.
pub struct Mount {
    pub dir: tempfile::TempDir,
    pub probe: Arc<Probe>,
    pub handle: Handle,
    serving: Option<std::thread::JoinHandle<Result<(), MountError>>>,
}

impl Mount {
    pub fn new(fs: MemFs, config: &Config) -> Self {
        Self::at(tempfile::tempdir().unwrap(), fs, config)
    }

    pub fn at(dir: tempfile::TempDir, fs: MemFs, config: &Config) -> Self {
        let probe = Arc::clone(&fs.probe);
        let session = Session::mount(fs, dir.path(), config).unwrap();
        let handle = session.handle();
        *probe.notifier.lock().unwrap() = Some(handle.notifier());
        let serving = Some(std::thread::spawn(move || session.run()));
        Self { dir, probe, handle, serving }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Lets reads of `blocks` go on.
    pub fn release_blocked(&self) {
        self.probe.released.store(true, Ordering::SeqCst);
        let _guard = self.probe.wake.0.lock().unwrap();
        self.probe.wake.1.notify_all();
    }

    /// Waits for the end that somebody else brought about.
    pub fn join(&mut self) -> Result<(), MountError> {
        self.serving.take().unwrap().join().unwrap()
    }

    /// Unmounts, and waits for the end.
    pub fn end(mut self) -> tempfile::TempDir {
        // A test beside this one may be forking: for a moment its child holds
        // every file of this process open.
        eventually("not in use", || self.handle.unmount(false).is_ok());
        self.join().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.serving.is_some() {
            let _ = self.handle.unmount(true);
        }
    }
}

/// Waits until something holds.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("in 30 seconds not: {what}");
}
