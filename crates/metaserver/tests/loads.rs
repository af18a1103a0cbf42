//! How busy targets are is heard from their servers, and told to whoever opens a file of which
//! there is a choice among copies.

use crate::harness::{Cluster, create_with, root};
use weir_metastore::ModelEngine;
use weir_types::{DiskId, Epoch, FileId, LayoutSpec, TargetId};
use weir_wire::Rights;
use weir_wire::meta::{OpenFile, OpenRequest, TargetLoad};
use weir_wire::targets::{ListTargetsRequest, TargetWork};

type Model = Cluster<ModelEngine>;

/// A server says of its target that a MiB takes so long, and how many requests it has.
fn says(c: &mut Model, target: u32, serves_us_per_mib: u32, in_flight: u32) {
    let work = TargetWork { serves_us_per_mib, in_flight, ..TargetWork::default() };
    let report = weir_wire::peer::TargetReport { work, ..Model::report(target) };
    c.heartbeat_under(target, Epoch(0), vec![report]).unwrap();
}

fn loads(open: &OpenFile) -> Vec<(u32, u32, u32)> {
    let of = |load: &TargetLoad| (load.target.0, load.us_per_mib, load.in_flight);
    open.loads.iter().map(of).collect()
}

#[test]
fn who_opens_a_file_with_copies_is_told_how_fast_their_targets_are() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    let me = &mut c.client(root());
    let spec = |copies| LayoutSpec { copies, count: 1, ..LayoutSpec::default() };
    let mut make = |c: &mut Model, name, copies| {
        c.make(me, &create_with(FileId::ROOT, name, spec(copies))).unwrap()
    };
    let (one, two) = (make(&mut c, "one", 1), make(&mut c, "two", 2));
    assert_eq!(loads(&two), [], "nothing is known yet");
    let placed: Vec<TargetId> = two.layout.segments[0].columns[0].targets.clone();
    let other = (1..=3).find(|n| !placed.contains(&TargetId(*n))).unwrap();
    says(&mut c, placed[0].0, 400_000, 7);
    says(&mut c, other, 9_000, 0);
    let mut open =
        |c: &mut Model, file| c.make(me, &OpenRequest { file, rights: Rights::READ }).unwrap();
    let again = open(&mut c, two.attr.file);
    assert_eq!(loads(&again), [(placed[0].0, 400_000, 7)], "the others are none of its business");
    assert_eq!(loads(&open(&mut c, one.attr.file)), [], "there is no choice");
    // Nobody knows any more.
    says(&mut c, placed[0].0, 0, 0);
    assert_eq!(loads(&open(&mut c, two.attr.file)), []);
}

#[test]
fn a_disk_is_slow_by_how_long_it_takes_and_by_its_pieces() {
    let mut c = Model::new(1);
    let targets = [1, 2, 3, 4];
    targets[1..].iter().for_each(|target| drop(c.register(*target, &[*target]).unwrap()));
    // Reading in small pieces; then one that shares its disk, for which others wait; then no excuse.
    for (piece_kib, is_shared, is_slow) in
        [(64, false, false), (8_192, true, false), (8_192, false, true)]
    {
        for _ in 0..120 {
            c.pass_ms(500);
            for target in targets {
                // The third one takes six times as long.
                let (us_per_mib, piece_kib) =
                    if target == 3 { (60_000, piece_kib) } else { (10_000, 8_192) };
                let work = TargetWork { us_per_mib, piece_kib, ..TargetWork::default() };
                let disk = if is_shared && target == 3 { 4 } else { target };
                let disk = DiskId(disk.into());
                let report = weir_wire::peer::TargetReport { work, disk, ..Model::report(target) };
                c.heartbeat_under(target, Epoch(0), vec![report]).unwrap();
            }
        }
        let me = c.client(root());
        let page = c.ask(&me, &ListTargetsRequest { after: None }).unwrap();
        let slow: Vec<u32> =
            page.targets.iter().filter(|view| view.slow).map(|view| view.target.0).collect();
        let what = format!("{piece_kib} KiB, shared: {is_shared}");
        assert_eq!(slow, if is_slow { vec![3] } else { vec![] }, "{what}");
    }
}
