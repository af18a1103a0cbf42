//! A data server on real sockets, and a hand-made client.

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_dataserver::{DataServerConfig, ReadyInfo, TargetConfig};
use weir_host::net::Signal;
use weir_layout::{Piece, RegionList, cut_count, cuts, share};
use weir_net::{Address, BlockingConn, Wait, random_bytes};
use weir_store::{Target, TargetIdentity};
use weir_types::checksum::crc32c;
use weir_types::{
    ClientId, ColumnIndex, CopyIndex, ErrorKind, FileId, Generation, KeyGeneration, ObjectId,
    Result, SegmentIndex, ServerId, SessionId, StripeMap, TargetId,
};
use weir_wire::data::{
    Access, AdminAccess, ObjectLen, ReadFlags, ReadRequest, ServerStatus, StatusRequest,
    WriteFlags, WriteRequest,
};
use weir_wire::handshake::{Attempt, Hello, Identity};
use weir_wire::key::MasterKey;
use weir_wire::message::Request;
use weir_wire::ticket::Ticket;
use weir_wire::{Capability, Header, Key, Level, Op, Rights};

pub const SERVER: ServerId = ServerId(1);
pub const TARGETS: [TargetId; 2] = [TargetId(10), TargetId(11)];
pub const SESSION: SessionId = SessionId(77);
pub const CLUSTER: [u8; 16] = [9; 16];
pub const FOREVER: u64 = u64::MAX;
/// One column: the object is the segment.
pub const WHOLE: StripeMap = StripeMap { unit_bytes: 65_536, columns: 1 };

pub fn master() -> MasterKey {
    MasterKey(Key::from_bytes([42; 32]))
}

pub fn write_key(path: &Path, key: &Key) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, key.to_hex().as_bytes()).unwrap();
}

/// Directories and keys of a data server with two targets, and its configuration.
pub fn prepare(dir: &Path) -> DataServerConfig {
    prepare_as(dir, SERVER, &TARGETS)
}

/// The same of another server.
pub fn prepare_as(dir: &Path, server: ServerId, targets: &[TargetId]) -> DataServerConfig {
    let server_key = dir.join("server.key");
    write_key(&server_key, &master().server(server, KeyGeneration(1)));
    let mut config = DataServerConfig::new(server.0, "127.0.0.1:0", server_key);
    for &target in targets {
        let path = dir.join(format!("target{target}"));
        if !path.exists() {
            let identity = TargetIdentity { cluster: CLUSTER, target, server };
            Target::create(&path, identity).unwrap();
        }
        let key_file = dir.join(format!("target{target}.key"));
        write_key(&key_file, &master().target(target, KeyGeneration(1)));
        config.targets.push(TargetConfig { target: target.0, dir: path, key_file });
    }
    config
}

/// A data server in threads of this process.
pub struct Running {
    pub ready: ReadyInfo,
    shutdown: Signal,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Running {
    pub fn start(config: DataServerConfig) -> Self {
        let shutdown = Signal::new().unwrap();
        let raised = shutdown.clone();
        let (tell, ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            weir_dataserver::run(config, &raised, |info| tell.send(info).unwrap())
        });
        let Ok(ready) = ready.recv() else {
            panic!("not started: {:?}", thread.join().unwrap());
        };
        Self { ready, shutdown, thread: Some(thread) }
    }

    pub fn address(&self) -> Address {
        Address::parse(&self.ready.tcp).unwrap()
    }

    /// Waits until the server has heard from its metadata server: before that it takes no clients.
    pub fn connect(&self) -> Client {
        served(|| Client::connect(&self.address(), ticket(SERVER, FOREVER)))
    }

    pub fn counter(&self, name: &str) -> u64 {
        let status = self.connect().status();
        let found = status.counters.iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.raise();
        let result = self.thread.take().unwrap().join().unwrap();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

/// The first connection that the server takes, after a minute at most.
fn served(mut connect: impl FnMut() -> Result<Client>) -> Client {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match connect() {
            Err(error) if error.kind == ErrorKind::NotCurrent && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            connected => return connected.unwrap(),
        }
    }
}

pub fn ticket(server: ServerId, expires_unix_ms: u64) -> Ticket {
    let nonce = random_bytes().unwrap();
    Ticket { server, client: ClientId(1), session: SESSION, expires_unix_ms, nonce }
}

pub fn hello(ticket: Ticket) -> Hello {
    hello_of(ticket, Attempt { run: 1, number: 0 })
}

pub fn hello_of(ticket: Ticket, attempt: Attempt) -> Hello {
    Hello {
        version: weir_wire::frame::VERSION,
        session: ticket.session,
        identity: Identity::Ticket(ticket, attempt),
        nonce: random_bytes().unwrap(),
        name: "test".into(),
        host: String::new(),
        protection: Level::Args,
    }
}

pub fn ticket_key(ticket: &Ticket) -> Key {
    ticket.key(&master().server(SERVER, KeyGeneration(1)))
}

pub fn object(file: u64) -> ObjectId {
    ObjectId {
        file: FileId(file),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    }
}

/// The user that capabilities are made for.
pub const USER: u32 = 1000;

pub fn capability(file: u64, rights: Rights) -> Capability {
    Capability {
        file: FileId(file),
        session: SESSION,
        user: USER,
        rights,
        version: 1,
        key_generation: KeyGeneration(1),
        expires_unix_ms: FOREVER,
    }
}

/// The right of an administrator, signed for the target.
pub fn admin_access(target: TargetId) -> AdminAccess {
    admin_access_with(target, Capability::of_administrator(SESSION, 1, KeyGeneration(1), FOREVER))
}

pub fn admin_access_with(target: TargetId, capability: Capability) -> AdminAccess {
    let mac = capability.sign(target, &master().target(target, KeyGeneration(1)));
    AdminAccess { target, capability, mac }
}

/// Access to a file's object, with a capability signed for the target.
pub fn access_with(target: TargetId, file: u64, capability: Capability) -> Access {
    let mac = capability.sign(target, &master().target(target, KeyGeneration(1)));
    let (copies, relay) = (Vec::new(), None);
    Access {
        target,
        object: object(file),
        generation: Generation(1),
        capability,
        mac,
        copies,
        relay,
    }
}

pub fn access(file: u64) -> Access {
    access_with(TARGETS[0], file, capability(file, Rights::READ_WRITE))
}

pub fn regions(offset: u64, len: u64) -> RegionList {
    RegionList::contiguous(offset, len).unwrap()
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

pub struct Client {
    pub conn: BlockingConn,
    pub wait: Wait,
}

impl Client {
    pub fn connect(address: &Address, ticket: Ticket) -> Result<Self> {
        Self::connect_as(address, ticket, Attempt { run: 1, number: 0 })
    }

    pub fn connect_as(address: &Address, ticket: Ticket, attempt: Attempt) -> Result<Self> {
        let key = ticket_key(&ticket);
        Self::connect_with(address, key, ticket, attempt)
    }

    /// At a level of protection.
    pub fn connect_at(address: &Address, level: Level) -> Result<Self> {
        let ticket = ticket(SERVER, FOREVER);
        let (key, wait) = (ticket_key(&ticket), Wait::for_ms(30_000));
        let hello = Hello { protection: level, ..hello(ticket) };
        let conn = BlockingConn::connect(address, key, &hello, &wait)?.0;
        Ok(Self { conn, wait })
    }

    /// To any server.
    pub fn connect_to(server: &Running) -> Self {
        let id = server.ready.server;
        let ticket = ticket(id, FOREVER);
        let key = ticket.key(&master().server(id, KeyGeneration(1)));
        let attempt = Attempt { run: 1, number: 0 };
        let (address, attempt) = (server.address(), &attempt);
        served(|| Self::connect_with(&address, key.clone(), ticket.clone(), attempt.clone()))
    }

    pub fn connect_with(
        address: &Address,
        key: Key,
        ticket: Ticket,
        attempt: Attempt,
    ) -> Result<Self> {
        let wait = Wait::for_ms(30_000);
        let conn = BlockingConn::connect(address, key, &hello_of(ticket, attempt), &wait)?.0;
        Ok(Self { conn, wait })
    }

    pub fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply> {
        let header = Header::request(R::OP, self.conn.next_request_id());
        self.conn.send(header, request, &[], &[], &self.wait)?;
        self.conn.recv_reply(&self.wait)
    }

    pub fn status(&mut self) -> ServerStatus {
        self.ask(&StatusRequest {}).unwrap()
    }

    /// Sends a write, with checksums as they should be.
    pub fn send_write(
        &mut self,
        access: &Access,
        stripe: StripeMap,
        regions: &RegionList,
        data: &[u8],
    ) {
        let mut pieces = Vec::new();
        share(regions, stripe, access.object.column, &mut pieces).unwrap();
        let checks = checksums(&pieces, data);
        let request = WriteRequest {
            access: access.clone(),
            stripe,
            flags: WriteFlags::default(),
            regions: regions.clone(),
            staged: None,
        };
        let header = Header::request(Op::Write, self.conn.next_request_id());
        self.conn.send(header, &request, &checks, &[IoSlice::new(data)], &self.wait).unwrap();
    }

    pub fn write(&mut self, access: &Access, offset: u64, data: &[u8]) -> Result<u64> {
        self.send_write(access, WHOLE, &regions(offset, data.len() as u64), data);
        Ok(self.conn.recv_reply::<ObjectLen>(&self.wait)?.len)
    }

    pub fn send_read(
        &mut self,
        access: &Access,
        stripe: StripeMap,
        regions: &RegionList,
        flags: ReadFlags,
    ) {
        let request =
            ReadRequest { access: access.clone(), stripe, flags, regions: regions.clone() };
        let header = Header::request(Op::Read, self.conn.next_request_id());
        self.conn.send(header, &request, &[], &[], &self.wait).unwrap();
    }

    pub fn read(&mut self, access: &Access, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.read_with(access, WHOLE, &regions(offset, len as u64), ReadFlags::default())
    }

    /// Reads and verifies.
    pub fn read_with(
        &mut self,
        access: &Access,
        stripe: StripeMap,
        regions: &RegionList,
        flags: ReadFlags,
    ) -> Result<Vec<u8>> {
        let mut pieces = Vec::new();
        let len = share(regions, stripe, access.object.column, &mut pieces).unwrap();
        self.send_read(access, stripe, regions, flags);
        let mut data = vec![0; len as usize];
        let expected = cut_count(&pieces) as usize;
        let mut slices = [IoSliceMut::new(&mut data)];
        let reply = self.conn.recv_data::<ObjectLen>(expected, &mut slices, &self.wait)?;
        data.truncate(reply.header.payload_len as usize);
        weir_layout::clip(&mut pieces, reply.body.len);
        if !flags.unchecked {
            assert_eq!(reply.checks, checksums(&pieces, &data), "checksums of the reply");
        }
        Ok(data)
    }
}

fn checksums(pieces: &[Piece], data: &[u8]) -> Vec<u32> {
    let mut rest = data;
    let mut checks = Vec::new();
    for cut in cuts(pieces) {
        let (bytes, tail) = rest.split_at(cut.len);
        checks.push(crc32c(bytes));
        rest = tail;
    }
    assert!(rest.is_empty());
    checks
}

pub fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_path_buf();
    (dir, path)
}

/// A data server in a process of its own, on the directories of a configuration.
pub struct Spawned {
    pub child: std::process::Child,
    pub address: Address,
}

/// Where the parent leaves the configuration of [`Spawned`].
const SERVE_DIR: &str = "WEIR_TEST_SERVE_DIR";

impl Spawned {
    /// It runs the test `serve` of `overload.rs`, which calls [`serve_if_asked`].
    pub fn start(dir: &Path) -> Self {
        use std::io::BufRead;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "overload::serve", "--nocapture"])
            .env(SERVE_DIR, dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(|line| line.ok())
            .find_map(|line| line.split_once("ready at ").map(|(_, a)| a.to_string()))
            .expect("the server starts");
        Self { child, address: Address::parse(&address).unwrap() }
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.address, ticket(SERVER, FOREVER)).unwrap()
    }

    pub fn resident_bytes(&self) -> usize {
        let path = format!("/proc/{}/statm", self.child.id());
        let statm = std::fs::read_to_string(path).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Serves for ever in a process that [`Spawned`] started; nothing otherwise.
pub fn serve_if_asked(change: impl FnOnce(&mut DataServerConfig)) {
    let Some(dir) = std::env::var_os(SERVE_DIR) else { return };
    let mut config = prepare(Path::new(&dir));
    change(&mut config);
    let never = Signal::new().unwrap();
    let ready = |ready: ReadyInfo| println!("ready at {}", ready.tcp);
    weir_dataserver::run(config, &never, ready).unwrap();
}
