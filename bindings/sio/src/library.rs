//! The calls of the interface, without C: descriptors, controls, hints, transfers.

mod collectives;
mod controls;

use crate::backend::{Backend, How, Identity, OpenFile};
use crate::core::codes::{Code, Failure, Result};
use crate::core::control::{self, Answer, Caching, Control, Op, Outcome, Setting, When};
use crate::core::hint::{Class, Hint, Hints};
use crate::core::limits::{MAX_COLLECTIVES, MAX_HINTED_NAMES, MAX_OPEN};
use crate::core::list::{Direction, Piece};
use crate::core::name::Name;
use crate::core::table::Table;
use crate::tasks::{Ended, Tasks};
use crate::transfer::Transfer;
use collectives::Defined;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bits of `sio_mode_t`.
pub mod mode {
    #![allow(missing_docs)] // They are named as in C.
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const CREATE: u32 = 4;
}

/// An open file.
struct Open {
    file: Box<dyn OpenFile>,
    read: bool,
    write: bool,
    caching: Caching,
    hints: Mutex<Hints>,
    /// Number of asynchronous operations in progress.
    busy: AtomicUsize,
}

/// Counts an asynchronous operation on a file until it is dropped.
struct Busy(Arc<Open>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The attached file system, and everything that is open on it.
pub struct Library {
    backend: Box<dyn Backend>,
    files: Mutex<Table<Arc<Open>>>,
    tasks: Arc<Tasks>,
    collectives: Mutex<Table<Defined>>,
    /// Hints for files that are not open yet.
    hinted: Mutex<HashMap<Identity, Hints>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses invalid modes.
fn check_mode(bits: u32) -> Result<How> {
    let known = mode::READ | mode::WRITE | mode::CREATE;
    if bits & !known != 0 || bits & (mode::READ | mode::WRITE) == 0 {
        let what = format!("{bits:#x} is not READ, WRITE or both, with or without CREATE");
        return Err(Failure::new(Code::IncorrectMode, what));
    }
    let has = |bit| bits & bit != 0;
    let (read, write, create) = (has(mode::READ), has(mode::WRITE), has(mode::CREATE));
    Ok(How { read, write, create, ..How::default() })
}

impl Library {
    /// A library with nothing open.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        Self {
            backend,
            files: Mutex::new(Table::new(MAX_OPEN)),
            tasks: Arc::default(),
            collectives: Mutex::new(Table::new(MAX_COLLECTIVES)),
            hinted: Mutex::default(),
        }
    }

    /// Refuses to detach while files or operations are in use.
    ///
    /// # Errors
    /// `FileOpen`, `IoInProgress`.
    pub fn check_unused(&self) -> Result<()> {
        match (lock(&self.files).is_empty(), self.tasks.is_idle()) {
            (false, _) => Err(Failure::new(Code::FileOpen, "a file is open")),
            (true, false) => {
                Err(Failure::new(Code::IoInProgress, "not all operations were asked for"))
            }
            (true, true) => Ok(()),
        }
    }

    fn file(&self, descriptor: i32) -> Result<Arc<Open>> {
        let number = u32::try_from(descriptor).unwrap_or_default();
        lock(&self.files).get(number).cloned().ok_or_else(|| {
            Failure::new(Code::InvalidDescriptor, format!("descriptor {descriptor}"))
        })
    }

    /// `sio_open`. Also returns the outcomes of the controls that were examined.
    pub fn open(&self, name: &[u8], bits: u32, list: &[Control]) -> (Vec<Outcome>, Result<i32>) {
        let begun = || {
            let (name, how) = (Name::new(name)?, check_mode(bits)?);
            match lock(&self.files).is_full() {
                true => Err(Failure::from(Code::MaxOpenExceeded)),
                false => Ok((name, how)),
            }
        };
        let (name, mut how) = match begun() {
            Ok(begun) => begun,
            Err(failure) => return (Vec::new(), Err(failure)),
        };
        let setting = Setting { when: When::Open { create: how.create }, writable: how.write };
        let checked = match self.check(list, setting) {
            Ok(checked) => checked,
            Err(outcomes) => return (outcomes, Err(Code::ControlFailed.into())),
        };
        for (control, _) in list.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()) {
            match &control.op {
                Op::SetCachingMode(caching) => how.caching = *caching,
                Op::SetLayout(layout) => how.layout = Some(*layout),
                _ => {}
            }
        }
        let file = match self.backend.open(&name, how) {
            Ok(file) => file,
            Err(failure) => return (Vec::new(), Err(failure)),
        };
        let hints = lock(&self.hinted).remove(&file.identity()).unwrap_or_default();
        hints.iter().for_each(|hint| file.advise(hint));
        let open = Open {
            file,
            read: how.read,
            write: how.write,
            caching: how.caching,
            hints: Mutex::new(hints),
            busy: AtomicUsize::new(0),
        };
        let (outcomes, good) = control::carry_out(list, checked, |op| self.control_one(&open, op));
        let added = match good {
            true => lock(&self.files).add(Arc::new(open)).map_err(Some),
            false => Err(None),
        };
        let failure = match added {
            Ok(number) => return (outcomes, Ok(number as i32)),
            Err(Some(_)) => Code::MaxOpenExceeded.into(),
            Err(None) if how.create => self.undo_create(&name),
            Err(None) => Code::ControlFailed.into(),
        };
        (outcomes, Err(failure))
    }

    /// Removes a file that was created for an open whose controls failed.
    fn undo_create(&self, name: &Name) -> Failure {
        match self.backend.unlink(name) {
            Ok(()) => Code::ControlFailed.into(),
            Err(failure) => {
                let what = format!("{name} was created and cannot be removed: {failure}");
                Failure::new(Code::ControlFailed, what)
            }
        }
    }

    /// `sio_close`. The descriptor is closed even if an earlier write has failed.
    pub fn close(&self, descriptor: i32) -> Result<()> {
        let number = u32::try_from(descriptor).unwrap_or_default();
        let open = self.file(descriptor)?;
        {
            // Operations begin under this lock.
            let mut files = lock(&self.files);
            if open.busy.load(Ordering::Acquire) > 0 {
                return Err(Code::IoInProgress.into());
            }
            if files.remove(number).is_none() {
                return Err(Code::InvalidDescriptor.into());
            }
        }
        open.file.close()
    }

    /// `sio_unlink`.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        let name = Name::new(name)?;
        self.check_closed(&name)?;
        self.backend.unlink(&name)
    }

    /// `sio_rename`.
    pub fn rename(&self, old: &[u8], new: &[u8]) -> Result<()> {
        let (old, new) = (Name::new(old)?, Name::new(new)?);
        self.check_closed(&old)?;
        match self.backend.identify(&new) {
            Ok(_) => Err(Failure::new(Code::AlreadyExists, new.to_string())),
            Err(failure) if failure.code == Code::FileNotFound => self.backend.rename(&old, &new),
            Err(failure) => Err(failure),
        }
    }

    fn check_closed(&self, name: &Name) -> Result<()> {
        let identity = self.backend.identify(name)?;
        match lock(&self.files).iter().any(|open| open.file.identity() == identity) {
            true => Err(Failure::new(Code::FileOpen, name.to_string())),
            false => Ok(()),
        }
    }

    /// `sio_test`.
    pub fn test(&self, name: &[u8], bits: u32, list: &[Control]) -> (Vec<Outcome>, Result<()>) {
        let looked = || {
            let (name, how) = (Name::new(name)?, check_mode(bits)?);
            if !how.create {
                return self.backend.open(&name, how).map(|file| (how, Some(file)));
            }
            match self.backend.identify(&name) {
                Ok(_) => Err(Failure::new(Code::AlreadyExists, name.to_string())),
                Err(failure) if failure.code == Code::FileNotFound => {
                    self.backend.check_directory(&name).map(|()| (how, None))
                }
                Err(failure) => Err(failure),
            }
        };
        let (how, file) = match looked() {
            Ok(looked) => looked,
            Err(failure) => return (Vec::new(), Err(failure)),
        };
        let setting = Setting { when: When::Test { create: how.create }, writable: how.write };
        let checked = match self.check(list, setting) {
            Ok(checked) => checked,
            Err(outcomes) => return (outcomes, Err(Code::ControlFailed.into())),
        };
        let run = |op: &Op| match &file {
            Some(file) if controls::asks(op) => controls::ask(&**file, op),
            _ => Err(Code::ControlWouldHaveSucceeded.into()),
        };
        let (outcomes, good) = control::carry_out(list, checked, run);
        (outcomes, if good { Ok(()) } else { Err(Code::ControlFailed.into()) })
    }

    /// `sio_control`.
    pub fn control(&self, descriptor: i32, list: &[Control]) -> (Vec<Outcome>, Result<()>) {
        let open = match self.file(descriptor) {
            Ok(open) => open,
            Err(failure) => return (Vec::new(), Err(failure)),
        };
        let setting = Setting { when: When::Control, writable: open.write };
        let checked = match self.check(list, setting) {
            Ok(checked) => checked,
            Err(outcomes) => return (outcomes, Err(Code::ControlFailed.into())),
        };
        let (outcomes, good) = control::carry_out(list, checked, |op| self.control_one(&open, op));
        (outcomes, if good { Ok(()) } else { Err(Code::ControlFailed.into()) })
    }

    fn check(&self, list: &[Control], setting: Setting) -> Result<Vec<Result<()>>, Vec<Outcome>> {
        control::check(list, setting, |op| match op {
            Op::SetLayout(layout) => self.backend.check_layout(layout),
            Op::FastCopy(copy) => self.file(copy.source).and_then(|source| match source.read {
                true => Ok(()),
                false => Err(Failure::new(Code::IncorrectMode, "the source is not open to read")),
            }),
            _ => Ok(()),
        })
    }

    /// `sio_hint`.
    pub fn hint(&self, descriptor: i32, class: Class, hints: Vec<Hint>) -> Result<()> {
        let open = self.file(descriptor)?;
        for hint in hints {
            open.file.advise(&hint);
            lock(&open.hints).take(class, hint);
        }
        Ok(())
    }

    /// `sio_hint_by_name`: for the next open of the file in this process.
    pub fn hint_by_name(&self, name: &[u8], class: Class, hints: Vec<Hint>) -> Result<()> {
        let name = Name::new(name)?;
        let identity = self.backend.identify(&name)?;
        let mut hinted = lock(&self.hinted);
        if hinted.len() >= MAX_HINTED_NAMES && !hinted.contains_key(&identity) {
            // Hints never affect correctness, so those for files that are not open can be dropped.
            hinted.clear();
        }
        let held = hinted.entry(identity).or_default();
        hints.into_iter().for_each(|hint| held.take(class, hint));
        Ok(())
    }

    fn check_direction(open: &Open, direction: Direction) -> Result<()> {
        let may = match direction {
            Direction::Read => open.read,
            Direction::Write => open.write,
        };
        let refused = || Failure::new(Code::IncorrectMode, "the descriptor was not opened for it");
        if may { Ok(()) } else { Err(refused()) }
    }

    /// `sio_sg_read` and `sio_sg_write`. Returns the bytes transferred and what ended the transfer.
    ///
    /// # Safety
    /// See [`Transfer::run`].
    pub unsafe fn transfer(
        &self,
        descriptor: i32,
        direction: Direction,
        pieces: Vec<Piece>,
    ) -> (u64, Result<()>) {
        let checked = self.file(descriptor).and_then(|open| {
            Self::check_direction(&open, direction)?;
            Ok(open)
        });
        match checked {
            // SAFETY: by the contract of this function.
            Ok(open) => unsafe {
                open.run(&Transfer { direction, pieces }, &AtomicBool::new(false))
            },
            Err(failure) => (0, Err(failure)),
        }
    }

    /// `sio_async_sg_read` and `sio_async_sg_write`.
    ///
    /// # Safety
    /// See [`Transfer::run`], until the handle is completed.
    pub unsafe fn start(
        &self,
        descriptor: i32,
        direction: Direction,
        pieces: Vec<Piece>,
    ) -> Result<u32> {
        let busy = self.begin(descriptor)?;
        Self::check_direction(&busy.0, direction)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let handle = self.tasks.reserve(false, cancel.clone())?;
        let work = move |cancel: &AtomicBool| {
            // SAFETY: by the contract of this function.
            let (count, result) = unsafe { busy.0.run(&Transfer { direction, pieces }, cancel) };
            drop(busy);
            vec![Ended { count, result }]
        };
        self.tasks.queue(vec![handle], cancel, Box::new(work));
        Ok(handle)
    }

    /// Begins an operation on a file.
    fn begin(&self, descriptor: i32) -> Result<Busy> {
        let number = u32::try_from(descriptor).unwrap_or_default();
        let files = lock(&self.files);
        let open = files.get(number).ok_or(Code::InvalidDescriptor)?;
        open.busy.fetch_add(1, Ordering::AcqRel);
        Ok(Busy(open.clone()))
    }

    /// `sio_async_status_any`.
    pub fn any_done(&self, handles: &[Option<u32>], waits: bool) -> Result<(usize, Ended)> {
        self.tasks.any_done(handles, waits)
    }

    /// `sio_async_cancel_all`.
    pub fn cancel(&self, handles: &[Option<u32>]) -> Result<()> {
        self.tasks.cancel(handles)?;
        self.end_cancelled_rounds();
        Ok(())
    }
}

impl Open {
    /// # Safety
    /// See [`Transfer::run`].
    unsafe fn run(&self, transfer: &Transfer, cancel: &AtomicBool) -> (u64, Result<()>) {
        let pattern_at = |offset| lock(&self.hints).pattern_at(offset);
        // SAFETY: by the contract of this function.
        unsafe { transfer.run(&*self.file, pattern_at, cancel) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // On a closed file this does nothing. Other files are dropped here when an open has failed.
        let _ = self.file.close();
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// The outcome of a control without an answer.
fn done(result: Result<()>) -> Outcome {
    result.map(|()| Answer::Done)
}
