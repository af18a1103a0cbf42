//! Names that the kernel uses without asking, and their end ([`crate::name_lifetimes`]).

use crate::fuse::{NodeId, RequestContext};
use crate::kernel_cache::KernelCache;
use crate::name_lifetimes::{LASTS, LIFETIME};
use crate::translate::groupless;
use crate::weirfs::WeirFs;
use rustix::process::{Pid, test_kill_process};
use std::time::{Duration, Instant};
use weir_client::Consistency;
use weir_types::FileId;

/// Time between two looks at a thread that may not have handled its reply.
const NEXT_LOOK: Duration = Duration::from_micros(100);

/// How the kernel handles a reply with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// Under the directory's lock.
    Locked,
    /// Perhaps without it: the kernel has a directory of that name already.
    Unlocked,
    /// Perhaps without it, and it may be the last request of its thread.
    Late,
}

/// A name that the kernel is to move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    /// Whether it may have a lifetime.
    lasts: bool,
    file: Option<FileId>,
}

impl KernelCache {
    /// Makes the kernel ask again for a name of a directory, or all names. Returns when it does, or
    /// when their lifetimes are over: the kernel may hold the directory locked for a change of this
    /// mount's own, which may wait for the very client that waits for this one.
    pub(crate) fn end_names(&self, dir: FileId, name: Option<&[u8]>) {
        let told = self.names.change(dir, name, Instant::now());
        if told.is_empty() {
            return;
        }
        while !self.names.is_handled(dir, name, Instant::now(), &has_run) {
            std::thread::sleep(NEXT_LOOK);
        }
        let over = Instant::now() + LASTS;
        let expiring = self.dropper.expire(dir, told);
        if !expiring.wait(over) {
            self.names.was_waited_for(dir, over);
            // Who was told late has the lock, and waits for no other client.
            let handled = || self.names.are_all_handled(dir, Instant::now());
            while !handled() && !expiring.wait(over) {
                std::thread::sleep(NEXT_LOOK);
            }
        }
    }

    /// Waits until no name of a directory that the kernel was told has a lifetime any more.
    fn outlive_names_of(&self, dir: FileId) {
        if self.names.has_told(dir) {
            while !self.names.are_all_handled(dir, Instant::now()) {
                std::thread::sleep(NEXT_LOOK);
            }
            std::thread::sleep(LASTS);
        }
    }

    /// As [`Self::end_names`], for all directories.
    pub(crate) fn end_all_names(&self) {
        let told = self.names.take_all();
        if told.is_empty() {
            return;
        }
        let over = Instant::now() + LASTS;
        while !self.names.is_all_handled(Instant::now(), &has_run) && Instant::now() < over {
            std::thread::sleep(NEXT_LOOK);
        }
        self.dropper.expire(FileId::ROOT, told).wait(over);
    }
}

impl WeirFs {
    /// How long the kernel may use a name without asking: that of this file, or of none. As long as
    /// the client may, if it caches the very same, but not for long. When that ends, the kernel is
    /// told.
    pub(crate) fn name_lifetime(
        &self,
        ctx: &RequestContext<'_>,
        (parent, name): (NodeId, &[u8]),
        file: Option<FileId>,
        handled: Handled,
    ) -> Duration {
        if self.options.consistency != Consistency::Strict {
            return self.ttl();
        }
        let (lifetime, now) = (self.client.keeps_for().min(LIFETIME), Instant::now());
        let Some(dir) = self.nodes.file(parent).filter(|_| !lifetime.is_zero()) else {
            return Duration::ZERO;
        };
        // What it changes by one number it does not see by the other.
        if self.nodes.has_aliases(dir) {
            return Duration::ZERO;
        }
        let told = (parent, Box::from(name));
        let may = match handled {
            Handled::Locked => true,
            Handled::Unlocked => ctx.pid != 0 && self.cache.names.is_asked_often(&told, now),
            Handled::Late => false,
        };
        if !may || !self.cache.expires_names() || !self.cache.names.begins(dir, told, now) {
            return Duration::ZERO;
        }
        let unlocked = (handled == Handled::Unlocked).then_some(name);
        self.cache.names.replies(ctx.pid, dir, unlocked, now);
        // Asked after that: what ends it now is passed on.
        let is_same = self.client.known_name(dir, name) == Some(file);
        if is_same { lifetime } else { Duration::ZERO }
    }

    /// Handles a new number of a directory that the kernel has by another one, too: what it changes
    /// by one number it does not see by the other.
    pub(crate) fn is_aliased(&self, dir: FileId) {
        if self.nodes.has_aliases(dir) {
            self.cache.outlive_names_of(dir);
        }
    }

    /// Records that the kernel is to move what it has under one name to another, with its lifetime if
    /// it has one.
    pub(crate) fn name_moves(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> Moving {
        let (parent, name) = from;
        let dir = self.nodes.file(parent);
        let names = &self.cache.names;
        let is_told = |dir| names.is_told(dir, &(parent, name.into()));
        let file = dir.and_then(|dir| self.client.known_name(dir, name).flatten());
        // A directory may just be asked for without the lock.
        let is_directory = file.is_some_and(|file| self.nodes.is_directory(file));
        let may_begin = |dir| is_directory && names.may_begin(dir, Instant::now());
        let lasts = dir.is_some_and(|dir| is_told(dir) || may_begin(dir));
        if let Some(dir) = self.nodes.file(to.0).filter(|_| lasts) {
            names.moves(dir, (to.0, to.1.into()), Instant::now());
        }
        Moving { lasts, file }
    }

    /// Makes sure, before the kernel moves it, that this client hears of changes of the new name: it
    /// asks for the name. While another client's change of the directory waits, that has been
    /// allowed, and what it asks for it may not keep: then the lifetime is waited for.
    pub(crate) fn name_has_moved(
        &self,
        ctx: &RequestContext<'_>,
        Moving { lasts, file }: Moving,
        (parent, name): (NodeId, &[u8]),
    ) {
        let Some(dir) = self.nodes.file(parent).filter(|_| lasts) else { return };
        let found = self.client.lookup(&groupless(ctx), dir, name);
        let is_kept = file.is_some() && self.client.known_name(dir, name) == Some(file);
        if found.is_err() || !is_kept {
            std::thread::sleep(LASTS);
        }
    }
}

/// Whether a thread has run since it was woken: it sleeps again, or is gone.
fn has_run(thread: u32) -> bool {
    // (Nobody knows which thread 0 is.)
    let Some(pid) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return false };
    match std::fs::read_to_string(format!("/proc/{thread}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, of)| !of.starts_with('R')),
        Err(_) => test_kill_process(pid) == Err(rustix::io::Errno::SRCH),
    }
}
