//! What programs hold: sockets, pollers and signals. Dropping one closes it.

use super::socket::Closing;
use crate::slab::Id;
use crate::world::Shared;
use rustix::io::{Errno, Result};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;
use weir_host::net::{Event, Interest};
use weir_host::simulated::{Poller, Signal, Socket};

/// Waits until an object is ready; false if the deadline comes first. Always
/// lets others run, so that a loop of waits takes time.
fn wait_for(world: &Shared, id: Id, interest: Interest, deadline: Option<u64>) -> bool {
    let mut entered = world.enter();
    if entered.ready_or_tell(id, interest) {
        world.give_way(entered);
        return true;
    }
    loop {
        let woken = world.wait(entered, deadline, "a socket or signal");
        entered = world.enter();
        if entered.ready_or_tell(id, interest) || !woken {
            break;
        }
    }
    let ready = entered.ready_or_tell(id, interest);
    entered.tell_no_more(id);
    ready
}

/// A stream socket or listener.
pub(crate) struct SimSocket {
    pub(crate) world: Shared,
    pub(crate) id: Id,
}

impl Socket for SimSocket {
    fn id(&self) -> u64 {
        self.id.number()
    }

    fn send(&self, bytes: &[IoSlice<'_>]) -> Result<usize> {
        self.world.enter().send(self.id, bytes)
    }

    fn receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.world.enter().receive(self.id, into)
    }

    fn shut_down(&self) -> Result<()> {
        self.world.enter().shut_down(self.id)
    }

    fn accept(&self) -> Result<Arc<dyn Socket>> {
        let id = self.world.enter().accept(self.id)?;
        Ok(Arc::new(SimSocket { world: self.world.clone(), id }))
    }

    fn take_error(&self) -> Option<Errno> {
        self.world.enter().take_error(self.id)
    }

    fn local_address(&self) -> String {
        self.world.enter().local_address(self.id)
    }

    fn wait(&self, interest: Interest, timeout: Duration) -> bool {
        let deadline = self.world.enter().deadline_here(timeout);
        wait_for(&self.world, self.id, interest, Some(deadline))
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        self.world.enter().close(self.id, Closing::Orderly);
    }
}

/// A poller.
pub(crate) struct SimPoller {
    pub(crate) world: Shared,
    pub(crate) id: Id,
}

impl Poller for SimPoller {
    fn add(&self, id: u64, token: u64, interest: Interest) -> Result<()> {
        self.world.enter().watch(self.id, Id::from_number(id), token, interest)
    }

    fn modify(&self, id: u64, token: u64, interest: Interest) -> Result<()> {
        self.world.enter().watch_for(self.id, Id::from_number(id), token, interest)
    }

    fn remove(&self, id: u64) -> Result<()> {
        self.world.enter().unwatch(self.id, Id::from_number(id))
    }

    fn wait(&self, events: &mut Vec<Event>, max: usize, timeout: Duration) -> Result<()> {
        let world = self.world.enter();
        let deadline = world.deadline_here(timeout);
        if timeout.is_zero() || world.may_have_events(self.id) {
            // Time passes even in a loop that never has to wait.
            self.world.give_way(world);
        } else {
            drop(world);
        }
        loop {
            let mut world = self.world.enter();
            if world.harvest(self.id, events, max) || world.now >= deadline {
                world.stop_waiting(self.id);
                return Ok(());
            }
            self.world.wait(world, Some(deadline), "a poller");
        }
    }
}

impl Drop for SimPoller {
    fn drop(&mut self) {
        self.world.enter().remove_poller(self.id);
    }
}

/// A signal.
pub(crate) struct SimSignal {
    pub(crate) world: Shared,
    pub(crate) id: Id,
}

impl Signal for SimSignal {
    fn id(&self) -> u64 {
        self.id.number()
    }

    fn raise(&self) {
        self.world.enter().set_signal(self.id, true);
    }

    fn clear(&self) {
        self.world.enter().set_signal(self.id, false);
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|time| self.world.enter().deadline_here(time));
        wait_for(&self.world, self.id, Interest::READ, deadline)
    }
}

impl Drop for SimSignal {
    fn drop(&mut self) {
        self.world.enter().close(self.id, Closing::Orderly);
    }
}
