//! Balance of used space. Pure.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{Disks, TargetId};
use weir_wire::map::{ClusterMap, TargetEntry, TargetState};

/// Differences of targets from their mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uneven {
    /// Bytes still to move from a target in this round; 0 or less if it has space.
    surplus: BTreeMap<TargetId, i64>,
    percent: u64,
    awaited: bool,
}

impl Uneven {
    /// The balance of the targets of a map that are in use, or will be when they are up to date.
    pub fn of(map: &ClusterMap) -> Self {
        let is_awaited = |t: &TargetEntry| t.state == TargetState::Syncing && !t.draining;
        let takes = |t: &TargetEntry| (t.state.is_online() && !t.draining) || is_awaited(t);
        let in_use = || map.targets().map(|(_, t)| t).filter(|t| takes(t));
        let disks: Disks = in_use().map(|t| (t.disk, t.usage)).collect();
        let used = |t: &TargetEntry| {
            // Each has its part of a disk that several are on.
            let size = t.usage.total_bytes / disks.sharers(t.disk);
            let free = t.usage.free_bytes / disks.sharers(t.disk);
            (size > 0).then_some((t.target, size.saturating_sub(free), size))
        };
        let all: Vec<(TargetId, u64, u64)> = in_use().filter_map(used).collect();
        let sum = |of: fn(&(TargetId, u64, u64)) -> u64| -> u128 {
            all.iter().map(|t| u128::from(of(t))).sum()
        };
        let (used, total) = (sum(|t| t.1), sum(|t| t.2).max(1));
        let awaited = map.targets().any(|(_, t)| is_awaited(t));
        let mut uneven = Self { awaited, ..Self::default() };
        for (target, has, size) in &all {
            let mean = (used * u128::from(*size) / total) as i64;
            let over = i64::try_from(*has).unwrap_or(i64::MAX).saturating_sub(mean);
            // Rounded up: 4.5 % is not within 4 %.
            let percent = (u128::from(over.unsigned_abs()) * 100).div_ceil(u128::from(*size));
            uneven.percent = uneven.percent.max(percent as u64);
            // Half of it: what comes elsewhere is not known before it is there.
            uneven.surplus.insert(*target, over - over / 2);
        }
        uneven
    }

    /// Largest difference of a target from the mean, in percent of its space.
    pub fn percent(&self) -> u64 {
        self.percent
    }

    /// Whether a target is on its way back, from or to which nothing can be moved yet.
    pub fn awaits_some(&self) -> bool {
        self.awaited
    }

    /// Targets with more than their share.
    pub fn full(&self) -> BTreeSet<TargetId> {
        self.surplus.iter().filter(|(_, bytes)| **bytes > 0).map(|(target, _)| *target).collect()
    }

    /// Subtracts a copy of this many bytes from a target's surplus. Returns false if the surplus is
    /// smaller.
    pub fn take(&mut self, target: TargetId, bytes: u64) -> bool {
        let Some(surplus) = self.surplus.get_mut(&target) else { return false };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let takes = bytes > 0 && *surplus >= bytes;
        *surplus -= if takes { bytes } else { 0 };
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{DiskId, Epoch, FsUsage, ServerId};
    use weir_wire::map::ServerEntry;

    fn map(used: &[(u64, u64)]) -> ClusterMap {
        let target = |(n, (used, total)): (usize, &(u64, u64))| TargetEntry {
            target: TargetId(n as u32),
            state: TargetState::Online,
            since: Epoch(0),
            past: Vec::new(),
            anew: Epoch(0),
            draining: false,
            usage: FsUsage {
                total_bytes: *total,
                free_bytes: total - used,
                total_files: 0,
                free_files: 0,
            },
            disk: DiskId::UNKNOWN,
        };
        let targets = used.iter().enumerate().map(target).collect();
        let (host, domain, tcp, unix) = Default::default();
        let server = ServerEntry { server: ServerId(1), host, domain, tcp, unix, targets };
        ClusterMap { epoch: Epoch(1), servers: vec![server] }
    }

    #[test]
    fn half_of_what_is_too_much_goes_in_a_round() {
        let mut uneven = Uneven::of(&map(&[(80, 100), (20, 100), (100, 200)]));
        assert_eq!(uneven.percent(), 30);
        assert_eq!(uneven.full(), BTreeSet::from([TargetId(0)]));
        assert!(uneven.take(TargetId(0), 10) && !uneven.take(TargetId(0), 6));
        assert!(!uneven.take(TargetId(1), 1) && !uneven.take(TargetId(9), 1));
        assert_eq!(Uneven::of(&map(&[(50, 100), (100, 200)])).percent(), 0);
        assert_eq!(Uneven::of(&map(&[])).percent(), 0);
        assert_eq!(Uneven::of(&map(&[(545, 1000), (455, 1000)])).percent(), 5, "4.5 %");
    }

    #[test]
    fn what_is_too_much_on_a_disk_goes_once_and_not_from_each_target_on_it() {
        let mut map = map(&[(80, 100), (80, 100), (20, 100)]);
        map.servers[0].targets[..2].iter_mut().for_each(|t| t.disk = DiskId(5));
        let mut uneven = Uneven::of(&map);
        assert_eq!(uneven.percent(), 30, "50 is the mean of the two disks");
        assert!(!uneven.take(TargetId(0), 9), "30 too much: half of it in a round, by both");
        assert!(uneven.take(TargetId(0), 8) && uneven.take(TargetId(1), 8));
    }

    #[test]
    fn who_is_suspected_or_on_the_way_back_counts() {
        let mut map = map(&[(80, 100), (80, 100), (20, 100)]);
        let with = |map: &mut ClusterMap, state| {
            map.servers[0].targets[2].state = state;
            Uneven::of(map)
        };
        let back = with(&mut map, TargetState::Syncing);
        assert_eq!((back.percent(), back.awaits_some()), (40, true));
        let suspected = with(&mut map, TargetState::Suspect);
        assert_eq!((suspected.percent(), suspected.awaits_some()), (40, false));
        let gone = with(&mut map, TargetState::Offline);
        assert_eq!((gone.percent(), gone.awaits_some()), (0, false));
    }
}
