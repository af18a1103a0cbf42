//! Many segments, and what targets hold, are evened out.

use super::servers::*;
use crate::harness::*;
use std::collections::BTreeMap;
use weir_types::{FileId, LayoutKind, LayoutSpec};
use weir_wire::Rights;
use weir_wire::meta::{GetLayoutRequest, OpenFile, RebalanceRequest};

#[test]
fn a_round_of_rebalancing_goes_on_without_files_that_are_removed_meanwhile() {
    let mut s = Servers::new(2);
    let spec = |base| LayoutSpec { count: 1, base: Some(base), ..LayoutSpec::default() };
    let files: Vec<OpenFile> = (0..40).map(|n| s.create_of(&format!("f{n}"), spec(0))).collect();
    s.c.register(3, &[3]).unwrap();
    s.all.push(3);
    s.used = BTreeMap::from([(1, TOTAL / 2), (2, 0), (3, 0)]);
    s.pass(1);
    s.idle = true;
    s.c.ask(&s.me, &RebalanceRequest { within_percent: 3, stop: false }).unwrap();
    s.pass(3);
    assert!(s.counter("mover.relieved") > 0);
    for (n, file) in files.iter().enumerate() {
        s.c.close(&mut s.me, file.attr.file);
        s.c.unlink(&mut s.me, FileId::ROOT, &format!("f{n}")).unwrap();
    }
    s.pass(5);
    assert_eq!(s.counter("mover.relieved"), 0);
}

#[test]
fn many_segments_are_moved_page_by_page() {
    let mut s = Servers::new(3);
    let chunk = 1 << 20;
    let spec = LayoutSpec {
        kind: LayoutKind::Chunked,
        segment_bytes: chunk,
        copies: 1,
        ..LayoutSpec::default()
    };
    let open = s.c.make(&mut s.me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    s.c.make(&mut s.me, &set_size(open.attr.file, 200 * chunk)).unwrap();
    s.set_copies(&open, 2);
    s.pass(60);
    let mut offset = 0;
    for _ in 0..4 {
        let request = GetLayoutRequest { file: open.attr.file, offset, rights: Rights::READ };
        let page = s.c.ask(&s.me, &request).unwrap();
        for segment in &page.layout.segments {
            assert_eq!((segment.filling.len(), segment.columns[0].copies().count()), (0, 2));
            offset = segment.end();
        }
    }
    assert_eq!(offset, 200 * chunk);
}

#[test]
fn an_order_evens_out_what_targets_hold() {
    let mut s = Servers::new(2);
    let spec = |base| LayoutSpec { copies: 1, count: 1, base: Some(base), ..LayoutSpec::default() };
    // Of 1 MiB each.
    let files: Vec<OpenFile> = (0..300).map(|n| s.create_of(&format!("f{n}"), spec(0))).collect();
    s.c.register(3, &[3]).unwrap();
    s.all.push(3);
    s.used.insert(3, 0);
    let held = |s: &mut Servers| {
        let mut held = BTreeMap::from([(1, 0), (2, 0), (3, 0)]);
        for file in &files {
            let segments = s.segments(file);
            let column = &segments[0].columns[0];
            column.copies().for_each(|(_, t)| *held.entry(t.0).or_default() += 1u64 << 20);
        }
        held
    };
    s.used = held(&mut s);
    assert_eq!(s.used[&1], 300 << 20);
    let order = RebalanceRequest { within_percent: 3, stop: false };
    s.pass(1);
    s.c.ask(&s.me, &order).unwrap();
    for _ in 0..200 {
        s.pass(1);
        s.used = held(&mut s);
        if s.counter("mover.rebalancing") == 0 {
            break;
        }
    }
    assert_eq!(s.counter("mover.rebalancing"), 0, "{:?}", s.used);
    let mean = 100 << 20;
    assert!(s.used.values().all(|used| used.abs_diff(mean) <= TOTAL * 3 / 100), "{:?}", s.used);
    assert!(files.iter().all(|file| s.copies(file)[0].len() == 1));
}

#[test]
fn what_each_target_gets_is_counted_with_its_speed_and_end() {
    let mut s = Servers::new(3);
    (0..400).for_each(|n| drop(s.create(&format!("f{n}"), 2)));
    let of = |s: &Servers, target: u32, name: &str| {
        let all = s.c.machine.status(s.c.now).counters;
        let found = all.into_iter().find(|(n, _)| *n == format!("target.{target}.{name}"));
        found.map(|(_, value)| value)
    };
    assert_eq!(of(&s, 2, "filling_copies"), None, "there is nothing to tell");
    s.dead.insert(1);
    s.pass(15);
    s.idle = true;
    s.pass(30);
    let sum = |s: &Servers| [2, 3].map(|t| of(s, t, "filling_copies").unwrap_or(0)).iter().sum();
    let filling: u64 = sum(&s);
    assert!(filling > 0 && filling == s.counter("mover.filling"), "{filling}");
    assert!(of(&s, 2, "filling_bytes") > Some(0));
    assert_eq!(of(&s, 2, "filling_expected_s"), Some(0), "not known yet");
    s.idle = false;
    let mut goes_on = || {
        s.quarter();
        of(&s, 2, "filling_bytes_per_s") > Some(0)
    };
    assert!((0..40).any(|_| goes_on()), "it has got something");
    s.pass(200);
    assert_eq!((of(&s, 2, "filling_copies"), of(&s, 3, "behind_parts")), (None, None));
}
