//! A tree: its targets, its files and its sets.

use crate::dead::{self, Dead};
use crate::durable::{Instead, Unnamed, remove};
use crate::failure::{Done, Failure, is_absent};
use crate::place::Place;
use crate::record::{FileFacts, Record, STATE, SetId};
use crate::scan::Files;
use crate::stream::Watch;
use crate::targets::{Purpose, Targets, names};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_layout::Home;
use weir_layout::set::{Block, Member, Site};
use weir_types::{ServerId, TargetId};

/// A tree: its targets, its files and its sets.
pub struct Tree {
    pub(crate) targets: Targets,
    pub(crate) files: Files,
    pub(crate) sets: BTreeMap<SetId, Record>,
    /// The targets that have the record of each set.
    pub(crate) recorded: BTreeMap<SetId, BTreeSet<TargetId>>,
    /// Records whose bytes have changed.
    pub(crate) rotten_records: Vec<PathBuf>,
    /// Removed members.
    pub(crate) dead: Dead,
    /// Directories that have taken the number of a lost target.
    pub(crate) replaced: Vec<(TargetId, PathBuf)>,
    /// Number of the next temporary file.
    next: u64,
}

impl Tree {
    /// Opens the directories of a tree and locks them.
    pub fn open(dirs: &[PathBuf], purpose: Purpose) -> Done<Self> {
        let mut tree = Self {
            targets: Targets::open(dirs, purpose)?,
            files: Files::default(),
            sets: BTreeMap::new(),
            recorded: BTreeMap::new(),
            rotten_records: Vec::new(),
            dead: Dead::default(),
            replaced: Vec::new(),
            next: 0,
        };
        for (target, dir) in tree.targets.iter() {
            for name in names(&dir.join(STATE))? {
                let path = dir.join(STATE).join(&name);
                if !name.ends_with(".set") {
                    tree.dead.add(target, &name);
                    continue;
                }
                match Record::read(&path)? {
                    None => tree.rotten_records.push(path),
                    Some(record) => {
                        tree.recorded.entry(record.id).or_default().insert(target);
                        tree.sets.insert(record.id, record);
                    }
                }
            }
        }
        let known = tree.sets.values().flat_map(Record::targets).collect();
        tree.replaced = tree.targets.number(known)?;
        tree.rescan()?;
        Ok(tree)
    }

    /// Reads the names of all files again.
    pub(crate) fn rescan(&mut self) -> Done {
        self.files = Files::default();
        for (target, dir) in self.targets.iter() {
            self.files.add(target, dir)?;
        }
        Ok(())
    }

    /// The targets as sites for the placement of blocks. Each directory counts as a node.
    pub(crate) fn sites(&self) -> Vec<Site> {
        let site =
            |(target, _): (TargetId, &Path)| Site { target, home: Home::alone(ServerId(target.0)) };
        self.targets.iter().map(site).collect()
    }

    /// The place of a block on a target, if the target was given.
    pub(crate) fn place(&self, record: &Record, block: Block, target: TargetId) -> Option<Place> {
        let dir = self.targets.dir(target)?;
        Some(match block {
            Block::Member { member, .. } if !self.dead.has(record.id, member) => {
                Place::new(dir, &record.set.members[member].what.path)
            }
            _ => Place::new(dir, state_name(&self.describe(record, block))),
        })
    }

    /// The members of a set that were not removed.
    pub(crate) fn living<'a>(
        &'a self,
        record: &'a Record,
    ) -> impl Iterator<Item = &'a Member<FileFacts>> {
        let members = record.set.members.iter().enumerate();
        members.filter(|(n, _)| !self.dead.has(record.id, *n)).map(|(_, member)| member)
    }

    /// The name of a block, for messages.
    pub(crate) fn describe(&self, record: &Record, block: Block) -> String {
        match block {
            Block::Member { member, .. } if self.dead.has(record.id, member) => {
                record.dead_name(member)
            }
            Block::Member { member, .. } => record.set.members[member].what.path.clone(),
            Block::Parity(row) => record.parity_name(row),
        }
    }

    /// The place of a copy of a file.
    pub(crate) fn file(&self, path: &str, target: TargetId) -> Done<Place> {
        let dir = self.targets.dir(target).ok_or_else(|| missing(target))?;
        Ok(Place::new(dir, path))
    }

    /// Creates a temporary file in a target.
    pub(crate) fn unnamed(&mut self, target: TargetId) -> Done<Unnamed> {
        let dir = self.targets.dir(target).ok_or_else(|| missing(target))?;
        self.next += 1;
        Unnamed::begin(&dir.join(STATE), self.next)
    }

    /// Writes the record of a set to those of its targets that lack it.
    pub(crate) fn complete(&mut self, record: &Record, watch: Watch<'_>) -> Done {
        for target in record.targets() {
            if self.recorded.get(&record.id).is_some_and(|there| there.contains(&target)) {
                continue;
            }
            let file = self.begin_record(record, target)?;
            self.name_record(record, target, file, watch)?;
        }
        Ok(())
    }

    /// Writes the record of a set to a temporary file in a target, durably.
    pub(crate) fn begin_record(&mut self, record: &Record, target: TargetId) -> Done<Unnamed> {
        let mut file = self.unnamed(target)?;
        file.write(&record.bytes)?;
        file.sync()?;
        Ok(file)
    }

    /// Gives the record of a set its name in a target.
    pub(crate) fn name_record(
        &mut self,
        record: &Record,
        target: TargetId,
        file: Unnamed,
        watch: Watch<'_>,
    ) -> Done {
        let dir = self.targets.dir(target).ok_or_else(|| missing(target))?;
        let place = Place::new(dir, state_name(&record.name()));
        file.name(&place, Instead::Anything, watch)?;
        self.rotten_records.retain(|path| *path != place.path());
        self.recorded.entry(record.id).or_default().insert(target);
        Ok(())
    }

    /// Dissolves a set: removes its records, so that nothing asks for its blocks, and then the
    /// blocks. The set exists until its last record is gone; blocks that remain after that are
    /// orphans.
    pub(crate) fn dissolve(&mut self, id: SetId, watch: Watch<'_>) -> Done {
        for target in self.recorded.get(&id).cloned().unwrap_or_default() {
            if let (Some(dir), Some(record)) = (self.targets.dir(target), self.sets.get(&id)) {
                remove(&Place::new(dir, state_name(&record.name())), watch)?;
            }
            self.recorded.entry(id).or_default().remove(&target);
        }
        self.recorded.remove(&id);
        let Some(record) = self.sets.remove(&id) else { return Ok(()) };
        let parities = record.set.parities.iter().enumerate();
        let mut names: Vec<(TargetId, String)> =
            parities.map(|(row, parity)| (parity.target, record.parity_name(row))).collect();
        for member in self.dead.members(&record) {
            let signs = self.dead.signs(id, member);
            names.extend(signs.held.iter().map(|target| (*target, record.dead_name(member))));
            names.extend(signs.marked.iter().map(|target| (*target, record.mark_name(member))));
        }
        for (target, name) in names {
            let Some(dir) = self.targets.dir(target) else { continue };
            match remove(&Place::new(dir, state_name(&name)), watch) {
                Err(Failure::System { source, .. }) if is_absent(&source) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Whether a path is the record of a known set.
    pub(crate) fn is_known(&self, path: &Path) -> bool {
        let id = path.file_stem().and_then(|stem| stem.to_str());
        id.is_some_and(|id| SetId::parse(id).is_some_and(|id| self.sets.contains_key(&id)))
    }

    /// Removes orphans: parities and removed members whose set has no record. Does nothing while a
    /// record cannot be read, because they may belong to it. Returns how many files it removed.
    pub(crate) fn remove_orphans(&self, watch: Watch<'_>) -> Done<u64> {
        let mut count = 0;
        if !self.rotten_records.is_empty() {
            return Ok(count);
        }
        for (_, dir) in self.targets.iter() {
            let state = dir.join(STATE);
            for name in names(&state)? {
                let parity = || {
                    let (id, row) = name.split_once(".p")?;
                    row.parse::<usize>().is_ok().then(|| SetId::parse(id))
                };
                let removed = || dead::parse(&name).map(|(id, ..)| Some(id));
                let Some(id) = parity().or_else(removed) else { continue };
                if !id.is_some_and(|id| self.sets.contains_key(&id)) {
                    remove(&Place::new(dir, state_name(&name)), watch)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// The error for a target of a set that was not given.
pub(crate) fn missing(target: TargetId) -> Failure {
    Failure::other(format!(
        "target {target} was not given: give its directory, or an empty one if it is lost"
    ))
}

/// The path of a file in the state directory of a target.
pub(crate) fn state_name(name: &str) -> String {
    format!("{STATE}/{name}")
}
