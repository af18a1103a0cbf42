//! Files with several copies: their users go on when servers die, or are stopped.

use crate::fault_load::Program;
use crate::harness::{Cluster, Place, SOON, eventually, noise, root};
use crate::library::{self, client, counter};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, Consistency, Context, CreateOptions, File, ReadPolicy};
use weir_types::{ErrorKind, FileId, LayoutSpec, TargetId};
use weir_wire::Rights;

/// A server is missed after 3 to 5 s, and its writers then use the other copy, 1 s later; but this
/// machine may be slow.
const LONGEST_MS: u64 = 15_000;

/// A cluster of two data servers where everything has two copies.
fn mounted(place: &Place) -> (Cluster<'_>, PathBuf) {
    let at = place.path("m");
    let cluster = place.up("copies", &["--targets", "2", "--mount", at.to_str().unwrap()]);
    cluster.weir(&["setlayout", "weir:/", "--copies", "2"]).ok();
    (cluster, at)
}

/// Programs that read, and that write and sync, each a file of its own.
fn users(place: &Place, at: &Path) -> Vec<Program> {
    let start = |call| Program::start(call, &at.join(call), place.path(call), false);
    let users: Vec<_> = ["read", "write", "fsync"].into_iter().map(start).collect();
    go_on(&users);
    users
}

/// Each makes some more calls.
fn go_on(users: &[Program]) {
    let before: Vec<u64> = users.iter().map(|user| user.report().calls).collect();
    let all = || users.iter().zip(&before).all(|(user, before)| user.report().calls > before + 3);
    eventually("they go on", all);
    none_failed(users);
}

fn none_failed(users: &[Program]) {
    for user in users {
        let report = user.report();
        assert!(report.failed == 0, "{}: {report:?}: {}", user.call, user.log());
        assert!(report.longest_ms < LONGEST_MS, "{}: {report:?}", user.call);
    }
}

/// Waits until both copies of a file are online again.
fn whole(cluster: &Cluster<'_>, name: &str) {
    eventually("both copies are online", || {
        let layout = cluster.weir(&["layout", "--json", name]).json();
        let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
        objects.iter().all(|object| object["state"] == "online")
    });
}

#[test]
fn copies_are_asked_for_and_shown() {
    let place = Place::new();
    let cluster = place.up("shown", &["--targets", "2"]);
    let bytes = noise(1_000_000, 6);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--copies", "2"]).ok();
    assert!(cluster.weir(&["setlayout", "weir:/d"]).ok().contains("2 copies, server-sync"));
    cluster.weir(&["cp", "data", "weir:/d/data"]).ok();
    let layout = cluster.weir(&["layout", "--json", "weir:/d/data"]).json();
    assert_eq!(
        (&layout[0]["copies"], &layout[0]["duplication"]),
        (&2.into(), &"server-sync".into())
    );
    let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
    for column in 0..layout[0]["count"].as_u64().unwrap() {
        let copies: Vec<_> = objects.iter().filter(|o| o["column"] == column).collect();
        assert_eq!(copies.len(), 2, "{layout}");
        assert_ne!(copies[0]["server"], copies[1]["server"], "{layout}");
        assert!(copies.iter().all(|copy| copy["state"] == "online"), "{layout}");
    }
    let text = cluster.weir(&["layout", "weir:/d/data"]).ok();
    assert!(text.contains("2 copies, server-sync"), "{text}");
    cluster.weir(&["cp", "weir:/d/data", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == bytes);
    cluster.weir(&["mkfile", "weir:/bad", "--copies", "9"]).fails(&["9 copies"]);
    cluster.weir(&["mkfile", "weir:/bad", "--duplication", "server-async"]).fails(&["--copies"]);
}

/// Beside the ones of its directory, which other files there have.
#[test]
fn one_file_has_copies_of_its_own() {
    let place = Place::new();
    let cluster = place.up("own", &["--targets", "3"]);
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--copies", "3"]).ok();
    let of = |name: &str| {
        let layout = cluster.weir(&["layout", "--json", name]).json()[0].clone();
        (layout["copies"].as_u64().unwrap(), layout["duplication"].as_str().unwrap().to_owned())
    };
    let duplication = ["--duplication", "client-async"];
    cluster.weir(&[&["mkfile", "weir:/d/own", "--copies", "2"], &duplication[..]].concat()).ok();
    cluster.weir(&["mkfile", "weir:/d/plain"]).ok();
    assert_eq!(of("weir:/d/own"), (2, "client-async".to_owned()));
    assert_eq!(of("weir:/d/plain"), (3, "server-sync".to_owned()));
    fs::write(place.path("data"), noise(300_000, 6)).unwrap();
    cluster.weir(&["cp", "data", "weir:/d/own"]).ok();
    let layout = cluster.weir(&["layout", "--json", "weir:/d/own"]).json();
    let objects = layout[0]["segments"][0]["objects"].as_array().unwrap();
    let first = objects.iter().filter(|object| object["column"] == 0);
    assert_eq!(first.count(), 2, "{layout}");

    // What a directory says about new files, for programs too.
    let said = cluster.weir(&["setlayout", "--json", "weir:/d", "weir:/"]).json();
    let copies: Vec<_> = said.as_array().unwrap().iter().map(|d| &d["default"]["copies"]).collect();
    assert_eq!((copies[0].as_u64(), &said[0]["path"]), (Some(3), &"weir:/d".into()), "{said}");
    assert_ne!(copies[1].as_u64(), Some(3), "{said}");
}

/// CEFT-PVFS: servers 1 and 3 are one group, 2 and 4 the other; 1 and 2 are partners.
#[test]
fn of_two_groups_any_one_of_each_pair_may_die() {
    if !root() {
        return;
    }
    let place = Place::new();
    for dead in [["data-1", "data-4"], ["data-3", "data-2"]] {
        two_groups_without(&place, dead);
    }
}

fn two_groups_without(place: &Place, dead: [&str; 2]) {
    let cluster = place.up(dead[0], &["--targets", "4"]);
    let at = cluster.mount(&format!("m-{}", dead[0]), "rw");
    let bytes = noise(1_000_000, 6);
    fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--copies", "2", "--placement", "groups"]).ok();
    cluster.weir(&["mkdir", "/d/below"]).ok();
    let text = cluster.weir(&["setlayout", "weir:/d/below"]).ok();
    assert!(text.contains("2 copies, server-sync, groups"), "{text}");
    let mut first_group_leads = Vec::new();
    for name in ["weir:/d/a", "weir:/d/below/b"] {
        cluster.weir(&["cp", "data", name]).ok();
        let layout = cluster.weir(&["layout", "--json", name]).json();
        assert_eq!(layout[0]["placement"], "groups");
        let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
        let servers = |copy: u64| -> Vec<u64> {
            let of = objects.iter().filter(|o| o["copy"] == copy);
            of.map(|o| o["server"].as_u64().unwrap()).collect()
        };
        let (primaries, mirrors) = (servers(0), servers(1));
        assert_eq!(primaries.len(), 2, "{layout}");
        let partner = |server: &u64| if server % 2 == 1 { server + 1 } else { server - 1 };
        assert_eq!(mirrors, primaries.iter().map(partner).collect::<Vec<_>>(), "{layout}");
        first_group_leads.push(primaries.iter().all(|server| server % 2 == 1));
        assert!(cluster.weir(&["layout", name]).ok().contains("2 copies, server-sync, groups"));
    }
    assert_ne!(first_group_leads[0], first_group_leads[1], "the one that was given less");
    dead.iter().for_each(|daemon| cluster.kill(daemon));
    for name in ["d/a", "d/below/b"] {
        cluster.weir(&["cp", &format!("weir:/{name}"), "back"]).ok();
        assert!(fs::read(place.path("back")).unwrap() == bytes);
        // In place: a new file has no place while one of each pair is away.
        let file = fs::OpenOptions::new().write(true).open(at.join(name)).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
    }
    cluster.weir(&["up"]).ok();
    whole(&cluster, "weir:/d/a");
    whole(&cluster, "weir:/d/below/b");
    for (flags, why) in [(["--copies", "3"], "2"), (["--layout", "chunked"], "copies")] {
        let arguments = [&["mkfile", "weir:/bad", "--placement", "groups"][..], &flags].concat();
        cluster.weir(&arguments).fails(&[why]);
    }
}

#[test]
fn readers_and_writers_go_on_when_one_server_and_then_the_other_is_killed() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let kept = noise(3_000_000, 3);
    fs::write(at.join("kept"), &kept).unwrap();
    fs::File::open(at.join("kept")).unwrap().sync_all().unwrap();
    let users = users(&place, &at);
    for daemon in ["data-1", "data-2"] {
        cluster.kill(daemon);
        go_on(&users);
        let reader = users[0].report();
        assert!(reader.longest_ms < 4_000, "{reader:?}");
        cluster.weir(&["cp", "weir:/kept", "back"]).ok();
        assert!(fs::read(place.path("back")).unwrap() == kept);
        cluster.weir(&["up"]).ok();
        for name in ["weir:/kept", "weir:/write/file", "weir:/fsync/file"] {
            whole(&cluster, name);
        }
        go_on(&users);
    }
}

#[test]
fn a_stopped_server_keeps_readers_for_a_second_and_writers_until_it_is_missed() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let users = users(&place, &at);
    let stopped = cluster.stopped(&["data-1"]);
    go_on(&users);
    let reader = users[0].report();
    assert!(reader.longest_ms < 4_000, "{reader:?}");
    drop(stopped);
    go_on(&users);
}

#[test]
fn who_wants_what_has_no_current_copy_is_told_which_targets_are_missing() {
    let place = Place::new();
    let cluster = place.up("gone", &["--targets", "2"]);
    fs::write(place.path("data"), noise(100_000, 6)).unwrap();
    cluster.weir(&["mkfile", "weir:/data", "--copies", "2"]).ok();
    cluster.weir(&["cp", "data", "weir:/data"]).ok();
    cluster.kill("data-1");
    cluster.kill("data-2");
    let begin = Instant::now();
    let words = ["no current copy", "target 1 on server", "target 2 on server", "is offline"];
    cluster.weir(&["cat", "weir:/data"]).fails(&words);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    cluster.weir(&["up"]).ok();
    eventually("it can be read again", || cluster.weir(&["cat", "weir:/data"]).code == Some(0));
}

#[test]
fn what_has_lost_all_copies_is_named_and_all_else_of_an_open_file_is_read_and_written() {
    const UNIT: u64 = 65_536;
    let place = Place::new();
    let cluster = place.up("some", &["--targets", "4"]);
    let config = ClientConfig { request_timeout_ms: 12_000, ..library::config(&cluster) };
    let client = Client::connect(config.without_cache()).unwrap();
    let ctx = Context::root();
    let spec = LayoutSpec { base: Some(0), count: 4, copies: 2, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, b"four", &options).unwrap();
    let mut data = noise(4 * UNIT as usize, 9);
    file.write_at(&ctx, 0, &data).unwrap();
    file.sync(&ctx).unwrap();
    // Each column is on a target and the next one: the first is on these two.
    cluster.kill("data-1");
    cluster.kill("data-2");
    let read = |offset: u64, len: u64| {
        let mut buffer = vec![0; len as usize];
        file.read_at(&ctx, offset, &mut buffer).map(|_| buffer)
    };
    let begin = Instant::now();
    assert!(read(UNIT, 3 * UNIT).unwrap() == data[UNIT as usize..]);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    for column in 1..4 {
        let (at, new) = (column * UNIT + 100, noise(5_000, column));
        file.write_at(&ctx, at, &new).unwrap();
        data[at as usize..][..new.len()].copy_from_slice(&new);
    }
    let begin = Instant::now();
    let error = read(0, UNIT).unwrap_err();
    let words = ["no current copy", "target 1 on server 1", "target 2 on server 2"];
    assert!(words.iter().all(|word| error.message.contains(word)), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(read(UNIT, 3 * UNIT).unwrap() == data[UNIT as usize..]);
    // The call waits for a new server as long as configured, and then reports what was lacking.
    let config = ClientConfig { request_timeout_ms: 1_500, ..library::config(&cluster) };
    let impatient = Client::connect(config.without_cache()).unwrap();
    let error = impatient.create(&ctx, FileId::ROOT, b"five", &options).map(drop).unwrap_err();
    assert!(error.message.contains("2 of 4 are online: ask for fewer"), "{error}");
    cluster.weir(&["up"]).ok();
    eventually("all of it can be read again", || read(0, 4 * UNIT).is_ok());
    assert!(read(0, 4 * UNIT).unwrap() == data);
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
}

#[test]
fn new_files_are_made_while_a_server_is_away_and_it_gets_them() {
    let place = Place::new();
    let cluster = place.up("new", &["--targets", "2"]);
    let client = client(&cluster, false);
    let first = two_copies(&client, b"before", &noise(10_000, 7));
    first.close(&Context::root()).unwrap();
    cluster.kill("data-1");
    let offline = || cluster.weir(&["df", "--json"]).json()[0]["state"] == "offline";
    eventually("it is missed", offline);
    let bytes = noise(700_000, 8);
    let file = two_copies(&client, b"meanwhile", &bytes);
    cluster.weir(&["up"]).ok();
    whole(&cluster, "weir:/meanwhile");
    // What the copy there holds, after its header.
    let copy = fs::read(object_on(&cluster, 1, file.id())).unwrap();
    assert!(copy[DATA as usize..][..bytes.len()] == bytes);
    file.close(&Context::root()).unwrap();
}

#[test]
fn what_is_started_again_and_lacks_much_is_left_to_get_it() {
    let place = Place::new();
    let cluster = place.up("slow", &["--targets", "2"]);
    cluster.weir(&["down"]).ok();
    let config = cluster.dir().join("data-2.toml");
    let text = fs::read_to_string(&config).unwrap();
    let slow = text.replace("resync_bytes_per_s = 0", "resync_bytes_per_s = 1000000");
    assert_ne!(slow, text);
    fs::write(&config, slow).unwrap();
    cluster.weir(&["up"]).ok();
    let client = client(&cluster, false);
    cluster.kill("data-1");
    let offline = || cluster.weir(&["df", "--json"]).json()[0]["state"] == "offline";
    eventually("it is missed", offline);
    let file = two_copies(&client, b"big", &noise(40_000_000, 9));
    let said = cluster.weir(&["up"]).ok();
    assert!(said.contains("1 targets are not up to date yet"), "{said}");
    let state = cluster.weir(&["targets", "--json"]).json()[0]["state"].clone();
    assert_eq!((state, cluster.pids().len()), ("syncing".into(), 3));
    // How much is left, how fast it comes, and when it will be there.
    eventually("it is known how fast it goes", || {
        let said = cluster.weir(&["status", "--json", "--counters"]).out;
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        let (target, all) = (&status["targets"][0], &status["servers"]["meta"]["counters"]);
        let pairs = [
            ("behind", "parts"),
            ("behind_per_s", "parts_per_s"),
            ("behind_expected_s", "expected_s"),
        ];
        pairs.iter().all(|(name, counter)| {
            let counted = all[format!("target.1.behind_{counter}")].as_u64();
            target[name].as_u64() > Some(0) && counted > Some(0)
        })
    });
    let status = cluster.weir(&["status"]).out;
    let line = status.lines().find(|line| line.contains("being brought up to date"));
    assert!(line.is_some_and(|line| line.contains("/s, ") && line.contains(" left")), "{status}");
    file.close(&Context::root()).unwrap();
}

/// Changes settings of the metadata server and restarts it.
fn set_of_metadata(cluster: &Cluster<'_>, values: &[(&str, i64)]) {
    let path = cluster.dir().join("meta.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
    settings.extend(values);
    fs::write(&path, settings.to_string()).unwrap();
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
}

#[test]
fn a_copy_is_brought_up_to_date_beside_a_busy_reader_as_fast_as_rebuild_busy_percent_lets_it() {
    let paused = [100, 5].map(|percent| std::thread::spawn(move || paused_ms_beside(percent)));
    let [at_all, at_some] = paused.map(|paused| paused.join().unwrap());
    assert_eq!(at_all, 0, "clients get nothing");
    assert!(at_some > 0, "clients get most of the time");
}

/// How long target 1 has paused while it brought target 2 what that lacked.
fn paused_ms_beside(percent: i64) -> u64 {
    let place = Place::new();
    let cluster = place.up("busy", &["--targets", "2"]);
    // A living server must not be declared away, however busy the machine is: its data would then
    // be on a server that was killed.
    let missed_late = ("target_timeout_ms", 10_000);
    set_of_metadata(&cluster, &[("rebuild_busy_percent", percent), missed_late]);
    let (ctx, watcher) = (Context::root(), client(&cluster, false));
    let counter = |name: &str| {
        let counters = watcher.data_status(TargetId(1), 5000).unwrap().counters;
        counters.into_iter().find(|(n, _)| n == name).unwrap().1
    };
    let is = |state: &str| cluster.weir(&["df", "--json"]).json()[1]["state"] == state;
    let beside = two_copies(&watcher, b"beside", &noise(100_000, 1));
    cluster.kill("data-2");
    eventually("it is missed", || is("offline"));
    let data = noise(8 << 20, 2);
    let file = two_copies(&watcher, b"file", &data);
    let (reader, done) = (client(&cluster, false), AtomicBool::new(false));
    let (open, _) = reader.open(&ctx, beside.id(), Rights::READ).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                open.read_at(&Context::root(), 0, &mut [0; 100_000]).unwrap();
            }
        });
        cluster.weir(&["up"]).ok();
        eventually("it has got all", || is("online"));
        done.store(true, Relaxed);
    });
    assert!(counter("bytes.resynced") >= data.len() as u64);
    let paused = counter("resync.paused_ms");
    // From the copy that was brought: once everybody knows that it is back, and the metadata server
    // that the other one has noted no more for it.
    let mut number = 0_u64;
    let mut write = || {
        number += 1;
        beside.write_at(&ctx, 0, &number.to_le_bytes()).unwrap();
        beside.sync(&ctx).unwrap();
        number.to_le_bytes()
    };
    eventually("a write is on both when it is done", || {
        let (written, mut there) = (write(), [0; 8]);
        let copy = fs::File::open(object_on(&cluster, 2, beside.id())).unwrap();
        copy.read_exact_at(&mut there, DATA).unwrap();
        there == written
    });
    let said = || cluster.weir(&["targets", "--json"]).json()[0]["written_bytes"].as_u64();
    let before = said();
    write();
    eventually("its server has reported since", || said() > before);
    eventually("nothing is missed", || is("online"));
    cluster.kill("data-1");
    let mut back = vec![0; data.len()];
    assert_eq!(file.read_at(&ctx, 0, &mut back).unwrap(), data.len());
    assert!(back == data, "{percent} %");
    paused
}

/// A file of one column with two copies, the first on target 1.
fn two_copies(client: &Client, name: &[u8], data: &[u8]) -> File {
    let ctx = Context::root();
    let spec = LayoutSpec { base: Some(0), count: 1, copies: 2, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, name, &options).unwrap();
    file.write_at(&ctx, 0, data).unwrap();
    file.sync(&ctx).unwrap();
    file
}

/// Where the data of an object begins in its file (docs/format-store.md).
const DATA: u64 = 32 * 4096;

/// A file's only object on a target.
fn object_on(cluster: &Cluster<'_>, target: u32, file: FileId) -> PathBuf {
    let objects = cluster.dir().join(format!("targets/{target}/objects"));
    let prefix = format!("f{:x}.", file.0);
    let hashes = fs::read_dir(objects).unwrap().map(|hash| hash.unwrap().path());
    let mut files = hashes.flat_map(|hash| fs::read_dir(hash).unwrap().map(|f| f.unwrap().path()));
    let is_its = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix);
    files.find(is_its).unwrap()
}

/// Flips a bit in a block of it.
fn flip(cluster: &Cluster<'_>, target: u32, file: FileId, block: u64) {
    let path = object_on(cluster, target, file);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (mut byte, at) = ([0], DATA + block * 4096 + 7);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn what_has_rotted_in_one_copy_is_read_from_the_other_and_counted() {
    let place = Place::new();
    let cluster = place.up("rot", &["--targets", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let data = noise(500_000, 4);
    let file = two_copies(&client, b"two", &data);
    let read = |offset: usize, len: usize| {
        let mut buffer = vec![0; len];
        file.read_at(&ctx, offset as u64, &mut buffer).map(|_| buffer)
    };
    flip(&cluster, 1, file.id(), 5);
    assert!(read(0, data.len()).unwrap() == data);
    assert_eq!(counter(&client, "copies_damaged"), 1);
    // In both: an error at once, and all else is there.
    flip(&cluster, 1, file.id(), 9);
    flip(&cluster, 2, file.id(), 9);
    let begin = Instant::now();
    let error = read(0, data.len()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    assert!(
        ["target 1", "target 2", "bytes 36864-40959"].iter().all(|w| error.message.contains(w)),
        "{error}"
    );
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(read(40_960, 100_000).unwrap() == data[40_960..140_960]);
    file.close(&ctx).unwrap();
}

#[test]
fn a_file_with_two_copies_takes_as_many_requests_as_one_with_one() {
    let place = Place::new();
    let cluster = place.up("requests", &["--targets", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let data = noise(500_000, 4);
    let file = two_copies(&client, b"two", &data);
    let requests = |call: &dyn Fn()| {
        let before = counter(&client, "data_requests");
        call();
        counter(&client, "data_requests") - before
    };
    assert_eq!(requests(&|| file.write_at(&ctx, 0, &data[..100_000]).unwrap()), 1);
    assert_eq!(requests(&|| file.sync(&ctx).unwrap()), 1);
    let mut buffer = vec![0; data.len()];
    assert_eq!(
        requests(&|| assert_eq!(file.read_at(&ctx, 0, &mut buffer.clone()).unwrap(), data.len())),
        1
    );
    file.read_at(&ctx, 0, &mut buffer).unwrap();
    assert!(buffer == data);
    file.close(&ctx).unwrap();
}

#[test]
fn who_opens_a_file_of_which_copies_are_chosen_finds_connections_to_its_servers() {
    let place = Place::new();
    let cluster = place.up("ahead", &["--targets", "2"]);
    let (ctx, data) = (Context::root(), noise(500_000, 4));
    let writer = client(&cluster, false);
    let file = two_copies(&writer, b"two", &data);
    let read = |file: &File| {
        let mut found = vec![0; data.len()];
        assert_eq!(file.read_at(&ctx, 0, &mut found).unwrap(), data.len());
        assert!(found == data);
    };
    // One more to each where a question was under way when it was counted. Without a choice they
    // are made as they are needed: how many depends on how slow this machine is at the moment, and
    // four to each are not among what one read needs.
    for (policy, connections) in [(ReadPolicy::Proportional, 8..=10), (ReadPolicy::Primary, 1..=7)]
    {
        let config = ClientConfig { read_policy: policy, ..library::config(&cluster) };
        let reader = Client::connect(config).unwrap();
        assert_eq!(counter(&reader, "data_connections"), 0);
        let open = || reader.open(&ctx, file.id(), Rights::READ).unwrap().0;
        if policy == ReadPolicy::Proportional {
            eventually("four to each, once its speed is known", || {
                read(&file);
                open().close(&ctx).unwrap();
                counter(&reader, "data_connections") >= *connections.start()
            });
        }
        let opened = open();
        read(&opened);
        opened.close(&ctx).unwrap();
        let made = counter(&reader, "data_connections");
        assert!(connections.contains(&made), "{policy:?}: {made}");
    }
}

#[test]
fn each_policy_reads_the_copies_that_it_says_and_without_a_lease_the_first_is_read() {
    let place = Place::new();
    let cluster = place.up("policies", &["--targets", "4"]);
    let (ctx, data) = (Context::root(), noise(64 << 20, 5));
    let file = two_copies(&client(&cluster, true), b"f", &data);
    let (id, _) = (file.id(), drop(file));
    // Proportional goes by who answers sooner, so that any share is right here; what it comes to
    // `sim/tests/pace.rs` asks on virtual time.
    let strict = [("primary", 0.0..=0.0), ("proportional", 0.0..=1.0), ("halves", 0.4..=0.6)];
    let relaxed = [("halves", 0.0..=0.0), ("graduated", 0.0..=0.0)];
    let strict = strict.into_iter().map(|wish| (Consistency::Strict, wish));
    let relaxed = relaxed.into_iter().map(|wish| (Consistency::Relaxed, wish));
    for (consistency, (name, wanted)) in strict.chain(relaxed) {
        let policy = ReadPolicy::OF_ANY_READER.into_iter().find(|policy| policy.name() == name);
        let read_policy = policy.unwrap();
        let config = ClientConfig { read_policy, consistency, ..library::config(&cluster) };
        let client = Client::connect(config).unwrap();
        let (file, _) = client.open(&ctx, id, Rights::READ).unwrap();
        let mut found = vec![0; data.len()];
        for (n, part) in found.chunks_mut(1 << 20).enumerate() {
            assert_eq!(file.read_at(&ctx, (n as u64) << 20, part).unwrap(), 1 << 20);
        }
        assert!(found == data, "{name}");
        let (all, others) = ("data_requests", "reads_of_other_copies");
        let share = counter(&client, others) as f64 / counter(&client, all) as f64;
        assert!(wanted.contains(&share), "{name}, {consistency:?}: {share} of the reads");
    }
}

#[test]
fn who_comes_back_gets_what_it_missed_and_not_all_there_is() {
    let place = Place::new();
    let cluster = place.up("missed", &["--targets", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let file = two_copies(&client, b"f", &noise(40_000_000, 4));
    file.sync(&ctx).unwrap();
    // What was made since the last checkpoint is brought as a whole.
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    cluster.kill("data-2");
    file.write_at(&ctx, 5_000_000, &noise(100_000, 5)).unwrap();
    file.sync(&ctx).unwrap();
    cluster.weir(&["up"]).ok();
    whole(&cluster, "weir:/f");
    let sent: u64 = [1, 2].map(|target| resynced_bytes(&client, target)).iter().sum();
    assert!((100_000..4 << 20).contains(&sent), "{sent} bytes");
    file.close(&ctx).unwrap();
}

/// What a target's server has sent to copies that lacked it.
fn resynced_bytes(client: &Client, target: u32) -> u64 {
    let status = client.data_status(TargetId(target), 5000).unwrap();
    let counter = status.counters.iter().find(|(name, _)| name == "bytes.resynced");
    counter.map_or(0, |(_, bytes)| *bytes)
}
