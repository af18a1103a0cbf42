//! `copy_file_range` and `weir cp` within a cluster: the servers copy among
//! themselves, and what comes of it is right.

use crate::coherence_io::{Mapping, Two, next_data, next_hole, open, read_all, two};
use crate::harness::{Cluster, Place, SOON, noise, root};
use crate::library::{client, counter};
use rustix::fs::copy_file_range;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions};
use weir_conformance::layouts;
use weir_types::{ErrorKind, FileId, LayoutSpec};

const MIB: usize = 1 << 20;

/// The sum of a counter of all data servers.
fn servers(client: &Client, name: &str) -> u64 {
    let mut sum = 0;
    for server in client.cluster_map().unwrap().servers {
        let status = client.data_status(server.targets[0].target, 5000).unwrap();
        sum += status.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v);
    }
    sum
}

/// Bytes that clients have written to data servers or read from them, and that
/// servers have copied, since `before`.
struct Moved {
    by_clients: u64,
    by_servers: u64,
}

impl Moved {
    fn now(client: &Client) -> Self {
        let read = servers(client, "bytes.read") - servers(client, "bytes.pulled");
        let by_clients = read + servers(client, "bytes.written");
        Self { by_clients, by_servers: servers(client, "bytes.copied") }
    }

    fn since(client: &Client, before: &Moved) -> Self {
        let now = Self::now(client);
        Self {
            by_clients: now.by_clients - before.by_clients,
            by_servers: now.by_servers - before.by_servers,
        }
    }
}

/// A directory for each layout, below the root.
fn directories(client: &Client) -> Vec<(&'static str, String)> {
    let (ctx, mut all) = (Context::root(), Vec::new());
    for (i, (name, layout)) in layouts().into_iter().enumerate() {
        let dir = format!("layout{i}");
        let made = client.mkdir(&ctx, FileId::ROOT, dir.as_bytes(), 0o755).unwrap();
        client.set_layout(&ctx, made.file, Some(layout)).unwrap();
        all.push((name, dir));
    }
    all
}

/// Copies all of it, as `cp` does.
fn copy(from: &File, mut at: u64, to: &File, mut to_at: u64, len: u64) -> Result<(), Errno> {
    let end = at + len;
    from.metadata().unwrap();
    while at < end {
        let left = (end - at) as usize;
        assert!(copy_file_range(from, Some(&mut at), to, Some(&mut to_at), left)? > 0);
    }
    Ok(())
}

fn copies_on_every_layout(servers_of: &str) {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("copies", &["--targets", "4", "--targets-per-server", servers_of]);
    let mount = cluster.mount("m", "");
    let client = client(&cluster, false);
    let dirs = directories(&client);
    let data = noise(5 * MIB + 12_345, 1);
    for (i, (name, from)) in dirs.iter().enumerate() {
        fs::write(mount.join(from).join("from"), &data).unwrap();
        let source = open(&mount.join(from).join("from"));
        source.sync_all().unwrap();
        // To the same layout, and to another.
        for (other, to) in [&dirs[i], &dirs[(i + 1) % dirs.len()]] {
            let to = open(&mount.join(to).join(format!("of{i}")));
            let before = Moved::now(&client);
            copy(&source, 0, &to, 0, data.len() as u64).unwrap();
            let moved = Moved::since(&client, &before);
            assert_eq!(moved.by_clients, 0, "{name} to {other}");
            assert_eq!(moved.by_servers, data.len() as u64, "{name} to {other}");
            assert_eq!(to.metadata().unwrap().size(), data.len() as u64);
            assert!(read_all(&to) == data, "{name} to {other}");
            // Heads and tails anywhere, over what is there and beyond it.
            let mut expected = data.clone();
            for (at, to_at, len) in [(1, 70_001, 300_000), (4096, 5, 4095), (99_999, 6 << 20, 7)] {
                copy(&source, at, &to, to_at, len).unwrap();
                let (at, to_at, len) = (at as usize, to_at as usize, len as usize);
                expected.resize(expected.len().max(to_at + len), 0);
                expected[to_at..to_at + len].copy_from_slice(&data[at..at + len]);
                assert!(read_all(&to) == expected, "{name} to {other}: {at} to {to_at}");
            }
            // Within one file.
            copy(&to, 10, &to, 1_000_003, 500_000).unwrap();
            expected.copy_within(10..500_010, 1_000_003);
            assert!(read_all(&to) == expected, "{name} to {other}");
            let mut overlapping = (0u64, 5u64);
            let (at, to_at) = (Some(&mut overlapping.0), Some(&mut overlapping.1));
            assert_eq!(copy_file_range(&to, at, &to, to_at, 10), Err(Errno::INVAL));
        }
    }
}

#[test]
fn no_bytes_pass_through_the_mount_on_any_layout_when_each_target_has_a_server() {
    copies_on_every_layout("1");
}

#[test]
fn no_bytes_pass_through_the_mount_on_any_layout_when_a_server_has_all_targets() {
    copies_on_every_layout("4");
}

#[test]
fn holes_are_copied_as_holes_and_what_was_cached_is_seen_no_more() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "holes", "");
    let source = open(&a.join("from"));
    source.write_all_at(&[1; 100], 0).unwrap();
    source.write_all_at(&[2; 8192], 4 << 20).unwrap();
    source.set_len(9 << 20).unwrap();
    let (to, elsewhere) = (open(&a.join("to")), open(&b.join("to")));
    to.write_all_at(&vec![9; 10 << 20], 0).unwrap();
    let (map, far_map) = (Mapping::new(&to, 8192), Mapping::new(&elsewhere, 8192));
    assert!(read_all(&to) == read_all(&elsewhere));
    assert_eq!((map.get(5000), far_map.get(5000)), (9, 9));
    let writing = to.metadata().unwrap().mtime_nsec();
    // What this mount has not sent yet is copied too.
    source.write_all_at(&[3; 100], 50).unwrap();
    copy(&source, 0, &to, 0, 9 << 20).unwrap();
    let mut expected = vec![0; 10 << 20];
    expected[..50].fill(1);
    expected[50..150].fill(3);
    expected[4 << 20..(4 << 20) + 8192].fill(2);
    expected[9 << 20..].fill(9);
    for (who, file, map) in [("a", &to, &map), ("b", &elsewhere, &far_map)] {
        assert!(read_all(file) == expected, "{who}");
        assert_eq!((map.get(5000), map.get(60)), (0, 3), "{who}");
        let hole = next_hole(file, 0).unwrap();
        assert!(hole <= 1 << 20, "{who}: {hole}");
        assert_eq!(next_data(file, 1 << 20), Some(4 << 20), "{who}");
    }
    assert_ne!(to.metadata().unwrap().mtime_nsec(), writing);
    to.sync_all().unwrap();
}

#[test]
fn what_is_copied_to_a_synchronous_file_is_durable_when_the_call_returns() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, .. } = two(&place, "synchronous", "");
    let client = client(&cluster, true);
    let source = open(&a.join("from"));
    source.write_all_at(&noise(MIB, 3), 0).unwrap();
    source.sync_all().unwrap();
    let (plain, flags) = (open(&a.join("plain")), [libc::O_SYNC, libc::O_DSYNC]);
    let before = servers(&client, "op.sync");
    copy(&source, 0, &plain, 0, MIB as u64).unwrap();
    assert_eq!(servers(&client, "op.sync"), before);
    for flag in flags {
        let before = servers(&client, "op.sync");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(flag);
        let to = options.open(a.join(format!("to{flag}"))).unwrap();
        copy(&source, 0, &to, 0, MIB as u64).unwrap();
        assert!(servers(&client, "op.sync") > before, "{flag:o}");
        assert!(read_all(&to) == noise(MIB, 3));
    }
}

#[test]
fn a_library_copies_without_reading_or_writing_and_to_the_end_of_the_file() {
    let place = Place::new();
    let cluster = place.up("library", &["--targets", "4"]);
    let (one, other) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let create = |client: &Client, name: &[u8], base| {
        let layout = LayoutSpec { base: Some(base), ..LayoutSpec::default() };
        let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
        client.create(&ctx, FileId::ROOT, name, &options).unwrap().0
    };
    let (from, to) = (create(&one, b"from", 0), create(&one, b"to", 1));
    let data = noise(9 * MIB, 3);
    from.write_at(&ctx, 0, &data).unwrap();
    from.flush(&ctx).unwrap();
    let bytes = || {
        let names = ["read_wire_bytes", "write_wire_bytes", "copied_by_hand_bytes"];
        names.map(|name| counter(&one, name))
    };
    let before = bytes();
    assert_eq!(from.copy_range(&ctx, 0, &to, 0, u64::MAX >> 2).unwrap(), data.len() as u64);
    assert_eq!(from.copy_range(&ctx, data.len() as u64, &to, 0, 10).unwrap(), 0);
    assert_eq!(bytes(), before);
    assert_eq!(counter(&one, "copied_bytes"), data.len() as u64);
    // Another client sees it at once, and is not the one to copy to.
    let found = other.lookup(&ctx, FileId::ROOT, b"to").unwrap();
    assert_eq!(found.size, data.len() as u64);
    let (there, _) = other.open(&ctx, found.file, weir_wire::Rights::READ_WRITE).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(there.read_at(&ctx, 0, &mut read).unwrap(), data.len());
    assert!(read == data);
    let error = from.copy_range(&ctx, 0, &there, 0, 10).unwrap_err();
    assert_eq!(error.kind, ErrorKind::CrossDevice);
    assert_eq!(to.copy_range(&ctx, 0, &to, 9, 10).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(to.copy_range(&ctx, 0, &to, 10, 10).unwrap(), 10);
}

#[test]
fn a_client_copies_by_itself_where_servers_cannot_find_each_other() {
    let place = Place::new();
    let cluster = place.up("alone", &["--targets", "2"]);
    let (client, ctx) = (client(&cluster, true), Context::root());
    let create = |name: &[u8], base| {
        let layout = LayoutSpec { base: Some(base), ..LayoutSpec::default() };
        let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
        client.create(&ctx, FileId::ROOT, name, &options).unwrap().0
    };
    // What is on the one target here, is on the other there.
    let (from, to) = (create(b"from", 0), create(b"to", 1));
    let data = noise(3 * MIB + 5, 3);
    from.write_at(&ctx, 0, &data).unwrap();
    to.write_at(&ctx, 0, &[1; 100]).unwrap();
    from.flush(&ctx).unwrap();
    to.flush(&ctx).unwrap();
    cluster.kill("meta");
    assert_eq!(from.copy_range(&ctx, 1, &to, 0, 1 << 30).unwrap(), data.len() as u64 - 1);
    let by_hand = counter(&client, "copied_by_hand_bytes");
    assert_eq!((by_hand, counter(&client, "copied_bytes")), (data.len() as u64 - 1, 0));
    cluster.weir(&["up"]).ok();
    to.sync(&ctx).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(to.read_at(&ctx, 0, &mut read).unwrap(), data.len() - 1);
    assert!(read[..data.len() - 1] == data[1..]);
    // When they find each other again, it is theirs to do.
    let begin = Instant::now();
    while counter(&client, "copied_bytes") == 0 {
        assert!(begin.elapsed() < SOON);
        from.copy_range(&ctx, 0, &to, 0, 1 << 30).unwrap();
    }
    assert_eq!(to.read_at(&ctx, 0, &mut read).unwrap(), data.len());
    assert!(read == data);
}

#[test]
fn cp_within_the_cluster_moves_no_bytes_through_the_program() {
    let place = Place::new();
    let cluster = place.up("cp", &["--targets", "4"]);
    let local = place.path("local");
    fs::write(&local, noise(20 * MIB + 7, 4)).unwrap();
    cluster.weir(&["cp", "-q", local.to_str().unwrap(), "weir:/a"]).ok();
    let client = client(&cluster, false);
    let before = Moved::now(&client);
    cluster.weir(&["cp", "-q", "weir:/a", "weir:/b"]).ok();
    let moved = Moved::since(&client, &before);
    assert_eq!((moved.by_clients, moved.by_servers), (0, 20 * MIB as u64 + 7));
    let back = place.path("back");
    cluster.weir(&["cp", "-q", "weir:/b", back.to_str().unwrap()]).ok();
    assert!(fs::read(&local).unwrap() == fs::read(&back).unwrap());
}

#[test]
fn copies_see_writes_of_another_mount_whole_and_are_seen_whole() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "whole", "");
    const LEN: usize = 200_000;
    fs::write(a.join("one"), vec![0; LEN]).unwrap();
    fs::write(a.join("two"), vec![0; LEN]).unwrap();
    let stop = AtomicBool::new(false);
    let uniform = |bytes: &[u8]| bytes.iter().all(|b| *b == bytes[0]);
    std::thread::scope(|scope| {
        // Both ways at once, from both mounts, against writers of the first.
        let copier = |dir: &PathBuf, from: &str, to: &str| {
            let (from, to) = (open(&dir.join(from)), open(&dir.join(to)));
            let stop = &stop;
            scope.spawn(move || {
                let mut copies = 0;
                while !stop.load(Ordering::Relaxed) {
                    let n = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), LEN).unwrap();
                    assert_eq!(n, LEN);
                    copies += 1;
                }
                copies
            })
        };
        let copiers = [copier(&a, "one", "two"), copier(&b, "two", "one")];
        let begin = Instant::now();
        let (writer, reader) = (open(&b.join("one")), open(&a.join("two")));
        let (mut round, mut buffer) = (0u8, vec![0; LEN]);
        while begin.elapsed() < Duration::from_secs(3) {
            round = round.wrapping_add(1);
            writer.write_all_at(&vec![round; LEN], 0).unwrap();
            reader.read_exact_at(&mut buffer, 0).unwrap();
            // Read in several requests: each is of one time.
            assert!(buffer.chunks(4096).all(uniform), "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        for copier in copiers {
            assert!(copier.join().unwrap() > 0);
        }
    });
    // When all is quiet.
    for name in ["one", "two"] {
        let (here, there) = (fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap());
        assert!(here == there && uniform(&here), "{name}");
    }
}

#[test]
fn rot_of_the_source_is_an_error_that_names_it_and_the_copy_verifies() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("rot", &["--targets", "2"]);
    let mount = cluster.mount("m", "");
    fs::write(mount.join("from"), noise(MIB, 8)).unwrap();
    let id = fs::metadata(mount.join("from")).unwrap().ino();
    File::open(mount.join("from")).unwrap().sync_all().unwrap();
    // Block 20 of the object on the first target (docs/format-store.md).
    let object = object_file(&cluster, 1, id);
    let object = fs::OpenOptions::new().read(true).write(true).open(object).unwrap();
    let (mut byte, at) = ([0], 4096 * (32 + 20) + 9);
    object.read_exact_at(&mut byte, at).unwrap();
    object.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let (source, to) = (open(&mount.join("from")), open(&mount.join("to")));
    assert_eq!(copy(&source, 0, &to, 0, MIB as u64), Err(Errno::IO));
    read_all(&to);
    drop((source, to));
    cluster.weir(&["cp", "-q", "weir:/from", "weir:/again"]).fails(&["checksum", "target 1"]);
    // Only the source is found to be damaged.
    let found = cluster.weir(&["scrub", "--json"]);
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains("/from") && !found.out.contains("/to"), "{}", found.out);
}

/// The file of a file's object, by target.
fn object_file(cluster: &Cluster<'_>, target: u32, file: u64) -> PathBuf {
    let objects = cluster.dir().join(format!("targets/{target}/objects"));
    let prefix = format!("f{file:x}.");
    let hashes = fs::read_dir(objects).unwrap().map(|hash| hash.unwrap().path());
    let mut files = hashes.flat_map(|hash| fs::read_dir(hash).unwrap().map(|f| f.unwrap().path()));
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix)).unwrap()
}

#[test]
fn a_copy_is_seen_as_the_weaker_modes_promise() {
    if !root() {
        return;
    }
    let place = Place::new();
    for mode in ["relaxed", "none"] {
        let Two { cluster, a, b } = two(&place, mode, &format!("consistency={mode}"));
        let data = noise(3 * MIB, 9);
        fs::write(a.join("from"), &data).unwrap();
        fs::write(b.join("to"), noise(4 * MIB, 10)).unwrap();
        {
            let (source, to) = (open(&a.join("from")), open(&a.join("to")));
            copy(&source, 7, &to, 0, data.len() as u64 - 7).unwrap();
            let mut expected = noise(4 * MIB, 10);
            expected[..data.len() - 7].copy_from_slice(&data[7..]);
            assert!(read_all(&to) == expected, "{mode}");
            drop(to);
            assert!(fs::read(b.join("to")).unwrap() == expected, "{mode}");
        }
        drop(cluster);
        fs::remove_dir(&a).unwrap();
        fs::remove_dir(&b).unwrap();
    }
}

/// With the library: a child that is started while files of a mount are open closes
/// its copies first, and waits for the servers that it is to start.
#[test]
fn a_copy_goes_on_when_servers_die_and_come_back() {
    let place = Place::new();
    let cluster: Cluster<'_> = place.up("die", &["--targets", "2"]);
    let (client, ctx) = (client(&cluster, true), Context::root());
    let create = |name: &[u8], base| {
        let layout = LayoutSpec { base: Some(base), ..LayoutSpec::default() };
        let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
        client.create(&ctx, FileId::ROOT, name, &options).unwrap().0
    };
    let data = noise(40 * MIB, 6);
    let from = create(b"from", 0);
    from.write_at(&ctx, 0, &data).unwrap();
    for round in 0..3u32 {
        let to = create(format!("to{round}").as_bytes(), round % 2);
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                for _ in 0..4 {
                    assert_eq!(from.copy_range(&ctx, 0, &to, 0, 1 << 30)?, data.len() as u64);
                }
                Ok::<(), weir_types::Error>(())
            });
            std::thread::sleep(Duration::from_millis(10 + 15 * u64::from(round)));
            cluster.kill(&format!("data-{}", 1 + round % 2));
            cluster.weir(&["up"]).ok();
            copying.join().unwrap().unwrap();
        });
        to.sync(&ctx).unwrap();
        let mut read = vec![0; data.len() + 1];
        assert_eq!(to.read_at(&ctx, 0, &mut read).unwrap(), data.len());
        assert!(read[..data.len()] == data, "round {round}");
    }
}
