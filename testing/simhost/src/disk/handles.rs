//! Open files and directories: what processes ask of a disk.

use super::SimDisk;
use super::content::PAGE;
use super::faults::{Operation, Turn};
use super::file_node::FileNode;
use super::power;
use super::state::{DirectoryNode, Kind, MAX_INODES, State};
use rustix::io::{Errno, Result};
use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, MutexGuard};
use weir_host::fs::{OpenHow, Space, Stat};
use weir_host::simulated::{self, Directory, File};

/// No file is longer, as on ext4.
const MAX_FILE_BYTES: u64 = 1 << 44;

pub(super) struct DirectoryHandle {
    pub(super) disk: SimDisk,
    pub(super) inode: u64,
    pub(super) boot: u64,
}

struct FileHandle {
    disk: SimDisk,
    inode: u64,
    boot: u64,
    read_only: bool,
    /// A directory may be opened as a file, for reading, but not read.
    is_directory: bool,
}

struct Lock {
    disk: SimDisk,
    inode: u64,
    number: u64,
}

/// What a sync is for.
#[derive(Clone, Copy)]
enum Scope {
    File(u64),
    Directory(u64),
    All,
}

impl SimDisk {
    /// Waits as long as the disk needs, then hands it out.
    fn begin(&self, boot: u64, operation: Operation) -> Result<(MutexGuard<'_, State>, Turn)> {
        self.wait(false);
        let mut state = self.alive(boot)?;
        let turn = state.faults.turn(operation)?;
        Ok((state, turn))
    }

    fn alive(&self, boot: u64) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.boot == boot { Ok(state) } else { Err(Errno::IO) }
    }

    fn wait(&self, sync: bool) {
        let Some(machine) = simulated::current() else { return };
        let time = {
            let state = &mut *self.state();
            let hangs = state.hangs_until.saturating_sub(machine.now());
            state.latency.draw(sync, &mut state.rng).max(hangs)
        };
        if !time.is_zero() {
            machine.io_wait(time);
        }
    }

    /// Waits until so many bytes have come from it, or gone there.
    fn transfer(&self, bytes: u64) {
        let Some(machine) = simulated::current() else { return };
        let time = {
            let rate = &mut self.state().rate;
            rate.transfer(machine.now(), bytes)
        };
        if !time.is_zero() {
            machine.io_wait(time);
        }
    }

    /// A sync covers what was done before it was called, and is done when it
    /// returns.
    fn sync(&self, boot: u64, scope: Scope, site: &'static str) -> Result<()> {
        let operation = match scope {
            Scope::File(_) => Operation::Sync,
            Scope::Directory(_) => Operation::SyncDirectory,
            Scope::All => Operation::SyncFileSystem,
        };
        let (turn, skipped, mark) = {
            let state = &mut *self.alive(boot)?;
            let turn = state.faults.turn(operation)?;
            (turn, state.faults.skips(site), state.seq)
        };
        self.wait(true);
        let state = &mut *self.alive(boot)?;
        if turn == Turn::Torn || state.faults.frozen {
            return Err(Errno::IO);
        }
        if let Some(errno) = state.faults.gone {
            return Err(errno);
        }
        if state.faults.read_only && state.is_dirty(scope) {
            return Err(Errno::ROFS);
        }
        match turn {
            Turn::Fail(errno) => {
                state.fail_sync(scope);
                Err(errno)
            }
            _ if skipped => Ok(()),
            _ => state.commit(scope, mark),
        }
    }
}

impl Turn {
    /// Goes on only if the operation is done.
    ///
    /// # Errors
    /// It is not done, or not as a whole.
    fn proceed(self) -> Result<()> {
        match self {
            Turn::Do => Ok(()),
            Turn::Torn => Err(Errno::IO),
            Turn::Fail(errno) => Err(errno),
        }
    }
}

impl State {
    /// Does what is done as a whole or not at all; where the disk stops it is
    /// one or the other, and nobody is told which.
    fn change<T>(&mut self, turn: Turn, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        match turn {
            Turn::Do => body(self),
            Turn::Torn => {
                if self.rng.bool() {
                    // Whether it worked is never heard of.
                    let _ = body(self);
                }
                Err(Errno::IO)
            }
            Turn::Fail(errno) => Err(errno),
        }
    }

    fn dirty_files(&self) -> Vec<u64> {
        let dirty = |kind: &Kind| matches!(kind, Kind::File(f) if !f.pending.is_empty());
        self.inodes.iter().filter(|(_, i)| dirty(&i.kind)).map(|(number, _)| *number).collect()
    }

    fn is_dirty(&self, scope: Scope) -> bool {
        match scope {
            Scope::File(inode) => self.file(inode).is_ok_and(|f| !f.pending.is_empty()),
            Scope::Directory(inode) => {
                self.name_changes.iter().any(|c| c.names().any(|(d, _)| *d == inode))
            }
            Scope::All => !self.name_changes.is_empty() || !self.dirty_files().is_empty(),
        }
    }

    fn commit(&mut self, scope: Scope, mark: u64) -> Result<()> {
        match scope {
            Scope::File(inode) => {
                if self.is_dirty(scope) {
                    self.change_file(inode, |file| file.commit(mark))?;
                }
            }
            Scope::Directory(inode) => self.commit_names(Some(inode), mark),
            Scope::All => {
                for inode in self.dirty_files() {
                    self.change_file(inode, |file| file.commit(mark))?;
                }
                self.commit_names(None, mark);
            }
        }
        Ok(())
    }

    fn fail_sync(&mut self, scope: Scope) {
        let files = match scope {
            Scope::File(inode) => vec![inode],
            Scope::Directory(_) => Vec::new(),
            Scope::All => self.dirty_files(),
        };
        let mut rng = self.rng.fork();
        for inode in files {
            // It has pending changes, so it is a file that is there.
            let _ = self.change_file(inode, |file| {
                let durable = power::after_failed_sync(file, inode, &mut rng);
                file.fail_sync(durable, &mut rng);
            });
        }
        match scope {
            Scope::File(_) => {}
            Scope::Directory(inode) => self.lose_names(Some(inode), &mut rng),
            Scope::All => self.lose_names(None, &mut rng),
        }
    }

    /// The first few changes of names become durable, the others never will.
    fn lose_names(&mut self, directory: Option<u64>, rng: &mut fastrand::Rng) {
        let seqs: Vec<u64> = self.name_changes.iter().map(|c| c.seq).collect();
        if let Some(mark) = rng.choice(&seqs) {
            self.commit_names(directory, *mark - u64::from(rng.bool()));
        }
        self.forget_name_changes(directory);
    }

    /// Whether there is anything to do for such a rename.
    fn may_rename(&self, from: u64, inode: u64, (to, name): (u64, &str)) -> Result<bool> {
        let is_directory = self.directory(inode).is_ok();
        if is_directory && self.is_within(to, inode) {
            return Err(Errno::INVAL);
        }
        let old = match self.find(to, name) {
            Err(Errno::NOENT) => return Ok(true),
            found => found?,
        };
        match (is_directory, self.directory(old)) {
            _ if old == inode => Ok(false),
            _ if self.is_within(from, old) => Err(Errno::NOTEMPTY),
            (false, Ok(_)) => Err(Errno::ISDIR),
            (true, Err(_)) => Err(Errno::NOTDIR),
            (true, Ok(old)) if !old.seen.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(true),
        }
    }

    /// How many of `bytes` at `position` find room.
    fn room(&self, file: &FileNode, position: u64, bytes: u64) -> u64 {
        let (first, end) = (position / PAGE, (position + bytes).div_ceil(PAGE));
        let mut free = self.free_pages();
        if file.seen.missing_pages(first, end) <= free {
            return bytes;
        }
        for page in first..end {
            if !file.seen.has_page(page) {
                if free == 0 {
                    return (page * PAGE).saturating_sub(position);
                }
                free -= 1;
            }
        }
        bytes
    }
}

impl DirectoryHandle {
    fn begin(&self, operation: Operation) -> Result<(MutexGuard<'_, State>, Turn)> {
        self.disk.begin(self.boot, operation)
    }

    fn create(state: &mut State, parent: u64, name: &str) -> Result<u64> {
        let turn = state.faults.turn(Operation::Create)?;
        state.change(turn, |state| state.create(parent, name, Kind::File(FileNode::default())))
    }
}

impl Directory for DirectoryHandle {
    fn open_directory(&self, path: &str) -> Result<Arc<dyn Directory>> {
        let (state, turn) = self.begin(Operation::Open)?;
        turn.proceed()?;
        let inode = state.find(self.inode, path)?;
        state.directory(inode)?;
        Ok(Arc::new(DirectoryHandle { disk: self.disk.clone(), inode, boot: self.boot }))
    }

    fn make_directory(&self, path: &str) -> Result<()> {
        let (mut state, turn) = self.begin(Operation::MakeDirectory)?;
        state.change(turn, |state| {
            let (parent, name) = state.find_parent(self.inode, path)?;
            match state.find(parent, name) {
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
                Ok(_) => return Err(Errno::EXIST),
            }
            state.create(parent, name, Kind::Directory(DirectoryNode::default()))?;
            Ok(())
        })
    }

    fn open_file(&self, path: &str, how: OpenHow) -> Result<Arc<dyn File>> {
        let (mut state, turn) = self.begin(Operation::Open)?;
        turn.proceed()?;
        let (parent, name) = state.find_parent(self.inode, path)?;
        let (inode, is_new) = match state.find(parent, name) {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EXIST),
            Ok(inode) => (inode, false),
            Err(Errno::NOENT) if how.create => (Self::create(&mut state, parent, name)?, true),
            Err(e) => return Err(e),
        };
        let is_directory = state.file(inode).is_err();
        if is_directory && (how.create || !how.read_only) {
            return Err(Errno::ISDIR);
        }
        if state.faults.read_only && (how.truncate || !how.read_only) {
            return Err(Errno::ROFS);
        }
        if how.truncate && !is_new && state.file(inode)?.seen.len() > 0 {
            let turn = state.faults.turn(Operation::SetLen)?;
            state.change(turn, |state| {
                let seq = state.next_seq();
                state.change_file(inode, |file| file.set_len(seq, 0))
            })?;
        }
        state.open(inode);
        drop(state);
        let (disk, boot, read_only) = (self.disk.clone(), self.boot, how.read_only);
        Ok(Arc::new(FileHandle { disk, inode, boot, read_only, is_directory }))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let (mut state, turn) = self.begin(Operation::Unlink)?;
        state.change(turn, |state| {
            let (parent, name) = state.find_parent(self.inode, path)?;
            let inode = state.find(parent, name)?;
            state.file(inode)?;
            state.change_name(inode, Some((parent, name.into())), None)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (mut state, turn) = self.begin(Operation::Rename)?;
        state.change(turn, |state| {
            let (from_parent, from_name) = state.find_parent(self.inode, from)?;
            let to_place = state.find_parent(self.inode, to)?;
            let inode = state.find(from_parent, from_name)?;
            if !state.may_rename(from_parent, inode, to_place)? {
                return Ok(());
            }
            let from = (from_parent, from_name.into());
            state.change_name(inode, Some(from), Some((to_place.0, to_place.1.into())))
        })
    }

    fn entries(&self) -> Result<Vec<Vec<u8>>> {
        let (state, turn) = self.begin(Operation::List)?;
        turn.proceed()?;
        let names = state.directory(self.inode)?.seen.keys();
        Ok(names.map(|name| name.as_bytes().to_vec()).collect())
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        let (state, turn) = self.begin(Operation::Stat)?;
        turn.proceed()?;
        let inode = state.find(self.inode, path)?;
        Ok(match &state.inode(inode)?.kind {
            Kind::File(file) => Stat { size: file.seen.len(), is_file: true, is_directory: false },
            Kind::Directory(_) => Stat { size: PAGE, is_file: false, is_directory: true },
        })
    }

    fn sync(&self, site: &'static str) -> Result<()> {
        self.disk.sync(self.boot, Scope::Directory(self.inode), site)
    }

    fn sync_file_system(&self, site: &'static str) -> Result<()> {
        self.disk.sync(self.boot, Scope::All, site)
    }

    fn mounts(&self) -> u64 {
        // Numbers that are far apart: those of the runs of simulated machines are near.
        self.boot.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn space(&self) -> Result<Space> {
        let (state, turn) = self.begin(Operation::Space)?;
        turn.proceed()?;
        Ok(Space {
            total_bytes: state.total_bytes,
            free_bytes: state.free_pages() * PAGE,
            total_files: MAX_INODES,
            free_files: MAX_INODES.saturating_sub(state.inodes.len() as u64),
        })
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        let process = simulated::current().map_or(0, |machine| machine.process());
        let (mut state, turn) = self.begin(Operation::Lock)?;
        turn.proceed()?;
        let (parent, name) = state.find_parent(self.inode, path)?;
        let inode = match state.find(parent, name) {
            Err(Errno::NOENT) => Self::create(&mut state, parent, name)?,
            found => found?,
        };
        if state.locks.contains_key(&inode) {
            return Err(Errno::WOULDBLOCK);
        }
        let number = state.next_seq();
        state.locks.insert(inode, (process, number));
        drop(state);
        Ok(Box::new(Lock { disk: self.disk.clone(), inode, number }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.inode).is_some_and(|(_, number)| *number == self.number) {
            state.locks.remove(&self.inode);
        }
    }
}

impl FileHandle {
    fn begin(&self, operation: Operation) -> Result<(MutexGuard<'_, State>, Turn)> {
        let not_written = if operation == Operation::SetLen { Errno::INVAL } else { Errno::BADF };
        if operation.changes() && self.read_only {
            return Err(not_written);
        }
        self.disk.begin(self.boot, operation)
    }
}

/// Where a range ends.
///
/// # Errors
/// `FBIG`.
fn end_of(position: u64, bytes: u64) -> Result<u64> {
    let end = position.checked_add(bytes).ok_or(Errno::FBIG)?;
    if end > MAX_FILE_BYTES { Err(Errno::FBIG) } else { Ok(end) }
}

/// Where a range ends that must not be empty.
///
/// # Errors
/// `INVAL`, `FBIG`.
fn end_of_range(position: u64, bytes: u64) -> Result<u64> {
    if bytes == 0 { Err(Errno::INVAL) } else { end_of(position, bytes) }
}

/// How many bytes of a write are done when the disk stops: whole sectors. (A
/// signal ends a write between two pages, and a power cut between two sectors.)
fn torn_bytes(position: u64, bytes: u64, rng: &mut fastrand::Rng) -> u64 {
    let sector = super::content::SECTOR;
    match rng.u8(0..4) {
        0 => 0,
        1 => bytes,
        _ => {
            let end = position + rng.u64(0..=bytes);
            (end / sector * sector).saturating_sub(position)
        }
    }
}

impl File for FileHandle {
    fn read_at(&self, into: &mut [IoSliceMut<'_>], position: u64, nowait: bool) -> Result<usize> {
        let wanted: u64 = into.iter().map(|slice| slice.len() as u64).sum();
        let mut state;
        let turn;
        if nowait {
            // What is in memory takes no time.
            state = self.disk.alive(self.boot)?;
            turn = state.faults.turn(Operation::Read)?;
            if state.faults.not_cached > 0.0 && state.rng.f64() < state.faults.not_cached {
                return Err(Errno::AGAIN);
            }
        } else {
            self.disk.state().rate.count_read(self.inode, position, wanted);
            self.disk.transfer(wanted);
            (state, turn) = self.begin(Operation::Read)?;
        }
        turn.proceed()?;
        let end = position.saturating_add(wanted);
        let bad = &state.faults.unreadable;
        if bad.iter().any(|(i, b)| *i == self.inode && b.start < end && position < b.end) {
            return Err(Errno::IO);
        }
        let content = &state.file(self.inode)?.seen;
        let mut done = 0;
        for slice in into {
            let read = content.read(position.saturating_add(done as u64), slice);
            done += read;
            if read < slice.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[IoSlice<'_>], position: u64) -> Result<usize> {
        let wanted: u64 = bytes.iter().map(|slice| slice.len() as u64).sum();
        end_of(position, wanted)?;
        self.disk.transfer(wanted);
        let (mut state, turn) = self.begin(Operation::Write)?;
        let mut len = state.room(state.file(self.inode)?, position, wanted);
        match turn {
            Turn::Do => {}
            Turn::Torn => len = torn_bytes(position, len, &mut state.rng),
            Turn::Fail(errno) => return Err(errno),
        }
        if turn == Turn::Do && len == 0 && wanted > 0 {
            return Err(Errno::NOSPC);
        }
        let seq = state.next_seq();
        let slices = bytes.iter().map(|slice| &**slice);
        state.change_file(self.inode, |file| file.write(seq, position, slices, len))?;
        turn.proceed().map(|()| len as usize)
    }

    fn size(&self) -> Result<u64> {
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        if self.is_directory { Ok(PAGE) } else { Ok(state.file(self.inode)?.seen.len()) }
    }

    fn is_regular(&self) -> Result<bool> {
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        Ok(!self.is_directory)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        end_of(0, bytes)?;
        let (mut state, turn) = self.begin(Operation::SetLen)?;
        state.change(turn, |state| {
            let seq = state.next_seq();
            state.change_file(self.inode, |file| file.set_len(seq, bytes))
        })
    }

    fn allocate(&self, position: u64, bytes: u64, keep_size: bool) -> Result<()> {
        let end = end_of_range(position, bytes)?;
        let (mut state, turn) = self.begin(Operation::Allocate)?;
        state.change(turn, |state| {
            let content = &state.file(self.inode)?.seen;
            if content.missing_pages(position / PAGE, end.div_ceil(PAGE)) > state.free_pages() {
                return Err(Errno::NOSPC);
            }
            let seq = state.next_seq();
            state.change_file(self.inode, |file| file.allocate(seq, position, end, keep_size))
        })
    }

    fn punch(&self, position: u64, bytes: u64) -> Result<()> {
        let end = end_of_range(position, bytes)?;
        let (mut state, turn) = self.begin(Operation::Punch)?;
        state.change(turn, |state| {
            let seq = state.next_seq();
            state.change_file(self.inode, |file| file.punch(seq, position, end))
        })
    }

    fn next_data(&self, position: u64) -> Result<Option<u64>> {
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        Ok(state.file(self.inode)?.seen.next_data(position))
    }

    fn next_hole(&self, position: u64) -> Result<u64> {
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        Ok(state.file(self.inode)?.seen.next_hole(position))
    }

    fn has_room(&self, position: u64, bytes: u64) -> Result<bool> {
        let end = position.saturating_add(bytes).div_ceil(PAGE);
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        Ok(state.file(self.inode)?.seen.missing_pages(position / PAGE, end) == 0)
    }

    fn allocated(&self) -> Result<u64> {
        let mut state = self.disk.alive(self.boot)?;
        state.faults.turn(Operation::Stat)?.proceed()?;
        Ok(state.file(self.inode)?.seen.stored_bytes())
    }

    fn sync(&self, site: &'static str) -> Result<()> {
        let scope = if self.is_directory { Scope::Directory } else { Scope::File };
        self.disk.sync(self.boot, scope(self.inode), site)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.boot == self.boot {
            state.close(self.inode);
        }
    }
}
