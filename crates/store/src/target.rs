//! One target: the directory, its identity and its objects.

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

/// With a damaged intent log, bytes that are verified between looks at whether it is to stop.
const VERIFY_STEP_BYTES: u64 = 64 << 20;

/// The gap log lets so much less of its history be than an area of the intent log
/// holds.
const GAPS_SHARE: usize = 4;

/// How a target is served.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Objects that are kept open, each with one descriptor. More are open
    /// only while more are in use at once.
    pub max_open_objects: usize,
    /// Sectors of 512 bytes of the intent log that are filled before it is
    /// written anew, at most 2048. Fewer have it written anew more often and
    /// everything synced when so many marks are needed at once: for tests. Of the
    /// gap log, sectors of history are let be in proportion.
    pub max_log_sectors: usize,
    /// A recovery makes all durable and remembers how far it has come whenever it has looked at
    /// so many bytes.
    pub recovery_save_bytes: u64,
    /// It makes so many objects durable one by one; of more, all of their file system, which
    /// waits for all else that is to be written there.
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

/// A target that this process serves: a local directory of objects. All of it
/// may be called from many threads.
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
    /// Makes a directory a target, durably; makes the directory too, if it is
    /// not there.
    ///
    /// Errors: `Exists` if it is a target already, `NotEmpty` if it holds
    /// objects although it is none, `Busy` if it is being served.
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

    /// With a damaged intent log: everything is verified, nothing repaired.
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

    /// What opening it found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// What is wrong with it, if something is: it is out of service since a
    /// sync or a write has failed, or its disk is read-only. For the one who
    /// decides where new data goes.
    pub fn trouble(&self) -> Option<String> {
        self.backing.site.trouble()
    }

    /// Makes everything durable and says so on disk, so that the next opening
    /// has nothing to recover. Objects that are still held can be read and no
    /// longer be changed. Dropping a target does the same and loses the error.
    pub fn close(self) -> Result<()> {
        self.backing.close()
    }

    /// Drops it as `kill -9` of the process would: what became of changes that were under way is
    /// found out when it is opened again.
    pub fn drop_unclosed(self) {
        self.backing.site.set_closed();
    }

    /// Which target of which server and cluster it is.
    pub fn identity(&self) -> TargetIdentity {
        self.identity
    }

    /// Its number.
    pub fn id(&self) -> TargetId {
        self.identity.target
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.backing.site.dir
    }

    /// Number and directory, as messages name it: `target 3 (/disk1)`.
    pub fn name(&self) -> String {
        self.backing.site.to_string()
    }

    /// The object, if it happens to be open. Never waits for the disk, so that
    /// an event loop may try a `Nowait` read with it.
    pub fn open_object(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.open_files.get(id)
    }

    /// The object, `None` if there is none. May wait for the disk.
    ///
    /// Errors: `Corrupt` if its header is damaged or another object's,
    /// `Unsupported` if its format is of another version, `Io`.
    pub fn object(&self, id: ObjectId) -> Result<Option<Arc<Object>>> {
        self.open_files.get_or_open(id, || Object::open(&self.backing, id, false))
    }

    /// Opens an object that cannot be opened, since its header has rotted, and gives
    /// it one again. The fence is what the header alone says, and what another copy
    /// has to say. Blocks have checksums of their own, and the file has a name. Not
    /// durable at once: it is found damaged again then.
    ///
    /// # Errors
    /// `Corrupt` if it has the header of another object: nothing of it can be
    /// trusted then; `Io`, `ReadOnly`.
    pub fn restore_header(&self, id: ObjectId, generation: Generation) -> Result<()> {
        self.open_files
            .get_or_open(id, || Object::open_headless(&self.backing, id, generation))
            .map(drop)
    }

    /// The object; an empty one is made if there is none. Errors as for
    /// [`Target::object`], and `NoSpace`, `ReadOnly`.
    pub fn object_or_create(&self, id: ObjectId) -> Result<Arc<Object>> {
        let create = || {
            self.backing.site.in_service()?;
            Object::open(&self.backing, id, true)
        };
        self.open_files.get_or_open(id, create)?.ok_or_else(|| {
            self.backing.site.error(ErrorKind::Internal, format!("object {id} was not made"))
        })
    }

    /// What copies lack: others of what is here, and those here.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// To be called before pieces `(offset, length)` of an object are changed on
    /// several copies, this one among them (none stand for a change that touches
    /// no bytes). When this returns it is durable that these pieces are suspect
    /// if the target stops uncleanly, also if the change has not been begun
    /// here: the next opening notes them as a gap of this target. That stays so
    /// while the pledge lives, whatever is made durable meanwhile. The object is
    /// made if there is none.
    ///
    /// Errors: `InvalidArgument` for pieces that are out of range, `Overloaded`
    /// if very many changes are under way, and those of
    /// [`Target::object_or_create`].
    pub fn pledge(&self, object: ObjectId, pieces: &[(u64, u64)]) -> Result<Pledge> {
        check_pieces(pieces)?;
        self.gaps.keep()?;
        self.object_or_create(object)?.pledge(pieces)
    }

    /// Removes the object; no error if there is none. Durable after
    /// [`Target::sync_removals`].
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

    /// Makes every removal up to now durable, with one sync for each directory
    /// that something was removed from, or one for all if they are many.
    pub fn sync_removals(&self) -> Result<()> {
        self.sync_removals_in_steps(&|| ())
    }

    /// The same; `ended` is called after each sync that it takes.
    pub fn sync_removals_in_steps(&self, ended: &dyn Fn()) -> Result<()> {
        self.backing.site.in_service()?;
        self.backing.directories.sync_changed(ended)
    }

    /// Whether its directory is still there; if not, it goes out of service.
    pub fn check_presence(&self) -> Result<()> {
        self.backing.directories.check_presence()
    }

    /// Space and files of the local file system that the target is on; what is kept there counts
    /// as used.
    pub fn usage(&self) -> Result<FsUsage> {
        let space = self.backing.root.space();
        let space = space.map_err(|e| self.backing.site.os_error("ask for free space", e))?;
        Ok(room::usage(&space))
    }

    /// Which disk that is. Another machine's is another one also if its kernel gives it the
    /// same number, and two processes of a machine agree.
    pub fn disk(&self) -> DiskId {
        // Random, so that no two machines have the same.
        let machine = weir_host::boot_id().map(|boot| (boot >> 64) as u64 ^ boot as u64);
        match (machine, self.backing.root.device()) {
            (Some(machine), Ok(device)) => DiskId(machine ^ device),
            _ => DiskId::UNKNOWN,
        }
    }

    /// Makes everything of the target durable (and whatever else is on its
    /// local file system), after which a stop has nothing to recover. To be
    /// called now and then: a recovery examines what was written since.
    pub fn sync_all(&self) -> Result<()> {
        self.backing.checkpoint()
    }

    /// Verifies on from `cursor` for about `budget_bytes` of data: every block
    /// of every object, headers, the superblock, the intent log; and reports
    /// files that do not belong there. Objects that are made or removed
    /// meanwhile may or may not be looked at.
    pub fn scrub(&self, cursor: &ScrubCursor, budget_bytes: u64) -> Result<ScrubStep> {
        scrub::step(&self.backing, &|id| self.object(id), cursor, budget_bytes)
    }

    /// At most `max` objects, those after `after` in the order of listings: by
    /// hash directory, then by id.
    pub fn list(&self, after: Option<ObjectId>, max: usize) -> Result<Listing> {
        listing::list(&self.backing, after, max)
    }

    /// Every object with its length, for checking and rebuilding.
    pub fn objects(&self) -> Objects {
        Objects::new(self.backing.clone())
    }
}

/// A target that is being opened: it is there, and nobody else serves it. What takes time is
/// still to be done.
pub struct Opening {
    dir: PathBuf,
    options: TargetOptions,
    root: Directory,
    objects: Directory,
    superblock: Superblock,
    lock: Lock,
}

impl Opening {
    /// Finds the target and locks it. Errors as for [`Target::open`].
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
        // Before the lock, so that no lock file is made where no target is.
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

    /// Which target of which server and cluster it is.
    pub fn identity(&self) -> TargetIdentity {
        self.superblock.identity
    }

    /// Recovers the target if it was not closed: that takes as long as it takes to read what
    /// was changed of late.
    ///
    /// Errors: `Interrupted` if it was told to stop; else as for [`Target::open`].
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

/// Makes a directory and those that lead to it; returns those whose entries
/// have changed.
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

/// Makes an intent log with nothing in it, written out in full so that marks
/// never lack room.
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

/// Makes a target of the first format one of the present: it gets an intent
/// log. Should this be interrupted, it is done again.
fn upgrade(root: &Directory, identity: TargetIdentity) -> Result<()> {
    let upgraded = make_log(root, identity).and_then(|()| superblock::write(root, identity));
    upgraded.map_err(|e| {
        let what = "bring it to the present format (version 1 has no intent log, so it cannot be \
                    served as it is)";
        e.context(what)
    })
}

/// Reads the intent log, recovers if need be, and begins a new one. `None` for
/// the log if the disk is read-only.
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
            // Sequence numbers may begin anew.
            Cursor::forget(root).map_err(|e| site.failed_change("forget a recovery", e))?;
        }
        let (contents, save_bytes) = (&contents, options.recovery_save_bytes);
        let syncs = options.recovery_syncs;
        let recover = Recover { directories, contents, progress, save_bytes, syncs };
        report = recover.run(gaps.is_kept().then_some(&mut suspects))?;
    }
    gaps.begin(suspects)?;
    // An object may have been born in the era that a checkpoint had begun and
    // not noted yet.
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

/// The log's file, `None` if the disk is read-only, and what it says. A file
/// that is missing is damage like any other.
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

/// Takes the lock of a target. `Busy` if another open target holds it.
fn lock_directory(root: &Directory) -> Result<Lock> {
    root.lock(LOCK).map_err(|e| match e {
        Errno::WOULDBLOCK => Error::new(ErrorKind::Busy, "it is already served by another process"),
        e => os_error(e).context(format!("lock `{LOCK}`")),
    })
}
