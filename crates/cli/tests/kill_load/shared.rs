//! Files that both mounts use: a board, on which each writes what the other reads, and
//! a log, to which both append.

use super::judge::{Judge, Kind, clock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_conformance::Random;

const SLOTS: u64 = 8;
const SLOT_BYTES: usize = 4096;
const SYNC_EVERY: u64 = 16;

/// An open file, which is opened again when the mount's process was replaced.
struct Reopened {
    path: PathBuf,
    options: OpenOptions,
    /// Nothing: it could not be opened yet.
    file: Option<File>,
    remounts: u64,
}

impl Reopened {
    fn new(path: &Path, options: &OpenOptions) -> Self {
        let file = Some(options.open(path).unwrap());
        Self { path: path.to_owned(), options: options.clone(), file, remounts: 0 }
    }

    /// Whether what was open is gone, and with it what was not synced.
    fn is_gone(&mut self, judge: &Judge) -> bool {
        let remounts = judge.policy().remounts;
        let is_gone = remounts != self.remounts;
        if is_gone {
            (self.file, self.remounts) = (None, remounts);
        }
        is_gone
    }

    /// Whether nobody serves the mount any more on which it was opened. The kernel asks for that;
    /// by its path it may be another one already, or none.
    fn is_dead(&self, judge: &Judge) -> bool {
        let asked = self.file.as_ref().map_or(Err(Errno::NOTCONN), rustix::fs::fstatvfs);
        let gone = |e| [Errno::NOTCONN, Errno::CONNABORTED].contains(&e);
        judge.policy().remounts != self.remounts || asked.is_err_and(gone)
    }

    /// `None`: it cannot be opened, which is excused.
    fn get(&mut self, judge: &Judge) -> Option<&File> {
        if self.file.is_none() {
            let what = format!("open {}", self.path.display());
            let open = || self.options.open(&self.path);
            self.file = Some(judge.call(Kind::Name, &what, false, open)?);
        }
        self.file.as_ref()
    }
}

/// A mount's slots of the board. What has been acknowledged is in a local file, which
/// the other mount's reader looks at before it reads.
pub struct BoardWriter {
    board: Reopened,
    promised: File,
    first: u64,
    judge: Judge,
    random: Random,
    values: [u64; SLOTS as usize],
    /// What is in the slots if no call fails before the next sync.
    written: [u64; SLOTS as usize],
    steps: u64,
    /// As the policy had it before the last sync: what was written since is certain as
    /// long as it has not changed.
    risks: u64,
}

fn local(path: &Path) -> File {
    File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}

/// What is certain of a slot, in the local file.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    synced: u64,
    /// Written, and it may be with the writer only: if that is cut off, it is lost.
    written: u64,
    /// When it was: see [`BoardWriter::risks`].
    risks: u64,
}

const PROMISE_BYTES: usize = 24;

impl Promise {
    /// Nothing is certain of what was never written.
    fn read(file: &File, slot: u64) -> Self {
        let mut bytes = [0; PROMISE_BYTES];
        if file.read_exact_at(&mut bytes, slot * PROMISE_BYTES as u64).is_err() {
            return Self::default();
        }
        let word = |n: usize| u64::from_le_bytes(bytes[n * 8..][..8].try_into().unwrap());
        Self { synced: word(0), written: word(1), risks: word(2) }
    }
}

impl BoardWriter {
    pub fn new(board: &Path, promised: &Path, first: u64, judge: Judge, seed: u64) -> Self {
        let board = Reopened::new(board, OpenOptions::new().write(true));
        let (values, written) = ([0; SLOTS as usize], [0; SLOTS as usize]);
        let (random, promised) = (Random::new(seed), local(promised));
        Self { board, promised, first, judge, random, values, written, steps: 0, risks: 0 }
    }

    pub fn step(&mut self) {
        self.steps += 1;
        if self.board.is_gone(&self.judge) {
            self.forget();
        }
        let slot = self.random.below(SLOTS);
        self.values[slot as usize] += 1;
        let value = self.values[slot as usize];
        let at = (self.first + slot) * SLOT_BYTES as u64;
        let page = value.to_le_bytes().repeat(SLOT_BYTES / 8);
        let what = format!("write {value} to slot {} of the board", self.first + slot);
        let risky = self.is_risky();
        let Some(board) = self.board.get(&self.judge) else { return };
        match self.judge.call(Kind::Write, &what, risky, || board.write_all_at(&page, at)) {
            Some(()) => {
                self.written[slot as usize] = value;
                self.promise(slot, |before| Promise { written: value, ..before });
            }
            None => self.forget(),
        }
        if self.steps.is_multiple_of(SYNC_EVERY) {
            self.sync();
        }
    }

    fn sync(&mut self) {
        let risks = self.judge.risks();
        let risky = self.is_risky();
        let Some(board) = self.board.get(&self.judge) else { return };
        match self.judge.call(Kind::Write, "fsync the board", risky, || board.sync_all()) {
            Some(()) => {
                self.risks = risks;
                for slot in 0..SLOTS {
                    let synced = self.written[slot as usize];
                    self.promise(slot, |before| Promise {
                        synced: synced.max(before.synced),
                        ..before
                    });
                }
            }
            None => self.forget(),
        }
    }

    /// Something failed, or may have, since the last sync: an error may still come of it.
    fn is_risky(&self) -> bool {
        self.judge.risks() != self.risks
    }

    fn promise(&self, slot: u64, change: impl Fn(Promise) -> Promise) {
        let promise = change(Promise::read(&self.promised, slot));
        let promise = Promise { risks: self.risks, ..promise };
        let words = [promise.synced, promise.written, promise.risks].map(u64::to_le_bytes);
        self.promised.write_all_at(&words.concat(), slot * PROMISE_BYTES as u64).unwrap();
    }

    /// After an error only what was synced is certain, now and by the next sync.
    fn forget(&mut self) {
        self.written = [0; SLOTS as usize];
        (0..SLOTS).for_each(|slot| self.promise(slot, |before| Promise { written: 0, ..before }));
    }
}

/// Reads what the other mount has written.
pub struct BoardReader {
    board: Reopened,
    promised: File,
    first: u64,
    judge: Judge,
    random: Random,
}

impl BoardReader {
    pub fn new(board: &Path, promised: &Path, first: u64, judge: Judge, seed: u64) -> Self {
        let board = Reopened::new(board, OpenOptions::new().read(true));
        let promised = local(promised);
        Self { board, promised, first, judge, random: Random::new(seed) }
    }

    pub fn step(&mut self) {
        let slot = self.random.below(SLOTS);
        let at = (self.first + slot) * SLOT_BYTES as u64;
        let promise = Promise::read(&self.promised, slot);
        let mut page = vec![0; SLOT_BYTES];
        let what = format!("read slot {} of the board", self.first + slot);
        self.board.is_gone(&self.judge);
        let Some(board) = self.board.get(&self.judge) else { return };
        let read = || board.read_exact_at(&mut page, at);
        if self.judge.call(Kind::Read, &what, false, read).is_none() {
            return;
        }
        let risks = self.judge.risks();
        let least = match promise.risks == risks && risks.is_multiple_of(2) {
            true => promise.synced.max(promise.written),
            false => promise.synced,
        };
        let words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        // A failed write may have been done or not, so several are possible beyond.
        for word in words {
            // Of a mount whose process has died the kernel may still show pages, however old
            // (docs/semantics.md).
            if word < least && self.board.is_dead(&self.judge) {
                return;
            }
            assert!(
                word >= least,
                "{} {what}: {word} is stale, {least} is certain: {promise:?}, risks {risks}",
                clock()
            );
        }
    }
}

/// Appends lines to a log that others append to.
pub struct Appender {
    log: Reopened,
    who: u64,
    next: u64,
    judge: Judge,
    /// Numbers of lines that may be there or not.
    doubtful: BTreeSet<u64>,
    /// The first line that is not synced: a failed call says that it may be lost, and
    /// those after it.
    unsynced: u64,
    /// As for [`BoardWriter`].
    risks: u64,
}

/// So long is each line.
const LINE_BYTES: usize = 24;

impl Appender {
    pub fn new(log: &Path, who: u64, judge: Judge) -> Self {
        let log = Reopened::new(log, OpenOptions::new().append(true).read(true));
        Self { log, who, next: 0, judge, doubtful: BTreeSet::new(), unsynced: 0, risks: 0 }
    }

    pub fn step(&mut self) {
        let line = format!("{:03} {:018}\n", self.who, self.next);
        assert_eq!(line.len(), LINE_BYTES - 1);
        let line = format!("{line}\n");
        let what = format!("append {} to the log", self.next);
        if self.log.is_gone(&self.judge) {
            self.is_told();
        }
        let risky = self.is_risky();
        let Some(mut log) = self.log.get(&self.judge) else { return };
        let append = || log.write_all(line.as_bytes());
        let appended = self.judge.call(Kind::Write, &what, risky, append);
        self.next += 1;
        if appended.is_none() {
            self.is_told();
        }
        if self.next.is_multiple_of(SYNC_EVERY) {
            self.sync();
        }
    }

    fn sync(&mut self) {
        let risks = self.judge.risks();
        let risky = self.is_risky();
        let Some(log) = self.log.get(&self.judge) else { return };
        match self.judge.call(Kind::Write, "fsync the log", risky, || log.sync_all()) {
            Some(()) => (self.unsynced, self.risks) = (self.next, risks),
            None => self.is_told(),
        }
    }

    fn is_risky(&self) -> bool {
        self.judge.risks() != self.risks
    }

    /// A call has failed: what is not synced may be lost.
    fn is_told(&mut self) {
        self.doubtful.extend(self.unsynced..self.next);
        self.unsynced = self.next;
    }

    /// Its lines are there, each once, in their order.
    pub fn verify(&mut self, log: &Path) {
        if self.log.is_gone(&self.judge) {
            self.is_told();
        }
        self.sync();
        let text = self.judge.call(Kind::Read, "read the log", false, || fs::read(log));
        let Some(text) = text else { return };
        let mine = format!("{:03} ", self.who);
        let found = lines_of(&text, &mine);
        let sure: Vec<u64> = (0..self.next).filter(|n| !self.doubtful.contains(n)).collect();
        let kept: Vec<u64> = found.iter().copied().filter(|n| !self.doubtful.contains(n)).collect();
        if sure != kept {
            let first = sure.iter().zip(&kept).find(|(s, k)| s != k);
            // Whether there is nothing where a line was, or what another wrote.
            let at = first.and_then(|(s, _)| {
                text.windows(mine.len() + 18).position(|w| {
                    w.starts_with(mine.as_bytes())
                        && w.ends_with(format!("{:018}", s - 1).as_bytes())
                })
            });
            let around = at.map(|at| {
                let part = &text[at..text.len().min(at + 8 * LINE_BYTES)];
                (at, String::from_utf8_lossy(part).into_owned())
            });
            panic!(
                "the log: {} lines of {} acknowledged; line and what is there instead: {first:?}; \
                 from the line before it on: {around:?}",
                kept.len(),
                sure.len()
            );
        }
    }
}

/// The numbers of one writer's lines.
fn lines_of(text: &[u8], mine: &str) -> Vec<u64> {
    let lines = text.split(|byte| *byte == b'\n');
    let numbers = lines.flat_map(|line| {
        // Zeros are where a line was lost, or the part of one that lies on another column: what
        // is left of that is no line, and what comes after it is one of its own.
        let is_torn = line.contains(&0);
        let parts = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let whole = parts.filter(move |part| !is_torn || part.len() == LINE_BYTES - 2);
        whole.filter_map(|part| {
            let number = part.strip_prefix(mine)?;
            Some(number.parse::<u64>().unwrap_or_else(|e| panic!("{part}: {e}")))
        })
    });
    numbers.collect()
}

#[test]
fn what_is_left_of_a_lost_line_is_not_taken_for_one_and_hides_none() {
    let line = |number: u64| format!("002 {number:018}\n\n");
    let lost = format!("{}\0\0\0", &line(2)[..8]);
    let text = [&line(1), &lost, &line(3), "\0\0", &line(4)[8..], &line(5), &line(6)].concat();
    let theirs = text.replace("002 ", "001 ");
    assert_eq!(lines_of((text + &theirs).as_bytes(), "002 "), [1, 3, 5, 6]);
}
