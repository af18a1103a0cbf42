//! Programs that use a mount while its servers fail. Each is a process of its
//! own, this test binary started again: it repeats one call, says how often it
//! has returned, how long the longest took, and how many failed.

use crate::harness::{Cluster, Place, again, noise};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every call that a program may wait in.
pub const CALLS: [&str; 10] =
    ["read", "write", "fsync", "stat", "open", "readdir", "unlink", "close", "dirty", "mmap"];

const FILE_BYTES: usize = 1 << 20;

/// A cluster of four data servers, and where it is mounted.
pub fn mounted<'a>(place: &'a Place, name: &str, options: &str) -> (Cluster<'a>, PathBuf) {
    let cluster = place.up(name, &["--targets", "4"]);
    let at = place.path("m");
    fs::create_dir(&at).unwrap();
    cluster.weir(&["mount", at.to_str().unwrap(), "-o", options]).ok();
    (cluster, at)
}

/// What a program has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that have returned.
    pub calls: u64,
    /// Those that failed.
    pub failed: u64,
    /// The longest, milliseconds.
    pub longest_ms: u64,
    /// Those that ended with `EINTR`.
    pub interrupted: u64,
    /// The thread that makes the calls.
    pub thread: u64,
}

/// A running program.
pub struct Program {
    pub call: &'static str,
    pub child: Child,
    report: PathBuf,
}

impl Program {
    /// Starts one that works in `dir` of a mount and reports to `report` of a
    /// local disk. With `handler` SIGINT only interrupts it.
    pub fn start(call: &'static str, dir: &Path, report: PathBuf, handler: bool) -> Self {
        Self::prepare(dir);
        Self::start_in(call, dir, report, handler)
    }

    /// Makes the directory that one works in.
    pub fn prepare(dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("file"), noise(FILE_BYTES, 1)).unwrap();
    }

    /// Starts one in a directory that is prepared.
    pub fn start_in(call: &'static str, dir: &Path, report: PathBuf, handler: bool) -> Self {
        let _ = fs::remove_file(&report);
        let log = report.with_extension("log");
        let mut command = again("fault_load::load_process");
        command.env("WEIR_FAULT_CALL", call).env("WEIR_FAULT_DIR", dir);
        command.env("WEIR_FAULT_REPORT", &report);
        if handler {
            command.env("WEIR_FAULT_HANDLER", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::create(log).unwrap()).spawn().unwrap();
        Self { call, child, report }
    }

    pub fn report(&self) -> Report {
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || numbers.next().unwrap_or(0);
        Report {
            calls: next(),
            failed: next(),
            longest_ms: next(),
            interrupted: next(),
            thread: next(),
        }
    }

    /// What it complained of.
    pub fn log(&self) -> String {
        fs::read_to_string(self.report.with_extension("log")).unwrap_or_default()
    }

    /// SIGINT to the thread that makes the calls (one to the process may be
    /// taken by another thread).
    pub fn interrupt(&self) {
        let (pid, thread) = (self.child.id(), self.report().thread);
        // SAFETY: plain numbers; a thread that is gone is an error.
        let failed = unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, libc::SIGINT) };
        assert_eq!(failed, 0, "{}", Error::last_os_error());
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn is_gone(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a [`Program`] runs.
#[test]
fn load_process() {
    let Some(call) = std::env::var_os("WEIR_FAULT_CALL") else { return };
    let dir = PathBuf::from(std::env::var_os("WEIR_FAULT_DIR").unwrap());
    let report = PathBuf::from(std::env::var_os("WEIR_FAULT_REPORT").unwrap());
    // A shell has what it starts in the background ignore it, and so the tests and this.
    // SAFETY: no handler is installed; the usual effect is.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    if std::env::var_os("WEIR_FAULT_HANDLER").is_some() {
        handle_interrupts();
    }
    repeat(call.to_str().unwrap(), &dir, &report);
}

fn repeat(call: &str, dir: &Path, report: &Path) {
    let path = dir.join("file");
    let report = File::create(report).unwrap();
    let shared = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let dirty: Vec<File> =
        (0..10).filter_map(|i| File::create(dir.join(format!("dirty-{i}"))).ok()).collect();
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    let mut seen = Report { thread, ..Report::default() };
    loop {
        let number = seen.calls;
        let begin = Instant::now();
        let done = match call {
            "read" => read(&shared),
            "write" => shared.write_all_at(&noise(FILE_BYTES, number), (number % 8) << 20),
            "fsync" => shared
                .write_all_at(&noise(5000, number), number % 64 * 10_000)
                .and_then(|()| shared.sync_all()),
            "stat" => fs::metadata(&path).map(drop),
            "open" => open(&path, OFlags::RDONLY).map(drop),
            "readdir" => fs::read_dir(dir).and_then(|mut all| all.try_for_each(|e| e.map(drop))),
            "unlink" => create_and_remove(&dir.join("comes-and-goes")),
            "mmap" => touch(&shared),
            "close" => write_and_close(&dir.join("closed")),
            // Never waits, but has to when its files are closed.
            "dirty" => {
                std::thread::sleep(Duration::from_millis(50));
                dirty.iter().try_for_each(|f| f.write_all_at(&noise(100, 1), number % 10 * 1000))
            }
            other => panic!("no such call: {other}"),
        };
        seen.calls += 1;
        seen.longest_ms = seen.longest_ms.max(begin.elapsed().as_millis() as u64);
        if let Err(error) = done {
            seen.failed += 1;
            seen.interrupted += u64::from(error.raw_os_error() == Some(libc::EINTR));
            eprintln!("call {number}: {error} after {:?}", begin.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = format!(
            "{} {} {} {} {}\n",
            seen.calls, seen.failed, seen.longest_ms, seen.interrupted, seen.thread
        );
        report.write_all_at(text.as_bytes(), 0).unwrap();
        // Two cores serve all of these programs, the cluster, and others.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(file: &File) -> Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    // Not `read_exact_at`, which begins again when it is interrupted.
    let mut buffer = vec![0; FILE_BYTES];
    let got = file.read_at(&mut buffer, 0)?;
    assert!(got == FILE_BYTES && buffer == noise(FILE_BYTES, 1), "other bytes than were written");
    Ok(())
}

/// Not `File::open`, which begins again when it is interrupted.
fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RWXU)?)
}

fn create_and_remove(path: &Path) -> Result<()> {
    open(path, OFlags::CREATE | OFlags::WRONLY)?;
    fs::remove_file(path)
}

fn write_and_close(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&noise(100_000, 1))?;
    // SAFETY: the descriptor is not used any more after it was closed.
    let failed = unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(file)) } != 0;
    if failed { Err(Error::last_os_error()) } else { Ok(()) }
}

fn touch(file: &File) -> Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    // SAFETY: a fresh private mapping of an open file, read within its length
    // and unmapped before it is left.
    unsafe {
        let (null, shared) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
        let at = libc::mmap(null, FILE_BYTES, libc::PROT_READ, shared, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        for page in 0..FILE_BYTES / 4096 {
            at.cast::<u8>().add(page * 4096).read_volatile();
        }
        libc::munmap(at, FILE_BYTES);
    }
    Ok(())
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// SIGINT ends a call with `EINTR`, and not the program.
fn handle_interrupts() {
    // SAFETY: the handler only stores to an atomic; the structure is zeroed
    // but for it, which means no flags (and so no restart) and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_interrupt as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut()), 0);
    }
}
