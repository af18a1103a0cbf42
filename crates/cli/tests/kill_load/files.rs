//! Random calls on a directory of a mount and on a model of it in memory: the two
//! agree after each call.

use super::judge::{Judge, Kind, clock};
use super::known::Known;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use weir_conformance::Random;
use weir_types::checksum::crc32c;

const MAX_FILES: usize = 10;
const MAX_FILE_BYTES: usize = 384 << 10;
const MAX_CALL_BYTES: u64 = 100_000;
const LIST_EVERY: u64 = 40;

pub struct Files {
    dir: PathBuf,
    judge: Judge,
    random: Random,
    files: BTreeMap<String, Known>,
    /// Names whose calls failed: they may exist or not.
    doubtful: BTreeSet<String>,
    made: u64,
    steps: u64,
    lost: u64,
    risks: u64,
    remounts: u64,
}

impl Files {
    pub fn new(dir: PathBuf, judge: Judge, seed: u64) -> Self {
        Self {
            dir,
            judge,
            random: Random::new(seed),
            files: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            made: 0,
            steps: 0,
            lost: 0,
            risks: 0,
            remounts: 0,
        }
    }

    /// One call, or a few that belong together.
    pub fn step(&mut self) {
        self.steps += 1;
        self.note_trouble();
        if self.steps.is_multiple_of(LIST_EVERY) {
            return self.list();
        }
        let choice = self.random.below(100);
        if self.files.is_empty() || (choice < 10 && self.files.len() < MAX_FILES) {
            return self.create();
        }
        let at = self.random.below(self.files.len() as u64) as usize;
        let name = self.files.keys().nth(at).unwrap().clone();
        if self.files[&name].damaged {
            return self.settle(&name);
        }
        match choice {
            0..35 => self.write(&name, None),
            35..45 => self.append(&name),
            45..65 => self.read(&name),
            65..71 => self.truncate(&name),
            71..82 => self.sync(&name),
            82..88 => self.close(&name),
            88..95 => self.rename(&name),
            _ => self.unlink(&name),
        }
    }

    /// What is on its way while disks fail may fail later.
    fn note_trouble(&mut self) {
        let lost = self.judge.policy().lost(self.judge.copies);
        let (may_fail, risks) = (self.judge.may_fail(), self.judge.risks());
        for known in self.files.values_mut().filter(|known| known.has_unsynced()) {
            known.risky |= may_fail || risks > self.risks;
            known.damaged |= lost > self.lost || !lost.is_multiple_of(2);
        }
        (self.lost, self.risks) = (lost, risks);
        let remounts = self.judge.policy().remounts;
        if remounts != self.remounts {
            self.files.values_mut().for_each(|known| known.open = None);
            self.remounts = remounts;
        }
    }

    fn name_call<T>(&self, what: &str, call: impl FnOnce() -> std::io::Result<T>) -> Option<T> {
        self.judge.call(Kind::Name, what, false, call)
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("f{}", self.made);
        let path = self.dir.join(&name);
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true);
        match self.name_call(&format!("create {}", path.display()), || options.open(&path)) {
            Some(file) => {
                self.files.insert(name, Known::new(file));
            }
            None => drop(self.doubtful.insert(name)),
        }
    }

    /// A call on an open file; if it fails, that is excused.
    fn file_call<T>(
        &mut self,
        kind: Kind,
        what: &str,
        name: &str,
        call: impl FnOnce(&File) -> std::io::Result<T>,
    ) -> Option<T> {
        let path = self.dir.join(name);
        let what = format!("{what} {}", path.display());
        if self.files[name].open.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            let file = self.name_call(&format!("open {}", path.display()), || options.open(&path));
            self.files.get_mut(name).unwrap().open = Some(file?);
        }
        let known = self.files.get_mut(name).unwrap();
        let file = known.open.as_ref().unwrap();
        let done = self.judge.call(kind, &what, known.risky, || call(file));
        known.damaged |= done.is_none() && kind == Kind::Write;
        known.remember(&format!("{} {what}", clock()));
        done
    }

    fn data(&mut self) -> Vec<u8> {
        let len = match self.random.below(3) {
            0 => self.random.below(200) + 1,
            1 => self.random.below(9_000) + 1,
            _ => self.random.below(MAX_CALL_BYTES) + 1,
        };
        self.random.bytes(len as usize)
    }

    fn write(&mut self, name: &str, at: Option<usize>) {
        let data = self.data();
        let size = self.files[name].bytes.len();
        let anywhere = self.random.below(size as u64 + 5_000) as usize;
        let offset = at.unwrap_or(anywhere).min(MAX_FILE_BYTES - data.len());
        let known = self.files.get_mut(name).unwrap();
        known.will_change(offset.min(size)..offset + data.len());
        let what = format!("write {} bytes at {offset} of", data.len());
        let write = |file: &File| file.write_all_at(&data, offset as u64);
        if self.file_call(Kind::Write, &what, name, write).is_some() {
            self.files.get_mut(name).unwrap().write(offset, &data);
        }
    }

    fn append(&mut self, name: &str) {
        let data = self.data();
        let (path, known) = (self.dir.join(name), self.files.get_mut(name).unwrap());
        let size = known.bytes.len();
        if size + data.len() > MAX_FILE_BYTES {
            return self.truncate(name);
        }
        known.will_change(size..size + data.len());
        let what = format!("append {} bytes at {size} to {}", data.len(), path.display());
        let append = || OpenOptions::new().append(true).open(&path)?.write_all(&data);
        match self.judge.call(Kind::Write, &what, known.risky, append) {
            Some(()) => known.write(size, &data),
            None => known.damaged = true,
        }
        known.remember(&format!("{} {what}", clock()));
        if known.open.is_none() {
            self.was_closed(name);
        }
    }

    /// What could not be written the last `close` says, and not to us: a file that is
    /// dropped keeps it to itself.
    fn was_closed(&mut self, name: &str) {
        self.note_trouble();
        let known = self.files.get_mut(name).unwrap();
        known.damaged |= known.risky && known.has_unsynced();
    }

    fn read(&mut self, name: &str) {
        let size = self.files[name].bytes.len();
        let offset = self.random.below(size as u64 + 1) as usize;
        let len = self.random.below(MAX_CALL_BYTES) as usize;
        let from_servers = self.random.below(2) == 0;
        let (may_fail, risks) = (self.judge.may_fail(), self.judge.risks());
        let mut calls = 0;
        let mut found = vec![0xee; len];
        let got =
            self.file_call(Kind::Read, &format!("read {len} bytes at {offset} of"), name, |f| {
                if from_servers {
                    rustix::fs::fadvise(f, 0, None, rustix::fs::Advice::DontNeed)?;
                }
                read_on(f, &mut found, offset as u64, &mut calls)
            });
        let Some(got) = got else { return };
        // What comes after the first column that cannot be read is an error to who asks for
        // it then: the call before returns what it has got.
        let may_be_short = may_fail || self.judge.may_fail() || self.judge.risks() > risks;
        // A disk may have lost what is not synced while this read waited for it.
        self.note_trouble();
        let path = self.dir.join(name);
        let path = path.display();
        let known = self.files.get_mut(name).unwrap();
        let expected = &known.bytes[offset..];
        let wrong = found[..got].iter().zip(expected).position(|(f, e)| f != e);
        let is_right =
            wrong.is_none() && got == expected.len().min(len) && (calls <= 1 || may_be_short);
        // What was written behind and failed is not there, which `fsync` will say.
        known.damaged |= known.risky && !is_right;
        if !is_right && !known.damaged {
            let differ = found[..got].iter().zip(expected).filter(|(f, e)| f != e).count();
            let zeros = found[..got].iter().zip(expected).filter(|(f, e)| f != e && **f == 0);
            panic!(
                "{} {got} bytes at {offset} of {path} in {calls} calls (inode {}), {differ} wrong ({} are zero), the first at \
                 {wrong:?} from there; calls, the last first: {:#?}",
                clock(),
                known
                    .open
                    .as_ref()
                    .map_or(0, |f| std::os::unix::fs::MetadataExt::ino(&f.metadata().unwrap())),
                zeros.count(),
                known.history
            );
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = self.files[name].bytes.len();
        let to = self.random.below((size + 5_000).min(MAX_FILE_BYTES) as u64) as usize;
        let known = self.files.get_mut(name).unwrap();
        known.will_change(to.min(size)..to.max(size).max(MAX_FILE_BYTES));
        let set = |file: &File| file.set_len(to as u64);
        if self.file_call(Kind::Write, &format!("truncate to {to}"), name, set).is_some() {
            self.files.get_mut(name).unwrap().bytes.resize(to, 0);
        }
    }

    fn sync(&mut self, name: &str) {
        let calm = !self.judge.may_fail();
        if self.file_call(Kind::Write, "fsync", name, File::sync_all).is_some() {
            let known = self.files.get_mut(name).unwrap();
            known.is_synced();
            known.risky &= !calm;
        }
    }

    fn close(&mut self, name: &str) {
        let known = self.files.get_mut(name).unwrap();
        drop(known.open.take());
        known.remember(&format!("{} close {name}", clock()));
        self.was_closed(name);
        let path = self.dir.join(name);
        let what = format!("stat {}", path.display());
        let Some(stat) = self.name_call(&what, || fs::metadata(&path)) else { return };
        self.note_trouble();
        let known = &self.files[name];
        let is_right = stat.len() == known.bytes.len() as u64;
        assert!(is_right || known.risky || known.damaged, "{what}: {}", stat.len());
    }

    fn rename(&mut self, name: &str) {
        self.made += 1;
        let over = self.random.below(self.files.len() as u64) as usize;
        let to = match self.random.below(3) {
            0 => self.files.keys().nth(over).unwrap().clone(),
            _ => format!("f{}", self.made),
        };
        let (from_path, to_path) = (self.dir.join(name), self.dir.join(&to));
        let what = format!("rename {} to {to}", from_path.display());
        let done = self.name_call(&what, || fs::rename(from_path, to_path));
        let known = self.files.remove(name).unwrap();
        match done {
            Some(()) => drop(self.files.insert(to, known)),
            None => {
                self.files.remove(&to);
                self.doubtful.extend([name.to_owned(), to]);
            }
        }
    }

    fn unlink(&mut self, name: &str) {
        let path = self.dir.join(name);
        let what = format!("unlink {}", path.display());
        if self.name_call(&what, || fs::remove_file(path)).is_none() {
            self.doubtful.insert(name.to_owned());
        }
        self.files.remove(name);
    }

    /// After an error, when all is well again: what was synced is there. The file goes.
    fn settle(&mut self, name: &str) {
        if self.judge.may_fail() {
            return;
        }
        drop(self.files.get_mut(name).unwrap().open.take());
        let path = self.dir.join(name);
        let what = format!("read what is left of {}", path.display());
        let Some(found) = self.judge.call(Kind::Read, &what, false, || fs::read(&path)) else {
            return;
        };
        let known = &self.files[name];
        if let Some(wrong) = known.contradiction(&found) {
            panic!(
                "{} {what}: byte {wrong} was synced and is another after an error; {} bytes were \
                 synced, and {} are there; calls, the last first: {:#?}",
                clock(),
                known.synced_len(),
                found.len(),
                known.history
            );
        }
        self.unlink(name);
    }

    fn list(&mut self) {
        let what = format!("list {}", self.dir.display());
        let names = || fs::read_dir(&self.dir)?.map(|e| Ok(e?.file_name())).collect();
        let names: Option<Vec<_>> = self.name_call(&what, names);
        let Some(names) = names else { return };
        let found: BTreeSet<String> =
            names.into_iter().map(|name| name.into_string().unwrap()).collect();
        for name in self.files.keys() {
            assert!(found.contains(name), "{name} is missing in {}", self.dir.display());
        }
        for name in &found {
            let is_known = self.files.contains_key(name) || self.doubtful.contains(name);
            assert!(is_known, "{name} is in {}", self.dir.display());
        }
    }

    /// Syncs and reads everything. Every file that there is: path, length, checksum.
    pub fn verify(&mut self) -> Vec<String> {
        self.note_trouble();
        let mut manifest = Vec::new();
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            if !self.files[&name].damaged
                && self.file_call(Kind::Write, "fsync", &name, File::sync_all).is_some()
            {
                let known = self.files.get_mut(&name).unwrap();
                known.is_synced();
                known.risky = false;
            }
            if self.files[&name].damaged {
                self.settle(&name);
                continue;
            }
            let mut found = Vec::new();
            self.file_call(Kind::Read, "read all of", &name, |mut file| {
                rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
                std::io::Seek::rewind(&mut file)?;
                file.read_to_end(&mut found)
            });
            let expected = &self.files[&name].bytes;
            let path = self.dir.join(&name);
            assert_eq!(found.len(), expected.len(), "length of {}", path.display());
            let wrong = found.iter().zip(expected).position(|(f, e)| f != e);
            assert_eq!(wrong, None, "wrong byte of {}", path.display());
            manifest.push(format!("{} {} {}", path.display(), found.len(), crc32c(&found)));
        }
        for name in std::mem::take(&mut self.doubtful) {
            // It may be there or not.
            let _ = fs::remove_file(self.dir.join(name));
        }
        self.list();
        manifest
    }
}

/// Reads all that is asked for, or to the end of the file, in so many calls.
fn read_on(file: &File, found: &mut [u8], offset: u64, calls: &mut u32) -> std::io::Result<usize> {
    let mut got = 0;
    while got < found.len() {
        match file.read_at(&mut found[got..], offset + got as u64)? {
            0 => break,
            more => got += more,
        }
        *calls += 1;
    }
    Ok(got)
}
