//! Waits for objects, and pollers: as `epoll` does it, with a list of
//! what may be ready that a wait goes through.

use crate::slab::Id;
use crate::world::World;
use crate::world::object::{Kind, Object, PollerRecord, Ready, Watch};
use rustix::io::{Errno, Result};
use std::collections::{BTreeMap, VecDeque};
use weir_host::net::{self, Interest};

impl World {
    pub(crate) fn add_poller(&mut self, process: usize) -> Id {
        self.network.pollers.insert(PollerRecord {
            process,
            watches: BTreeMap::new(),
            list: VecDeque::new(),
            waiters: Vec::new(),
        })
    }

    pub(crate) fn add_signal(&mut self, process: usize) -> Id {
        self.network.objects.insert(Object::new(process, Kind::Signal { raised: false }))
    }

    pub(super) fn set_signal(&mut self, id: Id, on: bool) {
        let Some(object) = self.network.objects.get_mut(id) else { return };
        if let Kind::Signal { raised } = &mut object.kind {
            *raised = on;
        }
        if on {
            self.notify(id, Ready::READABLE);
        }
    }

    /// What an object is ready for now.
    fn ready(&self, id: Id) -> Ready {
        let Some(object) = self.network.objects.get(id) else { return Ready::BROKEN };
        match &object.kind {
            Kind::Signal { raised } => Ready::READABLE.when(*raised),
            Kind::Listener { backlog, .. } => Ready::READABLE.when(!backlog.is_empty()),
            Kind::Stream { connection, end } => self.stream_ready(*connection, *end),
        }
    }

    /// Something has become possible with an object.
    pub(super) fn notify(&mut self, id: Id, mask: Ready) {
        let Some(object) = self.network.objects.get_mut(id) else { return };
        let mut waiters = std::mem::take(&mut object.waiters);
        self.wake_all(&mut waiters);
        let watcher = |world: &Self, at| world.network.objects.get(id)?.watchers.get(at).copied();
        let mut at = 0;
        while let Some(poller) = watcher(self, at) {
            self.list(poller, id, mask);
            at += 1;
        }
    }

    /// Puts an object into a poller's list if it asked for any of this.
    fn list(&mut self, poller: Id, id: Id, mask: Ready) {
        let Some(record) = self.network.pollers.get_mut(poller) else { return };
        let Some(watch) = record.watches.get_mut(&id) else { return };
        if watch.listed || !mask.has(Ready::wanted_by(watch.interest)) {
            return;
        }
        watch.listed = true;
        record.list.push_back(id);
        let mut waiters = std::mem::take(&mut record.waiters);
        self.wake_all(&mut waiters);
    }

    /// Whether an object is ready for this; else the running thread is told
    /// when it may be.
    pub(super) fn ready_or_tell(&mut self, id: Id, interest: Interest) -> bool {
        if self.ready(id).has(Ready::wanted_by(interest)) {
            return true;
        }
        let thread = self.running();
        if let Some(object) = self.network.objects.get_mut(id)
            && !object.waiters.contains(&thread)
        {
            object.waiters.push(thread);
        }
        false
    }

    /// The running thread waits for this object no more.
    pub(super) fn tell_no_more(&mut self, id: Id) {
        let thread = self.running();
        if let Some(object) = self.network.objects.get_mut(id) {
            object.waiters.retain(|&waiter| waiter != thread);
        }
    }

    pub(super) fn watch(
        &mut self,
        poller: Id,
        id: Id,
        token: u64,
        interest: Interest,
    ) -> Result<()> {
        let object = self.network.objects.get_mut(id).ok_or(Errno::BADF)?;
        let record = self.network.pollers.get_mut(poller).ok_or(Errno::BADF)?;
        if record.watches.contains_key(&id) {
            return Err(Errno::EXIST);
        }
        object.watchers.push(poller);
        record.watches.insert(id, Watch { token, interest, listed: false });
        self.list(poller, id, self.ready(id));
        Ok(())
    }

    pub(super) fn watch_for(
        &mut self,
        poller: Id,
        id: Id,
        token: u64,
        interest: Interest,
    ) -> Result<()> {
        let record = self.network.pollers.get_mut(poller).ok_or(Errno::BADF)?;
        let watch = record.watches.get_mut(&id).ok_or(Errno::NOENT)?;
        (watch.token, watch.interest) = (token, interest);
        self.list(poller, id, self.ready(id));
        Ok(())
    }

    pub(super) fn unwatch(&mut self, poller: Id, id: Id) -> Result<()> {
        let record = self.network.pollers.get_mut(poller).ok_or(Errno::BADF)?;
        record.watches.remove(&id).ok_or(Errno::NOENT)?;
        record.list.retain(|&listed| listed != id);
        if let Some(object) = self.network.objects.get_mut(id) {
            object.watchers.retain(|&watcher| watcher != poller);
        }
        Ok(())
    }

    /// Appends what a poller has to tell; true if it has anything. Otherwise
    /// the running thread is told when it may have.
    pub(super) fn harvest(&mut self, poller: Id, events: &mut Vec<net::Event>, max: usize) -> bool {
        let before = events.len();
        // Each once: what stays ready goes to the end of the list.
        let listed = self.network.pollers.get(poller).map_or(0, |p| p.list.len());
        for _ in 0..listed {
            if events.len() - before >= max {
                break;
            }
            if let Some(event) = self.next_listed(poller) {
                events.push(event);
            }
        }
        let found = events.len() > before;
        let thread = self.running();
        if let Some(record) = self.network.pollers.get_mut(poller) {
            record.waiters.retain(|&waiter| waiter != thread);
            if !found {
                record.waiters.push(thread);
            }
        }
        found
    }

    /// Whether a look at a poller may find something.
    pub(super) fn may_have_events(&self, poller: Id) -> bool {
        self.network.pollers.get(poller).is_some_and(|p| !p.list.is_empty())
    }

    /// Looks at the first that may be ready.
    fn next_listed(&mut self, poller: Id) -> Option<net::Event> {
        let id = self.network.pollers.get_mut(poller)?.list.pop_front()?;
        let now = self.ready(id);
        let record = self.network.pollers.get_mut(poller)?;
        // It is not there any more if it was closed.
        let watch = record.watches.get_mut(&id)?;
        let ready = now & Ready::wanted_by(watch.interest);
        watch.listed = ready != Ready::NOTHING && !watch.interest.edge;
        if watch.listed {
            record.list.push_back(id);
        }
        (ready != Ready::NOTHING).then(|| net::Event {
            token: watch.token,
            readable: ready.has(Ready::READABLE),
            writable: ready.has(Ready::WRITABLE),
            hangup: ready.has(Ready::FINISHED | Ready::BROKEN),
        })
    }

    /// The running thread waits for this poller no more.
    pub(super) fn stop_waiting(&mut self, poller: Id) {
        let thread = self.running();
        if let Some(record) = self.network.pollers.get_mut(poller) {
            record.waiters.retain(|&waiter| waiter != thread);
        }
    }

    pub(super) fn remove_poller(&mut self, id: Id) {
        let Some(record) = self.network.pollers.remove(id) else { return };
        for watched in record.watches.into_keys() {
            if let Some(object) = self.network.objects.get_mut(watched) {
                object.watchers.retain(|&watcher| watcher != id);
            }
        }
    }

    /// Takes an object away; its watchers forget it, its waiters wake.
    pub(super) fn remove_object(&mut self, id: Id) -> Option<Object> {
        let mut object = self.network.objects.remove(id)?;
        for watcher in object.watchers.drain(..) {
            if let Some(poller) = self.network.pollers.get_mut(watcher) {
                poller.watches.remove(&id);
            }
        }
        self.wake_all(&mut object.waiters);
        Some(object)
    }
}
