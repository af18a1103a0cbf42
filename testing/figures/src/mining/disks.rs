//! The disks of the NFS server: for each number of drives an array with the file, and disks with a
//! replica each. All are in the directory that it exports.

use super::machines::Wanted;
use crate::proof::nothing_in_memory;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use weir_testbed::profile::Plan;
use weir_testbed::{Array, Device, Disk, Drive, Throttle};

/// Each is so many times as fast as a drive.
pub const TIMES: u64 = 2;
/// A disk has so much more than the file.
pub const SPARE_BYTES: u64 = 64 << 20;
pub const FILE: &str = "sales";

/// Dropped, they go.
pub struct Disks {
    /// By their number of disks.
    arrays: BTreeMap<u32, Array>,
    replicas: Vec<Disk>,
    /// Whoever reads disks without heads through the server.
    pub group: Option<Throttle>,
    pub rate: u64,
}

impl Disks {
    /// With a file; the kernel reads so many KiB ahead of each disk.
    pub fn new(
        ahead: u64,
        machines: &Plan,
        wanted: &Wanted<'_>,
        (export, file): (&Path, &Path),
    ) -> Result<Self> {
        let none = || Error::other("a profile without disks");
        let rate = TIMES * machines.disk_rates.first().copied().ok_or_else(none)?;
        let drive = machines.drive(0).map(|drive| Drive { bytes_per_s: rate, ..drive });
        let mut arrays = BTreeMap::new();
        for disks in wanted.drives {
            let room = wanted.bytes / u64::from(*disks) + 2 * SPARE_BYTES;
            let array = Array::make(&of_array(export, *disks), *disks as usize, room, drive)?;
            array.read_ahead(ahead * u64::from(*disks))?;
            fs::copy(file, array.path().join(FILE))?;
            arrays.insert(*disks, array);
        }
        let replicas = wanted.drives.last().copied().unwrap_or_default();
        let replica = |n: u32| {
            let (at, room) = (of_replica(export, n), wanted.bytes + SPARE_BYTES);
            let image = at.with_extension("image");
            let disk = match drive {
                Some(drive) => Disk::make_modelled(&image, &at, room, drive)?,
                None => Disk::make(&image, &at, room)?,
            };
            disk.device().read_ahead(ahead)?;
            fs::copy(file, at.join(FILE))?;
            Ok(disk)
        };
        let replicas = (0..replicas).map(replica).collect::<Result<Vec<Disk>>>()?;
        let mut disks = Self { arrays, replicas, group: None, rate };
        disks.forget()?;
        if drive.is_none() {
            let group = Throttle::new(&format!("weir-figures-nfs{}", std::process::id()))?;
            disks.devices().try_for_each(|device| group.limit(device, rate))?;
            disks.group = Some(group);
        }
        Ok(disks)
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        let of_arrays = self.arrays.values().flat_map(Array::devices);
        of_arrays.chain(self.replicas.iter().map(Disk::device))
    }

    /// Nothing of any file is in memory.
    pub fn forget(&self) -> Result<()> {
        let of_arrays = self.arrays.values().map(Array::path);
        of_arrays.chain(self.replicas.iter().map(Disk::path)).try_for_each(nothing_in_memory)
    }

    /// What all of them have given.
    pub fn read_bytes(&self) -> Result<u64> {
        self.devices().map(|device| Ok(device.counts()?.read_bytes)).sum()
    }
}

/// Where an array of so many disks is.
pub fn of_array(export: &Path, disks: u32) -> PathBuf {
    export.join(format!("striped{disks}"))
}

/// Where the replica of a client is, from 0.
pub fn of_replica(export: &Path, client: u32) -> PathBuf {
    export.join(format!("replica{client}"))
}
