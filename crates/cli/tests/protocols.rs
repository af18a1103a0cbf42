//! Every protocol of duplication, with real processes. Which failures lose what is tried at
//! many moments by `testing/sim/tests/crash_points.rs`.

use crate::harness::{Cluster, Place, eventually, noise};
use crate::library::{client, counter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{Duplication, FileId, LayoutSpec};
use weir_wire::Rights;

const ALL: [(&str, Duplication); 5] = [
    ("server-sync", Duplication::ServerSync),
    ("server-async", Duplication::ServerAsync),
    ("client-sync", Duplication::ClientSync),
    ("client-async", Duplication::ClientAsync),
    ("hybrid", Duplication::Hybrid),
];

/// A file of one column with two copies, the first on target 1.
fn two_copies(client: &Client, name: &str, duplication: Duplication) -> File {
    copies(client, name, duplication, 2)
}

fn copies(client: &Client, name: &str, duplication: Duplication, copies: u8) -> File {
    let spec = LayoutSpec {
        base: Some(0),
        count: 1,
        copies,
        duplication: Some(duplication),
        ..LayoutSpec::default()
    };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap().0
}

fn read(client: &Client, file: FileId, len: usize) -> Result<Vec<u8>, weir_types::Error> {
    let ctx = Context::root();
    let (file, _) = client.open(&ctx, file, Rights::READ)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(&ctx, 0, &mut bytes)?;
    assert_eq!(read, len);
    file.close(&ctx)?;
    Ok(bytes)
}

/// A counter of a server.
fn counted(cluster: &Cluster<'_>, server: &str, name: &str) -> u64 {
    let text = cluster.weir(&["status", "--counters"]).ok();
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(String::from).collect() };
    let line =
        text.lines().map(words).find(|words| words.len() == 3 && words[..2] == [server, name]);
    line.unwrap()[2].parse().unwrap()
}

fn is_well(cluster: &Cluster<'_>) -> bool {
    cluster.weir(&["status"]).out.contains("All is well")
}

fn all_online(cluster: &Cluster<'_>) {
    eventually("all targets are online", || is_well(cluster));
}

/// Starts again what was killed, once it is missed: else it may be taken for well when it is
/// not yet known that it was away.
fn bring_back(cluster: &Cluster<'_>) {
    eventually("it is missed", || !is_well(cluster));
    cluster.weir(&["up"]).ok();
    all_online(cluster);
}

#[test]
fn every_protocol_is_asked_for_and_shown() {
    let place = Place::new();
    let cluster = place.up("shown", &["--targets", "2"]);
    for (name, _) in ALL {
        let path = format!("weir:/{name}");
        cluster.weir(&["mkfile", &path, "--copies", "2", "--duplication", name]).ok();
        assert!(cluster.weir(&["layout", &path]).ok().contains(&format!("2 copies, {name}")));
        let json = cluster.weir(&["layout", "--json", &path]).json();
        assert_eq!(json[0]["duplication"], name);
    }
}

#[test]
fn what_was_synced_is_on_both_servers_whatever_the_protocol() {
    let place = Place::new();
    let cluster = place.up("synced", &["--targets", "2"]);
    let ctx = Context::root();
    let writer = client(&cluster, true);
    let data = noise(3_000_000, 7);
    let mut files = Vec::new();
    for (name, duplication) in ALL {
        let file = two_copies(&writer, name, duplication);
        file.write_at(&ctx, 0, &data).unwrap();
        // Over what is there, and over the edges of blocks.
        file.write_at(&ctx, 1_000_001, &data[..500_000]).unwrap();
        file.sync(&ctx).unwrap();
        files.push(file.id());
        file.close(&ctx).unwrap();
    }
    let mut wanted = data.clone();
    wanted[1_000_001..1_500_001].copy_from_slice(&data[..500_000]);
    // The bytes came from the client, once, but for what one protocol comes to at times.
    let staged = counted(&cluster, "data-2", "bytes.staged");
    assert!(staged >= 2 * (data.len() as u64 + 500_000), "{staged}");
    for gone in ["data-1", "data-2"] {
        cluster.kill(gone);
        let reader = client(&cluster, false);
        for (file, (name, _)) in files.iter().zip(ALL) {
            assert!(read(&reader, *file, data.len()).unwrap() == wanted, "{name} without {gone}");
        }
        bring_back(&cluster);
    }
}

/// On a machine that is too slow a copy gets the bytes from another one, so it is tried again.
#[test]
fn a_client_sends_the_bytes_of_all_three_copies_itself() {
    const LEN: u64 = 1_000_000;
    const WRITES: u64 = 5;
    let place = Place::new();
    let cluster = place.up("three", &["--targets", "3"]);
    let (ctx, writer) = (Context::root(), client(&cluster, false));
    let file = copies(&writer, "three", Duplication::ClientSync, 3);
    let id = file.id();
    let sent = || counter(&writer, "write_wire_bytes");
    let staged = || [2, 3].map(|n| counted(&cluster, &format!("data-{n}"), "bytes.staged"));
    let (mut data, mut exact) = (Vec::new(), 0);
    eventually(
        "of most writes three times the bytes leave the client, one for each server",
        || {
            let (before, had) = (sent(), staged());
            let more = noise(LEN as usize, data.len() as u64);
            file.write_at(&ctx, data.len() as u64, &more).unwrap();
            data.extend(more);
            let each = staged().into_iter().zip(had).all(|(now, before)| now - before == LEN);
            exact += u64::from(each && sent() - before == 3 * LEN);
            let writes = data.len() as u64 / LEN;
            writes >= WRITES && 2 * exact > writes
        },
    );
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
    // Each of them has all of it: the others may die.
    for gone in [["data-1", "data-2"], ["data-1", "data-3"], ["data-2", "data-3"]] {
        gone.iter().for_each(|daemon| cluster.kill(daemon));
        let reader = client(&cluster, false);
        assert!(read(&reader, id, data.len()).unwrap() == data, "without {gone:?}");
        bring_back(&cluster);
    }
}

#[test]
fn what_was_put_off_gets_to_the_other_server_without_a_sync() {
    let place = Place::new();
    let cluster = place.up("put-off", &["--targets", "2"]);
    let ctx = Context::root();
    let writer = client(&cluster, false);
    let data = noise(200_000, 8);
    for (name, duplication) in ALL {
        let file = two_copies(&writer, name, duplication);
        file.write_at(&ctx, 0, &data).unwrap();
        file.write_at(&ctx, 5, b"again").unwrap();
        file.close(&ctx).unwrap();
    }
    let mut wanted = data;
    wanted[5..10].copy_from_slice(b"again");
    let reader = client(&cluster, false);
    // As soon as the thread for gaps has looked.
    std::thread::sleep(Duration::from_secs(2));
    cluster.kill("data-1");
    for (name, _) in ALL {
        let found = reader.lookup(&ctx, FileId::ROOT, name.as_bytes()).unwrap();
        assert!(read(&reader, found.file, wanted.len()).unwrap() == wanted, "{name}");
    }
}

/// Several clients write the same blocks while the protocol of the file changes, and servers
/// die and come back: at the end both copies are the same.
#[test]
fn writers_of_one_block_do_not_make_the_copies_differ_whatever_the_protocol() {
    const BYTES: usize = 10_000;
    let place = Place::new();
    let cluster = place.up("mixed", &["--targets", "2"]);
    let ctx = Context::root();
    let first = client(&cluster, false);
    let file = two_copies(&first, "one", Duplication::ServerSync);
    file.write_at(&ctx, 0, &[0; BYTES]).unwrap();
    let clients: Vec<Client> = (0..3).map(|_| client(&cluster, false)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            let (stop, ctx, id) = (&stop, &ctx, file.id());
            scope.spawn(move || {
                let (handle, _) = client.open(ctx, id, Rights::READ_WRITE).unwrap();
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (at, byte) = ((n * 700 + round * 13) % 4000, (n * 80 + round % 80) as u8);
                    handle.write_at(ctx, at as u64, &vec![byte; BYTES - at]).unwrap();
                    round += 1;
                }
                handle.sync(ctx).unwrap();
                handle.close(ctx).unwrap();
            });
        }
        for (n, (name, _)) in ALL.iter().rev().enumerate() {
            let path = ["setlayout", "weir:/one", "--copies", "2", "--duplication", name];
            cluster.weir(&path).ok();
            std::thread::sleep(Duration::from_millis(500));
            cluster.kill(["data-2", "data-1"][n % 2]);
            std::thread::sleep(Duration::from_millis(500));
            bring_back(&cluster);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let copies = ["data-1", "data-2"].map(|gone| {
        cluster.kill(gone);
        let bytes = read(&client(&cluster, false), file.id(), BYTES).unwrap();
        bring_back(&cluster);
        bytes
    });
    assert!(copies[0] == copies[1], "the copies differ");
}

#[test]
fn hybrid_goes_by_the_servers_and_those_who_write() {
    let place = Place::new();
    let cluster = place.up("hybrid", &["--targets", "2"]);
    let ctx = Context::root();
    let (one, two) = (client(&cluster, false), client(&cluster, false));
    let duplication = Some(Duplication::Hybrid);
    let spec = LayoutSpec { count: 2, copies: 2, duplication, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(spec), ..CreateOptions::default() };
    let (file, _) = one.create(&ctx, FileId::ROOT, b"file", &options).unwrap();
    assert_eq!(file.layout().acting, Duplication::ServerSync, "two servers, one writer");
    let (reading, _) = two.open(&ctx, file.id(), Rights::READ).unwrap();
    assert_eq!(reading.layout().acting, Duplication::ServerSync);
    let (writing, _) = two.open(&ctx, file.id(), Rights::WRITE).unwrap();
    assert_eq!(writing.layout().acting, Duplication::ClientAsync, "and two of them");
    for handle in [reading, writing] {
        handle.close(&ctx).unwrap();
    }
    eventually("the other one has closed it", || {
        let (again, _) = one.open(&ctx, file.id(), Rights::WRITE).unwrap();
        let acting = again.layout().acting;
        again.close(&ctx).unwrap();
        acting == Duplication::ServerSync
    });
}
