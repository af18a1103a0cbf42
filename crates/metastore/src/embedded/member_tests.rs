//! Members that share a journal: nothing acknowledged is lost, nobody acknowledges late.

use super::*;
use crate::journal::{Begun, Journal};
use crate::model_journal::{LostAppend, ModelJournal};
use crate::tx::transact;
use tempfile::TempDir;
use weir_types::ErrorKind;

fn open(dir: &TempDir) -> Embedded {
    Embedded::open_member(dir.path(), EmbeddedConfig::default(), || {}).unwrap()
}

fn put(engine: &mut Embedded, key: &[u8], value: &[u8]) -> Result<()> {
    transact(engine, |tx| Ok::<_, Error>(tx.put(key, value)?)).map(drop)
}

fn value(engine: &Embedded, key: &[u8]) -> Option<Vec<u8>> {
    engine.get(key).unwrap().map(|found| found.value.to_vec())
}

fn catch_up(engine: &mut Embedded, journal: &ModelJournal) -> Result<()> {
    loop {
        let batches = journal.read(engine.sequence())?;
        if batches.is_empty() {
            return engine.flush().map(drop);
        }
        batches.iter().try_for_each(|batch| engine.follow(batch))?;
    }
}

/// Takes the lead as a server does.
fn lead(engine: &mut Embedded, journal: ModelJournal) -> Arc<ModelJournal> {
    let begin = Some(Begun { id: [1; 16], at: engine.sequence(), from: None, adopted: false });
    journal.acquire("here", begin).unwrap().unwrap();
    catch_up(engine, &journal).unwrap();
    let journal = Arc::new(journal);
    engine.lead(journal.clone()).unwrap();
    journal
}

fn dirs() -> [TempDir; 2] {
    [(); 2].map(|()| tempfile::tempdir().unwrap())
}

#[test]
fn who_follows_has_what_the_leader_has_acknowledged_and_takes_over_from_there() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    assert!(put(&mut b, b"k", b"by itself").is_err(), "who follows commits nothing");
    let on_a = lead(&mut a, ModelJournal::default());
    for n in 0..100u32 {
        put(&mut a, &n.to_be_bytes(), b"of a").unwrap();
        put(&mut a, b"last", &n.to_be_bytes()).unwrap();
        if n % 7 == 0 {
            a.flush().unwrap();
        }
    }
    let acknowledged = a.flush().unwrap();
    assert_eq!(a.synced(), acknowledged, "the journal is durable");
    on_a.end_lead();
    let on_b = lead(&mut b, on_a.another());
    assert_eq!((b.sequence(), value(&b, b"last")), (acknowledged, value(&a, b"last")));
    put(&mut b, b"k", b"of b").unwrap();
    b.flush().unwrap();
    // The first server comes back, and follows.
    drop(a);
    let mut a = open(&one);
    catch_up(&mut a, &on_b).unwrap();
    assert_eq!((a.sequence(), value(&a, b"k").unwrap()), (b.sequence(), b"of b".to_vec()));
    // The records that it took in are on its disk as well.
    a.sync().unwrap();
    assert_eq!(a.progress().durable(), b.sequence());
    drop(a);
    assert_eq!(value(&open(&one), b"k").unwrap(), b"of b");
}

#[test]
fn who_has_lost_the_lead_confirms_neither_changes_nor_reads() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    let on_a = lead(&mut a, ModelJournal::default());
    put(&mut a, b"k", b"first").unwrap();
    a.flush().unwrap();
    a.check_lead().unwrap();
    assert!(!a.is_deposed());
    on_a.end_lead();
    lead(&mut b, on_a.another());
    assert!(a.check_lead().is_err());
    assert!(a.flush().is_err(), "a turn that only read");
    assert!(a.is_deposed());
    assert!(put(&mut a, b"k", b"late").is_err());
    // At the next start no uncommitted record of its own is left.
    drop(a);
    assert_eq!(value(&open(&one), b"k").unwrap(), b"first");
}

#[test]
fn an_append_without_an_answer_leaves_nothing_here_that_is_not_in_the_journal() {
    for how in [LostAppend::Appended, LostAppend::NotAppended] {
        let [one, two] = dirs();
        let (mut a, mut b) = (open(&one), open(&two));
        let on_a = lead(&mut a, ModelJournal::default());
        put(&mut a, b"k", b"sure").unwrap();
        a.flush().unwrap();
        put(&mut a, b"k", b"unsure").unwrap();
        on_a.lose_append(how);
        assert!(a.flush().is_err());
        assert!(a.is_deposed() && a.flush().is_err());
        drop(a);
        let mut a = open(&one);
        assert_eq!(value(&a, b"k").unwrap(), b"sure", "{how:?}");
        on_a.end_lead();
        let on_b = lead(&mut b, on_a.another());
        let expected: &[u8] = if how == LostAppend::Appended { b"unsure" } else { b"sure" };
        assert_eq!(value(&b, b"k").unwrap(), expected, "{how:?}");
        put(&mut b, b"k", b"after").unwrap();
        b.flush().unwrap();
        catch_up(&mut a, &on_b).unwrap();
        assert_eq!(value(&a, b"k").unwrap(), b"after", "{how:?}");
    }
}

#[test]
fn what_is_appended_in_the_background_counts_when_the_journal_has_it_and_in_order() {
    let [one, _] = dirs();
    let mut a = open(&one);
    let on_a = lead(&mut a, ModelJournal::default());
    put(&mut a, b"k", b"first").unwrap();
    let first = a.flush().unwrap();
    on_a.hold_appends(true);
    for value in [b"2", b"3", b"4"] {
        put(&mut a, b"k", value).unwrap();
        assert_eq!(a.begin_flush().unwrap(), first, "the append is under way");
        assert_eq!((a.synced(), on_a.head().unwrap()), (first, Some(first)));
    }
    assert_eq!(value(&a, b"k").unwrap(), b"4", "who asks is answered, but not yet told");
    on_a.hold_appends(false);
    assert_eq!(a.flush().unwrap(), a.sequence());
    assert_eq!(on_a.head().unwrap(), Some(a.sequence()));
    // What came while the first one was under way is one batch.
    let batches = on_a.read(first).unwrap();
    let ends: Vec<u64> = batches.iter().map(|batch| batch.last.0 - first.0).collect();
    assert!(ends == [1, 3] || ends == [2, 3] || ends == [3], "{ends:?}");
    assert_eq!(a.begin_flush().unwrap(), a.sequence(), "nothing is under way");
    drop(a);
    assert_eq!(value(&open(&one), b"k").unwrap(), b"4");
}

#[test]
fn a_lead_that_is_lost_while_an_append_is_under_way_leaves_nothing_here() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    let on_a = lead(&mut a, ModelJournal::default());
    put(&mut a, b"k", b"sure").unwrap();
    a.flush().unwrap();
    on_a.hold_appends(true);
    for value in [b"unsure", b"behind"] {
        put(&mut a, b"k", value).unwrap();
        a.begin_flush().unwrap();
    }
    on_a.end_lead();
    on_a.hold_appends(false);
    assert!(a.flush().is_err() && a.is_deposed() && a.begin_flush().is_err());
    drop(a);
    assert_eq!(value(&open(&one), b"k").unwrap(), b"sure");
    lead(&mut b, on_a.another());
    assert_eq!(value(&b, b"k").unwrap(), b"sure");
}

#[test]
fn a_batch_is_never_larger_than_the_journal_takes() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    let on_a = lead(&mut a, ModelJournal::default());
    for n in 0..40u8 {
        put(&mut a, &[n], &vec![n; 100_000]).unwrap();
    }
    a.flush().unwrap();
    let error = put(&mut a, b"huge", &vec![1; MAX_BATCH_BYTES]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooBig, "{error}");
    let mut after = Sequence::ZERO;
    while let Some(batch) = on_a.read(after).unwrap().first() {
        assert!(batch.records.len() <= MAX_BATCH_BYTES);
        after = batch.last;
    }
    catch_up(&mut b, &on_a).unwrap();
    assert_eq!(value(&b, &[39]).unwrap(), vec![39; 100_000]);
}

#[test]
fn who_comes_after_the_log_was_cut_is_told_and_leads_nothing() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    let on_a = lead(&mut a, ModelJournal::default());
    for n in 0..4u8 {
        put(&mut a, &[n], b"x").unwrap();
        a.flush().unwrap();
    }
    on_a.cut(Sequence(2)).unwrap();
    let error = catch_up(&mut b, &on_a).unwrap_err();
    assert!(error.kind == ErrorKind::Stale && error.message.contains("snapshot"), "{error}");
    // With an empty journal there is no record that would show the difference.
    on_a.cut(a.sequence()).unwrap();
    on_a.end_lead();
    let on_b = on_a.another();
    on_b.acquire("b", None).unwrap().unwrap();
    catch_up(&mut b, &on_b).unwrap();
    assert_eq!(b.lead(Arc::new(on_b)).unwrap_err().kind, ErrorKind::Stale);
}

#[test]
fn damage_in_the_journal_is_noticed() {
    let [one, two] = dirs();
    let (mut a, mut b) = (open(&one), open(&two));
    let on_a = lead(&mut a, ModelJournal::default());
    put(&mut a, b"k", b"value").unwrap();
    a.flush().unwrap();
    let batch = on_a.read(Sequence::ZERO).unwrap().remove(0);
    for at in 0..batch.records.len() {
        let mut damaged = batch.clone();
        damaged.records[at] ^= 1;
        assert!(b.follow(&damaged).is_err(), "byte {at}");
        damaged.records.truncate(at);
        assert!(b.follow(&damaged).is_err(), "cut to {at}");
    }
    assert_eq!(b.sequence(), Sequence::ZERO);
    b.follow(&batch).unwrap();
}

#[test]
fn the_directory_of_a_member_is_not_opened_alone() {
    let [one, _] = dirs();
    let a = open(&one);
    assert!(!a.is_replicated().unwrap());
    a.mark_replicated().unwrap();
    drop(a);
    let error = Embedded::open(one.path(), EmbeddedConfig::default(), || {}).map(drop).unwrap_err();
    assert!(error.message.contains("[journal]"), "{error}");
    assert!(open(&one).is_replicated().unwrap());
}
