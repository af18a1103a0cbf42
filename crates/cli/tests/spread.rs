//! `weir spread`: records to whichever disks take them.

use crate::harness::{self, Cluster, Place, Running, eventually, said};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines of different lengths.
fn lines(writer: u32) -> Vec<String> {
    (0..20_000).map(|n| format!("{writer} {n} {}", "x".repeat(n % 97))).collect()
}

/// Spreads what is given to it on standard input.
fn spread(cluster: &Cluster<'_>, arguments: &[&str], input: &[u8]) -> harness::Said {
    let mut command = cluster.command(&[&["spread"], arguments].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that has ended says why.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    harness::Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn all_lines_of_several_writers_are_in_fragments_on_all_disks_once() {
    let place = Place::new();
    let cluster = place.up("spread", &["--targets", "3"]);
    let (mut all, mut targets) = (Vec::new(), BTreeSet::new());
    for writer in 0..3 {
        let lines = lines(writer);
        // By its rank, as a launcher tells it.
        let mut command = cluster.command(&["spread", "--batch", "64K", "weir:/out", "--json"]);
        let path = place.path(&format!("lines{writer}"));
        std::fs::write(&path, lines.join("\n")).unwrap();
        command.arg(&path).env("OMPI_COMM_WORLD_RANK", writer.to_string());
        command.env("OMPI_COMM_WORLD_SIZE", "3").env("PMIX_NAMESPACE", "job");
        let told = said(command).json();
        let fragments = told["fragments"].as_array().unwrap();
        let prefix = format!("part-{writer}-");
        assert!(fragments.iter().all(|f| f["name"].as_str().unwrap().starts_with(&prefix)));
        targets.extend(fragments.iter().map(|f| f["target"].as_u64().unwrap()));
        all.extend(lines);
    }
    assert_eq!(targets.len(), 3, "{targets:?}");
    let names = cluster.weir(&["ls", "weir:/out"]).ok();
    let paths: Vec<String> = names.lines().map(|name| format!("weir:/out/{name}")).collect();
    let mut cat = vec!["cat"];
    cat.extend(paths.iter().map(String::as_str));
    let found = cluster.weir(&cat).ok();
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    all.sort_unstable();
    assert!(found == all, "{} lines of {}", found.len(), all.len());
}

/// The targets of the fragments that are told of, which are those by their layouts.
fn targets(cluster: &Cluster<'_>, dir: &str, told: &serde_json::Value) -> BTreeSet<u64> {
    let target = |fragment: &serde_json::Value| {
        let path = format!("weir:/{dir}/{}", fragment["name"].as_str().unwrap());
        let layout = cluster.weir(&["layout", "--json", &path]).json();
        let found = &layout[0]["segments"][0]["objects"][0]["target"];
        assert_eq!(found, &fragment["target"], "{path}");
        found.as_u64().unwrap()
    };
    told["fragments"].as_array().unwrap().iter().map(target).collect()
}

#[test]
fn all_targets_get_fragments_however_they_came_and_those_that_are_drained_none() {
    let place = Place::new();
    let cluster = place.up("targets", &["--targets", "2", "--targets-per-server", "1"]);
    // So that targets are in another order by servers than by their numbers.
    cluster.weir(&["target", "add", "--server", "1"]).ok();
    let bytes = vec![7; 4 << 20];
    let spread = |dir: &str| {
        let to = format!("weir:/{dir}");
        let order = ["--record", "64", "--batch", "64K", "--json", &to];
        let said = spread(&cluster, &order, &bytes);
        targets(&cluster, dir, &said.json())
    };
    assert_eq!(spread("all"), BTreeSet::from([1, 2, 3]));
    cluster.weir(&["target", "drain", "3"]).ok();
    assert_eq!(spread("drained"), BTreeSet::from([1, 2]));
}

#[test]
fn what_cannot_be_spread_is_refused_with_a_way_out() {
    let place = Place::new();
    let cluster = place.up("refused", &["--targets", "1"]);
    let out = spread(&cluster, &["--record", "8", "weir:/out"], &[7; 800]);
    assert!(out.out.contains("100.0%"), "{out:?}");
    // The same fragments once more.
    spread(&cluster, &["--record", "8", "weir:/out"], &[7; 800])
        .fails(&["part-0-0000", "--writer"]);
    spread(&cluster, &["--record", "8", "--writer", "b", "weir:/out"], &[7; 804])
        .fails(&["4 bytes are left"]);
    spread(&cluster, &["--writer", "a/b", "weir:/out"], b"").fails(&["without /"]);
    spread(&cluster, &["--batch", "1G", "weir:/out"], b"").fails(&["64 MiB"]);
    cluster.weir(&["mkfile", "weir:/file"]).ok();
    spread(&cluster, &["weir:/file"], b"").fails(&["not a directory"]);
}

#[test]
fn credits_are_how_many_batches_are_under_way_to_a_disk() {
    let place = Place::new();
    let cluster = place.up("credits", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/out"]).ok();
    let stopped = cluster.stopped(&["data-1"]);
    let start = |writer: &str, credits: &str| {
        let fixed = ["spread", "--record", "64", "--batch", "64K", "weir:/out"];
        let mut command =
            cluster.command(&[&fixed[..], &["--writer", writer, "--credits", credits]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let taken = Arc::new(AtomicU32::new(0));
        let counter = taken.clone();
        let feeder = std::thread::spawn(move || {
            for _ in 0..40 {
                input.write_all(&[7; 64 << 10]).unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        (Running(child), taken, feeder)
    };
    let (one, many) = (start("a", "1"), start("b", "16"));
    eventually("all credits are used", || many.1.load(Ordering::SeqCst) >= 16);
    // One batch, the next one, and what is in the pipe.
    let taken = one.1.load(Ordering::SeqCst);
    assert!(taken <= 8, "{taken}");
    drop(stopped);
    for (mut spread, _, feeder) in [one, many] {
        feeder.join().unwrap();
        assert!(spread.0.wait().unwrap().success());
    }
}
