//! Layouts, capabilities and truncation, as clients and data servers see them.

use crate::harness::*;
use std::collections::BTreeSet;
use weir_layout::check_layout;
use weir_metastore::{Engine, ModelEngine};
use weir_types::{
    DiskId, ErrorKind, FileId, FsUsage, Generation, KeyGeneration, LayoutKind, LayoutSpec, Segment,
    TargetId,
};
use weir_wire::capability::Check;
use weir_wire::meta::*;
use weir_wire::peer::TargetReport;
use weir_wire::{Rights, SignedCapability};

const ROOT: FileId = FileId::ROOT;

fn unix_ms<E: Engine>(c: &Cluster<E>) -> u64 {
    (c.now.unix.0 / 1_000_000) as u64
}

/// What a data server says to a capability.
fn verify(
    c: &Cluster<ModelEngine>,
    me: &Client,
    file: FileId,
    signed: &SignedCapability,
    target: TargetId,
    needed: Rights,
) -> Result<(), ErrorKind> {
    let target_key = &master().target(target, KeyGeneration(1));
    let against =
        Check { target, target_key, session: me.session, file, needed, now_unix_ms: unix_ms(c) };
    let mac = signed.mac_for(target).ok_or(ErrorKind::TargetMissing)?;
    signed.capability.check(&mac, &against).map_err(|e| e.kind)
}

#[test]
fn a_new_file_is_striped_over_all_targets_and_may_be_used_on_each() {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    check_layout(&open.layout).unwrap();
    assert_eq!(open.layout.segments.len(), 1);
    let segment = &open.layout.segments[0];
    assert_eq!((segment.columns.len(), segment.len, segment.stripe_unit_bytes), (4, None, 65536));
    assert_eq!(open.attr.preferred_io_bytes, 1 << 20);
    for t in 1..=4 {
        let file = open.attr.file;
        verify(&c, me, file, &open.capability, TargetId(t), Rights::READ_WRITE).unwrap();
    }
    let reader = c.ask(me, &OpenRequest { file: open.attr.file, rights: Rights::READ }).unwrap();
    let check = |c: &Cluster<_>, needed| {
        verify(c, me, open.attr.file, &reader.capability, TargetId(1), needed)
    };
    check(&c, Rights::READ).unwrap();
    assert_eq!(check(&c, Rights::WRITE), Err(ErrorKind::BadCapability));
    c.now.unix.0 += 3_600_001 * 1_000_000;
    assert_eq!(check(&c, Rights::READ), Err(ErrorKind::BadCapability), "expired");
}

#[test]
fn the_bases_of_new_files_go_round() {
    let mut c = Cluster::new(3);
    let me = &mut c.client(root());
    let mut bases: Vec<u32> =
        (0..6).map(|n| c.create(me, ROOT, &format!("f{n}")).layout.base).collect();
    bases.sort_unstable();
    assert_eq!(bases, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn directories_hand_their_default_down() {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let dir = c.mkdir(me, ROOT, "d");
    let spec = LayoutSpec { count: 2, stripe_unit_bytes: 8192, ..LayoutSpec::default() };
    c.make(me, &SetLayoutRequest { file: dir, layout: Some(spec.clone()) }).unwrap();
    let sub = c.mkdir(me, dir, "s");
    assert_eq!(c.ask(me, &GetDefaultLayoutRequest { dir: sub }).unwrap(), spec);
    let open = c.create(me, sub, "f");
    let segment = &open.layout.segments[0];
    assert_eq!((segment.columns.len(), segment.stripe_unit_bytes), (2, 8192));
    // Back to what the parent says.
    let one = LayoutSpec { count: 1, ..LayoutSpec::default() };
    c.make(me, &SetLayoutRequest { file: dir, layout: Some(one) }).unwrap();
    c.make(me, &SetLayoutRequest { file: sub, layout: None }).unwrap();
    assert_eq!(c.create(me, sub, "g").layout.segments[0].columns.len(), 1);
    c.make(me, &SetLayoutRequest { file: ROOT, layout: None }).unwrap();
    assert_eq!(c.ask(me, &GetDefaultLayoutRequest { dir: ROOT }).unwrap(), LayoutSpec::default());
}

#[test]
fn an_empty_file_can_be_laid_out_anew_and_a_full_one_says_why_not() {
    let mut c = Cluster::new(4);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let file = open.attr.file;
    let two = || LayoutSpec { count: 2, ..LayoutSpec::default() };
    c.make(me, &SetLayoutRequest { file, layout: Some(two()) }).unwrap();
    let page = c.ask(me, &GetLayoutRequest { file, offset: 0, rights: Rights::READ }).unwrap();
    assert_eq!(page.layout.segments[0].columns.len(), 2);
    assert_ne!(page.layout.segments[0].index, open.layout.segments[0].index);
    let attr = c.getattr(me, file).unwrap();
    let generation = attr.generation;
    let commit = CommitSizeRequest {
        file,
        size: 5,
        generation,
        mtime: None,
        written: Vec::new(),
        ranges: Vec::new(),
        sparse: false,
        durable: false,
    };
    c.make(me, &commit).unwrap();
    let error = c.make(me, &SetLayoutRequest { file, layout: Some(two()) }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.message.contains("5 bytes") && error.message.contains("copy"), "{error}");
    let many = LayoutSpec { count: 9, ..LayoutSpec::default() };
    let error = c.make(me, &SetLayoutRequest { file: ROOT, layout: Some(many) }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
}

#[test]
fn emptying_a_file_takes_new_segments_and_leaves_the_old_ones_as_garbage() {
    let mut c = Cluster::new(3);
    let me = &mut c.client(root());
    let before = c.create(me, ROOT, "f");
    let file = before.attr.file;
    c.make(me, &commit(&before, 1000)).unwrap();
    let after = c.make(me, &set_size(file, 0)).unwrap();
    assert_eq!((after.attr.size, after.attr.generation), (0, Generation(2)));
    assert_eq!(after.pending_truncate, None);
    assert!(after.layout.epoch > before.layout.epoch);
    let (old, new) = (&before.layout.segments[0], &after.layout.segments[0]);
    assert!(new.index > old.index);
    assert_eq!((c.keys("g/"), c.keys("s/")), (3, 1));
    // What was written before does not count any more, and its writer is told.
    assert_eq!(kind(c.make(me, &commit(&before, 1000))), ErrorKind::Stale);
    assert_eq!(c.getattr(me, file).unwrap().size, 0);
    c.make(me, &commit(&after, 10)).unwrap();
    assert_eq!(c.getattr(me, file).unwrap().size, 10);
    // O_TRUNC does the same, but not under a handle of the same client, which it would not exclude.
    let request = CreateRequest { exclusive: false, truncate: true, ..create_request(ROOT, "f") };
    assert_eq!(kind(c.make(me, &request)), ErrorKind::Busy);
    c.close(me, file);
    let again = c.make(me, &request).unwrap();
    assert_eq!((again.attr.size, again.attr.generation), (0, Generation(3)));
    assert_eq!(again.layout.segments.len(), 1);
}

#[test]
fn a_cut_is_pending_until_it_is_done() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let file = open.attr.file;
    c.make(me, &commit(&open, 1000)).unwrap();
    let cut = c.make(me, &set_size(file, 100)).unwrap();
    let pending = PendingTruncate { generation: Generation(2), size: 100 };
    assert_eq!(cut.pending_truncate, Some(pending.clone()));
    assert!(cut.capability.capability.rights.allow(Rights::WRITE));
    // Grown and cut again before anybody did it: the lowest cut counts.
    c.make(me, &set_size(file, 500)).unwrap();
    assert_eq!(c.getattr(me, file).unwrap().size, 500);
    let cut = c.make(me, &set_size(file, 300)).unwrap();
    let lowest = PendingTruncate { generation: Generation(3), size: 100 };
    assert_eq!(cut.pending_truncate, Some(lowest.clone()));
    let writer = c.ask(me, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    assert_eq!(writer.pending_truncate, Some(lowest));
    c.make(me, &TruncateDoneRequest { file, generation: Generation(2) }).unwrap();
    let writer = c.ask(me, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    assert!(writer.pending_truncate.is_some(), "that one was overtaken");
    c.make(me, &TruncateDoneRequest { file, generation: Generation(3) }).unwrap();
    let writer = c.ask(me, &OpenRequest { file, rights: Rights::WRITE }).unwrap();
    assert_eq!(writer.pending_truncate, None);
    assert_eq!(kind(c.make(me, &set_size(file, (1 << 62) + 1))), ErrorKind::FileTooLarge);
    assert_eq!(kind(c.make(me, &set_size(ROOT, 1))), ErrorKind::IsDirectory);
}

#[test]
fn a_commit_never_shrinks_a_file() {
    let mut c = Cluster::new(1);
    let me = &mut c.client(root());
    let open = c.create(me, ROOT, "f");
    let attr = c.make(me, &commit(&open, 100)).unwrap();
    c.pass_ms(1000);
    let later = c.make(me, &commit(&open, 50)).unwrap();
    assert_eq!(later.size, 100);
    assert!(later.mtime > attr.mtime && later.change > attr.change);
}

#[test]
fn chunked_files_are_granted_segments_ahead_of_the_writer() {
    let mut c = Cluster::new(3);
    let me = &mut c.client(root());
    let spec = LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: 4096, ..Default::default() };
    let open = c.make(me, &create_with(ROOT, "f", spec)).unwrap();
    let file = open.attr.file;
    assert_eq!(open.layout.segments.len(), 1);
    let page = c.make(me, &ExtendRequest::covering(file, 4096)).unwrap();
    assert_eq!(page.layout.segments[0].start, 4096);
    assert_eq!(page.layout.segments.len(), 8, "ahead");
    for segment in &page.layout.segments {
        let target = segment.columns[0].targets[0];
        verify(&c, me, file, &page.capability, target, Rights::READ_WRITE).unwrap();
    }
    // Far ahead, over several pages: no gap, no number twice.
    let far = 150 * 4096 + 17;
    let page = c.make(me, &ExtendRequest::covering(file, far)).unwrap();
    assert!(page.layout.segments[0].start <= far && far < page.layout.segments[0].end());
    let (mut segments, mut offset) = (Vec::new(), 0);
    loop {
        let request = GetLayoutRequest { file, offset, rights: Rights::READ };
        let page = c.ask(me, &request).unwrap();
        offset = page.layout.segments.last().unwrap().end();
        segments.extend(page.layout.segments);
        if !page.more_segments {
            break;
        }
    }
    let layout = weir_types::FileLayout { segments, ..open.layout };
    check_layout(&layout).unwrap();
    assert_eq!(layout.segments.len(), 158);
    let beyond = GetLayoutRequest { file, offset: 1 << 40, rights: Rights::READ };
    assert_eq!(c.ask(me, &beyond).unwrap().layout.segments, []);
    let again = c.make(me, &ExtendRequest::covering(file, 0)).unwrap();
    assert_eq!(again.layout.segments[0].start, 0);
    let open = c.ask(me, &OpenRequest { file, rights: Rights::READ }).unwrap();
    assert!(open.more_segments && open.layout.segments.len() == 64);
    let tiny = kind(c.make(me, &ExtendRequest::covering(file, 1 << 61)));
    assert_eq!(tiny, ErrorKind::FileTooLarge, "more chunks than a file may have");
}

#[test]
fn fragments_of_a_file_come_in_pages() {
    let mut c = Cluster::new(5);
    let me = &mut c.client(root());
    let spec = LayoutSpec {
        kind: LayoutKind::Fragments,
        fragment_bytes: (1..=130).map(|n| n * 100).collect(),
        ..LayoutSpec::default()
    };
    let open = c.make(me, &create_with(ROOT, "f", spec)).unwrap();
    assert!(open.more_segments);
    let offset = (1..=100).map(|n| n * 100).sum::<u64>() + 1;
    let request = GetLayoutRequest { file: open.attr.file, offset, rights: Rights::READ };
    let page = c.ask(me, &request).unwrap();
    assert_eq!(page.layout.segments[0].index.0, 100);
    assert_eq!(page.layout.segments[0].len, Some(10_100));
}

#[test]
fn file_ids_are_never_used_again() {
    let mut c = Cluster::new(1);
    let me = c.client(root());
    let mut last = 0;
    for round in 0..5 {
        for n in 0..3 {
            let slot = round * 3 + n;
            let name = format!("{round}-{n}");
            let request = create_request(ROOT, &name);
            let file = c.make_as(&me, slot, 1, &request).unwrap().attr.file;
            assert!(file.0 > last, "{file} after {last}");
            last = file.0;
            // A failure takes no id that a later success could miss.
            assert_eq!(kind(c.make_as(&me, slot, 2, &request)), ErrorKind::Exists);
        }
        if round == 2 {
            // The last second is lost; the ids are not handed out again.
            let (now, times) = (c.now, c.times);
            let mut engine = c.machine.into_engine();
            engine.sync().unwrap();
            c = Cluster::open(engine, now, times, 7);
            c.sessions = vec![me.session];
            c.nothing_is_held();
        } else {
            c = c.restart();
        }
    }
}

#[test]
fn what_objects_will_follow_is_durable_before_anybody_is_told() {
    let mut c = Cluster::new(2);
    let me = &mut c.client(root());
    let file = c.create(me, ROOT, "f").attr.file;
    assert!(!c.waited_for_disk, "new objects collide with nothing");
    c.make(me, &set_size(file, 100)).unwrap();
    assert!(!c.waited_for_disk, "a longer file cuts nothing");
    let generation = c.make(me, &set_size(file, 10)).unwrap().attr.generation;
    assert!(c.waited_for_disk);
    // Whoever opens it now would cut its objects.
    let rights = Rights::READ_WRITE;
    c.make(me, &OpenRequest { file, rights }).unwrap();
    assert!(c.waited_for_disk);
    c.make(me, &TruncateDoneRequest { file, generation }).unwrap();
    c.make(me, &OpenRequest { file, rights }).unwrap();
    assert!(!c.waited_for_disk);
    c.make(me, &set_size(file, 0)).unwrap();
    assert!(c.waited_for_disk, "the numbers of the new objects must not be given again");
    // Its repetition, too.
    let request = CreateRequest { truncate: true, exclusive: false, ..create_request(ROOT, "f") };
    let other = &mut c.client(root());
    for _ in 0..2 {
        c.make_as(other, 3, 1, &request).unwrap();
        assert!(c.waited_for_disk);
    }
}

/// On each of three machines a server with two targets.
fn three_machines() -> Cluster<ModelEngine> {
    let mut c = Cluster::new(0);
    for (host, server) in [("a", 1), ("b", 2), ("c", 3)] {
        c.register_on(host, server, &[2 * server - 1, 2 * server]).unwrap();
    }
    c
}

/// Where the copies of each column are, first those that come first.
fn machines(segments: &[Segment]) -> Vec<String> {
    let machine = |target: TargetId| ["a", "b", "c"][(target.0 as usize - 1) / 2];
    let columns = segments.iter().flat_map(|segment| &segment.columns);
    columns.map(|c| c.copies().map(|(_, target)| machine(target)).collect()).collect()
}

fn chunks(copies: u8) -> LayoutSpec {
    let kind = LayoutKind::Chunked;
    LayoutSpec { kind, segment_bytes: 4096, copies, ..LayoutSpec::default() }
}

/// HDFS.
#[test]
fn chunks_have_their_first_copy_on_the_machine_of_whoever_writes_them() {
    let mut c = three_machines();
    let (mut on_b, mut on_c) = (c.client_on("b").unwrap(), c.client_on("c").unwrap());
    let open = c.make(&mut on_b, &create_with(ROOT, "f", chunks(2))).unwrap();
    let file = open.attr.file;
    let first = machines(&open.layout.segments);
    assert!(["ba", "bc"].contains(&&*first[0]), "{first:?}");
    let page = c.make(&mut on_b, &ExtendRequest::covering(file, 20 * 4096)).unwrap();
    let more = machines(&page.layout.segments);
    assert!(more.iter().all(|on| ["ba", "bc"].contains(&&**on)), "{more:?}");
    let from = page.layout.segments.last().unwrap().end();
    let page = c.make(&mut on_c, &ExtendRequest::covering(file, from)).unwrap();
    let others = machines(&page.layout.segments);
    assert!(others.iter().all(|on| ["ca", "cb"].contains(&&**on)), "{others:?}");
    for (n, count) in (0..12).zip([1, 2, 3].into_iter().cycle()) {
        let few = LayoutSpec { count, ..chunks(1) };
        let open = c.make(&mut on_c, &create_with(ROOT, &format!("few{n}"), few)).unwrap();
        assert_eq!(machines(&open.layout.segments), ["c"], "of few targets one is there");
    }
    // Where it is is known only when it has come back.
    let mut c = c.restart();
    c.rejoin_on(&on_b, "c");
    let open = c.make(&mut on_b, &create_with(ROOT, "g", chunks(3))).unwrap();
    assert!(machines(&open.layout.segments)[0].starts_with('c'));
}

#[test]
fn without_room_on_the_machine_of_its_writer_or_without_servers_there_chunks_are_anywhere() {
    let mut c = three_machines();
    let usage = FsUsage { free_bytes: 1 << 20, ..Cluster::<ModelEngine>::report(3).usage };
    let full = |target| TargetReport { usage, ..Cluster::<ModelEngine>::report(target) };
    c.heartbeat(2, vec![full(3), full(4)]).unwrap();
    for host in ["b", "elsewhere", ""] {
        let mut me = c.client_on(host).unwrap();
        let mut firsts = BTreeSet::new();
        for n in 0..40 {
            let name = format!("{host}{n}");
            let open = c.make(&mut me, &create_with(ROOT, &name, chunks(2))).unwrap();
            firsts.insert(machines(&open.layout.segments)[0].chars().next().unwrap());
        }
        assert_eq!(firsts, BTreeSet::from(['a', 'c']), "from {host:?}");
    }
    // What is striped goes round, wherever its writer is.
    let mut me = c.client_on("a").unwrap();
    let bases: BTreeSet<u32> =
        (0..6).map(|n| c.create(&mut me, ROOT, &format!("f{n}")).layout.base).collect();
    assert_eq!(bases.len(), 4, "{bases:?}");
}

#[test]
fn a_disk_gets_no_more_new_data_for_the_targets_that_share_it() {
    let mut c = Cluster::new(0);
    let on = |disk, target| TargetReport {
        disk: DiskId(disk),
        ..Cluster::<ModelEngine>::report(target)
    };
    c.register_reports(1, vec![on(1, 1), on(1, 2), on(1, 3)]).unwrap();
    c.register_reports(2, vec![on(2, 4)]).unwrap();
    let me = &mut c.client(root());
    let mut alone = 0;
    for n in 0..400 {
        let open = c.make(me, &create_with(ROOT, &format!("f{n}"), chunks(1))).unwrap();
        let segments = open.layout.segments.iter();
        let first = segments.flat_map(|segment| &segment.columns).next().unwrap();
        alone += u32::from(first.copies().any(|(_, target)| target == TargetId(4)));
    }
    assert!((150..250).contains(&alone), "{alone} of 400 on one of two disks of one size");
}

#[test]
fn a_host_name_that_cannot_be_kept_or_shown_is_refused() {
    let mut c = Cluster::new(1);
    for (host, why) in [("n".repeat(256), "255 bytes"), ("a\nb".into(), "control characters")] {
        let error = c.client_on(&host).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains(why), "{error}");
        let error = c.register_on(&host, 2, &[2]).unwrap_err();
        assert!(error.message.contains(why), "{error}");
    }
}
