//! The real server: a directory, sockets, signals to stop, kills and restarts.
// A failed helper fails the test; tests ask the operating system.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_host::net::Signal;
use weir_metaserver::{MetaServerConfig, NewFileSystem, ReadyInfo, init, run};
use weir_net::{Address, BlockingConn, Wait};
use weir_types::{
    Caller, ClientId, DiskId, Error, ErrorKind, FileId, FsUsage, KeyGeneration, Result, ServerId,
    SessionId, SlotId, SlotSequence, TargetId,
};
use weir_wire::data::StatusRequest;
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::key::MasterKey;
use weir_wire::lease::{AckEventsRequest, EventAck, PollEventsRequest};
use weir_wire::message::Request;
use weir_wire::meta::*;
use weir_wire::peer::{RegisterRequest, TargetReport};
use weir_wire::{Header, Key};

const CLIENT: ClientId = ClientId(1);

fn master() -> MasterKey {
    MasterKey(Key::from_bytes([4; 32]))
}

fn wait() -> Wait {
    Wait::for_ms(60_000)
}

fn write_key(path: &Path, key: &Key) {
    std::fs::write(path, key.to_hex()).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_key(&dir.path().join("master.key"), &master().0);
        Self { dir }
    }

    fn meta(&self) -> PathBuf {
        self.dir.path().join("meta")
    }

    pub fn config(&self) -> MetaServerConfig {
        let socket = self.dir.path().join("meta.sock").display().to_string();
        let listen = vec!["127.0.0.1:0".to_owned(), socket];
        MetaServerConfig::new(self.meta(), listen, self.dir.path().join("master.key"))
    }

    pub fn init(&self) {
        init(&self.meta(), &master(), &NewFileSystem::new([6; 16], CLIENT)).unwrap();
    }
}

pub struct Running {
    pub addresses: Vec<String>,
    shutdown: Signal,
    pub thread: JoinHandle<Result<()>>,
}

impl Running {
    pub fn start(config: MetaServerConfig) -> Self {
        Self::start_with(|signal, ready| run(config, signal, |info| ready.send(info).unwrap()))
    }

    pub fn start_with(
        run: impl FnOnce(&Signal, mpsc::Sender<ReadyInfo>) -> Result<()> + Send + 'static,
    ) -> Self {
        let shutdown = Signal::new().unwrap();
        let watched = shutdown.clone();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || run(&watched, ready));
        let Ok(info) = is_ready.recv() else { panic!("{:?}", thread.join()) };
        Self { addresses: info.addresses, shutdown, thread }
    }

    pub fn stop(self) {
        self.shutdown.raise();
        self.thread.join().unwrap().unwrap();
    }
}

fn connect(
    address: &str,
    identity: Identity,
    key: Key,
    session: SessionId,
) -> Result<(BlockingConn, Welcome)> {
    let nonce = weir_net::random_bytes()?;
    let (name, host) = ("test".into(), String::new());
    let protection = weir_wire::Level::Args;
    let hello = Hello { version: VERSION, identity, nonce, session, name, host, protection };
    BlockingConn::connect(&Address::parse(address)?, key, &hello, &wait())
}

pub struct Client {
    conn: BlockingConn,
    pub welcome: Welcome,
    sequence: u64,
}

impl Client {
    pub fn open(address: &str, session: SessionId) -> Result<Self> {
        let key = master().client(CLIENT);
        let (conn, welcome) = connect(address, Identity::Client(CLIENT), key, session)?;
        Ok(Self { conn, welcome, sequence: 0 })
    }

    fn send<R: Request>(&mut self, mutation: Option<MutationId>, request: &R) -> Result<R::Reply> {
        let prefix = MetaPrefix { caller: Caller::ROOT, mutation };
        let header = Header::request(R::OP, self.conn.next_request_id());
        self.conn.send(header, &(prefix, Whole(request)), &[], &[], &wait())?;
        self.conn.recv_reply(&wait())
    }

    pub fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply> {
        self.send(None, request)
    }

    fn mutation(&mut self) -> Option<MutationId> {
        self.sequence += 1;
        let (slot, sequence) = (SlotId(0), SlotSequence(self.sequence));
        Some(MutationId { slot, sequence })
    }

    /// The next change has the number after this one.
    pub fn continue_after(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    pub fn make<R: Request>(&mut self, request: &R) -> Result<R::Reply> {
        let mutation = self.mutation();
        self.send(mutation, request)
    }
}

struct Whole<'a, R>(&'a R);
impl<R: weir_types::Encode> weir_types::Encode for Whole<'_, R> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

fn register(address: &str, server: u32) -> Result<()> {
    let id = ServerId(server);
    let key = master().server(id, KeyGeneration(1));
    let (mut conn, welcome) = connect(address, Identity::Server(id), key, SessionId(0))?;
    assert_eq!(welcome.cluster, [6; 16]);
    let usage = FsUsage { total_bytes: 1 << 40, free_bytes: 1 << 40, ..FsUsage::default() };
    let target = TargetReport {
        target: TargetId(server),
        usage,
        disk: DiskId::UNKNOWN,
        trouble: String::new(),
        removed: Vec::new(),
        gaps: Vec::new(),
        filled: Vec::new(),
        built: Vec::new(),
        unreachable: Vec::new(),
        distrusted: Vec::new(),
        hangs_ms: 0,
        given_up: false,
        work: weir_wire::targets::TargetWork::default(),
        own_key: weir_types::KeyGeneration(1),
        own_key_from: weir_types::KeyGeneration(0),
    };
    let request = RegisterRequest {
        host: "node".into(),
        domain: String::new(),
        tcp: "node:7701".into(),
        unix: String::new(),
        first: true,
        runs: vec![(target.target, 1)],
        targets: vec![target],
    };
    let header = Header::request(RegisterRequest::OP, conn.next_request_id());
    conn.send(header, &request, &[], &[], &wait())?;
    conn.recv_reply::<weir_wire::peer::HeartbeatReply>(&wait()).map(drop)
}

pub fn mkdir(name: &str) -> MkdirRequest {
    MkdirRequest { parent: FileId::ROOT, name: name.as_bytes().into(), mode: 0o755, umask: 0 }
}

#[test]
fn clients_and_servers_connect_and_what_was_done_survives_a_restart() {
    let place = Place::new();
    place.init();
    let running = Running::start(place.config());
    for (n, address) in running.addresses.iter().enumerate() {
        register(address, n as u32 + 1).unwrap();
    }
    let mut tcp = Client::open(&running.addresses[0], SessionId(0)).unwrap();
    tcp.make(&mkdir("d")).unwrap();
    // A second connection of the same session, through the Unix socket.
    let mut unix = Client::open(&running.addresses[1], tcp.welcome.session).unwrap();
    assert_eq!(unix.welcome.session, tcp.welcome.session);
    let lookup = LookupRequest { parent: FileId::ROOT, name: b"d"[..].into() };
    let found = unix.ask(&lookup).unwrap();
    let map = unix.ask(&GetMapRequest { have: weir_types::Epoch(0) }).unwrap().unwrap();
    assert_eq!(map.targets().count(), 2);
    unix.ask(&SyncMetaRequest {}).unwrap();
    let instance = tcp.welcome.instance;
    running.stop();

    let running = Running::start(place.config());
    let mut again = Client::open(&running.addresses[1], tcp.welcome.session).unwrap();
    assert_ne!(again.welcome.instance, instance, "clients see that it is another run");
    again
        .ask(&ReassertRequest {
            first: false,
            files: vec![],
            held: vec![],
            leases: vec![],
            last: true,
        })
        .unwrap();
    assert_eq!(again.ask(&lookup).unwrap().file, found.file);
    again.sequence = 0;
    assert_eq!(again.make(&mkdir("d")).unwrap().file, found.file, "a retry of the first");
    running.stop();
}

#[test]
fn connections_of_one_session_work_side_by_side() {
    let place = Place::new();
    place.init();
    let running = Running::start(place.config());
    let mut first = Client::open(&running.addresses[0], SessionId(0)).unwrap();
    let session = first.welcome.session;
    std::thread::scope(|scope| {
        for slot in 0..8u16 {
            let address = &running.addresses[usize::from(slot % 2)];
            scope.spawn(move || {
                let mut client = Client::open(address, session).unwrap();
                for n in 1..=100 {
                    let (slot, sequence) = (SlotId(slot), SlotSequence(n));
                    let name = format!("{slot}-{n}");
                    client.send(Some(MutationId { slot, sequence }), &mkdir(&name)).unwrap();
                }
            });
        }
    });
    assert_eq!(first.ask(&GetAttrRequest { file: FileId::ROOT }).unwrap().nlink, 2 + 800);
    first.ask(&SyncMetaRequest {}).unwrap();
    running.stop();
}

#[test]
fn wrong_keys_are_refused() {
    let place = Place::new();
    place.init();
    let running = Running::start(place.config());
    let stranger = Key::from_bytes([66; 32]);
    for identity in [Identity::Client(CLIENT), Identity::Server(ServerId(1))] {
        let refused = connect(&running.addresses[0], identity, stranger.clone(), SessionId(0));
        assert_eq!(refused.err().map(|e| e.kind), Some(ErrorKind::AuthFailed));
    }
    running.stop();
}

#[test]
fn a_start_that_cannot_be_says_why() {
    let place = Place::new();
    let never = Signal::new().unwrap();
    let start = |config: MetaServerConfig| -> Error {
        run(config, &never, |_| panic!("it started")).unwrap_err()
    };
    let error = start(place.config());
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("weir up"), "{error}");
    assert!(!place.meta().exists(), "nothing was made there");
    place.init();
    let error = init(&place.meta(), &master(), &NewFileSystem::new([6; 16], CLIENT)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);

    let other_key = place.dir.path().join("other.key");
    write_key(&other_key, &Key::from_bytes([8; 32]));
    let error = start(MetaServerConfig { master_key_file: other_key, ..place.config() });
    assert_eq!(error.kind, ErrorKind::AuthFailed);
    assert!(error.message.contains("master key"), "{error}");
    let error = start(MetaServerConfig { cluster: Some([1; 16]), ..place.config() });
    assert!(error.message.contains("another cluster"), "{error}");

    let running = Running::start(place.config());
    let taken = vec![running.addresses[0].clone()];
    let error = start(MetaServerConfig { listen: taken, ..place.config() });
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(error.message.contains("port"), "{error}");
    let free = vec!["127.0.0.1:0".to_owned()];
    let error = start(MetaServerConfig { listen: free, ..place.config() });
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(error.message.contains("in use"), "{error}");
    running.stop();
}

#[test]
fn a_change_waits_for_another_client_and_not_for_one_that_hung_up() {
    let place = Place::new();
    place.init();
    let running = Running::start(place.config());
    let address = &running.addresses[0];
    let poll = |client: &mut Client, have| client.ask(&PollEventsRequest { have }).unwrap();
    let mut keeper = Client::open(address, SessionId(0)).unwrap();
    // The first poll ends when there is something to say: so it has a
    // connection of its own.
    let mut polls = Client::open(address, keeper.welcome.session).unwrap();
    let mut maker = Client::open(address, SessionId(0)).unwrap();
    std::thread::scope(|scope| {
        assert!(poll(&mut polls, 0).events.is_empty(), "the first is answered at once");
        let news = scope.spawn(|| poll(&mut polls, 0).events);
        let name = LookupRequest { parent: FileId::ROOT, name: b"d"[..].into() };
        let known = || ErrorKind::NotFound;
        let believes = |keeper: &mut Client| {
            keeper.ask(&name).unwrap_err();
            let status = keeper.ask(&StatusRequest {}).unwrap();
            status.counters.iter().any(|(name, value)| name == "beliefs" && *value > 0)
        };
        // Until the poll has arrived nothing is kept.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !believes(&mut keeper) {
            assert!(std::time::Instant::now() < deadline, "the poll never arrived");
        }
        let mut gone = Client::open(address, SessionId(0)).unwrap();
        let prefix = MetaPrefix { caller: Caller::ROOT, mutation: gone.mutation() };
        let header = Header::request(MkdirRequest::OP, gone.conn.next_request_id());
        gone.conn.send(header, &(prefix, Whole(&mkdir("gone"))), &[], &[], &wait()).unwrap();
        let first = news.join().unwrap();
        drop(gone);
        let parked = |keeper: &mut Client| {
            let status = keeper.ask(&StatusRequest {}).unwrap();
            status.counters.iter().find(|(name, _)| name == "parked_now").unwrap().1
        };
        while parked(&mut keeper) > 0 {
            assert!(std::time::Instant::now() < deadline, "it is kept for nobody");
        }
        let made = scope.spawn(|| maker.make(&mkdir("d")).unwrap());
        while parked(&mut keeper) == 0 {
            assert!(std::time::Instant::now() < deadline, "the change did not wait");
        }
        assert_eq!(keeper.ask(&name).unwrap_err().kind, known(), "not yet");
        assert!(!made.is_finished());
        let number = first[0].number;
        let acks = [number, number + 1].map(|number| EventAck {
            number,
            forgotten: true,
            unconfirmed: false,
            holds: false,
        });
        keeper.ask(&AckEventsRequest { acks: acks.to_vec() }).unwrap();
        assert_eq!(made.join().unwrap().nlink, 2);
        let gone = LookupRequest { parent: FileId::ROOT, name: b"gone"[..].into() };
        assert_eq!(keeper.ask(&gone).unwrap_err().kind, known());
    });
    running.stop();
}
