//! The model of CEFT-PVFS, as its authors give it: Y. Zhu, H. Jiang, X. Qin,
//! D. Feng, D. R. Swanson, "Design, Implementation and Performance Evaluation of
//! a Cost-Effective, Fault-Tolerant Parallel Virtual File System" (SNAPI 2003),
//! section "Reliability and Availability Analysis".
//!
//! Two groups of `N` nodes. In state `i: mPnB`, `m` nodes of the primary group
//! and `n` of the backup group have failed. A node fails with what it holds; a
//! primary node whose backup has failed, or that holds writes not yet
//! duplicated, takes data with it. The failure of the switch is counted as loss.
//! The paper prints the rates of its transitions as figures; they are those that
//! its words and its published numbers leave.

use crate::chain::Chain;
use crate::scheme::Misfit;

/// Hours of a day.
const DAY: f64 = 24.0;

/// Nodes of a group for which the chain is built, at the most: 2,145 states.
const MAX_NODES: u32 = 64;

/// The paper's numbers of server nodes in a group.
pub const GROUPS: [u32; 3] = [8, 16, 32];

/// What fails, how fast, and how soon it is repaired. Hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Mean time to failure of a node.
    pub node_mttf: f64,
    /// Mean time to failure of the switch; infinite: it does not fail.
    pub switch_mttf: f64,
    /// Mean time to repair of a node, its data included.
    pub repair: f64,
}

/// The paper's: a year, three years, two days.
pub const RATES: Rates =
    Rates { node_mttf: 365.0 * DAY, switch_mttf: 1095.0 * DAY, repair: 2.0 * DAY };

impl Rates {
    /// MTTDL of PVFS, plain striping, on so many nodes: the first failure is the
    /// last.
    pub fn pvfs_mttdl(&self, nodes: u32) -> f64 {
        1.0 / (f64::from(nodes) / self.node_mttf + 1.0 / self.switch_mttf)
    }

    /// MTTDL of two groups of so many nodes; `consistent` (the paper's `P_c`, 1 -
    /// MTTD/MTTW) is the probability that a primary node has duplicated all.
    pub fn ceft_mttdl(&self, nodes: u32, consistent: f64) -> Result<f64, Misfit> {
        if !(1..=MAX_NODES).contains(&nodes) || !(0.0..=1.0).contains(&consistent) {
            return Err(Misfit::Value("nodes of a group and P_c", "from 1 to 64 and 0 to 1"));
        }
        Ok(self.chain(nodes, consistent).mean_time_to_loss())
    }

    /// The part of the time in which the system works: `MTTDL / (MTTDL + MTTR)`.
    pub fn availability(&self, mttdl: f64) -> f64 {
        mttdl / (mttdl + self.repair)
    }

    fn chain(&self, nodes: u32, consistent: f64) -> Chain {
        let mut chain = Chain::new(state_of(0, nodes) as usize);
        let (fails, repairs) = (1.0 / self.node_mttf, 1.0 / self.repair);
        for (primary, backup) in (1..=state_of(0, nodes)).map(failed_in) {
            // The paper counts states from 1.
            let at = |m, n| state_of(m, n) as usize - 1;
            let here = at(primary, backup);
            // Nodes of either group whose partner is good, as they are themselves.
            let pairs = f64::from(nodes - primary - backup);
            chain.lose(here, 1.0 / self.switch_mttf);
            // Partners of the failed: with them data is gone.
            chain.lose(here, f64::from(primary + backup) * fails);
            chain.lose(here, pairs * fails * (1.0 - consistent));
            if primary + backup < nodes {
                chain.jump(here, at(primary + 1, backup), pairs * fails * consistent);
                chain.jump(here, at(primary, backup + 1), pairs * fails);
            }
            if primary > 0 {
                chain.jump(here, at(primary - 1, backup), f64::from(primary) * repairs);
            }
            if backup > 0 {
                chain.jump(here, at(primary, backup - 1), f64::from(backup) * repairs);
            }
        }
        chain
    }
}

/// Equation 2: the number of the state with `m` and `n` nodes failed.
pub fn state_of(m: u32, n: u32) -> u32 {
    (m + n) * (m + n + 1) / 2 + n + 1
}

/// Equations 3 and 4: the failed nodes of a state.
pub fn failed_in(state: u32) -> (u32, u32) {
    let x = ((f64::sqrt(8.0 * f64::from(state) + 1.0) - 3.0) / 2.0).ceil() as u32;
    let n = state - 1 - x * (x + 1) / 2;
    (x - n, n)
}
