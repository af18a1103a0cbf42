//! What goes to the metadata server and to data servers at the same time, shown with one of them
//! stopped: what the other one was asked meanwhile does not wait for it.

use crate::harness::{Cluster, Place, Stopped, eventually};
use crate::library::{self, client, counter};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File};
use weir_types::{FileId, TargetId};

/// How long the other server is waited for in one attempt, and the most attempts: the background
/// thread may have come first.
const ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 12;

fn one<'a>(place: &'a Place) -> (Cluster<'a>, Client) {
    let cluster = place.up("rounds", &["--targets", "1"]);
    let config = ClientConfig { keep_metadata: true, ..library::config(&cluster) };
    let client = Client::connect(config).unwrap();
    let mut number = 0;
    eventually("a lease comes with a new file, which it does after the first poll", || {
        number += 1;
        let file = create(&client, &format!("early-{number}"));
        let has_lease = file.lease_on_whole().is_some();
        file.close(&Context::root()).unwrap();
        has_lease
    });
    (cluster, client)
}

fn create(client: &Client, name: &str) -> File {
    let options = CreateOptions::default();
    client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap().0
}

/// Requests of some kinds that the metadata server has received.
fn told(client: &Client, kinds: &[&str]) -> u64 {
    let status = client.metadata_status().unwrap();
    status.counters.iter().filter(|(name, _)| kinds.contains(&&name[..])).map(|(_, n)| n).sum()
}

/// Makes a call while a server is stopped, until `has_come` says, once, that the other one was asked
/// meanwhile. `prepare` comes before it is stopped; the call has to succeed when it goes on.
fn beside<T: Sync>(
    what: &str,
    prepare: impl Fn(usize) -> T,
    stop: impl Fn() -> Stopped,
    call: impl Fn(&T) + Sync,
    mut has_come: impl FnMut() -> Box<dyn FnMut() -> bool>,
) {
    for attempt in 0..ATTEMPTS {
        let prepared = prepare(attempt);
        let mut has_come = has_come();
        let stopped = stop();
        let came = std::thread::scope(|scope| {
            scope.spawn(|| call(&prepared));
            let begun = Instant::now();
            let mut came = false;
            while !came && begun.elapsed() < ATTEMPT {
                std::thread::sleep(Duration::from_millis(5));
                came = has_come();
            }
            drop(stopped);
            came
        });
        if came {
            return;
        }
    }
    panic!("{what}");
}

#[test]
fn a_new_small_file_is_told_of_while_its_bytes_are_on_their_way() {
    let place = Place::new();
    let (cluster, writer) = one(&place);
    let ctx = Context::root();
    let made = |name: &str| {
        let file = create(&writer, name);
        file.write_at(&ctx, 0, &[7; 4096]).unwrap();
        file
    };
    // Two messages to the metadata server, and one to the data server.
    let counted = || ["meta_requests", "data_requests"].map(|name| counter(&writer, name));
    let mut tried = 0;
    eventually("nothing else is told meanwhile, closes say", || {
        tried += 1;
        let before = counted();
        let file = made(&format!("counted-{tried}"));
        file.flush_for_close(&ctx).unwrap();
        let after = counted();
        file.close(&ctx).unwrap();
        [after[0] - before[0], after[1] - before[1]] == [2, 1]
    });
    let asking = client(&cluster, false);
    let reading = client(&cluster, true);
    beside(
        "the size was not told before the data server had answered",
        |attempt| made(&format!("closed-{attempt}")),
        || cluster.stopped(&["data-1"]),
        |file| file.flush_for_close(&ctx).unwrap(),
        || {
            let before = told(&asking, &["op.commit_size"]);
            let asking = client(&cluster, false);
            Box::new(move || told(&asking, &["op.commit_size"]) > before)
        },
    );
    let attr = reading.resolve(&ctx, b"closed-0", true).unwrap();
    assert_eq!((attr.size, attr.sparse), (4096, false));
    let (file, _) = reading.open(&ctx, attr.file, weir_wire::Rights::READ).unwrap();
    let mut bytes = [0; 5000];
    assert_eq!(file.read_at(&ctx, 0, &mut bytes).unwrap(), 4096);
    assert!(bytes[..4096].iter().all(|byte| *byte == 7));
}

#[test]
fn a_sync_asks_data_and_metadata_servers_at_the_same_time() {
    let place = Place::new();
    let (cluster, writer) = one(&place);
    let (asking, ctx) = (client(&cluster, false), Context::root());
    let syncs = |client: &Client| {
        let status = client.data_status(TargetId(1), 5000).unwrap();
        status.counters.iter().find(|(name, _)| name == "op.sync").map_or(0, |(_, n)| *n)
    };
    assert_eq!(syncs(&asking), 0, "it has a connection now");
    // Bytes that the data server has, and that were not reported.
    let grown = |attempt: usize, kind: &str| {
        let file = create(&writer, &format!("{kind}-{attempt}"));
        file.write_at(&ctx, 0, &[7; 4096]).unwrap();
        file.sync(&ctx).unwrap();
        file.write_at(&ctx, 4096, &[8; 4096]).unwrap();
        let mut byte = [0];
        assert_eq!((file.read_at(&ctx, 5000, &mut byte).unwrap(), byte), (1, [8]));
        file
    };
    let kinds = ["op.commit_size", "op.sync_meta"];
    beside(
        "the metadata server was asked only when the data server had synced",
        |attempt| grown(attempt, "data"),
        || cluster.stopped(&["data-1"]),
        |file| file.sync(&ctx).unwrap(),
        || {
            let (asking, before) = (client(&cluster, false), told(&asking, &kinds));
            Box::new(move || told(&asking, &kinds) > before)
        },
    );
    beside(
        "the data server was asked only when the metadata server had answered",
        |attempt| grown(attempt, "metadata"),
        || cluster.stopped(&["meta"]),
        |file| file.sync(&ctx).unwrap(),
        || {
            let asking = client(&cluster, false);
            let before = syncs(&asking);
            Box::new(move || syncs(&asking) > before)
        },
    );
    // Size and sync are one message to each.
    let mut tried = 0;
    eventually("nothing else is told meanwhile", || {
        tried += 1;
        let file = grown(tried, "counted");
        let before = ["meta_requests", "data_requests"].map(|name| counter(&writer, name));
        file.sync(&ctx).unwrap();
        let after = ["meta_requests", "data_requests"].map(|name| counter(&writer, name));
        [after[0] - before[0], after[1] - before[1]] == [1, 1]
    });
}

/// It may be asked before the background thread has told them.
#[test]
fn a_sync_tells_of_the_columns_that_a_close_just_before_has_left() {
    let place = Place::new();
    let (cluster, writer) = one(&place);
    let (asking, ctx) = (client(&cluster, false), Context::root());
    let sizes = || told(&asking, &["op.commit_size"]);
    let mut tried = 0;
    eventually("the background thread has not come first", || {
        tried += 1;
        let before = sizes();
        let file = create(&writer, &format!("left-{tried}"));
        file.write_at(&ctx, 0, &[7; 4096]).unwrap();
        let id = file.id();
        file.close(&ctx).unwrap();
        let (file, _) = writer.open(&ctx, id, weir_wire::Rights::READ_WRITE).unwrap();
        file.sync(&ctx).unwrap();
        let after = sizes();
        file.close(&ctx).unwrap();
        // The one of the sync has the columns alone.
        after - before == 2
    });
}

#[test]
fn a_sync_asks_the_metadata_server_though_a_data_server_cannot_be_connected_to() {
    let place = Place::new();
    let (cluster, writer) = one(&place);
    let (asking, ctx) = (client(&cluster, false), Context::root());
    let file = create(&writer, "f");
    file.write_at(&ctx, 0, &[7; 4096]).unwrap();
    file.sync(&ctx).unwrap();
    let id = file.id();
    file.close(&ctx).unwrap();
    let kinds = ["op.commit_size", "op.sync_meta"];
    beside(
        "the metadata server was asked only when the data server could be connected to",
        |_| {
            let fresh = client(&cluster, false);
            let (file, _) = fresh.open(&ctx, id, weir_wire::Rights::READ).unwrap();
            (fresh, file)
        },
        || cluster.stopped(&["data-1"]),
        |(_, file)| file.sync(&ctx).unwrap(),
        || {
            let (asking, before) = (client(&cluster, false), told(&asking, &kinds));
            Box::new(move || told(&asking, &kinds) > before)
        },
    );
}
