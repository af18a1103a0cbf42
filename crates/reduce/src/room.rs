//! Free space: parities go to the targets that have most.

use crate::failure::{Done, Failure};
use crate::tree::Tree;
use rustix::fs::statvfs;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use weir_layout::set::Site;
use weir_types::TargetId;

/// Free bytes on the file system of each target, less the parities planned since.
pub struct Room(BTreeMap<TargetId, u64>);

impl Room {
    /// Asks for the free space. Targets on one file system share it, so that each file system is
    /// asked once.
    pub fn of(tree: &Tree) -> Done<Self> {
        let (mut of_device, mut room) = (BTreeMap::new(), BTreeMap::new());
        for (target, dir) in tree.targets.iter() {
            let failed = |e| Failure::file(dir, e);
            let device = std::fs::metadata(dir).map_err(failed)?.dev();
            let bytes = match of_device.get(&device) {
                Some(bytes) => *bytes,
                None => {
                    let found = statvfs(dir).map_err(|e| Failure::file(dir, e))?;
                    found.f_bavail.saturating_mul(found.f_frsize)
                }
            };
            of_device.insert(device, bytes);
            room.insert(target, bytes);
        }
        Ok(Self(room))
    }

    /// Sorts targets by free space, most first.
    pub fn sort(&self, sites: &mut [Site]) {
        sites.sort_by_key(|site| Reverse(self.0.get(&site.target)));
    }

    /// Subtracts a parity on each of these targets.
    pub fn take(&mut self, targets: &[TargetId], bytes: u64) {
        for target in targets {
            let room = self.0.entry(*target).or_default();
            *room = room.saturating_sub(bytes);
        }
    }
}
