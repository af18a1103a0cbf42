//! `weir fsck` on clusters of real processes: a healthy one in full use has no
//! problem, and what is wrong is found, named and, where that is safe, repaired.

use crate::harness::{Cluster, Place, again, eventually, noise};
use crate::library::{self, client, config};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_client::{Client, ClientConfig, Consistency, Context, CreateOptions, File};
use weir_types::{ACL_DEFAULT, FileId, LayoutKind, LayoutSpec};
use weir_wire::Rights;
use weir_wire::meta::{RenameRequest, XattrMode};

const UNIT: u64 = 65_536;

/// Runs `weir fsck --json`: its exit code and what it said.
fn fsck(cluster: &Cluster<'_>, more: &[&str]) -> (i32, Value) {
    let mut arguments = vec!["fsck", "--json"];
    arguments.extend(more);
    let said = cluster.weir(&arguments);
    let value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}\nstdout: {}\nstderr: {}", said.out, said.err));
    (said.code.unwrap(), value)
}

#[track_caller]
fn assert_clean(cluster: &Cluster<'_>) -> Value {
    let (code, found) = fsck(cluster, &[]);
    assert_eq!((code, &found["problems"]), (0, &Value::Array(vec![])), "{found:#}");
    found
}

#[track_caller]
fn problems(cluster: &Cluster<'_>, kinds: &[&str]) -> Vec<Value> {
    let (code, found) = fsck(cluster, &[]);
    let problems = found["problems"].as_array().unwrap().clone();
    let mut seen: Vec<&str> = problems.iter().map(|p| p["kind"].as_str().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!((code, seen.as_slice()), (4, kinds), "{found:#}");
    problems
}

fn create(client: &Client, name: &str, layout: LayoutSpec) -> File {
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap().0
}

/// A file with contents, which is closed.
fn put(client: &Client, name: &str, data: &[u8]) {
    let ctx = Context::root();
    let file = create(client, name, LayoutSpec { base: Some(0), ..LayoutSpec::default() });
    file.write_at(&ctx, 0, data).unwrap();
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
}

/// The file of each object of a file, in the order of columns.
fn object_files(cluster: &Cluster<'_>, path: &str) -> Vec<PathBuf> {
    let layout = cluster.weir(&["layout", "--json", path]).json();
    let objects = layout[0]["segments"][0]["objects"].as_array().unwrap();
    let found = objects.iter().map(|object| {
        let dir = Path::new(object["directory"].as_str().unwrap()).join("objects");
        find(&dir, &format!("f{}", object["object"].as_str().unwrap())).unwrap()
    });
    found.collect()
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let hashes = fs::read_dir(dir).unwrap().map(|hash| hash.unwrap().path().join(name));
    hashes.into_iter().find(|path| path.exists())
}

/// What changes all the time: files of several layouts are made, written,
/// read, cut, renamed, linked and removed until `stop`.
fn churn(client: &Client, number: u64, stop: &AtomicBool) -> u64 {
    let ctx = Context::root();
    let dir = client.mkdir(&ctx, FileId::ROOT, format!("dir-{number}").as_bytes(), 0o755).unwrap();
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("f{}", rounds % 7);
        let layout = match rounds % 3 {
            0 => LayoutSpec::default(),
            1 => {
                LayoutSpec { kind: LayoutKind::Chunked, segment_bytes: UNIT, ..Default::default() }
            }
            _ => LayoutSpec {
                kind: LayoutKind::Fragments,
                segment_bytes: UNIT,
                ..Default::default()
            },
        };
        let options =
            CreateOptions { layout: Some(layout), truncate: true, ..CreateOptions::default() };
        let (file, _) = client.create(&ctx, dir.file, name.as_bytes(), &options).unwrap();
        let data = noise(300_000 + rounds as usize % 1000, rounds + 1);
        // Holes too.
        file.write_at(&ctx, rounds % 5 * UNIT, &data).unwrap();
        if rounds % 4 == 0 {
            file.flush(&ctx).unwrap();
            let mut request = weir_client::set_nothing(file.id());
            request.size = Some(rounds % 3 * 100_000);
            client.setattr(&ctx, &request).unwrap();
            file.write_at(&ctx, 10, &data[..5000]).unwrap();
        }
        file.close(&ctx).unwrap();
        match rounds % 5 {
            0 => drop(client.unlink(&ctx, dir.file, name.as_bytes()).unwrap()),
            1 => {
                let to = format!("moved-{}", rounds % 3);
                let request = RenameRequest {
                    parent: dir.file,
                    name: name.as_bytes().into(),
                    new_parent: dir.file,
                    new_name: to.as_bytes().into(),
                    no_replace: false,
                    exchange: false,
                    whiteout: false,
                    hold: false,
                };
                client.rename(&ctx, &request).unwrap();
            }
            _ => {}
        }
        rounds += 1;
    }
    rounds
}

#[test]
fn a_healthy_cluster_in_full_use_has_no_problem() {
    let place = Place::new();
    let cluster = place.up("busy", &["--targets", "3"]);
    let clients: Vec<Client> = (0..3).map(|n| client(&cluster, n > 0)).collect();
    let stop = AtomicBool::new(false);
    let rounds: u64 = std::thread::scope(|scope| {
        let stop = &stop;
        let loads: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(n, client)| scope.spawn(move || churn(client, n as u64, stop)))
            .collect();
        let checked = std::panic::catch_unwind(|| {
            for _ in 0..8 {
                assert_clean(&cluster);
            }
        });
        stop.store(true, Ordering::Relaxed);
        let rounds = loads.into_iter().map(|load| load.join().unwrap()).sum();
        checked.unwrap();
        rounds
    });
    assert!(rounds > 50, "only {rounds} rounds of load");
    clients.into_iter().for_each(Client::shutdown);
    let found = assert_clean(&cluster);
    assert!(found["objects"].as_u64().unwrap() > 20, "{found:#}");
    assert_eq!(found["targets"], serde_json::json!([1, 2, 3]));
}

#[test]
fn a_lost_object_is_named_with_the_bytes_of_its_file() {
    let place = Place::new();
    let cluster = place.up("lost", &["--targets", "2"]);
    let client = client(&cluster, true);
    put(&client, "whole", &noise(300_000, 1));
    put(&client, "holed", &noise(300_000, 2));
    let sparse = create(&client, "sparse", LayoutSpec { base: Some(0), ..Default::default() });
    sparse.write_at(&Context::root(), 10 * UNIT, b"end").unwrap();
    sparse.close(&Context::root()).unwrap();
    assert_clean(&cluster);

    // Column 1 of three stripes of two: units 1, 3 and what there is of 5.
    fs::remove_file(&object_files(&cluster, "weir:/holed")[1]).unwrap();
    // The server has it open: only a restart sees that it is gone.
    cluster.kill("data-2");
    cluster.weir(&["up"]).ok();
    let lost = problems(&cluster, &["missing-object"]);
    assert_eq!(lost[0]["path"], "/holed");
    assert_eq!(lost[0]["target"], 2);
    assert_eq!(lost[0]["server"], "data-2");
    assert_eq!(lost[0]["bytes"], serde_json::json!([UNIT, 4 * UNIT - 1]));
    let said = cluster.weir(&["fsck"]);
    assert_eq!(said.code, Some(4));
    for word in ["weir:/holed", "65536-262143", "target 2", "data-2", "power", "left:"] {
        assert!(said.out.contains(word), "no {word:?} in {}", said.out);
    }
    // A repair leaves the problem: no copy has these bytes.
    let (code, found) = fsck(&cluster, &["--repair"]);
    assert_eq!((code, &found["repaired"]), (4, &0.into()), "{found:#}");
}

/// The written columns are reported with the closes, those of several files in one message.
#[test]
fn a_lost_object_of_any_of_many_small_files_that_were_just_closed_is_missed() {
    let place = Place::new();
    let cluster = place.up("small", &["--targets", "1"]);
    let client = client(&cluster, true);
    put_small(&client, FileId::ROOT);
    client.shutdown();
    all_small_are_missed(&cluster, SMALL);
}

/// The server looks at more records of each of them.
#[test]
fn small_files_with_access_control_lists_are_closed_and_missed_as_others() {
    let place = Place::new();
    let cluster = place.up("small", &["--targets", "1"]);
    let (client, ctx) = (client(&cluster, true), Context::root());
    let dir = client.mkdir(&ctx, FileId::ROOT, b"d", 0o755).unwrap().file;
    // u::rwx, u:5:rwx, g::r-x, m::rwx, o::r-x
    let entries = [(1u16, 7u16, u32::MAX), (2, 7, 5), (4, 5, u32::MAX), (16, 7, u32::MAX)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, bits, who) in entries.into_iter().chain([(32, 5, u32::MAX)]) {
        list.extend(tag.to_le_bytes().into_iter().chain(bits.to_le_bytes()));
        list.extend(who.to_le_bytes());
    }
    client.set_xattr(&ctx, dir, ACL_DEFAULT, &list, XattrMode::Any).unwrap();
    put_small(&client, dir);
    client.unlink(&ctx, dir, b"f0").unwrap();
    // An object is deleted only when no client has its file open.
    eventually("the closes got through", || objects(&cluster).len() == SMALL - 1);
    client.shutdown();
    all_small_are_missed(&cluster, SMALL - 1);
}

#[test]
fn what_was_written_is_told_to_a_metadata_server_that_was_killed_before_it_answered_the_close() {
    let place = Place::new();
    let cluster = place.up("small", &["--targets", "1"]);
    let client = client(&cluster, true);
    put_small(&client, FileId::ROOT);
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
    client.unlink(&Context::root(), FileId::ROOT, b"f0").unwrap();
    eventually("the closes got through", || objects(&cluster).len() == SMALL - 1);
    client.shutdown();
    all_small_are_missed(&cluster, SMALL - 1);
}

const SMALL: usize = 40;

/// Makes, writes and closes small files.
fn put_small(client: &Client, dir: FileId) {
    let (ctx, options) = (Context::root(), CreateOptions::default());
    for number in 0..SMALL {
        let name = format!("f{number}");
        let (file, _) = client.create(&ctx, dir, name.as_bytes(), &options).unwrap();
        file.write_at(&ctx, 0, &noise(4096, 1)).unwrap();
        file.close(&ctx).unwrap();
    }
}

/// The files of all objects of target 1.
fn objects(cluster: &Cluster<'_>) -> Vec<PathBuf> {
    let hashes = fs::read_dir(cluster.dir().join("targets/1/objects")).unwrap();
    let objects = hashes.flat_map(|hash| fs::read_dir(hash.unwrap().path()).unwrap());
    objects.map(|object| object.unwrap().path()).collect()
}

/// Removes the objects of so many small files, which are missed then.
#[track_caller]
fn all_small_are_missed(cluster: &Cluster<'_>, files: usize) {
    assert_clean(cluster);
    let all = objects(cluster);
    assert_eq!(all.len(), files);
    all.iter().for_each(|object| fs::remove_file(object).unwrap());
    cluster.kill("data-1");
    cluster.weir(&["up"]).ok();
    assert_eq!(problems(cluster, &vec!["missing-object"; files]).len(), files);
}

#[test]
fn an_object_without_a_file_is_removed() {
    let place = Place::new();
    let cluster = place.up("orphan", &["--targets", "2"]);
    let client = client(&cluster, true);
    put(&client, "kept", &noise(200_000, 3));
    client.shutdown();
    cluster.weir(&["down"]).ok();
    // Valid in itself, of a file that never was.
    let target = weir_store::Target::open(cluster.dir().join("targets/2")).unwrap();
    let id = weir_types::ObjectId {
        // Given out with its block, and never used.
        file: FileId(77_777),
        segment: weir_types::SegmentIndex(0),
        column: weir_types::ColumnIndex(0),
        copy: weir_types::CopyIndex(0),
    };
    let data = noise(4096, 9);
    let checks = [weir_types::checksum::crc32c(&data)];
    let object = target.object_or_create(id).unwrap();
    object.write_pieces(&[(0, 4096)], &data, &checks, weir_types::Generation(1)).unwrap();
    object.sync().unwrap();
    drop(object);
    drop(target);
    cluster.weir(&["up"]).ok();

    let objects = cluster.dir().join("targets/2/objects");
    let name = format!("f{id}");
    assert!(find(&objects, &name).is_some());
    let orphan = problems(&cluster, &["orphan-object"]);
    assert_eq!((&orphan[0]["target"], &orphan[0]["path"]), (&2.into(), &Value::Null));
    assert!(find(&objects, &name).is_some(), "it only looks");
    let (code, found) = fsck(&cluster, &["--repair"]);
    assert_eq!((code, &found["repaired"]), (1, &1.into()), "{found:#}");
    assert!(find(&objects, &name).is_none(), "it is gone when the repair returns");
    assert_clean(&cluster);
    cluster.weir(&["cp", "weir:/kept", place.path("kept").to_str().unwrap()]).ok();
    assert!(fs::read(place.path("kept")).unwrap() == noise(200_000, 3));
}

/// Writes a file and dies before it can say so; a process of its own.
#[test]
fn dying_writer() {
    let Some(dir) = std::env::var_os("WEIR_TEST_DYING_WRITER") else { return };
    // Without leases: with leases, the next client that opens the file would find its size.
    let config = ClientConfig {
        consistency: Consistency::Relaxed,
        ..library::config_in(Path::new(&dir)).without_cache()
    };
    let client = Client::connect(config).unwrap();
    let file = create(&client, "short", LayoutSpec { base: Some(0), ..Default::default() });
    // Every server has confirmed it, the metadata server knows nothing.
    file.write_at(&Context::root(), 0, &noise(200_000, 4)).unwrap();
    std::process::abort();
}

#[test]
fn a_file_whose_writer_died_gets_its_size_back() {
    let place = Place::new();
    let cluster = place.up("short", &["--targets", "3"]);
    // The end of a session, sooner.
    cluster.weir(&["down"]).ok();
    let path = cluster.dir().join("meta.toml");
    let settings = fs::read_to_string(&path).unwrap();
    let sooner = settings.replace("session_timeout_ms = 30000", "session_timeout_ms = 3000");
    assert_ne!(sooner, settings);
    let sooner = sooner.replace("lease_ms = 10000", "lease_ms = 3000");
    fs::write(&path, sooner).unwrap();
    cluster.weir(&["up"]).ok();

    let mut writer = again("fsck::dying_writer");
    writer.env("WEIR_TEST_DYING_WRITER", cluster.dir());
    assert!(!writer.output().unwrap().status.success(), "it was to die");
    let client = client(&cluster, true);
    let ctx = Context::root();
    let size = || client.resolve(&ctx, b"/short", false).unwrap().size;
    assert_eq!(size(), 0);
    // As long as the session lives, its files are in use.
    let (code, found) = fsck(&cluster, &["--repair"]);
    assert_eq!((code, &found["in_use"], size()), (0, &1.into(), 0), "{found:#}");
    eventually("the session has ended", || fsck(&cluster, &[]).1["in_use"] == 0);

    let short = problems(&cluster, &["size"]);
    assert_eq!(short[0]["path"], "/short");
    assert_eq!(short[0]["bytes"], serde_json::json!([0, 199_999]));
    assert_eq!(size(), 0, "it only looks");
    let (code, found) = fsck(&cluster, &["--repair"]);
    assert_eq!((code, &found["repaired"]), (1, &1.into()), "{found:#}");
    assert_eq!(size(), 200_000);
    assert_clean(&cluster);
    let (file, _) =
        client.open(&ctx, FileId(short[0]["file"].as_u64().unwrap()), Rights::READ).unwrap();
    let mut data = vec![0; 200_000];
    assert_eq!(file.read_at(&ctx, 0, &mut data).unwrap(), 200_000);
    assert!(data == noise(200_000, 4), "every byte that was confirmed is there");
}

#[test]
fn an_object_on_the_wrong_target_and_a_stray_file_are_told_of_and_left() {
    let place = Place::new();
    let cluster = place.up("moved", &["--targets", "2"]);
    let client = client(&cluster, true);
    put(&client, "f", &noise(200_000, 5));
    client.shutdown();
    let from = object_files(&cluster, "weir:/f")[0].clone();
    cluster.weir(&["down"]).ok();
    let hash = from.parent().unwrap().file_name().unwrap();
    let to = cluster.dir().join("targets/2/objects").join(hash);
    fs::create_dir_all(&to).unwrap();
    fs::rename(&from, to.join(from.file_name().unwrap())).unwrap();
    fs::write(to.join("notes.txt"), "hello").unwrap();
    cluster.weir(&["up"]).ok();
    let found = problems(&cluster, &["misplaced-object", "missing-object", "stray-file"]);
    let of = |kind: &str| found.iter().find(|p| p["kind"] == kind).unwrap();
    assert_eq!(
        (&of("misplaced-object")["target"], &of("missing-object")["target"]),
        (&2.into(), &1.into())
    );
    assert!(of("stray-file")["what"].as_str().unwrap().contains("notes.txt"));
    let (code, found) = fsck(&cluster, &["--repair"]);
    assert_eq!((code, &found["repaired"]), (4, &0.into()), "{found:#}");
    assert!(to.join("notes.txt").exists() && to.join(from.file_name().unwrap()).exists());
}

#[test]
fn all_is_not_called_well_where_not_all_could_be_checked() {
    let place = Place::new();
    let cluster = place.up("half", &["--targets", "2"]);
    assert!(cluster.weir(&["fsck"]).ok().contains("all is well"));
    cluster.kill("data-1");
    let offline = || cluster.weir(&["df", "--json"]).json()[0]["state"] == "offline";
    eventually("the target is offline", offline);
    let said = cluster.weir(&["fsck"]);
    assert_eq!(said.code, Some(8), "{said:?}");
    assert!(said.out.contains("NOT CHECKED: target 1"), "{said:?}");
    assert!(said.out.contains("nothing is wrong in what could be checked"), "{said:?}");
    assert!(!said.out.contains("all is well"), "{said:?}");
}

#[test]
fn a_target_that_is_away_is_not_called_empty() {
    let place = Place::new();
    let cluster = place.up("away", &["--targets", "2"]);
    let client = client(&cluster, true);
    put(&client, "f", &noise(200_000, 6));
    cluster.kill("data-1");
    eventually("the target is offline", || {
        let map = client.cluster_map().unwrap();
        map.targets().any(|(_, t)| t.state == weir_wire::map::TargetState::Offline)
    });
    let (code, found) = fsck(&cluster, &[]);
    assert_eq!(code, 12, "{found:#}");
    let problems = found["problems"].as_array().unwrap();
    assert!(problems.len() == 1 && problems[0]["kind"] == "away-column", "{found:#}");
    assert_eq!(found["targets"], serde_json::json!([2]));
    let said = cluster.weir(&["fsck"]);
    assert!(said.out.contains("NOT CHECKED: target 1"), "{}", said.out);
    cluster.weir(&["scrub"]).fails(&[]);
}

#[test]
fn an_ordinary_client_may_neither_check_nor_verify() {
    let place = Place::new();
    let cluster = place.up("guest", &["--targets", "1"]);
    let guest = place.path("guest.toml");
    let guest = guest.to_str().unwrap();
    cluster.weir(&["key", "new", "--output", guest]).ok();
    cluster.weir(&["--version"]).ok();
    cluster.weir(&["ls", "--credential", guest]).ok();
    for (command, code) in [("fsck", 8), ("scrub", 1)] {
        let said = cluster.weir(&[command, "--credential", guest]);
        assert_eq!(said.code, Some(code), "{command}: {}", said.err);
        assert!(said.err.contains("not an administrator"), "{command}: {}", said.err);
        assert!(said.err.contains("client.toml"), "{command}: {}", said.err);
    }
    let own = config(&cluster);
    assert!(Client::connect(own).unwrap().administrator().is_ok());
}
