//! Builds the Markov chain of a scheme. Its state is the number of failed disks of a group that are
//! not rebuilt yet.

use crate::chain::Chain;
use crate::cluster::Cluster;
use crate::odds;
use crate::pairs::Pairs;
use crate::scheme::{Layout, Misfit, Redundancy, Scheme};

/// A random layout may survive more failures than guaranteed. The chain follows up to this many of
/// them; one more counts as loss.
const LUCKY: u32 = 16;

/// Independent Markov chains of one kind.
#[derive(Clone, Debug)]
pub struct Model {
    /// One chain.
    pub chain: Chain,
    /// Number of chains.
    pub groups: f64,
    /// Mean hours from the failure of a single disk to the end of its rebuild.
    pub rebuild_hours: f64,
    /// Number of disks on which writes are acknowledged first.
    pub primaries: f64,
}

/// The model of a scheme that has passed its check.
pub fn model(cluster: &Cluster, scheme: &Scheme) -> Result<Model, Misfit> {
    let pending = scheme.duplication.pending()?;
    // A single copy waits for no other.
    let pending = if scheme.redundancy.spare() == 0 { 0.0 } else { pending };
    let width = f64::from(scheme.redundancy.width());
    let disks = cluster.disks();
    Ok(match scheme.in_effect(cluster) {
        Layout::Random => random(cluster, scheme.redundancy, pending),
        Layout::Striped | Layout::Mirrored => {
            let read = match scheme.redundancy {
                Redundancy::Raid5Mirror { data } => {
                    let parts = width / f64::from(scheme.redundancy.parts());
                    let pairs = Pairs::new(data, scheme.redundancy.width(), 1);
                    cluster.disk_bytes * parts * pairs.critical_parts()
                }
                other => cluster.disk_bytes * f64::from(other.data()),
            };
            fixed(cluster, scheme.redundancy, pending, (disks / width, read))
        }
        // Each run of neighbours is a group, and the groups overlap. Their losses are positively
        // correlated, so treating them as independent gives a lower bound. A disk belongs to
        // `width` groups.
        Layout::Chained => {
            let read = cluster.disk_bytes / width;
            fixed(cluster, scheme.redundancy, pending, (disks, read))
        }
    })
}

/// Independent groups of disks, each of which survives the loss of any `spare` disks. `last_bytes`:
/// what is read to rebuild a disk when no more loss can be survived.
fn fixed(
    cluster: &Cluster,
    redundancy: Redundancy,
    pending: f64,
    (groups, last_bytes): (f64, f64),
) -> Model {
    let fails = cluster.disk_failures_per_hour();
    let (width, spare) = (redundancy.width(), redundancy.spare());
    // One replacement disk receives all of the data.
    let rebuild_hours = cluster.detect_hours + cluster.hours_to_move(cluster.disk_bytes, 1.0);
    let unreadable = cluster.unreadable(last_bytes);
    let mut chain = Chain::new(spare as usize + 1);
    for failed in 0..=spare {
        let state = failed as usize;
        if failed == spare {
            chain.lose(state, fails * f64::from(width - failed));
        } else {
            // One of the remaining disks is the primary, which may hold writes that exist nowhere
            // else.
            chain.lose(state, fails * pending);
            chain.jump(state, state + 1, fails * (f64::from(width - failed) - pending));
        }
        if failed > 0 {
            let rebuilt = f64::from(failed) / rebuild_hours;
            let lost = if failed == spare { unreadable } else { 0.0 };
            chain.jump(state, state - 1, rebuilt * (1.0 - lost));
            chain.lose(state, rebuilt * lost);
        }
    }
    Model { chain, groups, rebuild_hours, primaries: groups }
}

/// All disks as one group: any of them may hold parts of one segment.
fn random(cluster: &Cluster, redundancy: Redundancy, pending: f64) -> Model {
    let fails = cluster.disk_failures_per_hour();
    let disks = cluster.disks();
    let spare = redundancy.spare();
    let shared = Shared::new(cluster, redundancy);
    let critical = cluster.unreadable(shared.critical_bytes(cluster, redundancy));
    let states = f64::min(f64::from(spare + LUCKY), disks - 1.0) as u32;
    let mut chain = Chain::new(states as usize + 1);
    for failed in 0..=states {
        let state = failed as usize;
        let left = disks - f64::from(failed);
        let fatal = if failed == states { 1.0 } else { shared.fatal(failed) };
        let lost = pending + (1.0 - pending) * fatal;
        chain.lose(state, left * fails * lost);
        if failed < states {
            chain.jump(state, state + 1, left * fails * (1.0 - lost));
        }
        if failed > 0 {
            // The remaining disks share their bandwidth among all failed ones.
            let moving = f64::from(failed) * moving_hours(cluster, redundancy, failed);
            let rebuilt = f64::from(failed) / (cluster.detect_hours + moving);
            let lost = if failed == spare { critical } else { 0.0 };
            chain.jump(state, state - 1, rebuilt * (1.0 - lost));
            chain.lose(state, rebuilt * lost);
        }
    }
    let rebuild_hours = cluster.detect_hours + moving_hours(cluster, redundancy, 1);
    Model { chain, groups: 1.0, rebuild_hours, primaries: disks }
}

/// Hours in which the remaining disks rebuild the data of one of `failed` disks. For each byte they
/// read `read_for_one` bytes and write one. They can write only where the segment has no part yet,
/// at least on the replacement disk.
fn moving_hours(cluster: &Cluster, redundancy: Redundancy, failed: u32) -> f64 {
    let left = f64::max(cluster.disks() - f64::from(failed), 1.0);
    let other_nodes = match pairs(cluster, redundancy) {
        None => f64::from(cluster.nodes - redundancy.width()),
        Some(pairs) => pairs.nodes_for_a_copy(),
    };
    let own_node = f64::from(cluster.disks_per_node - 1);
    let writers = f64::max(other_nodes * f64::from(cluster.disks_per_node) + own_node, 1.0);
    let moved = cluster.disk_bytes * (redundancy.read_for_one() + 1.0);
    let all = cluster.hours_to_move(moved, left);
    f64::max(all, cluster.hours_to_move(cluster.disk_bytes, f64::min(writers, left)))
}

/// Probabilities that disks of a random layout hold parts of the same segment.
struct Shared {
    spare: u32,
    /// Probability that `spare + 1` disks on distinct nodes hold a segment that their failure
    /// loses.
    hold: f64,
    /// Probability that this many disks are on distinct nodes.
    distinct: f64,
    /// Probability that the failure of `spare + 2` disks loses a segment that any `spare + 1` of
    /// them would not lose.
    with_one_more: f64,
}

impl Shared {
    fn new(cluster: &Cluster, redundancy: Redundancy) -> Self {
        let spare = redundancy.spare();
        let segments = cluster.disks() * cluster.disk_bytes
            / cluster.segment_bytes
            / f64::from(redundancy.parts());
        let (hold, with_one_more) = match pairs(cluster, redundancy) {
            None => (on_these(cluster, redundancy, spare + 1), 0.0),
            Some(pairs) => {
                let on_four = odds::any(pairs.lost_with_four(), segments);
                let on_three = odds::any(pairs.lost_with_four_on_three(), segments);
                let four = distinct_nodes(cluster, 4) * on_four;
                (pairs.lost_with_three(), four + two_on_one_of_four(cluster) * on_three)
            }
        };
        Self {
            spare,
            hold: odds::any(hold, segments),
            distinct: distinct_nodes(cluster, spare + 1),
            with_one_more,
        }
    }

    /// Probability that the next failure loses data, when `failed` disks have failed and nothing is
    /// lost.
    fn fatal(&self, failed: u32) -> f64 {
        let sets = |of: u32| odds::choose(f64::from(failed), of);
        let usual = odds::any(self.hold * self.distinct, sets(self.spare));
        usual + (1.0 - usual) * odds::any(self.with_one_more, sets(self.spare + 1))
    }

    /// Mean bytes that are read to rebuild segments that cannot bear another loss, when `failed`
    /// disks have failed.
    fn critical_bytes(&self, cluster: &Cluster, redundancy: Redundancy) -> f64 {
        let parts = match pairs(cluster, redundancy) {
            None => on_these(cluster, redundancy, self.spare) * f64::from(redundancy.data()),
            Some(pairs) => pairs.critical_parts(),
        };
        let each = cluster.disks() * cluster.disk_bytes / f64::from(redundancy.parts());
        parts * distinct_nodes(cluster, self.spare) * each
    }
}

/// The placement of RAID 5 and mirror sets, if the scheme uses them.
fn pairs(cluster: &Cluster, redundancy: Redundancy) -> Option<Pairs> {
    match redundancy {
        Redundancy::Raid5Mirror { data } => {
            Some(Pairs::new(data, cluster.nodes, cluster.disks_per_node))
        }
        Redundancy::Copies(_) | Redundancy::Code { .. } => None,
    }
}

/// Probability that all of `count` given disks on distinct nodes hold a part of
/// a given segment.
fn on_these(cluster: &Cluster, redundancy: Redundancy, count: u32) -> f64 {
    let each = |i: u32| {
        let nodes = f64::from(redundancy.width() - i) / f64::from(cluster.nodes - i);
        nodes / f64::from(cluster.disks_per_node)
    };
    (0..count).map(each).product()
}

/// Probability that two of four disks are on one node, and the others on two more nodes.
fn two_on_one_of_four(cluster: &Cluster) -> f64 {
    let (disks, per_node) = (cluster.disks(), f64::from(cluster.disks_per_node));
    let same = (per_node - 1.0).max(0.0) / (disks - 1.0).max(1.0);
    let others = (2..4).map(f64::from).map(|i| {
        let there = (i - 1.0) * per_node;
        (disks - there).max(0.0) / (disks - i).max(1.0)
    });
    odds::choose(4.0, 2) * same * others.product::<f64>()
}

/// Probability that `count` of all disks are on distinct nodes.
fn distinct_nodes(cluster: &Cluster, count: u32) -> f64 {
    let (disks, per_node) = (cluster.disks(), f64::from(cluster.disks_per_node));
    (0..count).map(f64::from).map(|i| (disks - i * per_node) / (disks - i)).product()
}
