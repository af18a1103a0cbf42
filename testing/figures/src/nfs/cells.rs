//! The grid: who reads what how, and how much.

use crate::args::Nfs;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

pub const RECORD: u64 = 838;
/// Of the file in which readers read at random.
const RANDOM_BYTES: u64 = 8 << 20;
/// In the paper they make so many calls
const PAPER_CHUNKS: u64 = 100_000;
/// in a file of so many bytes.
const PAPER_BYTES: u64 = 1_000_000_000;
/// Here no reader that keeps anything reads more than so many times the file: it would have all of
/// it.
const MOST_TIMES: u64 = 2;
/// And no other one more than so many times.
const MOST_TIMES_UNCACHED: u64 = 6;

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// One server, clients that cache.
    Nfs,
    /// The same, told not to cache.
    NfsUncached,
    /// Weir as PVFS was: stripes of 8 KiB, a client that keeps nothing.
    Pvfs,
    /// Weir as it is without flags, mounted.
    Weir,
}

/// The systems that a figure of the best of each compares.
pub const COMPARED: [System; 3] = [System::Nfs, System::Pvfs, System::Weir];

/// In the order of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Each reads the whole file.
    Whole,
    /// Each reads a part of it.
    Part,
    /// Each reads records at random.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub system: System,
    pub workload: Workload,
    pub records: u64,
    pub readers: u32,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "NFS",
            Self::NfsUncached => "NFS, no cache",
            Self::Pvfs => "as PVFS",
            Self::Weir => "Weir",
        }
    }

    pub fn is_nfs(self) -> bool {
        matches!(self, Self::Nfs | Self::NfsUncached)
    }
}

impl Workload {
    /// For `weir-records`, and in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Whole => "lwf",
            Self::Part => "gwf",
            Self::Random => "random",
        }
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { system, workload, records, readers } = self;
        write!(f, "{}, {}, {records} records, {readers} readers", system.name(), workload.word())
    }
}

impl Cell {
    /// Bytes of the part of the file that is used.
    pub fn file_bytes(&self, share: u64) -> u64 {
        let share = match self.system {
            System::Nfs | System::NfsUncached => share,
            // Each call waits for a server: it takes long enough.
            System::Pvfs if self.records == 1 => share / 4,
            System::Pvfs | System::Weir => share * 2,
        };
        match self.workload {
            Workload::Whole => share,
            Workload::Part => share * u64::from(self.readers),
            Workload::Random => RANDOM_BYTES,
        }
    }

    /// Where that is: what is read whole ends where its file ends, so that nobody reads ahead
    /// beyond it.
    pub fn file(&self) -> &'static str {
        match (self.system, self.workload) {
            (System::Pvfs, Workload::Whole) => "stripes-whole",
            (System::Pvfs, Workload::Part) => "stripes-parts",
            (System::Pvfs, Workload::Random) => "stripes-random",
            (_, Workload::Whole) => "whole",
            (_, Workload::Part) => "parts",
            (_, Workload::Random) => "random",
        }
    }

    /// Records of that part.
    pub fn file_records(&self, share: u64) -> u64 {
        self.file_bytes(share) / RECORD
    }

    /// Calls of a reader that reads at random: as many for each byte of the file as in the paper, or
    /// what is enough.
    pub fn chunks(&self) -> u64 {
        let paper = PAPER_CHUNKS * RANDOM_BYTES / PAPER_BYTES;
        let most = if self.system == System::Pvfs { MOST_TIMES_UNCACHED } else { MOST_TIMES };
        paper.min(most * RANDOM_BYTES / (self.records * RECORD)).max(1)
    }
}

/// The files that are needed, with their bytes.
pub fn files<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    share: u64,
) -> BTreeMap<&'static str, (System, u64)> {
    let mut files: BTreeMap<&'static str, (System, u64)> = BTreeMap::new();
    for cell in cells {
        let bytes = &mut files.entry(cell.file()).or_insert((cell.system, 0)).1;
        *bytes = cell.file_bytes(share).max(*bytes);
    }
    files
}

/// What a figure of the paper shows, and Weir beside it.
pub fn of_figure(plan: &Nfs, figure: u8) -> Vec<Cell> {
    use System::{Nfs, NfsUncached, Pvfs, Weir};
    use Workload::{Part, Random, Whole};
    let shown: &[(System, Workload)] = match figure {
        1 => &[(Nfs, Whole)],
        2 => &[(Pvfs, Whole)],
        3 => &[(Nfs, Whole), (Pvfs, Whole), (Weir, Whole)],
        4 => &[(Nfs, Part)],
        5 => &[(Pvfs, Part)],
        6 => &[(Nfs, Part), (Pvfs, Part), (Weir, Part)],
        7 => &[(Nfs, Random), (NfsUncached, Random), (Pvfs, Random), (Weir, Random)],
        8 => &[(Nfs, Random), (Weir, Random)],
        9 => &[(Pvfs, Random)],
        10 => &[(Pvfs, Whole), (Pvfs, Part), (Pvfs, Random)],
        _ => &[(Nfs, Whole), (Nfs, Part)],
    };
    let records = if figure == 7 { vec![1] } else { plan.records() };
    let mut cells = Vec::new();
    for (system, workload) in shown.iter().copied() {
        for records in records.iter().copied() {
            let all = plan.readers().into_iter();
            cells.extend(all.map(|readers| Cell { system, workload, records, readers }));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_random_as_much_of_the_file_is_read_as_in_the_paper_or_twice_the_file() {
        let chunks = |records| {
            let (system, workload) = (System::Nfs, Workload::Random);
            Cell { system, workload, records, readers: 1 }.chunks()
        };
        assert_eq!((chunks(1), chunks(150)), (838, 133));
        assert!(
            chunks(1) * RECORD * 100 / RANDOM_BYTES == PAPER_CHUNKS * RECORD * 100 / PAPER_BYTES
        );
    }
}
