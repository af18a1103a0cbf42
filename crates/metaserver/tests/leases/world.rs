//! Clients that poll, and requests that may have to wait.

use crate::harness::*;
use std::collections::BTreeMap;
use weir_metaserver::machine::{Answer, ParkedTicket, Peer, Reply};
use weir_metaserver::ops::dispatch::{Repeat, repeat_of};
use weir_metastore::ModelEngine;
use weir_types::{Attr, Decode, Error, FileId, RequestId, SlotId, SlotSequence};
use weir_wire::lease::*;
use weir_wire::message::Request;
use weir_wire::meta::*;
use weir_wire::{Header, Rights};

pub const ROOT: FileId = FileId::ROOT;

/// The server, and answers that came later.
pub struct World {
    pub c: Cluster<ModelEngine>,
    later: BTreeMap<ParkedTicket, (u64, Reply)>,
    answers: u64,
}

/// A client, and the last event that it has received.
#[derive(Clone, Debug)]
pub struct Mount {
    pub client: Client,
    pub have: u64,
}

/// An answer, with what of it may be kept.
#[derive(Debug)]
pub struct Heard<T> {
    pub said: Result<T, Error>,
    pub keep: u8,
    pub also: Vec<Attr>,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Pending(pub ParkedTicket);

pub fn heard<R: Request>(reply: Reply) -> Heard<R::Reply> {
    let keep = reply.keep;
    let mut also = Vec::new();
    let said = match reply.status {
        None if keep & HAS_ALSO != 0 => {
            let (said, more) = <(R::Reply, Also)>::from_bytes(&reply.body).unwrap();
            also = more.attributes;
            Ok(said)
        }
        None => Ok(R::Reply::from_bytes(&reply.body).unwrap()),
        Some(_) => Err(Error::from_bytes(&reply.body).unwrap()),
    };
    Heard { said, keep, also }
}

impl World {
    pub fn new() -> Self {
        let mut c = Cluster::new(1);
        // Data servers do not report in these tests.
        c.times.target_timeout_ms = u64::MAX / 8;
        let sessions = c.sessions.clone();
        let mut c = Cluster::open(c.machine.into_engine(), c.now, c.times, 1);
        c.sessions = sessions;
        c.register(1, &[1]).unwrap();
        Self { c, later: BTreeMap::new(), answers: 0 }
    }

    /// The server is killed and started again; nobody has come back.
    pub fn killed(self) -> Self {
        let mut c = self.c;
        c.now.unix.0 += 1_000_000_000;
        let mut c = c.killed();
        c.register(1, &[1]).unwrap();
        Self { c, later: BTreeMap::new(), answers: 0 }
    }

    /// A client that has not polled: relaxed.
    pub fn relaxed(&mut self) -> Mount {
        Mount { client: self.c.client(root()), have: 0 }
    }

    pub fn mount(&mut self) -> Mount {
        let mut mount = self.relaxed();
        assert!(self.poll(&mut mount).events.is_empty());
        mount
    }

    fn collect(&mut self) {
        let ready = self.c.machine.take_ready(self.c.now);
        self.c.machine.flush().unwrap();
        for (ticket, answer) in ready {
            match answer {
                Answer::Now(reply) | Answer::AfterSync(_, reply) => {
                    self.answers += 1;
                    assert!(self.later.insert(ticket, (self.answers, reply)).is_none());
                }
                Answer::Parked(_) => panic!("an answer that is none"),
            }
        }
    }

    /// Sends a request; what it came to, or what waits.
    pub fn send<R: Request>(
        &mut self,
        mount: &mut Mount,
        request: &R,
    ) -> Result<Heard<R::Reply>, Pending> {
        let once = repeat_of(R::OP) == Some(Repeat::Once);
        let mutation = once.then(|| {
            mount.client.next += 1;
            MutationId { slot: SlotId(0), sequence: SlotSequence(mount.client.next) }
        });
        self.send_as(mount, mutation, request)
    }

    pub fn send_as<R: Request>(
        &mut self,
        mount: &Mount,
        mutation: Option<MutationId>,
        request: &R,
    ) -> Result<Heard<R::Reply>, Pending> {
        let prefix = MetaPrefix { caller: root(), mutation };
        let header = Header::request(R::OP, RequestId(1));
        let body = body(&prefix, request);
        let peer = Peer::Client(mount.client.session);
        let answer = self.c.machine.on_request(peer, &header, &body, self.c.now);
        self.collect();
        match answer {
            Answer::Now(reply) | Answer::AfterSync(_, reply) => Ok(heard::<R>(reply)),
            Answer::Parked(ticket) => match self.later.remove(&ticket) {
                Some((_, reply)) => Ok(heard::<R>(reply)),
                None => Err(Pending(ticket)),
            },
        }
    }

    /// As [`World::send`], for what must not have to wait.
    pub fn now<R: Request>(&mut self, mount: &mut Mount, request: &R) -> R::Reply {
        self.heard(mount, request).said.unwrap()
    }

    pub fn heard<R: Request>(&mut self, mount: &mut Mount, request: &R) -> Heard<R::Reply> {
        match self.send(mount, request) {
            Ok(heard) => heard,
            Err(_) => panic!("{:?} has to wait", R::OP),
        }
    }

    /// As [`World::send`], for what has to wait.
    pub fn waits<R: Request>(&mut self, mount: &mut Mount, request: &R) -> Pending {
        match self.send(mount, request) {
            Ok(_) => panic!("{:?} does not wait", R::OP),
            Err(pending) => pending,
        }
    }

    /// The answer to what waited, if it is there.
    pub fn later<R: Request>(&mut self, pending: Pending) -> Option<Heard<R::Reply>> {
        self.collect();
        self.later.remove(&pending.0).map(|(_, reply)| heard::<R>(reply))
    }

    /// When what waited was done, if it was: in the order of these.
    pub fn order(&self, pending: Pending) -> Option<u64> {
        Some(self.later.get(&pending.0)?.0)
    }

    /// Whether what waited has been answered, and how.
    pub fn answered(&mut self, pending: Pending) -> Option<Result<(), Error>> {
        self.collect();
        let (_, reply) = self.later.remove(&pending.0)?;
        Some(match reply.status {
            None => Ok(()),
            Some(_) => Err(Error::from_bytes(&reply.body).unwrap()),
        })
    }

    /// Makes a file where another client has to forget the name first.
    pub fn create_past(&mut self, mount: &mut Mount, name: &str, other: &mut Mount) -> FileId {
        let pending = self.waits(mount, &create_request(ROOT, name));
        self.obey(other);
        self.later::<CreateRequest>(pending).unwrap().said.unwrap().attr.file
    }

    /// What there is to give up. The client comes back at once if there is
    /// nothing.
    pub fn poll(&mut self, mount: &mut Mount) -> Events {
        match self.send(mount, &PollEventsRequest { have: mount.have }) {
            Ok(answer) => {
                let news = answer.said.unwrap();
                mount.have = news.events.last().map_or(mount.have, |last| last.number);
                news
            }
            Err(pending) => {
                self.c.machine.dropped(pending.0);
                Events { events: vec![], lease_ms: 0, lapsed: false }
            }
        }
    }

    /// What a client is asked to do, without the numbers.
    pub fn asked(&mut self, mount: &mut Mount) -> Vec<EventKind> {
        self.poll(mount).events.into_iter().map(|event| event.what).collect()
    }

    pub fn ack(&mut self, mount: &mut Mount, number: u64, forgotten: bool) {
        self.now(
            mount,
            &AckEventsRequest {
                acks: vec![EventAck { number, forgotten, unconfirmed: false, holds: false }],
            },
        );
    }

    /// Obeys everything, and says what it was.
    pub fn obey(&mut self, mount: &mut Mount) -> Vec<EventKind> {
        self.obey_and(mount, false)
    }

    /// The same, and holds the files that it is about.
    pub fn obey_holding(&mut self, mount: &mut Mount) -> Vec<EventKind> {
        self.obey_and(mount, true)
    }

    fn obey_and(&mut self, mount: &mut Mount, holds: bool) -> Vec<EventKind> {
        let events = self.poll(mount).events;
        let acks = events.iter().map(|e| EventAck {
            number: e.number,
            forgotten: false,
            unconfirmed: false,
            holds,
        });
        self.now(mount, &AckEventsRequest { acks: acks.collect() });
        events.into_iter().map(|event| event.what).collect()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.c.machine.status(self.c.now).counters;
        counters.into_iter().find(|(found, _)| found == name).unwrap().1
    }

    pub fn create(&mut self, mount: &mut Mount, name: &str) -> FileId {
        self.now(mount, &create_request(ROOT, name)).attr.file
    }

    pub fn open(&mut self, mount: &mut Mount, file: FileId, rights: Rights) -> Heard<OpenFile> {
        self.heard(mount, &OpenRequest { file, rights })
    }

    pub fn close(&mut self, mount: &mut Mount, file: FileId) {
        self.now(mount, &CloseRequest { files: vec![file], unconfirmed: vec![], written: vec![] });
    }

    /// Lets time pass, with polls of those that live.
    pub fn pass(&mut self, ms: u64, alive: &mut [&mut Mount]) {
        for _ in 0..ms / 500 {
            self.c.pass_ms(500);
            for mount in alive.iter_mut() {
                self.now(mount, &AckEventsRequest { acks: vec![] });
            }
        }
        self.collect();
    }
}

pub fn lookup(name: &str) -> LookupRequest {
    LookupRequest { parent: ROOT, name: name.as_bytes().into() }
}

pub fn unlink(name: &str) -> UnlinkRequest {
    UnlinkRequest { parent: ROOT, name: name.as_bytes().into(), hold: false }
}

pub fn name_of(dir: FileId, name: &str) -> EventKind {
    EventKind::Name { dir, name: name.as_bytes().into() }
}

pub fn removal_of(file: FileId) -> EventKind {
    EventKind::Removal { file }
}

pub fn attributes_of(file: FileId) -> EventKind {
    EventKind::Attributes { file }
}

pub fn range(file: FileId, start: u64, end: u64, mode: LeaseMode) -> LeaseRange {
    LeaseRange { file, start, end, mode }
}

pub fn whole(file: FileId, mode: LeaseMode) -> LeaseRange {
    range(file, 0, TO_THE_END, mode)
}

pub fn acquire(lease: LeaseRange) -> AcquireRequest {
    AcquireRequest { lease }
}

pub fn chmod(file: FileId, mode: u16) -> SetAttrRequest {
    SetAttrRequest { mode: Some(mode), ..set_nothing(file) }
}
