//! A mutation is done once, however often it is sent, across restarts too.

use crate::harness::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::rc::Rc;
use weir_metaserver::machine::Peer;
use weir_metastore::{Embedded, Engine, Injection, ModelEngine};
use weir_types::{ErrorKind, FileId, SessionId};
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;

/// Servers on one kind of engine.
struct World<E: Engine> {
    /// A new one with so many targets.
    fresh: Box<dyn Fn(u32) -> Cluster<E>>,
    /// The last one that was made, killed and started again.
    restart: Box<dyn Fn(Cluster<E>) -> Cluster<E>>,
}

impl<E: Engine> World<E> {
    fn fresh(&self, targets: u32) -> Cluster<E> {
        (self.fresh)(targets)
    }

    fn restart(&self, cluster: Cluster<E>) -> Cluster<E> {
        (self.restart)(cluster)
    }
}

fn model() -> World<ModelEngine> {
    World { fresh: Box::new(Cluster::new), restart: Box::new(Cluster::restart) }
}

fn redb() -> World<Embedded> {
    let dir = Rc::new(RefCell::new(tempfile::tempdir().unwrap()));
    let same = dir.clone();
    World {
        fresh: Box::new(move |targets| {
            dir.replace(tempfile::tempdir().unwrap());
            let path = dir.borrow().path().to_owned();
            Cluster::on(embedded(&path), targets)
        }),
        restart: Box::new(move |cluster| cluster.restart_in(same.borrow().path())),
    }
}

/// What must hold on any engine that survives the process.
fn exactly_once<E: Engine>(world: &World<E>) {
    a_repeated_mutation_gets_its_first_answer(world);
    a_failure_is_repeated_too(world);
    a_failure_that_may_pass_is_tried_again(world);
    late_duplicates_and_slots_out_of_range_are_refused_and_gaps_are_not(world);
    mutations_carry_an_id_and_reads_carry_none(world);
    a_create_whose_reply_was_lost_with_the_server_leaves_the_file_open(world);
    let runner = TestRunner::new(ProptestConfig::with_cases(16));
    repeats_and_restarts_change_nothing(runner, world);
}

#[test]
fn a_mutation_is_done_once_on_the_model_of_an_engine() {
    exactly_once(&model());
    let runner = TestRunner::new(ProptestConfig::with_cases(48));
    repeats_and_restarts_change_nothing(runner, &model());
}

#[test]
fn a_mutation_is_done_once_on_redb() {
    exactly_once(&redb());
}

fn make_dir(name: &str) -> MkdirRequest {
    MkdirRequest { parent: ROOT, name: name.as_bytes().into(), mode: 0o755, umask: 0 }
}

fn a_repeated_mutation_gets_its_first_answer<E: Engine>(world: &World<E>) {
    let mut c = world.fresh(1);
    let me = &c.client(root());
    let first = c.make_as(me, 3, 1, &make_dir("d")).unwrap();
    assert_eq!(c.make_as(me, 3, 1, &make_dir("d")).unwrap(), first);
    let mut c = world.restart(c);
    assert_eq!(c.make_as(me, 3, 1, &make_dir("d")).unwrap(), first, "after a restart too");
    assert_eq!(kind(c.make_as(me, 3, 2, &make_dir("d"))), ErrorKind::Exists);
    assert_eq!(c.getattr(me, ROOT).unwrap().nlink, 3);
}

fn a_failure_is_repeated_too<E: Engine>(world: &World<E>) {
    let mut c = world.fresh(1);
    let me = &c.client(root());
    let remove = RmdirRequest { parent: ROOT, name: b"d"[..].into() };
    assert_eq!(kind(c.make_as(me, 0, 1, &remove)), ErrorKind::NotFound);
    c.make_as(me, 1, 1, &make_dir("d")).unwrap();
    assert_eq!(kind(c.make_as(me, 0, 1, &remove)), ErrorKind::NotFound, "a late duplicate");
    assert_eq!(c.list(me, ROOT), ["d"]);
    c.make_as(me, 0, 2, &remove).unwrap();
}

fn a_failure_that_may_pass_is_tried_again<E: Engine>(world: &World<E>) {
    let mut c = world.fresh(0);
    let me = &c.client(root());
    let request = create_request(ROOT, "f");
    assert_eq!(kind(c.make_as(me, 0, 1, &request)), ErrorKind::Unreachable, "no data server");
    c.register(1, &[1]).unwrap();
    c.make_as(me, 0, 1, &request).unwrap();
    assert_eq!(c.list(me, ROOT), ["f"]);
}

fn late_duplicates_and_slots_out_of_range_are_refused_and_gaps_are_not<E: Engine>(
    world: &World<E>,
) {
    let mut c = world.fresh(1);
    let me = &c.client(root());
    c.make_as(me, 0, 1, &make_dir("a")).unwrap();
    c.make_as(me, 0, 2, &make_dir("b")).unwrap();
    for (slot, sequence) in [(0, 0), (256, 1), (u16::MAX, 1)] {
        let error = kind(c.make_as(me, slot, sequence, &make_dir("c")));
        assert_eq!(error, ErrorKind::Protocol, "slot {slot} number {sequence}");
    }
    // The client gave up on number 3; should it come after 4, it is too late.
    c.make_as(me, 0, 4, &make_dir("d")).unwrap();
    for sequence in [1, 3] {
        let error = kind(c.make_as(me, 0, sequence, &make_dir("c")));
        assert_eq!(error, ErrorKind::Stale, "number {sequence}");
    }
    assert_eq!(c.list(me, ROOT), ["a", "b", "d"]);
}

fn mutations_carry_an_id_and_reads_carry_none<E: Engine>(world: &World<E>) {
    let mut c = world.fresh(1);
    let me = &mut c.client(root());
    assert_eq!(kind(c.ask(me, &make_dir("a"))), ErrorKind::Protocol);
    assert_eq!(kind(c.make(me, &GetAttrRequest { file: ROOT })), ErrorKind::Protocol);
    let prefix = MetaPrefix { caller: root(), mutation: None };
    let nobody = Peer::Client(SessionId(99));
    let error = c.send::<GetAttrRequest>(nobody, &body(&prefix, &GetAttrRequest { file: ROOT }));
    assert_eq!(kind(error), ErrorKind::SessionExpired);
}

fn a_create_whose_reply_was_lost_with_the_server_leaves_the_file_open<E: Engine>(world: &World<E>) {
    let mut c = world.fresh(1);
    let me = &mut c.client(root());
    let file = c.make_as(me, 0, 1, &create_request(ROOT, "f")).unwrap().attr.file;
    let mut c = world.restart(c);
    // The client never saw the reply, so it has nothing to reassert; it asks again.
    c.make_as(me, 0, 1, &create_request(ROOT, "f")).unwrap();
    c.make_as(me, 0, 1, &create_request(ROOT, "f")).unwrap();
    for _ in 0..6 {
        c.ask(me, &CloseRequest { files: vec![], unconfirmed: vec![], written: vec![] }).unwrap();
        c.pass_ms(5_000);
    }
    let me = &mut Client { next: 2, ..me.clone() };
    c.unlink(me, ROOT, "f").unwrap();
    assert!(c.getattr(me, file).is_ok(), "it is open");
    c.close(me, file);
    c.pass_ms(2000);
    assert_eq!(kind(c.getattr(me, file)), ErrorKind::Stale, "it was open once only");
}

#[test]
fn a_conflict_is_met_by_doing_it_again() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    for _ in 0..3 {
        c.machine.engine_mut().inject(Injection::Conflict);
    }
    c.create(me, ROOT, "f");
    assert_eq!(c.list(me, ROOT), ["f"]);
    assert_eq!(c.machine.counters().conflicts, 3);
}

#[test]
fn when_the_engine_does_not_answer_the_retry_finds_out_what_became_of_it() {
    for (lost, applied) in [(Injection::AppliedReplyLost, true), (Injection::RequestLost, false)] {
        let mut c = Cluster::new(1);
        let me = &mut c.client(root());
        c.machine.engine_mut().inject(lost);
        let request = create_request(ROOT, "f");
        assert_eq!(kind(c.make_as(me, 0, 1, &request)), ErrorKind::TimedOut);
        assert_eq!(c.list(me, ROOT).len(), usize::from(applied));
        let file = c.make_as(me, 0, 1, &request).unwrap().attr.file;
        assert_eq!(c.list(me, ROOT), ["f"]);
        // And it is open, once; that the unlink failed too is no reason to
        // forget the file.
        let remove = UnlinkRequest { parent: ROOT, name: b"f"[..].into(), hold: false };
        c.machine.engine_mut().inject(lost);
        assert_eq!(kind(c.make_as(me, 0, 2, &remove)), ErrorKind::TimedOut);
        c.make_as(me, 0, 2, &remove).unwrap();
        me.next = 3;
        c.pass_ms(1000);
        assert!(c.getattr(me, file).is_ok());
        c.close(me, file);
        c.pass_ms(1000);
        assert_eq!(kind(c.getattr(me, file)), ErrorKind::Stale);
        let next = c.create(me, ROOT, "g").attr.file;
        assert_ne!(next, file, "its id is used up");
    }
}

/// Any message may be sent any number of times, and the server killed in
/// between: every slot makes each of its directories exactly once.
fn repeats_and_restarts_change_nothing<E: Engine>(mut runner: TestRunner, world: &World<E>) {
    let step = (0u16..4, 1usize..4, prop::bool::weighted(0.2));
    let checked = runner.run(&prop::collection::vec(step, 1..40), |steps| {
        let mut c = world.fresh(1);
        let me = &c.client(root());
        let mut next = [0u64; 4];
        let mut expected = Vec::new();
        for (slot, times, kill) in steps {
            let at = &mut next[usize::from(slot)];
            *at += 1;
            let name = format!("{slot}-{at}");
            let mut answers = Vec::new();
            for _ in 0..times {
                answers.push(c.make_as(me, slot, *at, &make_dir(&name)).unwrap());
                if kill {
                    c = world.restart(c);
                }
            }
            prop_assert!(answers.windows(2).all(|w| w[0] == w[1]));
            expected.push(name);
        }
        prop_assert_eq!(c.list(me, ROOT), expected);
        Ok(())
    });
    checked.unwrap();
}
