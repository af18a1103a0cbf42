//! Which acknowledged writes which failure can lose, protocol by protocol: the table in
//! `docs/semantics.md`. Each test tries a failure at many moments of a write.

use crate::few_or_all;
use std::time::Duration;
use weir_sim::crash_points::{Failure, Found, Layout, Point, Seen, Victim, try_point};
use weir_sim::plan::Protocol;

use Failure::{Kill, Loss, PowerCut};
use Protocol::{ClientAsync, ClientSync, Hybrid, ServerAsync, ServerSync};
use Victim::{All, Client, Follower, Last, Primary};

/// The number of moments of a write that are tried, and of moments right after it;
/// `WEIR_SIM_MOMENTS` sets another number. For files with three copies, which take longer, two
/// thirds of it.
const MOMENTS: u32 = 6;
/// This long after a write, everything that was put off has reached all copies.
const WINDOW: Duration = Duration::from_secs(1);

/// Two copies, of one server each.
fn pair(protocol: Protocol) -> Layout {
    Layout { protocol, copies: 2, columns: 1 }
}

/// Duration of a write without failures.
fn usual(layout: Layout, sync: bool) -> Duration {
    let (victim, after) = (None, Duration::from_secs(1));
    let seen = try_point(Point { layout, sync, victim, failure: Kill, after }).unwrap();
    assert_eq!((&seen.after, &seen.differences[..]), (&Found::New, &[][..]), "{seen:?}");
    seen.acknowledged.unwrap()
}

/// One moment, and the outcome.
struct Moment {
    what: String,
    seen: Seen,
    /// The moment was after the window.
    late: bool,
}

impl Moment {
    fn was_acknowledged(&self) -> bool {
        self.seen.acknowledged.is_some()
    }

    /// The bytes while the failed servers are away, and afterwards.
    fn found(&self) -> (Option<&Found>, &Found) {
        (self.seen.meanwhile.as_ref(), &self.seen.after)
    }
}

/// All moments of one failure, each with its outcome. Whatever fails, all targets are online in the
/// end, no copy lacks anything, and all copies are the same.
fn at_all_moments(layout: Layout, sync: bool, victim: Victim, failure: Failure) -> Vec<Moment> {
    let usual = usual(layout, sync);
    let asked = std::env::var("WEIR_SIM_MOMENTS").map_or(MOMENTS, |text| text.parse().unwrap());
    let moments = if layout.copies > 2 { asked * 2 / 3 } else { asked };
    let during = (0..2 * moments).map(|n| (usual * n / moments, false));
    let moments = during.chain([(usual + WINDOW, true)]);
    let seen = moments.map(|(after, late)| {
        let point = Point { layout, sync, victim: Some(victim), failure, after };
        let seen = try_point(point).unwrap_or_else(|what| panic!("{point:?}: {what}"));
        let what = format!("{point:?}: {seen:?}");
        assert!(seen.differences.is_empty(), "copies diverge: {what}");
        Moment { what, seen, late }
    });
    let seen: Vec<Moment> = seen.collect();
    // Otherwise the test shows nothing.
    assert!(seen.iter().any(Moment::was_acknowledged), "{layout:?} {victim:?} {failure:?}");
    seen
}

/// Acknowledged writes are there, while servers are away and afterwards.
fn nothing_is_lost(layout: Layout, sync: bool, cases: &[(Victim, Failure)]) {
    // With two copies the second is the last.
    let last = cases.iter().filter(|(victim, _)| *victim == Follower && layout.copies > 2);
    let last = last.map(|(_, failure)| (Last, *failure));
    for (victim, failure) in cases.iter().copied().chain(last) {
        let all = at_all_moments(layout, sync, victim, failure);
        for moment in all.iter().filter(|moment| moment.was_acknowledged()) {
            let (meanwhile, after) = moment.found();
            assert!(meanwhile.is_none_or(|found| *found == Found::New), "{}", moment.what);
            assert_eq!(after, &Found::New, "{}", moment.what);
        }
    }
}

/// Failures that may lose nothing of written bytes.
const BORNE: [(Victim, Failure); 8] = [
    (Client, Kill),
    (Primary, Kill),
    (Primary, PowerCut),
    (Primary, Loss),
    (Follower, Kill),
    (Follower, PowerCut),
    (Follower, Loss),
    (All, Kill),
];
/// The same for synced bytes.
const BORNE_SYNCED: [(Victim, Failure); 9] = [
    (Client, Kill),
    (Primary, Kill),
    (Primary, PowerCut),
    (Primary, Loss),
    (Follower, Kill),
    (Follower, PowerCut),
    (Follower, Loss),
    (All, Kill),
    (All, PowerCut),
];
/// Those of `BORNE` that lose nothing, whichever copy has the bytes when a write is acknowledged.
const NOT_OF_THE_PRIMARY: [(Victim, Failure); 5] =
    [(Client, Kill), (Follower, Kill), (Follower, PowerCut), (Follower, Loss), (All, Kill)];

/// The promises of the `sync` column.
fn is_sync(layout: Layout) {
    nothing_is_lost(layout, false, &BORNE);
    nothing_is_lost(layout, true, &BORNE_SYNCED);
    at_all_moments(layout, false, All, PowerCut);
}

/// The promises of the `async` column.
fn is_async(layout: Layout) {
    nothing_is_lost(layout, false, &NOT_OF_THE_PRIMARY);
    nothing_is_lost(layout, true, &BORNE_SYNCED);
    at_all_moments(layout, false, All, PowerCut);
    for failure in [Kill, PowerCut, Loss] {
        let all = at_all_moments(layout, false, Primary, failure);
        let mut windows = 0;
        for moment in all.iter().filter(|moment| moment.was_acknowledged()) {
            let (meanwhile, after) = moment.found();
            let meanwhile = meanwhile.expect("somebody is there");
            assert_ne!(meanwhile, &Found::Old, "old data, without a word: {}", moment.what);
            let away = *meanwhile != Found::New;
            windows += usize::from(away);
            assert!(!(away && moment.late), "the window is longer: {}", moment.what);
            match failure {
                // The target still has what no other copy has.
                Kill => assert_eq!(after, &Found::New, "{}", moment.what),
                // The bytes were not durable there.
                PowerCut => assert!(away || *after == Found::New, "{}", moment.what),
                // The outcome does not change.
                Loss => assert_eq!(after, meanwhile, "{}", moment.what),
            }
        }
        assert!(windows > 0, "{layout:?} {failure:?}: the window was never met");
    }
}

#[test]
fn server_sync_loses_nothing() {
    is_sync(pair(ServerSync));
}

#[test]
fn client_sync_loses_nothing() {
    is_sync(pair(ClientSync));
}

#[test]
fn server_async_loses_what_the_primary_alone_has() {
    is_async(pair(ServerAsync));
}

#[test]
fn client_async_loses_what_the_primary_alone_has() {
    is_async(pair(ClientAsync));
}

#[test]
fn with_three_copies_nothing_is_lost_that_all_had() {
    for protocol in [ServerSync, ClientSync] {
        is_sync(Layout { protocol, copies: 3, columns: 1 });
    }
}

/// One of two others may have got it, or only one may have been told that it lacks it.
#[test]
fn with_three_copies_no_more_is_lost() {
    for protocol in [ServerAsync, ClientAsync] {
        is_async(Layout { protocol, copies: 3, columns: 1 });
    }
}

/// One server in a group, and one writer.
#[test]
fn hybrid_is_as_client_async_where_a_group_has_no_more_servers_than_writers() {
    is_async(pair(Hybrid));
}

#[test]
fn hybrid_is_as_server_sync_where_a_group_has_more_servers_than_writers() {
    is_sync(Layout { protocol: Hybrid, copies: 2, columns: 2 });
}

/// A write is retried when both servers are back, and put off while one is not up to date. Without
/// care, what that one lacks would be noted as if it knew of it. It would then be online, and
/// order, before it had received the bytes, and no copy would bring them.
#[test]
fn both_copies_get_what_they_lack_when_both_servers_are_killed() {
    for protocol in [ServerAsync, ClientAsync] {
        let layout = pair(protocol);
        let usual = usual(layout, false);
        let moments = few_or_all(30, 60) as u32;
        for n in 0..moments {
            let (victim, after) = (Some(All), usual * n / moments);
            let point = Point { layout, sync: false, victim, failure: Kill, after };
            let seen = try_point(point).unwrap_or_else(|what| panic!("{point:?}: {what}"));
            assert_eq!(seen.differences, [] as [&str; 0], "{point:?}: {seen:?}");
        }
    }
}
