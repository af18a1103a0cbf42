//! Listings are stable while the directory changes.
#![allow(clippy::unwrap_used)]

mod harness;
use harness::*;
use std::collections::BTreeSet;
use weir_types::FileId;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;

#[test]
fn entries_that_stay_are_listed_once_whatever_else_happens() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    for n in 0..10_000 {
        link_like(&mut c, me, dir, &format!("n{n:05}"));
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    for round in 0.. {
        let request = ReaddirRequest { dir, cookie, max_entries: 500, attributes: round % 2 == 0 };
        let page = c.ask(me, &request).unwrap();
        for entry in &page.entries {
            assert!(entry.cookie > cookie);
            assert_eq!(entry.attr.is_some(), round % 2 == 0);
            cookie = entry.cookie;
            seen.push(String::from_utf8(entry.name.0.clone()).unwrap());
        }
        if page.end {
            break;
        }
        // Behind and ahead of the listing: removed, added, renamed, replaced.
        for n in 0..20 {
            let doomed = format!("n{:05}", (round * 977 + n * 31) % 5_000 * 2 + 1);
            if c.lookup(me, dir, &doomed).is_ok() {
                c.unlink(me, dir, &doomed).unwrap();
            }
            link_like(&mut c, me, dir, &format!("new-{round}-{n}"));
        }
        let kept = format!("n{:05}", round * 2 % 10_000);
        link_like(&mut c, me, dir, "temporary");
        c.make(me, &rename_request((dir, "temporary"), (dir, &kept))).unwrap();
    }
    let unique: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "nothing twice");
    for n in (0..10_000).step_by(2) {
        assert!(unique.contains(&format!("n{n:05}")), "{n} was there all the while");
    }
}

fn link_like(
    c: &mut Cluster<weir_metastore::ModelEngine>,
    me: &mut Client,
    dir: FileId,
    name: &str,
) {
    let target = b"t"[..].into();
    c.make(me, &SymlinkRequest { parent: dir, name: name.as_bytes().into(), target }).unwrap();
}

#[test]
fn odd_requests_get_an_answer() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    c.mkdir(me, ROOT, "d");
    let page =
        |cookie, max_entries| ReaddirRequest { dir: ROOT, cookie, max_entries, attributes: false };
    let all = c.ask(me, &page(0, u32::MAX)).unwrap();
    assert!(all.end && all.entries.len() == 1);
    assert_eq!(c.ask(me, &page(0, 0)).unwrap().entries.len(), 1);
    let beyond = c.ask(me, &page(u64::MAX, 10)).unwrap();
    assert!(beyond.end && beyond.entries.is_empty());
}
