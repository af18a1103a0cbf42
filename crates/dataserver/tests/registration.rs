//! The line to the metadata server, which here is a few lines of test; and
//! what is said when a server cannot start.

use crate::cluster::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_net::server::ServerCounters;
use weir_net::{
    Address, BufferPool, ConnId, Frame, Listener, Outbox, Server, ServerConfig, Service,
};
use weir_types::codec::Decode;
use weir_types::{
    ClientId, CopyIndex, Epoch, Error, ErrorKind, FileId, KeyGeneration, ObjectId, Result,
    SessionId, TargetId,
};
use weir_wire::data::{Access, ListObjectsRequest, NoteGapRequest, PingRequest, StatObjectRequest};
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::peer::{
    HeartbeatReply, HeartbeatRequest, OwnKey, RegisterRequest, Revocation, Revocations,
    TargetReport,
};
use weir_wire::ticket::{OF_SERVERS, Ticket};
use weir_wire::{Capability, Header, Key, Level, Op, Rights};

/// What the metadata server heard, and what it says.
#[derive(Default)]
struct Heard {
    registered: Vec<RegisterRequest>,
    heartbeats: u64,
    removed: Vec<(TargetId, ObjectId)>,
    /// What others lack, as the first target said last.
    gaps: Vec<(TargetId, u64)>,
    /// Named until they are confirmed.
    remove: Vec<(TargetId, ObjectId)>,
    /// The same of copies that may lack what only a lost target had.
    distrust: Vec<(TargetId, ObjectId)>,
    oldest_keys: Vec<(TargetId, KeyGeneration)>,
    own_keys: Vec<OwnKey>,
    /// What the server says that it has of the first target.
    has_key: (KeyGeneration, KeyGeneration),
    revoked: Revocations,
    /// The level that the cluster requires.
    protection: Level,
    /// Up to which number the server knows what was revoked.
    knows: u64,
}

#[derive(Clone)]
struct Metadata(Arc<Mutex<Heard>>);

impl Metadata {
    fn listen(&self, address: &str) -> (Server<()>, String) {
        let listener = Listener::bind(&Address::parse(address).unwrap()).unwrap();
        let address = listener.address().to_string();
        let config = ServerConfig::new(BufferPool::new(1 << 20));
        let service = |_, _: &Arc<ServerCounters>| Ok(self.clone());
        (Server::start(config, vec![listener], service).unwrap(), address)
    }

    fn take_reports(&self, reports: Vec<TargetReport>) -> HeartbeatReply {
        let mut heard = self.0.lock().unwrap();
        for report in reports {
            if report.target == TARGETS[0] {
                heard.has_key = (report.own_key, report.own_key_from);
                heard.gaps = report.gaps.clone();
            }
            assert!(report.usage.total_bytes > 0 || !report.trouble.is_empty());
            heard.removed.extend(report.removed.iter().map(|o| (report.target, *o)));
            for object in &report.distrusted {
                heard.distrust.retain(|d| *d != (report.target, *object));
            }
        }
        let removed = heard.removed.clone();
        heard.remove.retain(|r| !removed.contains(r));
        HeartbeatReply {
            epoch: Epoch(1),
            in_effect: Epoch(1),
            standings: Vec::new(),
            serve_ms: 60_000,
            remove: heard.remove.clone(),
            fill: Vec::new(),
            build: Vec::new(),
            distrust: heard.distrust.clone(),
            give_up: Vec::new(),
            busy_percent: 100,
            protection: heard.protection,
            oldest_keys: heard.oldest_keys.clone(),
            own_keys: heard.own_keys.clone(),
            revoked: heard.revoked.clone(),
            interval_ms: 20,
        }
    }

    fn until(&self, what: &str, done: impl Fn(&Heard) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(&self.0.lock().unwrap()) {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Service for Metadata {
    type Event = ();

    fn key_for(&mut self, hello: &Hello) -> Result<Key> {
        match hello.identity {
            Identity::Server(server) => Ok(master().server(server, KeyGeneration(1))),
            _ => Err(ErrorKind::AuthFailed.into()),
        }
    }

    fn welcome(&mut self, _: ConnId, _: &Hello) -> Result<Welcome> {
        Ok(Welcome { session: SessionId(0), cluster: CLUSTER, instance: 1, runs: Vec::new() })
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        let reply = match frame.header.op {
            Op::Register => {
                let request = RegisterRequest::from_bytes(frame.body).unwrap();
                self.0.lock().unwrap().registered.push(request.clone());
                self.take_reports(request.targets)
            }
            Op::Heartbeat => {
                let request = HeartbeatRequest::from_bytes(frame.body).unwrap();
                let mut heard = self.0.lock().unwrap();
                (heard.heartbeats, heard.knows) = (heard.heartbeats + 1, request.revoked);
                drop(heard);
                self.take_reports(request.targets)
            }
            // It looks for the copies that lack something, sooner or later.
            Op::FindCopies => {
                let later = Error::from(ErrorKind::Busy);
                return out.reply_error(frame.conn, &frame.header, &later);
            }
            other => panic!("{other:?}"),
        };
        out.reply(frame.conn, Header::reply_to(&frame.header, None), &reply, &[], None);
    }

    fn on_event(&mut self, (): (), _: &mut Outbox) {}
}

#[test]
fn a_server_registers_removes_what_it_is_told_to_and_confirms() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    config.unix = Some(dir.join("sock"));
    let server = Running::start(config);
    metadata.until("registered", |h| h.registered.len() == 1 && h.heartbeats > 1);
    {
        let heard = metadata.0.lock().unwrap();
        let request = &heard.registered[0];
        assert_eq!((&request.tcp, &request.host), (&server.ready.tcp, &weir_net::host_name()));
        assert!(request.unix.ends_with("sock"));
        let targets: Vec<_> = request.targets.iter().map(|t| t.target).collect();
        assert_eq!(targets, TARGETS);
    }
    let mut client = server.connect();
    client.write(&access(1), 0, b"garbage").unwrap();
    client.write(&access(2), 0, b"precious").unwrap();
    let gone = [(TARGETS[0], object(1)), (TARGETS[1], object(99))];
    metadata.0.lock().unwrap().remove.extend(gone);
    metadata.until("both confirmed, one of which was never there", |h| {
        h.remove.is_empty() && gone.iter().all(|g| h.removed.contains(g))
    });
    let gone = client.ask(&StatObjectRequest { access: access(1) }).unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Stale, "{gone}");
    assert_eq!(client.read(&access(2), 0, 8).unwrap(), b"precious");
    assert!(server.counter("objects.removed") >= 2);
}

#[test]
fn what_may_lack_something_is_reported_once_it_is_not_served() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config);
    metadata.until("registered", |h| h.heartbeats > 0);
    let mut client = server.connect();
    client.write(&access(1), 0, b"older").unwrap();
    client.write(&access(2), 0, b"precious").unwrap();
    metadata.0.lock().unwrap().distrust.push((TARGETS[0], object(1)));
    metadata.until("reported", |h| h.distrust.is_empty());
    assert_eq!(client.read(&access(1), 0, 5).unwrap_err().kind, ErrorKind::NotCurrent);
    assert_eq!(client.read(&access(2), 0, 8).unwrap(), b"precious");
}

/// Otherwise a copy that says again what it is in doubt about comes online without what was
/// changed in the same place while it was away.
#[test]
fn what_a_copy_says_that_it_lacks_is_reported_until_it_has_been_brought() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config);
    metadata.until("registered", |h| h.heartbeats > 1);
    let peer = Ticket { session: OF_SERVERS, ..ticket(SERVER, FOREVER) };
    let mut peer = Client::connect(&server.address(), peer).unwrap();
    let behind = TargetId(99);
    let note = |told| NoteGapRequest {
        target: TARGETS[0],
        object: object(1),
        behind,
        copy: CopyIndex(1),
        start: 0,
        end: 1 << 20,
        told,
        first: false,
        filled: false,
        epoch: Epoch(0),
    };
    // A change that it did not get, and then its own doubt.
    for told in [false, true] {
        peer.ask(&note(told)).unwrap();
        let heartbeats = metadata.0.lock().unwrap().heartbeats;
        metadata.until("reported again", |h| h.heartbeats > heartbeats + 1);
        assert_eq!(metadata.0.lock().unwrap().gaps, [(behind, 1)], "told: {told}");
    }
}

#[test]
fn data_is_served_while_the_metadata_server_is_away_and_registration_comes_back() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address.clone()];
    let server = Running::start(config);
    let mut client = server.connect();
    // Before that it does not know what was revoked.
    metadata.until("registered", |h| h.heartbeats > 0);
    running.stop().unwrap();
    client.write(&access(1), 0, b"here").unwrap();
    for times in 2..=3 {
        let (running, _) = metadata.listen(&address);
        metadata.until("registered again", |h| h.registered.len() == times);
        running.stop().unwrap();
        assert_eq!(client.read(&access(1), 0, 4).unwrap(), b"here");
    }
}

#[test]
fn a_request_below_a_level_that_was_raised_is_refused_and_a_new_connection_is_at_it() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config);
    let mut client = server.connect();
    client.write(&access(1), 0, b"before").unwrap();
    let heartbeats = {
        let mut heard = metadata.0.lock().unwrap();
        heard.protection = Level::Private;
        heard.heartbeats
    };
    metadata.until("told", |heard| heard.heartbeats > heartbeats + 1);
    // At once, or when all of its kind were closed.
    let error = client.write(&access(1), 0, b"after.").unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotCurrent | ErrorKind::Unreachable), "{error}");
    let mut client = server.connect();
    assert_eq!(client.conn.level(), Level::Private);
    assert_eq!(client.read(&access(1), 0, 6).unwrap(), b"before");
    assert_eq!(server.counter("net.closed_unprotected"), 1);
}

#[test]
fn a_target_that_cannot_be_opened_is_reported_and_the_others_are_served() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    config.targets[1].dir = dir.join("nowhere");
    let gone = [(TARGETS[0], object(1)), (TARGETS[1], object(1))];
    metadata.0.lock().unwrap().remove.extend(gone);
    let server = Running::start(config);
    assert_eq!(server.ready.targets, TARGETS[..1]);
    let told = |h: &Heard| h.registered.len() == 1 && h.heartbeats > 3 && h.remove.len() < 2;
    metadata.until("told of both, and one is removed", told);
    let heard = metadata.0.lock().unwrap();
    let troubles: Vec<_> = heard.registered[0].targets.iter().map(|t| &t.trouble).collect();
    assert!(troubles[0].is_empty() && troubles[1].contains("nowhere"), "{troubles:?}");
    assert_eq!(heard.remove, gone[1..], "what was not removed is not confirmed");
    drop(heard);
    let mut client = server.connect();
    client.write(&access(2), 0, b"goes on").unwrap();
    let rights = capability(2, weir_wire::Rights::READ_WRITE);
    let error = client.write(&access_with(TARGETS[1], 2, rights), 0, b"no").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.message.contains("out of service") && error.message.contains("nowhere"));
    let status = client.status();
    assert_eq!(status.targets[1].trouble, error.message);
}

/// Made at its first change it may find the disk full, and no other copy could be told.
#[test]
fn a_target_has_its_gap_log_before_anything_is_changed() {
    let (_guard, dir) = scratch();
    let config = prepare(&dir);
    let logs: Vec<_> = config.targets.iter().map(|target| target.dir.join("gaps")).collect();
    assert!(logs.iter().all(|log| !log.exists()));
    let _server = Running::start(config);
    assert!(logs.iter().all(|log| log.exists()), "{logs:?}");
}

fn cannot_start(config: weir_dataserver::DataServerConfig) -> Error {
    let never = weir_host::net::Signal::new().unwrap();
    weir_dataserver::run(config, &never, |_| panic!("it must not start")).unwrap_err()
}

#[test]
fn what_keeps_a_server_from_starting_is_named_with_advice() {
    let (_guard, dir) = scratch();
    let good = prepare(&dir);

    let mut config = good.clone();
    config.targets.remove(0);
    config.targets[0].dir = dir.join("nowhere");
    let error = cannot_start(config);
    let told = |error: &Error, words: &[&str]| {
        assert!(words.iter().all(|w| error.message.contains(w)), "{error}");
    };
    told(&error, &["target 11", "nowhere", "weir target create"]);

    let mut config = good.clone();
    config.targets[0].key_file = dir.join("lost.key");
    told(&cannot_start(config), &["target 10", "lost.key", "weir key"]);

    let mut config = good.clone();
    config.targets[0].dir = config.targets.pop().unwrap().dir;
    told(&cannot_start(config), &["target 11 of server 1", "configured as target 10"]);

    let taken = Listener::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
    let mut config = good.clone();
    config.listen = taken.address().to_string();
    told(&cannot_start(config), &[&taken.address().to_string(), "another port"]);

    let running = Running::start(good.clone());
    told(&cannot_start(good), &["target 10", "already served"]);
    drop(running);
}

#[test]
fn a_new_own_key_of_a_target_is_kept_and_the_one_before_signs_with_no_later_working_keys() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config.clone());
    metadata.until("registered", |heard| heard.heartbeats > 1);
    let has = |heard: &Heard| (heard.has_key.0.0, heard.has_key.1.0);
    metadata.until("it says what it has", |heard| has(heard) == (1, 0));
    let new = Key::from_bytes([77; 32]);
    let bring = |from| {
        let of = (KeyGeneration(2), KeyGeneration(from));
        let nonce = [from as u8; 16];
        let own =
            OwnKey::seal(TARGETS[0], of, &new, nonce, &master().server(SERVER, KeyGeneration(1)));
        metadata.0.lock().unwrap().own_keys = vec![own];
        metadata.until("it is on disk", |heard| has(heard) == (2, from));
    };
    let signed = |working, by: &Key| {
        let key_generation = KeyGeneration(working);
        let capability = Capability { key_generation, ..capability(1, Rights::READ) };
        let mac = capability.sign(TARGETS[0], by);
        Access { mac, ..access_with(TARGETS[0], 1, capability) }
    };
    let old = master().target(TARGETS[0], KeyGeneration(1));
    let mut client = server.connect();
    client.write(&access(1), 0, b"mine").unwrap();
    bring(0);
    // Nobody knows yet from when on it signs: both do.
    for (working, by) in [(1, &old), (2, &old), (2, &new)] {
        assert_eq!(client.read(&signed(working, by), 0, 4).unwrap(), b"mine");
    }
    bring(2);
    let check = |client: &mut Client| {
        assert_eq!(client.read(&signed(1, &old), 0, 4).unwrap(), b"mine");
        assert_eq!(client.read(&signed(2, &new), 0, 4).unwrap(), b"mine");
        for (working, by) in [(1, &new), (2, &old), (9, &old)] {
            let error = client.read(&signed(working, by), 0, 4).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadCapability, "{working}");
        }
    };
    check(&mut client);
    drop(server);
    metadata.0.lock().unwrap().has_key = (KeyGeneration(0), KeyGeneration(0));
    let server = Running::start(config);
    metadata.until("it has it after a restart", |heard| has(heard) == (2, 2));
    let before = metadata.0.lock().unwrap().heartbeats;
    metadata.until("it knows what was revoked", |heard| heard.heartbeats > before + 1);
    check(&mut server.connect());
}

#[test]
fn capabilities_of_working_keys_that_were_replaced_are_refused() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config);
    metadata.until("registered", |heard| heard.heartbeats > 1);
    let mut client = server.connect();
    client.write(&access(1), 0, b"mine").unwrap();
    let of = |generation| {
        let key_generation = KeyGeneration(generation);
        let capability = Capability { key_generation, ..capability(1, Rights::READ) };
        access_with(TARGETS[0], 1, capability)
    };
    // A new generation counts at once: nobody has to be told of it.
    for generation in [1, 2, 9] {
        assert_eq!(client.read(&of(generation), 0, 4).unwrap(), b"mine");
    }
    // The code of another generation's key.
    let mut mixed = of(2);
    mixed.mac = of(1).mac;
    assert_eq!(client.read(&mixed, 0, 4).unwrap_err().kind, ErrorKind::BadCapability);
    assert_eq!(server.counter("refused.capability_not_signed"), 1);
    let before = metadata.0.lock().unwrap().heartbeats;
    metadata.0.lock().unwrap().oldest_keys = vec![(TARGETS[0], KeyGeneration(2))];
    metadata.until("told", |heard| heard.heartbeats > before + 1);
    let error = client.read(&of(1), 0, 4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCapability);
    assert!(error.message.contains("replaced"), "{error}");
    assert_eq!(server.counter("refused.capability_of_old_key"), 1);
    assert_eq!(client.read(&of(2), 0, 4).unwrap(), b"mine");
    let other = access_with(TARGETS[1], 1, capability(1, Rights::READ_WRITE));
    client.write(&other, 0, b"another target").unwrap();
    // The metadata server was killed before the rotation was durable.
    let before = metadata.0.lock().unwrap().heartbeats;
    metadata.0.lock().unwrap().oldest_keys = vec![(TARGETS[0], KeyGeneration(1))];
    metadata.until("told", |heard| heard.heartbeats > before + 1);
    assert_eq!(client.read(&of(1), 0, 4).unwrap(), b"mine");
}

/// Lets the metadata server tell a revocation, and waits until the server has confirmed it.
fn revoke(metadata: &Metadata, what: (Option<ClientId>, Option<FileId>), number: u64) {
    let (client, file) = what;
    let entry = Revocation { number, client, file, until_unix_ms: u64::MAX };
    metadata.0.lock().unwrap().revoked =
        Revocations { list: vec![entry], upto: number, more: false };
    metadata.until("confirmed", |heard| heard.knows >= number);
}

#[test]
fn what_was_revoked_is_refused_and_counted_and_what_was_made_later_is_not() {
    let (_guard, dir) = scratch();
    let metadata = Metadata(Arc::default());
    let (_running, address) = metadata.listen("127.0.0.1:0");
    let mut config = prepare(&dir);
    config.metadata = vec![address];
    let server = Running::start(config);
    metadata.until("registered", |heard| heard.heartbeats > 1);
    let mut client = server.connect();
    client.write(&access(1), 0, b"mine").unwrap();
    client.write(&access(2), 0, b"other").unwrap();

    revoke(&metadata, (None, Some(FileId(1))), 10);
    let error = client.read(&access(1), 0, 4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCapability, "{error}");
    assert!(error.message.contains("revoked"), "{error}");
    assert_eq!(client.write(&access(1), 0, b"evil").unwrap_err().kind, ErrorKind::BadCapability);
    assert_eq!(server.counter("refused.capability_revoked"), 2);
    assert_eq!(client.read(&access(2), 0, 5).unwrap(), b"other");
    let later = Capability { version: 10, ..capability(1, Rights::READ) };
    assert_eq!(client.read(&access_with(TARGETS[0], 1, later), 0, 4).unwrap(), b"mine");
    // All of them, also those of administrators.
    revoke(&metadata, (None, None), 11);
    assert_eq!(client.read(&access(2), 0, 5).unwrap_err().kind, ErrorKind::BadCapability);
    let (access, after) = (admin_access(TARGETS[0]), None);
    let list = ListObjectsRequest { access, after, max_objects: 9 };
    assert_eq!(client.ask(&list).unwrap_err().kind, ErrorKind::BadCapability);

    // The sessions of a client: on connections that it has, and on new ones.
    let mut idle = server.connect();
    revoke(&metadata, (Some(ClientId(1)), None), SESSION.0);
    let latest = Capability { version: 99, ..capability(2, Rights::READ) };
    let latest = access_with(TARGETS[0], 2, latest);
    let error = client.read(&latest, 0, 5).unwrap_err();
    assert_eq!((error.kind, error.message.contains("revoked")), (ErrorKind::BadTicket, true));
    assert_eq!(client.ask(&PingRequest {}).unwrap_err().kind, ErrorKind::Unreachable);
    assert_eq!(idle.ask(&PingRequest {}).unwrap_err().kind, ErrorKind::BadTicket);
    let ticket = |session| Ticket { session, ..ticket(SERVER, FOREVER) };
    let refused = Client::connect(&server.address(), ticket(SESSION)).map(drop).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::BadTicket, "{refused}");
    // A session of after the change of its key.
    let mut anew = Client::connect(&server.address(), ticket(SessionId(SESSION.0 + 1))).unwrap();
    anew.ask(&PingRequest {}).unwrap();
    assert_eq!(counter(&mut anew, "refused.session_revoked"), 2);
}

fn counter(client: &mut Client, name: &str) -> u64 {
    client.status().counters.into_iter().find(|(n, _)| n == name).unwrap().1
}

#[test]
fn a_server_that_starts_refuses_clients_until_it_knows_what_was_revoked_while_it_was_away() {
    let (_guard, dir) = scratch();
    let mut config = prepare(&dir);
    Running::start(config.clone()).connect().write(&access(1), 0, b"mine").unwrap();
    // Nobody listens there yet.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    config.metadata = vec![address.clone()];
    let server = Running::start(config);
    let error = Client::connect(&server.address(), ticket(SERVER, FOREVER)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotCurrent, "{error}");
    assert!(error.message.contains("it waits for the metadata server"), "{error}");
    let metadata = Metadata(Arc::default());
    let entry =
        Revocation { number: 10, client: None, file: Some(FileId(1)), until_unix_ms: u64::MAX };
    // There are more than one answer has.
    let told = |more| Revocations { list: vec![entry.clone()], upto: 10, more };
    metadata.0.lock().unwrap().revoked = told(true);
    let (_running, _) = metadata.listen(&address);
    metadata.until("registered", |heard| heard.heartbeats > 0);
    assert_eq!(server.counter("refused.revocations_unknown"), 1);
    let mut client = server.connect();
    let error = client.read(&access(1), 0, 4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotCurrent, "{error}");
    assert!(error.message.contains("target 10") && error.message.contains("metadata server"));
    assert_eq!(server.counter("refused.revocations_unknown"), 2);
    metadata.0.lock().unwrap().revoked = told(false);
    let heartbeats = metadata.0.lock().unwrap().heartbeats;
    metadata.until("told all", |heard| heard.heartbeats > heartbeats + 1);
    assert_eq!(client.read(&access(1), 0, 4).unwrap_err().kind, ErrorKind::BadCapability);
    let later = Capability { version: 10, ..capability(1, Rights::READ) };
    assert_eq!(client.read(&access_with(TARGETS[0], 1, later), 0, 4).unwrap(), b"mine");
}
