//! What experiments share: disks of a set speed, a cluster on them, files.

use crate::args::Common;
use crate::bed::Bed;
use crate::cluster::Cluster;
use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tempfile::TempDir;
use weir_testbed::{Disk, Drive, Throttle};

/// What each perturber reads around and around, or writes.
const PERTURBED_BYTES: u64 = 16 << 20;
/// A disk has so much for the file system, and for what Weir notes.
const SPARE_BYTES: u64 = 48 << 20;

/// Goes in the order in which it stands here.
pub struct Lab {
    pub cluster: Cluster,
    pub throttle: Throttle,
    pub disks: Vec<Disk>,
    /// What a disk gives.
    pub rate: u64,
    /// The disks are as fast as they are to be from the beginning.
    is_slow: bool,
    /// Something was written since servers have looked how fast disks are that nobody uses.
    pub was_written: AtomicBool,
    /// Of mounts that are read through.
    pub options: String,
    dir: TempDir,
}

impl Lab {
    /// So many disks with room for so much; they are as fast as the machine until
    /// [`Lab::slow_down`].
    pub fn new(common: &Common, disks: usize, bytes: u64) -> Result<Self> {
        Self::of(common, bytes, &vec![None; disks])
    }

    /// The same of disks with heads, whose speed is always theirs.
    pub fn with_heads(common: &Common, bytes: u64, drives: &[Drive]) -> Result<Self> {
        Self::of(common, bytes, &drives.iter().copied().map(Some).collect::<Vec<_>>())
    }

    fn of(common: &Common, bytes: u64, drives: &[Option<Drive>]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
        let bytes = Self::disk_bytes(bytes);
        let disk = |(n, drive): (usize, &Option<Drive>)| {
            let (image, at) = (dir.path().join(format!("i{n}")), dir.path().join(format!("d{n}")));
            match drive {
                Some(drive) => Disk::make_modelled(&image, &at, bytes, *drive),
                None => Disk::make(&image, &at, bytes),
            }
        };
        let disks = drives.iter().enumerate().map(disk).collect::<Result<Vec<Disk>>>()?;
        disks.iter().try_for_each(|disk| disk.device().read_ahead(common.read_ahead_kib))?;
        let cluster = Cluster::start(common.weir()?, dir.path().join("c"), &disks)?;
        let throttle = Throttle::new(&format!("weir-figures-{}", std::process::id()))?;
        for pid in cluster.data_pids(disks.len())? {
            throttle.add(pid)?;
        }
        for disk in &disks {
            write_noise(&perturbed_file(disk), PERTURBED_BYTES, 99)?;
        }
        let options = options(common);
        let (rate, is_slow) = (common.rate(), drives.iter().any(Option::is_some));
        let was_written = AtomicBool::new(false);
        Ok(Self { cluster, throttle, disks, rate, is_slow, was_written, options, dir })
    }

    /// What a disk holds if there is room for so much on it.
    pub fn disk_bytes(room: u64) -> u64 {
        room + PERTURBED_BYTES + SPARE_BYTES
    }

    /// Machines of a profile, whose disks have room for so much each.
    pub fn on(common: &Common, bed: &Bed<'_>, bytes: u64) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
        // Beside that directory: what goes with it, whatever happens, is not to be a testbed that
        // could not be taken down.
        let (at, room) = (dir.path().with_extension("bed"), Self::disk_bytes(bytes));
        let cluster = bed.up(common, at, room)?;
        let made = bed.found(&cluster)?;
        // Of disks with a head the group is new; what a writer has is taken from those that are in it.
        for pid in cluster.data_pids(made.disks.len())? {
            made.throttle.add(pid)?;
        }
        for disk in &made.disks {
            write_noise(&perturbed_file(disk), PERTURBED_BYTES, 99)?;
        }
        let options = options(common);
        let (throttle, disks, rate) = (made.throttle, made.disks, made.rate);
        let (is_slow, was_written) = (true, AtomicBool::new(false));
        Ok(Self { cluster, throttle, disks, rate, is_slow, was_written, options, dir })
    }

    /// Makes a file by such a layout and fills it.
    pub fn write(&self, name: &str, layout: &[&str], bytes: u64) -> Result<()> {
        self.cluster.make_file(name, layout)?;
        self.was_written.store(true, Relaxed);
        let mount = self.cluster.mount(0, self.place("w"), "rw")?;
        write_noise(&mount.path().join(name), bytes, 1)
    }

    /// A file beside the disks, with such bytes; its path.
    pub fn input(&self, name: &str, bytes: u64) -> Result<String> {
        let path = self.place(name);
        write_noise(&path, bytes, 7)?;
        path.to_str().map(str::to_owned).ok_or_else(|| Error::other("a path that is not UTF-8"))
    }

    /// Copies such a file in calls of so many bytes, and makes it durable.
    pub fn copy(&self, input: &str, to: &Path, call_bytes: u64) -> Result<()> {
        self.copy_part(input, to, call_bytes, 0..u64::MAX)
    }

    /// The same to a range of a file, of as much of the input as fits.
    pub fn copy_part(
        &self,
        input: &str,
        to: &Path,
        call_bytes: u64,
        range: Range<u64>,
    ) -> Result<()> {
        let mut input = File::open(input)?.take(range.end - range.start);
        let mut to = File::options().write(true).open(to)?;
        to.seek(SeekFrom::Start(range.start))?;
        let mut buffer = vec![0; call_bytes as usize];
        loop {
            let n = input.read(&mut buffer)?;
            if n == 0 {
                return to.sync_all();
            }
            to.write_all(&buffer[..n])?;
        }
    }

    /// From now on the servers, and who is taken into their group, get so much of a disk.
    pub fn slow_down(&self) -> Result<()> {
        let mut plain = self.disks.iter().filter(|_| !self.is_slow);
        plain.try_for_each(|disk| self.throttle.limit(disk, self.rate))
    }

    /// A path for something that is removed again.
    pub fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Of mounts that are read through.
pub fn options(common: &Common) -> String {
    let more = common.mount_options.iter().map(|more| format!(",{more}"));
    format!("ro{}", more.collect::<String>())
}

/// A disk whose head is at once wherever it is to be. Everybody waits for it, also the kernel, which
/// the throttle does not slow down when it writes back by itself.
pub fn without_seeks(bytes_per_s: u64) -> Drive {
    Drive {
        bytes_per_s,
        positioning_us: 0,
        overhead_us: 0,
        streams: 1,
        prefetch_bytes: 128 << 10,
        zones: None,
    }
}

/// A file beside the target of a disk.
pub fn perturbed_file(disk: &Disk) -> PathBuf {
    disk.path().join("perturbed")
}

/// Bytes without a pattern, on the disk when it returns.
pub fn write_noise(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![0; 1 << 20];
    // One that Weir has made is there, with its layout.
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(|e| Error::other(format!("{}: {e}", path.display())))?;
    let mut left = bytes;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = left.min(block.len() as u64);
        file.write_all(&block[..part as usize])?;
        left -= part;
    }
    file.sync_all()
}
