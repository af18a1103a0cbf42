//! The server starts anew, and clients say what they hold.

use super::world::*;
use crate::harness::*;
use weir_types::{FileId, Generation};
use weir_wire::lease::*;
use weir_wire::meta::*;

fn held(file: FileId, mode: LeaseMode) -> HeldLease {
    HeldLease { lease: whole(file, mode), generation: Generation(1) }
}

fn says(files: &[FileId], leases: Vec<HeldLease>, last: bool) -> ReassertRequest {
    ReassertRequest { first: false, files: files.to_vec(), held: Vec::new(), leases, last }
}

#[test]
fn nothing_changes_before_everybody_has_said_what_it_holds() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let other = w.create_past(&mut b, "g", &mut a);
    let mut w = w.killed();
    assert_eq!(w.now(&mut b, &says(&[other], vec![], true)), []);
    w.poll(&mut b);
    let waiting = [
        w.waits(&mut b, &create_request(ROOT, "h")),
        w.waits(&mut b, &unlink("f")),
        w.waits(&mut b, &GetAttrRequest { file }),
        w.waits(&mut b, &lookup("f")),
        w.waits(&mut b, &acquire(whole(other, LeaseMode::Read))),
        w.waits(&mut b, &chmod(other, 0o600)),
    ];
    assert_eq!(w.now(&mut a, &says(&[file], vec![held(file, LeaseMode::Write)], false)), []);
    // What it holds it goes on using.
    let lease = range(file, 0, 9, LeaseMode::Write);
    assert!(w.send(&mut a, &acquire(lease)).unwrap().said.is_ok());
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
    assert_eq!(w.now(&mut a, &GetAttrRequest { file }).size, 10);
    for pending in waiting {
        assert!(w.answered(pending).is_none());
    }
    w.now(&mut a, &says(&[], vec![], true));
    let report = EventKind::Report { file };
    assert!(w.obey(&mut a).contains(&report));
    for pending in &waiting[..4] {
        assert!(w.answered(*pending).is_some());
    }
}

#[test]
fn who_does_not_come_back_is_waited_for_ten_seconds() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let file = w.create(&mut a, "f");
    let mut w = w.killed();
    w.now(&mut b, &says(&[], vec![], true));
    let pending = w.waits(&mut b, &create_request(ROOT, "h"));
    w.pass(9_500, &mut [&mut b]);
    assert!(w.later::<CreateRequest>(pending).is_none());
    w.pass(1_000, &mut [&mut b]);
    assert!(w.later::<CreateRequest>(pending).unwrap().said.is_ok());
    // Others may have been there since: the lease is lost.
    let late = says(&[file], vec![held(file, LeaseMode::Write)], true);
    assert_eq!(w.now(&mut a, &late), [whole(file, LeaseMode::Write)]);
}

#[test]
fn leases_that_do_not_fit_any_more_are_answered_as_lost() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    let (file, gone) = (w.create(&mut a, "f"), FileId(4711));
    let mut w = w.killed();
    let read = held(file, LeaseMode::Read);
    assert_eq!(w.now(&mut a, &says(&[file], vec![read.clone()], false)), []);
    assert_eq!(w.now(&mut a, &says(&[], vec![read], false)), [], "said twice");
    let old = HeldLease { generation: Generation(0), ..held(file, LeaseMode::Read) };
    let leases = vec![held(file, LeaseMode::Write), old, held(gone, LeaseMode::Read)];
    let lost = w.now(&mut b, &says(&[file], leases, false));
    let (read, write) = (LeaseMode::Read, LeaseMode::Write);
    assert_eq!(lost, [whole(file, write), whole(file, read), whole(gone, read)]);
}

#[test]
fn a_session_that_ends_is_not_waited_for_and_numbers_of_events_go_on() {
    let mut w = World::new();
    let (mut a, mut b) = (w.mount(), w.mount());
    w.send(&mut b, &lookup("x")).unwrap().said.unwrap_err();
    let pending = w.waits(&mut a, &create_request(ROOT, "x"));
    w.obey(&mut b);
    assert!(w.later::<CreateRequest>(pending).is_some());
    w.pass(1_000, &mut [&mut a, &mut b]);
    let mut w = w.killed();
    w.now(&mut b, &says(&[], vec![], true));
    let pending = w.waits(&mut b, &create_request(ROOT, "h"));
    w.now(&mut a, &EndSessionRequest {});
    assert!(w.later::<CreateRequest>(pending).unwrap().said.is_ok());
    // B asks with the number of an event from before.
    w.poll(&mut b);
    assert_ne!(w.send(&mut b, &lookup("y")).unwrap().keep, 0);
    let mut c = w.mount();
    w.waits(&mut c, &create_request(ROOT, "y"));
    assert_eq!(w.asked(&mut b), [name_of(ROOT, "y")]);
}
