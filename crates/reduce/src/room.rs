//! Where there is room: parities go to the targets that have most.

use crate::failure::{Done, Failure};
use crate::tree::Tree;
use rustix::fs::statvfs;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use weir_layout::set::Site;
use weir_types::TargetId;

/// Bytes that are free on the file system of each target, less the parities since.
pub struct Room(BTreeMap<TargetId, u64>);

impl Room {
    /// What there is now. Targets of one file system have the same: it is asked once.
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

    /// Puts those with most room first.
    pub fn sort(&self, sites: &mut [Site]) {
        sites.sort_by_key(|site| Reverse(self.0.get(&site.target)));
    }

    /// Some have a parity more.
    pub fn take(&mut self, targets: &[TargetId], bytes: u64) {
        for target in targets {
            let room = self.0.entry(*target).or_default();
            *room = room.saturating_sub(bytes);
        }
    }
}
