//! Keys that are revoked while their clients read and write, with real daemons.

use crate::harness::{Cluster, Place, eventually, noise};
use crate::library::{client, config_in, credential};
use crate::metas;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, set_nothing};
use weir_types::{Caller, Error, FileId, TargetId};
use weir_wire::Rights;
use weir_wire::meta::SetAttrRequest;

const TARGETS: [TargetId; 2] = [TargetId(1), TargetId(2)];

/// The sum of a counter of all data servers.
fn sum(by: &Client, name: &str) -> u64 {
    let of = |target| by.data_status(target, 30_000).unwrap().counters;
    let found = |target| of(target).into_iter().find(|(n, _)| n == name).unwrap().1;
    TARGETS.into_iter().map(found).sum()
}

/// A client with a short timeout that sends every read and write.
fn hasty(config: ClientConfig) -> Client {
    let config = ClientConfig { request_timeout_ms: 5_000, ..config.without_cache() };
    Client::connect(config).unwrap()
}

fn attempt(file: &File) -> Result<(), Error> {
    let ctx = Context::root();
    let mut buffer = vec![0; 300_000];
    file.read_at(&ctx, 0, &mut buffer)?;
    file.write_at(&ctx, 0, &buffer).map(drop)
}

/// Has a new process of a daemon in the place of one that was killed.
fn begin_anew(cluster: &Cluster<'_>, daemon: &str) {
    cluster.kill(daemon);
    cluster.weir(&["up"]).ok();
}

#[test]
fn a_revoked_key_reads_and_writes_nothing_more_also_after_restarts() {
    let place = Place::new();
    let cluster = place.up("revoked", &["--targets", "2"]);
    let ctx = Context::root();
    let own = client(&cluster, false);
    cluster.weir(&["key", "create", "guest", "-o", "guest.toml"]).ok();
    let guest = hasty(credential(&place.path("guest.toml")));
    let (file, attr) = guest.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let (other, _) = own.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();

    let file = Arc::new(file);
    let (done, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let at_work = {
        let (file, done, ended) = (file.clone(), done.clone(), ended.clone());
        std::thread::spawn(move || {
            loop {
                match attempt(&file) {
                    Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                    Err(error) => return *ended.lock().unwrap() = Some(error),
                };
            }
        })
    };
    eventually("it is at work", || done.load(Ordering::Relaxed) > 3);
    let said = cluster.weir(&["key", "revoke", "guest"]).ok();
    assert!(said.contains("by every data server too"), "{said}");
    at_work.join().unwrap();
    let error = ended.lock().unwrap().take().unwrap();
    assert_eq!(error.kind.errno(), rustix::io::Errno::ACCESS.raw_os_error(), "{error}");
    attempt(&other).unwrap();

    // The client still has its tickets and capabilities. Restarted servers know of the revocation.
    for daemon in ["data-1", "meta", "data-1"] {
        begin_anew(&cluster, daemon);
        assert!(attempt(&file).is_err(), "{daemon}");
        attempt(&other).unwrap();
    }
}

#[test]
fn what_is_open_may_be_used_after_chmod_though_its_capability_is_void() {
    let place = Place::new();
    let cluster = place.up("chmod", &["--targets", "2"]);
    let ctx = Context::root();
    let (own, reader) = (client(&cluster, false), client(&cluster, false));
    let (file, attr) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let chmod = |mode| {
        let set = SetAttrRequest { mode: Some(mode), ..set_nothing(attr.file) };
        own.setattr(&ctx, &set).unwrap();
    };
    chmod(0o666);
    let anna = Context { caller: Caller { uid: 7, gid: 7, groups: Vec::new() }, ..Context::root() };
    let (open, _) = reader.open(&anna, attr.file, Rights::READ).unwrap();
    let (written, _) = reader.open(&anna, attr.file, Rights::READ_WRITE).unwrap();
    let read = || {
        open.read_at(&anna, 0, &mut [0; 300_000]).unwrap();
        written.write_at(&anna, 100_000, &[5; 100_000]).unwrap();
    };
    read();
    chmod(0o600);
    eventually("data servers refuse the capability of before", || {
        read();
        sum(&own, "refused.capability_revoked") > 0
    });
    for rights in [Rights::READ, Rights::WRITE] {
        assert!(reader.open(&anna, attr.file, rights).is_err());
    }
    // Of another owner now, too.
    let before = sum(&own, "refused.capability_revoked");
    let set = SetAttrRequest { uid: Some(8), ..set_nothing(attr.file) };
    own.setattr(&ctx, &SetAttrRequest { mode: Some(0o600), ..set.clone() }).unwrap();
    own.setattr(&ctx, &SetAttrRequest { uid: Some(9), ..set }).unwrap();
    eventually("data servers refuse it again", || {
        read();
        sum(&own, "refused.capability_revoked") > before
    });
    // The metadata server has forgotten the earlier state: all earlier capabilities are void.
    begin_anew(&cluster, "meta");
    read();
    file.write_at(&ctx, 0, &[7; 100]).unwrap();
}

#[test]
fn keys_rotate_while_clients_read_and_write_and_old_ones_end() {
    let place = Place::new();
    let cluster = place.up("rotate", &["--targets", "2"]);
    let ctx = Context::root();
    let own = client(&cluster, false);
    let (file, _) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let refused = || sum(&own, "refused.capability_of_old_key");
    let rotate = |more: &[&str]| cluster.weir(&[&["key", "rotate"][..], more].concat());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                attempt(&file).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let goes_on = || {
            let before = done.load(Ordering::Relaxed);
            eventually("it goes on", || done.load(Ordering::Relaxed) > before + 3);
        };
        goes_on();
        let said = rotate(&["--all"]).ok();
        assert!(said.contains("generation 2") && said.contains("all targets"), "{said}");
        goes_on();
        assert_eq!(refused(), 0, "what was signed before counts");
        rotate(&["--target", "1"]).fails(&["two generations", "--now"]);
        rotate(&["--target", "9"]).fails(&["no target 9"]);
        let said = rotate(&["--target", "1", "--now"]).ok();
        assert!(said.contains("generation 3") && said.contains("target 1"), "{said}");
        eventually("old capabilities are refused", || refused() > 0);
        goes_on();
        // A server that is away while keys are rotated, and a metadata server that restarts.
        cluster.kill("data-1");
        rotate(&["--all", "--now"]).ok();
        cluster.weir(&["up"]).ok();
        eventually("it knows when it is back", || refused() > 0);
        begin_anew(&cluster, "meta");
        goes_on();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(generation(&own), 4);
}

#[test]
fn own_keys_of_targets_are_replaced_while_clients_read_and_write() {
    let place = Place::new();
    let cluster = place.up("own", &["--targets", "2"]);
    let ctx = Context::root();
    let own = client(&cluster, false);
    let (file, _) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let rotate =
        |more: &[&str]| cluster.weir(&[&["key", "rotate", "--own"][..], more].concat()).ok();
    let counter = |name: &str| {
        let counters = own.metadata_status().unwrap().counters;
        counters.into_iter().find(|(n, _)| n == name).unwrap().1
    };
    let goes_on = || {
        let before = done.load(Ordering::Relaxed);
        eventually("it goes on", || done.load(Ordering::Relaxed) > before + 3);
    };
    let refused = |why: &str| sum(&own, &format!("refused.capability_{why}"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                attempt(&file).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        goes_on();
        let said = rotate(&["--all"]);
        assert!(said.contains("sign capabilities from now on"), "{said}");
        goes_on();
        assert_eq!((refused("not_signed"), refused("of_old_key")), (0, 0), "all of before counts");
        assert_eq!(counter("keys.own_waiting"), 0);
        // Servers find their keys again, and one that leads learns from the store.
        for daemon in ["data-1", "meta", "data-2"] {
            begin_anew(&cluster, daemon);
            goes_on();
        }
        assert_eq!(refused("not_signed"), 0);
        // A theft: what was signed before ends at once.
        let said = rotate(&["--target", "1", "--now"]);
        assert!(said.contains("sign capabilities from now on"), "{said}");
        eventually("old capabilities are refused", || refused("of_old_key") > 0);
        goes_on();
        assert_eq!(refused("not_signed"), 0, "no new capability came too early");
        // A server that is away gets its key when it is back.
        cluster.kill("data-2");
        let said = rotate(&["--target", "2", "--now"]);
        assert!(said.contains("1 targets wait") && counter("keys.own_waiting") == 1, "{said}");
        cluster.kill("meta");
        cluster.weir(&["up"]).ok();
        eventually("it has its key", || counter("keys.own_waiting") == 0);
        goes_on();
        // One that has lost the file of its new key gets it again.
        cluster.kill("data-1");
        let later = cluster.dir().join("keys/target-1.key.later");
        std::fs::remove_file(&later).unwrap_or_else(|e| panic!("{}: {e}", later.display()));
        cluster.weir(&["up"]).ok();
        eventually("it has the file again", || later.exists());
        goes_on();
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn own_keys_of_targets_are_replaced_though_the_lead_moves_meanwhile() {
    if !metas::etcd() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("moves", &["--targets", "2", "--meta", "3"]);
    let ctx = Context::root();
    // One call waits for as long as it takes another server to lead.
    let config = ClientConfig { request_timeout_ms: 60_000, ..config_in(&cluster.dir()) };
    let own = Client::connect(config.without_cache()).unwrap();
    let (file, _) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let waiting = || {
        let counters = own.metadata_status().unwrap().counters;
        counters.into_iter().find(|(name, _)| name == "keys.own_waiting").unwrap().1
    };
    let goes_on = || {
        let before = done.load(Ordering::Relaxed);
        eventually("it goes on", || done.load(Ordering::Relaxed) > before + 3);
    };
    let rotate =
        |more: &[&str]| cluster.weir(&[&["key", "rotate", "--own", "--all"][..], more].concat());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                attempt(&file).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let checks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            goes_on();
            // Between the two steps: a server has not got its key yet.
            cluster.kill("data-2");
            let said = rotate(&[]).ok();
            assert!(said.contains("1 targets wait") && waiting() == 1, "{said}");
            cluster.kill(&metas::leader(&cluster));
            eventually("the next one knows", || waiting() == 1);
            cluster.weir(&["up"]).ok();
            eventually("it has its key", || waiting() == 0);
            goes_on();
            // While the command runs. There are two generations of keys already.
            for _ in 0..2 {
                let leads = metas::leader(&cluster);
                let rotating = scope.spawn(|| rotate(&["--now"]));
                cluster.kill(&leads);
                let said = rotating.join().unwrap().ok();
                assert!(said.contains("sign capabilities from now on"), "{said}");
                cluster.weir(&["up"]).ok();
                eventually("all have their keys", || waiting() == 0);
                goes_on();
            }
            assert_eq!(sum(&own, "refused.capability_not_signed"), 0);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = checks {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Of the working keys that sign.
fn generation(by: &Client) -> u64 {
    let counters = by.metadata_status().unwrap().counters;
    counters.into_iter().find(|(name, _)| name == "keys.generation").unwrap().1
}

#[test]
fn a_metadata_server_that_is_killed_while_keys_rotate_takes_no_live_right_away() {
    let place = Place::new();
    let cluster = place.up("killed", &["--targets", "2"]);
    let ctx = Context::root();
    let own = client(&cluster, false);
    let (file, _) = own.create(&ctx, FileId::ROOT, b"f", &CreateOptions::default()).unwrap();
    file.write_at(&ctx, 0, &noise(300_000, 1)).unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = |times| {
        let before = done.load(Ordering::Relaxed);
        eventually("it goes on", || done.load(Ordering::Relaxed) > before + times);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                attempt(&file).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut last = 1;
        for round in 0..4 {
            let rotates = scope.spawn(|| cluster.weir(&["key", "rotate", "--all", "--now"]));
            // Each time later.
            goes_on(4 * round);
            begin_anew(&cluster, "meta");
            let said = rotates.join().unwrap();
            goes_on(3);
            let now = generation(&own);
            assert!(now > last || said.code != Some(0) && now == last, "{last} {now} {said:?}");
            last = now;
        }
        stop.store(true, Ordering::Relaxed);
    });
}
