//! Tests of the disk as processes meet it.

mod conformance;
mod crash;
mod durability;
mod faults;
mod history;

use super::{SimDisk, with_disk};
use weir_host::fs::{Directory, File, OpenHow};

/// The root directory of a disk.
fn root(disk: &SimDisk) -> Directory {
    with_disk(disk, 0, || Directory::open("/".as_ref()).unwrap())
}

/// A file with this content, durable with its name.
fn durable_file(disk: &SimDisk, name: &str, bytes: &[u8]) -> File {
    let root = root(disk);
    let file = root.open_file(name, OpenHow::CREATE).unwrap();
    file.write_full(bytes, 0).unwrap();
    file.sync("test-data").unwrap();
    root.sync("test-name").unwrap();
    file
}

/// What so many power cuts leave of a disk.
fn images(disk: &SimDisk, count: u64) -> impl Iterator<Item = SimDisk> {
    let disk = disk.copy();
    (0..count).map(move |seed| {
        let image = disk.copy();
        image.power_cut(&mut fastrand::Rng::with_seed(seed));
        image
    })
}
