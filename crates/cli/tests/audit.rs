//! `weir log --audit`: who did what on files, recorded by real servers.

use crate::harness::{Cluster, Place, eventually, noise};
use crate::library::{client, credential};
use serde_json::Value;
use std::fs;
use weir_client::{Client, Context, CreateOptions, set_nothing};
use weir_types::{Caller, ErrorKind, FileId};
use weir_wire::Rights;
use weir_wire::meta::{RenameRequest, SetAttrRequest};

/// The records that a command shows.
fn records(cluster: &Cluster<'_>, more: &[&str]) -> Vec<Value> {
    let text = cluster.weir(&[&["log", "--audit", "--json"][..], more].concat()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sum of a number in the records of this kind.
fn sum(records: &[Value], name: &str, op: &str) -> u64 {
    let of_op = records.iter().filter(|it| it["op"] == op && it["error"].is_null());
    of_op.map(|it| it[name].as_u64().unwrap()).sum()
}

/// What was refused of this kind, and why.
fn refused<'r>(records: &'r [Value], op: &str) -> Vec<&'r Value> {
    records.iter().filter(|it| it["op"] == op && !it["error"].is_null()).collect()
}

#[test]
fn it_says_who_read_and_wrote_a_file_and_who_was_refused_also_after_a_restart() {
    let place = Place::new();
    let cluster = place.up("audit", &["--targets", "2"]);
    let ctx = Context::root();
    cluster.weir(&["key", "create", "guest", "-o", "guest.toml"]).ok();
    let own = client(&cluster, false);
    let guest = Client::connect(credential(&place.path("guest.toml")).without_cache()).unwrap();
    let options = CreateOptions { mode: 0o600, ..CreateOptions::default() };
    let (file, attr) = own.create(&ctx, FileId::ROOT, b"secret", &options).unwrap();
    let (open, free) = guest.create(&ctx, FileId::ROOT, b"free", &options).unwrap();
    let data = noise(300_000, 1);
    file.write_at(&ctx, 0, &data).unwrap();
    let mut buffer = vec![0; data.len()];
    for _ in 0..3 {
        file.read_at(&ctx, 0, &mut buffer).unwrap();
    }
    open.write_at(&ctx, 0, &data[..1000]).unwrap();
    let anna = Context { caller: Caller { uid: 7, gid: 7, groups: Vec::new() }, ..Context::root() };
    let error = guest.open(&anna, attr.file, Rights::READ).map(drop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::AccessDenied);

    let is_complete = |cluster: &Cluster<'_>| {
        let of_file = records(cluster, &["--file", "weir:/secret"]);
        assert!(of_file.iter().all(|it| it["file"] == attr.file.0), "{of_file:?}");
        let by_guest = records(cluster, &["--client", "guest"]);
        assert!(by_guest.iter().all(|it| it["key"] == "guest"), "{by_guest:?}");
        let denied = refused(&of_file, "open");
        let told = denied.iter().all(|it| {
            let by = (&it["key"], &it["user"], &it["rights"]);
            it["error"] == "permission denied" && by == (&"guest".into(), &7.into(), &"read".into())
        });
        (sum(&of_file, "bytes", "write"), sum(&of_file, "bytes", "read")) == (300_000, 900_000)
            && sum(&by_guest, "bytes", "write") == 1000
            && told
            && denied.len() == 1
    };
    // A data server adds up what its threads have counted once a second.
    eventually("all of it is recorded", || is_complete(&cluster));
    let last = records(&cluster, &["-n", "1"]);
    assert_eq!(last.len(), 1);
    assert!(records(&cluster, &["--since", "2999-01-01"]).is_empty());
    let table = cluster.weir(&["log", "--audit"]).ok();
    let line = table.lines().find(|line| line.contains("permission denied")).unwrap();
    assert!(line.contains("metadata") && line.contains("guest") && line.contains("open to read"));

    // Whoever is no administrator sees nothing of it.
    let asks = ["log", "--audit", "--credential", "guest.toml"];
    place.weir(&asks).fails(&["administrator"]);
    let asked = refused(&records(&cluster, &["--client", "guest"]), "admin_capability").len();
    assert_eq!(asked, 1);

    drop((file, own));
    cluster.down(&[]);
    cluster.weir(&["up"]).ok();
    assert!(is_complete(&cluster), "the records are there again");

    // A capability that was revoked, and is shown to the data servers.
    let own = client(&cluster, false);
    let chmod = |mode| {
        own.setattr(&ctx, &SetAttrRequest { mode: Some(mode), ..set_nothing(free.file) }).unwrap();
    };
    chmod(0o644);
    let (open, _) = guest.open(&anna, free.file, Rights::READ).unwrap();
    open.read_at(&anna, 0, &mut [0; 10]).unwrap();
    chmod(0o600);
    eventually("the refusal is recorded", || {
        // Its client fetches a new one, because the file is open.
        open.read_at(&anna, 0, &mut [0; 10]).unwrap();
        let by_guest = records(&cluster, &["--client", "guest", "--file", "weir:/free"]);
        refused(&by_guest, "read").iter().any(|it| {
            it["user"] == 7 && it["about"] == "capability was revoked" && !it["target"].is_null()
        })
    });
}

#[test]
fn it_says_who_removed_a_file_that_is_gone_and_who_replaced_one() {
    let place = Place::new();
    let cluster = place.up("gone", &["--targets", "1"]);
    let (ctx, own) = (Context::root(), client(&cluster, false));
    let long = "n".repeat(200);
    for name in ["gone", "old", "new", &long] {
        let options = CreateOptions::default();
        drop(own.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap());
    }
    for name in ["gone", &long] {
        own.unlink(&ctx, FileId::ROOT, name.as_bytes()).unwrap();
    }
    let (parent, new_parent) = (FileId::ROOT, FileId::ROOT);
    let (no_replace, exchange, whiteout) = (false, false, false);
    let (name, new_name) = (b"new"[..].into(), b"old"[..].into());
    let renames = RenameRequest {
        parent,
        name,
        new_parent,
        new_name,
        no_replace,
        exchange,
        whiteout,
        hold: false,
    };
    own.rename(&ctx, &renames).unwrap();

    let of = |name: &str, op: &str| {
        let of_file = records(&cluster, &["--file", &format!("weir:/{name}")]);
        let about = &name[..name.len().min(64)];
        of_file.iter().filter(|it| it["op"] == op && it["about"] == about).count()
    };
    assert_eq!((of("gone", "unlink"), of(&long, "unlink")), (1, 1));
    assert_eq!((of("old", "rename"), of("new", "rename")), (1, 1));
    assert_eq!(of("never", "unlink"), 0);
    cluster.weir(&["log", "--audit", "--file", "weir:/no/file"]).fails(&["no"]);
}

#[test]
fn audit_records_take_no_more_room_than_audit_records_says() {
    let place = Place::new();
    let cluster = place.up("bounds", &["--targets", "1"]);
    cluster.down(&[]);
    let set = |daemon: &str, audit_records: i64| {
        let path = cluster.dir().join(format!("{daemon}.toml"));
        let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        settings.insert("audit_records".into(), audit_records.into());
        fs::write(&path, settings.to_string()).unwrap();
    };
    ["meta", "data-1"].iter().for_each(|daemon| set(daemon, 8));
    cluster.weir(&["up"]).ok();
    let ctx = Context::root();
    let own = client(&cluster, false);
    let make = |n: u32| {
        let name = format!("f{n}");
        let options = CreateOptions::default();
        let (file, attr) = own.create(&ctx, FileId::ROOT, name.as_bytes(), &options).unwrap();
        file.write_at(&ctx, 0, b"text").unwrap();
        drop(file);
        own.open(&ctx, attr.file, Rights::READ).map(|(file, _)| drop(file)).unwrap();
        attr.file.0
    };
    let files: Vec<u64> = (0..30).map(make).collect();
    let last = |all: &[Value]| {
        all.iter().any(|it| it["op"] == "write" && it["file"] == *files.last().unwrap())
    };
    eventually("the last is recorded", || last(&records(&cluster, &[])));
    let all = records(&cluster, &[]);
    let of_target = all.iter().filter(|it| !it["target"].is_null()).count();
    assert!(of_target <= 8 && all.len() - of_target <= 8, "{}", all.len());
    cluster.down(&[]);
    let files = [cluster.dir().join("targets/1/audit"), cluster.dir().join("meta/audit")];
    for file in &files {
        let size = fs::metadata(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).len();
        assert!(size > 0 && size <= 8 * 192, "{}: {size}", file.display());
    }
    ["meta", "data-1"].iter().for_each(|daemon| set(daemon, 0));
    cluster.weir(&["up"]).ok();
    assert!(records(&cluster, &[]).is_empty(), "nothing is recorded");
}
