//! The check of a snapshot: a healthy store has no problem, and each thing that
//! can be wrong is found and called by its name.

use crate::harness::*;
use std::collections::BTreeMap;
use weir_metaserver::audit::{Bounds, Fact, Kind, Part, Problem, SnapshotReader, Subject};
use weir_metaserver::schema::{self, Body, Dentry, Inode, Orphan, WrittenPage, key};
use weir_metastore::{Engine, ModelEngine};
use weir_types::codec::Bytes;
use weir_types::{
    ColumnIndex, CopyIndex, ErrorKind, FileId, FileKind, Filling, Generation, LayoutKind,
    LayoutSpec, ObjectId, SegmentIndex, TargetId,
};
use weir_wire::Rights;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;
const PARTS: u64 = 7;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn snapshot(engine: &impl Engine) -> Records {
    let all = engine.range(&[0], &[0xff], usize::MAX).unwrap();
    all.into_iter().map(|(key, value)| (key.to_vec(), value.value.to_vec())).collect()
}

/// Deals the facts to parts, as whoever has little memory does.
fn check(records: &Records, objects: &[(u32, ObjectId, u64)]) -> Vec<Problem> {
    let mut parts: Vec<Part> = (0..PARTS).map(|_| Part::default()).collect();
    let mut deal = |fact: Fact| {
        let copy = weir_types::Decode::from_bytes(&weir_types::Encode::to_bytes(&fact)).unwrap();
        assert_eq!(fact, copy);
        parts[(fact.unit() % PARTS) as usize].add(fact);
    };
    let mut reader = SnapshotReader::new();
    for (key, value) in records {
        reader.record(key, value, &mut deal);
    }
    let ids_end = reader.ids_end();
    let removed = reader.removed().clone();
    let mut problems = reader.finish(&mut deal);
    for &(target, object, len) in objects {
        deal(Fact::Object { target: TargetId(target), object, len });
    }
    let listed = (1..=9).map(TargetId).collect();
    let bounds = Bounds { listed, ids_end, removed, ..Bounds::default() };
    problems.extend(parts.into_iter().flat_map(|part| part.judge(&bounds)));
    problems
}

fn kinds(problems: &[Problem]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = problems.iter().map(|p| p.kind).collect();
    kinds.sort();
    kinds
}

fn object(file: FileId, segment: u32, column: u16) -> ObjectId {
    let (segment, column) = (SegmentIndex(segment), ColumnIndex(column));
    ObjectId { file, segment, column, copy: CopyIndex(0) }
}

fn written(segment: u32, start: u64, columns: &[u8]) -> WrittenColumns {
    WrittenColumns { segment: SegmentIndex(segment), start, columns: Bytes(columns.to_vec()) }
}

/// A namespace in which everything occurs: also what is on its way out.
struct World {
    cluster: Cluster<ModelEngine>,
    dir: FileId,
    sub: FileId,
    file: FileId,
    link: FileId,
}

fn world() -> World {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "dir");
    let sub = c.mkdir(me, dir, "sub");
    for n in 0..20 {
        c.create(me, sub, &format!("file-{n}"));
    }
    let open = c.create(me, dir, "file");
    let file = open.attr.file;
    let commit =
        CommitSizeRequest { written: vec![written(0, 0, &[0b0011])], ..commit(&open, 70_000) };
    c.make(me, &commit).unwrap();
    c.make(me, &LinkRequest { file, parent: sub, name: (&b"second"[..]).into() }).unwrap();
    let value = (&b"value"[..]).into();
    let name = || (&b"user.a"[..]).into();
    c.make(me, &SetXattrRequest { file, name: name(), value, mode: XattrMode::Any }).unwrap();
    let link =
        SymlinkRequest { parent: dir, name: (&b"link"[..]).into(), target: (&b"file"[..]).into() };
    let link = c.make(me, &link).unwrap().file;
    // Unlinked while open, unlinked when closed, emptied, and of many segments.
    c.create(me, ROOT, "open");
    c.unlink(me, ROOT, "open").unwrap();
    let closed = c.create(me, ROOT, "closed").attr.file;
    c.close(me, closed);
    c.unlink(me, ROOT, "closed").unwrap();
    let emptied = c.create(me, ROOT, "emptied").attr.file;
    c.make(me, &set_size(emptied, 5)).unwrap();
    c.make(me, &set_size(emptied, 0)).unwrap();
    let chunks =
        LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 65_536, ..Default::default() };
    let many = c.make(me, &create_with(ROOT, "many", chunks)).unwrap().attr.file;
    c.make(me, &ExtendRequest::covering(many, 65_536 * 150)).unwrap();
    c.make(me, &rename_request((dir, "sub"), (ROOT, "moved"))).unwrap();
    World { cluster: c, dir, sub, file, link }
}

impl World {
    fn records(&self) -> Records {
        snapshot(self.cluster.machine.engine())
    }

    /// The objects of the one file that has data.
    fn objects(&self) -> Vec<(u32, ObjectId, u64)> {
        let layout = self.layout();
        let target = |c: usize| layout[0].columns[c].targets[0].0;
        vec![
            (target(0), object(self.file, layout[0].index.0, 0), 65_536),
            (target(1), object(self.file, layout[0].index.0, 1), 70_000 - 65_536),
        ]
    }

    fn layout(&self) -> Vec<weir_types::Segment> {
        let bytes = self.records()[&key::segments(self.file, 0, 0)].clone();
        schema::decode::<schema::SegmentPage>(&bytes, "").unwrap().segments
    }
}

fn change_inode(records: &mut Records, file: FileId, change: impl FnOnce(&mut Inode)) {
    let bytes = records.get_mut(&key::inode(file)).unwrap();
    let mut inode: Inode = schema::decode(bytes, "").unwrap();
    change(&mut inode);
    *bytes = schema::encode(&inode);
}

#[test]
fn a_healthy_store_has_no_problem_at_any_time() {
    let mut world = world();
    let objects = world.objects();
    assert_eq!(check(&world.records(), &objects), []);
    for _ in 0..20 {
        world.cluster.pass_ms(700);
        assert_eq!(check(&world.records(), &objects), []);
    }
}

#[test]
fn each_contradiction_among_names_is_found() {
    let world = world();
    let (dir, sub, file) = (world.dir, world.sub, world.file);
    let objects = world.objects();
    type Damage<'a> = Box<dyn Fn(&mut Records) + 'a>;
    let remove = |key: Vec<u8>| -> Damage<'_> {
        Box::new(move |records| drop(records.remove(&key).expect("there is such a record")))
    };
    let cookie = |name: &[u8]| {
        let bytes = &world.records()[&key::dentry(dir, name)];
        schema::decode::<Dentry>(bytes, "").unwrap().cookie
    };
    let put = |key: Vec<u8>, value: Vec<u8>| -> Damage<'_> {
        Box::new(move |records| drop(records.insert(key.clone(), value.clone())))
    };
    let name = |file, kind, cookie| schema::encode(&Dentry { file, kind, cookie });
    let nowhere = FileId(100_000);
    let cases: Vec<(&str, Damage<'_>, Vec<Kind>)> = vec![
        ("a lost listing entry", remove(key::listing(dir, cookie(b"file"))), vec![Kind::Name]),
        ("a lost name", remove(key::dentry(dir, b"file")), vec![Kind::Name, Kind::Count]),
        (
            "a name of nothing",
            put(key::dentry(dir, b"x"), name(nowhere, FileKind::File, 9)),
            vec![Kind::Name, Kind::Name],
        ),
        (
            "a name of another kind",
            put(key::dentry(dir, b"file"), name(file, FileKind::Fifo, cookie(b"file"))),
            vec![Kind::Name, Kind::Name],
        ),
        ("a lost directory with a file", remove(key::inode(sub)), vec![Kind::Name, Kind::Name]),
        ("a lost symlink", remove(key::symlink(world.link)), vec![Kind::Record]),
        ("a lost attribute", remove(key::xattr(file, b"user.a")), vec![Kind::Count]),
        (
            "a lost layout",
            remove(key::segments(file, 0, 0)),
            vec![Kind::OrphanObject, Kind::OrphanObject, Kind::Layout, Kind::Leftover],
        ),
        (
            "a link too many",
            Box::new(|r| change_inode(r, file, |i| i.nlink = 3)),
            vec![Kind::Count],
        ),
        (
            "a subdirectory too many",
            Box::new(|r| change_inode(r, dir, |i| i.nlink = 3)),
            vec![Kind::Count],
        ),
        (
            "a wrong parent",
            Box::new(|r| change_inode(r, sub, |i| i.parent = dir)),
            vec![Kind::Name],
        ),
        ("a lost directory of a file", remove(key::in_directory(file, dir)), vec![Kind::Name]),
        (
            "a directory of a file too many",
            put(key::in_directory(file, nowhere), schema::encode(&1u32)),
            vec![Kind::Name],
        ),
        (
            "directories of no file",
            put(key::in_directory(nowhere, dir), schema::encode(&1u32)),
            vec![Kind::Leftover],
        ),
        (
            "a parent that has no name of the file",
            Box::new(|r| change_inode(r, file, |i| i.parent = nowhere)),
            vec![Kind::Name],
        ),
        (
            "a named orphan",
            put(key::orphan(file), schema::encode(&Orphan::default())),
            vec![Kind::Name],
        ),
        (
            "an orphan of nothing",
            put(key::orphan(nowhere), schema::encode(&Orphan::default())),
            vec![Kind::Leftover],
        ),
        (
            "ids that come again",
            put(key::IDS.to_vec(), 5u64.to_le_bytes().to_vec()),
            vec![Kind::Record],
        ),
        ("a record of another kind", put(b"z/what".to_vec(), vec![1]), vec![Kind::Record]),
        ("a damaged record", put(key::orphan(file), vec![1, 2, 3]), vec![Kind::Record]),
        (
            "marks without a layout",
            put(key::written(file, 0, 7), schema::encode(&WrittenPage::default())),
            vec![Kind::Leftover],
        ),
        (
            "a cookie that comes again",
            Box::new(|r| {
                change_inode(r, dir, |i| {
                    if let Body::Directory(body) = &mut i.body {
                        body.next_cookie = 3;
                    }
                });
            }),
            vec![Kind::Name],
        ),
        (
            "a segment number that comes again",
            Box::new(|r| {
                change_inode(r, file, |i| {
                    if let Body::File(body) = &mut i.body {
                        body.next_segment = 0;
                    }
                });
            }),
            vec![Kind::Layout],
        ),
    ];
    for (what, damage, mut expected) in cases {
        let mut records = world.records();
        damage(&mut records);
        let problems = check(&records, &objects);
        expected.sort();
        assert_eq!(kinds(&problems), expected, "{what}: {problems:#?}");
    }
}

#[test]
fn directories_in_a_loop_are_found() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let a = c.mkdir(me, ROOT, "a");
    let b = c.mkdir(me, a, "b");
    let mut records = snapshot(c.machine.engine());
    let cookie = schema::decode::<Dentry>(&records[&key::dentry(ROOT, b"a")], "").unwrap().cookie;
    // `a` moves into `b`.
    let dentry = records.remove(&key::dentry(ROOT, b"a")).unwrap();
    let listing = records.remove(&key::listing(ROOT, cookie)).unwrap();
    let moved = Dentry { cookie: 3, ..schema::decode::<Dentry>(&dentry, "").unwrap() };
    records.insert(key::dentry(b, b"a"), schema::encode(&moved));
    records.insert(key::listing(b, 3), listing);
    change_inode(&mut records, a, |inode| inode.parent = b);
    change_inode(&mut records, b, |inode| {
        inode.nlink = 3;
        if let Body::Directory(body) = &mut inode.body {
            body.next_cookie = 4;
        }
    });
    change_inode(&mut records, ROOT, |inode| inode.nlink = 2);
    let problems = check(&records, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(problems[0].what.contains("loop") && [Some(a), Some(b)].contains(&problems[0].file));
}

#[test]
fn each_contradiction_between_objects_and_files_is_found() {
    let world = world();
    let (records, objects) = (world.records(), world.objects());
    let file = world.file;
    let (first, second) = (objects[0], objects[1]);
    let elsewhere = (1..=4).find(|t| *t != first.0).unwrap();

    let lost = check(&records, &objects[1..]);
    assert_eq!(kinds(&lost), [Kind::MissingObject]);
    let Subject::Lost(lost) = &lost[0].subject else { panic!("{lost:?}") };
    assert_eq!((lost.target.0, lost.object), (first.0, first.1));
    assert_eq!((lost.first, lost.last), (0, 65_535));
    let lost = check(&records, &objects[..1]);
    let Subject::Lost(lost) = &lost[0].subject else { panic!("{lost:?}") };
    assert_eq!((lost.first, lost.last), (65_536, 69_999));

    let with = |more: (u32, ObjectId, u64)| {
        let mut objects = objects.clone();
        objects.push(more);
        check(&records, &objects)
    };
    let of_nothing = with((2, object(FileId(99_999), 0, 0), 10));
    assert_eq!(kinds(&of_nothing), [Kind::OrphanObject]);
    assert!(of_nothing[0].what.contains("does not exist") && of_nothing[0].needs_confirmation());
    assert_eq!(kinds(&with((2, object(file, 77, 0), 10))), [Kind::OrphanObject]);
    assert_eq!(kinds(&with((2, object(world.dir, 0, 0), 10))), [Kind::OrphanObject]);
    let misplaced = with((elsewhere, first.1, 10));
    assert_eq!(kinds(&misplaced), [Kind::MisplacedObject]);
    assert!(misplaced[0].what.contains(&format!("target {}", first.0)), "{misplaced:?}");
    let segment = first.1.segment.0;
    assert_eq!(kinds(&with((2, object(file, segment, 9), 10))), [Kind::MisplacedObject]);

    // More than the size says; what lies in the third column counts.
    let longer = (second.0, second.1, 65_536);
    let problems = check(&records, &[first, longer]);
    assert_eq!(kinds(&problems), [Kind::Size]);
    let Subject::Short(short) = &problems[0].subject else { panic!("{problems:?}") };
    assert_eq!((short.size, short.found), (70_000, 2 * 65_536));

    // An object that is in use and in the garbage.
    let mut doomed = records.clone();
    doomed.insert(key::garbage(TargetId(first.0), first.1), vec![]);
    assert_eq!(kinds(&check(&doomed, &objects)), [Kind::DoomedObject]);
    let dead = schema::encode(&schema::DeadList::default());
    doomed.insert(key::dead(file, 0), dead);
    assert_eq!(kinds(&check(&doomed, &objects)), [Kind::DoomedObject; 2]);
}

#[test]
fn what_is_on_its_way_out_or_was_cut_off_is_no_problem() {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let (file, segment) = (open.attr.file, open.layout.segments[0].clone());
    let target = |c: usize| segment.columns[c].targets[0].0;
    let written = vec![written(segment.index.0, 0, &[0b1111])];
    c.make(me, &CommitSizeRequest { written, ..commit(&open, 262_144) }).unwrap();
    let all: Vec<_> =
        (0..4).map(|n| (target(n), object(file, segment.index.0, n as u16), 65_536)).collect();
    assert_eq!(check(&snapshot(c.machine.engine()), &all), []);

    // Cut, but the objects are still long: whoever opens it next sees to it.
    c.make(me, &set_size(file, 65_536)).unwrap();
    assert_eq!(check(&snapshot(c.machine.engine()), &all), []);
    c.make(me, &TruncateDoneRequest { file, generation: Generation(2) }).unwrap();
    assert_eq!(kinds(&check(&snapshot(c.machine.engine()), &all)), [Kind::Size]);
    // Nothing of the file was in what was cut off: nobody misses it.
    let first = vec![(all[0].0, all[0].1, 65_536)];
    assert_eq!(check(&snapshot(c.machine.engine()), &first), []);

    // Emptied, then removed: the objects go by themselves.
    c.make(me, &set_size(file, 0)).unwrap();
    assert_eq!(check(&snapshot(c.machine.engine()), &all), []);
    c.unlink(me, ROOT, "f").unwrap();
    c.close(me, file);
    c.pass_ms(3000);
    assert_eq!(check(&snapshot(c.machine.engine()), &all), []);
    assert_eq!(c.keys("w/"), 0, "no marks are left");
}

#[test]
fn marks_of_written_columns_are_kept_once_and_go_with_their_segments() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let chunks =
        LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 65_536, ..Default::default() };
    let open = c.make(me, &create_with(ROOT, "f", chunks)).unwrap();
    let file = open.attr.file;
    // 200 segments, in four pages.
    for n in 0..25 {
        c.make(me, &ExtendRequest::covering(file, 65_536 * 8 * n)).unwrap();
    }
    let start = |n: u64| 65_536 * n;
    let marks = |from: u64| (from..from + 30).map(|n| written(n as u32, start(n), &[1])).collect();
    for from in [0, 50, 130] {
        c.make(me, &CommitSizeRequest { written: marks(from), ..commit(&open, start(200)) })
            .unwrap();
    }
    assert_eq!(c.keys("w/"), 3, "one record for each page");
    // Segments that are not there, or begin elsewhere, mean nothing.
    let wrong = vec![written(7, start(60), &[1]), written(9999, start(199), &[1])];
    c.make(me, &CommitSizeRequest { written: wrong, ..commit(&open, 1) }).unwrap();
    assert_eq!(c.keys("w/"), 3);
    let many = (0..33).map(|n| written(n, 0, &[1])).collect();
    let error = c.make(me, &CommitSizeRequest { written: many, ..commit(&open, 1) });
    assert_eq!(kind(error), weir_types::ErrorKind::TooBig);
    let problems = check(&snapshot(c.machine.engine()), &[]);
    assert_eq!(kinds(&problems), [Kind::MissingObject; 90]);
    c.make(me, &set_size(file, 0)).unwrap();
    c.pass_ms(20_000);
    assert_eq!(c.keys("w/"), 0);
    assert_eq!(check(&snapshot(c.machine.engine()), &[]), []);
}

#[test]
fn a_reader_may_not_say_what_was_written() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let mut other = c.client(user(10, 10, &[]));
    c.ask(&other, &OpenRequest { file: open.attr.file, rights: Rights::READ }).unwrap();
    let commit = CommitSizeRequest { written: vec![written(0, 0, &[1])], ..commit(&open, 1) };
    assert_eq!(kind(c.make(&mut other, &commit)), weir_types::ErrorKind::AccessDenied);
    assert_eq!(c.keys("w/"), 0);
}

#[test]
fn what_was_on_a_target_that_was_removed_and_nowhere_else_is_told_of() {
    use weir_wire::targets::RemoveTargetRequest;
    let mut c = Cluster::<ModelEngine>::new(1);
    c.register(2, &[2]).unwrap();
    let me = &mut c.client(root());
    for (name, copies) in [("one", 1), ("two", 2)] {
        let spec = LayoutSpec { copies, count: 1, base: Some(0), ..LayoutSpec::default() };
        let open = c.make(me, &create_with(FileId::ROOT, name, spec)).unwrap();
        let segment = open.layout.segments[0].index;
        let written = vec![WrittenColumns { segment, start: 0, columns: Bytes(vec![1]) }];
        c.make(me, &CommitSizeRequest { written, ..commit(&open, 10) }).unwrap();
    }
    for _ in 0..6 {
        c.pass_ms(1000);
        c.heartbeat(2, vec![Cluster::<ModelEngine>::report(2)]).unwrap();
    }
    let (target, mut place) = (TargetId(1), None);
    loop {
        let step = c.ask(me, &RemoveTargetRequest { target, force: true, place }).unwrap();
        match step.next {
            None => break assert_eq!(step.files, 2),
            next => place = next,
        }
    }
    let problems = check(&snapshot(c.machine.engine()), &[]);
    let lost: Vec<_> = problems.iter().filter(|p| p.kind == Kind::LostColumn).collect();
    assert_eq!(lost.len(), 1, "{problems:?}");
    assert!(lost[0].what.contains("removed from the cluster (1)"), "{}", lost[0].what);
}

#[test]
fn a_column_is_missed_only_if_no_whole_copy_of_it_is_there() {
    let world = world();
    let objects = world.objects();
    let ((target, first, len), rest) = (objects[0], &objects[1..]);
    let other = (1..=4).find(|t| objects.iter().all(|(placed, ..)| placed != t)).unwrap();
    let second = ObjectId { copy: CopyIndex(1), ..first };
    let judge = |place: TargetId, filling: bool, found: &[(u32, ObjectId, u64)]| {
        let mut records = world.records();
        let bytes = records.get_mut(&key::segments(world.file, 0, 0)).unwrap();
        let mut page: schema::SegmentPage = schema::decode(bytes, "").unwrap();
        let segment = &mut page.segments[0];
        segment.columns.iter_mut().for_each(|column| column.targets.push(TargetId::NONE));
        segment.columns[0].targets = vec![place, TargetId(other)];
        let (column, copy) = (ColumnIndex(0), CopyIndex(1));
        segment.filling = if filling { vec![Filling { column, copy }] } else { vec![] };
        *bytes = schema::encode(&page);
        kinds(&check(&records, &[rest, found].concat()))
    };
    let here = TargetId(target);
    let copy = (other, second, len);
    assert_eq!(judge(here, false, &[(target, first, len), copy]), []);
    assert_eq!(judge(here, false, &[copy]), []);
    assert_eq!(judge(TargetId::NONE, false, &[copy]), []);
    assert_eq!(judge(here, false, &[]), [Kind::MissingObject]);
    assert_eq!(judge(here, true, &[copy]), [Kind::MissingObject]);
    assert_eq!(judge(TargetId::NONE, false, &[]), [Kind::MissingObject]);
}

#[test]
fn columns_that_are_told_with_a_close_count_if_the_session_has_the_file_open() {
    let mut c = Cluster::new(2);
    let (me, other) = (&mut c.client(root()), &mut c.client(root()));
    let file = c.create(me, ROOT, "f").attr.file;
    let closes = |files: Vec<FileId>, segments: usize| CloseRequest {
        files,
        unconfirmed: vec![],
        written: vec![(file, vec![written(0, 0, &[1]); segments])],
    };
    c.make(other, &closes(vec![], 1)).unwrap();
    assert_eq!(c.keys("w/"), 0, "another session's file");
    let refused = c.make(me, &closes(vec![file], 33)).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TooBig);
    c.make(me, &closes(vec![file], 1)).unwrap();
    assert_eq!(kinds(&check(&snapshot(c.machine.engine()), &[])), [] as [Kind; 0], "no byte in it");
    assert_eq!(c.keys("w/"), 1);
    c.unlink(me, ROOT, "f").unwrap();
    c.make(me, &closes(vec![], 1)).unwrap();
    c.pass_ms(3000);
    assert_eq!(c.keys("w/"), 0, "closed, and gone");
}
