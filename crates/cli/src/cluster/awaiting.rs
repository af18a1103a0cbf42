//! Waits until targets are online.

use crate::failure::{Done, Failure};
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_wire::map::TargetState;

/// The longest that targets may take to appear in the cluster map.
pub const TARGETS_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of targets that are not online.
#[derive(Default)]
pub struct Missing {
    pub out_of_service: usize,
    /// Those that are getting missed changes, or waiting to learn what they missed.
    pub syncing: usize,
    pub offline: usize,
}

/// Waits until targets are online or out of service, and counts those that are not. Data servers
/// register with the metadata server only after they have begun to serve.
pub fn await_targets(client: &Client, targets: &[u32]) -> Done<Missing> {
    await_targets_for(client, targets, TARGETS_TIMEOUT)
}

/// As [`await_targets`], with another time limit.
pub fn await_targets_for(client: &Client, targets: &[u32], patience: Duration) -> Done<Missing> {
    let begin = Instant::now();
    loop {
        let map = client.cluster_map()?;
        let wanted = || map.targets().filter(|(_, t)| targets.contains(&t.target.0));
        let count = |state| wanted().filter(|(_, t)| t.state == state).count();
        let (out_of_service, syncing) =
            (count(TargetState::OutOfService), count(TargetState::Syncing));
        let known = count(TargetState::Online) + out_of_service + syncing;
        let offline = targets.len().saturating_sub(known);
        let is_up = syncing + offline == 0;
        if is_up || begin.elapsed() > patience {
            return Ok(Missing { out_of_service, syncing, offline });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The failure that targets have not appeared: their data servers have not registered.
pub fn never_heard_of(targets: usize) -> Failure {
    let seconds = TARGETS_TIMEOUT.as_secs();
    Failure::new(format!("{targets} targets are not online after {seconds} s"))
        .hint("the logs of the data servers say why they cannot reach the metadata server")
}
