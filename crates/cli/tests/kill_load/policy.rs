//! What the test tells the loads while they run: which failures are to be expected
//! just now, and how long a call may take. In a file that is replaced as a whole.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// See the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Calls for files with so many copies or fewer may fail.
    pub may_fail: u64,
    /// Writing may fail because a disk is full.
    pub full: bool,
    /// So often a time has begun or ended in which calls for files with one copy may fail:
    /// odd while they may.
    pub risks_single: u64,
    /// The same for files with several copies.
    pub risks_all: u64,
    /// So often a disk has begun or ended to lose what was not synced, and files with one
    /// copy with it: odd while it does.
    pub lost_single: u64,
    /// The same for files with several copies.
    pub lost_all: u64,
    /// The longest that reading or writing files with several copies may take.
    pub mirrored: Duration,
    /// The longest that any other call may take.
    pub other: Duration,
    /// How often a mount's process was replaced: files that were open there must be opened again.
    pub remounts: u64,
    /// Everybody verifies, and waits.
    pub pause: u64,
    /// Everybody ends.
    pub stop: bool,
}

impl Policy {
    pub fn write(&self, path: &Path) {
        let numbers = [
            self.may_fail,
            self.full.into(),
            self.risks_single,
            self.risks_all,
            self.lost_single,
            self.lost_all,
            self.mirrored.as_millis() as u64,
            self.other.as_millis() as u64,
            self.remounts,
            self.pause,
            self.stop.into(),
        ];
        let next = path.with_extension("next");
        fs::write(&next, numbers.map(|number| number.to_string()).join(" ")).unwrap();
        fs::rename(next, path).unwrap();
    }

    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut numbers = text.split(' ').map(|word| word.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        Self {
            may_fail: next(),
            full: next() != 0,
            risks_single: next(),
            risks_all: next(),
            lost_single: next(),
            lost_all: next(),
            mirrored: Duration::from_millis(next()),
            other: Duration::from_millis(next()),
            remounts: next(),
            pause: next(),
            stop: next() != 0,
        }
    }

    /// How often what was not synced began or ended to be lost of files with so many
    /// copies.
    pub fn lost(&self, copies: u64) -> u64 {
        if copies == 1 { self.lost_single } else { self.lost_all }
    }

    /// How often a time began or ended in which calls for files with so many copies may
    /// fail.
    pub fn risks(&self, copies: u64) -> u64 {
        if copies == 1 { self.risks_single } else { self.risks_all }
    }
}
