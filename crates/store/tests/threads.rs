//! Threads that write, sync and make checkpoints at the same time until the power fails. The
//! machine is simulated, so that a seed decides the order of threads.

use crate::crash::model::{Model, ModelObject, State, fresh};
use crate::crash::{DIR, setting, target};
use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_host::sync::Mutex;
use weir_host::thread;
use weir_simhost::disk::{SimDisk, with_disk};
use weir_simhost::run;
use weir_store::{ScrubCursor, Target};
use weir_types::{Error, Generation};

const WRITERS: u64 = 3;
const OBJECT_BYTES: usize = 40_000;
const DEFAULT_HISTORIES: u64 = 800;

/// Writes to an object of its own and to new ones, until the disk stops.
fn writer(target: &Target, model: &Mutex<Model>, first_file: u64, seed: u64) -> Result<(), Error> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut file = first_file;
    for step in 0..rng.u64(5..40) {
        if rng.u8(0..3) == 0 {
            file = first_file + rng.u64(0..8) * 100;
        }
        model.lock().objects.entry(file).or_insert_with(|| ModelObject::new(0));
        let object = target.object_or_create(object_id(file))?;
        if rng.u8(0..5) == 0 {
            // Writes during the sync are not promised, and no other thread makes any.
            object.sync()?;
            model.lock().objects.get_mut(&file).unwrap().durable();
            continue;
        }
        let at = rng.usize(0..OBJECT_BYTES);
        let data = fresh(seed + step, rng.usize(1..9000));
        {
            let mut model = model.lock();
            let model = model.objects.get_mut(&file).unwrap();
            let mut state = model.now().clone();
            let bytes = Arc::make_mut(&mut state.bytes);
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(&data);
            let len = bytes.len() as u64;
            model.history.push(State { len, ..state });
        }
        write_pieces(&object, &[(at as u64, data.len() as u64)], &data, Generation(0))?;
    }
    Ok(())
}

fn one_history(seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    let mut model = Model::default();
    with_disk(&disk, 0, || {
        Target::create(DIR, IDENTITY).unwrap();
        let target = target().unwrap();
        // Some objects that are old when the threads begin.
        for file in 1..=WRITERS {
            let data = fresh(file, OBJECT_BYTES / 2);
            let object = target.object_or_create(object_id(file)).unwrap();
            write(&object, 0, &data);
            let len = data.len() as u64;
            let state = State { len, bytes: Arc::new(data), generation: 0 };
            let mut object = ModelObject { history: vec![state], ..ModelObject::new(0) };
            object.durable();
            model.objects.insert(file, object);
        }
        target.close().unwrap();
    });
    let us = Duration::from_micros;
    disk.set_latency(us(5)..us(200), us(200)..us(3000));
    disk.crash_after(rng.u64(5..220));
    let model = Arc::new(Mutex::new(model));
    let shared = model.clone();
    run(seed, &disk, || {
        let Ok(target) = target() else { return };
        let (target, stop) = (Arc::new(target), Arc::new(AtomicBool::new(false)));
        let (for_checkpoints, until) = (target.clone(), stop.clone());
        let checkpoints = thread::spawn("checkpoints", move || {
            while !until.load(Ordering::Relaxed) && for_checkpoints.sync_all().is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let writers: Vec<_> = (1..=WRITERS)
            .map(|file| {
                let (target, model) = (target.clone(), shared.clone());
                let seed = seed * 1000 + file * 100;
                thread::spawn("writer", move || {
                    // An error ends the thread: the disk has stopped.
                    let _ = writer(&target, &model, file, seed);
                })
                .unwrap()
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        checkpoints.unwrap().join().unwrap();
        if let Some(target) = Arc::into_inner(target) {
            target.drop_unclosed();
        }
    });
    let model = model.lock();
    for _ in 0..3 {
        let image = disk.copy();
        image.power_cut(&mut rng);
        with_disk(&image, 0, || {
            let target = target().map_err(|e| format!("open: {e}"))?;
            model.clone().check(&target)?;
            let scrub =
                target.scrub(&ScrubCursor::default(), u64::MAX).map_err(|e| e.to_string())?;
            match scrub.findings.first() {
                Some(finding) => Err(format!("scrub: {finding}")),
                None if target.recovery().log_damaged => Err("the log is damaged".to_string()),
                None => Ok(()),
            }
        })?;
    }
    Ok(())
}

#[test]
fn checkpoints_beside_writers_lose_nothing_in_a_power_cut() {
    let only = setting("WEIR_SEED");
    let first = only.unwrap_or(1);
    let count = if only.is_some() { 1 } else { DEFAULT_HISTORIES };
    let count = setting("WEIR_CRASH_IMAGES").map_or(count, |images| images / 3 + 1);
    for seed in first..first + count {
        if let Err(what) = one_history(seed) {
            panic!("{what}\nrun this history again with WEIR_SEED={seed}");
        }
    }
}
