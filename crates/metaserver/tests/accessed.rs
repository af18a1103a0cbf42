//! What clients say of when files were read.

use crate::harness::*;
use weir_metastore::Engine;
use weir_types::{Attr, ClientId, FileId, Restrictions, Squash, Timestamp};
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;
const HOUR_MS: u64 = 3_600_000;

fn read<E: Engine>(c: &Cluster<E>, file: FileId, age_ms: u64, always: bool) -> AccessedRequest {
    let at = Timestamp(c.now.unix.0 - age_ms as i64 * 1_000_000);
    AccessedRequest { files: vec![FileAccess { file, at, always }] }
}

fn reads<E: Engine>(
    c: &mut Cluster<E>,
    who: &Client,
    (file, age_ms, always): (FileId, u64, bool),
) -> weir_types::Result<()> {
    let request = read(c, file, age_ms, always);
    c.ask(who, &request)
}

#[test]
fn a_time_of_access_goes_on_after_a_change_or_a_day_and_never_back() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let file = c.create(me, ROOT, "f").attr.file;
    let begin = c.getattr(me, file).unwrap();
    c.pass_ms(10_000);
    reads(&mut c, me, (file, 4_000, false)).unwrap();
    let first = c.getattr(me, file).unwrap();
    let ns = |ms: i64| ms * 1_000_000;
    assert_eq!(first.atime.0, begin.atime.0 + ns(6_000), "it was read four seconds ago");
    assert_eq!(Attr { atime: begin.atime, ..first.clone() }, begin, "nothing else changes");
    c.pass_ms(10_000);
    reads(&mut c, me, (file, 0, false)).unwrap();
    assert_eq!(c.getattr(me, file).unwrap().atime, first.atime, "nothing has changed since");
    reads(&mut c, me, (file, 15_000, true)).unwrap();
    assert_eq!(c.getattr(me, file).unwrap().atime, first.atime, "it was read later than that");
    reads(&mut c, me, (file, 1_000, true)).unwrap();
    let always = c.getattr(me, file).unwrap();
    assert_eq!(always.atime.0, begin.atime.0 + ns(19_000));
    let old = Some(SetTime::At(Timestamp(always.atime.0 - ns(25 * HOUR_MS as i64))));
    c.make(me, &SetAttrRequest { atime: old, mtime: old, ..set_nothing(file) }).unwrap();
    c.pass_ms(1_000);
    reads(&mut c, me, (file, 0, false)).unwrap();
    assert!(c.getattr(me, file).unwrap().atime > always.atime, "a day has passed");
    // What has gone is no error.
    let more = AccessedRequest {
        files: [99, file.0]
            .map(|n| FileAccess { file: FileId(n), at: c.now.unix, always: true })
            .into(),
    };
    c.ask(me, &more).unwrap();
    let many = AccessedRequest { files: vec![more.files[0]; 33] };
    assert!(c.ask(me, &many).is_err());
}

#[test]
fn nobody_says_it_of_files_that_it_may_not_read() {
    let mut c = Cluster::new(1);
    let admin = &mut c.client(root());
    let dir = c.mkdir(admin, ROOT, "d");
    let file = c.create(admin, ROOT, "f").attr.file;
    c.close(admin, file);
    let mode = SetAttrRequest { mode: Some(0o600), ..set_nothing(file) };
    c.make(admin, &mode).unwrap();
    let before = c.getattr(admin, file).unwrap().atime;
    c.pass_ms(5_000);
    let keys = [
        Restrictions { read_only: true, ..Restrictions::NONE },
        Restrictions { squash: Squash::Root, ..Restrictions::NONE },
        Restrictions { subtree: Some(dir), ..Restrictions::NONE },
    ];
    for (n, restrictions) in keys.into_iter().enumerate() {
        let client = ClientId(70 + n as u64);
        c.set_client(client, restrictions);
        let guest = c.session_of(client, root());
        let told = reads(&mut c, &guest, (file, 0, true));
        match restrictions.read_only {
            // So that it does not ask again.
            true => assert_eq!(told.unwrap_err().kind, weir_types::ErrorKind::ReadOnly),
            false => {
                told.unwrap();
            }
        }
        assert_eq!(c.getattr(admin, file).unwrap().atime, before, "{restrictions:?}");
    }
    // The root of a subtree is the root to its client.
    let guest = c.session_of(ClientId(72), root());
    reads(&mut c, &guest, (ROOT, 0, true)).unwrap();
    assert!(c.getattr(admin, dir).unwrap().atime > before);
    reads(&mut c, admin, (file, 0, true)).unwrap();
    assert!(c.getattr(admin, file).unwrap().atime > before);
}
