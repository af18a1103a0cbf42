//! Files that lose their last name, and what becomes of their objects.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::{ErrorKind, FileId, FileKind, LayoutKind, LayoutSpec, SessionId};
use weir_wire::Rights;
use weir_wire::meta::*;
use weir_wire::peer::TargetReport;

const ROOT: FileId = FileId::ROOT;

#[test]
fn an_open_file_lives_until_its_last_close() {
    let mut c = Cluster::new(2);
    let one = &mut c.client(root());
    let two = &mut c.client(root());
    let file = c.create(one, ROOT, "f").attr.file;
    c.ask(two, &OpenRequest { file, rights: Rights::READ }).unwrap();
    let removed = c.unlink(one, ROOT, "f").unwrap();
    assert_eq!(removed.attr.unwrap().nlink, 0);
    c.close(one, file);
    c.pass_ms(2000);
    assert!(c.getattr(two, file).is_ok(), "the other session has it open");
    c.close(two, file);
    c.pass_ms(2000);
    assert_eq!(kind(c.getattr(two, file)), ErrorKind::Stale);
    assert_eq!((c.keys("g/"), c.keys("o/"), c.keys("s/")), (2, 0, 0));
}

#[test]
fn a_file_without_a_name_lives_until_its_last_close_unless_it_gets_one() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let unnamed = create_request(ROOT, "");
    let [goes, stays] = [(); 2].map(|()| c.make(me, &unnamed).unwrap().attr);
    assert_eq!((goes.nlink, stays.nlink), (0, 0));
    let link = LinkRequest { file: stays.file, parent: ROOT, name: b"named"[..].into() };
    let stranger = &mut c.client(root());
    assert_eq!(kind(c.make(stranger, &link)), ErrorKind::NotFound, "it does not have it open");
    assert_eq!(c.make(me, &link).unwrap().nlink, 1);
    assert_eq!(c.lookup(me, ROOT, "named").unwrap().file, stays.file);
    c.close(me, goes.file);
    c.close(me, stays.file);
    c.pass_ms(2000);
    assert_eq!(kind(c.getattr(me, goes.file)), ErrorKind::Stale);
    assert_eq!(c.getattr(me, stays.file).unwrap().nlink, 1);
    assert_eq!((c.keys("g/"), c.keys("o/"), c.keys("s/")), (2, 0, 1));

    let pipe = CreateRequest { kind: FileKind::Fifo, ..unnamed.clone() };
    assert_eq!(kind(c.make(me, &pipe)), ErrorKind::InvalidArgument);
    let other = &mut c.client(user(5, 5, &[]));
    assert_eq!(kind(c.make(other, &unnamed)), ErrorKind::AccessDenied);
}

#[test]
fn the_end_of_a_session_closes_its_files() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, ROOT, "f").attr.file;
    c.unlink(me, ROOT, "f").unwrap();
    let other = &mut c.client(root());
    for _ in 0..7 {
        c.pass_ms(5_000);
        c.getattr(other, ROOT).unwrap();
    }
    assert_eq!(kind(c.getattr(me, ROOT)), ErrorKind::SessionExpired);
    assert_eq!(kind(c.getattr(other, file)), ErrorKind::Stale);
    assert_eq!(kind(c.rejoin(me)), ErrorKind::SessionExpired);
    assert_eq!((c.keys("r/"), c.keys("n/")), (0, 1), "nothing is left of the session");
    assert_eq!(c.rejoin(other).unwrap(), other.session);
    let wrong = Client { session: SessionId(0), ..other.clone() };
    assert_ne!(c.rejoin(&wrong).unwrap(), other.session, "a new one");
}

#[test]
fn after_a_restart_clients_say_what_is_open_and_the_rest_goes() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let kept = c.create(me, ROOT, "kept").attr.file;
    let lost = c.create(me, ROOT, "lost").attr.file;
    let named = c.create(me, ROOT, "named").attr.file;
    c.unlink(me, ROOT, "kept").unwrap();
    c.unlink(me, ROOT, "lost").unwrap();
    let mut c = c.restart();
    c.rejoin(me).unwrap();
    c.ask(
        me,
        &ReassertRequest {
            first: false,
            files: vec![kept, named, FileId(12345)],
            held: vec![],
            leases: vec![],
            last: true,
        },
    )
    .unwrap();
    c.pass_ms(5_000);
    assert!(c.getattr(me, lost).is_ok(), "there is still time to say so");
    // Removed within that time: it may be open as far as is known.
    c.unlink(me, ROOT, "named").unwrap();
    c.pass_ms(7_000);
    assert_eq!(kind(c.getattr(me, lost)), ErrorKind::Stale);
    assert!(c.getattr(me, kept).is_ok() && c.getattr(me, named).is_ok());
    c.close(me, kept);
    c.close(me, named);
    c.pass_ms(2_000);
    assert_eq!(kind(c.getattr(me, kept)), ErrorKind::Stale);
    assert_eq!(c.keys("o/"), 0);
}

/// As a file that a bind mount refers to, and no program has open.
#[test]
fn what_was_only_held_before_a_restart_stays_and_gives_no_right_to_write() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let [held, open] = ["held", "open"].map(|name| {
        let file = c.create(me, ROOT, name).attr.file;
        c.unlink(me, ROOT, name).unwrap();
        file
    });
    let mut c = c.restart();
    c.rejoin(me).unwrap();
    let (files, leases) = (vec![open], vec![]);
    let says = ReassertRequest { first: true, files, held: vec![held], leases, last: true };
    c.ask(me, &says).unwrap();
    c.pass_ms(12_000);
    assert!(c.getattr(me, held).is_ok() && c.getattr(me, open).is_ok());
    me.caller = user(1000, 1000, &[]);
    let mut writes = |file| {
        let generation = c.getattr(me, file).unwrap().generation;
        let (written, ranges, sparse, durable) = (vec![], vec![], false, false);
        let size = CommitSizeRequest {
            file,
            size: 10,
            generation,
            mtime: None,
            written,
            ranges,
            sparse,
            durable,
        };
        c.make(me, &size).map(drop)
    };
    writes(open).unwrap();
    assert_eq!(kind(writes(held)), ErrorKind::AccessDenied);
    me.caller = root();
    c.close(me, held);
    c.close(me, open);
    c.pass_ms(2_000);
    assert_eq!(kind(c.getattr(me, held)), ErrorKind::Stale);
}

/// The connection breaks between two of its requests: it begins from the start.
#[test]
fn a_file_that_a_client_said_twice_to_have_open_is_closed_by_one_close() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let files = ["one", "two", "three"].map(|name| c.create(me, ROOT, name).attr.file);
    for name in ["one", "two", "three"] {
        c.unlink(me, ROOT, name).unwrap();
    }
    let mut c = c.killed();
    c.rejoin(me).unwrap();
    let says = |first, files: &[FileId], last| ReassertRequest {
        first,
        files: files.to_vec(),
        held: vec![],
        leases: vec![],
        last,
    };
    c.ask(me, &says(true, &files, false)).unwrap();
    c.pass_ms(9_000);
    c.ask(me, &says(true, &files[..1], false)).unwrap();
    // Past the time in which anything may be open: the rest is still to come.
    c.pass_ms(3_000);
    assert!(c.getattr(me, files[1]).is_ok());
    c.ask(me, &says(false, &files[1..2], false)).unwrap();
    c.ask(me, &says(false, &[], true)).unwrap();
    c.pass_ms(2_000);
    assert_eq!(kind(c.getattr(me, files[2])), ErrorKind::Stale, "it was not said again");
    for file in &files[..2] {
        assert!(c.getattr(me, *file).is_ok());
        c.close(me, *file);
    }
    c.pass_ms(2_000);
    assert_eq!(files.map(|file| kind(c.getattr(me, file))), [ErrorKind::Stale; 3]);
    assert_eq!(c.keys("o/"), 0);
}

#[test]
fn garbage_reaches_the_data_server_and_is_forgotten_when_it_confirms() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let file = open.attr.file;
    c.close(me, file);
    c.unlink(me, ROOT, "f").unwrap();
    let report = || vec![Cluster::<ModelEngine>::report(1), Cluster::<ModelEngine>::report(2)];
    let reply = c.heartbeat(1, report()).unwrap();
    assert_eq!(reply.remove, [], "a power cut could bring the name back");
    c.ask(me, &SyncMetaRequest {}).unwrap();
    c.machine.poll().unwrap();
    let reply = c.heartbeat(1, report()).unwrap();
    assert_eq!(reply.remove.len(), 2);
    assert!(reply.remove.iter().all(|(_, object)| object.file == file));
    let again = c.heartbeat(1, report()).unwrap();
    assert_eq!(again.remove, reply.remove, "named until confirmed");
    let confirm = |mut report: TargetReport| {
        let mine = again.remove.iter().filter(|(target, _)| *target == report.target);
        report.removed = mine.map(|(_, object)| *object).collect();
        report
    };
    let confirmed = report().into_iter().map(confirm).collect();
    assert_eq!(c.heartbeat(1, confirmed).unwrap().remove, []);
    assert_eq!(c.keys("g/"), 0);
    assert_eq!(c.machine.counters().objects_removed, 2);
}

#[test]
fn a_power_cut_before_the_unlink_is_durable_leaves_the_file_whole() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, ROOT, "f").attr.file;
    c.close(me, file);
    c.ask(me, &SyncMetaRequest {}).unwrap();
    c.machine.poll().unwrap();
    c.unlink(me, ROOT, "f").unwrap();
    assert_eq!(c.heartbeat(1, vec![Cluster::<ModelEngine>::report(1)]).unwrap().remove, []);
    let (now, times) = (c.now, c.times);
    let mut engine = c.machine.into_engine();
    engine.power_cut();
    let mut c = Cluster::open(engine, now, times, 9);
    assert_eq!(c.lookup(me, ROOT, "f").unwrap().file, file);
    assert_eq!(c.keys("g/"), 0);
}

#[test]
fn a_file_of_many_segments_and_attributes_goes_page_by_page() {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let spec = LayoutSpec {
        kind: LayoutKind::Fragments,
        count: 4,
        fragment_bytes: vec![4096; 200],
        copies: 2,
        ..LayoutSpec::default()
    };
    let open = c.make(me, &create_with(ROOT, "f", spec)).unwrap();
    assert!(open.more_segments);
    let file = open.attr.file;
    for n in 0..150 {
        let name = format!("user.{n}");
        let request = SetXattrRequest {
            file,
            name: name.as_bytes().into(),
            value: b"v"[..].into(),
            mode: XattrMode::Any,
        };
        c.make(me, &request).unwrap();
    }
    c.close(me, file);
    c.unlink(me, ROOT, "f").unwrap();
    assert_eq!(c.keys("q/"), 1);
    // Killed in the middle.
    c.machine.work(3, c.now).unwrap();
    let mut c = c.restart();
    c.pass_ms(2000);
    assert_eq!(c.keys("g/"), 400, "two copies of 200 fragments");
    assert_eq!((c.keys("s/"), c.keys("x/"), c.keys("q/")), (0, 0, 0));
}

#[test]
fn every_target_has_its_objects_removed_in_whatever_order_servers_have_them() {
    let mut c = Cluster::new(1);
    c.register(2, &[30, 31]).unwrap();
    c.register(3, &[20, 21]).unwrap();
    let me = &mut c.client(root());
    let open = c.make(me, &create_with(ROOT, "f", LayoutSpec::default())).unwrap();
    let count = open.layout.segments[0].columns.len();
    assert!(count >= 4);
    c.close(me, open.attr.file);
    c.unlink(me, ROOT, "f").unwrap();
    assert_eq!(c.keys("g/"), count);
}
