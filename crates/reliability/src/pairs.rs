//! RAID 5 and mirror: two copies of each member of a set, on pairs of nodes of which no two are the
//! same, and a parity on a node of no pair.
//!
//! A member is lost if both of its disks fail. The parity restores one. So a set loses data with
//! two lost members, or with one lost member and the parity. No two disks are enough for that.
//! Three disks are enough in some placements, and four disks if they are two pairs.

/// The smallest number of nodes with at least this many pairs.
fn nodes_for_pairs(pairs: u32) -> u32 {
    let mut nodes = 2;
    while nodes * (nodes - 1) / 2 < pairs {
        nodes += 1;
    }
    nodes
}

/// The smallest number of nodes for a set with this many members.
pub fn nodes_of_set(members: u32) -> u32 {
    nodes_for_pairs(members) + 1
}

/// RAID 5 and mirror sets at random: the parity on a random node, the members on random distinct
/// pairs of the other nodes, and a random disk on each node.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    members: f64,
    nodes: f64,
    disks_per_node: f64,
}

impl Pairs {
    /// A placement of at least two members on at least [`nodes_of_set`] nodes.
    pub fn new(members: u32, nodes: u32, disks_per_node: u32) -> Self {
        let [members, nodes, disks_per_node] = [members, nodes, disks_per_node].map(f64::from);
        Self { members, nodes, disks_per_node }
    }

    /// Number of node pairs available to members.
    fn pairs(self) -> f64 {
        (self.nodes - 1.0) * (self.nodes - 2.0) / 2.0
    }

    /// Probability that some member is on a given pair of nodes, neither of which has the parity.
    fn on_pair(self) -> f64 {
        self.members / self.pairs()
    }

    /// Probability that members are on both of two given pairs of nodes.
    fn on_two_pairs(self) -> f64 {
        self.on_pair() * (self.members - 1.0) / (self.pairs() - 1.0)
    }

    /// Probability that the copies of a member are on given disks of its two nodes.
    fn on_disks(self) -> f64 {
        self.disks_per_node.powi(-2)
    }

    /// Probability that the parity is on none of `nodes` given nodes.
    fn parity_beside(self, nodes: f64) -> f64 {
        (self.nodes - nodes).max(0.0) / self.nodes
    }

    /// Probability that the parity is on a given disk.
    fn parity_on(self) -> f64 {
        1.0 / (self.nodes * self.disks_per_node)
    }

    /// Probability that the failure of three given disks on distinct nodes loses a set.
    pub fn lost_with_three(self) -> f64 {
        let hit = self.on_disks();
        // At least two of the three pairs hold members. Where all three do, the cases of two are
        // counted three times.
        let third = (self.members - 2.0) / (self.pairs() - 2.0);
        let members = self.on_two_pairs() * hit * hit * (3.0 - 2.0 * third * hit);
        let with_parity = 3.0 * self.parity_on() * self.on_pair() * hit;
        self.parity_beside(3.0) * members + with_parity
    }

    /// Probability that the failure of four given disks on distinct nodes loses a set in two
    /// disjoint pairs: an upper bound.
    pub fn lost_with_four(self) -> f64 {
        let hit = self.on_disks();
        3.0 * self.on_two_pairs() * hit * hit * self.parity_beside(4.0)
    }

    /// As [`Pairs::lost_with_four`], if two of the four disks are on one node.
    pub fn lost_with_four_on_three(self) -> f64 {
        let hit = self.on_disks();
        2.0 * self.on_two_pairs() * hit * hit * self.parity_beside(3.0)
    }

    /// Mean number of further nodes on which a lost copy can be rebuilt: nodes without the other
    /// copy and the parity, whose pair with the other copy's node is free.
    pub fn nodes_for_a_copy(self) -> f64 {
        let taken = (self.members - 1.0) / (self.pairs() - 1.0);
        (self.nodes - 3.0) * (1.0 - taken)
    }

    /// Mean number of parts of a set that must be read when two given disks on distinct nodes have
    /// failed: the whole set if a member is lost, or, if the parity is lost, the other copies of
    /// members on the failed disks.
    pub fn critical_parts(self) -> f64 {
        let member = self.on_pair() * self.on_disks() * self.parity_beside(2.0);
        let beside = 2.0 * self.members / ((self.nodes - 1.0) * self.disks_per_node);
        member * self.members + 2.0 * self.parity_on() * beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All placements of a set with two members on four nodes of one disk: the parity on one node,
    /// the members on two of the three pairs of the others.
    #[test]
    fn what_can_be_counted_agrees() {
        assert_eq!([2, 3, 4, 6, 8, 10, 11].map(nodes_of_set), [4, 4, 5, 5, 6, 6, 7]);
        let pairs = Pairs::new(2, 4, 1);
        // Three nodes without the parity lose both members. Three nodes with it lose the member on
        // the other two, which is there in two thirds of the cases.
        let expected = 0.25 + 0.75 * 2.0 / 3.0;
        assert!((pairs.lost_with_three() - expected).abs() < 1e-15);
        assert_eq!(pairs.lost_with_four(), 0.0);
        // Eight members on five of six nodes: two of their ten pairs are free.
        let pairs = Pairs::new(8, 6, 1);
        let two_of_three = 3.0 * 56.0 / 90.0 - 2.0 * (8.0 * 7.0 * 6.0) / 720.0;
        let expected = 0.5 * two_of_three + 0.5 * 0.8;
        assert!((pairs.lost_with_three() - expected).abs() < 1e-15);
    }
}
