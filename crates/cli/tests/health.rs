//! Targets whose disks are full, fail, turn read-only or vanish, under real
//! servers: clean errors at once, and everything else goes on.

use crate::disk::{Disk, succeeds};
use crate::harness::{Cluster, Place, Said, eventually, noise};
use crate::library::{self, client};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File};
use weir_types::{Duplication, ErrorKind, FileId, LayoutSpec, TargetId};
use weir_wire::Rights;

/// Two servers of two targets each.
fn four(place: &Place) -> Cluster<'_> {
    place.up("sick", &["--targets", "4", "--targets-per-server", "2"])
}

fn target_dir(cluster: &Cluster<'_>) -> PathBuf {
    cluster.dir().join("targets/2")
}

/// Moves target 2 to the disk.
fn move_target(cluster: &Cluster<'_>, disk: &Disk) {
    cluster.weir(&["down"]).ok();
    let (dir, there) = (target_dir(cluster), disk.at.join("target"));
    assert!(succeeds("cp", &[&"-a", &dir, &there]) && succeeds("sync", &[&"-f", &there]));
    std::fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    cluster.weir(&["up"]).ok();
}

/// As daemons of units are looked at, and those of other machines.
#[test]
fn a_metadata_disk_that_is_nearly_full_is_named_where_its_directory_cannot_be_seen() {
    let place = Place::new();
    let cluster = place.up("names", &["--targets", "1"]);
    let Some(disk) = Disk::memory(&place, "64m") else { return };
    cluster.weir(&["down"]).ok();
    let (dir, there) = (cluster.dir().join("meta"), disk.at.join("meta"));
    // Of another size on another disk.
    std::fs::remove_file(dir.join("reserve")).unwrap();
    assert!(succeeds("cp", &[&"-a", &dir, &there]));
    std::fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    cluster.weir(&["up"]).ok();
    let credential = cluster.dir().join("client.toml");
    let asked = ["status", "--json", "--credential", credential.to_str().unwrap()];
    let noted = || {
        let status = place.weir(&asked).json();
        let notes = status["notes"].as_array().unwrap().clone();
        notes.into_iter().find(|note| note["kind"] == "metadata_full")
    };
    assert_eq!(noted(), None);
    let space = rustix::fs::statvfs(&disk.at).unwrap();
    let filler = (space.f_bavail - space.f_blocks / 50) * space.f_frsize;
    std::fs::write(disk.at.join("filler"), vec![1; filler as usize]).unwrap();
    eventually("it is noted", || noted().is_some());
    let what = noted().unwrap()["what"].to_string();
    assert!(
        what.contains("the disk of the metadata, on ") && what.contains("of 64M free"),
        "{what}"
    );
    std::fs::remove_file(disk.at.join("filler")).unwrap();
    eventually("there is room again", || noted().is_none());
}

/// Makes a file on one target only.
fn file_on(client: &Client, target: u32, name: &str) -> File {
    let layout = LayoutSpec { count: 1, base: Some(target - 1), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, _) =
        client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap();
    assert_eq!(file.layout().segments[0].columns[0].targets, [TargetId(target)]);
    file
}

fn server_counter(client: &Client, name: &str) -> u64 {
    // The server may have restarted since the client last spoke to it.
    let mut asked = (0..20).map(|_| client.data_status(TargetId(1), 5000));
    let status = asked.find_map(Result::ok).unwrap();
    status.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v)
}

/// A write of target 2 that is refused, of this kind, at once: asked once.
#[track_caller]
fn refuses(client: &Client, file: &File, kind: ErrorKind) -> String {
    let before = server_counter(client, "op.write");
    let error = file.write_at(&Context::root(), 0, &noise(10_000, 9)).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert_eq!(server_counter(client, "op.write") - before, 1, "a refusal is not asked again");
    for word in ["target 2 on server 1", "target 2 ("] {
        assert!(error.message.contains(word), "no {word:?} in: {error}");
    }
    error.message
}

fn reads(file: &File, want: &[u8]) {
    let mut bytes = vec![0; want.len()];
    assert_eq!(file.read_at(&Context::root(), 0, &mut bytes).unwrap(), want.len());
    assert!(bytes == want);
}

/// `weir status` names the target, the reason and what to do.
#[track_caller]
fn status_says(cluster: &Cluster<'_>, reason: &str) {
    let words = ["TROUBLE: target 2: ", reason, "start data-1", "out of service"];
    status_becomes(cluster, |said| {
        said.code == Some(1) && words.iter().all(|word| said.out.contains(word))
    });
}

#[track_caller]
fn all_is_well(cluster: &Cluster<'_>) {
    status_becomes(cluster, |said| said.code == Some(0));
}

/// Waits, not for ever, for this status; shows the last one.
#[track_caller]
fn status_becomes(cluster: &Cluster<'_>, is_so: impl Fn(&Said) -> bool) {
    let begin = Instant::now();
    loop {
        let said = cluster.weir(&["status"]);
        if is_so(&said) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "not so within 30 s: {}", said.out);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// New files do not go there, and are none the worse for it.
fn new_files_avoid_it(client: &Client) {
    let (ctx, mut n) = (Context::root(), 0);
    eventually("new files avoid the target", || {
        n += 1;
        let name = format!("new {n}");
        let made = client.create(&ctx, FileId::ROOT, name.as_bytes(), &CreateOptions::default());
        let (file, _) = made.unwrap();
        let avoids = file.layout().segments[0].columns.iter().all(|c| c.targets != [TargetId(2)]);
        if avoids {
            let data = noise(1 << 20, n);
            file.write_at(&ctx, 0, &data).unwrap();
            file.sync(&ctx).unwrap();
            reads(&file, &data);
        }
        avoids
    });
}

/// A file on target 2, with these bytes synced.
fn synced(client: &Client, name: &str, bytes: &[u8]) -> File {
    let (ctx, file) = (Context::root(), file_on(client, 2, name));
    file.write_at(&ctx, 0, bytes).unwrap();
    file.sync(&ctx).unwrap();
    file
}

fn restart(cluster: &Cluster<'_>) {
    cluster.kill("data-1");
    cluster.weir(&["up"]).ok();
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_when_there_is_room_again() {
    let place = Place::new();
    let Some(disk) = Disk::memory(&place, "24m") else { return };
    let mnt = place.path("mnt");
    std::fs::create_dir(&mnt).unwrap();
    let cluster = four(&place);
    move_target(&cluster, &disk);
    cluster.weir(&["mount", mnt.to_str().unwrap()]).ok();
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let kept_bytes = noise(300_000, 1);
    let kept = synced(&client, "kept", &kept_bytes);

    // Before it is known that there is no room, or new ones go elsewhere.
    let [file, small, again] = ["big", "small", "again"].map(|name| file_on(&client, 2, name));
    drop(small);
    let block = noise(1 << 20, 2);
    let error = (0..40).find_map(|i| file.write_at(&ctx, i << 20, &block).err());
    let error = error.expect("24 MiB do not hold 40");
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    for word in ["target 2 on server 1", "target 2 ("] {
        assert!(error.message.contains(word), "no {word:?} in: {error}");
    }
    let reserve = file.allocate(&ctx, 0, 1 << 30, true).unwrap_err();
    assert_eq!(reserve.kind, ErrorKind::NoSpace, "{reserve}");
    assert!(server_counter(&client, "error.no_space") >= 2);

    // Through the mount: from `write`, or at the latest from `fsync`.
    let by_path = std::fs::OpenOptions::new().write(true).open(mnt.join("small")).unwrap();
    let written = std::os::unix::fs::FileExt::write_all_at(&by_path, &noise(8 << 20, 3), 0);
    // A program that is started here closes its copy of the descriptor: that
    // must not be what is told of the failure instead of this one.
    assert!(succeeds("true", &[]));
    let failure = written.and_then(|()| by_path.sync_all()).unwrap_err();
    assert_eq!(failure.raw_os_error(), Some(libc::ENOSPC), "{failure}");
    drop(by_path);

    // A full disk is no trouble, but is noted; and what was there is there.
    let words = ["NOTE: the disk of target 2, on ", "weir rebalance", "weir target drain 2"];
    status_becomes(&cluster, |said| {
        said.code == Some(0) && words.iter().all(|word| said.out.contains(word))
    });
    let notes = cluster.weir(&["status", "--json"]).json()["notes"].clone();
    let kinds: Vec<_> = notes.as_array().unwrap().iter().map(|note| &note["kind"]).collect();
    assert!(kinds.iter().any(|kind| *kind == "target_full"), "{kinds:?}");
    reads(&kept, &kept_bytes);
    drop(file);
    std::fs::remove_file(mnt.join("big")).unwrap();
    std::fs::remove_file(mnt.join("small")).unwrap();
    eventually("there is room again", || again.write_at(&ctx, 0, &block).is_ok());
    again.sync(&ctx).unwrap();
    reads(&again, &block);
    reads(&kept, &kept_bytes);
}

/// A file on target 2 with its lease, of a client that waits for the answer to all it sends.
fn new_file_that_is_sent_whole(cluster: &Cluster<'_>) -> (Client, File) {
    let config = library::config(cluster);
    let config = ClientConfig { keep_metadata: true, write_behind_bytes: 1, ..config };
    let (client, ctx) = (Client::connect(config).unwrap(), Context::root());
    let mut made = None;
    eventually("a lease comes with a new file, which it does after the first poll", || {
        made.take().into_iter().for_each(|file: File| file.close(&ctx).unwrap());
        let _ = client.unlink(&ctx, FileId::ROOT, b"in vain");
        made.insert(file_on(&client, 2, "in vain")).lease_on_whole().is_some()
    });
    (client, made.unwrap())
}

/// What is appended once there is room again comes directly behind what was there before.
#[test]
fn an_append_that_a_full_disk_refuses_leaves_no_zeros_in_a_log() {
    let place = Place::new();
    let Some(disk) = Disk::memory(&place, "24m") else { return };
    let cluster = four(&place);
    move_target(&cluster, &disk);
    let (ctx, writer, other) = (Context::root(), client(&cluster, true), client(&cluster, false));
    let log = file_on(&writer, 2, "log");
    log.append(&ctx, &[b'a'; 4000]).unwrap();
    log.sync(&ctx).unwrap();
    // Made while there is room, and written when there is none.
    let (_hasty, in_vain) = new_file_that_is_sent_whole(&cluster);
    let big = file_on(&other, 2, "big");
    for len in [1 << 20, 4096] {
        let block = noise(len, 2);
        let from = big.size();
        let full = (0..400).find_map(|i| big.write_at(&ctx, from + i * len as u64, &block).err());
        assert_eq!(full.expect("24 MiB do not hold 400").kind, ErrorKind::NoSpace);
    }
    drop(big);
    in_vain.write_at(&ctx, 0, &[b'f'; 50_000]).unwrap();
    assert_eq!(in_vain.close(&ctx).unwrap_err().kind, ErrorKind::NoSpace);
    let told = other.resolve(&ctx, b"in vain", true).unwrap();
    assert_eq!(told.size, 0, "nothing of it was on its way when the size was told");
    let size = || other.getattr(&ctx, log.id()).unwrap().size;
    // One failure is reported by a sync, and one at once.
    log.append(&ctx, &[b'b'; 50_000]).unwrap();
    assert_eq!(log.sync(&ctx).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!((log.size(), size()), (4000, 4000));
    let refused = log.append_confirmed(&ctx, &[b'c'; 50_000]).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace);
    assert_eq!((log.size(), size()), (4000, 4000));
    other.unlink(&ctx, FileId::ROOT, b"big").unwrap();
    eventually("there is room again", || log.append_confirmed(&ctx, &[b'd'; 50_000]).is_ok());
    log.append(&ctx, b"e").unwrap();
    log.sync(&ctx).unwrap();
    let expected = [&[b'a'; 4000][..], &[b'd'; 50_000], b"e"].concat();
    reads(&log, &expected);
    let (theirs, _) = other.open(&ctx, log.id(), Rights::READ).unwrap();
    reads(&theirs, &expected);
    // What was refused does not come up when the file grows over it.
    log.truncate(&ctx, 200_000).unwrap();
    let mut all = expected;
    all.resize(200_000, 0);
    reads(&theirs, &all);
}

/// A file of one column, with so many copies, the first of which is on target 2.
fn copies_from_2(client: &Client, copies: u8, duplication: Option<Duplication>) -> File {
    let spec = LayoutSpec { count: 1, base: Some(1), copies, duplication, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let name = format!("{copies} {duplication:?}");
    let made = client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options);
    let (file, _) = made.unwrap();
    assert_eq!(file.layout().segments[0].columns[0].targets[0], TargetId(2));
    file
}

/// As when a disk is reset, or its cable is: its machine runs on, and so says nothing of it.
#[test]
fn a_sync_tells_of_writes_that_a_disk_has_lost_that_was_mounted_anew() {
    let place = Place::new();
    let Some(disk) = Disk::ext4(&place) else { return };
    let cluster = four(&place);
    move_target(&cluster, &disk);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let duplications = [
        Duplication::ServerAsync,
        Duplication::ClientAsync,
        Duplication::ServerSync,
        Duplication::ClientSync,
        Duplication::Hybrid,
    ]
    .map(Some);
    let mut files = vec![copies_from_2(&client, 1, None)];
    files.extend(duplications.map(|of| copies_from_2(&client, 2, of)));
    let [old, kept, new] = [1, 2, 3].map(|seed| noise(20_000, seed));
    // On another disk of the same server, which loses nothing.
    let healthy = file_on(&client, 1, "healthy");
    for file in &files {
        file.write_at(&ctx, 0, &old).unwrap();
        file.sync(&ctx).unwrap();
    }

    // The kill of a server loses nothing, and no call reports a loss.
    files.iter().for_each(|file| file.write_at(&ctx, 0, &kept).unwrap());
    restart(&cluster);
    for file in &files {
        file.sync(&ctx).unwrap();
        reads(file, &kept);
    }

    files.iter().for_each(|file| file.write_at(&ctx, 0, &new).unwrap());
    healthy.write_at(&ctx, 0, &new).unwrap();
    cluster.kill("data-1");
    if !disk.break_down() {
        println!("skipped: this kernel's ext4 cannot be shut down");
        return;
    }
    disk.repair();
    cluster.weir(&["up"]).ok();
    healthy.sync(&ctx).expect("its disk was there all the time");
    reads(&healthy, &new);
    let mut lost = 0;
    for (n, file) in files.iter().enumerate() {
        let (other, _) = client.open(&ctx, file.id(), Rights::READ_WRITE).unwrap();
        let synced = [file.sync(&ctx), other.sync(&ctx)];
        let mut bytes = vec![0; new.len()];
        assert_eq!(file.read_at(&ctx, 0, &mut bytes).unwrap(), new.len());
        if bytes != new {
            lost += 1;
            let told = synced[0].as_ref().expect_err("what was written is gone");
            assert_eq!(told.kind, ErrorKind::Io, "{told}");
            assert!(bytes == kept || n == 0, "what was synced");
        }
        file.write_at(&ctx, 0, &new).unwrap();
        file.sync(&ctx).unwrap();
        reads(file, &new);
    }
    if lost == 0 {
        println!("the kernel had written everything before the disk failed: nothing was shown");
    }
    all_is_well(&cluster);
}

/// The bytes of a call that has returned are lost when they are sent because another client wants
/// the range.
#[test]
fn a_sync_tells_of_bytes_that_were_lost_when_another_client_wanted_them() {
    let place = Place::new();
    let Some(disk) = Disk::memory(&place, "24m") else { return };
    let cluster = four(&place);
    move_target(&cluster, &disk);
    let (ctx, writer, other) = (Context::root(), client(&cluster, true), client(&cluster, false));
    let file = file_on(&writer, 2, "mine");
    let (big, again) = (file_on(&other, 2, "big"), file_on(&other, 2, "again"));
    for len in [1 << 20, 4096] {
        let block = noise(len, 2);
        let from = big.size();
        let full = (0..400).find_map(|i| big.write_at(&ctx, from + i * len as u64, &block).err());
        assert_eq!(full.expect("24 MiB do not hold 400").kind, ErrorKind::NoSpace);
    }
    drop(big);

    file.write_at(&ctx, 0, &noise(9_000, 3)).unwrap();
    let (theirs, _) = other.open(&ctx, file.id(), Rights::READ).unwrap();
    theirs.read_at(&ctx, 0, &mut [0; 9_000]).unwrap();
    // The next writer gets the error, makes room, and goes on.
    let refused = file.write_at(&ctx, 9_000, b"more").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace, "{refused}");
    other.unlink(&ctx, FileId::ROOT, b"big").unwrap();
    eventually("there is room again", || again.write_at(&ctx, 0, &noise(1 << 20, 4)).is_ok());
    file.write_at(&ctx, 9_000, b"more").unwrap();
    let told = file.sync(&ctx).expect_err("9,000 bytes are gone");
    assert_eq!(told.kind, ErrorKind::NoSpace, "{told}");
    file.sync(&ctx).expect("it is told once");
}

#[test]
fn a_disk_that_turns_read_only_is_read_on_and_comes_back_repaired() {
    let place = Place::new();
    let Some(disk) = Disk::ext4(&place) else { return };
    let cluster = four(&place);
    move_target(&cluster, &disk);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let data = noise(1_000_000, 1);
    let file = synced(&client, "f", &data);
    let healthy = file_on(&client, 1, "healthy");

    if !disk.turn_read_only() {
        println!("skipped: this kernel's ext4 has no trigger_fs_error");
        return;
    }
    refuses(&client, &file, ErrorKind::ReadOnly);
    let errors = [
        file.sync(&ctx).unwrap_err(),
        file.truncate(&ctx, 5).unwrap_err(),
        file.punch(&ctx, 0, 5).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind, ErrorKind::ReadOnly | ErrorKind::Io), "{error}");
        assert!(error.message.contains("target 2"), "{error}");
    }
    status_says(&cluster, "read-only");
    assert_eq!(server_counter(&client, "targets.in_trouble"), 1);
    let mut start = vec![0; 5];
    assert_eq!(file.read_at(&ctx, 0, &mut start).unwrap(), 5);
    assert_eq!(start, data[..5]);
    healthy.write_at(&ctx, 0, &data).unwrap();
    healthy.sync(&ctx).unwrap();
    new_files_avoid_it(&client);

    cluster.kill("data-1");
    disk.repair();
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
    let (file, attr) = client.open(&ctx, file.id(), Rights::READ_WRITE).unwrap();
    reads(&file, &data[..attr.size as usize]);
    file.write_at(&ctx, 0, &data).unwrap();
    file.sync(&ctx).unwrap();
    reads(&file, &data);
    reads(&healthy, &data);
}

#[test]
fn a_disk_that_fails_takes_its_target_out_of_service_and_nothing_else() {
    let place = Place::new();
    let Some(disk) = Disk::ext4(&place) else { return };
    let cluster = four(&place);
    move_target(&cluster, &disk);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let data = noise(1_000_000, 1);
    let file = synced(&client, "f", &data);
    let healthy = file_on(&client, 1, "healthy");

    if !disk.break_down() {
        println!("skipped: this kernel's ext4 cannot be shut down");
        return;
    }
    let failures = [
        file.write_at(&ctx, 0, b"new").unwrap_err(),
        file.write_at(&ctx, 1 << 20, &data[..4096]).unwrap_err(),
        file.sync(&ctx).unwrap_err(),
    ];
    for error in failures {
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        assert!(error.message.contains("target 2 on server 1"), "{error}");
    }
    let message = refuses(&client, &file, ErrorKind::Io);
    assert!(message.contains("out of service"), "{message}");
    let sync = file.sync(&ctx).unwrap_err();
    assert_eq!(sync.kind, ErrorKind::Io, "a sync that failed never succeeds later: {sync}");
    status_says(&cluster, "out of service");
    healthy.write_at(&ctx, 0, &data).unwrap();
    healthy.sync(&ctx).unwrap();
    new_files_avoid_it(&client);

    cluster.kill("data-1");
    disk.repair();
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
    let mut bytes = vec![0; data.len()];
    assert_eq!(file.read_at(&ctx, 0, &mut bytes).unwrap(), data.len());
    assert!(bytes == data, "what was synced is there");
    file.write_at(&ctx, 0, &data).unwrap();
    file.sync(&ctx).unwrap();
    reads(&file, &data);
}

#[test]
fn a_target_whose_directory_vanishes_is_not_taken_for_an_empty_one() {
    let place = Place::new();
    let cluster = four(&place);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let data = noise(500_000, 1);
    let file = synced(&client, "f", &data);
    let healthy = file_on(&client, 1, "healthy");
    healthy.write_at(&ctx, 0, &data).unwrap();

    let other = file_on(&client, 2, "other");
    // So that the server holds no object open.
    restart(&cluster);
    let (dir, copy) = (target_dir(&cluster), place.path("copy"));
    assert!(succeeds("cp", &[&"-a", &dir, &copy]));
    std::fs::remove_dir_all(&dir).unwrap();
    status_says(&cluster, "vanished");
    refuses(&client, &file, ErrorKind::Io);
    refuses(&client, &other, ErrorKind::Io);
    let read = file.read_at(&ctx, 0, &mut [0; 5]).unwrap_err();
    assert_eq!(read.kind, ErrorKind::Io, "no zeros in place of what was written: {read}");
    healthy.write_at(&ctx, 500_000, &data).unwrap();
    new_files_avoid_it(&client);

    // The server starts with the other one.
    restart(&cluster);
    status_says(&cluster, "is missing");
    let error = file.read_at(&ctx, 0, &mut [0; 5]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert!(error.message.contains("out of service") && error.message.contains("is missing"));
    reads(&healthy, &data);
    assert!(server_counter(&client, "refused.target_not_opened") > 0);

    // Put back, it is served again.
    assert!(succeeds("cp", &[&"-a", &copy, &dir]));
    restart(&cluster);
    all_is_well(&cluster);
    reads(&file, &data);
    file.write_at(&ctx, 0, &noise(10_000, 2)).unwrap();
    file.sync(&ctx).unwrap();
}

#[test]
fn a_target_that_cannot_be_opened_does_not_keep_the_others_from_being_served() {
    let place = Place::new();
    let cluster = four(&place);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let healthy = file_on(&client, 1, "healthy");
    let data = noise(100_000, 1);
    healthy.write_at(&ctx, 0, &data).unwrap();
    healthy.sync(&ctx).unwrap();
    let superblock = target_dir(&cluster).join("superblock");
    let good = std::fs::read(&superblock).unwrap();
    let mut damaged = good.clone();
    damaged[40] ^= 1;
    std::fs::write(&superblock, damaged).unwrap();
    restart(&cluster);
    status_says(&cluster, "damaged");
    reads(&healthy, &data);

    // If none can be opened, the server says why and ends.
    let other = cluster.dir().join("targets/1/superblock");
    let other_good = std::fs::read(&other).unwrap();
    std::fs::write(&other, b"nothing").unwrap();
    cluster.kill("data-1");
    cluster.weir(&["up"]).fails(&["damaged", "target 1"]);
    std::fs::write(&other, other_good).unwrap();
    std::fs::write(&superblock, good).unwrap();
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
    reads(&healthy, &data);
}

#[test]
fn a_clean_stop_leaves_nothing_to_recover_and_a_kill_is_recovered_and_counted() {
    let place = Place::new();
    let cluster = four(&place);
    let (ctx, client) = (Context::root(), client(&cluster, false));
    let (file, data) = (file_on(&client, 1, "f"), noise(300_000, 1));
    file.write_at(&ctx, 0, &data).unwrap();
    let unclean = |client: &Client| server_counter(client, "recovery.unclean_targets");
    assert_eq!(unclean(&client), 0);
    restart(&cluster);
    assert_eq!(unclean(&client), 2);
    assert!(server_counter(&client, "recovery.objects") > 0);
    reads(&file, &data);
    drop(file);
    drop(client);
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    let client = library::client(&cluster, false);
    assert_eq!(unclean(&client), 0);
    let attr = client.resolve(&ctx, b"f", true).unwrap();
    reads(&client.open(&ctx, attr.file, Rights::READ).unwrap().0, &data);
}
