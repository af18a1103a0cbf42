//! Files that both mounts use: a board, on which each writes what the other reads, and
//! a log, to which both append.

use super::judge::{Judge, Kind};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_conformance::Random;

const SLOTS: u64 = 8;
const SLOT_BYTES: usize = 4096;
const SYNC_EVERY: u64 = 16;

/// A mount's slots of the board. What has been acknowledged is in a local file, which
/// the other mount's reader looks at before it reads.
pub struct BoardWriter {
    board: File,
    acknowledged: File,
    first: u64,
    judge: Judge,
    random: Random,
    values: [u64; SLOTS as usize],
    steps: u64,
}

fn local(path: &Path) -> File {
    File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}

impl BoardWriter {
    pub fn new(board: &Path, acknowledged: &Path, first: u64, judge: Judge, seed: u64) -> Self {
        let board = File::options().write(true).open(board).unwrap();
        let values = [0; SLOTS as usize];
        let random = Random::new(seed);
        Self { board, acknowledged: local(acknowledged), first, judge, random, values, steps: 0 }
    }

    pub fn step(&mut self) {
        self.steps += 1;
        let slot = self.random.below(SLOTS);
        self.values[slot as usize] += 1;
        let value = self.values[slot as usize];
        let at = (self.first + slot) * SLOT_BYTES as u64;
        let page = value.to_le_bytes().repeat(SLOT_BYTES / 8);
        let what = format!("write {value} to slot {} of the board", self.first + slot);
        let written =
            self.judge.call(Kind::Write, &what, false, || self.board.write_all_at(&page, at));
        if written.is_some() {
            self.acknowledged.write_all_at(&value.to_le_bytes(), slot * 8).unwrap();
        }
        if self.steps.is_multiple_of(SYNC_EVERY) {
            self.judge.call(Kind::Write, "fsync the board", false, || self.board.sync_all());
        }
    }
}

/// Reads what the other mount has written.
pub struct BoardReader {
    board: File,
    acknowledged: PathBuf,
    first: u64,
    judge: Judge,
    random: Random,
}

impl BoardReader {
    pub fn new(board: &Path, acknowledged: &Path, first: u64, judge: Judge, seed: u64) -> Self {
        let board = File::open(board).unwrap();
        let random = Random::new(seed);
        Self { board, acknowledged: acknowledged.to_owned(), first, judge, random }
    }

    fn acknowledged(&self, slot: u64) -> u64 {
        let mut value = [0; 8];
        // Nothing has been acknowledged yet.
        let read =
            File::open(&self.acknowledged).and_then(|f| f.read_exact_at(&mut value, slot * 8));
        read.map_or(0, |()| u64::from_le_bytes(value))
    }

    pub fn step(&mut self) {
        let slot = self.random.below(SLOTS);
        let at = (self.first + slot) * SLOT_BYTES as u64;
        let least = self.acknowledged(slot);
        let mut page = vec![0; SLOT_BYTES];
        let what = format!("read slot {} of the board", self.first + slot);
        if self
            .judge
            .call(Kind::Read, &what, false, || self.board.read_exact_at(&mut page, at))
            .is_none()
        {
            return;
        }
        let words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        // A failed write may have been done or not, so several are possible beyond.
        for word in words {
            assert!(word >= least, "{what}: {word} is stale, {least} had been acknowledged");
        }
    }
}

/// Appends lines to a log that others append to.
pub struct Appender {
    log: File,
    who: u64,
    next: u64,
    judge: Judge,
    /// Numbers of lines that may be there or not.
    doubtful: BTreeSet<u64>,
}

/// So long is each line.
const LINE_BYTES: usize = 24;

impl Appender {
    pub fn new(log: &Path, who: u64, judge: Judge) -> Self {
        let log = OpenOptions::new().append(true).create(true).read(true).open(log).unwrap();
        Self { log, who, next: 0, judge, doubtful: BTreeSet::new() }
    }

    pub fn step(&mut self) {
        let line = format!("{:03} {:018}\n", self.who, self.next);
        assert_eq!(line.len(), LINE_BYTES - 1);
        let line = format!("{line}\n");
        let what = format!("append {} to the log", self.next);
        let mut log = &self.log;
        if self.judge.call(Kind::Write, &what, false, || log.write_all(line.as_bytes())).is_none() {
            self.doubtful.insert(self.next);
        }
        self.next += 1;
        if self.next.is_multiple_of(SYNC_EVERY) {
            self.judge.call(Kind::Write, "fsync the log", false, || self.log.sync_all());
        }
    }

    /// Its lines are there, each once, in their order.
    pub fn verify(&self, log: &Path) {
        let text = self.judge.call(Kind::Read, "read the log", false, || fs::read(log));
        let Some(text) = text else { return };
        let mine = format!("{:03} ", self.who);
        let lines = text.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        let numbers = lines.filter_map(|line| Some(line.strip_prefix(&mine)?.parse::<u64>()));
        let found: Vec<u64> = numbers.map(|number| number.unwrap()).collect();
        let sure: Vec<u64> = (0..self.next).filter(|n| !self.doubtful.contains(n)).collect();
        let kept: Vec<u64> = found.iter().copied().filter(|n| !self.doubtful.contains(n)).collect();
        let first = sure.iter().zip(&kept).position(|(s, k)| s != k);
        assert!(
            sure == kept,
            "the log: {} lines of {} acknowledged, and another at {first:?}",
            kept.len(),
            sure.len()
        );
    }
}
