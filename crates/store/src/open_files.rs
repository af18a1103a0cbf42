//! The open objects: a bounded cache, so that a server of millions of objects holds a bounded
//! number of descriptors.
//!
//! Invariant: at most one [`Object`] per id is ever handed out. While one thread opens or removes
//! an object, other threads that want it wait; an object in use is never dropped from the map.

use crate::object::Object;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::sync::Arc;
use weir_host::sync::{Condvar, Mutex, MutexGuard};
use weir_types::{ObjectId, Result};

enum Entry {
    /// A thread is opening or removing the object.
    Claimed,
    Open {
        object: Arc<Object>,
        used: u64,
    },
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<ObjectId, Entry>,
    /// Number of look-ups so far: the clock for the age of entries.
    clock: u64,
}

pub(crate) struct OpenFiles {
    table: Mutex<Table>,
    changed: Condvar,
    limit: usize,
}

/// The right to open or remove one object. Dropping it returns the right.
struct Claim<'a> {
    files: &'a OpenFiles,
    id: ObjectId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.files.lock();
        if matches!(table.entries.get(&self.id), Some(Entry::Claimed)) {
            table.entries.remove(&self.id);
        }
        drop(table);
        self.files.changed.notify_all();
    }
}

impl OpenFiles {
    /// Keeps about `limit` objects open, and more only while more are in use.
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Mutex::default(), changed: Condvar::new(), limit: limit.max(1) }
    }

    /// The object, if it is open. Never waits for the disk.
    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.lock().touch(id)
    }

    /// The object. If it is not open yet, `open` opens it.
    pub(crate) fn get_or_open(
        &self,
        id: ObjectId,
        open: impl FnOnce() -> Result<Option<Object>>,
    ) -> Result<Option<Arc<Object>>> {
        let claim = match self.claim_unless_open(id) {
            Ok(object) => return Ok(Some(object)),
            Err(claim) => claim,
        };
        let Some(object) = open()?.map(Arc::new) else { return Ok(None) };
        let mut table = self.lock();
        table.clock += 1;
        let entry = Entry::Open { object: object.clone(), used: table.clock };
        table.entries.insert(id, entry);
        let idle = if table.entries.len() > self.limit { table.shed() } else { Vec::new() };
        drop(table);
        // Closing may take long, because the last descriptor of a removed file frees its blocks. So
        // it happens outside the lock.
        drop(idle);
        drop(claim);
        Ok(Some(object))
    }

    /// Removes the object from the cache, and runs `unlink` before anyone can open it again.
    pub(crate) fn remove(&self, id: ObjectId, unlink: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut table = self.lock();
        while matches!(table.entries.get(&id), Some(Entry::Claimed)) {
            table = self.changed.wait(table);
        }
        let previous = table.entries.insert(id, Entry::Claimed);
        drop(table);
        let claim = Claim { files: self, id };
        let result = unlink();
        if let (Err(_), Some(open)) = (&result, previous) {
            // The object still exists, and other threads may hold it: keep this one.
            self.lock().entries.insert(id, open);
        }
        drop(claim);
        result
    }

    fn claim_unless_open(&self, id: ObjectId) -> std::result::Result<Arc<Object>, Claim<'_>> {
        let mut table = self.lock();
        loop {
            if let Some(object) = table.touch(id) {
                return Ok(object);
            }
            if let Vacant(entry) = table.entries.entry(id) {
                entry.insert(Entry::Claimed);
                return Err(Claim { files: self, id });
            }
            table = self.changed.wait(table);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Table {
    fn touch(&mut self, id: ObjectId) -> Option<Arc<Object>> {
        self.clock += 1;
        match self.entries.get_mut(&id)? {
            Entry::Open { object, used } => {
                *used = self.clock;
                Some(object.clone())
            }
            Entry::Claimed => None,
        }
    }

    /// Removes the least recently used eighth of the entries, except those in use. One pass over
    /// the table serves many opens.
    fn shed(&mut self) -> Vec<Arc<Object>> {
        let mut idle: Vec<(u64, ObjectId)> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry {
                Entry::Open { object, used } if Arc::strong_count(object) == 1 => {
                    Some((*used, *id))
                }
                _ => None,
            })
            .collect();
        let count = idle.len().min(self.entries.len() / 8 + 1);
        if count < idle.len() {
            idle.select_nth_unstable(count);
        }
        let gone = idle[..count].iter().filter_map(|(_, id)| self.entries.remove(id));
        gone.filter_map(|entry| match entry {
            Entry::Open { object, .. } => Some(object),
            Entry::Claimed => None,
        })
        .collect()
    }
}
