//! Stores of earlier releases, and what the version of a store says (`docs/format-meta.md`).

use crate::harness::*;
use weir_metaserver::schema::{self, Inode, key};
use weir_metastore::{Engine, ModelEngine, transact};
use weir_types::{Attr, Error, FileId};
use weir_wire::meta::*;
use weir_wire::quota::*;

const ROOT: FileId = FileId::ROOT;

fn version<E: Engine>(c: &Cluster<E>) -> u8 {
    c.machine.engine().get(key::FORMAT).unwrap().unwrap().value[0]
}

/// The store as the release of commit fc0abde would have left it: its inodes end with what only
/// their kind has, and it is of version 2.
fn age<E: Engine>(c: &mut Cluster<E>) {
    transact(c.machine.engine_mut(), |tx| {
        let (start, end) = key::inodes();
        for (at, bytes) in tx.range(&start, &end, 1000)? {
            let inode: Inode = schema::decode(&bytes, "x")?;
            assert!(!inode.has_acl && !inode.has_default_acl);
            let shorter = schema::encode(&Inode { birth: None, ..inode });
            // A time that may be missing, and whether there are two kinds of lists.
            assert_eq!(shorter.len() + 11, bytes.len());
            tx.put(&at, &shorter)?;
        }
        let mut format = tx.get(key::FORMAT)?.unwrap().to_vec();
        format[0] = 2;
        tx.put(key::FORMAT, &format)?;
        Ok::<_, Error>(())
    })
    .unwrap();
    c.machine.engine_mut().sync().unwrap();
}

/// Files, a directory, a link to a file and one with a size.
fn fill<E: Engine>(c: &mut Cluster<E>, me: &mut Client) -> Vec<(FileId, String)> {
    let dir = c.mkdir(me, ROOT, "dir");
    let mut all = vec![(ROOT, "dir".to_owned())];
    for n in 0..20 {
        let name = format!("f{n}");
        let open = c.create(me, if n % 2 == 0 { ROOT } else { dir }, &name);
        c.make(me, &commit(&open, 1000 * n)).unwrap();
        c.close(me, open.attr.file);
        all.push((if n % 2 == 0 { ROOT } else { dir }, name));
    }
    let target = b"f0"[..].into();
    let symlink = SymlinkRequest { parent: dir, name: b"link"[..].into(), target };
    c.make(me, &symlink).unwrap();
    all.push((dir, "link".to_owned()));
    all
}

fn attrs<E: Engine>(c: &mut Cluster<E>, all: &[(FileId, String)]) -> Vec<Attr> {
    let me = c.client(root());
    all.iter().map(|(dir, name)| c.lookup(&me, *dir, name).unwrap()).collect()
}

#[test]
fn a_store_from_before_times_of_birth_keeps_all_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = Cluster::on(embedded(dir.path()), 2);
    let mut me = c.client(root());
    let all = fill(&mut c, &mut me);
    let before = attrs(&mut c, &all);
    assert!(before.iter().all(|attr| attr.birth.is_some()));
    age(&mut c);
    assert_eq!(version(&c), 2);
    let mut c = c.restart_in(dir.path());
    // An older program refuses it from now on; and so it stays.
    assert_eq!(version(&c), 5);
    let mut c = {
        let kept: Vec<Attr> = before.iter().map(|a| Attr { birth: None, ..a.clone() }).collect();
        assert_eq!(attrs(&mut c, &all), kept);
        let mut c = c.restart_in(dir.path());
        assert_eq!((version(&c), attrs(&mut c, &all)), (5, kept));
        c
    };
    // Its files are changed as ever, and new ones are longer.
    let mut me = c.client(root());
    let old = before[1].file;
    let longer = c.make(&mut me, &set_size(old, 123)).unwrap().attr;
    assert_eq!((longer.size, longer.birth), (123, None));
    assert!(c.create(&mut me, ROOT, "new").attr.birth.is_some());
    let mut names = c.list(&me, ROOT);
    names.sort();
    let mut expected: Vec<&str> =
        all.iter().filter(|(dir, _)| *dir == ROOT).map(|(_, name)| name.as_str()).collect();
    expected.push("new");
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_store_is_of_another_version_as_long_as_it_has_quotas() {
    let mut c: Cluster<ModelEngine> = Cluster::new(2);
    let mut me = c.client(root());
    let all = fill(&mut c, &mut me);
    age(&mut c);
    let mut c = c.restart();
    assert_eq!(version(&c), 5);
    let before = attrs(&mut c, &all);
    let subject = QuotaSubject::User(0);
    let set = |c: &mut Cluster<ModelEngine>, change| {
        let admin = c.client(root());
        c.ask(&admin, &SetQuotaRequest { subject, change }).unwrap();
        c.pass_ms(1000);
    };
    let quotas = |c: &mut Cluster<ModelEngine>| {
        let admin = c.client(root());
        c.ask(&admin, &ListQuotasRequest { after: None, own: false }).unwrap().quotas
    };
    set(&mut c, QuotaChange::Set(QuotaLimits { bytes: None, files: Some(100) }));
    assert_eq!(version(&c), 6);
    let mut c = c.restart();
    // What the release of before has made is counted: all that is there, and the root.
    let used = quotas(&mut c)[0].used_files;
    assert_eq!((version(&c), used as usize), (6, all.len() + 1));
    assert_eq!(quotas(&mut c)[0].used_bytes, (0..20).map(|n| 1000 * n).sum::<u64>());
    assert_eq!(attrs(&mut c, &all), before);
    set(&mut c, QuotaChange::Remove);
    assert_eq!(version(&c), 5);
    let mut c = c.restart();
    assert_eq!((version(&c), quotas(&mut c).len(), attrs(&mut c, &all)), (5, 0, before));
}

/// The store as the release of commit b7e311f would have left it.
fn age_to_no_holes<E: Engine>(c: &mut Cluster<E>, version: u8) {
    transact(c.machine.engine_mut(), |tx| {
        let mut format = tx.get(key::FORMAT)?.unwrap().to_vec();
        format[0] = version;
        tx.put(key::FORMAT, &format)?;
        Ok::<_, Error>(())
    })
    .unwrap();
    c.machine.engine_mut().sync().unwrap();
}

#[test]
fn files_from_before_holes_were_known_have_none_until_they_are_made() {
    for (before, after) in [(3, 5), (4, 6)] {
        let mut c: Cluster<ModelEngine> = Cluster::new(2);
        let mut me = c.client(root());
        let all = fill(&mut c, &mut me);
        let old = attrs(&mut c, &all);
        age_to_no_holes(&mut c, before);
        let mut c = c.restart();
        assert_eq!((version(&c), attrs(&mut c, &all)), (after, old.clone()));
        assert!(old.iter().all(|attr| !attr.sparse));
        let mut me = c.client(root());
        let longer = c.make(&mut me, &set_size(old[3].file, 1 << 20)).unwrap().attr;
        assert!(longer.sparse);
        let mut c = c.restart();
        assert_eq!((version(&c), attrs(&mut c, &all)[3].sparse), (after, true));
    }
}
