//! Copies that servers make by themselves.

use crate::cluster;
use crate::cluster::*;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_net::server::ServerCounters;
use weir_net::{
    Address, BufferPool, ConnId, Frame, Listener, Outbox, Server, ServerConfig, Service,
};
use weir_types::codec::Decode;
use weir_types::{
    ClientId, ColumnIndex, Epoch, Error, ErrorKind, FileId, Generation, KeyGeneration, Result,
    ServerId, SessionId, TargetId,
};
use weir_wire::data::{
    Access, Copied, CopyAccess, CopyPiece, CopyRequest, FenceRequest, ForwardRequest, PunchRequest,
    SeekRequest, StatObjectRequest, SyncRequest, TruncateRequest,
};
use weir_wire::handshake::{Attempt, Hello, Identity, Welcome};
use weir_wire::map::{ServerEntry, Standing, TargetState};
use weir_wire::peer::{FindPeerRequest, HeartbeatReply, Peer, Revocation, Revocations};
use weir_wire::ticket::{OF_SERVERS, SealedTicket, Ticket};
use weir_wire::{Capability, Header, Key, Level, Op, Rights};

const OTHER: ServerId = ServerId(2);
const FAR: [TargetId; 1] = [TargetId(20)];
/// Nobody serves it.
const NOWHERE: TargetId = TargetId(99);

/// As much of a metadata server as data servers need.
#[derive(Clone, Default)]
struct Metadata {
    servers: Arc<Mutex<BTreeMap<TargetId, ServerEntry>>>,
    news: Arc<Mutex<News>>,
    /// The state of targets in its map.
    standings: Vec<Standing>,
    address: String,
}

/// What it tells them of keys and capabilities.
#[derive(Default)]
struct News {
    oldest_keys: Vec<(TargetId, KeyGeneration)>,
    revoked: Revocations,
}

impl Metadata {
    fn listen(&self) -> (Server<()>, String) {
        let listener = Listener::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
        let address = listener.address().to_string();
        let config = ServerConfig::new(BufferPool::new(1 << 20));
        let service = |_, _: &Arc<ServerCounters>| Ok(self.clone());
        (Server::start(config, vec![listener], service).unwrap(), address)
    }

    fn serves(&self, server: &Running) {
        let ready = &server.ready;
        let entry = ServerEntry {
            server: ready.server,
            host: String::new(),
            domain: String::new(),
            tcp: ready.tcp.clone(),
            unix: ready.unix.clone(),
            targets: Vec::new(),
        };
        let mut map = self.servers.lock().unwrap();
        map.extend(ready.targets.iter().map(|target| (*target, entry.clone())));
    }

    fn find(&self, asking: ServerId, target: TargetId) -> Result<Peer> {
        let map = self.servers.lock().unwrap();
        let entry = map.get(&target).cloned();
        let entry = entry.ok_or_else(|| Error::new(ErrorKind::TargetMissing, "no such target"))?;
        let server_key = |server| master().server(server, KeyGeneration(1));
        let ticket = peer_ticket(asking, entry.server);
        let ticket = SealedTicket::seal(ticket, &server_key(entry.server), &server_key(asking));
        Ok(Peer { entry, ticket })
    }
}

fn peer_ticket(asking: ServerId, server: ServerId) -> Ticket {
    let client = ClientId(asking.0.into());
    Ticket { client, session: OF_SERVERS, ..ticket(server, FOREVER) }
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
        let (conn, header) = (frame.conn, &frame.header);
        if header.op != Op::FindPeer {
            let news = self.news.lock().unwrap();
            let reply = HeartbeatReply {
                epoch: Epoch(1),
                in_effect: Epoch(1),
                standings: self.standings.clone(),
                serve_ms: 60_000,
                remove: Vec::new(),
                fill: Vec::new(),
                build: Vec::new(),
                distrust: Vec::new(),
                give_up: Vec::new(),
                busy_percent: 100,
                protection: weir_wire::Level::Args,
                oldest_keys: news.oldest_keys.clone(),
                own_keys: Vec::new(),
                revoked: news.revoked.clone(),
                interval_ms: 20,
            };
            drop(news);
            return out.reply(conn, Header::reply_to(header, None), &reply, &[], None);
        }
        let Identity::Server(asking) = frame.peer.identity else { panic!() };
        let target = FindPeerRequest::from_bytes(frame.body).unwrap().target;
        match self.find(asking, target) {
            Ok(peer) => out.reply(conn, Header::reply_to(header, None), &peer, &[], None),
            Err(e) => out.reply(conn, Header::reply_to(header, Some(e.kind)), &e, &[], None),
        }
    }

    fn on_event(&mut self, (): (), _: &mut Outbox) {}
}

/// Two servers that know of each other.
struct World {
    near: Running,
    far: Option<Running>,
    metadata: Metadata,
    _listening: Server<()>,
    dir: PathBuf,
    _guard: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(standings: Vec<Standing>) -> Self {
        let (guard, dir) = scratch();
        let mut metadata = Metadata { standings, ..Metadata::default() };
        let (listening, address) = metadata.listen();
        metadata.address = address.clone();
        let start = |name: &str, server, targets: &[TargetId]| {
            std::fs::create_dir(dir.join(name)).unwrap();
            let mut config = prepare_as(&dir.join(name), server, targets);
            config.metadata = vec![address.clone()];
            let running = Running::start(config);
            metadata.serves(&running);
            serves_clients(&running, targets[0]);
            running
        };
        let near = start("near", SERVER, &TARGETS);
        let far = Some(start("far", OTHER, &FAR));
        Self { near, far, metadata, _listening: listening, dir, _guard: guard }
    }

    /// A client of the server of this target.
    fn client(&self, target: TargetId) -> Client {
        match FAR.contains(&target) {
            true => Client::connect_to(self.far.as_ref().unwrap()),
            false => self.near.connect(),
        }
    }
}

/// Waits for an event, for a minute at most.
fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !has_come() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the server has heard from the metadata server: before that it refuses clients.
fn serves_clients(server: &Running, target: TargetId) {
    let mut client = Client::connect_to(server);
    let stat = StatObjectRequest { access: on(target, 1) };
    until("it hears from the metadata server", || {
        !client.ask(&stat).is_err_and(|error| error.kind == ErrorKind::NotCurrent)
    });
}

fn on(target: TargetId, file: u64) -> Access {
    access_with(target, file, capability(file, Rights::READ_WRITE))
}

fn piece(from: u64, to: u64, len: u64) -> CopyPiece {
    CopyPiece { from, to, len }
}

fn copy_of(source: &Access, access: &Access, pieces: Vec<CopyPiece>) -> CopyRequest {
    CopyRequest { access: access.clone(), source: source.clone(), pieces }
}

/// The file of an object that is the only one in its target.
fn only_file(dir: &Path) -> PathBuf {
    let mut dirs = vec![dir.join("objects")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => return path,
            }
        }
    }
    panic!("no object")
}

#[test]
fn bytes_are_copied_within_a_target_between_targets_and_between_servers() {
    let world = World::new();
    const LEN: usize = 3 << 20;
    let data = pattern(LEN);
    let aligned = vec![piece(0, 0, LEN as u64)];
    // Heads and tails anywhere, out of order, and at another place within the block.
    let odd = vec![
        piece(1_000_000, 5, 1_200_001),
        piece(3, 2_000_000, 4093),
        piece(70_000, 1_500_000, 1),
        piece(4096, 1_600_000, 8192),
    ];
    for (number, from) in [TARGETS[0], FAR[0]].into_iter().enumerate() {
        // A column other than the first: where the bytes lie is up to the object.
        let mut source = on(from, 7);
        source.object.column = ColumnIndex(5);
        let wide = weir_types::StripeMap { unit_bytes: 1 << 30, columns: 6 };
        let mut writer = world.client(from);
        writer.send_write(&source, wide, &regions(5 << 30, LEN as u64), &data);
        writer.conn.recv_reply::<weir_wire::data::ObjectLen>(&writer.wait).unwrap();
        for (file, to) in [(10, TARGETS[0]), (20, TARGETS[1])] {
            let mut client = world.client(to);
            let whole = on(to, file + number as u64);
            let copied = client.ask(&copy_of(&source, &whole, aligned.clone())).unwrap();
            assert_eq!(copied, Copied { len: LEN as u64, written: LEN as u64 });
            assert!(client.read(&whole, 0, LEN + 1).unwrap() == data);
            let pieces = on(to, file + 100 + number as u64);
            client.write(&pieces, 0, &[0xee; 2_100_000]).unwrap();
            client.ask(&copy_of(&source, &pieces, odd.clone())).unwrap();
            let mut expected = vec![0xee; 2_100_000];
            for CopyPiece { from, to, len } in &odd {
                let (from, to, len) = (*from as usize, *to as usize, *len as usize);
                expected[to..to + len].copy_from_slice(&data[from..from + len]);
            }
            assert!(client.read(&pieces, 0, 3_000_000).unwrap() == expected);
        }
    }
    assert!(world.near.counter("bytes.pulled") >= 2 * LEN as u64, "two came from afar");
    assert_eq!(world.near.counter("op.read"), 8, "the tests' own reads, no others");
    assert!(world.near.counter("bytes.copied") >= 4 * LEN as u64);
}

#[test]
fn holes_stay_holes_and_take_away_what_was_there() {
    let world = World::new();
    for from in [TARGETS[0], FAR[0]] {
        let (source, to) = (on(from, 1), on(TARGETS[1], u64::from(from.0)));
        let mut writer = world.client(from);
        writer.write(&source, 0, &[1; 10_000]).unwrap();
        writer.write(&source, 1 << 20, &[2; 10_000]).unwrap();
        let mut client = world.client(TARGETS[1]);
        client.write(&to, 0, &vec![9; 2 << 20]).unwrap();
        // To behind the end of the source: zeros there too.
        let copied = client.ask(&copy_of(&source, &to, vec![piece(0, 0, 3 << 19)])).unwrap();
        assert!(copied.len == 2 << 20 && copied.written < 100_000, "{copied:?}");
        let mut expected = vec![9; 2 << 20];
        expected[..3 << 19].fill(0);
        expected[..10_000].fill(1);
        expected[1 << 20..(1 << 20) + 10_000].fill(2);
        assert!(client.read(&to, 0, 2 << 20).unwrap() == expected);
        let hole = SeekRequest { access: to.clone(), offset: 0, hole: true };
        assert!(client.ask(&hole).unwrap().unwrap() < 100_000);
        let back = SeekRequest { access: to.clone(), offset: 100_000, hole: false };
        assert_eq!(client.ask(&back).unwrap(), Some(1 << 20));
        // Nothing is made of nothing.
        let (none, fresh) = (on(from, 55), on(TARGETS[1], 56 + u64::from(from.0)));
        let copied = client.ask(&copy_of(&none, &fresh, vec![piece(0, 0, 1 << 20)])).unwrap();
        assert_eq!(copied, Copied { len: 0, written: 0 });
        assert!(!client.ask(&StatObjectRequest { access: fresh }).unwrap().exists);
    }
}

#[test]
fn rot_of_the_source_is_an_error_and_is_never_copied() {
    let world = World::new();
    for (from, dir) in [(TARGETS[0], "near/target10"), (FAR[0], "far/target20")] {
        let source = on(from, 1);
        world.client(from).write(&source, 0, &pattern(100_000)).unwrap();
        let path = only_file(&world.dir.join(dir));
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        // In block 5: see `docs/format-store.md`.
        file.read_exact_at(&mut byte, 4096 * (32 + 5) + 17).unwrap();
        file.write_all_at(&[byte[0] ^ 4], 4096 * (32 + 5) + 17).unwrap();
        let mut client = world.client(TARGETS[1]);
        for shift in [0, 100] {
            let to = on(TARGETS[1], 1000 + u64::from(from.0) + shift);
            client.write(&to, 0, &[7; 200_000]).unwrap();
            let all = copy_of(&source, &to, vec![piece(0, shift, 100_000)]);
            let error = client.ask(&all).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            // What is there verifies, as the read does, and is of before.
            assert!(client.read(&to, 0, 200_000).unwrap() == [7; 200_000]);
            // Of other blocks nothing stands in the way.
            client.ask(&copy_of(&source, &to, vec![piece(40_960, shift, 59_040)])).unwrap();
        }
    }
}

#[test]
fn a_copy_that_comes_late_or_is_of_an_older_generation_changes_nothing() {
    let world = World::new();
    let (source, to) = (on(FAR[0], 1), on(TARGETS[0], 2));
    world.client(FAR[0]).write(&source, 0, &pattern(50_000)).unwrap();
    let connect = |number| {
        let attempt = Attempt { run: 1, number };
        Client::connect_as(&world.near.address(), ticket(SERVER, FOREVER), attempt).unwrap()
    };
    let mut old = connect(0);
    let copy = copy_of(&source, &to, vec![piece(0, 0, 50_000)]);
    old.ask(&copy).unwrap();
    let mut new = connect(1);
    new.write(&to, 0, &[3; 50_000]).unwrap();
    let late = old.ask(&copy).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Unreachable, "{late}");
    let nothing = copy_of(&on(TARGETS[1], 77), &to, vec![piece(0, 0, 50_000)]);
    assert_eq!(old.ask(&nothing).unwrap_err().kind, ErrorKind::Unreachable, "nor holes");
    assert!(new.read(&to, 0, 50_000).unwrap() == [3; 50_000]);
    assert_eq!(world.near.counter("refused.late"), 2);
    let newer = Access { generation: Generation(9), ..to.clone() };
    new.ask(&FenceRequest { access: newer }).unwrap();
    assert_eq!(new.ask(&copy).unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(new.ask(&nothing).unwrap_err().kind, ErrorKind::Stale);
    let newer = Access { generation: Generation(9), ..to };
    assert!(new.read(&newer, 0, 50_000).unwrap() == [3; 50_000]);
}

/// Waits until the server of a target refuses a capability.
fn is_refused(world: &World, access: &Access) {
    let mut client = world.client(access.target);
    until("it hears of it", || client.read(access, 0, 1).is_err());
}

#[test]
fn what_a_client_may_read_no_more_is_not_copied_for_it_either() {
    let world = World::new();
    let copy = |file| {
        let to = on(TARGETS[0], 100 + file);
        let copy = copy_of(&on(FAR[0], file), &to, vec![piece(0, 0, 5000)]);
        world.client(TARGETS[0]).ask(&copy)
    };
    for file in [1, 2] {
        world.client(FAR[0]).write(&on(FAR[0], file), 0, &pattern(5000)).unwrap();
        copy(file).unwrap();
    }
    let revoked =
        Revocation { number: 10, client: None, file: Some(FileId(1)), until_unix_ms: u64::MAX };
    let told = |change: &dyn Fn(&mut News)| change(&mut world.metadata.news.lock().unwrap());
    told(&|news| news.revoked = Revocations { list: vec![revoked.clone()], upto: 10, more: false });
    is_refused(&world, &on(FAR[0], 1));
    assert_eq!(copy(1).unwrap_err().kind, ErrorKind::BadCapability);
    copy(2).unwrap();
    told(&|news| news.oldest_keys = vec![(FAR[0], KeyGeneration(2))]);
    is_refused(&world, &on(FAR[0], 2));
    assert_eq!(copy(2).unwrap_err().kind, ErrorKind::BadCapability);
}

#[test]
fn data_servers_reach_each_other_though_a_client_of_the_same_number_is_revoked() {
    let world = World::new();
    let source = on(FAR[0], 1);
    world.client(FAR[0]).write(&source, 0, &pattern(5000)).unwrap();
    let client = Some(ClientId(SERVER.0.into()));
    let entry = |number, client, file| Revocation { number, client, file, until_unix_ms: u64::MAX };
    // The second says that the first has arrived.
    let list = vec![entry(1, client, None), entry(2, None, Some(FileId(9)))];
    world.metadata.news.lock().unwrap().revoked = Revocations { list, upto: 2, more: false };
    is_refused(&world, &on(FAR[0], 9));
    let copy = copy_of(&source, &on(TARGETS[0], 2), vec![piece(0, 0, 5000)]);
    world.client(TARGETS[0]).ask(&copy).unwrap();
}

#[test]
fn nothing_is_copied_without_the_right_to_both_sides() {
    let world = World::new();
    for from in [TARGETS[0], FAR[0]] {
        world.client(from).write(&on(from, 1), 0, &pattern(5000)).unwrap();
    }
    let mut client = world.client(TARGETS[0]);
    let pieces = || vec![piece(0, 0, 5000)];
    for from in [TARGETS[1], FAR[0]] {
        let good = on(TARGETS[0], 2);
        let write_only = access_with(from, 1, capability(1, Rights::WRITE));
        let session = SessionId(5);
        let other = Capability { session, ..capability(1, Rights::READ) };
        let overheard = access_with(from, 1, other);
        let other_file = access_with(from, 1, capability(3, Rights::READ));
        let mut forged = write_only.clone();
        forged.capability.rights = Rights::READ;
        let expired = Capability { expires_unix_ms: 1, ..capability(1, Rights::READ) };
        let expired = access_with(from, 1, expired);
        for bad in [write_only, overheard, other_file, forged, expired] {
            let error = client.ask(&copy_of(&bad, &good, pieces())).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadCapability, "{bad:?}: {error}");
        }
        let read_only = access_with(TARGETS[0], 2, capability(2, Rights::READ));
        let error = client.ask(&copy_of(&on(from, 1), &read_only, pieces())).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadCapability);
        for bad in [vec![], vec![piece(0, 0, 0)], vec![piece(0, u64::MAX, 2)]] {
            let error = client.ask(&copy_of(&on(from, 1), &good, bad)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
        }
        let error = client.ask(&copy_of(&on(from, 1), &good, vec![piece(0, 0, 5 << 20)]));
        assert_eq!(error.unwrap_err().kind, ErrorKind::InvalidArgument);
        assert!(!client.ask(&StatObjectRequest { access: good }).unwrap().exists);
    }
}

#[test]
fn a_server_that_is_not_in_the_map_or_is_gone_is_not_asked() {
    let mut world = World::new();
    let mut client = world.client(TARGETS[0]);
    let to = on(TARGETS[0], 2);
    let copy = copy_of(&on(NOWHERE, 1), &to, vec![piece(0, 0, 5000)]);
    let error = client.ask(&copy).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "the client copies by itself: {error}");
    assert!(error.message.contains("target 99"), "{error}");
    let source = on(FAR[0], 1);
    world.client(FAR[0]).write(&source, 0, &pattern(5000)).unwrap();
    let copy = copy_of(&source, &to, vec![piece(0, 0, 5000)]);
    client.ask(&copy).unwrap();
    // Started anew it is elsewhere, and asked there.
    world.far = None;
    let error = client.ask(&copy).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    let mut config = prepare_as(&world.dir.join("far"), OTHER, &FAR);
    config.listen = "127.0.0.1:0".into();
    let again = Running::start(config);
    world.metadata.serves(&again);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = client.ask(&copy) {
        assert!(std::time::Instant::now() < until, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    world.far = Some(again);
    assert!(client.read(&to, 0, 5000).unwrap() == pattern(5000));
}

#[test]
fn a_data_server_may_read_for_a_client_and_change_nothing() {
    let world = World::new();
    let file = on(TARGETS[0], 1);
    world.client(TARGETS[0]).write(&file, 0, &pattern(5000)).unwrap();
    let ticket = peer_ticket(OTHER, SERVER);
    let (key, attempt) = (ticket_key(&ticket), Attempt { run: 0, number: 0 });
    let mut peer = Client::connect_with(&world.near.address(), key, ticket, attempt).unwrap();
    assert!(peer.read(&file, 0, 5000).unwrap() == pattern(5000));
    assert_eq!(peer.ask(&StatObjectRequest { access: file.clone() }).unwrap().len, 5000);
    assert_eq!(peer.write(&file, 0, &[1; 10]).unwrap_err().kind, ErrorKind::Unsupported);
    let refused = [
        peer.ask(&TruncateRequest { access: file.clone(), len: 0 }).unwrap_err(),
        peer.ask(&PunchRequest { access: file.clone(), offset: 0, len: 10 }).unwrap_err(),
        peer.ask(&FenceRequest { access: file.clone() }).unwrap_err(),
        peer.ask(&copy_of(&file, &on(TARGETS[1], 1), vec![piece(0, 0, 10)])).unwrap_err(),
    ];
    assert!(refused.iter().all(|e| e.kind == ErrorKind::Unsupported), "{refused:?}");
    let forged = access_with(TARGETS[0], 1, capability(1, Rights::WRITE));
    assert_eq!(peer.read(&forged, 0, 10).unwrap_err().kind, ErrorKind::BadCapability);
    assert!(world.client(TARGETS[0]).read(&file, 0, 6000).unwrap() == pattern(5000));
}

/// The same for a column that has another copy on each of these targets.
fn among(access: Access, others: &[TargetId]) -> Access {
    let capability = &access.capability;
    let copy = |target: &TargetId| {
        let mac = capability.sign(*target, &master().target(*target, KeyGeneration(1)));
        CopyAccess { target: *target, mac, filling: false }
    };
    let copies = [access.target].iter().chain(others).map(copy).collect();
    Access { copies, ..access }
}

#[test]
fn a_client_is_passed_on_to_the_server_of_another_copy_and_nowhere_else() {
    let world = World::new();
    let (near, far) = (TARGETS[0], FAR[0]);
    let mut client = Client::connect_at(&world.near.address(), Level::Private).unwrap();
    let refused = [
        (on(near, 1), far),
        (among(on(near, 1), &[far]), NOWHERE),
        (among(on(near, 1), &[TARGETS[1]]), TARGETS[1]),
        (among(on(near, 1), &[far]), near),
        (among(on(near, 1), &[far]), TargetId::NONE),
    ];
    for (access, to) in refused {
        let error = client.ask(&ForwardRequest { access, to }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{to}: {error}");
    }
    let mut forged = among(on(near, 1), &[far]);
    forged.mac = forged.copies[1].mac;
    let error = client.ask(&ForwardRequest { access: forged, to: far }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCapability);
    // One that nobody serves.
    let access = among(on(near, 1), &[far, NOWHERE]);
    let error = client.ask(&ForwardRequest { access, to: NOWHERE }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TargetMissing, "{error}");
    // A data server does not ask for it.
    let ticket = peer_ticket(OTHER, SERVER);
    let (key, attempt) = (ticket_key(&ticket), Attempt { run: 0, number: 0 });
    let mut peer = Client::connect_with(&world.near.address(), key, ticket, attempt).unwrap();
    let access = among(on(near, 1), &[far]);
    let error = peer.ask(&ForwardRequest { access: access.clone(), to: far }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);

    client.ask(&ForwardRequest { access, to: far }).unwrap();
    // Now it speaks with the other server, which wants a ticket of its own.
    let go_on = |client: Client, ticket: Ticket, key| {
        let protection = client.conn.level();
        let hello = Hello { protection, ..hello_of(ticket, Attempt { run: 1, number: 0 }) };
        let Client { conn, wait } = client;
        let conn = conn.go_on_with(&world.near.address(), key, &hello, &wait, None)?.0;
        Ok::<_, Error>(Client { conn, wait })
    };
    let key_of = |ticket: &Ticket, server| ticket.key(&master().server(server, KeyGeneration(1)));
    let right = cluster::ticket(OTHER, FOREVER);
    let mut through = go_on(client, right.clone(), key_of(&right, OTHER)).unwrap();
    let data = pattern(3 << 20);
    through.write(&on(far, 1), 0, &data).unwrap();
    assert!(through.read(&on(far, 1), 0, data.len()).unwrap() == data);
    let forged = access_with(far, 1, capability(1, Rights::READ));
    assert_eq!(through.write(&forged, 0, &[1]).unwrap_err().kind, ErrorKind::BadCapability);
    assert_eq!(through.read(&on(near, 1), 0, 1).unwrap_err().kind, ErrorKind::TargetMissing);
    assert_eq!(world.near.counter("connections.forwarded"), 1);

    let mut client = world.client(near);
    let access = among(on(near, 1), &[far]);
    client.ask(&ForwardRequest { access, to: far }).unwrap();
    let wrong = cluster::ticket(SERVER, FOREVER);
    let error = go_on(client, wrong.clone(), key_of(&wrong, SERVER)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::BadTicket, "{error}");
}

/// Its metadata server does not list the copies that it should have: the search does not end.
#[test]
fn nothing_is_ordered_where_the_gap_log_is_lost_until_it_is_noted_what_may_be_lacking() {
    let standing = |(target, state)| Standing { target, state, since: Epoch(1), forgot: false };
    let online = TARGETS.map(|target| (target, TargetState::Online));
    let away = [(NOWHERE, TargetState::Offline)];
    let world = World::with(online.into_iter().chain(away).map(standing).collect());
    let access = || among(on(TARGETS[0], 1), &[NOWHERE]);
    let write = |server: &Running| server.connect().write(&access(), 10, &[1; 5000]);
    until("changes are ordered", || write(&world.near).is_ok());
    let World { near, far: _far, metadata, _listening, dir, _guard } = world;
    drop(near);
    std::fs::remove_file(dir.join(format!("near/target{}/gaps", TARGETS[0]))).unwrap();
    let mut config = prepare_as(&dir.join("near"), SERVER, &TARGETS);
    config.metadata = vec![metadata.address.clone()];
    let near = Running::start(config);
    until("it looks for what may be lacking", || {
        // Whole blocks, too.
        let error = near.connect().write(&access(), 0, &[2; 4096]).unwrap_err();
        error.kind == ErrorKind::NotCurrent && error.message.contains("still looking")
    });
    let mut client = near.connect();
    let refused = [
        client.write(&access(), 10, &[2; 10]).unwrap_err(),
        client.ask(&SyncRequest { access: access() }).unwrap_err(),
        client.ask(&TruncateRequest { access: access(), len: 0 }).unwrap_err(),
        client.ask(&FenceRequest { access: access() }).unwrap_err(),
    ];
    assert!(refused.iter().all(|e| e.kind == ErrorKind::NotCurrent), "{refused:?}");
    // A file that has one copy is not concerned.
    client.write(&on(TARGETS[0], 2), 0, &[3; 10]).unwrap();
}
