//! The measurements: rows, the ways of each, and their execution.

use crate::accounting::Group;
use crate::args::Plan;
use crate::failure::{Done, Failure};
use crate::lab::Lab;
use crate::order::{BLOCK_BYTES, Names, Order, Place, SyncKind, Work};
use crate::sample::{Results, Sample, Series};
use crate::stop;
use crate::ways::{MANY, Row, Via};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Number of data servers, and of raw servers for comparison.
const SERVERS: usize = 4;
/// The file that is read and rewritten.
const FILE: &str = "bench.dat";
/// Duration of the load around a kill. The kill comes within the first third.
const KILL_MS: u64 = 16_000;
/// Bytes of a request, similar to Weir's.
const REQUEST_BYTES: usize = 256;

/// Measures all rows of a plan.
pub fn run(plan: &Plan) -> Done<Results> {
    let mut bench = Bench { plan, lab: Lab::new(plan)?, made: BTreeSet::new(), seed: 1 };
    let mut results = Results { accounting: bench.lab.accounting.describe(), ..Results::default() };
    println!("{}", results.accounting);
    let begin = Instant::now();
    for row in Row::ALL.into_iter().filter(|row| plan.rows.contains(row)) {
        if begin.elapsed() > plan.patience {
            results.left_out.push((row, "no time was left".into()));
            continue;
        }
        let list = bench.row(row)?;
        crate::report::print_row(row, &list);
        results.rows.push((row, list));
    }
    Ok(results)
}

/// The running benchmark.
struct Bench<'a> {
    plan: &'a Plan,
    lab: Lab,
    /// Files and directories that exist.
    made: BTreeSet<(Via, String)>,
    seed: u64,
}

impl Bench<'_> {
    /// Measures all series of a row with alternating rounds. Only a signal ends it early.
    fn row(&mut self, row: Row) -> Done<Vec<(Via, Series)>> {
        let chosen = |via: &&Via| self.plan.ways.is_empty() || self.plan.ways.contains(via);
        let is_root = rustix::process::geteuid().is_root();
        let possible = |via: &&Via| {
            (self.plan.with_weir || !via.is_weir()) && (is_root || via.user().is_none())
        };
        let ways = row.ways().iter().filter(chosen).filter(possible);
        let mut list: Vec<(Via, Series)> = Vec::new();
        for via in ways {
            list.push((*via, Series::default()));
            if *via == Via::Disk && row.writes() {
                list.push((Via::PageCache, Series::default()));
            }
        }
        // The first run of data is a warm-up.
        let dropped = u32::from(!row.counts_calls());
        for round in 0..self.plan.rounds + dropped {
            for i in 0..list.len() {
                let (via, series) = &list[i];
                if series.failure.is_some() || *via == Via::PageCache {
                    continue;
                }
                let (sample, works) = match self.sample(row, *via, round) {
                    Ok(done) => done,
                    Err(Failure::Stopped) => return Err(Failure::Stopped),
                    Err(failure) => {
                        // Ctrl-C reaches workers too, and is then the reason of their failure.
                        stop::check()?;
                        eprintln!("{}, {}: {failure}", row.title(), via.title());
                        list[i].1.failure = Some(failure.to_string());
                        continue;
                    }
                };
                if round < dropped {
                    continue;
                }
                if let Some((Via::PageCache, unsynced)) = list.get_mut(i + 1) {
                    unsynced.samples.push(before_sync(&sample, &works));
                }
                list[i].1.samples.push(sample);
            }
        }
        Ok(list)
    }

    fn sample(&mut self, row: Row, via: Via, round: u32) -> Done<(Sample, Vec<Work>)> {
        stop::check()?;
        match via {
            Via::Tcp => self.stream(row, via, None),
            Via::PreadSend | Via::PreadSendCrc => {
                self.have_file(Via::Disk)?;
                let file = self.lab.local_dir().join(FILE);
                self.stream(row, via, Some(file))
            }
            Via::PingPong => self.ping(via, SERVERS, MANY, BLOCK_BYTES, self.plan.random_ms),
            Via::RoundTrip => self.ping(via, 1, 1, REQUEST_BYTES, self.plan.random_ms / 2),
            _ => match row {
                row if row.is_of_names() => self.names(row, via, round),
                Row::Kill => self.kill(via),
                _ => self.data(row, via),
            },
        }
    }

    /// Raw streams: as many senders as receivers.
    fn stream(
        &mut self,
        row: Row,
        via: Via,
        file: Option<std::path::PathBuf>,
    ) -> Done<(Sample, Vec<Work>)> {
        let count = row.processes();
        let bytes = self.plan.size_bytes / count as u64;
        let mut job = self.lab.job();
        for i in 0..count {
            let from = bytes * i as u64;
            let order = Order::StreamSend { bytes, file: file.clone(), from };
            let port = job.prepare((Group::RawServer, i), &order)?.ok_or_else(no_port)?;
            let order = Order::StreamReceive { port, bytes, crc: via == Via::PreadSendCrc };
            job.prepare((Group::RawClient, i), &order)?;
        }
        job.run(via.groups(), 0)
    }

    /// Raw requests and replies.
    fn ping(
        &mut self,
        via: Via,
        servers: usize,
        clients: usize,
        reply_bytes: usize,
        ms: u64,
    ) -> Done<(Sample, Vec<Work>)> {
        let request_bytes = REQUEST_BYTES;
        let mut job = self.lab.job();
        let mut ports = Vec::with_capacity(servers);
        for i in 0..servers {
            let order = Order::PingServe { request_bytes, reply_bytes, connections: clients };
            ports.push(job.prepare((Group::RawServer, i), &order)?.ok_or_else(no_port)?);
        }
        for i in 0..clients {
            let (ports, seed) = (ports.clone(), 0x1234_5678_9abc * (i as u64 + 1));
            let order = Order::PingAsk { ports, request_bytes, reply_bytes, ms, seed };
            job.prepare((Group::RawClient, i), &order)?;
        }
        job.run(via.groups(), 0)
    }

    /// Reads and rewrites of one big file.
    fn data(&mut self, row: Row, via: Via) -> Done<(Sample, Vec<Work>)> {
        self.have_file(via)?;
        let place = self.place(via)?;
        let (group, count) = (via.worker_group(), row.processes());
        let is_fuse = matches!(via, Via::Fuse | Via::FuseDirect);
        let path = if is_fuse { "data".to_owned() } else { self.path(via, FILE)? };
        let share = self.plan.size_bytes / count as u64;
        self.seed += 1;
        let (plan, seed) = (self.plan, self.seed);
        let mut job = self.lab.job();
        for i in 0..count {
            let (place, path, check) = (place.clone(), path.clone(), !is_fuse);
            let (from, to) = (share * i as u64, share * (i as u64 + 1));
            let order = match row {
                _ if row.writes() => {
                    let sync = if via == Via::Disk { SyncKind::Data } else { SyncKind::Full };
                    Order::Rewrite { place, path, from, to, sync }
                }
                Row::Random => Order::Random {
                    place,
                    path,
                    blocks: plan.size_bytes / BLOCK_BYTES as u64,
                    job: i as u64,
                    jobs: count as u64,
                    ms: plan.random_ms,
                    seed,
                    check,
                },
                _ => Order::Read { place, path, from, to, check },
            };
            job.prepare((group, via.worker_index(i)), &order)?;
        }
        // The kernel's cache of a FUSE file was dropped and is filled again.
        let cached = matches!(via, Via::Fuse | Via::Mount | Via::MountTwo) && row != Row::Random;
        let (mut sample, works) =
            job.run(via.groups(), if cached { plan.size_bytes } else { 0 })?;
        if row.writes() {
            sample.written_s = written_s(&works);
        }
        check_cold(row, via, &sample)?;
        Ok((sample, works))
    }

    /// One worker reads and one writes while a data server is killed, and started again.
    fn kill(&mut self, via: Via) -> Done<(Sample, Vec<Work>)> {
        let mut job = Vec::new();
        for (i, write) in [(0, false), (1, true)] {
            let name = if write { "written.dat" } else { FILE };
            self.have_file_named(via, name)?;
            let (place, path) = (self.place(via)?, self.path(via, name)?);
            let (bytes, ms) = (self.plan.size_bytes, KILL_MS);
            job.push((i, Order::Steady { place, path, bytes, ms, write }));
        }
        self.lab.kill_within(&job, via, Duration::from_millis(KILL_MS / 4))
    }

    /// Creates, stats and unlinks of small files.
    fn names(&mut self, row: Row, via: Via, round: u32) -> Done<(Sample, Vec<Work>)> {
        let count = row.processes();
        let kind = match via.worker_group() {
            Group::Library => "lib",
            _ if via.user().is_some() => "user",
            _ => "posix",
        };
        let dir = self.path(via, &format!("{kind}-{count}-{round}"))?;
        if row.makes() {
            self.make_dir(via, &dir)?;
        } else {
            self.have_files(via, &dir)?;
        }
        if row.stats() && via.is_mount() {
            self.lab.unmount();
        }
        let place = self.place(via)?;
        let files = self.plan.files;
        // On the trivial server these files always exist.
        let exist = via == Via::Fuse && !row.makes();
        let mut job = self.lab.job();
        for i in 0..count as u32 {
            let share = files / count as u32;
            let prefix = if exist { "s" } else { "f" }.to_owned();
            let names = Names { dir: dir.clone(), prefix, from: share * i, to: share * (i + 1) };
            let place = place.clone();
            let order = match row {
                Row::Stat | Row::Stat4 => Order::Stat { place, names },
                Row::Unlink | Row::Unlink4 => Order::Unlink { place, names },
                _ => Order::Create { place, names },
            };
            job.prepare((via.worker_group(), via.worker_index(i as usize)), &order)?;
        }
        let done = job.run(via.groups(), 0)?;
        if row.removes() {
            self.made.remove(&(via, dir));
        } else {
            self.made.insert((via, dir));
        }
        Ok(done)
    }

    fn place(&mut self, via: Via) -> Done<Place> {
        let user = via.user();
        let posix = |root, cold, direct| Place::Posix { root, cold, direct, user };
        Ok(match via {
            Via::Fuse | Via::FuseDirect => {
                posix(self.lab.fuse_mountpoint()?, true, via.is_direct())
            }
            _ if via.is_mount() => posix(self.lab.mountpoint()?, true, via.is_direct()),
            _ if via.is_weir() => Place::Library {
                credential: self.lab.credential_at(via.protection())?,
                verify: via != Via::LibraryUnchecked,
            },
            _ => posix(self.lab.local_dir(), false, false),
        })
    }

    /// The path of a way's files. Makes the directory if necessary.
    fn path(&mut self, via: Via, name: &str) -> Done<String> {
        let Some((dir, protocol)) = via.copies() else { return Ok(name.to_owned()) };
        let made = (via.owner(), dir.to_owned());
        if !self.made.contains(&made) {
            self.lab.make_mirrored(dir, protocol)?;
            self.made.insert(made);
        }
        Ok(format!("{dir}/{name}"))
    }

    /// Ensures that the big file exists and is in the page cache of its server.
    fn have_file(&mut self, via: Via) -> Done {
        self.have_file_named(via, FILE)
    }

    fn have_file_named(&mut self, via: Via, name: &str) -> Done {
        if matches!(via, Via::Fuse | Via::FuseDirect) {
            return Ok(());
        }
        let writer = via.owner();
        let path = self.path(writer, name)?;
        let made = (writer, path.clone());
        if self.made.contains(&made) {
            return Ok(());
        }
        let place = self.place(writer)?;
        let (from, to, sync) = (0, self.plan.size_bytes, SyncKind::Full);
        let group = writer.worker_group();
        let order = Order::Rewrite { place: place.clone(), path: path.clone(), from, to, sync };
        self.lab.once(group, &order)?;
        self.lab.once(group, &Order::Read { place, path, from, to, check: true })?;
        self.made.insert(made);
        Ok(())
    }

    fn make_dir(&mut self, via: Via, dir: &str) -> Done {
        let order = Order::MakeDir { place: self.place(via)?, dir: dir.to_owned() };
        self.lab.once(via.worker_group(), &order)
    }

    /// Ensures that the small files of a round exist.
    fn have_files(&mut self, via: Via, dir: &str) -> Done {
        if self.made.contains(&(via, dir.to_owned())) {
            return Ok(());
        }
        self.make_dir(via, dir)?;
        if via != Via::Fuse {
            let to = self.plan.files;
            let names = Names { dir: dir.to_owned(), prefix: "f".into(), from: 0, to };
            let order = Order::Create { place: self.place(via)?, names };
            let mut job = self.lab.job();
            job.prepare((via.worker_group(), via.worker_index(0)), &order)?;
            job.run(&[], 0)?;
        }
        self.made.insert((via, dir.to_owned()));
        Ok(())
    }
}

fn no_port() -> Failure {
    Failure::other("a raw server has no port")
}

/// The part of a rewrite before its sync. Only the workers' own CPU time is known.
fn before_sync(sample: &Sample, works: &[Work]) -> Sample {
    let cpu_ns: u64 = works.iter().map(|w| w.written_cpu_ns).sum();
    Sample {
        seconds: written_s(works),
        cpu_s: [(Group::Posix, cpu_ns as f64 / 1e9)].into(),
        ..sample.clone()
    }
}

/// Seconds until everything was written.
fn written_s(works: &[Work]) -> f64 {
    let begin = works.iter().map(|w| w.begin_ns).min().unwrap_or(0);
    let end = works.iter().map(|w| w.written_ns).max().unwrap_or(0);
    end.saturating_sub(begin) as f64 / 1e9
}

/// Checks that all bytes delivered by Weir came from its servers, and there from the page cache.
fn check_cold(row: Row, via: Via, sample: &Sample) -> Done {
    if !via.is_weir() || !matches!(row, Row::Read1 | Row::Read4 | Row::Random) {
        return Ok(());
    }
    if sample.loopback_bytes < sample.bytes / 100 * 98 {
        return Err(Failure::other(format!(
            "only {} of {} bytes came from the servers: a cache was warm",
            sample.loopback_bytes, sample.bytes
        )));
    }
    if sample.disk_read_bytes > sample.bytes / 100 {
        return Err(Failure::other(format!(
            "the servers read {} bytes from disk: their page cache was cold",
            sample.disk_read_bytes
        )));
    }
    Ok(())
}
