use super::super::sites::Site;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_layout::{Domain, Home, Host, Spread};
use weir_types::{Column, Decode, Encode, Epoch, Scheme, SegmentIndex, SegmentState, ServerId};

/// What may happen between two looks at a segment.
#[derive(Clone, Debug)]
enum Event {
    Becomes(usize, Fit, bool),
    Filled,
    OneFilled,
    Wished(usize),
}

const SERVERS: u32 = 4;
const TARGETS: u32 = 7;

/// On a server that is a machine, and a rack.
fn site(target: u32) -> Site {
    site_of(target, SERVERS, SERVERS)
}

/// The servers are on so many machines, and those in so many racks.
fn site_of(target: u32, machines: u32, racks: u32) -> Site {
    let server = target % SERVERS;
    let machine = server % machines;
    let (host, domain) = (Host(ServerId(machine)), Domain(ServerId(machine % racks)));
    let home = Home { server: ServerId(server), host, domain };
    Site { home, fit: Fit::Takes, online: true, free_bytes: u64::MAX }
}

fn sites(targets: u32) -> Sites {
    sites_of(targets, SERVERS, SERVERS)
}

fn sites_of(targets: u32, machines: u32, racks: u32) -> Sites {
    Sites::new((0..targets).map(|t| (TargetId(t), site_of(t, machines, racks))).collect())
}

fn segment(columns: &[&[u32]]) -> Segment {
    let column =
        |targets: &&[u32]| Column { targets: targets.iter().map(|t| TargetId(*t)).collect() };
    Segment {
        index: SegmentIndex(3),
        start: 0,
        len: None,
        stripe_unit_bytes: 65536,
        columns: columns.iter().map(column).collect(),
        scheme: Scheme::Copies,
        state: SegmentState::Open,
        epoch: Epoch(1),
        filling: Vec::new(),
        parities: Vec::new(),
    }
}

/// All copies have everything.
fn all() -> BTreeSet<(ColumnIndex, CopyIndex)> {
    let columns = (0..4).map(ColumnIndex);
    columns.flat_map(|column| (0..16).map(move |copy| (column, CopyIndex(copy)))).collect()
}

fn look(segment: &Segment, copies: usize, sites: &mut Sites) -> Verdict {
    look_for(segment, (copies, false), sites)
}

fn look_for(segment: &Segment, (copies, in_groups): (usize, bool), sites: &mut Sites) -> Verdict {
    let (relieved, barred) = Default::default();
    improve(
        segment,
        &Wish {
            copies,
            in_groups,
            relieved: &relieved,
            barred: &barred,
            settled: &all(),
            seed: 7,
            most: usize::MAX,
            room: usize::MAX,
            decodes: false,
        },
        sites,
    )
}

fn change(verdict: Verdict) -> Change {
    match verdict {
        Verdict::Change(change) => *change,
        other => panic!("{other:?}"),
    }
}

fn targets(segment: &Segment) -> Vec<Vec<u32>> {
    segment.columns.iter().map(|c| c.targets.iter().map(|t| t.0).collect()).collect()
}

fn set(sites: &mut Sites, target: u32, fit: Fit, online: bool) {
    let mut all: BTreeMap<TargetId, Site> = sites.all().map(|(t, s)| (t, *s)).collect();
    let site = all.get(&TargetId(target)).copied().unwrap_or(site(target));
    all.insert(TargetId(target), Site { fit, online, ..site });
    sites.update(all);
}

const NONE: u32 = TargetId::NONE.0;

#[test]
fn a_lost_copy_keeps_its_place_until_another_is_whole() {
    let mut sites = sites(4);
    set(&mut sites, 1, Fit::Lost, false);
    let begun = change(look(&segment(&[&[1, 2], &[2, 3]]), 2, &mut sites));
    let new = begun.segment.columns[0].targets[2].0;
    assert!([0, 3].contains(&new));
    assert_eq!(targets(&begun.segment), [[1, 2, new], [2, 3, NONE]]);
    assert!(begun.segment.is_filling(ColumnIndex(0), CopyIndex(2)));
    assert!(begun.dropped.is_empty());
    assert_eq!(look(&begun.segment, 2, &mut sites), Verdict::Filling);
    let whole = Segment { filling: Vec::new(), ..begun.segment };
    let done = change(look(&whole, 2, &mut sites));
    assert_eq!(targets(&done.segment), [[NONE, 2, new], [2, 3, NONE]]);
    assert_eq!(done.dropped[0].target, TargetId(1));
    assert_eq!(look(&done.segment, 2, &mut sites), Verdict::Fine);
}

#[test]
fn a_single_copy_is_moved_off_a_target_that_is_drained() {
    let mut sites = sites(2);
    set(&mut sites, 0, Fit::Leaves, true);
    let moved = change(look(&segment(&[&[0], &[1]]), 1, &mut sites));
    assert_eq!(targets(&moved.segment), [[0, 1], [1, NONE]]);
    assert_eq!(look(&moved.segment, 1, &mut sites), Verdict::Filling);
    let whole = Segment { filling: Vec::new(), ..moved.segment };
    let done = change(look(&whole, 1, &mut sites));
    assert_eq!(targets(&done.segment), [[NONE, 1], [1, NONE]]);
    // And back: the free place is used, and the other one cut off.
    set(&mut sites, 0, Fit::Takes, true);
    set(&mut sites, 1, Fit::Leaves, true);
    let back = change(look(&done.segment, 1, &mut sites));
    assert_eq!(targets(&back.segment), [[0, 1], [1, 0]]);
    let whole = Segment { filling: Vec::new(), ..back.segment };
    let done = change(look(&whole, 1, &mut sites));
    assert_eq!(targets(&done.segment), [[0, NONE], [NONE, 0]]);
}

#[test]
fn copies_are_added_and_dropped_as_is_wished() {
    let mut sites = sites(4);
    let more = change(look(&segment(&[&[1]]), 3, &mut sites)).segment;
    assert_eq!(more.filling.len(), 2);
    let whole = Segment { filling: Vec::new(), ..more };
    assert_eq!(look(&whole, 3, &mut sites), Verdict::Fine);
    let less = change(look(&whole, 1, &mut sites));
    assert_eq!((targets(&less.segment), less.dropped.len()), (vec![vec![1]], 2));
}

#[test]
fn nothing_is_done_without_a_source_or_without_room() {
    let mut sites = sites(2);
    set(&mut sites, 0, Fit::Lost, false);
    assert_eq!(look(&segment(&[&[0]]), 1, &mut sites), Verdict::Stuck, "the last copy");
    assert_eq!(look(&segment(&[&[0, 1]]), 2, &mut sites), Verdict::Stuck, "no third target");
    set(&mut sites, 0, Fit::Keeps, false);
    assert_eq!(look(&segment(&[&[0, 1]]), 2, &mut sites), Verdict::Fine, "it may come back");
}

#[test]
fn a_copy_goes_only_when_another_is_known_to_have_everything() {
    let look = |from: &Segment, leaves: Option<u32>, settled: &[u8]| {
        let mut sites = sites(3);
        leaves.into_iter().for_each(|target| set(&mut sites, target, Fit::Leaves, true));
        let (relieved, barred) = Default::default();
        let settled = settled.iter().map(|copy| (ColumnIndex(0), CopyIndex(*copy))).collect();
        let (seed, most, room, in_groups) = (7, 9, 9, false);
        let (relieved, barred, settled) = (&relieved, &barred, &settled);
        let decodes = false;
        let wish =
            Wish { copies: 2, in_groups, relieved, barred, settled, seed, most, room, decodes };
        improve(from, &wish, &mut sites)
    };
    let from = segment(&[&[0, 1, 2]]);
    let asked = |copy, target| {
        let (column, copy, target) = (ColumnIndex(0), CopyIndex(copy), TargetId(target));
        Verdict::Unsettled(vec![Place { column, copy, target }])
    };
    assert_eq!(look(&from, None, &[]), asked(0, 0));
    assert_eq!(look(&from, None, &[2]), asked(0, 0), "that one goes");
    assert_eq!(look(&from, Some(0), &[0]), asked(1, 1));
    assert_eq!(targets(&change(look(&from, None, &[0])).segment), [[0, 1]]);
    assert_eq!(targets(&change(look(&from, Some(0), &[2])).segment), [[NONE, 1, 2]]);
    let mut filling = from.clone();
    filling.filling.push(Filling { column: ColumnIndex(0), copy: CopyIndex(2) });
    assert_eq!(targets(&change(look(&filling, None, &[])).segment), [[0, 1]], "it has nothing");
}

#[test]
fn an_old_object_of_the_same_name_is_not_taken_for_the_new_one() {
    let mut sites = sites(2);
    let place = |copy| Place { column: ColumnIndex(0), copy: CopyIndex(copy), target: TargetId(1) };
    let (relieved, barred) = (BTreeSet::new(), BTreeSet::from([place(0), place(1)]));
    let from = segment(&[&[NONE, 0]]);
    let wish = Wish {
        copies: 2,
        in_groups: false,
        relieved: &relieved,
        barred: &barred,
        settled: &BTreeSet::new(),
        seed: 1,
        most: 9,
        room: 9,
        decodes: false,
    };
    let change = change(improve(&from, &wish, &mut sites));
    assert_eq!(targets(&change.segment), [[NONE, 0, 1]]);
}

#[test]
fn what_a_lost_target_had_goes_evenly_to_all_others() {
    let mut sites = sites(10);
    set(&mut sites, 0, Fit::Lost, false);
    let mut got = BTreeMap::<TargetId, u64>::new();
    for file in 0..900 {
        let (relieved, barred) = Default::default();
        let wish = Wish {
            copies: 2,
            in_groups: false,
            relieved: &relieved,
            barred: &barred,
            settled: &BTreeSet::new(),
            seed: file,
            most: 9,
            room: 9,
            decodes: false,
        };
        let other = 1 + (file % 9) as u32;
        let change = change(improve(&segment(&[&[0, other]]), &wish, &mut sites));
        *got.entry(change.added[0].target).or_default() += 1;
    }
    assert!(got.len() == 9 && got.values().all(|n| (90..=110).contains(n)), "{got:?}");
}

fn any_event() -> impl Strategy<Value = Event> {
    let fit = prop_oneof![
        Just((Fit::Takes, true)),
        Just((Fit::Takes, true)),
        Just((Fit::Keeps, false)),
        Just((Fit::Leaves, true)),
        Just((Fit::Lost, false)),
    ];
    prop_oneof![
        (0..TARGETS as usize, fit).prop_map(|(t, (fit, online))| Event::Becomes(t, fit, online)),
        Just(Event::Filled),
        Just(Event::OneFilled),
        (1usize..4).prop_map(Event::Wished),
    ]
}

/// Copies of a column that are whole and can be read.
fn readable(segment: &Segment, column: usize, sites: &Sites) -> usize {
    let whole = |(copy, target): &(CopyIndex, TargetId)| {
        !segment.is_filling(ColumnIndex(column as u16), *copy) && sites.is_online(*target)
    };
    segment.columns[column].copies().filter(whole).count()
}

fn check_step(before: &Segment, after: &Change, wished: usize, sites: &Sites) {
    let segment = &after.segment;
    assert_eq!(&Segment::from_bytes(&segment.to_bytes()).unwrap(), segment);
    for (number, column) in segment.columns.iter().enumerate() {
        let on: Vec<TargetId> = column.copies().map(|(_, target)| target).collect();
        let different: BTreeSet<&TargetId> = on.iter().collect();
        assert_eq!(different.len(), on.len(), "two copies on a target: {on:?}");
        let (was, is) = (readable(before, number, sites), readable(segment, number, sites));
        assert!(is >= was.min(wished), "{was} could be read, now {is}: {before:?} {segment:?}");
    }
    for place in &after.added {
        assert!(segment.is_filling(place.column, place.copy));
        assert_eq!(sites.fit(place.target), Fit::Takes);
    }
    // Who stays is where it was.
    for (number, column) in before.columns.iter().enumerate() {
        for (copy, target) in column.copies() {
            let place = Place { column: ColumnIndex(number as u16), copy, target };
            let there = segment.target(number, copy) == Some(target);
            assert!(there != after.dropped.contains(&place), "{place:?}");
        }
    }
}

fn fill(segment: &mut Segment, sites: &Sites, most: usize) {
    let ready = |f: &Filling| {
        let column = usize::from(f.column.0);
        let to = segment.target(column, f.copy).unwrap();
        sites.is_online(to) && readable(segment, column, sites) > 0
    };
    let ready: Vec<Filling> = segment.filling.iter().copied().filter(ready).take(most).collect();
    segment.filling.retain(|f| !ready.contains(f));
}

/// Looks until nothing is left to do.
fn settle(segment: &mut Segment, wish: (usize, bool), sites: &mut Sites) -> Verdict {
    for _ in 0..20 {
        match look_for(segment, wish, sites) {
            Verdict::Change(change) => {
                check_step(segment, &change, wish.0, sites);
                *segment = change.segment;
            }
            Verdict::Filling => {
                let before = segment.filling.len();
                fill(segment, sites, usize::MAX);
                if segment.filling.len() == before {
                    return Verdict::Filling;
                }
            }
            end => return end,
        }
    }
    panic!("it does not end: {segment:?}");
}

proptest! {
    #[test]
    fn whatever_happens_nothing_is_lost_and_it_ends(
        start in proptest::collection::vec((0..TARGETS, 1..TARGETS), 1..4),
        events in proptest::collection::vec(any_event(), 0..30),
        machines in 1..=SERVERS,
        racks in 1..=SERVERS,
        in_groups in any::<bool>(),
    ) {
        let columns: Vec<[u32; 2]> =
            start.iter().map(|(a, step)| [*a, (a + step) % TARGETS]).collect();
        let columns: Vec<&[u32]> = columns.iter().map(|c| &c[..]).collect();
        let mut segment = segment(&columns);
        let (mut sites, mut wished) = (sites_of(TARGETS, machines, racks), 2);
        for event in events {
            match event {
                Event::Becomes(target, fit, online) => set(&mut sites, target as u32, fit, online),
                Event::Filled => fill(&mut segment, &sites, usize::MAX),
                Event::OneFilled => fill(&mut segment, &sites, 1),
                Event::Wished(copies) => wished = copies,
            }
            if let Verdict::Change(change) = look_for(&segment, (wished, in_groups), &mut sites) {
                check_step(&segment, &change, wished, &sites);
                segment = change.segment;
                let again = look_for(&segment, (wished, in_groups), &mut sites);
                prop_assert!(!matches!(again, Verdict::Change(_)), "twice: {:?}", again);
            }
        }
        let wish = (wished, in_groups);
        settle(&mut segment, wish, &mut sites);
        // All come back: then it is as it is wished.
        (0..TARGETS).for_each(|target| set(&mut sites, target, Fit::Takes, true));
        prop_assert_eq!(settle(&mut segment, wish, &mut sites), Verdict::Fine);
        for column in &segment.columns {
            prop_assert_eq!(column.copies().count(), wished);
            let on = column.copies().map(|(_, target)| target).collect();
            let (groups, are) = sites.spread(&on, in_groups);
            prop_assert!(!in_groups || groups == wished.min(2), "in both groups: {:?}", column);
            let (hosts, domains) = (machines as usize, machines.min(racks) as usize);
            let can = Spread { domains, hosts, servers: SERVERS as usize };
            prop_assert_eq!(are, can.at_most(wished), "no nearer than can be avoided");
        }
    }
}

/// Servers 0 and 2 are on one machine, 1 and 3 on the other.
#[test]
fn copies_on_one_machine_are_parted_where_one_is_too_many() {
    let mut sites = sites_of(4, 2, 2);
    let begun = change(look(&segment(&[&[0, 2]]), 2, &mut sites));
    let new = begun.added[0].target;
    assert!([1, 3].contains(&new.0), "{new:?}");
    let whole = Segment { filling: Vec::new(), ..begun.segment };
    let parted = change(look(&whole, 2, &mut sites)).segment;
    assert_eq!(targets(&parted), [[0, NONE, new.0]]);
    assert_eq!(look(&parted, 2, &mut sites), Verdict::Fine);
    // Not by what costs the copy that is elsewhere.
    assert_eq!(
        targets(&change(look(&segment(&[&[0, 2, 1]]), 2, &mut sites)).segment),
        [[0, NONE, 1]]
    );
    // The one that is elsewhere is waited for, and looked at again.
    set(&mut sites, 1, Fit::Keeps, false);
    assert_eq!(look(&segment(&[&[0, 2, 1]]), 2, &mut sites), Verdict::Stuck);
}

/// Servers 0 and 2 are in one rack, 1 and 3 in the other; each is a machine.
#[test]
fn copies_in_one_rack_are_parted_though_they_are_on_two_machines() {
    let mut sites = sites_of(4, 4, 2);
    let begun = change(look(&segment(&[&[0, 2]]), 2, &mut sites));
    let new = begun.added[0].target;
    assert!([1, 3].contains(&new.0), "{new:?}");
    let whole = Segment { filling: Vec::new(), ..begun.segment };
    let parted = change(look(&whole, 2, &mut sites)).segment;
    assert_eq!(targets(&parted), [[0, NONE, new.0]]);
    assert_eq!(look(&parted, 2, &mut sites), Verdict::Fine);
    // Three are in two racks, and on three machines.
    assert_eq!(look(&segment(&[&[0, 1, 2]]), 3, &mut sites), Verdict::Fine);
    // And when an administrator says that it is one rack, nothing is moved.
    let mut sites = sites_of(4, 4, 1);
    assert_eq!(look(&segment(&[&[0, 2]]), 2, &mut sites), Verdict::Fine);
}

/// Nodes 0 and 2 are one group, 1 and 3 the other.
#[test]
fn copies_in_one_group_are_parted_if_they_are_to_be_in_two() {
    let mut sites = sites(4);
    let in_groups = (2, true);
    let begun = change(look_for(&segment(&[&[0, 2], &[0, 1], &[2, 3]]), in_groups, &mut sites));
    let new = begun.added[0].target;
    assert!(begun.added.len() == 1 && [1, 3].contains(&new.0), "{begun:?}");
    assert_eq!(look_for(&begun.segment, in_groups, &mut sites), Verdict::Filling);
    let whole = Segment { filling: Vec::new(), ..begun.segment };
    let parted = change(look_for(&whole, in_groups, &mut sites)).segment;
    assert_eq!(targets(&parted), [[0, NONE, new.0], [0, 1, NONE], [2, 3, NONE]]);
    assert_eq!(look_for(&parted, in_groups, &mut sites), Verdict::Fine);
    // They stay where they are while the other group has no room.
    [1, 3].into_iter().for_each(|target| set(&mut sites, target, Fit::Keeps, false));
    assert_eq!(look_for(&segment(&[&[0, 2]]), in_groups, &mut sites), Verdict::Fine);
}

/// Nodes 0 and 2 are one group, 1 and 3 the other.
#[test]
fn a_copy_in_place_of_a_lost_one_stays_in_its_group_if_it_can() {
    let (relieved, barred) = Default::default();
    let new_one = |lost: u32, away: &[u32], seed: u64| {
        let mut sites = sites(4);
        away.iter().chain([&lost]).for_each(|t| set(&mut sites, *t, Fit::Lost, false));
        let wish = Wish {
            copies: 2,
            in_groups: true,
            relieved: &relieved,
            barred: &barred,
            settled: &BTreeSet::new(),
            seed,
            most: usize::MAX,
            room: usize::MAX,
            decodes: false,
        };
        change(improve(&segment(&[&[0, 1]]), &wish, &mut sites)).added[0].target.0
    };
    for seed in 0..20 {
        assert_eq!(new_one(1, &[], seed), 3);
        assert_eq!(new_one(0, &[], seed), 2);
        assert_eq!(new_one(1, &[3], seed), 2, "better than none");
    }
}
