//! Several disks as one file system: btrfs in stripes of 64 KiB over all of them (RAID 0).

use crate::device::Device;
use crate::disk::Made;
use crate::model::Drive;
use crate::{have, run, text};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Minimum size of a device for btrfs.
const MIN_BYTES: u64 = 160 << 20;
/// Where the kernel has btrfs settings, by the id of a file system.
const FILE_SYSTEMS: &str = "/sys/fs/btrfs";

/// What this machine lacks for an array; `None`: nothing.
pub fn missing() -> Option<&'static str> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = known.split_whitespace().any(|name| name == "btrfs");
    (!known || !have(&["mkfs.btrfs"], "--version")).then_some("btrfs and mkfs.btrfs (btrfs-progs)")
}

/// A mounted array. Dropping it removes all of it.
#[derive(Debug)]
pub struct Array {
    at: PathBuf,
    devices: Vec<Device>,
    /// Declared before the disks, so that it is dropped first.
    _mounted: Made,
    _disks: Vec<Made>,
}

impl Array {
    /// Makes an array of disks of `bytes` each, and mounts it at the directory `at`, which must not
    /// exist. The disks' images are beside it. Without a drive model the disks are as fast as the
    /// machine.
    ///
    /// # Errors
    /// The failed program and its error.
    pub fn make(at: &Path, disks: usize, bytes: u64, drive: Option<Drive>) -> Result<Self> {
        let image = |n: usize| at.with_extension(format!("disk{n}"));
        let disk = |n| Made::disk(&image(n), bytes.max(MIN_BYTES), drive);
        let disks = (0..disks).map(disk).collect::<Result<Vec<Made>>>()?;
        let devices: Vec<Device> = disks.iter().filter_map(Made::device).collect();
        let nodes: Vec<String> = devices.iter().map(Device::node).collect();
        let first = nodes.first().ok_or_else(|| Error::other("an array of no disks"))?;
        let data = if nodes.len() > 1 { "raid0" } else { "single" };
        let mut words = vec!["-q", "-K", "-f", "-d", data, "-m", data];
        words.extend(nodes.iter().map(String::as_str));
        run("mkfs.btrfs", &words)?;
        let mut mounted = Made::default();
        mounted.dir(at)?;
        let named = nodes.iter().map(|node| format!(",device={node}")).collect::<String>();
        // Checksums would use CPU time of the server, and the papers' file systems have none.
        let options = format!("noatime,nodatasum{named}");
        run("mount", &["-t", "btrfs", "-o", &options, first, text(at)?])?;
        mounted.is_mounted(at);
        Ok(Self { at: at.into(), devices, _mounted: mounted, _disks: disks })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Its disks.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Sets the kernel's read-ahead of sequential reads on the whole array. btrfs has its own
    /// setting, 4 MiB or more by default.
    ///
    /// # Errors
    /// It cannot be set.
    pub fn read_ahead(&self, kib: u64) -> Result<()> {
        let first = self.devices.first().map(Device::node).unwrap_or_default();
        let number = run("blkid", &["-p", "-s", "UUID", "-o", "value", &first])?;
        let path = Path::new(FILE_SYSTEMS).join(number).join("bdi/read_ahead_kb");
        fs::write(&path, kib.to_string())
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    /// Bytes that the kernel has read from all of its disks.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_bytes(&self) -> Result<u64> {
        self.devices.iter().map(|device| Ok(device.counts()?.read_bytes)).sum()
    }
}
