//! Leases on ranges: who gets what, and who gives way.

use super::world::*;
use crate::harness::*;
use weir_types::{ErrorKind, FileId, Generation};
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::*;

const MIB: u64 = 1 << 20;

/// A file that several have open, none with a lease.
fn shared(w: &mut World, mounts: &mut [&mut Mount]) -> FileId {
    let file = w.create(mounts[0], "f");
    w.close(mounts[0], file);
    let mut relaxed = w.relaxed();
    w.now(&mut relaxed, &OpenRequest { file, rights: Rights::READ_WRITE });
    for mount in mounts.iter_mut() {
        w.now(mount, &OpenRequest { file, rights: Rights::READ_WRITE });
    }
    file
}

fn recall(file: FileId, start: u64, end: u64, mode: LeaseMode) -> EventKind {
    EventKind::Recall(range(file, start, end, mode))
}

#[test]
fn a_reader_takes_from_a_writer_the_right_to_write_and_no_more() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    assert_eq!(w.obey(&mut a), [EventKind::Report { file }]);
    let pending = w.waits(&mut b, &acquire(range(file, 5000, 5001, LeaseMode::Read)));
    let asked = w.asked(&mut a);
    let until = 8192 + MIB;
    assert_eq!(asked, [recall(file, 4096, until, LeaseMode::Read)]);
    assert!(w.later::<AcquireRequest>(pending).is_none());
    let number = a.have;
    w.ack(&mut a, number, false);
    let granted = w.later::<AcquireRequest>(pending).unwrap().said.unwrap();
    assert_eq!(granted.lease, range(file, 4096, until, LeaseMode::Read));
    // A still reads there without asking, and writes elsewhere.
    for lease in [range(file, 0, until, LeaseMode::Read), range(file, 0, 4096, LeaseMode::Write)] {
        let granted = w.now(&mut a, &acquire(lease.clone())).lease;
        assert!(granted.start <= lease.start && granted.end >= lease.end, "{granted:?}");
    }
    // To write there again it has to ask, and B drops what it has cached.
    let pending = w.waits(&mut a, &acquire(range(file, 4096, 8192, LeaseMode::Write)));
    assert_eq!(w.obey(&mut b), [recall(file, 4096, until, LeaseMode::Write)]);
    assert!(w.later::<AcquireRequest>(pending).unwrap().said.is_ok());
}

#[test]
fn writers_of_disjoint_ranges_do_not_wait_for_each_other() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = shared(&mut w, &mut [&mut a, &mut b]);
    let gets = |w: &mut World, who: &mut Mount, other: &mut Mount, from: u64, to: u64| match w
        .send(who, &acquire(range(file, from, to, LeaseMode::Write)))
    {
        Ok(answer) => answer.said.unwrap().lease,
        Err(pending) => {
            assert!(!w.obey(other).is_empty());
            w.later::<AcquireRequest>(pending).unwrap().said.unwrap().lease
        }
    };
    // Both may read all of it. A writer gets what it needs, and some more.
    let all = gets(&mut w, &mut a, &mut b, 0, MIB);
    assert_eq!(all, range(file, 0, 2 * MIB, LeaseMode::Write));
    let second = gets(&mut w, &mut b, &mut a, 512 * MIB, 513 * MIB);
    assert_eq!(second, range(file, 512 * MIB, 514 * MIB, LeaseMode::Write));
    let third = gets(&mut w, &mut b, &mut a, 514 * MIB, 515 * MIB);
    assert_eq!(third, range(file, 514 * MIB, 517 * MIB, LeaseMode::Write), "twice as much");
    assert_eq!(
        gets(&mut w, &mut a, &mut b, 100 * MIB, 200 * MIB),
        range(file, 100 * MIB, 202 * MIB, LeaseMode::Write)
    );
    // Not more than up to what somebody has asked for.
    let last = gets(&mut w, &mut b, &mut a, MIB, 2 * MIB);
    assert_eq!(last, range(file, MIB, 6 * MIB, LeaseMode::Write));
    let near = gets(&mut w, &mut a, &mut b, 511 * MIB, 512 * MIB);
    assert_eq!(near.end, 512 * MIB);
    assert_eq!(w.counter("leases.lapsed"), 0);
}

#[test]
fn a_truncation_waits_until_nobody_holds_anything() {
    for truncate in [false, true] {
        let mut w = World::new();
        let (mut a, mut b) = (w.mount(), w.mount());
        let file = w.create(&mut a, "f");
        let pending = if truncate {
            let request = create_request(ROOT, "f");
            w.waits(&mut b, &CreateRequest { exclusive: false, truncate: true, ..request })
        } else {
            w.waits(&mut b, &set_size(file, 5))
        };
        // Nothing is granted meanwhile that would have to be taken back.
        let mut c = w.mount();
        w.now(
            &mut a,
            &CommitSizeRequest {
                file,
                size: 100,
                generation: Generation(1),
                mtime: None,
                written: vec![],
                ranges: vec![],
                sparse: false,
                durable: false,
            },
        );
        let queued = w.waits(&mut c, &OpenRequest { file, rights: Rights::READ });
        let asked = w.asked(&mut a);
        assert!(asked.contains(&recall(file, 0, TO_THE_END, LeaseMode::Write)), "{asked:?}");
        assert_eq!(asked.len(), 4, "{asked:?}");
        for number in a.have - 3..=a.have {
            w.ack(&mut a, number, false);
        }
        let reply = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
        assert_eq!(reply.attr.size, if truncate { 0 } else { 5 });
        let opened = w.later::<OpenRequest>(queued).unwrap().said.unwrap();
        assert_eq!(opened.attr.size, reply.attr.size);
    }
}

#[test]
fn leases_end_with_the_last_close_and_wake_who_waits() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    w.now(&mut a, &OpenRequest { file, rights: Rights::READ });
    let opened = w.waits(&mut b, &OpenRequest { file, rights: Rights::READ });
    w.obey(&mut a);
    assert!(w.later::<OpenRequest>(opened).is_some());
    let pending = w.waits(&mut b, &acquire(range(file, 0, 9, LeaseMode::Read)));
    w.close(&mut a, file);
    assert!(w.later::<AcquireRequest>(pending).is_none(), "it has it open once more");
    w.close(&mut a, file);
    assert!(w.later::<AcquireRequest>(pending).unwrap().said.is_ok());
}

#[test]
fn a_lease_needs_a_poll_an_open_and_a_byte() {
    let mut w = World::new();
    let (mut a, mut relaxed) = (w.mount(), w.relaxed());
    let file = w.create(&mut relaxed, "f");
    w.open(&mut a, file, Rights::READ);
    // Its first poll may still be on its way: it is to try again.
    let error = w.send(&mut relaxed, &acquire(whole(file, LeaseMode::Read))).unwrap();
    assert_eq!(kind(error.said), ErrorKind::Overloaded);
    let none = w.send(&mut a, &acquire(range(file, 9, 9, LeaseMode::Read))).unwrap();
    assert_eq!(kind(none.said), ErrorKind::InvalidArgument);
    w.close(&mut a, file);
    let closed = w.send(&mut a, &acquire(whole(file, LeaseMode::Read))).unwrap();
    assert_eq!(kind(closed.said), ErrorKind::InvalidArgument);
}

#[test]
fn who_keeps_nothing_sees_what_was_closed_and_what_it_writes_is_seen() {
    let mut w = World::new();
    let (mut a, mut relaxed) = (w.mount(), w.relaxed());
    let file = w.create(&mut a, "f");
    let pending = w.waits(&mut relaxed, &OpenRequest { file, rights: Rights::READ });
    assert!(w.obey(&mut a).contains(&recall(file, 0, TO_THE_END, LeaseMode::Read)));
    assert_eq!(w.later::<OpenRequest>(pending).unwrap().keep, 0);
    let pending = w.waits(&mut relaxed, &OpenRequest { file, rights: Rights::WRITE });
    assert!(w.obey(&mut a).contains(&recall(file, 0, TO_THE_END, LeaseMode::Write)));
    let opened = w.later::<OpenRequest>(pending).unwrap().said.unwrap();
    w.now(&mut a, &acquire(range(file, 0, 9, LeaseMode::Read)));
    w.now(&mut a, &GetAttrRequest { file });
    // What it has written is in nobody's cache when that is known.
    let pending = w.waits(&mut relaxed, &commit(&opened, 77));
    let asked = w.obey(&mut a);
    assert!(asked.contains(&recall(file, 0, TO_THE_END, LeaseMode::Write)));
    assert!(asked.contains(&attributes_of(file)));
    assert!(w.later::<CommitSizeRequest>(pending).unwrap().said.is_ok());
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).size, 77);
}
