//! Real daemons are killed at the steps of encoding, thawing and repair, and disks are full
//! meanwhile: every file has what was written to it, and gets its parities in the end.
//!
//! `WEIR_KILL_CYCLES` says how many cycles (6); `WEIR_SEED` brings a run's choices back.

use crate::disk::{Disk, succeeds};
use crate::harness::{Cluster, Place, eventually_within, noise, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use weir_conformance::Random;

const LEN: usize = 3_000_001;
const FILES: usize = 3;
const SERVERS: u64 = 7;
/// Long enough for any machine: what is awaited comes in seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is seen of a file that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Its parities are being made.
    Sealed,
    /// Its parities count, and not all copies have gone.
    Switched,
    /// It has parities, and copies are made beside them.
    Thawing,
    /// It has its parities and nothing else.
    Encoded,
    /// It has copies.
    Copies,
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

struct Files<'a> {
    cluster: Cluster<'a>,
    at: PathBuf,
    bytes: Vec<Vec<u8>>,
}

impl Files<'_> {
    fn layout(&self, file: usize) -> Option<Value> {
        let path = format!("weir:/d/f{file}");
        let said = self.cluster.command(&["layout", "--json", &path]).output().unwrap();
        // The metadata server may be dead just now.
        let layout: Value = serde_json::from_slice(&said.stdout).ok()?;
        Some(layout[0]["segments"][0].clone())
    }

    fn step(&self, file: usize) -> Option<Step> {
        let layout = self.layout(file)?;
        let objects = layout["objects"].as_array()?;
        let is_filling = objects.iter().any(|o| o["state"] != "online");
        Some(match (layout["coded"] == true, layout["parities"] != 0) {
            (false, false) => Step::Copies,
            (false, true) => Step::Sealed,
            (true, _) if objects.len() == 6 && !is_filling => Step::Encoded,
            (true, _) if is_filling => Step::Thawing,
            (true, _) => Step::Switched,
        })
    }

    /// Waits until a file is seen at one of some steps.
    fn wait_for(&self, file: usize, steps: &[Step]) -> Step {
        let mut seen = None;
        eventually_within(PATIENCE, &format!("file {file} is one of {steps:?}"), || {
            seen = self.step(file).filter(|step| steps.contains(step));
            seen.is_some()
        });
        seen.unwrap()
    }

    /// Rewrites a part of a file, with as many attempts as needed.
    fn write(&mut self, file: usize, random: &mut Random) {
        let len = 1 + random.below(300_000) as usize;
        let (offset, news) =
            (random.below((LEN - len) as u64) as usize, noise(len, random.below(99)));
        let path = self.at.join(format!("f{file}"));
        eventually_within(PATIENCE, "it is written", || {
            let write = || {
                let open = OpenOptions::new().write(true).open(&path)?;
                open.write_all_at(&news, offset as u64)?;
                open.sync_all()
            };
            write().is_ok()
        });
        self.bytes[file][offset..offset + len].copy_from_slice(&news);
    }

    fn check(&self, file: usize, what: &str) {
        let path = self.at.join(format!("f{file}"));
        let mut read = Vec::new();
        eventually_within(PATIENCE, "it can be read", || {
            fs::read(&path).map(|bytes| read = bytes).is_ok()
        });
        assert!(read == self.bytes[file], "file {file} {what}");
    }

    /// Kills one or two daemons, which are started again.
    fn kill(&self, random: &mut Random) -> BTreeSet<String> {
        let mut dead = BTreeSet::new();
        for _ in 0..=random.below(2) {
            dead.insert(match random.below(4) {
                0 => "meta".to_owned(),
                _ => format!("data-{}", 1 + random.below(SERVERS)),
            });
        }
        dead.iter().for_each(|daemon| self.cluster.kill(daemon));
        dead
    }
}

fn up(place: &Place) -> Files<'_> {
    with_files(place.up("encoded", &["--targets", &SERVERS.to_string()]))
}

fn with_files(cluster: Cluster<'_>) -> Files<'_> {
    cluster.weir(&["mkdir", "/d"]).ok();
    let wish = ["--copies", "3", "--reduce", "rs:4+2", "--after", "0s"];
    cluster.weir(&[&["setlayout", "weir:/d"][..], &wish].concat()).ok();
    let at = cluster.mount("m", "rw").join("d");
    let bytes: Vec<Vec<u8>> = (0..FILES).map(|file| noise(LEN, file as u64)).collect();
    for (file, bytes) in bytes.iter().enumerate() {
        fs::write(at.join(format!("f{file}")), bytes).unwrap();
    }
    Files { cluster, at, bytes }
}

#[test]
fn whoever_is_killed_at_a_step_of_encoding_no_byte_is_wrong_and_all_is_encoded() {
    if !root() {
        return;
    }
    let seed = number("WEIR_SEED", 1);
    println!("WEIR_SEED={seed}");
    let mut random = Random::new(seed);
    let place = Place::new();
    let mut files = up(&place);
    let steps = [Step::Sealed, Step::Switched, Step::Thawing];
    for cycle in 0..number("WEIR_KILL_CYCLES", 6) {
        let file = random.below(FILES as u64) as usize;
        let step = steps[cycle as usize % steps.len()];
        let dead = if step == Step::Thawing {
            files.wait_for(file, &[Step::Encoded]);
            let path = files.at.join(format!("f{file}"));
            std::thread::scope(|scope| {
                let (open, is_to_close) = mpsc::channel::<()>();
                // The open waits for copies, which are made while daemons die. Until the file is
                // closed it gets no parities, however late it is checked.
                let writer = scope.spawn(move || {
                    let opened = OpenOptions::new().write(true).open(&path);
                    let _ = is_to_close.recv();
                    opened.map(drop)
                });
                files.wait_for(file, &[Step::Thawing, Step::Copies]);
                let dead = files.kill(&mut random);
                files.cluster.weir(&["up"]).ok();
                drop(open);
                // Whether or not the writer got an error.
                let _ = writer.join().unwrap();
                dead
            })
        } else {
            files.write(file, &mut random);
            files.wait_for(file, &[step, Step::Encoded]);
            let dead = files.kill(&mut random);
            files.cluster.weir(&["up"]).ok();
            dead
        };
        println!("cycle {cycle}: {step:?} of file {file} without {dead:?}");
        (0..FILES).for_each(|file| files.check(file, &format!("after cycle {cycle}")));
    }
    for file in 0..FILES {
        files.wait_for(file, &[Step::Encoded]);
    }
    // From parities alone, where a part is missing.
    for server in 1..=SERVERS {
        files.cluster.kill(&format!("data-{server}"));
        (0..FILES).for_each(|file| files.check(file, &format!("without server {server}")));
        files.cluster.weir(&["up"]).ok();
    }
    files.cluster.weir(&["fsck"]).ok();
    files.cluster.umount(files.at.parent().unwrap());
}

#[test]
fn whoever_is_killed_while_a_lost_part_is_computed_it_is_whole_in_the_end() {
    if !root() {
        return;
    }
    let mut random = Random::new(number("WEIR_SEED", 2));
    let place = Place::new();
    let files = up(&place);
    for file in 0..FILES {
        files.wait_for(file, &[Step::Encoded]);
    }
    let layout = files.layout(0).unwrap();
    let lost = &layout["objects"].as_array().unwrap()[random.below(6) as usize];
    let (target, server) = (lost["target"].clone(), lost["server"].as_i64().unwrap());
    files.cluster.kill(&format!("data-{server}"));
    files.cluster.forget(server);
    eventually_within(PATIENCE, "it is missed, and may be removed", || {
        let words = ["target", "remove", &target.to_string(), "--force", "--yes"];
        files.cluster.command(&words).output().unwrap().status.success()
    });
    // What it had is on its way to the seventh.
    for daemon in ["meta", if server == 7 { "data-6" } else { "data-7" }] {
        files.cluster.kill(daemon);
        files.cluster.weir(&["up"]).ok();
    }
    for file in 0..FILES {
        eventually_within(PATIENCE, "what it had is elsewhere", || {
            let layout = files.layout(file);
            let has = |o: &Value| o["target"] == target || o["state"] != "online";
            layout.is_some_and(|layout| !layout["objects"].as_array().unwrap().iter().any(has))
        });
        files.wait_for(file, &[Step::Encoded]);
        files.check(file, "after the repair");
    }
    files.cluster.weir(&["fsck"]).ok();
    files.cluster.umount(files.at.parent().unwrap());
}

#[test]
fn a_disk_that_is_full_while_files_are_encoded_costs_no_byte_and_no_parities_in_the_end() {
    let place = Place::new();
    let Some(disk) = Disk::memory(&place, "96m") else { return };
    let cluster = place.up("encoded", &["--targets", &SERVERS.to_string()]);
    cluster.weir(&["down"]).ok();
    let (dir, there) = (cluster.dir().join("targets/3"), disk.at.join("target"));
    assert!(succeeds("cp", &[&"-a", &dir, &there]));
    fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    cluster.weir(&["up"]).ok();
    let mut files = with_files(cluster);
    let mut random = Random::new(number("WEIR_SEED", 3));
    let filler = disk.at.join("filler");
    for round in 0..2 {
        for file in 0..FILES {
            files.write(file, &mut random);
        }
        files.wait_for(0, &[Step::Sealed, Step::Switched, Step::Encoded]);
        // Until nothing more goes there.
        let full = fs::write(&filler, vec![1; 96 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        for file in 0..FILES {
            files.check(file, &format!("in round {round}, with a full disk"));
        }
        fs::remove_file(&filler).unwrap();
        for file in 0..FILES {
            files.wait_for(file, &[Step::Encoded]);
            files.check(file, &format!("after round {round}"));
        }
    }
    files.cluster.weir(&["fsck"]).ok();
    files.cluster.umount(files.at.parent().unwrap());
}
