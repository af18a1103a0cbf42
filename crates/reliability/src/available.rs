//! The part of the time in which not all data can be read.
//!
//! A disk is down from its failure to the end of its rebuild, a node from its
//! stop until it is back; both are steady states of independent parts, for which
//! only the mean times matter. After a loss the data is taken to be back from
//! elsewhere when the disk is rebuilt.

use crate::cluster::Cluster;
use crate::odds;
use crate::scheme::{Layout, Scheme};

/// The part of the time in which something cannot be read, when a failed disk
/// is rebuilt in so many hours.
pub fn unavailability(cluster: &Cluster, scheme: &Scheme, rebuild_hours: f64) -> f64 {
    let disk = rebuild_hours / (rebuild_hours + cluster.disk_mttf_hours);
    let node = cluster.node_repair_hours / (cluster.node_repair_hours + cluster.node_mttf_hours);
    let (width, spare) = (scheme.redundancy.width(), scheme.redundancy.spare());
    let nodes = f64::from(cluster.nodes);
    match scheme.in_effect(cluster) {
        Layout::Random => {
            // Any nodes have something in common: too many with anything down.
            let disks = odds::any(disk, f64::from(cluster.disks_per_node));
            odds::more_than(spare, cluster.nodes, node + (1.0 - node) * disks)
        }
        layout => {
            // Runs of a chain overlap: more of the time than there is in truth.
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
