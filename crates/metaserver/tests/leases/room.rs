//! A client that holds as many leases as it may.

use super::world::*;
use weir_types::FileId;
use weir_wire::Rights;
use weir_wire::lease::*;
use weir_wire::meta::OpenRequest;

fn read(file: FileId) -> AcquireRequest {
    acquire(whole(file, LeaseMode::Read))
}

fn recall(file: FileId) -> EventKind {
    EventKind::Recall(whole(file, LeaseMode::Write))
}

/// Files that a client has open without a lease, and may hold so many leases.
fn files(w: &mut World, a: &mut Mount, count: usize, most: usize) -> Vec<FileId> {
    w.c.machine.limit_leases(most);
    let mut relaxed = w.relaxed();
    let mut made = |n| {
        let file = w.create(&mut relaxed, &format!("{n}"));
        let opened = w.open(a, file, Rights::READ);
        let held = opened.keep & (LEASE_READ | LEASE_WRITE) != 0;
        assert_eq!(held, n < most, "an open takes a lease only where there is room");
        file
    };
    (0..count).map(&mut made).collect()
}

#[test]
fn a_file_past_the_bound_is_used_and_the_one_used_longest_ago_given_up() {
    let mut w = World::new();
    let mut a = w.mount();
    let f = files(&mut w, &mut a, 8, 4);
    // It is asked for again: so not the oldest any more.
    w.now(&mut a, &read(f[0]));
    w.now(&mut a, &read(f[4]));
    assert_eq!(w.asked(&mut a), [recall(f[1])], "and nobody has waited for that");
    let more = [5, 6].map(|n| w.waits(&mut a, &read(f[n])));
    a.have = 0;
    assert_eq!(w.obey(&mut a), [recall(f[1])], "only if it is slow");
    assert!(w.later::<AcquireRequest>(more[0]).unwrap().said.is_ok());
    assert!(w.later::<AcquireRequest>(more[1]).is_none());
    assert_eq!(w.obey(&mut a), [recall(f[2])]);
    assert!(w.later::<AcquireRequest>(more[1]).unwrap().said.is_ok());
    // Round and round.
    for round in 0..3 {
        for file in &f {
            let pending = match w.send(&mut a, &read(*file)) {
                Ok(granted) => {
                    granted.said.unwrap();
                    continue;
                }
                Err(pending) => pending,
            };
            for _ in 0..2 {
                w.obey(&mut a);
            }
            assert!(w.later::<AcquireRequest>(pending).unwrap().said.is_ok(), "{round}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_given_up_is_not_waited_for_alone() {
    let mut w = World::new();
    let mut a = w.mount();
    let f = files(&mut w, &mut a, 8, 4);
    w.now(&mut a, &read(f[4]));
    let pending = w.waits(&mut a, &read(f[5]));
    assert_eq!(w.asked(&mut a), [recall(f[0])]);
    let stuck = a.have;
    w.pass(2_000, &mut [&mut a]);
    assert_eq!(w.obey(&mut a), [recall(f[1])], "another one");
    assert!(w.later::<AcquireRequest>(pending).unwrap().said.is_ok());
    // What the client itself cannot give up is not taken away from it.
    w.pass(60_000, &mut [&mut a]);
    a.have = stuck - 1;
    let news = w.poll(&mut a);
    assert!(!news.lapsed);
    assert_eq!(news.events[0].what, recall(f[0]));
    let mut b = w.mount();
    let taken = w.send(&mut b, &OpenRequest { file: f[2], rights: Rights::READ });
    assert!(taken.is_ok());
}

#[test]
fn a_client_that_holds_only_pieces_of_one_file_gives_that_up() {
    let mut w = World::new();
    let (mut a, mut b, mut relaxed) = (w.mount(), w.mount(), w.relaxed());
    w.c.machine.limit_leases(6);
    let file = w.create(&mut relaxed, "f");
    for mount in [&mut a, &mut b] {
        w.open(mount, file, Rights::READ_WRITE);
    }
    let piece = |n: u64| acquire(range(file, n << 30, (n << 30) + 1, LeaseMode::Write));
    let mut given_up = 0;
    for n in 0..10 {
        let Err(pending) = w.send(&mut a, &piece(n)) else { continue };
        w.obey(&mut b);
        given_up += usize::from(w.obey(&mut a).contains(&recall(file)));
        assert!(w.later::<AcquireRequest>(pending).unwrap().said.is_ok(), "{n}");
    }
    assert!(given_up > 1, "{given_up}");
}
