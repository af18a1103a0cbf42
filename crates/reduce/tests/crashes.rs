//! Commands that are stopped at any step, as by `kill -9`. No file is lost, the next run completes
//! the work, and then any two directories may be lost.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use trees::Dirs;
use weir_reduce::{Done, Failure, Purpose, Step, encode, repair};

/// Stops before change number `at`. Stopped work cleans nothing up.
fn stop_at(at: usize) -> (impl FnMut(Step) -> Done, std::rc::Rc<std::cell::Cell<bool>>) {
    let stopped = std::rc::Rc::new(std::cell::Cell::new(false));
    let (told, mut changes) = (stopped.clone(), 0);
    let watch = move |step| {
        if step == Step::Change {
            changes += 1;
        }
        if changes > at {
            told.set(true);
            return Err(Failure::other("stopped"));
        }
        Ok(())
    };
    (watch, stopped)
}

/// The invariant at every moment: each file exists or can be restored, even if two directories are
/// lost.
fn check_losses(tree: &Dirs, seed: usize) {
    let count = tree.dirs.len();
    let (one, other) = (seed % count, (seed / count + 1 + seed) % count);
    let crashed = tree.duplicate();
    crashed.repair();
    crashed.check().unwrap();
    crashed.lose(one);
    crashed.lose(other);
    crashed.repair();
    crashed.check().unwrap();
}

#[test]
fn encoding_that_is_stopped_at_any_step_loses_nothing() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 5)] {
        let whole = Dirs::new(dirs, 4, 3, |file| 20_000 - 770 * file);
        for at in 0.. {
            let tree = whole.duplicate();
            let (mut watch, stopped) = stop_at(at);
            let mut open = tree.open(Purpose::Encode);
            let done = encode(&mut open, code.parse().unwrap(), &Default::default(), &mut watch);
            drop(open);
            assert_eq!(done.is_err(), stopped.get(), "{code}, step {at}");
            check_losses(&tree, at);
            assert_eq!(tree.encode(code).left, [], "{code}, step {at}");
            tree.check().unwrap();
            assert_eq!(tree.verify().findings, [], "{code}, step {at}");
            if !stopped.get() {
                assert!(at >= 8, "only {at} steps");
                break;
            }
        }
    }
}

#[test]
fn repair_that_is_stopped_at_any_step_goes_on() {
    let whole = Dirs::new(6, 8, 3, |file| 20_000 - 770 * file);
    whole.encode("raid6:4");
    whole.lose(2);
    for at in 0.. {
        let tree = whole.duplicate();
        let (mut watch, stopped) = stop_at(at);
        let mut open = tree.open(Purpose::Repair);
        assert_eq!(repair(&mut open, &mut watch).is_err(), stopped.get());
        drop(open);
        // A further directory is lost before the work goes on.
        tree.lose(4);
        tree.repair();
        tree.check().unwrap();
        assert_eq!(tree.verify().findings, [], "step {at}");
        if !stopped.get() {
            break;
        }
    }
}

#[test]
fn files_written_anew_are_encoded_again_whenever_that_is_stopped() {
    let mut whole = Dirs::new(6, 8, 3, |file| 20_000 - 770 * file);
    whole.encode("raid6:4");
    let path = whole.files.keys().nth(3).unwrap().clone();
    std::fs::write(&whole.copies(&path)[0], [7; 900]).unwrap();
    whole.files.insert(path, vec![7; 900]);
    for at in 0.. {
        let tree = whole.duplicate();
        let (mut watch, stopped) = stop_at(at);
        let mut open = tree.open(Purpose::Encode);
        let code = "raid6:4".parse().unwrap();
        assert_eq!(
            encode(&mut open, code, &Default::default(), &mut watch).is_err(),
            stopped.get()
        );
        drop(open);
        tree.check().unwrap();
        let again = tree.encode("raid6:4");
        assert_eq!((again.usage.files, again.left.len()), (8, 0), "step {at}");
        tree.lose(at % 6);
        tree.lose((at + 1) % 6);
        tree.repair();
        tree.check().unwrap();
        assert_eq!(tree.verify().findings, [], "step {at}");
        if !stopped.get() {
            break;
        }
    }
}
