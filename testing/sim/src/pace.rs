//! The pace of readers on disks of a set speed. There is a disk for each reader. Each reader reads
//! a file with copies on its own disk and the next ones, as a program does through a mount. Clients
//! and servers are those of all simulations, and times are virtual, so that a policy is judged by
//! the code that carries it out, without the noise of a machine. (Figures are measured on real
//! disks: `testing/figures`.)

use crate::cluster::Cluster;
use crate::failover::{now, plan};
use crate::plan::{ClientPlan, NodeName, Plan};
use crate::shared::Shared;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_client::job::{JobReader, Member, Partition};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, ReadPolicy};
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread;
use weir_simhost::Options;
use weir_types::{
    Error, ErrorKind, FileId, JobId, LayoutKind, LayoutSpec, Placement, Rank, Result,
};
use weir_wire::Rights;

const MIB: u64 = 1 << 20;
/// Maximum size of a kernel's request to a mount.
const REQUEST_BYTES: u64 = MIB;
/// The kernel's read-ahead for an established reader.
const AHEAD_BYTES: u64 = 4 * MIB;
/// The kernel's read-ahead for a new reader.
const FIRST_AHEAD_BYTES: u64 = 256 << 10;
/// Number of requests that a mount serves at the same time.
const MOUNT_THREADS: usize = 10;
/// Maximum time of a reader.
const MAX_TIME: Duration = Duration::from_secs(600);

/// The disks, and the files on them.
#[derive(Clone, Debug)]
pub struct Track {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of disks and servers.
    pub disks: u8,
    /// Number of readers and files.
    pub readers: u8,
    /// Each file is striped over this many disks, from the first on, with a second copy on the
    /// other disks if they are the other half. 0: it is on one disk, with its copies on the next
    /// ones.
    pub stripes: u8,
    /// All read one file of fragments instead. Each pair of readers reads two fragments, one after
    /// the other: the first reader this percentage of them, and the second the rest. 0: each has a
    /// file of its own.
    pub first_percent: u8,
    /// Copies of each file.
    pub copies: u8,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Rate of a disk, bytes per second.
    pub bytes_per_s: u64,
}

/// The parameters of one race.
#[derive(Clone, Debug)]
pub struct Race {
    /// The read policy of the clients.
    pub policy: ReadPolicy,
    /// Whether readers are the processes of a job.
    pub job: bool,
    /// Bytes of one call.
    pub call_bytes: u64,
    /// Slow disks, each with the remaining share of its speed.
    pub slow: Vec<(u8, f64)>,
    /// They alternate between slow and normal with this period; `None`: always slow.
    pub turn: Option<Duration>,
    /// The server of a disk that is killed, and the time after the start.
    pub dies: Option<(u8, Duration)>,
}

/// The result of a race.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When each reader finished.
    pub ends: Vec<Duration>,
    /// Bytes read from each disk.
    pub disk_bytes: Vec<u64>,
    /// Number of seeks of each disk.
    pub turns: Vec<u64>,
    /// Bytes of each reader after each tenth of a second.
    pub course: Vec<Vec<u64>>,
    /// Bytes read from each disk after each tenth of a second.
    pub disk_course: Vec<Vec<u64>>,
}

impl Outcome {
    /// When the last reader finished.
    pub fn slowest(&self) -> Duration {
        self.ends.iter().copied().max().unwrap_or_default()
    }

    /// Mean number of bytes that a disk reads between two seeks.
    pub fn run_bytes(&self) -> f64 {
        let turns: u64 = self.turns.iter().sum();
        self.disk_bytes.iter().sum::<u64>() as f64 / turns.max(1) as f64
    }
}

/// A cluster with the files of a track.
pub struct Arena {
    track: Track,
    cluster: Cluster,
    parts: Vec<Part>,
}

/// Processes that are killed with their cluster never release their disks, so these are emptied.
impl Drop for Arena {
    fn drop(&mut self) {
        (0..usize::from(self.track.disks)).for_each(|n| self.disk(n).wipe());
    }
}

/// The part of a file that a reader reads.
#[derive(Clone)]
struct Part {
    file: FileId,
    bytes: Range<u64>,
}

impl Arena {
    /// Starts the cluster and writes the files. Errors: what went wrong.
    pub fn new(track: Track) -> std::result::Result<Self, String> {
        let shared = Rc::new(Shared::new(plan_of(&track)));
        let mut cluster = Cluster::new(shared, Options::default());
        cluster.set_up()?;
        let made: Rc<RefCell<Result<Vec<Part>>>> = Rc::new(RefCell::new(Ok(Vec::new())));
        let (makes, of) = (made.clone(), track.clone());
        let maker =
            cluster.start_auditor(move |_, config| *makes.borrow_mut() = write_all(&config, &of));
        cluster.wait_for(&[maker], "write the files")?;
        let parts = made.replace(Ok(Vec::new())).map_err(|e| e.to_string())?;
        Ok(Self { track, cluster, parts })
    }

    /// All readers read their files, each through a new mount. Errors: what went wrong.
    pub fn race(&mut self, race: &Race) -> std::result::Result<Outcome, String> {
        let disks = usize::from(self.track.disks);
        let before: Vec<u64> = (0..disks).map(|n| self.disk(n).read_bytes()).collect();
        let turned: Vec<u64> = (0..disks).map(|n| self.disk(n).turns()).collect();
        self.set_rates(race, true);
        (0..disks).for_each(|n| self.disk(n).set_not_cached(1.0));
        // A mean from before this pause does not influence the race.
        self.cluster.sim.run_for(Duration::from_secs(30));
        let runners = usize::from(self.track.readers);
        let log: Rc<RefCell<Vec<Runner>>> = Rc::new(RefCell::new(vec![Runner::default(); runners]));
        let begin = self.cluster.sim.now() + Duration::from_secs(1);
        let mut config = self.cluster.client_config(true);
        config.read_policy = race.policy;
        config.read_ahead_bytes = 0;
        let readers: Vec<_> =
            (0..runners).map(|n| self.start(n, race, &config, begin, &log)).collect();
        let mut disk_course = vec![Vec::new(); disks];
        let mut sample = |arena: &Self| {
            for (n, course) in disk_course.iter_mut().enumerate() {
                course.push(arena.disk(n).read_bytes() - before[n]);
            }
        };
        let done = self.run(race, begin, &readers, &mut sample);
        for n in 0..disks {
            self.disk(n).set_rate(0);
            self.disk(n).set_not_cached(0.0);
        }
        let log = log.take();
        if let Some(trouble) = log.iter().find_map(|runner| runner.trouble.clone()) {
            return Err(trouble);
        }
        if !done {
            return Err(format!("not done within {MAX_TIME:?}"));
        }
        let turns = (0..disks).map(|n| self.disk(n).turns() - turned[n]).collect();
        let disk_bytes = (0..disks).map(|n| self.disk(n).read_bytes() - before[n]).collect();
        let ends = log.iter().map(|runner| runner.end - begin).collect();
        let course = log.into_iter().map(|runner| runner.course).collect();
        Ok(Outcome { ends, disk_bytes, turns, course, disk_course })
    }

    /// Alternates slow disks until all readers have ended; returns whether they have. `sample` is
    /// called every tenth of a second.
    fn run(
        &mut self,
        race: &Race,
        begin: Duration,
        readers: &[weir_simhost::ProcessId],
        sample: &mut dyn FnMut(&Self),
    ) -> bool {
        let end = begin + MAX_TIME;
        let mut dies = race.dies.map(|(server, after)| (server, begin + after));
        let (mut next, mut are_slow) = (race.turn.map_or(end, |turn| begin + turn), true);
        let mut tenth = begin;
        loop {
            let have_ended = |sim: &weir_simhost::Simulation| {
                readers.iter().all(|reader| !sim.is_running(*reader))
            };
            if self.cluster.sim.run_until(next.min(tenth), have_ended) {
                return true;
            }
            if let Some((server, _)) = dies.take_if(|(_, at)| *at <= next.min(tenth)) {
                self.cluster.sim.kill(self.cluster.processes[&NodeName::Data(server)]);
            }
            if tenth <= next {
                sample(self);
                tenth += Duration::from_millis(100);
                continue;
            }
            let Some(turn) = race.turn.filter(|_| next < end) else { return false };
            are_slow = !are_slow;
            self.set_rates(race, are_slow);
            next += turn;
        }
    }

    fn set_rates(&self, race: &Race, are_slow: bool) {
        for n in 0..usize::from(self.track.disks) {
            let left = race.slow.iter().find(|(slow, _)| are_slow && usize::from(*slow) == n);
            let rate = self.track.bytes_per_s as f64 * left.map_or(1.0, |(_, left)| *left);
            self.disk(n).set_rate(rate as u64);
        }
    }

    fn disk(&self, n: usize) -> &weir_simhost::disk::SimDisk {
        self.cluster.disk(NodeName::Data(n as u8))
    }

    fn start(
        &mut self,
        n: usize,
        race: &Race,
        config: &ClientConfig,
        begin: Duration,
        log: &Rc<RefCell<Vec<Runner>>>,
    ) -> weir_simhost::ProcessId {
        let (part, config, log, race) =
            (self.parts[n].clone(), config.clone(), log.clone(), race.clone());
        let member = race.job.then_some(Member {
            job: JobId(7),
            rank: Rank(n as u32),
            ranks: self.track.readers.into(),
            shared: false,
        });
        let node = self.cluster.nodes[&NodeName::Client(n as u8)];
        self.cluster.sim.start(node, "reader", move || {
            let read = || -> Result<()> {
                let client = Client::connect(config)?;
                let open = client.open(&Context::root(), part.file, Rights::READ)?.0;
                let pages = Arc::new(Pages::new(open, part.bytes, member));
                let workers: Vec<_> = (0..MOUNT_THREADS)
                    .map(|_| {
                        let pages = pages.clone();
                        thread::spawn("mount", move || pages.serve())
                    })
                    .collect();
                thread::sleep(begin.saturating_sub(now()));
                let read = pages.read_all(race.call_bytes, |bytes| {
                    let runner = &mut log.borrow_mut()[n];
                    let tenths = ((now() - begin).as_millis() / 100) as usize;
                    runner.course.resize(tenths + 1, bytes);
                    runner.end = now();
                });
                pages.close();
                for worker in workers.into_iter().flatten() {
                    // The simulation reports its panic.
                    let _ = worker.join();
                }
                client.shutdown();
                read
            };
            if let Err(error) = read() {
                log.borrow_mut()[n].trouble = Some(format!("reader {n}: {error}"));
            }
        })
    }
}

#[derive(Clone, Default)]
struct Runner {
    end: Duration,
    course: Vec<u64>,
    trouble: Option<String>,
}

/// The page cache of a kernel for one sequential reader of a file or a part of it.
struct Pages {
    file: File,
    part: Range<u64>,
    reader: Option<Arc<JobReader>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: VecDeque<Range<u64>>,
    /// Cached ranges, by their first byte.
    here: BTreeMap<u64, u64>,
    failed: Option<weir_types::Error>,
    closed: bool,
}

impl Pages {
    fn new(file: File, part: Range<u64>, member: Option<Member>) -> Self {
        let ranges = (part != (0..file.size())).then(|| Arc::new(Partition::new([part.clone()])));
        let reader = member.map(|member| Arc::new(JobReader::of_ranges(member, ranges)));
        if let Some(reader) = &reader {
            reader.reads(file.size());
        }
        Self { file, part, reader, state: Mutex::default(), changed: Condvar::default() }
    }

    /// A thread of the mount.
    fn serve(&self) {
        let mut buffer = vec![0; REQUEST_BYTES as usize];
        loop {
            let mut state = self.state.lock();
            let range = loop {
                if state.closed {
                    return;
                }
                match state.asked.pop_front() {
                    Some(range) => break range,
                    None => state = self.changed.wait(state),
                }
            };
            drop(state);
            let buffer = &mut buffer[..(range.end - range.start) as usize];
            let read = self.file.read_at(&self.context(), range.start, buffer);
            let mut state = self.state.lock();
            match read.and_then(|len| self.check(range.start, &buffer[..len]).map(|()| len)) {
                Ok(len) => {
                    if let Some(reader) = &self.reader {
                        reader.has_read(range.start..range.start + len as u64);
                    }
                    state.here.insert(range.start, range.start + len as u64);
                }
                Err(error) => state.failed = Some(error),
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Fails if the bytes differ from the written ones.
    fn check(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut expected = vec![0; bytes.len()];
        fill(&mut expected, self.file.id(), at);
        if expected != bytes {
            let what = format!("other bytes than were written from {at} on");
            return Err(Error::new(ErrorKind::Internal, what));
        }
        Ok(())
    }

    fn context(&self) -> Context {
        Context { reader: self.reader.clone(), ..Context::root() }
    }

    /// The program: reads with calls of this size, and reports the bytes so far.
    fn read_all(&self, call_bytes: u64, mut had: impl FnMut(u64)) -> Result<()> {
        let Range { start, end: all } = self.part;
        let (mut ahead, mut asked, mut marker) = (FIRST_AHEAD_BYTES, start, start);
        let mut position = start;
        while position < all {
            let end = (position + call_bytes).min(all);
            // A read of the first page of the read-ahead starts more read-ahead; so does a read of
            // a page that was not requested.
            while marker < end && asked < all {
                marker = asked;
                let until = (asked + ahead).min(all);
                self.ask(asked..until);
                (asked, ahead) = (until, (2 * ahead).min(AHEAD_BYTES));
            }
            self.wait_for(position..end)?;
            position = end;
            had(position - start);
        }
        Ok(())
    }

    fn ask(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        let starts = range.clone().step_by(REQUEST_BYTES as usize);
        state.asked.extend(starts.map(|at| at..(at + REQUEST_BYTES).min(range.end)));
        drop(state);
        self.changed.notify_all();
    }

    fn wait_for(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        let mut state = self.state.lock();
        while at < range.end {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            match state.here.range(..=at).next_back() {
                Some((_, end)) if *end > at => at = *end,
                _ => state = self.changed.wait(state),
            }
        }
        Ok(())
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

fn write_all(config: &ClientConfig, track: &Track) -> Result<Vec<Part>> {
    let client = Client::connect(config.clone())?;
    let parts = if track.first_percent > 0 {
        write_fragments(&client, track)
    } else {
        (0..track.readers).map(|n| write_own(&client, track, n)).collect()
    };
    client.shutdown();
    parts
}

/// Writes a file for one reader.
fn write_own(client: &Client, track: &Track, n: u8) -> Result<Part> {
    let (base, count) = if track.stripes > 0 { (0, track.stripes) } else { (n, 1) };
    let in_groups = track.copies == 2 && 2 * track.stripes == track.disks;
    let layout = LayoutSpec {
        base: Some(base.into()),
        count: count.into(),
        copies: track.copies,
        placement: if in_groups { Placement::Groups } else { Placement::Chained },
        ..LayoutSpec::default()
    };
    let bytes = 0..track.file_bytes;
    Ok(Part { file: write(client, &format!("race{n}"), layout, bytes.end)?, bytes })
}

/// Writes one file for all, with a fragment on each disk.
fn write_fragments(client: &Client, track: &Track) -> Result<Vec<Part>> {
    let layout = LayoutSpec {
        kind: LayoutKind::Fragments,
        base: Some(0),
        count: track.disks.into(),
        segment_bytes: track.file_bytes,
        copies: track.copies,
        ..LayoutSpec::default()
    };
    let all_bytes = track.file_bytes * u64::from(track.disks);
    let file = write(client, "race", layout, all_bytes)?;
    let pair_bytes = 2 * track.file_bytes;
    let first_bytes = pair_bytes * u64::from(track.first_percent) / 100;
    let part = |n: u8| {
        let begin = u64::from(n / 2) * pair_bytes;
        let turn = begin + first_bytes;
        let bytes = if n.is_multiple_of(2) { begin..turn } else { turn..begin + pair_bytes };
        Part { file, bytes }
    };
    Ok((0..track.readers).map(part).collect())
}

fn write(client: &Client, name: &str, layout: LayoutSpec, len_bytes: u64) -> Result<FileId> {
    let (ctx, mut bytes) = (Context::root(), vec![0; MIB as usize]);
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, attr) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options)?;
    for at in (0..len_bytes).step_by(bytes.len()) {
        let len = (len_bytes - at).min(MIB) as usize;
        fill(&mut bytes[..len], attr.file, at);
        file.write_at(&ctx, at, &bytes[..len])?;
    }
    file.sync(&ctx)?;
    file.close(&ctx)?;
    Ok(attr.file)
}

/// The contents of a file from an offset on: every eight bytes identify the file and the place.
fn fill(bytes: &mut [u8], file: FileId, at: u64) {
    let told = |word: u64| (word ^ file.0.rotate_left(40)).to_le_bytes();
    let (head, words) = bytes.split_at_mut(bytes.len().min((at.next_multiple_of(8) - at) as usize));
    head.copy_from_slice(&told(at / 8)[(at % 8) as usize..][..head.len()]);
    for (word, bytes) in (at.div_ceil(8)..).zip(words.chunks_mut(8)) {
        bytes.copy_from_slice(&told(word)[..bytes.len()]);
    }
}

fn plan_of(track: &Track) -> Plan {
    let mut plan = plan(track.seed, track.disks);
    plan.shape.shared_files = 1;
    let idle = ClientPlan { write_behind: false, keeps_pages: false, ops: Vec::new() };
    plan.clients = vec![idle; usize::from(track.readers)];
    plan
}
