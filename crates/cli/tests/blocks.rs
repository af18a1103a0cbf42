//! What files take (`st_blocks`): as on a local file system, also of files with holes, and without
//! a message for files that have none.

use crate::coherence_io::{Mapping, Two, next_data, next_hole, open, two};
use crate::harness::{Place, SOON, eventually, kill_and_wait, noise, root, said};
use crate::library::client;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions};
use weir_types::{FileId, LayoutSpec, TargetId};
use weir_wire::Rights;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bytes of disk that a file takes.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn of(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

/// The sum of a counter of both data servers.
fn servers(client: &Client, name: &str) -> u64 {
    let of = |target| client.data_status(TargetId(target), 5000).unwrap().counters;
    let counters = [1, 2].into_iter().flat_map(of);
    counters.filter(|(n, _)| n == name).map(|(_, value)| value).sum()
}

/// What a command says, run in a directory.
fn says(dir: &Path, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir);
    said(command).ok()
}

/// What is done to a file and how many bytes it takes then.
fn everything(dir: &Path) -> Vec<(&'static str, u64)> {
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
    let mut all = Vec::new();
    let sparse = open(&dir.join("sparse"));
    sparse.set_len(GIB).unwrap();
    all.push(("made longer", of(&sparse)));
    sparse.write_all_at(&noise(100_000, 1), 300 * MIB).unwrap();
    all.push(("written in the middle", of(&sparse)));
    sparse.sync_all().unwrap();
    all.push(("and synced", of(&sparse)));
    sparse.write_all_at(&noise(5_000, 2), 2 * GIB).unwrap();
    all.push(("written behind the end", of(&sparse)));
    sparse.set_len(301 * MIB).unwrap();
    sparse.sync_all().unwrap();
    all.push(("cut", of(&sparse)));
    sparse.set_len(0).unwrap();
    all.push(("emptied", of(&sparse)));
    drop(sparse);
    all.push(("and closed", taken(&dir.join("sparse"))));

    let dense = open(&dir.join("dense"));
    dense.write_all_at(&noise(5 << 20, 3), 0).unwrap();
    all.push(("written", of(&dense)));
    dense.sync_all().unwrap();
    all.push(("and synced", of(&dense)));
    fallocate(&dense, keep | punch, MIB, 2 * MIB).unwrap();
    all.push(("punched", of(&dense)));
    fallocate(&dense, FallocateFlags::empty(), 0, 5 * MIB).unwrap();
    all.push(("reserved where the hole was", of(&dense)));
    fallocate(&dense, keep, 5 * MIB, 3 * MIB).unwrap();
    all.push(("reserved behind the end", of(&dense)));
    fallocate(&dense, FallocateFlags::ZERO_RANGE, 0, MIB).unwrap();
    all.push(("zeroed", of(&dense)));
    fallocate(&dense, FallocateFlags::empty(), 20 * MIB, 4 * MIB).unwrap();
    all.push(("reserved far behind the end", of(&dense)));
    drop(dense);
    all.push(("and closed", taken(&dir.join("dense"))));

    let reserved = open(&dir.join("reserved"));
    fallocate(&reserved, keep, 0, 2 * MIB).unwrap();
    all.push(("room for an empty file", of(&reserved)));
    all
}

/// About the same: a local file system takes some blocks for its own tables.
fn agree(local: u64, mount: u64) -> bool {
    local.abs_diff(mount) <= 32 << 10
}

/// A file of a mount takes so much at each of these paths.
#[track_caller]
fn all_take(paths: &[&Path], bytes: u64) {
    let all: Vec<u64> = paths.iter().map(|path| taken(path)).collect();
    assert!(all.iter().all(|taken| *taken >= bytes && agree(bytes, *taken)), "{all:?}, {bytes}");
}

/// What `du` says of a file, bytes.
fn du(dir: &Path, name: &str) -> u64 {
    let said = says(dir, &["du", "-k", name]);
    said.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_file_takes_what_a_local_one_would_take() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "one", "");
    let local = place.path("local");
    fs::create_dir(&local).unwrap();
    let (expected, real) = (everything(&local), everything(&a));
    println!("{expected:?}\n{real:?}");
    let differ: Vec<_> =
        expected.iter().zip(&real).filter(|(local, mount)| !agree(local.1, mount.1)).collect();
    assert!(differ.is_empty(), "{differ:?}");
    // Another mount sees the same.
    for name in ["sparse", "dense", "reserved"] {
        let (here, there) = (taken(&local.join(name)), taken(&b.join(name)));
        assert!(agree(here, there), "{name}: {here}, on the other mount {there}");
    }
}

/// The data server's file system allocates space for its own tables when it writes data back, after
/// the first question.
#[test]
fn what_a_file_takes_is_the_same_on_every_mount_whenever_it_is_asked() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "one", "");
    let files: Vec<String> = (0..10).map(|n| format!("f{n}")).collect();
    for (n, name) in files.iter().enumerate() {
        let file = open(&a.join(name));
        for piece in 0..30 {
            file.write_all_at(&noise(4096, n as u64), (1 + piece * 37) << 16).unwrap();
        }
    }
    let on = |mount: &Path| files.iter().map(|f| taken(&mount.join(f))).collect::<Vec<u64>>();
    let early = on(&a);
    rustix::fs::syncfs(File::open(place.path(".")).unwrap()).unwrap();
    let c = cluster.mount("c", "");
    assert_eq!((early, on(&a), on(&b)), (on(&c), on(&c), on(&c)));
    assert_eq!(on(&c), [30 * 4096; 10]);
}

#[test]
fn data_and_holes_begin_and_end_where_they_do_on_a_local_disk() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "one", "");
    let local = place.path("local");
    fs::create_dir(&local).unwrap();
    const UNIT: u64 = 64 << 10;
    let cases: [(&[(u64, usize)], u64); 6] = [
        (&[(0, 122_764)], MIB),
        (&[(0, 5), (3 * UNIT + 5000, 3000)], 4 * MIB + 17),
        (&[(UNIT - 100, 200), (4 * UNIT, 4096), (5 * UNIT, 1)], 6 * UNIT),
        (&[(7, 4096), (12_289, 1)], 12_290),
        (&[(0, 70_001)], 70_002),
        (&[], 10_000),
    ];
    for (n, (pieces, size)) in cases.into_iter().enumerate() {
        let name = format!("f{n}");
        for dir in [&local, &a] {
            let file = open(&dir.join(&name));
            for (at, len) in pieces {
                file.write_all_at(&noise(*len, 1), *at).unwrap();
            }
            file.set_len(size).unwrap();
        }
        let [local, a, b] = [&local, &a, &b].map(|dir| File::open(dir.join(&name)).unwrap());
        let near = |at: u64| [at.saturating_sub(1), at, at + 1, at + 1000];
        let ends = pieces.iter().flat_map(|(at, len)| [*at, at + *len as u64]);
        let blocks = ends.clone().flat_map(|at| [at / 4096 * 4096, at.next_multiple_of(4096)]);
        for at in ends.chain(blocks).chain([0, 8192, 20_000, size]).flat_map(near) {
            for file in [&a, &b] {
                let found = (next_data(file, at), next_hole(file, at));
                assert_eq!(found, (next_data(&local, at), next_hole(&local, at)), "{n}: {at}");
            }
        }
    }
}

#[test]
fn a_plainly_written_file_takes_its_size_at_once_and_nobody_is_asked() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "one", "");
    let (client, dir) = (client(&cluster, false), a.join("dir"));
    fs::create_dir(&dir).unwrap();
    for (n, len) in [1, 4096, 70_000, 3 << 20, 20 << 20].into_iter().enumerate() {
        let file = open(&dir.join(format!("f{n}")));
        // In pieces, so that some are on their way and others are not.
        for (piece, bytes) in noise(len, n as u64).chunks(50_000).enumerate() {
            file.write_all_at(bytes, piece as u64 * 50_000).unwrap();
            let end = piece as u64 * 50_000 + bytes.len() as u64;
            assert!(of(&file) >= end, "{} of {end}", of(&file));
        }
        file.sync_all().unwrap();
        assert_eq!(of(&file), (len as u64).next_multiple_of(4096));
    }
    let rewritten = open(&dir.join("f3"));
    rewritten.write_all_at(&noise(MIB as usize, 7), MIB).unwrap();
    // More ranges than one message reports, and then the end of the file.
    for place in 0..20 {
        rewritten.write_all_at(&noise(4096, place), place * (128 << 10)).unwrap();
    }
    rewritten.write_all_at(&noise(5000, 8), 3 * MIB).unwrap();
    drop(rewritten);
    let asked = || servers(&client, "op.stat_object");
    let before = asked();
    for mount in [&a, &b] {
        says(mount, &["ls", "-ls", "dir"]);
        says(mount, &["du", "-s", "dir"]);
        // Served from what the other has.
        assert_eq!(taken(&mount.join("dir/f4")), 20 * MIB);
    }
    assert_eq!(asked(), before);
}

#[test]
fn of_a_file_with_holes_each_server_is_asked_once_until_it_changes() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "one", "");
    let client = client(&cluster, false);
    let (path, there) = (a.join("f"), b.join("f"));
    let file = open(&path);
    file.set_len(GIB).unwrap();
    file.write_all_at(&noise(MIB as usize, 1), 500 * MIB).unwrap();
    drop(file);
    all_take(&[&path, &there], MIB);
    let asked = || servers(&client, "op.stat_object");
    let before = asked();
    for _ in 0..10 {
        all_take(&[&path, &there], MIB);
        assert!(agree(du(&b, "f"), MIB));
        says(&a, &["ls", "-ls"]);
    }
    assert!(asked() - before <= 4, "{}", asked() - before);
    // What another mount changes is seen.
    open(&path).write_all_at(&noise(MIB as usize, 2), 700 * MIB).unwrap();
    let mut file = File::open(&there).unwrap();
    let before = asked();
    // For the size alone.
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), GIB);
    assert_eq!(file.read_at(&mut [0; 100], GIB - 10).unwrap(), 10);
    assert_eq!(asked(), before);
    assert!(agree(of(&file), 2 * MIB), "{}", of(&file));
    drop(file);
    all_take(&[&there, &path], 2 * MIB);
    // A file that was truncated to nothing and rewritten has no holes.
    fs::write(&path, noise(100_000, 3)).unwrap();
    let before = asked();
    assert_eq!((taken(&there), taken(&path)), (102_400, 102_400));
    assert_eq!(asked(), before);
}

#[test]
fn a_hole_that_is_filled_in_the_end_is_none() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "one", "");
    let client = client(&cluster, false);
    let (here, there) = (open(&a.join("f")), open(&b.join("f")));
    // As the processes of a parallel program, in any order.
    there.write_all_at(&noise(MIB as usize, 1), 3 * MIB).unwrap();
    there.sync_all().unwrap();
    all_take(&[&a.join("f"), &b.join("f")], MIB);
    here.write_all_at(&noise(MIB as usize, 2), MIB).unwrap();
    assert!(of(&here) >= 2 * MIB, "what is not sent yet counts: {}", of(&here));
    here.sync_all().unwrap();
    there.write_all_at(&noise(2 * MIB as usize, 3), 2 * MIB).unwrap();
    here.write_all_at(&noise(MIB as usize, 4), 0).unwrap();
    drop((here, there));
    all_take(&[&a.join("f"), &b.join("f")], 4 * MIB);
    // Of one writer it is known that there is none left.
    let file = open(&a.join("g"));
    file.write_all_at(&noise(MIB as usize, 1), MIB).unwrap();
    file.sync_all().unwrap();
    all_take(&[&a.join("g")], MIB);
    file.write_all_at(&noise(MIB as usize, 1), 0).unwrap();
    file.sync_all().unwrap();
    let before = servers(&client, "op.stat_object");
    assert_eq!((of(&file), taken(&b.join("g"))), (2 * MIB, 2 * MIB));
    assert_eq!(servers(&client, "op.stat_object"), before);
}

#[test]
fn programs_see_holes() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let local = place.path("local");
    fs::create_dir(&local).unwrap();
    // It holds what it says for a while: then a listing must not tell of sizes.
    let relaxed = cluster.mount("relaxed", "consistency=relaxed,ttl=60");
    for dir in [&local, &place.path("m")] {
        says(dir, &["truncate", "-s", "1T", "f"]);
        assert_eq!(du(dir, "f"), 0);
        says(dir, &["truncate", "-s", "64M", "f"]);
        open(&dir.join("f")).write_all_at(&noise(MIB as usize, 1), 32 * MIB).unwrap();
        assert!(agree(MIB, du(dir, "f")));
        says(dir, &["tar", "-cSf", "tar", "f"]);
        let len = fs::metadata(dir.join("tar")).unwrap().len();
        assert!((MIB..2 * MIB).contains(&len), "{}: {len}", dir.display());
        for how in ["auto", "always", "never"] {
            says(dir, &["cp", &format!("--sparse={how}"), "f", how]);
            let expected = if how == "never" { 64 * MIB } else { MIB };
            let taken = du(dir, how);
            assert!(agree(expected, taken), "{how} in {}: {taken}", dir.display());
            says(dir, &["cmp", "f", how]);
        }
    }
    let listed = says(&relaxed, &["ls", "-lsk", "--time-style=+"]);
    let blocks = |name: &str| {
        let line = listed.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    };
    assert!(agree(MIB, blocks("f")) && agree(64 * MIB, blocks("never")), "{listed}");
}

#[test]
fn no_program_takes_a_few_bytes_before_far_ones_for_a_hole() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    let (dir, back) = (place.path("m"), place.path("back"));
    fs::create_dir(&back).unwrap();
    let file = open(&dir.join("f"));
    let (far, near) = (900 * MIB, 300 * MIB);
    for at in [far, near] {
        file.write_all_at(&noise(4096, at), at).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    all_take(&[&dir.join("f")], 2 * 4096);
    says(&dir, &["tar", "-cSf", "tar", "f"]);
    says(&dir, &["tar", "-xSf", "tar", "-C", back.to_str().unwrap()]);
    let file = File::open(back.join("f")).unwrap();
    for at in [far, near] {
        let mut found = [0; 4096];
        file.read_exact_at(&mut found, at).unwrap();
        assert!(found[..] == noise(4096, at)[..], "at {at}");
    }
}

#[test]
fn copies_count_once_and_who_does_not_answer_counts_by_size() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let (client, other) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let make = |name: &str, copies| {
        let layout = Some(LayoutSpec { count: 2, copies, ..LayoutSpec::default() });
        let options = CreateOptions { layout, ..CreateOptions::default() };
        let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
        file.truncate(&ctx, GIB).unwrap();
        file.write_at(&ctx, 500 * MIB, &noise(MIB as usize, 1)).unwrap();
        let id = file.id();
        file.close(&ctx).unwrap();
        id
    };
    let allocated = |file| {
        let attr = other.getattr(&ctx, file).unwrap();
        assert!(attr.sparse && attr.size == GIB);
        other.allocated(&ctx, &attr).unwrap()
    };
    let [twice, once] = [make("twice", 2), make("once", 1)];
    assert!(agree(MIB, allocated(twice)) && agree(MIB, allocated(once)));
    let [twice, once] = [make("t", 2), make("o", 1)];
    let _stopped = cluster.stopped(&["data-2"]);
    let begin = Instant::now();
    assert!(agree(GIB / 2 + MIB / 2, allocated(once)));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let begin = Instant::now();
    assert!(allocated(twice) >= MIB);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn who_does_not_answer_is_waited_for_once_and_not_for_each_file() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let (client, other) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let make = |n: u32| {
        let layout = Some(LayoutSpec { count: 2, ..LayoutSpec::default() });
        let options = CreateOptions { layout, ..CreateOptions::default() };
        let name = format!("f{n}");
        let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
        file.truncate(&ctx, GIB).unwrap();
        let id = file.id();
        file.close(&ctx).unwrap();
        id
    };
    let files: Vec<_> = (0..30).map(make).collect();
    let _stopped = cluster.stopped(&["data-2"]);
    let begin = Instant::now();
    for file in files {
        let attr = other.getattr(&ctx, file).unwrap();
        assert!(agree(GIB / 2, other.allocated(&ctx, &attr).unwrap()));
    }
    // Once in ten seconds, and not thirty times.
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// A file of so many columns that is a hole and nothing else, of a GiB each.
fn hole(client: &Client, name: &str, columns: u16) -> FileId {
    let ctx = Context::root();
    let layout = Some(LayoutSpec { count: columns, base: Some(0), ..LayoutSpec::default() });
    let options = CreateOptions { layout, ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
    file.truncate(&ctx, u64::from(columns) * GIB).unwrap();
    let id = file.id();
    file.close(&ctx).unwrap();
    id
}

#[test]
fn what_others_have_answered_counts_though_half_of_the_servers_do_not() {
    let place = Place::new();
    let cluster = place.up("half", &["--targets", "6"]);
    let (client, other) = (client(&cluster, true), client(&cluster, true));
    let file = hole(&client, "f", 6);
    let _stopped = cluster.stopped(&["data-1", "data-2", "data-3"]);
    let attr = other.getattr(&Context::root(), file).unwrap();
    let taken = other.allocated(&Context::root(), &attr).unwrap();
    assert!(agree(3 * GIB, taken), "{taken}");
}

#[test]
fn who_gives_up_asking_holds_nothing_against_those_who_had_no_time() {
    let place = Place::new();
    let cluster = place.up("killed", &["--targets", "2"]);
    let (client, other) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let [file, another] = ["f", "g"].map(|name| hole(&client, name, 2));
    let attr = other.getattr(&ctx, file).unwrap();
    let stopped = cluster.stopped(&["data-1", "data-2"]);
    let (mut kill, killed) = std::os::unix::net::UnixStream::pair().unwrap();
    let asking = Context { interrupt: Some(killed.as_raw_fd()), ..Context::root() };
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| other.allocated(&asking, &attr));
        // Both have been asked by then, or are about to be.
        std::thread::sleep(Duration::from_millis(300));
        kill.write_all(b"x").unwrap();
        assert_eq!(asked.join().unwrap(), None);
    });
    drop(stopped);
    for file in [file, another] {
        let attr = other.getattr(&ctx, file).unwrap();
        let taken = other.allocated(&ctx, &attr).unwrap();
        assert!(agree(0, taken), "{taken}");
    }
}

#[test]
fn a_hole_that_is_filled_by_who_has_written_in_many_places_before_it_is_none() {
    let place = Place::new();
    let cluster = place.up("many", &["--targets", "2"]);
    let (first, second) = (client(&cluster, false), client(&cluster, false));
    let ctx = Context::root();
    let layout = LayoutSpec { count: 1, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, _) = first.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
    file.write_at(&ctx, 0, &noise(MIB as usize, 1)).unwrap();
    file.sync(&ctx).unwrap();
    file.truncate(&ctx, 2 * MIB).unwrap();
    let id = file.id();
    file.close(&ctx).unwrap();
    assert!(first.getattr(&ctx, id).unwrap().sparse);
    let (file, _) = second.open(&ctx, id, Rights::READ_WRITE).unwrap();
    (0..40).for_each(|n| file.write_at(&ctx, n * 20_000, &noise(4096, n)).unwrap());
    file.write_at(&ctx, MIB, &noise(MIB as usize, 2)).unwrap();
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
    assert!(!first.getattr(&ctx, id).unwrap().sparse, "it has no hole any more");
}

#[test]
fn no_hole_of_a_writer_that_was_killed_is_taken_for_data() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "one", "");
    let [hole, begun] = ["hole", "begun"].map(|name| open(&a.join(name)));
    for file in [&hole, &begun] {
        file.write_all_at(&noise(MIB as usize, 1), 0).unwrap();
        file.sync_all().unwrap();
    }
    // So much that some of it is sent at once.
    hole.write_all_at(&noise(32 * MIB as usize, 2), 512 * MIB).unwrap();
    begun.write_all_at(&noise(32 * MIB as usize, 2), MIB).unwrap();
    kill_and_wait(cluster.mount_pid(&a));
    eventually("the others see what is left", || {
        fs::metadata(b.join("hole")).is_ok() && File::open(b.join("hole")).is_ok()
    });
    for (name, most) in [("hole", 33 * MIB), ("begun", 33 * MIB)] {
        let found = fs::metadata(b.join(name)).unwrap();
        println!("{name}: {} bytes, takes {}", found.len(), found.blocks() * 512);
        assert!((MIB..=most + MIB / 4).contains(&(found.blocks() * 512)), "{name}: {found:?}");
    }
}

/// A program that copies a file which another process has mapped looks for its holes before the
/// kernel has written back the stores.
#[test]
fn what_is_stored_into_a_mapping_is_no_hole() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let [local, mount] = ["local", "m/here"].map(|name| place.path(name));
    for dir in [&local, &mount] {
        fs::create_dir(dir).unwrap();
        let file = open(&dir.join("f"));
        file.set_len(MIB).unwrap();
        let mapping = Mapping::new(&file, MIB as usize);
        mapping.set(65_536, 1);
        assert!(taken(&dir.join("f")) > 0, "tar believes that there is nothing");
        mapping.set(300_000, 2);
        assert_eq!(next_data(&file, 0), Some(65_536));
        assert_eq!(next_data(&file, 150_000), Some(300_000 / 4096 * 4096));
        mapping.set(65_536 + 4096, 3);
        let hole = next_hole(&file, 65_536).unwrap();
        assert!(hole >= 65_536 + 2 * 4096, "{hole}");
        assert_eq!(next_hole(&file, 0), Some(0));
        mapping.set(5, 4);
        mapping.set(900_000, 5);
        let copy = "cp --sparse=always f copy; cmp f copy; tar -cSf t f; mkdir x; tar -xf t -C x; cmp f x/f";
        says(dir, &["bash", "-ec", copy]);
        drop(mapping);
        assert_eq!(next_data(&file, 850_000), Some(900_000 / 4096 * 4096));
    }
}
