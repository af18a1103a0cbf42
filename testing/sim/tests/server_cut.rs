//! Two servers that do not reach each other: who writes what both have a copy of goes on soon,
//! whichever copies these are, and is not held up again as long as that lasts.

use crate::few_or_all;
use std::time::Duration;
use weir_sim::plan::Protocol;
use weir_sim::server_cut::{Did, Point, try_cut};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// So long what is under way may take: 2 s until who waits for the other copy says so (`PATIENCE`),
/// the next heartbeat (`heartbeat_ms`), and the one with which all are told: 3.3 s as a rule. Who is
/// cut off in the middle of its answer is connected to once more first, which may take as long as
/// it takes until it is done without, and a second more.
const GO_ON: Duration = ms(4_500);
/// The same where the other copies get writes afterwards: what both sides note of that first is
/// waited for as well, before a write is tried without that; and a sync may wait for one before it.
const GO_ON_LATER: Duration = ms(9_000);
/// A sync may have to wait once more (docs/copies.md, What is left): in 3 of some 190 cuts.
const AT_THE_LATEST: Duration = ms(13_000);
/// More than an append and a sync usually take.
const USUAL: Duration = ms(500);
/// Copies of the file, and those whose servers are cut from each other.
const CUTS: [(u8, (usize, usize)); 4] = [(2, (0, 1)), (3, (0, 1)), (3, (1, 2)), (3, (0, 2))];

/// All cuts, both ways and one way, or every second of them; what came of each.
fn all(protocols: &[Protocol], mut judge: impl FnMut(Point, &[Vec<Did>])) {
    let mut seed = 0u64;
    for (copies, (a, b)) in CUTS {
        for (between, one_way) in [((a, b), false), ((a, b), true), ((b, a), true)] {
            for protocol in protocols.iter().copied() {
                seed += 1;
                if !seed.is_multiple_of(few_or_all(2, 1)) {
                    continue;
                }
                let after = ms(37) * (seed % 20) as u32;
                let point = Point { seed, copies, protocol, between, one_way, after };
                let seen = try_cut(point).unwrap_or_else(|what| panic!("{point:?}: {what}"));
                judge(point, &seen.calls);
            }
        }
    }
}

fn slow(calls: &[Did]) -> Vec<Did> {
    calls.iter().filter(|did| did.took > USUAL).copied().collect()
}

#[test]
fn who_appends_to_a_log_goes_on_within_five_seconds_when_two_of_its_servers_are_cut_apart() {
    let mut most = Duration::ZERO;
    all(&[Protocol::ServerSync, Protocol::ClientSync], |point, clients| {
        for calls in clients {
            let slow = slow(calls);
            // Once, as the cut begins.
            let is_first = |did: &Did| did.asked < ms(100) && did.took <= GO_ON;
            assert!(slow.len() <= 1 && slow.iter().all(is_first), "{point:?}: {slow:?}");
            most = slow.iter().map(|did| did.took).fold(most, Duration::max);
        }
    });
    println!("{most:?} at the most");
    assert!(most > USUAL);
}

#[test]
fn who_syncs_a_log_whose_other_copies_get_writes_afterwards_goes_on_within_nine_seconds_as_a_rule()
{
    let (mut most, mut late) = (Duration::ZERO, Vec::new());
    all(&[Protocol::ServerAsync, Protocol::ClientAsync], |point, clients| {
        let slow: Vec<Did> = clients.iter().flat_map(|calls| slow(calls)).collect();
        let slowest = slow.iter().map(|did| did.took).max().unwrap_or_default();
        assert!(slowest <= AT_THE_LATEST, "{point:?}: {slow:?}");
        if slowest > GO_ON_LATER {
            late.push((point, slow));
        }
        most = most.max(slowest);
    });
    println!("{most:?} at the most");
    assert!(late.len() <= 1, "{late:?}");
    assert!(most > USUAL);
}
