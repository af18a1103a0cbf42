//! Listings are stable while the directory changes.

use crate::harness::*;
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
        let request = ReaddirRequest {
            last: 0,
            dir,
            cookie,
            max_entries: 500,
            attributes: round % 2 == 0,
            layouts: false,
        };
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
    let page = |cookie, max_entries| ReaddirRequest {
        last: 0,
        dir: ROOT,
        cookie,
        max_entries,
        attributes: false,
        layouts: false,
    };
    let all = c.ask(me, &page(0, u32::MAX)).unwrap();
    assert!(all.end && all.entries.len() == 1);
    assert_eq!(c.ask(me, &page(0, 0)).unwrap().entries.len(), 1);
    let beyond = c.ask(me, &page(u64::MAX, 10)).unwrap();
    assert!(beyond.end && beyond.entries.is_empty());
}

/// The names of a listing, which goes on `after` each page of five.
fn listed(
    c: &mut Cluster<weir_metastore::ModelEngine>,
    me: &mut Client,
    dir: FileId,
    mut after: impl FnMut(&mut Cluster<weir_metastore::ModelEngine>, &mut Client, usize),
) -> Vec<String> {
    let (mut names, mut cookie, mut last) = (Vec::new(), 0, 0);
    for round in 0..1000 {
        let request =
            ReaddirRequest { last, dir, cookie, max_entries: 5, attributes: false, layouts: false };
        let page = c.ask(me, &request).unwrap();
        last = page.last;
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        names.extend(page.entries.into_iter().map(|e| String::from_utf8(e.name.0).unwrap()));
        if page.end {
            return names;
        }
        after(c, me, round);
    }
    panic!("{} entries, and no end", names.len());
}

#[test]
fn what_is_renamed_within_a_directory_is_listed_once() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    let names: Vec<String> = (0..50).map(|n| format!("n{n:02}")).collect();
    names.iter().for_each(|name| link_like(&mut c, me, dir, name));
    let there_and_back = |c: &mut Cluster<_>, me: &mut Client, _| {
        for name in &names {
            c.make(me, &rename_request((dir, name), (dir, "T"))).unwrap();
            c.make(me, &rename_request((dir, "T"), (dir, name))).unwrap();
        }
    };
    assert_eq!(listed(&mut c, me, dir, there_and_back), names);
    let to_other_names = |c: &mut Cluster<_>, me: &mut Client, round| {
        for name in &names {
            let at = |round| if round == 0 { name.clone() } else { format!("{name}-{round}") };
            c.make(me, &rename_request((dir, &at(round)), (dir, &at(round + 1)))).unwrap();
        }
    };
    let mut found = listed(&mut c, me, dir, to_other_names);
    found.iter_mut().for_each(|name| name.truncate(3));
    assert_eq!(found, names);
}

#[test]
fn a_listing_has_an_end_however_many_names_come_meanwhile() {
    let mut c = Cluster::new(0);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    let beside = c.mkdir(me, ROOT, "beside");
    (0..50).for_each(|n| link_like(&mut c, me, dir, &format!("n{n:02}")));
    let more = |c: &mut Cluster<_>, me: &mut Client, round: usize| {
        (0..10).for_each(|n| link_like(c, me, dir, &format!("new{}", round * 10 + n)));
        // By way of another directory, a name is another one each time.
        for n in 0..25 {
            let name = format!("n{n:02}");
            c.make(me, &rename_request((dir, &name), (beside, "T"))).unwrap();
            c.make(me, &rename_request((beside, "T"), (dir, &name))).unwrap();
        }
    };
    let found = listed(&mut c, me, dir, more);
    assert!(found.len() <= 50, "{found:?}");
    for n in 25..50 {
        let name = format!("n{n}");
        assert_eq!(found.iter().filter(|found| **found == name).count(), 1, "{name} stayed");
    }
    let all = listed(&mut c, me, dir, |_, _, _| ());
    assert!(all.len() > 50 && !found.iter().any(|name| !all.contains(name)));
}

/// Those that a page has no room for come with the next one.
#[test]
fn layouts_come_with_the_names_for_those_who_may_read_and_only_as_many_as_fit() {
    const FILES: usize = 900;
    let mut c = Cluster::new(64);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    for n in 0..FILES {
        let file = c.create(me, dir, &format!("f{n}"));
        c.close(me, file.attr.file);
    }
    c.mkdir(me, dir, "below");
    let (mut layouts, mut pages, mut cookie, mut last) = (0, 0, 0, 0);
    loop {
        let (max_entries, attributes) = (1_024, true);
        let request = ReaddirRequest { last, dir, cookie, max_entries, attributes, layouts: true };
        let page = c.ask(me, &request).unwrap();
        pages += 1;
        let found = page.entries.iter().filter_map(|entry| entry.layout.as_ref());
        let columns = found.map(|layout| layout.segments[0].columns.len());
        layouts += columns.inspect(|columns| assert_eq!(*columns, 64)).count();
        assert!(!page.entries.is_empty() && page.entries.iter().all(|entry| entry.attr.is_some()));
        (cookie, last) = (page.entries[page.entries.len() - 1].cookie, page.last);
        if page.end {
            break;
        }
    }
    // 64 columns of a file take some 500 bytes.
    assert_eq!(layouts, FILES);
    assert!((2..=4).contains(&pages), "{pages}");

    let secret =
        SetAttrRequest { mode: Some(0o600), ..set_nothing(c.lookup(me, dir, "f0").unwrap().file) };
    c.make(me, &secret).unwrap();
    let other = c.client(user(7, 7, &[]));
    let request =
        ReaddirRequest { last: 0, dir, cookie: 0, max_entries: 2, attributes: true, layouts: true };
    let page = c.ask(&other, &request).unwrap();
    assert!(page.entries[0].attr.is_some() && page.entries[0].layout.is_none());
    assert!(page.entries[1].layout.is_some());

    // Who may list the directory but not search it gets the names alone.
    let listed_only = SetAttrRequest { mode: Some(0o744), ..set_nothing(dir) };
    c.make(me, &listed_only).unwrap();
    let page = c.ask(&other, &request).unwrap();
    assert!(page.entries.len() == 2 && page.entries.iter().all(|entry| entry.layout.is_none()));
}
