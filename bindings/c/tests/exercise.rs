//! Models of files, trees and concurrent callers (`weir-exercise`) through the functions that C
//! programs call, with two clients.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_file;
mod c_names;
mod cluster;

use c_file::{CFile, connect, done};
use c_names::{CCalls, CTree};
use cluster::Cluster;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use weir::fs::weir_options_t;
use weir::handles::weir_fs_t;
use weir::names::weir_mkdir;
use weir_conformance::Subject;
use weir_exercise::concurrent::{self, Calls, Kind, Launcher, Place, Plan};
use weir_exercise::fsx::model::{Model, Op, contents};
use weir_exercise::{Outcome, seed_of_run, tree};
use weir_types::LayoutSpec;

const STEPS: u64 = 1500;
const TREE_STEPS: u64 = 2000;
/// Set in the processes that call concurrently.
const CREDENTIAL: &str = "EXERCISE_CREDENTIAL";
const SHARED: &str = "EXERCISE_SHARED";

/// The result of a call, checked against the model.
fn step(file: &mut CFile, model: &mut Model, op: &Op, data: &[u8]) -> Outcome {
    match *op {
        Op::Write { at, .. } => file.write(at, data)?,
        Op::Append { .. } => file.append(data)?,
        // There are no memory mappings here. These calls come closest.
        Op::MapWrite { at, sync, .. } => {
            file.write(at, data)?;
            if sync {
                file.sync()?;
            }
        }
        Op::Read { at, len } | Op::MapRead { at, len } => {
            model.check_read(op, &file.read(at, len as usize)?)?;
        }
        Op::Truncate { to, .. } => file.truncate(to)?,
        Op::Allocate { at, len, keep_size } => file.allocate(at, len, keep_size)?,
        Op::Punch { at, len } => file.punch(at, len)?,
        Op::Zero { at, len, keep_size } => file.zero(at, len, keep_size)?,
        Op::Copy { from, to, len } => {
            let copied = file.read(from, len as usize)?;
            file.write(to, &copied)?;
        }
        Op::SeekData { at } => model.check_seek(op, file.next_data(at)?)?,
        Op::SeekHole { at } => model.check_seek(op, file.next_hole(at)?)?,
        Op::Reopen => file.reopen()?,
        Op::Sync { .. } => file.sync()?,
    }
    model.apply(op, data);
    let (size, expected) = (file.size()?, model.bytes().len() as u64);
    if size == expected { Ok(()) } else { Err(format!("the size is {size}, not {expected}")) }
}

fn two(cluster: &Cluster) -> [weir_fs_t; 2] {
    [(); 2].map(|()| connect(&cluster.credential(), &weir_options_t::default()))
}

#[test]
fn two_clients_in_turn_see_one_file() {
    let cluster = Cluster::up();
    let seed = seed_of_run();
    println!("WEIR_SEED={seed}");
    let clients = two(&cluster);
    let first = CFile::create(clients[0], "/exercise", &LayoutSpec::default()).unwrap();
    let mut files = [first, CFile::open(clients[1], "/exercise").unwrap()];
    let mut model = Model::new(2 << 20, 150_000);
    let mut rng = fastrand::Rng::with_seed(seed);
    for number in 0..STEPS {
        let (client, op) = (rng.usize(..2), model.choose(&mut rng));
        let data = contents(seed ^ number, op.data_len());
        step(&mut files[client], &mut model, &op, &data)
            .unwrap_or_else(|e| panic!("seed {seed}, step {number}, client {client}, {op:?}: {e}"));
    }
    let whole = Op::Read { at: 0, len: model.bytes().len() as u64 + 1 };
    for file in &mut files {
        step(file, &mut model, &whole, &[]).unwrap();
    }
}

#[test]
fn two_clients_in_turn_see_one_tree() {
    let cluster = Cluster::up();
    let (seed, local) = (seed_of_run(), tempfile::tempdir().unwrap());
    println!("WEIR_SEED={seed}");
    let clients = two(&cluster);
    // SAFETY: the argument is a text.
    done(unsafe { weir_mkdir(clients[0], c"/tree".as_ptr(), 0o700) }).unwrap();
    let trees = clients.map(|fs| Box::new(CTree::new(fs, "/tree")) as Box<dyn tree::Tree>);
    let steps = tree::run_over(trees.into(), local.path(), "tree", seed, |n| n < TREE_STEPS);
    assert_eq!(steps.unwrap_or_else(|e| panic!("{e}")), TREE_STEPS);
}

/// Not a test: the body of the concurrent callers. The threads of a process have a connection each,
/// or share one.
#[test]
fn worker_process() {
    let share = std::env::var_os(SHARED).is_some();
    let connections: Mutex<Vec<weir_fs_t>> = Mutex::default();
    let calls = |_: &Path| {
        let credential = std::env::var_os(CREDENTIAL).ok_or(CREDENTIAL)?;
        let mut connections = connections.lock().map_err(|e| e.to_string())?;
        if connections.is_empty() || !share {
            connections.push(connect(Path::new(&credential), &weir_options_t::default()));
        }
        let fs = connections.last().copied().ok_or("no connection")?;
        Ok(Arc::new(CCalls(fs)) as Arc<dyn Calls>)
    };
    concurrent::run_worker_over(calls).unwrap_or_else(|e| panic!("{e}"));
    for fs in connections.into_inner().unwrap() {
        done(weir::fs::weir_disconnect(fs)).unwrap();
    }
}

fn callers(share: bool, kinds: &[Kind]) {
    let cluster = Cluster::up();
    let (seed, scratch) = (seed_of_run(), tempfile::tempdir().unwrap());
    println!("WEIR_SEED={seed}");
    let mut environment = vec![(CREDENTIAL.into(), cluster.credential().into())];
    environment.extend(share.then(|| (SHARED.into(), "1".into())));
    let launcher = Launcher {
        program: std::env::current_exe().unwrap(),
        arguments: ["--exact", "worker_process"].map(OsString::from).to_vec(),
        environment,
        scratch: scratch.path().to_owned(),
    };
    // All of them use one directory, and finally two clients do.
    let place = |fs| Place { calls: Arc::new(CCalls(fs)), dir: "/".into() };
    let places: Vec<Place> = two(&cluster).into_iter().map(place).collect();
    for kind in kinds {
        let plan = Plan::short(seed);
        let done = concurrent::run_over(*kind, &places, &format!("{kind:?}"), &plan, &launcher);
        let report = done.unwrap_or_else(|e| panic!("{e}"));
        println!("{kind:?}: {report:?}");
        assert_eq!(report.operations, 600);
        assert!(report.overlapping > 0, "nobody met anybody");
    }
}

#[test]
fn one_order_explains_what_many_clients_see() {
    callers(false, &Kind::ALL);
}

#[test]
fn one_order_explains_what_the_threads_of_two_clients_see() {
    callers(true, &Kind::ALL);
}
