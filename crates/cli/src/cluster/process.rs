//! Daemons as processes: starts one and waits until it is ready or has failed, finds it by its pid
//! file, and stops exactly that process.

use crate::cluster::spares;
use crate::cluster::state::{RESERVE, give_up_reserve};
use crate::failure::{Done, Failure};
use crate::logging;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The longest that a daemon may take until it is ready or reports progress.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that a daemon may take to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest that the kernel may take to end a process after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How many lines of a daemon's log are shown when it fails.
const LOG_LINES: usize = 10;
/// The longest report of a daemon, in bytes.
const MAX_REPORT_BYTES: u64 = 64 << 10;

/// A message of a detached daemon on its standard output, one line of JSON. It may send
/// `Recovering` and `Noted` several times, and then one of the others.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The daemon serves.
    Ready,
    /// The daemon does not serve yet, but has made progress.
    Recovering {
        /// The progress.
        what: String,
    },
    /// The daemon has found something that its user has to know.
    Noted {
        /// What it is, and what to do.
        what: String,
    },
    /// The daemon ends because of an error.
    Failed {
        /// What happened.
        message: String,
        /// What to do about the error.
        hint: Option<String>,
    },
}

impl Report {
    /// Sends the report to the process that started this one. That process may have ended; the log
    /// has the report too.
    pub fn send(&self) {
        let line = serde_json::to_string(self).unwrap_or_default() + "\n";
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// The byte that a daemon waits for before it begins. It is sent when the pid file is written.
/// Otherwise, if the starting command were killed, nobody could find a daemon that holds a port.
const GO: u8 = b'\n';

/// Waits for the permission to begin. `false` if the starting process has ended without giving it.
pub fn may_begin() -> bool {
    let mut told = [0];
    std::io::stdin().read_exact(&mut told).is_ok() && told[0] == GO
}

/// Identifies a process permanently: a process number alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: Pid,
    start_ticks: u64,
}

impl Process {
    /// The process with this number, if it is running.
    fn living(pid: Pid) -> Option<Self> {
        let stat = Stat::of(pid).filter(|stat| !stat.has_ended())?;
        Some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// Writes the current process into a pid file.
    pub fn record_this(path: &Path) -> Done {
        let this = rustix::process::getpid();
        match Self::living(this) {
            Some(process) => process.record(path),
            None => Err(Failure::new("/proc does not tell of this process").about(path.display())),
        }
    }

    /// The process in a pid file, if it is running this program, or etcd.
    pub fn from_file(path: &Path) -> Option<Self> {
        Self::recorded(path).filter(|process| process.lives())
    }

    /// The process in a pid file, running or not.
    pub fn recorded(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut words = text.split_whitespace();
        let pid = Pid::from_raw(words.next()?.parse().ok()?)?;
        Some(Self { pid, start_ticks: words.next()?.parse().ok()? })
    }

    fn record(self, path: &Path) -> Done {
        /// A block of the disk, and what its directory entry may need.
        const PIECE_BYTES: usize = 16 << 10;
        let text = format!("{} {}\n", self.pid.as_raw_nonzero(), self.start_ticks);
        loop {
            match std::fs::write(path, &text) {
                Err(e)
                    if e.kind() == io::ErrorKind::StorageFull && spares::use_one(path, &text) =>
                {
                    return Ok(());
                }
                // The reserve is freed only now, because running servers would use the space at
                // once.
                Err(e)
                    if e.kind() == io::ErrorKind::StorageFull
                        && give_up_reserve(&path.with_file_name(RESERVE), PIECE_BYTES) => {}
                done => return done.map_err(|e| Failure::file(path, e)),
            }
        }
    }

    /// The process number.
    pub fn id(self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether the process is still running, and runs this program, or etcd.
    pub fn lives(self) -> bool {
        self.stat().is_some_and(|stat| !stat.has_ended()) && runs_ours(self.pid)
    }

    /// Whether a signal has stopped the process (SIGSTOP, or a debugger).
    pub fn is_stopped(self) -> bool {
        self.stat().is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Whether the process has ended except for threads that wait in the kernel.
    pub fn is_stuck(self) -> bool {
        self.stat().is_some_and(|stat| stat.has_ended() && stat.threads > 1)
    }

    fn stat(self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Seconds since the process was started.
    pub fn uptime_s(self) -> u64 {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let now: f64 = uptime.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        (now as u64).saturating_sub(self.start_ticks / ticks)
    }

    /// Stops the process: sends SIGTERM, waits, and then kills it. With `force` the wait is
    /// shorter. Returns whether the process had to be killed.
    pub fn stop(self, force: bool) -> Done<bool> {
        // From here on the descriptor identifies exactly this process.
        let Ok(handle) = pidfd_open(self.pid, PidfdFlags::empty()) else { return Ok(false) };
        if !self.lives() {
            return Ok(false);
        }
        let send = |signal| pidfd_send_signal(&handle, signal).map_err(|e| self.failure(e));
        send(Signal::TERM)?;
        let patience = if force { Duration::from_secs(3) } else { STOP_TIMEOUT };
        if has_ended(&handle, patience) {
            return Ok(false);
        }
        send(Signal::KILL)?;
        if has_ended(&handle, KILL_TIMEOUT) {
            return Ok(true);
        }
        Err(Failure::new(format!("process {} does not end, even after SIGKILL", self.id())).hint(
            "it waits for a disk or a file system that does not answer; `dmesg` may say which",
        ))
    }

    /// Waits until the process has ended with all its threads.
    pub fn wait(self, patience: Duration) -> bool {
        match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(handle) => self.stat().is_none() || has_ended(&handle, patience),
            Err(_) => true,
        }
    }

    fn failure(self, error: rustix::io::Errno) -> Failure {
        Failure::from(weir_types::Error::from(std::io::Error::from(error)))
            .about(format!("process {}", self.id()))
    }
}

/// Waits for the end of a process. Its descriptor becomes readable then, even before its status is
/// collected.
pub fn has_ended(handle: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).ok();
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// What the kernel says of a process until its status is collected. Reading it never waits for the
/// process or its memory, unlike reading its program or arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    /// The number of threads that have not ended, counting the first one.
    threads: u32,
    /// The start time in ticks since boot.
    start_ticks: u64,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        // Field 2 is the name in parentheses, which may contain anything. The other fields are
        // counted from its end.
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            state: field(3)?.chars().next()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }

    /// Whether the first thread has ended. All others end with it unless one waits in the kernel.
    fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Whether a process runs this program, or one that it starts as a daemon.
fn runs_ours(pid: Pid) -> bool {
    let Ok(program) = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())) else {
        return false;
    };
    // The kernel appends " (deleted)" after the program was built or installed again.
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    matches!(name.trim_end_matches(" (deleted)"), "weir" | "etcd")
}

/// A daemon that was started and has not yet said that it is ready.
#[derive(Debug)]
pub struct Starting {
    name: String,
    child: Child,
    log: std::path::PathBuf,
    log_start: u64,
    reports: mpsc::Receiver<Option<Report>>,
    process: Option<Process>,
}

/// How to start a daemon.
#[derive(Debug)]
pub struct DaemonSpec<'a> {
    /// The name of the daemon, for messages.
    pub name: &'a str,
    /// The subcommand to run.
    pub command: &'a [&'a str],
    /// The arguments of the subcommand.
    pub arguments: Vec<OsString>,
    /// The log file.
    pub log: &'a Path,
    /// The pid file.
    pub pid_file: &'a Path,
    /// The network namespace to run in; without one, that of this process.
    pub network: Option<&'a Path>,
}

/// Starts another program in a directory, as a daemon in a session of its own, which begins when the
/// pid file names its process.
pub fn start_other(
    program: &str,
    arguments: &[OsString],
    dir: &Path,
    log: &Path,
    pid_file: &Path,
) -> Done<Process> {
    let log_file = File::options().create(true).append(true).open(log);
    let log_file = log_file.map_err(|e| Failure::file(log, e))?;
    let errors = log_file.try_clone().map_err(|e| Failure::file(log, e))?;
    let mut child = Command::new("setsid")
        .args(["sh", "-c", "read -r go && exec \"$0\" \"$@\" </dev/null", program])
        .args(arguments)
        .env_remove("NOTIFY_SOCKET")
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(log_file)
        .stderr(errors)
        .spawn()
        .map_err(|e| Failure::new(format!("cannot start {program}: {e}")))?;
    let ended = || Failure::new(format!("{program} has ended; its log: {}", log.display()));
    let process = Pid::from_raw(child.id() as i32).and_then(Process::living).ok_or_else(ended)?;
    process.record(pid_file)?;
    let mut input = child.stdin.take().ok_or_else(ended)?;
    input.write_all(b"go\n").map_err(|_| ended())?;
    Ok(process)
}

/// Starts this program as a daemon in a session of its own.
pub fn start(daemon: &DaemonSpec<'_>) -> Done<Starting> {
    let (name, log) = (daemon.name, daemon.log);
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(format!("cannot find the program itself: {e}")))?;
    let log_file = match logging::hold(log) {
        Ok(file) => file,
        Err(error) => {
            // The daemon makes its log itself as soon as it can.
            let failure = Failure::file(log, error).hint(format!("{name} starts without a log"));
            failure.say();
            let nowhere = Path::new("/dev/null");
            File::options().write(true).open(nowhere).map_err(|e| Failure::file(nowhere, e))?
        }
    };
    let log_start = log_file.metadata().map_or(0, |m| m.len());
    let mut command = match daemon.network {
        Some(network) => weir_testbed::enter(network, program.as_os_str()),
        None => Command::new(program),
    };
    let mut child = command
        .args(daemon.command)
        .args(["--detached".as_ref(), "--log".as_ref(), log.as_os_str()])
        .args(&daemon.arguments)
        // The starter of this program may wait for its notification, which the daemon must not send
        // instead.
        .env_remove("NOTIFY_SOCKET")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(|e| Failure::new(format!("cannot start {name}: {e}")))?;
    let (send, reports) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        // A thread reads, because a pipe has no timeout. The thread ends with the daemon, or with
        // this program.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = String::new();
                let read = (&mut output).take(MAX_REPORT_BYTES).read_line(&mut line);
                let report = serde_json::from_str(&line).ok();
                let goes_on =
                    matches!(&report, Some(Report::Recovering { .. } | Report::Noted { .. }));
                let is_last = !(goes_on && matches!(read, Ok(1..)));
                // The pipe is read even if nobody waits any longer, so that the daemon does not
                // block.
                let _ = send.send(report);
                if is_last {
                    break;
                }
            }
        });
    }
    let process = Pid::from_raw(child.id() as i32).and_then(Process::living);
    if let Some(process) = process {
        process.record(daemon.pid_file)?;
        // If the daemon has ended already, its log says why.
        let _ = child.stdin.take().map(|mut input| input.write_all(&[GO]));
    }
    Ok(Starting { name: name.to_owned(), child, log: log.to_owned(), log_start, reports, process })
}

impl Starting {
    /// Waits until the daemon is ready, or fails with its reason. A daemon that recovers is waited
    /// for as long as it makes progress. It is not ended then, and serves once it has recovered.
    pub fn ready(self) -> Done<Process> {
        self.wait(None)
    }

    /// As [`Starting::ready`], but after `until` a daemon that recovers is not waited for any
    /// longer, even if it makes progress.
    pub fn ready_until(self, until: Instant) -> Done<Process> {
        self.wait(Some(until))
    }

    fn wait(mut self, until: Option<Instant>) -> Done<Process> {
        let mut recovers = None;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.reports.recv_timeout(left.unwrap_or(START_TIMEOUT)) {
                Ok(Some(Report::Recovering { what })) => {
                    if recovers.as_ref() != Some(&what) {
                        logging::say(&format!("weir: {}: {what}", self.name));
                    }
                    recovers = Some(what);
                }
                Ok(Some(Report::Noted { what })) => {
                    logging::say(&format!("weir: {}: {what}", self.name));
                }
                Ok(Some(Report::Ready)) => return self.lives(),
                Ok(Some(Report::Failed { message, hint })) => {
                    let _ = self.child.wait();
                    return Err(Failure { hint, ..Failure::new(message) }.about(&self.name));
                }
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let status =
                        self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                    let what = format!("{} ended before it was ready ({status})", self.name);
                    return Err(self.with_log(what));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let seconds = START_TIMEOUT.as_secs();
                    if let Some(what) = recovers {
                        let so_far = match until {
                            Some(_) => format!("not ready after {seconds} s"),
                            None => format!("no progress for {seconds} s"),
                        };
                        logging::say(&format!(
                            "weir: {}: {what}, and {so_far}: it continues alone; `weir status` \
                             shows its progress, `dmesg` whether its disk fails",
                            self.name
                        ));
                        return self.lives();
                    }
                    let _ = self.child.kill();
                    // A daemon that waits for a disk in the kernel may not end.
                    let _ = self.process.map(|process| process.wait(KILL_TIMEOUT));
                    let _ = self.child.try_wait();
                    let what = format!("{} was not ready within {seconds} s", self.name);
                    return Err(self.with_log(what));
                }
            }
        }
    }

    fn lives(&self) -> Done<Process> {
        self.process.ok_or_else(|| Failure::new(format!("{} has ended", self.name)))
    }

    fn with_log(&self, message: String) -> Failure {
        let lines = last_lines(&self.log, self.log_start);
        let lines = if lines.is_empty() { "(nothing)".to_owned() } else { lines };
        Failure::new(message).hint(format!("its log, {}, ends with:\n{lines}", self.log.display()))
    }
}

/// The last lines of a log, starting at an offset.
fn last_lines(log: &Path, from: u64) -> String {
    const MOST_BYTES: u64 = 16 << 10;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        // The log may have been renamed since the start.
        let from = if from > length { 0 } else { from };
        let start = from.max(length.saturating_sub(MOST_BYTES));
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let me = Process::living(rustix::process::getpid()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("me.pid");
        // The test program is not called `weir`, so it is never stopped as a daemon.
        me.record(&path).unwrap();
        assert_eq!(Process::from_file(&path), None);
        assert!(!me.stop(true).unwrap());
        let earlier = Process { start_ticks: me.start_ticks - 1, ..me };
        assert!(!earlier.lives());
    }

    #[test]
    fn a_process_that_has_ended_but_for_a_thread_is_told_by_its_stat() {
        let text = "7 (a) b) Z 1 7 7 0 -1 4228364 581 0 0 0 0 1 0 0 20 0 2 0 31337 0 0 1844674407";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat, Stat { state: 'Z', threads: 2, start_ticks: 31_337 });
        assert!(stat.has_ended());
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn the_end_of_a_log_is_short() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let old = "old\n";
        let new: String = (0..30).map(|i| format!("line {i}\n")).collect();
        std::fs::write(&log, format!("{old}{new}")).unwrap();
        let end = last_lines(&log, old.len() as u64);
        assert_eq!(end.lines().count(), LOG_LINES);
        assert!(end.starts_with("line 20") && end.ends_with("line 29"));
    }
}
