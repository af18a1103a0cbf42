//! One round: caches are cold, perturbers are at work, all readers begin at once.
//!
//! The kernel's counts show that caches were cold: what the disks gave, without what the
//! perturbers had of it, is at least what the readers got. A round in which it is less fails.

use crate::args::WorkKind;
use crate::cluster::Mount;
use crate::hdfs::cpu_seconds;
use crate::lab::{Lab, perturbed_file};
use crate::outcome::{Outcome, Use};
use crate::stop;
use crate::worker::{command, now_us, steps};
use std::io::{Error, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use weir_testbed::{Counts, Disk, LinkCounts, Sampler, Worker, forget, remember};

/// Perturbers are at work for so long before the readers begin.
const AHEAD: Duration = Duration::from_millis(700);
/// A disk that is hot is so for as long before anybody mounts: then it may be known.
const HOT_AHEAD: Duration = Duration::from_secs(6);
/// The kernel's counts are looked at so often.
const EVERY: Duration = Duration::from_millis(250);
/// Each is a job of its own.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// What one who writes without a pause has of a disk.
pub const WRITERS_PART: f64 = 7.0 / 8.0;
/// What was done beside somebody who had less of what he was to have does not count.
const PERTURBS: f64 = 0.8;

/// What is done in a round.
pub struct Round<'a> {
    /// The mount option.
    pub policy: &'a str,
    /// The file that each reader reads; each has a mount of its own.
    pub files: &'a [String],
    /// What each reads of its file, as a process of a job says beforehand; empty: all of it.
    pub ranges: &'a [Range<u64>],
    pub call_bytes: u64,
    /// Disks that are perturbed,
    pub perturbed: &'a [usize],
    /// and how.
    pub load: Load,
    /// The readers are the processes of one job.
    pub job: bool,
    /// So many per cent of each file are in the servers' memory before, from its beginning on.
    pub in_memory: u64,
    /// Of those of these processes that live the processor's time is counted while readers read.
    pub processes: &'a [i32],
}

impl<'a> Round<'a> {
    /// Each reads all of its file in calls of 1 MiB; no disk is perturbed, nothing is in memory,
    /// and readers know nothing of each other.
    pub fn of(policy: &'a str, files: &'a [String]) -> Self {
        let load = Load::Reads { turn: Duration::ZERO };
        let (job, in_memory, ranges, perturbed) = (false, 0, &[], &[]);
        let (call_bytes, processes) = (1 << 20, &[]);
        Self { policy, files, ranges, call_bytes, perturbed, load, job, in_memory, processes }
    }

    /// What a reader reads.
    fn range(&self, reader: usize) -> Range<u64> {
        self.ranges.get(reader).cloned().unwrap_or(0..u64::MAX)
    }
}

/// What a perturber does.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// It reads at half the disk's speed; comes and goes after so long, or stays if that is zero.
    Reads { turn: Duration },
    /// It writes 10 MB and syncs them, again and again. The kernel limits reads and writes apart,
    /// while a disk does one or the other: so what the writer may have is taken from the readers.
    Writes,
    /// It sends so many bytes a second through the link of the disk's node.
    Sends { bytes_per_s: u64 },
}

/// A process that perturbs a disk.
struct Perturber {
    disk: usize,
    worker: Worker,
}

impl Perturber {
    fn start(lab: &Lab, disk: usize, load: Load) -> Result<Self> {
        let file = perturbed_file(&lab.disks[disk]);
        let work = match load {
            Load::Reads { turn } => {
                let (bytes_per_s, turn_ms) = (lab.rate / 2, turn.as_millis() as u64);
                WorkKind::Perturb { file, bytes_per_s, turn_ms }
            }
            Load::Writes => WorkKind::Write { file },
            Load::Sends { bytes_per_s } => {
                let bed = lab.cluster.bed.as_ref();
                let bed = bed.ok_or_else(|| Error::other("links of a testbed alone are loaded"))?;
                let (network, node) = (bed.network.name().to_owned(), disk as u32 + 1);
                WorkKind::Send { network, node, bytes_per_s }
            }
        };
        let mut worker = Worker::start(command(&work)?)?;
        lab.throttle.add(worker.pid())?;
        worker.go()?;
        Ok(Self { disk, worker })
    }
}

/// What was done, and what disks and perturbers did meanwhile.
pub struct Beside<T> {
    pub done: T,
    /// What all disks gave.
    pub read_bytes: u64,
    pub perturbers: Vec<Had>,
}

/// What a writer or sender had in a second, at least, and what it was to have.
#[derive(Clone, Copy)]
pub struct Had {
    pub bytes_per_s: f64,
    aim: f64,
}

impl<T> Beside<T> {
    /// Why it shows nothing: caches were not cold, or somebody did not perturb as he was to.
    pub fn flaw(&self, least_bytes: u64) -> Option<String> {
        if self.read_bytes < least_bytes {
            return Some(format!("the disks gave {} bytes of {least_bytes}", self.read_bytes));
        }
        let lame = self.perturbers.iter().find(|had| had.bytes_per_s < had.aim * PERTURBS)?;
        let [had, aim] = [lame.bytes_per_s, lame.aim].map(|rate| rate / (1 << 20) as f64);
        Some(format!("a perturber had {had:.2} MiB/s of {aim:.2}"))
    }
}

fn counts(disks: &[Disk]) -> Result<Vec<Counts>> {
    disks.iter().map(Disk::counts).collect()
}

impl Lab {
    /// Does a round.
    pub fn round(&self, round: &Round<'_>) -> Result<Outcome> {
        self.round_beside(round, || {}).map(|(outcome, ())| outcome)
    }

    /// The same, and something besides from when the readers begin.
    pub fn round_beside<T: Send>(
        &self,
        round: &Round<'_>,
        beside: impl FnOnce() -> T + Send,
    ) -> Result<(Outcome, T)> {
        stop::check()?;
        self.prepare(round)?;
        let is_hot_before = matches!(round.load, Load::Writes);
        let early = if is_hot_before { Some(self.begin(round, HOT_AHEAD)?) } else { None };
        let options = format!("{},read_policy={}", self.options, round.policy);
        let mount = |n: usize| self.cluster.mount(n, self.place(&format!("m{n}")), &options);
        let mounts: Vec<Mount> = (0..round.files.len()).map(mount).collect::<Result<_>>()?;
        // Servers remember for a while how far those of the last round were.
        let job = format!("round-{}", ROUNDS.fetch_add(1, Relaxed));
        let reader = |(rank, (mount, file)): (usize, (&Mount, &String))| {
            let (file, call_bytes) = (mount.path().join(file), round.call_bytes);
            let Range { start: from, end: to } = round.range(rank);
            let mut command = command(&WorkKind::Read { file, call_bytes, from, to })?;
            if round.job {
                command.env("WEIR_JOB", &job).env("WEIR_RANK", rank.to_string());
                command.env("WEIR_RANKS", mounts.len().to_string());
                if !round.ranges.is_empty() {
                    command.env("WEIR_RANGES", format!("{from}+{}", to - from));
                }
            }
            let worker = Worker::start(command)?;
            self.cluster.bed.iter().try_for_each(|bed| bed.take_in(rank, worker.pid()))?;
            Ok(worker)
        };
        let readers =
            mounts.iter().zip(round.files).enumerate().map(reader).collect::<Result<Vec<_>>>()?;
        let (perturbers, before) = match early {
            Some(begun) => begun,
            None => self.begin(round, AHEAD)?,
        };
        let lives = |pid: &&i32| Path::new(&format!("/proc/{pid}")).exists();
        let processes: Vec<i32> = round.processes.iter().filter(lives).copied().collect();
        let used = cpu_seconds(&processes)?;
        let (mut outcome, found) = self.read(readers, beside)?;
        outcome.cpu_seconds = cpu_seconds(&processes)? - used;
        self.share(round, 0.0)?;
        for perturber in perturbers {
            let words = perturber.worker.end()?;
            let bytes = || words.trim().parse().map_err(|_| Error::other(words.clone()));
            match round.load {
                Load::Reads { .. } => outcome.perturbed(perturber.disk, &steps(&words)?),
                Load::Sends { .. } => outcome.sent_bytes[perturber.disk] = bytes()?,
                // The kernel counts it apart from what is read.
                Load::Writes => {}
            }
        }
        for (n, (after, before)) in counts(&self.disks)?.iter().zip(&before).enumerate() {
            outcome.disks[n].disk_bytes = after.read_bytes - before.read_bytes;
        }
        prove(&outcome, round.in_memory)?;
        outcome.job = round.job.then_some(job);
        Ok((outcome, found))
    }

    /// Something is done while disks or links of a round are hot, and were for a while; nothing is in
    /// memory before.
    pub fn disturbed<T>(
        &self,
        round: &Round<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<Beside<T>> {
        self.prepare(round)?;
        let started = Instant::now();
        let (perturbers, _) = self.begin(round, HOT_AHEAD)?;
        let (before, begin) = (counts(&self.disks)?, Instant::now());
        let done = work();
        let (seconds, after) = (begin.elapsed().as_secs_f64(), counts(&self.disks));
        let ahead = (begin - started).as_secs_f64();
        let shared = self.share(round, 0.0);
        let ends = perturbers.into_iter().map(|perturber| (perturber.disk, perturber.worker.end()));
        let ends: Vec<_> = ends.collect();
        // What went wrong first is said.
        let (done, after) = (done?, after?);
        shared?;
        let grown = |of: fn(&Counts) -> u64| {
            after.iter().zip(&before).map(move |(after, before)| of(after) - of(before))
        };
        let written: Vec<u64> = grown(|counts| counts.written_bytes).collect();
        let perturbers = ends.into_iter().map(|(disk, words)| {
            let (words, none) = (words?, Error::other("only writers and senders are known here"));
            Ok(match round.load {
                Load::Writes => Had {
                    bytes_per_s: written[disk] as f64 / seconds,
                    aim: self.rate as f64 * WRITERS_PART,
                },
                Load::Sends { bytes_per_s: pace } => {
                    let sent: f64 = words.trim().parse().map_err(|_| Error::other(words))?;
                    // Before that it had no more than its pace.
                    let meanwhile = sent - pace as f64 * ahead;
                    Had { bytes_per_s: meanwhile / seconds, aim: pace as f64 }
                }
                Load::Reads { .. } => return Err(none),
            })
        });
        let perturbers = perturbers.collect::<Result<_>>()?;
        let read_bytes = grown(|counts| counts.read_bytes).sum();
        Ok(Beside { done, read_bytes, perturbers })
    }

    /// Prepares caches, and waits for the disks to be at rest: who opens a file is told how busy
    /// they are.
    fn prepare(&self, round: &Round<'_>) -> Result<()> {
        let remember = || {
            self.disks.iter().map(Disk::path).try_for_each(|path| match round.in_memory {
                0 => forget(path),
                ALL => remember(path, ALL),
                // What servers read meanwhile for readers of the last round, who had it from
                // elsewhere, goes too.
                part => forget(path).and_then(|()| remember(path, part)),
            })
        };
        remember()?;
        // What was found of a disk among writes is not what readers are to go by.
        let was_written = self.was_written.swap(false, Relaxed) | (round.in_memory > 0);
        self.settle(if was_written { SETTLED } else { RESTED })?;
        if round.in_memory == 0 { remember() } else { Ok(()) }
    }

    /// Has the perturbers at work; the disks' counts from before.
    fn begin(&self, round: &Round<'_>, ahead: Duration) -> Result<(Vec<Perturber>, Vec<Counts>)> {
        let before = counts(&self.disks)?;
        self.share(round, WRITERS_PART)?;
        let perturber = |disk: &usize| Perturber::start(self, *disk, round.load);
        let perturbers = round.perturbed.iter().map(perturber).collect::<Result<Vec<_>>>()?;
        if !perturbers.is_empty() {
            sleep(ahead);
        }
        Ok((perturbers, before))
    }

    /// Waits until the disks have done nothing for so long, as what was written is on them: servers
    /// look meanwhile how busy these are, by reads that are nobody's.
    pub fn settle(&self, quiet: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < SETTLES_WITHIN {
            let before = counts(&self.disks)?;
            sleep(quiet);
            stop::check()?;
            if counts(&self.disks)? == before {
                return Ok(());
            }
        }
        Err(Error::other(format!("the disks are still at work after {SETTLES_WITHIN:?}")))
    }

    /// Gives a writer such a part of its disk, and readers the rest.
    fn share(&self, round: &Round<'_>, writers: f64) -> Result<()> {
        let disks = round.perturbed.iter().map(|n| &self.disks[*n]);
        for disk in disks.filter(|_| matches!(round.load, Load::Writes)) {
            let writes = (self.rate as f64 * writers) as u64;
            self.throttle.limit(disk, self.rate - writes)?;
            if writes > 0 {
                self.throttle.limit_writes(disk, writes)?;
            }
        }
        Ok(())
    }

    /// What the link of each disk's node has carried; none without a testbed.
    pub fn links(&self) -> Result<Vec<LinkCounts>> {
        let Some(bed) = &self.cluster.bed else { return Ok(Vec::new()) };
        (1..=self.disks.len() as u32).map(|node| bed.network.counts(node)).collect()
    }

    /// All readers read, and something is done `beside`; what the disks did meanwhile.
    fn read<T: Send>(
        &self,
        mut readers: Vec<Worker>,
        beside: impl FnOnce() -> T + Send,
    ) -> Result<(Outcome, T)> {
        let mut disks = vec![Use::default(); self.disks.len()];
        let (before, links) = (counts(&self.disks)?, self.links()?);
        let sampler = Sampler::start(&self.disks, EVERY);
        let begin = now_us();
        readers.iter_mut().try_for_each(Worker::go)?;
        let (words, seconds, found) = thread::scope(|scope| {
            let beside = scope.spawn(beside);
            let words: Vec<Result<String>> = readers.into_iter().map(Worker::end).collect();
            let seconds = (now_us() - begin) as f64 / 1e6;
            (words, seconds, beside.join())
        });
        let samples = sampler.stop()?;
        for (n, (after, before)) in counts(&self.disks)?.iter().zip(&before).enumerate() {
            disks[n].meanwhile_disk_bytes = after.read_bytes - before.read_bytes;
            disks[n].meanwhile_written_bytes = after.written_bytes - before.written_bytes;
        }
        let carried =
            self.links()?.into_iter().zip(links).map(|(after, before)| after.since(before));
        let links = carried.collect();
        let found = found.map_err(|_| Error::other("a thread has panicked"))?;
        stop::check()?;
        let readers = words.into_iter().map(|words| steps(&words?)).collect::<Result<_>>()?;
        let sent_bytes = vec![0; self.disks.len()];
        let (job, cpu_seconds) = (None, 0.0);
        let outcome =
            Outcome { readers, disks, links, sent_bytes, samples, seconds, cpu_seconds, job };
        Ok((outcome, found))
    }
}

/// A disk has nothing to do any more that has done nothing for so long.
const SETTLED: Duration = Duration::from_millis(2_500);
/// One that was read alone: servers look once more, after a second, when nobody reads any more.
const RESTED: Duration = Duration::from_millis(1_200);
const SETTLES_WITHIN: Duration = Duration::from_secs(180);
/// In per cent.
const ALL: u64 = 100;
/// Of what is not in memory disks give no more than so many per cent: some of it is read ahead, or
/// read twice.
const MOST: u64 = 110;
/// So little comes from disks of what is in memory.
const HOT: u64 = 50;
/// Besides what servers read of each disk by themselves, to know how fast it is.
const PROBES_BYTES: u64 = 1 << 20;

fn prove(outcome: &Outcome, in_memory: u64) -> Result<()> {
    let given: u64 = outcome.disks.iter().map(Use::served_bytes).sum();
    let got: u64 = outcome.readers.iter().map(|steps| steps[steps.len() - 1].bytes).sum();
    let probes = if in_memory < ALL { 0 } else { outcome.disks.len() as u64 * PROBES_BYTES };
    let missing = got * (ALL - in_memory.min(ALL)) / ALL;
    if in_memory > 0 && given > missing * MOST / ALL + got / HOT + probes {
        let what = format!("not in memory: the disks gave {given} bytes, the readers got {got}");
        return Err(Error::other(what));
    }
    // A part ends where it ends, within a page.
    let least = if in_memory == 0 { got } else { missing - missing / HOT };
    if given >= least {
        return Ok(());
    }
    Err(Error::other(format!("not cold: the disks gave {given} bytes, the readers got {got}")))
}
