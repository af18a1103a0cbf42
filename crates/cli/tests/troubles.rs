//! What is wrong with a cluster as `weir status` says it, of real daemons: the line that says what,
//! the one that says what to do, the exit code, and the kind that programs see. What a disk does is
//! in `health.rs` and `hung_disks.rs`, and every wording in `cluster/trouble/tests.rs`.

use crate::harness::{Cluster, Place, Said, eventually, noise};
use crate::library::client;
use std::fs;
use weir_client::{Client, Context, CreateOptions};
use weir_types::{FileId, LayoutSpec};

/// The minimum of the setting, so that a killed server is soon missed.
const MISSED_AFTER_MS: i64 = 2_500;

/// Starts a cluster of so many servers with a target each, of these settings.
fn start<'a>(
    place: &'a Place,
    (name, targets): (&str, &str),
    settings: &[(&str, &str, i64)],
) -> Cluster<'a> {
    let cluster = place.up(name, &["--targets", targets]);
    cluster.weir(&["down"]).ok();
    for (daemon, key, value) in settings {
        let path = cluster.dir().join(format!("{daemon}.toml"));
        let mut table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        table.insert((*key).to_owned(), (*value).into());
        fs::write(&path, table.to_string()).unwrap();
    }
    cluster.weir(&["up"]).ok();
    cluster
}

/// A file of one column with its copies on the targets from the first one on.
fn write(client: &Client, name: &str, copies: u8, data: &[u8]) {
    let (ctx, base) = (Context::root(), Some(0));
    let layout = LayoutSpec { copies, count: 1, base, ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let made = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options);
    let (file, _) = made.unwrap();
    file.write_at(&ctx, 0, data).unwrap();
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
}

/// The line with `TROUBLE:` and all of these words, and the one below it.
fn line(said: &Said, words: &[&str]) -> Option<(String, String)> {
    let mut lines = said.out.lines();
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    let what = lines.find(|line| line.starts_with("TROUBLE: ") && has_all(line))?;
    Some((what.to_owned(), lines.next().unwrap_or("").to_owned()))
}

/// It is said sooner or later, with what to do, and the command ends with 1; so says `--json`.
#[track_caller]
fn is_told(status: &dyn Fn(&[&str]) -> Said, kind: &str, what: &[&str], remedy: &[&str]) {
    let mut last = String::new();
    eventually(kind, || {
        let said = status(&["status"]);
        let found = line(&said, what);
        last = format!("{}{}", said.out, said.err);
        let Some((_, below)) = found else { return false };
        assert_eq!(said.code, Some(1), "{last}");
        assert!(!said.out.contains("All is well"), "{last}");
        assert!(below.starts_with("  -> "), "{last}");
        assert!(remedy.iter().all(|word| below.contains(word)), "{last}");
        true
    });
    let said = status(&["status", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let troubles = json["trouble"].as_array().unwrap();
    let has = |text: &serde_json::Value, words: &[&str]| {
        words.iter().all(|word| text.as_str().unwrap().contains(word))
    };
    let is_it = |trouble: &serde_json::Value| {
        let said = has(&trouble["what"], what) && has(&trouble["remedy"], remedy);
        trouble["kind"] == kind && said
    };
    assert!(troubles.iter().any(is_it), "no {kind}: {troubles:?}\n{last}");
}

#[track_caller]
fn all_is_well(cluster: &Cluster<'_>) {
    let is_well = || {
        let said = cluster.weir(&["status"]);
        said.code == Some(0) && said.out.contains("All is well") && !said.out.contains("TROUBLE")
    };
    eventually("all is well", is_well);
}

#[test]
fn that_no_target_is_online_is_said_with_what_starts_them() {
    let place = Place::new();
    let soon = [("meta", "target_timeout_ms", MISSED_AFTER_MS)];
    let cluster = start(&place, ("none", "2"), &soon);
    cluster.kill("data-1");
    cluster.kill("data-2");
    let status = |command: &[&str]| cluster.weir(command);
    let what = ["none of the 2 targets is online", "nothing can be read or written"];
    is_told(&status, "no_target_online", &what, &["`weir up` on their machines", "`weir targets`"]);
    is_told(&status, "daemon_down", &["data-2 does not run"], &["`weir up`", "`weir log data-2`"]);
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
}

/// From half of the time on after which it counts as offline.
#[test]
fn who_was_not_heard_of_for_a_while_is_named() {
    let place = Place::new();
    let cluster = start(&place, ("silent", "2"), &[("meta", "target_timeout_ms", 10_000)]);
    cluster.kill("data-2");
    let status = |command: &[&str]| cluster.weir(command);
    let what = ["target 2: data-2 on ", "has not been heard of for "];
    is_told(&status, "target_suspect", &what, &["if it stays so, look at ", "network"]);
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
}

#[test]
fn a_key_that_is_refused_is_said_of_clients_and_of_data_servers() {
    let place = Place::new();
    let cluster = start(&place, ("keys", "2"), &[]);
    // The same credential with an unknown key.
    let path = place.path("other.toml");
    let text = fs::read_to_string(cluster.dir().join("client.toml")).unwrap();
    let mut text: toml::Table = text.parse().unwrap();
    text.insert("key".to_owned(), "5a".repeat(32).into());
    fs::write(&path, text.to_string()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    let status = |command: &[&str]| {
        place.weir(&[command, &["--credential", path.to_str().unwrap()]].concat())
    };
    let remedy = ["credential of this cluster", "client.toml", "`weir key new`"];
    is_told(&status, "key_refused", &["cannot connect to cluster"], &remedy);
    all_is_well(&cluster);

    // A data server with the key of another one.
    let keys = cluster.dir().join("keys");
    let own = fs::read(keys.join("server-2.key")).unwrap();
    cluster.kill("data-2");
    fs::copy(keys.join("server-1.key"), keys.join("server-2.key")).unwrap();
    // It may still count as there.
    cluster.weir(&["up"]);
    let status = |command: &[&str]| cluster.weir(command);
    let what = ["data-2: ", "the server does not know our key"];
    let remedy = ["if only one data server refuses", "server_key_file"];
    is_told(&status, "key_refused", &what, &remedy);
    fs::write(keys.join("server-2.key"), own).unwrap();
    cluster.kill("data-2");
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
}

#[test]
fn copies_for_which_there_is_no_target_are_counted() {
    let place = Place::new();
    let soon = [("meta", "target_timeout_ms", MISSED_AFTER_MS), ("meta", "rebuild_after_ms", 100)];
    let cluster = start(&place, ("missing", "2"), &soon);
    write(&client(&cluster, false), "two", 2, &noise(100_000, 1));
    all_is_well(&cluster);
    cluster.kill("data-2");
    let status = |command: &[&str]| cluster.weir(command);
    let what = ["1 segments of files have fewer copies than they should", "no target for more"];
    let remedy = ["`weir targets`", "`weir server add`", "`weir fsck` names the files"];
    is_told(&status, "copies_missing", &what, &remedy);
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
}

#[test]
fn copies_that_are_to_be_made_of_what_is_away_are_counted() {
    let place = Place::new();
    // It dies before it has given its copy away.
    let slow =
        [("meta", "target_timeout_ms", MISSED_AFTER_MS), ("data-1", "resync_bytes_per_s", 500_000)];
    let cluster = start(&place, ("away", "2"), &slow);
    write(&client(&cluster, false), "one", 1, &noise(8 << 20, 1));
    cluster.weir(&["target", "drain", "1"]).ok();
    let filling = || cluster.weir(&["status", "--json"]).json()["copies"]["filling"].clone();
    eventually("it is being made", || filling().as_u64() > Some(0));
    cluster.kill("data-1");
    let status = |command: &[&str]| cluster.weir(command);
    let what = ["1 copies are to be made of what no copy is online"];
    let remedy = ["`weir targets`", "bring one back", "`weir fsck` names the files"];
    is_told(&status, "copies_without_source", &what, &remedy);
    cluster.weir(&["target", "undrain", "1"]).ok();
    cluster.weir(&["up"]).ok();
    all_is_well(&cluster);
}
