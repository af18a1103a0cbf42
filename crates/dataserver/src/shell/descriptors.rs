//! The limit of descriptors of this process, and their division between open objects and
//! connections. A server with few descriptors serves as many files, but opens objects more often.

use crate::config::DataServerConfig;
use weir_net::raise_descriptor_limit;

/// Descriptors for other uses: logs, directories, event loops, and objects in use that are not kept
/// open.
const OTHERS: u64 = 3072;
/// Objects that each target keeps open if descriptors suffice.
const OBJECTS_PER_TARGET: u64 = 1024;
/// The fewest objects that a target keeps open. With fewer it would open every object again.
const LEAST_OBJECTS: u64 = 8;
/// The fewest connections with which a server can work.
const LEAST_CONNECTIONS: u64 = 32;

/// Division of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Objects that each target keeps open.
    pub(crate) objects_per_target: usize,
    /// Number of connections.
    pub(crate) connections: usize,
}

impl Descriptors {
    /// Asks for all descriptors that the configuration wants, and divides those that are granted.
    pub(crate) fn of(config: &DataServerConfig) -> Self {
        let (connections, targets) = (config.max_connections as u64, config.targets.len() as u64);
        let wanted = connections + OTHERS + OBJECTS_PER_TARGET * targets;
        let shares = Self::share(raise_descriptor_limit(wanted), connections, targets);
        if (shares.connections as u64) < connections {
            tracing::warn!(
                "the limit of open files allows {} connections instead of {connections}: raise it \
                 (`ulimit -n`, `LimitNOFILE=`) if there are more clients than that",
                shares.connections
            );
        }
        shares
    }

    fn share(allowed: u64, connections: u64, targets: u64) -> Self {
        let targets = targets.max(1);
        let (objects, connections) =
            if allowed >= connections + OTHERS + OBJECTS_PER_TARGET * targets {
                (OBJECTS_PER_TARGET, connections)
            } else {
                let objects = (allowed / 4 / targets).clamp(LEAST_OBJECTS, OBJECTS_PER_TARGET);
                let others = (allowed / 4).min(OTHERS);
                let left = allowed.saturating_sub(objects * targets + others);
                (objects, connections.min(left.max(LEAST_CONNECTIONS)))
            };
        Self { objects_per_target: objects as usize, connections: connections as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared_out_and_never_exceeded() {
        let all = Descriptors { objects_per_target: 1024, connections: 4096 };
        assert_eq!(Descriptors::share(65_536, 4096, 4), all);
        let few = Descriptors::share(256, 4096, 1);
        assert_eq!(few, Descriptors { objects_per_target: 64, connections: 128 });
        for allowed in [256u64, 1024, 5000, 20_000] {
            for targets in 1..=8 {
                let shares = Descriptors::share(allowed, 65_536, targets);
                let used = shares.objects_per_target as u64 * targets + shares.connections as u64;
                let others = (allowed / 4).min(OTHERS);
                assert!(used + others <= allowed, "{allowed} {targets}: {shares:?}");
            }
        }
    }
}
