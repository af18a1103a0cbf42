//! What the design promises of messages, shown by counters of real servers
//! (PVFS).

use crate::harness::{self, Cluster, Place, eventually, noise};
use crate::library::{self, client, counter};
use weir_client::{Client, ClientConfig, Consistency, Context, CreateOptions, File};
use weir_conformance::Random;
use weir_layout::{Region, RegionList};
use weir_types::{FileId, FileKind, LayoutSpec, TargetId};
use weir_wire::meta::RenameRequest;

const UNIT: u64 = 8192;

/// A file of 8 KiB units over four targets, as in the paper.
fn striped(client: &Client, name: &[u8], bytes: usize) -> File {
    let layout =
        LayoutSpec { stripe_unit_bytes: UNIT as u32, base: Some(0), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let ctx = Context::root();
    let (file, _) = client.create(&ctx, FileId::ROOT, name, &options).unwrap();
    file.write_at(&ctx, 0, &noise(bytes, 5)).unwrap();
    file.flush(&ctx).unwrap();
    file
}

fn server_counter(client: &Client, target: u32, name: &str) -> u64 {
    let status = client.data_status(TargetId(target), 5000).unwrap();
    status.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v)
}

/// Requests of one kind that the data servers have received.
fn received(client: &Client, name: &str) -> Vec<u64> {
    (1..=4).map(|target| server_counter(client, target, name)).collect()
}

fn meta_requests(client: &Client) -> u64 {
    counter(client, "meta_requests")
}

fn four(place: &Place) -> Cluster<'_> {
    place.up("promises", &["--targets", "4"])
}

#[test]
fn one_request_and_one_reply_per_server_and_none_to_the_metadata_server() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, false);
    let (ctx, size) = (Context::root(), 4 << 20);
    let file = striped(&client, b"f", size);
    let data = noise(size, 5);
    // (offset, length, servers that hold any of it)
    let fixed = [(0, 838, 1), (8000, 838, 2), (0, 3 * 8192, 3), (100, 30_000, 4), (0, 1 << 20, 4)];
    let mut random = Random::new(20);
    let any = (0..50).map(|_| {
        let (offset, len) = (random.below(size as u64 - 40_000), 1 + random.below(40_000));
        let stripes = (offset + len - 1) / 8192 - offset / 8192 + 1;
        (offset as usize, len as usize, stripes.min(4))
    });
    for (offset, len, servers) in fixed.into_iter().chain(any) {
        let (reads, meta) = (received(&client, "op.read"), meta_requests(&client));
        let (asked, answered) =
            (counter(&client, "data_requests"), counter(&client, "data_replies"));
        let mut buffer = vec![0; len];
        file.read_at(&ctx, offset as u64, &mut buffer).unwrap();
        assert!(buffer == data[offset..offset + len]);
        assert_eq!(meta_requests(&client), meta, "the metadata server is not on the data path");
        assert_eq!(counter(&client, "data_requests") - asked, servers, "at {offset}, {len}");
        assert_eq!(counter(&client, "data_replies") - answered, servers);
        let now = received(&client, "op.read");
        let each: Vec<u64> = now.iter().zip(&reads).map(|(n, r)| n - r).collect();
        assert!(each.iter().all(|n| *n <= 1), "one request per server: {each:?}");
        assert_eq!(each.iter().sum::<u64>(), servers);
    }
    let (writes, meta) = (received(&client, "op.write"), meta_requests(&client));
    file.write_at(&ctx, 0, &data[..1 << 20]).unwrap();
    let now = received(&client, "op.write");
    assert!(now.iter().zip(&writes).all(|(n, w)| n - w == 1), "{writes:?} then {now:?}");
    assert_eq!(meta_requests(&client), meta);
    let status = client.metadata_status().unwrap();
    let data_ops = status.counters.iter().filter(|(n, _)| n == "op.read" || n == "op.write");
    assert_eq!(data_ops.map(|(_, v)| v).sum::<u64>(), 0);
}

#[test]
fn without_cache_the_bytes_on_the_wire_are_the_bytes_asked_for() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let file = striped(&client, b"f", 1 << 20);
    let before = counter(&client, "read_wire_bytes");
    let mut asked = 0;
    for i in 0..200u64 {
        let mut record = [0; 838];
        asked += file.read_at(&ctx, i * 838, &mut record).unwrap() as u64;
    }
    assert_eq!(counter(&client, "read_wire_bytes") - before, asked);
    assert_eq!(asked, 200 * 838);
}

#[test]
fn what_is_fetched_ahead_of_many_files_takes_bounded_memory_and_is_given_back() {
    const LIMIT: u64 = 256 << 20;
    const PIECE: usize = 4 << 20;
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, true);
    let ctx = Context::root();
    let mut buffer = vec![1; PIECE];
    let (mut files, mut most) = (Vec::new(), 0);
    // Each holds the rest of a piece of 4 MiB; more of them than the memory has room for.
    for number in 0..2 * LIMIT / PIECE as u64 {
        let name = format!("f{number}");
        let options = CreateOptions::default();
        let (file, _) = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
        file.truncate(&ctx, 4 * PIECE as u64).unwrap();
        for (offset, len) in [(0, PIECE), (PIECE as u64, 838)] {
            assert_eq!(file.read_at(&ctx, offset, &mut buffer[..len]).unwrap(), len);
            assert!(buffer[..len].iter().all(|byte| *byte == 0));
        }
        files.push(file);
        let held = counter(&client, "buffer_bytes");
        assert!(held <= LIMIT, "{held} bytes by {number} files");
        most = most.max(held);
    }
    assert!(most >= PIECE as u64, "nothing was held");
    files.into_iter().for_each(|file| file.close(&ctx).unwrap());
    eventually("it is given back", || counter(&client, "buffer_bytes") == 0);
}

#[test]
fn a_strided_list_is_one_request_per_server_whose_share_the_server_works_out() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let file = striped(&client, b"f", 2 << 20);
    let data = noise(2 << 20, 5);
    // 100 records of 838 bytes, one every 16,000 bytes.
    let records = Region { offset: 321, size: 838, stride: 16_000, count: 100 };
    let list = RegionList::new(vec![records]).unwrap();
    let want: Vec<u8> = (0..100).flat_map(|i| data[321 + i * 16_000..][..838].to_vec()).collect();
    let before = received(&client, "op.read");
    let mut buffer = vec![0; want.len()];
    file.read_regions(&ctx, &list, &mut buffer).unwrap();
    assert!(buffer == want);
    let now = received(&client, "op.read");
    assert_eq!(now.iter().zip(&before).map(|(n, b)| n - b).collect::<Vec<_>>(), [1, 1, 1, 1]);

    let marks = noise(want.len(), 9);
    file.write_regions(&ctx, &list, &marks).unwrap();
    let mut all = vec![0; 2 << 20];
    file.read_at(&ctx, 0, &mut all).unwrap();
    for (i, mark) in marks.chunks(838).enumerate() {
        assert!(all[321 + i * 16_000..][..838] == *mark, "record {i}");
    }
    assert!(all[321 + 838..321 + 16_000] == data[321 + 838..321 + 16_000], "between records");
}

#[test]
fn punching_reserving_and_seeking_take_one_request_per_server() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, false);
    let (ctx, size) = (Context::root(), 4 << 20);
    let file = striped(&client, b"f", size);
    let since = |before: &[u64], name: &str| {
        let now = received(&client, name);
        now.iter().zip(before).map(|(n, b)| n - b).collect::<Vec<_>>()
    };
    let zero = vec![0; 4];
    // A range of three units, and the whole file.
    file.punch(&ctx, UNIT, 3 * UNIT).unwrap();
    assert_eq!(since(&zero, "op.punch"), [0, 1, 1, 1]);
    file.punch(&ctx, 1 << 20, 2 << 20).unwrap();
    assert_eq!(since(&zero, "op.punch"), [1, 2, 2, 2]);
    file.allocate(&ctx, 0, size as u64, true).unwrap();
    assert_eq!(since(&zero, "op.allocate"), [1, 1, 1, 1]);
    let meta = meta_requests(&client);
    assert_eq!(file.next_data(&ctx, UNIT / 2).unwrap(), Some(UNIT / 2));
    assert_eq!(since(&zero, "op.seek"), [1, 1, 1, 1]);
    assert_eq!(meta_requests(&client), meta, "the metadata server does not know of holes");
}

#[test]
fn what_was_fetched_ahead_is_not_read_after_a_punch() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, true);
    let (ctx, size) = (Context::root(), 8 << 20);
    let file = striped(&client, b"f", size);
    let mut buffer = vec![0; 1 << 20];
    for i in 0..2 {
        assert_eq!(file.read_at(&ctx, i << 20, &mut buffer).unwrap(), 1 << 20);
    }
    assert!(counter(&client, "ahead_fetched") > 0);
    // Gathered, not sent.
    file.write_at(&ctx, 5 << 20, b"too late").unwrap();
    file.punch(&ctx, 2 << 20, 4 << 20).unwrap();
    for i in 2..6 {
        assert_eq!(file.read_at(&ctx, i << 20, &mut buffer).unwrap(), 1 << 20);
        assert!(buffer.iter().all(|&b| b == 0), "MiB {i}");
    }
    file.read_at(&ctx, 6 << 20, &mut buffer).unwrap();
    assert!(buffer == noise(size, 5)[6 << 20..7 << 20]);
}

#[test]
fn a_file_that_grew_by_reserving_is_seen_by_others_at_once() {
    let place = Place::new();
    let cluster = four(&place);
    let (a, b) = (client(&cluster, true), client(&cluster, true));
    let ctx = Context::root();
    let file = striped(&a, b"f", 1000);
    file.allocate(&ctx, 0, 1 << 20, false).unwrap();
    let attr = b.resolve(&ctx, b"f", true).unwrap();
    assert_eq!(attr.size, 1 << 20);
    file.allocate(&ctx, 0, 2 << 20, true).unwrap();
    file.punch(&ctx, 0, 1 << 30).unwrap();
    file.flush(&ctx).unwrap();
    let after = b.getattr(&ctx, attr.file).unwrap();
    assert_eq!(after.size, 1 << 20);
    assert!(after.mtime > attr.mtime, "a punch is a change of the contents");
}

#[test]
fn read_ahead_serves_a_sequential_reader_and_fetches_no_byte_twice() {
    let place = Place::new();
    let cluster = four(&place);
    let (ctx, size) = (Context::root(), 16 << 20);
    let writer = client(&cluster, true);
    striped(&writer, b"f", size).close(&ctx).unwrap();
    let reader = client(&cluster, true);
    let attr = reader.resolve(&ctx, b"f", true).unwrap();
    let (file, _) = reader.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    let data = noise(size, 5);
    for (i, want) in data.chunks(1 << 20).enumerate() {
        let mut buffer = vec![0; want.len()];
        file.read_at(&ctx, (i << 20) as u64, &mut buffer).unwrap();
        assert!(buffer == want, "MiB {i}");
    }
    assert_eq!(counter(&reader, "read_wire_bytes"), size as u64);
    assert!(counter(&reader, "ahead_used") >= 14);
}

#[test]
fn read_ahead_serves_a_backward_reader_that_says_so_and_fetches_no_byte_twice() {
    let place = Place::new();
    let cluster = four(&place);
    let (ctx, size) = (Context::root(), (16 << 20) + 77);
    let writer = client(&cluster, true);
    striped(&writer, b"f", size).close(&ctx).unwrap();
    let reader = client(&cluster, true);
    let attr = reader.resolve(&ctx, b"f", true).unwrap();
    let (file, _) = reader.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    file.hint(&ctx, weir_client::Hint::Reverse).unwrap();
    let (data, call) = (noise(size, 5), 100_000);
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(call);
        let mut buffer = vec![0; end - start];
        assert_eq!(file.read_at(&ctx, start as u64, &mut buffer).unwrap(), buffer.len());
        assert!(buffer == data[start..end], "{start}");
        end = start;
    }
    assert_eq!(counter(&reader, "read_wire_bytes"), size as u64);
    assert!(counter(&reader, "ahead_used") >= 14);
}

#[test]
fn objects_are_named_by_the_id_that_the_metadata_server_gave() {
    let place = Place::new();
    let cluster = four(&place);
    let client = client(&cluster, false);
    let file = striped(&client, b"f", 4 * UNIT as usize);
    let name = format!("f{:x}.", file.id().0);
    for target in 1..=4 {
        let objects = cluster.dir().join(format!("targets/{target}/objects"));
        let found = walk(&objects).into_iter().filter(|f| f.starts_with(&name)).count();
        assert_eq!(found, 1, "target {target} has one object of the file");
    }
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            names.extend(walk(&entry.path()));
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

#[test]
fn a_sync_through_a_read_only_handle_makes_the_file_durable() {
    let place = Place::new();
    let cluster = four(&place);
    let ctx = Context::root();
    let writer = client(&cluster, true);
    striped(&writer, b"f", 300_000).close(&ctx).unwrap();
    let reader = client(&cluster, true);
    let attr = reader.resolve(&ctx, b"f", true).unwrap();
    let (file, _) = reader.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    let before = received(&reader, "op.sync");
    file.sync(&ctx).unwrap();
    let now = received(&reader, "op.sync");
    assert!(now.iter().zip(&before).all(|(n, b)| n - b == 1), "{before:?} then {now:?}");
}

#[test]
fn who_writes_to_a_file_that_another_client_emptied_is_told() {
    let place = Place::new();
    let cluster = four(&place);
    let ctx = Context::root();
    // With leases it could not happen.
    let consistency = Consistency::Relaxed;
    let relaxed = || Client::connect(ClientConfig { consistency, ..library::config(&cluster) });
    let (a, b) = (relaxed().unwrap(), relaxed().unwrap());
    let file = striped(&a, b"f", 300_000);
    let attr = b.resolve(&ctx, b"f", true).unwrap();
    let (other, _) = b.open(&ctx, attr.file, weir_wire::Rights::READ_WRITE).unwrap();
    other.truncate(&ctx, 0).unwrap();
    file.write_at(&ctx, 0, b"into what is gone").unwrap();
    let error = file.sync(&ctx).unwrap_err();
    assert_eq!(error.kind, weir_types::ErrorKind::Stale, "{error}");
    // And then goes on with the file as it is.
    file.write_at(&ctx, 0, b"into the new one").unwrap();
    file.sync(&ctx).unwrap();
    let mut read = [0; 100];
    let (again, _) = b.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    assert_eq!(again.read_at(&ctx, 0, &mut read).unwrap(), 16);
    assert_eq!(&read[..16], b"into the new one");
}

#[test]
fn a_session_that_expired_is_replaced_and_the_open_files_go_on() {
    let place = Place::new();
    let cluster = four(&place);
    let config = cluster.dir().join("meta.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut settings: toml::Table = text.parse().unwrap();
    settings.insert("session_timeout_ms".into(), toml::Value::Integer(1000));
    settings.insert("lease_ms".into(), toml::Value::Integer(1000));
    std::fs::write(&config, settings.to_string()).unwrap();
    cluster.kill("meta");
    place.weir(&["up", "--name", "promises"]).ok();
    let ctx = Context::root();
    // One that polls for events would not be idle.
    let consistency = Consistency::None;
    let idle = Client::connect(ClientConfig { consistency, ..library::config(&cluster) }).unwrap();
    let watcher = client(&cluster, false);
    let file = striped(&idle, b"f", 100_000);
    let first = idle.session();
    let alone = || {
        let status = watcher.metadata_status().unwrap();
        status.counters.iter().any(|(n, v)| n == "sessions" && *v == 1)
    };
    harness::eventually("every session but the watcher's expires", alone);
    let attr = idle.resolve(&ctx, b"f", true).unwrap();
    assert_ne!(idle.session(), first);
    let mut read = vec![0; 100_000];
    assert_eq!(file.read_at(&ctx, 0, &mut read).unwrap(), 100_000);
    assert!(read == noise(100_000, 5));
    let (again, _) = idle.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    assert_eq!(again.read_at(&ctx, 0, &mut read).unwrap(), 100_000);
}

#[test]
fn emptying_an_open_file_at_create_drops_what_was_written_before() {
    let place = Place::new();
    let cluster = four(&place);
    let ctx = Context::root();
    let client = client(&cluster, true);
    let file = striped(&client, b"f", 100_000);
    file.write_at(&ctx, 50, b"gathered, not sent").unwrap();
    let options = CreateOptions { truncate: true, ..CreateOptions::default() };
    let (again, attr) = client.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
    assert_eq!(attr.size, 0);
    again.write_at(&ctx, 0, b"new").unwrap();
    file.close(&ctx).unwrap();
    again.close(&ctx).unwrap();
    let (read, attr) = client.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    let mut bytes = [0; 100];
    assert_eq!((attr.size, read.read_at(&ctx, 0, &mut bytes).unwrap()), (3, 3));
    assert_eq!(&bytes[..3], b"new");
}

#[test]
fn writes_that_return_when_servers_have_confirmed_them_tell_the_metadata_server_of_none_within_the_file()
 {
    const WRITES: u64 = 400;
    let place = Place::new();
    let cluster = four(&place);
    let (writer, other, ctx) = (client(&cluster, true), client(&cluster, true), Context::root());
    let (file, _) = writer.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(1 << 20, 3)).unwrap();
    file.sync(&ctx).unwrap();
    let commits = || {
        let status = writer.metadata_status().unwrap();
        let of = |(name, count): &(String, u64)| (name == "op.commit_size").then_some(*count);
        status.counters.iter().find_map(of).unwrap_or(0)
    };
    let (before, old) = (commits(), other.getattr(&ctx, file.id()).unwrap());
    for i in 0..WRITES {
        file.write_at_confirmed(&ctx, i % 256 * 4096, &[i as u8; 4096]).unwrap();
    }
    // Times are told now and then.
    let told = commits() - before;
    assert!(told <= WRITES / 4, "{told} times for {WRITES} writes");
    // Whoever asks is told, and of one that makes the file longer at once.
    let new = other.getattr(&ctx, file.id()).unwrap();
    assert!(new.mtime > old.mtime && new.size == 1 << 20);
    let before = commits();
    file.write_at_confirmed(&ctx, 1 << 20, &[1; 4096]).unwrap();
    assert!(commits() > before);
    assert_eq!(other.getattr(&ctx, file.id()).unwrap().size, (1 << 20) + 4096);
    // The time of the last one is told when it is closed, if not before.
    let last = other.getattr(&ctx, file.id()).unwrap();
    file.write_at_confirmed(&ctx, 0, &[2; 4096]).unwrap();
    file.close(&ctx).unwrap();
    assert!(other.getattr(&ctx, last.file).unwrap().mtime > last.mtime);
}

#[test]
fn writes_of_several_threads_that_are_confirmed_together_fail_each_for_itself() {
    const THREADS: u64 = 16;
    let place = Place::new();
    let cluster = four(&place);
    let config = ClientConfig { request_timeout_ms: 3_000, ..library::config(&cluster) };
    let (writer, ctx) = (Client::connect(config).unwrap(), Context::root());
    let file = striped(&writer, b"f", 16 * (THREADS * UNIT) as usize);
    file.sync(&ctx).unwrap();
    // Each thread has units of its own, all on one server; and all write one block besides.
    let own = |thread: u64, round: u64| (round * THREADS + thread) * UNIT;
    let shared = 16 * THREADS * UNIT;
    let write = |value: u8, rounds: u64, with_shared: bool| {
        std::thread::scope(|scope| {
            let each = (0..THREADS).map(|thread| {
                let (file, ctx, own) = (&file, &ctx, &own);
                scope.spawn(move || -> Vec<bool> {
                    let data = [thread as u8 ^ value; UNIT as usize];
                    let write = |at| file.write_at_confirmed(ctx, at, &data).is_ok();
                    let own = (0..rounds).map(|round| own(thread, round));
                    own.chain(with_shared.then_some(shared)).map(write).collect()
                })
            });
            let each: Vec<_> = each.collect();
            each.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    };
    assert!(write(64, 16, true).iter().flatten().all(|done| *done));
    let mut found = vec![0; UNIT as usize];
    for (thread, round) in (0..THREADS).flat_map(|thread| (0..16).map(move |round| (thread, round)))
    {
        file.read_at(&ctx, own(thread, round), &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == thread as u8 ^ 64), "{thread} {round}");
    }
    assert_eq!(file.read_at(&ctx, shared, &mut found).unwrap(), UNIT as usize);
    assert!(found[0] ^ 64 < THREADS as u8 && found.iter().all(|byte| *byte == found[0]));

    cluster.kill("data-2");
    let done = write(32, 2, false);
    let all = |thread: usize, ok: bool| done[thread].iter().all(|done| *done == ok);
    let lost: Vec<usize> = (0..4).filter(|column| all(*column, false)).collect();
    assert_eq!(lost.len(), 1, "{done:?}");
    for thread in 0..THREADS as usize {
        assert!(all(thread, thread % 4 != lost[0]), "{thread}: {done:?}");
    }
}

/// What is confirmed has arrived, though older bytes before it, which were not confirmed, are lost.
#[test]
fn a_write_that_is_confirmed_is_not_mistaken_for_buffered_bytes_before_it() {
    let place = Place::new();
    let cluster = four(&place);
    let config = ClientConfig { request_timeout_ms: 1_000, ..library::config(&cluster) };
    let (writer, ctx) = (Client::connect(config).unwrap(), Context::root());
    let file = striped(&writer, b"f", 32 * UNIT as usize);
    file.sync(&ctx).unwrap();
    cluster.kill("data-2");
    let of_it = |unit: &u64| file.write_at_confirmed(&ctx, unit * UNIT, &[1; 100]).is_err();
    let gone: Vec<u64> = (0..4).filter(of_it).collect();
    assert_eq!(gone.len(), 1, "{gone:?}");
    for round in 1..=4 {
        let start = (gone[0] + 4 * round) * UNIT;
        // It may be told what came of the round before.
        eventually("bytes are buffered", || file.write_at(&ctx, start, &[2; 100]).is_ok());
        let done: Vec<bool> = std::thread::scope(|scope| {
            let write = || file.write_at_confirmed(&ctx, start + 100, &[3; 50]).is_ok();
            let each: Vec<_> = (0..16).map(|_| scope.spawn(write)).collect();
            each.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(done.iter().all(|done| !done), "round {round}: {done:?}");
    }
}

#[test]
fn a_change_of_names_is_one_message_and_what_it_has_changed_is_known_without_another() {
    let place = Place::new();
    let cluster = place.up("promises", &["--targets", "1"]);
    let keeps = ClientConfig { keep_metadata: true, ..library::config(&cluster) };
    let (keeping, asking) = (Client::connect(keeps).unwrap(), client(&cluster, false));
    let ctx = Context::root();
    let dir = |name: &[u8]| keeping.mkdir(&ctx, FileId::ROOT, name, 0o755).unwrap().file;
    // Before its first poll it may keep nothing.
    harness::eventually("it may keep what it is told", || {
        let before = meta_requests(&keeping);
        keeping.getattr(&ctx, FileId::ROOT).unwrap();
        meta_requests(&keeping) == before
    });
    let (one, two) = (dir(b"one"), dir(b"two"));
    // One message each, and what is asked afterwards costs none and is right.
    let change = |what: &str, files: &[FileId], change: &dyn Fn()| {
        let before = meta_requests(&keeping);
        change();
        assert_eq!(meta_requests(&keeping) - before, 1, "{what}");
        for file in files {
            let known = keeping.getattr(&ctx, *file).unwrap();
            assert_eq!(meta_requests(&keeping) - before, 1, "{what}: attributes of {file}");
            assert_eq!(known, asking.getattr(&ctx, *file).unwrap(), "{what}");
        }
    };
    let names = |names: &[(FileId, &[u8], Option<FileId>)]| {
        let before = meta_requests(&keeping);
        for (dir, name, file) in names {
            let found = keeping.lookup(&ctx, *dir, name).ok().map(|attr| attr.file);
            assert_eq!(found, *file, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(meta_requests(&keeping), before, "of names");
    };
    let made = std::cell::Cell::new(FileId(0));
    for _ in 0..3 {
        names(&[(one, b"f", None), (one, b"g", None), (two, b"f", None)]);
        change("mknod", &[one], &|| {
            let made_now = keeping.mknod(&ctx, one, b"f", FileKind::Fifo, (0o644, 0), 0).unwrap();
            made.set(made_now.file);
        });
        let file = made.get();
        change("link", &[one, file], &|| {
            keeping.link(&ctx, file, one, b"g").unwrap();
        });
        let moved = RenameRequest {
            parent: one,
            name: b"f"[..].into(),
            new_parent: two,
            new_name: b"f"[..].into(),
            no_replace: false,
            exchange: false,
            whiteout: false,
            hold: true,
        };
        change("rename", &[one, two, file], &|| keeping.rename(&ctx, &moved).unwrap());
        names(&[(one, b"f", None), (one, b"g", Some(file)), (two, b"f", Some(file))]);
        change("unlink", &[one, file], &|| {
            keeping.unlink(&ctx, one, b"g").unwrap();
        });
        change("unlink", &[two], &|| {
            keeping.unlink(&ctx, two, b"f").unwrap();
        });
        change("symlink", &[two], &|| {
            keeping.symlink(&ctx, two, b"s", b"x").unwrap();
        });
        change("unlink", &[two], &|| {
            keeping.unlink(&ctx, two, b"s").unwrap();
        });
        change("mkdir", &[one], &|| {
            keeping.mkdir(&ctx, one, b"d", 0o755).unwrap();
        });
        change("rmdir", &[one], &|| keeping.rmdir(&ctx, one, b"d").unwrap());
        names(&[(one, b"d", None), (two, b"s", None)]);
    }
}
