//! What somebody between a client and a data server can do at each level of protection, over real
//! sockets.

use crate::cluster::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use weir_net::Address;
use weir_types::{Encode, ErrorKind, KeyGeneration};
use weir_wire::frame::{HEADER_BYTES, Header};
use weir_wire::{Capability, Level, Rights};

/// Frames that come before the protected ones: Hello and Proof, or Challenge and KeyAnswer.
const FIRST: usize = 2;

/// The next frame of a stream, or the next record behind the first frames of a private one; `None`:
/// the stream has ended.
fn next_unit(stream: &mut TcpStream, level: Level, n: usize) -> Option<Vec<u8>> {
    if level == Level::Private && n >= FIRST {
        let mut unit = vec![0; 2];
        stream.read_exact(&mut unit).ok()?;
        let len = usize::from(u16::from_le_bytes([unit[0], unit[1]]));
        unit.resize(2 + len, 0);
        stream.read_exact(&mut unit[2..]).ok()?;
        return Some(unit);
    }
    let mut unit = vec![0; HEADER_BYTES];
    stream.read_exact(&mut unit).ok()?;
    let header = Header::parse(unit.first_chunk()?).unwrap();
    let code = if level == Level::Data && header.payload_len > 0 { 16 } else { 0 };
    unit.resize(HEADER_BYTES + header.meta_len() + code + header.payload_len as usize, 0);
    stream.read_exact(&mut unit[HEADER_BYTES..]).ok()?;
    Some(unit)
}

/// What becomes of the n-th unit: what is sent in its place.
type Change = Box<dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>> + Send>;

fn unchanged() -> Change {
    Box::new(|_, unit| vec![unit])
}

/// Changes only the n-th unit.
fn only(which: usize, mut change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> Change {
    Box::new(move |n, mut unit| {
        if n == which {
            change(&mut unit);
        }
        vec![unit]
    })
}

/// Passes one connection on, changes what the client and the server say, and ends it when an empty
/// unit takes a place.
fn relay(server: Address, level: Level, to_server: Change, to_client: Change) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server.to_string()).unwrap();
        let ends = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
        let threads =
            ends.into_iter().zip([to_server, to_client]).map(|((from, to), mut change)| {
                let (mut from, mut to) = (from.unwrap(), to.unwrap());
                std::thread::spawn(move || {
                    let mut n = 0;
                    while let Some(unit) = next_unit(&mut from, level, n) {
                        let units = change(n, unit);
                        n += 1;
                        let all_sent =
                            |unit: &Vec<u8>| !unit.is_empty() && to.write_all(unit).is_ok();
                        if !units.iter().all(all_sent) {
                            break;
                        }
                    }
                    to.shutdown(std::net::Shutdown::Both).ok();
                    from.shutdown(std::net::Shutdown::Both).ok();
                })
            });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    address
}

/// Connects through a relay that changes requests.
fn through(server: &Running, level: Level, to_server: Change) -> Client {
    let address = relay(server.address(), level, to_server, unchanged());
    let client = Client::connect_at(&address, level).unwrap();
    assert_eq!(client.conn.level(), level);
    client
}

/// Bits that can be changed without changing CRC-32C: the polynomial itself.
fn without_trace(bytes: &mut [u8]) {
    let delta = (1 | 0x82f6_3b78u64 << 1).to_le_bytes();
    bytes.iter_mut().zip(delta).for_each(|(byte, delta)| *byte ^= delta);
}

fn ended(error: weir_types::Error) {
    let kinds = [ErrorKind::Unreachable, ErrorKind::Protocol];
    assert!(kinds.contains(&error.kind), "{error}");
}

#[test]
fn a_changed_payload_passes_only_where_it_has_no_code_and_only_if_its_checksum_fits() {
    for level in Level::ALL {
        let (_guard, dir) = scratch();
        let server = Running::start(prepare(&dir));
        server.connect().write(&access(1), 0, &pattern(100)).unwrap();
        let change = only(FIRST, |unit| {
            let at = unit.len() - 50;
            without_trace(&mut unit[at..]);
        });
        let mut client = through(&server, level, change);
        let written = client.write(&access(1), 0, &[7; 100]);
        let found = server.connect().read(&access(1), 0, 100).unwrap();
        if level == Level::Args {
            let mut changed = [7; 100];
            without_trace(&mut changed[50..]);
            assert_eq!((written.unwrap(), &found[..]), (100, &changed[..]));
        } else {
            ended(written.unwrap_err());
            assert_eq!(found, pattern(100), "{level}");
            assert_eq!(server.counter("net.closed_not_authentic"), 1);
        }

        // One changed bit: the checksum notices it, too.
        let before = server.connect().read(&access(1), 0, 100).unwrap();
        let mut client =
            through(&server, level, only(FIRST, |unit| *unit.last_mut().unwrap() ^= 1));
        client.write(&access(1), 0, &[9; 100]).unwrap_err();
        assert_eq!(server.connect().read(&access(1), 0, 100).unwrap(), before, "{level}");
    }
}

#[test]
fn a_changed_payload_of_a_reply_is_not_handed_out_at_data_and_private() {
    for level in [Level::Data, Level::Private] {
        let (_guard, dir) = scratch();
        let server = Running::start(prepare(&dir));
        server.connect().write(&access(1), 0, &pattern(100)).unwrap();
        // Behind Challenge and Welcome, or Challenge, KeyAnswer and Welcome.
        let which = if level == Level::Private { FIRST + 1 } else { FIRST };
        let change = only(which, |unit| {
            let at = unit.len() - 50;
            without_trace(&mut unit[at..]);
        });
        let address = relay(server.address(), level, unchanged(), change);
        let mut client = Client::connect_at(&address, level).unwrap();
        let error = client.read(&access(1), 0, 100).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{level}: {error}");
        assert!(!client.conn.is_usable());
    }
}

#[test]
fn forged_repeated_reordered_and_cut_requests_are_refused_at_every_level() {
    type Attack = (&'static str, fn() -> Change, u64);
    let attacks: [Attack; 4] = [
        // A byte of the body: which object is meant.
        ("forged", || only(FIRST, |unit| unit[HEADER_BYTES + 4] ^= 1), 0),
        ("repeated", || Box::new(|n, unit| vec![unit.clone(); 1 + usize::from(n == FIRST)]), 1),
        (
            "reordered",
            || {
                let mut held = None;
                Box::new(move |n, unit| match n {
                    FIRST => {
                        held = Some(unit);
                        Vec::new()
                    }
                    _ => [unit].into_iter().chain(held.take()).collect(),
                })
            },
            0,
        ),
        (
            "cut",
            || {
                Box::new(|n, unit| match n {
                    FIRST => vec![unit[..unit.len() / 2].to_vec(), Vec::new()],
                    _ => vec![unit],
                })
            },
            0,
        ),
    ];
    for level in Level::ALL {
        for (what, change, done) in attacks {
            let (_guard, dir) = scratch();
            let server = Running::start(prepare(&dir));
            let mut client = through(&server, level, change());
            for data in [b"one", b"two"] {
                client.send_write(&access(1), WHOLE, &regions(0, 3), data);
                // Both arrive before the server may end the connection.
                if what != "reordered" {
                    break;
                }
            }
            let mut answers = 0;
            let error = loop {
                match client.conn.recv_head(&client.wait) {
                    Ok(_) => answers += 1,
                    Err(error) => break error,
                }
            };
            ended(error);
            assert!(answers <= done, "{what} at {level}");
            assert_eq!(server.counter("op.write"), done, "{what} at {level}");
            let refused =
                server.counter("net.closed_not_authentic") + server.counter("net.closed_malformed");
            assert_eq!(refused, u64::from(what != "cut"), "{what} at {level}");
        }
    }
}

#[test]
fn bad_capabilities_are_refused_at_every_level() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    for level in Level::ALL {
        let mut client = Client::connect_at(&server.address(), level).unwrap();
        client.write(&access(1), 0, &pattern(100)).unwrap();
        let good = || capability(1, Rights::READ_WRITE);
        // Signed by a working key of another generation than it says.
        let mut of_others = access_with(TARGETS[0], 1, good());
        of_others.capability.key_generation = KeyGeneration(2);
        let mut forged = access_with(TARGETS[0], 1, capability(1, Rights::READ));
        forged.capability.rights = Rights::READ_WRITE;
        let expired = Capability { expires_unix_ms: 1, ..good() };
        let bad = [
            forged,
            of_others,
            access_with(TARGETS[0], 1, expired),
            access_with(TARGETS[0], 1, capability(2, Rights::READ_WRITE)),
        ];
        for bad in bad {
            let error = client.write(&bad, 0, &[1; 100]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadCapability, "{level}: {error}");
            let error = client.read(&bad, 0, 100).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadCapability, "{level}: {error}");
        }
        assert_eq!(client.read(&access(1), 0, 100).unwrap(), pattern(100));
    }
}

#[test]
fn nobody_between_lowers_the_level_of_a_connection() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    for level in [Level::Data, Level::Private] {
        let lower = |at: Option<usize>| {
            only(0, move |unit| {
                let at = at.unwrap_or(unit.len() - 1);
                assert_eq!(unit[at], level as u8);
                unit[at] = Level::Args as u8;
            })
        };
        // The last byte of a Hello; the byte behind the nonce of a Challenge.
        let hello = relay(server.address(), Level::Args, lower(None), unchanged());
        let place = Some(HEADER_BYTES + 32);
        let challenge = relay(server.address(), Level::Args, unchanged(), lower(place));
        for address in [hello, challenge] {
            let error = Client::connect_at(&address, level).err().unwrap();
            assert_eq!(error.kind, ErrorKind::AuthFailed, "{level}: {error}");
        }
    }
}

/// Between its start and the first answer of its metadata server, which somebody may delay.
#[test]
fn no_data_is_sent_to_a_server_that_does_not_know_yet_how_it_is_to_be_protected() {
    let secret = b"what nobody else may read".repeat(400);
    let (_guard, dir) = scratch();
    // It accepts connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = prepare(&dir);
    config.metadata = vec![silent.local_addr().unwrap().to_string()];
    let server = Running::start(config);
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let all = recorded.clone();
    let recorder: Change = Box::new(move |_, unit| {
        all.lock().unwrap().extend_from_slice(&unit);
        vec![unit]
    });
    let address = relay(server.address(), Level::Args, recorder, unchanged());
    let connected = Client::connect_at(&address, Level::Args);
    let error = connected.and_then(|mut client| client.write(&access(1), 0, &secret)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotCurrent, "{error}");
    let recorded = recorded.lock().unwrap();
    assert!(!recorded.is_empty(), "the Hello");
    assert!(!recorded.windows(25).any(|bytes| bytes == &secret[..25]));
}

#[test]
fn only_a_recording_of_a_private_connection_has_nothing_of_the_data() {
    let secret = b"what nobody else may read".repeat(400);
    let mut lengths = Vec::new();
    for level in Level::ALL {
        let (_guard, dir) = scratch();
        let server = Running::start(prepare(&dir));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let recorder = || -> Change {
            let recorded = recorded.clone();
            Box::new(move |_, unit| {
                recorded.lock().unwrap().extend_from_slice(&unit);
                vec![unit]
            })
        };
        let address = relay(server.address(), level, recorder(), recorder());
        let mut client = Client::connect_at(&address, level).unwrap();
        client.write(&access(1), 0, &secret).unwrap();
        assert_eq!(client.read(&access(1), 0, secret.len()).unwrap(), secret);
        drop(client);
        let recorded = recorded.lock().unwrap();
        let seen = recorded.windows(25).filter(|bytes| *bytes == &secret[..25]).count();
        assert_eq!(seen == 0, level == Level::Private, "{level}: {seen}");
        // Which object is meant.
        let object = access(1).to_bytes();
        let seen = recorded.windows(object.len()).any(|bytes| bytes == object);
        assert_eq!(seen, level != Level::Private, "{level}");
        lengths.push(recorded.len());
    }
    assert!(lengths.iter().all(|len| *len > 2 * secret.len()));
}
