//! Hints on files and directories, how far mounts are to see each other's
//! changes: `user.weir.consistency`.

use crate::coherence_io::{Two, open, read_all, two};
use crate::harness::{Place, root};
use crate::library;
use crate::mounted::sh;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use weir_client::ClientConfig;
use weir_types::{Consistency, FileId};
use weir_wire::Rights;

const HINT: &str = "user.weir.consistency";

fn set(path: &Path, hint: &str) {
    setxattr(path, HINT, hint.as_bytes(), XattrFlags::empty()).unwrap();
}

fn hint(path: &Path) -> Option<String> {
    let mut value = [0; 64];
    let n = getxattr(path, HINT, &mut value[..]).ok()?;
    Some(String::from_utf8(value[..n].to_vec()).unwrap())
}

/// Requests of one kind that a server has answered.
fn answered(status: weir_wire::data::ServerStatus, kind: &str) -> u64 {
    let name = format!("op.{kind}");
    status.counters.iter().find(|(found, _)| *found == name).map_or(0, |(_, value)| *value)
}

fn asked(watcher: &weir_client::Client, kind: &str) -> u64 {
    answered(watcher.metadata_status().unwrap(), kind)
}

/// Reads that the data servers have answered.
fn reads(watcher: &weir_client::Client) -> u64 {
    let of = |target| watcher.data_status(weir_types::TargetId(target), 5000).unwrap();
    [1, 2].map(|target| answered(of(target), "read")).iter().sum()
}

#[test]
fn a_hint_is_checked_inherited_and_shown() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "hint", "");
    fs::create_dir(a.join("d")).unwrap();
    fs::write(a.join("d/before"), "").unwrap();
    for bad in ["", "Strict", "relaxed\n", "sometimes"] {
        let error = setxattr(a.join("d"), HINT, bad.as_bytes(), XattrFlags::empty()).unwrap_err();
        assert_eq!(error, rustix::io::Errno::INVAL, "{bad:?}");
    }
    assert_eq!(hint(&a.join("d")), None);
    set(&a.join("d"), "relaxed");
    fs::create_dir_all(b.join("d/sub/sub")).unwrap();
    fs::write(b.join("d/sub/sub/f"), "").unwrap();
    rustix::fs::symlinkat("f", rustix::fs::CWD, b.join("d/sub/link")).unwrap();
    for made in ["d", "d/sub", "d/sub/sub", "d/sub/sub/f"] {
        assert_eq!(hint(&a.join(made)).as_deref(), Some("relaxed"), "{made}");
    }
    let mut names = [0; 256];
    let n = listxattr(a.join("d/sub/sub/f"), &mut names[..]).unwrap();
    assert_eq!(&names[..n], format!("{HINT}\0").as_bytes());
    // Not what was there before; a file may have another one than its directory.
    assert_eq!(hint(&a.join("d/before")), None);
    set(&b.join("d/sub/sub/f"), "none");
    assert_eq!(hint(&a.join("d/sub/sub/f")).as_deref(), Some("none"));
    let shown = cluster.weir(&["stat", "/d", "/d/sub/sub/f", "/d/before"]).ok();
    let lines: Vec<&str> = shown.lines().filter(|line| line.contains("Consistency")).collect();
    assert_eq!(lines, ["Consistency: relaxed", "Consistency: none"]);
    let shown = cluster.weir(&["stat", "--json", "/d/sub/sub/f"]).json();
    assert_eq!(shown[0]["consistency"], "none");
    removexattr(b.join("d"), HINT).unwrap();
    fs::write(a.join("d/after"), "").unwrap();
    assert_eq!(hint(&b.join("d/after")), None);
    fs::remove_dir_all(a.join("d")).unwrap();
    cluster.weir(&["fsck"]).ok();
}

#[test]
fn a_relaxed_file_on_strict_mounts_is_seen_when_it_was_closed_and_costs_no_leases() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "relaxed", "");
    let watcher = library::client(&cluster, false);
    fs::create_dir(a.join("d")).unwrap();
    set(&a.join("d"), "relaxed");
    fs::write(a.join("d/f"), "the first").unwrap();
    // On one mount it stays open all the time.
    let early = File::open(b.join("d/f")).unwrap();
    assert_eq!(read_all(&early), b"the first");
    let before = ["acquire", "get_xattr"].map(|kind| asked(&watcher, kind));
    for round in 10..30 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let text = format!("round {round}, the last byte of which is odd");
        // Without opening it again, so that both have it open for writing.
        let file = open(&here.join("d/f"));
        file.write_all_at(text.as_bytes(), 0).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(there.join("d/f")).unwrap(), text, "open after close");
        assert_eq!(fs::metadata(there.join("d/f")).unwrap().len(), text.len() as u64);
    }
    drop(early);
    let after = ["acquire", "get_xattr"].map(|kind| asked(&watcher, kind));
    assert_eq!(after[0], before[0], "no leases");
    assert!(after[1] - before[1] <= 30, "the hint comes with the open");
    // Two concurrent writers of different blocks lose nothing, and do not wait for each other.
    let (file_a, file_b) = (open(&a.join("d/both")), open(&b.join("d/both")));
    for block in 0..40u64 {
        let file = if block % 2 == 0 { &file_a } else { &file_b };
        file.write_all_at(&[block as u8 + 1; 4096], block * 4096).unwrap();
    }
    drop((file_a, file_b));
    for mount in [&a, &b] {
        let all = fs::read(mount.join("d/both")).unwrap();
        assert_eq!(all.len(), 40 * 4096);
        let right = all.chunks(4096).zip(1..).all(|(block, value)| block == [value; 4096]);
        assert!(right);
    }
    assert_eq!(asked(&watcher, "acquire"), before[0], "no leases");
    // The default beside it is what it was.
    fs::write(a.join("strict"), "one").unwrap();
    let (file_a, file_b) = (open(&a.join("strict")), open(&b.join("strict")));
    for value in 0..20u8 {
        file_a.write_all_at(&[value; 3], 0).unwrap();
        assert_eq!(read_all(&file_b), [value; 3]);
    }
    assert!(asked(&watcher, "acquire") > before[0]);
}

#[test]
fn a_file_without_caches_on_strict_mounts_is_asked_for_at_every_call() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "none", "");
    let none = cluster.mount("c", "consistency=none");
    let watcher = library::client(&cluster, false);
    fs::write(a.join("f"), "").unwrap();
    set(&b.join("f"), "none");
    // What says "strict" is no more than its mount.
    fs::write(a.join("g"), "").unwrap();
    set(&a.join("g"), "strict");
    let before = asked(&watcher, "acquire");
    for (name, others) in [("f", [&a, &b]), ("f", [&b, &none]), ("g", [&none, &none])] {
        let [writer, reader] = others.map(|mount| open(&mount.join(name)));
        for round in 1..20u8 {
            let len = 1000 * usize::from(round);
            writer.write_all_at(&vec![round; len], 0).unwrap();
            let before = reads(&watcher);
            let mut seen = [0; 700];
            for _ in 0..2 {
                reader.read_exact_at(&mut seen, 100).unwrap();
                assert_eq!(seen, [round; 700]);
            }
            assert_eq!(reads(&watcher) - before, 2, "read twice, asked twice");
            assert_eq!(read_all(&reader), vec![round; len]);
            for mount in [&a, &b, &none] {
                assert_eq!(fs::metadata(mount.join(name)).unwrap().len(), len as u64);
            }
        }
        writer.set_len(0).unwrap();
        assert_eq!(read_all(&reader), b"");
    }
    assert_eq!(asked(&watcher, "acquire"), before);
}

#[test]
fn a_database_without_caches_is_shared_by_two_mounts() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "database", "");
    fs::create_dir(a.join("d")).unwrap();
    set(&a.join("d"), "none");
    let sql = |at: &Path, text: &str| sh(&at.join("d"), &format!("sqlite3 db '{text}'"));
    sql(&a, "create table t(x); insert into t values(1)");
    for round in 2..12 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        sql(here, &format!("insert into t values({round})"));
        let seen = sql(there, "pragma integrity_check; select count(*), max(x) from t");
        assert_eq!(seen, format!("ok\n{round}|{round}\n"));
    }
}

#[test]
fn a_writer_without_leases_does_not_undo_a_cut_of_somebody_else() {
    let place = Place::new();
    let cluster = place.up("cut", &["--targets", "3"]);
    let (ctx, other) = (weir_client::Context::root(), library::client(&cluster, false));
    // Not with `none`, which promises nothing of a cut meanwhile (docs/semantics.md).
    let config = ClientConfig {
        consistency: Consistency::Relaxed,
        ..library::config(&cluster).without_cache()
    };
    let writer = weir_client::Client::connect(config).unwrap();
    let options = weir_client::CreateOptions::default();
    let (file, _) = writer.create(&ctx, FileId::ROOT, b"cut", &options).unwrap();
    file.write_at(&ctx, 0, &crate::harness::noise(100_000, 3)).unwrap();
    file.sync(&ctx).unwrap();
    // The servers have it, and the metadata server does not know.
    file.write_at(&ctx, 100_000, &crate::harness::noise(100_000, 4)).unwrap();
    let (cut, _) = other.open(&ctx, file.id(), Rights::READ_WRITE).unwrap();
    cut.truncate(&ctx, 1_000).unwrap();
    file.sync(&ctx).unwrap();
    assert_eq!(other.getattr(&ctx, file.id()).unwrap().size, 1_000);
    assert_eq!(file.size(), 1_000);
    // What it writes after the cut is there.
    file.write_at(&ctx, 70_000, &crate::harness::noise(1_000, 5)).unwrap();
    file.sync(&ctx).unwrap();
    assert_eq!(other.getattr(&ctx, file.id()).unwrap().size, 71_000);
    // Nor if it writes, and learns of the cut by that, before it tells of what was cut off.
    file.write_at(&ctx, 100_000, &crate::harness::noise(100_000, 6)).unwrap();
    cut.truncate(&ctx, 1_000).unwrap();
    file.write_at(&ctx, 0, &crate::harness::noise(10, 7)).unwrap();
    file.sync(&ctx).unwrap();
    assert_eq!(other.getattr(&ctx, file.id()).unwrap().size, 1_000);
    assert_eq!(file.size(), 1_000);
}

#[test]
fn the_layout_of_an_empty_file_and_of_a_directory_can_be_set_on_a_mount() {
    if !root() {
        return;
    }
    const LAYOUT: &str = "user.weir.layout";
    let place = Place::new();
    let Two { cluster, a, b } = two(&place, "layout", "");
    let shown = |path: &Path| {
        let mut value = [0; 128];
        let n = getxattr(path, LAYOUT, &mut value[..]).unwrap();
        String::from_utf8(value[..n].to_vec()).unwrap()
    };
    let set =
        |path: &Path, text: &str| setxattr(path, LAYOUT, text.as_bytes(), XattrFlags::empty());
    fs::create_dir(a.join("d")).unwrap();
    set(&a.join("d"), "unit=131072,count=1").unwrap();
    fs::write(b.join("d/f"), "").unwrap();
    assert_eq!(shown(&b.join("d/f")), "unit=131072,count=1,copies=1");
    // Of a file that is open, and written afterwards.
    let file = open(&a.join("d/f"));
    set(&b.join("d/f"), "unit=4096,count=2").unwrap();
    let data = crate::harness::noise(300_000, 1);
    file.write_all_at(&data, 0).unwrap();
    assert!(fs::read(b.join("d/f")).unwrap() == data);
    assert_eq!(shown(&a.join("d/f")), "unit=4096,count=2,copies=1");
    let told = cluster.weir(&["layout", "--json", "weir:/d/f"]).json();
    assert!(told.to_string().contains("\"stripe_unit_bytes\":4096"), "{told}");
    // It has data now; and what is no layout is refused.
    let invalid = Err(rustix::io::Errno::INVAL);
    // The same where it is open: what was written counts, also before others are told of it.
    let file = open(&a.join("d/g"));
    set(&a.join("d/g"), "unit=4096,count=2").unwrap();
    file.write_all_at(&data, 0).unwrap();
    assert_eq!(set(&a.join("d/g"), "unit=8192"), invalid);
    file.sync_all().unwrap();
    assert!(fs::read(b.join("d/g")).unwrap() == data);
    assert_eq!(shown(&b.join("d/g")), "unit=4096,count=2,copies=1");
    assert_eq!(set(&a.join("d/f"), "unit=8192"), invalid);
    for bad in ["", "unit=1", "unit=4096,width=2", "count=0"] {
        assert_eq!(set(&a.join("d"), bad), invalid, "{bad:?}");
    }
    set(&a.join("d"), "chunk=1048576").unwrap();
    assert_eq!(shown(&b.join("d")), "chunk=1048576,copies=1");
    removexattr(a.join("d"), LAYOUT).unwrap();
    assert_eq!(shown(&b.join("d")), shown(&b));
    let mut names = [0; 256];
    assert_eq!(listxattr(a.join("d"), &mut names[..]).unwrap(), 0, "it is not listed");
}
