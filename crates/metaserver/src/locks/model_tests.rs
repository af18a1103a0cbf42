use super::*;
use proptest::prelude::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const FILE: FileId = FileId(7);

fn lock(owner: u64, start: u64, last: u64, mode: LockMode) -> Lock {
    Lock { file: FILE, owner, flock: false, start, last, mode, pid: owner as u32 }
}

/// Sends requests, each with its own number.
struct Asker {
    locks: Locks,
    number: u64,
    granted: Vec<WaitId>,
}

impl Asker {
    fn new() -> Self {
        Self { locks: Locks::default(), number: 0, granted: Vec::new() }
    }

    fn ask(
        &mut self,
        session: SessionId,
        lock: &Lock,
        wait: bool,
    ) -> Result<LockOutcome, ErrorKind> {
        // As a mount does.
        let wait = match (wait, lock.flock) {
            (false, _) => LockWait::No,
            (true, true) => LockWait::Yes,
            (true, false) => LockWait::UnlessDeadlock,
        };
        self.ask_to_wait(session, lock, wait)
    }

    fn ask_to_wait(
        &mut self,
        session: SessionId,
        lock: &Lock,
        wait: LockWait,
    ) -> Result<LockOutcome, ErrorKind> {
        self.number += 1;
        self.locks.set(session, self.number, lock, wait, 0, &mut self.granted)
    }
}

use LockMode::{Exclusive, Shared, Unlock};
use LockOutcome::{Conflict, Granted, Waiting};

#[test]
fn who_waits_is_granted_in_the_order_of_arrival_when_the_holder_unlocks() {
    let mut a = Asker::new();
    assert_eq!(a.ask(A, &lock(1, 0, 9, Exclusive), false), Ok(Granted));
    assert_eq!(a.ask(B, &lock(1, 5, 9, Exclusive), false), Ok(Conflict));
    assert_eq!(a.ask(B, &lock(1, 5, 9, Exclusive), true), Ok(Waiting));
    assert_eq!(a.ask(A, &lock(2, 0, 20, Shared), true), Ok(Waiting));
    assert_eq!(a.locks.blockers((A, 4)), BTreeSet::from([A]));
    assert_eq!(a.ask(A, &lock(1, 0, 9, Unlock), false), Ok(Granted));
    assert_eq!(a.granted, [(B, 3)]);
    let (mut told, again) = (Vec::new(), lock(1, 5, 9, Exclusive));
    assert_eq!(a.locks.set(B, 3, &again, LockWait::UnlessDeadlock, 0, &mut told), Ok(Granted));
    assert!(told.is_empty());
    a.locks.end(B, &mut told);
    assert_eq!(told, [(A, 4)]);
    assert_eq!(a.locks.totals(), (1, 1), "granted, and not yet told");
}

#[test]
fn a_lock_that_was_waited_for_is_kept_as_long_as_its_holder_likes() {
    let mut a = Asker::new();
    a.ask(A, &lock(1, 0, 9, Exclusive), false).unwrap();
    let wanted = lock(1, 0, 9, Exclusive);
    assert_eq!(a.ask(B, &wanted, true), Ok(Waiting));
    a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
    assert_eq!(a.granted, [(B, 2)]);
    a.locks.told((B, 2), 1000);
    let mut granted = Vec::new();
    a.locks.forget_abandoned(1000 + PATIENCE_MS, &mut granted);
    a.locks.raise_floor(B, 100, &mut granted);
    assert_eq!(a.locks.totals(), (1, 0));
    assert_eq!(a.ask(A, &lock(1, 0, 9, Exclusive), false), Ok(Conflict));
}

#[test]
fn a_lock_that_was_granted_to_who_did_not_hear_of_it_is_given_back() {
    let waits_and_is_granted = || {
        let mut a = Asker::new();
        a.ask(A, &lock(1, 0, 9, Exclusive), false).unwrap();
        a.ask(B, &lock(1, 0, 9, Exclusive), true).unwrap();
        a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
        a
    };
    // Its request is over, as the client says.
    let mut a = waits_and_is_granted();
    a.locks.raise_floor(B, 100, &mut Vec::new());
    assert_eq!(a.locks.totals(), (0, 0));
    // Nobody asks any more.
    let mut a = waits_and_is_granted();
    a.locks.forget_abandoned(PATIENCE_MS, &mut Vec::new());
    assert_eq!(a.locks.totals(), (0, 0));
    // It waits no longer, and learns that it has it.
    let mut a = waits_and_is_granted();
    a.locks.told((B, 2), 0);
    assert!(a.locks.cancel(B, 2));
    assert_eq!(a.locks.totals(), (1, 0));
}

#[test]
fn a_circle_of_owners_is_refused_and_flock_is_not_counted() {
    let mut a = Asker::new();
    a.ask(A, &lock(1, 0, 0, Exclusive), false).unwrap();
    a.ask(B, &lock(1, 1, 1, Exclusive), false).unwrap();
    a.ask(B, &lock(2, 2, 2, Exclusive), false).unwrap();
    assert_eq!(a.ask(A, &lock(1, 1, 1, Shared), true), Ok(Waiting));
    assert_eq!(a.ask(B, &lock(1, 2, 2, Shared), true), Ok(Waiting));
    assert_eq!(a.ask(B, &lock(2, 0, 0, Exclusive), true), Err(ErrorKind::Deadlock));
    let flock = |owner| Lock { flock: true, ..lock(owner, 0, LAST, Exclusive) };
    const LAST: u64 = weir_wire::lock::LAST_BYTE;
    a.ask(A, &flock(1), false).unwrap();
    assert_eq!(a.ask(B, &flock(2), true), Ok(Waiting));
}

#[test]
fn locks_of_open_files_wait_in_a_circle_until_somebody_unlocks_and_stop_no_process() {
    let mut a = Asker::new();
    let open_files = |a: &mut Asker, first| {
        a.ask(A, &lock(first, 0, 0, Exclusive), false).unwrap();
        a.ask(B, &lock(first, 1, 1, Exclusive), false).unwrap();
        assert_eq!(a.ask_to_wait(A, &lock(first, 1, 1, Exclusive), LockWait::Yes), Ok(Waiting));
        let number = a.number;
        (number, a.ask_to_wait(B, &lock(first, 0, 0, Exclusive), LockWait::Yes))
    };
    let (first, second) = open_files(&mut a, 1);
    assert_eq!(second, Ok(Waiting));
    // Another thread that has the file open unlocks.
    a.ask(B, &lock(1, 1, 1, Unlock), false).unwrap();
    assert_eq!(a.granted, [(A, first)]);
    a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
    a.ask(B, &lock(1, 0, 9, Unlock), false).unwrap();
    // A process that waits for one that waits for the process.
    a.ask(A, &lock(2, 0, 0, Exclusive), false).unwrap();
    a.ask(B, &lock(3, 1, 1, Exclusive), false).unwrap();
    assert_eq!(a.ask_to_wait(B, &lock(3, 0, 0, Shared), LockWait::Yes), Ok(Waiting));
    assert_eq!(a.ask(A, &lock(2, 1, 1, Shared), true), Ok(Waiting));
}

#[test]
fn an_interrupted_wait_ends_or_says_that_it_came_too_late() {
    let mut a = Asker::new();
    a.ask(A, &lock(1, 0, 9, Exclusive), false).unwrap();
    assert_eq!(a.ask(B, &lock(1, 0, 9, Exclusive), true), Ok(Waiting));
    assert!(!a.locks.cancel(B, 2));
    a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
    assert!(a.granted.is_empty());
    a.ask(A, &lock(1, 0, 9, Exclusive), false).unwrap();
    assert_eq!(a.ask(B, &lock(1, 0, 9, Exclusive), true), Ok(Waiting));
    a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
    assert!(a.locks.cancel(B, 5));
    assert!(a.locks.test(A, &lock(9, 0, 0, Shared)).is_some());
}

#[test]
fn a_request_that_was_overtaken_is_refused() {
    let mut a = Asker::new();
    a.locks.raise_floor(A, 10, &mut Vec::new());
    assert_eq!(a.ask(A, &lock(1, 0, 9, Exclusive), false), Err(ErrorKind::Stale));
}

#[test]
fn a_wait_that_nobody_asks_for_any_more_is_given_back() {
    let mut a = Asker::new();
    a.ask(A, &lock(1, 0, 9, Exclusive), false).unwrap();
    a.ask(B, &lock(1, 0, 9, Exclusive), true).unwrap();
    a.ask(A, &lock(1, 0, 9, Unlock), false).unwrap();
    a.locks.forget_abandoned(PATIENCE_MS - 1, &mut a.granted);
    assert_eq!(a.locks.totals(), (1, 1));
    a.locks.forget_abandoned(PATIENCE_MS, &mut a.granted);
    assert_eq!(a.locks.totals(), (0, 0));
}

#[test]
fn flock_gives_the_old_lock_up_before_it_takes_the_new_one() {
    let mut a = Asker::new();
    let flock = |owner, mode| Lock { flock: true, ..lock(owner, 0, 100, mode) };
    a.ask(A, &flock(1, Shared), false).unwrap();
    a.ask(B, &flock(1, Shared), false).unwrap();
    assert_eq!(a.ask(A, &flock(1, Exclusive), false), Ok(Conflict));
    assert_eq!(a.ask(B, &flock(1, Exclusive), false), Ok(Granted));
}

proptest! {
    #[test]
    fn no_two_owners_ever_hold_what_conflicts_and_nobody_waits_in_vain(
        steps in prop::collection::vec((0u64..2, 0u64..3, 0u64..12, 0u64..6, 0u8..3, any::<bool>()), 1..60)
    ) {
        let mut a = Asker::new();
        for (session, owner, start, len, mode, wait) in steps {
            let mode = [Unlock, Shared, Exclusive][usize::from(mode)];
            let _ = a.ask(SessionId(session), &lock(owner, start, start + len, mode), wait);
            let owners = a.locks.files.get(&FILE);
            let held: Vec<(Owner, Lock)> = owners.into_iter().flatten()
                .flat_map(|(o, held)| held.iter().map(|l| (*o, l.clone()))).collect();
            for (i, (one, x)) in held.iter().enumerate() {
                for (other, y) in &held[..i] {
                    prop_assert!(one == other || !conflict(x, y));
                }
            }
            for (id, waiter) in &a.locks.waiters {
                let owner = Owner::of(id.0, &waiter.lock);
                prop_assert!(waiter.state != Waits::Queued || a.locks.in_the_way(owner, &waiter.lock).is_some());
            }
            prop_assert_eq!(a.locks.totals().0, held.len());
        }
    }
}
