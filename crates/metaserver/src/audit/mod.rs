//! Checks a snapshot of the store against itself and against the objects on targets: the checker of
//! `weir fsck`. Pure: records and listings go in, problems come out; other modules ask the servers
//! and carry out repairs.
//!
//! A snapshot may be larger than memory. So each record becomes a few small [`Fact`]s, and facts
//! that have to be judged together (those of one file, those of one name) have the same
//! [`Fact::unit`]. The caller distributes them to any number of parts by that number, and judges
//! part after part.
//!
//! The order of steps makes this work on a cluster in use: the objects are listed *before* the
//! snapshot is taken. Ids are never used again, and a file is in the store before its first object
//! is made. So an object of the listing whose file is not in the later snapshot has lost it for
//! good. For the opposite case ([`Problem::needs_confirmation`]) the servers are asked again.

mod fact;
mod files;
mod names;
mod objects;
mod problem;
mod quotas;
mod snapshot;

pub use fact::Fact;
pub use problem::{Kind, Lost, Problem, Short, Subject};
pub use snapshot::SnapshotReader;

use files::FileFacts;
use names::NameFacts;
use std::collections::{BTreeMap, BTreeSet};
use weir_types::codec::Bytes;
use weir_types::{FileId, TargetId};

/// Facts about the whole cluster for judging one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Targets whose objects were all listed. Objects on other targets are not reported as missing.
    pub listed: BTreeSet<TargetId>,
    /// The first file id that was never reserved.
    pub ids_end: u64,
    /// Targets that were removed from the cluster. Data that only they had is lost.
    pub removed: BTreeSet<TargetId>,
    /// Targets of the cluster that cannot be read.
    pub away: BTreeSet<TargetId>,
    /// Targets that serve only columns without other copies.
    pub stale: BTreeSet<TargetId>,
}

/// All facts of some files and names.
#[derive(Debug, Default)]
pub struct Part {
    files: BTreeMap<FileId, FileFacts>,
    names: BTreeMap<(FileId, Bytes), NameFacts>,
}

impl Part {
    /// Adds a fact, in any order.
    pub fn add(&mut self, fact: Fact) {
        match fact {
            Fact::ByName { dir, name, file, kind, cookie } => {
                let names = self.names.entry((dir, name)).or_default();
                names.by_name = Some((file, kind, cookie));
            }
            Fact::ByCookie { dir, cookie, name, file, kind } => {
                let names = self.names.entry((dir, name)).or_default();
                names.by_cookie.push((file, kind, cookie));
            }
            other => self.files.entry(other.file()).or_default().add(other),
        }
    }

    /// The problems, file after file.
    pub fn judge(mut self, bounds: &Bounds) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (&file, facts) in &mut self.files {
            facts.judge(file, bounds, &mut problems);
        }
        for ((dir, name), facts) in &self.names {
            facts.judge(*dir, name, &mut problems);
        }
        problems
    }
}
