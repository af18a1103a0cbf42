//! Clients of files with parities, and the expected contents of the files.

use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, File};
use weir_host::simulated;
use weir_host::sync::Mutex;
use weir_host::thread::{JoinHandle, sleep, spawn};
use weir_types::{ErrorKind, FileId, Result};
use weir_wire::Rights;

/// Maximum size of a file.
const MOST: usize = 48 << 10;
/// Bytes of a piece: each piece of a read must come from one version of the file.
const PIECE: usize = 512;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// The most reads of a client beside a change of its own, and the pause between two.
const MOST_BESIDE: usize = 32;
const PAUSE_BESIDE: Duration = Duration::from_millis(20);
/// The most reads of a file one after another.
const MOST_LOOKS: u8 = 6;
/// Number of recent versions that may be read: without leases, a copy that takes over may or may
/// not have the last write yet.
const GO_AND_COME: usize = 2;

/// A change of a file.
#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, bytes: Vec<u8> },
    Cut(usize),
    Anew(Vec<u8>),
}

impl Step {
    fn random(rng: &mut Rng, len: usize) -> Self {
        let noise = |rng: &mut Rng, len: usize| (0..len).map(|_| rng.u8(1..)).collect();
        match rng.u8(0..8) {
            0 if len > 1 => Self::Cut(rng.usize(1..len)),
            1 => {
                let len = rng.usize(1..MOST);
                Self::Anew(noise(rng, len))
            }
            _ => {
                let offset = rng.usize(0..MOST - 1);
                let len = rng.usize(1..=(MOST - offset).min(16 << 10));
                Self::Write { offset, bytes: noise(rng, len) }
            }
        }
    }

    fn apply(&self, to: &[u8]) -> Vec<u8> {
        let mut to = to.to_vec();
        match self {
            Self::Cut(len) => to.truncate(*len),
            Self::Anew(bytes) => to.clone_from(bytes),
            Self::Write { offset, bytes } => {
                to.resize(to.len().max(offset + bytes.len()), 0);
                to[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
        to
    }

    fn perform(&self, client: &Client, file: FileId) -> Result<()> {
        let ctx = Context::root();
        let (open, _) = client.open(&ctx, file, Rights::READ_WRITE)?;
        let change = || match self {
            Self::Cut(len) => open.truncate(&ctx, *len as u64).map(drop),
            Self::Anew(bytes) => {
                open.truncate(&ctx, 0)?;
                open.write_at(&ctx, 0, bytes).map(drop)
            }
            Self::Write { offset, bytes } => open.write_at(&ctx, *offset as u64, bytes).map(drop),
        };
        let changed = change().and_then(|()| open.sync(&ctx).map(drop));
        let closed = open.close(&ctx).map(drop);
        changed.and(closed)?;
        client.sync_metadata(&ctx).map(drop)
    }
}

/// The expected contents of a file.
struct Kept {
    id: FileId,
    /// All versions that were begun. The last one may be in progress.
    versions: Vec<Vec<u8>>,
    /// The change in progress. A client that was killed during it, or got an error, begins it
    /// again.
    pending: Option<Step>,
    /// Versions that may be on a disk in part, and how long the file was before each. See
    /// [`Kept::may_be_in_part`].
    in_part: Vec<(usize, usize)>,
}

impl Kept {
    /// Notes that a full disk may have a part of the last version until the change is carried out. A
    /// write that fails there for lack of space may have replaced bytes in front of the old end, but
    /// the object stays as long as it was. So the bytes up to that end may be new and those after it
    /// zeros, even in one piece.
    fn may_be_in_part(&mut self) {
        if let [.., before, _] = &self.versions[..] {
            let of_last = (self.versions.len() - 1, before.len());
            if self.in_part.last() != Some(&of_last) {
                self.in_part.push(of_last);
            }
        }
    }

    /// Compares what was read since the version `oldest` was the newest that is certain. Returns the
    /// first byte that is wrong.
    fn wrong_with(&self, read: &[u8], oldest: usize) -> Option<usize> {
        let in_part = self.in_part.iter().filter(|(version, _)| *version > oldest);
        let ends: Vec<usize> = in_part.map(|(_, end)| *end).collect();
        wrong_with(read, &self.versions[oldest..], &ends)
    }
}

/// All files, and what is wrong.
pub(super) struct World {
    files: RefCell<Vec<Kept>>,
    leases: bool,
    /// Whether clients should end.
    pub over: Cell<bool>,
    /// Number of columns that clients have computed because a disk was slow.
    pub computed: Cell<u64>,
    /// The first error.
    pub trouble: RefCell<Option<String>>,
    /// The last observation of a waiting process.
    pub last: RefCell<String>,
    seeds: RefCell<Rng>,
}

impl World {
    pub fn new(seed: u64, leases: bool) -> Self {
        Self {
            files: RefCell::default(),
            leases,
            over: Cell::new(false),
            computed: Cell::new(0),
            trouble: RefCell::default(),
            last: RefCell::default(),
            seeds: RefCell::new(Rng::with_seed(seed)),
        }
    }

    pub fn add(&self, files: &[FileId]) {
        let kept = |id: &FileId| Kept {
            id: *id,
            versions: vec![Vec::new()],
            pending: None,
            in_part: Vec::new(),
        };
        self.files.borrow_mut().extend(files.iter().map(kept));
    }

    pub fn ids(&self) -> Vec<FileId> {
        self.files.borrow().iter().map(|file| file.id).collect()
    }

    /// The files, and what each should hold. Nothing is under way.
    pub fn contents(&self) -> Vec<(FileId, Vec<u8>)> {
        let of = |file: &Kept| (file.id, file.versions.last().cloned().unwrap_or_default());
        self.files.borrow().iter().map(of).collect()
    }

    pub fn complain(&self, what: String) {
        let now = simulated::current().map_or(Duration::ZERO, |machine| machine.now());
        let what = format!("at {:.3} s: {what}", now.as_secs_f64());
        self.trouble.borrow_mut().get_or_insert(what);
    }

    fn seed(&self) -> u64 {
        self.seeds.borrow_mut().u64(..)
    }

    /// The oldest version that a read which begins at present may return.
    fn oldest(&self, number: usize) -> usize {
        let file = &self.files.borrow()[number];
        let last = file.versions.len() - 1;
        // The change in progress may be visible or not. A file that is emptied first is empty for a
        // while.
        match &file.pending {
            Some(Step::Anew(_)) => last.saturating_sub(2),
            Some(_) => last.saturating_sub(1),
            None => last,
        }
    }

    /// Begins a change, or resumes the one in progress, and tries until it succeeds.
    fn change(&self, client: &Client, number: usize, rng: &mut Rng) {
        let oldest = self.oldest(number);
        let id = self.files.borrow()[number].id;
        let beside = if rng.bool() { Beside::begin(client, id) } else { None };
        let step = {
            let mut files = self.files.borrow_mut();
            let file = &mut files[number];
            let last = file.versions.last().cloned().unwrap_or_default();
            // A killed client has told nobody of its errors.
            let is_resumed = file.pending.is_some();
            let step = file.pending.clone().unwrap_or_else(|| {
                let step = Step::random(rng, last.len());
                if let Step::Anew(_) = step {
                    file.versions.push(Vec::new());
                }
                file.versions.push(step.apply(&last));
                step
            });
            file.pending = Some(step.clone());
            // Without leases others see what has failed before the client knows.
            if is_resumed || !self.leases {
                file.may_be_in_part();
            }
            step
        };
        while let Err(error) = step.perform(client, id) {
            if error.kind == ErrorKind::NoSpace {
                self.files.borrow_mut()[number].may_be_in_part();
            }
            *self.last.borrow_mut() = format!("file {id}: {error}");
            sleep(PAUSE);
        }
        self.files.borrow_mut()[number].pending = None;
        for read in beside.map(Beside::end).unwrap_or_default() {
            self.compare(number, oldest, &read);
        }
    }

    /// Reads a file and compares it. Returns whether it could be read.
    fn look(&self, client: &Client, number: usize) -> bool {
        let oldest = self.oldest(number);
        let id = self.files.borrow()[number].id;
        let read = match read(client, id) {
            Ok(read) => read,
            Err(error) => {
                *self.last.borrow_mut() = format!("file {id}: {error}");
                return false;
            }
        };
        self.compare(number, oldest, &read);
        true
    }

    /// Compares what was read since the version `oldest` was the newest that is certain.
    fn compare(&self, number: usize, oldest: usize, read: &[u8]) {
        let oldest = if self.leases { oldest } else { oldest.saturating_sub(GO_AND_COME) };
        let (wrong, id) = {
            let file = &self.files.borrow()[number];
            (file.wrong_with(read, oldest), file.id)
        };
        if let Some(at) = wrong {
            self.complain(format!("file {id}: byte {at} of {} is of no version", read.len()));
        }
    }

    /// Reads all files, which are no longer written, until each could be read.
    pub fn verify(&self, config: &ClientConfig) {
        let client = connect(config);
        for number in 0..self.ids().len() {
            while !self.look(&client, number) {
                sleep(PAUSE);
            }
        }
        client.shutdown();
    }
}

/// The first piece of a read that matches no version. Shorter versions count as padded with zeros.
/// Pieces are cut in two at `ends`.
fn wrong_with(read: &[u8], versions: &[Vec<u8>], ends: &[usize]) -> Option<usize> {
    let least = versions.iter().map(Vec::len).min().unwrap_or_default();
    if read.len() < least {
        return Some(read.len());
    }
    let is_of = |version: &Vec<u8>, at: usize, piece: &[u8]| {
        piece.iter().enumerate().all(|(i, byte)| version.get(at + i).unwrap_or(&0) == byte)
    };
    let ends = ends.iter().copied().filter(|end| *end < read.len());
    let mut borders: Vec<usize> = (0..read.len()).step_by(PIECE).chain(ends).collect();
    borders.push(read.len());
    borders.sort_unstable();
    let mut pieces = borders.windows(2).map(|of| (of[0], &read[of[0]..of[1]]));
    let wrong = pieces.find(|(at, piece)| !versions.iter().any(|v| is_of(v, *at, piece)));
    let longest = versions.iter().map(Vec::len).max().unwrap_or_default();
    wrong.map(|(at, _)| at).or((read.len() > longest).then_some(longest))
}

fn read(client: &Client, file: FileId) -> Result<Vec<u8>> {
    let ctx = Context::root();
    let (open, _) = client.open(&ctx, file, Rights::READ)?;
    let read = read_all(&open);
    open.close(&ctx)?;
    read
}

fn read_all(open: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; MOST + PIECE];
    let read = open.read_at(&Context::root(), 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads of a file by a thread of the client that changes it at the same time.
struct Beside {
    over: Arc<AtomicBool>,
    reads: Arc<Mutex<Vec<Vec<u8>>>>,
    thread: JoinHandle,
}

impl Beside {
    /// Begins. `None` if the file cannot be opened.
    fn begin(client: &Client, file: FileId) -> Option<Self> {
        let (open, _) = client.open(&Context::root(), file, Rights::READ).ok()?;
        let (over, reads) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<_>>::default());
        let (ends, to): (_, Arc<Mutex<Vec<_>>>) = (over.clone(), reads.clone());
        let read = move || {
            while !ends.load(Ordering::Relaxed) && to.lock().len() < MOST_BESIDE {
                if let Ok(read) = read_all(&open) {
                    to.lock().push(read);
                }
                sleep(PAUSE_BESIDE);
            }
            // It has changed nothing.
            let _ = open.close(&Context::root());
        };
        let thread = spawn("beside", read).ok()?;
        Some(Self { over, reads, thread })
    }

    /// What was read.
    fn end(self) -> Vec<Vec<u8>> {
        self.over.store(true, Ordering::Relaxed);
        // A panic of it is found like any other.
        let _ = self.thread.join();
        std::mem::take(&mut self.reads.lock())
    }
}

fn connect(config: &ClientConfig) -> Client {
    loop {
        match Client::connect(config.clone()) {
            Ok(client) => return client,
            Err(_) => sleep(PAUSE),
        }
    }
}

/// A client that writes its own files and reads all files, until the run is over.
pub(super) fn live(world: &World, own: Range<usize>, config: &ClientConfig) {
    let client = connect(config);
    let mut rng = Rng::with_seed(world.seed());
    let all = world.ids().len();
    // A killed client resumes its changes.
    let begun = |number: &usize| world.files.borrow()[*number].pending.is_some();
    for number in own.clone().filter(begun).collect::<Vec<_>>() {
        world.change(&client, number, &mut rng);
    }
    while !world.over.get() {
        match rng.u8(0..8) {
            0 | 1 => world.change(&client, rng.usize(own.clone()), &mut rng),
            2..6 => {
                // Of a disk that is slow the first read only tells.
                let number = rng.usize(0..all);
                for _ in 0..rng.u8(1..=MOST_LOOKS) {
                    world.look(&client, number);
                }
            }
            _ => sleep(Duration::from_millis(rng.u64(0..5_000))),
        }
        sleep(Duration::from_millis(rng.u64(0..300)));
    }
    // An empty file gets no parities.
    for number in own {
        let is_empty = world.files.borrow()[number].versions.last().is_none_or(Vec::is_empty);
        if is_empty {
            world.change(&client, number, &mut rng);
        }
    }
    let all = client.counters();
    let computed = all.iter().find(|(name, _)| name == "columns_computed");
    world.computed.set(world.computed.get() + computed.map_or(0, |(_, count)| *count));
    client.shutdown();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_of_one_version_unless_a_full_disk_may_have_a_part_of_it() {
        let step = Step::Write { offset: 700, bytes: vec![3; 2_000] };
        let before = vec![1; 1_100];
        let after = step.apply(&before);
        // New up to the old end, which is in the middle of a piece.
        let mut read = after.clone();
        read[before.len()..].fill(0);
        let mut kept = Kept {
            id: FileId(1),
            versions: vec![Vec::new(), before.clone(), after.clone()],
            pending: Some(step),
            in_part: Vec::new(),
        };
        assert_eq!(kept.wrong_with(&read, 1), Some(1_024));
        (0..2).for_each(|_| kept.may_be_in_part());
        assert_eq!(kept.in_part, [(2, 1_100)]);
        assert_eq!(kept.wrong_with(&read, 1), None);
        assert_eq!(kept.wrong_with(&before, 1), None);
        assert_eq!(kept.wrong_with(&after, 1), None);
        assert_eq!(kept.wrong_with(&read, 2), Some(1_024), "the change was carried out");
        let mut elsewhere = read.clone();
        elsewhere[1_099] = 0;
        assert_eq!(kept.wrong_with(&elsewhere, 1), Some(1_024));
        let mut behind = read.clone();
        behind[1_101] = 3;
        assert_eq!(kept.wrong_with(&behind, 1), Some(1_100));
    }
}
