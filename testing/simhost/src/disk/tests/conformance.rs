//! Without faults the disk is as a directory of the operating system: the same
//! random calls have the same results on both, errors too.

use super::root;
use crate::disk::SimDisk;
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use weir_host::fs::{Directory, File, OpenHow};

const PATHS: [&str; 8] = ["a", "b", "c", "d/a", "d/b", "d/e/a", "d", "d/e"];

#[derive(Clone, Debug)]
enum Call {
    Open(&'static str, OpenHow),
    Close(usize),
    MakeDirectory(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    List(&'static str),
    Stat(&'static str),
    Write(usize, u64, usize, u8),
    Read(usize, u64, usize),
    SetLen(usize, u64),
    Allocate(usize, u64, u64, bool),
    Punch(usize, u64, u64),
    Sync(usize),
    SyncDirectory(&'static str),
}

#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Kind(bool, Option<u64>),
}

struct Side {
    root: Directory,
    open: BTreeMap<usize, File>,
}

impl Side {
    fn call(&mut self, number: usize, call: &Call) -> Result<Answer> {
        let done = |()| Answer::Done;
        match *call {
            Call::Open(path, how) => {
                let file = self.root.open_file(path, how)?;
                self.open.insert(number, file);
                Ok(Answer::Done)
            }
            Call::Close(file) => {
                self.open.remove(&file);
                Ok(Answer::Done)
            }
            Call::MakeDirectory(path) => self.root.make_directory(path).map(done),
            Call::Unlink(path) => self.root.unlink(path).map(done),
            Call::Rename(from, to) => self.root.rename(from, to).map(done),
            Call::List(path) => {
                let directory = self.root.open_directory(path)?;
                let mut names = directory.entries()?.collect::<Result<Vec<_>>>()?;
                names.sort();
                Ok(Answer::Names(names))
            }
            Call::Stat(path) => {
                let stat = self.root.stat(path)?;
                assert_ne!(stat.is_file, stat.is_directory);
                Ok(Answer::Kind(stat.is_file, stat.is_file.then_some(stat.size)))
            }
            Call::SyncDirectory(path) => self.root.open_directory(path)?.sync("test").map(done),
            Call::Write(file, at, len, byte) => {
                let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                self.file(file)?.write_full(&bytes, at).map(done)
            }
            Call::Read(file, at, len) => {
                let mut bytes = vec![0; len];
                let read = self.file(file)?.read_full(&mut bytes, at)?;
                bytes.truncate(read);
                Ok(Answer::Bytes(bytes))
            }
            Call::SetLen(file, len) => self.file(file)?.set_len(len).map(done),
            Call::Allocate(file, at, len, keep) => {
                self.file(file)?.allocate(at, len, keep).map(done)
            }
            Call::Punch(file, at, len) => self.file(file)?.punch(at, len).map(done),
            Call::Sync(file) => {
                let file = self.file(file)?;
                file.sync("test")?;
                if file.is_regular()? { file.size().map(Answer::Number) } else { Ok(Answer::Done) }
            }
        }
    }

    fn file(&self, number: usize) -> Result<&File> {
        self.open.get(&number).ok_or(Errno::CHILD)
    }
}

fn draw(rng: &mut fastrand::Rng, number: usize) -> Call {
    let path = |rng: &mut fastrand::Rng| PATHS[rng.usize(0..PATHS.len())];
    let file = number.saturating_sub(rng.usize(1..40));
    let (at, len) = (rng.u64(0..20_000), rng.u64(0..9_000));
    match rng.u8(0..40) {
        0..8 => {
            let how = OpenHow {
                read_only: rng.u8(0..4) == 0,
                create: rng.u8(0..4) > 0,
                exclusive: rng.u8(0..4) == 0,
                truncate: rng.u8(0..8) == 0,
            };
            // What reading and truncating at once does is not for us to know,
            // nor creating exclusively without creating.
            let truncate = how.truncate && !how.read_only;
            Call::Open(
                path(rng),
                OpenHow { truncate, exclusive: how.exclusive && how.create, ..how },
            )
        }
        8..10 => Call::Close(file),
        10..12 => Call::MakeDirectory(path(rng)),
        12..14 => Call::Unlink(path(rng)),
        14..17 => Call::Rename(path(rng), path(rng)),
        17..19 => Call::List(["d", "d/e", "a", "x"][rng.usize(0..4)]),
        19..21 => Call::Stat(path(rng)),
        21..27 => Call::Write(file, at, len as usize, rng.u8(..)),
        27..33 => Call::Read(file, at, len as usize),
        33..35 => Call::SetLen(file, at),
        35..36 => Call::Allocate(file, at, len, rng.bool()),
        36..38 => Call::Punch(file, at, len),
        38..39 => Call::Sync(file),
        _ => Call::SyncDirectory(["d", "d/e"][rng.usize(0..2)]),
    }
}

#[test]
fn without_faults_it_is_as_the_operating_system() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let temporary = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(seed);
        let os = Directory::open(temporary.path()).unwrap();
        let mut os = Side { root: os, open: BTreeMap::new() };
        let mut simulated = Side { root: root(&disk), open: BTreeMap::new() };
        for number in 0..400 {
            let call = draw(&mut rng, number);
            let expected = os.call(number, &call);
            assert_eq!(simulated.call(number, &call), expected, "seed {seed}, {number}: {call:?}");
        }
        for (path, size) in disk.files() {
            let bytes = std::fs::read(temporary.path().join(&path)).unwrap();
            assert_eq!(bytes.len() as u64, size);
            assert!(disk.read_file(&path).unwrap() == bytes, "seed {seed}: {path}");
        }
    }
}
