//! A machine with one disk, on which the engine is used as a metadata server uses it.

use crate::history::{Bytes, History, Unlike, Writes};
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use weir_host::thread::sleep;
use weir_metastore::{
    CommitOutcome, Embedded, EmbeddedConfig, Engine, IdAllocator, MAX_OPERATIONS, Tx, transact,
};
use weir_simhost::disk::SimDisk;
use weir_types::Error;

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// The directory of the engine.
pub const DIR: &str = "/cluster/node/meta";

/// An empty disk of a machine that has just started.
pub fn new_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.set_latency(Duration::ZERO..Duration::from_micros(20), micros(50)..micros(3000));
    start_machine(&disk, seed);
    disk
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn start_machine(disk: &SimDisk, run: u64) {
    let id = format!("00000000-0000-4000-8000-{:012x}\n", run % (1 << 40) + 1);
    disk.write_file(BOOT_ID, id.as_bytes()).expect("a file");
}

/// The disk after a power cut now.
pub fn after_power_cut(disk: &SimDisk, rng: &mut fastrand::Rng) -> SimDisk {
    let image = disk.copy();
    image.power_cut(rng);
    start_machine(&image, rng.u64(..));
    image
}

/// The disk after all processes were killed now.
pub fn after_kill(disk: &SimDisk) -> SimDisk {
    let image = disk.copy();
    image.thaw();
    image
}

/// Settings with which syncs, rotations and group commits happen all the time.
pub fn config() -> EmbeddedConfig {
    EmbeddedConfig {
        sync_delay_ms: 4,
        apply_delay_ms: 9,
        generation_bytes: 6 << 10,
        max_generation_bytes: 24 << 10,
        cache_bytes: 1 << 20,
    }
}

pub fn open() -> Result<Embedded, Error> {
    Embedded::open(Path::new(DIR), config(), || {})
}

/// Opens the engine on a disk and compares it with the history. Returns its last commit.
pub fn check(seed: u64, disk: &SimDisk, history: &History, at_least: u64) -> Result<u64, String> {
    weir_simhost::run(seed, disk, || {
        let mut engine = open().map_err(|e| format!("it cannot be opened: {e}"))?;
        let last = history.check(&engine, at_least).map_err(|e| e.to_string())?;
        // Where redb does not look, pages that a crash left without matching checksums are no
        // damage.
        let mut place = Some(0);
        while let Some(from) = place {
            let step = engine.verify(from).map_err(|e| format!("verifying fails: {e}"))?;
            if let Some(damage) = step.damage.first() {
                return Err(format!("sound, but called damaged: {damage}"));
            }
            place = step.next;
        }
        Ok(last)
    })
}

/// Uses the engine on a disk for this many steps, or until an operation fails with the error that
/// is returned. `Err`: the engine gave a wrong answer.
pub fn work(
    seed: u64,
    disk: &SimDisk,
    history: &RefCell<History>,
    steps: u32,
) -> Result<Option<Error>, String> {
    weir_simhost::run(seed, disk, || {
        let mut worker = Worker { rng: fastrand::Rng::with_seed(seed), history, wrong: None };
        let ended = worker.run(steps).err();
        worker.wrong.map_or(Ok(ended), Err)
    })
}

struct Worker<'a> {
    rng: fastrand::Rng,
    history: &'a RefCell<History>,
    /// The first broken promise.
    wrong: Option<String>,
}

impl Worker<'_> {
    fn expect(&mut self, holds: bool, what: impl Fn() -> String) {
        if !holds {
            self.wrong.get_or_insert_with(&what);
        }
    }

    /// Compares the engine with the history. An error of the engine is no wrong answer.
    fn compare(&mut self, engine: &Embedded, at_least: u64) -> Result<u64, Error> {
        let checked = self.history.borrow().check(engine, at_least);
        match checked {
            Ok(last) => Ok(last),
            Err(Unlike::Fails(error)) => Err(error),
            Err(Unlike::Lies(what)) => {
                self.expect(false, || what.clone());
                Ok(at_least)
            }
        }
    }

    fn run(&mut self, steps: u32) -> Result<(), Error> {
        let mut engine = open()?;
        let synced = self.history.borrow().synced;
        let last = self.compare(&engine, synced)?;
        self.history.borrow_mut().cut(last);
        let mut ids = self.open_ids(&mut engine)?;
        for _ in 0..steps {
            if self.wrong.is_some() {
                return Ok(());
            }
            match self.rng.u8(0..24) {
                0..9 => self.transaction(&mut engine)?,
                9 => self.conflict(&mut engine)?,
                10..14 => {
                    engine.flush()?;
                    self.history.borrow_mut().flushed = engine.sequence().0;
                }
                14..16 => engine.poll()?,
                16 => engine.request_sync(engine.sequence()),
                17 => {
                    engine.sync()?;
                    let mut history = self.history.borrow_mut();
                    history.flushed = engine.sequence().0;
                    history.synced = engine.sequence().0;
                }
                18..21 => sleep(micros(self.rng.u64(0..9000))),
                21 | 22 => {
                    let before = engine.sequence();
                    ids.upkeep(&mut engine)?;
                    self.ids_committed(&engine, before.0);
                    for _ in 0..self.rng.u8(0..6) {
                        self.take_id(&mut ids);
                    }
                }
                _ if self.rng.u8(0..6) == 0 => {
                    engine.close()?;
                    let last = self.history.borrow().last();
                    self.history.borrow_mut().flushed = last;
                    self.history.borrow_mut().synced = last;
                    engine = open()?;
                    self.compare(&engine, last)?;
                    ids = self.open_ids(&mut engine)?;
                }
                _ => {
                    let last = self.history.borrow().last();
                    self.compare(&engine, last)?;
                }
            }
            let synced = engine.synced().0;
            let mut history = self.history.borrow_mut();
            history.synced = history.synced.max(synced);
        }
        Ok(())
    }

    fn open_ids(&mut self, engine: &mut Embedded) -> Result<IdAllocator, Error> {
        let before = engine.sequence().0;
        let ids = IdAllocator::open(engine, b"ids", 1, 8);
        self.ids_committed(engine, before);
        let ids = ids?;
        let last = engine.sequence().0;
        self.history.borrow_mut().flushed = last;
        self.history.borrow_mut().synced = last;
        Ok(ids)
    }

    /// Notes the commits of the id allocator.
    fn ids_committed(&mut self, engine: &Embedded, before: u64) {
        if engine.sequence().0 > before
            && let Ok(Some(row)) = engine.get(b"ids")
        {
            let writes = vec![(b"ids".to_vec(), Some(row.value.to_vec()))];
            self.history.borrow_mut().committed(writes);
        }
    }

    fn take_id(&mut self, ids: &mut IdAllocator) {
        if let Some(id) = ids.take() {
            let new = self.history.borrow_mut().ids.insert(id);
            self.expect(new, || format!("id {id} came twice"));
        }
    }

    fn key(&mut self) -> Bytes {
        format!("k{:02}", self.rng.u8(0..40)).into_bytes()
    }

    fn writes(&mut self) -> Writes {
        let (count, bytes) = match self.rng.u16(0..200) {
            0 => (MAX_OPERATIONS, 0..20),
            1 => (1, 900_000..1_400_000),
            2..8 => (2, 10_000..60_000),
            _ => (1 + self.rng.usize(0..4), 0..200),
        };
        let mut writes = std::collections::BTreeMap::new();
        while writes.len() < count {
            let key = match count {
                MAX_OPERATIONS => format!("n{:03}", writes.len()).into_bytes(),
                _ => self.key(),
            };
            let put = self.rng.u8(0..4) > 0;
            let value = put.then(|| {
                let fill = self.rng.u8(..);
                let mut value = vec![fill; self.rng.usize(bytes.clone())];
                let salt = self.rng.u64(..).to_le_bytes();
                let len = value.len().min(8);
                value[..len].copy_from_slice(&salt[..len]);
                value
            });
            writes.insert(key, value);
        }
        writes.into_iter().collect()
    }

    fn transaction(&mut self, engine: &mut Embedded) -> Result<(), Error> {
        let mut writes = self.writes();
        if !engine.has_room() {
            // Only deletions free space.
            writes.iter_mut().for_each(|(_, value)| *value = None);
        }
        let seen = self.key();
        let expected = self.history.borrow().rows().get(&seen).map(|(value, _)| value.clone());
        let (found, at) = transact::<_, Error>(engine, |tx| {
            let found = tx.get(&seen)?.map(|value| value.to_vec());
            for (key, value) in &writes {
                match value {
                    Some(value) => tx.put(key, value)?,
                    None => tx.delete(key)?,
                }
            }
            Ok(found)
        })?;
        self.history.borrow_mut().committed(writes);
        let last = self.history.borrow().last();
        self.expect(found == expected, || "a read is not what was written".into());
        self.expect(at.0 == last, || format!("commit {last} got number {at}"));
        Ok(())
    }

    /// Two transactions read the same key. The second one must not commit.
    fn conflict(&mut self, engine: &mut Embedded) -> Result<(), Error> {
        let key = self.key();
        let mut stale = Tx::new(engine);
        stale.get(&key)?;
        stale.put(b"never", b"seen")?;
        let stale = stale.into_commit()?;
        let value = self.rng.u64(..).to_le_bytes().to_vec();
        transact::<_, Error>(engine, |tx| Ok(tx.put(&key, &value)?))?;
        self.history.borrow_mut().committed(vec![(key, Some(value))]);
        let outcome = engine.commit(stale)?;
        self.expect(outcome == CommitOutcome::Conflict, || "no conflict".into());
        Ok(())
    }
}
