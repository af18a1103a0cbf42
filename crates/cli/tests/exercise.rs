//! Models of files, trees and concurrent callers (`weir-exercise`), on one
//! mount and on several, on every layout, also while servers die and come back.
//!
//! `WEIR_SEED` brings a run's choices back.

use crate::harness::{Cluster, Place, again, root};
use crate::library::client;
use crate::mounted::Mounts;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use weir_client::Context;
use weir_conformance::{Random, layouts};
use weir_exercise::concurrent::{self, Kind, Launcher, Plan, Running};
use weir_exercise::{Outcome, fsx, tree};
use weir_types::FileId;

/// Steps of the model of a file on each layout.
const FILE_STEPS: u64 = 700;
const TREE_STEPS: u64 = 1200;

/// Not a test: what the callers run.
#[test]
fn worker_process() {
    concurrent::run_worker_if_asked().unwrap_or_else(|e| panic!("{e}"));
}

/// A directory for each layout, as every mount shows it.
fn directories(mounts: &Mounts<'_>) -> Vec<(&'static str, Vec<PathBuf>)> {
    let client = client(&mounts.cluster, true);
    let ctx = Context::root();
    let mut all = Vec::new();
    for (i, (name, layout)) in layouts().into_iter().enumerate() {
        // New files inherit the layout of their directory.
        let dir = format!("layout{i}");
        let made = client.mkdir(&ctx, FileId::ROOT, dir.as_bytes(), 0o755).unwrap();
        client.set_layout(&ctx, made.file, Some(layout)).unwrap();
        all.push((name, mounts.at.iter().map(|m| m.join(&dir)).collect()));
    }
    all
}

fn launcher(place: &Place) -> Launcher {
    Launcher {
        program: std::env::current_exe().unwrap(),
        arguments: ["--exact", "exercise::worker_process"].map(Into::into).to_vec(),
        environment: Vec::new(),
        scratch: place.path(""),
    }
}

#[track_caller]
fn done<T>(name: &str, outcome: Outcome<T>) -> T {
    outcome.unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn files_on_every_layout(mounts: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "fsx", mounts);
    let seed = Random::seed_of_run();
    for (name, dirs) in directories(&all) {
        let report = fsx::run(&dirs, "f", &fsx::Options::new(seed), |n| n < FILE_STEPS);
        assert_eq!(done(name, report).refused, 0, "{name}: a call is not supported");
    }
}

fn trees_on(mounts: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "tree", mounts);
    let seed = Random::seed_of_run();
    let steps = tree::run(&all.at, &place.path(""), "t", seed, |n| n < TREE_STEPS);
    assert_eq!(done("tree", steps), TREE_STEPS);
}

const CONTENTS: [Kind; 2] = [Kind::Blocks, Kind::Appends];

fn callers_on_every_layout(mounts: usize, kinds: &[Kind]) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "callers", mounts);
    let plan = Plan { processes: 3, ..Plan::short(Random::seed_of_run()) };
    for (i, (name, dirs)) in directories(&all).into_iter().enumerate() {
        for &kind in kinds {
            // Names lie on no target.
            if kind == Kind::Names && i > 0 {
                continue;
            }
            let ran = concurrent::run(kind, &dirs, &format!("{kind:?}"), &plan, &launcher(&place));
            let report = done(name, ran);
            assert_eq!(report.operations, 900);
            assert!(report.overlapping > 0, "{name}: nothing happened at once");
        }
    }
}

/// Restarts servers until told to stop. The first kill comes after a moment, when everything runs.
fn kill_servers(cluster: &Cluster<'_>, seed: u64, rounds: usize) {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(200 + random.below(300)));
        // Both kinds, in turn.
        let daemon = if round % 2 == 0 {
            "meta".to_owned()
        } else {
            format!("data-{}", 1 + random.below(4))
        };
        cluster.kill(&daemon);
        std::thread::sleep(Duration::from_millis(random.below(500)));
        cluster.place.weir(&["up", "--name", &cluster.name]).ok();
    }
}

/// The models' own process: this one must not have a file of the mount open
/// while it starts servers, because every child closes its copy first, and that
/// waits for the servers.
struct ModelProcess {
    child: Child,
    log: PathBuf,
}

impl ModelProcess {
    fn start(place: &Place, dirs: &[PathBuf], kind: &str, seed: u64) -> Self {
        let log = place.path(&format!("{kind}.log"));
        let child = again("exercise::model_process")
            .env(MODEL, format!("{kind} {seed}"))
            .env(MODEL_DIRS, std::env::join_paths(dirs).unwrap())
            .env(MODEL_LOCAL, place.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn finish(mut self) {
        let status = self.child.wait().unwrap();
        let log = std::fs::read_to_string(&self.log).unwrap();
        assert!(status.success(), "{status}: {log}");
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const MODEL: &str = "WEIR_TEST_MODEL";
const MODEL_DIRS: &str = "WEIR_TEST_MODEL_DIRS";
const MODEL_LOCAL: &str = "WEIR_TEST_MODEL_LOCAL";
/// In [`MODEL_LOCAL`]: the servers stay up from now on.
const OVER: &str = "over";
/// Within this time the models make their steps.
const BOUND: Duration = Duration::from_secs(120);

/// Not a test: what a [`ModelProcess`] runs.
#[test]
fn model_process() {
    let Ok(task) = std::env::var(MODEL) else { return };
    let dirs: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os(MODEL_DIRS).unwrap()).collect();
    let local = PathBuf::from(std::env::var_os(MODEL_LOCAL).unwrap());
    let (kind, seed) = task.split_once(' ').unwrap();
    let seed = seed.parse().unwrap();
    // However slow the machine is, it goes on when the servers stay up.
    let begin = Instant::now();
    let slow = |steps| steps <= 100 && begin.elapsed() < BOUND;
    let goes_on = |steps| !local.join(OVER).exists() || slow(steps);
    let steps = if kind == "fsx" {
        fsx::run(&dirs, "f", &fsx::Options::new(seed), goes_on).map(|report| report.steps)
    } else {
        tree::run(&dirs, &local, "t", seed, goes_on)
    };
    let steps = done(kind, steps);
    assert!(steps > 100, "{kind} made {steps} steps");
}

fn models_under_kills(mounts: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "kills", mounts);
    let seed = Random::seed_of_run();
    let models = ["fsx", "tree"].map(|kind| ModelProcess::start(&place, &all.at, kind, seed));
    kill_servers(&all.cluster, seed, 6);
    std::fs::write(place.path(OVER), "").unwrap();
    models.into_iter().for_each(ModelProcess::finish);
}

fn callers_under_kills(mounts: usize, kinds: &[Kind]) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "callers", mounts);
    let seed = Random::seed_of_run();
    // Slow enough to last over the kills.
    let plan = Plan { processes: 1, threads: 3, operations: 250, seed, rest_us: 25_000 };
    let start = |&kind: &Kind| {
        let name = format!("{kind:?}");
        done(&name, Running::start(kind, &all.at, &name, &plan, &launcher(&place)))
    };
    let running: Vec<Running> = kinds.iter().map(start).collect();
    kill_servers(&all.cluster, seed, 5);
    for callers in running {
        assert_eq!(done("callers", callers.finish()).operations, 750);
    }
}

#[test]
fn a_file_is_what_was_written_last_on_every_layout() {
    files_on_every_layout(1);
}

#[test]
fn a_file_is_what_was_written_last_through_any_of_two_mounts() {
    files_on_every_layout(2);
}

#[test]
fn a_file_is_what_was_written_last_through_any_of_three_mounts() {
    files_on_every_layout(3);
}

#[test]
fn a_tree_of_names_is_as_on_a_local_file_system() {
    trees_on(1);
}

#[test]
fn a_tree_of_names_is_as_on_a_local_file_system_through_any_of_two_mounts() {
    trees_on(2);
}

#[test]
fn a_tree_of_names_is_as_on_a_local_file_system_through_any_of_three_mounts() {
    trees_on(3);
}

#[test]
fn one_order_explains_what_many_callers_see() {
    callers_on_every_layout(1, &Kind::ALL);
}

#[test]
fn one_order_explains_what_the_callers_of_two_mounts_see() {
    callers_on_every_layout(2, &CONTENTS);
}

#[test]
fn one_order_explains_what_the_callers_of_three_mounts_see() {
    callers_on_every_layout(3, &CONTENTS);
}

#[test]
fn one_order_explains_the_names_that_the_callers_of_two_mounts_see() {
    callers_on_every_layout(2, &[Kind::Names]);
}

#[test]
fn one_order_explains_the_sizes_that_the_callers_of_two_mounts_see() {
    callers_on_every_layout(2, &[Kind::Sizes]);
}

#[test]
#[ignore = "lseek(SEEK_END) tells an end that is too far while another mount cuts the file: the kernel \
            takes no smaller size but with an answer that it may ignore (docs/leases.md, \"The \
            kernel's size\")"]
fn one_order_explains_the_ends_that_the_callers_of_two_mounts_find() {
    callers_on_every_layout(2, &[Kind::Ends]);
}

#[test]
fn files_and_names_go_on_as_the_models_say_while_servers_die() {
    models_under_kills(1);
}

#[test]
fn files_and_names_of_two_mounts_go_on_as_the_models_say_while_servers_die() {
    models_under_kills(2);
}

#[test]
fn one_order_explains_what_many_callers_see_while_servers_die() {
    callers_under_kills(1, &Kind::ALL);
}

#[test]
fn one_order_explains_what_the_callers_of_two_mounts_see_while_servers_die() {
    callers_under_kills(2, &CONTENTS);
}
