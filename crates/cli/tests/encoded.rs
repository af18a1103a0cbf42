//! Files whose copies were replaced by parities: read without some of their servers, written again,
//! and made whole on other targets.

use crate::harness::{Cluster, Place, eventually_within, noise, root};
use crate::library;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::{Context, CreateOptions};
use weir_types::{ColumnIndex, CopyIndex, FileId, ObjectId, SegmentIndex};
use weir_wire::Rights;

const LEN: usize = 3_000_001;
/// Long enough for any machine: what is awaited comes in seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// A cluster of six servers, and a file of four columns and three copies there.
fn with_file(place: &Place) -> (Cluster<'_>, Vec<u8>) {
    let cluster = place.up("encoded", &["--targets", "6"]);
    let bytes = noise(LEN, 5);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--copies", "3", "--count", "4"]).ok();
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    (cluster, bytes)
}

fn layout(cluster: &Cluster<'_>) -> Value {
    cluster.weir(&["layout", "--json", "weir:/d/data"]).json()[0]["segments"][0].clone()
}

fn objects(layout: &Value) -> Vec<Value> {
    layout["objects"].as_array().unwrap().clone()
}

/// Waits until the file has two parities, and one object for each column.
fn encoded(cluster: &Cluster<'_>) {
    eventually_within(PATIENCE, "it is encoded", || {
        let layout = layout(cluster);
        let objects = objects(&layout);
        layout["coded"] == true
            && objects.len() == 6
            && objects.iter().all(|o| o["state"] == "online")
    });
    let targets: std::collections::BTreeSet<u64> =
        objects(&layout(cluster)).iter().map(|o| o["target"].as_u64().unwrap()).collect();
    assert_eq!(targets.len(), 6, "each on another target");
}

fn reads_back(place: &Place, cluster: &Cluster<'_>, bytes: &[u8], what: &str) {
    cluster.weir(&["cp", "weir:/d/data", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == bytes, "{what}");
    fs::remove_file(place.path("back")).unwrap();
}

/// Bytes of all objects in the directories of the targets.
fn stored(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let path = entry.path();
        sum += match meta.is_dir() {
            true => stored(&path),
            false if path.components().any(|c| c.as_os_str() == "objects") => meta.len(),
            false => 0,
        };
    }
    sum
}

#[test]
fn any_two_servers_may_die_when_copies_have_become_parities() {
    let place = Place::new();
    let (cluster, bytes) = with_file(&place);
    let before = stored(&cluster.dir());
    assert!(before >= 3 * LEN as u64);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    eventually_within(PATIENCE, "the copies are gone from the disks", || {
        // One and a half times, and headers and checksums.
        stored(&cluster.dir()) < 2 * LEN as u64
    });
    assert!(cluster.weir(&["layout", "weir:/d/data"]).ok().contains(", 2 parities,"));
    let encoding = cluster.weir(&["status", "--json"]).json()["encoding"].clone();
    assert_eq!(encoding["segments_coded"], 1, "{encoding}");
    // Half as much again, and what the four columns differ by.
    let said = |name: &str| encoding[name].as_u64().unwrap();
    let more = said("stored_bytes") - said("logical_bytes");
    assert!((LEN as u64..LEN as u64 + (1 << 20)).contains(&(2 * more)), "{encoding}");
    assert_eq!((said("logical_bytes"), said("reclaimable_bytes")), (LEN as u64, 0));
    assert!(cluster.weir(&["status"]).ok().contains("with parities: 1"));
    let space = cluster.weir(&["df", "-h"]).ok();
    assert!(space.contains("2.9M logical, 4.4M stored, 0 reclaimable"), "{space}");
    reads_back(&place, &cluster, &bytes, "with all servers");
    cluster.weir(&["fsck"]).ok();
    for first in 1..=6 {
        for second in first + 1..=6 {
            let dead = [format!("data-{first}"), format!("data-{second}")];
            dead.iter().for_each(|daemon| cluster.kill(daemon));
            reads_back(&place, &cluster, &bytes, &format!("without {dead:?}"));
            cluster.weir(&["up"]).ok();
        }
    }
    cluster.weir(&["rm", "/d/data"]).ok();
    eventually_within(PATIENCE, "nothing of it stays", || stored(&cluster.dir()) == 0);
}

/// Waits until the file has one parity, and two copies of each of four columns, on six servers. Checks
/// that no two columns have theirs on the same two, and that the parity is on none of these.
fn mirrored(cluster: &Cluster<'_>) {
    let mut all = Vec::new();
    eventually_within(PATIENCE, "it has a parity beside its copies", || {
        let layout = layout(cluster);
        all = objects(&layout);
        layout["coded"] == true && all.len() == 9 && all.iter().all(|o| o["state"] == "online")
    });
    let servers = |column: u64| -> Vec<u64> {
        let of = all.iter().filter(|object| object["column"] == column);
        let mut servers: Vec<u64> = of.map(|object| object["server"].as_u64().unwrap()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    };
    let pairs: std::collections::BTreeSet<Vec<u64>> = (0..4).map(servers).collect();
    assert!(pairs.len() == 4 && pairs.iter().all(|pair| pair.len() == 2), "{all:?}");
    let parity = servers(4);
    assert!(parity.len() == 1 && !pairs.iter().flatten().any(|s| *s == parity[0]), "{all:?}");
}

/// Waits until every target is online, and has been heard of since.
fn all_back(cluster: &Cluster<'_>) {
    let begin = Instant::now();
    eventually_within(PATIENCE, "all targets are online", || {
        let since = begin.elapsed().as_millis() as u64;
        let targets = cluster.weir(&["targets", "--json"]).json();
        let is_back = |target: &Value| {
            target["state"] == "online" && target["heard_ms_ago"].as_u64().unwrap() < since
        };
        targets.as_array().unwrap().iter().all(is_back)
    });
}

/// The file of an object on its disk, and the byte at an offset in its data.
fn byte(object: &Value, at: u64) -> (fs::File, u64, u8) {
    /// Header and checksums come first.
    const DATA: u64 = 32 * 4096;
    let dir = Path::new(object["directory"].as_str().unwrap()).join("objects");
    let name = format!("f{}", object["object"].as_str().unwrap());
    let folders = fs::read_dir(dir).unwrap().map(|folder| folder.unwrap().path().join(&name));
    let path = folders.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name}"));
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, DATA + at).unwrap();
    (file, DATA + at, byte[0])
}

/// Flips a bit of that byte; what it was.
fn flip(object: &Value, at: u64) -> u8 {
    let (file, at, byte) = byte(object, at);
    file.write_all_at(&[byte ^ 0x10], at).unwrap();
    byte
}

#[test]
fn any_two_servers_may_die_when_a_parity_stands_beside_two_copies() {
    let place = Place::new();
    let cluster = place.up("encoded", &["--targets", "6"]);
    let mut bytes = noise(LEN, 9);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    let wish = ["--copies", "2", "--reduce", "raid5-mirror:4", "--after", "0s"];
    cluster.weir(&[&["setlayout", "weir:/d"][..], &wish].concat()).ok();
    let said = cluster.weir(&["setlayout", "weir:/d"]).ok();
    assert!(said.contains("1 parity beside two copies after 0 s"), "{said}");
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    mirrored(&cluster);
    let said = cluster.weir(&["layout", "weir:/d/data"]).ok();
    assert!(said.contains("2 copies") && said.contains(", 1 parity,"), "{said}");
    for first in 1..=6 {
        for second in first + 1..=6 {
            let dead = [format!("data-{first}"), format!("data-{second}")];
            dead.iter().for_each(|daemon| cluster.kill(daemon));
            reads_back(&place, &cluster, &bytes, &format!("without {dead:?}"));
            cluster.weir(&["up"]).ok();
            // A copy that has come back is not read before it is known to lack nothing.
            all_back(&cluster);
        }
    }
    // What rots in both copies is computed, and repaired.
    for object in objects(&layout(&cluster)).iter().filter(|object| object["column"] == 1) {
        flip(object, 5 * 4096 + 100);
    }
    reads_back(&place, &cluster, &bytes, "with a block that is rotten in both copies");
    eventually_within(PATIENCE, "it is repaired", || {
        cluster.weir(&["scrub", "--json"]).code == Some(0)
    });
    // What rots in the only copy that is there is computed, too.
    let copies: Vec<Value> =
        objects(&layout(&cluster)).into_iter().filter(|object| object["column"] == 2).collect();
    cluster.kill(&format!("data-{}", copies[1]["server"]));
    let before = flip(&copies[0], 7 * 4096 + 9);
    eventually_within(PATIENCE, "it is repaired while the other copy is away", || {
        reads_back(&place, &cluster, &bytes, "with a block that is rotten in the only copy");
        byte(&copies[0], 7 * 4096 + 9).2 == before
    });
    cluster.weir(&["up"]).ok();
    all_back(&cluster);
    // Written again, and then as RAID 6.
    bytes = noise(LEN - 70_000, 10);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    mirrored(&cluster);
    reads_back(&place, &cluster, &bytes, "written again");
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    ["data-1", "data-2"].iter().for_each(|daemon| cluster.kill(daemon));
    reads_back(&place, &cluster, &bytes, "as RAID 6");
    cluster.weir(&["up"]).ok();
    cluster.weir(&["fsck"]).ok();
}

fn mounted_with_file(place: &Place) -> (Cluster<'_>, PathBuf, Vec<u8>) {
    let (cluster, bytes) = with_file(place);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    let at = cluster.mount("m", "rw").join("d/data");
    (cluster, at, bytes)
}

#[test]
fn an_encoded_file_has_copies_again_before_it_is_written() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at, mut bytes) = mounted_with_file(&place);
    for round in 0..2_u8 {
        let file = OpenOptions::new().write(true).open(&at).unwrap();
        let layout_now = layout(&cluster);
        assert!(layout_now["coded"] == false && layout_now["parities"] == 0, "{layout_now}");
        let objects = objects(&layout_now);
        assert_eq!(objects.iter().filter(|o| o["state"] == "online").count(), 12, "{layout_now}");
        let (offset, news) = (100_000 * (1 + usize::from(round)), [round + 1; 300_000]);
        file.write_all_at(&news, offset as u64).unwrap();
        bytes[offset..offset + news.len()].copy_from_slice(&news);
        file.sync_all().unwrap();
        drop(file);
        encoded(&cluster);
        assert!(fs::read(&at).unwrap() == bytes, "round {round}");
    }
    // Cut short, and written over as a whole.
    OpenOptions::new().write(true).open(&at).unwrap().set_len(1_234_567).unwrap();
    bytes.truncate(1_234_567);
    encoded(&cluster);
    cluster.kill("data-1");
    assert!(fs::read(&at).unwrap() == bytes, "of which a part is computed");
    cluster.weir(&["up"]).ok();
    let bytes = noise(2_000_000, 8);
    fs::write(&at, &bytes).unwrap();
    assert!(fs::read(&at).unwrap() == bytes);
    encoded(&cluster);
    assert!(fs::read(&at).unwrap() == bytes);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "none"]).ok();
    eventually_within(PATIENCE, "it has copies again", || {
        let layout = layout(&cluster);
        layout["parities"] == 0 && objects(&layout).iter().all(|o| o["state"] == "online")
    });
    assert!(fs::read(&at).unwrap() == bytes);
    cluster.umount(at.parent().unwrap().parent().unwrap());
}

#[test]
fn what_a_removed_target_had_is_computed_on_another() {
    let place = Place::new();
    let cluster = place.up("encoded", &["--targets", "8"]);
    let bytes = noise(LEN, 6);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    let wish = ["--copies", "2", "--reduce", "rs:4+2", "--after", "0s"];
    cluster.weir(&[&["setlayout", "weir:/d"][..], &wish].concat()).ok();
    assert!(cluster.weir(&["setlayout", "weir:/d"]).ok().contains("2 parities after 0 s"));
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    encoded(&cluster);
    for column in [0, 4] {
        let layout_now = layout(&cluster);
        let lost = objects(&layout_now).iter().find(|o| o["column"] == column).unwrap().clone();
        let (target, server) = (lost["target"].to_string(), lost["server"].as_i64().unwrap());
        cluster.kill(&format!("data-{server}"));
        cluster.forget(server);
        eventually_within(PATIENCE, "it is missed, and may be removed", || {
            let mut remove = cluster.command(&["target", "remove", &target, "--force", "--yes"]);
            remove.output().unwrap().status.success()
        });
        eventually_within(PATIENCE, "what it had is elsewhere", || {
            let targets: Vec<String> =
                objects(&layout(&cluster)).iter().map(|o| o["target"].to_string()).collect();
            !targets.contains(&target)
        });
        encoded(&cluster);
        reads_back(&place, &cluster, &bytes, "after the removal");
    }
    // What was computed is right, too.
    let layout_now = layout(&cluster);
    let online = |column: u64| {
        objects(&layout_now).iter().find(|o| o["column"] == column).unwrap()["server"].clone()
    };
    for pair in [[1, 2], [0, 3], [0, 5]] {
        let dead = pair.map(|column| format!("data-{}", online(column)));
        dead.iter().for_each(|daemon| cluster.kill(daemon));
        reads_back(&place, &cluster, &bytes, &format!("without columns {pair:?}"));
        cluster.weir(&["up"]).ok();
    }
}

/// Writes a byte of an object, with its checksum, as nobody would whose parities are right.
fn rewrite(object: &Value, at: u64) {
    let parts: Vec<u64> = object["object"]
        .as_str()
        .unwrap()
        .split('.')
        .map(|part| u64::from_str_radix(part, 16).unwrap())
        .collect();
    let id = ObjectId {
        file: FileId(parts[0]),
        segment: SegmentIndex(parts[1] as u32),
        column: ColumnIndex(parts[2] as u16),
        copy: CopyIndex(parts[3] as u8),
    };
    let target = weir_store::Target::open(object["directory"].as_str().unwrap()).unwrap();
    let open = target.object(id).unwrap().unwrap();
    let mut block = [0; 4096];
    byte(object, at).0.read_exact_at(&mut block, 32 * 4096 + at / 4096 * 4096).unwrap();
    block[(at % 4096) as usize] ^= 0x10;
    let check = weir_types::checksum::crc32c(&block);
    open.write_pieces(&[(at / 4096 * 4096, 4096)], &block, &[check], open.generation()).unwrap();
    open.sync().unwrap();
}

#[test]
fn a_parity_that_does_not_fit_its_columns_is_found_and_made_anew() {
    let place = Place::new();
    let (cluster, bytes) = with_file(&place);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    let scrub = || {
        let said = cluster.weir(&["scrub", "--json"]);
        (said.code, serde_json::from_str::<Value>(&said.out).unwrap()["parities"].clone())
    };
    let (code, found) = scrub();
    assert_eq!((code, &found["files"], &found["findings"]), (Some(0), &json!(1), &json!(0)));
    let all = objects(&layout(&cluster));
    let second = all.iter().find(|object| object["column"] == 5).unwrap();
    let daemon = format!("data-{}", second["server"]);
    cluster.weir(&["down"]).ok();
    rewrite(second, 70_001);
    cluster.weir(&["up"]).ok();
    let (code, found) = scrub();
    assert_eq!(code, Some(1), "{found}");
    let wrong = json!({ "file": found["unequal"][0]["file"], "path": "/d/data", "segment": 0,
        "parity": 2, "offset": 70_001, "length": 1 });
    assert_eq!(found["unequal"], json!([wrong]));
    let said = cluster.weir(&["scrub"]);
    assert!(
        said.out.contains("weir:/d/data: parity 2 of segment 0, bytes 70001-70001"),
        "{}",
        said.out
    );
    // What is not compared is said.
    cluster.kill(&daemon);
    let (code, found) = scrub();
    assert_eq!((code, &found["not_compared"]), (Some(1), &json!(1)), "{found}");
    cluster.weir(&["up"]).ok();
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "none"]).ok();
    eventually_within(PATIENCE, "it has copies", || layout(&cluster)["coded"] == false);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    assert_eq!(scrub().1["findings"], 0);
    reads_back(&place, &cluster, &bytes, "after all");
}

#[test]
fn codes_that_do_not_fit_are_refused() {
    let place = Place::new();
    let cluster = place.up("encoded", &["--targets", "3"]);
    cluster.weir(&["mkdir", "/d"]).ok();
    let refused = |words: &[&str], why: &[&str]| {
        cluster.weir(&[&["setlayout", "weir:/d"], words].concat()).fails(why);
    };
    refused(&["--reduce", "raid6"], &["1 columns and 2 parities", "--reduce rs:K+M"]);
    refused(&["--reduce", "rs:8+3"], &["need as many targets", "has 3"]);
    refused(&["--reduce", "rs:2+1", "--count", "3"], &["--count"]);
    refused(&["--reduce", "rs:2+1", "--layout", "chunked"], &["striped"]);
    refused(&["--reduce", "raid5-mirror:2"], &["add --copies 2"]);
    let two = ["--copies", "2", "--reduce", "raid5-mirror:2"];
    refused(&two, &["2 columns with two copies", "have room for 1", "add servers"]);
    let said = cluster.command(&["setlayout", "weir:/d", "--after", "1h"]).output().unwrap();
    let said = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
    assert!(said.0 == Some(2) && said.1.contains("--reduce"), "{said:?}");
    cluster.weir(&["mkfile", "weir:/d/own", "--reduce", "rs:2+1", "--after", "7d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--reduce", "rs:2+1"]).ok();
    assert!(cluster.weir(&["setlayout", "weir:/d"]).ok().contains("1 parity after 1 h"));
}

#[test]
fn a_drained_target_gives_its_part_to_another() {
    let place = Place::new();
    let cluster = place.up("encoded", &["--targets", "7"]);
    let bytes = noise(LEN, 7);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--reduce", "rs:4+2", "--after", "0s"]).ok();
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    encoded(&cluster);
    for column in [1, 5] {
        let all = objects(&layout(&cluster));
        let number = all.iter().find(|o| o["column"] == column).unwrap()["target"].clone();
        let target = number.to_string();
        cluster.weir(&["target", "drain", &target]).ok();
        eventually_within(PATIENCE, "it has nothing any more", || {
            !objects(&layout(&cluster)).iter().any(|o| o["target"] == number)
        });
        encoded(&cluster);
        reads_back(&place, &cluster, &bytes, "after the drain");
        cluster.weir(&["target", "undrain", &target]).ok();
    }
    cluster.weir(&["fsck"]).ok();
}

#[test]
fn a_file_that_this_client_has_open_is_emptied_without_copies_in_between() {
    let place = Place::new();
    let (cluster, _) = with_file(&place);
    cluster.weir(&["setlayout", "weir:/d/data", "--reduce", "raid6", "--after", "0s"]).ok();
    encoded(&cluster);
    let (ctx, fs) = (Context::root(), library::client(&cluster, false));
    let dir = fs.lookup(&ctx, FileId::ROOT, b"d").unwrap().file;
    let found = fs.lookup(&ctx, dir, b"data").unwrap();
    let (reader, _) = fs.open(&ctx, found.file, Rights::READ).unwrap();
    // Nobody could compute what they have.
    let dead = ["data-1", "data-2", "data-3"];
    dead.iter().for_each(|daemon| cluster.kill(daemon));
    let options = CreateOptions { truncate: true, ..CreateOptions::default() };
    let (file, attr) = fs.create(&ctx, dir, b"data", &options).unwrap();
    assert_eq!((attr.file, attr.size), (found.file, 0));
    cluster.weir(&["up"]).ok();
    file.append(&ctx, b"anew").unwrap();
    file.close(&ctx).unwrap();
    reader.close(&ctx).unwrap();
    assert_eq!(fs.getattr(&ctx, found.file).unwrap().size, 4);
}
