//! Programs learn where the bytes of a file are, and what the disks there give now.

use crate::added_server::{Added, on_host};
use crate::harness::{Place, eventually, noise, root, said};
use crate::library::{self, client, counter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_client::job::{JobReader, Member, job_named};
use weir_client::{Client, ClientConfig, Context, CreateOptions, Location, MAX_LOCATIONS};
use weir_types::{FileId, LayoutSpec, Rank, TargetId};
use weir_wire::Rights;

const UNIT: u64 = 8192;

#[test]
fn locations_name_hosts_targets_and_what_each_disk_gives() {
    let place = Place::new();
    let cluster = place.up("where", &["--targets", "4", "--targets-per-server", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let layout =
        LayoutSpec { stripe_unit_bytes: UNIT as u32, base: Some(0), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let (file, _) = client.create(&ctx, FileId::ROOT, b"f", &options).unwrap();
    let data = noise(8 << 20, 3);
    file.write_at(&ctx, 0, &data).unwrap();
    file.sync(&ctx).unwrap();

    let found = client.locations(&ctx, &file, 100, 5 * UNIT).unwrap();
    let expected: Vec<(u64, u64, u32)> = [
        (100, UNIT - 100, 1),
        (UNIT, UNIT, 2),
        (2 * UNIT, UNIT, 3),
        (3 * UNIT, UNIT, 4),
        (4 * UNIT, UNIT, 1),
        (5 * UNIT, 100, 2),
    ]
    .into();
    let seen: Vec<_> =
        found.iter().map(|l| (l.offset, l.len, l.copies[0].place.target.0)).collect();
    assert_eq!(seen, expected);
    let map = client.cluster_map().unwrap();
    for location in &found {
        let of = &location.copies[0].place;
        let server = map.server_of(of.target).unwrap();
        assert_eq!((&of.host, &of.address), (&server.host, &server.tcp));
        assert_eq!(of.server, Some(server.server));
        assert!(of.state.is_online() && !of.host.is_empty());
    }

    // Nothing is located beyond the end.
    let end = data.len() as u64;
    let last = client.locations_of(&ctx, b"/f", end - 10, u64::MAX).unwrap();
    assert_eq!(last.iter().map(|l| (l.offset, l.len)).collect::<Vec<_>>(), [(end - 10, 10)]);
    assert!(client.locations(&ctx, &file, end, 1).unwrap().is_empty());

    // Reads make servers report the speed of their disks.
    eventually("each disk gives something", || {
        let mut buffer = vec![0; data.len()];
        file.read_at(&ctx, 0, &mut buffer).unwrap();
        let found = client.locations(&ctx, &file, 0, 4 * UNIT).unwrap();
        let gives = found.iter().map(|l| l.copies[0].place.bytes_per_s);
        gives.clone().count() == 4 && gives.flatten().filter(|rate| *rate > 0).count() == 4
    });
    assert_eq!(
        client.locations_of(&ctx, b"/f", 0, 1).unwrap()[0].copies[0].place.target,
        TargetId(1)
    );
}

/// What a program asks that divides a directory into blocks.
#[test]
fn a_page_of_a_directory_has_where_all_its_files_are_in_one_request() {
    const FILES: usize = 1_100;
    const PAGE: usize = 1_024;
    let place = Place::new();
    let cluster = place.up("pages", &["--targets", "2"]);
    let client = client(&cluster, false);
    let ctx = Context::root();
    let dir = client.mkdir(&ctx, FileId::ROOT, b"d", 0o755).unwrap().file;
    let options = CreateOptions::default();
    for n in 0..FILES {
        let name = format!("f{n}");
        let (file, _) = client.create(&ctx, dir, name.as_bytes(), &options).unwrap();
        if n % 100 == 0 {
            file.write_at(&ctx, 0, &noise(200_000 + n, 3)).unwrap();
        }
        file.close(&ctx).unwrap();
    }
    let (mut at, mut seen) = ((0, 0), 0);
    loop {
        let before = counter(&client, "meta_requests");
        let located = client.readdir_located(&ctx, dir, at, PAGE as u32).unwrap();
        // The page, the map of servers, what all disks give, and what a client asks by itself.
        let asked = counter(&client, "meta_requests") - before;
        assert!(asked <= 16, "{asked} requests for {} names", located.page.entries.len());
        for (n, entry) in located.page.entries.iter().enumerate() {
            let attr = entry.attr.as_ref().unwrap();
            let found = located.locations(n, MAX_LOCATIONS).unwrap();
            assert_eq!(found.iter().map(|l| l.len).sum::<u64>(), attr.size);
            if attr.size > 0 {
                let path = [&b"/d/"[..], &entry.name].concat();
                let alone = client.locations_of(&ctx, &path, 0, u64::MAX).unwrap();
                let of = |l: &Location| (l.offset, l.len, l.copies[0].place.target);
                assert!(found.iter().map(of).eq(alone.iter().map(of)));
                seen += 1;
            }
        }
        let Some(last) = located.page.entries.last().filter(|_| !located.page.end) else { break };
        at = (last.cookie, located.page.last);
    }
    assert_eq!(seen, FILES.div_ceil(100));
}

/// The reader is where the second copy of each chunk is.
#[test]
fn who_prefers_what_is_near_reads_it_and_the_share_is_told_for_its_job() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("near", &["--targets", "1"]);
    let _far = Added::new(&cluster, 10, Some("far"), &[]);
    eventually("it has joined", || cluster.weir(&["targets"]).ok().matches("online").count() == 2);
    let data = noise(2_000_000, 6);
    std::fs::write(place.path("data"), &data).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    let chunks = ["setlayout", "weir:/d", "--layout", "chunked", "--chunk", "64K"];
    cluster.weir(&[&chunks[..], &["--copies", "2"]].concat()).ok();
    said(on_host("far", &cluster.command(&["cp", "data", "weir:/d/there"]))).ok();

    let config = ClientConfig { prefers_near: true, ..library::config(&cluster) };
    let near = Client::connect(config).unwrap();
    let job = job_named("here", rustix::process::getuid().as_raw());
    let member = Member { job, rank: Rank(7), ranks: 1, shared: false };
    let reader = Some(Arc::new(JobReader::new(member)));
    let ctx = Context { reader, ..Context::root() };
    let attr = near.resolve(&ctx, b"/d/there", true).unwrap();
    let (file, _) = near.open(&ctx, attr.file, Rights::READ).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(file.read_at(&ctx, 0, &mut read).unwrap(), data.len());
    assert!(read == data);
    let count = |name| counter(&near, name);
    assert_eq!(count("read_near_bytes"), count("read_wire_bytes"));
    assert!(count("read_near_bytes") >= data.len() as u64);

    let told = cluster.weir(&["explain", "here", "-d", "0.1", "--json"]).json();
    assert_eq!(told[0]["local"], 1.0, "{told}");
    assert_eq!(told[0]["processes"][0]["local_bytes"], count("read_near_bytes"), "{told}");
    let text = cluster.weir(&["explain", "here", "-d", "0.1"]).ok();
    assert!(text.contains("100.0% from disks of the own machine"), "{text}");
    file.close(&ctx).unwrap();

    // Who reads a chunk asks for nothing of the next one, for which somebody else may be near.
    const CHUNK: usize = 64 << 10;
    let config = ClientConfig { prefers_near: true, ..library::config(&cluster) };
    let first = Client::connect(config).unwrap();
    let job = job_named("first", rustix::process::getuid().as_raw());
    let reader = Some(Arc::new(JobReader::new(Member { job, ..member })));
    let ctx = Context { reader, ..Context::root() };
    let (file, _) = first.open(&ctx, attr.file, Rights::READ).unwrap();
    for at in (0..CHUNK).step_by(4 << 10) {
        file.read_at(&ctx, at as u64, &mut read[..4 << 10]).unwrap();
    }
    assert!(read[..4 << 10] == data[CHUNK - (4 << 10)..CHUNK]);
    file.close(&ctx).unwrap();
    let told = cluster.weir(&["explain", "first", "-d", "0.1", "--json"]).json();
    let asked = told[0]["processes"][0]["local_bytes"].as_u64().unwrap() as usize;
    assert!((CHUNK..2 * CHUNK).contains(&asked), "{told}");
}

/// Each open of a file that has more pages of layout fetches them, also while another thread reads.
#[test]
fn a_file_of_many_chunks_is_read_whole_while_others_open_it() {
    let place = Place::new();
    let cluster = place.up("pages", &["--targets", "2"]);
    let data = noise(300 * (64 << 10), 6);
    std::fs::write(place.path("data"), &data).unwrap();
    cluster.weir(&["mkfile", "weir:/f", "--layout", "chunked", "--chunk", "64K"]).ok();
    cluster.weir(&["cp", "data", "weir:/f"]).ok();
    let client = client(&cluster, false);
    let ctx = Context::root();
    let attr = client.resolve(&ctx, b"/f", true).unwrap();
    let (file, _) = client.open(&ctx, attr.file, Rights::READ).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let (again, _) = client.open(&ctx, attr.file, Rights::READ).unwrap();
                    again.close(&ctx).unwrap();
                }
            });
        }
        let read = |round: usize| {
            // From the end, which is on the last page.
            let at = data.len() - (round % 100 + 1) * 1_000;
            let mut bytes = vec![0; 1_000];
            let read = file.read_at(&ctx, at as u64, &mut bytes);
            read.is_ok_and(|n| n == 1_000) && bytes == data[at..at + 1_000]
        };
        let is_whole = (0..2_000).all(read);
        done.store(true, Ordering::Relaxed);
        assert!(is_whole, "a read found no layout");
    });
    file.close(&ctx).unwrap();
}
