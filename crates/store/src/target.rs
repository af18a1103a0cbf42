//! One target: its directory, its identity and its objects.

use crate::backing::Backing;
use crate::directories::{Directories, HASH_DIRECTORIES};
use crate::gaps::{Gaps, Suspects};
use crate::intents::area::{self, Contents};
use crate::intents::{Intents, read_bytes};
use crate::listing::{self, Listing, Objects};
use crate::object::Object;
use crate::open_files::OpenFiles;
use crate::piece::check_pieces;
use crate::pledge::Pledge;
use crate::recovery::{self, Recover, RecoveryReport};
use crate::recovery_progress::{Cursor, RecoveryProgress};
use crate::room;
use crate::scrub::{self, ScrubCursor, ScrubStep};
use crate::site::{Site, check_syncs, os_error};
use crate::superblock::{self, SUPERBLOCK, Superblock, TargetIdentity};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_host::fs::{Directory, File, Lock, OpenHow};
use weir_types::{DiskId, Error, ErrorKind, FsUsage, Generation, ObjectId, Result, TargetId};

/// The directory of objects.
const OBJECTS: &str = "objects";
/// The file whose lock says that a process serves the target.
const LOCK: &str = "lock";
/// The intent log.
pub(crate) const INTENTS: &str = "intents";

/// With a damaged intent log: bytes that are verified between two checks for a request to stop.
const VERIFY_STEP_BYTES: u64 = 64 << 20;

/// The limit of obsolete sectors in the gap log is the sectors of an intent-log area divided by
/// this.
const GAPS_SHARE: usize = 4;

/// How a target is served.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Number of objects that are kept open, with one descriptor each. More are open only while
    /// more are in use at once.
    pub max_open_objects: usize,
    /// Number of sectors of 512 bytes, at most 2048, that the intent log fills before it is
    /// rewritten. A smaller number means more frequent rewrites and checkpoints, which is useful in
    /// tests. The limit of obsolete sectors in the gap log is proportional.
    pub max_log_sectors: usize,
    /// A recovery syncs and saves its progress each time it has examined this many bytes.
    pub recovery_save_bytes: u64,
    /// A recovery syncs up to this many objects one by one. For more it syncs the whole file
    /// system, which waits for all other dirty data there.
    pub recovery_syncs: usize,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            max_open_objects: 1024,
            max_log_sectors: area::AREA_SECTORS,
            recovery_save_bytes: 256 << 20,
            recovery_syncs: 256,
        }
    }
}

/// An open target: a local directory of objects that this process serves. All methods may be called
/// from many threads.
///
/// Dropping it closes it, see [`Target::close`].
pub struct Target {
    identity: TargetIdentity,
    backing: Arc<Backing>,
    gaps: Gaps,
    open_files: OpenFiles,
    recovery: RecoveryReport,
    _lock: Lock,
}

impl Target {
    /// Makes a directory a target, durably. The directory itself is made if it is missing.
    ///
    /// Errors: `Exists` if the directory is a target already, `NotEmpty` if it is no target and
    /// holds objects, `Busy` if it is being served.
    pub fn create(dir: impl AsRef<Path>, identity: TargetIdentity) -> Result<()> {
        let dir = dir.as_ref();
        let context = || format!("make target directory {}", dir.display());
        Self::create_in(dir, identity).map_err(|e| e.context(context()))
    }

    fn create_in(dir: &Path, identity: TargetIdentity) -> Result<()> {
        let parents = make_directories(dir)?;
        let root = Directory::open(dir).map_err(os_error)?;
        let _lock = lock_directory(&root)?;
        match superblock::read(&root) {
            Err(e) if e.kind == ErrorKind::NotFound => {}
            Ok(found) => {
                let what = format!("it is target {} already", found.identity.target);
                return Err(Error::new(ErrorKind::Exists, what));
            }
            Err(e) => return Err(e),
        }
        match root.make_directory(OBJECTS) {
            Err(Errno::EXIST) if !is_empty(&root, OBJECTS).map_err(os_error)? => {
                let what = format!("it holds `{OBJECTS}` but no `{SUPERBLOCK}`");
                return Err(Error::new(ErrorKind::NotEmpty, what));
            }
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(os_error(e).context(format!("make `{OBJECTS}`"))),
        }
        make_log(&root, identity)?;
        superblock::write(&root, identity)?;
        for parent in parents {
            Directory::open(&parent)
                .and_then(|directory| directory.sync("parent-directory"))
                .map_err(|e| os_error(e).context(format!("sync {}", parent.display())))?;
        }
        Ok(())
    }

    /// Opens a target with the default options.
    ///
    /// Errors: `NotFound` if the directory is missing or is no target, `Busy`
    /// if another process serves it, `Unsupported` if its format is of another
    /// version, `Corrupt` if its superblock is damaged.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, TargetOptions::default())
    }

    /// Opens a target. Errors as for [`Target::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: TargetOptions) -> Result<Self> {
        Opening::begin(dir, options)?.finish(&RecoveryProgress::default())
    }

    /// With a damaged intent log: verifies everything and repairs nothing. Returns the number of
    /// findings.
    fn verify_all(&self, progress: &RecoveryProgress) -> Result<u64> {
        let (mut cursor, mut count, mut hashes) = (ScrubCursor::default(), 0, 0);
        progress.begin(HASH_DIRECTORIES as u64);
        loop {
            if progress.is_stopped() {
                let what = "it was told to stop while everything was verified";
                return Err(self.backing.site.error(ErrorKind::Interrupted, what));
            }
            let step = self.scrub(&cursor, VERIFY_STEP_BYTES)?;
            for finding in &step.findings {
                tracing::error!("{}: {finding}", self.name());
            }
            count += step.findings.len() as u64;
            match step.next {
                Some(next) => cursor = next,
                None => return Ok(count),
            }
            progress.has_done((cursor.hash - hashes) as u64);
            hashes = cursor.hash;
        }
    }

    fn report_recovery(&self) {
        let RecoveryReport { objects, bytes, blocks, headers, failed, .. } = self.recovery;
        if self.recovery.log_damaged {
            tracing::error!(
                "{}: the intent log was damaged; everything was verified: {} findings",
                self.name(),
                self.recovery.findings
            );
        }
        if self.recovery.unclean {
            tracing::warn!(
                "{}: was not closed; recovered: {objects} objects, {bytes} bytes examined, \
                 {blocks} checksums and {headers} headers made anew, {failed} failed",
                self.name()
            );
        }
    }

    /// Result of opening the target.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Why the target is out of service or read-only, if it is: a sync or a write has failed, or
    /// the disk has become read-only. The placement of new data needs this.
    pub fn trouble(&self) -> Option<String> {
        self.backing.site.trouble()
    }

    /// Makes everything durable and records that on disk, so that the next opening has nothing to
    /// recover. Objects that are still held can be read but not changed. Dropping a target does the
    /// same and loses the error.
    pub fn close(self) -> Result<()> {
        self.backing.close()
    }

    /// Drops the target as `kill -9` of the process would. The next opening recovers the changes
    /// that were under way.
    pub fn drop_unclosed(self) {
        self.backing.site.set_closed();
    }

    /// Identity of the target, with its server and cluster.
    pub fn identity(&self) -> TargetIdentity {
        self.identity
    }

    /// Id of the target.
    pub fn id(&self) -> TargetId {
        self.identity.target
    }

    /// Path of the target's directory.
    pub fn dir(&self) -> &Path {
        &self.backing.site.dir
    }

    /// Id and directory as messages name them: `target 3 (/disk1)`.
    pub fn name(&self) -> String {
        self.backing.site.to_string()
    }

    /// The object, if it is open. Never waits for the disk, so that an event loop may try a
    /// `Nowait` read with it.
    pub fn open_object(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.open_files.get(id)
    }

    /// The object, or `None` if there is none. May wait for the disk.
    ///
    /// Errors: `Corrupt` if its header is damaged or another object's, `Unsupported` if its format
    /// is of another version, `Io`.
    pub fn object(&self, id: ObjectId) -> Result<Option<Arc<Object>>> {
        self.open_files.get_or_open(id, || Object::open(&self.backing, id, false))
    }

    /// Writes a new header for an object whose header has rotted, so that the object can be opened
    /// again. Only the header has the fence, so `generation` has to come from another copy. Blocks
    /// have checksums of their own, and the file's name is the id. Not durable at once: if the new
    /// header is lost, the old one is found damaged again.
    ///
    /// # Errors
    /// `Corrupt` if the object has the valid header of another object, so that nothing of it can be
    /// trusted; `Io`, `ReadOnly`.
    pub fn restore_header(&self, id: ObjectId, generation: Generation) -> Result<()> {
        self.open_files
            .get_or_open(id, || Object::open_headless(&self.backing, id, generation))
            .map(drop)
    }

    /// The object. An empty object is made if there is none. Errors as for [`Target::object`], and
    /// `NoSpace`, `ReadOnly`.
    pub fn object_or_create(&self, id: ObjectId) -> Result<Arc<Object>> {
        let create = || {
            self.backing.site.in_service()?;
            self.backing.check_room_for(id)?;
            Object::open(&self.backing, id, true)
        };
        self.open_files.get_or_open(id, create)?.ok_or_else(|| {
            self.backing.site.error(ErrorKind::Internal, format!("object {id} was not made"))
        })
    }

    /// The gap log: what other copies of this target's objects lack, and what its own copies lack.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Pledges a change of pieces `(offset, length)` of an object on several copies, one of them on
    /// this target. To be called before the change begins on any copy. No pieces stand for a change
    /// that touches no bytes.
    ///
    /// When this returns, the pieces are durably marked as suspect: after an unclean stop the next
    /// opening notes them as a gap of this target, even if the change has not begun here. That
    /// holds while the pledge exists, whatever checkpoints happen meanwhile. The object is made if
    /// there is none.
    ///
    /// Errors: `InvalidArgument` for pieces that are out of range, `Overloaded` if very many
    /// changes are under way, and those of [`Target::object_or_create`].
    pub fn pledge(&self, object: ObjectId, pieces: &[(u64, u64)]) -> Result<Pledge> {
        check_pieces(pieces)?;
        self.gaps.keep()?;
        self.object_or_create(object)?.pledge(pieces)
    }

    /// Removes the object; no error if there is none. Durable after [`Target::sync_removals`].
    pub fn remove(&self, id: ObjectId) -> Result<()> {
        self.unlink(id)?;
        self.gaps.forget(id)
    }

    pub(crate) fn unlink(&self, id: ObjectId) -> Result<()> {
        self.backing.site.in_service()?;
        self.open_files.remove(id, || self.backing.directories.unlink(id))?;
        self.backing.note_change();
        Ok(())
    }

    /// Makes all removals so far durable, with one sync per changed directory, or one sync of the
    /// file system if there are many.
    pub fn sync_removals(&self) -> Result<()> {
        self.sync_removals_in_steps(&|| ())
    }

    /// As [`Target::sync_removals`]; `ended` is called after each sync.
    pub fn sync_removals_in_steps(&self, ended: &dyn Fn()) -> Result<()> {
        self.backing.site.in_service()?;
        self.backing.directories.sync_changed(ended)
    }

    /// Checks that the target's directory is still there. If not, the target goes out of service.
    pub fn check_presence(&self) -> Result<()> {
        self.backing.directories.check_presence()
    }

    /// Space and files of the target's local file system. Reserved space counts as used.
    pub fn usage(&self) -> Result<FsUsage> {
        let space = self.backing.root.space();
        let space = space.map_err(|e| self.backing.site.os_error("ask for free space", e))?;
        Ok(room::usage(&space))
    }

    /// Identity of the target's disk. Equal for all processes of a machine, and different for disks
    /// of different machines, even if their kernels give them the same number.
    pub fn disk(&self) -> DiskId {
        // Random, so that different machines have different values.
        let machine = weir_host::boot_id().map(|boot| (boot >> 64) as u64 ^ boot as u64);
        match (machine, self.backing.root.device()) {
            (Some(machine), Ok(device)) => DiskId(machine ^ device),
            _ => DiskId::UNKNOWN,
        }
    }

    /// Makes everything of the target durable (and the rest of its local file system). If the
    /// target stops now, it has nothing to recover. To be called now and then, because a recovery
    /// examines everything that was written since.
    pub fn sync_all(&self) -> Result<()> {
        self.backing.checkpoint()
    }

    /// Scrubs from `cursor` on for about `budget_bytes` of data: verifies every block of every
    /// object, headers, the superblock and the intent log, and reports files that do not belong
    /// there. Objects that are made or removed meanwhile may or may not be verified.
    pub fn scrub(&self, cursor: &ScrubCursor, budget_bytes: u64) -> Result<ScrubStep> {
        scrub::step(&self.backing, &|id| self.object(id), cursor, budget_bytes)
    }

    /// Lists at most `max` objects after `after`, ordered by hash directory, then by id.
    pub fn list(&self, after: Option<ObjectId>, max: usize) -> Result<Listing> {
        listing::list(&self.backing, after, max)
    }

    /// Iterates over all objects with their lengths, for checking and rebuilding.
    pub fn objects(&self) -> Objects {
        Objects::new(self.backing.clone())
    }
}

/// A target that is being opened: its directory is found and locked. The recovery, which takes
/// long, is still to be done.
pub struct Opening {
    dir: PathBuf,
    options: TargetOptions,
    root: Directory,
    objects: Directory,
    superblock: Superblock,
    lock: Lock,
}

impl Opening {
    /// Finds the target's directory and locks it. Errors as for [`Target::open`].
    pub fn begin(dir: impl AsRef<Path>, options: TargetOptions) -> Result<Self> {
        let dir = dir.as_ref();
        let shown = dir.display();
        let root = Directory::open(dir).map_err(|e| match e {
            Errno::NOENT => {
                let message = format!("target directory {shown} is missing (is its disk mounted?)");
                Error::new(ErrorKind::NotFound, message)
            }
            e => os_error(e).context(format!("open target directory {shown}")),
        })?;
        let context = format!("target directory {shown}");
        let read = |root| {
            superblock::read(root).map_err(|e| match e.kind {
                ErrorKind::NotFound => {
                    let message =
                        format!("target directory {shown} holds no target: no `{SUPERBLOCK}`");
                    Error::new(ErrorKind::NotFound, message)
                }
                _ => e.context(&context),
            })
        };
        // Before the lock, so that no lock file is made in a directory that is not a target.
        read(&root)?;
        let lock = lock_directory(&root).map_err(|e| match e.kind {
            ErrorKind::Busy => Error::new(
                ErrorKind::Busy,
                format!("target directory {shown} is already served by another process"),
            ),
            _ => e.context(&context),
        })?;
        check_syncs(&root, dir).map_err(|e| e.context(&context))?;
        let superblock = read(&root)?;
        let objects = root
            .open_directory(OBJECTS)
            .map_err(|e| os_error(e).context(format!("open `{OBJECTS}`")).context(&context))?;
        let dir = dir.to_path_buf();
        Ok(Self { dir, options, root, objects, superblock, lock })
    }

    /// Identity of the target, with its server and cluster.
    pub fn identity(&self) -> TargetIdentity {
        self.superblock.identity
    }

    /// Recovers the target if it was not closed. The duration depends on the amount of data that
    /// was changed since the last checkpoint.
    ///
    /// Errors: `Interrupted` if the recovery was told to stop; else as for [`Target::open`].
    pub fn finish(self, progress: &RecoveryProgress) -> Result<Target> {
        let Self { dir, options, root, objects, superblock, lock } = self;
        let Superblock { identity, version, gap_log } = superblock;
        if version < superblock::FORMAT_VERSION {
            let context = format!("target directory {}", dir.display());
            upgrade(&root, identity).map_err(|e| e.context(context))?;
        }
        let site = Arc::new(Site::new(identity.target, dir, root.clone()));
        let directories = Directories::new(site.clone(), root.clone(), objects);
        let gaps = Gaps::open(
            site.clone(),
            root.clone(),
            identity,
            gap_log,
            options.max_log_sectors / GAPS_SHARE,
        )?;
        let (intents, recovery) =
            bring_up(&site, identity, &directories, &gaps, (options, progress))?;
        let mut target = Target {
            identity,
            backing: Arc::new(Backing::new(site, root, directories, intents)),
            gaps,
            open_files: OpenFiles::new(options.max_open_objects),
            recovery,
            _lock: lock,
        };
        if target.recovery.log_damaged {
            target.recovery.findings = target.verify_all(progress)?;
        }
        target.report_recovery();
        Ok(target)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(e) = self.backing.close() {
            tracing::error!("close: {e}");
        }
    }
}

/// Makes a directory and its missing parents. Returns the directories with new entries.
fn make_directories(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut parents = Vec::new();
    let mut missing = dir;
    while Directory::open(missing).is_err() {
        let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty());
        missing = parent.unwrap_or(Path::new("."));
        parents.push(missing.to_path_buf());
        if parent.is_none() {
            break;
        }
    }
    Directory::make_all(dir).map_err(os_error)?;
    Ok(parents)
}

/// Makes an empty intent log. It is preallocated in full, so that marks never lack space.
fn make_log(root: &Directory, identity: TargetIdentity) -> Result<()> {
    let make = || {
        let file = root.open_file(INTENTS, OpenHow::REPLACE)?;
        let mut bytes = area::snapshot(identity, 1, 0, true, &[]);
        bytes.resize(area::FILE_BYTES, 0);
        file.write_full(&bytes, 0)?;
        file.sync("new-intent-log")
    };
    make().map_err(|e| os_error(e).context(format!("make `{INTENTS}`")))
}

/// Upgrades a target of the first format: it gets an intent log. After an interruption the upgrade
/// is repeated.
fn upgrade(root: &Directory, identity: TargetIdentity) -> Result<()> {
    let upgraded = make_log(root, identity).and_then(|()| superblock::write(root, identity));
    upgraded.map_err(|e| {
        let what = "bring it to the present format (version 1 has no intent log, so it cannot be \
                    served as it is)";
        e.context(what)
    })
}

/// Reads the intent log, recovers if need be, and begins a new log. Returns no log if the disk is
/// read-only.
fn bring_up(
    site: &Arc<Site>,
    identity: TargetIdentity,
    directories: &Directories,
    gaps: &Gaps,
    (options, progress): (TargetOptions, &RecoveryProgress),
) -> Result<(Option<Intents>, RecoveryReport)> {
    let root = directories.target();
    let (file, contents) = read_log(site, identity, root)?;
    let mut report = RecoveryReport::default();
    let clean = contents.newest.is_some_and(|newest| newest.clean) && !contents.damaged;
    let Some(file) = file else {
        site.set_read_only();
        if !clean {
            gaps.distrust();
        }
        return Ok((None, report));
    };
    let mut suspects = Suspects::default();
    if !clean {
        if contents.damaged {
            // Sequence numbers may begin again, which would make saved progress ambiguous.
            Cursor::forget(root).map_err(|e| site.failed_change("forget a recovery", e))?;
        }
        let (contents, save_bytes) = (&contents, options.recovery_save_bytes);
        let syncs = options.recovery_syncs;
        let recover = Recover { directories, contents, progress, save_bytes, syncs };
        report = recover.run(gaps.is_kept().then_some(&mut suspects))?;
    }
    gaps.begin(suspects)?;
    // A checkpoint may have begun an era without recording it, and an object may have been born in
    // it.
    let era = match contents.newest {
        Some(newest) if !contents.damaged => newest.era,
        Some(newest) => newest.era.max(recovery::highest_era(directories)?),
        None => recovery::highest_era(directories)?,
    } + 2;
    match Intents::begin(site.clone(), identity, file, options.max_log_sectors, &contents, era) {
        Err(e) if e.kind == ErrorKind::ReadOnly => {
            site.set_read_only();
            Ok((None, report))
        }
        other => {
            let intents = other?;
            if !clean && let Err(e) = Cursor::forget(root) {
                tracing::warn!("{site}: what is remembered of the recovery stays: {e}");
            }
            Ok((Some(intents), report))
        }
    }
}

/// Opens the intent log and reads its contents. Returns no file if the disk is read-only. A missing
/// file counts as damage.
fn read_log(
    site: &Site,
    identity: TargetIdentity,
    root: &Directory,
) -> Result<(Option<File>, Contents)> {
    let failed = |e| site.os_error(format!("open `{INTENTS}`"), e);
    let (file, writable) = match root.open_file(INTENTS, OpenHow::CREATE) {
        Ok(file) => (file, true),
        Err(Errno::ROFS) => (root.open_file(INTENTS, OpenHow::READ).map_err(failed)?, false),
        Err(e) => return Err(failed(e)),
    };
    let contents = area::read(&read_bytes(&file).map_err(failed)?, identity);
    if let Some(version) = contents.unknown_version {
        let what = format!(
            "the intent log has format version {version} or features unknown here: use the \
             program that wrote it, or a later one"
        );
        return Err(site.error(ErrorKind::Unsupported, what));
    }
    Ok((writable.then_some(file), contents))
}

fn is_empty(root: &Directory, name: &str) -> rustix::io::Result<bool> {
    match root.open_directory(name)?.entries()?.next() {
        None => Ok(true),
        Some(entry) => entry.map(|_| false),
    }
}

/// Takes the lock of a target. The error is `Busy` if another open target holds it.
fn lock_directory(root: &Directory) -> Result<Lock> {
    root.lock(LOCK).map_err(|e| match e {
        Errno::WOULDBLOCK => Error::new(ErrorKind::Busy, "it is already served by another process"),
        e => os_error(e).context(format!("lock `{LOCK}`")),
    })
}
