//! What rots in one of several copies, on a cluster of real processes: whoever reads
//! gets what was written, and the copy is made good from the other one.

use crate::harness::{Cluster, Place, eventually, eventually_ok, noise};
use crate::library::client;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{ErrorKind, FileId, LayoutSpec};

const BLOCK: u64 = 4096;
/// Where the data of an object begins in its file, and the checksums of its first
/// blocks, and its number in the header (docs/format-store.md).
const DATA: u64 = 32 * BLOCK;
const SLOTS: u64 = 512;
const HEADER: u64 = 20;
/// What a data server notes in its log when it has registered.
const REGISTERED: &str = "registered with metadata server";

/// Two data servers, both of which serve.
fn up<'a>(place: &'a Place, name: &str) -> Cluster<'a> {
    let cluster = place.up(name, &["--targets", "2"]);
    all_online(&cluster);
    // So that nothing has to be brought over later.
    both_take_changes(&cluster, &client(&cluster, false));
    cluster
}

/// Waits until both targets are online and take part in changes.
fn both_take_changes(cluster: &Cluster<'_>, client: &Client) {
    all_online(cluster);
    static PROBES: AtomicU32 = AtomicU32::new(0);
    eventually("both take changes", || {
        let name = format!("probe-{}", PROBES.fetch_add(1, Ordering::Relaxed));
        are_equal(cluster, &write(client, &name, &[1; 5000]))
    });
}

/// Starts the killed server of a target, and waits until the target is online. Until the server has
/// registered, the state of the target is the old one.
fn start(cluster: &Cluster<'_>, target: u32) {
    let log = cluster.dir().join(format!("log/data-{target}.log"));
    let registered = || fs::read_to_string(&log).unwrap().matches(REGISTERED).count();
    let before = registered();
    cluster.weir(&["up"]).ok();
    eventually("it has registered anew", || registered() > before);
    all_online(cluster);
}

/// Removes the gap log of a target, whose server does not run.
fn lose_log(cluster: &Cluster<'_>, target: u32) {
    fs::remove_file(cluster.dir().join(format!("targets/{target}/gaps"))).unwrap();
}

fn all_online(cluster: &Cluster<'_>) {
    eventually("all targets are online", || {
        let status = status(cluster, &["status", "--json"]);
        let targets = status["targets"].as_array().unwrap();
        targets.iter().all(|target| target["state"] == "online")
    });
}

/// What a command says, whether all is well or not.
fn status(cluster: &Cluster<'_>, arguments: &[&str]) -> Value {
    let said = cluster.weir(arguments);
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {} {}", said.out, said.err))
}

/// A file of one column with two copies, the first on target 1.
fn put(cluster: &Cluster<'_>, client: &Client, name: &str, data: &[u8]) -> File {
    let file = write(client, name, data);
    assert!(are_equal(cluster, &file));
    file
}

fn write(client: &Client, name: &str, data: &[u8]) -> File {
    let ctx = Context::root();
    let spec = LayoutSpec { base: Some(0), count: 1, copies: 2, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
    file.write_at(&ctx, 0, data).unwrap();
    file.sync(&ctx).unwrap();
    file
}

/// The file of an object, by target, if it is there.
fn object_file(cluster: &Cluster<'_>, target: u32, file: &File) -> Option<PathBuf> {
    let objects = cluster.dir().join(format!("targets/{target}/objects"));
    let prefix = format!("f{:x}.", file.id().0);
    let hashes = fs::read_dir(objects).unwrap().map(|hash| hash.unwrap().path());
    let mut files = hashes.flat_map(|hash| fs::read_dir(hash).unwrap().map(|f| f.unwrap().path()));
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix))
}

fn flip(cluster: &Cluster<'_>, target: u32, file: &File, at: u64) {
    let path = object_file(cluster, target, file).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Whether both copies have the same bytes and the same checksums of them.
fn are_equal(cluster: &Cluster<'_>, file: &File) -> bool {
    let bytes = |target| {
        let mut read = fs::read(object_file(cluster, target, file)?).ok()?;
        // It is shorter while it is being rebuilt.
        (read.len() >= SLOTS as usize).then(|| read.split_off(SLOTS as usize))
    };
    bytes(1).is_some_and(|one| bytes(2) == Some(one))
}

/// Runs `weir scrub --json`: its exit code and what it said.
fn scrub(cluster: &Cluster<'_>) -> (i32, Value) {
    let said = cluster.weir(&["scrub", "--json"]);
    let value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}\nstdout: {}\nstderr: {}", said.out, said.err));
    (said.code.unwrap(), value)
}

/// What is found, by target: kind, bytes of the file, and what became of it.
fn findings(found: &Value) -> Vec<(u64, Value, Value, Value)> {
    let list = found["findings"].as_array().unwrap().iter();
    let one = |f: &Value| {
        let target = f["target"].as_u64().unwrap();
        (target, f["damage"].clone(), f["bytes"].clone(), f["repair"].clone())
    };
    let mut list: Vec<_> = list.map(one).collect();
    list.sort_by_key(|found| format!("{found:?}"));
    list
}

/// All is as it was written, and both copies are the same, and known to be: while one is
/// noted as lacking something, what rots in the other cannot be made good.
fn is_sound(cluster: &Cluster<'_>, file: &File, data: &[u8]) {
    eventually_ok("nothing is wrong", || {
        let (code, found) = scrub(cluster);
        if code == 0 && findings(&found).is_empty() { Ok(()) } else { Err((code, found)) }
    });
    eventually("both copies are equal", || are_equal(cluster, file));
    let noted = || counter(cluster, "gaps.own") + counter(cluster, "gaps.of_others");
    eventually("neither is noted as lacking anything", || noted() == 0);
    is_as_written(file, data);
}

fn is_as_written(file: &File, data: &[u8]) {
    let found = read(file, 0, data.len()).unwrap();
    let wrong = found.iter().zip(data).position(|(a, b)| a != b);
    assert!(found == data, "{} bytes, differs at {wrong:?}", found.len());
}

fn read(file: &File, offset: u64, len: usize) -> weir_types::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    file.read_at(&Context::root(), offset, &mut buffer).map(|n| buffer[..n].to_vec())
}

/// The sum of a counter over both data servers.
fn counter(cluster: &Cluster<'_>, name: &str) -> u64 {
    let text = status(cluster, &["status", "--json", "--counters"]).to_string();
    let marked = format!("\"{name}\":");
    let after = text.match_indices(&marked).map(|(at, _)| &text[at + marked.len()..]);
    after.map(|rest| rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn whoever_reads_gets_the_bytes_of_the_other_copy_and_has_this_one_repaired() {
    let place = Place::new();
    let cluster = up(&place, "read");
    let client = client(&cluster, false);
    let data = noise(500_000, 4);
    let file = put(&cluster, &client, "data", &data);
    // Data, two blocks side by side, a checksum, the last block.
    for at in [DATA + 5 * BLOCK + 7, DATA + 6 * BLOCK, SLOTS + 4 * 20, DATA + 499_999] {
        flip(&cluster, 1, &file, at);
    }
    is_as_written(&file, &data);
    is_sound(&cluster, &file, &data);
    assert_eq!(counter(&cluster, "rot.found"), 4);
    assert_eq!(counter(&cluster, "rot.repaired"), 4);
    let said = cluster.weir(&["status"]).ok();
    assert!(said.contains("Rot: 4 blocks found, 4 repaired from other copies"), "{said}");
    assert_eq!(counter(&cluster, "rot.unrepairable"), 0);
    // A part of a block, which the server verifies itself.
    flip(&cluster, 1, &file, DATA + 30 * BLOCK);
    assert!(read(&file, 30 * BLOCK + 100, 50).unwrap() == data[30 * 4096 + 100..][..50]);
    is_sound(&cluster, &file, &data);
    file.close(&Context::root()).unwrap();
}

#[test]
fn a_scrub_repairs_what_nobody_reads_in_either_copy() {
    let place = Place::new();
    let cluster = up(&place, "scrub");
    let client = client(&cluster, false);
    let data = noise(3_000_000, 4);
    let file = put(&cluster, &client, "data", &data);
    for (target, block) in [(1, 5), (1, 300), (2, 6), (2, 5 + 256), (2, 732)] {
        flip(&cluster, target, &file, DATA + block * BLOCK + 99);
    }
    flip(&cluster, 1, &file, SLOTS + 4 * 9);
    flip(&cluster, 2, &file, SLOTS + 4 * 10);
    let found = scrub(&cluster).1;
    let block = |target: u64, n: u64| {
        let bytes = json!([[n * BLOCK, ((n + 1) * BLOCK).min(3_000_000) - 1]]);
        (target, json!("block"), bytes)
    };
    let mut wanted = vec![
        block(1, 5),
        block(1, 9),
        block(1, 300),
        block(2, 6),
        block(2, 10),
        block(2, 261),
        block(2, 732),
    ];
    wanted.sort_by_key(|found| format!("{found:?}"));
    let said =
        findings(&found).into_iter().map(|(target, damage, bytes, _)| (target, damage, bytes));
    assert_eq!(said.collect::<Vec<_>>(), wanted, "{found:#}");
    // A copy may not have been known to be current then.
    is_sound(&cluster, &file, &data);
    assert_eq!(counter(&cluster, "rot.repaired"), 7);
    for target in [1, 2] {
        flip(&cluster, target, &file, DATA + 50 * BLOCK);
        let (code, found) = scrub(&cluster);
        assert_eq!((code, &findings(&found)[0].3), (0, &json!("done")), "{found:#}");
        assert!(are_equal(&cluster, &file));
    }
    let said = cluster.weir(&["scrub"]).ok();
    assert!(said.contains("all as it was written"), "{said}");
    file.close(&Context::root()).unwrap();
}

/// Stops the server of a target, has something done to its disk, and starts it again.
fn while_away(cluster: &Cluster<'_>, target: u32, work: impl FnOnce()) {
    cluster.kill(&format!("data-{target}"));
    work();
    start(cluster, target);
}

#[test]
fn an_object_with_a_damaged_header_is_made_good_in_either_copy() {
    let place = Place::new();
    let cluster = up(&place, "header");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let mut data = noise(2_500_000, 4);
    let file = put(&cluster, &client, "data", &data);
    let header = |target: u64, became: &str| (target, json!("header"), json!([]), json!(became));
    // While it is open its server knows what it was.
    for target in [1, 2] {
        flip(&cluster, target, &file, HEADER);
        let (code, found) = scrub(&cluster);
        let done = header(target.into(), "done");
        assert_eq!((code, findings(&found)), (0, vec![done]), "{found:#}");
        is_sound(&cluster, &file, &data);
    }
    // Else the copy that does not order is made anew,
    while_away(&cluster, 2, || flip(&cluster, 2, &file, HEADER));
    is_sound(&cluster, &file, &data);
    // and the one that orders gets its fence from the other one.
    while_away(&cluster, 1, || flip(&cluster, 1, &file, HEADER));
    is_sound(&cluster, &file, &data);
    // Writers and readers find it, too.
    while_away(&cluster, 1, || flip(&cluster, 1, &file, HEADER));
    file.write_at(&ctx, 1000, &[7; 100]).unwrap();
    data[1000..1100].fill(7);
    is_sound(&cluster, &file, &data);
    while_away(&cluster, 1, || flip(&cluster, 1, &file, HEADER));
    is_as_written(&file, &data);
    is_sound(&cluster, &file, &data);
    assert_eq!(counter(&cluster, "rot.unrepairable"), 0);
    file.close(&ctx).unwrap();
}

#[test]
fn what_cannot_be_repaired_now_is_repaired_later() {
    let place = Place::new();
    let cluster = up(&place, "later");
    let client = client(&cluster, false);
    let data = noise(200_000, 4);
    let file = put(&cluster, &client, "data", &data);
    cluster.kill("data-2");
    flip(&cluster, 1, &file, DATA + 5 * BLOCK);
    let said = cluster.weir(&["scrub", "--json", "1"]);
    assert!(said.out.contains("\"failed\""), "{}", said.out);
    cluster.weir(&["up"]).ok();
    eventually("it is repaired, though nobody looks", || are_equal(&cluster, &file));
    assert_eq!(counter(&cluster, "rot.repaired"), 1);
    is_sound(&cluster, &file, &data);
    file.close(&Context::root()).unwrap();
}

#[test]
fn rot_within_what_the_other_copy_lacks_costs_no_more_than_those_blocks() {
    let place = Place::new();
    let cluster = up(&place, "gap");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let mut data = noise(3_000_000, 4);
    let file = put(&cluster, &client, "data", &data);
    while_away(&cluster, 2, || {
        // Two blocks of different parts are changed, and rot; and so does one beside each,
        // of which the other copy has what it was.
        for block in [5u64, 300] {
            let at = (block * BLOCK) as usize;
            file.write_at(&ctx, at as u64, &[7; 4096]).unwrap();
            data[at..at + 4096].fill(7);
        }
        for block in [5, 7, 300, 302] {
            flip(&cluster, 1, &file, DATA + block * BLOCK + 99);
        }
    });
    // So the other target is not held up by them, and the copy there serves the rest.
    let rest = |file: &File| {
        for (from, to) in [(0, 5), (6, 300), (301, 732)] {
            let (start, len) = (from * BLOCK, ((to - from) * BLOCK) as usize);
            let found = read(file, start, len).unwrap();
            assert!(found == data[start as usize..][..len], "blocks {from} to {to}");
        }
    };
    rest(&file);
    let block = |target: u64, n: u64| {
        let bytes = json!([[n * BLOCK, (n + 1) * BLOCK - 1]]);
        (target, json!("block"), bytes, json!("failed"))
    };
    // What the other copy has of before is known to be right by its checksum.
    eventually("two are repaired", || counter(&cluster, "rot.repaired") == 2);
    let mut left = vec![block(1, 5), block(1, 300)];
    left.sort_by_key(|found| format!("{found:?}"));
    eventually("two are left", || findings(&scrub(&cluster).1) == left);
    // Beside them the other copy serves, and helps, as ever.
    for block in [20, 310] {
        flip(&cluster, 1, &file, DATA + block * BLOCK + 99);
    }
    rest(&file);
    eventually("these are repaired", || findings(&scrub(&cluster).1) == left);
    assert_eq!(counter(&cluster, "rot.repaired"), 4);
    // A part of such a block cannot be written, all of it can.
    let error = file.write_at(&ctx, 5 * BLOCK + 10, &[1; 10]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    for block in [5u64, 300] {
        let at = (block * BLOCK) as usize;
        file.write_at(&ctx, at as u64, &data[at..at + 4096]).unwrap();
    }
    is_sound(&cluster, &file, &data);
    file.close(&ctx).unwrap();
}

#[test]
fn a_write_into_a_rotten_block_of_either_copy_finds_it_repaired() {
    let place = Place::new();
    let cluster = up(&place, "write");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let mut data = noise(200_000, 4);
    let file = put(&cluster, &client, "data", &data);
    // The one that orders first: it cannot fill gaps of the other one from where it
    // has rotted itself.
    for (target, block) in [(1u32, 5u64), (1, 48), (2, 7), (2, 48)] {
        flip(&cluster, target, &file, DATA + block * BLOCK + 99);
        let at = (block * BLOCK + 1000) as usize;
        file.write_at(&ctx, at as u64, &[7; 100]).unwrap();
        data[at..at + 100].fill(7);
        is_as_written(&file, &data);
        is_sound(&cluster, &file, &data);
    }
    file.close(&ctx).unwrap();
}

#[test]
fn what_has_rotted_in_all_copies_is_told_and_nothing_else_is_lost() {
    let place = Place::new();
    let cluster = up(&place, "both");
    let client = client(&cluster, false);
    let data = noise(200_000, 4);
    let file = put(&cluster, &client, "data", &data);
    for target in [1, 2] {
        flip(&cluster, target, &file, DATA + 5 * BLOCK);
    }
    let (code, found) = scrub(&cluster);
    assert_eq!(code, 1, "{found:#}");
    for target in [1, 2] {
        flip(&cluster, target, &file, DATA + (10 + u64::from(target)) * BLOCK);
    }
    eventually("the others are repaired", || findings(&scrub(&cluster).1).len() == 2);
    let (code, found) = scrub(&cluster);
    assert_eq!(code, 1, "{found:#}");
    let failed: Vec<_> = findings(&found).into_iter().filter(|f| f.3 != json!("done")).collect();
    let lost = |target: u64| {
        (target, json!("block"), json!([[5 * BLOCK, 6 * BLOCK - 1]]), json!("failed"))
    };
    assert_eq!(failed, [lost(1), lost(2)], "{found:#}");
    assert_eq!(counter(&cluster, "rot.repaired"), 2);
    assert!(counter(&cluster, "rot.unrepairable") >= 2);
    let error = read(&file, 0, data.len()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    assert!(read(&file, 6 * BLOCK, 100_000).unwrap() == data[6 * 4096..][..100_000]);
    // A part of it cannot be written, all of it can.
    let ctx = Context::root();
    let error = file.write_at(&ctx, 5 * BLOCK + 10, &[1; 10]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    file.write_at(&ctx, 5 * BLOCK, &data[5 * 4096..6 * 4096]).unwrap();
    is_sound(&cluster, &file, &data);
    file.close(&ctx).unwrap();
}

#[test]
fn a_target_that_has_lost_its_gap_log_is_brought_up_to_date_anew() {
    let place = Place::new();
    let cluster = up(&place, "lost");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let data = noise(3_000_000, 4);
    let files: Vec<File> =
        (0..5).map(|n| put(&cluster, &client, &format!("f{n}"), &data)).collect();
    for target in [1, 2] {
        // Of two that do not know what they have none would have it: the other one is online, and
        // everybody knows that, as it takes part in changes.
        both_take_changes(&cluster, &client);
        cluster.kill(&format!("data-{target}"));
        // What it has is not what it should have, and it says nothing of that.
        lose_log(&cluster, target);
        fs::remove_file(object_file(&cluster, target, &files[3]).unwrap()).unwrap();
        start(&cluster, target);
        for file in &files {
            is_as_written(file, &data);
        }
        for file in &files {
            is_sound(&cluster, file, &data);
        }
    }
    files.into_iter().for_each(|file| file.close(&ctx).unwrap());
}

#[test]
fn what_is_written_before_others_were_heard_brings_no_older_bytes_back() {
    let place = Place::new();
    let cluster = up(&place, "unheard");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let (old, new, block) = (noise(200_000, 6), noise(200_000, 7), noise(4096, 8));
    let file = put(&cluster, &client, "f", &old);
    let stopped = cluster.stopped(&["data-2"]);
    eventually("target 2 is away", || {
        status(&cluster, &["status", "--json"])["targets"][1]["state"] == "offline"
    });
    file.write_at(&ctx, 0, &new).unwrap();
    file.sync(&ctx).unwrap();
    cluster.kill("data-1");
    lose_log(&cluster, 1);
    // It says that it waits for the other one.
    cluster.weir(&["up"]);
    eventually_ok("whole blocks are written", || file.write_at(&ctx, 0, &block));
    drop(stopped);
    all_online(&cluster);
    let found = |offset, len| {
        let found = read(&file, offset, len);
        // It is not known whether the other copy lacked it.
        found.inspect_err(|error| assert_eq!(error.kind, ErrorKind::NotCurrent, "{error}"))
    };
    assert!(found(0, 4096).is_ok_and(|found| found == block));
    assert!(found(4096, 190_000).map_or(true, |found| found[..] == new[4096..194_096]));
    file.close(&ctx).unwrap();
}

#[test]
fn what_is_written_after_object_and_gap_log_were_lost_survives_the_next_kill() {
    let place = Place::new();
    let cluster = up(&place, "held");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let block = noise(4096, 10);
    for looks_again in [false, true] {
        let mut data = noise(200_000, 9);
        let file = put(&cluster, &client, &format!("again-{looks_again}"), &data);
        let stopped = cluster.stopped(&["data-2"]);
        eventually("target 2 is away", || {
            status(&cluster, &["status", "--json"])["targets"][1]["state"] == "offline"
        });
        cluster.kill("data-1");
        lose_log(&cluster, 1);
        fs::remove_file(object_file(&cluster, 1, &file).unwrap()).unwrap();
        // It says that it waits for the other one.
        cluster.weir(&["up"]);
        eventually_ok("whole blocks are written", || file.write_at(&ctx, 0, &block));
        // At once: what it is in doubt about then is newer than what the other one has.
        cluster.kill("data-1");
        if looks_again {
            // There is an object now, which was not there when the gap log was lost.
            let intents = cluster.dir().join("targets/1/intents");
            fs::OpenOptions::new().write(true).open(intents).unwrap().set_len(4096).unwrap();
        }
        cluster.weir(&["up"]);
        drop(stopped);
        both_take_changes(&cluster, &client);
        data[..4096].copy_from_slice(&block);
        is_sound(&cluster, &file, &data);
        file.close(&ctx).unwrap();
    }
}

#[test]
fn a_target_that_has_lost_object_and_gap_log_takes_what_one_has_that_was_away() {
    let place = Place::new();
    let cluster = up(&place, "gone");
    let client = client(&cluster, false);
    let ctx = Context::root();
    let data = noise(3_000_000, 5);
    let file = put(&cluster, &client, "f", &data);
    let empty = write(&client, "empty", &[]);
    cluster.kill("data-1");
    eventually("target 1 is away", || {
        status(&cluster, &["status", "--json"])["targets"][0]["state"] == "offline"
    });
    cluster.kill("data-2");
    lose_log(&cluster, 2);
    fs::remove_file(object_file(&cluster, 2, &file).unwrap()).unwrap();
    cluster.weir(&["up"]).ok();
    both_take_changes(&cluster, &client);
    is_as_written(&file, &data);
    is_sound(&cluster, &file, &data);
    empty.write_at(&ctx, 0, &data).unwrap();
    is_sound(&cluster, &empty, &data);
    file.close(&ctx).unwrap();
    empty.close(&ctx).unwrap();
}
