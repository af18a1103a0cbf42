//! Pages of sessions, and of what they hold: each is short, all together are everything.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::{ClientId, ErrorKind, FileId, SessionId};
use weir_wire::holders::{
    Hold, HoldKind, ListHoldsRequest, ListSessionsRequest, SessionStanding, SessionView,
};
use weir_wire::lock::{LAST_BYTE, Lock, LockMode, LockOutcome, LockWait, SetLockRequest};

const EVERYTHING: ListHoldsRequest =
    ListHoldsRequest { place: None, file: None, session: None, kind: None, waiting: false };

fn sessions(c: &mut Cluster<ModelEngine>, me: &Client) -> Vec<SessionView> {
    let mut all: Vec<SessionView> = Vec::new();
    loop {
        let after = all.last().map_or(SessionId(0), |view| view.session);
        let page = c.ask(me, &ListSessionsRequest { after }).unwrap();
        assert!(page.sessions.len() <= 256);
        all.extend(page.sessions);
        if page.end {
            return all;
        }
    }
}

fn holds(c: &mut Cluster<ModelEngine>, me: &Client, asked: &ListHoldsRequest) -> Vec<Hold> {
    let (mut all, mut asked) = (Vec::new(), asked.clone());
    loop {
        let page = c.ask(me, &asked).unwrap();
        assert!(page.holds.len() <= 256);
        all.extend(page.holds);
        match page.next {
            None => return all,
            next => asked.place = next,
        }
    }
}

fn lock(file: FileId, owner: u64, start: u64, mode: LockMode) -> Lock {
    Lock { file, owner, flock: false, start, last: start, mode, pid: 7 }
}

#[test]
fn all_pages_together_are_all_that_is_held_and_waited_for() {
    let mut c = Cluster::new(1);
    let mut me = c.client(root());
    let dir = c.mkdir(&mut me, FileId::ROOT, "dir");
    let files: Vec<FileId> =
        (0..3).map(|i| c.create(&mut me, dir, &format!("f{i}")).attr.file).collect();
    // 700 locks on one file, one on another, and somebody who waits for it.
    let set = |c: &mut Cluster<ModelEngine>, who: &Client, lock: Lock, number: u64| {
        let wait = LockWait::Yes;
        c.ask(who, &SetLockRequest { lock, number, floor: 0, wait })
    };
    for i in 0..700 {
        let lock = lock(files[0], 1, 2 * i, LockMode::Shared);
        assert_eq!(set(&mut c, &me, lock, i + 1).unwrap(), LockOutcome::Granted);
    }
    let whole = Lock { last: LAST_BYTE, ..lock(files[1], 1, 0, LockMode::Exclusive) };
    set(&mut c, &me, whole.clone(), 701).unwrap();
    let other = c.client(root());
    let opened = weir_wire::meta::OpenRequest { file: files[1], rights: weir_wire::Rights::READ };
    c.ask(&other, &opened).unwrap();
    let request = SetLockRequest { lock: whole, number: 1, floor: 0, wait: LockWait::Yes };
    // It is told to ask again after a while.
    assert_eq!(c.ask(&other, &request).unwrap(), LockOutcome::Waiting);

    let all = holds(&mut c, &me, &EVERYTHING);
    let locks: Vec<&Hold> = all.iter().filter(|hold| hold.kind == HoldKind::Posix).collect();
    assert_eq!(locks.len(), 702);
    assert!(locks[..700].iter().enumerate().all(|(i, hold)| {
        (hold.file, hold.start, &hold.path[..]) == (files[0], 2 * i as u64, b"/dir/f0")
    }));
    assert_eq!((locks[700].waits_ms, locks[700].exclusive), (None, true));
    assert_eq!(locks[701].session, other.session);
    assert!(locks[701].waits_ms.unwrap() >= 2000);

    let waiting = holds(&mut c, &me, &ListHoldsRequest { waiting: true, ..EVERYTHING });
    assert_eq!(waiting.iter().collect::<Vec<_>>(), [locks[701]]);
    let of_file = ListHoldsRequest { file: Some(files[0]), ..EVERYTHING };
    assert!(holds(&mut c, &me, &of_file).iter().all(|hold| hold.file == files[0]));
    let of_session = ListHoldsRequest { session: Some(other.session), ..EVERYTHING };
    assert!(holds(&mut c, &me, &of_session).iter().all(|hold| hold.session == other.session));

    let ordinary = c.session_of(ClientId(77), root());
    assert_eq!(kind(c.ask(&ordinary, &EVERYTHING)), ErrorKind::NotAdministrator);
    let list = ListSessionsRequest { after: SessionId(0) };
    assert_eq!(kind(c.ask(&ordinary, &list)), ErrorKind::NotAdministrator);
}

#[test]
fn all_sessions_are_listed_with_what_they_are_good_for() {
    let mut c = Cluster::new(1);
    let mut me = c.client(root());
    let quiet: Vec<Client> = (0..600).map(|_| c.client(root())).collect();
    c.create(&mut me, FileId::ROOT, "f");
    c.pass_ms(100);
    let all = sessions(&mut c, &me);
    assert_eq!(all.len(), 601);
    assert!(all.windows(2).all(|pair| pair[0].session < pair[1].session));
    let mine = all.iter().find(|view| view.session == me.session).unwrap();
    assert_eq!((mine.open_files, mine.standing), (1, SessionStanding::Live));
    let other = all.iter().find(|view| view.session == quiet[5].session).unwrap();
    assert_eq!((other.open_files, other.silent_ms, other.since_ms), (0, 100, Some(100)));
}
