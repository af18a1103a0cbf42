//! Sums the use of users, groups and directories, and compares the sums with the quotas.

use super::problem::{Kind, Problem, Subject};
use crate::quota::bytes_of;
use crate::schema::{ALL_COUNTED, Inode, Orphan, QuotaRecord};
use std::collections::BTreeMap;
use weir_types::{FileId, FileKind};
use weir_wire::quota::QuotaSubject;

/// The most users, groups and directories that are summed. With more there is no check.
const MAX_SUMS: usize = 8 << 20;
/// The deepest directory whose ancestors are followed.
const MAX_DEPTH: usize = 8192;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    files: u64,
    bytes: u128,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Sums over a snapshot. Which quotas exist is known only after all inodes were read.
#[derive(Debug, Default)]
pub(super) struct QuotaSums {
    /// Sums of each user and group, and of the files directly in each directory (itself included).
    sums: BTreeMap<QuotaSubject, Sum>,
    /// Sums of files without a name.
    orphans: BTreeMap<FileId, Sum>,
    /// Sums of files without a name, by the directories that count them.
    orphans_in: BTreeMap<FileId, Sum>,
    records: Vec<(QuotaSubject, QuotaRecord)>,
    incomplete: bool,
}

impl QuotaSums {
    pub(super) fn inode(&mut self, file: FileId, inode: &Inode) {
        let one = Sum { files: 1, bytes: bytes_of(inode).into() };
        self.add(QuotaSubject::User(inode.uid), one);
        self.add(QuotaSubject::Group(inode.gid), one);
        match (inode.kind, inode.nlink) {
            (FileKind::Directory, _) => self.add(QuotaSubject::Directory(file), one),
            (_, 0) => drop(self.orphans.insert(file, one)),
            _ => self.add(QuotaSubject::Directory(inode.parent), one),
        }
    }

    fn add(&mut self, subject: QuotaSubject, one: Sum) {
        if self.sums.len() >= MAX_SUMS && !self.sums.contains_key(&subject) {
            self.incomplete = true;
            return;
        }
        self.sums.entry(subject).or_default().add(one);
    }

    /// Adds a file without a name, after its inode: keys ascend.
    pub(super) fn orphan(&mut self, file: FileId, orphan: &Orphan) {
        let Some(one) = self.orphans.remove(&file) else { return };
        for dir in &orphan.counted_in {
            self.orphans_in.entry(*dir).or_default().add(one);
        }
    }

    pub(super) fn record(&mut self, subject: QuotaSubject, record: QuotaRecord) {
        self.records.push((subject, record));
    }

    /// The problems. `parents` has every directory with its parent, by id.
    pub(super) fn judge(self, parents: Option<&[(FileId, FileId)]>) -> Vec<Problem> {
        // What is still being counted is not said to be all.
        let counted = self.records.iter().filter(|(_, record)| record.counted_to == ALL_COUNTED);
        let below = self.below(parents);
        let mut problems = Vec::new();
        for (subject, record) in counted.filter(|_| !self.incomplete) {
            let found = match subject {
                QuotaSubject::Directory(dir) => match &below {
                    Some(below) => below.get(dir).copied().unwrap_or_default(),
                    None => continue,
                },
                owner => self.sums.get(owner).copied().unwrap_or_default(),
            };
            if (found.files, found.bytes) != (record.used_files, record.used_bytes) {
                let (said_files, said_bytes) = (record.used_files, record.used_bytes);
                let what = format!(
                    "the quota of {subject} counts {said_files} files with {said_bytes} bytes, \
                     but there are {} with {}",
                    found.files, found.bytes
                );
                problems.push(Problem {
                    kind: Kind::Quota,
                    file: None,
                    what,
                    subject: Subject::Quota(*subject),
                });
            }
        }
        problems
    }

    /// Sums in and below each directory with a quota; `None` if there are too many directories.
    fn below(&self, parents: Option<&[(FileId, FileId)]>) -> Option<BTreeMap<FileId, Sum>> {
        let mut below: BTreeMap<FileId, Sum> = BTreeMap::new();
        for (subject, _) in &self.records {
            if let QuotaSubject::Directory(dir) = subject {
                below.insert(*dir, self.orphans_in.get(dir).copied().unwrap_or_default());
            }
        }
        if below.is_empty() {
            return Some(below);
        }
        let parents = parents?;
        let parent = |dir: FileId| {
            let at = parents.binary_search_by_key(&dir, |(d, _)| *d).ok()?;
            parents.get(at).map(|(_, parent)| *parent)
        };
        for (subject, sum) in &self.sums {
            let QuotaSubject::Directory(dir) = subject else { continue };
            let mut here = *dir;
            for _ in 0..MAX_DEPTH {
                if let Some(found) = below.get_mut(&here) {
                    found.add(*sum);
                }
                match parent(here) {
                    Some(next) if here != FileId::ROOT => here = next,
                    _ => break,
                }
            }
        }
        Some(below)
    }
}
