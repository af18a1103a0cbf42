//! Checks a snapshot of the store against itself and against what targets hold:
//! the judgement of `weir fsck`. Pure: records and listings go in, problems
//! come out; who asks the servers and carries out repairs is elsewhere.
//!
//! A snapshot may be larger than memory. So each record becomes a few small
//! [`Fact`]s, and facts that have to be seen together (those of one file, those
//! of one name) have the same [`Fact::unit`]. Whoever runs the check deals them
//! to as many parts as it likes by that number, and judges part after part.
//!
//! Order is what makes it work on a cluster in use: the objects are listed
//! *before* the snapshot is taken. Ids are never used again and a file is in
//! the store before its first object is made, so an object of the listing whose
//! file is not in the later snapshot has lost it for good. Of what is the other
//! way round ([`Problem::needs_confirmation`]) the servers are asked again.

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

/// What is known of the whole while one part is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Targets of which all objects were listed: nothing is said to be missing
    /// on others.
    pub listed: BTreeSet<TargetId>,
    /// The first id that was never reserved.
    pub ids_end: u64,
    /// Targets that were removed from the cluster: what was there alone is lost.
    pub removed: BTreeSet<TargetId>,
    /// Targets of the cluster that cannot be read.
    pub away: BTreeSet<TargetId>,
    /// Those that serve only what has no other copies.
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

    /// What is wrong, file after file.
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
