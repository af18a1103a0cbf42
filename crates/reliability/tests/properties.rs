//! Properties for any cluster: data never lasts shorter with more redundancy, better disks or
//! faster rebuilds.

use proptest::prelude::*;
use weir_reliability::{
    Assessment, Cluster, Duplication, Layout, Misfit, Redundancy, Scheme, assess,
};

/// Clusters whose rebuilds take hours, and whose disks last for years.
fn clusters() -> impl Strategy<Value = Cluster> {
    (12u32..200, 1u32..24, 1e4..1e7f64, 1e2..1e6f64, 0.0..48.0f64, 1e10..1e13f64, 2e7..1e9f64)
        .prop_flat_map(|(nodes, disks_per_node, mttf, node_mttf, node_repair, bytes, speed)| {
            (0.0..2.0f64, 1e5..1e9f64).prop_map(move |(detect_hours, segment_bytes)| Cluster {
                nodes,
                disks_per_node,
                disk_mttf_hours: mttf,
                node_mttf_hours: node_mttf,
                node_repair_hours: node_repair,
                disk_bytes: bytes,
                rebuild_bytes_per_s: speed,
                detect_hours,
                segment_bytes,
                unreadable_per_bit: 0.0,
            })
        })
}

fn scheme((layout, redundancy): (Layout, Redundancy)) -> Scheme {
    Scheme { layout, redundancy, duplication: Duplication::Synchronous }
}

fn with_copies() -> impl Strategy<Value = Scheme> {
    let layouts = prop_oneof![Just(Layout::Mirrored), Just(Layout::Chained), Just(Layout::Random)];
    (layouts, (2u32..5).prop_map(Redundancy::Copies)).prop_map(scheme)
}

/// Schemes with copies or parity.
fn redundant() -> impl Strategy<Value = Scheme> {
    let layouts = prop_oneof![Just(Layout::Striped), Just(Layout::Random)];
    let code = (2u32..8, 1u32..3).prop_map(|(data, parity)| Redundancy::Code { data, parity });
    prop_oneof![with_copies(), (layouts, code).prop_map(scheme)]
}

fn schemes() -> impl Strategy<Value = Scheme> {
    let striped = scheme((Layout::Striped, Redundancy::Copies(1)));
    let layouts = prop_oneof![Just(Layout::Striped), Just(Layout::Random)];
    let raid5 = (2u32..16).prop_map(|data| Redundancy::Raid5Mirror { data });
    prop_oneof![1 => Just(striped), 5 => redundant(), 2 => (layouts, raid5).prop_map(scheme)]
}

fn of(cluster: &Cluster, scheme: &Scheme) -> Assessment {
    assess(cluster, scheme, 8760.0).expect("it fits")
}

/// Not worse, apart from rounding errors.
fn no_worse(better: &Assessment, worse: &Assessment) -> Result<(), TestCaseError> {
    let near = 1.0 + 1e-6;
    prop_assert!(better.mttdl_hours * near >= worse.mttdl_hours, "{better:?} {worse:?}");
    prop_assert!(better.loss_probability <= worse.loss_probability * near, "{better:?} {worse:?}");
    prop_assert!(better.unavailability <= worse.unavailability * near, "{better:?} {worse:?}");
    Ok(())
}

fn with_one_more(scheme: &Scheme) -> Scheme {
    let redundancy = match scheme.redundancy {
        Redundancy::Copies(copies) => Redundancy::Copies(copies + 1),
        Redundancy::Code { data, parity } => Redundancy::Code { data, parity: parity + 1 },
        other => other,
    };
    Scheme { redundancy, ..*scheme }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_figures(cluster in clusters(), scheme in schemes()) {
        let figures = of(&cluster, &scheme);
        prop_assert!(figures.mttdl_hours > 0.0 && figures.mttdl_hours.is_finite(), "{figures:?}");
        for p in [figures.loss_probability, figures.unavailability, figures.usable] {
            prop_assert!((0.0..=1.0).contains(&p), "{figures:?}");
        }
        prop_assert_eq!(figures.bytes_at_risk, 0.0);
    }

    #[test]
    fn another_copy_or_parity_is_never_worse(cluster in clusters(), scheme in redundant()) {
        // A random layout without room has too few disks to write to: see moving_hours.
        let cluster = Cluster { nodes: cluster.nodes + 12, ..cluster };
        no_worse(&of(&cluster, &with_one_more(&scheme)), &of(&cluster, &scheme))?;
    }

    #[test]
    fn a_faster_rebuild_or_detection_is_never_worse(
        cluster in clusters(), scheme in schemes(), factor in 1.0..20.0f64,
    ) {
        let base = of(&cluster, &scheme);
        let speed = cluster.rebuild_bytes_per_s * factor;
        no_worse(&of(&Cluster { rebuild_bytes_per_s: speed, ..cluster }, &scheme), &base)?;
        let detect = cluster.detect_hours / factor;
        no_worse(&of(&Cluster { detect_hours: detect, ..cluster }, &scheme), &base)?;
    }

    #[test]
    fn better_disks_and_nodes_are_never_worse(
        cluster in clusters(), scheme in schemes(), factor in 1.0..20.0f64,
    ) {
        let better = Cluster {
            disk_mttf_hours: cluster.disk_mttf_hours * factor,
            node_mttf_hours: cluster.node_mttf_hours * factor,
            ..cluster
        };
        no_worse(&of(&better, &scheme), &of(&cluster, &scheme))?;
    }

    #[test]
    fn a_longer_mission_loses_no_less(cluster in clusters(), scheme in schemes()) {
        let mut before = 0.0;
        for hours in [0.0, 1.0, 24.0, 720.0, 8760.0, 87_600.0] {
            let p = assess(&cluster, &scheme, hours).expect("it fits").loss_probability;
            prop_assert!(p >= before, "{p} {before}");
            before = p;
        }
    }

    /// After the initial transient, losses come at a constant rate.
    #[test]
    fn loss_in_a_mission_and_mean_time_tell_the_same(cluster in clusters(), scheme in schemes()) {
        let figures = of(&cluster, &scheme);
        prop_assume!(figures.rebuild_hours < 20.0 && cluster.disk_mttf_hours > 1e5);
        let constant = -f64::exp_m1(-8760.0 / figures.mttdl_hours);
        prop_assert!(figures.loss_probability <= constant * 1.01, "{figures:?} {constant}");
        prop_assert!(figures.loss_probability >= constant * 0.97, "{figures:?} {constant}");
    }

    #[test]
    fn waiting_for_all_copies_is_never_worse(cluster in clusters(), scheme in with_copies()) {
        let with = |duplicate_hours: f64| {
            let duplication = Duplication::Asynchronous {
                write_every_hours: 1e-3,
                duplicate_hours,
                write_bytes: 1e6,
            };
            of(&cluster, &Scheme { duplication, ..scheme })
        };
        let (soon, late) = (with(1e-6), with(5e-4));
        no_worse(&of(&cluster, &scheme), &soon)?;
        no_worse(&soon, &late)?;
        prop_assert!(late.bytes_at_risk > soon.bytes_at_risk);
    }

    #[test]
    fn a_chain_has_more_neighbours_than_a_mirror(cluster in clusters(), copies in 2u32..5) {
        let scheme = |layout| Scheme {
            layout,
            redundancy: Redundancy::Copies(copies),
            duplication: Duplication::Synchronous,
        };
        no_worse(&of(&cluster, &scheme(Layout::Mirrored)), &of(&cluster, &scheme(Layout::Chained)))?;
    }

    /// Any values may come from the command line.
    #[test]
    fn any_values_are_answered_or_refused(
        nodes: u32, disks_per_node: u32, values in prop::array::uniform8(prop::num::f64::ANY),
        copies: u32, data: u32, parity: u32, mission in prop::num::f64::ANY,
    ) {
        let [mttf, node_mttf, repair, bytes, speed, detect, segment, unreadable] = values;
        let cluster = Cluster {
            nodes: nodes % 200_000,
            disks_per_node: disks_per_node % 200_000,
            disk_mttf_hours: mttf,
            node_mttf_hours: node_mttf,
            node_repair_hours: repair,
            disk_bytes: bytes,
            rebuild_bytes_per_s: speed,
            detect_hours: detect,
            segment_bytes: segment,
            unreadable_per_bit: unreadable,
        };
        for layout in [Layout::Striped, Layout::Mirrored, Layout::Chained, Layout::Random] {
            for redundancy in [
                Redundancy::Copies(copies),
                Redundancy::Code { data, parity },
                Redundancy::Raid5Mirror { data },
            ] {
                let scheme = Scheme { layout, redundancy, duplication: Duplication::Synchronous };
                if let Ok(figures) = assess(&cluster, &scheme, mission) {
                    prop_assert!(figures.mttdl_hours > 0.0, "{figures:?}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let cluster = Cluster {
        nodes: 4,
        disks_per_node: 1,
        disk_mttf_hours: 1e6,
        node_mttf_hours: 1e4,
        node_repair_hours: 1.0,
        disk_bytes: 4e12,
        rebuild_bytes_per_s: 1e8,
        detect_hours: 0.0,
        segment_bytes: 6.4e7,
        unreadable_per_bit: 0.0,
    };
    let code = Redundancy::Code { data: 8, parity: 2 };
    let duplication = Duplication::Synchronous;
    for (layout, redundancy) in [
        (Layout::Striped, Redundancy::Copies(2)),
        (Layout::Mirrored, Redundancy::Copies(1)),
        (Layout::Chained, code),
        (Layout::Random, Redundancy::Copies(0)),
        (Layout::Random, Redundancy::Copies(10)),
        (Layout::Random, Redundancy::Code { data: 65, parity: 1 }),
        (Layout::Mirrored, Redundancy::Raid5Mirror { data: 8 }),
        (Layout::Random, Redundancy::Raid5Mirror { data: 1 }),
        (Layout::Random, Redundancy::Raid5Mirror { data: 65 }),
    ] {
        let refused = assess(&cluster, &Scheme { layout, redundancy, duplication }, 1.0);
        assert!(matches!(refused, Err(Misfit::Layout(..))), "{layout} {redundancy} {refused:?}");
    }
    let wide = Scheme { layout: Layout::Random, redundancy: code, duplication };
    assert_eq!(assess(&cluster, &wide, 1.0), Err(Misfit::Nodes(Layout::Random, code, 10)));
    let pairs = Redundancy::Raid5Mirror { data: 8 };
    let refused = assess(&cluster, &Scheme { redundancy: pairs, ..wide }, 1.0);
    assert_eq!(refused, Err(Misfit::Nodes(Layout::Random, pairs, 6)));
    let backlog = Duplication::Asynchronous {
        write_every_hours: 1.0,
        duplicate_hours: 1.0,
        write_bytes: 1.0,
    };
    let pair = Scheme { redundancy: Redundancy::Copies(2), duplication: backlog, ..wide };
    assert_eq!(assess(&cluster, &pair, 1.0), Err(Misfit::Backlog));
    // A chain of two nodes is a mirror.
    let two = Cluster { nodes: 2, ..cluster };
    let of = |layout| {
        let scheme = Scheme { layout, redundancy: Redundancy::Copies(2), duplication };
        assess(&two, &scheme, 1.0).expect("it fits")
    };
    assert_eq!(of(Layout::Chained), of(Layout::Mirrored));
}

#[test]
fn raid5_and_mirror_costs_more_than_raid6_and_less_than_three_copies() {
    let cluster = Cluster {
        nodes: 12,
        disks_per_node: 4,
        disk_mttf_hours: 2e5,
        node_mttf_hours: 4e3,
        node_repair_hours: 1.0,
        disk_bytes: 4e12,
        rebuild_bytes_per_s: 1e8,
        detect_hours: 0.0,
        segment_bytes: 6.4e7,
        unreadable_per_bit: 0.0,
    };
    let (raid5, raid6) =
        (Redundancy::Raid5Mirror { data: 8 }, Redundancy::Code { data: 8, parity: 2 });
    let overheads = [Redundancy::Copies(3), raid5, raid6].map(Redundancy::overhead);
    assert_eq!(overheads, [2.0, 1.125, 0.25]);
    let last = |redundancy| of(&cluster, &scheme((Layout::Random, redundancy))).mttdl_hours;
    // Both survive two failures. A lost copy is rebuilt from one copy instead of eight members.
    assert!(last(raid5) > last(raid6) && last(raid6) > last(Redundancy::Copies(2)));
}
