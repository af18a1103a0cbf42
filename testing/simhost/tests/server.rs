//! The real event loops and the real client's connection on the simulated
//! network.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;
use weir_host::thread;
use weir_net::{
    Address, BlockingConn, BufferPool, ConnId, Frame, Listener, Outbox, Server, ServerConfig,
    Service, Wait,
};
use weir_simhost::disk::SimDisk;
use weir_simhost::{Options, Simulation};
use weir_types::{ClientId, Error, ErrorKind, RequestId, Result, SessionId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::{Header, Key, Level, Op};

const SECOND: Duration = Duration::from_secs(1);

/// Sends payloads back.
struct Echo;

impl Service for Echo {
    type Event = ();

    fn key_for(&mut self, _: &Hello) -> Result<Key> {
        Ok(Key::from_bytes([5; 32]))
    }

    fn welcome(&mut self, _: ConnId, _: &Hello) -> Result<Welcome> {
        Ok(Welcome { session: SessionId(8), cluster: [1; 16], instance: 1, runs: Vec::new() })
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        let Frame { conn, header, payload, .. } = frame;
        let mut checks = Vec::new();
        weir_wire::frame::decode_checks(frame.checks, &mut checks);
        let reply = Header::reply_to(&header, None);
        out.reply(conn, reply, &u64::from(header.payload_len), &checks, payload);
    }

    fn on_event(&mut self, (): (), _: &mut Outbox) {}
}

fn serve() {
    let listener = Listener::bind(&Address::parse("0.0.0.0:77").unwrap()).unwrap();
    let mut config = ServerConfig::new(BufferPool::new(16 << 20));
    config.loops = 2;
    let _server = Server::start(config, vec![listener], |_, _| Ok(Echo)).unwrap();
    thread::sleep(100_000 * SECOND);
}

fn connect(wait: &Wait) -> Result<BlockingConn> {
    let hello = Hello {
        version: VERSION,
        identity: Identity::Client(ClientId(1)),
        session: SessionId(0),
        nonce: weir_net::random_bytes()?,
        name: "test".into(),
        host: String::new(),
        protection: Level::Args,
    };
    let address = Address::parse("server:77")?;
    Ok(BlockingConn::connect(&address, Key::from_bytes([5; 32]), &hello, wait)?.0)
}

/// Sends a payload and expects it back.
fn exchange(conn: &mut BlockingConn, payload: &[u8], wait: &Wait) -> Result<()> {
    let id: RequestId = conn.next_request_id();
    let checks = vec![7; payload.len().div_ceil(4096)];
    let header = Header::request(Op::Write, id);
    conn.send(header, &(), &checks, &[IoSlice::new(payload)], wait)?;
    let reply = conn.recv_head(wait)?;
    let mut back = vec![0; payload.len()];
    conn.recv_payload(&reply, &mut [IoSliceMut::new(&mut back)], wait)?;
    assert_eq!((reply.request_id, back == payload), (id, true));
    Ok(())
}

#[test]
fn frames_come_back_whole_and_a_killed_server_is_noticed() {
    for seed in 0..10 {
        let split_ppm = 500_000;
        let mut sim = Simulation::new(seed, Options { split_ppm, ..Options::default() });
        let node = sim.node("server", SimDisk::new(1));
        let other = sim.node("client", SimDisk::new(1));
        let server = sim.start(node, "server", serve);
        let done = Rc::new(Cell::new(0));
        let counter = done.clone();
        let client = sim.start(other, "client", move || {
            thread::sleep(SECOND / 100);
            let mut conn = connect(&Wait::for_ms(10_000)).unwrap();
            let mut rng = fastrand::Rng::with_seed(seed);
            loop {
                let payload = vec![rng.u8(..); rng.usize(1..400_000)];
                let result = exchange(&mut conn, &payload, &Wait::for_ms(10_000));
                let Err(error): std::result::Result<(), Error> = result else {
                    counter.set(counter.get() + 1);
                    continue;
                };
                assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
                return;
            }
        });
        assert!(sim.run_until(60 * SECOND, |_| done.get() > 50), "{:#?}", sim.threads());
        sim.kill(server);
        assert!(sim.run_until(2 * 60 * SECOND, |sim| !sim.is_running(client)));
        assert!(sim.panics().is_empty(), "seed {seed}: {:?}", sim.panics());
    }
}
