//! Random calls on one file by two clients in turn, against an array of bytes.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_file;
mod cluster;

use c_file::{CFile, connect};
use cluster::Cluster;
use weir::fs::weir_options_t;
use weir_conformance::Subject;
use weir_exercise::fsx::model::{Model, Op, contents};
use weir_exercise::{Outcome, seed_of_run};
use weir_types::LayoutSpec;

const STEPS: u64 = 1500;

/// What comes of a call, checked by the model.
fn step(file: &mut CFile, model: &mut Model, op: &Op, data: &[u8]) -> Outcome {
    match *op {
        Op::Write { at, .. } => file.write(at, data)?,
        Op::Append { .. } => file.append(data)?,
        // There are no mappings here: the calls that come closest.
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

#[test]
fn two_clients_in_turn_see_one_file() {
    let cluster = Cluster::up();
    let seed = seed_of_run();
    println!("WEIR_SEED={seed}");
    let clients = [(); 2].map(|()| connect(&cluster.credential(), &weir_options_t::default()));
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
