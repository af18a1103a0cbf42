//! What is measured: rows, the ways of doing each, and how.

use crate::accounting::Group;
use crate::args::Plan;
use crate::failure::{Done, Failure};
use crate::lab::Lab;
use crate::order::{BLOCK_BYTES, Names, Order, Place, SyncKind, Work};
use crate::sample::{Results, Sample, Series};
use crate::stop;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Instant;

/// Processes of rows with more than one.
const MANY: usize = 4;
/// Data servers, and raw servers in their place.
const SERVERS: usize = 4;
/// The file that is read and rewritten.
const FILE: &str = "bench.dat";
/// Bytes of a request, about as many as Weir's.
const REQUEST_BYTES: usize = 256;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// Sequential read, one stream
    Read1,
    /// Sequential read, four disjoint streams
    Read4,
    /// Rewrite and fsync, one stream
    Rewrite1,
    /// Rewrite and fsync, four disjoint streams
    Rewrite4,
    /// Random reads of 4 KiB, four jobs
    Random,
    /// Create empty files, one process
    Create1,
    /// Create empty files, four processes
    Create4,
    /// Stat files that are not cached, one process
    Stat,
    /// Remove files, one process
    Unlink,
}

/// A way of doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// TCP on loopback from warm memory.
    Tcp,
    /// `pread` from the page cache and `send`.
    PreadSend,
    /// The same; the receiver computes CRC-32C.
    PreadSendCrc,
    /// Requests of 256 bytes and replies of 4 KiB between as many processes.
    PingPong,
    /// 256 bytes there and back between two processes.
    RoundTrip,
    /// The local disk's file system: reads from the page cache; rewrites end
    /// with `fdatasync`.
    Disk,
    /// Rewrites of the local disk's page cache until the `fdatasync`.
    PageCache,
    /// The trivial FUSE server.
    Fuse,
    /// The trivial FUSE server with `O_DIRECT`.
    FuseDirect,
    /// Weir's client library.
    Library,
    /// Weir's client library without checking checksums.
    LibraryUnchecked,
    /// Weir's mount.
    Mount,
    /// Weir's mount with `O_DIRECT`.
    MountDirect,
}

impl Row {
    /// All rows, in order.
    pub const ALL: [Row; 9] = [
        Row::Read1,
        Row::Read4,
        Row::Rewrite1,
        Row::Rewrite4,
        Row::Random,
        Row::Create1,
        Row::Create4,
        Row::Stat,
        Row::Unlink,
    ];

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Row::Read1 => "read, 1 stream",
            Row::Read4 => "read, 4 disjoint streams",
            Row::Rewrite1 => "rewrite + fsync, 1 stream",
            Row::Rewrite4 => "rewrite + fsync, 4 disjoint streams",
            Row::Random => "random 4 KiB reads, 4 jobs",
            Row::Create1 => "create empty files, 1 process",
            Row::Create4 => "create empty files, 4 processes",
            Row::Stat => "stat (cold), 1 process",
            Row::Unlink => "unlink, 1 process",
        }
    }

    /// Whether calls are counted, not bytes.
    pub fn counts_calls(self) -> bool {
        self >= Row::Random
    }

    fn processes(self) -> usize {
        match self {
            Row::Read4 | Row::Rewrite4 | Row::Random | Row::Create4 => MANY,
            Row::Read1 | Row::Rewrite1 | Row::Create1 | Row::Stat | Row::Unlink => 1,
        }
    }

    /// The ways of doing it: limits first.
    fn ways(self) -> &'static [Via] {
        use Via::{
            Disk, Fuse, FuseDirect, Library, LibraryUnchecked, Mount, MountDirect, PingPong,
            PreadSend, PreadSendCrc, RoundTrip, Tcp,
        };
        match self {
            Row::Read1 | Row::Read4 => &[
                Tcp,
                PreadSend,
                PreadSendCrc,
                Disk,
                Fuse,
                FuseDirect,
                Library,
                LibraryUnchecked,
                Mount,
                MountDirect,
            ],
            Row::Rewrite1 | Row::Rewrite4 => {
                &[Tcp, Disk, Fuse, FuseDirect, Library, Mount, MountDirect]
            }
            Row::Random => &[PingPong, Disk, Fuse, Library, Mount],
            Row::Create1 | Row::Create4 | Row::Stat | Row::Unlink => {
                &[RoundTrip, Disk, Fuse, Library, Mount]
            }
        }
    }
}

impl Via {
    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Via::Tcp => "raw loopback TCP",
            Via::PreadSend => "raw pread+send",
            Via::PreadSendCrc => "raw pread+send, CRC-32C",
            Via::PingPong => "raw 4 KiB ping-pong",
            Via::RoundTrip => "raw TCP round trip",
            Via::Disk => "local disk",
            Via::PageCache => "local page cache",
            Via::Fuse => "trivial FUSE server",
            Via::FuseDirect => "trivial FUSE server, O_DIRECT",
            Via::Library => "Weir library",
            Via::LibraryUnchecked => "Weir library, checksums off",
            Via::Mount => "Weir mount",
            Via::MountDirect => "Weir mount, O_DIRECT",
        }
    }

    /// Whether it is Weir that is measured.
    pub fn is_weir(self) -> bool {
        self >= Via::Library
    }

    /// Whose CPU counts.
    fn groups(self) -> &'static [Group] {
        match self {
            Via::Tcp | Via::PreadSend | Via::PreadSendCrc | Via::PingPong | Via::RoundTrip => {
                &[Group::RawServer, Group::RawClient]
            }
            Via::Disk | Via::PageCache => &[Group::Posix],
            Via::Fuse | Via::FuseDirect => &[Group::RawFuse, Group::Posix],
            Via::Library | Via::LibraryUnchecked => &[Group::Data, Group::Meta, Group::Library],
            Via::Mount | Via::MountDirect => {
                &[Group::Data, Group::Meta, Group::Mount, Group::Posix]
            }
        }
    }
}

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

/// The benchmark under way.
struct Bench<'a> {
    plan: &'a Plan,
    lab: Lab,
    /// Files and directories that exist by now.
    made: BTreeSet<(Via, String)>,
    seed: u64,
}

impl Bench<'_> {
    /// All series of a row, alternating. Only a signal ends it early.
    fn row(&mut self, row: Row) -> Done<Vec<(Via, Series)>> {
        let chosen = |via: &&Via| self.plan.ways.is_empty() || self.plan.ways.contains(via);
        let possible = |via: &&Via| self.plan.with_weir || !via.is_weir();
        let ways = row.ways().iter().filter(chosen).filter(possible);
        let mut list: Vec<(Via, Series)> = Vec::new();
        for via in ways {
            list.push((*via, Series::default()));
            if *via == Via::Disk && matches!(row, Row::Rewrite1 | Row::Rewrite4) {
                list.push((Via::PageCache, Series::default()));
            }
        }
        // The first run of data warms what it uses, and is dropped.
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
                        // Ctrl-C reaches workers too: then that is the reason.
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
                Row::Read1 | Row::Read4 | Row::Rewrite1 | Row::Rewrite4 | Row::Random => {
                    self.data(row, via)
                }
                Row::Create1 | Row::Create4 | Row::Stat | Row::Unlink => {
                    self.names(row, via, round)
                }
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
        let (group, count) = (worker_group(via), row.processes());
        let is_fuse = matches!(via, Via::Fuse | Via::FuseDirect);
        let path = if is_fuse { "data".to_owned() } else { FILE.to_owned() };
        let share = self.plan.size_bytes / count as u64;
        self.seed += 1;
        let (plan, seed) = (self.plan, self.seed);
        let mut job = self.lab.job();
        for i in 0..count {
            let (place, path, check) = (place.clone(), path.clone(), !is_fuse);
            let (from, to) = (share * i as u64, share * (i as u64 + 1));
            let order = match row {
                Row::Rewrite1 | Row::Rewrite4 => {
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
            job.prepare((group, worker_index(via, i)), &order)?;
        }
        // The kernel's cache of a FUSE file was dropped and is filled anew.
        let cached = matches!(via, Via::Fuse | Via::Mount) && row != Row::Random;
        let (sample, works) = job.run(via.groups(), if cached { plan.size_bytes } else { 0 })?;
        check_cold(row, via, &sample)?;
        Ok((sample, works))
    }

    /// Creates, stats and unlinks of small files.
    fn names(&mut self, row: Row, via: Via, round: u32) -> Done<(Sample, Vec<Work>)> {
        let count = row.processes();
        let dir = format!("{}-{count}-{round}", if via == Via::Library { "lib" } else { "posix" });
        if matches!(row, Row::Create1 | Row::Create4) {
            self.make_dir(via, &dir)?;
        } else {
            self.have_files(via, &dir)?;
        }
        if row == Row::Stat && via == Via::Mount {
            self.lab.unmount();
        }
        let place = self.place(via)?;
        let files = self.plan.files;
        // The trivial server's existing files, see there.
        let exist = via == Via::Fuse && !matches!(row, Row::Create1 | Row::Create4);
        let mut job = self.lab.job();
        for i in 0..count as u32 {
            let share = files / count as u32;
            let prefix = if exist { "s" } else { "f" }.to_owned();
            let names = Names { dir: dir.clone(), prefix, from: share * i, to: share * (i + 1) };
            let place = place.clone();
            let order = match row {
                Row::Stat => Order::Stat { place, names },
                Row::Unlink => Order::Unlink { place, names },
                _ => Order::Create { place, names },
            };
            job.prepare((worker_group(via), i as usize), &order)?;
        }
        let done = job.run(via.groups(), 0)?;
        if row == Row::Unlink {
            self.made.remove(&(via, dir));
        } else {
            self.made.insert((via, dir));
        }
        Ok(done)
    }

    fn place(&mut self, via: Via) -> Done<Place> {
        let posix = |root, cold, direct| Place::Posix { root, cold, direct };
        Ok(match via {
            Via::Fuse | Via::FuseDirect => {
                posix(self.lab.fuse_mountpoint()?, true, via == Via::FuseDirect)
            }
            Via::Mount | Via::MountDirect => {
                posix(self.lab.mountpoint()?, true, via == Via::MountDirect)
            }
            Via::Library | Via::LibraryUnchecked => {
                Place::Library { credential: self.lab.credential()?, verify: via == Via::Library }
            }
            _ => posix(self.lab.local_dir(), false, false),
        })
    }

    /// Sees to it that the big file exists, and is in the page cache of its
    /// disk's machine.
    fn have_file(&mut self, via: Via) -> Done {
        let writer = match via {
            Via::Fuse | Via::FuseDirect => return Ok(()),
            Via::Disk => Via::Disk,
            _ => Via::Library,
        };
        if self.made.contains(&(writer, FILE.to_owned())) {
            return Ok(());
        }
        let (place, path) = (self.place(writer)?, FILE.to_owned());
        let (from, to, sync) = (0, self.plan.size_bytes, SyncKind::Full);
        let group = worker_group(writer);
        let order = Order::Rewrite { place: place.clone(), path: path.clone(), from, to, sync };
        self.lab.once(group, &order)?;
        self.lab.once(group, &Order::Read { place, path, from, to, check: true })?;
        self.made.insert((writer, FILE.to_owned()));
        Ok(())
    }

    fn make_dir(&mut self, via: Via, dir: &str) -> Done {
        let order = Order::MakeDir { place: self.place(via)?, dir: dir.to_owned() };
        self.lab.once(worker_group(via), &order)
    }

    /// Sees to it that the small files of a round exist.
    fn have_files(&mut self, via: Via, dir: &str) -> Done {
        if self.made.contains(&(via, dir.to_owned())) {
            return Ok(());
        }
        self.make_dir(via, dir)?;
        if via != Via::Fuse {
            let to = self.plan.files;
            let names = Names { dir: dir.to_owned(), prefix: "f".into(), from: 0, to };
            let order = Order::Create { place: self.place(via)?, names };
            self.lab.once(worker_group(via), &order)?;
        }
        self.made.insert((via, dir.to_owned()));
        Ok(())
    }
}

fn no_port() -> Failure {
    Failure::other("a raw server has no port")
}

fn worker_group(via: Via) -> Group {
    match via {
        Via::Library | Via::LibraryUnchecked => Group::Library,
        _ => Group::Posix,
    }
}

/// Workers keep their session: those that check nothing are others.
fn worker_index(via: Via, index: usize) -> usize {
    if via == Via::LibraryUnchecked { index + MANY } else { index }
}

/// The part of a rewrite before its sync. Only the workers' own CPU is known.
fn before_sync(sample: &Sample, works: &[Work]) -> Sample {
    let begin = works.iter().map(|w| w.begin_ns).min().unwrap_or(0);
    let end = works.iter().map(|w| w.written_ns).max().unwrap_or(0);
    let cpu_ns: u64 = works.iter().map(|w| w.written_cpu_ns).sum();
    Sample {
        seconds: end.saturating_sub(begin) as f64 / 1e9,
        cpu_s: [(Group::Posix, cpu_ns as f64 / 1e9)].into(),
        ..sample.clone()
    }
}

/// What Weir delivered must have come from its servers, and to them from
/// their page cache.
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
