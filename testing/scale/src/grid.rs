//! The runs: each policy in each scenario with each number of nodes, several times.

use crate::model::{Costs, Outcome, Run, Times};
use crate::{ALL, Cluster, Contender, Fault, Hardware, Speed, earliest_end_us};
use fastrand::Rng;
use weir_policy::{Limits, Micros, Watermarks};

/// Disks, faults, copies and jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Name in tables.
    pub name: &'static str,
    /// The fault.
    pub fault: Fault,
    /// Number of copies of each rank's data.
    pub copies: usize,
    /// Number of jobs that share the disks.
    pub jobs: usize,
    /// Largest number of nodes: the effect of a local fault does not depend on distant nodes.
    pub most_nodes: usize,
}

const fn scenario(
    name: &'static str,
    fault: Fault,
    copies: usize,
    jobs: usize,
    most_nodes: usize,
) -> Scenario {
    Scenario { name, fault, copies, jobs, most_nodes }
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 8] = [
    scenario("fail-slow-hdd", Fault::SlowHdd, 2, 1, 10_000),
    scenario("fail-slow-ssd", Fault::SlowSsd, 2, 1, 10_000),
    scenario("well", Fault::None, 2, 1, 1024),
    scenario("one-half-speed", Fault::Half, 2, 1, 1024),
    scenario("three-adjacent", Fault::Adjacent, 2, 1, 1024),
    scenario("three-adjacent-3-copies", Fault::Adjacent, 3, 1, 1024),
    scenario("one-dies", Fault::Dies, 2, 1, 1024),
    scenario("two-jobs-one-half-speed", Fault::Half, 2, 2, 1024),
];

/// Numbers of nodes.
pub const NODES: [usize; 6] = [16, 64, 256, 1024, 4096, 10_000];

/// Settings that can be changed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Length of a run, if not that of the hardware.
    pub run_bytes: Option<u64>,
    /// Size of a request, if not that of the hardware.
    pub block_bytes: Option<u64>,
    /// A request that has waited for longer is served first.
    pub longest_wait_us: Micros,
    /// Interval of a disk's messages to readers that have not heard from it.
    pub push_us: Micros,
    /// Watermarks of policies that use progress.
    pub marks: Watermarks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            run_bytes: None,
            block_bytes: None,
            longest_wait_us: Limits::default().longest_wait,
            push_us: 20_000,
            marks: Watermarks::default(),
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub contender: Contender,
    /// The scenario.
    pub scenario: Scenario,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of the trial.
    pub trial: u32,
    /// The best possible time.
    pub bound_us: f64,
    /// The outcome.
    pub outcome: Outcome,
    /// The cost of its decisions.
    pub costs: Costs,
}

impl Row {
    /// Time of the slowest rank as a multiple of the best possible.
    pub fn times_bound(&self) -> f64 {
        self.outcome.slowest_us as f64 / self.bound_us
    }
}

/// Runs all policies with the same disks, drawn for this trial. Empty if both copies of something
/// are lost.
pub fn trial(scenario: Scenario, nodes: usize, trial: u32, settings: Settings) -> Vec<Row> {
    let usual = scenario.fault.hardware();
    let hardware = Hardware {
        run_bytes: settings.run_bytes.unwrap_or(usual.run_bytes),
        block_bytes: settings.block_bytes.unwrap_or(usual.block_bytes),
        ..usual
    };
    let seed = (nodes as u64) << 32 | u64::from(trial);
    let cluster = scenario.fault.draw(nodes, hardware, &mut Rng::with_seed(seed));
    let work_bytes = hardware.work_bytes(scenario.jobs);
    let works = vec![(work_bytes * scenario.jobs as u64) as f64; nodes];
    let Some(bound_us) = earliest_end_us(&works, &cluster.disks, scenario.copies) else {
        return Vec::new();
    };
    let run = |contender| Run {
        contender,
        cluster: &cluster,
        copies: scenario.copies,
        jobs: scenario.jobs,
        work_bytes,
        block_bytes: hardware.block_bytes,
        limits: Limits {
            run_bytes: hardware.run_bytes,
            longest_wait: settings.longest_wait_us,
            ..Limits::default()
        },
        marks: settings.marks,
        push_us: settings.push_us,
    };
    let row = |contender| {
        let (outcome, costs) = run(contender).run(seed);
        Row { contender, scenario, nodes, trial, bound_us, outcome, costs }
    };
    ALL.map(row).into()
}

/// Time of each policy's decisions with this many nodes: those of the first few nodes during a
/// short job, where one of their disks is slow.
pub fn times(nodes: usize) -> Vec<(Contender, usize, Times)> {
    const WATCHED: usize = 8;
    const BLOCKS: u64 = 96;
    let Hardware { bytes_per_us, seek_us, block_bytes, run_bytes, .. } = Hardware::SSD;
    let mut disks = vec![Speed::steady(bytes_per_us); nodes];
    disks[WATCHED / 2].then(0.0, bytes_per_us / 2.0);
    let cluster = Cluster { disks, seek_us };
    let run = |contender| Run {
        contender,
        cluster: &cluster,
        copies: 2,
        jobs: 1,
        work_bytes: BLOCKS * block_bytes,
        block_bytes,
        limits: Limits { run_bytes, ..Limits::default() },
        marks: Watermarks::default(),
        push_us: Settings::default().push_us,
    };
    ALL.map(|contender| (contender, nodes, run(contender).times(1, WATCHED))).into()
}
