//! How other threads reach an event loop.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_types::{Error, Result};

/// A new connection on its way to its loop.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) fd: OwnedFd,
}

struct Posted<E> {
    events: Vec<E>,
    accepted: Vec<Accepted>,
}

/// What was posted to one loop. It is bounded by its posters: completions of
/// requests that the loop itself gave out, and accepted connections.
pub(super) struct Mailbox<E> {
    index: usize,
    wake: OwnedFd,
    stop: AtomicBool,
    /// The loop has been woken and has not looked yet.
    woken: AtomicBool,
    posted: Mutex<Posted<E>>,
}

impl<E> Mailbox<E> {
    pub(super) fn new(index: usize) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::from(std::io::Error::from(e)).context("make an eventfd"))?;
        Ok(Self {
            index,
            wake,
            stop: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            posted: Mutex::new(Posted { events: Vec::new(), accepted: Vec::new() }),
        })
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn hand_over(&self, accepted: Accepted) {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).accepted.push(accepted);
        self.wake();
    }

    /// Takes what was posted; the vectors must be empty and are filled.
    pub(super) fn take(&self, events: &mut Vec<E>, accepted: &mut Vec<Accepted>) {
        let mut count = [0u8; 8];
        // Whether it held a count or none does not matter: we look anyway.
        let _ = rustix::io::read(&self.wake, &mut count);
        self.woken.store(false, Ordering::SeqCst);
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut posted.events, events);
        std::mem::swap(&mut posted.accepted, accepted);
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // It fails only when the count is at its maximum: awake then.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Posts events to one loop, from any thread.
pub struct LoopHandle<E> {
    mailbox: Arc<Mailbox<E>>,
}

impl<E> Clone for LoopHandle<E> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone() }
    }
}

impl<E> LoopHandle<E> {
    pub(super) fn new(mailbox: Arc<Mailbox<E>>) -> Self {
        Self { mailbox }
    }

    /// The loop's number, from 0.
    pub fn index(&self) -> usize {
        self.mailbox.index
    }

    /// The loop's service gets the event soon.
    pub fn post(&self, event: E) {
        let mut posted = self.mailbox.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.events.push(event);
        drop(posted);
        self.mailbox.wake();
    }

    pub(super) fn stop(&self) {
        self.mailbox.stop.store(true, Ordering::Release);
        self.mailbox.wake();
    }
}
