//! RAID 5 and mirror: two copies of each member of a set, on pairs of nodes of which
//! no two are the same, and a parity on a node of no pair.
//!
//! A member is gone with both its disks. The parity brings back one: a set loses data
//! with two members, or with one and the parity. No two disks are that; of three some
//! are, and of four two pairs without a disk in common.

/// The fewest nodes that have so many pairs.
fn nodes_for_pairs(pairs: u32) -> u32 {
    let mut nodes = 2;
    while nodes * (nodes - 1) / 2 < pairs {
        nodes += 1;
    }
    nodes
}

/// The fewest nodes that a set of so many members is on.
pub fn nodes_of_set(members: u32) -> u32 {
    nodes_for_pairs(members) + 1
}

/// Sets whose parity is on a node drawn at random, and their members on pairs of the
/// others drawn without repetition; on each node a disk is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    members: f64,
    nodes: f64,
    disks_per_node: f64,
}

impl Pairs {
    /// At least two members, on at least [`nodes_of_set`] nodes.
    pub fn new(members: u32, nodes: u32, disks_per_node: u32) -> Self {
        let [members, nodes, disks_per_node] = [members, nodes, disks_per_node].map(f64::from);
        Self { members, nodes, disks_per_node }
    }

    /// Pairs of nodes that members may be on.
    fn pairs(self) -> f64 {
        (self.nodes - 1.0) * (self.nodes - 2.0) / 2.0
    }

    /// Probability that a member is on a given pair of nodes, none of which has the
    /// parity.
    fn on_pair(self) -> f64 {
        self.members / self.pairs()
    }

    /// Probability that members are on two given pairs of nodes.
    fn on_two_pairs(self) -> f64 {
        self.on_pair() * (self.members - 1.0) / (self.pairs() - 1.0)
    }

    /// Probability that the copies of a member are on given disks of its nodes.
    fn on_disks(self) -> f64 {
        self.disks_per_node.powi(-2)
    }

    /// Probability that the parity is on none of so many nodes.
    fn parity_beside(self, nodes: f64) -> f64 {
        (self.nodes - nodes).max(0.0) / self.nodes
    }

    /// Probability that the parity is on a given disk.
    fn parity_on(self) -> f64 {
        1.0 / (self.nodes * self.disks_per_node)
    }

    /// Probability that a set is lost with three given disks on distinct nodes.
    pub fn lost_with_three(self) -> f64 {
        let hit = self.on_disks();
        // Of three pairs at least two are members': those are counted thrice where all
        // three are.
        let third = (self.members - 2.0) / (self.pairs() - 2.0);
        let members = self.on_two_pairs() * hit * hit * (3.0 - 2.0 * third * hit);
        let with_parity = 3.0 * self.parity_on() * self.on_pair() * hit;
        self.parity_beside(3.0) * members + with_parity
    }

    /// The same for four, by two pairs that have no disk in common, if they are on
    /// distinct nodes: an upper bound.
    pub fn lost_with_four(self) -> f64 {
        let hit = self.on_disks();
        3.0 * self.on_two_pairs() * hit * hit * self.parity_beside(4.0)
    }

    /// The same if two of the four are on one node.
    pub fn lost_with_four_on_three(self) -> f64 {
        let hit = self.on_disks();
        2.0 * self.on_two_pairs() * hit * hit * self.parity_beside(3.0)
    }

    /// Mean number of nodes that a lost copy can be made on, beside its own: those without
    /// the other copy and the parity, with which that makes a pair of no other member.
    pub fn nodes_for_a_copy(self) -> f64 {
        let taken = (self.members - 1.0) / (self.pairs() - 1.0);
        (self.nodes - 3.0) * (1.0 - taken)
    }

    /// Mean parts of a set that have to be read, with nothing in their place, when two
    /// given disks on distinct nodes have failed: all of a set that has lost a member, and
    /// the other copies of what shares the disks with a lost parity.
    pub fn critical_parts(self) -> f64 {
        let member = self.on_pair() * self.on_disks() * self.parity_beside(2.0);
        let beside = 2.0 * self.members / ((self.nodes - 1.0) * self.disks_per_node);
        member * self.members + 2.0 * self.parity_on() * beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways in which a set of two members is on four nodes of one disk: the parity on
    /// one of them, the members on two of the three pairs of the others.
    #[test]
    fn what_can_be_counted_agrees() {
        assert_eq!([2, 3, 4, 6, 8, 10, 11].map(nodes_of_set), [4, 4, 5, 5, 6, 6, 7]);
        let pairs = Pairs::new(2, 4, 1);
        // Three nodes without the parity lose both members; three with it lose the one
        // that is on the other two, if it is there: two thirds of the time.
        let expected = 0.25 + 0.75 * 2.0 / 3.0;
        assert!((pairs.lost_with_three() - expected).abs() < 1e-15);
        assert_eq!(pairs.lost_with_four(), 0.0);
        // Eight members on five of six nodes: two pairs of ten are free.
        let pairs = Pairs::new(8, 6, 1);
        let two_of_three = 3.0 * 56.0 / 90.0 - 2.0 * (8.0 * 7.0 * 6.0) / 720.0;
        let expected = 0.5 * two_of_three + 0.5 * 0.8;
        assert!((pairs.lost_with_three() - expected).abs() < 1e-15);
    }
}
