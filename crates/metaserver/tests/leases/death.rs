//! Clients that do not answer any more.

use super::world::*;
use crate::harness::*;
use weir_metaserver::machine::Moment;
use weir_types::{ErrorKind, Generation};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

#[test]
fn a_writer_that_died_is_fenced_off_before_anybody_else_reads() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let written = CommitSizeRequest {
        file,
        size: 10,
        generation: Generation(1),
        mtime: None,
        written: vec![],
        ranges: vec![],
        sparse: false,
        durable: false,
    };
    w.now(&mut a, &written);
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    w.pass(9_500, &mut [&mut b]);
    assert!(w.later::<OpenRequest>(pending).is_none(), "it may still use what it keeps");
    w.pass(1_500, &mut [&mut b]);
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    let mark = PendingTruncate { generation: Generation(2), size: TO_THE_END };
    assert_eq!(opened.pending_truncate, Some(mark.clone()));
    assert_eq!(opened.attr.generation, Generation(2));
    // What it says now comes too late, and it is told why.
    let late = w.waits(&mut a, &CommitSizeRequest { size: 99, ..written });
    assert_eq!(w.obey(&mut b), [attributes_of(file)]);
    assert_eq!(w.answered(late).unwrap().unwrap_err().kind, ErrorKind::Stale);
    let news = w.poll(&mut a);
    assert!(news.lapsed);
    a.have = 0;
    assert!(w.poll(&mut a).lapsed, "until it has received that");
    assert_eq!(w.heard(&mut a, &GetAttrRequest { file }).keep, SIZE_UNKNOWN, "and has obeyed");
    let number = a.have;
    w.ack(&mut a, number, false);
    assert!(!w.poll(&mut a).lapsed);
    // Until somebody has carried the fence out, everyone is told of it.
    assert_eq!(w.heard(&mut a, &lookup("f")).keep, KEEP_NAMES | SIZE_UNKNOWN);
    assert_eq!(w.heard(&mut a, &GetAttrRequest { file }).keep, SIZE_UNKNOWN);
    let list = ReaddirRequest {
        last: 0,
        dir: ROOT,
        cookie: 0,
        max_entries: 9,
        attributes: true,
        layouts: false,
    };
    assert_eq!(w.now(&mut a, &list).entries[0].attr, None);
    let lease = acquire(range(file, 0, 1, LeaseMode::Read));
    assert_eq!(w.now(&mut b, &lease).pending_truncate, Some(mark));
    let done = |generation| RecoveredRequest { file, generation: Generation(generation), size: 30 };
    assert_eq!(w.now(&mut b, &TruncateDoneRequest { file, generation: Generation(2) }), ());
    let pending = w.waits(&mut b, &done(1));
    w.obey(&mut a);
    assert_eq!(w.later::<RecoveredRequest>(pending).unwrap().said.unwrap().size, 10, "another");
    assert_eq!(w.now(&mut b, &done(2)).size, 30, "what the objects make");
    assert_eq!(w.now(&mut b, &RecoveredRequest { size: 50, ..done(2) }).size, 30, "once");
    assert_eq!(w.now(&mut b, &lease).pending_truncate, None);
    let known = KEEP_NAMES | KEEP_ATTRIBUTES;
    assert_eq!(w.heard(&mut a, &lookup("f")).keep & (known | SIZE_UNKNOWN), known);
}

/// It loses its leases because it does not obey one event: that is no answer to the
/// others.
#[test]
fn who_loses_its_leases_has_not_obeyed_what_it_was_asked_besides() {
    let mut w = World::new();
    let (mut a, mut b, mut c) = (w.mount(), w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    assert!(w.heard(&mut a, &lookup("n")).said.is_err());
    w.waits(&mut c, &OpenRequest { file, rights: Rights::READ_WRITE });
    w.obey(&mut a);
    let wanted = w.waits(&mut c, &acquire(whole(file, LeaseMode::Write)));
    w.pass(30_000, &mut [&mut a, &mut b, &mut c]);
    let made = w.waits(&mut b, &create_request(ROOT, "n"));
    w.pass(11_000, &mut [&mut a, &mut b, &mut c]);
    assert!(w.later::<AcquireRequest>(wanted).is_some(), "after 40 s");
    assert!(
        w.later::<CreateRequest>(made).is_none(),
        "it still believes that there is no such name"
    );
    assert!(w.poll(&mut a).lapsed);
    let number = a.have;
    w.ack(&mut a, number, false);
    assert!(w.later::<CreateRequest>(made).unwrap().said.is_ok());
}

#[test]
fn a_reader_that_died_costs_no_fence() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.close(&mut a, file);
    w.open(&mut a, file, Rights::READ);
    w.open(&mut b, file, Rights::READ_WRITE);
    let pending = w.waits(&mut b, &acquire(range(file, 0, 1, LeaseMode::Write)));
    w.pass(11_000, &mut [&mut b]);
    let granted = w.later::<AcquireRequest>(pending).unwrap().said.unwrap();
    assert_eq!((granted.pending_truncate, granted.attr.generation), (None, Generation(1)));
    assert!(w.poll(&mut a).lapsed);
}

#[test]
fn who_is_silent_loses_nothing_that_nobody_needs() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.pass(20_000, &mut [&mut b]);
    assert!(!w.poll(&mut a).lapsed);
    let lease = whole(file, LeaseMode::Write);
    assert_eq!(w.now(&mut a, &acquire(lease.clone())).lease, lease);
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).generation, Generation(1));
}

#[test]
fn the_living_write_back_before_a_fence_that_would_stop_them_too() {
    let mut w = World::new();
    let (mut dead, mut writer, mut c) = (w.mount(), w.mount(), w.mount());
    let file = w.create(&mut dead, "f");
    let opened = w.waits(&mut writer, &OpenRequest { file, rights: Rights::READ_WRITE });
    w.obey(&mut dead);
    assert!(w.later::<OpenRequest>(opened).is_some());
    let pending = w.waits(&mut writer, &acquire(range(file, 1 << 30, 1 << 31, LeaseMode::Write)));
    w.obey(&mut dead);
    assert!(w.later::<AcquireRequest>(pending).is_some());
    // C needs the size; of the two writers one is dead.
    let pending = w.waits(&mut c, &GetAttrRequest { file });
    assert_eq!(w.obey(&mut writer), [EventKind::Report { file }]);
    w.pass(11_000, &mut [&mut writer, &mut c]);
    assert!(w.later::<GetAttrRequest>(pending).is_none());
    let all = EventKind::Recall(whole(file, LeaseMode::Write));
    assert_eq!(w.asked(&mut writer), [all]);
    w.now(
        &mut writer,
        &CommitSizeRequest {
            file,
            size: 1 << 31,
            generation: Generation(1),
            mtime: None,
            written: vec![],
            ranges: vec![],
            sparse: false,
            durable: false,
        },
    );
    let number = writer.have;
    w.ack(&mut writer, number, false);
    let attr = w.later::<GetAttrRequest>(pending).unwrap().said.unwrap();
    assert_eq!((attr.size, attr.generation), (1 << 31, Generation(2)));
}

#[test]
fn a_client_that_lives_and_does_not_obey_is_waited_for_forty_seconds() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    w.pass(39_500, &mut [&mut a, &mut b]);
    assert!(w.later::<OpenRequest>(pending).is_none());
    w.pass(2_000, &mut [&mut a, &mut b]);
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    assert_eq!(opened.attr.generation, Generation(2), "as from a dead one");
    assert!(w.poll(&mut a).lapsed);
    // A name that it does not forget: the same.
    let number = a.have;
    w.ack(&mut a, number, false);
    assert_ne!(w.heard(&mut a, &lookup("x")).keep, 0);
    let pending = w.waits(&mut b, &create_request(ROOT, "x"));
    w.pass(42_000, &mut [&mut a, &mut b]);
    assert!(w.later::<CreateRequest>(pending).unwrap().said.is_ok());
    assert!(w.poll(&mut a).lapsed);
}

#[test]
fn files_of_an_expired_session_are_fenced_and_of_one_that_ends_in_order_are_not() {
    let mut w = World::new();
    let (mut a, mut b, mut c) = (w.mount(), w.mount(), w.mount());
    let lost = w.create(&mut a, "lost");
    let kept = w.create_past(&mut b, "kept", &mut a);
    let waiting = w.waits(&mut b, &OpenRequest { file: lost, rights: Rights::READ });
    w.now(&mut b, &EndSessionRequest {});
    let gone = w.later::<OpenRequest>(waiting).unwrap();
    assert_eq!(kind(gone.said), ErrorKind::SessionExpired);
    let error = w.send(&mut b, &GetAttrRequest { file: kept }).unwrap();
    assert_eq!(kind(error.said), ErrorKind::SessionExpired);
    w.pass(33_000, &mut [&mut c]);
    assert_eq!(w.now(&mut c, &GetAttrRequest { file: lost }).generation, Generation(2));
    assert_eq!(w.now(&mut c, &GetAttrRequest { file: kept }).generation, Generation(1));
    let opened = w.now(&mut c, &OpenRequest { file: lost, rights: Rights::READ });
    assert_eq!(opened.pending_truncate.unwrap().size, TO_THE_END);
    // Who comes back is somebody new.
    let have = a.have;
    let error = w.send(&mut a, &PollEventsRequest { have }).unwrap();
    assert_eq!(kind(error.said), ErrorKind::SessionExpired);
}

#[test]
fn a_truncation_and_a_fence_do_not_undo_each_other() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let written = CommitSizeRequest {
        file,
        size: 100,
        generation: Generation(1),
        mtime: None,
        written: vec![],
        ranges: vec![],
        sparse: false,
        durable: false,
    };
    w.now(&mut a, &written);
    // Cut by its writer, which dies before the objects have seen it.
    let cut = w.now(&mut a, &set_size(file, 50)).pending_truncate.unwrap();
    assert_eq!((cut.generation, cut.size), (Generation(2), 50));
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ_WRITE });
    w.pass(11_000, &mut [&mut b]);
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    let mark = PendingTruncate { generation: Generation(3), size: 50 };
    assert_eq!(opened.pending_truncate, Some(mark));
    w.now(&mut b, &TruncateDoneRequest { file, generation: Generation(3) });
    // And the other way round: how long the file is is not known, so a size
    // that looks larger cuts too.
    let mut c = w.mount();
    w.now(&mut b, &acquire(whole(file, LeaseMode::Write)));
    let pending = w.waits(&mut c, &set_size(file, 1000));
    w.pass(11_000, &mut [&mut c]);
    let set = w.later::<SetAttrRequest>(pending).unwrap().said.unwrap();
    assert_eq!(set.attr.size, 1000);
    let mark = PendingTruncate { generation: Generation(5), size: 1000 };
    assert_eq!(set.pending_truncate, Some(mark));
}

#[test]
fn a_server_that_was_stopped_takes_nobody_for_dead() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let pending = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    let Moment { monotonic_ms, unix } = w.c.now;
    w.c.now = Moment { monotonic_ms: monotonic_ms + 60_000, unix };
    w.c.machine.on_tick(w.c.now).unwrap();
    assert!(w.later::<OpenRequest>(pending).is_none());
    w.obey(&mut a);
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    assert_eq!(opened.attr.generation, Generation(1));
}

#[test]
fn what_may_come_late_of_a_write_that_failed_is_fenced_off_before_others_are_let_in() {
    for closes in [false, true] {
        let mut w = World::new();
        let (mut a, mut b) = (w.mount(), w.mount());
        let (file, other) = (w.create(&mut a, "f"), w.create(&mut a, "g"));
        let lease = range(file, 0, 1, LeaseMode::Read);
        let granted = if closes {
            w.now(
                &mut a,
                &CloseRequest { files: vec![file], unconfirmed: vec![file], written: vec![] },
            );
            w.open(&mut b, file, Rights::READ);
            w.now(&mut b, &acquire(lease))
        } else {
            let opened = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
            w.obey(&mut a);
            assert!(w.later::<OpenRequest>(opened).is_some());
            let pending = w.waits(&mut b, &acquire(lease));
            let recall = w.poll(&mut a).events.pop().unwrap();
            assert!(matches!(recall.what, EventKind::Recall(_)));
            let ack = EventAck {
                number: recall.number,
                forgotten: false,
                unconfirmed: true,
                holds: false,
            };
            w.now(&mut a, &AckEventsRequest { acks: vec![ack] });
            w.later::<AcquireRequest>(pending).unwrap().said.unwrap()
        };
        let mark = PendingTruncate { generation: Generation(2), size: TO_THE_END };
        assert_eq!(granted.pending_truncate, Some(mark), "closes: {closes}");
        // The client lives, and has the rest.
        assert!(!w.poll(&mut a).lapsed);
        let rest = whole(other, LeaseMode::Write);
        assert_eq!(w.now(&mut a, &acquire(rest.clone())).lease, rest);
        // Itself it comes after the fence, too.
        if closes {
            w.open(&mut a, file, Rights::READ_WRITE);
        }
        let again = w.waits(&mut a, &acquire(range(file, 0, 1, LeaseMode::Write)));
        w.obey(&mut b);
        let granted = w.later::<AcquireRequest>(again).unwrap().said.unwrap();
        assert_eq!(granted.attr.generation, Generation(2));
    }
}

#[test]
fn a_file_with_writes_that_may_come_late_is_fenced_if_nobody_asks_for_it() {
    let mut w = World::new();
    let mut a = w.mount();
    let file = w.create(&mut a, "f");
    w.now(&mut a, &CloseRequest { files: vec![file], unconfirmed: vec![file], written: vec![] });
    w.pass(2_000, &mut [&mut a]);
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).generation, Generation(2));
    // A file that is still open is not closed with that.
    let file = w.create(&mut a, "g");
    w.open(&mut a, file, Rights::READ_WRITE);
    w.now(&mut a, &CloseRequest { files: vec![file], unconfirmed: vec![file], written: vec![] });
    w.pass(2_000, &mut [&mut a]);
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).generation, Generation(1));
}

#[test]
fn a_size_that_comes_from_a_client_without_a_lease_is_seen_by_all() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut b, "f");
    w.close(&mut b, file);
    w.open(&mut b, file, Rights::READ);
    w.open(&mut a, file, Rights::READ_WRITE);
    // As when it had one before the server started anew, and was away meanwhile.
    let (generation, mtime, written) = (Generation(1), None, vec![]);
    let (ranges, sparse, durable) = (Vec::new(), false, false);
    let commit =
        CommitSizeRequest { file, size: 10, generation, mtime, written, ranges, sparse, durable };
    let pending = w.waits(&mut a, &commit);
    let recall = EventKind::Recall(whole(file, LeaseMode::Write));
    assert!(w.obey(&mut b).contains(&recall));
    assert_eq!(w.later::<CommitSizeRequest>(pending).unwrap().said.unwrap().size, 10);
}
