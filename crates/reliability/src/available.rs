//! Unavailability: the share of the time during which some data cannot be read.
//!
//! A disk is down from its failure to the end of its rebuild, a node from its stop until it is
//! back. Both are steady states of independent parts, for which only the mean times matter. Lost
//! data counts as unavailable only until the failed disk is rebuilt, as if it were then restored
//! from elsewhere.

use crate::cluster::Cluster;
use crate::odds;
use crate::scheme::{Layout, Scheme};

/// Share of the time during which some data cannot be read, if the rebuild of a disk takes
/// `rebuild_hours`.
pub fn unavailability(cluster: &Cluster, scheme: &Scheme, rebuild_hours: f64) -> f64 {
    let disk = rebuild_hours / (rebuild_hours + cluster.disk_mttf_hours);
    let node = cluster.node_repair_hours / (cluster.node_repair_hours + cluster.node_mttf_hours);
    let (width, spare) = (scheme.redundancy.width(), scheme.redundancy.spare());
    let nodes = f64::from(cluster.nodes);
    match scheme.in_effect(cluster) {
        Layout::Random => {
            // Any set of nodes has a segment in common, so too many nodes with a failed part are
            // enough.
            let disks = odds::any(disk, f64::from(cluster.disks_per_node));
            odds::more_than(spare, cluster.nodes, node + (1.0 - node) * disks)
        }
        layout => {
            // The runs of neighbours in a chain overlap, so this overestimates the time.
            let groups = if layout == Layout::Chained { nodes } else { nodes / f64::from(width) };
            let group: f64 = (0..=width)
                .map(|down| {
                    let sets = match spare.checked_sub(down) {
                        Some(more) => odds::any(
                            odds::more_than(more, width - down, disk),
                            f64::from(cluster.disks_per_node),
                        ),
                        None => 1.0,
                    };
                    odds::exactly(down, width, node) * sets
                })
                .sum();
            odds::any(group, groups)
        }
    }
}
