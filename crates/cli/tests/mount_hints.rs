//! Hints of how a program reads a file that it has open on a mount: `user.weir.hint.*`.

use crate::harness::{Cluster, Place, eventually, noise};
use rustix::fs::{Advice, XattrFlags, fadvise, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: usize = 1 << 20;
const PIECE: usize = 64 << 10;

/// Reads that all data servers have answered.
fn reads(cluster: &Cluster<'_>) -> u64 {
    let status = cluster.weir(&["status", "--json", "--counters"]).json();
    let servers = status["servers"].as_object().unwrap().values();
    servers.filter_map(|server| server["counters"]["op.read"].as_u64()).sum()
}

fn set(path: &Path, hint: &str, value: &str) -> Result<(), Errno> {
    let name = format!("user.weir.hint.{hint}");
    setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

/// Opens a file through a mount that has nothing in memory, so that the kernel fetches nothing ahead.
fn opened(cluster: &Cluster<'_>, mount: &str) -> (PathBuf, File) {
    let path = cluster.mount(mount, "rw").join("f");
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    (path, file)
}

#[test]
fn a_program_says_by_attributes_how_it_reads() {
    let place = Place::new();
    let cluster = place.up("hints", &["--targets", "2"]);
    let bytes = noise(4 * MIB, 1);
    let mnt = cluster.mount("mnt", "rw");
    std::fs::write(mnt.join("f"), &bytes).unwrap();
    // The mount is told of a close a moment later.
    eventually("it is not open", || set(&mnt.join("f"), "reverse", "") == Err(Errno::BADF));
    std::fs::create_dir(mnt.join("d")).unwrap();
    let dir = File::open(mnt.join("d")).unwrap();
    assert_eq!(set(&mnt.join("d"), "reverse", "").unwrap_err(), Errno::BADF, "a directory");
    drop(dir);
    cluster.umount(&mnt);

    let backward = |file: &File| {
        let before = reads(&cluster);
        let mut piece = vec![0; PIECE];
        for at in (0..bytes.len()).step_by(PIECE).rev() {
            file.read_exact_at(&mut piece, at as u64).unwrap();
            assert!(piece == bytes[at..at + PIECE], "{at}");
        }
        reads(&cluster) - before
    };
    let usual = backward(&opened(&cluster, "usual").1);
    let (path, file) = opened(&cluster, "reverse");
    set(&path, "reverse", "").unwrap();
    let hinted = backward(&file);
    assert!(hinted * 4 <= usual, "{hinted} of {usual} requests");
    removexattr(&path, "user.weir.hint.reverse").unwrap();
    drop(file);

    let (path, file) = opened(&cluster, "needed");
    let before = reads(&cluster);
    set(&path, "will_need", "1M+256K,3M+4K").unwrap();
    eventually("it is asked for", || reads(&cluster) > before);
    let mut part = vec![0; PIECE];
    file.read_exact_at(&mut part, MIB as u64).unwrap();
    assert!(part == bytes[MIB..MIB + PIECE]);
    set(&path, "done_with", "1M+256K").unwrap();
    set(&path, "records", "64K").unwrap();
    for (hint, value) in [("records", "0"), ("reverse", "1"), ("will_need", "all"), ("size", "1")] {
        assert_eq!(set(&path, hint, value).unwrap_err(), Errno::INVAL, "{hint}");
    }
    let shown = getxattr(&path, "user.weir.hint.records", &mut [0; 8][..]);
    assert_eq!(shown.unwrap_err(), Errno::NODATA);
}
