//! Messages from other threads to an event loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_host::net::{Signal, Socket};
use weir_host::sync::Mutex;
use weir_types::{Error, Result};

/// The most new connections that wait for a loop. A loop that is stuck gets no more.
const MAX_HANDED_OVER: usize = 256;

/// A new connection on its way to its loop.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: Socket,
}

struct Posted<E> {
    events: Vec<E>,
    accepted: Vec<Accepted>,
}

/// Messages posted to one loop. Its length is bounded by its posters: completions of requests from
/// this loop, and accepted connections.
pub(super) struct Mailbox<E> {
    index: usize,
    wake: Signal,
    stop: AtomicBool,
    /// Whether the loop was woken and has not read the mailbox yet.
    woken: AtomicBool,
    posted: Mutex<Posted<E>>,
}

impl<E> Mailbox<E> {
    pub(super) fn new(index: usize) -> Result<Self> {
        let wake = Signal::new()
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

    /// The signal that is raised for each message.
    pub(super) fn signal(&self) -> &Signal {
        &self.wake
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Hands a connection to the loop, or returns it if too many are waiting.
    pub(super) fn hand_over(&self, accepted: Accepted) -> std::result::Result<(), Accepted> {
        let mut posted = self.posted.lock();
        if posted.accepted.len() >= MAX_HANDED_OVER {
            return Err(accepted);
        }
        posted.accepted.push(accepted);
        drop(posted);
        self.wake();
        Ok(())
    }

    /// Takes all messages. The vectors must be empty and are filled.
    pub(super) fn take(&self, events: &mut Vec<E>, accepted: &mut Vec<Accepted>) {
        self.wake.clear();
        self.woken.store(false, Ordering::SeqCst);
        let mut posted = self.posted.lock();
        std::mem::swap(&mut posted.events, events);
        std::mem::swap(&mut posted.accepted, accepted);
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.wake.raise();
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

    /// Index of the loop, from 0.
    pub fn index(&self) -> usize {
        self.mailbox.index
    }

    /// Posts an event to the service of the loop.
    pub fn post(&self, event: E) {
        let mut posted = self.mailbox.posted.lock();
        posted.events.push(event);
        drop(posted);
        self.mailbox.wake();
    }

    pub(super) fn stop(&self) {
        self.mailbox.stop.store(true, Ordering::Release);
        self.mailbox.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_loop_that_does_not_look_gets_so_many_connections_and_no_more() {
        let mailbox = Mailbox::<()>::new(0).unwrap();
        // Any descriptor serves the test.
        let any = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let hand_over = || mailbox.hand_over(Accepted { socket: Socket::from(any()) });
        assert!((0..MAX_HANDED_OVER).all(|_| hand_over().is_ok()));
        assert!(hand_over().is_err());
        let (mut events, mut accepted) = (Vec::new(), Vec::new());
        mailbox.take(&mut events, &mut accepted);
        assert_eq!(accepted.len(), MAX_HANDED_OVER);
        assert!(hand_over().is_ok(), "it has looked");
    }
}
