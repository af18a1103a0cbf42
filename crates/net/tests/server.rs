//! Event loops and blocking connections against each other, over real sockets.
// A failed helper fails the test; tests ask the operating system.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_net::server::ServerCounters;
use weir_net::{
    Address, BlockingConn, BufferPool, ConnId, Expected, Frame, Listener, LoopHandle, Outbox,
    Server, ServerConfig, Service, Wait, random_bytes,
};
use weir_types::codec::Bytes;
use weir_types::{ClientId, Decode, Error, ErrorKind, RequestId, Result, SessionId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::{Header, Key, Level, Op};

/// Answers each operation in its own way; see `on_frame`.
struct Echo {
    handle: LoopHandle<(ConnId, Header)>,
    /// Requests answered at the end of the turn, the last one first.
    batch: Vec<(ConnId, Header, Bytes)>,
    /// Held requests, one for each of several paused connections.
    held: VecDeque<(ConnId, Header)>,
    turns_with_replies: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
    /// The lowest level of protection.
    least: Arc<AtomicU8>,
}

fn key() -> Key {
    Key::from_bytes([5; 32])
}

impl Service for Echo {
    type Event = (ConnId, Header);

    fn key_for(&mut self, hello: &Hello) -> Result<Key> {
        match hello.identity {
            Identity::Client(ClientId(1..=2)) => Ok(key()),
            _ => Err(Error::new(ErrorKind::AuthFailed, "no such client")),
        }
    }

    fn protection(&self) -> Level {
        Level::from_code(self.least.load(Relaxed)).unwrap()
    }

    fn welcome(&mut self, _: ConnId, hello: &Hello) -> Result<Welcome> {
        if hello.identity == Identity::Client(ClientId(2)) {
            return Err(Error::new(ErrorKind::SessionExpired, "the session is gone"));
        }
        Ok(Welcome { session: SessionId(8), cluster: [1; 16], instance: 1, runs: Vec::new() })
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        let Frame { conn, header, body, payload, .. } = frame;
        let reply = Header::reply_to(&header, None);
        match header.op {
            // The reply has the payload with its checksums; its body is the length.
            Op::Write => {
                let mut checks = Vec::new();
                weir_wire::frame::decode_checks(frame.checks, &mut checks);
                out.reply(conn, reply, &u64::from(header.payload_len), &checks, payload);
            }
            Op::GetAttr => self.batch.push((conn, header, Bytes::from_bytes(body).unwrap())),
            Op::Open => {
                let handle = self.handle.clone();
                std::thread::spawn(move || handle.post((conn, header)));
            }
            // Answered together with the next such request of another connection.
            Op::Sync => {
                self.held.push_back((conn, header));
                out.pause(conn);
                if self.held.len() == 2 {
                    for (conn, header) in self.held.drain(..) {
                        out.reply(conn, Header::reply_to(&header, None), &(), &[], None);
                        out.resume(conn);
                    }
                }
            }
            _ => out.reply_error(conn, &header, &ErrorKind::Unsupported.into()),
        }
    }

    fn on_event(&mut self, (conn, header): (ConnId, Header), out: &mut Outbox) {
        out.reply(conn, Header::reply_to(&header, None), &77u64, &[], None);
    }

    fn on_turn_end(&mut self, out: &mut Outbox) {
        if !self.batch.is_empty() {
            self.turns_with_replies.fetch_add(1, Relaxed);
        }
        for (conn, header, body) in self.batch.drain(..).rev() {
            out.reply(conn, Header::reply_to(&header, None), &body, &[], None);
        }
    }

    fn on_closed(&mut self, _: ConnId) {
        self.closed.fetch_add(1, Relaxed);
    }
}

struct Running {
    address: Address,
    server: Server<(ConnId, Header)>,
    turns_with_replies: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
    least: Arc<AtomicU8>,
}

fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Running {
    let listener = Listener::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
    let address = listener.address().clone();
    let mut config = ServerConfig::new(BufferPool::new(32 << 20));
    config.max_connections = 1000;
    change(&mut config);
    let (turns_with_replies, closed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let least = Arc::new(AtomicU8::new(Level::Args as u8));
    let server = Server::start(config, vec![listener], |handle, _: &Arc<ServerCounters>| {
        Ok(Echo {
            handle,
            batch: Vec::new(),
            held: VecDeque::new(),
            turns_with_replies: turns_with_replies.clone(),
            closed: closed.clone(),
            least: least.clone(),
        })
    });
    Running { address, server: server.unwrap(), turns_with_replies, closed, least }
}

fn start() -> Running {
    start_with(|_| {})
}

impl Running {
    fn connect(&self) -> BlockingConn {
        connect(&self.address, ClientId(1), key()).unwrap()
    }

    fn connect_at(&self, level: Level) -> BlockingConn {
        connect_at(&self.address, ClientId(1), key(), level).unwrap()
    }

    fn counters(&self) -> &ServerCounters {
        self.server.counters()
    }

    fn raw(&self) -> TcpStream {
        TcpStream::connect(self.address.to_string()).unwrap()
    }
}

fn connect(address: &Address, client: ClientId, key: Key) -> Result<BlockingConn> {
    connect_at(address, client, key, Level::Args)
}

fn connect_at(address: &Address, client: ClientId, key: Key, level: Level) -> Result<BlockingConn> {
    let hello = Hello {
        version: VERSION,
        identity: Identity::Client(client),
        nonce: random_bytes().unwrap(),
        session: SessionId(0),
        name: "test".into(),
        host: String::new(),
        protection: level,
    };
    let (conn, welcome) = BlockingConn::connect(address, key, &hello, &wait())?;
    assert_eq!(welcome.session, SessionId(8));
    Ok(conn)
}

fn wait() -> Wait {
    Wait::for_ms(20_000)
}

fn send(conn: &mut BlockingConn, op: Op, body: &[u8], payload: &[u8]) -> RequestId {
    let id = conn.next_request_id();
    let payload = [IoSlice::new(payload)];
    conn.send(Header::request(op, id), &Bytes(body.to_vec()), &[7, 8], &payload, &wait()).unwrap();
    id
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn bodies_and_payloads_of_every_size_come_through_at_every_level() {
    let running = start_with(|c| c.loops = 2);
    for level in Level::ALL {
        bodies_and_payloads_come_through(running.connect_at(level));
    }
}

fn bodies_and_payloads_come_through(mut conn: BlockingConn) {
    for len in [0, 1, 100, 8000, 9000, 17_000, 300_000, 1 << 20, 4 << 20] {
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let id = send(&mut conn, Op::Write, b"", &data);
        let mut back = vec![0; len];
        let mut slices = [IoSliceMut::new(&mut back)];
        let reply = conn.recv_data::<u64>(2, &mut slices, &wait()).unwrap();
        assert_eq!(
            (reply.body, reply.checks, reply.header.request_id),
            (len as u64, vec![7, 8], id)
        );
        assert!(back == data, "payload of {len}");
        if len < 1 << 20 {
            send(&mut conn, Op::GetAttr, &data, b"");
            assert!(conn.recv_reply::<Bytes>(&wait()).unwrap().0 == data, "body of {len}");
        }
    }
}

#[test]
fn a_reply_that_is_not_the_expected_one_is_put_in_order_at_every_level() {
    let running = start();
    for level in Level::ALL {
        replies_are_put_in_order(running.connect_at(level));
    }
}

fn replies_are_put_in_order(mut conn: BlockingConn) {
    let data: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    let mut back = vec![0; 100_000];
    // The reply is an error instead of data.
    send(&mut conn, Op::Statfs, b"", b"");
    let mut slices = [IoSliceMut::new(&mut back)];
    let error = conn.recv_data::<u64>(2, &mut slices, &wait()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(conn.is_usable());
    // Less data than the buffer holds, directly followed by the next replies.
    for len in [10, 5000, 100_000, 0] {
        send(&mut conn, Op::Write, b"", &data[..len]);
    }
    std::thread::sleep(Duration::from_millis(100));
    for (id, len) in [(2, 10), (3, 5000), (4, 100_000), (5, 0)] {
        let expected = Expected { request_id: RequestId(id), meta_len: 16 };
        back.fill(0);
        let (a, b) = back.split_at_mut(70);
        let mut slices = [IoSliceMut::new(a), IoSliceMut::new(b)];
        let header = conn.recv_expected(expected, &mut slices, &wait()).unwrap();
        assert_eq!((header.request_id.0, header.payload_len), (id, len as u32));
        assert_eq!(conn.reply::<u64>(&header).unwrap(), len as u64);
        assert!(back[..len] == data[..len], "{len}");
    }
    // A reply to another request: its payload has to be taken first.
    send(&mut conn, Op::Write, b"", &data[..5000]);
    send(&mut conn, Op::Write, b"", &data);
    std::thread::sleep(Duration::from_millis(100));
    let expected = Expected { request_id: RequestId(7), meta_len: 16 };
    let mut slices = [IoSliceMut::new(&mut back)];
    let header = conn.recv_expected(expected, &mut slices, &wait()).unwrap();
    assert_eq!(header.request_id, RequestId(6));
    let mut other = vec![0; 5000];
    conn.recv_payload(&header, &mut [IoSliceMut::new(&mut other)], &wait()).unwrap();
    assert!(other == data[..5000]);
    let mut slices = [IoSliceMut::new(&mut back)];
    let header = conn.recv_expected(expected, &mut slices, &wait()).unwrap();
    assert_eq!(header.request_id, RequestId(7));
    assert!(back == data);
}

#[test]
fn requests_of_one_turn_are_answered_together_and_in_any_order() {
    let running = start();
    let mut conn = running.connect();
    for n in 0..20u8 {
        send(&mut conn, Op::GetAttr, &[n], b"");
    }
    let mut seen = [false; 20];
    for _ in 0..20 {
        let header = conn.recv_head(&wait()).unwrap();
        let body: Bytes = conn.reply(&header).unwrap();
        assert_eq!(u64::from(body.0[0]) + 1, header.request_id.0);
        seen[body.0[0] as usize] = true;
    }
    assert!(seen.iter().all(|s| *s));
    assert!(running.turns_with_replies.load(Relaxed) <= 20);
}

#[test]
fn work_of_other_threads_is_answered() {
    let running = start_with(|c| c.loops = 3);
    let mut conns: Vec<_> = (0..6).map(|_| running.connect()).collect();
    for conn in &mut conns {
        for _ in 0..10 {
            send(conn, Op::Open, b"", b"");
        }
    }
    for conn in &mut conns {
        for _ in 0..10 {
            let header = conn.recv_head(&wait()).unwrap();
            assert_eq!(conn.reply::<u64>(&header).unwrap(), 77);
        }
    }
}

#[test]
fn a_paused_connection_delivers_nothing_until_it_is_resumed() {
    let running = start();
    let (mut a, mut b) = (running.connect(), running.connect());
    // All requests of `a` except the first have to wait although they have arrived.
    for _ in 0..5 {
        send(&mut a, Op::Sync, b"", b"");
    }
    for _ in 0..5 {
        send(&mut b, Op::Sync, b"", b"");
        b.recv_reply::<()>(&wait()).unwrap();
    }
    for _ in 0..5 {
        let header = a.recv_head(&wait()).unwrap();
        a.reply::<()>(&header).unwrap();
    }
}

#[test]
fn wrong_keys_and_refused_sessions_are_explained() {
    let running = start();
    for level in Level::ALL {
        let with = |client, key| connect_at(&running.address, ClientId(client), key, level);
        let wrong_key = with(1, Key::from_bytes([6; 32])).unwrap_err();
        assert_eq!(wrong_key.kind, ErrorKind::AuthFailed);
        let unknown = with(3, key()).unwrap_err();
        assert_eq!((unknown.kind, &unknown.message[..]), (ErrorKind::AuthFailed, "no such client"));
        let refused = with(2, key()).unwrap_err();
        assert_eq!(
            (refused.kind, &refused.message[..]),
            (ErrorKind::SessionExpired, "the session is gone")
        );
    }
    assert_eq!(running.counters().refused_handshake.load(Relaxed), 6);
    until("connections are forgotten", || {
        running.counters().unauthenticated.load(Relaxed) == 0
            && running.counters().connections.load(Relaxed) == 0
    });
}

#[test]
fn who_does_not_finish_the_handshake_or_a_frame_is_cut_off() {
    let running = start_with(|c| {
        c.handshake_timeout_ms = 200;
        c.stall_timeout_ms = 500;
    });
    let mut silent = running.raw();
    let mut half = running.raw();
    half.write_all(b"WEIR").unwrap();
    let mut idle = running.connect();
    // A partial header on an authenticated connection.
    let stalled = running.connect();
    let mut stalled: TcpStream =
        stalled.socket().fd().unwrap().try_clone_to_owned().unwrap().into();
    stalled.write_all(b"WEIR").unwrap();
    let mut end = Vec::new();
    silent.read_to_end(&mut end).ok();
    half.read_to_end(&mut end).ok();
    stalled.set_nonblocking(false).unwrap();
    stalled.set_read_timeout(None).unwrap();
    stalled.read_to_end(&mut end).ok();
    assert!(end.is_empty());
    assert_eq!(running.counters().closed_stalled.load(Relaxed), 3);
    // A connection that is merely idle stays open.
    std::thread::sleep(Duration::from_millis(2500));
    send(&mut idle, Op::GetAttr, b"here", b"");
    assert_eq!(idle.recv_reply::<Bytes>(&wait()).unwrap().0, b"here");
}

#[test]
fn unauthenticated_connections_are_bounded_and_keep_nobody_out() {
    let running = start_with(|c| {
        c.loops = 1;
        c.max_unauthenticated = 5;
    });
    // A connection that has begun its handshake is closed after those that have sent nothing.
    let mut begun = running.raw();
    begun.write_all(b"WEIR").unwrap();
    // When this connection is authenticated, the other's first bytes have been read.
    running.connect();
    let mut streams: Vec<_> = (0..9).map(|_| running.raw()).collect();
    until("five are cut off", || running.counters().refused_too_many.load(Relaxed) == 5);
    assert_eq!(streams[0].read(&mut [0; 10]).unwrap(), 0, "the oldest");
    for _ in 0..20 {
        running.connect();
    }
    // The first one was closed to make room for another.
    assert_eq!(running.counters().unauthenticated.load(Relaxed), 4);
    begun.set_nonblocking(true).unwrap();
    let error = begun.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it is there yet");
    drop((streams, begun));
    until("they are forgotten", || running.counters().unauthenticated.load(Relaxed) == 0);
    running.connect();
}

#[test]
fn who_is_cut_off_before_it_is_authenticated_connects_again_a_few_times() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = attempts.clone();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            counted.fetch_add(1, Relaxed);
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    let error = connect(&address, ClientId(1), key()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert_eq!(attempts.load(Relaxed), 6);
}

#[test]
fn many_requests_at_once_are_answered_on_a_private_connection() {
    let running = start_with(|c| c.loops = 1);
    let mut conn = running.connect_at(Level::Private);
    let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    for round in 0..20 {
        // More than the server may have unsent, and than a socket takes at once.
        let lens: Vec<usize> = (0..40).map(|n| (n * 5_003 + round) % 200_000).collect();
        for len in &lens {
            send(&mut conn, Op::Write, b"", &data[..*len]);
        }
        for len in &lens {
            let header = conn.recv_head(&wait()).unwrap();
            let mut back = vec![0; *len];
            conn.recv_payload(&header, &mut [IoSliceMut::new(&mut back)], &wait()).unwrap();
            assert!(back == data[..*len]);
        }
    }
    assert_eq!(running.counters().protected_private.load(Relaxed), 1);
}

#[test]
fn a_level_that_is_required_meanwhile_ends_lower_connections_and_is_used_by_new_ones() {
    let running = start();
    let mut conns = Level::ALL.map(|level| running.connect_at(level));
    assert_eq!(conns.each_ref().map(|conn| conn.level()), Level::ALL);
    let counters = running.counters();
    let by_level = || {
        let all = [&counters.protected_args, &counters.protected_data, &counters.protected_private];
        all.map(|counter| counter.load(Relaxed))
    };
    assert_eq!(by_level(), [1, 1, 1]);
    running.least.store(Level::Private as u8, Relaxed);
    until("two are closed", || by_level() == [0, 0, 1]);
    assert_eq!(counters.closed_unprotected.load(Relaxed), 2);
    for conn in &mut conns[..2] {
        assert_eq!(conn.recv_head(&wait()).unwrap_err().kind, ErrorKind::Unreachable);
    }
    send(&mut conns[2], Op::GetAttr, b"here", b"");
    assert_eq!(conns[2].recv_reply::<Bytes>(&wait()).unwrap().0, b"here");
    let mut raised = running.connect_at(Level::Args);
    assert_eq!(raised.level(), Level::Private);
    send(&mut raised, Op::GetAttr, b"here", b"");
    assert_eq!(raised.recv_reply::<Bytes>(&wait()).unwrap().0, b"here");
    // A lower one is no reason to close anything.
    running.least.store(Level::Args as u8, Relaxed);
    assert_eq!(running.connect_at(Level::Data).level(), Level::Data);
    assert_eq!(by_level()[2], 2);
}

#[test]
fn half_a_record_keeps_a_private_connection_no_longer_than_half_a_frame() {
    let running = start_with(|c| c.stall_timeout_ms = 500);
    let mut idle = running.connect_at(Level::Private);
    let stalled = running.connect_at(Level::Private);
    let mut stalled: TcpStream =
        stalled.socket().fd().unwrap().try_clone_to_owned().unwrap().into();
    stalled.write_all(&[100, 0, 1, 2, 3]).unwrap();
    stalled.set_nonblocking(false).unwrap();
    stalled.set_read_timeout(None).unwrap();
    stalled.read_to_end(&mut Vec::new()).ok();
    assert_eq!(running.counters().closed_stalled.load(Relaxed), 1);
    send(&mut idle, Op::GetAttr, b"here", b"");
    assert_eq!(idle.recv_reply::<Bytes>(&wait()).unwrap().0, b"here");
}

#[test]
fn the_first_part_of_a_record_after_a_long_silence_is_no_stall() {
    // More than two looks of the server for what stalls, which are a second apart.
    let stall = Duration::from_millis(2500);
    let running = start_with(|c| c.stall_timeout_ms = stall.as_millis() as u64);
    let conn = running.connect_at(Level::Private);
    let mut raw: TcpStream = conn.socket().fd().unwrap().try_clone_to_owned().unwrap().into();
    // Idle for longer than a peer may stall.
    std::thread::sleep(stall + Duration::from_millis(500));
    let begun = Instant::now();
    raw.write_all(&[100, 0, 1, 2, 3]).unwrap();
    until("it stalls now", || running.counters().closed_stalled.load(Relaxed) == 1);
    // Not by the next look. The server's time is that of the turn in which it has received.
    assert!(begun.elapsed() > stall / 2, "{:?}", begun.elapsed());
}

#[test]
fn the_service_hears_of_the_end() {
    let running = start();
    let conns: Vec<_> = (0..3).map(|_| running.connect()).collect();
    assert_eq!(running.counters().connections.load(Relaxed), 3);
    drop(conns);
    until("three are closed", || running.closed.load(Relaxed) == 3);
    let mut last = running.connect();
    running.server.stop().unwrap();
    let error = last.recv_head(&wait()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(!last.is_usable());
}

#[test]
fn an_interrupt_or_a_deadline_ends_the_wait_for_an_answer() {
    use std::os::fd::AsRawFd;
    let running = start();
    let mut conn = running.connect();
    send(&mut conn, Op::Sync, b"", b"");
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let interrupt = rustix::event::eventfd(1, flags).unwrap();
    let wait = wait().interruptible(Some(interrupt.as_raw_fd()));
    let error = conn.recv_reply::<()>(&wait).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted);
    assert!(!conn.is_usable());
    let mut conn = running.connect();
    send(&mut conn, Op::Sync, b"", b"");
    // The reply to the first request went nowhere; this one waits for a third.
    let mut conn = running.connect();
    send(&mut conn, Op::Sync, b"", b"");
    let start = Instant::now();
    let error = conn.recv_reply::<()>(&Wait::for_ms(100)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(10));
}
