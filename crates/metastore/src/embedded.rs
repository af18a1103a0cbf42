//! The embedded engine: an operation log, two generations of writes in memory,
//! and redb below them.

use crate::applier::{Applier, Job};
use crate::directory::{Home, damage};
use crate::engine::{
    Commit, CommitOutcome, Engine, Key, Sequence, Snapshot, Verified, Versioned, Write, checks_hold,
};
use crate::journal::MAX_BATCH_BYTES;
use crate::log::LogWriter;
use crate::overlay::{Overlay, merged_range};
use crate::record::{RECORDS_START, max_record_bytes};
use crate::replay::{Replayed, replay};
use crate::reserve::Room;
use crate::syncer::{Notify, SyncState, Syncer};
use crate::tree::{Tree, TreeSnapshot};
use crate::verify::verify;
use member::Role;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use weir_host::{clock, fs};
use weir_types::{Error, Result};

pub(crate) mod member;
mod publisher;

/// The most bytes of commits that wait for one [`Engine::flush`]; a commit
/// beyond it flushes by itself.
const MAX_BUFFERED_BYTES: usize = 8 << 20;

/// Least time between two looks at the free disk space.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// redb is handed the log after this fraction (one part in so many) of the free space. It needs
/// more space than the log: it writes whole pages for single rows.
const ROOM_OF_GENERATION: u64 = 256;
/// While redb is busy, the log grows to at most this fraction of the free space.
const ROOM_OF_LOG: u64 = 64;
/// The log may grow to this size even if there is less free space.
const MIN_GENERATION_BYTES: u64 = 16 << 10;

/// The longest that one flush waits for redb, when the log is nearly full.
const MAX_PACE: Duration = Duration::from_millis(200);

/// Settings of the embedded engine.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// From the first append to the sync that covers it, milliseconds. A power
    /// cut loses at most this and the time of the sync.
    pub sync_delay_ms: u64,
    /// Maximum age of a generation of writes before redb takes it in, milliseconds.
    pub apply_delay_ms: u64,
    /// Bytes of log in a generation at which redb takes it in, if redb is free.
    pub generation_bytes: u64,
    /// Maximum bytes of log in a generation; a commit beyond that waits for redb. Memory and replay
    /// time are bounded by twice this. From half of this size on, each flush waits a little for
    /// redb, longer as the space runs out, so that no single wait is long.
    pub max_generation_bytes: u64,
    /// Bytes of redb's cache.
    pub cache_bytes: usize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            sync_delay_ms: 500,
            apply_delay_ms: 1000,
            generation_bytes: 16 << 20,
            max_generation_bytes: 64 << 20,
            cache_bytes: 128 << 20,
        }
    }
}

/// The embedded engine. One thread owns it; two more sync and apply.
///
/// After a failed append, sync, group commit or read every commit, flush and
/// poll fails; other reads go on, and may show commits that were never
/// acknowledged.
///
/// Dropping it without [`Embedded::close`] is as safe as a kill: what was
/// flushed is found again at the next open.
pub struct Embedded {
    config: EmbeddedConfig,
    role: Role,
    published_bytes: Arc<AtomicU64>,
    sequence: Sequence,
    flushed: Sequence,
    /// The newest writes.
    active: Overlay,
    /// When the first of the newest writes was made.
    active_since: Option<Instant>,
    /// The writes that redb is taking in.
    committing: Option<Arc<Overlay>>,
    /// The size of the log segment, bytes, at which it is time for the next.
    rotate_at_bytes: u64,
    /// Free disk space at the last look.
    room: Room,
    /// Time of the last look at the free disk space.
    room_at: Option<Instant>,
    log: LogWriter,
    // The fields below are dropped in this order: reads end before the threads,
    // the applier before the syncer it waits for, the lock last.
    snapshot: Arc<TreeSnapshot>,
    applier: Applier,
    // Kept here because reads go on when the applier has failed and is gone.
    tree: Arc<Tree>,
    _syncer: Syncer,
    shared: Arc<SyncState>,
    home: Home,
    _lock: fs::Lock,
}

impl Embedded {
    /// Opens the engine in a directory, or makes one there. `notify` is called
    /// from other threads whenever [`Engine::poll`] has something to do: a sync
    /// or a group commit has ended, or failed. It must not block (ring an
    /// eventfd).
    ///
    /// Errors: `Busy` (in use by another process), `Unsupported` (a format that
    /// this program does not know), `Corrupt` (damage, with file and offset),
    /// `InvalidArgument` (the directory follows a journal).
    pub fn open(
        dir: &Path,
        config: EmbeddedConfig,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::open_as(Role::Alone, dir, config, notify)
    }

    fn open_as(
        role: Role,
        dir: &Path,
        config: EmbeddedConfig,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let home = Home::open_or_make(dir)?;
        let lock = home.lock()?;
        home.check_poison()?;
        if matches!(role, Role::Alone) {
            home.check_alone()?;
        }
        if !home.check_format()? {
            make(&home)?;
        }
        let (tree, log, sequence) = recover(&home, config.cache_bytes)?;
        home.fill_reserve()?;
        let notify: Notify = Arc::new(notify);
        let (tree, file) = (Arc::new(tree), Arc::clone(log.file()));
        let shared = Arc::new(SyncState::new(file, sequence, Arc::clone(&notify)));
        let thread = |e: std::io::Error| Error::from(e).context("start a metadata engine thread");
        let delay = Duration::from_millis(config.sync_delay_ms);
        let syncer = Syncer::start(Arc::clone(&shared), home.clone(), delay).map_err(thread)?;
        let snapshot = Arc::new(tree.snapshot()?);
        let applier = Applier::start(home.clone(), Arc::clone(&tree), Arc::clone(&shared), notify)
            .map_err(thread)?;
        Ok(Self {
            role,
            published_bytes: Arc::default(),
            sequence,
            flushed: sequence,
            active: Overlay::default(),
            active_since: None,
            committing: None,
            rotate_at_bytes: config.generation_bytes,
            room: Room { ample: true, bytes: u64::MAX },
            room_at: None,
            config,
            log,
            snapshot,
            applier,
            tree,
            _syncer: syncer,
            shared,
            home,
            _lock: lock,
        })
    }

    /// Flushes and moves everything into redb, so that the next open has
    /// nothing to replay. Blocks.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        self.wait_for_applier()?;
        self.hand_over()?;
        self.wait_for_applier()
    }

    fn break_with(&self, error: Error) -> Error {
        self.shared.fail(error.clone());
        error
    }

    /// Gives the active generation to the applier, which is free, and starts
    /// the next in a new log segment. Everything is flushed.
    fn hand_over(&mut self) -> Result<()> {
        if self.active.is_empty() {
            return Ok(());
        }
        // If the handover fails, the next try is not due at once.
        self.active_since = Some(clock::now());
        self.rotate_at_bytes = self.log.segment_bytes() + self.generation_bytes();
        let retire = self.log.rotate(self.sequence.next())?;
        let next_segment = self.shared.rotated(Arc::clone(self.log.file()));
        self.active_since = None;
        self.rotate_at_bytes = self.generation_bytes();
        let overlay = Arc::new(std::mem::take(&mut self.active));
        self.committing = Some(Arc::clone(&overlay));
        self.applier
            .give(Job { overlay, upto: self.sequence, retire, next_segment })
            .map_err(|e| self.break_with(e))
    }

    fn is_hand_over_due(&self) -> bool {
        let Some(since) = self.active_since else { return false };
        let old = clock::elapsed(since) >= Duration::from_millis(self.config.apply_delay_ms);
        let big = self.log.segment_bytes() >= self.rotate_at_bytes;
        self.committing.is_none() && (old || big)
    }

    fn hand_over_if_due(&mut self) {
        if self.flushed < self.sequence || !self.is_hand_over_due() {
            return;
        }
        // Not fatal: the current segment is used until it is full.
        if let Err(error) = self.hand_over() {
            tracing::warn!(%error, "cannot start a new segment of the metadata log");
        }
    }

    /// Switches to the tree that redb has finished.
    fn adopt(&mut self, applied: Result<TreeSnapshot>) -> Result<()> {
        match applied {
            Ok(snapshot) => {
                self.snapshot = Arc::new(snapshot);
                self.committing = None;
                Ok(())
            }
            Err(e) => Err(self.break_with(e)),
        }
    }

    fn take_applied(&mut self) -> Result<()> {
        match self.applier.try_take() {
            Some(applied) => self.adopt(applied),
            None => Ok(()),
        }
    }

    fn wait_for_applier(&mut self) -> Result<()> {
        if self.committing.is_none() {
            return Ok(());
        }
        let applied = self.applier.take();
        self.adopt(applied)
    }

    /// How long a flush waits for redb: longer and longer while the log fills
    /// from half of its bound to all of it.
    fn pace(&self) -> Duration {
        let (used, max) = (self.log.segment_bytes(), self.max_generation_bytes().max(1));
        let over = used.saturating_sub(max / 2).min(max / 2) as f64 / (max as f64 / 2.0);
        MAX_PACE.mul_f64(over)
    }

    /// Waits a little for redb.
    fn give_way(&mut self) -> Result<()> {
        let pace = self.pace();
        if self.committing.is_some()
            && !pace.is_zero()
            && let Some(applied) = self.applier.take_within(pace)
        {
            self.adopt(applied)?;
            self.hand_over_if_due();
        }
        Ok(())
    }

    /// Bytes of log at which redb takes them in, if it is free.
    fn generation_bytes(&self) -> u64 {
        let by_room = (self.room.bytes / ROOM_OF_GENERATION).max(MIN_GENERATION_BYTES);
        self.config.generation_bytes.min(by_room)
    }

    /// Bytes of log after which a commit waits for redb.
    fn max_generation_bytes(&self) -> u64 {
        let by_room = (self.room.bytes / ROOM_OF_LOG).max(4 * MIN_GENERATION_BYTES);
        self.config.max_generation_bytes.min(by_room)
    }

    /// Looks at the free disk space, unless the last look was recent.
    fn look(&mut self) {
        if self.room_at.is_some_and(|at| clock::elapsed(at) < LOOK_EVERY) {
            return;
        }
        self.room_at = Some(clock::now());
        // On an error the last value stays; the next write reports what is wrong.
        if let Ok(room) = self.home.reserve().room() {
            let bytes = room.bytes;
            match (self.room.ample, room.ample) {
                (true, false) => tracing::warn!(
                    bytes,
                    "the disk of the metadata is full but for what removals need"
                ),
                (false, true) => tracing::info!(bytes, "the disk of the metadata has room again"),
                _ => {}
            }
            self.room = room;
        }
    }

    /// Keeps the generation, and so memory and log, within its bound.
    fn make_room(&mut self) -> Result<()> {
        if self.log.buffered_bytes() >= MAX_BUFFERED_BYTES {
            self.flush()?;
        }
        if self.log.segment_bytes() >= self.max_generation_bytes() {
            self.flush()?;
        }
        if self.log.segment_bytes() >= self.max_generation_bytes() {
            self.wait_for_applier()?;
            self.hand_over()?;
        }
        Ok(())
    }

    /// Gives these writes the next sequence.
    fn add(&mut self, writes: Vec<Write>) -> Result<()> {
        self.look();
        self.make_room()?;
        self.log.set_aside(&writes)?;
        self.sequence = self.sequence.next();
        self.log.append(self.sequence, self.shared.synced(), &writes);
        self.active_since.get_or_insert_with(clock::now);
        for write in writes {
            self.active.write(write.key, write.value, self.sequence);
        }
        Ok(())
    }

    fn layers(&self) -> [Option<&Overlay>; 2] {
        [Some(&self.active), self.committing.as_deref()]
    }
}

impl Engine for Embedded {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        match self.layers().into_iter().flatten().find_map(|layer| layer.get(key)) {
            Some(found) => Ok(found),
            None => self.snapshot.get(key).map_err(|e| self.break_with(e)),
        }
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let read = || {
            let base = self.snapshot.range(start, end)?;
            merged_range(self.layers(), base, start, end, limit)
        };
        read().map_err(|e| self.break_with(e))
    }

    /// Applies to memory and buffers for the log: see [`Engine::flush`]. Waits
    /// for redb only when it is behind by `max_generation_bytes` of log.
    fn commit(&mut self, commit: Commit) -> Result<CommitOutcome> {
        self.shared.check_sound()?;
        commit.validate()?;
        if !checks_hold(self, &commit)? {
            return Ok(CommitOutcome::Conflict);
        }
        if commit.writes.is_empty() {
            return Ok(CommitOutcome::Committed(self.sequence));
        }
        self.role.may_commit()?;
        self.make_room_in_batch(&commit.writes)?;
        self.add(commit.writes)?;
        Ok(CommitOutcome::Committed(self.sequence))
    }

    fn flush(&mut self) -> Result<Sequence> {
        self.shared.check_sound()?;
        if self.flushed < self.sequence {
            self.publish()?;
            if let Err(e) = self.log.flush() {
                return Err(self.break_with(e));
            }
            if self.flushed < self.sequence {
                self.flushed = self.sequence;
                self.shared.flushed(self.flushed);
            }
            self.take_applied()?;
            self.hand_over_if_due();
            self.give_way()?;
        }
        // After whatever may have waited: replies leave next.
        self.confirm_lead()?;
        Ok(self.flushed)
    }

    fn begin_flush(&mut self) -> Result<Sequence> {
        // With everything flushed redb may take it in.
        if !matches!(self.role, Role::Leads { .. }) || self.is_hand_over_due() {
            return self.flush();
        }
        self.shared.check_sound()?;
        let went_on = self.begin_publishing()?;
        self.take_applied()?;
        // Turns that only wait for the journal are many, and put nothing into the log.
        if went_on {
            self.give_way()?;
        }
        self.confirm_lead()?;
        Ok(self.flushed)
    }

    fn request_sync(&mut self, upto: Sequence) {
        self.shared.request(upto.min(self.sequence));
    }

    fn synced(&self) -> Sequence {
        match self.role {
            // The journal is durable, and has everything that is flushed here.
            Role::Leads { .. } => self.flushed,
            _ => self.shared.synced(),
        }
    }

    fn poll(&mut self) -> Result<()> {
        self.take_applied()?;
        self.shared.check_sound()?;
        self.hand_over_if_due();
        self.home.reserve().fill_up();
        Ok(())
    }

    fn has_room(&mut self) -> bool {
        self.look();
        self.room.ample
    }

    fn sync(&mut self) -> Result<()> {
        let upto = self.flush()?;
        match self.role {
            Role::Leads { .. } => Ok(()),
            _ => self.shared.wait(upto),
        }
    }

    fn has_journal(&self) -> bool {
        matches!(self.role, Role::Leads { .. })
    }

    fn is_deposed(&self) -> bool {
        matches!(self.role, Role::Leads { deposed: true, .. })
    }

    fn check_lead(&self) -> Result<()> {
        self.role.check()
    }

    fn verify(&mut self, place: u64) -> Result<Verified> {
        verify(&self.home, &self.tree, self.log.written(), place)
    }

    /// Copies the keys of the newest generation: about one second's.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(EmbeddedSnapshot {
            sequence: self.sequence,
            active: self.active.clone(),
            committing: self.committing.clone(),
            tree: Arc::clone(&self.snapshot),
            shared: Arc::clone(&self.shared),
        }))
    }
}

struct EmbeddedSnapshot {
    sequence: Sequence,
    active: Overlay,
    committing: Option<Arc<Overlay>>,
    tree: Arc<TreeSnapshot>,
    shared: Arc<SyncState>,
}

impl Snapshot for EmbeddedSnapshot {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let read = || {
            let base = self.tree.range(start, end)?;
            let layers = [Some(&self.active), self.committing.as_deref()];
            merged_range(layers, base, start, end, limit)
        };
        // The engine reads the same file, so that its reads fail too.
        read().inspect_err(|e| self.shared.fail(e.clone()))
    }
}

/// Makes an empty engine. Interrupted at any point, it can be made again: the
/// file `format` comes last, and without it nothing with contents is touched.
fn make(home: &Home) -> Result<()> {
    let mut used = Tree::exists(home)? && Tree::open(home, 1 << 20)?.applied()? > Sequence::ZERO;
    for segment in home.segments()? {
        let bytes = home.read(&segment.name)?.unwrap_or_default();
        used |= segment.first > Sequence(1) || bytes.len() > RECORDS_START;
    }
    if used {
        let what = format!(
            "metadata directory {} has contents and has lost its file `format`",
            home.path().display()
        );
        return Err(damage(home.display("format"), 0, "it is missing").context(what));
    }
    if !Tree::exists(home)? {
        Tree::create(home)?;
    }
    LogWriter::create(home, Sequence(1))?;
    home.write_format()
}

/// Opens redb, moves into it what only the log holds, and begins a new log
/// segment after the last commit.
fn recover(home: &Home, cache_bytes: usize) -> Result<(Tree, LogWriter, Sequence)> {
    let tree = Tree::open(home, cache_bytes)?;
    let applied = tree.applied()?;
    let Replayed { overlay, last, beyond } =
        replay(home, &home.segments()?, applied, home.memory_run())?;
    // An interruption anywhere is safe; the next open ends the same way. Segments beyond the end of
    // the log go first, the last one before the others, so that they never look like damage. The
    // next segment exists before redb says that it is needed. The other segments go when redb holds
    // them.
    for segment in beyond.iter().rev() {
        home.remove(&segment.name)?;
    }
    let log = LogWriter::create(home, last.next())?;
    if last > applied {
        tree.apply(&overlay, last)?;
        let operations = last.0 - applied.0;
        tracing::info!(operations, "replayed the metadata log after an unclean stop");
    }
    for segment in home.segments()?.iter().filter(|s| s.first <= last) {
        home.remove(&segment.name)?;
    }
    Ok((tree, log, last))
}

#[cfg(test)]
mod member_tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests look from outside")]
mod tests;
