//! A metadata server whose disk fails: each change that waits is told, nothing else is.
// A failed helper fails the test; tests ask the operating system.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use crate::server::{Client, Place, Running, mkdir};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_metaserver::{MetaServerConfig, Notify};
use weir_metastore::{
    Commit, CommitOutcome, Embedded, EmbeddedConfig, Engine, Key, Sequence, Snapshot, Versioned,
};
use weir_types::{Error, ErrorKind, FileId, Result, SessionId};
use weir_wire::data::StatusRequest;
use weir_wire::lease::PollEventsRequest;
use weir_wire::meta::{LookupRequest, SyncMetaRequest};

/// What is the matter with a disk.
#[derive(Default)]
struct Illness {
    /// Nothing is written any more.
    fails: AtomicBool,
    /// Syncs are begun and do not end.
    hangs: AtomicBool,
    /// How many syncs hang.
    hanging: AtomicUsize,
}

impl Illness {
    fn check(&self) -> Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::ReadOnly, "metadata log 7: read-only")),
            false => Ok(()),
        }
    }
}

/// An engine on such a disk.
struct Ill {
    engine: Embedded,
    illness: Arc<Illness>,
}

impl Engine for Ill {
    fn sequence(&self) -> Sequence {
        self.engine.sequence()
    }

    fn get(&self, key: &[u8]) -> weir_types::Result<Option<Versioned>> {
        self.engine.get(key)
    }

    fn range(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> weir_types::Result<Vec<(Key, Versioned)>> {
        self.engine.range(start, end, limit)
    }

    fn commit(&mut self, commit: Commit) -> Result<CommitOutcome> {
        self.engine.commit(commit)
    }

    fn flush(&mut self) -> Result<Sequence> {
        self.illness.check()?;
        self.engine.flush()
    }

    fn request_sync(&mut self, upto: Sequence) {
        if self.illness.hangs.load(Ordering::SeqCst) {
            self.illness.hanging.fetch_add(1, Ordering::SeqCst);
        } else {
            self.engine.request_sync(upto);
        }
    }

    fn synced(&self) -> Sequence {
        match self.illness.hangs.load(Ordering::SeqCst) {
            true => Sequence::ZERO,
            false => self.engine.synced(),
        }
    }

    fn poll(&mut self) -> Result<()> {
        self.illness.check()?;
        self.engine.poll()
    }

    fn sync(&mut self) -> Result<()> {
        self.illness.check()?;
        self.engine.sync()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.engine.snapshot()
    }
}

fn start(place: &Place, illness: &Arc<Illness>) -> Running {
    // Nothing is taken from anybody meanwhile, on the slowest machine.
    let config = MetaServerConfig {
        session_timeout_ms: 300_000,
        lease_ms: 120_000,
        grace_ms: 120_000,
        ..place.config()
    };
    let illness = Arc::clone(illness);
    Running::start_with(move |signal, ready| {
        let open = |config: &MetaServerConfig, notify: Notify| {
            let engine = Embedded::open(&config.dir, EmbeddedConfig::default(), notify)?;
            Ok(Ill { engine, illness })
        };
        weir_metaserver::serve(config, open, signal, |info| ready.send(info).unwrap())
    })
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(told: Result<T>) {
    let error = told.unwrap_err();
    // A connection that ends, or silence, has other kinds.
    assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
    assert!(error.message.contains("weir up") && error.message.contains("log 7"), "{error}");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn when_the_disk_fails_each_change_that_waits_is_told_and_the_server_ends() {
    let place = Place::new();
    place.init();
    let illness = Arc::<Illness>::default();
    let running = start(&place, &illness);
    let address = running.addresses[0].clone();
    let new = || Client::open(&address, SessionId(0)).unwrap();
    let (mut keeper, mut maker, mut syncer, mut reader) = (new(), new(), new(), new());
    let session = keeper.welcome.session;
    let counter = |client: &mut Client, name: &str| {
        let status = client.ask(&StatusRequest {}).unwrap();
        status.counters.iter().find(|(counted, _)| counted == name).unwrap().1
    };
    let name = LookupRequest { parent: FileId::ROOT, name: b"parked"[..].into() };
    std::thread::scope(|scope| {
        // One that waits until another client gives up what it knows of the name.
        let mut polls = Client::open(&address, session).unwrap();
        polls.ask(&PollEventsRequest { have: 0 }).unwrap();
        let news = scope.spawn(move || polls.ask(&PollEventsRequest { have: 0 }));
        until("the poll never arrived", || {
            keeper.ask(&name).unwrap_err();
            counter(&mut keeper, "beliefs") > 0
        });
        let parked = scope.spawn(move || maker.make(&mkdir("parked")));
        assert_eq!(news.join().unwrap().unwrap().events.len(), 1);
        until("the change did not wait", || counter(&mut keeper, "parked_now") > 0);
        // One that waits for the disk.
        illness.hangs.store(true, Ordering::SeqCst);
        let synced = scope.spawn(move || syncer.ask(&SyncMetaRequest {}));
        until("the sync did not begin", || illness.hanging.load(Ordering::SeqCst) > 0);
        // A poll that waits for news.
        let mut waits = Client::open(&address, session).unwrap();
        let silent = scope.spawn(move || waits.ask(&PollEventsRequest { have: 1 }));
        // And one that the disk does not take.
        illness.fails.store(true, Ordering::SeqCst);
        is_refused(reader.make(&mkdir("turn")));
        is_refused(parked.join().unwrap());
        is_refused(synced.join().unwrap());
        let error = silent.join().unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable, "it keeps what it holds: {error}");
    });
    let error = running.thread.join().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ReadOnly);

    let short = MetaServerConfig { lease_ms: 1_000, grace_ms: 1_000, ..place.config() };
    let running = Running::start(short);
    let mut client = Client::open(&running.addresses[0], SessionId(0)).unwrap();
    assert_eq!(client.ask(&name).unwrap_err().kind, ErrorKind::NotFound);
    running.stop();
}
