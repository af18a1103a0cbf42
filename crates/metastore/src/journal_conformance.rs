//! Conformance suite for journals.

use crate::engine::Sequence;
use crate::journal::{Batch, Begun, Extent, Journal};
use weir_types::ErrorKind;

/// Two servers with one empty journal.
pub struct Pair<J> {
    /// The first of them.
    pub a: J,
    /// The second server.
    pub b: J,
}

/// Runs the suite. `end_lead` ends the present lead, as if its lease had expired, and returns when
/// it has ended.
#[expect(clippy::unwrap_used, reason = "this is a test")]
pub fn run<J: Journal>(pair: &Pair<J>, end_lead: impl Fn()) {
    let Pair { a, b } = pair;
    let batch = |last: u64, bytes: &[u8]| Batch { last: Sequence(last), records: bytes.to_vec() };

    let begun = |at: u64| {
        let from = (at == 5).then_some([77; 16]);
        Begun { id: [at as u8; 16], at: Sequence(at), from, adopted: false }
    };
    let adopts = Begun { adopted: true, ..begun(9) };

    // The first server that names a start begins the log.
    assert_eq!(a.extent().unwrap(), None);
    assert_eq!((a.head().unwrap(), a.leader().unwrap()), (None, None));
    for begin in [None, Some(adopts)] {
        assert_eq!(a.acquire("a", begin).unwrap_err().kind, ErrorKind::NotFound);
    }
    assert!(a.check().is_err(), "nobody leads");
    let first = a.acquire("a", Some(begun(5))).unwrap().unwrap();
    assert_eq!(b.acquire("b", Some(begun(9))).unwrap(), None);
    assert_eq!(b.leader().unwrap().as_deref(), Some("a"));
    assert_eq!(b.head().unwrap(), Some(Sequence(5)));
    let extent = Extent { begun: Some(begun(5)), head: Sequence(5) };
    assert_eq!([&a, &b].map(|it| it.extent().unwrap()), [Some(extent); 2]);

    // Only the leader appends.
    a.check().unwrap();
    assert!(b.check().is_err());
    assert!(b.append(Sequence(5), &batch(6, b"b")).is_err());
    a.append(Sequence(5), &batch(7, b"6 7")).unwrap();
    a.append(Sequence(7), &batch(8, &[0, 255, b'"', b'\\'])).unwrap();
    a.append(Sequence(8), &batch(300, b"9 ...")).unwrap();
    a.renew().unwrap();

    // Other servers read it in order, from anywhere.
    let all = [batch(7, b"6 7"), batch(8, &[0, 255, b'"', b'\\']), batch(300, b"9 ...")];
    assert_eq!(read_all(b, Sequence(5)), all);
    assert_eq!(read_all(b, Sequence(6)), all);
    assert_eq!(read_all(b, Sequence(7)), all[1..]);
    assert_eq!(read_all(b, Sequence(300)), []);

    // A server that has lost the lead knows it, and can neither append nor remove. Terms grow.
    end_lead();
    assert!(a.renew().is_err() | a.check().is_err());
    assert_eq!(b.leader().unwrap(), None);
    let second = b.acquire("b", Some(adopts)).unwrap().unwrap();
    let extent = Extent { head: Sequence(300), ..extent };
    assert_eq!(a.extent().unwrap(), Some(extent), "a log keeps its id");
    assert!(second > first);
    assert!(a.append(Sequence(300), &batch(301, b"late")).is_err());
    let _ = a.cut(Sequence(300));
    assert_eq!(read_all(a, Sequence(5)), all);
    b.append(Sequence(300), &batch(301, b"in time")).unwrap();

    // Batches that all members hold are removed; the others stay.
    a.report("a", Sequence(8)).unwrap();
    b.report("b", Sequence(300)).unwrap();
    a.report("a", Sequence(9)).unwrap();
    let held = || -> Vec<(String, Sequence, u64)> {
        b.members().unwrap().into_iter().map(|it| (it.member, it.upto, it.stamp)).collect()
    };
    let [one, two] = &held()[..] else { panic!("{:?}", held()) };
    assert_eq!((&*one.0, one.1, &*two.0, two.1), ("a", Sequence(9), "b", Sequence(300)));
    // A report counts even if it says nothing new.
    a.report("a", Sequence(9)).unwrap();
    let again = held();
    assert!(again[0].2 != one.2 && again[1] == *two);
    a.report("gone", Sequence(1)).unwrap();
    a.forget("gone").unwrap();
    assert_eq!(held().len(), 2);
    a.report("away", Sequence(1)).unwrap();
    a.report("away-too", Sequence(1)).unwrap();
    assert!(a.remove("away").is_err(), "it does not lead");
    assert_eq!((held().len(), a.removed().unwrap().len()), (4, 0));
    b.remove("away").unwrap();
    b.remove("away").unwrap();
    assert_eq!((held().len(), a.removed().unwrap()), (3, vec!["away".to_owned()]));
    a.forget("away-too").unwrap();
    b.cut(Sequence(9)).unwrap();
    assert_eq!(read_all(a, Sequence(5)), [all[2].clone(), batch(301, b"in time")]);
    assert_eq!(a.head().unwrap(), Some(Sequence(301)));
    b.compact().unwrap();
    assert!(a.compact().is_err(), "it does not lead");
    assert_eq!(read_all(a, Sequence(8)), [all[2].clone(), batch(301, b"in time")]);

    // A lead that is given up is free at once.
    b.resign();
    assert!(b.check().is_err());
    assert!(a.acquire("a", None).unwrap().unwrap() > second);

    // An append must follow the last record directly.
    assert!(a.append(Sequence(300), &batch(302, b"not behind")).is_err());
    assert_eq!(read_all(b, Sequence(300)), [batch(301, b"in time")]);

    end_lead();
    a.acquire("a", None).unwrap().unwrap();
    // A log that has ended is gone, and only another one can be begun, which knows nothing of it.
    assert!(b.end().is_err(), "it does not lead");
    assert_eq!(a.head().unwrap(), Some(Sequence(301)));
    a.end().unwrap();
    assert_eq!((b.extent().unwrap(), read_all(b, Sequence::ZERO)), (None, Vec::new()));
    assert_eq!((held().len(), b.removed().unwrap()), (0, vec!["away".to_owned()]));
    a.resign();
    assert!(b.acquire("b", None).is_err(), "nobody has begun it");
    let another = Begun { id: [9; 16], at: Sequence(301), from: Some([1; 16]), adopted: false };
    b.acquire("b", Some(another)).unwrap().unwrap();
    assert_eq!(b.removed().unwrap().len(), 0);
    assert_eq!(a.extent().unwrap().and_then(|log| log.begun), Some(another));
}

/// Runs the suite of a log that an older version of Weir has begun: `forget_id` makes it one.
#[expect(clippy::unwrap_used, reason = "this is a test")]
pub fn run_without_id<J: Journal>(pair: &Pair<J>, forget_id: impl Fn()) {
    let Pair { a, b } = pair;
    let begin = Begun { id: [1; 16], at: Sequence(5), from: None, adopted: false };
    a.acquire("a", Some(begin)).unwrap().unwrap();
    a.append(Sequence(5), &Batch { last: Sequence(7), records: b"6 7".to_vec() }).unwrap();
    a.resign();
    forget_id();
    let without = Extent { begun: None, head: Sequence(7) };
    assert_eq!(b.extent().unwrap(), Some(without));
    // Not from who would begin a log, or only reads this one.
    for begin in [None, Some(begin)] {
        b.acquire("b", begin).unwrap().unwrap();
        assert_eq!(a.extent().unwrap(), Some(without));
        b.resign();
    }
    // It gets an id as of its end, wherever the new leader is; and keeps it.
    for id in [2, 3] {
        let begin = Begun { id: [id; 16], at: Sequence(6), from: Some([9; 16]), adopted: true };
        b.acquire("b", Some(begin)).unwrap().unwrap();
        let begun = Some(Begun { id: [2; 16], at: Sequence(7), ..begin });
        assert_eq!(a.extent().unwrap(), Some(Extent { begun, ..without }));
        b.resign();
    }
}

#[expect(clippy::unwrap_used, reason = "this is a test")]
fn read_all(journal: &impl Journal, mut after: Sequence) -> Vec<Batch> {
    let mut all = Vec::new();
    loop {
        let some = journal.read(after).unwrap();
        let Some(last) = some.last() else { return all };
        after = last.last;
        all.extend(some);
    }
}

#[cfg(test)]
#[test]
fn the_model_is_a_journal() {
    use crate::model_journal::ModelJournal;
    let a = ModelJournal::default();
    let b = a.another();
    let ender = a.another();
    run(&Pair { a, b }, || ender.end_lead());
    let a = ModelJournal::default();
    let (b, older) = (a.another(), a.another());
    run_without_id(&Pair { a, b }, || older.forget_id());
}
