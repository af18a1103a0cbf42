//! Cycles of `kill -9` and restart of random daemons under a mixed load of
//! real processes: two clients of the library, with and without cache, and a
//! program on the mount. Every acknowledged operation is checked, by the loads
//! as they go and from the servers in the end.
//!
//! `WEIR_CYCLES` says how many (12), of two clusters side by side: each waits much.
//! `WEIR_SEED` brings a run's choices back.

use crate::cycle_load::{self, LibraryLoad, MountLoad};
use crate::harness::{Cluster, Place, eventually, root};
use std::time::Duration;
use weir_conformance::Random;

const DAEMONS: &[&str] = &["meta", "data-1", "data-2", "data-3", "data-4"];
/// A cycle is over when every load has done so much more.
const OPERATIONS_PER_CYCLE: u64 = 12;
/// A daemon stays away at most so long: clients wait for 30 s.
const MAX_AWAY_MS: u64 = 700;

/// Not a test: what the loads run. See [`cycle_load`].
#[test]
fn load_process() {
    cycle_load::run_if_asked();
}

/// Which daemons die in one cycle.
enum Victims {
    Servers(Vec<&'static str>),
    Mount,
}

fn choose(random: &mut Random) -> Victims {
    match random.below(10) {
        0 => Victims::Servers(DAEMONS.to_vec()),
        1 => Victims::Servers(DAEMONS[1..].to_vec()),
        2 => Victims::Mount,
        3..5 => Victims::Servers(vec![DAEMONS[0]]),
        _ => {
            let first = DAEMONS[1 + random.below(4) as usize];
            let second = DAEMONS[random.below(5) as usize];
            if first == second || random.below(2) == 0 {
                Victims::Servers(vec![first])
            } else {
                Victims::Servers(vec![first, second])
            }
        }
    }
}

struct Loads {
    library: Vec<(&'static str, LibraryLoad)>,
    mount: MountLoad,
}

impl Loads {
    fn done(&self) -> Vec<u64> {
        let library = self.library.iter().map(|(_, load)| load.done());
        library.chain([self.mount.done()]).collect()
    }

    fn check(&mut self) {
        for (name, load) in &mut self.library {
            if let Some(log) = load.failure() {
                panic!("load {name} failed:\n{log}");
            }
        }
    }

    fn check_mount(&mut self) {
        if let Some(log) = self.mount.failure() {
            panic!("the program on the mount failed:\n{log}");
        }
    }

    /// Waits until each has done so much more.
    fn wait_for(&mut self, operations: u64) {
        let before = self.done();
        eventually("every load goes on", || {
            self.check();
            self.check_mount();
            // Each file on the mount is several operations.
            let want = |i: usize, b: u64| if i < 2 { b + operations } else { b + 2 };
            self.done().iter().zip(&before).enumerate().all(|(i, (now, b))| *now >= want(i, *b))
        });
    }
}

#[test]
fn nothing_acknowledged_is_lost_over_many_kills() {
    half_of_the_cycles("cycles");
}

#[test]
fn nothing_acknowledged_is_lost_over_as_many_of_another_cluster() {
    half_of_the_cycles("others");
}

fn half_of_the_cycles(name: &str) {
    if !root() {
        return;
    }
    let cycles: u64 = std::env::var("WEIR_CYCLES").map_or(12, |text| text.parse().unwrap());
    let cycles = cycles.div_ceil(2);
    let seed = Random::seed_of_run();
    let mut random = Random::new(seed);
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up(name, &["--mount", at.to_str().unwrap()]);
    let dir = at.join("work");
    std::fs::create_dir(&dir).unwrap();
    let load = |name: &'static str, cached| {
        (name, LibraryLoad::start(&cluster, place.path(name), seed + u64::from(cached), cached))
    };
    let mut loads = Loads {
        library: vec![load("cached", true), load("direct", false)],
        mount: MountLoad::start(dir, place.path("mounted")),
    };
    for cycle in 0..cycles {
        loads.wait_for(OPERATIONS_PER_CYCLE);
        println!("cycle {cycle}: {:?} operations so far", loads.done());
        match choose(&mut random) {
            Victims::Servers(daemons) => {
                for daemon in daemons {
                    cluster.kill(daemon);
                }
                std::thread::sleep(Duration::from_millis(random.below(MAX_AWAY_MS)));
                place.weir(&["up", "--name", &cluster.name]).ok();
            }
            Victims::Mount => {
                cluster.kill(&mount_daemon(&cluster));
                cluster.weir(&["mount", at.to_str().unwrap()]).ok();
                loads.mount.start_again();
            }
        }
    }
    loads.wait_for(OPERATIONS_PER_CYCLE);
    let files = loads.mount.finish();
    let manifests: Vec<_> = loads.library.into_iter().map(|(n, l)| (n, l.finish())).collect();
    // From the disks, by servers that were stopped in good order.
    cluster.weir(&["umount", at.to_str().unwrap()]).ok();
    cluster.weir(&["down", "--name", &cluster.name]).ok();
    place.weir(&["up", "--name", &cluster.name]).ok();
    for (name, manifest) in &manifests {
        cycle_load::verify(&cluster, &format!("weir:/{name}"), manifest);
    }
    println!("{cycles} cycles: {files} files on the mount");
}

fn mount_daemon(cluster: &Cluster<'_>) -> String {
    let run = std::fs::read_dir(cluster.dir().join("run")).unwrap().flatten();
    let mut names = run.map(|f| f.file_name().to_string_lossy().into_owned());
    let found = names.find(|n| n.starts_with("mount-") && n.ends_with(".pid")).unwrap();
    found.trim_end_matches(".pid").to_string()
}
