//! Writes that come after their client has given them up.

use crate::cluster::*;
use weir_types::{ErrorKind, Generation};
use weir_wire::data::{FenceRequest, PunchRequest, TruncateRequest};
use weir_wire::handshake::Attempt;

fn connect(server: &Running, run: u64, number: u64) -> Client {
    let attempt = Attempt { run, number };
    Client::connect_as(&server.address(), ticket(SERVER, FOREVER), attempt).unwrap()
}

#[test]
fn a_write_on_a_connection_that_was_given_up_undoes_nothing_newer() {
    let (_guard, dir) = scratch();
    let server = Running::start(prepare(&dir));
    let mut old = connect(&server, 1, 0);
    let mut other = connect(&server, 2, 0);
    old.write(&access(1), 0, &pattern(100_000)).unwrap();
    let mut new = connect(&server, 1, 1);
    new.write(&access(1), 0, &[7; 10_000]).unwrap();
    // What the network has kept back until now.
    let late = old.write(&access(1), 0, &pattern(100_000)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Unreachable, "{late}");
    let mut newer = access(1);
    newer.generation = Generation(2);
    let cut = TruncateRequest { access: newer.clone(), len: 0 };
    assert_eq!(old.ask(&cut).unwrap_err().kind, ErrorKind::Unreachable);
    let fence = FenceRequest { access: newer };
    assert_eq!(old.ask(&fence).unwrap_err().kind, ErrorKind::Unreachable);
    let punch = PunchRequest { access: access(1), offset: 0, len: 5000 };
    assert_eq!(old.ask(&punch).unwrap_err().kind, ErrorKind::Unreachable);
    let mut expected = pattern(100_000);
    expected[..10_000].fill(7);
    // Reading harms nobody.
    for client in [&mut old, &mut new, &mut other] {
        assert!(client.read(&access(1), 0, 100_000).unwrap() == expected);
    }
    // Another run of a client, or another client, has attempts of its own.
    other.write(&access(1), 0, &[8; 10]).unwrap();
    new.write(&access(1), 10, &[9; 10]).unwrap();
    assert_eq!(server.counter("refused.late"), 4);
}

#[test]
fn writes_that_wait_for_the_disk_are_done_before_the_next_attempt_or_never() {
    let (_guard, dir) = scratch();
    let mut config = prepare(&dir);
    config.disk_threads_per_target = 4;
    let server = Running::start(config);
    const LEN: usize = 256 << 10;
    let expect_new = |client: &mut Client, file| {
        let after = client.read(&access(file), 0, LEN).unwrap();
        assert!(after.iter().all(|&b| b == 2), "an older write came later, in file {file}");
    };
    for round in 0..20 {
        let (mut old, file) = (connect(&server, 1, 2 * round), round + 1);
        // Many in the queue, and nobody waits for the answers.
        for _ in 0..16 {
            old.send_write(&access(file), WHOLE, &regions(0, LEN as u64), &[1; LEN]);
        }
        let mut new = connect(&server, 1, 2 * round + 1);
        new.write(&access(file), 0, &[2; LEN]).unwrap();
        expect_new(&mut new, file);
        // When all are answered nothing is under way any more.
        for _ in 0..16 {
            let refusal = old.conn.recv_head(&old.wait).unwrap().status;
            assert!(matches!(refusal, None | Some(ErrorKind::Unreachable)), "{refusal:?}");
        }
        expect_new(&mut new, file);
    }
}
