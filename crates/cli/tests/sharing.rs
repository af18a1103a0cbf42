//! Several clients of one file system see it as the programs of one machine
//! would (`docs/leases.md`).

use crate::harness::{self, Cluster, Place, SOON, again, eventually, noise};
use crate::library::{self, client, counter};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_client::{
    Client, ClientConfig, Consistency, Context, CreateOptions, File, UpperCache, set_nothing,
};
use weir_types::{ErrorKind, FileId, LayoutSpec};
use weir_wire::Rights;
use weir_wire::lease::LeaseMode;
use weir_wire::meta::SetAttrRequest;

const LEASE_MS: u64 = 2_000;

fn create(client: &Client, name: &[u8]) -> File {
    let layout = LayoutSpec { stripe_unit_bytes: 8192, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    client.create(&Context::root(), FileId::ROOT, name, &options).unwrap().0
}

fn open(client: &Client, name: &[u8]) -> File {
    let ctx = Context::root();
    let file = client.lookup(&ctx, FileId::ROOT, name).unwrap().file;
    client.open(&ctx, file, Rights::READ_WRITE).unwrap().0
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0xEE; len];
    let n = file.read_at(&Context::root(), offset, &mut buffer).unwrap();
    buffer.truncate(n);
    buffer
}

/// A cluster whose clients lapse sooner.
fn quick<'a>(place: &'a Place, name: &str) -> Cluster<'a> {
    set(place, name, &[("lease_ms", LEASE_MS), ("grace_ms", LEASE_MS)])
}

/// A cluster whose metadata server has these settings.
fn set<'a>(place: &'a Place, name: &str, values: &[(&str, u64)]) -> Cluster<'a> {
    let cluster = place.up(name, &[]);
    cluster.set_meta(values);
    cluster
}

fn up_again(cluster: &Cluster<'_>) {
    cluster.place.weir(&["up", "--name", &cluster.name]).ok();
}

/// Whose truncation comes to an object after a newer one's is refused there, for ever.
#[test]
fn truncations_of_one_file_by_many_clients_at_once_do_not_wait_for_a_timeout() {
    let place = Place::new();
    let cluster = place.up("cutting", &["--targets", "4"]);
    let clients: Vec<Client> = (0..4).map(|_| client(&cluster, true)).collect();
    let file = create(&clients[0], b"f");
    file.write_at(&Context::root(), 0, &noise(400_000, 3)).unwrap();
    let longest = std::thread::scope(|scope| {
        let cuts = |(i, client)| {
            let file = open(client, b"f");
            move || {
                let mut longest = Duration::ZERO;
                for round in 0..60_u64 {
                    let before = Instant::now();
                    file.truncate(&Context::root(), 1 + (round * 7919 + i * 101_u64) % 400_000)
                        .unwrap();
                    longest = longest.max(before.elapsed());
                }
                longest
            }
        };
        let threads: Vec<_> = (0..).zip(&clients).map(cuts).map(|cut| scope.spawn(cut)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max()
    });
    let timeout = Duration::from_millis(clients[0].config().request_timeout_ms);
    assert!(longest.unwrap() < timeout / 2, "a truncation took {longest:?}");
}

#[test]
fn a_reader_sees_each_write_that_has_returned_with_size_and_time() {
    let place = Place::new();
    let cluster = place.up("sharing", &[]);
    let (a, b) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let writer = create(&a, b"f");
    assert_eq!(writer.lease_on_whole(), Some(LeaseMode::Write));
    let reader = open(&b, b"f");
    let data = noise(60 * 838, 1);
    let mut last = reader_time(&b, reader.id());
    for (at, record) in (0..).step_by(838).zip(data.chunks(838)) {
        writer.write_at(&ctx, at, record).unwrap();
        let attr = b.getattr(&ctx, reader.id()).unwrap();
        assert_eq!(attr.size, at + 838, "the size without a read");
        assert!(attr.mtime >= last, "times do not go back");
        last = attr.mtime;
        assert!(read(&reader, at, 4096) == record, "at {at}");
        assert_eq!(reader.size(), at + 838);
    }
    // The other way round, over what both have read.
    reader.write_at(&ctx, 100, b"changed").unwrap();
    assert_eq!(read(&writer, 100, 7), b"changed");
    reader.truncate(&ctx, 10).unwrap();
    assert!(read(&writer, 0, 100) == data[..10]);
    writer.write_at(&ctx, 20, b"z").unwrap();
    assert!(read(&reader, 0, 100) == [&data[..10], &[0; 10], b"z"].concat());
    assert!(counter(&a, "recalls") > 0 && counter(&b, "events") > 0);
}

fn reader_time(client: &Client, file: FileId) -> weir_types::Timestamp {
    client.getattr(&Context::root(), file).unwrap().mtime
}

/// A reader that has a lease on what it reads, and none from the end of the file on, asks for
/// the size, and those who write elsewhere have to report. If somebody wants its lease back
/// meanwhile, that has to wait for the read; the reports must not wait for that.
#[test]
fn readers_at_the_end_of_a_file_and_somebody_who_appends_do_not_wait_for_each_other() {
    let place = Place::new();
    let cluster = place.up("ends", &[]);
    let clients = [client(&cluster, true), client(&cluster, true), client(&cluster, true)];
    let ctx = Context::root();
    let files: Vec<File> = (0..3)
        .map(|n| if n == 0 { create(&clients[0], b"f") } else { open(&clients[n], b"f") })
        .collect();
    let stopped = std::sync::atomic::AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(3);
    let (mut appended, mut slowest) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        for (n, file) in files[..2].iter().enumerate() {
            let (stopped, ctx) = (&stopped, &ctx);
            scope.spawn(move || {
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    // It keeps a lease to write on a block of its own.
                    file.write_at(ctx, n as u64 * 4096, b"mine").unwrap();
                    let seen = file.size().max(8192);
                    read(file, seen - 1, 4096);
                }
            });
        }
        while Instant::now() < end {
            let begun = Instant::now();
            files[2].append(&ctx, &[7; 100]).unwrap();
            slowest = slowest.max(begun.elapsed());
            appended += 1;
        }
        stopped.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(slowest < SOON, "an append of {appended} took {slowest:?}");
    assert!(appended > 10, "{appended}");
}

#[test]
fn writers_of_different_parts_take_few_leases_and_append_together() {
    let place = Place::new();
    let cluster = place.up("parts", &[]);
    let clients = [client(&cluster, true), client(&cluster, true)];
    const PART: u64 = 16 << 20;
    drop(create(&clients[0], b"parts"));
    let all: Vec<Vec<u8>> = (0..2).map(|n| noise(PART as usize, n + 7)).collect();
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            let data = &all[n];
            scope.spawn(move || {
                let (file, ctx) = (open(client, b"parts"), Context::root());
                for (i, chunk) in data.chunks(65_536).enumerate() {
                    file.write_at(&ctx, n as u64 * PART + i as u64 * 65_536, chunk).unwrap();
                }
                file.sync(&ctx).unwrap();
            });
        }
    });
    for (n, data) in all.iter().enumerate() {
        let file = open(&clients[1 - n], b"parts");
        assert!(read(&file, n as u64 * PART, PART as usize) == *data);
    }
    let acquires = clients.each_ref().map(|client| counter(client, "acquires"));
    assert!(acquires.iter().all(|n| *n < 30), "512 writes took {acquires:?} leases");

    drop(create(&clients[0], b"log"));
    let record = |writer: u64, n: u64| noise(838, writer * 1000 + n);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let client = &clients[writer as usize % 2];
            scope.spawn(move || {
                let (file, ctx) = (open(client, b"log"), Context::root());
                for n in 0..40 {
                    let at = file.append(&ctx, &record(writer, n)).unwrap();
                    assert_eq!(at % 838, 0);
                }
                file.close(&ctx).unwrap();
            });
        }
    });
    let log = read(&open(&clients[0], b"log"), 0, 200 * 838);
    let mut found: Vec<&[u8]> = log.chunks(838).collect();
    let mut want: Vec<Vec<u8>> = (0..160).map(|i| record(i / 40, i % 40)).collect();
    found.sort_unstable();
    want.sort_unstable();
    assert!(found == want, "every record once and whole: {} of 160", found.len());
}

#[test]
fn what_is_kept_of_names_is_never_out_of_date_and_saves_messages() {
    let place = Place::new();
    let cluster = place.up("names", &[]);
    let keeping = || ClientConfig { keep_metadata: true, ..library::config(&cluster) };
    let [a, b] = [(), ()].map(|()| Client::connect(keeping()).unwrap());
    let (ctx, root) = (Context::root(), FileId::ROOT);
    let dir = a.mkdir(&ctx, root, b"d", 0o755).unwrap().file;
    create(&a, b"f").close(&ctx).unwrap();
    let file = b.lookup(&ctx, root, b"f").unwrap().file;
    assert_eq!(b.lookup(&ctx, dir, b"x").unwrap_err().kind, ErrorKind::NotFound);
    let capability = b"security.capability";
    assert!(b.get_xattr(&ctx, file, capability).is_err());
    eventually("the file is closed, and nobody writes to it", || {
        b.lookup(&ctx, root, b"f").unwrap();
        let hits = counter(&b, "kept_hits");
        b.getattr(&ctx, file).unwrap();
        counter(&b, "kept_hits") > hits
    });
    let asked = counter(&b, "meta_requests");
    for _ in 0..50 {
        assert_eq!(b.lookup(&ctx, root, b"f").unwrap().mode, 0o644);
        assert!(b.lookup(&ctx, dir, b"x").is_err());
        assert!(b.get_xattr(&ctx, file, capability).is_err());
        b.getattr(&ctx, file).unwrap();
    }
    assert!(counter(&b, "meta_requests") <= asked + 4, "they are kept");
    assert!(counter(&b, "kept_hits") >= 196);
    for round in 0..20u16 {
        let mode = 0o600 + round % 8;
        a.setattr(&ctx, &SetAttrRequest { mode: Some(mode), ..set_nothing(file) }).unwrap();
        assert_eq!(b.getattr(&ctx, file).unwrap().mode, mode);
        a.mkdir(&ctx, dir, b"x", 0o755).unwrap();
        let links = b.getattr(&ctx, dir).unwrap().nlink;
        assert!(b.lookup(&ctx, dir, b"x").is_ok(), "what was not there is");
        a.rmdir(&ctx, dir, b"x").unwrap();
        assert!(b.lookup(&ctx, dir, b"x").is_err(), "what was there is not");
        assert_eq!(b.getattr(&ctx, dir).unwrap().nlink + 1, links);
    }
    // And one's own changes.
    b.mkdir(&ctx, dir, b"own", 0o700).unwrap();
    assert_eq!(b.lookup(&ctx, dir, b"own").unwrap().mode, 0o700);
    b.rmdir(&ctx, dir, b"own").unwrap();
    assert!(b.lookup(&ctx, dir, b"own").is_err());
}

#[test]
fn without_leases_a_file_is_seen_when_it_was_closed_or_at_every_call() {
    let place = Place::new();
    let cluster = place.up("modes", &[]);
    let connect = |consistency| {
        Client::connect(ClientConfig { consistency, ..library::config(&cluster) }).unwrap()
    };
    let ctx = Context::root();
    let (relaxed, other) = (connect(Consistency::Relaxed), connect(Consistency::Relaxed));
    let file = create(&relaxed, b"r");
    file.write_at(&ctx, 0, b"first").unwrap();
    file.close(&ctx).unwrap();
    let reader = open(&other, b"r");
    assert_eq!(read(&reader, 0, 10), b"first");
    assert_eq!(reader.lease_on_whole(), None);
    let (none, other) = (connect(Consistency::None), connect(Consistency::None));
    let (writer, reader) = (create(&none, b"n"), open(&other, b"n"));
    for round in 1..20u8 {
        writer.write_at(&ctx, 0, &vec![round; 100 * usize::from(round)]).unwrap();
        assert_eq!(read(&reader, 0, 5000), vec![round; 100 * usize::from(round)]);
    }
    writer.truncate(&ctx, 3).unwrap();
    assert_eq!(read(&reader, 0, 10), [19; 3]);
    for client in [&relaxed, &none, &other] {
        assert_eq!((counter(client, "polls"), counter(client, "acquires")), (0, 0));
    }
}

#[test]
fn leases_outlive_a_restart_of_the_metadata_server() {
    let place = Place::new();
    let cluster = place.up("restart", &[]);
    let (a, b) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let writer = create(&a, b"f");
    writer.write_at(&ctx, 0, b"before").unwrap();
    // There is a connection to the data server now.
    writer.flush(&ctx).unwrap();
    cluster.kill("meta");
    writer.write_at(&ctx, 6, b" meanwhile").unwrap();
    assert_eq!(read(&writer, 0, 16), b"before meanwhile");
    up_again(&cluster);
    writer.write_at(&ctx, 16, b" after").unwrap();
    let reader = open(&b, b"f");
    assert_eq!(read(&reader, 0, 100), b"before meanwhile after");
    assert_eq!(counter(&a, "acquires"), 0, "the lease was never asked for");
    assert_eq!(counter(&a, "leases_lost"), 0);
    writer.sync(&ctx).unwrap();
}

#[test]
fn after_a_restart_who_has_not_come_back_is_waited_for_as_grace_ms_says() {
    let place = Place::new();
    let cluster = set(&place, "grace", &[("lease_ms", 1000), ("grace_ms", 14_000)]);
    // It soon gives up to say that it goes.
    let soon = ClientConfig { request_timeout_ms: 2000, ..library::config(&cluster) };
    let a = Client::connect(soon).unwrap();
    let ctx = Context::root();
    let writer = create(&a, b"f");
    writer.write_at(&ctx, 0, b"before").unwrap();
    writer.flush(&ctx).unwrap();
    cluster.kill("meta");
    drop((writer, a));
    let begin = Instant::now();
    up_again(&cluster);
    let b = client(&cluster, true);
    open(&b, b"f").write_at(&ctx, 0, b"after").unwrap();
    let took = begin.elapsed();
    // 10 s, if nothing is said.
    assert!(took >= Duration::from_secs(14), "{took:?}");
}

/// Remembers what it was told.
#[derive(Default)]
struct Pages(std::sync::Mutex<Vec<(FileId, u64, u64)>>);

impl UpperCache for Pages {
    fn drop_pages(&self, file: FileId, start: u64, end: u64) {
        self.0.lock().unwrap().push((file, start, end));
    }
    fn drop_everything(&self) {}
}

#[test]
fn the_layer_above_drops_what_another_client_writes() {
    let place = Place::new();
    let cluster = place.up("pages", &[]);
    let pages = Arc::new(Pages::default());
    let a = Client::connect_with(library::config(&cluster), pages.clone()).unwrap();
    let b = client(&cluster, true);
    let ctx = Context::root();
    let cached = create(&a, b"f");
    cached.write_at(&ctx, 0, &noise(100_000, 3)).unwrap();
    let other = open(&b, b"f");
    read(&other, 0, 4096);
    assert!(pages.0.lock().unwrap().is_empty(), "who only reads takes nothing away");
    other.write_at(&ctx, 5000, b"x").unwrap();
    let dropped = pages.0.lock().unwrap().clone();
    let covers = |(file, start, end): &(FileId, u64, u64)| {
        *file == cached.id() && *start <= 4096 && *end >= 8192
    };
    assert!(dropped.iter().any(covers), "{dropped:?}");
    assert_eq!(read(&cached, 5000, 1), b"x");
}

/// If this is set, the process writes there only, until it is killed.
const FAR_ONLY: &str = "WEIR_TEST_FAR_ONLY";
const FAR: u64 = 8 << 20;

/// A client in a process of its own: writes to a file, says so, and syncs when
/// it is told to.
#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os("WEIR_TEST_SHARING") else { return };
    let dir = std::path::PathBuf::from(dir);
    let client = Client::connect(library::config_in(&dir)).unwrap();
    let (file, ctx) = (create(&client, b"f"), Context::root());
    if std::env::var_os(FAR_ONLY).is_some() {
        file.write_at(&ctx, FAR, b"far").unwrap();
        std::fs::write(dir.join("written"), "").unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    file.write_at(&ctx, 0, &[b'a'; 100_000]).unwrap();
    file.sync(&ctx).unwrap();
    // Every data server has this, and the metadata server has not heard of it.
    file.write_at(&ctx, 100_000, &[b'b'; 600_000]).unwrap();
    std::fs::write(dir.join("written"), "").unwrap();
    eventually("go on", || dir.join("go").exists());
    file.write_at(&ctx, 0, b"too late").unwrap_err();
    // It goes on with the file as it is; who only looks at what syncs say is told as well, once.
    file.write_at(&ctx, 9, b"!").unwrap();
    file.sync(&ctx).unwrap_err();
    file.sync(&ctx).unwrap();
    std::fs::write(dir.join("told"), "").unwrap();
}

struct Process(Child);

impl Process {
    fn start(cluster: &Cluster<'_>) -> Self {
        Self::start_with(cluster, &[])
    }

    fn start_with(cluster: &Cluster<'_>, more: &[(&str, &str)]) -> Self {
        let mut command = again("sharing::writer_process");
        command.env("WEIR_TEST_SHARING", cluster.dir());
        command.envs(more.iter().copied());
        let process = Self(command.stdout(Stdio::null()).spawn().unwrap());
        eventually("it has written", || cluster.dir().join("written").exists());
        process
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_that_was_stopped_changes_nothing_any_more_and_is_told() {
    let place = Place::new();
    let cluster = quick(&place, "stopped");
    let mut process = Process::start(&cluster);
    process.signal("-STOP");
    let begin = Instant::now();
    let (other, ctx) = (client(&cluster, true), Context::root());
    let file = open(&other, b"f");
    file.write_at(&ctx, 0, b"the others").unwrap();
    file.sync(&ctx).unwrap();
    let waited = begin.elapsed();
    assert!(waited < SOON, "{waited:?}");
    process.signal("-CONT");
    std::fs::write(cluster.dir().join("go"), "").unwrap();
    assert!(process.0.wait().unwrap().success(), "it was told that its writes were lost");
    assert!(cluster.dir().join("told").exists());
    assert_eq!(read(&file, 0, 12), b"the other!aa");
}

/// A writer that died is fenced off when another client asks for attributes; no client has to open
/// the file.
#[test]
fn the_size_of_a_dead_writers_file_is_shown_to_whoever_asks_without_an_open() {
    let place = Place::new();
    let cluster = quick(&place, "dead");
    drop(Process::start(&cluster));
    let mut seen = Vec::new();
    if harness::root() {
        let mount = cluster.mount("m", "");
        seen.push(std::fs::metadata(mount.join("f")).unwrap().len());
        let listed = std::fs::read_dir(&mount).unwrap();
        seen.extend(listed.map(|entry| entry.unwrap().metadata().unwrap().len()));
    }
    let (other, ctx) = (client(&cluster, true), Context::root());
    let attr = other.lookup(&ctx, FileId::ROOT, b"f").unwrap();
    seen.push(attr.size);
    seen.push(other.getattr(&ctx, attr.file).unwrap().size);
    assert!(seen[0] > 500_000, "what was sent is there: {seen:?}");
    let file = open(&other, b"f");
    seen.push(read(&file, 0, 1 << 20).len() as u64);
    assert!(seen.iter().all(|size| *size == seen[0]), "{seen:?}");
}

/// To tell the size the server cuts the dead writer off, and takes the leases of all who write to
/// the file: also that of the reader, whose read must not be in the way of that.
#[test]
fn a_read_at_the_known_end_does_not_wait_for_itself_when_another_writer_is_dead() {
    let place = Place::new();
    let cluster = quick(&place, "ended");
    let (a, ctx) = (client(&cluster, true), Context::root());
    let file = create(&a, b"f");
    file.write_at(&ctx, 0, &[b'a'; 5000]).unwrap();
    file.sync(&ctx).unwrap();
    let process = Process::start_with(&cluster, &[(FAR_ONLY, "1")]);
    drop(process);
    assert_eq!(file.size(), 5000, "of the other it has heard only that it wants a lease");
    std::thread::sleep(Duration::from_millis(2 * LEASE_MS));
    let begin = Instant::now();
    let found = read(&file, 4000, 8192);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(found[..1000], [b'a'; 1000]);
    assert!(found[1000..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_a_killed_client_had_written_is_seen_by_others_with_its_size() {
    let place = Place::new();
    let cluster = quick(&place, "killed");
    let process = Process::start(&cluster);
    drop(process);
    let (other, ctx) = (client(&cluster, true), Context::root());
    let begin = Instant::now();
    let file = open(&other, b"f");
    let found = read(&file, 0, 1 << 20);
    assert!(begin.elapsed() < SOON);
    assert!(found.len() >= 100_000 && found[..100_000] == [b'a'; 100_000], "what was synced");
    assert!(found[100_000..].iter().all(|byte| [0, b'b'].contains(byte)));
    assert!(found.len() > 500_000, "what was sent is there: {}", found.len());
    assert_eq!(other.getattr(&ctx, file.id()).unwrap().size, found.len() as u64);
}

/// The server asks it for what it has used longest ago.
#[test]
fn a_client_uses_more_files_than_it_may_hold_leases_on() {
    const LEASES: u64 = 1024;
    let place = Place::new();
    let cluster = set(&place, "more", &[("leases_per_client", LEASES)]);
    let (a, b, ctx) = (client(&cluster, true), client(&cluster, true), Context::root());
    let files: Vec<File> =
        (0..LEASES + 200).map(|n| create(&a, format!("{n}").as_bytes())).collect();
    for round in 0..2 {
        for (n, file) in files.iter().enumerate() {
            let begin = Instant::now();
            file.write_at(&ctx, 0, format!("{round} in {n}").as_bytes()).unwrap();
            assert!(begin.elapsed() < SOON, "{n}: {:?}", begin.elapsed());
        }
    }
    let recalls = counter(&a, "recalls");
    assert!((1..4000).contains(&recalls), "{recalls}");
    // Calls that hold one file and wait for room for another do not wait for themselves.
    let half = files.len() / 2;
    std::thread::scope(|scope| {
        for thread in 0..40 {
            let files = &files;
            scope.spawn(move || {
                for n in (thread..half).step_by(40) {
                    let (from, to) = (&files[n], &files[half + n]);
                    assert!(from.copy_range(&Context::root(), 0, to, 0, 4).unwrap() == 4, "{n}");
                }
            });
        }
    });
    for (n, file) in files.iter().enumerate().step_by(100) {
        let expected = format!("1 in {}", if n < half { n } else { n - half });
        assert!(read(file, 0, 4) == expected.as_bytes()[..4], "{n}");
        let name = format!("{n}");
        let seen = read(&open(&b, name.as_bytes()), 0, 4);
        assert!(seen == expected.as_bytes()[..4], "{n}: by another");
    }
}

/// Gives up what it keeps slowly.
struct Slow(Duration);

impl UpperCache for Slow {
    fn drop_pages(&self, _file: FileId, _start: u64, _end: u64) {
        std::thread::sleep(self.0);
    }
    fn drop_everything(&self) {}
}

#[test]
fn who_waits_for_another_client_is_not_told_that_the_metadata_server_is_away() {
    let place = Place::new();
    let cluster = place.up("waits", &[]);
    let slow = Arc::new(Slow(Duration::from_secs(8)));
    let a = Client::connect_with(library::config(&cluster), slow).unwrap();
    let (b, ctx) = (client(&cluster, true), Context::root());
    create(&b, b"f").close(&ctx).unwrap();
    let (holds, wants) = (open(&a, b"f"), open(&b, b"f"));
    holds.write_at(&ctx, 0, b"x").unwrap();
    let watch = b.watch();
    watch.look();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| {
            let begin = Instant::now();
            wants.write_at(&Context::root(), 0, b"y").map(|()| begin.elapsed())
        });
        while !write.is_finished() {
            assert_eq!(watch.look(), []);
            std::thread::sleep(Duration::from_millis(100));
        }
        let took = write.join().unwrap().unwrap();
        assert!(took > Duration::from_secs(6), "it waited: {took:?}");
    });
}
