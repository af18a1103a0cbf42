//! A program on the mount: writes files, syncs each, gives it its final name,
//! and says in `done` how many have come so far. It ends with an error when the
//! mount daemon is killed under it, and can go on where it was.

use crate::harness::noise;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;

const MAX_FILE_BYTES: usize = 300_000;

fn contents(number: u64) -> Vec<u8> {
    let len = 1 + (number as usize).wrapping_mul(7919) % MAX_FILE_BYTES;
    noise(len, number + 1)
}

fn name(number: u64) -> String {
    format!("file-{number:06}")
}

/// A running load, as the test sees it.
pub struct MountLoad {
    child: Child,
    dir: PathBuf,
    base: PathBuf,
}

impl MountLoad {
    /// Starts one in a directory of the mount; `base` is a path for its files
    /// on the local disk.
    pub fn start(dir: PathBuf, base: PathBuf) -> Self {
        let child = Self::start_child(&dir, &base);
        Self { child, dir, base }
    }

    fn start_child(dir: &Path, base: &Path) -> Child {
        let variables = [("WEIR_LOAD_MOUNT", dir), ("WEIR_LOAD_BASE", base)];
        super::start(&variables, &base.with_extension("log"))
    }

    /// Files that are synced and have their name.
    pub fn done(&self) -> u64 {
        done(&self.base)
    }

    /// What it complained of, if it has ended.
    pub fn failure(&mut self) -> Option<String> {
        self.child.try_wait().unwrap()?;
        Some(fs::read_to_string(self.base.with_extension("log")).unwrap_or_default())
    }

    /// After the mount was killed: waits until it has noticed, checks what was
    /// synced, and starts it again. The mountpoint is usable again.
    pub fn start_again(&mut self) {
        crate::harness::eventually("the program on the mount ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.verify();
        self.child = Self::start_child(&self.dir, &self.base);
    }

    /// Ends it and checks every file that was acknowledged.
    pub fn finish(mut self) -> u64 {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.verify();
        self.done()
    }

    fn verify(&self) {
        for number in 0..self.done() {
            let path = self.dir.join(name(number));
            let read = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(read == contents(number), "{} is not what was synced", path.display());
        }
    }
}

impl Drop for MountLoad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn done(base: &Path) -> u64 {
    let text = fs::read_to_string(base.with_extension("done"));
    text.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
}

pub fn run_if_asked() -> bool {
    let Some(dir) = std::env::var_os("WEIR_LOAD_MOUNT").map(PathBuf::from) else { return false };
    let base = PathBuf::from(std::env::var_os("WEIR_LOAD_BASE").unwrap());
    for number in done(&base).. {
        one_file(&dir, number).unwrap_or_else(|e| panic!("{}: {e}", name(number)));
        let next = base.with_extension("next");
        fs::write(&next, (number + 1).to_string()).unwrap();
        fs::rename(&next, base.with_extension("done")).unwrap();
    }
    true
}

fn one_file(dir: &Path, number: u64) -> std::io::Result<()> {
    let temporary = dir.join("temporary");
    let mut file = File::create(&temporary)?;
    for part in contents(number).chunks(40_009) {
        file.write_all(part)?;
    }
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, dir.join(name(number)))?;
    // The name is durable too.
    File::open(dir)?.sync_all()
}
