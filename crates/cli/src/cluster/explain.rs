//! `weir explain`: shows the progress of the processes of a job, computed from where they read, and
//! the disk that delays them.

use crate::args::Explain;
use crate::cluster::top::held_up;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_size};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_client::job::job_named;
use weir_types::{Error, JobId, Rank, TargetId};
use weir_wire::data::ReaderEntry;
use weir_wire::targets::TargetView;

/// The longest to wait for the answer of a server, in milliseconds.
const ANSWER_MS: u64 = 2_000;
/// A process that has read nothing for this time, in milliseconds, counts as not reading.
const READS_MS: u32 = 5_000;

/// Runs `weir explain`.
pub fn run(explain: &Explain) -> Done {
    let cluster = settings::cluster(&explain.client)?;
    let connection = connect(&cluster.credential()?, "explain")?;
    let (before, at) = (look(&connection, &connection.targets()?).0, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(explain.interval));
    let views = connection.targets()?;
    let ((now, silent), seconds) = (look(&connection, &views), at.elapsed().as_secs_f64());
    silent.iter().for_each(|error| logging::say(&format!("weir: {error}")));
    let asked = explain.job.as_deref();
    let uid = rustix::process::getuid().as_raw();
    let is_asked = |job: JobId| asked.is_none_or(|name| is_called(job, name, uid));
    let jobs: Vec<Job<'_>> = jobs(&now, &before, &views, seconds)
        .into_iter()
        .filter(|job| is_asked(job.job) && (asked.is_some() || job.reads()))
        .collect();
    if let (Some(name), true) = (asked, jobs.is_empty()) {
        let what = format!("no process of job {name} has recently read from any target");
        return Err(Failure::new(what));
    }
    match explain.json {
        true => print_json(&jobs.iter().map(Job::to_json).collect::<Vec<_>>()),
        false if jobs.is_empty() => print("no job reads now\n"),
        false => print(&jobs.iter().map(Job::page).collect::<Vec<_>>().join("\n")),
    }
}

/// Whether a job has this name, or this number as it is displayed.
fn is_called(job: JobId, name: &str, uid: u32) -> bool {
    job == job_named(name, uid) || label(job) == name
}

fn label(job: JobId) -> String {
    format!("{:016x}", job.0)
}

/// For each process, what each target reports that it has read.
pub type Ranks = BTreeMap<Rank, Vec<(TargetId, ReaderEntry)>>;

/// All jobs that the servers report.
pub type Jobs = BTreeMap<JobId, Ranks>;

/// Asks all servers. Returns also the errors of those that do not answer.
pub fn look(client: &Client, views: &[TargetView]) -> (Jobs, Vec<Error>) {
    let (mut jobs, mut silent) = (Jobs::new(), Vec::new());
    for view in views.iter().filter(|view| view.state.is_online()) {
        match client.readers(view.target, ANSWER_MS) {
            Ok(readers) => {
                for entry in readers {
                    let ranks = jobs.entry(entry.job).or_default();
                    ranks.entry(entry.rank).or_default().push((view.target, entry));
                }
            }
            Err(error) => silent.push(error),
        }
    }
    (jobs, silent)
}

/// Computes the progress of all jobs since an earlier look.
pub fn jobs<'a>(now: &Jobs, before: &Jobs, views: &'a [TargetView], seconds: f64) -> Vec<Job<'a>> {
    let job =
        |(job, ranks): (&JobId, &Ranks)| Job::of(*job, ranks, before.get(job), views, seconds);
    now.iter().map(job).collect()
}

/// One process of a job.
struct Process {
    rank: Rank,
    /// The share of its work that is done.
    done: f64,
    work_mib: u32,
    age_ms: u32,
    read_per_s: u64,
    first_bytes: u64,
    other_bytes: u64,
    near_bytes: u64,
    targets: BTreeSet<TargetId>,
    /// Seconds until the process is done at its present pace.
    left_s: Option<f64>,
}

impl Process {
    fn of(
        rank: Rank,
        seen: &[(TargetId, ReaderEntry)],
        before: Option<&Vec<(TargetId, ReaderEntry)>>,
        seconds: f64,
    ) -> Self {
        let newest = newest(seen);
        let done = |all: &[(TargetId, ReaderEntry)]| {
            self::newest(all).map_or(0.0, |entry| f64::from(entry.progress) / f64::from(u32::MAX))
        };
        let sum = |all: &[(TargetId, ReaderEntry)], of: fn(&ReaderEntry) -> u64| {
            all.iter().map(|(_, entry)| of(entry)).sum::<u64>()
        };
        let [first_bytes, other_bytes, near_bytes] = [
            |e: &ReaderEntry| e.first_bytes,
            |e: &ReaderEntry| e.other_bytes,
            |e: &ReaderEntry| e.near_bytes,
        ]
        .map(|of| sum(seen, of));
        let had = before.map_or(0, |all| sum(all, |e| e.first_bytes + e.other_bytes));
        let read = (first_bytes + other_bytes).saturating_sub(had);
        let (now, was) = (done(seen), before.map_or(0.0, |all| done(all)));
        let pace = (now - was) / seconds;
        Self {
            rank,
            done: now,
            work_mib: newest.map_or(0, |entry| entry.work_mib),
            age_ms: seen.iter().map(|(_, entry)| entry.age_ms).min().unwrap_or(u32::MAX),
            read_per_s: (read as f64 / seconds) as u64,
            first_bytes,
            other_bytes,
            near_bytes,
            targets: seen.iter().map(|(target, _)| *target).collect(),
            left_s: (pace > 0.0).then(|| (1.0 - now) / pace),
        }
    }

    /// The share of bytes that were read from copies other than the first.
    fn diverted(&self) -> f64 {
        self.other_bytes as f64 / ((self.first_bytes + self.other_bytes) as f64).max(1.0)
    }

    /// The share of bytes that were read from disks of the machine of the process.
    fn local(&self) -> f64 {
        self.near_bytes as f64 / ((self.first_bytes + self.other_bytes) as f64).max(1.0)
    }

    /// A text, or a dash if nobody knows how much the process has to do.
    fn known(&self, text: String) -> String {
        if self.work_mib > 0 { text } else { "-".to_owned() }
    }

    fn to_json(&self) -> Value {
        json!({
            "rank": self.rank.0,
            "done": self.done,
            "work_mib": self.work_mib,
            "silent_ms": self.age_ms,
            "read_bytes_per_s": self.read_per_s,
            "first_copy_bytes": self.first_bytes,
            "other_copy_bytes": self.other_bytes,
            "local_bytes": self.near_bytes,
            "targets": self.targets.iter().map(|target| target.0).collect::<Vec<_>>(),
            "expected_end_s": self.left_s,
        })
    }
}

/// The report that says how far a process is: the newest one. A process may read something besides its
/// work: what it has read without known work does not count if it has said of its work lately.
fn newest(all: &[(TargetId, ReaderEntry)]) -> Option<&ReaderEntry> {
    let says = |entry: &ReaderEntry| entry.work_mib > 0 && entry.age_ms < READS_MS;
    all.iter().map(|(_, entry)| entry).min_by_key(|entry| (!says(entry), entry.age_ms))
}

/// A job.
pub struct Job<'a> {
    job: JobId,
    processes: Vec<Process>,
    /// The targets from which the job reads.
    views: Vec<&'a TargetView>,
}

impl<'a> Job<'a> {
    fn of(
        job: JobId,
        ranks: &Ranks,
        before: Option<&Ranks>,
        views: &'a [TargetView],
        seconds: f64,
    ) -> Self {
        let was = |rank: &Rank| before.and_then(|before| before.get(rank));
        let processes: Vec<Process> =
            ranks.iter().map(|(rank, seen)| Process::of(*rank, seen, was(rank), seconds)).collect();
        let targets: BTreeSet<TargetId> =
            processes.iter().flat_map(|process| process.targets.iter().copied()).collect();
        let views = views.iter().filter(|view| targets.contains(&view.target)).collect();
        Self { job, processes, views }
    }

    /// Whether the job is reading now.
    pub fn reads(&self) -> bool {
        self.processes.iter().any(|process| process.age_ms < READS_MS)
    }

    fn last(&self) -> Option<&Process> {
        // Of the others nobody knows how much they have to do.
        let known = self.processes.iter().filter(|process| process.work_mib > 0);
        known.min_by(|a, b| a.done.total_cmp(&b.done))
    }

    /// Seconds until the last process ends at the present pace.
    fn left_s(&self) -> Option<f64> {
        let known = || self.processes.iter().filter(|process| process.work_mib > 0);
        let mut left = known().filter(|process| process.done < 1.0).map(|process| process.left_s);
        let most = left.try_fold(0.0, |most: f64, left| Some(most.max(left?)));
        most.filter(|_| known().next().is_some())
    }

    fn diverted(&self) -> f64 {
        let sum = |of: fn(&Process) -> u64| self.processes.iter().map(of).sum::<u64>() as f64;
        sum(|p| p.other_bytes) / sum(|p| p.first_bytes + p.other_bytes).max(1.0)
    }

    /// The share of bytes that processes have read from disks of their own machines.
    fn local(&self) -> f64 {
        let sum = |of: fn(&Process) -> u64| self.processes.iter().map(of).sum::<u64>() as f64;
        sum(|p| p.near_bytes) / sum(|p| p.first_bytes + p.other_bytes).max(1.0)
    }

    fn to_json(&self) -> Value {
        json!({
            "job": label(self.job),
            "processes": self.processes.iter().map(Process::to_json).collect::<Vec<_>>(),
            "from_other_copies": self.diverted(),
            "local": self.local(),
            "held_up": held_up(&self.views),
            "expected_end_s": self.left_s(),
        })
    }

    /// For each process, the share of its work that is done, and its label.
    pub fn bars(&self) -> impl Iterator<Item = (f64, String)> {
        self.processes.iter().map(|process| {
            let text = format!(
                "rank {:<4} {:>6}  {:>6}/s  ends in {:>8}  {:>6} from other copies",
                process.rank.0,
                percent(process.done),
                human_size(process.read_per_s),
                seconds(process.left_s),
                percent(process.diverted())
            );
            (process.done, text)
        })
    }

    fn page(&self) -> String {
        let mut table = Table::new(&[
            ">RANK",
            ">DONE",
            ">OF",
            ">READ/S",
            ">OTHER COPIES",
            ">LOCAL",
            ">END IN",
            "TARGETS",
        ]);
        for process in &self.processes {
            let targets: Vec<String> = process.targets.iter().map(TargetId::to_string).collect();
            table.row(vec![
                process.rank.0.to_string(),
                process.known(percent(process.done)),
                process.known(human_size(u64::from(process.work_mib) << 20)),
                human_size(process.read_per_s),
                percent(process.diverted()),
                percent(process.local()),
                seconds(process.left_s),
                targets.join(","),
            ]);
        }
        let held = held_up(&self.views).unwrap_or_else(|| "no disk holds it up".to_owned());
        format!("{}; {held}\n{}", self.title(), table.render())
    }

    /// The label of the whole job.
    pub fn title(&self) -> String {
        let last = self.last().map_or(String::new(), |last| {
            format!("rank {} is furthest behind with {}; ", last.rank.0, percent(last.done))
        });
        let ends = self.left_s().map_or(String::new(), |_| {
            format!("at this pace it ends in {}; ", seconds(self.left_s()))
        });
        format!(
            "job {}: {} processes; {last}{ends}{} were read from other copies than the first, {} \
             from disks of the own machine",
            label(self.job),
            self.processes.len(),
            percent(self.diverted()),
            percent(self.local()),
        )
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn seconds(left: Option<f64>) -> String {
    left.map_or("-".to_owned(), |left| format!("{left:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rank: u32, share: f64, bytes: (u64, u64), age_ms: u32) -> ReaderEntry {
        let progress = (share * f64::from(u32::MAX)) as u32;
        let (first_bytes, other_bytes) = bytes;
        let (job, rank) = (JobId(7), Rank(rank));
        let near_bytes = first_bytes / 4;
        ReaderEntry {
            job,
            rank,
            progress,
            work_mib: 80,
            age_ms,
            first_bytes,
            other_bytes,
            near_bytes,
        }
    }

    fn ranks(entries: &[(u32, ReaderEntry)]) -> Ranks {
        let mut ranks = Ranks::new();
        for (target, entry) in entries {
            ranks.entry(entry.rank).or_default().push((TargetId(*target), entry.clone()));
        }
        ranks
    }

    #[test]
    fn it_says_who_is_last_what_was_diverted_and_when_it_ends() {
        let before =
            ranks(&[(1, entry(0, 0.2, (16 << 20, 0), 5)), (2, entry(1, 0.5, (40 << 20, 0), 5))]);
        let now = ranks(&[
            // The older of the two reports does not count.
            (1, entry(0, 0.25, (20 << 20, 0), 90)),
            (2, entry(0, 0.3, (0, 4 << 20), 10)),
            (2, entry(1, 0.6, (48 << 20, 0), 10)),
        ]);
        let job = Job::of(JobId(7), &now, Some(&before), &[], 2.0);
        assert!(job.reads());
        let last = job.last().unwrap();
        assert_eq!((last.rank, last.read_per_s), (Rank(0), 4 << 20));
        assert!((last.left_s.unwrap() - 14.0).abs() < 0.1);
        assert!((job.left_s().unwrap() - 14.0).abs() < 0.1);
        let page = job.page();
        assert!(page.contains("2 processes; rank 0 is furthest behind with 30.0%"), "{page}");
        assert!(page.contains("5.6% were read from other copies"), "{page}");
        assert!(page.contains("23.6% from disks of the own machine"), "{page}");
        assert!(page.contains("1,2"), "{page}");
    }

    #[test]
    fn a_job_goes_by_its_name_or_number_and_may_have_ended() {
        let job = job_named("sort", 1000);
        assert!(is_called(job, "sort", 1000) && is_called(job, &label(job), 0));
        assert!(!is_called(job, "sort", 0) && !is_called(job, "other", 1000));
        let ended = ranks(&[(1, entry(0, 1.0, (80 << 20, 0), 60_000))]);
        let job = Job::of(JobId(7), &ended, Some(&ended), &[], 1.0);
        assert!(!job.reads());
        assert_eq!(job.left_s(), Some(0.0));
    }

    #[test]
    fn what_a_process_reads_besides_its_work_does_not_hide_how_far_it_is() {
        let aside = ReaderEntry { work_mib: 0, ..entry(0, 0.0, (8 << 20, 0), 5) };
        let read = ranks(&[(1, entry(0, 0.5, (8 << 20, 0), 90)), (2, aside.clone())]);
        let job = Job::of(JobId(7), &read, Some(&read), &[], 1.0);
        let last = job.last().unwrap();
        assert!((last.done - 0.5).abs() < 0.01 && last.work_mib == 80 && last.age_ms == 5);
        // What it said of its work is old: of another run.
        let old = ranks(&[(1, entry(0, 0.5, (8 << 20, 0), READS_MS)), (2, aside)]);
        assert!(Job::of(JobId(7), &old, Some(&old), &[], 1.0).last().is_none());
    }

    #[test]
    fn of_a_process_that_has_no_known_work_only_what_it_has_read_is_told() {
        let read = ranks(&[(1, ReaderEntry { work_mib: 0, ..entry(0, 0.0, (8 << 20, 0), 5) })]);
        let job = Job::of(JobId(7), &read, Some(&read), &[], 1.0);
        let page = job.page();
        assert!(page.contains("25.0% from disks") && !page.contains("behind"), "{page}");
        assert_eq!((job.left_s(), job.last().is_none()), (None, true));
    }
}
