//! A snapshot of the metadata, saved and restored.

use crate::harness::*;
use weir_metaserver::keys::WorkingKeys;
use weir_metaserver::restore::{ExportHeader, ExportWriter, Sequence, restore};
use weir_metaserver::schema::{self, key};
use weir_metastore::{Engine, ModelEngine, Tx, transact};
use weir_types::codec::Bytes;
use weir_types::{ClientId, Error, ErrorKind, FileId, SessionId, TargetId};
use weir_wire::handshake::Identity;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn ask_for(snapshot: u64, next: Option<ExportPlace>) -> ExportMetaRequest {
    let start = ExportPlace { key: Bytes(Vec::new()), offset: 0 };
    ExportMetaRequest { snapshot, place: next.unwrap_or(start) }
}

/// Reads a snapshot page by page; `meanwhile` is done between the pages.
fn export<E: Engine>(
    c: &mut Cluster<E>,
    admin: &Client,
    mut meanwhile: impl FnMut(&mut Cluster<E>, usize),
) -> (ExportPage, Records) {
    let first = c.ask(admin, &ask_for(0, None)).unwrap();
    let (mut records, mut page) = (Records::new(), first.clone());
    for number in 0.. {
        for ExportRecord { key, value } in &page.records {
            match records.last_mut() {
                Some((last, rest)) if *last == key.0 => rest.extend_from_slice(&value.0),
                _ => records.push((key.0.clone(), value.0.clone())),
            }
        }
        let Some(next) = page.next else { break };
        meanwhile(c, number);
        page = c.ask(admin, &ask_for(first.snapshot, Some(next))).unwrap();
        assert!(!page.records.is_empty(), "every page gets on");
    }
    (first, records)
}

fn all(engine: &impl Engine) -> Records {
    let rows = engine.range(&[0], &[0xff; 1025], usize::MAX).unwrap();
    rows.into_iter().map(|(key, row)| (key.to_vec(), row.value.to_vec())).collect()
}

fn file_of(page: &ExportPage, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let header = ExportHeader { cluster: page.cluster, sequence: Sequence(page.sequence) };
    let mut writer = ExportWriter::new(Vec::new(), header).unwrap();
    for (key, value) in records {
        writer.record(key, value).unwrap();
    }
    writer.finish().unwrap().0
}

#[test]
fn an_export_is_of_one_moment_though_the_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    export_while_busy(Cluster::new(2));
    export_while_busy(Cluster::on(embedded(dir.path()), 2));
}

fn export_while_busy<E: Engine>(mut c: Cluster<E>) {
    let me = &mut c.client(root());
    let d = c.mkdir(me, ROOT, "d");
    for n in 0..900 {
        c.create(me, d, &format!("a rather long name of a file, number {n:04}"));
    }
    // A record that no page holds whole.
    let large = vec![3; 900_000];
    transact(c.machine.engine_mut(), |tx| Ok::<_, Error>(tx.put(b"zz", &large)?)).unwrap();
    c.machine.flush().unwrap();
    let expected = all(c.machine.engine());
    let sequence = c.machine.engine().sequence();
    let writer = std::cell::RefCell::new(me.clone());
    let mut pages = 0;
    let (first, records) = export(&mut c, me, |c, number| {
        pages += 1;
        let me = &mut writer.borrow_mut();
        c.unlink(me, d, &format!("a rather long name of a file, number {number:04}")).unwrap();
        c.mkdir(me, ROOT, &format!("new-{number}"));
    });
    assert!(pages >= 4, "{pages}");
    assert!(records == expected, "as when it began");
    assert_eq!((first.cluster, first.sequence), (CLUSTER, sequence.0));
}

#[test]
fn what_is_imported_is_the_same_file_system_and_repeats_no_id() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let d = c.mkdir(me, ROOT, "d");
    let f = c.create(me, d, "f").attr.file;
    c.close(me, f);
    let (page, records) = export(&mut c, me, |_, _| ());
    let saved = file_of(&page, &records);
    // After the export: an id that the export does not know of.
    let late = c.create(me, d, "late").attr.file;

    let mut engine = ModelEngine::new();
    let restored = restore(&mut engine, &saved[..]).unwrap();
    // Keys may have been rotated since.
    let keys = Tx::new(&engine).get(key::WORKING_KEYS).unwrap().unwrap();
    let keys: WorkingKeys = schema::decode(&keys, "of working keys").unwrap();
    assert_eq!(keys.oldest(TargetId(1), 0), keys.generation());
    assert!(keys.generation() > WorkingKeys::default().generation());
    assert_eq!(restored.totals.records, records.len() as u64);
    assert_eq!(engine.synced(), engine.sequence(), "it is durable");
    let mut again = Cluster::open(engine, c.now, c.times, 9);
    let me = &mut again.client(root());
    assert_eq!(again.list(me, ROOT), ["d"]);
    assert_eq!(again.list(me, d), ["f"]);
    assert_eq!(again.lookup(me, d, "f").unwrap().file, f);
    again.register(1, &[1, 2]).unwrap();
    let new = again.create(me, d, "new").attr.file;
    assert!(new.0 > late.0 + 1_000_000, "{new} could be an id from after the export");
}

#[test]
fn a_damaged_export_makes_no_file_system() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let (page, records) = export(&mut c, me, |_, _| ());
    let saved = file_of(&page, &records);
    for at in [0, 45, saved.len() / 2, saved.len() - 1] {
        let mut flipped = saved.clone();
        flipped[at] ^= 4;
        for bytes in [&flipped[..], &saved[..at]] {
            let mut engine = ModelEngine::new();
            assert_eq!(restore(&mut engine, bytes).unwrap_err().kind, ErrorKind::Corrupt);
            let opened =
                weir_metaserver::MetaMachine::open(engine, c.times, master(), [0; 32], c.now);
            assert_eq!(opened.err().unwrap().kind, ErrorKind::NotFound);
        }
    }
    let mut used = ModelEngine::new();
    restore(&mut used, &saved[..]).unwrap();
    assert_eq!(restore(&mut used, &saved[..]).unwrap_err().kind, ErrorKind::Exists);
}

#[test]
fn only_administrators_export_and_each_only_its_own() {
    let mut c = Cluster::new(1);
    let admin = c.client(root());
    let first = c.ask(&admin, &ask_for(0, None)).unwrap();
    let hello = Cluster::<ModelEngine>::hello(Identity::Client(ClientId(77)), SessionId(0));
    let session = c.machine.welcome(&hello, c.now).unwrap().session;
    let other = Client { session, next: 1, caller: root() };
    for snapshot in [0, first.snapshot] {
        let refused = c.ask(&other, &ask_for(snapshot, None));
        assert_eq!(kind(refused), ErrorKind::NotAdministrator);
    }
    assert_eq!(kind(c.ask(&admin, &ask_for(99, None))), ErrorKind::Stale);
}

#[test]
fn snapshots_are_few_and_are_forgotten() {
    let mut c = Cluster::new(1);
    // More than a page, so that none has been read to its end.
    let large = vec![3; 300_000];
    transact(c.machine.engine_mut(), |tx| Ok::<_, Error>(tx.put(b"zz", &large)?)).unwrap();
    let admin = c.client(root());
    let first = c.ask(&admin, &ask_for(0, None)).unwrap().snapshot;
    for _ in 0..3 {
        c.ask(&admin, &ask_for(0, None)).unwrap();
    }
    assert_eq!(kind(c.ask(&admin, &ask_for(0, None))), ErrorKind::Busy);
    // One that was read to its end makes room at once.
    let (done, _) = {
        c.pass_ms(6_000);
        c.ask(&admin, &ask_for(first, None)).unwrap();
        export(&mut c, &admin, |_, _| ())
    };
    let next = c.ask(&admin, &ask_for(0, None)).unwrap().snapshot;
    assert_eq!(kind(c.ask(&admin, &ask_for(done.snapshot, None))), ErrorKind::Stale);
    assert!(next > done.snapshot);
    c.pass_ms(10_000);
    c.ask(&admin, &ask_for(first, None)).unwrap();
    // In the place of one that nobody has asked for.
    c.ask(&admin, &ask_for(0, None)).unwrap();
    c.ask(&admin, &ask_for(first, None)).unwrap();
    for _ in 0..5 {
        c.pass_ms(20_000);
        c.ask(&admin, &ask_for(first, None)).unwrap();
    }
    c.pass_ms(70_000);
    let me = c.client(root());
    assert_eq!(kind(c.ask(&me, &ask_for(first, None))), ErrorKind::Stale);
}

#[test]
fn places_that_no_page_gave_do_no_harm() {
    let mut c = Cluster::new(1);
    let admin = c.client(root());
    for (key, offset) in [(&b"m/format"[..], u64::MAX), (b"nothing", 7), (&[0xff; 3000], 1)] {
        let place = ExportPlace { key: Bytes(key.to_vec()), offset };
        let answer = c.ask(&admin, &ExportMetaRequest { snapshot: 0, place });
        assert!(answer.is_err_and(|e| e.kind == ErrorKind::InvalidArgument) || key.len() == 3000);
    }
}
