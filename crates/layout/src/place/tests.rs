use super::*;
use crate::file::check_layout;
use proptest::prelude::*;
use std::collections::HashSet;
use weir_types::ServerId;

fn place(spec: &LayoutSpec, targets: &[TargetInfo], seed: u64) -> Result<FileLayout> {
    super::place(spec, targets, &Pairs::default(), seed)
}

fn grant(
    layout: &FileLayout,
    spec: &LayoutSpec,
    targets: &[TargetInfo],
    up_to_offset: u64,
    next_index: SegmentIndex,
    seed: u64,
) -> Result<Vec<Segment>> {
    let none = Pairs::default();
    super::grant(layout, spec, (targets, &none), up_to_offset, next_index, seed)
}

/// `n` empty targets, `per_server` on each server, each server on a machine of its own.
fn cluster(n: u32, per_server: u32) -> Vec<TargetInfo> {
    (0..n)
        .map(|i| TargetInfo {
            target: TargetId(100 + i),
            home: Home::alone(ServerId(i / per_server)),
            free_bytes: 1 << 40,
            online: true,
            returns: false,
            slow: false,
            local: false,
            primaries: 0,
            wait_us: 0,
        })
        .collect()
}

fn spec(kind: LayoutKind) -> LayoutSpec {
    LayoutSpec { kind, ..LayoutSpec::default() }
}

fn ids(column: &Column) -> Vec<u32> {
    column.targets.iter().map(|t| t.0 - 100).collect()
}

/// The targets of all columns of all segments, in order.
fn all_ids(segments: &[Segment]) -> Vec<Vec<u32>> {
    segments.iter().flat_map(|s| &s.columns).map(ids).collect()
}

/// Puts `servers` consecutive servers on each machine.
fn on_machines(mut targets: Vec<TargetInfo>, servers: u32) -> Vec<TargetInfo> {
    for home in targets.iter_mut().map(|t| &mut t.home) {
        let first = ServerId(home.server.0 / servers * servers);
        (home.host, home.domain) = (Host(first), Domain(first));
    }
    targets
}

/// Puts `servers` consecutive servers, each on a machine of its own, in each rack.
fn in_racks(mut targets: Vec<TargetInfo>, servers: u32) -> Vec<TargetInfo> {
    for home in targets.iter_mut().map(|t| &mut t.home) {
        home.domain = Domain(ServerId(home.server.0 / servers * servers));
    }
    targets
}

/// A cluster of up to six servers, on one machine or several, in one rack or several.
fn any_cluster() -> impl Strategy<Value = Vec<TargetInfo>> {
    let target = (0u32..6, any::<bool>(), any::<bool>(), 0u64..1 << 30, any::<bool>());
    let names = proptest::collection::vec((0usize..6, 0usize..4), 6);
    (proptest::collection::vec(target, 1..12), names).prop_map(|(raw, names)| {
        const HOSTS: [&str; 6] = ["a", "b", "c", "d", "e", ""];
        const DOMAINS: [&str; 4] = ["r1", "r2", "", ""];
        let known = |(&(host, domain), n): (&(usize, usize), u32)| Whereabouts {
            server: ServerId(n),
            host: HOSTS[host],
            domain: DOMAINS[domain],
        };
        let homes = homes(names.iter().zip(0..).map(known));
        raw.into_iter()
            .enumerate()
            .map(|(i, (server, online, returns, free_bytes, local))| TargetInfo {
                target: TargetId(100 + i as u32),
                home: homes[&ServerId(server)],
                free_bytes,
                online,
                returns: returns && !online,
                slow: free_bytes % 3 == 0,
                local,
                primaries: u64::from(server) * 3,
                wait_us: 0,
            })
            .collect()
    })
}

fn any_spec() -> impl Strategy<Value = LayoutSpec> {
    let kind = prop_oneof![
        Just(LayoutKind::Striped),
        Just(LayoutKind::Fragments),
        Just(LayoutKind::Chunked)
    ];
    let sizes = proptest::collection::vec(1u64..100_000, 0..20);
    (kind, proptest::option::of(0u32..14), 0u16..14, 0u8..5, sizes).prop_map(
        |(kind, base, count, copies, sizes)| LayoutSpec {
            kind,
            base,
            count,
            copies,
            fragment_bytes: if kind == LayoutKind::Fragments { sizes } else { vec![] },
            ..LayoutSpec::default()
        },
    )
}

/// A spec with two groups that fits the cluster.
fn any_groups() -> impl Strategy<Value = LayoutSpec> {
    let kind = prop_oneof![Just(LayoutKind::Striped), Just(LayoutKind::Fragments)];
    (kind, proptest::option::of(0u32..14), 0u16..4).prop_map(|(kind, base, count)| LayoutSpec {
        kind,
        base,
        count,
        copies: 2,
        placement: Placement::Groups,
        ..LayoutSpec::default()
    })
}

/// Checks that the copies are in as many domains, machines and servers as the online targets
/// permit.
fn check_apart(column: &Column, targets: &[TargetInfo]) -> Result<(), TestCaseError> {
    let online = || targets.iter().filter(|t| t.online);
    let on = || online().filter(|t| column.targets.contains(&t.target));
    let [are, can] = [Spread::of(on().map(|t| t.home)), Spread::of(online().map(|t| t.home))];
    prop_assert_eq!(are, can.at_most(on().count()), "{:?}", column);
    Ok(())
}

proptest! {
    #[test]
    fn one_group_mirrors_the_other_as_far_as_it_is_there(
        targets in any_cluster(), spec in any_groups(), seed in any::<u64>(),
    ) {
        let Ok(layout) = place(&spec, &targets, seed) else { return Ok(()) };
        prop_assert_eq!(check_layout(&layout), Ok(()));
        prop_assert_eq!(layout.placement, Placement::Groups);
        let groups = Groups::of(targets.iter().map(|t| t.home));
        let info = |id: &TargetId| targets.iter().find(|t| t.target == *id).unwrap();
        let second = |id: &TargetId| groups.is_second(info(id).home.server);
        let columns = || layout.segments.iter().flat_map(|s| &s.columns);
        let first = &columns().next().unwrap().targets[0];
        prop_assert_eq!(targets[layout.base as usize].target, *first);
        let other = |t: &&TargetInfo| t.online && second(&t.target) != second(first);
        let mirrored = targets.iter().filter(|t| other(t)).any(TargetInfo::has_room);
        let mut mirrors: HashMap<TargetId, usize> = HashMap::new();
        for column in columns() {
            prop_assert_eq!(column.targets.len(), 2);
            let (a, b) = (info(&column.targets[0]), info(&column.targets[1]));
            prop_assert!(a.online && a.target != b.target);
            prop_assert_eq!(second(&a.target), second(first), "first copies are in one group");
            if mirrored {
                prop_assert!(second(&b.target) != second(first) && b.online);
                let all = Spread::of(targets.iter().map(|t| t.home));
                prop_assert!(all.domains == 1 || a.home.domain != b.home.domain);
                prop_assert!(all.hosts == 1 || a.home.host != b.home.host);
                prop_assert!(a.home.server != b.home.server);
            }
            *mirrors.entry(b.target).or_default() += 1;
        }
        // Each target has a partner of its own.
        if mirrored && spec.count == 0 {
            prop_assert!(mirrors.values().all(|count| *count == 1), "{mirrors:?}");
        }
    }

    #[test]
    fn copies_on_random_targets_are_apart(
        targets in any_cluster(), spec in any_spec(), seed in any::<u64>(),
    ) {
        for placement in [Placement::Random, Placement::Chained] {
            let spec = LayoutSpec { placement, ..spec.clone() };
            let Ok(layout) = place(&spec, &targets, seed) else { return Ok(()) };
            prop_assert_eq!(check_layout(&layout), Ok(()));
            let roomy = targets.iter().filter(|t| t.online).all(TargetInfo::has_room);
            for column in layout.segments.iter().flat_map(|s| &s.columns) {
                let different: HashSet<&TargetId> = column.targets.iter().collect();
                prop_assert_eq!(different.len(), usize::from(spec.copies.max(1)));
                if roomy {
                    check_apart(column, &targets)?;
                }
            }
        }
    }

    #[test]
    fn whatever_is_placed_is_well_formed_online_and_spread(
        targets in any_cluster(), spec in any_spec(), seed in any::<u64>(),
    ) {
        let online: Vec<&TargetInfo> = targets.iter().filter(|t| t.online).collect();
        let returning = targets.iter().filter(|t| t.returns).count();
        let copies = usize::from(spec.copies.max(1));
        let wanted = usize::from(spec.count.max(1));
        let enough = online.len() >= wanted && online.len() + returning >= wanted.max(copies);
        let possible =
            enough && spec.base.is_none_or(|b| (b as usize) < targets.len());
        let layout = match place(&spec, &targets, seed) {
            Ok(layout) => layout,
            Err(error) => {
                prop_assert!(!possible, "{}", error);
                return Ok(());
            }
        };
        prop_assert!(possible);
        prop_assert_eq!(check_layout(&layout), Ok(()));
        prop_assert_eq!(place(&spec, &targets, seed).unwrap(), layout.clone());

        let roomy = online.iter().filter(|t| t.has_room()).count();
        for column in layout.segments.iter().flat_map(|s| &s.columns) {
            prop_assert_eq!(column.targets.len(), copies);
            let all: HashSet<_> = column.targets.iter().collect();
            prop_assert_eq!(all.len(), copies);
            let of = |id: &TargetId| targets.iter().find(|t| t.target == *id).unwrap();
            prop_assert!(column.targets.iter().all(|id| of(id).online || of(id).returns));
            // Targets that are away take the remaining copies.
            let there = column.targets.iter().take_while(|id| of(id).online).count();
            prop_assert_eq!(there, copies.min(online.len()));
            // Full targets are avoided, which may leave fewer servers.
            if roomy == online.len() {
                check_apart(column, &targets)?;
            }
        }
        let first = &layout.segments[0].columns[0].targets[0];
        if layout.kind != LayoutKind::Chunked {
            prop_assert_eq!(targets[layout.base as usize].target, *first);
        }
    }
}

#[test]
fn stripes_go_round_robin_from_the_base() {
    let targets = cluster(6, 1);
    let spec = LayoutSpec { base: Some(4), count: 4, ..spec(LayoutKind::Striped) };
    let layout = place(&spec, &targets, 7).unwrap();
    assert_eq!(layout.base, 4);
    assert_eq!(all_ids(&layout.segments), [[4], [5], [0], [1]]);
    assert_eq!(layout.segments[0].len, None);
    assert_eq!(layout.segments[0].stripe_unit_bytes, 65_536);
}

#[test]
fn an_offline_target_is_passed_over() {
    let mut targets = cluster(4, 1);
    targets[1].online = false;
    let spec = LayoutSpec { base: Some(1), ..spec(LayoutKind::Striped) };
    let layout = place(&spec, &targets, 0).unwrap();
    assert_eq!(layout.base, 2);
    assert_eq!(all_ids(&layout.segments), [[2], [3], [0]]);
}

#[test]
fn further_copies_wait_for_targets_that_are_away_if_there_is_no_other_place() {
    let mut targets = cluster(3, 1);
    for target in &mut targets[..2] {
        (target.online, target.returns) = (false, true);
    }
    let two = LayoutSpec { count: 1, copies: 2, ..spec(LayoutKind::Striped) };
    let layout = place(&two, &targets, 1).unwrap();
    assert_eq!(ids(&layout.segments[0].columns[0]), [2, 0]);
    targets[1].online = true;
    let layout = place(&two, &targets, 1).unwrap();
    assert!(!ids(&layout.segments[0].columns[0]).contains(&0), "{layout:?}");
    let wide = LayoutSpec { count: 3, copies: 2, ..spec(LayoutKind::Striped) };
    assert_eq!(place(&wide, &targets, 1).unwrap_err().kind, ErrorKind::Unreachable);
}

#[test]
fn a_full_target_is_spared_while_others_suffice() {
    let mut targets = cluster(4, 1);
    targets[1].free_bytes = 0;
    let from_0 = |count| LayoutSpec { base: Some(0), count, ..spec(LayoutKind::Striped) };
    let placed = |count| all_ids(&place(&from_0(count), &targets, 0).unwrap().segments);
    assert_eq!(placed(0), [[0], [2], [3]]);
    assert_eq!(placed(4), [[0], [1], [2], [3]]);
}

#[test]
fn files_begin_on_all_targets_alike() {
    let targets = cluster(4, 1);
    let mut begun = [0; 4];
    for seed in 0..4000 {
        begun[place(&spec(LayoutKind::Striped), &targets, seed).unwrap().base as usize] += 1;
    }
    assert!(begun.iter().all(|n| (900..1100).contains(n)), "{begun:?}");
}

#[test]
fn fragments_have_their_sizes_and_the_last_takes_the_rest() {
    let spec = LayoutSpec {
        base: Some(2),
        fragment_bytes: vec![100, 7],
        segment_bytes: 8192,
        ..spec(LayoutKind::Fragments)
    };
    let layout = place(&spec, &cluster(4, 1), 0).unwrap();
    let shape: Vec<_> = layout.segments.iter().map(|s| (s.index.0, s.start, s.len)).collect();
    let expected = [(0, 0, Some(100)), (1, 100, Some(7)), (2, 107, Some(8192)), (3, 8299, None)];
    assert_eq!(shape, expected);
    assert_eq!(all_ids(&layout.segments), [[2], [3], [0], [1]]);
}

#[test]
fn more_fragments_than_targets_go_around_again() {
    let spec = LayoutSpec {
        base: Some(0),
        count: 2,
        fragment_bytes: vec![10; 5],
        ..spec(LayoutKind::Fragments)
    };
    let layout = place(&spec, &cluster(4, 1), 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[0], [1], [0], [1], [0]]);
    assert_eq!(layout.segments[4].len, None);
}

#[test]
fn copies_of_fragments_are_chained() {
    let spec = LayoutSpec { base: Some(0), copies: 3, ..spec(LayoutKind::Fragments) };
    let layout = place(&spec, &cluster(4, 1), 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]);
}

#[test]
fn copies_are_on_other_servers_and_spread_over_their_disks() {
    let spec = LayoutSpec { base: Some(0), copies: 2, ..spec(LayoutKind::Striped) };
    let layout = place(&spec, &cluster(6, 2), 0).unwrap();
    let columns = all_ids(&layout.segments);
    assert!(columns.iter().all(|c| c[0] / 2 != c[1] / 2), "{columns:?}");
    let second: HashSet<u32> = columns.iter().map(|c| c[1]).collect();
    assert_eq!(second.len(), 6, "{columns:?}");
}

#[test]
fn copies_are_on_other_machines_then_on_other_servers() {
    let targets = on_machines(cluster(8, 2), 2);
    let spec = LayoutSpec { base: Some(0), copies: 2, ..spec(LayoutKind::Striped) };
    let columns = |spec: &LayoutSpec| all_ids(&place(spec, &targets, 0).unwrap().segments);
    let two = columns(&spec);
    assert!(two.iter().all(|c| c[0] / 4 != c[1] / 4), "{two:?}");
    let three = columns(&LayoutSpec { copies: 3, ..spec });
    let servers = |c: &Vec<u32>| c.iter().map(|t| t / 2).collect::<HashSet<_>>().len();
    assert!(three.iter().all(|c| c[0] / 4 != c[1] / 4 && servers(c) == 3), "{three:?}");
}

#[test]
fn copies_are_in_other_racks_then_on_other_machines_there() {
    let targets = in_racks(cluster(8, 1), 4);
    for placement in [Placement::Chained, Placement::Random] {
        for kind in [LayoutKind::Striped, LayoutKind::Chunked] {
            let spec = LayoutSpec { copies: 3, placement, ..spec(kind) };
            for seed in 0..50 {
                let columns = all_ids(&place(&spec, &targets, seed).unwrap().segments);
                for c in &columns {
                    let racks: HashSet<u32> = c.iter().map(|t| t / 4).collect();
                    assert_eq!((racks.len(), c[0] / 4 != c[1] / 4), (2, true), "{c:?}");
                }
            }
        }
    }
}

#[test]
fn chunks_of_few_targets_have_their_copies_on_other_servers() {
    let spec = LayoutSpec { count: 2, ..chunk_spec(2) };
    for seed in 0..50 {
        let ids = all_ids(&place(&spec, &cluster(6, 2), seed).unwrap().segments).remove(0);
        assert!(ids[0] / 2 != ids[1] / 2, "{ids:?}");
    }
}

#[test]
fn one_column_finds_its_copy_outside_the_stripe() {
    let spec = LayoutSpec { base: Some(3), count: 1, copies: 2, ..spec(LayoutKind::Striped) };
    let layout = place(&spec, &cluster(4, 1), 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[3, 0]]);
}

fn groups_spec() -> LayoutSpec {
    LayoutSpec { copies: 2, placement: Placement::Groups, ..spec(LayoutKind::Striped) }
}

/// CEFT-PVFS: nodes 0, 2, 4 and 1, 3, 5.
#[test]
fn each_node_of_a_group_has_its_partner_in_the_other() {
    let columns = |base: u32, count: u16| {
        let spec = LayoutSpec { base: Some(base), count, ..groups_spec() };
        all_ids(&place(&spec, &cluster(6, 1), 0).unwrap().segments)
    };
    assert_eq!(columns(0, 0), [[0, 1], [2, 3], [4, 5]]);
    assert_eq!(columns(2, 0), [[2, 3], [4, 5], [0, 1]]);
    assert_eq!(columns(5, 2), [[5, 4], [1, 0]]);
    // Nodes of several disks; the fifth node has no partner.
    let spec = LayoutSpec { base: Some(0), ..groups_spec() };
    let layout = place(&spec, &cluster(10, 2), 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[0, 2], [1, 3], [4, 6], [5, 7]]);
}

/// Two servers on the first machine, then one on each.
#[test]
fn a_machine_is_in_one_group_while_there_are_others() {
    let groups = |machines: &[u32]| -> Vec<bool> {
        let first = |m: &u32| machines.iter().position(|other| other == m).unwrap() as u32;
        let homes = || {
            let all = machines.iter().enumerate();
            all.map(|(n, m)| {
                let first = ServerId(first(m));
                Home { server: ServerId(n as u32), host: Host(first), domain: Domain(first) }
            })
        };
        let groups = Groups::of(homes());
        homes().map(|home| groups.is_second(home.server)).collect()
    };
    assert_eq!(groups(&[0, 0, 1]), [false, false, true]);
    assert_eq!(groups(&[0, 0, 1, 2]), [false, false, true, true], "as many in each");
    assert_eq!(groups(&[0, 0, 1, 2, 3, 1]), [false, false, true, true, false, true]);
    assert_eq!(groups(&[0, 1, 2, 3]), [false, true, false, true]);
    assert_eq!(groups(&[0, 0, 0, 0]), [false, true, false, true], "one machine: by server");
    let targets = on_machines(cluster(4, 1), 2);
    let spec = LayoutSpec { base: Some(0), ..groups_spec() };
    let layout = place(&spec, &targets, 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[0, 2], [1, 3]]);
    // The same with racks; a single rack is divided by its machines.
    let groups = |targets: &[TargetInfo]| -> Vec<bool> {
        let groups = Groups::of(targets.iter().map(|t| t.home));
        targets.iter().map(|t| groups.is_second(t.home.server)).collect()
    };
    assert_eq!(groups(&in_racks(cluster(4, 1), 2)), [false, false, true, true]);
    let mut one_rack = on_machines(cluster(4, 1), 2);
    one_rack.iter_mut().for_each(|t| t.home.domain = Domain(ServerId(0)));
    assert_eq!(groups(&one_rack), [false, false, true, true]);
    assert_eq!(groups(&in_racks(cluster(4, 1), 4)), [false, true, false, true]);
}

#[test]
fn the_less_loaded_group_becomes_the_primary_one() {
    let mut targets = cluster(6, 1);
    let first = |targets: &[TargetInfo], seed| {
        all_ids(&place(&groups_spec(), targets, seed).unwrap().segments)[0][0] % 2
    };
    let both: HashSet<u32> = (0..20).map(|seed| first(&targets, seed)).collect();
    assert_eq!(both.len(), 2, "any, if they are equal");
    targets[2].free_bytes /= 2;
    assert!((0..20).all(|seed| first(&targets, seed) == 1), "the one with more room");
    targets[5].primaries = 1;
    assert!((0..20).all(|seed| first(&targets, seed) == 0), "the one that was given less");
    // A group that is too small at present is not chosen.
    (targets[0].online, targets[2].online) = (false, false);
    let spec = LayoutSpec { count: 2, ..groups_spec() };
    let layout = place(&spec, &targets, 3).unwrap();
    assert!(all_ids(&layout.segments).iter().all(|c| c[0] % 2 == 1 && c[1] == 4), "{layout:?}");
}

#[test]
fn while_a_group_is_away_the_other_one_holds_both_copies() {
    let mut targets = cluster(6, 1);
    targets.iter_mut().step_by(2).for_each(|t| (t.online, t.returns) = (false, true));
    let spec = LayoutSpec { base: Some(1), ..groups_spec() };
    let layout = place(&spec, &targets, 0).unwrap();
    assert_eq!(all_ids(&layout.segments), [[1, 3], [3, 5], [5, 1]]);
    let many = LayoutSpec { count: 4, ..groups_spec() };
    assert_eq!(place(&many, &cluster(6, 1), 0).unwrap_err().kind, ErrorKind::InvalidArgument);
    for bad in [
        LayoutSpec { copies: 3, ..groups_spec() },
        LayoutSpec { kind: LayoutKind::Chunked, ..groups_spec() },
    ] {
        assert!(check_spec(&bad).is_err());
    }
}

#[test]
fn chunks_may_be_chained_too() {
    let spec = LayoutSpec { placement: Placement::Chained, ..chunk_spec(3) };
    for seed in 0..50 {
        let layout = place(&spec, &cluster(5, 1), seed).unwrap();
        let ids = all_ids(&layout.segments).remove(0);
        assert!((1..3).all(|i| ids[i] == (ids[0] + i as u32) % 5), "{ids:?}");
    }
}

fn chunk_spec(copies: u8) -> LayoutSpec {
    LayoutSpec { segment_bytes: 1 << 20, copies, ..spec(LayoutKind::Chunked) }
}

/// A chunked file of `n` chunks of 1 MiB.
fn chunked(n: u64, copies: u8, targets: &[TargetInfo]) -> FileLayout {
    let spec = chunk_spec(copies);
    let mut layout = place(&spec, targets, 3).unwrap();
    assert_eq!(layout.segments.len(), 1);
    while covered_bytes(&layout) < n << 20 {
        let next = SegmentIndex(layout.segments.len() as u32);
        let granted = grant(&layout, &spec, targets, n << 20, next, 3).unwrap();
        assert!((1..=GRANT_BATCH).contains(&granted.len()));
        layout.segments.extend(granted);
    }
    assert_eq!(check_layout(&layout), Ok(()));
    layout
}

#[test]
fn chunks_are_granted_ahead_in_batches_and_only_as_far_as_asked() {
    let targets = cluster(4, 1);
    let layout = chunked(150, 1, &targets);
    assert_eq!(layout.segments.len(), 150);
    assert!(layout.segments.iter().all(|s| s.len == Some(1 << 20)));
    let more = |up_to| grant(&layout, &chunk_spec(1), &targets, up_to, SegmentIndex(150), 3);
    assert_eq!(more(150 << 20).unwrap(), []);
    assert_eq!(more((150 << 20) + 1).unwrap().len(), 1);
}

#[test]
fn chunks_go_to_a_local_target_first_and_copies_to_other_servers() {
    let mut targets = cluster(8, 2);
    targets[5].local = true;
    let columns = all_ids(&chunked(200, 3, &targets).segments);
    assert!(columns.iter().all(|c| c[0] == 5));
    for column in &columns {
        assert_eq!(column.iter().map(|t| t / 2).collect::<HashSet<_>>().len(), 3, "{column:?}");
    }
    let copies: HashSet<u32> = columns.iter().flat_map(|c| c[1..].to_vec()).collect();
    assert_eq!(copies, HashSet::from([0, 1, 2, 3, 6, 7]));
}

#[test]
fn chunks_follow_free_space_and_leave_a_full_local_target_alone() {
    let mut targets = cluster(3, 1);
    targets[0].free_bytes = FULL_BELOW_BYTES - 1;
    targets[0].local = true;
    targets[1].free_bytes = 1 << 30;
    targets[2].free_bytes = 3 << 30;
    let columns = all_ids(&chunked(2000, 1, &targets).segments);
    let on = |t| columns.iter().filter(|c| c[0] == t).count();
    assert_eq!(on(0), 0);
    assert!((400..600).contains(&on(1)), "{} of 2000", on(1));
}

#[test]
fn a_slow_target_gets_less_and_nothing_of_files_with_one_copy() {
    let mut targets = cluster(4, 1);
    targets[1].slow = true;
    let one = all_ids(&chunked(200, 1, &targets).segments);
    assert!(one.iter().all(|column| column[0] != 1));
    let two = all_ids(&chunked(2_000, 2, &targets).segments);
    let slow = two.iter().filter(|column| column.contains(&1)).count();
    assert!((100..500).contains(&slow), "{slow} of 2000, a thousand for each other");
    // A request for one particular target is granted.
    let named = LayoutSpec { base: Some(1), count: 1, ..LayoutSpec::default() };
    let layout = place(&named, &targets, 1).unwrap();
    assert_eq!(layout.segments[0].columns[0].targets[0], targets[1].target);
    // There are not enough other targets.
    targets.iter_mut().skip(1).for_each(|target| target.slow = true);
    let spread = LayoutSpec { count: 4, ..LayoutSpec::default() };
    assert_eq!(place(&spread, &targets, 1).unwrap().segments[0].columns.len(), 4);
}

#[test]
fn chunks_still_find_a_place_when_every_target_is_nearly_full() {
    let mut targets = cluster(2, 1);
    targets.iter_mut().for_each(|t| t.free_bytes = 0);
    assert_eq!(chunked(100, 2, &targets).segments.len(), 100);
}

#[test]
fn a_file_that_cannot_grow_says_so() {
    let targets = cluster(2, 1);
    let layout = chunked(1, 1, &targets);
    let spec = chunk_spec(1);
    let grow = |up_to| grant(&layout, &spec, &targets, up_to, SegmentIndex(1), 0).unwrap_err();
    assert_eq!(grow((MAX_SEGMENTS as u64 + 1) << 20).kind, ErrorKind::FileTooLarge);
    assert_eq!(grow(u64::MAX).kind, ErrorKind::FileTooLarge);
    let numbers = grant(&layout, &spec, &targets, 2 << 20, SegmentIndex(u32::MAX), 0);
    assert_eq!(numbers.unwrap_err().kind, ErrorKind::FileTooLarge);
}

#[test]
fn the_last_chunk_ends_where_the_largest_file_does() {
    let chunk_bytes = MAX_FILE_BYTES / 4096 * 3;
    let spec = LayoutSpec { segment_bytes: chunk_bytes, ..spec(LayoutKind::Chunked) };
    let targets = cluster(1, 1);
    let mut layout = place(&spec, &targets, 0).unwrap();
    while covered_bytes(&layout) < MAX_FILE_BYTES {
        let next = SegmentIndex(layout.segments.len() as u32);
        layout.segments.extend(grant(&layout, &spec, &targets, MAX_FILE_BYTES, next, 0).unwrap());
    }
    assert_eq!(check_layout(&layout), Ok(()));
}

#[test]
fn a_file_outlives_the_targets_that_its_base_counted() {
    let spec = LayoutSpec { base: Some(3), ..chunk_spec(1) };
    let layout = place(&spec, &cluster(4, 1), 0).unwrap();
    let fewer = cluster(2, 1);
    assert_eq!(grant(&layout, &spec, &fewer, 2 << 20, SegmentIndex(1), 0).unwrap().len(), 1);
}

#[test]
fn only_chunked_files_are_granted_segments() {
    let targets = cluster(2, 1);
    let striped = place(&spec(LayoutKind::Striped), &targets, 0).unwrap();
    assert!(grant(&striped, &chunk_spec(1), &targets, 1, SegmentIndex(1), 0).is_err());
}

#[test]
fn impossible_wishes_are_refused_with_what_to_do() {
    let striped = || spec(LayoutKind::Striped);
    let fragmented = || spec(LayoutKind::Fragments);
    let wishes = [
        (LayoutSpec { stripe_unit_bytes: 1000, ..striped() }, "multiple of 4096"),
        (LayoutSpec { stripe_unit_bytes: 2 << 30, ..striped() }, "at most 1073741824"),
        (LayoutSpec { count: 1025, ..striped() }, "at most 1024"),
        (LayoutSpec { copies: 9, ..striped() }, "at most 8"),
        (LayoutSpec { segment_bytes: 4096, ..striped() }, "leave the segment size 0"),
        (LayoutSpec { segment_bytes: 100, ..spec(LayoutKind::Chunked) }, "multiple of 4096"),
        (LayoutSpec { segment_bytes: 1 << 63, ..spec(LayoutKind::Chunked) }, "at most"),
        (LayoutSpec { fragment_bytes: vec![1], ..striped() }, "fragments layout only"),
        (LayoutSpec { fragment_bytes: vec![1, 0], ..fragmented() }, "leave the fragment out"),
        (LayoutSpec { fragment_bytes: vec![1; 1025], ..fragmented() }, "at most 1024"),
        (LayoutSpec { fragment_bytes: vec![u64::MAX; 2], ..fragmented() }, "smaller sizes"),
    ];
    for (wish, advice) in wishes {
        let error = check_spec(&wish).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        assert!(error.message.contains(advice), "{error}");
        assert_eq!(place(&wish, &cluster(4, 1), 0), Err(error));
    }
}

#[test]
fn too_few_targets_are_refused_with_what_to_do() {
    let asks = |count, copies| LayoutSpec { count, copies, ..spec(LayoutKind::Striped) };
    let mut targets = cluster(4, 1);
    let refused = |spec: &LayoutSpec, targets: &[TargetInfo]| place(spec, targets, 0).unwrap_err();

    let error = refused(&asks(5, 1), &targets);
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.message.contains("asks for 5 targets, there are 4"), "{error}");
    let error = refused(&asks(1, 5), &targets);
    assert!(error.message.contains("5 copies need 5 targets, there are 4"), "{error}");
    let error = refused(&LayoutSpec { base: Some(4), ..asks(0, 0) }, &targets);
    assert!(error.message.contains("0 to 3"), "{error}");

    targets[0].online = false;
    let error = refused(&asks(4, 1), &targets);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.message.contains("3 of 4 are online"), "{error}");
    targets.iter_mut().for_each(|t| t.online = false);
    assert!(refused(&asks(0, 0), &targets).message.contains("start the data servers"));
    assert!(place(&asks(0, 0), &[], 0).is_err());
}

#[test]
fn a_graduated_chunk_goes_where_it_is_written_first_of_the_targets_of_its_file() {
    let spec = LayoutSpec {
        base: Some(2),
        count: 2,
        placement: Placement::Graduated,
        ..spec(LayoutKind::Chunked)
    };
    let mut targets = cluster(5, 1);
    let first = |targets: &[TargetInfo], copies| {
        let spec = LayoutSpec { copies, ..spec.clone() };
        ids(&place(&spec, targets, 7).unwrap().segments[0].columns[0])
    };
    let segment = &place(&spec, &targets, 7).unwrap().segments[0];
    assert_eq!(segment.len, Some(DEFAULT_GRADUATED_BYTES));
    // Predictions for other targets do not matter for a new file.
    (targets[2].wait_us, targets[3].wait_us, targets[4].wait_us) = (90, 50, 10);
    assert_eq!(first(&targets, 1), [3]);
    targets[3].wait_us = 91;
    assert_eq!(first(&targets, 1), [2]);
    targets[3].wait_us = 0;
    assert_eq!(first(&targets, 1), [3], "nobody knows it yet");
    // The other one of the two has the second copy.
    assert_eq!(first(&targets, 2), [3, 2]);
    targets[3].free_bytes = 0;
    assert_eq!(first(&targets, 1), [4], "no room: the next one is one of the two");
    let striped = LayoutSpec { kind: LayoutKind::Striped, ..spec };
    assert_eq!(check_spec(&striped).unwrap_err().kind, ErrorKind::InvalidArgument);
}

/// 160 files over six targets: of the columns of one target, each other target shares a fifth.
#[test]
fn what_is_left_to_chance_is_spread_evenly_over_all_others() {
    for kind in [LayoutKind::Striped, LayoutKind::Chunked] {
        let (targets, mut pairs) = (cluster(6, 1), Pairs::default());
        let mut placed = Vec::new();
        let files = if kind == LayoutKind::Striped { 160 } else { 960 };
        for file in 0..files {
            let (copies, base) = (2, Some(file as u32 % 6));
            let placement = Placement::Random;
            let spec = LayoutSpec { copies, placement, base, ..spec(kind) };
            let layout = super::place(&spec, &targets, &pairs, file).unwrap();
            for column in layout.segments.into_iter().flat_map(|segment| segment.columns) {
                pairs.given(&column);
                placed.push(column);
            }
        }
        for lost in targets.iter().map(|t| t.target) {
            let has = |column: &&Column| column.targets.contains(&lost);
            let mut others = std::collections::BTreeMap::new();
            for target in placed.iter().filter(has).flat_map(|column| &column.targets) {
                *others.entry(*target).or_insert(0.0) += 1.0;
            }
            let all = others.remove(&lost).unwrap();
            let furthest = others.values().map(|n: &f64| (n / (all / 5.0) - 1.0).abs());
            let furthest = furthest.fold(0.0, f64::max);
            assert!(
                others.len() == 5 && furthest < 0.1,
                "{kind:?}, {lost}: {furthest}, {others:?}"
            );
        }
    }
}
