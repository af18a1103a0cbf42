//! `weir clients` and `weir locks`: the connected clients, and what each holds.

use crate::harness::{Cluster, Place, eventually, eventually_within, kill_and_wait, root};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// After so long a silence what a client holds is free for others, and after so long it is gone.
const LEASE_MS: i64 = 2000;
const SESSION_MS: i64 = 5000;

/// A cluster whose clients lapse sooner, with two mounts.
fn cluster(place: &Place) -> Cluster<'_> {
    let cluster = place.up("held", &["--targets", "1"]);
    cluster.weir(&["down"]).ok();
    let path = cluster.dir().join("meta.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let times =
        [("lease_ms", LEASE_MS), ("grace_ms", LEASE_MS), ("session_timeout_ms", SESSION_MS)];
    for (key, ms) in times {
        settings.insert(key.into(), toml::Value::Integer(ms));
    }
    fs::write(path, settings.to_string()).unwrap();
    cluster.weir(&["up"]).ok();
    cluster
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// `fcntl(F_SETLK)` of some bytes.
fn lock_bytes(file: &File, start: i64, len: i64) {
    // SAFETY: all zeros is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (libc::F_RDLCK as i16, start, len);
    // SAFETY: a valid descriptor and a valid `flock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) };
    assert_eq!(result, 0);
}

fn locks(cluster: &Cluster<'_>, more: &[&str]) -> Vec<Value> {
    let said = cluster.weir(&[&["locks", "--json"], more].concat()).json();
    let mut locks = said["locks"].as_array().unwrap().clone();
    for lock in &mut locks {
        // For how long, is another number each time.
        let waits = lock.as_object_mut().unwrap().remove("waits_ms").unwrap();
        assert_eq!(lock["waiting"] == true, waits.as_u64().is_some(), "{lock} {waits}");
    }
    locks
}

fn clients(cluster: &Cluster<'_>, more: &[&str]) -> Vec<Value> {
    let said = cluster.weir(&[&["clients", "--json"], more].concat()).json();
    assert_eq!(
        (&said["lease_ms"], &said["session_timeout_ms"]),
        (&LEASE_MS.into(), &SESSION_MS.into())
    );
    said["clients"].as_array().unwrap().clone()
}

/// The entry of a mount.
fn client_of(cluster: &Cluster<'_>, at: &Path) -> Option<Value> {
    let found = clients(cluster, &["--program", at.to_str().unwrap()]);
    assert!(found.len() <= 1, "{found:?}");
    found.into_iter().next()
}

#[test]
fn who_holds_and_who_waits_is_shown_until_it_is_gone() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    let (a, b) = (cluster.mount("a", ""), cluster.mount("b", ""));
    fs::create_dir(a.join("dir")).unwrap();
    let (held, other) = (open(&a.join("dir/held")), open(&a.join("other")));
    flock(&held, FlockOperation::LockExclusive).unwrap();
    lock_bytes(&other, 100, 50);
    let same = open(&b.join("dir/held"));
    let waiter = std::thread::spawn(move || {
        flock(&same, FlockOperation::LockShared).unwrap();
        same
    });
    eventually("it waits", || locks(&cluster, &["--waiting"]).len() == 1);

    let me = std::process::id();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let [one, two] = [&a, &b].map(|at| client_of(&cluster, at).unwrap());
    let flocks = locks(&cluster, &["--kind", "flock"]);
    assert_eq!(flocks.len(), 2, "{flocks:?}");
    for (lock, client, mode, waits) in
        [(&flocks[0], &one, "write", false), (&flocks[1], &two, "read", true)]
    {
        assert_eq!(lock["path"], "/dir/held");
        assert_eq!((&lock["mode"], &lock["waiting"]), (&mode.into(), &waits.into()), "{lock}");
        assert_eq!((&lock["session"], &lock["host"]), (&client["session"], &client["host"]));
        assert_eq!((&lock["pid"], &lock["end"]), (&me.into(), &Value::Null), "{lock}");
    }
    let posix = locks(&cluster, &["--kind", "posix"]);
    assert_eq!(posix.len(), 1, "{posix:?}");
    assert_eq!((&posix[0]["start"], &posix[0]["end"]), (&100.into(), &150.into()));
    assert_eq!((&posix[0]["mode"], &posix[0]["path"]), (&"read".into(), &"/other".into()));

    // What is asked for, and only that.
    assert_eq!(locks(&cluster, &["--kind", "posix", "weir:/dir/held"]).len(), 0);
    assert_eq!(locks(&cluster, &["--kind", "posix", "weir:/dir/held", "/other"]), posix);
    let session = one["session"].to_string();
    assert_eq!(locks(&cluster, &["--session", &session, "--kind", "flock"]), flocks[..1]);
    assert_eq!(locks(&cluster, &["--host", &host, "--kind", "flock"]), flocks);
    assert_eq!(locks(&cluster, &["--host", "elsewhere"]).len(), 0);
    assert!(locks(&cluster, &["--kind", "lease"]).iter().all(|lock| lock["kind"] == "lease"));
    let few = cluster.weir(&["locks", "--limit", "1"]);
    assert!(few.err.contains("more than 1") && few.out.lines().count() == 2, "{few:?}");
    let text = cluster.weir(&["locks", "weir:/dir/held"]).ok();
    assert!(text.contains("/dir/held") && text.contains("flock") && text.contains("all"), "{text}");

    // The mounts are what they are.
    for (at, client, locks, waiting) in [(&a, &one, 2, 0), (&b, &two, 0, 1)] {
        assert_eq!(client["program"], format!("weir mount {}", at.display()));
        assert_eq!(client["pid"], cluster.mount_pid(at));
        assert_eq!((&client["locks"], &client["waiting"]), (&locks.into(), &waiting.into()));
        assert_eq!((&client["standing"], &client["host"]), (&"live".into(), &host.as_str().into()));
        assert_eq!(client["version"], env!("CARGO_PKG_VERSION"));
        assert!(client["open_files"].as_u64().unwrap() >= 1, "{client}");
        assert!(client["since_ms"].as_u64().unwrap() < 600_000, "{client}");
    }
    // And this command itself. An earlier one may not have been heard to go.
    let key = one["client"].to_string();
    for (asked, count) in [
        (&[][..], 3),
        (&["--program", "weir mount"], 2),
        (&["--host", "elsewhere"], 0),
        (&["--key", &key], 3),
        (&["--key", "nobody"], 0),
        (&["--standing", "silent"], 0),
        (&["--standing", "live"], 3),
        (&["--limit", "2"], 2),
    ] {
        let what = format!("{count} clients with {asked:?}");
        eventually(&what, || clients(&cluster, asked).len() == count);
    }
    eventually("as many lines", || {
        let text = cluster.weir(&["clients"]).ok();
        text.lines().count() == 4 && text.contains("weir clients")
    });

    // A key without the right sees nothing of it.
    cluster.weir(&["key", "new", "ordinary", "-o", "ordinary.toml"]).ok();
    for command in ["clients", "locks"] {
        let refused = place.weir(&[command, "--credential", "ordinary.toml"]);
        refused.fails(&["not an administrator"]);
    }

    // A mount that is killed is silent, and then gone with all that it held.
    kill_and_wait(cluster.mount_pid(&a));
    let times = |ms: i64| Duration::from_millis(ms as u64) + Duration::from_secs(3);
    eventually_within(times(LEASE_MS), "who waits has the lock", || waiter.is_finished());
    eventually_within(times(SESSION_MS - LEASE_MS), "it is gone", || {
        let left = client_of(&cluster, &a);
        // Its locks were taken when they were needed.
        assert!(left.as_ref().is_none_or(|left| left["standing"] != "live"), "{left:?}");
        left.is_none()
    });
    let same = waiter.join().unwrap();
    let flocks = locks(&cluster, &["--kind", "flock"]);
    assert_eq!((flocks.len(), &flocks[0]["session"]), (1, &two["session"]));
    assert_eq!(locks(&cluster, &["--kind", "posix"]).len(), 0);
    flock(&same, FlockOperation::Unlock).unwrap();
    eventually("it is free", || locks(&cluster, &["--kind", "flock"]).is_empty());
}
