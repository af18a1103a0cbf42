//! What the audit records of the metadata server say, and how many a client can make.

use crate::harness::*;
use std::sync::Arc;
use weir_audit::Log;
use weir_metastore::ModelEngine;
use weir_types::{ClientId, ErrorKind, FileId, Restrictions, Squash};
use weir_wire::Op;
use weir_wire::audit::{AuditRecord, ListMetaAuditRequest};
use weir_wire::meta::LookupRequest;

const ROOT: FileId = FileId::ROOT;
const GUEST: ClientId = ClientId(77);

struct Fixture {
    c: Cluster<ModelEngine>,
    admin: Client,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(restrictions: Restrictions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut c = Cluster::new(2);
        let admin = c.client(root());
        c.set_client(GUEST, restrictions);
        c.machine.set_audit(Arc::new(Log::open(dir.path(), 1000)));
        Self { c, admin, _dir: dir }
    }

    fn records(&mut self, op: Op) -> Vec<AuditRecord> {
        let page = self.c.ask(&self.admin, &ListMetaAuditRequest { after: 0 }).unwrap();
        assert!(!page.more);
        page.records.into_iter().filter(|it| it.op == op as u16).collect()
    }
}

#[test]
fn a_squashed_client_is_recorded_as_its_user_also_where_it_may_not_administer() {
    let squash = Squash::All;
    let mut f = Fixture::new(Restrictions { squash, anon_uid: 40, ..Restrictions::NONE });
    for uid in 0..100 {
        let guest = f.c.session_of(GUEST, user(uid, 1, &[]));
        let got = f.c.ask(&guest, &ListMetaAuditRequest { after: 0 });
        assert_eq!(kind(got), ErrorKind::NotAdministrator);
    }
    let refused = f.records(Op::ListMetaAudit);
    let refused: Vec<_> = refused.iter().filter(|it| it.client == GUEST).collect();
    assert!(!refused.is_empty() && refused.iter().all(|it| it.user == 40), "{refused:?}");
}

#[test]
fn names_that_were_looked_for_in_vain_are_one_record() {
    let mut f = Fixture::new(Restrictions::NONE);
    let closed = f.c.mkdir(&mut f.admin, ROOT, "closed");
    let mode = weir_wire::meta::SetAttrRequest { mode: Some(0o700), ..set_nothing(closed) };
    f.c.make(&mut f.admin, &mode).unwrap();
    let guest = f.c.session_of(GUEST, user(5, 6, &[]));
    for n in 0..50 {
        let name = format!("guess {n}").as_bytes().into();
        let got = f.c.ask(&guest, &LookupRequest { parent: closed, name });
        assert_eq!(kind(got), ErrorKind::AccessDenied);
    }
    let refused = f.records(Op::Lookup);
    let [record] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!((record.file, record.count, &record.about[..]), (closed, 50, &b""[..]));
}

#[test]
fn a_rename_is_recorded_by_both_names() {
    let mut f = Fixture::new(Restrictions::NONE);
    let dir = f.c.mkdir(&mut f.admin, ROOT, "dir");
    f.c.mkdir(&mut f.admin, ROOT, "old");
    f.c.make(&mut f.admin, &rename_request((ROOT, "old"), (dir, "new"))).unwrap();
    let renames = f.records(Op::Rename);
    let mut names: Vec<_> = renames.iter().map(|it| (it.file, it.about.to_vec())).collect();
    names.sort_by_key(|(_, name)| name.clone());
    assert_eq!(names, [(dir, b"new".to_vec()), (ROOT, b"old".to_vec())]);
}
