//! A random sequence of operations: files are created, rewritten, touched, removed and put back,
//! directories are lost, sets are cleaned, and any command is stopped or fails at any step. When
//! `encode` has ended without findings, every file has its bytes, even if two directories are lost.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use trees::{Dirs, Fate, Random, but, paths, quiet};
use weir_reduce::{Purpose, Trouble, Wishes, encode, remove_files};

/// A removed file that may be put back: its bytes, and the places and times of its copies.
type Former = (Vec<u8>, Vec<(usize, SystemTime)>);

struct Model {
    random: Random,
    code: &'static str,
    tree: Dirs,
    /// The files before they were encoded.
    made: BTreeMap<String, Former>,
    gone: BTreeMap<String, Former>,
    /// Files whose removal was interrupted: they exist or not.
    unsure: BTreeMap<String, Vec<u8>>,
    /// Whether any two directories may be lost.
    is_firm: bool,
}

impl Model {
    fn pick(&mut self) -> Option<String> {
        let all = paths(&self.tree);
        (!all.is_empty()).then(|| all[self.random.below(all.len())].clone())
    }

    /// The fault during the next command, if any.
    fn trouble(&mut self) -> Option<(Fate, usize)> {
        let at = self.random.below(60);
        match self.random.below(4) {
            0 => Some((Fate::Stopped, at)),
            1 => Some((Fate::Refused, at)),
            _ => None,
        }
    }

    fn make(&mut self) {
        let path = format!("d/{}", self.random.below(14));
        if self.tree.files.contains_key(&path) || self.unsure.contains_key(&path) {
            return;
        }
        let count = self.tree.dirs.len();
        let bytes = vec![self.random.below(256) as u8; 3000 + self.random.below(9000)];
        let (first, away) = (self.random.below(count), 1 + self.random.below(count - 2));
        for dir in [first, first + away, first + away + 1] {
            self.tree.put(dir % count, &path, &bytes);
        }
        self.made.insert(path.clone(), (bytes.clone(), self.tree.places(&path)));
        self.gone.remove(&path);
        self.tree.files.insert(path, bytes);
    }

    fn restore(&mut self) {
        let all: Vec<String> = self.gone.keys().cloned().collect();
        if all.is_empty() {
            return;
        }
        let path = all[self.random.below(all.len())].clone();
        let (bytes, mut places) = self.gone.remove(&path).unwrap();
        match self.random.below(4) {
            0 => places.iter_mut().for_each(|place| place.1 = self.some_time()),
            1 => {
                let (by, count) = (1 + self.random.below(3), self.tree.dirs.len());
                places.iter_mut().for_each(|place| place.0 = (place.0 + by) % count);
            }
            _ => {}
        }
        // The copies of a file that was written after it was encoded.
        self.is_firm &= places.len() > 2;
        self.tree.files.insert(path.clone(), bytes.clone());
        self.tree.restore(&path, &places);
        self.made.insert(path, (bytes, places));
    }

    fn some_time(&mut self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + self.random.below(1 << 20) as u64)
    }

    /// Gives a file the same bytes with another time, or a further copy.
    fn touch(&mut self) {
        let Some(path) = self.pick() else { return };
        let copies = self.tree.places(&path);
        let (dir, modified) = copies[self.random.below(copies.len())];
        match self.random.below(2) {
            0 => {
                let modified = self.some_time();
                self.tree.restore(&path, &[(dir, modified)]);
            }
            _ => {
                let dir = self.random.below(self.tree.dirs.len());
                self.tree.restore(&path, &[(dir, modified)]);
            }
        }
    }

    fn write(&mut self) {
        let Some(path) = self.pick() else { return };
        let bytes = vec![self.random.below(256) as u8; 3000 + self.random.below(9000)];
        for (dir, _) in self.tree.places(&path) {
            self.tree.put(dir, &path, &bytes);
        }
        self.made.insert(path.clone(), (bytes.clone(), self.tree.places(&path)));
        self.tree.files.insert(path, bytes);
        self.is_firm = false;
    }

    fn remove(&mut self) {
        let some: Vec<String> = (0..1 + self.random.below(3)).filter_map(|_| self.pick()).collect();
        if some.is_empty() {
            return;
        }
        let trouble = self.trouble();
        let files = some.iter().cloned().collect();
        let mut open = self.tree.open(Purpose::Remove);
        let done = match trouble {
            None => remove_files(&mut open, &files, &mut quiet),
            Some((fate, at)) => remove_files(&mut open, &files, &mut but(fate, at)),
        };
        let is_done = done.as_ref().is_ok_and(|done| done.left.is_empty());
        let is_written = done.as_ref().is_ok_and(|done| {
            done.left.iter().all(|finding| finding.trouble == Trouble::Changed) && !self.is_firm
        });
        assert!(is_done || is_written || trouble.is_some(), "{done:?}");
        for path in files {
            let Some(bytes) = self.tree.files.remove(&path) else { continue };
            match is_done {
                true => {
                    assert!(self.tree.copies(&path).is_empty(), "{path}");
                    self.gone.insert(path.clone(), self.made[&path].clone());
                }
                false => drop(self.unsure.insert(path, bytes)),
            }
        }
    }

    fn encode(&mut self, trouble: Option<(Fate, usize)>) {
        let percent = [0, 25, 50, 100][self.random.below(4)];
        let low_percent = [0, 0, 0, 100][self.random.below(4)];
        let wishes = Wishes { clean_percent: percent, low_percent, ..Wishes::default() };
        let mut open = self.tree.open(Purpose::Encode);
        let code = self.code.parse().unwrap();
        let done = match trouble {
            None => encode(&mut open, code, &wishes, &mut quiet),
            Some((fate, at)) => encode(&mut open, code, &wishes, &mut but(fate, at)),
        };
        let left = match done {
            Ok(done) => done.left,
            Err(_) => return assert!(trouble.is_some()),
        };
        // An interrupted removal is completed as soon as its set can be looked at.
        if left.is_empty() {
            for (path, bytes) in std::mem::take(&mut self.unsure) {
                match self.tree.copies(&path).is_empty() {
                    true => drop(self.gone.insert(path.clone(), self.made[&path].clone())),
                    false => drop(self.tree.files.insert(path, bytes)),
                }
            }
            self.is_firm = true;
            return;
        }
        // Where two copies are required, a single one has no place in a set.
        let few = left.iter().all(|finding| finding.trouble == Trouble::FewCopies);
        assert!(trouble.is_some() || few && self.code != "raid6:4", "{left:?}");
    }

    fn lose(&mut self) {
        if !self.is_firm || !self.unsure.is_empty() {
            return;
        }
        let count = self.tree.dirs.len();
        let one = self.random.below(count);
        for dir in [one, (one + 1 + self.random.below(count - 1)) % count] {
            self.tree.lose(dir);
        }
        let trouble = self.trouble();
        if let Some((fate, at)) = trouble {
            let mut open = self.tree.open(Purpose::Repair);
            drop(weir_reduce::repair(&mut open, &mut but(fate, at)));
        }
        assert_eq!(self.tree.repair().left, []);
        assert_eq!(self.tree.verify().findings, []);
        // A file outside all sets has fewer copies than before.
        self.is_firm = false;
    }

    fn check(&mut self) {
        let mut damaged = self.tree.duplicate();
        damaged.check().unwrap();
        if !self.is_firm {
            return;
        }
        let count = damaged.dirs.len();
        let one = self.random.below(count);
        let lost = [one, (one + 1 + self.random.below(count - 1)) % count];
        lost.iter().for_each(|dir| damaged.lose(*dir));
        damaged.repair();
        damaged.check().unwrap_or_else(|why| panic!("{lost:?} lost: {why}"));
        let (code, wishes) = (self.code.parse().unwrap(), Wishes::default());
        drop(encode(&mut damaged.open(Purpose::Encode), code, &wishes, &mut quiet));
        damaged.files.retain(|path, _| self.tree.files.contains_key(path));
        damaged.check().unwrap();
        // A removed file stays removed.
        let back = self.gone.keys().find(|path| !damaged.copies(path).is_empty());
        assert_eq!(back, None, "{lost:?} lost");
    }
}

fn run(code: &'static str, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut model = Model {
            random: Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            code,
            tree: Dirs::new(7, 0, 3, |_| 0),
            made: BTreeMap::new(),
            gone: BTreeMap::new(),
            unsure: BTreeMap::new(),
            is_firm: true,
        };
        model.encode(None);
        for step in 0..60 {
            let what = model.random.below(12);
            // Printed only if the test fails.
            println!("{code}, seed {seed}, step {step}: {what}");
            match what {
                0..3 => model.make(),
                3 => model.restore(),
                4 => model.touch(),
                5 => model.write(),
                6..8 => model.remove(),
                8 => model.lose(),
                9 => model.encode(None),
                _ => {
                    let trouble = model.trouble();
                    model.encode(trouble);
                }
            }
            model.check();
        }
    }
}

/// The seeds: the environment can ask for more.
fn seeds() -> std::ops::Range<u64> {
    let from = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = from("WEIR_REDUCE_SEED").unwrap_or(0);
    first..first + from("WEIR_REDUCE_SEEDS").unwrap_or(20)
}

#[test]
fn with_two_parities_any_two_directories_may_be_lost_whatever_happened_before() {
    run("raid6:4", seeds());
}

#[test]
fn with_two_copies_and_a_parity_any_two_directories_may_be_lost_whatever_happened_before() {
    run("raid5-mirror:4", seeds());
}
