//! Random histories of changes and syncs: no power cut leaves a byte that was
//! not there since the last sync.

use super::{durable_file, images, root};
use crate::disk::SimDisk;
use weir_host::fs::{Directory, File, OpenHow};

/// A file and all it was since it was durable.
struct Known {
    name: &'static str,
    file: File,
    states: Vec<Vec<u8>>,
}

impl Known {
    fn new(root: &Directory, name: &'static str) -> Self {
        let file = root.open_file(name, OpenHow::CREATE).unwrap();
        Self { name, file, states: vec![Vec::new()] }
    }

    fn step(&mut self, rng: &mut fastrand::Rng) {
        let mut state = self.states.last().unwrap().clone();
        let at = rng.usize(0..12_000);
        let end = at + rng.usize(1..6_000);
        match rng.u8(0..12) {
            0..6 => {
                let byte = rng.u8(1..);
                self.file.write_full(&vec![byte; end - at], at as u64).unwrap();
                state.resize(state.len().max(end), 0);
                state[at..end].fill(byte);
            }
            6..8 => {
                self.file.set_len(at as u64).unwrap();
                state.resize(at, 0);
            }
            8..10 => {
                self.file.punch(at as u64, (end - at) as u64).unwrap();
                let len = state.len();
                state[at.min(len)..end.min(len)].fill(0);
            }
            10 => self.file.allocate(at as u64, (end - at) as u64, true).unwrap(),
            _ => {
                self.file.sync("history").unwrap();
                self.states.clear();
            }
        }
        self.states.push(state);
    }

    fn check(&self, image: &SimDisk) {
        let bytes = image.read_file(self.name).unwrap();
        assert!(self.states.iter().any(|s| s.len() == bytes.len()), "a length that it had");
        let durable = &self.states[0];
        for (at, byte) in bytes.iter().enumerate() {
            let known = self.states.iter().any(|s| s.get(at).copied().unwrap_or(0) == *byte);
            assert!(known, "{}: byte {at} is {byte}", self.name);
        }
        if self.states.iter().all(|s| s == durable) {
            assert!(bytes == *durable, "{}: nothing happened since its sync", self.name);
        }
    }
}

#[test]
fn nothing_is_left_that_was_not_there() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let root = root(&disk);
        let mut files: Vec<_> =
            ["a", "b", "c"].into_iter().map(|name| Known::new(&root, name)).collect();
        root.sync("names").unwrap();
        for _ in 0..rng.usize(1..40) {
            files[rng.usize(0..3)].step(&mut rng);
        }
        for file in &files {
            assert!(disk.read_file(file.name).unwrap() == *file.states.last().unwrap());
        }
        for (number, image) in images(&disk, 40).enumerate() {
            println!("seed {seed}, image {number}");
            files.iter().for_each(|file| file.check(&image));
            let used = image.used_bytes();
            image.power_cut(&mut rng);
            assert_eq!(image.used_bytes(), used, "a second power cut finds nothing to take");
            files.iter().for_each(|file| file.check(&image));
            let root = super::root(&image);
            for file in &files {
                let file = root.open_file(file.name, OpenHow::WRITE).unwrap();
                let len = file.size().unwrap();
                file.set_len(len + 9000).unwrap();
                let mut tail = [1; 9000];
                assert_eq!(file.read_full(&mut tail, len), Ok(9000));
                assert!(tail.iter().all(|b| *b == 0), "nothing lies beyond the end");
                file.set_len(len).unwrap();
            }
        }
    }
}

#[test]
fn small_changes_of_a_big_file_are_synced() {
    let mut rng = fastrand::Rng::with_seed(1);
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 400_000]);
    for step in 0..300 {
        let (at, len) = (rng.u64(0..400_000), rng.u64(1..3000));
        match rng.u8(0..4) {
            0 => file.punch(at, len).unwrap(),
            1 => file.set_len(400_000 - len).unwrap(),
            2 => file.allocate(at, len, false).unwrap(),
            _ => file.write_full(&vec![rng.u8(..); len as usize], at).unwrap(),
        }
        if rng.bool() {
            continue;
        }
        file.sync("step").unwrap();
        let digest = disk.digest();
        assert!(images(&disk, 2).all(|image| image.digest() == digest), "step {step}");
    }
}
