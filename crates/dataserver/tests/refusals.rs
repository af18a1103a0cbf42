//! What a data server must refuse, over real sockets, and that it counts it.

use crate::cluster::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use weir_net::Address;
use weir_types::limits::MAX_PAYLOAD_BYTES;
use weir_types::{Decode, Error, ErrorKind, FileId, Generation, ServerId, SessionId, TargetId};
use weir_wire::data::{StatObjectRequest, TruncateRequest};
use weir_wire::frame::{HEADER_BYTES, Header, VERSION};
use weir_wire::handshake::{ClientHandshake, Hello, Identity};
use weir_wire::message::Op;
use weir_wire::{Capability, Key, Rights};

/// The error frame that ends a connection which was never authenticated.
fn last_words(stream: &mut TcpStream) -> Error {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let header = Header::parse(bytes.first_chunk().expect("an answer")).unwrap();
    assert_eq!(bytes.len(), HEADER_BYTES + header.body_len as usize);
    let error = Error::from_bytes(&bytes[HEADER_BYTES..]).unwrap();
    assert_eq!(header.status, Some(error.kind));
    error
}

fn raw(server: &Running) -> TcpStream {
    TcpStream::connect(server.address().to_string()).unwrap()
}

#[test]
fn bad_capabilities_are_refused_on_every_path_and_the_connection_goes_on() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(10_000)).unwrap();
    let good = || capability(1, Rights::READ_WRITE);
    let mut forged = access_with(TARGETS[0], 1, capability(1, Rights::READ));
    forged.capability.rights = Rights::READ_WRITE;
    let mut elsewhere = access(1);
    elsewhere.target = TARGETS[1];
    let other_file = access_with(TARGETS[0], 1, capability(2, Rights::READ_WRITE));
    let other_session = access_with(TARGETS[0], 1, Capability { session: SessionId(1), ..good() });
    let expired = access_with(TARGETS[0], 1, Capability { expires_unix_ms: 1, ..good() });
    for (bad, reason) in [
        (forged, "not_signed"),
        (elsewhere, "not_signed"),
        (other_file, "for_other_file"),
        (other_session, "of_other_session"),
        (expired, "expired"),
    ] {
        let counter = format!("refused.capability_{reason}");
        let before = server.counter(&counter);
        let truncate = TruncateRequest { access: bad.clone(), len: 0 };
        let stat = StatObjectRequest { access: bad.clone() };
        let errors = [
            client.read(&bad, 0, 100).unwrap_err(),
            client.write(&bad, 0, b"evil").unwrap_err(),
            client.ask(&truncate).unwrap_err(),
            client.ask(&stat).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::BadCapability, "{reason}: {error}");
        }
        assert_eq!(server.counter(&counter), before + 4, "{reason}");
    }
    assert_eq!(client.read(&access(1), 0, 10_000).unwrap(), pattern(10_000));
}

#[test]
fn a_capability_to_read_does_not_write() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    client.write(&access(1), 0, &pattern(100)).unwrap();
    let reader = access_with(TARGETS[0], 1, capability(1, Rights::READ));
    assert_eq!(client.read(&reader, 0, 100).unwrap(), pattern(100));
    assert_eq!(client.write(&reader, 0, b"x").unwrap_err().kind, ErrorKind::BadCapability);
    let cut = TruncateRequest { access: reader, len: 0 };
    assert_eq!(client.ask(&cut).unwrap_err().kind, ErrorKind::BadCapability);
    assert_eq!(server.counter("refused.capability_without_right"), 2);
}

#[test]
fn an_unknown_target_is_named() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let nowhere = access_with(TargetId(12), 1, capability(1, Rights::READ));
    let error = server.connect().read(&nowhere, 0, 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TargetMissing);
    assert!(error.message.contains("12") && error.message.contains("server 1"), "{error}");
}

#[test]
fn bad_tickets_are_refused() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    for bad in [ticket(SERVER, 1), ticket(ServerId(2), FOREVER)] {
        let error = Client::connect(&server.address(), bad).err().unwrap();
        assert_eq!(error.kind, ErrorKind::BadTicket, "{error}");
    }
    assert_eq!(server.counter("refused.ticket"), 2);
    // One made up without the server's key.
    let wait = weir_net::Wait::for_ms(10_000);
    let hello = hello(ticket(SERVER, FOREVER));
    let made_up = Key::from_bytes([1; 32]);
    let result = weir_net::BlockingConn::connect(&server.address(), made_up, &hello, &wait);
    assert_eq!(result.err().unwrap().kind, ErrorKind::AuthFailed);
    // A client that cannot tell, since it does not check the server's proof.
    let mut stream = raw(&server);
    let (_, frame) = ClientHandshake::start(Key::from_bytes([1; 32]), &hello);
    stream.write_all(&frame).unwrap();
    let mut challenge = [0; HEADER_BYTES + 49];
    stream.read_exact(&mut challenge).unwrap();
    let mut proof = Vec::new();
    let header = Header::request(Op::Proof, weir_types::RequestId(0));
    weir_wire::frame::encode_head(&mut proof, header, &[0u8; 20], &[], 0);
    stream.write_all(&proof).unwrap();
    assert_eq!(last_words(&mut stream).kind, ErrorKind::AuthFailed);
    assert_eq!(server.counter("net.refused_handshake"), 3);
}

#[test]
fn an_identity_of_another_kind_is_refused() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let wait = weir_net::Wait::for_ms(10_000);
    for identity in [Identity::Server(SERVER), Identity::Client(weir_types::ClientId(1))] {
        let hello = Hello { identity, ..hello(ticket(SERVER, FOREVER)) };
        let key = master().server(SERVER, weir_types::KeyGeneration(1));
        let result = weir_net::BlockingConn::connect(&server.address(), key, &hello, &wait);
        assert_eq!(result.err().unwrap().kind, ErrorKind::BadTicket);
    }
}

#[test]
fn a_request_without_a_handshake_is_refused() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut stream = raw(&server);
    let mut bytes = Vec::new();
    let header = Header::request(Op::Read, weir_types::RequestId(1));
    weir_wire::frame::encode_head(&mut bytes, header, &(), &[], 0);
    stream.write_all(&bytes).unwrap();
    assert_eq!(last_words(&mut stream).kind, ErrorKind::AuthFailed);
}

/// Passes one connection on, and tells what the client sent.
fn recording_proxy(server: Address) -> (Address, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let (tell, recorded) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut upstream = TcpStream::connect(server.to_string()).unwrap();
        let (mut back_from, mut back_to) =
            (upstream.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = client.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
            upstream.write_all(&buffer[..n]).unwrap();
        }
        upstream.shutdown(Shutdown::Both).ok();
        tell.send(all).unwrap();
    });
    (address, recorded)
}

#[test]
fn a_recorded_connection_cannot_be_replayed() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let (proxy, recorded) = recording_proxy(server.address());
    let mut client = Client::connect(&proxy, ticket(SERVER, FOREVER)).unwrap();
    client.write(&access(1), 0, b"first").unwrap();
    drop(client);
    let recorded = recorded.recv().unwrap();
    server.connect().write(&access(1), 0, b"newer").unwrap();

    let mut stream = raw(&server);
    stream.write_all(&recorded).unwrap();
    let mut challenge = [0; HEADER_BYTES + 49];
    stream.read_exact(&mut challenge).unwrap();
    assert_eq!(last_words(&mut stream).kind, ErrorKind::AuthFailed);
    assert_eq!(server.connect().read(&access(1), 0, 5).unwrap(), b"newer");
    assert_eq!(server.counter("op.write"), 2);
}

/// All of the next frame, however many pieces it comes in; `None`: the connection has ended.
fn next_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    stream.read_exact(&mut frame).ok()?;
    let header = Header::parse(frame.first_chunk()?).unwrap();
    frame.resize(HEADER_BYTES + header.meta_len() + header.payload_len as usize, 0);
    stream.read_exact(&mut frame[HEADER_BYTES..]).ok()?;
    Some(frame)
}

/// Passes a connection on, and sends the last frame of the client twice.
#[test]
fn a_repeated_request_ends_the_connection() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let upstream = server.address().to_string();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(upstream).unwrap();
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut frames = 0;
        while let Some(frame) = next_frame(&mut client) {
            server.write_all(&frame).unwrap();
            frames += 1;
            // Hello, proof, write.
            if frames == 3 && server.write_all(&frame).is_err() {
                break;
            }
        }
    });
    let mut client = Client::connect(&proxy, ticket(SERVER, FOREVER)).unwrap();
    client.write(&access(1), 0, b"once").unwrap();
    let error = client.write(&access(1), 0, b"more").unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Protocol | ErrorKind::Unreachable), "{error}");
    assert_eq!(server.counter("net.closed_not_authentic"), 1);
    assert_eq!(server.counter("op.write"), 1);
}

#[test]
fn lengths_over_the_limits_are_refused_before_memory_is_set_aside() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    // Before authentication: a body of a gigabyte, and one of a megabyte.
    for len in [1u32 << 30, 1 << 20] {
        let mut bytes = Vec::new();
        let header = Header::request(Op::Hello, weir_types::RequestId(1));
        weir_wire::frame::encode_head(&mut bytes, header, &(), &[], 0);
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        let mut stream = raw(&server);
        stream.write_all(&bytes).unwrap();
        let kind = last_words(&mut stream).kind;
        assert!(matches!(kind, ErrorKind::Protocol | ErrorKind::AuthFailed), "{kind:?}");
    }
    // After it: a payload over the limit, a body over this server's.
    let mut client = server.connect();
    let payload = vec![0; MAX_PAYLOAD_BYTES + 1];
    let header = Header::request(Op::Write, client.conn.next_request_id());
    let slices = [std::io::IoSlice::new(&payload)];
    // The server may be gone before all of it is sent.
    let sent = client.conn.send(header, &(), &[], &slices, &client.wait);
    let error = sent.and_then(|()| client.conn.recv_reply::<()>(&client.wait)).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Protocol | ErrorKind::Unreachable), "{error}");
    assert!(!client.conn.is_usable());
    let mut client = server.connect();
    let header = Header::request(Op::Write, client.conn.next_request_id());
    client.conn.send(header, &vec![0u64; 100_000], &[], &[], &client.wait).unwrap();
    let error = client.conn.recv_reply::<()>(&client.wait).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert_eq!(server.counter("net.closed_malformed"), 4);
}

#[test]
fn a_peer_of_another_version_is_told_both_versions() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut bytes = Vec::new();
    let header = Header::request(Op::Hello, weir_types::RequestId(0));
    weir_wire::frame::encode_head(&mut bytes, header, &(), &[], 0);
    bytes[4..6].copy_from_slice(&(VERSION + 8).to_le_bytes());
    let mut stream = raw(&server);
    stream.write_all(&bytes).unwrap();
    let error = last_words(&mut stream);
    assert_eq!(error.kind, ErrorKind::VersionMismatch);
    assert!(error.message.contains(&format!("version {}", VERSION + 8)), "{error}");
    assert_eq!(server.counter("net.refused_version"), 1);
}

#[test]
fn something_that_is_no_weir_client_is_answered_and_closed() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut stream = raw(&server);
    let request = format!("GET / HTTP/1.1\r\nHost: weir\r\nX: {}\r\n\r\n", "x".repeat(100));
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(last_words(&mut stream).kind, ErrorKind::Protocol);
}

#[test]
fn an_object_of_an_absurd_name_stays_inside_the_target() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut client = server.connect();
    let file = u64::MAX;
    let mut access = access_with(TARGETS[0], file, capability(file, Rights::READ_WRITE));
    access.object.file = FileId(file);
    access.generation = Generation(u64::MAX);
    client.write(&access, 0, b"data").unwrap();
    assert_eq!(client.read(&access, 0, 4).unwrap(), b"data");
    let names = std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(names, 5, "two targets, three keys");
}
