//! The model of CEFT-PVFS by its authors: Y. Zhu, H. Jiang, X. Qin, D. Feng, D. R. Swanson,
//! "Design, Implementation and Performance Evaluation of a Cost-Effective, Fault-Tolerant Parallel
//! Virtual File System" (SNAPI 2003), section "Reliability and Availability Analysis".
//!
//! Two groups of `N` nodes. In state `i: mPnB`, `m` nodes of the primary group and `n` of the
//! backup group have failed. A failing node loses its data. If it is a primary node whose backup
//! has failed, or that holds writes not yet duplicated, data is lost for good. A failure of the
//! switch counts as loss. The paper prints the transition rates as figures; the rates here follow
//! from its text and its published numbers.

use crate::chain::Chain;
use crate::scheme::Misfit;

/// Hours of a day.
const DAY: f64 = 24.0;

/// Maximum number of nodes in a group for which the chain is built: 2,145 states.
const MAX_NODES: u32 = 64;

/// The paper's numbers of server nodes in a group.
pub const GROUPS: [u32; 3] = [8, 16, 32];

/// Failure and repair times, hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Mean time to failure of a node.
    pub node_mttf: f64,
    /// Mean time to failure of the switch. Infinite: it never fails.
    pub switch_mttf: f64,
    /// Mean time to repair of a node, including its data.
    pub repair: f64,
}

/// The paper's rates: a year, three years, two days.
pub const RATES: Rates =
    Rates { node_mttf: 365.0 * DAY, switch_mttf: 1095.0 * DAY, repair: 2.0 * DAY };

impl Rates {
    /// MTTDL of PVFS (plain striping) on `nodes` nodes: the first failure loses data.
    pub fn pvfs_mttdl(&self, nodes: u32) -> f64 {
        1.0 / (f64::from(nodes) / self.node_mttf + 1.0 / self.switch_mttf)
    }

    /// MTTDL of two groups of `nodes` nodes. `consistent` (the paper's `P_c`, 1 - MTTD/MTTW) is the
    /// probability that a primary node has duplicated all of its writes.
    pub fn ceft_mttdl(&self, nodes: u32, consistent: f64) -> Result<f64, Misfit> {
        if !(1..=MAX_NODES).contains(&nodes) || !(0.0..=1.0).contains(&consistent) {
            return Err(Misfit::Value("nodes of a group and P_c", "from 1 to 64 and 0 to 1"));
        }
        Ok(self.chain(nodes, consistent).mean_time_to_loss())
    }

    /// Share of the time during which the system works: `MTTDL / (MTTDL + MTTR)`.
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
            // Nodes of either group that are good and whose partner is good.
            let pairs = f64::from(nodes - primary - backup);
            chain.lose(here, 1.0 / self.switch_mttf);
            // A failure of a failed node's partner loses data.
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
