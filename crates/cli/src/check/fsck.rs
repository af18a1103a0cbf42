//! `weir fsck`: checks that names, files, segments and objects belong together, on a cluster in
//! use.
//!
//! Exit codes are those of fsck(8), and add up: 0 no problem, 1 a problem was repaired, 4 a problem
//! is left, 8 a part could not be checked.

use crate::args::Fsck;
use crate::check::lacking::Lacking;
use crate::check::repair::{self, Outcome, Verdict, confirm, is_repairable, why_left};
use crate::check::snapshot::{self, Paths};
use crate::check::spool::Spool;
use crate::cluster::daemon::data_name;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::settings;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use weir_client::losses::{self, States};
use weir_client::{Administrator, Client};
use weir_metaserver::audit::{Bounds, Fact, Kind, Part, Problem, Subject};
use weir_types::limits::MAX_OBJECT_PAGE;
use weir_types::{Error, TargetId};
use weir_wire::map::{ClusterMap, TargetState};

const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const NOT_LOOKED_AT: u8 = 8;

/// The most problems that are kept in memory. Further ones are only counted.
const MAX_PROBLEMS: usize = 100_000;

/// Runs `weir fsck`.
pub fn run(fsck: &Fsck) -> Done {
    let report = look(fsck).map_err(|failure| failure.code(NOT_LOOKED_AT))?;
    match fsck.json {
        true => print_json(&report.json())?,
        false => print(&report.text())?,
    }
    match report.exit_code() {
        0 => Ok(()),
        code => Err(Failure::new("").code(code)),
    }
}

/// Lists the objects first and takes the snapshot afterwards: see `weir_metaserver::audit`.
fn look(fsck: &Fsck) -> Done<Report> {
    let cluster = settings::cluster(&fsck.client)?;
    let client = connect(&cluster.credential()?, "fsck")?;
    let admin = client.administrator()?;
    let map = client.cluster_map()?;
    let mut report = Report { servers: server_names(&map), ..Report::default() };
    let progress = Progress::start(fsck.quiet || fsck.json, 0);

    let mut spool = Spool::new();
    list_targets(&admin, &map, &mut spool, &mut report, &progress);
    spool.check()?;
    let taken = snapshot::take(&admin, &mut spool, &progress)?;
    report.records = taken.records;
    let (listed, ids_end, removed) = (report.listed.clone(), taken.ids_end, taken.removed);
    let (away, stale) = unreadable(&map);
    let bounds = Bounds { listed, ids_end, removed, away, stale };
    for problem in taken.problems {
        report.settle(&client, &admin, problem)?;
    }
    for part in spool.parts() {
        progress.say(|| format!("comparing: {} of {}", part + 1, spool.parts().len()));
        let mut facts = Part::default();
        spool.read(part, |fact| {
            report.files += u64::from(matches!(fact, Fact::Inode { .. }));
            facts.add(fact);
        })?;
        for problem in facts.judge(&bounds) {
            report.settle(&client, &admin, problem)?;
        }
    }
    progress.say(|| "looking for what copies lack".to_owned());
    let states = map.targets().map(|(_, entry)| (entry.target, entry.state)).collect();
    lacking(&client, &admin, &mut spool, &states, &mut report)?;
    if fsck.repair {
        progress.say(|| "repairing".to_owned());
        report.outcomes = repair::repair(&admin, &report.problems);
    } else {
        report.outcomes = report.problems.iter().map(|p| Outcome::Left(why_left(p))).collect();
    }
    report.paths = Paths::find(&mut spool, report.problems.iter().filter_map(|p| p.file))?;
    progress.finish();
    Ok(report)
}

/// Returns the targets that cannot be read, and those that serve only data without other copies.
pub fn unreadable(map: &ClusterMap) -> (BTreeSet<TargetId>, BTreeSet<TargetId>) {
    let others = map.targets().filter(|(_, entry)| !entry.state.is_online());
    let all = others.map(|(_, entry)| (entry.target, entry.state));
    let (away, stale): (Vec<_>, Vec<_>) =
        all.partition(|(_, state)| *state == TargetState::Offline);
    let targets = |all: Vec<(TargetId, TargetState)>| all.into_iter().map(|(t, _)| t).collect();
    (targets(away), targets(stale))
}

/// Finds parts of columns whose online copies lack the last changes.
fn lacking(
    client: &Client,
    admin: &Administrator,
    spool: &mut Spool,
    states: &States,
    report: &mut Report,
) -> Done {
    let (lacking, not_asked) = Lacking::ask(admin, states);
    report.not_looked_at.extend(not_asked);
    for (file, loss) in lacking.losses(client, spool, states)? {
        let what = loss.text(|target| losses::named(target, states));
        let subject = Subject::Column { targets: loss.missing };
        let (kind, file) = (Kind::LackingColumn, Some(file));
        report.keep(Problem { kind, file, what, subject });
    }
    Ok(())
}

fn server_names(map: &ClusterMap) -> BTreeMap<TargetId, String> {
    map.targets().map(|(s, t)| (t.target, data_name(s.server.0))).collect()
}

/// Lists the objects of all targets, with a thread for each target.
fn list_targets(
    admin: &Administrator,
    map: &ClusterMap,
    spool: &mut Spool,
    report: &mut Report,
    progress: &Progress,
) {
    let shared = Mutex::new((spool, report));
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |target: TargetId, state: TargetState| {
        let result = match state {
            TargetState::Offline => Err(Error::new(
                weir_types::ErrorKind::Unreachable,
                "it is offline: its objects were not checked",
            )),
            // A target that is out of service can still be read.
            TargetState::Online
            | TargetState::Suspect
            | TargetState::OutOfService
            | TargetState::Syncing => list_target(admin, target, |objects, strays| {
                let (spool, report) = &mut *lock();
                report.objects += objects.len() as u64;
                objects.iter().for_each(|fact| spool.add(fact));
                for stray in strays {
                    let what = format!("target {target}: {stray} is not the file of an object");
                    report.keep(Problem::of_no_file(Kind::StrayFile, what));
                }
                progress.say(|| format!("listing: {} objects", report.objects));
            }),
        };
        let (_, report) = &mut *lock();
        match result {
            Ok(()) => drop(report.listed.insert(target)),
            Err(error) => report.not_looked_at.push(format!("target {target}: {error}")),
        }
    };
    std::thread::scope(|scope| {
        for (_, entry) in map.targets() {
            let (one, target, state) = (&one, entry.target, entry.state);
            scope.spawn(move || one(target, state));
        }
    });
}

fn list_target(
    admin: &Administrator,
    target: TargetId,
    mut take: impl FnMut(Vec<Fact>, Vec<String>),
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = admin.list_objects(target, after, MAX_OBJECT_PAGE as u32)?;
        let fact = |entry: weir_wire::data::ObjectEntry| Fact::Object {
            target,
            object: entry.object,
            len: entry.len,
        };
        take(page.objects.into_iter().map(fact).collect(), page.strays);
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Everything that was found.
#[derive(Default)]
struct Report {
    servers: BTreeMap<TargetId, String>,
    /// Targets whose objects were all listed.
    listed: BTreeSet<TargetId>,
    not_looked_at: Vec<String>,
    objects: u64,
    files: u64,
    records: u64,
    /// Files in use, whose sizes cannot be checked.
    in_use: u64,
    problems: Vec<Problem>,
    /// The outcome of each problem.
    outcomes: Vec<Outcome>,
    /// The number of problems that were not kept.
    more: u64,
    paths: Paths,
}

impl Report {
    /// Checks a problem again and keeps it if it is still there.
    fn settle(&mut self, client: &Client, admin: &Administrator, problem: Problem) -> Done {
        match confirm(client, admin, &problem)? {
            Verdict::Confirmed => self.keep(problem),
            Verdict::Passed => {}
            Verdict::InUse => self.in_use += 1,
        }
        Ok(())
    }

    fn keep(&mut self, problem: Problem) {
        match self.problems.len() < MAX_PROBLEMS {
            true => self.problems.push(problem),
            false => self.more += 1,
        }
    }

    fn repaired(&self) -> usize {
        self.outcomes.iter().filter(|o| **o == Outcome::Repaired).count()
    }

    fn exit_code(&self) -> u8 {
        let repaired = self.repaired();
        let left = self.problems.len() - repaired + self.more as usize;
        let mut code = if repaired > 0 { REPAIRED } else { 0 };
        code |= if left > 0 { LEFT } else { 0 };
        code | if self.not_looked_at.is_empty() { 0 } else { NOT_LOOKED_AT }
    }

    fn place(&self, target: TargetId) -> String {
        match self.servers.get(&target) {
            Some(server) => format!("target {target} ({server})"),
            None => format!("target {target}"),
        }
    }

    fn line(&self, problem: &Problem, outcome: &Outcome) -> String {
        let file = problem.file.map(|file| self.paths.shown(file));
        let mut text = match &problem.subject {
            Subject::File | Subject::Short(_) | Subject::Column { .. } | Subject::Quota(_) => {
                String::new()
            }
            Subject::Object { target, object, len } => {
                format!("{}: object {object}, {len} bytes: ", self.place(*target))
            }
            Subject::Lost(lost) => format!(
                "bytes {}-{}: {}: object {}: ",
                lost.first,
                lost.last,
                self.place(lost.target),
                lost.object
            ),
        };
        text += &problem.what;
        if let Some(file) = file {
            text = format!("{file}: {text}");
        }
        match outcome {
            Outcome::Repaired => format!("REPAIRED {text}\n"),
            Outcome::Left(why) => format!("{text}\n  left: {why}\n"),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (problem, outcome) in self.problems.iter().zip(&self.outcomes) {
            text += &self.line(problem, outcome);
        }
        for what in &self.not_looked_at {
            text += &format!("NOT CHECKED: {what}\n");
        }
        text + &self.summary()
    }

    fn summary(&self) -> String {
        let repaired = self.repaired();
        let all = self.problems.len() as u64 + self.more;
        let mut text = format!(
            "{} files, {} objects on {} targets, {} metadata records: ",
            self.files,
            self.objects,
            self.listed.len(),
            self.records
        );
        text += &match (all, repaired) {
            (0, _) if !self.not_looked_at.is_empty() => {
                "nothing is wrong in what could be checked".to_owned()
            }
            (0, _) => "all is well".to_owned(),
            (all, 0) => format!("{all} problems"),
            (all, repaired) => {
                format!("{all} problems, {repaired} repaired, {} left", all - repaired as u64)
            }
        };
        if self.in_use > 0 {
            text += &format!(" ({} files in use, whose sizes cannot be checked)", self.in_use);
        }
        let repairable =
            |(p, o): (&Problem, &Outcome)| is_repairable(p) && *o == Outcome::Left(why_left(p));
        let could = self.problems.iter().zip(&self.outcomes).filter(|both| repairable(*both));
        match could.count() {
            0 => text + "\n",
            count => text + &format!("\n`weir fsck --repair` repairs {count} of them\n"),
        }
    }

    fn json(&self) -> Value {
        let problem = |(problem, outcome): (&Problem, &Outcome)| {
            let (target, object, bytes) = match &problem.subject {
                Subject::File | Subject::Column { .. } | Subject::Quota(_) => (None, None, None),
                Subject::Object { target, object, .. } => (Some(*target), Some(*object), None),
                Subject::Lost(l) => (Some(l.target), Some(l.object), Some([l.first, l.last])),
                Subject::Short(s) => (Some(s.target), Some(s.object), Some([s.size, s.found - 1])),
            };
            json!({
                "kind": problem.kind.label(),
                "what": problem.what,
                "file": problem.file.map(|file| file.0),
                "path": problem.file.and_then(|file| self.paths.path(file)),
                "target": target.map(|target| target.0),
                "server": target.and_then(|target| self.servers.get(&target)),
                "server_name": target.and_then(|target| self.servers.get(&target)),
                "object": object.map(|object| object.to_string()),
                "bytes": bytes,
                "repaired": *outcome == Outcome::Repaired,
                "left": match outcome {
                    Outcome::Repaired => None,
                    Outcome::Left(why) => Some(why),
                },
            })
        };
        let problems: Vec<Value> = self.problems.iter().zip(&self.outcomes).map(problem).collect();
        json!({
            "files": self.files,
            "objects": self.objects,
            "records": self.records,
            "targets": self.listed.iter().map(|t| t.0).collect::<Vec<_>>(),
            "in_use": self.in_use,
            "problems": problems,
            "more_problems": self.more,
            "repaired": self.repaired(),
            "not_checked": self.not_looked_at,
        })
    }
}
