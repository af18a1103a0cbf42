//! Clients that keep all that they may keep, at random, and are never wrong.
//!
//! A client keeps names, attributes and pages with what each was when it was
//! told, and believes them for as long as it may. What is true is known here:
//! names and modes by asking a client that keeps nothing, pages because every
//! write goes through the model.

use super::world::*;
use crate::harness::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use weir_types::{Attr, FileId};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const PAGES: u64 = 4;

/// What a client keeps.
#[derive(Default)]
struct Kept {
    names: BTreeMap<String, Option<FileId>>,
    modes: BTreeMap<FileId, u16>,
    /// Pages that it may read without asking, and whether it may write them.
    pages: BTreeMap<(FileId, u64), (u32, bool)>,
    open: BTreeMap<FileId, ()>,
}

enum Change {
    Create(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Chmod(FileId, u16),
    Acquire(FileId, u64, LeaseMode),
}

/// Something that waits, and of whom.
struct InFlight {
    who: usize,
    pending: Pending,
    change: Change,
}

struct Model {
    w: World,
    mounts: Vec<Mount>,
    kept: Vec<Kept>,
    in_flight: Vec<InFlight>,
    /// What is true, as far as requests have been answered.
    names: BTreeMap<String, FileId>,
    modes: BTreeMap<FileId, u16>,
    pages: BTreeMap<(FileId, u64), u32>,
    writes: u32,
    files: Vec<FileId>,
}

#[derive(Clone, Debug)]
enum Step {
    Lookup(usize, usize),
    GetAttr(usize, usize),
    Create(usize, usize),
    Unlink(usize, usize),
    Rename(usize, usize, usize),
    Chmod(usize, usize, u16),
    Open(usize, usize, bool),
    Close(usize, usize),
    Use(usize, usize, u64, bool),
    /// Obeys this many of the events that there are.
    Obey(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, name, file) = (0usize..3, 0usize..4, 0usize..5);
    let step = prop_oneof![
        4 => (who.clone(), name.clone()).prop_map(|(w, n)| Step::Lookup(w, n)),
        4 => (who.clone(), file.clone()).prop_map(|(w, f)| Step::GetAttr(w, f)),
        2 => (who.clone(), name.clone()).prop_map(|(w, n)| Step::Create(w, n)),
        2 => (who.clone(), name.clone()).prop_map(|(w, n)| Step::Unlink(w, n)),
        1 => (who.clone(), name.clone(), name).prop_map(|(w, a, b)| Step::Rename(w, a, b)),
        2 => (who.clone(), file.clone(), 0u16..512).prop_map(|(w, f, m)| Step::Chmod(w, f, m)),
        3 => (who.clone(), file.clone(), any::<bool>()).prop_map(|(w, f, r)| Step::Open(w, f, r)),
        1 => (who.clone(), file.clone()).prop_map(|(w, f)| Step::Close(w, f)),
        8 => (who.clone(), file, 0..PAGES, any::<bool>())
            .prop_map(|(w, f, p, write)| Step::Use(w, f, p, write)),
        6 => (who, 1usize..4).prop_map(|(w, n)| Step::Obey(w, n)),
    ];
    prop::collection::vec(step, 1..120)
}

impl Model {
    fn new() -> Self {
        let mut w = World::new();
        let mounts: Vec<Mount> = (0..3).map(|_| w.mount()).collect();
        let kept = mounts.iter().map(|_| Kept::default()).collect();
        Self {
            w,
            mounts,
            kept,
            in_flight: vec![],
            names: BTreeMap::new(),
            modes: BTreeMap::new(),
            pages: BTreeMap::new(),
            writes: 0,
            files: vec![],
        }
    }

    fn file(&self, n: usize) -> Option<FileId> {
        (!self.files.is_empty()).then(|| self.files[n % self.files.len()])
    }

    /// Nobody is wrong about anything.
    fn check(&self) {
        for (who, kept) in self.kept.iter().enumerate() {
            for (name, believed) in &kept.names {
                let real = self.names.get(name).copied();
                assert_eq!(*believed, real, "client {who} is wrong about the name {name}");
            }
            for (file, believed) in &kept.modes {
                assert_eq!(Some(believed), self.modes.get(file), "client {who}, mode of {file}");
            }
            for (at, (believed, _)) in &kept.pages {
                let real = self.pages.get(at).copied().unwrap_or(0);
                assert_eq!(*believed, real, "client {who} has an old page {at:?}");
            }
        }
    }

    fn learn_name(&mut self, who: usize, name: &str, file: Option<FileId>, keep: u8) {
        if keep & KEEP_NAMES != 0 {
            self.kept[who].names.insert(name.into(), file);
        }
    }

    fn learn_mode(&mut self, who: usize, attr: &weir_types::Attr, keep: u8) {
        if keep & KEEP_ATTRIBUTES != 0 {
            self.kept[who].modes.insert(attr.file, attr.mode);
        }
    }

    fn learn_lease(&mut self, who: usize, lease: &LeaseRange) {
        for page in 0..PAGES {
            let at = page * 4096;
            if lease.start <= at && at < lease.end {
                let now = self.pages.get(&(lease.file, page)).copied().unwrap_or(0);
                let kept = self.kept[who].pages.entry((lease.file, page)).or_insert((now, false));
                kept.1 |= lease.mode == LeaseMode::Write;
            }
        }
    }

    fn obey(&mut self, who: usize, most: usize) {
        let events = self.w.poll(&mut self.mounts[who]).events;
        let events: Vec<Event> = events.into_iter().take(most).collect();
        for event in &events {
            let kept = &mut self.kept[who];
            match &event.what {
                EventKind::Name { dir, name } => {
                    kept.names.remove(std::str::from_utf8(&name.0).unwrap());
                    kept.modes.remove(dir);
                }
                EventKind::Attributes { file } | EventKind::Removal { file } => {
                    kept.modes.remove(file);
                }
                EventKind::Recall(lease) => kept.pages.retain(|(file, page), (_, write)| {
                    let at = page * 4096;
                    let hit = *file == lease.file && lease.start <= at && at < lease.end;
                    *write &= !hit;
                    !hit || lease.mode == LeaseMode::Read
                }),
                EventKind::Report { .. } => {}
            }
        }
        let acks = events.iter().map(|e| EventAck {
            number: e.number,
            forgotten: false,
            unconfirmed: false,
            holds: false,
        });
        let acks = AckEventsRequest { acks: acks.collect() };
        // What is not obeyed yet is asked for again.
        self.mounts[who].have = 0;
        self.w.now(&mut self.mounts[who], &acks);
    }

    /// What a request of one's own will change is not kept from before it.
    fn forget_own(&mut self, who: usize, change: &Change) {
        let kept = &mut self.kept[who];
        let file = |name: &str| self.names.get(name).copied();
        match change {
            Change::Create(name) => {
                kept.names.remove(*name);
            }
            Change::Unlink(name) => {
                kept.names.remove(*name);
                file(name).map(|file| kept.modes.remove(&file));
            }
            Change::Rename(from, to) => {
                for name in [from, to] {
                    kept.names.remove(*name);
                    file(name).map(|file| kept.modes.remove(&file));
                }
            }
            Change::Chmod(file, _) => {
                kept.modes.remove(file);
            }
            Change::Acquire(..) => {}
        }
    }

    /// A change has been answered: so it has happened.
    fn happened(&mut self, who: usize, change: &Change, done: Done) {
        let Done { is_ok, keep, made, also } = done;
        if !is_ok {
            return;
        }
        match change {
            Change::Create(name) => {
                let file = made.unwrap();
                self.names.insert((*name).into(), file);
                self.modes.insert(file, 0o644);
                self.files.push(file);
                self.kept[who].open.insert(file, ());
                if keep & LEASE_WRITE != 0 {
                    self.learn_lease(who, &whole(file, LeaseMode::Write));
                }
            }
            Change::Unlink(name) => {
                self.names.remove(*name);
            }
            Change::Rename(from, to) => {
                if let Some(file) = self.names.remove(*from) {
                    self.names.insert((*to).into(), file);
                }
            }
            Change::Chmod(file, mode) => {
                self.modes.insert(*file, *mode);
            }
            Change::Acquire(..) => {}
        }
        // What came with it is kept, too: modes, and what the names in the directory are now.
        for attr in also.iter().filter(|attr| attr.file != ROOT) {
            self.learn_mode(who, attr, KEEP_ATTRIBUTES);
        }
        if also.iter().any(|attr| attr.file == ROOT) {
            let changed: &[&str] = match change {
                Change::Create(name) | Change::Unlink(name) => &[name],
                Change::Rename(from, to) => &[from, to],
                _ => &[],
            };
            for name in changed {
                self.learn_name(who, name, self.names.get(*name).copied(), KEEP_NAMES);
            }
        }
    }

    fn start(&mut self, who: usize, change: Change) {
        if self.in_flight.iter().any(|other| other.who == who) {
            return;
        }
        self.forget_own(who, &change);
        let mount = &mut self.mounts[who];
        let w = &mut self.w;
        let sent = match &change {
            Change::Create(name) => w.send(mount, &create_request(ROOT, name)).map(opened),
            Change::Unlink(name) => w.send(mount, &unlink(name)).map(plain),
            Change::Rename(from, to) => {
                w.send(mount, &rename_request((ROOT, from), (ROOT, to))).map(plain)
            }
            Change::Chmod(file, mode) => w.send(mount, &chmod(*file, *mode)).map(plain),
            Change::Acquire(file, page, mode) => {
                let lease = range(*file, page * 4096, page * 4096 + 1, *mode);
                w.send(mount, &acquire(lease)).map(|heard| {
                    if let Ok(granted) = &heard.said {
                        return Outcome::Granted(granted.lease.clone());
                    }
                    plain(heard)
                })
            }
        };
        match sent {
            Ok(outcome) => self.finish(who, &change, outcome),
            Err(pending) => self.in_flight.push(InFlight { who, pending, change }),
        }
    }

    fn finish(&mut self, who: usize, change: &Change, outcome: Outcome) {
        match outcome {
            Outcome::Done(done) => self.happened(who, change, done),
            Outcome::Granted(lease) => self.learn_lease(who, &lease),
        }
    }

    fn collect(&mut self) {
        loop {
            let done = |(at, one): (usize, &InFlight)| Some((self.w.order(one.pending)?, at));
            let Some((_, at)) = self.in_flight.iter().enumerate().filter_map(done).min() else {
                return;
            };
            let InFlight { who, pending, change } = self.in_flight.remove(at);
            let outcome = match &change {
                Change::Create(_) => self.w.later::<CreateRequest>(pending).map(opened),
                Change::Unlink(_) => self.w.later::<UnlinkRequest>(pending).map(plain),
                Change::Rename(..) => self.w.later::<RenameRequest>(pending).map(plain),
                Change::Chmod(..) => self.w.later::<SetAttrRequest>(pending).map(plain),
                Change::Acquire(..) => {
                    self.w.later::<AcquireRequest>(pending).map(|heard| match &heard.said {
                        Ok(granted) => Outcome::Granted(granted.lease.clone()),
                        Err(_) => plain(heard),
                    })
                }
            };
            self.finish(who, &change, outcome.unwrap());
        }
    }

    /// Asks something that may have to wait for reports; everybody obeys then.
    fn ask<R: weir_wire::Request>(&mut self, who: usize, request: &R) -> (Heard<R::Reply>, bool) {
        let pending = match self.w.send(&mut self.mounts[who], request) {
            Ok(heard) => return (heard, true),
            Err(pending) => pending,
        };
        for other in (0..self.mounts.len()).cycle().take(1000) {
            self.obey(other, usize::MAX);
            let heard = self.w.later::<R>(pending);
            self.collect();
            if let Some(heard) = heard {
                return (heard, false);
            }
        }
        panic!("{:?} waits for ever", R::OP);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Lookup(who, name) => {
                let name = NAMES[name];
                let (heard, at_once) = self.ask(who, &lookup(name));
                let found = heard.said.as_ref().ok().map(|attr| attr.file);
                // What waited may have been overtaken.
                if at_once {
                    assert_eq!(found, self.names.get(name).copied());
                }
                self.learn_name(who, name, found, heard.keep);
                if let Ok(attr) = &heard.said {
                    self.learn_mode(who, attr, heard.keep);
                }
            }
            Step::GetAttr(who, file) => {
                let Some(file) = self.file(file) else { return };
                let (heard, _) = self.ask(who, &GetAttrRequest { file });
                if let Ok(attr) = &heard.said {
                    self.learn_mode(who, attr, heard.keep);
                }
            }
            Step::Create(who, name) => self.start(who, Change::Create(NAMES[name])),
            Step::Unlink(who, name) => self.start(who, Change::Unlink(NAMES[name])),
            Step::Rename(who, from, to) if from != to => {
                self.start(who, Change::Rename(NAMES[from], NAMES[to]));
            }
            Step::Chmod(who, file, mode) => {
                let Some(file) = self.file(file) else { return };
                self.start(who, Change::Chmod(file, mode));
            }
            Step::Open(who, file, write) => {
                let Some(file) = self.file(file) else { return };
                let rights = if write { Rights::READ_WRITE } else { Rights::READ };
                if self.kept[who].open.contains_key(&file) {
                    return;
                }
                let (heard, _) = self.ask(who, &OpenRequest { file, rights });
                if heard.said.is_err() {
                    return;
                }
                self.kept[who].open.insert(file, ());
                let lease = match heard.keep {
                    keep if keep & LEASE_WRITE != 0 => LeaseMode::Write,
                    keep if keep & LEASE_READ != 0 => LeaseMode::Read,
                    _ => return,
                };
                self.learn_lease(who, &whole(file, lease));
            }
            Step::Close(who, file) => {
                let Some(file) = self.file(file) else { return };
                if self.kept[who].open.remove(&file).is_some() {
                    self.kept[who].pages.retain(|(of, _), _| *of != file);
                    self.w.close(&mut self.mounts[who], file);
                }
            }
            Step::Use(who, file, page, write) => {
                let Some(file) = self.file(file) else { return };
                if !self.kept[who].open.contains_key(&file) {
                    return;
                }
                match self.kept[who].pages.get_mut(&(file, page)) {
                    Some((value, true)) if write => {
                        self.writes += 1;
                        *value = self.writes;
                        self.pages.insert((file, page), self.writes);
                    }
                    Some(_) if !write => {}
                    _ => {
                        let mode = if write { LeaseMode::Write } else { LeaseMode::Read };
                        self.start(who, Change::Acquire(file, page, mode));
                    }
                }
            }
            Step::Obey(who, most) => self.obey(who, most),
            Step::Rename(..) => {}
        }
        self.collect();
        self.check();
    }

    /// Whatever waits comes to an end when everybody obeys.
    fn end(&mut self) {
        for _ in 0..1000 {
            if self.in_flight.is_empty() {
                return;
            }
            for who in 0..self.mounts.len() {
                self.obey(who, usize::MAX);
                self.collect();
                self.check();
            }
        }
        panic!("{} requests wait for ever", self.in_flight.len());
    }
}

struct Done {
    is_ok: bool,
    keep: u8,
    made: Option<FileId>,
    also: Vec<Attr>,
}

enum Outcome {
    Done(Done),
    Granted(LeaseRange),
}

fn plain<T>(heard: Heard<T>) -> Outcome {
    let Heard { said, keep, also } = heard;
    Outcome::Done(Done { is_ok: said.is_ok(), keep, made: None, also })
}

fn opened(heard: Heard<OpenFile>) -> Outcome {
    let made = heard.said.as_ref().ok().map(|open| open.attr.file);
    Outcome::Done(Done { is_ok: made.is_some(), keep: heard.keep, made, also: heard.also })
}

/// Runs so many random lists of steps; the first that shows a client that is
/// wrong, as short as it can be made.
pub fn run(cases: u32) -> Result<(), String> {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let ran = TestRunner::new(config).run(&steps(), |steps| {
        let mut model = Model::new();
        for step in &steps {
            model.step(step);
        }
        model.end();
        Ok(())
    });
    ran.map_err(|error| error.to_string())
}
