//! `weir log`: shows the logs of the daemons and mounts on this machine, ordered by time.

mod audit;
mod file;
pub mod since;

use crate::args::Log;
use crate::cluster::mounting::{self, MountFiles, mountpoint};
use crate::failure::{Done, Failure};
use crate::settings::{self, Cluster};
use crate::text::plain;
use file::{Line, LogFile};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The interval of checks for new lines.
const TICK: Duration = Duration::from_millis(200);

/// Runs `weir log`.
pub fn run(asked: &Log) -> Done {
    if asked.audit {
        return audit::show(asked);
    }
    let cluster = settings::cluster(&asked.client)?;
    let dir = match &cluster {
        Cluster::Here(state) => {
            state.require()?;
            state.log_dir()
        }
        Cluster::Elsewhere(_) => mounting::elsewhere_dir()?,
    };
    let mut logs = Logs { dir, chosen: Vec::new(), follows: asked.follow, files: Vec::new() };
    logs.chosen = chosen(asked, &cluster, &logs.there()?)?;
    logs.open_new()?;
    logs.require_all()?;
    // A closed output (`weir log | head`) ends the command without a failure.
    match show(asked, &mut logs) {
        Err(Stop::ReaderGone) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

/// The names given on the command line. A mountpoint stands for the mount's daemon. An argument
/// that is the name of a daemon is not taken as a mountpoint; ./NAME is.
fn chosen(asked: &Log, cluster: &Cluster, there: &BTreeMap<String, PathBuf>) -> Done<Vec<String>> {
    let name = |given: &String| {
        let is_daemon = there.keys().any(|daemon| names(given, daemon));
        match given.contains('/') || (!is_daemon && Path::new(given).is_dir()) {
            true => Ok(MountFiles::of(cluster, &mountpoint(Path::new(given))?)?.name),
            false => Ok(given.clone()),
        }
    };
    asked.daemons.iter().map(name).collect()
}

/// Why showing ended early.
enum Stop {
    ReaderGone,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn show(asked: &Log, logs: &mut Logs) -> Result<(), Stop> {
    let is_asked =
        |line: &Line| asked.since.as_ref().is_none_or(|since| since.includes(&line.time));
    if let Some(most) = asked.lines {
        let mut last = VecDeque::new();
        while let Some(line) = logs.next()? {
            if is_asked(&line) {
                last.push_back(line);
                last.drain(..last.len().saturating_sub(most));
            }
        }
        last.iter().try_for_each(|line| logs.print(line, asked.json))?;
        if !asked.follow {
            return Ok(());
        }
    }
    loop {
        logs.see_renamed()?;
        while let Some(line) = logs.next()? {
            if is_asked(&line) {
                logs.print(&line, asked.json)?;
            }
        }
        if !asked.follow {
            return Ok(());
        }
        std::thread::sleep(TICK);
        logs.open_new()?;
    }
}

/// The logs in a directory.
struct Logs {
    dir: PathBuf,
    /// The names of the daemons to show; empty for all.
    chosen: Vec<String>,
    /// Whether logs may grow. Then a line without an end is not shown yet.
    follows: bool,
    files: Vec<LogFile>,
}

impl Logs {
    /// Opens the logs that are not open yet.
    fn open_new(&mut self) -> Done {
        for (daemon, path) in self.there()? {
            let is_chosen = self.chosen.is_empty() || self.chosen.iter().any(|c| names(c, &daemon));
            if is_chosen && self.files.iter().all(|file| file.daemon() != daemon) {
                self.files.push(LogFile::open(&daemon, &path, self.follows)?);
            }
        }
        Ok(())
    }

    /// Continues with the new file of each log that was renamed, as logrotate does, after the rest
    /// of the old one.
    fn see_renamed(&mut self) -> Done {
        self.files.iter_mut().try_for_each(LogFile::see_renamed)
    }

    /// The daemons that have a log.
    fn there(&self) -> Done<BTreeMap<String, PathBuf>> {
        let entries = match std::fs::read_dir(&self.dir) {
            // Nothing was ever mounted here.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(|error| Failure::file(&self.dir, error))?,
        };
        let name =
            |path: &Path| path.file_name()?.to_str()?.strip_suffix(".log").map(str::to_owned);
        Ok(entries.flatten().filter_map(|e| Some((name(&e.path())?, e.path()))).collect())
    }

    /// Fails if a given name has no log.
    fn require_all(&self) -> Done {
        let is_missing = |c: &&String| !self.files.iter().any(|file| names(c, file.daemon()));
        let Some(missing) = self.chosen.iter().find(is_missing) else { return Ok(()) };
        let there: Vec<String> = self.there()?.into_keys().collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Err(Failure::new(format!("there is no log of {missing} in {}", self.dir.display()))
            .hint(format!("there are: {there}")))
    }

    /// The earliest line that has not been shown.
    fn next(&mut self) -> Done<Option<Line>> {
        let mut earliest: Option<(usize, String)> = None;
        for (at, file) in self.files.iter_mut().enumerate() {
            if let Some(line) = file.peek()?
                && earliest.as_ref().is_none_or(|(_, time)| line.time < *time)
            {
                earliest = Some((at, line.time.clone()));
            }
        }
        Ok(earliest.and_then(|(at, _)| self.files[at].take()))
    }

    fn print(&self, line: &Line, json: bool) -> Result<(), Stop> {
        let text = match json {
            true => serde_json::to_string(line).map_err(|e| Failure::new(e.to_string()))?,
            false => {
                let width = self.files.iter().map(|f| f.daemon().len()).max().unwrap_or(0);
                let level = line.level.as_deref().unwrap_or("");
                let message = match io::stdout().is_terminal() {
                    true => escaped(&line.message),
                    false => line.message.clone(),
                };
                format!("{} {:width$} {level:>5} {message}", line.time, line.daemon)
            }
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}") {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Stop::ReaderGone),
            Err(e) => Err(Failure::file(Path::new("standard output"), e).into()),
        }
    }
}

/// Whether a given name means a daemon: `data` means data-1, data-2, ...
fn names(given: &str, daemon: &str) -> bool {
    daemon.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Removes control characters from a message. It may contain file names, which anyone may choose,
/// and a terminal would obey them.
fn escaped(message: &str) -> String {
    let parts: Vec<String> = message.split('\t').map(plain).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_message_does_anything_to_a_terminal() {
        assert_eq!(escaped("a\tb \u{1b}[2J\u{9b}c\r\u{e9}"), "a\tb \\u{1b}[2J\\u{9b}c\\u{d}\u{e9}");
    }
}
