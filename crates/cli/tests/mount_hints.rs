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

/// The requests of a mount that reads a file backwards, after it was told something.
fn backward(cluster: &Cluster<'_>, of: (&str, &str), bytes: &[u8], say: impl FnOnce(&Path)) -> u64 {
    backward_when_open(cluster, of, bytes, say, |_| {})
}

/// The same, if something is said of the open file too.
fn backward_when_open(
    cluster: &Cluster<'_>,
    (mount, file): (&str, &str),
    bytes: &[u8],
    say: impl FnOnce(&Path),
    say_open: impl FnOnce(&Path),
) -> u64 {
    let mnt = cluster.mount(mount, "rw");
    say(&mnt);
    let path = mnt.join(file);
    let file = File::open(&path).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    say_open(&path);
    let before = reads(cluster);
    let mut piece = vec![0; PIECE];
    for at in (0..bytes.len()).step_by(PIECE).rev() {
        file.read_exact_at(&mut piece, at as u64).unwrap();
        assert!(piece == bytes[at..at + PIECE], "{at}");
    }
    let asked = reads(cluster) - before;
    drop(file);
    cluster.umount(&mnt);
    asked
}

#[test]
fn a_directory_says_how_the_files_below_it_are_read() {
    let place = Place::new();
    let cluster = place.up("hints-dir", &["--targets", "2"]);
    let bytes = noise(4 * MIB, 2);
    let mnt = cluster.mount("mnt", "rw");
    std::fs::create_dir_all(mnt.join("d/e")).unwrap();
    std::fs::write(mnt.join("d/e/f"), &bytes).unwrap();
    cluster.umount(&mnt);

    let file = "d/e/f";
    let usual = backward(&cluster, ("usual", file), &bytes, |_| {});
    let hinted = backward(&cluster, ("below", file), &bytes, |mnt| {
        // Known to the kernel before.
        assert_eq!(std::fs::metadata(mnt.join(file)).unwrap().len(), bytes.len() as u64);
        let dir = mnt.join("d");
        set(&dir, "reverse", "").unwrap();
        assert_eq!(getxattr(&dir, "user.weir.hint.reverse", &mut [0; 8][..]), Ok(0));
        let other = getxattr(&dir, "user.weir.hint.random", &mut [0; 8][..]);
        assert_eq!(other, Err(Errno::NODATA));
        for (hint, value) in [("will_need", "0+1M"), ("records", "8M"), ("size", "1")] {
            assert_eq!(set(&dir, hint, value), Err(Errno::INVAL), "{hint}");
        }
        let wrong = removexattr(&dir, "user.weir.hint.random");
        assert_eq!(wrong, Err(Errno::NODATA));
    });
    assert!(hinted * 4 <= usual, "{hinted} of {usual} requests");
    let nearer = backward(&cluster, ("nearer", file), &bytes, |mnt| {
        set(&mnt.join("d"), "reverse", "").unwrap();
        set(&mnt.join("d/e"), "normal", "").unwrap();
    });
    assert!(nearer > hinted * 2, "the nearer directory counts: {nearer} requests");
    let taken_back = backward(&cluster, ("taken-back", file), &bytes, |mnt| {
        set(&mnt.join("d"), "reverse", "").unwrap();
        removexattr(mnt.join("d"), "user.weir.hint.reverse").unwrap();
    });
    assert!(taken_back > hinted * 2, "{taken_back} requests");
    // A file whose own hint is taken back has that of the directory again.
    let say = |mnt: &Path| set(&mnt.join("d"), "reverse", "").unwrap();
    let again = backward_when_open(&cluster, ("again", file), &bytes, say, |path| {
        set(path, "random", "").unwrap();
        removexattr(path, "user.weir.hint.random").unwrap();
    });
    assert!(again * 4 <= usual, "{again} of {usual} requests");
}
