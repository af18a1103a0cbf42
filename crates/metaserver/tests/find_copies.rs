//! Data servers learn where the copies of a column are, and get the right to
//! bring them up to date.

use crate::harness::*;
use weir_metastore::ModelEngine;
use weir_types::limits::MAX_FIND_COPIES;
use weir_types::{
    ColumnIndex, CopyIndex, Duplication, Encode, ErrorKind, FileId, KeyGeneration, LayoutKind,
    LayoutSpec, ObjectId, Result, SegmentIndex, ServerId, TargetId,
};
use weir_wire::Rights;
use weir_wire::capability::Check;
use weir_wire::meta::{ExtendRequest, OpenFile, SetLayoutRequest, TruncateDoneRequest};
use weir_wire::peer::{Copies, FindCopiesRequest};
use weir_wire::ticket::OF_SERVERS;

type Model = Cluster<ModelEngine>;

fn three_servers() -> Model {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    c
}

fn object(file: FileId, segment: u32, column: u16) -> ObjectId {
    let (segment, column) = (SegmentIndex(segment), ColumnIndex(column));
    ObjectId { file, segment, column, copy: CopyIndex(9) }
}

fn find(c: &mut Model, server: u32, objects: Vec<ObjectId>) -> Result<Vec<Option<Copies>>> {
    let body = FindCopiesRequest { objects }.to_bytes();
    c.send::<FindCopiesRequest>(weir_metaserver::machine::Peer::Server(ServerId(server)), &body)
}

fn one(c: &mut Model, server: u32, object: ObjectId) -> Option<Copies> {
    find(c, server, vec![object]).unwrap().remove(0)
}

fn targets(copies: &Copies) -> Vec<TargetId> {
    copies.copies.iter().map(|copy| copy.target).collect()
}

fn spec(copies: u8) -> LayoutSpec {
    LayoutSpec { copies, ..LayoutSpec::default() }
}

fn make(c: &mut Model, name: &str, spec: LayoutSpec) -> OpenFile {
    let me = &mut c.client(root());
    c.make(me, &create_with(FileId::ROOT, name, spec)).unwrap()
}

#[test]
fn the_copies_of_a_column_come_in_the_order_of_the_layout_with_the_right_to_them() {
    let mut c = three_servers();
    for copies in [1, 2, 3] {
        let open = make(&mut c, &format!("f{copies}"), spec(copies));
        let segment = open.layout.segments[0].clone();
        for (column, placed) in segment.columns.iter().enumerate() {
            let asked = object(open.attr.file, segment.index.0, column as u16);
            // Any server that has a copy.
            let server = placed.targets[0].0;
            let found = one(&mut c, server, asked).unwrap();
            assert!(c.waited_for_disk, "who hears of it acts on it");
            assert_eq!(targets(&found), placed.targets);
            assert!(found.copies.iter().all(|copy| !copy.filling));
            assert_eq!(found.generation, open.attr.generation);
            for copy in &found.copies {
                let key = master().target(copy.target, KeyGeneration(1));
                let check = |session| {
                    let check = Check {
                        target: copy.target,
                        target_key: &key,
                        session,
                        file: open.attr.file,
                        needed: Rights::READ_WRITE,
                        now_unix_ms: 1_000_001_000,
                    };
                    found.capability.check(&copy.mac, &check)
                };
                assert!(check(OF_SERVERS).is_ok(), "servers may");
                assert!(check(open.capability.capability.session).is_err(), "and nobody else");
            }
        }
        let last = segment.columns.len() as u16;
        let file = open.attr.file;
        assert_eq!(one(&mut c, 1, object(file, segment.index.0, last)), None, "no such column");
        assert_eq!(one(&mut c, 1, object(file, segment.index.0 + 1, 0)), None, "no such segment");
    }
}

#[test]
fn a_server_without_a_copy_learns_where_they_are_and_gets_no_right() {
    let mut c = three_servers();
    let open = make(&mut c, "f", LayoutSpec { count: 1, ..spec(2) });
    let placed = open.layout.segments[0].columns[0].targets.clone();
    let other = (1..=3).find(|t| !placed.contains(&TargetId(*t))).unwrap();
    let asked = object(open.attr.file, open.layout.segments[0].index.0, 0);
    let found = one(&mut c, other, asked).unwrap();
    assert_eq!((targets(&found), found.capability.rights), (placed.clone(), Rights::NONE));
    let found = one(&mut c, placed[1].0, asked).unwrap();
    assert_eq!(found.capability.rights, Rights::READ_WRITE);
}

/// Of the truncation's own generation it would count as done: a seed of the simulator found bytes
/// that had been cut off.
#[test]
fn who_makes_a_copy_does_not_fence_as_a_truncation_that_nobody_has_finished() {
    let mut c = three_servers();
    let open = make(&mut c, "f", spec(2));
    let (file, segment) = (open.attr.file, open.layout.segments[0].clone());
    let me = &mut c.client(root());
    c.make(me, &commit(&open, 10_000)).unwrap();
    let found = |c: &mut Model| {
        let found = one(c, segment.columns[0].targets[0].0, object(file, segment.index.0, 0));
        found.map(|found| (found.generation, found.fence)).unwrap()
    };
    let (before, fence) = found(&mut c);
    assert_eq!(fence, before);
    c.make(me, &set_size(file, 5_000)).unwrap();
    let (cut, fence) = found(&mut c);
    assert!(before <= fence && fence < cut);
    // The layout changes: what went by the old one is fenced off, and the cut still to be made.
    let layout = LayoutSpec { duplication: Some(Duplication::ClientSync), ..spec(2) };
    c.make(me, &SetLayoutRequest { file, layout: Some(layout) }).unwrap();
    let (moved, fence) = found(&mut c);
    assert!(cut < fence && fence < moved);
    c.make(me, &TruncateDoneRequest { file, generation: moved }).unwrap();
    assert_eq!(found(&mut c), (moved, moved));
}

#[test]
fn a_file_has_its_objects_until_it_is_closed_and_no_longer() {
    let mut c = three_servers();
    let me = &mut c.client(root());
    let open = c.make(me, &create_with(FileId::ROOT, "f", spec(2))).unwrap();
    let asked = object(open.attr.file, open.layout.segments[0].index.0, 0);
    c.unlink(me, FileId::ROOT, "f").unwrap();
    assert!(one(&mut c, 1, asked).is_some(), "it is open");
    c.close(me, open.attr.file);
    c.pass_ms(1000);
    assert_eq!(one(&mut c, 1, asked), None);
    assert_eq!(one(&mut c, 1, object(FileId::ROOT, 0, 0)), None, "a directory has none");
    // One that is emptied has others.
    let me = &mut c.client(root());
    let open = c.make(me, &create_with(FileId::ROOT, "g", spec(2))).unwrap();
    let first = object(open.attr.file, open.layout.segments[0].index.0, 0);
    let emptied = c.make(me, &set_size(open.attr.file, 0)).unwrap();
    assert_eq!(one(&mut c, 1, first), None);
    let asked = object(open.attr.file, emptied.layout.segments[0].index.0, 0);
    assert_eq!(one(&mut c, 1, asked).unwrap().generation, emptied.attr.generation);
}

#[test]
fn any_of_many_segments_is_found_whatever_their_sizes() {
    let mut c = three_servers();
    let me = &mut c.client(root());
    let chunked = LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 4096, ..spec(2) };
    let mut open = c.make(me, &create_with(FileId::ROOT, "f", chunked)).unwrap();
    let file = open.attr.file;
    // A second list, so that numbers do not begin at 0.
    open = c.make(me, &set_size(file, 0)).unwrap();
    let first = open.layout.segments[0].index.0;
    assert!(first > 0);
    for _ in 0..2 {
        c.make(me, &ExtendRequest::covering(file, 1000 * 4096 - 1)).unwrap();
    }
    let all: Vec<ObjectId> = (0..1000).map(|n| object(file, first + n, 0)).collect();
    for page in all.chunks(MAX_FIND_COPIES) {
        let found = find(&mut c, 1, page.to_vec()).unwrap();
        assert!(found.iter().all(Option::is_some));
    }
    assert_eq!(one(&mut c, 1, object(file, first - 1, 0)), None);
    assert_eq!(one(&mut c, 1, object(file, first + 3000, 0)), None);
    let fragment_bytes = (0..300).map(|n| 4096 * (1 + n * n)).collect();
    let kind = LayoutKind::Fragments;
    let fragments = LayoutSpec { kind, fragment_bytes, ..LayoutSpec::default() };
    let open = c.make(me, &create_with(FileId::ROOT, "g", fragments)).unwrap();
    let first = open.layout.segments[0].index.0;
    let all = [0, 1, 63, 64, 65, 200, 299].map(|n| object(open.attr.file, first + n, 0));
    assert!(find(&mut c, 1, all.to_vec()).unwrap().iter().all(Option::is_some));
}

#[test]
fn too_many_at_a_time_are_refused_and_clients_may_not_ask() {
    let mut c = three_servers();
    let objects = vec![object(FileId(77), 0, 0); MAX_FIND_COPIES + 1];
    assert_eq!(kind(find(&mut c, 1, objects.clone())), ErrorKind::TooBig);
    assert_eq!(find(&mut c, 1, objects[1..].to_vec()).unwrap(), vec![None; MAX_FIND_COPIES]);
    let me = &mut c.client(root());
    c.ask(me, &FindCopiesRequest { objects: objects[..1].to_vec() }).unwrap_err();
}
