//! Many connections, slow ones, and deaths in the middle.

use crate::cluster::*;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use weir_types::ErrorKind;
use weir_wire::data::{ReadFlags, SyncRequest};
use weir_wire::frame::encode_head;
use weir_wire::{Header, Op};

const POOL_BYTES: usize = 16 << 20;

#[test]
fn serve() {
    serve_if_asked(|config| config.buffer_bytes = POOL_BYTES);
}

#[test]
fn ten_thousand_idle_connections_are_cheap() {
    let (_guard, dir) = scratch();
    weir_net::raise_descriptor_limit(20_000);
    let server = Spawned::start(&dir);
    let mut first = server.connect();
    first.write(&access(1), 0, &pattern(100_000)).unwrap();
    let before = server.resident_bytes();
    let mut idle: Vec<Client> = (0..10_000).map(|_| server.connect()).collect();
    // Each has done something, so that what it used is shown to be given back.
    for client in &mut idle {
        client.read(&access(1), 100, 100).unwrap();
    }
    let after = server.resident_bytes();
    assert!(after < 200 << 20, "{} MB in all", after >> 20);
    let each = after.saturating_sub(before) / idle.len();
    println!("{each} bytes for each idle connection, {} MB in all", after >> 20);
    assert!(each < 1024, "{each} bytes for each idle connection");
    let status = first.status();
    assert_eq!(status.connections, 10_001);
    drop(idle);
    let end = Instant::now() + Duration::from_secs(20);
    while first.status().connections != 1 {
        assert!(Instant::now() < end, "closed connections are forgotten");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_never_reads_neither_blocks_others_nor_grows_memory() {
    let (_guard, dir) = scratch();
    let server = Spawned::start(&dir);
    let mut good = server.connect();
    good.write(&access(1), 0, &pattern(4 << 20)).unwrap();
    let before = server.resident_bytes();
    // Each asks for 200 MiB and takes none of it.
    let ask = |client: &mut Client| {
        for _ in 0..50 {
            client.send_read(&access(1), WHOLE, &regions(0, 4 << 20), ReadFlags::default());
        }
    };
    let mut stuck = server.connect();
    ask(&mut stuck);
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(good.read(&access(1), 5, 70_000).unwrap().len(), 70_000);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // More of them than the buffers are enough for: they are cut off.
    let mut many: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    many.iter_mut().for_each(ask);
    let start = Instant::now();
    for i in 0..50 {
        good.write(&access(2), i * 70_000, &pattern(70_000)).unwrap();
        assert_eq!(good.read(&access(1), 5, 70_000).unwrap().len(), 70_000);
    }
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < POOL_BYTES + (8 << 20), "grew by {} MB", grown >> 20);
}

#[test]
fn who_asks_much_and_reads_slowly_gets_everything() {
    let (_guard, dir) = scratch();
    let server = Spawned::start(&dir);
    let mut client = server.connect();
    let data = pattern(1 << 20);
    client.write(&access(1), 0, &data).unwrap();
    for _ in 0..100 {
        client.send_read(&access(1), WHOLE, &regions(0, 1 << 20), ReadFlags::default());
    }
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..100 {
        let header = client.conn.recv_head(&client.wait).unwrap();
        let mut block = vec![0; 1 << 20];
        let mut slices = [std::io::IoSliceMut::new(&mut block)];
        client.conn.recv_payload(&header, &mut slices, &client.wait).unwrap();
        assert!(block == data);
    }
}

#[test]
fn many_writers_share_few_buffers() {
    let (_guard, dir) = scratch();
    let mut config = prepare(&dir);
    config.buffer_bytes = 8 << 20;
    config.queue_limit = 2;
    config.event_loops = 2;
    let server = Running::start(config);
    // 16 writers with 2 MiB each under way need more than there is.
    let data = pattern(1 << 20);
    std::thread::scope(|scope| {
        for file in 1..=16 {
            let (server, data) = (&server, &data);
            scope.spawn(move || {
                let mut client = server.connect();
                for round in 0..4u64 {
                    for half in [0, 1] {
                        let at = regions((2 * round + half) << 20, 1 << 20);
                        client.send_write(&access(file), WHOLE, &at, data);
                    }
                    for _ in 0..2 {
                        let header = client.conn.recv_head(&client.wait).unwrap();
                        client.conn.reply::<weir_wire::data::ObjectLen>(&header).unwrap();
                    }
                }
                for mib in 0..8 {
                    assert!(client.read(&access(file), mib << 20, 1 << 20).unwrap() == *data);
                }
            });
        }
    });
    assert_eq!(server.counter("op.write"), 128);
    assert!(server.counter("queue.full") > 0);
}

#[test]
fn a_client_that_dies_inside_a_frame_leaves_nothing_behind() {
    let (_guard, dir) = scratch();
    let mut config = prepare(&dir);
    config.buffer_bytes = 4 << 20;
    let server = Running::start(config);
    // A head that promises 4 MiB, which takes the only buffer, and half of it.
    for _ in 0..3 {
        let mut client = server.connect();
        let mut half = client_half_write(&mut client);
        half.write_all(&[0; 1000]).unwrap();
        drop(half);
        drop(client);
    }
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(1 << 20)).unwrap();
    assert_eq!(client.read(&access(1), 0, 100).unwrap(), pattern(100));
    // Half a handshake as well.
    let mut bytes = Vec::new();
    encode_head(&mut bytes, Header::request(Op::Hello, weir_types::RequestId(0)), &(), &[], 0);
    let mut stream = TcpStream::connect(server.address().to_string()).unwrap();
    stream.write_all(&bytes[..40]).unwrap();
    drop(stream);
    let end = Instant::now() + Duration::from_secs(10);
    while server.counter("net.unauthenticated") > 0 {
        assert!(Instant::now() < end);
    }
}

/// Sends the beginning of a large write, and gives the socket for the rest.
fn client_half_write(client: &mut Client) -> TcpStream {
    // A payload that fits the socket's buffers only in part, with a deadline
    // that ends the sending in the middle.
    let payload = vec![0; 4 << 20];
    let list = regions(0, 4 << 20);
    let request = weir_wire::data::WriteRequest {
        access: access(1),
        stripe: WHOLE,
        flags: Default::default(),
        regions: list,
        staged: None,
    };
    let header = Header::request(Op::Write, client.conn.next_request_id());
    let slices = [std::io::IoSlice::new(&payload[..payload.len()])];
    let soon = weir_net::Wait::for_ms(0);
    // Whether all of it went out or not, the connection ends here.
    client.conn.send(header, &request, &[0; 1024], &slices, &soon).ok();
    client.conn.socket().fd().unwrap().try_clone_to_owned().unwrap().into()
}

#[test]
fn a_server_killed_in_the_middle_comes_back_with_what_was_synced() {
    let (_guard, dir) = scratch();
    let data = pattern(1 << 20);
    let mut server = Spawned::start(&dir);
    let mut client = server.connect();
    client.write(&access(1), 0, &data).unwrap();
    client.ask(&SyncRequest { access: access(1) }).unwrap();
    for i in 1..8 {
        client.send_write(&access(1), WHOLE, &regions(i << 20, 1 << 20), &data);
    }
    server.kill();
    let error = loop {
        match client.conn.recv_head(&client.wait) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    let server = Spawned::start(&dir);
    let mut client = server.connect();
    assert!(client.read(&access(1), 0, 1 << 20).unwrap() == data);
    // Writes that were cut off may be old or new, but verify.
    for i in 1..8 {
        client.read(&access(1), i << 20, 1 << 20).unwrap();
    }
}
