//! A client that does not reach the server of the copy that orders goes on by way of another.
#![allow(clippy::unwrap_used)]

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

/// So long what is under way when the cut comes may take: a half second until the client
/// wonders (`LOOK_MS`), a second for a new connection (`DIRECT_MS`); a write that is being sent
/// is given up after a second, before that. The two are a write and a sync, of which one waits.
const FOUND_OUT: Duration = ms(2_300);
/// So long each later one may take.
const WRITE: Duration = ms(100);
/// After this time it is asked directly again: `TRY_MS`, and what one look at a time takes.
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
    for n in 0..24u64 {
        let protocol = PROTOCOLS[n as usize % PROTOCOLS.len()];
        let (copies, after) = (2 + (n / 5 % 2) as u8, ms(37) * n as u32);
        most = most.max(longest(Point { seed: n, copies, protocol, deaf: n % 3 == 2, after }));
    }
    println!("{most:?} at the most");
    assert!(most > WRITE);
}
