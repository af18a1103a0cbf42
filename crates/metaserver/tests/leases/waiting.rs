//! Requests that wait: order, bounds, retries, and connections that go.

use super::world::*;
use crate::harness::*;
use weir_types::{ErrorKind, SlotId, SlotSequence};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

/// The most requests of one session that wait.
const MOST: usize = 1024;

#[test]
fn a_retry_of_what_waits_is_not_done_twice() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    w.send(&mut b, &lookup("d")).unwrap().said.unwrap_err();
    let id = Some(MutationId { slot: SlotId(7), sequence: SlotSequence(1) });
    let mkdir = MkdirRequest { parent: ROOT, name: b"d"[..].into(), mode: 0o755, umask: 0 };
    let first = w.send_as(&a, id, &mkdir).unwrap_err();
    let second = w.send_as(&a, id, &mkdir).unwrap_err();
    assert_eq!(w.obey(&mut b), [name_of(ROOT, "d")], "and asked for once");
    let first = w.later::<MkdirRequest>(first).unwrap().said.unwrap();
    let second = w.later::<MkdirRequest>(second).unwrap().said.unwrap();
    assert_eq!(first, second);
    assert_eq!(w.now(&mut a, &GetAttrRequest { file: ROOT }).nlink, 3);
    let third = w.send_as(&a, id, &mkdir).unwrap().said.unwrap();
    assert_eq!(third, first);
}

#[test]
fn what_nobody_waits_for_any_more_does_not_happen() {
    let mut w = World::new();
    let (mut a, mut b, mut c) = (w.mount(), w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.send(&mut b, &lookup("d")).unwrap().said.unwrap_err();
    let mkdir = MkdirRequest { parent: ROOT, name: b"d"[..].into(), mode: 0o755, umask: 0 };
    let pending = w.waits(&mut a, &mkdir);
    w.c.machine.dropped(pending.0);
    w.obey(&mut b);
    assert!(w.later::<MkdirRequest>(pending).is_none());
    assert_eq!(w.send(&mut b, &lookup("d")).unwrap().said.unwrap_err().kind, ErrorKind::NotFound);
    // And who waited behind it goes on.
    for mount in [&mut b, &mut c] {
        let pending = w.waits(mount, &OpenRequest { file, rights: Rights::READ_WRITE });
        w.obey(&mut a);
        assert!(w.later::<OpenRequest>(pending).is_some());
    }
    let first = w.waits(&mut b, &acquire(range(file, 0, 9, LeaseMode::Write)));
    let second = w.waits(&mut c, &acquire(range(file, 0, 9, LeaseMode::Write)));
    w.obey(&mut a);
    assert!(w.later::<AcquireRequest>(first).is_some());
    assert!(w.later::<AcquireRequest>(second).is_none());
    assert_eq!(w.obey(&mut b).len(), 1, "its turn has come");
    assert!(w.later::<AcquireRequest>(second).is_some());
    let third = w.waits(&mut a, &acquire(range(file, 0, 9, LeaseMode::Write)));
    let fourth = w.waits(&mut b, &acquire(range(file, 0, 9, LeaseMode::Read)));
    w.c.machine.dropped(third.0);
    w.obey(&mut c);
    while w.later::<AcquireRequest>(fourth).is_none() {
        assert!(!w.obey(&mut c).is_empty());
    }
}

#[test]
fn requests_for_the_same_range_are_granted_in_their_order() {
    let mut w = World::new();
    let mut mounts: Vec<Mount> = (0..5).map(|_| w.mount()).collect();
    let file = w.create(&mut mounts[0], "f");
    for n in 1..5 {
        let open = OpenRequest { file, rights: Rights::READ_WRITE };
        let pending = w.waits(&mut mounts[n], &open);
        w.obey(&mut mounts[0]);
        assert!(w.later::<OpenRequest>(pending).is_some());
    }
    let mut waiting = Vec::new();
    for mount in &mut mounts[1..] {
        waiting.push(w.waits(mount, &acquire(range(file, 0, 4096, LeaseMode::Write))));
    }
    for n in 0..4 {
        assert!(!w.obey(&mut mounts[n]).is_empty());
        assert!(w.later::<AcquireRequest>(waiting[n]).unwrap().said.is_ok());
        for later in &waiting[n + 1..] {
            assert!(w.later::<AcquireRequest>(*later).is_none());
        }
    }
}

#[test]
fn too_many_that_wait_are_refused_and_may_be_tried_again() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let waiting: Vec<_> = (0..MOST).map(|_| w.waits(&mut b, &GetAttrRequest { file })).collect();
    let error = w.send(&mut b, &GetAttrRequest { file }).unwrap().said.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Overloaded);
    let mut c = w.mount();
    w.waits(&mut c, &GetAttrRequest { file });
    while !w.obey(&mut a).is_empty() {}
    for pending in waiting {
        assert!(w.later::<GetAttrRequest>(pending).is_some());
    }
    assert_eq!(w.counter("parked_now"), 0);
    assert!(w.counter("parked") > MOST as u64);
}

#[test]
fn a_poll_waits_for_news_and_ends_in_time() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    w.send(&mut b, &lookup("x")).unwrap().said.unwrap_err();
    let poll = PollEventsRequest { have: b.have };
    let first = w.waits(&mut b, &poll);
    let second = w.waits(&mut b, &poll);
    let ended = w.later::<PollEventsRequest>(first).unwrap().said.unwrap();
    assert_eq!((ended.events.len(), ended.lease_ms, ended.lapsed), (0, 10_000, false));
    w.waits(&mut a, &create_request(ROOT, "x"));
    let news = w.later::<PollEventsRequest>(second).unwrap().said.unwrap();
    assert_eq!(news.events.len(), 1);
    let have = news.events[0].number;
    let third = w.waits(&mut b, &PollEventsRequest { have });
    w.pass(2_000, &mut [&mut a]);
    assert!(w.later::<PollEventsRequest>(third).is_none());
    w.pass(1_000, &mut [&mut a]);
    assert!(w.later::<PollEventsRequest>(third).unwrap().said.unwrap().events.is_empty());
}

#[test]
fn what_was_done_about_leases_is_counted() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let open = OpenRequest { file, rights: Rights::READ };
    let pending = w.waits(&mut b, &open);
    w.pass(2_000, &mut [&mut a, &mut b]);
    w.obey(&mut a);
    assert!(w.later::<OpenRequest>(pending).is_some());
    w.waits(&mut b, &acquire(range(file, 0, 1, LeaseMode::Read)));
    w.obey(&mut a);
    let counted = |name: &str| w.counter(name);
    assert_eq!(counted("leases.granted"), 2, "with the open, and what was asked for");
    assert_eq!((counted("leases.recalled"), counted("leases.lapsed")), (1, 0));
    assert_eq!((counted("events.sent"), counted("events.acknowledged")), (2, 2));
    assert_eq!((counted("parked"), counted("parked_now")), (2, 0));
    assert_eq!(counted("parked_ms_max"), 2_000);
    assert!(counted("beliefs") > 0);
}
