//! A metadata server in a test: the machine on an engine, with data servers
//! that report and clients that ask, in virtual time.

pub mod posix;

use weir_metaserver::machine::{Answer, MetaMachine, Moment, Peer, Times};
use weir_metaserver::{NewFileSystem, init::initialize};
use weir_metastore::{Embedded, EmbeddedConfig, Engine, ModelEngine};
use weir_types::{
    Attr, Caller, ClientId, ClientStanding, Decode, DiskId, Encode, Epoch, Error, ErrorKind,
    FileId, FileKind, FsUsage, LayoutSpec, RequestId, Restrictions, ServerId, SessionId, SlotId,
    SlotSequence, TargetId, Timestamp,
};
use weir_wire::handshake::{Hello, Identity};
use weir_wire::key::MasterKey;
use weir_wire::message::{Op, Request};
use weir_wire::meta::*;
use weir_wire::peer::{HeartbeatReply, HeartbeatRequest, RegisterRequest, TargetReport};
use weir_wire::{Header, Key, Rights};

pub const CLUSTER: [u8; 16] = [7; 16];
pub const ADMIN: ClientId = ClientId(1);

pub fn master() -> MasterKey {
    MasterKey(Key::from_bytes([9; 32]))
}

pub fn root() -> Caller {
    Caller::ROOT
}

pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec() }
}

/// The machine, and the time.
pub struct Cluster<E: Engine> {
    pub machine: MetaMachine<E>,
    /// The last answer was to be sent when it was durable.
    pub waited_for_disk: bool,
    pub now: Moment,
    pub times: Times,
    /// Every session that there was.
    pub sessions: Vec<SessionId>,
    runs: u8,
}

/// One run of a client; remembers how far its slots are.
#[derive(Clone, Debug)]
pub struct Client {
    pub session: SessionId,
    pub next: u64,
    pub caller: Caller,
}

impl Cluster<ModelEngine> {
    /// With one data server of this many targets (0: none), on a model engine.
    pub fn new(targets: u32) -> Self {
        Self::on(ModelEngine::new(), targets)
    }

    /// The process is killed and started again.
    pub fn restart(self) -> Self {
        let mut next = self.killed();
        next.nothing_is_held();
        next
    }

    /// The same, and no client has come back yet.
    pub fn killed(self) -> Self {
        let Self { machine, now, times, runs, sessions, .. } = self;
        Self { sessions, ..Self::open(machine.into_engine(), now, times, runs + 1) }
    }
}

/// Opens the embedded engine of a directory.
pub fn embedded(dir: &std::path::Path) -> Embedded {
    let config = EmbeddedConfig { cache_bytes: 4 << 20, ..EmbeddedConfig::default() };
    Embedded::open(dir, config, || {}).unwrap()
}

impl Cluster<Embedded> {
    /// The process is killed and started again.
    pub fn restart_in(self, dir: &std::path::Path) -> Self {
        let Self { machine, now, times, runs, sessions, .. } = self;
        drop(machine);
        let mut next = Self { sessions, ..Self::open(embedded(dir), now, times, runs + 1) };
        next.nothing_is_held();
        next
    }
}

impl<E: Engine> Cluster<E> {
    pub fn on(mut engine: E, targets: u32) -> Self {
        let new = NewFileSystem::new(CLUSTER, ADMIN);
        let now = Moment { monotonic_ms: 5, unix: Timestamp::new(1_000_000, 0) };
        initialize(&mut engine, &master(), &new, now.unix).unwrap();
        let mut cluster = Self::open(engine, now, Times::default(), 0);
        if targets > 0 {
            cluster.register(1, &(1..=targets).collect::<Vec<_>>()).unwrap();
        }
        cluster
    }

    pub fn open(engine: E, now: Moment, times: Times, runs: u8) -> Self {
        let machine = MetaMachine::open(engine, times, master(), [runs; 32], now).unwrap();
        Self { machine, waited_for_disk: false, now, times, sessions: Vec::new(), runs }
    }

    /// Every client comes back and says that it holds no lease: so nothing
    /// waits for that.
    pub fn nothing_is_held(&mut self) {
        let prefix = MetaPrefix { caller: root(), mutation: None };
        let last = ReassertRequest {
            first: false,
            files: Vec::new(),
            held: Vec::new(),
            leases: Vec::new(),
            last: true,
        };
        for session in self.sessions.clone() {
            // One that has expired is not waited for.
            let _ = self.send::<ReassertRequest>(Peer::Client(session), &body(&prefix, &last));
        }
    }

    /// Lets time pass, with ticks, while the data server lives.
    pub fn pass_ms(&mut self, ms: u64) {
        let end = self.now.monotonic_ms + ms;
        while self.now.monotonic_ms < end {
            let step = 1000.min(end - self.now.monotonic_ms);
            self.now.monotonic_ms += step;
            self.now.unix.0 += step as i64 * 1_000_000;
            self.machine.on_tick(self.now).unwrap();
            self.machine.flush().unwrap();
        }
    }

    pub fn hello(identity: Identity, session: SessionId) -> Hello {
        Hello {
            version: weir_wire::frame::VERSION,
            identity,
            nonce: [0; 32],
            session,
            name: "test".into(),
            host: String::new(),
            protection: weir_wire::Level::Args,
        }
    }

    /// A new session of the administrator.
    pub fn client(&mut self, caller: Caller) -> Client {
        let hello = Self::hello(Identity::Client(ADMIN), SessionId(0));
        let session = self.machine.welcome(&hello, self.now).unwrap().session;
        self.machine.flush().unwrap();
        self.sessions.push(session);
        Client { session, next: 1, caller }
    }

    /// A new session of the administrator, on this machine.
    pub fn client_on(&mut self, host: &str) -> Result<Client, Error> {
        let hello = Self::hello(Identity::Client(ADMIN), SessionId(0));
        let hello = Hello { host: host.into(), ..hello };
        let session = self.machine.welcome(&hello, self.now)?.session;
        self.machine.flush().unwrap();
        self.sessions.push(session);
        Ok(Client { session, next: 1, caller: root() })
    }

    /// It is on this machine as it comes back.
    pub fn rejoin_on(&mut self, client: &Client, host: &str) {
        let hello = Self::hello(Identity::Client(ADMIN), client.session);
        let hello = Hello { host: host.into(), ..hello };
        self.machine.welcome(&hello, self.now).unwrap();
    }

    /// A new session of any client.
    pub fn session_of(&mut self, client: ClientId, caller: Caller) -> Client {
        let hello = Self::hello(Identity::Client(client), SessionId(0));
        let session = self.machine.welcome(&hello, self.now).unwrap().session;
        self.machine.flush().unwrap();
        Client { session, next: 1, caller }
    }

    /// The administrator says what a client may do.
    pub fn set_client(&mut self, client: ClientId, restrictions: Restrictions) {
        let admin = self.client(root());
        let standing = ClientStanding::Ordinary;
        let info = ClientInfo { client, name: String::new(), standing, restrictions };
        self.ask(&admin, &SetClientRequest { info }).unwrap();
    }

    pub fn rejoin(&mut self, client: &Client) -> Result<SessionId, Error> {
        let hello = Self::hello(Identity::Client(ADMIN), client.session);
        Ok(self.machine.welcome(&hello, self.now)?.session)
    }

    pub fn report(target: u32) -> TargetReport {
        let usage = FsUsage {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            total_files: 1000,
            free_files: 900,
        };
        TargetReport {
            target: TargetId(target),
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
        }
    }

    pub fn register(&mut self, server: u32, targets: &[u32]) -> Result<HeartbeatReply, Error> {
        self.register_reports(server, targets.iter().map(|&t| Self::report(t)).collect())
    }

    pub fn register_reports(
        &mut self,
        server: u32,
        targets: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        self.register_in_run(server, 1, targets)
    }

    /// On a machine with others.
    pub fn register_on(
        &mut self,
        host: &str,
        server: u32,
        targets: &[u32],
    ) -> Result<HeartbeatReply, Error> {
        let targets = targets.iter().map(|&t| Self::report(t)).collect();
        self.register_as((host, ""), server, 1, targets)
    }

    /// On a machine, in a rack.
    pub fn register_in(
        &mut self,
        (host, domain): (&str, &str),
        server: u32,
        targets: &[u32],
    ) -> Result<HeartbeatReply, Error> {
        let targets = targets.iter().map(|&t| Self::report(t)).collect();
        self.register_as((host, domain), server, 1, targets)
    }

    /// After its machine has started anew.
    pub fn register_anew(
        &mut self,
        server: u32,
        targets: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        self.register_in_run(server, 2, targets)
    }

    fn register_in_run(
        &mut self,
        server: u32,
        run: u64,
        targets: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        self.register_as((&format!("node-{server}"), ""), server, run, targets)
    }

    fn register_as(
        &mut self,
        (host, domain): (&str, &str),
        server: u32,
        run: u64,
        targets: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        let request = RegisterRequest {
            host: host.into(),
            domain: domain.into(),
            tcp: format!("10.0.0.{server}:7701"),
            unix: String::new(),
            first: true,
            runs: targets.iter().map(|report| (report.target, run)).collect(),
            targets,
        };
        self.serve(server, &request)
    }

    pub fn heartbeat(
        &mut self,
        server: u32,
        reports: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        self.heartbeat_under(server, Epoch(0), reports)
    }

    /// A heartbeat of a server that acts under this epoch.
    pub fn heartbeat_under(
        &mut self,
        server: u32,
        acting: Epoch,
        targets: Vec<TargetReport>,
    ) -> Result<HeartbeatReply, Error> {
        let machine = weir_wire::targets::MachineLoad::default();
        self.serve(server, &HeartbeatRequest { acting, revoked: 0, machine, targets })
    }

    fn serve<R: Request>(&mut self, server: u32, request: &R) -> Result<R::Reply, Error> {
        let body = request.to_bytes();
        self.send::<R>(Peer::Server(ServerId(server)), &body)
    }

    /// Sends a request as it stands on the wire.
    pub fn send<R: Request>(&mut self, peer: Peer, body: &[u8]) -> Result<R::Reply, Error> {
        let reply = self.raw(peer, R::OP, body)?;
        Ok(R::Reply::from_bytes(&reply).expect("a reply that its reader understands"))
    }

    pub fn raw(&mut self, peer: Peer, op: Op, body: &[u8]) -> Result<Vec<u8>, Error> {
        let header = Header::request(op, RequestId(1));
        let answer = self.machine.on_request(peer, &header, body, self.now);
        let answer = self.settled(answer);
        self.machine.flush().unwrap();
        self.waited_for_disk = matches!(answer, Answer::AfterSync(..));
        outcome(answer)
    }

    /// Lets time pass until a request that has to wait is answered.
    fn settled(&mut self, answer: Answer) -> Answer {
        let Answer::Parked(ticket) = answer else { return answer };
        for _ in 0..120 {
            let ready = self.machine.take_ready(self.now);
            if let Some((_, answer)) = ready.into_iter().find(|(ready, _)| *ready == ticket) {
                return answer;
            }
            self.pass_ms(500);
        }
        panic!("a request was never answered");
    }

    /// Asks something that changes nothing.
    pub fn ask<R: Request>(&mut self, client: &Client, request: &R) -> Result<R::Reply, Error> {
        let prefix = MetaPrefix { caller: client.caller.clone(), mutation: None };
        self.send::<R>(Peer::Client(client.session), &body(&prefix, request))
    }

    /// Changes something.
    pub fn make<R: Request>(
        &mut self,
        client: &mut Client,
        request: &R,
    ) -> Result<R::Reply, Error> {
        let sequence = client.next;
        client.next += 1;
        self.make_as(client, 0, sequence, request)
    }

    /// Sends a mutation with an id of one's choice.
    pub fn make_as<R: Request>(
        &mut self,
        client: &Client,
        slot: u16,
        sequence: u64,
        request: &R,
    ) -> Result<R::Reply, Error> {
        let mutation = Some(MutationId { slot: SlotId(slot), sequence: SlotSequence(sequence) });
        let prefix = MetaPrefix { caller: client.caller.clone(), mutation };
        self.send::<R>(Peer::Client(client.session), &body(&prefix, request))
    }

    pub fn create(&mut self, client: &mut Client, parent: FileId, name: &str) -> OpenFile {
        self.make(client, &create_request(parent, name)).unwrap()
    }

    pub fn mkdir(&mut self, client: &mut Client, parent: FileId, name: &str) -> FileId {
        let request = MkdirRequest { parent, name: name.as_bytes().into(), mode: 0o755, umask: 0 };
        self.make(client, &request).unwrap().file
    }

    pub fn lookup(&mut self, client: &Client, parent: FileId, name: &str) -> Result<Attr, Error> {
        self.ask(client, &LookupRequest { parent, name: name.as_bytes().into() })
    }

    pub fn getattr(&mut self, client: &Client, file: FileId) -> Result<Attr, Error> {
        self.ask(client, &GetAttrRequest { file })
    }

    pub fn unlink(
        &mut self,
        client: &mut Client,
        parent: FileId,
        name: &str,
    ) -> Result<Removed, Error> {
        self.make(client, &UnlinkRequest { parent, name: name.as_bytes().into(), hold: false })
    }

    pub fn close(&mut self, client: &mut Client, file: FileId) {
        self.make(
            client,
            &CloseRequest { files: vec![file], unconfirmed: vec![], written: vec![] },
        )
        .unwrap();
    }

    /// Every name of a directory, in listing order.
    pub fn list(&mut self, client: &Client, dir: FileId) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let request = ReaddirRequest {
                last: 0,
                dir,
                cookie,
                max_entries: 100,
                attributes: false,
                layouts: false,
            };
            let page = self.ask(client, &request).unwrap();
            for entry in &page.entries {
                names.push(String::from_utf8(entry.name.0.clone()).unwrap());
                cookie = entry.cookie;
            }
            if page.end {
                return names;
            }
        }
    }

    /// How many keys begin with these bytes.
    pub fn keys(&self, prefix: &str) -> usize {
        let end = weir_metastore::prefix_end(prefix.as_bytes()).unwrap();
        self.machine.engine().range(prefix.as_bytes(), &end, usize::MAX).unwrap().len()
    }
}

/// What an answer says, as the client would see it.
pub fn outcome(answer: Answer) -> Result<Vec<u8>, Error> {
    match answer {
        Answer::Now(reply) | Answer::AfterSync(_, reply) => match reply.status {
            None => Ok(reply.body),
            Some(kind) => {
                let error = Error::from_bytes(&reply.body).unwrap();
                assert_eq!(error.kind, kind);
                Err(error)
            }
        },
        Answer::Parked(_) => panic!("it waits for others"),
    }
}

pub fn body(prefix: &MetaPrefix, request: &impl Encode) -> Vec<u8> {
    let mut body = prefix.to_bytes();
    request.encode(&mut body);
    body
}

pub fn create_request(parent: FileId, name: &str) -> CreateRequest {
    CreateRequest {
        parent,
        name: name.as_bytes().into(),
        kind: FileKind::File,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        truncate: false,
        rights: Rights::READ_WRITE,
        layout: None,
    }
}

pub fn create_with(parent: FileId, name: &str, layout: LayoutSpec) -> CreateRequest {
    CreateRequest { layout: Some(layout), ..create_request(parent, name) }
}

pub fn rename_request(from: (FileId, &str), to: (FileId, &str)) -> RenameRequest {
    RenameRequest {
        parent: from.0,
        name: from.1.as_bytes().into(),
        new_parent: to.0,
        new_name: to.1.as_bytes().into(),
        no_replace: false,
        exchange: false,
        whiteout: false,
        hold: false,
    }
}

/// After a restart: these files are open.
pub fn reassert(files: &[FileId]) -> ReassertRequest {
    ReassertRequest {
        first: false,
        files: files.to_vec(),
        held: Vec::new(),
        leases: Vec::new(),
        last: true,
    }
}

pub fn set_nothing(file: FileId) -> SetAttrRequest {
    SetAttrRequest { file, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None }
}

pub fn set_size(file: FileId, size: u64) -> SetAttrRequest {
    SetAttrRequest { size: Some(size), ..set_nothing(file) }
}

/// Of somebody who has written all before the end.
pub fn commit(open: &OpenFile, size: u64) -> CommitSizeRequest {
    let (file, generation) = (open.attr.file, open.attr.generation);
    let mtime = Some(SetTime::Now);
    let ranges = if size > 0 { vec![(0, size)] } else { Vec::new() };
    let (written, sparse, durable) = (Vec::new(), false, false);
    CommitSizeRequest { file, size, generation, mtime, written, ranges, sparse, durable }
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind
}

/// Runs a test in a process of its own, which is this program, started again for it: for what is
/// true of a whole process.
pub fn alone(test: &str, run: impl FnOnce()) {
    const ALONE: &str = "WEIR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let said = again.args(["--exact", test, "--nocapture"]).env(ALONE, "").output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
}
