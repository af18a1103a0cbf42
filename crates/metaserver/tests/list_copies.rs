//! A data server that has lost what it knew of copies learns which it should have.

use crate::harness::*;
use std::collections::BTreeSet;
use weir_metastore::ModelEngine;
use weir_types::limits::MAX_OBJECT_PAGE;
use weir_types::{
    Encode, ErrorKind, FileId, LayoutKind, LayoutSpec, ObjectId, Result, Segment, ServerId,
    TargetId,
};
use weir_wire::meta::{ExtendRequest, OpenFile};
use weir_wire::peer::{CopyPage, ListCopiesRequest};

type Model = Cluster<ModelEngine>;

const ALL: (FileId, FileId) = (FileId(0), FileId(u64::MAX));

fn three_servers() -> Model {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    c
}

fn page(
    c: &mut Model,
    server: u32,
    target: u32,
    (start, end): (FileId, FileId),
    after: Option<ObjectId>,
) -> Result<CopyPage> {
    let body = ListCopiesRequest { target: TargetId(target), start, end, after }.to_bytes();
    c.send::<ListCopiesRequest>(weir_metaserver::machine::Peer::Server(ServerId(server)), &body)
}

/// Everything, and in how many pages it came.
fn list(c: &mut Model, target: u32, files: (FileId, FileId)) -> (Vec<ObjectId>, usize) {
    let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = page(c, target, target, files, after).unwrap();
        assert!(c.waited_for_disk, "what is not named is forgotten");
        assert!(page.objects.len() <= MAX_OBJECT_PAGE);
        all.extend(page.objects);
        pages += 1;
        assert!(page.next.is_none() || page.next > after, "it gets on");
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert!(all.is_sorted_by(|a, b| a < b));
    (all, pages)
}

fn make(c: &mut Model, name: &str, spec: LayoutSpec) -> OpenFile {
    let me = &mut c.client(root());
    c.make(me, &create_with(FileId::ROOT, name, spec)).unwrap()
}

fn of_segments(file: FileId, segments: &[Segment], target: u32) -> BTreeSet<ObjectId> {
    let mut found = BTreeSet::new();
    for segment in segments {
        for (column, placed) in (0u16..).zip(&segment.columns) {
            for (copy, _) in placed.copies().filter(|(_, t)| t.0 == target) {
                let column = weir_types::ColumnIndex(column);
                found.insert(ObjectId { file, segment: segment.index, column, copy });
            }
        }
    }
    found
}

#[test]
fn exactly_the_copies_that_have_others_are_named_for_each_target() {
    let mut c = three_servers();
    let mut wanted = vec![BTreeSet::new(); 4];
    let mut files = Vec::new();
    for n in 0..40 {
        let copies = 1 + n % 3;
        let open = make(&mut c, &format!("f{n}"), LayoutSpec { copies, ..LayoutSpec::default() });
        files.push(open.attr.file);
        for target in 1..=3 {
            if copies > 1 {
                let of_it = of_segments(open.attr.file, &open.layout.segments, target);
                wanted[target as usize].extend(of_it);
            }
        }
    }
    for target in 1..=3 {
        let (found, _) = list(&mut c, target, ALL);
        assert_eq!(BTreeSet::from_iter(found), wanted[target as usize]);
        let some = (files[10], files[20]);
        let (found, _) = list(&mut c, target, some);
        let range = some.0..some.1;
        let of_them = wanted[target as usize].iter().filter(|o| range.contains(&o.file));
        assert_eq!(found, of_them.copied().collect::<Vec<_>>());
    }
    // Whatever has been named already is not named again.
    let (all, _) = list(&mut c, 1, ALL);
    for at in [0, all.len() / 2, all.len() - 1] {
        let rest = page(&mut c, 1, 1, ALL, Some(all[at])).unwrap();
        assert_eq!(rest.objects, all[at + 1..]);
    }
}

#[test]
fn files_of_very_many_segments_come_in_pages() {
    let mut c = three_servers();
    let me = &mut c.client(root());
    let kind = LayoutKind::Chunked;
    let chunked = LayoutSpec { kind, segment_bytes: 4096, copies: 3, ..LayoutSpec::default() };
    let open = c.make(me, &create_with(FileId::ROOT, "f", chunked.clone())).unwrap();
    // A second list, so that numbers do not begin at 0.
    let file = open.attr.file;
    c.make(me, &set_size(file, 0)).unwrap();
    for n in 1..=10 {
        c.make(me, &ExtendRequest::covering(file, n * 1000 * 4096 - 1)).unwrap();
    }
    make(&mut c, "g", chunked);
    let (found, pages) = list(&mut c, 2, ALL);
    assert!(found.len() > 10_000 && pages > 3, "{} in {pages}", found.len());
    // From any of them on, and from between them.
    for at in [0, 1, 63, 64, 65, 1000, 5000, 9999, found.len() - 2] {
        let after = found[at];
        let rest = page(&mut c, 2, 2, ALL, Some(after)).unwrap();
        assert_eq!(rest.objects.first(), found.get(at + 1), "{at}");
        let before = ObjectId { copy: weir_types::CopyIndex(200), ..after };
        let rest = page(&mut c, 2, 2, ALL, Some(before)).unwrap();
        assert_eq!(rest.objects.first(), found.get(at + 1), "{at}");
    }
}

#[test]
fn many_files_without_copies_come_in_empty_pages() {
    let mut c = three_servers();
    let me = &mut c.client(root());
    for n in 0..1500 {
        c.make(me, &create_with(FileId::ROOT, &format!("{n}"), LayoutSpec::default())).unwrap();
    }
    let (found, pages) = list(&mut c, 1, ALL);
    assert_eq!((found.len(), pages), (0, 3));
}

#[test]
fn a_target_is_asked_about_by_its_own_server_only() {
    let mut c = three_servers();
    let error = page(&mut c, 1, 2, ALL, None).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TargetMissing);
    let me = &mut c.client(root());
    let (start, end) = ALL;
    c.ask(me, &ListCopiesRequest { target: TargetId(1), start, end, after: None }).unwrap_err();
}
