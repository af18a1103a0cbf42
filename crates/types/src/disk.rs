//! The disks below targets. Several targets can share a disk, and each of them reports the free
//! space of the whole disk.
//!
//! Invariant: a sum counts each disk once.

use crate::{DiskId, FsUsage};
use std::collections::BTreeMap;

/// Disks, and the number of targets on each.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    known: BTreeMap<DiskId, (u64, FsUsage)>,
    /// Targets whose disk is unknown: each counts as having a disk of its own.
    others: (u64, FsUsage),
}

impl Disks {
    /// Adds a target. A target of size 0 has not reported yet and is left out.
    pub fn add(&mut self, disk: DiskId, usage: &FsUsage) {
        if usage.total_bytes == 0 {
            return;
        }
        if disk == DiskId::UNKNOWN {
            self.others.0 += 1;
            add(&mut self.others.1, usage);
            return;
        }
        let (targets, room) = self.known.entry(disk).or_insert((0, *usage));
        *targets += 1;
        // Targets of one disk report at different moments.
        *room = FsUsage {
            total_bytes: room.total_bytes.max(usage.total_bytes),
            free_bytes: room.free_bytes.min(usage.free_bytes),
            total_files: room.total_files.max(usage.total_files),
            free_files: room.free_files.min(usage.free_files),
        };
    }

    /// Total space of all disks.
    pub fn usage(&self) -> FsUsage {
        let mut sum = self.others.1;
        self.known.values().for_each(|(_, usage)| add(&mut sum, usage));
        sum
    }

    /// Number of disks.
    pub fn count(&self) -> u64 {
        self.others.0 + self.known.len() as u64
    }

    /// Number of targets.
    pub fn targets(&self) -> u64 {
        self.others.0 + self.known.values().map(|(targets, _)| targets).sum::<u64>()
    }

    /// Number of targets that share a disk; 1 for an unknown disk.
    pub fn sharers(&self, disk: DiskId) -> u64 {
        self.known.get(&disk).map_or(1, |(targets, _)| *targets)
    }
}

impl FromIterator<(DiskId, FsUsage)> for Disks {
    fn from_iter<T: IntoIterator<Item = (DiskId, FsUsage)>>(targets: T) -> Self {
        let mut disks = Self::default();
        targets.into_iter().for_each(|(disk, usage)| disks.add(disk, &usage));
        disks
    }
}

fn add(sum: &mut FsUsage, usage: &FsUsage) {
    sum.total_bytes = sum.total_bytes.saturating_add(usage.total_bytes);
    sum.free_bytes = sum.free_bytes.saturating_add(usage.free_bytes);
    sum.total_files = sum.total_files.saturating_add(usage.total_files);
    sum.free_files = sum.free_files.saturating_add(usage.free_files);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(total_bytes: u64, free_bytes: u64) -> FsUsage {
        FsUsage {
            total_bytes,
            free_bytes,
            total_files: total_bytes / 10,
            free_files: free_bytes / 10,
        }
    }

    #[test]
    fn a_disk_is_counted_once_however_many_targets_are_on_it() {
        let (here, there) = (DiskId(7), DiskId(8));
        let one: Disks = [(here, usage(100, 41)), (here, usage(100, 40)), (here, usage(100, 42))]
            .into_iter()
            .collect();
        assert_eq!(one.usage(), usage(100, 40), "the least of what is said to be free");
        assert_eq!((one.count(), one.targets(), one.sharers(here)), (1, 3, 3));
        assert_eq!(one.sharers(there), 1);

        let two: Disks = [(here, usage(100, 40)), (there, usage(100, 30)), (here, usage(100, 40))]
            .into_iter()
            .collect();
        assert_eq!(two.usage(), usage(200, 70));
        assert_eq!((two.count(), two.targets()), (2, 3));
    }

    #[test]
    fn targets_whose_disk_is_not_known_count_each_and_silent_ones_not_at_all() {
        let unknown = DiskId::UNKNOWN;
        let disks: Disks = [
            (unknown, usage(100, 40)),
            (unknown, usage(100, 40)),
            (DiskId(1), usage(50, 20)),
            (DiskId(1), FsUsage::default()),
        ]
        .into_iter()
        .collect();
        assert_eq!(disks.usage(), usage(250, 100));
        assert_eq!((disks.count(), disks.targets(), disks.sharers(unknown)), (3, 3, 1));
        let huge: Disks =
            [(unknown, usage(u64::MAX, 1)), (unknown, usage(9, 1))].into_iter().collect();
        assert_eq!(huge.usage().total_bytes, u64::MAX);
    }
}
