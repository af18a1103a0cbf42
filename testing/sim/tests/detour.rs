//! A client that cannot reach the server of the primary copy goes on through another server.

use crate::few_or_all;
use std::time::Duration;
use weir_sim::detour::{Point, Seen, try_cut};
use weir_sim::plan::Protocol;

const PROTOCOLS: [Protocol; 5] = [
    Protocol::ServerSync,
    Protocol::ServerAsync,
    Protocol::ClientSync,
    Protocol::ClientAsync,
    Protocol::Hybrid,
];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The longest time for a call in progress when the cut comes: half a second until the client
/// checks (`LOOK_MS`), and a second for a new connection (`DIRECT_MS`). A write that is being sent
/// is given up after a second, before that. The calls are a write and a sync, of which one waits.
const FOUND_OUT: Duration = ms(2_300);
/// The longest time for each later call.
const WRITE: Duration = ms(100);
/// After this time the client asks the server directly again: `TRY_MS`, and the interval of checks.
const BACK: Duration = ms(3_000);

fn tried(point: Point) -> Seen {
    let seen = try_cut(point).unwrap_or_else(|what| panic!("{point:?}: {what}"));
    assert!(seen.calls.len() > 1_000 && seen.looks > 50, "{point:?}: {} looks", seen.looks);
    seen
}

/// The longest that a call took.
fn longest(point: Point) -> Duration {
    let seen = tried(point);
    let slow: Vec<_> = seen.calls.iter().filter(|did| did.took > WRITE).collect();
    assert!(slow.len() <= 1, "{point:?}: {slow:?}");
    for did in &seen.calls {
        assert!(did.took <= FOUND_OUT, "{point:?}: {did:?}");
        if did.asked > FOUND_OUT && did.asked + did.took < seen.healed {
            assert!(did.detours > 0, "{point:?}: {did:?}");
        }
        if did.asked > seen.healed + BACK {
            assert_eq!(did.detours, 0, "{point:?}: {did:?}");
        }
    }
    slow.iter().map(|did| did.took).max().unwrap_or_default()
}

#[test]
fn a_client_that_does_not_reach_who_orders_goes_on_by_another_within_two_seconds_and_comes_back() {
    let mut most = Duration::ZERO;
    for n in 0..few_or_all(10, 24) {
        let protocol = PROTOCOLS[n as usize % PROTOCOLS.len()];
        let (copies, after) = (2 + (n / 5 % 2) as u8, ms(37) * n as u32);
        let deaf = n % 3 == 2;
        let point = Point { seed: n, copies, protocol, deaf, after, helper_goes: None };
        most = most.max(longest(point));
    }
    println!("{most:?} at the most");
    assert!(most > WRITE);
}

/// A copy that is away is done without by then: 4.8 s until it is missed and one until writes go on
/// (`sim/tests/failover.rs`), a half until the client wonders whether its answer can still come
/// (`LOOK_MS`), and one for the connection that it tries meanwhile (`DIRECT_MS`).
const DONE_WITHOUT: Duration = ms(4_800 + 1_000 + 500 + 1_000);

/// Requests that were sent through a machine that has vanished are sent again when the server is
/// reached directly, even if that server is heard from all the time.
#[test]
fn who_waits_on_a_detour_that_has_vanished_goes_back_to_the_direct_way() {
    let mut most = Duration::ZERO;
    for n in 0..few_or_all(10, 20) {
        let protocol = PROTOCOLS[n as usize % PROTOCOLS.len()];
        let helper_goes = Some(ms(50) * n as u32);
        let point = Point { seed: 7, copies: 2, protocol, deaf: false, after: ms(0), helper_goes };
        let seen = tried(point);
        let own = seen.calls.iter().map(|did| did.took).max().unwrap();
        let longest = own.max(seen.longest_beside);
        println!("{point:?}: {longest:?}");
        assert!(longest <= DONE_WITHOUT, "{point:?}: {longest:?}");
        most = most.max(longest);
    }
    println!("{most:?} at the most");
    assert!(most > FOUND_OUT, "nobody waits on it");
}
