//! The metadata of a cluster is saved while it runs, lost, and restored.

use crate::harness::{Place, noise};
use std::fs;

#[test]
fn a_lost_namespace_comes_back_from_an_export_and_leads_to_the_same_bytes() {
    let place = Place::new();
    let cluster = place.up("backup", &["--targets", "2"]);
    let data = noise(300_000, 1);
    fs::write(place.path("file"), &data).unwrap();
    cluster.weir(&["mkdir", "weir:/dir"]).ok();
    for n in 0..20 {
        cluster.weir(&["cp", "-q", "file", &format!("weir:/dir/file-{n}")]).ok();
    }
    let said = cluster.weir(&["meta", "export", "saved"]).ok();
    assert!(said.starts_with("saved ") && said.ends_with(" in saved\n"), "{said}");
    assert!(!place.path("saved.partial").exists());
    // The same on standard output, from the same state.
    let mut command = cluster.command(&["meta", "export", "-"]);
    let piped = command.output().unwrap();
    assert!(piped.status.success());
    let records = |bytes: &[u8]| bytes.windows(8).filter(|w| *w == b"d/dir").count();
    assert_eq!(records(&piped.stdout), records(&fs::read(place.path("saved")).unwrap()));

    cluster.weir(&["cp", "-q", "file", "weir:/dir/after the export"]).ok();
    cluster.weir(&["down"]).ok();
    let meta = cluster.dir().join("meta");
    fs::remove_dir_all(&meta).unwrap();

    // A damaged one is refused and makes nothing that a server would serve.
    let mut damaged = fs::read(place.path("saved")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(place.path("damaged"), damaged).unwrap();
    let into = meta.to_str().unwrap();
    let import = |file| cluster.weir(&["meta", "import", "--dir", into, file]);
    import("damaged").fails(&["damaged: ", "damaged at byte", "remove ", "before you try again"]);
    import("saved").fails(&["not empty"]);
    fs::remove_dir_all(&meta).unwrap();
    let said = import("saved").ok();
    assert!(said.contains("made ") && said.contains(" records, as of operation "), "{said}");
    import("saved").fails(&["not empty"]);

    cluster.weir(&["up"]).ok();
    let listed = cluster.weir(&["ls", "weir:/dir"]).ok();
    assert_eq!(listed.lines().count(), 20, "{listed}");
    for n in [0, 7, 19] {
        cluster.weir(&["cp", "-q", &format!("weir:/dir/file-{n}"), "back"]).ok();
        assert!(fs::read(place.path("back")).unwrap() == data);
    }
    // New files get objects with new names, not those of the lost file.
    let other = noise(300_000, 2);
    fs::write(place.path("other"), &other).unwrap();
    cluster.weir(&["cp", "-q", "other", "weir:/dir/new"]).ok();
    cluster.weir(&["cp", "-q", "weir:/dir/new", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == other);
}

#[test]
fn an_export_needs_an_administrator_and_a_server_a_configuration() {
    let place = Place::new();
    let cluster = place.up("plain", &["--targets", "1"]);
    cluster.weir(&["key", "new", "--output", "ordinary.toml"]).ok();
    let ordinary = ["meta", "export", "--credential", "ordinary.toml", "saved"];
    cluster.weir(&ordinary).fails(&["administrator"]);
    assert!(!place.path("saved").exists() && !place.path("saved.partial").exists());
    let said = cluster.weir(&["meta"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--config"), "{said:?}");
}
