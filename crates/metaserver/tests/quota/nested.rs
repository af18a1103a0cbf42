//! Quotas of directories above one another.

use super::*;
use weir_metaserver::quota::MAX_ABOVE;

#[test]
fn quotas_above_one_another_all_count_and_the_tightest_is_refused() {
    let mut c = Machine::new(2);
    let outer = shared(&mut c, "outer");
    let me = &mut c.client(alice());
    let inner = mkdir(&mut c, me, outer, "inner").unwrap();
    let (of_outer, of_inner) = (QuotaSubject::Directory(outer), QuotaSubject::Directory(inner));
    set(&mut c, of_outer, Some(5 * MIB), None);
    set(&mut c, of_inner, Some(8 * MIB), None);
    let open = c.create(me, inner, "file");
    assert_eq!(kind(write(&mut c, me, &open, 6 * MIB)), ErrorKind::QuotaExceeded);
    write(&mut c, me, &open, 4 * MIB).unwrap();
    assert_eq!(used(&mut c, of_outer), (4 * MIB, 3));
    assert_eq!(used(&mut c, of_inner), (4 * MIB, 2));
    let space = c.ask(me, &StatfsRequest { file: inner }).unwrap();
    assert_eq!((space.total_bytes, space.free_bytes), (5 * MIB, MIB));
    let whole = c.ask(me, &StatfsRequest { file: ROOT }).unwrap();
    assert!(whole.total_bytes > 1 << 40);
    let moved = c.make(me, &rename_request((inner, "file"), (outer, "file")));
    moved.unwrap();
    assert_eq!(used(&mut c, of_inner), (0, 1));
    // The root's counts everything.
    set(&mut c, QuotaSubject::Directory(ROOT), None, Some(4));
    assert_eq!(used(&mut c, QuotaSubject::Directory(ROOT)), (4 * MIB, 4));
    assert_eq!(kind(c.make(me, &create_request(inner, "x"))), ErrorKind::QuotaExceeded);
    assert_eq!(audit(&c), []);
}

/// Whichever comes first; also after moves, and after a start, when nothing is known of them.
#[test]
fn so_many_directories_with_quotas_may_be_above_one_another_and_no_more() {
    let mut c = Machine::new(2);
    let me = &mut c.client(root());
    let mut chain = vec![shared(&mut c, "0")];
    for depth in 1..MAX_ABOVE + 2 {
        chain.push(mkdir(&mut c, me, chain[depth - 1], &depth.to_string()).unwrap());
    }
    let ask = |c: &mut Machine, dir: FileId, change| {
        let admin = c.client(root());
        let subject = QuotaSubject::Directory(dir);
        c.ask(&admin, &SetQuotaRequest { subject, change }).map_err(|e| e.kind)
    };
    let limits = QuotaChange::Set(QuotaLimits { bytes: Some(MIB), files: None });
    // Many beside one another, some with directories of their own, are no matter.
    for n in 0..3 * MAX_ABOVE {
        let dir = shared(&mut c, &format!("beside {n}"));
        mkdir(&mut c, me, dir, "sub").unwrap();
        ask(&mut c, dir, limits).unwrap();
    }
    // From below, from above, and one in between.
    let middle = MAX_ABOVE / 2;
    for depth in (middle + 1..MAX_ABOVE).rev().chain(0..middle) {
        ask(&mut c, chain[depth], limits).unwrap();
    }
    ask(&mut c, chain[MAX_ABOVE], limits).unwrap();
    for restarted in [false, true] {
        for depth in [middle, MAX_ABOVE + 1] {
            assert_eq!(ask(&mut c, chain[depth], limits), Err(ErrorKind::TooBig), "{depth}");
        }
        // One that has a quota already.
        ask(&mut c, chain[0], limits).unwrap();
        if !restarted {
            c = c.restart();
        }
    }
    ask(&mut c, chain[0], QuotaChange::Remove).unwrap();
    ask(&mut c, chain[middle], limits).unwrap();
    assert_eq!(ask(&mut c, chain[0], limits), Err(ErrorKind::TooBig));
    // An empty directory goes anywhere, and one with a quota nowhere.
    let me = &mut c.client(root());
    let empty = shared(&mut c, "empty");
    c.make(me, &rename_request((ROOT, "empty"), (chain[MAX_ABOVE], "empty"))).unwrap();
    assert_eq!(ask(&mut c, empty, limits), Err(ErrorKind::TooBig));
    let with_quota = shared(&mut c, "with quota");
    ask(&mut c, with_quota, limits).unwrap();
    let moved = c.make(me, &rename_request((ROOT, "with quota"), (chain[MAX_ABOVE], "moved")));
    assert_eq!(kind(moved), ErrorKind::CrossDevice);
}
